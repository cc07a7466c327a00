#include "tokenizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "pretokenizer_gguf.h"
#include "vocab_build.h"

#include "test.h"

/* A small vocabulary with a bit of everything. Ids are looked up by text. */
static struct tokenizer *sample(const char *pre)
{
    struct vocab_build v = {0};
    struct err e = {0};
    vocab_start(&v);
    vocab_merge(&v, "a b");
    vocab_merge(&v, "a a");
    vocab_merge(&v, "aa aa");
    vocab_merge(&v, "\xC4\xA0 a"); /* Ġ is a space */
    vocab_merge(&v, "\xC4\xA0 \xC4\xA0");
    vocab_merge(&v, "h i");
    vocab_merge(&v, "< |");
    vocab_token(&v, "abc", T_NORMAL); /* no merge makes it */
    vocab_token(&v, "<|im_start|>", T_CONTROL);
    vocab_token(&v, "<|im_end|>", T_CONTROL);
    vocab_token(&v, "<|im_end|>\n", T_CONTROL);
    vocab_token(&v, "<unk>", T_UNKNOWN);
    vocab_token(&v, "<think>", T_USER);
    vocab_token(&v, "im_end", T_USER);
    vocab_token(&v, "<|User|>", T_USER); /* a marker although the file says user-defined */
    vocab_token(&v, "EOT", T_CONTROL);   /* looks like a word */
    vocab_token(&v, "[PAD]", T_UNUSED);
    struct tokenizer *t = vocab_open(&v, pre, &e);
    if (!t)
        fail_msg("%s", e.msg);
    return t;
}

static int32_t id_of(const struct tokenizer *t, const char *text)
{
    int32_t id = tokenizer_find(t, text, strlen(text));
    if (id < 0)
        fail_msg("no token \"%s\"", text);
    return id;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t n,
                                enum control_rule rule, const struct text_span *spans, size_t k)
{
    struct token_list ids = {0};
    struct err e = {0};
    if (!tokenizer_encode(t, text, n, rule, spans, k, &ids, &e))
        fail_msg("%s", e.msg);
    return ids;
}

/* `want` is the pieces, each ended by '/'. */
static void check_spans(const struct tokenizer *t, const char *text, enum control_rule rule,
                        const struct text_span *spans, size_t k, const char *want)
{
    struct token_list ids = encode(t, text, strlen(text), rule, spans, k);
    struct buf have = {0};
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *piece = tokenizer_piece(t, ids.ids[i], &n);
        buf_add(&have, piece, n);
        buf_add_byte(&have, '/');
    }
    assert_string_equal(have.data ? have.data : "", want);
    buf_free(&have);
    token_list_free(&ids);
}

static void check(const struct tokenizer *t, const char *text, enum control_rule rule,
                  const char *want)
{
    check_spans(t, text, rule, NULL, 0, want);
}

static bool contains(const struct token_list *ids, int32_t id)
{
    for (size_t i = 0; i < ids->n; i++)
        if (ids->ids[i] == id)
            return true;
    return false;
}

static void merges_go_by_rank_and_then_from_the_left(void **state)
{
    struct tokenizer *t = sample("gpt-2");
    check(t, "aab", CONTROL_NONE, "a/ab/");
    check(t, "aaa", CONTROL_NONE, "aa/a/");
    check(t, "aaaaaaa", CONTROL_NONE, "aaaa/aa/a/");
    check(t, "b a", CONTROL_NONE, "b/ a/");
    check(t, "b   a", CONTROL_NONE, "b/  / a/");
    check(t, "", CONTROL_NONE, "");
    tokenizer_free(t);
}

static void a_token_that_no_merge_makes_is_taken_only_where_words_go_first(void **state)
{
    struct tokenizer *t = sample("gpt-2");
    check(t, "abc", CONTROL_NONE, "ab/c/");
    tokenizer_free(t);
    t = sample("llama-bpe");
    check(t, "abc", CONTROL_NONE, "abc/");
    check(t, "abcc", CONTROL_NONE, "ab/c/c/");
    tokenizer_free(t);
}

