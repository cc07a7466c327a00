/* The CUDA backend's linears against plain double-precision references, in every order of threads.
 */
#include "cuda_rig.h"
#include "panel.h"
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* Rows of x as the device has them */
struct rows {
    struct cuda_qrows q;
    float *x; /* of the host */
    int n, width;
};

static struct rows rows_new(int n, int width, int planes, uint64_t *seed)
{
    struct rows r = {rig_rows(DTYPE_Q8_0, width, n, planes).q, NULL, n, width};
    r.x = rig_randoms((int64_t)n * width, 2, seed);
    cuda_ok(
        cuda_quantise(NULL, &r.q, rig_upload(r.x, sizeof *r.x * (size_t)(n * width)), width, n));
    return r;
}

/* Block `block` of device row `row`, in the order of k */
static void fetch_block(const struct cuda_qrows *q, int block, int row, float out[BLOCK_VALUES])
{
    size_t at = (size_t)block * (size_t)q->stride + (size_t)row;
    int8_t values[BLOCK_VALUES];
    struct cuda_block_scale s;
    int sums[2] = {0};
    rig_download(values, q->q + at * BLOCK_VALUES, sizeof values);
    rig_download(&s, q->s + at, sizeof s);
    for (int k = 0; k < BLOCK_VALUES; k++) {
        int value = values[k % 16 / 4 * 8 + k / 16 * 4 + k % 4]; /* as linear.cuh has them */
        sums[k / 16] += value;
        out[k] = s.d * (float)value;
    }
    for (int half = 0; half < 2 && s.d == s.d; half++)
        assert_true(f16_to_f32((uint16_t)(s.sums >> 16 * half)) == (float)sums[half]);
}

/* What row `row` of x means to the weights */
static void meaning(const struct rows *x, int row, double *out)
{
    float block[BLOCK_VALUES];
    for (int b = 0; b < x->width / BLOCK_VALUES; b++)
        for (int p = 0; p < x->q.planes; p++) {
            fetch_block(&x->q, b, row * x->q.planes + p, block);
            for (int k = 0; k < BLOCK_VALUES; k++)
                out[b * BLOCK_VALUES + k] = (p ? out[b * BLOCK_VALUES + k] : 0) + (double)block[k];
        }
}

/* Largest |w| |x| that a sum may have, to hold its rounding against */
static double scale_of(const struct ref_matrix *m, const double *x, int row)
{
    double sum = 0;
    for (int k = 0; k < m->cols; k++)
        sum += fabs(m->values[(size_t)row * (size_t)m->cols + (size_t)k] * x[k]);
    return sum;
}

static void check_rows(const struct ref_matrix *m, const struct rows *x, const float *got)
{
    double *in = malloc(sizeof *in * (size_t)x->width),
           *want = malloc(sizeof *want * (size_t)m->rows);
    for (int t = 0; t < x->n; t++) {
        meaning(x, t, in);
        ref_linear(m, in, want);
        for (int r = 0; r < m->rows; r++) {
            double error = fabs(got[t * m->rows + r] - want[r]);
            if (!(error <= 2e-6 * scale_of(m, in, r)))
                fail_msg("linear %s: row %d of token %d is %.9g, not %.9g",
                         dtype_info(m->type)->name, r, t, got[t * m->rows + r], want[r]);
        }
    }
    free(in);
    free(want);
}

static void quantise_all(void)
{
    enum { N = 5, WIDTH = 96 };
    uint64_t seed = 3;
    for (int planes = 1; planes <= 2; planes++) {
        struct rows x = rows_new(N, WIDTH, planes, &seed);
        for (int r = 0; r < N; r++) {
            double got[WIDTH];
            meaning(&x, r, got);
            for (int b = 0; b < WIDTH; b += BLOCK_VALUES) {
                const float *from = x.x + r * WIDTH + b;
                double most = 0;
                for (int k = 0; k < BLOCK_VALUES; k++)
                    most = fmax(most, fabs(from[k]));
                double step = planes == 1 ? most / 127 : most / 127 / 254;
                for (int k = 0; k < BLOCK_VALUES; k++)
                    assert_true(fabs(got[b + k] - from[k]) <= step * 0.5001);
            }
        }
    }
}

