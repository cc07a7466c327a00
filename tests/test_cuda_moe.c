/* The CUDA backend's experts: against each expert's MLP made of linears (test_cuda_linear.c
 * compares those with references), chosen and added up here in double precision. */
#include "cuda_rig.h"
#include "panel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

#define N(a) ((int)(sizeof(a) / sizeof *(a)))
#define MAX_EXPERTS 40

struct moe_case {
    enum dtype gate, up, down, bias; /* bias: DTYPE_COUNT for none */
    int n_experts, n_used, n_embd, n_ff, n;
    bool renormalise, add;
    enum act_fn act;
    int planes;
};

/* One of the three matrices of all experts, together and each for itself */
struct matrices {
    struct cuda_experts all;
    struct cuda_matrix w[MAX_EXPERTS];
    const float *bias[MAX_EXPERTS];
};

struct rig {
    const struct moe_case *c;
    struct matrices gate, up, down;
    struct cuda_moe moe;
    struct cuda_moe_layer layer;
    float *x, *before, *logits; /* of the host: [n][n_embd], [n][n_embd], [n][n_experts] */
};

static struct cuda_matrix upload(enum dtype t, int rows, int cols, double scale, uint64_t *seed)
{
    struct ref_matrix m = ref_matrix_new(t, rows, cols, scale, seed);
    struct cuda_matrix w = rig_matrix(&m);
    ref_matrix_free(&m);
    return w;
}

static void make_biases(struct matrices *m, const struct moe_case *c, int rows, uint64_t *seed)
{
    float *row = malloc(sizeof *row * (size_t)rows);
    struct ref_matrix b = ref_matrix_new(c->bias, c->n_experts, rows, 1, seed);
    for (int i = 0; i < c->n_experts; i++) {
        for (int r = 0; r < rows; r++)
            row[r] = (float)b.values[(size_t)i * (size_t)rows + (size_t)r];
        m->bias[i] = rig_upload(row, sizeof *row * (size_t)rows);
    }
    m->all.bias = rig_matrix(&b);
    ref_matrix_free(&b);
    free(row);
}

static void make(struct matrices *m, const struct moe_case *c, enum dtype t, int rows, int cols,
                 uint64_t *seed)
{
    const void *table[MAX_EXPERTS];
    memset(m, 0, sizeof *m);
    for (int i = 0; i < c->n_experts; i++) {
        m->w[i] = upload(t, rows, cols, 2 / sqrt(cols), seed);
        table[i] = m->w[i].data;
    }
    m->all.type = t;
    m->all.data = rig_upload(table, sizeof *table * (size_t)c->n_experts);
    if (c->bias != DTYPE_COUNT)
        make_biases(m, c, rows, seed);
}

static void rig_open(struct rig *r, const struct moe_case *c)
{
    uint64_t seed = 11;
    r->c = c;
    make(&r->gate, c, c->gate, c->n_ff, c->n_embd, &seed);
    make(&r->up, c, c->up, c->n_ff, c->n_embd, &seed);
    make(&r->down, c, c->down, c->n_embd, c->n_ff, &seed);
    r->layer = (struct cuda_moe_layer){r->gate.all, r->up.all, r->down.all};
    r->x = rig_randoms((int64_t)c->n * c->n_embd, 1, &seed);
    r->before = rig_randoms((int64_t)c->n * c->n_embd, 1, &seed);
    r->logits = rig_randoms((int64_t)c->n * c->n_experts, 3, &seed);
    for (int i = 0; i < c->n * c->n_experts; i++)
        r->logits[i] = rintf(r->logits[i] * 2) / 2; /* many are equal */
    r->moe = (struct cuda_moe){c->n_experts,   c->n_used, c->n_embd, c->n_ff,
                               c->renormalise, c->act,    c->up,     c->down,
                               c->planes,      c->n,      NULL};
    r->moe.scratch = rig_device(cuda_moe_bytes(&r->moe));
}

static struct cuda_rows rows_of(const struct moe_case *c, enum dtype reader, const float *x,
                                int width, int n)
{
    struct cuda_rows rows = rig_rows(reader, width, n, c->planes);
    cuda_ok(cuda_norm_rows(NULL, &rows, x, width, NULL, NULL, n));
    return rows;
}

