/* The normalizer and the pre_tokenizer of a tokenizer.json. */
#include <stdlib.h>

#include "tokenizer_json.h"
#include "utf8.h"

static const char NORMALIZER[] = "normalizer", PRE[] = "pre_tokenizer";

enum { MOST_CONTENT = 256 };

static bool copy_str(struct str s, char **out, size_t *n, struct err *e)
{
    *out = malloc(s.len + 1);
    if (!*out)
        return err_set(e, ERR_MEMORY, "out of memory for a tokenizer");
    memcpy(*out, s.data, s.len);
    (*out)[s.len] = 0;
    *n = s.len;
    return true;
}

static bool read_content(struct json_reading *r, const json_t *from, const char *key,
                         struct normal_step *step)
{
    struct str s;
    if (!json_get_str(from, NORMALIZER, key, &s, r->e))
        return false;
    if (s.len > MOST_CONTENT)
        return err_set(r->e, ERR_LIMIT, "%s.%s has %zu bytes: at most %d", NORMALIZER, key, s.len,
                       MOST_CONTENT);
    return copy_str(s, &step->text, &step->n_text, r->e);
}

/* {"String": ...} or {"Regex": ...}; a bare string is a string. */
static bool read_pattern(const json_t *from, const char *where, struct str *text, bool *regex,
                         struct err *e)
{
    const json_t *v = json_object_get(from, "pattern"), *re = json_object_get(v, "Regex");
    const json_t *string = json_is_string(v) ? v : json_object_get(v, "String");
    if (!json_is_string(re) && !json_is_string(string))
        return err_set(e, ERR_INVALID, "%s.pattern: expected {\"String\": ...} or {\"Regex\": ...}",
                       where);
    *regex = json_is_string(re);
    *text = json_str(*regex ? re : string);
    return text->len > 0 || err_set(e, ERR_UNSUPPORTED, "%s.pattern is empty", where);
}

static bool read_replace(struct json_reading *r, const json_t *from, struct normal_step *step)
{
    struct str pattern;
    bool regex;
    step->kind = NORMAL_REPLACE;
    if (!read_pattern(from, NORMALIZER, &pattern, &regex, r->e) ||
        !read_content(r, from, "content", step))
        return false;
    if (regex)
        return (step->regex = regex_open(pattern, REGEX_ONIG, r->e)) != NULL;
    return copy_str(pattern, &step->pattern, &step->n_pattern, r->e);
}

static bool read_charsmap(struct json_reading *r, const json_t *from, struct normal_step *step)
{
    struct str text;
    step->kind = NORMAL_CHARSMAP;
    if (!json_get_str(from, NORMALIZER, "precompiled_charsmap", &text, r->e))
        return false;
    char *bytes = malloc(text.len + 1);
    if (!bytes)
        return err_set(r->e, ERR_MEMORY, "out of memory for a tokenizer");
    int64_t n = tokenizer_base64(text, bytes);
    if (n < 0)
        err_set(r->e, ERR_INVALID, "%s.precompiled_charsmap is not base64", NORMALIZER);
    else
        step->charsmap = charsmap_new(bytes, (size_t)n, r->e);
    free(bytes);
    return step->charsmap != NULL;
}

static const struct plain_step {
    const char *name;
    struct normal_step step;
} plain_steps[] = {
    {"NFC", {.kind = NORMAL_UNICODE, .compose = true}},
    {"NFD", {.kind = NORMAL_UNICODE}},
    {"NFKC", {.kind = NORMAL_UNICODE, .compose = true, .compatible = true}},
    {"NFKD", {.kind = NORMAL_UNICODE, .compatible = true}},
    {"Lowercase", {.kind = NORMAL_LOWERCASE}},
    {"StripAccents", {.kind = NORMAL_STRIP_ACCENTS}},
    {"Nmt", {.kind = NORMAL_NMT}},
    {"ByteLevel", {.kind = NORMAL_BYTE_LEVEL}},
};

