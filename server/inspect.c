#include "inspect.h"

#include "buf.h"
#include "inspect_template.h"
#include "loaded_model.h"
#include "model.h"
#include "utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is being put together. */
struct inspection {
    const struct model_file *file;
    const struct model_spec *spec; /* NULL: not a model that we compute */
    struct tokenizer *tokenizer;   /* NULL: of no kind that we know */
    json_t *out, *warnings;
};

static void set(json_t *in, const char *key, json_t *value)
{
    json_object_set_new(in, key, value);
}

/* What is not UTF-8 in a file's text is replaced; without that there would be no value at all. */
static json_t *text_of(const char *s)
{
    struct buf good = {0};
    utf8_replace_bad(&good, s);
    json_t *v = good.failed ? NULL : json_string(good.data ? good.data : "");
    buf_free(&good);
    return v;
}

static void __attribute__((format(printf, 2, 3))) warn(struct inspection *i, const char *fmt, ...)
{
    char text[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    json_array_append_new(i->warnings, text_of(text));
}

/* {"id": 2, "text": "</s>"} */
static json_t *token(const struct inspection *i, int32_t id)
{
    json_t *t = json_pack("{s:i}", "id", id);
    size_t n;
    if (!i->tokenizer || id < 0 || id >= tokenizer_n_vocab(i->tokenizer))
        return t;
    const char *piece = tokenizer_piece(i->tokenizer, id, &n);
    json_t *text = json_stringn(piece, n); /* NULL: a part of a character */
    if (text)
        set(t, "text", text);
    return t;
}

/* --- sizes --- */

static void add_features(json_t *list, const struct model_spec *s)
{
    char text[120];
    int n_windowed = 0, n_still = 0;
    for (int l = 0; l < s->n_layers; l++) {
        n_windowed += model_spec_layer_has(s, l, LAYER_WINDOWED);
        n_still += model_spec_layer_has(s, l, LAYER_NO_ROPE);
    }
    if (n_windowed) {
        snprintf(text, sizeof text, "a window of %d tokens in %d of %d layers", s->window,
                 n_windowed, s->n_layers);
        json_array_append_new(list, json_string(text));
    }
    if (n_still) {
        snprintf(text, sizeof text, "no positions in %d of %d layers", n_still, s->n_layers);
        json_array_append_new(list, json_string(text));
    }
    if (s->n_experts) {
        snprintf(text, sizeof text, "%d experts of %d, %d a token", s->n_experts, s->n_ff_expert,
                 s->n_experts_used);
        json_array_append_new(list, json_string(text));
    }
    const struct {
        bool has;
        const char *text;
    } flags[] = {
        {s->qk_norm, "norms of queries and keys"},
        {s->n_ff_shared > 0, "a shared expert"},
        {s->attention_sinks, "attention sinks"},
        {s->attention_soft_cap > 0 || s->logit_soft_cap > 0, "soft caps"},
        {s->parallel, "attention and MLP side by side"},
        {s->qkv_bias, "biases of attention"},
        {s->rope_long_above > 0, "two tables of positions (longrope)"},
        {s->tied_embeddings, "embeddings tied to the head"},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].has)
            json_array_append_new(list, json_string(flags[i].text));
}

static void add_spec(struct inspection *i)
{
    const struct model_spec *s = i->spec;
    const uint64_t values =
        2 * (uint64_t)s->n_layers * (uint64_t)s->n_kv_heads * (uint64_t)s->head_dim;
    json_t *features = json_array();
    set(i->out, "architecture", json_string(s->architecture));
    set(i->out, "parameters", json_integer((json_int_t)s->n_params));
    set(i->out, "sizes",
        json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "layers", s->n_layers, "width",
                  s->n_embd, "mlp", s->n_ff ? s->n_ff : s->n_ff_expert, "heads", s->n_heads,
                  "kv_heads", s->n_kv_heads, "head_dim", s->head_dim, "vocabulary", s->n_vocab,
                  "context", s->n_ctx_train));
    add_features(features, s);
    set(i->out, "features", features);
    set(i->out, "kv_bytes_a_token",
        json_pack("{s:I, s:I}", "f16", (json_int_t)(2 * values), "f32", (json_int_t)(4 * values)));
}

/* --- tensors --- */

static void count_tensor(void *arg, const char *type, uint64_t bytes)
{
    json_t *types = arg, *t = json_object_get(types, type);
    if (!t) {
        t = json_pack("{s:i, s:i}", "tensors", 0, "bytes", 0);
        json_object_set_new(types, type, t);
    }
    json_t *n = json_object_get(t, "tensors"), *sum = json_object_get(t, "bytes");
    json_integer_set(n, json_integer_value(n) + 1);
    json_integer_set(sum, json_integer_value(sum) + (json_int_t)bytes);
}

