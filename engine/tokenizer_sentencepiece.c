/* SentencePiece's .model files: a protocol buffer with pieces, how it was trained, and how text
 * is normalised. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "protobuf.h"
#include "tokenizer_scored.h"
#include "utf8.h"

/* Numbers of sentencepiece_model.proto. */
enum { MODEL_PIECE = 1, MODEL_TRAINER = 2, MODEL_NORMALIZER = 3, MODEL_DENORMALIZER = 5 };
enum { PIECE_TEXT = 1, PIECE_SCORE = 2, PIECE_TYPE = 3 };
enum {
    TRAINER_TYPE = 3,
    TRAINER_SUFFIX = 24,
    TRAINER_BYTES = 35,
    TRAINER_UNK_SURFACE = 44,
    TRAINER_BOS = 46,
    TRAINER_EOS = 47,
};
enum { NORMALIZER_MAP = 2, NORMALIZER_PREFIX = 3, NORMALIZER_ONE_SPACE = 4, NORMALIZER_ESCAPE = 5 };
enum { UNIGRAM = 1, BPE = 2, WORD = 3, CHAR = 4 };
enum { ADDED, NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

enum { MOST_IDS = 16 << 20, LONGEST_SURFACE = SAY_MORE };

struct reading {
    struct tokenizer *t;
    const json_t *added; /* tokenizer_config.json's tokens by id, or NULL */
    size_t n_pieces, n;  /* those of the file; with those */
    float *scores;       /* [n] */
    uint8_t *types;      /* [n] */
    bool *makes, *unused;
    uint64_t model_type;
    bool bytes, as_suffix, dummy_prefix, one_space, escape;
    struct str map, unk_surface, bos, eos;
    int32_t unknown;
    struct err *e;
};

static bool read_trainer(struct reading *r, struct str message)
{
    struct proto_field f;
    int found;
    while ((found = proto_next(&message, &f, r->e)) > 0) {
        if (f.number == TRAINER_TYPE && f.wire == PROTO_VARINT)
            r->model_type = f.value;
        else if (f.number == TRAINER_SUFFIX && f.wire == PROTO_VARINT)
            r->as_suffix = f.value;
        else if (f.number == TRAINER_BYTES && f.wire == PROTO_VARINT)
            r->bytes = f.value;
        else if (f.number == TRAINER_UNK_SURFACE && f.wire == PROTO_BYTES)
            r->unk_surface = f.bytes;
        else if (f.number == TRAINER_BOS && f.wire == PROTO_BYTES)
            r->bos = f.bytes;
        else if (f.number == TRAINER_EOS && f.wire == PROTO_BYTES)
            r->eos = f.bytes;
    }
    return found == 0;
}

static bool read_normalizer(struct reading *r, struct str message)
{
    struct proto_field f;
    int found;
    while ((found = proto_next(&message, &f, r->e)) > 0) {
        if (f.number == NORMALIZER_MAP && f.wire == PROTO_BYTES)
            r->map = f.bytes;
        else if (f.number == NORMALIZER_PREFIX && f.wire == PROTO_VARINT)
            r->dummy_prefix = f.value;
        else if (f.number == NORMALIZER_ONE_SPACE && f.wire == PROTO_VARINT)
            r->one_space = f.value;
        else if (f.number == NORMALIZER_ESCAPE && f.wire == PROTO_VARINT)
            r->escape = f.value;
    }
    return found == 0;
}

static bool refuse_denormalizer(struct reading *r, struct str message)
{
    struct proto_field f;
    int found;
    while ((found = proto_next(&message, &f, r->e)) > 0)
        if (f.number == NORMALIZER_MAP && f.wire == PROTO_BYTES && f.bytes.len)
            return err_set(r->e, ERR_UNSUPPORTED, "a denormalizer with a character map");
    return found == 0;
}

/* Everything but the pieces, which are counted. */
static bool read_specs(struct reading *r, struct str message)
{
    struct proto_field f;
    int found;
    while ((found = proto_next(&message, &f, r->e)) > 0) {
        if (f.wire != PROTO_BYTES)
            continue;
        bool ok = f.number == MODEL_TRAINER        ? read_trainer(r, f.bytes)
                  : f.number == MODEL_NORMALIZER   ? read_normalizer(r, f.bytes)
                  : f.number == MODEL_DENORMALIZER ? refuse_denormalizer(r, f.bytes)
                                                   : true;
        if (!ok)
            return false;
        r->n_pieces += f.number == MODEL_PIECE;
    }
    if (found < 0)
        return false;
    if (r->n_pieces == 0 || r->n_pieces > MOST_IDS)
        return err_set(r->e, ERR_INVALID, "a SentencePiece model of %zu pieces: expected 1 to %d",
                       r->n_pieces, MOST_IDS);
    if (r->model_type != UNIGRAM && r->model_type != BPE)
        return err_set(r->e, ERR_UNSUPPORTED,
                       "a SentencePiece model of type %s: we have unigram "
                       "and bpe",
                       r->model_type == WORD   ? "word"
                       : r->model_type == CHAR ? "char"
                                               : "unknown");
    return true;
}

static bool read_piece(struct reading *r, size_t i, struct str message)
{
    struct proto_field f;
    int found;
    uint64_t type = NORMAL;
    while ((found = proto_next(&message, &f, r->e)) > 0) {
        if (f.number == PIECE_TEXT && f.wire == PROTO_BYTES)
            r->t->names[i] = f.bytes;
        else if (f.number == PIECE_SCORE && f.wire == PROTO_32)
            r->scores[i] = proto_float(&f);
        else if (f.number == PIECE_TYPE && f.wire == PROTO_VARINT)
            type = f.value;
    }
    struct str name = r->t->names[i];
    if (found < 0)
        return err_prefix(r->e, "piece %zu", i);
    if (type < NORMAL || type > BYTE || name.len == 0 ||
        utf8_check(name.data, name.len) < name.len || isnan(r->scores[i]))
        return err_set(r->e, ERR_INVALID,
                       "piece %zu: expected a text, a type from 1 to 6, a score that is a number",
                       i);
    r->types[i] = (uint8_t)type;
    r->t->kinds[i] = type == CONTROL || type == UNKNOWN  ? SPECIAL_CONTROL
                     : type != USER_DEFINED              ? SPECIAL_NOT
                     : tokenizer_looks_like_marker(name) ? SPECIAL_MARKER
                                                         : SPECIAL_USER;
    return true;
}

static bool check_piece(struct reading *r, int32_t i)
{
    struct tokenizer *t = r->t;
    r->unused[i] = r->types[i] == UNUSED;
    r->makes[i] = r->types[i] == NORMAL || r->types[i] == UNUSED;
    if (r->types[i] == UNKNOWN && r->unknown >= 0)
        return err_set(r->e, ERR_INVALID, "pieces %d and %d are both the unknown one", r->unknown,
                       i);
    if (r->types[i] == UNKNOWN)
        r->unknown = i;
    if (r->types[i] == BYTE && (!r->bytes || tokenizer_named_byte(t->names[i]) < 0))
        return err_set(r->e, ERR_INVALID, "piece %d is a byte%s", i,
                       r->bytes ? ", but not named <0x00> to <0xFF>" : " without byte_fallback");
    return true;
}

static bool check_names(struct reading *r)
{
    struct string_table names = {0};
    bool ok = string_table_init(&names, r->t->names, r->n) || tokenizer_oom(r->e, r->n);
    for (int32_t i = 0; ok && (size_t)i < r->n_pieces; i++) {
        struct str name = r->t->names[i];
        int32_t before = string_table_find(&names, name.data, name.len);
        if (before >= 0)
            ok = err_set(r->e, ERR_INVALID, "pieces %d and %d have one text", before, i);
        string_table_add(&names, i);
    }
    string_table_free(&names);
    return ok;
}

/* Ids behind the file's pieces. */
static bool count_added(struct reading *r)
{
    enum { MOST_ADDED = 1 << 16 };
    const char *key;
    json_t *v;
    r->n = r->n_pieces;
    json_object_foreach((json_t *)r->added, key, v)
    {
        long long id = atoll(key);
        if (id < 0 || (size_t)id >= r->n_pieces + MOST_ADDED)
            return err_set(r->e, ERR_LIMIT,
                           "added_tokens_decoder: \"%.40s\" for a model of %zu "
                           "pieces",
                           key, r->n_pieces);
        r->n = (size_t)id >= r->n ? (size_t)id + 1 : r->n;
    }
    return true;
}

static void add_added(struct reading *r)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)r->added, key, v)
    {
        const json_t *content = json_object_get(v, "content");
        size_t id = (size_t)atoll(key);
        if (id < r->n_pieces || !json_is_string(content))
            continue; /* a piece that is there keeps its own ways */
        r->t->names[id] = (struct str){json_string_value(content), json_string_length(content)};
        r->t->kinds[id] =
            json_is_true(json_object_get(v, "special")) ? SPECIAL_CONTROL : SPECIAL_MARKER;
    }
}

