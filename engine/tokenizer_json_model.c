/* The model of a tokenizer.json: BPE or Unigram. */
#include <stdlib.h>

#include "buf.h"
#include "tokenizer_json.h"
#include "utf8.h"

static bool is_own(const struct json_reading *r, int32_t id)
{
    return (size_t)id < r->n_ids && r->vocab[id].len > 0;
}

static bool in_alphabet(struct str s)
{
    for (size_t i = 0; i < s.len;)
        if (alphabet_byte(utf8_decode(s.data, &i)) < 0)
            return false;
    return true;
}

/* Tokens of the model that text may become: control tokens are none. */
static bool *list_whole(struct json_reading *r)
{
    bool *whole = calloc((size_t)r->t->n_vocab, sizeof *whole);
    if (!whole)
        tokenizer_oom(r->e, (size_t)r->t->n_vocab);
    for (int32_t i = 0; whole && i < r->t->n_vocab; i++)
        whole[i] = is_own(r, i) && r->t->kinds[i] != SPECIAL_CONTROL &&
                   r->t->kinds[i] != SPECIAL_MARKER && (!r->byte_level || in_alphabet(r->vocab[i]));
    return whole;
}

static bool refuse_option(struct json_reading *r, const json_t *model, const char *key)
{
    const json_t *v = json_object_get(model, key);
    bool none = !v || json_is_null(v) || json_is(v, "") || json_number_value(v) == 0;
    if (json_is_string(v) && !json_is(v, ""))
        none = false;
    return none || err_set(r->e, ERR_UNSUPPORTED, "model.%s: we do not have it", key);
}

struct merging {
    struct json_reading *r;
    struct bpe *bpe;
    struct buf both;
    bool byte_tokens; /* characters may become them, so that merging them is out of the question */
};

/* {"a b"} or ["a", "b"] */
static bool split_merge(const json_t *merge, struct str *left, struct str *right)
{
    if (json_is_array(merge) && json_array_size(merge) == 2 &&
        json_is_string(json_array_get(merge, 0)) && json_is_string(json_array_get(merge, 1))) {
        *left = json_str(json_array_get(merge, 0));
        *right = json_str(json_array_get(merge, 1));
        return true;
    }
    if (!json_is_string(merge))
        return false;
    struct str s = json_str(merge);
    const char *space = memchr(s.data, ' ', s.len);
    if (!space)
        return false;
    *left = (struct str){s.data, (size_t)(space - s.data)};
    *right = (struct str){space + 1, s.len - left->len - 1};
    return !memchr(right->data, ' ', right->len);
}

static int32_t part_id(const struct merging *m, size_t rank, struct str name)
{
    int32_t id = string_table_find(&m->r->by_name, name.data, name.len);
    if (id < 0)
        err_set(m->r->e, ERR_INVALID, "model.merges[%zu]: \"%.*s\" is not in the vocabulary", rank,
                (int)(name.len < 100 ? name.len : 100), name.data);
    else if (m->byte_tokens && tokenizer_named_byte(name) >= 0) {
        err_set(m->r->e, ERR_UNSUPPORTED, "model.merges[%zu]: merges byte tokens", rank);
        return -1;
    }
    return id;
}

static bool add_merge(struct merging *m, size_t rank, const json_t *merge)
{
    struct str left, right;
    if (!split_merge(merge, &left, &right))
        return err_set(m->r->e, ERR_INVALID, "model.merges[%zu]: expected two tokens", rank);
    buf_clear(&m->both);
    buf_add(&m->both, left.data, left.len);
    buf_add(&m->both, right.data, right.len);
    if (m->both.failed)
        return tokenizer_oom(m->r->e, (size_t)m->r->t->n_vocab);
    int32_t a = part_id(m, rank, left), b = a < 0 ? -1 : part_id(m, rank, right);
    if (b < 0)
        return false;
    int32_t both = string_table_find(&m->r->by_name, m->both.data ? m->both.data : "", m->both.len);
    if (both < 0)
        return err_set(m->r->e, ERR_INVALID,
                       "model.merges[%zu]: \"%.100s\" is not in the vocabulary", rank,
                       m->both.data);
    uint8_t kind = m->r->t->kinds[both];
    if (kind != SPECIAL_CONTROL && kind != SPECIAL_MARKER) /* text never becomes one */
        bpe_put_merge(m->bpe, a, b, both, (uint32_t)rank);
    return true;
}

