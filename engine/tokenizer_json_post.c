/* What a tokenizer.json's post_processor, or tokenizer_config.json, puts around a text. */
#include "tokenizer_json.h"

static const char POST[] = "post_processor";
enum { MAX_AROUND = 256 }; /* ids before or behind a text */

static bool add_id(struct json_reading *r, struct token_list *to, const json_t *v)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || id >= r->t->n_vocab)
        return err_set(r->e, ERR_INVALID, "%s: expected ids below %d", POST, r->t->n_vocab);
    if (to->n >= MAX_AROUND)
        return err_set(r->e, ERR_LIMIT, "%s: over %d ids around a text", POST, MAX_AROUND);
    return token_list_add(to, (int32_t)id) || tokenizer_oom(r->e, r->n_ids);
}

/* {"SpecialToken": {"id": "<s>"}}, whose ids "special_tokens" has. */
static bool add_special(struct json_reading *r, const json_t *from, const json_t *special,
                        struct token_list *to)
{
    struct str name;
    size_t i;
    const json_t *id;
    if (!json_get_str(special, POST, "id", &name, r->e))
        return false;
    const json_t *known =
        json_object_getn(json_object_get(from, "special_tokens"), name.data, name.len);
    const json_t *ids = json_object_get(known, "ids");
    if (!json_is_array(ids))
        return err_set(r->e, ERR_INVALID, "%s.special_tokens has no ids for \"%.60s\"", POST,
                       name.data);
    json_array_foreach(ids, i, id)
    {
        if (!add_id(r, to, id))
            return false;
    }
    return true;
}

static bool read_template(struct json_reading *r, const json_t *from)
{
    size_t i;
    const json_t *piece, *single = json_object_get(from, "single");
    struct token_list *to = &r->t->prefix;
    if (!json_is_array(single))
        return err_set(r->e, ERR_INVALID, "%s.single is %s: expected a list", POST,
                       json_type_of(single));
    json_array_foreach(single, i, piece)
    {
        const json_t *special = json_object_get(piece, "SpecialToken");
        if (!special && to == &r->t->suffix)
            return err_set(r->e, ERR_UNSUPPORTED, "%s.single has the text twice", POST);
        if (!special)
            to = &r->t->suffix;
        else if (!add_special(r, from, special, to))
            return false;
    }
    return to == &r->t->suffix || err_set(r->e, ERR_UNSUPPORTED, "%s.single has no text", POST);
}

static bool read_step(struct json_reading *r, const json_t *from, struct str type)
{
    if (str_is(type, "ByteLevel"))
        return true;
    if (r->t->prefix.n || r->t->suffix.n)
        return err_set(r->e, ERR_UNSUPPORTED, "%s: two that add tokens", POST);
    if (str_is(type, "TemplateProcessing"))
        return read_template(r, from);
    if (str_is(type, "RobertaProcessing") || str_is(type, "BertProcessing"))
        return add_id(r, &r->t->prefix, json_array_get(json_object_get(from, "cls"), 1)) &&
               add_id(r, &r->t->suffix, json_array_get(json_object_get(from, "sep"), 1));
    return err_set(r->e, ERR_UNSUPPORTED, "%s of type \"%.*s\": we do not have it", POST,
                   (int)(type.len < 100 ? type.len : 100), type.data);
}

static void note_ends(struct tokenizer *t)
{
    if (t->bos < 0 && t->prefix.n == 1)
        t->bos = t->prefix.ids[0];
    if (t->eos < 0 && t->suffix.n == 1)
        t->eos = t->suffix.ids[0];
    t->adds_bos = t->prefix.n && t->prefix.ids[0] == t->bos;
    t->adds_eos = t->suffix.n && t->suffix.ids[t->suffix.n - 1] == t->eos;
}

bool json_read_post_processor(struct json_reading *r)
{
    if (!json_for_each_step(r, json_object_get(r->root, POST), POST, "processors", read_step))
        return false;
    note_ends(r->t);
    return true;
}

static int32_t config_id(const struct tokenizer *t, const json_t *config, const char *key)
{
    const json_t *v = json_object_get(config, key);
    const json_t *content = json_is_object(v) ? json_object_get(v, "content") : v;
    return json_is_string(content)
               ? tokenizer_find(t, json_string_value(content), json_string_length(content))
               : -1;
}

/* These classes put their own template in place of the file's, as their settings say. */
static bool has_own_template(const json_t *config)
{
    static const char *const classes[] = {"LlamaTokenizer",     "LlamaTokenizerFast",
                                          "GemmaTokenizer",     "GemmaTokenizerFast",
                                          "CodeLlamaTokenizer", "CodeLlamaTokenizerFast"};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (json_is(json_object_get(config, "tokenizer_class"), classes[i]))
            return true;
    return false;
}

/* One end of a text: what the setting says, where the class or an absent template lets it. */
static bool set_end(const json_t *config, const char *key, int32_t id, bool own,
                    struct token_list *end, struct err *e)
{
    const json_t *v = json_object_get(config, key);
    bool adds = json_is_boolean(v) ? json_is_true(v) : own && strcmp(key, "add_bos_token") == 0;
    if (end->n && !(own && json_is_boolean(v)))
        return true;
    end->n = 0;
    if (!adds || id < 0)
        return true;
    return token_list_add(end, id) || err_set(e, ERR_MEMORY, "out of memory for a tokenizer");
}

bool tokenizer_apply_config(struct tokenizer *t, const json_t *config, struct err *e)
{
    bool own = has_own_template(config);
    int32_t bos = config_id(t, config, "bos_token");
    int32_t eos = config_id(t, config, "eos_token");
    t->bos = bos >= 0 ? bos : t->bos;
    t->eos = eos >= 0 ? eos : t->eos;
    if (!set_end(config, "add_bos_token", t->bos, own, &t->prefix, e) ||
        !set_end(config, "add_eos_token", t->eos, own, &t->suffix, e))
        return false;
    note_ends(t);
    return true;
}

bool json_read_config(struct json_reading *r)
{
    return tokenizer_apply_config(r->t, r->config, r->e);
}
