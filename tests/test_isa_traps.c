/* The code of sets that this machine lacks, as it is compiled for those that have them: every
 * instruction that the processor does not know is done by x86_trap.c. */
#include <stdlib.h>
#include <string.h>

#include "cpu_rig.h"
#include "kernels.h"
#include "test.h"
#include "x86_trap.h"

enum { ROWS = 20, COLS = 256, MAX_N = 49, LD = 48 };

static const struct kernels *set_of(const char *name, bool *usable)
{
    const struct kernels *k;
    *usable = false;
    for (int i = 0; (k = kernels_compiled(i, usable)); i++)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}

/* MAX_N random rows in int8 blocks, and as they are */
struct rows {
    float *values; /* [MAX_N][COLS] */
    struct activation a;
    struct rows_view view;
};

static void *zeros(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(p);
    return memset(p, 0, bytes);
}

static struct rows rows_new(const struct kernels *k, uint64_t *seed)
{
    const int stride = qstride(MAX_N);
    const size_t blocks = (size_t)(COLS / QBLOCK * stride);
    struct rows r = {.a = {.width = COLS, .max_rows = MAX_N, .quantised = true, .planes = 1}};
    struct ref_matrix x = ref_matrix_new(DTYPE_F32, MAX_N, COLS, 2, seed);
    r.values = zeros(MAX_N * COLS * sizeof *r.values);
    r.a.q = zeros(blocks * QBLOCK);
    r.a.d = zeros(blocks * sizeof(float));
    r.a.s = zeros(blocks * sizeof(float));
    r.a.sums = zeros(blocks * 2 * sizeof(int16_t));
    for (int i = 0; i < MAX_N; i++) {
        float *row = r.values + (size_t)i * COLS;
        for (int c = 0; c < COLS; c++)
            row[c] = (float)x.values[i * COLS + c];
        k->quantise(&r.a, stride, i, 0, row, COLS / QBLOCK);
    }
    ref_matrix_free(&x);
    r.view = (struct rows_view){.f = r.values,
                                .stride = COLS,
                                .q = r.a.q,
                                .d = r.a.d,
                                .s = r.a.s,
                                .sums = r.a.sums,
                                .qstride = stride,
                                .planes = 1};
    return r;
}

static void rows_free(struct rows *r)
{
    free(r->values);
    free(r->a.q);
    free(r->a.d);
    free(r->a.s);
    free(r->a.sums);
}

/* n up to `most` rows */
static void agree(const struct kernels *k, const struct kernels *like, const struct weight *w,
                  const struct rows_view *x, int most, const char *type)
{
    static const int ns[] = {1, 2, 3, 12, 16, 17, 48};
    static float got[MAX_N * LD], want[MAX_N * LD];
    for (size_t i = 0; i < sizeof ns / sizeof *ns && ns[i] <= most; i++) {
        const int t0 = MAX_N - ns[i];
        memset(got, 0, sizeof got);
        memset(want, 0, sizeof want);
        k->linear(w, x, t0, ns[i], 0, w->panels, got, LD);
        like->linear(w, x, t0, ns[i], 0, w->panels, want, LD);
        if (memcmp(got, want, sizeof got) != 0)
            fail_msg("%s: %s, %d rows: not the bits of %s", k->name, type, ns[i], like->name);
    }
}

/* `name` on a machine that has all that `like` has, with `most` rows; quantised types, or BF16 */
static void check(const char *name, const char *like, int most, bool bf16)
{
    bool can, native;
    const struct kernels *want = set_of(like, &can), *k = set_of(name, &native);
    if (!want || !can || !k) {
        print_message("SKIPPED %s: this machine or build lacks it or %s\n", name, like);
        skip();
    }
    uint64_t seed = 11;
    struct backend *b = rig_open("generic", 1, 1, 1, 1);
    struct rows x = rows_new(want, &seed);
    x86_trap_begin();
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) {
        if (bf16 ? t != DTYPE_BF16 : !dtype_is_quantised(t))
            continue;
        struct ref_matrix m = ref_matrix_new(t, ROWS, bf16 ? COLS - 5 : COLS, 1, &seed);
        agree(k, want, rig_weight(b, &m), &x.view, most, dtype_info(t)->name);
        ref_matrix_free(&m);
    }
    const long trapped = x86_trap_end();
    print_message("%s: %ld instructions done by the test\n", name, trapped);
    if (!native)
        assert_true(trapped > 0);
    rows_free(&x);
    b->ops->close(b);
}

static void the_code_of_avxvnni_has_the_bits_of_avx2(void **state)
{
    check("avxvnni", "avx2", 12, false);
}

static void the_code_of_amx_has_the_bits_of_vnni(void **state)
{
    check("amx", "vnni", 48, false);
}

/* Which adds BF16 products in the order of tile registers, too (test_cpu_bf16.c) */
static void the_code_of_amx_has_the_bits_of_its_emulation_with_bf16(void **state)
{
    bool rounds; /* with instructions that are not trapped */
    if (!set_of("bf16", &rounds) || !rounds) {
        print_message("SKIPPED amx: this machine or build lacks bf16\n");
        skip();
    }
    check("amx", "amx_emulated", 48, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_code_of_avxvnni_has_the_bits_of_avx2),
        cmocka_unit_test(the_code_of_amx_has_the_bits_of_vnni),
        cmocka_unit_test(the_code_of_amx_has_the_bits_of_its_emulation_with_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