static bool add_merges(struct json_reading *r, const json_t *model, bool byte_tokens)
{
    size_t i;
    const json_t *merge, *merges = json_object_get(model, "merges");
    struct merging m = {.r = r, .bpe = &r->t->bpe, .byte_tokens = byte_tokens};
    if (!json_is_array(merges))
        return err_set(r->e, ERR_INVALID, "model.merges is %s: expected a list",
                       json_type_of(merges));
    bool ok = bpe_by_pairs(m.bpe, json_array_size(merges), r->e);
    json_array_foreach(merges, i, merge)
    {
        ok = ok && add_merge(&m, i, merge);
        if (!ok)
            break;
    }
    buf_free(&m.both);
    return ok;
}

static int64_t say_raw(void *user, int32_t id, char *out)
{
    return alphabet_decode(((struct json_reading *)user)->t->names[id], out);
}

/* What a word starts as: bytes whose character the vocabulary has, */
static void set_bytes(struct json_reading *r)
{
    for (size_t i = 0; i < r->n_ids; i++) {
        char byte[4];
        if (r->vocab[i].len >= 1 && r->vocab[i].len <= 2 && alphabet_decode(r->vocab[i], byte) == 1)
            r->t->bpe.byte_token[(unsigned char)byte[0]] = (int32_t)i;
    }
}

/* or characters, and tokens named <0x0A> for those that are none. */
static void set_characters(struct json_reading *r, bool byte_fallback)
{
    struct bpe *bpe = &r->t->bpe;
    for (size_t i = 0; i < r->n_ids; i++) {
        struct str name = r->vocab[i];
        int byte = byte_fallback ? tokenizer_named_byte(name) : -1;
        if (byte >= 0)
            bpe->byte_token[byte] = (int32_t)i;
        if (name.len && (size_t)utf8_char(name.data, name.len) == name.len)
            bpe_add_character(bpe, (int32_t)i);
    }
}

static bool note_joins(struct json_reading *r)
{
    struct joins *joins = r->t->joins = calloc(1, sizeof *joins);
    if (!joins)
        return tokenizer_oom(r->e, r->n_ids);
    for (size_t i = 0; i < r->n_ids; i++)
        joins_note(joins, r->vocab[i]);
    return true;
}

static bool set_unknown(struct json_reading *r, const json_t *model)
{
    const json_t *unk = json_object_get(model, "unk_token");
    if (!unk || json_is_null(unk))
        return true;
    int32_t id = json_is_string(unk) ? json_find_id(r, json_str(unk)) : -1;
    if (id < 0 || !is_own(r, id))
        return err_set(r->e, ERR_INVALID, "model.unk_token is no token of the vocabulary");
    r->t->bpe.unknown = id;
    return true;
}

/* Words may be cut, unless what is left out of one lets its neighbours merge, or one that is a
 * token is it, which a part of one is not. */
static bool may_cut(const struct json_reading *r, bool ignore_merges)
{
    const struct bpe *bpe = &r->t->bpe;
    bool says_all = bpe->unknown >= 0;
    for (int b = 0; b < 256 && !says_all; b++)
        if (bpe->byte_token[b] < 0)
            return false;
    return !r->byte_level && !ignore_merges;
}