static void add_tensors(struct inspection *i)
{
    json_t *types = json_object();
    model_file_each_tensor(i->file, count_tensor, types);
    set(i->out, "tensors", types);
}

/* --- tokenizer and templates --- */

/* The file of a directory that the tokenizer is read from. */
static const char *tokenizer_file(const char *dir)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "tekken.json"};
    char path[4096];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[k]);
        if (access(path, F_OK) == 0)
            return names[k];
    }
    return "unknown";
}

static void add_tokenizer(struct inspection *i)
{
    struct err why;
    struct gguf_str model;
    const struct gguf *g = model_file_gguf(i->file);
    i->tokenizer = model_file_tokenizer(i->file, &why);
    if (!i->tokenizer) {
        set(i->out, "tokenizer", json_pack("{s:o}", "problem", text_of(why.msg)));
        warn(i, "the tokenizer cannot be used (%s): prompts must be token ids", why.msg);
        return;
    }
    const struct tokenizer *t = i->tokenizer;
    json_t *out = json_pack("{s:i, s:b, s:b}", "tokens", tokenizer_n_vocab(t), "adds_bos",
                            tokenizer_adds_bos(t), "adds_eos", tokenizer_adds_eos(t));
    if (g && gguf_has(g, "tokenizer.ggml.model") &&
        gguf_string(g, "tokenizer.ggml.model", &model, NULL))
        set(out, "kind", json_string(gguf_show(model).text));
    if (g && gguf_has(g, "tokenizer.ggml.pre") &&
        gguf_string(g, "tokenizer.ggml.pre", &model, NULL))
        set(out, "pre", json_string(gguf_show(model).text));
    if (!g)
        set(out, "kind", json_string(tokenizer_file(model_file_path(i->file))));
    if (tokenizer_bos(t) >= 0)
        set(out, "bos", token(i, tokenizer_bos(t)));
    if (tokenizer_eos(t) >= 0)
        set(out, "eos", token(i, tokenizer_eos(t)));
    set(i->out, "tokenizer", out);
    if (i->spec && tokenizer_n_vocab(t) > i->spec->n_vocab)
        warn(i,
             "the tokenizer has %d tokens, the model only %d: prompts with the others are "
             "refused",
             tokenizer_n_vocab(t), i->spec->n_vocab);
}

static bool ends_generation(const struct model_spec *s, int32_t id)
{
    for (int i = 0; i < s->n_eos; i++)
        if (s->eos[i] == id)
            return true;
    return false;
}

static void judge_template(struct inspection *i, const struct chat_template *c,
                           const struct template_facts *f)
{
    const bool is_default = strcmp(c->name, "default") == 0;
    if (!f->parses || !f->renders)
        warn(i, "template \"%s\" %s: %s", c->name, f->parses ? "fails" : "does not parse",
             f->why.msg);
    else if (is_default && !f->system_role)
        warn(i, "template \"%s\" has no system role: system messages are refused or left out",
             c->name);
    if (f->end < 0 || !i->spec || ends_generation(i->spec, f->end) ||
        strcmp(i->spec->architecture, "gpt-oss") == 0) /* whose answers have parts with ends */
        return;
    json_t *end = token(i, f->end);
    warn(i,
         "template \"%s\" ends answers with token %d (%s), which does not end a generation: "
         "answers may run on (send it in stop_token_ids)",
         c->name, f->end, json_string_value(json_object_get(end, "text")));
    json_decref(end);
}

static void add_templates(struct inspection *i)
{
    const struct chat_templates *t = model_file_templates(i->file);
    json_t *list = json_array();
    for (size_t k = 0; k < t->n; k++) {
        struct template_facts f = {0};
        template_try(&t->at[k], t, i->tokenizer, &f);
        json_array_append_new(list,
                              json_pack("{s:o, s:i, s:b, s:b, s:b}", "name", text_of(t->at[k].name),
                                        "bytes", (int)t->at[k].len, "works", f.parses && f.renders,
                                        "system_role", f.system_role, "tools", f.tools));
        judge_template(i, &t->at[k], &f);
    }
    set(i->out, "templates", list);
    if (t->n == 0)
        warn(i, "no chat template: /v1/chat/completions needs --chat-template FILE");
    else if (!chat_templates_find(t, "default"))
        warn(i, "no template is named default: /v1/chat/completions needs --chat-template FILE");
}

static void add_special(struct inspection *i)
{
    const struct chat_templates *t = model_file_templates(i->file);
    json_t *special = json_object();
    for (int k = 0; k < N_SPECIAL_TEXTS; k++)
        if (t->special[k])
            set(special, special_text_name((enum special_text)k), text_of(t->special[k]));
    set(i->out, "special_tokens", special);
}