static bool read_pieces(struct reading *r, struct str message)
{
    struct proto_field f;
    size_t i = 0;
    r->scores = calloc(r->n, sizeof *r->scores);
    r->types = calloc(r->n, sizeof *r->types);
    r->makes = calloc(r->n, sizeof *r->makes);
    r->unused = calloc(r->n, sizeof *r->unused);
    if (!r->scores || !r->types || !r->makes || !r->unused)
        return tokenizer_oom(r->e, r->n);
    if (!tokenizer_alloc(r->t, r->n, r->e))
        return false;
    while (i < r->n_pieces && proto_next(&message, &f, r->e) > 0)
        if (f.number == MODEL_PIECE && f.wire == PROTO_BYTES && !read_piece(r, i++, f.bytes))
            return false;
    add_added(r);
    for (int32_t k = 0; (size_t)k < r->n_pieces; k++)
        if (!check_piece(r, k))
            return false;
    if (r->unknown < 0)
        return err_set(r->e, ERR_INVALID, "no piece is the unknown one");
    return check_names(r);
}

static bool make_normaliser(struct reading *r)
{
    struct tokenizer *t = r->t;
    struct normal_step step = {.kind = NORMAL_SENTENCEPIECE,
                               .dummy_prefix = r->dummy_prefix,
                               .as_suffix = r->as_suffix,
                               .one_space = r->one_space,
                               .escape = r->escape,
                               .protected_ = t->special_normal};
    if (r->map.len && !(step.charsmap = charsmap_new(r->map.data, r->map.len, r->e)))
        return false;
    t->normaliser = normaliser_new(r->e);
    if (!t->normaliser) {
        normal_step_free(&step);
        return false;
    }
    t->adds_space = r->dummy_prefix && !r->as_suffix;
    t->start = r->one_space ? START_SPACE_OF_EACH : t->adds_space ? START_ONE_SPACE : START_KEEP;
    return normaliser_add(t->normaliser, step, r->e);
}