/* out: [n][n_embd] of rows from `first` on; slots as cuda_moe's, or NULL */
static void run_some(const struct rig *r, int first, int n, const int32_t *slots, float *out)
{
    const struct moe_case *c = r->c;
    size_t row = sizeof(float) * (size_t)c->n_embd, at = (size_t)first * (size_t)c->n_embd;
    struct cuda_rows x = rows_of(c, c->up, rig_upload(r->x + at, row * (size_t)n), c->n_embd, n);
    float *device = rig_upload(r->before + at, row * (size_t)n);
    float *logits = rig_upload(r->logits + (size_t)first * (size_t)c->n_experts,
                               sizeof(float) * (size_t)(n * c->n_experts));
    cuda_ok(cuda_moe(NULL, &r->moe, &r->layer, c->add ? INTO_ADD : INTO_STORE, device, &x, logits,
                     slots ? rig_upload(slots, sizeof *slots * (size_t)n) : NULL, n));
    rig_download(out, device, row * (size_t)n);
}

static void linear(enum dtype t, const struct cuda_linear *l, const struct cuda_rows *x, int n)
{
    if (panel_form(t).bits)
        cuda_ok(cuda_linear_quantised(NULL, l, &x->q, n));
    else
        cuda_ok(cuda_linear_float(NULL, l, x->values, n));
}

/* y [n][n_embd]: what an expert makes of each row */
static void expert(const struct rig *r, int i, const struct cuda_rows *x, float *y)
{
    const struct moe_case *c = r->c;
    const size_t n_middle = (size_t)(c->n * c->n_ff),
                 bytes = sizeof(float) * (size_t)(c->n * c->n_embd);
    float *gate = rig_device(sizeof *gate * n_middle), *up = rig_device(sizeof *up * n_middle);
    float *out = rig_device(bytes);
    struct cuda_linear l = {.into = INTO_STORE, .n_w = 1};
    l.w[0] = r->gate.w[i], l.bias[0] = r->gate.bias[i], l.out[0] = gate;
    linear(c->gate, &l, x, c->n);
    l.w[0] = r->up.w[i], l.bias[0] = r->up.bias[i], l.out[0] = up;
    linear(c->up, &l, x, c->n);
    cuda_ok(cuda_act(NULL, c->act, gate, DTYPE_F32, gate, up, (int64_t)n_middle));
    struct cuda_rows in = rows_of(c, c->down, gate, c->n_ff, c->n);
    l.w[0] = r->down.w[i], l.bias[0] = r->down.bias[i], l.out[0] = out;
    linear(c->down, &l, &in, c->n);
    rig_download(y, out, bytes);
}

static void check_rows(const struct rig *r, const float *got, float *const *y)
{
    const struct moe_case *c = r->c;
    double *want = malloc(sizeof *want * (size_t)c->n_embd), share[MAX_EXPERTS];
    double logits[MAX_EXPERTS];
    int chosen[MAX_EXPERTS];
    char what[120];
    for (int row = 0; row < c->n; row++) {
        size_t at = (size_t)row * (size_t)c->n_embd;
        snprintf(what, sizeof what, "experts: %s and %s, %d of %d, row %d of %d",
                 dtype_info(c->up)->name, dtype_info(c->down)->name, c->n_used, c->n_experts, row,
                 c->n);
        for (int i = 0; i < c->n_experts; i++)
            logits[i] = r->logits[(size_t)row * (size_t)c->n_experts + (size_t)i];
        ref_route(logits, c->n_experts, c->n_used, c->renormalise, chosen, share);
        for (int i = 0; i < c->n_embd; i++) {
            want[i] = c->add ? r->before[at + (size_t)i] : 0;
            for (int k = 0; k < c->n_used; k++)
                want[i] += share[k] * y[chosen[k]][at + (size_t)i];
        }
        rig_near(what, got + at, want, c->n_embd, 4e-6, 2e-6);
    }
    free(want);
}

