/* The tokenizer with scores (SentencePiece). A bar stands for U+2581 in names below, and '/'
 * ends each piece of what is expected; pieces hold spaces. */
#include "tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "vocab_build.h"

#include "test.h"

static int32_t piece(struct vocab_build *v, const char *name, float score, int32_t type)
{
    char text[256];
    size_t n = 0;
    for (; *name; name++)
        n += (size_t)snprintf(text + n, sizeof text - n, *name == '|' ? "\xE2\x96\x81" : "%c",
                              *name);
    return vocab_piece(v, text, score, type);
}

/* `tokens`: names with a space between them, the best score first; what is in parentheses
 * shares the score before it. Id 0 is <unk>, 1 <s>, 2 </s>. */
static void add_tokens(struct vocab_build *v, const char *tokens)
{
    char name[64];
    float score = 0;
    int n;
    vocab_piece(v, "<unk>", 0, T_UNKNOWN);
    vocab_piece(v, "<s>", 0, T_CONTROL);
    vocab_piece(v, "</s>", 0, T_CONTROL);
    build_u32(&v->file, "tokenizer.ggml.bos_token_id", 1);
    build_u32(&v->file, "tokenizer.ggml.eos_token_id", 2);
    for (; sscanf(tokens, " %60s%n", name, &n) == 1; tokens += n) {
        if (name[0] == '(') {
            name[strlen(name) - 1] = '\0';
            piece(v, name + 1, score, T_NORMAL);
        } else {
            piece(v, name, score -= 1, T_NORMAL);
        }
    }
}

static struct tokenizer *opened(struct vocab_build *v)
{
    struct err e = {0};
    struct tokenizer *t = vocab_open_scored(v, &e);
    if (!t)
        fail_msg("%s", e.msg);
    return t;
}

static struct tokenizer *sample(bool prefix)
{
    struct vocab_build v = {0};
    add_tokens(&v, "|a ab || |||| || bc |h hi |hi abc a b c h i | < > s");
    piece(&v, "<think>", 0, T_USER);
    piece(&v, "<think>a", 0, T_USER);
    piece(&v, "\n", 0, T_USER);
    piece(&v, "<|User|>", 0, T_USER); /* here the bars are U+2581 */
    vocab_piece(&v, "<|User|>", 0, T_USER);
    vocab_piece(&v, "a  b", 0, T_USER);
    vocab_piece(&v, "a  c", 5, T_NORMAL);
    vocab_bytes(&v);
    build_bool(&v.file, "tokenizer.ggml.add_space_prefix", prefix);
    return opened(&v);
}

static struct token_list encode(const struct tokenizer *t, const char *text, enum control_rule rule,
                                const struct text_span *spans, size_t k)
{
    struct token_list ids = {0};
    struct err e = {0};
    if (!tokenizer_encode(t, text, strlen(text), rule, spans, k, &ids, &e))
        fail_msg("%s", e.msg);
    return ids;
}

static void check_spans(const struct tokenizer *t, const char *text, enum control_rule rule,
                        const struct text_span *spans, size_t k, const char *want)
{
    struct token_list ids = encode(t, text, rule, spans, k);
    struct buf have = {0};
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const char *bytes = tokenizer_piece(t, ids.ids[i], &n);
        buf_add(&have, bytes, n);
        buf_add_byte(&have, '/');
    }
    assert_string_equal(have.data ? have.data : "", want);
    buf_free(&have);
    token_list_free(&ids);
}

static void check(const struct tokenizer *t, const char *text, const char *want)
{
    check_spans(t, text, CONTROL_NONE, NULL, 0, want);
}

static void merges_go_by_score_and_then_from_the_left(void **state)
{
    struct vocab_build v = {0};
    add_tokens(&v, "bc ab (ca) abc a b c");
    vocab_bytes(&v);
    build_bool(&v.file, "tokenizer.ggml.add_space_prefix", false);
    struct tokenizer *t = opened(&v);
    check(t, "abc", "abc/"); /* bc first, which leaves a and bc to become abc */
    check(t, "aba", "ab/a/");
    check(t, "cab", "ca/b/"); /* of equal scores the leftmost */
    check(t, "abab", "ab/ab/");
    check(t, "", "");
    tokenizer_free(t);
}

