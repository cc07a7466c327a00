#define PCRE2_CODE_UNIT_WIDTH 8
#include "pretokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

/* Inside a class: white space as Unicode's property White_Space has it (PCRE2's own \s also
 * has U+180E, which is none since Unicode 6.3). */
#define SPACES "\\p{Z}\\x{9}-\\x{D}\\x{85}"
#define SPACE "[" SPACES "]"
#define NOT_SPACE "[^" SPACES "]"
/* A run of spaces; its last one goes with the word that follows. */
#define SPACE_RUN SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define LINE_ENDS SPACE "*[\\r\\n]+"

#define CONTRACTION "'s|'t|'re|'ve|'m|'ll|'d"
#define ANY_CASE_CONTRACTION "(?i:" CONTRACTION ")"
#define ASCII_PUNCTUATION "!-/:-@\\[-`{-~"
#define CJK "\\x{4E00}-\\x{9FA5}"

#define GPT2 CONTRACTION "| ?\\p{L}+| ?\\p{N}+| ?[^" SPACES "\\p{L}\\p{N}]+|" SPACE_RUN
/* GPT-4's: words take one leading non-letter, digits come in groups. */
#define LLAMA3_OF(digits)                                                                          \
    ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACES                   \
                         "\\p{L}\\p{N}]+[\\r\\n]*|" LINE_ENDS "|" SPACE_RUN
#define QWEN35                                                                                     \
    ANY_CASE_CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                           \
                         "| ?[^" SPACES "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINE_ENDS "|" SPACE_RUN
/* GPT-4o's: a word also ends where a capital follows a small letter. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_OF(suffix, digits)                                                                   \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER  \
    "*" suffix "|" digits "| ?[^" SPACES "\\p{L}\\p{N}]+[\\r\\n/]*|" LINE_ENDS "|" SPACE_RUN
#define DEEPSEEK_V3                                                                                \
    "[" ASCII_PUNCTUATION "][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                 \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINE_ENDS "|" SPACE_RUN
/* Letters with case, as Unicode 11 had them. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}"                          \
    "\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"                  \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}"                         \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}"                 \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"                 \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}"                 \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}"                            \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}"                           \
    "\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"                 \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}"                  \
    "\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}"                   \
    "\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"                  \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"                  \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"                              \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

enum { MAX_STAGES = 8 };

struct rule {
    const char *patterns[MAX_STAGES]; /* NULL behind the last, unless all are there */
};

static const struct rule gpt2 = {{GPT2}};
static const struct rule single_digits = {{"\\p{N}", GPT2}};
static const struct rule llama3 = {{LLAMA3_OF("\\p{N}{1,3}")}};
static const struct rule qwen2 = {{LLAMA3_OF("\\p{N}")}};
static const struct rule qwen35 = {{QWEN35}};
static const struct rule gpt4o = {{CASED_OF(ANY_CASE_CONTRACTION "?", "\\p{N}{1,3}")}};
static const struct rule tekken = {{CASED_OF("", "\\p{N}")}};
static const struct rule deepseek_v3 = {
    {"\\p{N}{1,3}", "[" CJK "\\x{3040}-\\x{30FF}]+", DEEPSEEK_V3}};
static const struct rule deepseek_coder = {{"[\\r\\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+",
                                            "[" CJK "\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+",
                                            "\\p{N}"}};
/* Spaces at the end: the original says \s+$, which costs the square of a run that is not
 * there. A run that starts behind a non-space and gives nothing back finds the same. */
static const struct rule deepseek_llm = {
    {"[\\r\\n]", SPACE "?[" CASED_LETTERS "]+",
     SPACE "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+",
     "(?<!" SPACE ")" SPACE "++\\z", "[" CJK "\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}"}};
