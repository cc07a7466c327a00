#include "chat_templates.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_config.h"

enum { MAX_TEMPLATE = 1 << 20, MAX_JSON = 32 << 20, MAX_TEMPLATES = 32 };

const char *special_text_name(enum special_text s)
{
    static const char *const names[N_SPECIAL_TEXTS] = {"bos_token", "eos_token", "unk_token",
                                                       "pad_token"};
    return names[s];
}

const struct chat_template *chat_templates_find(const struct chat_templates *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->at[i].name, name) == 0)
            return &t->at[i];
    return NULL;
}

void chat_templates_free(struct chat_templates *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->at[i].name);
        free(t->at[i].text);
    }
    free(t->at);
    for (int i = 0; i < N_SPECIAL_TEXTS; i++)
        free(t->special[i]);
    *t = (struct chat_templates){0};
}

static char *copy(const char *text, size_t n)
{
    char *c = malloc(n + 1);
    if (!c)
        return NULL;
    memcpy(c, text, n);
    c[n] = '\0';
    return c;
}

/* The first of a name counts. */
static bool add(struct chat_templates *t, const char *name, size_t n_name, const char *text,
                size_t n, struct err *e)
{
    struct chat_template new = {copy(name, n_name), copy(text, n), n};
    const bool known = new.name &&chat_templates_find(t, new.name);
    struct chat_template *grown =
        known || t->n == MAX_TEMPLATES ? t->at : realloc(t->at, (t->n + 1) * sizeof *grown);
    if (new.name &&new.text && grown) {
        t->at = grown;
        if (!known && t->n < MAX_TEMPLATES) {
            t->at[t->n++] = new;
            return true;
        }
    }
    const bool ok = new.name &&new.text &&grown;
    free(new.name);
    free(new.text);
    return ok || err_set(e, ERR_MEMORY, "no memory for a chat template");
}

/* --- GGUF --- */

static bool add_key(struct chat_templates *t, const struct gguf *g, struct gguf_str key,
                    const char *name, size_t n_name, struct err *e)
{
    struct gguf_str text;
    char *terminated = copy(key.data, key.len);
    bool ok = terminated ? gguf_string(g, terminated, &text, e)
                         : err_set(e, ERR_MEMORY, "no memory for a key");
    free(terminated);
    return ok && add(t, name, n_name, text.data, text.len, e);
}

/* The text of the token that a key names. */
static bool read_special(struct chat_templates *t, const struct gguf *g)
{
    static const char *const keys[N_SPECIAL_TEXTS] = {
        "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"};
    uint32_t wanted[N_SPECIAL_TEXTS];
    struct gguf_string_iter it = {0};
    struct gguf_str text;
    for (int i = 0; i < N_SPECIAL_TEXTS; i++)
        if (!gguf_has(g, keys[i]) || !gguf_u32(g, keys[i], &wanted[i], NULL))
            wanted[i] = UINT32_MAX;
    if (!gguf_has(g, "tokenizer.ggml.tokens") ||
        !gguf_strings(g, "tokenizer.ggml.tokens", &it, NULL))
        return true;
    for (uint32_t id = 0; gguf_next_string(&it, &text); id++)
        for (int i = 0; i < N_SPECIAL_TEXTS; i++)
            if (wanted[i] == id && !(t->special[i] = copy(text.data, text.len)))
                return false;
    return true;
}

bool chat_templates_read_gguf(struct chat_templates *t, const struct gguf *g, struct err *e)
{
    static const char key[] = "tokenizer.chat_template";
    const size_t n = sizeof key - 1;
    for (uint64_t i = 0; i < gguf_n_keys(g); i++) {
        enum gguf_type type;
        const struct gguf_str k = gguf_key_at(g, i, &type);
        if (type != GGUF_STRING || k.len < n || memcmp(k.data, key, n) != 0)
            continue;
        if (k.len == n ? !add_key(t, g, k, "default", 7, e)
                       : k.data[n] == '.' && !add_key(t, g, k, k.data + n + 1, k.len - n - 1, e))
            return false;
    }
    return read_special(t, g) || err_set(e, ERR_MEMORY, "no memory for special tokens");
}

/* --- Hugging Face directories --- */

struct dir_reader {
    struct chat_templates *t;
    const char *dir;
    struct err *e;
};

