/* Opens a tokenizer by path: what a file is, its content says. */
#include <jansson.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "buf.h"
#include "file_map.h"
#include "tokenizer_impl.h"

enum { MOST_BYTES = 512 << 20 };

/* The error does not name the file yet. */
static json_t *parse(const struct file_map *m, struct err *e)
{
    json_error_t why;
    json_t *root = json_loadb((const char *)m->bytes, m->size, JSON_ALLOW_NUL, &why);
    if (!root)
        err_set(e, ERR_INVALID, "line %d: %s", why.line, why.text);
    return root;
}

static struct tokenizer *open_json(const struct file_map *m, const json_t *config, struct err *e)
{
    struct tokenizer *t = NULL;
    json_t *root = parse(m, e);
    if (!root)
        return NULL;
    if (json_is_object(json_object_get(root, "model")))
        t = tokenizer_open_json(root, config, e);
    else if (json_is_object(json_object_get(root, "config")) &&
             json_is_array(json_object_get(root, "vocab")))
        t = tokenizer_open_tekken(root, e);
    else
        err_set(e, ERR_INVALID,
                "JSON that is neither a tokenizer.json (with \"model\") nor a tekken.json (with "
                "\"config\" and \"vocab\")");
    json_decref(root);
    return t;
}

static struct tokenizer *open_gguf(const char *path, struct err *e)
{
    struct gguf *g = gguf_open(path, e);
    struct tokenizer *t = g ? tokenizer_open_gguf(g, e) : NULL;
    gguf_close(g);
    return t;
}

/* A line of a rank file: base64, a space, digits. */
static bool is_ranks(const struct file_map *m)
{
    char bytes[256];
    const char *text = (const char *)m->bytes;
    size_t n = m->size < sizeof bytes ? m->size : sizeof bytes;
    const char *space = memchr(text, ' ', n);
    return space && space > text && (size_t)(space - text) + 1 < n && space[1] >= '0' &&
           space[1] <= '9' &&
           tokenizer_base64((struct str){text, (size_t)(space - text)}, bytes) >= 0;
}

static bool is_json(const struct file_map *m)
{
    for (size_t i = 0; i < m->size; i++)
        if (!strchr(" \t\r\n", m->bytes[i]) || m->bytes[i] == 0)
            return m->bytes[i] == '{';
    return false;
}

/* One begins with a field of the model's message (1 to 5), all of which have a length. */
static bool is_sentencepiece(const struct file_map *m)
{
    return (m->bytes[0] & 7) == 2 && m->bytes[0] >> 3 >= 1 && m->bytes[0] >> 3 <= 5;
}

static struct tokenizer *open_bytes(const struct file_map *m, const char *encoding,
                                    const json_t *config, struct err *e)
{
    bool ranks = is_ranks(m);
    if (m->size > MOST_BYTES) {
        err_set(e, ERR_LIMIT, "a tokenizer of %llu bytes: at most %d", (unsigned long long)m->size,
                MOST_BYTES);
        return NULL;
    }
    if (ranks && !encoding) {
        err_set(e, ERR_INVALID,
                "a rank file has neither pattern nor special tokens: name its encoding");
        return NULL;
    }
    if (!ranks && encoding) {
        err_set(e, ERR_INVALID, "an encoding (\"%.40s\") goes with rank files only", encoding);
        return NULL;
    }
    if (ranks)
        return tokenizer_open_tiktoken(m->bytes, m->size, encoding, e);
    if (is_json(m))
        return open_json(m, config, e);
    if (!is_sentencepiece(m)) {
        err_set(e, ERR_INVALID,
                "not a tokenizer file: expected GGUF, tokenizer.json, SentencePiece .model, "
                "tekken.json, or a tiktoken rank file with --encoding");
        return NULL;
    }
    return tokenizer_open_sentencepiece(m->bytes, m->size, config, e);
}

static struct tokenizer *open_file(const char *path, const char *encoding, const json_t *config,
                                   struct err *e)
{
    struct file_map m;
    if (!file_map_open(&m, path, "a tokenizer", e))
        return NULL;
    struct tokenizer *t = NULL;
    bool gguf = m.size >= 4 && memcmp(m.bytes, "GGUF", 4) == 0;
    if (gguf && encoding)
        err_set(e, ERR_INVALID, "an encoding (\"%.40s\") goes with rank files only", encoding);
    else if (!gguf)
        t = open_bytes(&m, encoding, config, e);
    file_map_close(&m);
    if (gguf && !encoding)
        return open_gguf(path, e); /* which names the file itself */
    if (!t)
        err_prefix(e, "%s", file_map_shown(path).text);
    return t;
}

static char *join(const char *dir, const char *name)
{
    struct buf path = {0};
    buf_addf(&path, "%s/%s", dir, name);
    if (path.failed) {
        buf_free(&path);
        return NULL;
    }
    return path.data;
}

/* Something of the name, of whatever kind: one that is no file is refused when it is opened. */
static bool is_there(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0;
}

static bool is_file(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* tokenizer_config.json; true with NULL: there is none. */
static bool read_config(const char *dir, json_t **config, struct err *e)
{
    struct file_map m;
    char *path = join(dir, "tokenizer_config.json");
    *config = NULL;
    bool ok = true;
    if (is_file(path)) {
        ok = file_map_open(&m, path, "tokenizer settings", e);
        if (ok && (*config = parse(&m, e)) && !json_is_object(*config))
            ok = err_set(e, ERR_INVALID, "expected an object");
        else if (ok && !*config)
            ok = false;
        if (!ok && m.bytes)
            err_prefix(e, "%s", file_map_shown(path).text);
        file_map_close(&m);
    }
    free(path);
    return ok;
}

static struct tokenizer *open_dir(const char *dir, const char *encoding, struct err *e)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tekken.json"};
    struct tokenizer *t = NULL;
    json_t *config = NULL;
    char *path = NULL;
    bool ok = read_config(dir, &config, e), json = false;
    for (size_t i = 0; ok && i < sizeof names / sizeof *names && !is_there(path); i++) {
        free(path);
        path = join(dir, names[i]);
        json = i == 0;
    }
    if (ok && !is_there(path))
        err_set(e, ERR_NOT_FOUND, "%s has no tokenizer.json, tokenizer.model or tekken.json",
                file_map_shown(dir).text);
    else if (ok)
        t = open_file(path, encoding, config, e);
    if (t && config && !json && !tokenizer_apply_config(t, config, e)) {
        tokenizer_free(t);
        t = NULL;
    }
    free(path);
    json_decref(config);
    return t;
}

struct tokenizer *tokenizer_open(const char *path, const char *encoding, struct err *e)
{
    struct stat st;
    bool dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return dir ? open_dir(path, encoding, e) : open_file(path, encoding, NULL, e);
}