static void a_token_that_no_merges_lead_to_is_not_made(void **state)
{
    struct vocab_build v = {0};
    add_tokens(&v, "abcd ab a b c d");
    vocab_bytes(&v);
    build_bool(&v.file, "tokenizer.ggml.add_space_prefix", false);
    struct tokenizer *t = opened(&v);
    check(t, "abcd", "ab/c/d/");
    tokenizer_free(t);
}

static void characters_that_are_no_tokens_merge_all_the_same(void **state)
{
    struct vocab_build v = {0};
    add_tokens(&v, "xy | |z");
    vocab_bytes(&v);
    struct tokenizer *t = opened(&v);
    check(t, "xy", " /xy/");
    check(t, "zxyx", " z/xy/x/");
    tokenizer_free(t);
}

static void a_space_goes_before_the_text_where_the_file_does_not_say_no(void **state)
{
    struct tokenizer *t = sample(true);
    assert_true(tokenizer_adds_space(t));
    check(t, "a", " a/");
    check(t, "hi a", " hi/ a/");
    check(t, " a", " / a/");
    check(t, "  a", "  / a/");
    check(t, "", "");
    check(t, " ", "  /");
    check(t,
          "\xE2\x96\x81"
          "a",
          " / a/"); /* U+2581 is a space */
    tokenizer_free(t);
    t = sample(false);
    assert_false(tokenizer_adds_space(t));
    check(t, "a a", "a/ a/");
    check(t, " ", " /");
    tokenizer_free(t);
    struct vocab_build v = {0};
    add_tokens(&v, "a");
    t = opened(&v);
    assert_true(tokenizer_adds_space(t));
    assert_true(tokenizer_adds_bos(t));
    assert_false(tokenizer_adds_eos(t));
    tokenizer_free(t);
}

static void characters_without_a_token_become_bytes(void **state)
{
    struct tokenizer *t = sample(false);
    check(t,
          "a\xC3\xA9"
          "b",
          "a/\xC3/\xA9/b/");
    check(t, "\xF0\x9F\x98\x80", "\xF0/\x9F/\x98/\x80/");
    check(t, "<0x41>", "</0/x/4/1/>/");
    struct token_list ids = encode(t, "\t", CONTROL_NONE, NULL, 0);
    assert_int_equal(ids.n, 1);
    token_list_free(&ids);
    tokenizer_free(t);
}

static void without_byte_tokens_a_run_of_unknown_characters_is_one_unknown_token(void **state)
{
    struct vocab_build v = {0};
    add_tokens(&v, "a b |");
    struct tokenizer *t = opened(&v);
    check(t, "axyb", " /a/<unk>/b/");
    check(t, "x\xC3\xA9y", " /<unk>/");
    check(t, "xax", " /<unk>/a/<unk>/");
    tokenizer_free(t);
    add_tokens(&v, "a b |");
    build_u32(&v.file, "tokenizer.ggml.unknown_token_id", 2); /* text must not end itself */
    t = opened(&v);
    check(t, "axb", " /a/b/");
    tokenizer_free(t);
}

static void user_defined_tokens_are_read_first_and_merge_with_nothing(void **state)
{
    struct tokenizer *t = sample(true);
    check(t, "<think>", " /<think>/");
    check(t, "<think>ab", " /<think>a/b/");
    check(t, "b<think>hi", " /b/<think>/hi/"); /* no space behind it */
    check(t, "a\n\na", " a/\n/\n/a/");
    check(t, "< User >", " /< User >/"); /* what its name writes as U+2581 are spaces */
    tokenizer_free(t);
}

static void names_with_plain_spaces_are_never_met_but_print(void **state)
{
    struct tokenizer *t = sample(false);
    check(t, "a  b", "a/  /b/");
    check(t, "a  c", "a/  /c/");
    int32_t id = tokenizer_find(t, "a  b", 4);
    assert_true(id > 0);
    tokenizer_free(t);
}