static bool read_step(struct json_reading *r, const json_t *from, struct str type,
                      struct normal_step *step)
{
    for (size_t i = 0; i < sizeof plain_steps / sizeof *plain_steps; i++)
        if (str_is(type, plain_steps[i].name)) {
            *step = plain_steps[i].step;
            return true;
        }
    if (str_is(type, "Prepend")) {
        step->kind = NORMAL_PREPEND;
        return read_content(r, from, "prepend", step);
    }
    if (str_is(type, "Strip")) {
        step->kind = NORMAL_STRIP;
        return json_get_bool(from, NORMALIZER, "strip_left", true, &step->left, r->e) &&
               json_get_bool(from, NORMALIZER, "strip_right", true, &step->right, r->e);
    }
    if (str_is(type, "Replace"))
        return read_replace(r, from, step);
    if (str_is(type, "Precompiled"))
        return read_charsmap(r, from, step);
    return err_set(r->e, ERR_UNSUPPORTED, "%s of type \"%.*s\": we do not have it", NORMALIZER,
                   (int)(type.len < 100 ? type.len : 100), type.data);
}

static bool add_step(struct json_reading *r, const json_t *from, struct str type)
{
    struct normal_step step = {0};
    if (read_step(r, from, type, &step))
        return normaliser_add(r->t->normaliser, step, r->e);
    normal_step_free(&step);
    return false;
}

bool json_read_normalizer(struct json_reading *r)
{
    struct tokenizer *t = r->t;
    t->normaliser = normaliser_new(r->e);
    if (!t->normaliser || !json_for_each_step(r, json_object_get(r->root, NORMALIZER), NORMALIZER,
                                              "normalizers", add_step))
        return false;
    if (normaliser_is_empty(t->normaliser)) {
        normaliser_free(t->normaliser);
        t->normaliser = NULL;
    }
    return true;
}

static bool read_behavior(const json_t *from, enum split_behavior dflt, enum split_behavior *out,
                          struct err *e)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const json_t *v = json_object_get(from, "behavior");
    *out = dflt;
    if (!v)
        return true;
    for (int i = 0; i < 5; i++)
        if (json_is(v, names[i])) {
            *out = (enum split_behavior)i;
            return true;
        }
    return err_set(e, ERR_UNSUPPORTED, "%s.behavior is none that we know", PRE);
}

static bool read_split(struct json_reading *r, const json_t *from, struct stage *stage)
{
    struct str pattern;
    bool regex;
    if (!read_pattern(from, PRE, &pattern, &regex, r->e) ||
        !read_behavior(from, SPLIT_ISOLATED, &stage->behavior, r->e) ||
        !json_get_bool(from, PRE, "invert", false, &stage->invert, r->e))
        return false;
    stage->regex = regex_open(pattern, regex ? REGEX_ONIG : REGEX_PLAIN, r->e);
    return stage->regex != NULL;
}

static bool open_own(struct stage *stage, const char *pattern, struct err *e)
{
    stage->regex = regex_open((struct str){pattern, strlen(pattern)}, REGEX_PCRE, e);
    return stage->regex != NULL;
}

static bool read_byte_level(struct json_reading *r, const json_t *from, struct stage *stage)
{
    bool prefix, use_regex;
    if (!json_get_bool(from, PRE, "add_prefix_space", true, &prefix, r->e) ||
        !json_get_bool(from, PRE, "use_regex", true, &use_regex, r->e))
        return false;
    r->byte_level = true;
    strcpy(stage->mark, " ");
    stage->prefix = prefix ? PREFIX_ALWAYS : PREFIX_NONE;
    return !use_regex || open_own(stage, pretokenizer_gpt2, r->e);
}

static bool read_scheme(struct json_reading *r, const json_t *from, struct stage *stage)
{
    const json_t *scheme = json_object_get(from, "prepend_scheme");
    bool old; /* files of before say add_prefix_space instead */
    if (!json_get_bool(from, PRE, "add_prefix_space", true, &old, r->e))
        return false;
    if (scheme && !json_is(scheme, "always") && !json_is(scheme, "never") &&
        !json_is(scheme, "first"))
        return err_set(r->e, ERR_UNSUPPORTED, "%s.prepend_scheme is none that we know", PRE);
    stage->prefix = json_is(scheme, "first")           ? PREFIX_FIRST
                    : json_is(scheme, "never") || !old ? PREFIX_NONE
                                                       : PREFIX_ALWAYS;
    return true;
}