static void rows_become_int8_blocks_of_one_plane_or_two(void **state)
{
    (void)state;
    rig_in_all_orders(quantise_all);
}

struct shape {
    enum dtype type;
    int rows, cols, tokens, planes;
};

static void run(struct shape s)
{
    uint64_t seed = (uint64_t)s.rows;
    struct ref_matrix m = ref_matrix_new(s.type, s.rows, s.cols, 1, &seed);
    struct rows x = rows_new(s.tokens, s.cols, s.planes, &seed);
    size_t bytes = sizeof(float) * (size_t)(s.rows * s.tokens);
    struct cuda_linear l = {.into = INTO_STORE, .n_w = 1};
    l.w[0] = rig_matrix(&m);
    l.out[0] = rig_device(bytes);
    cuda_ok(cuda_linear_quantised(NULL, &l, &x.q, s.tokens));
    float *got = malloc(bytes);
    rig_download(got, l.out[0], bytes);
    check_rows(&m, &x, got);
    free(got);
    ref_matrix_free(&m);
    rig_free_all();
}

static bool is_quantised(enum dtype t)
{
    return panel_form(t).bits > 0;
}

/* Each type, in one of the shapes: tails of rows and of groups, few tokens and many */
static void all_types(void)
{
    static const struct shape shapes[] = {
        {.rows = 5, .cols = 256, .tokens = 1, .planes = 1},
        {.rows = 20, .cols = 512, .tokens = 3, .planes = 1},
        {.rows = 17, .cols = 256, .tokens = 3, .planes = 2},
    };
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (int i = 0; is_quantised((enum dtype)t) && i < 3; i++) {
            struct shape s = shapes[i];
            s.type = (enum dtype)t;
            run(s);
        }
}

static void linears_of_every_quantised_type_agree_with_the_reference(void **state)
{
    (void)state;
    all_types();
}

static void shapes(void)
{
    run((struct shape){DTYPE_Q4_0, 16, 32, 1, 1});
    run((struct shape){DTYPE_Q4_1, 33, 160, 9, 1});
    run((struct shape){DTYPE_Q8_0, 1, 1184, 17, 1}); /* 10 groups: ranges of two */
    run((struct shape){DTYPE_Q6_K, 130, 256, 33, 1});
    run((struct shape){DTYPE_Q4_K, 18, 512, 20, 2});
}

static void odd_shapes_are_whole_in_every_order_of_threads(void **state)
{
    (void)state;
    rig_in_all_orders(shapes);
}

/* --- the same bits --- */

static void linear_rows(const struct cuda_linear *l, struct rows *x, int first, int n, float *out)
{
    /* rows from `first` on alone: their blocks are quantised anew */
    struct cuda_qrows q = rig_rows(DTYPE_Q8_0, x->width, n, x->q.planes).q;
    size_t bytes = sizeof(float) * (size_t)(n * l->w[0].rows);
    struct cuda_linear here = *l;
    here.out[0] = rig_device(bytes);
    cuda_ok(cuda_quantise(
        NULL, &q, rig_upload(x->x + first * x->width, sizeof *x->x * (size_t)(n * x->width)),
        x->width, n));
    cuda_ok(cuda_linear_quantised(NULL, &here, &q, n));
    rig_download(out, here.out[0], bytes);
}

static void same_bits(enum dtype t, int planes)
{
    enum { TOKENS = 40, ROWS = 20, COLS = 1280 };
    static float all[TOKENS * ROWS], some[TOKENS * ROWS];
    uint64_t seed = 77;
    struct ref_matrix m = ref_matrix_new(t, ROWS, COLS, 1, &seed);
    struct rows x = rows_new(TOKENS, COLS, planes, &seed);
    struct cuda_linear l = {.into = INTO_STORE, .n_w = 1, .w = {rig_matrix(&m)}};
    const int sizes[] = {1, 7, 12, 20}; /* by each kernel */
    linear_rows(&l, &x, 0, TOKENS, all);
    for (int i = 0, at = 0; i < 4; at += sizes[i++]) {
        linear_rows(&l, &x, at, sizes[i], some);
        assert_memory_equal(some, all + at * ROWS, sizeof *some * (size_t)(sizes[i] * ROWS));
    }
    ref_matrix_free(&m);
    rig_free_all();
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    same_bits(DTYPE_Q4_1, 1);
    same_bits(DTYPE_Q6_K, 1);
    same_bits(DTYPE_MXFP4, 2);
}