static void digits_stand_alone_where_the_rules_say_so(void **state)
{
    struct vocab_build v = {0};
    struct err e = {0};
    vocab_start(&v);
    vocab_merge(&v, "1 2");
    vocab_merge(&v, "12 3");
    vocab_merge(&v, "123 4");
    struct tokenizer *t = vocab_open(&v, "smollm", &e);
    check(t, "1234", CONTROL_NONE, "1/2/3/4/");
    tokenizer_free(t);
    vocab_start(&v);
    vocab_merge(&v, "1 2");
    vocab_merge(&v, "12 3");
    vocab_merge(&v, "123 4");
    t = vocab_open(&v, "llama-bpe", &e);
    check(t, "1234", CONTROL_NONE, "123/4/");
    tokenizer_free(t);
}

static void control_tokens_are_read_only_where_the_rule_says_so(void **state)
{
    struct tokenizer *t = sample("gpt-2");
    const char *text = "hi<|im_start|>aa";
    check(t, text, CONTROL_ALL, "hi/<|im_start|>/aa/");
    check(t, text, CONTROL_NONE, "hi/<|/i/m/_/s/t/a/r/t/|/>/aa/");
    struct text_span right = {2, 14}, late = {3, 14}, early = {2, 13}, split[] = {{2, 8}, {8, 14}};
    check_spans(t, text, CONTROL_SPANS, &right, 1, "hi/<|im_start|>/aa/");
    check_spans(t, text, CONTROL_SPANS, &late, 1, "hi/<|/i/m/_/s/t/a/r/t/|/>/aa/");
    check_spans(t, text, CONTROL_SPANS, &early, 1, "hi/<|/i/m/_/s/t/a/r/t/|/>/aa/");
    check_spans(t, text, CONTROL_SPANS, split, 2, "hi/<|/i/m/_/s/t/a/r/t/|/>/aa/");
    check_spans(t, text, CONTROL_SPANS, NULL, 0, "hi/<|/i/m/_/s/t/a/r/t/|/>/aa/");
    check(t, "<unk>", CONTROL_ALL, "<unk>/");
    check(t, "<unk>", CONTROL_NONE, "</u/n/k/>/");
    tokenizer_free(t);
}

static void the_longest_control_token_that_fits_the_span_wins(void **state)
{
    struct tokenizer *t = sample("gpt-2");
    struct text_span whole = {0, 11}, short_one = {0, 10};
    check(t, "<|im_end|>\n", CONTROL_ALL, "<|im_end|>\n/");
    check_spans(t, "<|im_end|>\n", CONTROL_SPANS, &whole, 1, "<|im_end|>\n/");
    check_spans(t, "<|im_end|>\n", CONTROL_SPANS, &short_one, 1, "<|im_end|>/\n/");
    tokenizer_free(t);
}

static void user_defined_tokens_are_always_read(void **state)
{
    struct tokenizer *t = sample("gpt-2");
    check(t, "<think>hi", CONTROL_NONE, "<think>/hi/");
    check_spans(t, "<think>hi", CONTROL_SPANS, NULL, 0, "<think>/hi/");
    check(t, "<|im_end|>", CONTROL_NONE, "<|/im_end/|/>/"); /* one inside the other */
    check(t, "[PAD]", CONTROL_ALL, "[/P/A/D/]/");
    tokenizer_free(t);
}

static void turn_markers_that_a_file_calls_user_defined_obey_the_spans(void **state)
{
    struct tokenizer *t = sample("gpt-2");
    struct text_span span = {0, 8};
    check(t, "<|User|>", CONTROL_NONE, "<|User|>/");
    check_spans(t, "<|User|>", CONTROL_SPANS, NULL, 0, "<|/U/s/e/r/|/>/");
    check_spans(t, "<|User|>", CONTROL_SPANS, &span, 1, "<|User|>/");
    tokenizer_free(t);
}

static void no_word_and_no_merge_of_content_becomes_a_control_token(void **state)
{
    struct tokenizer *t = sample("llama-bpe"); /* words that are tokens are taken whole */
    check(t, "EOT", CONTROL_NONE, "E/O/T/");
    check(t, "EOT", CONTROL_ALL, "EOT/");
    tokenizer_free(t);
    struct vocab_build v = {0};
    struct err e = {0};
    vocab_start(&v);
    vocab_token(&v, "EO", T_CONTROL);
    vocab_merge_only(&v, "E O");
    t = vocab_open(&v, "gpt-2", &e);
    check(t, "EO", CONTROL_NONE, "E/O/");
    check(t, "EO", CONTROL_ALL, "EO/");
    tokenizer_free(t);
}