bool json_read_bpe(struct json_reading *r, const json_t *model)
{
    struct tokenizer *t = r->t;
    bool fallback, fuse, ignore;
    if (!refuse_option(r, model, "dropout") ||
        !refuse_option(r, model, "continuing_subword_prefix") ||
        !refuse_option(r, model, "end_of_word_suffix") ||
        !json_get_bool(model, "model", "byte_fallback", false, &fallback, r->e) ||
        !json_get_bool(model, "model", "fuse_unk", false, &fuse, r->e) ||
        !json_get_bool(model, "model", "ignore_merges", false, &ignore, r->e))
        return false;
    if (r->byte_level && !tokenizer_make_raw(t, say_raw, r, r->e))
        return false;
    if (!bpe_init(&t->bpe, r->byte_level ? t->raw : t->names, (size_t)t->n_vocab, !r->byte_level,
                  r->e))
        return false;
    t->bpe.fuse_unknown = fuse;
    if (r->byte_level)
        set_bytes(r);
    else
        set_characters(r, fallback);
    if (!set_unknown(r, model) || !add_merges(r, model, !r->byte_level && fallback) ||
        (may_cut(r, ignore) && !note_joins(r)))
        return false;
    bool *whole = list_whole(r);
    bool ok = whole && bpe_finish(&t->bpe, whole, ignore, r->e);
    free(whole);
    return ok;
}

static bool unigram_rules(struct json_reading *r, const json_t *model, struct unigram_rules *rules)
{
    bool fallback;
    const json_t *unk = json_object_get(model, "unk_id");
    *rules = (struct unigram_rules){.fuse = true, .look_up = true, .unknown = -1};
    memset(rules->byte_token, 0xFF, sizeof rules->byte_token);
    if (!json_get_bool(model, "model", "byte_fallback", false, &fallback, r->e))
        return false;
    if (json_is_integer(unk)) {
        json_int_t id = json_integer_value(unk);
        if (id < 0 || (size_t)id >= r->n_ids)
            return err_set(r->e, ERR_INVALID, "model.unk_id is %lld: the vocabulary has %zu tokens",
                           (long long)id, r->n_ids);
        rules->unknown = (int32_t)id;
    }
    for (size_t i = 0; fallback && i < r->n_ids; i++) {
        int byte = tokenizer_named_byte(r->vocab[i]);
        if (byte >= 0)
            rules->byte_token[byte] = (int32_t)i;
    }
    return true;
}

/* The name of the unknown token is one with unknown characters on both sides. */
static void join_unknown(struct json_reading *r, int32_t unknown)
{
    struct str name = unknown < 0 ? (struct str){0} : r->vocab[unknown];
    for (int b = 0; name.len && b < 256; b++) {
        joins_note(r->t->joins, (struct str){(char[]){(char)b, name.data[0]}, 2});
        joins_note(r->t->joins, (struct str){(char[]){name.data[name.len - 1], (char)b}, 2});
    }
}

bool json_read_unigram(struct json_reading *r, const json_t *model)
{
    enum { UNKNOWN_PENALTY = 10 };
    size_t n = r->n_ids;
    const json_t *vocab = json_object_get(model, "vocab");
    struct unigram_rules rules;
    double least = 0;
    if (r->byte_level)
        return err_set(r->e, ERR_UNSUPPORTED, "a Unigram model behind ByteLevel");
    if (!unigram_rules(r, model, &rules))
        return false;
    struct unigram_token *list = malloc((n + 1) * sizeof *list);
    if (!list)
        return tokenizer_oom(r->e, n);
    for (size_t i = 0; i < n; i++) {
        double score = json_number_value(json_array_get(json_array_get(vocab, i), 1));
        uint8_t kind = r->t->kinds[i];
        bool control = kind == SPECIAL_CONTROL || kind == SPECIAL_MARKER;
        least = i == 0 || score < least ? score : least;
        list[i] = (struct unigram_token){r->vocab[i], (int32_t)i, score, control};
    }
    rules.unk_score = least - UNKNOWN_PENALTY;
    r->t->unigram = unigram_new(list, n, rules, r->e);
    free(list);
    if (!r->t->unigram || !note_joins(r))
        return false;
    join_unknown(r, rules.unknown);
    return true;
}
