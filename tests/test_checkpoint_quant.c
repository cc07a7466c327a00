#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint_quant.h"
#include "random.h"

#include "test.h"

enum { ROWS = 24, COLS = 128, MAX_GROUPS = COLS / 8 };

/* What a checkpoint says, spelt out, and packed as its format has it. */
struct rig {
    int q[ROWS][COLS], zero[MAX_GROUPS][ROWS];
    float scale[MAX_GROUPS][ROWS];
    uint16_t scales[MAX_GROUPS * ROWS];
    uint32_t qweight[ROWS * COLS / 8], qzeros[MAX_GROUPS * ROWS / 8], g_idx[COLS];
    struct int4_matrix m;
};

/* AutoAWQ's pack: its i-th nibble has output order[i] of eight. */
static uint32_t awq_word(const int *of_eight, int stride)
{
    static const int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    uint32_t w = 0;
    for (int i = 0; i < 8; i++)
        w |= (uint32_t)of_eight[order[i] * stride] << 4 * i;
    return w;
}

static uint32_t plain_word(const int *of_eight, int less)
{
    uint32_t w = 0;
    for (int i = 0; i < 8; i++)
        w |= (uint32_t)(of_eight[i] - less) << 4 * i;
    return w;
}

static void pack(struct rig *r)
{
    const bool awq = r->m.packing == INT4_AWQ;
    const int n_groups = (int)(COLS / r->m.group), less = r->m.packing == INT4_GPTQ;
    for (int k = 0; k < COLS; k++)
        for (int o = 0; awq && o < ROWS; o += 8)
            r->qweight[k * (ROWS / 8) + o / 8] = awq_word(&r->q[o][k], COLS);
    for (int o = 0; o < ROWS; o++)
        for (int k = 0; !awq && k < COLS; k += 8)
            r->qweight[k / 8 * ROWS + o] = plain_word(&r->q[o][k], 0);
    for (int g = 0; g < n_groups; g++)
        for (int o = 0; o < ROWS; o += 8)
            r->qzeros[g * (ROWS / 8) + o / 8] =
                awq ? awq_word(&r->zero[g][o], 1) : plain_word(&r->zero[g][o], less);
}

static struct rig *rig_new(enum int4_packing packing, int group)
{
    struct rig *r = calloc(1, sizeof *r);
    uint64_t seed = (uint64_t)packing * 100 + (uint64_t)group;
    assert_non_null(r);
    r->m = (struct int4_matrix){packing,   ROWS,      COLS,      group, r->qweight,
                                r->qzeros, DTYPE_F16, r->scales, NULL};
    for (int g = 0; g < COLS / group; g++)
        for (int o = 0; o < ROWS; o++) {
            r->zero[g][o] = random_below(&seed, 16) + (packing == INT4_GPTQ);
            r->scales[g * ROWS + o] = (uint16_t)(0x1C00 + random_below(&seed, 0x800));
            r->scale[g][o] = f16_to_f32(r->scales[g * ROWS + o]);
        }
    for (int o = 0; o < ROWS; o++)
        for (int k = 0; k < COLS; k++)
            r->q[o][k] = random_below(&seed, 16);
    pack(r);
    return r;
}

/* Rows in two goes are what the checkpoint says: to the bit, or rounded to F16. */
static void check_rows(const struct rig *r, enum dtype want_type)
{
    struct err e;
    enum dtype type;
    unsigned char *bytes = malloc(ROWS * COLS * 2);
    float row[COLS];
    assert_true(int4_check(&r->m, "w", &type, &e));
    assert_int_equal(type, want_type);
    const size_t row_bytes = dtype_row_bytes(type, COLS);
    int4_rows(&r->m, type, 0, 5, bytes);
    int4_rows(&r->m, type, 5, ROWS - 5, bytes + 5 * row_bytes);
    for (int o = 0; o < ROWS; o++) {
        dtype_to_f32(type, bytes + (size_t)o * row_bytes, row, COLS);
        for (int k = 0; k < COLS; k++) {
            const int g = r->m.g_idx ? (int)r->g_idx[k] : k / (int)r->m.group;
            float want = r->scale[g][o] * (float)(r->q[o][k] - r->zero[g][o]);
            if (type == DTYPE_F16)
                want = f16_to_f32(f32_to_f16(want));
            if (row[k] != want)
                fail_msg("packing %d, group %d, row %d, input %d: %g, expected %g", r->m.packing,
                         (int)r->m.group, o, k, (double)row[k], (double)want);
        }
    }
    free(bytes);
}

static void four_bits_are_exact_in_every_packing(void **state)
{
    static const int groups[] = {32, 64, 128};
    for (enum int4_packing p = INT4_GPTQ; p <= INT4_AWQ; p++)
        for (int i = 0; i < 3; i++) {
            struct rig *r = rig_new(p, groups[i]);
            check_rows(r, DTYPE_Q4_Z);
            free(r);
        }
}

static void groups_of_parts_of_a_block_become_halves(void **state)
{
    struct rig *r = rig_new(INT4_AWQ, 16);
    check_rows(r, DTYPE_F16);
    free(r);
}