static const struct rule falcon = {{"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}};
/* What llama.cpp does with files whose converter knew nothing better. */
static const struct rule plain_default = {
    {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}};

enum { WHOLE_WORDS = 1, ADD_BOS = 2 };

static const struct known {
    const char *name;
    const struct rule *rule;
    int flags;
} known[] = {
    {"default", &plain_default, 0},
    {"gpt-2", &gpt2, 0},
    {"phi-2", &gpt2, 0},
    {"mpt", &gpt2, 0},
    {"olmo", &gpt2, 0},
    {"jais", &gpt2, 0},
    {"gigachat", &gpt2, 0},
    {"mellum", &gpt2, 0},
    {"exaone4", &gpt2, 0},
    {"granite-docling", &gpt2, 0},
    {"smollm", &single_digits, 0},
    {"starcoder", &single_digits, 0},
    {"refact", &single_digits, 0},
    {"command-r", &single_digits, 0},
    {"codeshell", &single_digits, 0},
    {"exaone", &single_digits, 0},
    {"minerva-7b", &single_digits, 0},
    {"llama-bpe", &llama3, WHOLE_WORDS | ADD_BOS},
    {"llama3", &llama3, WHOLE_WORDS | ADD_BOS},
    {"llama-v3", &llama3, WHOLE_WORDS | ADD_BOS},
    {"falcon3", &llama3, WHOLE_WORDS | ADD_BOS},
    {"falcon-h1", &llama3, WHOLE_WORDS | ADD_BOS},
    {"pixtral", &llama3, WHOLE_WORDS | ADD_BOS},
    {"lfm2", &llama3, WHOLE_WORDS | ADD_BOS},
    {"dbrx", &llama3, 0},
    {"smaug-bpe", &llama3, 0},
    {"chatglm-bpe", &llama3, 0},
    {"glm4", &llama3, WHOLE_WORDS},
    {"qwen2", &qwen2, 0},
    {"deepseek-r1-qwen", &qwen2, 0},
    {"megrez", &qwen2, 0},
    {"stablelm2", &qwen2, 0},
    {"hunyuan", &qwen2, 0},
    {"grok-2", &qwen2, 0},
    {"qwen35", &qwen35, 0},
    {"gpt-4o", &gpt4o, 0},
    {"llama4", &gpt4o, 0},
    {"minimax-m2", &gpt4o, 0},
    {"tekken", &tekken, WHOLE_WORDS | ADD_BOS},
    {"deepseek-llm", &deepseek_llm, 0},
    {"deepseek-coder", &deepseek_coder, 0},
    {"deepseek-v3", &deepseek_v3, 0},
    {"hunyuan-dense", &deepseek_v3, 0},
    {"falcon", &falcon, 0},
};

struct pretokenizer {
    const struct known *known;
    pcre2_code *stages[MAX_STAGES];
    int n_stages;
};

const char *pretokenizer_name(size_t i)
{
    return i < sizeof known / sizeof *known ? known[i].name : NULL;
}

static pcre2_code *compile(const char *pattern, struct err *e)
{
    int code;
    size_t at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE, &code, &at, NULL);
    if (!re) {
        char why[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        err_set(e, ERR_UNSUPPORTED, "this PCRE2 refuses our pattern at %zu: %s", at, why);
        return NULL;
    }
    pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* where it cannot, the interpreter matches */
    return re;
}

struct pretokenizer *pretokenizer_open(struct gguf_str name, struct err *e)
{
    const struct known *k = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known && !k; i++)
        if (strlen(known[i].name) == name.len && memcmp(known[i].name, name.data, name.len) == 0)
            k = &known[i];
    if (!k) {
        err_set(e, ERR_UNSUPPORTED, "unknown pre-tokenizer \"%s\"", gguf_show(name).text);
        return NULL;
    }
    struct pretokenizer *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(e, ERR_MEMORY, "out of memory for the pre-tokenizer");
        return NULL;
    }
    p->known = k;
    for (int i = 0; i < MAX_STAGES && k->rule->patterns[i]; i++) {
        p->stages[i] = compile(k->rule->patterns[i], e);
        if (!p->stages[i]) {
            pretokenizer_free(p);
            return NULL;
        }
        p->n_stages++;
    }
    return p;
}

void pretokenizer_free(struct pretokenizer *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_stages; i++)
        pcre2_code_free(p->stages[i]);
    free(p);
}

bool pretokenizer_ignores_merges(const struct pretokenizer *p)
{
    return p->known->flags & WHOLE_WORDS;
}

bool pretokenizer_adds_bos(const struct pretokenizer *p)
{
    return p->known->flags & ADD_BOS;
}

struct split {
    const struct pretokenizer *p;
    pcre2_match_data *match; /* read before the next stage writes it */
    pcre2_match_context *limits;
    pretokenizer_word *word;
    void *user;
    struct err *e;
};

/* The next match of stage k in text[n] from `at` on. 1: found, 0: none, -1: failed. */
static int next_match(const struct split *s, int k, const char *text, size_t n, size_t at,
                      size_t *start, size_t *end)
{
    int rc = pcre2_match(s->p->stages[k], (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, s->match,
                         s->limits);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        err_set(s->e, ERR_LIMIT, "PCRE2 error %d while splitting text into words", rc);
        return -1;
    }
    size_t *ovector = pcre2_get_ovector_pointer(s->match);
    *start = ovector[0];
    *end = ovector[1];
    return 1;
}

/* Depth is the number of stages. */
static bool split_stage(const struct split *s, int k, const char *text, size_t n)
{
    if (n == 0)
        return true;
    if (k == s->p->n_stages)
        return s->word(s->user, text, n);
    size_t done = 0;
    while (done < n) {
        size_t start = n, end = n;
        int found = next_match(s, k, text, n, done, &start, &end);
        if (found < 0 || !split_stage(s, k + 1, text + done, start - done))
            return false;
        if (found == 0)
            break;
        if (!split_stage(s, k + 1, text + start, end - start))
            return false;
        done = end; /* no pattern matches an empty string */
    }
    return true;
}

bool pretokenizer_split(const struct pretokenizer *p, const char *text, size_t n,
                        pretokenizer_word *word, void *user, struct err *e)
{
    struct split s = {.p = p, .word = word, .user = user, .e = e};
    s.match = pcre2_match_data_create(1, NULL);
    s.limits = pcre2_match_context_create(NULL);
    bool ok = s.match && s.limits;
    if (!ok)
        err_set(e, ERR_MEMORY, "out of memory for splitting text");
    if (ok) { /* the patterns cost linear time; PCRE2's limits do not know how long a text is */
        pcre2_set_match_limit(s.limits, UINT32_MAX);
        pcre2_set_depth_limit(s.limits, UINT32_MAX);
        ok = split_stage(&s, 0, text, n);
    }
    pcre2_match_data_free(s.match);
    pcre2_match_context_free(s.limits);
    return ok;
}