/* --- ends, defaults, licence --- */

static void add_ends(struct inspection *i)
{
    json_t *list = json_array();
    for (int k = 0; i->spec && k < i->spec->n_eos; k++)
        json_array_append_new(list, token(i, i->spec->eos[k]));
    set(i->out, "ends", list);
    if (i->spec && i->spec->n_eos == 0)
        warn(i, "no token ends a generation (eos_token_id is missing): answers end only at their "
                "limit");
}

static void add_defaults(struct inspection *i)
{
    const struct generation_defaults *d = model_file_defaults(i->file);
    json_t *out = json_object();
    struct generation_default all[N_GENERATION_DEFAULTS];
    generation_defaults_list(d, all);
    for (int k = 0; k < N_GENERATION_DEFAULTS; k++)
        if (all[k].has)
            set(out, all[k].name, json_real(all[k].value));
    set(i->out, "sampling_defaults", out);
}

/* What GGUF files of some architectures have no key for. */
static void warn_of_gguf(struct inspection *i)
{
    static const struct {
        const char *arch, *text;
    } lost[] = {
        {"gemma2", "GGUF has no key for query_pre_attn_scalar: scores are scaled as the published "
                   "sizes are"},
        {"gemma3", "GGUF has no key for query_pre_attn_scalar: scores are scaled as the published "
                   "sizes are"},
        {"cohere2", "GGUF may lack the pattern of windows: of four layers the last has none"},
        {"smollm3", "GGUF has no key for the layers without positions: every fourth"},
        {"gpt-oss", "GGUF has no key for YaRN's truncate: false is taken, as published"},
        {"phi3", "GGUF says not which factors of longrope count: the context's length decides"},
    };
    if (!model_file_gguf(i->file) || !i->spec)
        return;
    for (size_t k = 0; k < sizeof lost / sizeof *lost; k++)
        if (strcmp(lost[k].arch, i->spec->architecture) == 0)
            warn(i, "%s", lost[k].text);
    if (strcmp(i->spec->architecture, "llama") == 0 && i->spec->window == 0 &&
        (strstr(i->spec->name, "istral-7B-v0.1") ||
         strstr(i->spec->name, "istral-7B-Instruct-v0.1")))
        warn(i, "GGUF files of Mistral lose their window of 4096 tokens");
}

/* A scaling that does not stretch the original context to the one that the file claims. */
static void warn_of_rope(struct inspection *i)
{
    const struct gguf *g = model_file_gguf(i->file);
    char key[96];
    uint32_t original;
    float factor;
    if (!g || !i->spec)
        return;
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", i->spec->architecture);
    if (!gguf_u32_or(g, key, 0, &original, NULL))
        return;
    snprintf(key, sizeof key, "%s.rope.scaling.factor", i->spec->architecture);
    if (!gguf_f32_or(g, key, 0, &factor, NULL) || factor <= 0 || original == 0)
        return;
    const double reach = (double)original * (double)factor;
    if (reach < 0.99 * i->spec->n_ctx_train)
        warn(i, "rope mismatch: %u tokens stretched by %g are %g, less than the context of %d",
             original, (double)factor, reach, i->spec->n_ctx_train);
}

/* Whether the server could load it, as far as names, shapes and types tell. */
static bool is_loadable(const struct inspection *i, struct err *why)
{
    uint64_t bytes;
    const struct weights *weights = model_file_weights(i->file, why);
    return weights && model_check(weights, i->spec, &bytes, NULL, why);
}

json_t *inspect_model(const struct model_file *file, const char *named)
{
    struct inspection i = {file, NULL, NULL, json_object(), json_array()};
    struct err why;
    char licence[160];
    i.spec = model_file_spec(file, &why);
    const bool loadable = i.spec && is_loadable(&i, &why);
    set(i.out, "model", text_of(i.spec ? i.spec->name : named));
    set(i.out, "kind", json_string(model_file_kind(file)));
    set(i.out, "path", text_of(model_file_path(file)));
    set(i.out, "supported", json_boolean(loadable));
    if (!loadable)
        set(i.out, "problem", text_of(why.msg));
    if (i.spec)
        add_spec(&i);
    add_tensors(&i);
    add_tokenizer(&i);
    add_special(&i);
    add_ends(&i);
    add_templates(&i);
    add_defaults(&i);
    model_file_licence(file, licence);
    if (licence[0])
        set(i.out, "licence", text_of(licence));
    warn_of_rope(&i);
    warn_of_gguf(&i);
    set(i.out, "warnings", i.warnings);
    tokenizer_free(i.tokenizer);
    return i.out;
}
