/* The pre-tokenizers that GGUF files name. */
#include "pretokenizer_gguf.h"

#define SPACES REGEX_SPACES
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

enum { MAX_PATTERNS = 8 };

struct rule {
    const char *patterns[MAX_PATTERNS]; /* NULL behind the last, unless all are there */
};

const char pretokenizer_gpt2[] = GPT2;

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

#define DIGIT "\\p{Nd}"
#define WORD_ENDS "(?![\\p{L}\\p{M}\\p{N}_])"
/* Threes from the right, for which only the first group looks at the whole number. */
static const struct rule tiny_aya = {{"(?<!" DIGIT ")" DIGIT "{1,3}(?=(?:" DIGIT "{3})*+" WORD_ENDS
                                      ")|\\G(?<=" DIGIT ")" DIGIT "{3}",
                                      CASED_OF(ANY_CASE_CONTRACTION "?", "\\p{N}{1,3}")}};
static const struct rule minicpm5 = {{"\\p{N}{1,3}", LLAMA3_OF("\\p{N}+")}};
static const struct rule ufakzeka = {{"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES
                                      "\\p{L}\\p{N}]+[\\r\\n]*|" LINE_ENDS "|" SPACE_RUN}};
static const struct rule seed_coder = {{ANY_CASE_CONTRACTION
                                        "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES
                                        "\\p{L}\\p{N}\\r\\n]+|" LINE_ENDS "|" SPACE_RUN}};
static const struct rule bailing = {
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^" SPACES
     "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE "*[\\r\\n]|" SPACE_RUN}};
static const struct rule laguna = {{"[^\\n]+|[\\n]+", LLAMA3_OF("\\p{N}")}};
#define BLOOM " ?[^(" SPACES "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"
static const struct rule bloom = {{BLOOM}};
static const struct rule viking = {{BLOOM, "\\p{N}"}};
static const struct rule chameleon = {{"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                                       "([\\t\\n]|    |  )", "\\p{N}",
                                       "[\\p{P}" ASCII_PUNCTUATION "]", GPT2}};

static const struct known {
    const char *name;
    const struct rule *rule;
    int flags;
} known[] = {
    {"default", &plain_default, 0},
    {"gpt-2", &gpt2, 0},
    {"phi-2", &gpt2, 0},
    {"jina-es", &gpt2, 0},
    {"jina-de", &gpt2, 0},
    {"jina-v2-es", &gpt2, 0},
    {"jina-v2-de", &gpt2, 0},
    {"a.x-4.0", &gpt2, 0},
    {"modern-bert", &gpt2, 0},
    {"trillion", &gpt2, 0},
    {"mpt", &gpt2, 0},
    {"olmo", &gpt2, 0},
    {"jais", &gpt2, 0},
    {"gigachat", &gpt2, 0},
    {"mellum", &gpt2, 0},
    {"exaone4", &gpt2, 0},
    {"granite-docling", &gpt2, 0},
    {"smollm", &single_digits, 0},
    {"mellum2", &single_digits, 0},
    {"starcoder", &single_digits, 0},
    {"refact", &single_digits, 0},
    {"command-r", &single_digits, 0},
    {"codeshell", &single_digits, 0},
    {"exaone", &single_digits, 0},
    {"minerva-7b", &single_digits, 0},
    {"llama-bpe", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"llama3", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"llama-v3", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"falcon3", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"falcon-h1", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"pixtral", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"lfm2", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"midm-2.0", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"jina-v5-nano", &llama3, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"dbrx", &llama3, 0},
    {"smaug-bpe", &llama3, 0},
    {"chatglm-bpe", &llama3, 0},
    {"glm4", &llama3, PRE_WHOLE_WORDS},
    {"glm5", &llama3, PRE_WHOLE_WORDS},
    {"qwen2", &qwen2, 0},
    {"kormo", &qwen2, 0},
    {"f2llmv2", &qwen2, 0},
    {"solar-open", &qwen2, 0},
    {"deepseek-r1-qwen", &qwen2, 0},
    {"megrez", &qwen2, 0},
    {"stablelm2", &qwen2, 0},
    {"hunyuan", &qwen2, 0},
    {"grok-2", &qwen2, 0},
    {"qwen35", &qwen35, 0},
    {"gpt-4o", &gpt4o, 0},
    {"kanana2", &gpt4o, 0},
    {"talkie", &gpt4o, 0},
    {"llama4", &gpt4o, 0},
    {"minimax-m2", &gpt4o, 0},
    {"tekken", &tekken, PRE_WHOLE_WORDS | PRE_ADD_BOS},
    {"deepseek-llm", &deepseek_llm, 0},
    {"deepseek-coder", &deepseek_coder, 0},
    {"deepseek-v3", &deepseek_v3, 0},
    {"joyai-llm", &deepseek_v3, 0},
    {"hy_v4", &deepseek_v3, 0},
    {"hunyuan-dense", &deepseek_v3, 0},
    {"falcon", &falcon, 0},
    {"minicpm5", &minicpm5, PRE_WHOLE_WORDS},
    {"ufakzeka", &ufakzeka, 0},
    {"seed-coder", &seed_coder, 0},
    {"bailingmoe", &bailing, 0},
    {"bailingmoe2", &bailing, 0},
    {"llada-moe", &bailing, 0},
    {"laguna", &laguna, 0},
    {"bloom", &bloom, 0},
    {"gpt3-finnish", &bloom, 0},
    {"poro-chat", &bloom, 0},
    {"viking", &viking, 0},
    {"chameleon", &chameleon, PRE_ADD_BOS},
    {"tiny_aya", &tiny_aya, 0},
    {"cohere2moe", &tiny_aya, 0},
};

const char *pretokenizer_gguf_name(size_t i)
{
    return i < sizeof known / sizeof *known ? known[i].name : NULL;
}

struct pretokenizer *pretokenizer_gguf(struct str name, int *flags, struct err *e)
{
    const struct known *k = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known && !k; i++)
        if (str_is(name, known[i].name))
            k = &known[i];
    if (!k) {
        err_set(e, ERR_UNSUPPORTED, "unknown pre-tokenizer \"%s\"",
                gguf_show((struct gguf_str){name.data, name.len}).text);
        return NULL;
    }
    *flags = k->flags;
    struct pretokenizer *p = pretokenizer_new(e);
    for (int i = 0; p && i < MAX_PATTERNS && k->rule->patterns[i]; i++)
        if (!pretokenizer_add_pattern(p, k->rule->patterns[i], SPLIT_ISOLATED, e)) {
            pretokenizer_free(p);
            return NULL;
        }
    return p;
}