static bool path_of(const struct dir_reader *r, const char *name, char path[4096])
{
    int n = snprintf(path, 4096, "%s/%s", r->dir, name);
    return (n > 0 && n < 4096) ||
           err_set(r->e, ERR_LIMIT, "%s: the path is too long", file_map_shown(r->dir).text);
}

/* A file whose text is a template; *found: it is there. */
static bool add_file(const struct dir_reader *r, const char *file, const char *name, size_t n_name,
                     bool *found)
{
    char path[4096];
    struct file_map map;
    struct err why;
    *found = false;
    if (!path_of(r, file, path))
        return false;
    if (!file_map_open(&map, path, "a chat template", &why))
        return true;
    *found = true;
    bool ok = map.size <= MAX_TEMPLATE
                  ? add(r->t, name, n_name, (const char *)map.bytes, (size_t)map.size, r->e)
                  : err_set(r->e, ERR_LIMIT, "%s: a chat template of more than %d bytes",
                            file_map_shown(path).text, MAX_TEMPLATE);
    file_map_close(&map);
    return ok;
}

static bool add_additional(const struct dir_reader *r)
{
    char path[4096], file[300];
    bool ok = path_of(r, "additional_chat_templates", path), found;
    DIR *dir = ok ? opendir(path) : NULL;
    const struct dirent *f;
    while (ok && dir && (f = readdir(dir))) {
        const size_t n = strlen(f->d_name);
        if (n <= 6 || strcmp(f->d_name + n - 6, ".jinja") != 0 || f->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "additional_chat_templates/%s", f->d_name);
        ok = add_file(r, file, f->d_name, n - 6, &found);
    }
    if (dir)
        closedir(dir);
    return ok;
}

/* A string, or a list of {name, template}, or (chat_template.json) an object of them. */
static bool add_value(const struct dir_reader *r, const json_t *v)
{
    const char *key;
    json_t *one;
    if (json_is_string(v))
        return add(r->t, "default", 7, json_string_value(v), json_string_length(v), r->e);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *name = json_object_get(json_array_get(v, i), "name"),
                     *text = json_object_get(json_array_get(v, i), "template");
        if (json_is_string(name) && json_is_string(text) &&
            !add(r->t, json_string_value(name), json_string_length(name), json_string_value(text),
                 json_string_length(text), r->e))
            return false;
    }
    json_object_foreach((json_t *)v, key,
                        one) if (json_is_string(one) &&
                                 !add(r->t, key, strlen(key), json_string_value(one),
                                      json_string_length(one), r->e)) return false;
    return true;
}

/* *json NULL, and true: there is no such file. */
static bool read_json(const struct dir_reader *r, const char *name, json_t **json)
{
    char path[4096];
    struct err why;
    *json = NULL;
    if (!path_of(r, name, path))
        return false;
    *json = json_file_read(path, MAX_JSON, &why);
    if (*json || why.code == ERR_NOT_FOUND)
        return true;
    if (r->e)
        *r->e = why;
    return false;
}

/* "<s>", or {"content": "<s>", ...} */
static bool read_special_texts(const struct dir_reader *r, const json_t *in)
{
    for (int i = 0; i < N_SPECIAL_TEXTS; i++) {
        const json_t *v = hf_get(in, special_text_name((enum special_text)i));
        if (json_is_object(v))
            v = hf_get(v, "content");
        if (!r->t->special[i] && json_is_string(v) &&
            !(r->t->special[i] = copy(json_string_value(v), json_string_length(v))))
            return err_set(r->e, ERR_MEMORY, "no memory for special tokens");
    }
    return true;
}

bool chat_templates_read_dir(struct chat_templates *t, const char *dir, struct err *e)
{
    const struct dir_reader r = {t, dir, e};
    json_t *config = NULL, *map = NULL, *legacy = NULL;
    bool found;
    bool ok = add_file(&r, "chat_template.jinja", "default", 7, &found) && add_additional(&r);
    ok = read_json(&r, "chat_template.json", &legacy) && ok;
    ok = read_json(&r, "tokenizer_config.json", &config) && ok;
    ok = read_json(&r, "special_tokens_map.json", &map) && ok;
    if (t->n == 0)
        ok = add_value(&r, hf_get(legacy, "chat_template")) && ok;
    if (t->n == 0)
        ok = add_value(&r, hf_get(config, "chat_template")) && ok;
    ok = read_special_texts(&r, config) && ok;
    ok = read_special_texts(&r, map) && ok;
    json_decref(legacy);
    json_decref(config);
    json_decref(map);
    return ok;
}