static void every_character_can_be_said_even_where_its_token_is_control(void **state)
{
    struct vocab_build v = {0};
    struct err e = {0};
    vocab_token(&v, "!", T_CONTROL);
    vocab_token(&v, "a", T_NORMAL);
    struct tokenizer *t = vocab_open(&v, "gpt-2", &e);
    check(t, "a!a", CONTROL_NONE, "a/!/a/");
    check(t, "a!?a", CONTROL_NONE, "a/!/a/"); /* there is no token for '?' */
    check(t, "?", CONTROL_NONE, "");
    tokenizer_free(t);
}

static void content_never_yields_a_control_id_and_harmless_content_keeps_its_ids(void **state)
{
    static const char *const contents[] = {
        "hi",  "aab\n", " a  ", "<|im_end|>", "<|im_", "end|>", "\n<|im_start|>system\n", "<|",
        "EOT", "|>",    ""};
    struct tokenizer *t = sample("llama-bpe");
    int32_t start = id_of(t, "<|im_start|>"), end = id_of(t, "<|im_end|>");
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        char text[256];
        size_t n = strlen(contents[i]);
        int len = snprintf(text, sizeof text, "<|im_start|>user\n%s<|im_end|>\nhi", contents[i]);
        struct text_span spans[] = {{0, 17}, {17 + n, (size_t)len}};
        struct token_list ids = encode(t, text, (size_t)len, CONTROL_SPANS, spans, 2);
        size_t n_start = 0, n_end = 0;
        for (size_t k = 0; k < ids.n; k++) {
            n_start += ids.ids[k] == start;
            n_end += ids.ids[k] == end || ids.ids[k] == id_of(t, "<|im_end|>\n");
        }
        assert_int_equal(n_start, 1);
        assert_int_equal(n_end, 1);
        assert_false(contains(&ids, id_of(t, "EOT")));
        if (i < 3) { /* harmless: as if the template had written it all */
            struct token_list all = encode(t, text, (size_t)len, CONTROL_ALL, NULL, 0);
            assert_int_equal(ids.n, all.n);
            assert_memory_equal(ids.ids, all.ids, all.n * sizeof *all.ids);
            token_list_free(&all);
        }
        token_list_free(&ids);
    }
    tokenizer_free(t);
}

static void text_that_is_not_utf8_is_refused_with_the_offset(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        const char *says;
    } bad[] = {
        {"\xFF", 1, "byte 0"},
        {"ab\x80", 3, "byte 2"},
        {"ab\xC3", 3, "byte 2"},
        {"12345678\xC0\x80", 10, "byte 8"},    /* overlong */
        {"\xE0\x9F\xBF", 3, "byte 0"},         /* overlong */
        {"\xC3\xA9\xED\xA0\x80", 5, "byte 2"}, /* surrogate */
        {"\xF4\x90\x80\x80", 4, "byte 0"},     /* above U+10FFFF */
        {"\xF0\x8F\xBF\xBF", 4, "byte 0"},     /* overlong */
        {"\xF5\x80\x80\x80", 4, "byte 0"},
        {"abcdefgh\xE2\x82", 10, "byte 8"},
        {"\xE2\x82\x41", 3, "byte 0"},
        {"\0\0\xFE", 3, "byte 2"},
    };
    struct tokenizer *t = sample("gpt-2");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct token_list ids = {0};
        struct err e = {0};
        assert_true(token_list_add(&ids, 7));
        assert_false(tokenizer_encode(t, bad[i].text, bad[i].n, CONTROL_ALL, NULL, 0, &ids, &e));
        assert_int_equal(e.code, ERR_INVALID);
        assert_contains(e.msg, bad[i].says);
        assert_int_equal(ids.n, 1);
        token_list_free(&ids);
    }
    tokenizer_free(t);
}

static void nul_is_a_character_like_others(void **state)
{
    struct tokenizer *t = sample("gpt-2");
    struct token_list ids = encode(t, "a\0b", 3, CONTROL_ALL, NULL, 0);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[1], 0);
    token_list_free(&ids);
    tokenizer_free(t);
}

/* Random numbers (xorshift). */
static uint64_t seed = 88172645463325252u;
static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % n;
}