static void control_tokens_are_read_only_where_the_rule_says_so(void **state)
{
    struct tokenizer *t = sample(true);
    struct text_span whole = {1, 4}, part = {1, 3};
    check(t, "a<s>hi", " a/</s/>/hi/");
    check_spans(t, "a<s>hi", CONTROL_ALL, NULL, 0, " a/<s>/ hi/");
    check_spans(t, "a<s>hi", CONTROL_SPANS, &whole, 1, " a/<s>/ hi/");
    check_spans(t, "a<s>hi", CONTROL_SPANS, &part, 1, " a/</s/>/hi/");
    check_spans(t, "<s>", CONTROL_ALL, NULL, 0, "<s>/");
    check_spans(t, "<s><think>", CONTROL_ALL, NULL, 0, "<s>/ /<think>/");
    check_spans(t, "<s></s>a", CONTROL_ALL, NULL, 0, "<s>/</s>/ a/");
    check(t, "<|User|>", " /<|User|>/");
    check_spans(t, "<|User|>", CONTROL_SPANS, NULL, 0, " /</|/U/s/e/r/|/>/");
    tokenizer_free(t);
}

static void spaces_are_thinned_where_the_file_says_so(void **state)
{
    struct vocab_build v = {0};
    add_tokens(&v, "|a || a b |");
    piece(&v, "<u>", 0, T_USER);
    vocab_bytes(&v);
    build_bool(&v.file, "tokenizer.ggml.remove_extra_whitespaces", true);
    struct tokenizer *t = opened(&v);
    check(t, "  a   a  ", " a/ a/");
    check(t, "   ", "");
    check(t, "a  <u>  a", " a/ /<u>/ a/");
    check(t, "  <u>", " /<u>/");
    check_spans(t, "a <s>  a", CONTROL_ALL, NULL, 0, " a/<s>/ a/");
    tokenizer_free(t);
}

static struct buf decode(const struct tokenizer *t, const struct token_list *ids, bool whole,
                         bool skip_special)
{
    struct detokenizer d = {.at_start = whole};
    struct buf out = {0};
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        tokenizer_piece(t, ids->ids[i], &n);
        char *at = buf_reserve(&out, n * 3 + DETOKENIZER_MARGIN);
        out.len += detokenizer_add(&d, t, ids->ids[i], skip_special, at);
    }
    out.len += detokenizer_flush(&d, buf_reserve(&out, DETOKENIZER_MARGIN));
    out.data[out.len] = '\0';
    return out;
}

static void check_decode(const struct tokenizer *t, const char *text, bool whole, bool skip_special,
                         const char *want)
{
    struct token_list ids = encode(t, text, CONTROL_ALL, NULL, 0);
    struct buf out = decode(t, &ids, whole, skip_special);
    assert_string_equal(out.data, want);
    buf_free(&out);
    token_list_free(&ids);
}