static void run(const struct moe_case *c)
{
    struct rig r;
    float *y[MAX_EXPERTS];
    size_t bytes = sizeof(float) * (size_t)(c->n * c->n_embd);
    float *got = malloc(bytes);
    rig_open(&r, c);
    run_some(&r, 0, c->n, NULL, got);
    struct cuda_rows x = rows_of(c, c->up, rig_upload(r.x, bytes), c->n_embd, c->n);
    for (int i = 0; i < c->n_experts; i++) {
        y[i] = malloc(bytes);
        expert(&r, i, &x, y[i]);
    }
    check_rows(&r, got, y);
    for (int i = 0; i < c->n_experts; i++)
        free(y[i]);
    free(got);
    rig_free_all();
}

static void experts_are_chosen_by_their_logits_and_mixed_by_their_shares(void **state)
{
    (void)state;
    static const enum dtype none = DTYPE_COUNT;
    const struct moe_case cases[] = {
        {DTYPE_F32, DTYPE_F32, DTYPE_F32, none, 4, 2, 64, 96, 17, true, true, ACT_SILU, 1},
        {DTYPE_F16, DTYPE_F16, DTYPE_BF16, DTYPE_F32, 5, 3, 50, 19, 30, false, false, ACT_GELU, 1},
        {DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K, none, 8, 2, 256, 256, 1, true, true, ACT_SILU, 1},
        {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_F32, DTYPE_BF16, 17, 4, 96, 32, 20, true, true,
         ACT_SWIGLU_CLAMPED, 2},
        {DTYPE_MXFP4, DTYPE_MXFP4, DTYPE_MXFP4, DTYPE_BF16, 17, 4, 96, 96, 12, true, true,
         ACT_SWIGLU_CLAMPED, 2},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_Q4_0, DTYPE_F16, 33, 8, 48, 160, 9, false, true,
         ACT_GELU_TANH, 1},
        {DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q5_1, DTYPE_F32, 1, 1, 64, 64, 5, false, false, ACT_SILU, 1},
        {DTYPE_Q5_0, DTYPE_Q5_0, DTYPE_Q8_0, none, 3, 2, 32, 64, 150, true, false, ACT_SILU, 1},
        {DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q8_0, DTYPE_F32, 4, 2, 256, 288, 6, true, true, ACT_SILU, 1},
        {DTYPE_F32, DTYPE_F32, DTYPE_Q4_1, none, 6, 6, 32, 64, 20, true, true, ACT_SILU, 2},
    };
    emu_forgive();
    for (int i = 0; i < N(cases); i++)
        run(&cases[i]);
}

static void some_cases(void)
{
    const struct moe_case cases[] = {
        {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_F32, 7, 3, 64, 64, 1, true, false, ACT_SILU, 1},
        {DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q4_0, DTYPE_F16, 5, 2, 64, 32, 7, false, true, ACT_SILU, 2},
        {DTYPE_F16, DTYPE_F16, DTYPE_F16, DTYPE_COUNT, 2, 1, 40, 16, 66, true, true, ACT_SILU, 1},
    };
    for (int i = 0; i < N(cases); i++)
        run(&cases[i]);
}

static void experts_agree_in_every_order_of_threads(void **state)
{
    (void)state;
    rig_in_all_orders(some_cases);
}

/* --- the same bits --- */

static void same_bits(const struct moe_case *c)
{
    struct rig r;
    size_t row = sizeof(float) * (size_t)c->n_embd;
    float *all = malloc(row * (size_t)c->n), *some = malloc(row * (size_t)c->n);
    const int sizes[] = {1, 5, 20, c->n - 26};
    rig_open(&r, c);
    run_some(&r, 0, c->n, NULL, all);
    for (int i = 0, at = 0; i < N(sizes); at += sizes[i++]) {
        run_some(&r, at, sizes[i], NULL, some);
        assert_memory_equal(some, all + at * c->n_embd, row * (size_t)sizes[i]);
    }
    free(all);
    free(some);
    rig_free_all();
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    const enum dtype none = DTYPE_COUNT;
    const struct moe_case cases[] = {
        {DTYPE_Q4_1, DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_F32, 4, 2, 160, 256, 68, true, true, ACT_SILU,
         1},
        {DTYPE_BF16, DTYPE_BF16, DTYPE_Q8_0, none, 3, 3, 80, 32, 70, true, false, ACT_SILU, 2},
        {DTYPE_F32, DTYPE_F32, DTYPE_F32, none, 5, 2, 33, 40, 40, false, false, ACT_GELU, 1},
    };
    for (int i = 0; i < N(cases); i++)
        same_bits(&cases[i]);
}