/* --- what is done with the results --- */

enum { N_W = 3, COLS = 256 };
static const int w_rows[N_W] = {40, 8, 17};

static float *random_device(int n, uint64_t *seed, float **host)
{
    *host = rig_randoms(n, 1, seed);
    return rig_upload(*host, sizeof(float) * (size_t)n);
}

static void run_into(enum linear_into into, int n_w, int tokens, int planes, bool biased)
{
    uint64_t seed = 5;
    struct ref_matrix m[N_W];
    struct rows x = rows_new(tokens, COLS, planes, &seed);
    struct cuda_linear l = {.into = into, .act = ACT_SILU, .n_w = n_w};
    float *bias[N_W], *old[N_W];
    for (int i = 0; i < n_w; i++) {
        int rows = into == INTO_ACT_MUL ? w_rows[0] : w_rows[i];
        m[i] = ref_matrix_new(DTYPE_Q4_K, rows, COLS, 1, &seed);
        l.w[i] = rig_matrix(&m[i]);
        float *b = random_device(rows, &seed, &bias[i]);
        l.bias[i] = biased ? b : NULL;
        l.out[i] = random_device(rows * tokens, &seed, &old[i]);
    }
    cuda_ok(cuda_linear_quantised(NULL, &l, &x.q, tokens));
    double in[COLS], y[N_W][40];
    for (int t = 0; t < tokens; t++) {
        meaning(&x, t, in);
        for (int i = 0; i < n_w; i++) {
            ref_linear(&m[i], in, y[i]);
            for (int r = 0; biased && r < m[i].rows; r++)
                y[i][r] += bias[i][r];
        }
        for (int i = 0; i < (into == INTO_ACT_MUL ? 1 : n_w); i++) {
            float got[40];
            int rows = m[i].rows;
            rig_download(got, l.out[i] + t * rows, sizeof *got * (size_t)rows);
            for (int r = 0; r < rows; r++) {
                double want = y[i][r];
                if (into == INTO_ADD)
                    want += old[i][t * rows + r];
                if (into == INTO_ACT)
                    want = ref_act(ACT_SILU, want, 1);
                if (into == INTO_ACT_MUL)
                    want = ref_act(ACT_SILU, y[0][r], y[1][r]);
                if (!(fabs(got[r] - want) <= 1e-3 + 1e-3 * fabs(want)))
                    fail_msg("into %d: row %d of token %d of output %d is %.9g, not %.9g",
                             (int)into, r, t, i, got[r], want);
            }
        }
    }
    for (int i = 0; i < n_w; i++)
        ref_matrix_free(&m[i]);
    rig_free_all();
}

static void all_into(void)
{
    run_into(INTO_STORE, 3, 3, 1, true);
    run_into(INTO_STORE, 3, 36, 1, false);
    run_into(INTO_ADD, 1, 2, 2, true);
    run_into(INTO_ACT, 1, 12, 1, false);
    run_into(INTO_ACT_MUL, 2, 1, 1, true);
    run_into(INTO_ACT_MUL, 2, 17, 2, false);
}

static void results_are_stored_added_or_activated(void **state)
{
    (void)state;
    rig_in_all_orders(all_into);
}

/* --- float weights --- */

/* out: [tokens][rows] of the rows of x from `first` on */
static void float_rows(const struct cuda_linear *l, const struct ref_matrix *x, int first, int n,
                       float *out)
{
    const size_t size = x->type == DTYPE_F32 ? 4 : 2;
    struct cuda_linear here = *l;
    size_t bytes = sizeof(float) * (size_t)(n * l->w[0].rows);
    here.out[0] = rig_device(bytes);
    cuda_ok(cuda_linear_float(NULL, &here,
                              rig_float_rows(x->type,
                                             (uint8_t *)x->bytes + (size_t)(first * x->cols) * size,
                                             n, cuda_qrows_stride(n, 1), x->cols),
                              n));
    rig_download(out, here.out[0], bytes);
}

