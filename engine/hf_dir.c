#include "hf_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file_map.h"
#include "hf_config.h"
#include "hf_shards.h"
#include "hf_spec.h"
#include "log.h"
#include "weights_hf.h"

enum { MAX_JSON = 4 << 20, MAX_TOKENIZER_CONFIG = 32 << 20 };

struct hf_dir {
    char *dir;
    json_t *config;
    struct model_spec spec;
    struct generation_defaults defaults;
    struct hf_shards *shards;
    struct weights *weights;
    struct err error; /* ERR_NONE: spec and weights are there */
};

/* A JSON file of the directory; NULL without an error where there is none. */
static bool read_optional(const struct hf_dir *d, const char *name, size_t max, json_t **out,
                          struct hf_config *c, struct err *e)
{
    char path[4096];
    *out = NULL;
    if (snprintf(path, sizeof path, "%s/%s", d->dir, name) >= (int)sizeof path)
        return err_set(e, ERR_LIMIT, "%s: the path is too long", file_map_shown(d->dir).text);
    *out = json_file_read(path, max, e);
    if (c)
        *c = (struct hf_config){file_map_shown(path), *out, *out, e};
    return *out || e->code == ERR_NOT_FOUND;
}

/* --- tokens that end a generation --- */

static void add_eos(const struct hf_config *c, struct model_spec *s, int64_t id)
{
    for (int i = 0; i < s->n_eos; i++)
        if (s->eos[i] == id)
            return;
    if (id < 0 || id >= s->n_vocab)
        log_warn("%s: eos_token_id %lld is not one of the %d tokens: ignored", c->path.text,
                 (long long)id, s->n_vocab);
    else if (s->n_eos == MODEL_MAX_EOS)
        log_warn("%s: more than %d tokens that end a generation: %lld is ignored", c->path.text,
                 MODEL_MAX_EOS, (long long)id);
    else
        s->eos[s->n_eos++] = (int32_t)id;
}

/* A number, or a list of them. */
static bool read_eos(const struct hf_config *c, const json_t *in, struct model_spec *s)
{
    const json_t *v = hf_get(in, "eos_token_id");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (json_is_integer(json_array_get(v, i)))
            add_eos(c, s, json_integer_value(json_array_get(v, i)));
    if (json_is_integer(v))
        add_eos(c, s, json_integer_value(v));
    return !v || json_is_integer(v) || json_is_array(v) ||
           hf_err(c, ERR_INVALID, "eos_token_id is %s, expected a number or a list of them",
                  hf_show_value(v).text);
}

/* The eos_token of tokenizer_config.json, where its list of added tokens has the id. */
static bool read_tokenizer_eos(struct hf_dir *d, struct err *e)
{
    struct hf_config c;
    json_t *json, *token;
    const char *id;
    if (!read_optional(d, "tokenizer_config.json", MAX_TOKENIZER_CONFIG, &json, &c, e))
        return false;
    const json_t *eos = hf_get(json, "eos_token");
    const char *text = json_string_value(json_is_object(eos) ? hf_get(eos, "content") : eos);
    json_object_foreach(json_object_get(json, "added_tokens_decoder"), id, token)
    {
        const char *content = json_string_value(hf_get(token, "content"));
        if (text && content && strcmp(text, content) == 0)
            add_eos(&c, &d->spec, strtoll(id, NULL, 10));
    }
    json_decref(json);
    return true;
}

/* --- generation_config.json --- */

/* One that cannot be meant is no reason to refuse a model. */
static bool read_default(const struct hf_config *c, const char *key, double min, double max,
                         double *out)
{
    struct err why;
    struct hf_config own = *c;
    own.e = &why;
    if (!hf_get(c->top, key))
        return false;
    if (hf_num(&own, c->top, key, min, max, min, out))
        return true;
    log_warn("%s: ignored", why.msg);
    return false;
}

/* do_sample is not looked at: as with vLLM, a temperature alone says whether to sample. */
static void read_defaults(const struct hf_config *c, struct generation_defaults *g)
{
    double top_k = 0;
    g->has_temperature = read_default(c, "temperature", 0, 100, &g->temperature);
    g->has_top_p = read_default(c, "top_p", 0, 1, &g->top_p) && g->top_p > 0;
    g->has_min_p = read_default(c, "min_p", 0, 1, &g->min_p);
    g->has_repetition_penalty =
        read_default(c, "repetition_penalty", 0.01, 100, &g->repetition_penalty);
    g->has_top_k = read_default(c, "top_k", -1, 1 << 24, &top_k);
    g->top_k = (int)top_k;
}

static bool read_generation(struct hf_dir *d, struct err *e)
{
    struct hf_config c;
    json_t *json;
    if (!read_optional(d, "generation_config.json", MAX_JSON, &json, &c, e))
        return false;
    bool ok = !json || read_eos(&c, json, &d->spec);
    if (json)
        read_defaults(&c, &d->defaults);
    json_decref(json);
    return ok;
}

/* --- all of it --- */

/* "org/name" of a snapshot in the hub's cache, else the directory's own name. */
static void read_name(struct hf_dir *d)
{
    const char *at = strstr(d->dir, "/models--"), *end;
    char *out = d->spec.name;
    size_t n = 0, max = sizeof d->spec.name - 1;
    if (at && (end = strstr(at, "/snapshots/"))) {
        for (at += 9; at < end && n < max; at++) {
            const bool slash = strncmp(at, "--", 2) == 0;
            out[n++] = slash ? '/' : *at;
            at += slash;
        }
    } else {
        end = d->dir + strlen(d->dir);
        while (end > d->dir + 1 && end[-1] == '/')
            end--;
        for (at = end; at > d->dir && at[-1] != '/';)
            at--;
        for (; at < end && n < max; at++)
            out[n++] = *at >= 0x20 && *at < 0x7F ? *at : '_';
    }
    out[n] = '\0';
}