/* --- rows of a kind --- */

// clang-format off
static const struct moe_case small = {
    DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_F16, DTYPE_F32, 6, 2, 32, 32, 9, true, true, ACT_SILU, 1};
// clang-format on

static void a_nan_among_a_rows_logits_makes_that_row_nan(void **state)
{
    (void)state;
    float before[9 * 32], after[9 * 32];
    struct rig r;
    rig_open(&r, &small);
    run_some(&r, 0, small.n, NULL, before);
    r.logits[4 * small.n_experts + 5] = NAN;
    run_some(&r, 0, small.n, NULL, after);
    for (int i = 0; i < 9 * 32; i++)
        if (i / 32 == 4)
            assert_true(isnan(after[i]));
        else
            assert_memory_equal(&after[i], &before[i], sizeof *after);
    rig_free_all();
}

/* Fewer rows than a graph was made for, and other logits */
static void padding_all(void)
{
    static const int32_t slots[9] = {3, -1, 0, 8, -1, 5, 1, 40, -1};
    float without[9 * 32], with[9 * 32];
    struct rig r;
    rig_open(&r, &small);
    run_some(&r, 0, small.n, NULL, without);
    for (int i = 0; i < small.n; i++)
        for (int e = 0; slots[i] < 0 && e < small.n_experts; e++)
            r.logits[i * small.n_experts + e] = NAN; /* would make the row NaN */
    run_some(&r, 0, small.n, slots, with);
    for (int i = 0; i < 9 * 32; i++)
        assert_true(with[i] == (slots[i / 32] < 0 ? r.before[i] : without[i]));
}

static void padding_rows_are_left_out(void **state)
{
    (void)state;
    rig_in_all_orders(padding_all);
}

static void a_graph_routes_by_the_logits_that_it_finds(void **state)
{
    (void)state;
    enum { ROWS = 9, WIDTH = 32, EXPERTS = 6 };
    float want[ROWS * WIDTH], got[ROWS * WIDTH];
    struct moe_case c = small;
    struct rig r;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    c.add = false;
    rig_open(&r, &c);
    struct cuda_rows x = rows_of(&c, c.up, rig_upload(r.x, ROWS * WIDTH * 4), WIDTH, ROWS);
    float *logits = rig_device(ROWS * EXPERTS * 4), *out = rig_device(sizeof got);
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cuda_ok(cuda_moe(stream, &r.moe, &r.layer, INTO_STORE, out, &x, logits, NULL, ROWS));
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(&exec, graph, 0));
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; turn > 0 && i < ROWS * EXPERTS; i++)
            r.logits[i] = i % EXPERTS == 2 ? 9 : -r.logits[i]; /* one for all, and others */
        cuda_ok(cudaMemcpy(logits, r.logits, ROWS * EXPERTS * 4, cudaMemcpyHostToDevice));
        cuda_ok(cudaGraphLaunch(exec, stream));
        cuda_ok(cudaStreamSynchronize(stream));
        rig_download(got, out, sizeof got);
        run_some(&r, 0, ROWS, NULL, want);
        assert_memory_equal(got, want, sizeof got);
    }
    cuda_ok(cudaGraphExecDestroy(exec));
    cuda_ok(cudaGraphDestroy(graph));
    cuda_ok(cudaStreamDestroy(stream));
    rig_free_all();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_are_chosen_by_their_logits_and_mixed_by_their_shares),
        cmocka_unit_test(experts_agree_in_every_order_of_threads),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(a_nan_among_a_rows_logits_makes_that_row_nan),
        cmocka_unit_test(padding_rows_are_left_out),
        cmocka_unit_test(a_graph_routes_by_the_logits_that_it_finds),
    };
    if (argc > 1) /* a part of the names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
