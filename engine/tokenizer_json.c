/* Hugging Face's tokenizer.json. What we do not have is refused by name, never guessed. */
#include "tokenizer_json.h"

#include <stdlib.h>

#include "utf8.h"

static bool put_name(struct json_reading *r, const char *name, size_t n, json_int_t id)
{
    if (id < 0 || id >= MOST_IDS)
        return err_set(r->e, ERR_LIMIT, "model.vocab: \"%.100s\" has the id %lld: expected 0 to %d",
                       name, (long long)id, MOST_IDS - 1);
    if (r->vocab)
        r->vocab[id] = (struct str){name, n};
    if ((size_t)id >= r->n_ids)
        r->n_ids = (size_t)id + 1;
    r->n_own++;
    return true;
}

/* {"name": id}, once to count and once to fill. */
static bool walk_object(struct json_reading *r, json_t *vocab)
{
    const char *name;
    size_t n;
    json_t *id;
    r->n_own = 0;
    json_object_keylen_foreach(vocab, name, n, id)
    {
        if (!json_is_integer(id))
            return err_set(r->e, ERR_INVALID, "model.vocab: \"%.100s\" has %s: expected an id",
                           name, json_type_of(id));
        if (!put_name(r, name, n, json_integer_value(id)))
            return false;
    }
    return true;
}

/* [["name", score]] */
static bool walk_list(struct json_reading *r, const json_t *vocab)
{
    size_t i;
    const json_t *entry;
    r->n_own = 0;
    json_array_foreach(vocab, i, entry)
    {
        const json_t *name = json_array_get(entry, 0);
        if (!json_is_string(name) || !json_is_number(json_array_get(entry, 1)))
            return err_set(r->e, ERR_INVALID, "model.vocab[%zu]: expected a text and a score", i);
        if (!put_name(r, json_string_value(name), json_string_length(name), (json_int_t)i))
            return false;
    }
    return true;
}

static bool read_vocab(struct json_reading *r, json_t *vocab, bool list)
{
    for (int pass = 0; pass < 2; pass++) {
        if (list ? !walk_list(r, vocab) : !walk_object(r, vocab))
            return false;
        if (r->n_ids == 0)
            return err_set(r->e, ERR_INVALID, "model.vocab is empty");
        if (pass == 0 && !(r->vocab = calloc(r->n_ids, sizeof *r->vocab)))
            return tokenizer_oom(r->e, r->n_ids);
    }
    if (!string_table_init(&r->by_name, r->vocab, r->n_ids))
        return tokenizer_oom(r->e, r->n_ids);
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->vocab[i].len)
            string_table_add(&r->by_name, (int32_t)i);
    return true;
}

/* Ids of the model and of added tokens, with kinds of the latter. */
static bool make_tokens(struct json_reading *r)
{
    struct tokenizer *t = r->t;
    size_t n = r->n_ids;
    for (size_t i = 0; i < r->n_added; i++)
        if ((size_t)r->added[i].id >= n)
            n = (size_t)r->added[i].id + 1;
    if (!tokenizer_alloc(t, n, r->e))
        return false;
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->vocab[i].len)
            t->names[i] = r->vocab[i];
    for (size_t i = 0; i < r->n_added; i++) {
        const struct added_token *a = &r->added[i];
        t->names[a->id] = a->content;
        t->kinds[a->id] = a->special                                ? SPECIAL_CONTROL
                          : tokenizer_looks_like_marker(a->content) ? SPECIAL_MARKER
                                                                    : SPECIAL_USER;
    }
    return tokenizer_own_names(t, r->e);
}

/* Tokens that are looked for in normalised text are normalised themselves. */
static bool normalised_text(struct json_reading *r, struct normal_scratch *s, struct str content,
                            struct str *out, char **owned)
{
    int where = TEXT_FIRST | TEXT_LAST;
    *out = content;
    if (!r->t->normaliser)
        return true;
    if (!normalise(r->t->normaliser, s, out, &where, r->e))
        return false;
    *owned = malloc(out->len + 1);
    if (!*owned)
        return tokenizer_oom(r->e, r->n_ids);
    memcpy(*owned, out->data, out->len);
    out->data = *owned;
    return true;
}