/* A text model with an image model beside it says twice whether its embeddings are tied; where
 * this differs, the weights decide. */
static void settle_tied(struct hf_dir *d, const struct hf_config *c)
{
    static const char *const heads[] = {"lm_head.weight", "language_model.lm_head.weight",
                                        "model.lm_head.weight"};
    if (c->model == c->top || !json_is_true(hf_get(c->top, "tie_word_embeddings")))
        return;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (hf_shards_find(d->shards, heads[i]))
            return;
    d->spec.tied_embeddings = true;
}

static bool read_model(struct hf_dir *d, struct hf_config *c, struct err *e)
{
    char prefix[64];
    int64_t n_vocab;
    struct hf_quant quant;
    d->shards = hf_shards_open(d->dir, e);
    const struct hf_arch *a = d->shards ? hf_arch_of(c) : NULL;
    if (!a || !hf_quant_read(c, a, &quant) || !hf_find_embedding(d->shards, prefix, &n_vocab, e) ||
        !hf_spec_read(c, a, n_vocab, &d->spec))
        return false;
    settle_tied(d, c);
    read_name(d);
    if (!read_generation(d, e) || !read_eos(c, c->model, &d->spec) ||
        !read_eos(c, c->top, &d->spec) || !read_tokenizer_eos(d, e))
        return false;
    d->weights = weights_open_hf(d->shards, d->dir, a, &quant, &d->spec, e);
    if (!d->weights)
        return false;
    d->spec.n_params = weights_hf_elems(d->weights);
    return true;
}

static bool not_a_model(const struct hf_dir *d, struct err *e)
{
    struct err why;
    struct hf_shards *shards = hf_shards_open(d->dir, &why);
    hf_shards_close(shards);
    if (shards || why.code != ERR_NOT_FOUND) /* it has weights of some kind, but no config.json */
        return shards ? err_set(e, ERR_NOT_FOUND,
                                "%s has weights but no config.json, which says what they are",
                                file_map_shown(d->dir).text)
                      : (*e = why, false);
    return err_set(e, ERR_NOT_FOUND,
                   "%s is not a model: expected a GGUF file, or a directory with config.json, "
                   "model.safetensors and tokenizer.json",
                   file_map_shown(d->dir).text);
}

struct hf_dir *hf_dir_open(const char *dir, struct err *e)
{
    struct hf_config c;
    struct hf_dir *d = calloc(1, sizeof *d);
    if (!d || !(d->dir = strdup(dir))) {
        free(d);
        err_set(e, ERR_MEMORY, "no memory to open %.200s", dir);
        return NULL;
    }
    bool ok = read_optional(d, "config.json", MAX_JSON, &d->config, &c, e);
    if (ok && !d->config)
        ok = not_a_model(d, e);
    if (!ok) {
        hf_dir_close(d);
        return NULL;
    }
    c.e = &d->error;
    const json_t *text = hf_get(d->config, "text_config");
    if (json_is_object(text))
        c.model = text;
    if (read_model(d, &c, &d->error))
        d->error.code = ERR_NONE; /* files that may be missing have left theirs */
    return d;
}

void hf_dir_close(struct hf_dir *d)
{
    if (!d)
        return;
    weights_close(d->weights);
    hf_shards_close(d->shards);
    json_decref(d->config);
    free(d->dir);
    free(d);
}

const struct model_spec *hf_dir_spec(const struct hf_dir *d, struct err *e)
{
    if (d->error.code == ERR_NONE)
        return &d->spec;
    if (e)
        *e = d->error;
    return NULL;
}

const struct weights *hf_dir_weights(const struct hf_dir *d, struct err *e)
{
    return hf_dir_spec(d, e) ? d->weights : NULL;
}

uint64_t hf_dir_identity(const struct hf_dir *d)
{
    return d->shards ? hf_shards_identity(d->shards) : 0;
}

const struct generation_defaults *hf_dir_defaults(const struct hf_dir *d)
{
    return &d->defaults;
}

const struct hf_shards *hf_dir_shards(const struct hf_dir *d)
{
    return d->shards;
}

/* A line "license: apache-2.0" of the front matter, which lies between two lines of "---". */
void hf_dir_licence(const struct hf_dir *d, char out[160])
{
    char path[4096], line[1024];
    struct file_map readme;
    struct err why;
    int n_rules = 0;
    if (snprintf(path, sizeof path, "%s/README.md", d->dir) >= (int)sizeof path ||
        !file_map_open(&readme, path, "a model card", &why))
        return;
    const char *at = (const char *)readme.bytes, *end = at + readme.size;
    for (const char *eol; n_rules < 2 && at < end; at = eol + 1) {
        eol = memchr(at, '\n', (size_t)(end - at));
        eol = eol ? eol : end;
        snprintf(line, sizeof line, "%.*s", (int)(eol - at < 1000 ? eol - at : 1000), at);
        line[strcspn(line, "\r")] = '\0';
        n_rules += strcmp(line, "---") == 0;
        if (n_rules == 1 && strncmp(line, "license: ", 9) == 0)
            snprintf(out, 160, "%s", hf_show(line + 9).text);
    }
    file_map_close(&readme);
}
