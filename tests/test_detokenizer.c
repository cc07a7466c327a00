#include "tokenizer.h"

#include <stdlib.h>

#include "test_data.h"
#include "utf8.h"
#include "vocab_build.h"

#include "test.h"

/* tests/data/utf8_replace.txt: random bytes, and what Python's
 * bytes.decode('utf-8', errors='replace') makes of them, both in hex. */
struct vector {
    unsigned char bytes[128], want[512];
    size_t n, n_want;
};

static size_t from_hex(const char **at, unsigned char *out, size_t cap)
{
    size_t n = 0;
    unsigned byte;
    for (; n < cap && sscanf(*at, "%2x", &byte) == 1 && **at > ' '; *at += 2)
        out[n++] = (unsigned char)byte;
    return n;
}

static bool next_vector(const char **at, struct vector *v)
{
    v->n = from_hex(at, v->bytes, sizeof v->bytes);
    *at += **at == ' ';
    v->n_want = from_hex(at, v->want, sizeof v->want);
    *at += **at == '\n';
    return v->n > 0;
}

/* Cuts bytes at the set bits and makes each piece an ordinary token. Returns their number. */
static int cut_tokens(struct vocab_build *v, const struct vector *x, uint64_t cuts)
{
    int n = 0;
    char name[512];
    size_t len = 0;
    vocab_start(v);
    for (size_t i = 0; i < x->n; i++) {
        /* the token of a byte holds its name in the alphabet, behind 8 bytes of length */
        size_t at = 0;
        for (unsigned b = 0; b < x->bytes[i]; b++)
            at += 8 + (size_t)v->tokens.data[at];
        memcpy(name + len, v->tokens.data + at + 8, (size_t)v->tokens.data[at]);
        len += (size_t)v->tokens.data[at];
        if (i + 1 == x->n || (cuts >> (i % 64) & 1)) {
            vocab_token_n(v, name, len, T_NORMAL);
            n++;
            len = 0;
        }
    }
    return n;
}

static void check_cut(const struct vector *x, uint64_t cuts)
{
    struct vocab_build v = {0};
    struct err e = {0};
    int n_tokens = cut_tokens(&v, x, cuts);
    struct tokenizer *t = vocab_open(&v, "gpt-2", &e);
    struct detokenizer d = {0};
    unsigned char have[1024];
    size_t n_have = 0;
    for (int i = 0; i < n_tokens; i++) {
        size_t len;
        tokenizer_piece(t, 256 + i, &len);
        char *out = malloc(len * 3 + DETOKENIZER_MARGIN); /* no byte more: the sanitizer looks */
        size_t n = detokenizer_add(&d, t, 256 + i, false, out);
        assert_int_equal(utf8_check(out, n), n);
        memcpy(have + n_have, out, n);
        n_have += n;
        free(out);
    }
    char rest[DETOKENIZER_MARGIN];
    size_t n = detokenizer_flush(&d, rest);
    memcpy(have + n_have, rest, n);
    n_have += n;
    assert_int_equal(n_have, x->n_want);
    assert_memory_equal(have, x->want, n_have);
    assert_int_equal(detokenizer_flush(&d, rest), 0);
    tokenizer_free(t);
}

static void any_bytes_cut_anywhere_come_out_as_python_would_replace_them(void **state)
{
    size_t n;
    char *file = (char *)test_read_data("utf8_replace.txt", &n);
    assert_non_null(file);
    const char *at = file;
    struct vector x;
    uint64_t cuts = 0x9E3779B97F4A7C15u;
    int n_vectors = 0;
    for (; next_vector(&at, &x); n_vectors++) {
        cuts = cuts * 6364136223846793005u + 1442695040888963407u;
        check_cut(&x, n_vectors % 3 == 0 ? UINT64_MAX : n_vectors % 3 == 1 ? 0 : cuts >> 16);
    }
    assert_int_equal(n_vectors, 500);
    free(file);
}

/* The tokenizer of the bytes and one control token, 256. */
static struct tokenizer *bytes_and_control(void)
{
    struct vocab_build v = {0};
    struct err e = {0};
    vocab_start(&v);
    vocab_token(&v, "<|im_end|>", T_CONTROL);
    return vocab_open(&v, "gpt-2", &e);
}

static void a_character_in_parts_comes_out_whole(void **state)
{
    struct tokenizer *t = bytes_and_control();
    struct detokenizer d = {0};
    char out[64];
    assert_int_equal(detokenizer_add(&d, t, 0xF0, false, out), 0);
    assert_int_equal(detokenizer_add(&d, t, 0x9F, false, out), 0);
    assert_int_equal(detokenizer_add(&d, t, 0x98, false, out), 0);
    assert_int_equal(detokenizer_add(&d, t, 0x80, false, out), 4);
    assert_memory_equal(out, "\xF0\x9F\x98\x80", 4);
    assert_int_equal(detokenizer_flush(&d, out), 0);
    tokenizer_free(t);
}

static void control_tokens_give_their_text_or_nothing(void **state)
{
    struct tokenizer *t = bytes_and_control();
    struct detokenizer d = {0};
    char out[64];
    assert_int_equal(detokenizer_add(&d, t, 256, true, out), 0);
    assert_int_equal(detokenizer_add(&d, t, 256, false, out), 10);
    assert_memory_equal(out, "<|im_end|>", 10);
    /* skipped, it does not part a character; shown, it does */
    assert_int_equal(detokenizer_add(&d, t, 0xC3, true, out), 0);
    assert_int_equal(detokenizer_add(&d, t, 256, true, out), 0);
    assert_int_equal(detokenizer_add(&d, t, 0xA9, true, out), 2);
    assert_memory_equal(out, "\xC3\xA9", 2);
    assert_int_equal(detokenizer_add(&d, t, 0xC3, false, out), 0);
    assert_int_equal(detokenizer_add(&d, t, 256, false, out), 13);
    assert_memory_equal(out, "\xEF\xBF\xBD<|im_end|>", 13);
    tokenizer_free(t);
}

static void what_is_held_at_the_end_comes_out_as_one_replacement(void **state)
{
    struct tokenizer *t = bytes_and_control();
    struct detokenizer d = {0};
    char out[64];
    detokenizer_add(&d, t, 0xF0, false, out);
    detokenizer_add(&d, t, 0x9F, false, out);
    assert_int_equal(detokenizer_flush(&d, out), 3);
    assert_memory_equal(out, "\xEF\xBF\xBD", 3);
    assert_int_equal(detokenizer_add(&d, t, 'a', false, out), 1); /* as new */
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bytes_cut_anywhere_come_out_as_python_would_replace_them),
        cmocka_unit_test(a_character_in_parts_comes_out_whole),
        cmocka_unit_test(control_tokens_give_their_text_or_nothing),
        cmocka_unit_test(what_is_held_at_the_end_comes_out_as_one_replacement),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