struct special_lists {
    struct special_token *raw, *normal;
    size_t n_raw, n_normal;
    char **owned; /* [n_added] */
};

static bool list_special(struct json_reading *r, struct special_lists *x, struct normal_scratch *s)
{
    for (size_t i = 0; i < r->n_added; i++) {
        const struct added_token *a = &r->added[i];
        struct special_token token = {a->content, a->id, r->t->kinds[a->id], a->flags};
        if (!a->normalized) {
            x->raw[x->n_raw++] = token;
            continue;
        }
        /* Spans say where the text as written may hold control tokens. */
        if (token.kind != SPECIAL_USER)
            x->raw[x->n_raw++] =
                (struct special_token){a->content, a->id, SPECIAL_SPANNED, a->flags};
        if (!normalised_text(r, s, a->content, &token.text, &x->owned[i]))
            return false;
        x->normal[x->n_normal++] = token;
    }
    return true;
}

static bool make_special(struct json_reading *r)
{
    size_t n = r->n_added + 1;
    struct special_lists x = {malloc(n * sizeof *x.raw), malloc(n * sizeof *x.normal), 0, 0,
                              calloc(n, sizeof *x.owned)};
    struct normal_scratch *s = normal_scratch_new(r->e);
    bool ok =
        s && ((x.raw && x.normal && x.owned) || tokenizer_oom(r->e, n)) && list_special(r, &x, s);
    ok = ok && (r->t->special = special_tokens_new(x.raw, x.n_raw, true, r->e));
    if (ok && x.n_normal)
        ok = (r->t->special_normal = special_tokens_new(x.normal, x.n_normal, true, r->e));
    for (size_t i = 0; x.owned && i < r->n_added; i++)
        free(x.owned[i]);
    free(x.owned);
    free(x.raw);
    free(x.normal);
    normal_scratch_free(s);
    return ok;
}

static bool choose_model(struct json_reading *r, const json_t **model, bool *unigram)
{
    *model = json_object_get(r->root, "model");
    const json_t *type = json_object_get(*model, "type");
    json_t *vocab = json_object_get(*model, "vocab");
    *unigram = json_is(type, "Unigram") || (!type && json_is_array(vocab));
    bool bpe = json_is(type, "BPE") || (!type && json_object_get(*model, "merges"));
    if (!bpe && !*unigram)
        return err_set(r->e, ERR_UNSUPPORTED, "model.type is \"%.60s\": we have BPE and Unigram",
                       json_is_string(type) ? json_string_value(type) : json_type_of(type));
    if (*unigram ? !json_is_array(vocab) : !json_is_object(vocab))
        return err_set(r->e, ERR_INVALID, "model.vocab is %s: expected %s", json_type_of(vocab),
                       *unigram ? "a list" : "an object");
    return read_vocab(r, vocab, *unigram);
}

static bool read_all(struct json_reading *r)
{
    const json_t *model;
    bool unigram;
    return choose_model(r, &model, &unigram) && json_read_added(r) && make_tokens(r) &&
           json_read_normalizer(r) && make_special(r) && json_read_pre_tokenizer(r) &&
           json_read_decoder(r) && tokenizer_index(r->t, NULL, r->e) &&
           json_read_post_processor(r) && (!r->config || json_read_config(r)) &&
           (unigram ? json_read_unigram(r, model) : json_read_bpe(r, model));
}

struct tokenizer *tokenizer_open_json(const json_t *root, const json_t *config, struct err *e)
{
    struct json_reading r = {.root = root, .config = config, .t = tokenizer_new(e), .e = e};
    bool ok = r.t && read_all(&r);
    free(r.vocab);
    string_table_free(&r.by_name);
    json_free_added(&r);
    if (ok)
        return r.t;
    tokenizer_free(r.t);
    return NULL;
}