static void inputs_out_of_order_become_halves_and_in_order_stay_exact(void **state)
{
    struct rig *r = rig_new(INT4_GPTQ, 32);
    r->m.g_idx = r->g_idx;
    for (uint32_t k = 0; k < COLS; k++)
        r->g_idx[k] = k / 32;
    check_rows(r, DTYPE_Q4_Z);
    for (uint32_t k = 0; k < COLS; k++)
        r->g_idx[k] = 3 - k / 32; /* whole blocks */
    check_rows(r, DTYPE_Q4_Z);
    for (uint32_t k = 0; k < COLS; k++)
        r->g_idx[k] = k * 7 % 4;
    check_rows(r, DTYPE_F16);
    free(r);
}

static void what_cannot_be_read_is_refused(void **state)
{
    struct rig *r = rig_new(INT4_GPTQ, 32);
    struct int4_matrix m = r->m;
    struct err e;
    enum dtype t;
    m.g_idx = r->g_idx;
    r->g_idx[77] = 4;
    assert_false(int4_check(&m, "layer.qweight", &t, &e));
    assert_contains(e.msg, "layer.qweight: input 77 is of group 4, expected 0 to 3");
    r->g_idx[77] = 0xFFFFFFFF;
    assert_false(int4_check(&m, "w", &t, &e));
    m = r->m;
    m.group = 48;
    assert_false(int4_check(&m, "w", &t, &e));
    assert_contains(e.msg, "groups of 48 do not divide 128 inputs");
    m = r->m;
    m.rows = 20;
    assert_false(int4_check(&m, "w", &t, &e));
    assert_contains(e.msg, "expected multiples of 8");
    m = r->m;
    m.scale_type = DTYPE_Q8_0;
    assert_false(int4_check(&m, "w", &t, &e));
    assert_contains(e.msg, "scales are of type Q8_0");
    free(r);
}

/* Blocks of br x bc, the last ones cut off; scales of `type` */
static void fp8_of(enum dtype f8, int br, int bc, enum dtype scale_type)
{
    enum { R = 5, C = 70 };
    unsigned char data[R * C];
    float scales[R * C], row[C];
    uint16_t halves[R * C];
    unsigned char out[R * C * 4];
    uint64_t seed = (uint64_t)(br * 100 + bc);
    const int per_row = (C + bc - 1) / bc, n = (R + br - 1) / br * per_row;
    struct err e;
    enum dtype type;
    for (int i = 0; i < R * C; i++)
        data[i] = (unsigned char)(random_below(&seed, 0x7C) | random_below(&seed, 2) << 7);
    for (int i = 0; i < n; i++) {
        halves[i] = f32_to_bf16(0.001f * (float)(1 + random_below(&seed, 100)));
        scales[i] = bf16_to_f32(halves[i]);
    }
    const struct fp8_matrix m = {
        f8, R, C, data, br, bc, scale_type, scale_type == DTYPE_F32 ? (void *)scales : halves};
    assert_true(fp8_check(&m, "w", &type, &e));
    assert_int_equal(type, DTYPE_F16);
    fp8_rows(&m, type, 0, 2, out);
    fp8_rows(&m, type, 2, R - 2, out + 2 * C * 2);
    for (int r = 0; r < R; r++) {
        dtype_to_f32(type, out + r * C * 2, row, C);
        for (int c = 0; c < C; c++) {
            float x;
            dtype_to_f32(f8, &data[r * C + c], &x, 1);
            float want = f16_to_f32(f32_to_f16(x * scales[r / br * per_row + c / bc]));
            if (row[c] != want)
                fail_msg("blocks of %d x %d, value %d, %d: %g, expected %g", br, bc, r, c,
                         (double)row[c], (double)want);
        }
    }
}

static void eight_bit_floats_are_multiplied_by_their_blocks_scale(void **state)
{
    fp8_of(DTYPE_F8_E4M3, 5, 70, DTYPE_F32);
    fp8_of(DTYPE_F8_E4M3, 1, 70, DTYPE_BF16);
    fp8_of(DTYPE_F8_E4M3, 2, 32, DTYPE_F32);
    fp8_of(DTYPE_F8_E5M2, 128, 128, DTYPE_BF16);
}

static void large_scales_give_float32(void **state)
{
    const unsigned char data[2] = {0x7E, 0xFE}; /* ±448 */
    const float scale = 1000;
    float got[2];
    const struct fp8_matrix m = {DTYPE_F8_E4M3, 1, 2, data, 1, 2, DTYPE_F32, &scale};
    struct fp8_matrix bad = m;
    enum dtype type;
    struct err e;
    assert_true(fp8_check(&m, "w", &type, &e));
    assert_int_equal(type, DTYPE_F32);
    fp8_rows(&m, type, 0, 1, got);
    assert_true(got[0] == 448000 && got[1] == -448000);
    bad.type = DTYPE_F16;
    assert_false(fp8_check(&bad, "w", &type, &e));
    assert_contains(e.msg, "type F16, expected F8_E4M3");
    bad = m;
    bad.block_cols = 0;
    assert_false(fp8_check(&bad, "w", &type, &e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_bits_are_exact_in_every_packing),
        cmocka_unit_test(groups_of_parts_of_a_block_become_halves),
        cmocka_unit_test(inputs_out_of_order_become_halves_and_in_order_stay_exact),
        cmocka_unit_test(what_cannot_be_read_is_refused),
        cmocka_unit_test(eight_bit_floats_are_multiplied_by_their_blocks_scale),
        cmocka_unit_test(large_scales_give_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