static void the_space_before_a_whole_text_is_dropped_and_that_of_a_continuation_stays(void **state)
{
    struct tokenizer *t = sample(true);
    check_decode(t, "hi a", true, false, "hi a");
    check_decode(t, "  hi", true, false, "  hi");
    check_decode(t, "\xC3\xA9", true, false, "\xC3\xA9");
    check_decode(t, "hi a", false, false, " hi a");
    check_decode(t, "<s>hi", true, true, "hi");
    check_decode(t, "<s>hi", true, false, "<s> hi");
    tokenizer_free(t);
    t = sample(false);
    check_decode(t, " a", true, false, " a");
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

/* The plain rule on a whole text, one character a byte: of all neighbours whose joined text is
 * a token those with the best score merge, leftmost first. */
enum { N_NAMES = 60, MAX_NAME = 12, MAX_TEXT = 100 };
struct naive {
    char names[N_NAMES][MAX_NAME];
    int32_t ids[N_NAMES];
    float scores[N_NAMES];
    int n;
};

static int find_name(const struct naive *m, const char *s, size_t len)
{
    for (int i = 0; i < m->n; i++)
        if (strlen(m->names[i]) == len && memcmp(m->names[i], s, len) == 0)
            return i;
    return -1;
}

/* ends[i]: where part i ends. Returns the number of parts. */
static size_t naive_encode(const struct naive *m, const char *text, size_t n, size_t *ends)
{
    size_t parts = n;
    for (size_t i = 0; i < n; i++)
        ends[i] = i + 1;
    for (;;) {
        size_t best = parts;
        float score = -INFINITY;
        for (size_t i = 0; i + 1 < parts; i++) {
            size_t at = i ? ends[i - 1] : 0;
            int k = find_name(m, text + at, ends[i + 1] - at);
            if (k >= 0 && m->scores[k] > score) {
                score = m->scores[k];
                best = i;
            }
        }
        if (best == parts)
            return parts;
        memmove(ends + best, ends + best + 1, (parts - best - 1) * sizeof *ends);
        parts--;
    }
}

static struct tokenizer *random_tokens(struct naive *m)
{
    static const char letters[] = "ab c";
    struct vocab_build v = {0};
    m->n = 0;
    int n_names = 5 + (int)below(N_NAMES - 5);
    while (m->n < n_names) {
        char *name = m->names[m->n];
        size_t len = m->n ? 1 + below(m->n < 8 ? 2 : 5) : 1;
        for (size_t k = 0; k < len; k++)
            name[k] = m->n ? letters[below(4)] : ' '; /* which the bytes would not spell */
        name[len] = '\0';
        if (find_name(m, name, len) >= 0) {
            n_names--; /* there may be no more of that length */
            continue;
        }
        char marked[MAX_NAME];
        for (size_t k = 0; k <= len; k++)
            marked[k] = name[k] == ' ' ? '|' : name[k];
        m->scores[m->n] = -(float)below(20);
        m->ids[m->n] = piece(&v, marked, m->scores[m->n], T_NORMAL);
        m->n++;
    }
    vocab_bytes(&v);
    build_bool(&v.file, "tokenizer.ggml.add_space_prefix", false);
    return opened(&v);
}

static void random_scores_give_what_the_plain_rule_gives(void **state)
{
    static struct naive m;
    for (int round = 0; round < 200; round++) {
        struct tokenizer *t = random_tokens(&m);
        int32_t byte_0 = m.ids[m.n - 1] + 1;
        for (int i = 0; i < 30; i++) {
            char text[MAX_TEXT + 1] = "";
            size_t n = 1 + below(MAX_TEXT), ends[MAX_TEXT];
            for (size_t k = 0; k < n; k++)
                text[k] = "ab cd"[below(k % 7 ? 4 : 5)];
            struct token_list ids = encode(t, text, CONTROL_NONE, NULL, 0);
            assert_int_equal(ids.n, naive_encode(&m, text, n, ends));
            for (size_t k = 0, at = 0; k < ids.n; at = ends[k++]) {
                int name = find_name(&m, text + at, ends[k] - at);
                assert_int_equal(ids.ids[k], name >= 0 ? m.ids[name] : byte_0 + text[at]);
            }
            token_list_free(&ids);
        }
        tokenizer_free(t);
    }
}

static void no_text_costs_the_square_of_its_length(void **state)
{
    static const char *const units[] = {"a", " ",  "ab",  "\xC3\xA9", "\xF0\x9F\x98\x80",
                                        "<", "\n", "hi ", "<think>",  "<think"};
    struct tokenizer *t = sample(true);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct buf text = {0};
        while (text.len < 1 << 20)
            buf_add_str(&text, units[i]);
        struct timespec a, b;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        struct token_list ids = encode(t, text.data, CONTROL_ALL, NULL, 0);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        if (b.tv_sec - a.tv_sec > 3)
            fail_msg("a MiB of \"%s\" took more than 3 s", units[i]);
        token_list_free(&ids);
        buf_free(&text);
    }
    tokenizer_free(t);
}