static struct special_tokens *list_special(struct reading *r, enum special_kind least,
                                           enum special_kind most)
{
    size_t n = 0;
    struct special_token *list = malloc(r->n * sizeof *list);
    if (!list) {
        tokenizer_oom(r->e, r->n);
        return NULL;
    }
    for (int32_t i = 0; i < r->t->n_vocab; i++)
        if (r->t->kinds[i] >= least && r->t->kinds[i] <= most)
            list[n++] = (struct special_token){r->t->names[i], i, r->t->kinds[i], 0};
    struct special_tokens *found = special_tokens_new(list, n, false, r->e);
    free(list);
    return found;
}

static int64_t say(void *user, int32_t id, char *out)
{
    struct reading *r = user;
    if (r->types[id] == CONTROL || r->types[id] == ADDED)
        return -1;
    if (r->types[id] == UNKNOWN) {
        memcpy(out, r->unk_surface.data, r->unk_surface.len);
        return (int64_t)r->unk_surface.len;
    }
    if (r->types[id] == BYTE) {
        *out = (char)tokenizer_named_byte(r->t->names[id]);
        return 1;
    }
    return (int64_t)tokenizer_unmark(r->t->names[id], out);
}

static bool make_bpe(struct reading *r)
{
    struct tokenizer *t = r->t;
    if (!bpe_init(&t->bpe, t->names, r->n, true, r->e) || !bpe_by_text(&t->bpe, r->e))
        return false;
    t->bpe.fuse_unknown = true;
    t->bpe.unknown = r->unknown;
    for (int32_t i = 0; i < t->n_vocab; i++)
        if (r->types[i] == BYTE)
            t->bpe.byte_token[tokenizer_named_byte(t->names[i])] = i;
    return tokenizer_add_scored(t, r->scores, r->makes, r->unused, r->e) &&
           bpe_finish(&t->bpe, r->makes, false, r->e);
}

