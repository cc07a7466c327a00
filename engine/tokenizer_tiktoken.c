/* tiktoken's rank files: a line is a token in base64 and its rank. Pattern and special tokens
 * are no part of them; the encodings that we know by name have theirs here. */
#include <stdlib.h>

#include "tokenizer_ranks.h"

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3_OF(digits)                                                                          \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTION "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER      \
    "+" LOWER "*" CONTRACTION "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES
#define CL100K                                                                                     \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+"                           \
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"

enum { MOST_SPECIALS = 16, MOST_IDS = 16 << 20 };

struct special {
    const char *text; /* NULL behind the last */
    int32_t id;
};

static const struct encoding {
    const char *name, *pattern, *bos, *eos;
    struct special specials[MOST_SPECIALS];
} encodings[] = {
    {"cl100k_base",
     CL100K,
     NULL,
     "<|endoftext|>",
     {{"<|endoftext|>", 100257},
      {"<|fim_prefix|>", 100258},
      {"<|fim_middle|>", 100259},
      {"<|fim_suffix|>", 100260},
      {"<|endofprompt|>", 100276}}},
    {"o200k_base",
     O200K,
     NULL,
     "<|endoftext|>",
     {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
    {"o200k_harmony",
     O200K,
     "<|startoftext|>",
     "<|return|>",
     {{"<|startoftext|>", 199998},
      {"<|endoftext|>", 199999},
      {"<|return|>", 200002},
      {"<|constrain|>", 200003},
      {"<|channel|>", 200005},
      {"<|start|>", 200006},
      {"<|end|>", 200007},
      {"<|message|>", 200008},
      {"<|call|>", 200012},
      {"<|endofprompt|>", 200018}}},
    {"llama3",
     LLAMA3_OF("\\p{N}{1,3}"),
     "<|begin_of_text|>",
     "<|end_of_text|>",
     {{"<|begin_of_text|>", 128000},
      {"<|end_of_text|>", 128001},
      {"<|reserved_special_token_0|>", 128002},
      {"<|reserved_special_token_1|>", 128003},
      {"<|finetune_right_pad_id|>", 128004},
      {"<|step_id|>", 128005},
      {"<|start_header_id|>", 128006},
      {"<|end_header_id|>", 128007},
      {"<|eom_id|>", 128008},
      {"<|eot_id|>", 128009},
      {"<|python_tag|>", 128010}}},
    {"llama4",
     O200K,
     "<|begin_of_text|>",
     "<|end_of_text|>",
     {{"<|begin_of_text|>", 200000}, {"<|end_of_text|>", 200001}}},
    {"qwen",
     LLAMA3_OF("\\p{N}"),
     NULL,
     "<|im_end|>",
     {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}},
};

static const struct encoding *find_encoding(const char *name, struct err *e)
{
    for (size_t i = 0; i < sizeof encodings / sizeof *encodings; i++)
        if (strcmp(encodings[i].name, name) == 0)
            return &encodings[i];
    err_set(e, ERR_UNSUPPORTED,
            "unknown encoding \"%.40s\": we know cl100k_base, o200k_base, o200k_harmony, llama3, "
            "llama4 and qwen",
            name);
    return NULL;
}

struct ranks {
    struct str rest; /* lines to be read */
    int line;
    char *bytes; /* of all tokens, and where the next goes */
    char *at;
    struct err *e;
};

/* The next line that is not empty: the token's bytes go to r->at. 1, 0: the end, -1: failed. */
static int next_rank(struct ranks *r, size_t *len, size_t *rank)
{
    struct str line = {0};
    while (r->rest.len && line.len == 0) {
        const char *end = memchr(r->rest.data, '\n', r->rest.len);
        size_t n = end ? (size_t)(end - r->rest.data) : r->rest.len, skip = n + (end != NULL);
        line = (struct str){r->rest.data, n};
        r->rest = (struct str){r->rest.data + skip, r->rest.len - skip};
        r->line++;
        while (line.len && (line.data[line.len - 1] == '\r' || line.data[line.len - 1] == ' '))
            line.len--;
    }
    if (line.len == 0)
        return 0;
    const char *space = memchr(line.data, ' ', line.len);
    size_t n = space ? (size_t)(space - line.data) : line.len;
    int64_t bytes = space ? tokenizer_base64((struct str){line.data, n}, r->at) : -1;
    *rank = 0;
    for (size_t i = n + 1; bytes > 0 && i < line.len; i++) {
        bool digit = line.data[i] >= '0' && line.data[i] <= '9';
        *rank = *rank * 10 + (size_t)(line.data[i] - '0');
        if (!digit || *rank >= MOST_IDS)
            bytes = -1;
    }
    if (bytes <= 0) {
        err_set(r->e, ERR_INVALID, "line %d: expected a token in base64 and a rank below %d",
                r->line, MOST_IDS);
        return -1;
    }
    *len = (size_t)bytes;
    return 1;
}

/* One above the highest id. */
static bool count_ids(struct ranks r, const struct encoding *enc, size_t *n)
{
    size_t len, rank;
    int found;
    *n = 0;
    while ((found = next_rank(&r, &len, &rank)) > 0)
        *n = rank >= *n ? rank + 1 : *n;
    for (const struct special *s = enc->specials; s->text; s++)
        *n = (size_t)s->id >= *n ? (size_t)s->id + 1 : *n;
    return found == 0;
}

static bool read_ranks(struct ranks *r, struct tokenizer *t)
{
    size_t len, rank;
    int found;
    while ((found = next_rank(r, &len, &rank)) > 0) {
        if (t->names[rank].len)
            return err_set(r->e, ERR_INVALID, "line %d: the rank %zu is there already", r->line,
                           rank);
        t->names[rank] = (struct str){r->at, len};
        r->at += len;
    }
    return found == 0;
}

static bool add_specials(struct tokenizer *t, const struct encoding *enc, struct err *e)
{
    for (const struct special *s = enc->specials; s->text; s++) {
        if (t->names[s->id].len)
            return err_set(e, ERR_INVALID, "rank %d is that of %s in %s: another encoding?", s->id,
                           s->text, enc->name);
        t->names[s->id] = (struct str){s->text, strlen(s->text)};
        t->kinds[s->id] = SPECIAL_CONTROL;
    }
    return true;
}

static int32_t id_of(const struct encoding *enc, const char *text)
{
    for (const struct special *s = enc->specials; text && s->text; s++)
        if (strcmp(s->text, text) == 0)
            return s->id;
    return -1;
}

struct tokenizer *tokenizer_open_tiktoken(const void *bytes, size_t n, const char *encoding,
                                          struct err *e)
{
    size_t n_ids;
    const struct encoding *enc = find_encoding(encoding, e);
    if (!enc)
        return NULL;
    struct ranks r = {.rest = {bytes, n}, .bytes = malloc(n + 1), .e = e};
    struct tokenizer *t = tokenizer_new(e);
    r.at = r.bytes;
    bool ok = t && (r.bytes || tokenizer_oom(e, 0)) && count_ids(r, enc, &n_ids) &&
              tokenizer_alloc(t, n_ids, e) && read_ranks(&r, t) && add_specials(t, enc, e) &&
              tokenizer_finish_ranks(t, (struct str){enc->pattern, strlen(enc->pattern)}, e);
    free(r.bytes);
    if (!ok) {
        tokenizer_free(t);
        return NULL;
    }
    t->bos = id_of(enc, enc->bos);
    t->eos = id_of(enc, enc->eos);
    return t;
}