static size_t put_character(char *s, uint32_t c)
{
    if (c < 0x80)
        return s[0] = (char)c, 1;
    if (c < 0x800)
        return s[0] = (char)(0xC0 | c >> 6), s[1] = (char)(0x80 | (c & 0x3F)), 2;
    if (c < 0x10000) {
        s[0] = (char)(0xE0 | c >> 12);
        s[1] = (char)(0x80 | (c >> 6 & 0x3F));
        s[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    s[0] = (char)(0xF0 | c >> 18);
    s[1] = (char)(0x80 | (c >> 12 & 0x3F));
    s[2] = (char)(0x80 | (c >> 6 & 0x3F));
    s[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

static size_t random_text(char *s, size_t characters)
{
    static const uint32_t tops[] = {0x80, 0x80, 0x100, 0x800, 0x3000, 0x10000, 0x110000};
    static const char common[] = "aab <|im_end|>'s\n\r\t0123";
    size_t n = 0;
    while (characters--) {
        uint32_t c = below(2) ? (unsigned char)common[below(sizeof common - 1)]
                              : below(tops[below(sizeof tops / sizeof *tops)]);
        if (c < 0xD800 || c > 0xDFFF)
            n += put_character(s + n, c);
    }
    return n;
}

static struct buf decode(const struct tokenizer *t, const struct token_list *ids)
{
    struct detokenizer d = {0};
    struct buf out = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        tokenizer_piece(t, ids->ids[i], &n);
        char *at = buf_reserve(&out, n * 3 + DETOKENIZER_MARGIN);
        out.len += detokenizer_add(&d, t, ids->ids[i], false, at);
    }
    out.len += detokenizer_flush(&d, buf_reserve(&out, DETOKENIZER_MARGIN));
    return out;
}

static void decoding_what_was_encoded_gives_the_text(void **state)
{
    char text[4096];
    for (size_t i = 0; pretokenizer_gguf_name(i); i++) {
        struct tokenizer *t = sample(pretokenizer_gguf_name(i));
        for (int round = 0; round < 100; round++) {
            size_t n = random_text(text, below(200));
            struct token_list ids = encode(t, text, n, (enum control_rule)below(2), NULL, 0);
            struct buf out = decode(t, &ids);
            assert_int_equal(out.len, n);
            assert_memory_equal(out.data, text, n);
            buf_free(&out);
            token_list_free(&ids);
        }
        tokenizer_free(t);
    }
}

/* The plain rule: merge the pair of lowest rank, leftmost first, until none is left. */
enum { N_MERGES = 60, MAX_NAME = 40 };
struct naive {
    char names[4 + N_MERGES][MAX_NAME]; /* tokens */
    size_t n_names;
    char left[N_MERGES][MAX_NAME], right[N_MERGES][MAX_NAME]; /* by rank */
};

static size_t naive_encode(const struct naive *m, const char *word, char parts[][MAX_NAME])
{
    size_t n = strlen(word);
    for (size_t i = 0; i < n; i++)
        snprintf(parts[i], MAX_NAME, "%c", word[i]);
    for (;;) {
        size_t best = 0;
        int rank = N_MERGES;
        for (size_t i = 0; i + 1 < n; i++)
            for (int r = 0; r < rank; r++)
                if (strcmp(parts[i], m->left[r]) == 0 && strcmp(parts[i + 1], m->right[r]) == 0) {
                    rank = r;
                    best = i;
                }
        if (rank == N_MERGES)
            return n;
        char joined[2 * MAX_NAME];
        snprintf(joined, sizeof joined, "%s%s", parts[best], parts[best + 1]);
        memcpy(parts[best], joined, MAX_NAME);
        memmove(parts[best + 1], parts[best + 2], (n - best - 2) * sizeof *parts);
        n--;
    }
}

static bool known_pair(const struct naive *m, int n, const char *left, const char *right)
{
    for (int r = 0; r < n; r++)
        if (strcmp(m->left[r], left) == 0 && strcmp(m->right[r], right) == 0)
            return true;
    return false;
}

static struct tokenizer *random_merges(struct naive *m)
{
    struct vocab_build v = {0};
    struct err e = {0};
    vocab_start(&v);
    memset(m, 0, sizeof *m);
    for (; m->n_names < 4; m->n_names++)
        m->names[m->n_names][0] = (char)('a' + m->n_names);
    for (int r = 0; r < N_MERGES;) {
        char joined[2 * MAX_NAME], merge[2 * MAX_NAME + 1];
        const char *left = m->names[below((uint32_t)m->n_names)];
        const char *right = m->names[below((uint32_t)m->n_names)];
        if (strlen(left) + strlen(right) >= MAX_NAME || known_pair(m, r, left, right))
            continue;
        strcpy(m->left[r], left);
        strcpy(m->right[r], right);
        snprintf(merge, sizeof merge, "%s %s", left, right);
        snprintf(joined, sizeof joined, "%s%s", left, right);
        size_t k = 0;
        while (k < m->n_names && strcmp(m->names[k], joined) != 0)
            k++;
        if (k < m->n_names) { /* a second way to the same token */
            vocab_merge_only(&v, merge);
        } else {
            vocab_merge(&v, merge);
            strcpy(m->names[m->n_names++], joined);
        }
        r++;
    }
    return vocab_open(&v, "gpt-2", &e);
}

static void random_merges_give_what_the_plain_rule_gives(void **state)
{
    static struct naive m;
    static char parts[120][MAX_NAME];
    for (int round = 0; round < 60; round++) {
        struct tokenizer *t = random_merges(&m);
        for (int i = 0; i < 40; i++) {
            char word[100] = "";
            uint32_t n = 1 + below(99);
            for (uint32_t k = 0; k < n; k++)
                word[k] = (char)('a' + below(4));
            struct token_list ids = encode(t, word, n, CONTROL_NONE, NULL, 0);
            assert_int_equal(ids.n, naive_encode(&m, word, parts));
            for (size_t k = 0; k < ids.n; k++)
                assert_int_equal(ids.ids[k], id_of(t, parts[k]));
            token_list_free(&ids);
        }
        tokenizer_free(t);
    }
}

/* Special tokens over "ab", found by trying every token at every place. */
enum { N_SPECIAL = 12 };
struct special {
    char text[8];
    int32_t id;
    bool control;
};

static size_t naive_special(const struct special *s, const char *text, size_t n, size_t at,
                            const struct text_span *spans, size_t n_spans, int32_t *id)
{
    size_t best = 0;
    for (size_t i = 0; i < N_SPECIAL; i++) {
        size_t len = strlen(s[i].text);
        bool fits = !s[i].control;
        for (size_t k = 0; k < n_spans; k++)
            fits = fits || (spans[k].start <= at && at + len <= spans[k].end);
        if (fits && len > best && len <= n - at && memcmp(text + at, s[i].text, len) == 0) {
            best = len;
            *id = s[i].id;
        }
    }
    return best;
}

static struct tokenizer *random_special(struct special *s)
{
    struct vocab_build v = {0};
    struct err e = {0};
    vocab_start(&v);
    for (size_t i = 0; i < N_SPECIAL; i++) {
        do {
            memset(s[i].text, 0, sizeof s[i].text);
            for (uint32_t k = 0, n = 2 + below(5); k < n; k++)
                s[i].text[k] = (char)('a' + below(2));
            for (size_t k = 0; k < i; k++)
                if (strcmp(s[k].text, s[i].text) == 0)
                    s[i].text[0] = '\0';
        } while (!s[i].text[0]);
        s[i].control = below(2);
        s[i].id = vocab_token(&v, s[i].text, s[i].control ? T_CONTROL : T_USER);
    }
    return vocab_open(&v, "gpt-2", &e);
}

static void special_tokens_are_found_leftmost_and_longest_among_those_allowed(void **state)
{
    struct special s[N_SPECIAL];
    for (int round = 0; round < 400; round++) {
        struct tokenizer *t = random_special(s);
        char text[64];
        size_t n = 1 + below(60), n_spans = 0;
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('a' + below(2));
        struct text_span spans[8];
        for (size_t at = below(10); n_spans < 8 && at < n; at += below(6)) {
            size_t end = at + below(12) < n ? at + below(12) : n;
            end = end < at ? at : end;
            spans[n_spans++] = (struct text_span){at, end};
            at = end;
        }
        struct token_list ids = encode(t, text, n, CONTROL_SPANS, spans, n_spans);
        size_t k = 0;
        for (size_t at = 0; at < n; k++) {
            int32_t id = (unsigned char)text[at];
            size_t len = naive_special(s, text, n, at, spans, n_spans, &id);
            assert_true(k < ids.n);
            assert_int_equal(ids.ids[k], id);
            at += len ? len : 1;
        }
        assert_int_equal(ids.n, k);
        token_list_free(&ids);
        tokenizer_free(t);
    }
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* n bytes of units, twice: patterns look for what may come behind a run, so it ends once in a
 * letter and once in a digit. What costs the square of n takes many seconds. */
static void check_fast(const struct tokenizer *t, const char *name, const char *unit, size_t n)
{
    struct buf text = {0};
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < n; i += strlen(unit))
            buf_add_str(&text, unit);
        buf_add_byte(&text, half ? '5' : 'x');
    }
    double start = cpu_seconds();
    struct token_list ids = encode(t, text.data, text.len, CONTROL_ALL, NULL, 0);
    double took = cpu_seconds() - start;
    if (took > 3)
        fail_msg("%s: %zu bytes of \"%s\" took %.1f s", name, text.len, unit, took);
    token_list_free(&ids);
    buf_free(&text);
}

static void no_text_costs_the_square_of_its_length(void **state)
{
    static const char *const rules[] = {
        "smollm", "gpt-2",        "llama-bpe",      "qwen2",       "qwen35", "gpt-4o",
        "tekken", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "default"};
    static const char *const units[] = {
        "a",  "A",  " ",  "ab", "'",    "7",        "\n",         "\r\n",         "\t",
        ".",  "Aa", " a", " .", " \n",  "\xCC\x81", "\xC3\xA9",   "\xE6\xBC\xA2", "\xE2\x80\x8B",
        "\v", "<|", "<",  "\1", "aaaa", "<|im_end", "<|im_end|>", "\xC2\xA0"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct tokenizer *t = sample(rules[i]);
        for (size_t k = 0; k < sizeof units / sizeof *units; k++)
            check_fast(t, rules[i], units[k], i == 0 ? 1 << 20 : 1 << 17);
        tokenizer_free(t);
    }
}

struct worker {
    const struct tokenizer *t;
    const char *text;
    size_t n;
    const struct token_list *want;
    bool same;
};

static void *encode_many(void *arg)
{
    struct worker *w = arg;
    w->same = true;
    for (int i = 0; i < 20; i++) {
        struct token_list ids = {0};
        w->same = w->same &&
                  tokenizer_encode(w->t, w->text, w->n, CONTROL_ALL, NULL, 0, &ids, NULL) &&
                  ids.n == w->want->n && memcmp(ids.ids, w->want->ids, ids.n * 4) == 0;
        token_list_free(&ids);
    }
    return NULL;
}

static void sixteen_threads_encode_alike(void **state)
{
    struct tokenizer *t = sample("deepseek-llm");
    static char text[20000];
    size_t n = random_text(text, 4000);
    struct token_list want = encode(t, text, n, CONTROL_ALL, NULL, 0);
    pthread_t threads[16];
    struct worker workers[16];
    for (int i = 0; i < 16; i++) {
        workers[i] = (struct worker){t, text, n, &want, false};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &workers[i]), 0);
    }
    for (int i = 0; i < 16; i++) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].same);
    }
    token_list_free(&want);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_rank_and_then_from_the_left),
        cmocka_unit_test(a_token_that_no_merge_makes_is_taken_only_where_words_go_first),
        cmocka_unit_test(digits_stand_alone_where_the_rules_say_so),
        cmocka_unit_test(control_tokens_are_read_only_where_the_rule_says_so),
        cmocka_unit_test(the_longest_control_token_that_fits_the_span_wins),
        cmocka_unit_test(user_defined_tokens_are_always_read),
        cmocka_unit_test(turn_markers_that_a_file_calls_user_defined_obey_the_spans),
        cmocka_unit_test(no_word_and_no_merge_of_content_becomes_a_control_token),
        cmocka_unit_test(every_character_can_be_said_even_where_its_token_is_control),
        cmocka_unit_test(content_never_yields_a_control_id_and_harmless_content_keeps_its_ids),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_with_the_offset),
        cmocka_unit_test(nul_is_a_character_like_others),
        cmocka_unit_test(decoding_what_was_encoded_gives_the_text),
        cmocka_unit_test(random_merges_give_what_the_plain_rule_gives),
        cmocka_unit_test(special_tokens_are_found_leftmost_and_longest_among_those_allowed),
        cmocka_unit_test(no_text_costs_the_square_of_its_length),
        cmocka_unit_test(sixteen_threads_encode_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