static bool read_metaspace(struct json_reading *r, const json_t *from, struct stage *stage)
{
    struct str mark;
    bool split;
    if (!json_get_str(from, PRE, "replacement", &mark, r->e) || !read_scheme(r, from, stage) ||
        !json_get_bool(from, PRE, "split", true, &split, r->e))
        return false;
    if (mark.len == 0 || (size_t)utf8_char(mark.data, mark.len) != mark.len)
        return err_set(r->e, ERR_INVALID, "%s.replacement is \"%.20s\": expected one character",
                       PRE, mark.data);
    memcpy(stage->mark, mark.data, mark.len);
    stage->marks_spaces = true;
    stage->behavior = SPLIT_MERGED_WITH_NEXT;
    if (split)
        stage->regex = regex_open(mark, REGEX_PLAIN, r->e);
    return !split || stage->regex;
}

static bool read_digits(struct json_reading *r, const json_t *from, struct stage *stage)
{
    bool individual;
    return json_get_bool(from, PRE, "individual_digits", false, &individual, r->e) &&
           open_own(stage, individual ? "\\p{N}" : "\\p{N}+", r->e);
}

#define PUNCTUATION "[\\p{P}!-/:-@\\[-`{-~]"
#define SPACE "[" REGEX_SPACES "]"
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{200C}\\x{200D}"

static bool read_stage(struct json_reading *r, const json_t *from, struct str type,
                       struct stage *stage)
{
    if (str_is(type, "Split"))
        return read_split(r, from, stage);
    if (str_is(type, "ByteLevel"))
        return read_byte_level(r, from, stage);
    if (str_is(type, "Metaspace"))
        return read_metaspace(r, from, stage);
    if (str_is(type, "Digits"))
        return read_digits(r, from, stage);
    if (str_is(type, "Punctuation"))
        return read_behavior(from, SPLIT_ISOLATED, &stage->behavior, r->e) &&
               open_own(stage, PUNCTUATION, r->e);
    if (str_is(type, "WhitespaceSplit")) {
        stage->behavior = SPLIT_REMOVED;
        return open_own(stage, SPACE, r->e);
    }
    if (str_is(type, "Whitespace")) {
        stage->behavior = SPLIT_REMOVED;
        stage->invert = true;
        return open_own(stage, "[" WORD "]+|[^" WORD REGEX_SPACES "]+", r->e);
    }
    if (str_is(type, "CharDelimiterSplit")) {
        struct str delimiter;
        stage->behavior = SPLIT_REMOVED;
        if (!json_get_str(from, PRE, "delimiter", &delimiter, r->e))
            return false;
        stage->regex = regex_open(delimiter, REGEX_PLAIN, r->e);
        return stage->regex != NULL;
    }
    return err_set(r->e, ERR_UNSUPPORTED, "%s of type \"%.*s\": we do not have it", PRE,
                   (int)(type.len < 100 ? type.len : 100), type.data);
}

/* BertPreTokenizer is two in one. */
static bool add_bert(struct json_reading *r)
{
    return pretokenizer_add_pattern(r->t->pre, SPACE, SPLIT_REMOVED, r->e) &&
           pretokenizer_add_pattern(r->t->pre, PUNCTUATION, SPLIT_ISOLATED, r->e);
}

static bool add_stage(struct json_reading *r, const json_t *from, struct str type)
{
    struct stage stage = {.behavior = SPLIT_ISOLATED};
    if (r->byte_level) /* which writes another alphabet */
        return err_set(r->e, ERR_UNSUPPORTED, "%s: something behind ByteLevel", PRE);
    if (str_is(type, "BertPreTokenizer"))
        return add_bert(r);
    if (read_stage(r, from, type, &stage))
        return pretokenizer_add(r->t->pre, stage, r->e);
    regex_close(stage.regex);
    return false;
}

bool json_read_pre_tokenizer(struct json_reading *r)
{
    const json_t *from = json_object_get(r->root, PRE);
    if (!from || json_is_null(from))
        return true;
    r->t->pre = pretokenizer_new(r->e);
    return r->t->pre && json_for_each_step(r, from, PRE, "pretokenizers", add_stage);
}