static void run_float(enum dtype t, int rows, int cols, int tokens)
{
    uint64_t seed = 12;
    struct ref_matrix m = ref_matrix_new(t, rows, cols, 1, &seed);
    struct ref_matrix x = ref_matrix_new(t, tokens, cols, 2, &seed);
    struct cuda_linear l = {.into = INTO_STORE, .n_w = 1};
    float *got = malloc(sizeof *got * (size_t)(rows * tokens));
    double *want = malloc(sizeof *want * (size_t)rows);
    l.w[0] = rig_matrix(&m);
    float_rows(&l, &x, 0, tokens, got);
    for (int i = 0; i < tokens; i++) {
        ref_linear(&m, x.values + i * cols, want);
        for (int r = 0; r < rows; r++)
            if (!(fabs(got[i * rows + r] - want[r]) <= 2e-6 * scale_of(&m, x.values + i * cols, r)))
                fail_msg("linear %s: row %d of token %d is %.9g, not %.9g", dtype_info(t)->name, r,
                         i, got[i * rows + r], want[r]);
    }
    free(got);
    free(want);
    ref_matrix_free(&m);
    ref_matrix_free(&x);
    rig_free_all();
}

static void float_shapes(void)
{
    const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (int i = 0; i < 3; i++) {
        run_float(types[i], 5, 70, 1);
        run_float(types[i], 33, 300, 9);
        run_float(types[i], 17, 32, 18);
        run_float(types[i], 130, 64, 33);
    }
}

static void linears_of_float_weights_agree_with_the_reference(void **state)
{
    (void)state;
    rig_in_all_orders(float_shapes);
}

static void float_bits(enum dtype t)
{
    enum { TOKENS = 40, ROWS = 20, WIDTH = 330 };
    static float all[TOKENS * ROWS], some[TOKENS * ROWS];
    uint64_t seed = 7;
    struct ref_matrix m = ref_matrix_new(t, ROWS, WIDTH, 1, &seed);
    struct ref_matrix x = ref_matrix_new(t, TOKENS, WIDTH, 1, &seed);
    struct cuda_linear l = {.into = INTO_STORE, .n_w = 1};
    const int sizes[] = {1, 7, 12, 20}; /* by each kernel */
    l.w[0] = rig_matrix(&m);
    float_rows(&l, &x, 0, TOKENS, all);
    for (int i = 0, at = 0; i < 4; at += sizes[i++]) {
        float_rows(&l, &x, at, sizes[i], some);
        assert_memory_equal(some, all + at * ROWS, sizeof *some * (size_t)(sizes[i] * ROWS));
    }
    ref_matrix_free(&m);
    ref_matrix_free(&x);
    rig_free_all();
}

static void float_weights_give_a_row_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    float_bits(DTYPE_F32);
    float_bits(DTYPE_F16);
    float_bits(DTYPE_BF16);
}

static void nan_in_x_reaches_every_row_and_only_its_own_token(void **state)
{
    (void)state;
    enum { ROWS = 20, TOKENS = 3 };
    uint64_t seed = 5;
    struct ref_matrix m = ref_matrix_new(DTYPE_Q4_0, ROWS, COLS, 1, &seed);
    struct rows x = rows_new(TOKENS, COLS, 1, &seed);
    struct cuda_linear l = {.into = INTO_STORE, .n_w = 1, .w = {rig_matrix(&m)}};
    float out[TOKENS * ROWS];
    x.x[COLS + 7] = NAN;
    linear_rows(&l, &x, 0, TOKENS, out);
    for (int i = 0; i < TOKENS * ROWS; i++)
        assert_int_equal(isnan(out[i]), i / ROWS == 1);
    ref_matrix_free(&m);
    rig_free_all();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_become_int8_blocks_of_one_plane_or_two),
        cmocka_unit_test(linears_of_every_quantised_type_agree_with_the_reference),
        cmocka_unit_test(odd_shapes_are_whole_in_every_order_of_threads),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(results_are_stored_added_or_activated),
        cmocka_unit_test(linears_of_float_weights_agree_with_the_reference),
        cmocka_unit_test(float_weights_give_a_row_the_same_bits_in_any_batch),
        cmocka_unit_test(nan_in_x_reaches_every_row_and_only_its_own_token),
    };
    if (argc > 1) /* a part of the names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