static void refuse(struct vocab_build *v, enum err_code code, const char *says)
{
    struct err e = {0};
    struct tokenizer *t = vocab_open_scored(v, &e);
    assert_null(t);
    assert_int_equal(e.code, code);
    assert_contains(e.msg, says);
}

static void a_file_that_makes_no_sense_is_refused(void **state)
{
    struct vocab_build v = {0};
    struct err e = {0};
    add_tokens(&v, "a b");
    assert_null(vocab_open_as(&v, "llama", &e));
    assert_contains(e.msg, "tokenizer.ggml.scores is absent");
    add_tokens(&v, "a b");
    vocab_token(&v, "c", T_NORMAL);
    refuse(&v, ERR_INVALID, "tokenizer.ggml.scores has 5 entries for 6 tokens");
    add_tokens(&v, "a b");
    vocab_piece(&v, "c", NAN, T_NORMAL);
    refuse(&v, ERR_INVALID, "tokenizer.ggml.scores: the score of token 5 is not a number");
    add_tokens(&v, "a b");
    build_u32(&v.file, "tokenizer.ggml.unknown_token_id", 5);
    refuse(&v, ERR_INVALID, "tokenizer.ggml.unknown_token_id is 5");
    char *name = calloc(1, 1026);
    memset(name, 'a', 1025);
    add_tokens(&v, "a b");
    vocab_piece(&v, name, 0, T_NORMAL);
    refuse(&v, ERR_LIMIT, "token 5 has 1025 bytes: at most 1024");
    name[1024] = '\0';
    add_tokens(&v, "a b");
    vocab_piece(&v, name, 0, T_NORMAL);
    tokenizer_free(opened(&v));
    free(name);
}

static void odd_tokens_do_no_harm(void **state)
{
    struct vocab_build v = {0};
    add_tokens(&v, "a |");
    piece(&v, "", 0, T_NORMAL);
    piece(&v, "", 0, T_USER);
    piece(&v, "\xC3", 0, T_NORMAL);  /* not UTF-8 */
    piece(&v, "\xA9", 0, T_USER);    /* would cut a character */
    piece(&v, "\x9F", 0, T_CONTROL); /* so would this */
    piece(&v, "zz", 0, T_UNUSED);    /* is never made */
    piece(&v, "z", 0, T_UNUSED);
    vocab_bytes(&v);
    piece(&v, "<0xGG>", 0, T_BYTE);
    piece(&v, "<0x41>", 0, T_BYTE); /* a second one */
    struct tokenizer *t = opened(&v);
    check(t, "a\xC3\xA9", " /a/\xC3/\xA9/");
    check_spans(t, "\xF0\x9F\x98\x80", CONTROL_ALL, NULL, 0, " /\xF0/\x9F/\x98/\x80/");
    check(t, "zzA", " /z/z/A/");
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_go_by_score_and_then_from_the_left),
        cmocka_unit_test(a_token_that_no_merges_lead_to_is_not_made),
        cmocka_unit_test(characters_that_are_no_tokens_merge_all_the_same),
        cmocka_unit_test(a_space_goes_before_the_text_where_the_file_does_not_say_no),
        cmocka_unit_test(characters_without_a_token_become_bytes),
        cmocka_unit_test(without_byte_tokens_a_run_of_unknown_characters_is_one_unknown_token),
        cmocka_unit_test(user_defined_tokens_are_read_first_and_merge_with_nothing),
        cmocka_unit_test(names_with_plain_spaces_are_never_met_but_print),
        cmocka_unit_test(control_tokens_are_read_only_where_the_rule_says_so),
        cmocka_unit_test(spaces_are_thinned_where_the_file_says_so),
        cmocka_unit_test(the_space_before_a_whole_text_is_dropped_and_that_of_a_continuation_stays),
        cmocka_unit_test(random_scores_give_what_the_plain_rule_gives),
        cmocka_unit_test(no_text_costs_the_square_of_its_length),
        cmocka_unit_test(a_file_that_makes_no_sense_is_refused),
        cmocka_unit_test(odd_tokens_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