/* Whatever its score, a user-defined piece costs nothing, and gains the more the longer it is. */
static double unigram_score(const struct reading *r, int32_t i)
{
    if (r->types[i] == USER_DEFINED)
        return (double)(0.1f * (float)(r->t->names[i].len - 1));
    return r->scores[i];
}

static bool make_unigram(struct reading *r)
{
    struct tokenizer *t = r->t;
    size_t n = 0;
    float least = INFINITY;
    struct unigram_rules rules = {.single = true, .fuse = true, .unknown = r->unknown};
    struct unigram_token *list = malloc(r->n * sizeof *list);
    if (!list)
        return tokenizer_oom(r->e, r->n);
    memset(rules.byte_token, 0xFF, sizeof rules.byte_token);
    for (size_t i = 0; i < r->n; i++)
        if (r->types[i] == NORMAL && r->scores[i] < least)
            least = r->scores[i];
    rules.unk_score = least - 10.0f;
    for (int32_t i = 0; i < t->n_vocab; i++) {
        if (r->types[i] == BYTE)
            rules.byte_token[tokenizer_named_byte(t->names[i])] = i;
        if (r->types[i] != NORMAL && r->types[i] != USER_DEFINED)
            continue;
        list[n++] = (struct unigram_token){t->names[i], i, unigram_score(r, i),
                                           t->kinds[i] == SPECIAL_MARKER};
        joins_note(t->joins, t->names[i]);
    }
    t->unigram = unigram_new(list, n, rules, r->e);
    free(list);
    return t->unigram != NULL;
}

static void set_ends(struct reading *r)
{
    struct tokenizer *t = r->t;
    for (int32_t i = t->n_vocab; i-- > 0;) {
        struct str name = t->names[i];
        if (r->types[i] != CONTROL)
            continue;
        if (name.len == r->bos.len && memcmp(name.data, r->bos.data, name.len) == 0)
            t->bos = i;
        if (name.len == r->eos.len && memcmp(name.data, r->eos.data, name.len) == 0)
            t->eos = i;
    }
}

/* User-defined pieces are cut out of a text that is merged; in a Unigram model they take part,
 * and only the character map spares them. */
static bool fill(struct reading *r, struct str message)
{
    struct tokenizer *t = r->t;
    bool bpe;
    if (!read_specs(r, message) || !count_added(r) || !read_pieces(r, message))
        return false;
    if (r->unk_surface.len > LONGEST_SURFACE)
        return err_set(r->e, ERR_LIMIT, "unk_surface has %zu bytes: at most %d", r->unk_surface.len,
                       LONGEST_SURFACE);
    bpe = r->model_type == BPE;
    set_ends(r);
    t->starts_anew = true;
    t->joins = calloc(1, sizeof *t->joins);
    t->special = list_special(r, SPECIAL_MARKER, SPECIAL_CONTROL);
    t->special_normal = list_special(r, SPECIAL_USER, SPECIAL_USER);
    if (!t->joins)
        return tokenizer_oom(r->e, r->n);
    if (!t->special || !t->special_normal || !make_normaliser(r) || !tokenizer_own_names(t, r->e) ||
        !tokenizer_make_pieces(t, say, r, r->e) || !tokenizer_index(t, NULL, r->e) ||
        !(bpe ? make_bpe(r) : make_unigram(r)))
        return false;
    t->whole_text = !bpe;
    return true;
}

struct tokenizer *tokenizer_open_sentencepiece(const void *bytes, size_t n, const json_t *config,
                                               struct err *e)
{
    struct reading r = {.t = tokenizer_new(e),
                        .added = json_object_get(config, "added_tokens_decoder"),
                        .model_type = UNIGRAM,
                        .dummy_prefix = true,
                        .one_space = true,
                        .escape = true,
                        .unk_surface = {" \xE2\x81\x87 ", 5},
                        .bos = {"<s>", 3},
                        .eos = {"</s>", 4},
                        .unknown = -1,
                        .e = e};
    bool ok = r.t && fill(&r, (struct str){bytes, n});
    free(r.scores);
    free(r.types);
    free(r.makes);
    free(r.unused);
    if (ok)
        return r.t;
    tokenizer_free(r.t);
    return NULL;
}
