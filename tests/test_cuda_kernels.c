/* The CUDA kernels of a step against plain double-precision references, in every order of threads.
 */
#include "cuda_rig.h"
#include "panel.h"
#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static const enum dtype float_types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
enum { N_FLOAT_TYPES = 3 };

static double rounding(enum dtype t) /* relative, of one value */
{
    return t == DTYPE_F32 ? 2e-6 : t == DTYPE_F16 ? 1.1e-3 : 8e-3;
}

static size_t value_bytes(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

/* What a device buffer of a float type holds, widened; freed by the caller */
static float *fetch(enum dtype t, const void *from, int64_t n)
{
    void *raw = malloc((size_t)n * value_bytes(t));
    float *out = malloc((size_t)n * sizeof *out);
    rig_download(raw, from, (size_t)n * value_bytes(t));
    rig_widen(t, raw, out, n);
    free(raw);
    return out;
}

static void check(const char *what, enum dtype t, const void *from, const double *want, int64_t n,
                  double rtol)
{
    float *got = fetch(t, from, n);
    rig_near(what, got, want, n, 2e-6, rtol + (t == DTYPE_F32 ? 0 : rounding(t)));
    free(got);
}

/* --- embed --- */

enum { EMBED_ROWS = 37, EMBED_IDS = 6, EMBED_WIDTH = 512 };
static const int32_t embed_ids[EMBED_IDS] = {36, 0, 3, 3, 9, 24};
/* The same, two of them drawn before */
static const int32_t embed_named[EMBED_IDS] = {-1 - 2, 0, 3, 3, 9, -1 - 0};
static const int32_t embed_drawn[] = {24, 1, 36};

/* To the bit: the file's values times the scale */
static void embed_case(enum dtype t, int width)
{
    static float want[EMBED_WIDTH], got[EMBED_IDS * EMBED_WIDTH];
    uint64_t seed = (uint64_t)width;
    struct ref_matrix m = ref_matrix_new(t, EMBED_ROWS, width, 2, &seed);
    struct cuda_matrix table = rig_matrix(&m);
    size_t bytes = sizeof(float) * (size_t)(EMBED_IDS * width);
    float *x = rig_device(bytes);
    cuda_ok(cuda_embed(NULL, x, &table, rig_upload(embed_named, sizeof embed_named),
                       rig_upload(embed_drawn, sizeof embed_drawn), EMBED_IDS, 1.3f));
    rig_download(got, x, bytes);
    for (int r = 0; r < EMBED_IDS; r++) {
        rig_widen(t, (uint8_t *)m.bytes + (size_t)embed_ids[r] * dtype_row_bytes(t, width), want,
                  width);
        for (int i = 0; i < width; i++) {
            want[i] *= 1.3f;
            if (memcmp(&got[r * width + i], &want[i], sizeof *want))
                fail_msg("embed %s: value %d of row %d is %.9g, not %.9g", dtype_info(t)->name, i,
                         r, got[r * width + i], want[i]);
        }
    }
    ref_matrix_free(&m);
}

static void embed_all(void)
{
    for (int i = 0; i < N_FLOAT_TYPES; i++) {
        embed_case(float_types[i], 1);
        embed_case(float_types[i], 70);
    }
    embed_case(DTYPE_Q4_0, 32);
    embed_case(DTYPE_Q6_K, 256);
}

static void embedding_copies_the_rows_of_the_ids(void **state)
{
    (void)state;
    rig_in_all_orders(embed_all);
}

static void embedding_gives_the_files_values_of_every_quantised_type(void **state)
{
    (void)state;
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (panel_form((enum dtype)t).bits) {
            embed_case((enum dtype)t, EMBED_WIDTH);
            rig_free_all();
        }
}

/* --- norms --- */

struct norm_case {
    enum norm_kind kind;
    int width;
    bool bias, add, rows;
    enum dtype out;
};

static double *as_double(const float *x, int n)
{
    double *d = malloc(sizeof *d * (size_t)n);
    for (int i = 0; i < n; i++)
        d[i] = x[i];
    return d;
}

static void run_norm(struct norm_case c)
{
    enum { ROWS = 3 };
    const int32_t picked[] = {2, 0, 2};
    uint64_t seed = 5;
    int n = c.width;
    float *x = rig_randoms(ROWS * n, 3, &seed), *w = rig_randoms(n, 1, &seed);
    float *bias = rig_randoms(n, 1, &seed), *old = rig_randoms(ROWS * n, 1, &seed);
    double *want = malloc(sizeof *want * ROWS * (size_t)n);
    double *dw = as_double(w, n), *db = as_double(bias, n);
    for (int i = 0; i < n; i++)
        x[n + i] += 100; /* a mean that would cancel */
    for (int r = 0; r < ROWS; r++)
        ref_norm(c.kind, x + (c.rows ? picked[r] : r) * n, dw, c.bias ? db : NULL, n, 1e-5,
                 want + r * n);
    for (int i = 0; c.add && i < ROWS * n; i++)
        want[i] += old[i];
    struct cuda_norm norm = {c.kind, rig_upload(w, 4 * (size_t)n),
                             c.bias ? rig_upload(bias, 4 * (size_t)n) : NULL, 1e-5f};
    float *dx = rig_upload(x, 4 * ROWS * (size_t)n);
    void *out = rig_device(value_bytes(c.out) * ROWS * (size_t)n);
    if (c.add) {
        out = rig_upload(old, 4 * ROWS * (size_t)n);
        cuda_ok(cuda_norm_add(NULL, out, dx, n, &norm, ROWS));
    } else {
        cuda_ok(cuda_norm(NULL, out, c.out, dx, n, &norm,
                          c.rows ? rig_upload(picked, sizeof picked) : NULL, ROWS));
    }
    check("norm", c.out, out, want, ROWS * n, 4e-5);
    free(want);
    free(dw);
    free(db);
}

static void norm_all(void)
{
    const int widths[] = {1, 33, 256, 576};
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < N_FLOAT_TYPES; t++) {
            run_norm((struct norm_case){NORM_RMS, widths[i], false, false, t == 1, float_types[t]});
            run_norm(
                (struct norm_case){NORM_LAYER, widths[i], t == 0, false, t == 2, float_types[t]});
        }
}

static void norms_agree_with_the_reference(void **state)
{
    (void)state;
    rig_in_all_orders(norm_all);
}

static void norm_add_all(void)
{
    run_norm((struct norm_case){NORM_RMS, 300, false, true, false, DTYPE_F32});
    run_norm((struct norm_case){NORM_LAYER, 40, true, true, false, DTYPE_F32});
}

static void norms_are_added_to_the_residual_stream(void **state)
{
    (void)state;
    rig_in_all_orders(norm_add_all);
}

static void convert_all(void)
{
    uint64_t seed = 3;
    float *x = rig_randoms(2 * 77, 5, &seed);
    double *want = as_double(x, 2 * 77);
    for (int t = 0; t < N_FLOAT_TYPES; t++) {
        void *out = rig_device(value_bytes(float_types[t]) * 2 * 77);
        cuda_ok(cuda_norm(NULL, out, float_types[t], rig_upload(x, 4 * 2 * 77), 77, NULL, NULL, 2));
        for (int i = 0; i < 2 * 77; i++)
            want[i] = ref_round(float_types[t], x[i]);
        float *got = fetch(float_types[t], out, 2 * 77);
        rig_near("conversion", got, want, 2 * 77, 0, 0);
        free(got);
    }
    free(want);
}

static void without_a_norm_the_row_is_rounded_to_the_readers_type(void **state)
{
    (void)state;
    rig_in_all_orders(convert_all);
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    enum { N = 9, W = 333 };
    uint64_t seed = 8;
    float *x = rig_randoms(N * W, 3, &seed), one[W], all[N * W];
    float *dx = rig_upload(x, sizeof all), *out = rig_device(sizeof all);
    struct cuda_norm norm = {NORM_RMS, rig_upload(rig_randoms(W, 1, &seed), sizeof one), NULL,
                             1e-6f};
    cuda_ok(cuda_norm(NULL, out, DTYPE_F32, dx, W, &norm, NULL, N));
    rig_download(all, out, sizeof all);
    for (int r = 0; r < N; r++) {
        cuda_ok(cuda_norm(NULL, out, DTYPE_F32, dx + r * W, W, &norm, NULL, 1));
        rig_download(one, out, sizeof one);
        assert_memory_equal(one, all + r * W, sizeof one);
    }
    rig_free_all();
}

/* --- norms in the form of a reader --- */

enum { FORM_ROWS = 5 };
static const int32_t form_picked[FORM_ROWS] = {4, 0, 4, 2, 1};

static struct cuda_norm form_norm(enum norm_kind kind, int width, uint64_t *seed)
{
    struct cuda_norm n = {kind, NULL, NULL, 1e-5f};
    n.w = rig_upload(rig_randoms(width, 1, seed), 4 * (size_t)width);
    if (kind == NORM_LAYER)
        n.bias = rig_upload(rig_randoms(width, 1, seed), 4 * (size_t)width);
    return n;
}

static void same_memory(const char *what, const void *a, const void *b, size_t n)
{
    uint8_t *left = malloc(n), *right = malloc(n);
    rig_download(left, a, n);
    rig_download(right, b, n);
    if (memcmp(left, right, n))
        fail_msg("%s: not the same bytes", what);
    free(left);
    free(right);
}

/* norm NULL: none; the rows by cuda_norm and cuda_quantise are the same. */
static void blocks_case(int width, int planes, const struct cuda_norm *norm, bool pick,
                        uint64_t *seed)
{
    size_t bytes = 4 * (size_t)(FORM_ROWS * width);
    float *x = rig_upload(rig_randoms(FORM_ROWS * width, 3, seed), bytes);
    float *plain = rig_device(bytes);
    struct cuda_rows got = rig_rows(DTYPE_Q8_0, width, FORM_ROWS, planes);
    struct cuda_rows want = rig_rows(DTYPE_Q8_0, width, FORM_ROWS, planes);
    const int32_t *rows = pick ? rig_upload(form_picked, sizeof form_picked) : NULL;
    cuda_ok(cuda_norm(NULL, plain, DTYPE_F32, x, width, norm, rows, FORM_ROWS));
    cuda_ok(cuda_quantise(NULL, &want.q, plain, width, FORM_ROWS));
    cuda_ok(cuda_norm_rows(NULL, &got, x, width, norm, rows, FORM_ROWS));
    size_t blocks = (size_t)(width / 32) * (size_t)got.q.stride;
    same_memory("norm in blocks", got.q.q, want.q.q, blocks * 32);
    same_memory("scales of a norm in blocks", got.q.s, want.q.s, blocks * sizeof *got.q.s);
}

static void blocks_all(void)
{
    uint64_t seed = 31;
    const int widths[] = {32, 96, 576, 1056};
    for (int i = 0; i < 4; i++) {
        struct cuda_norm rms = form_norm(NORM_RMS, widths[i], &seed);
        struct cuda_norm layer = form_norm(NORM_LAYER, widths[i], &seed);
        blocks_case(widths[i], 1, &rms, i % 2, &seed);
        blocks_case(widths[i], 2, &layer, i % 2 == 0, &seed);
    }
    blocks_case(96, 2, NULL, true, &seed);
    blocks_case(96, 1, NULL, false, &seed);
}

static void norms_write_the_blocks_that_quantising_their_rows_makes(void **state)
{
    (void)state;
    rig_in_all_orders(blocks_all);
}

static void padded_all(void)
{
    enum { WIDTH = 70, PADDED = 96 };
    uint64_t seed = 32;
    struct cuda_norm norm = form_norm(NORM_RMS, WIDTH, &seed);
    float *x = rig_upload(rig_randoms(FORM_ROWS * WIDTH, 3, &seed), 4 * FORM_ROWS * WIDTH);
    for (int t = 0; t < N_FLOAT_TYPES; t++) {
        size_t size = value_bytes(float_types[t]);
        void *want = rig_device(size * FORM_ROWS * WIDTH);
        struct cuda_rows got = rig_rows(float_types[t], WIDTH, FORM_ROWS, 1);
        uint8_t host[4 * FORM_ROWS * WIDTH];
        cuda_ok(cuda_norm(NULL, want, float_types[t], x, WIDTH, &norm, NULL, FORM_ROWS));
        cuda_ok(cuda_norm_rows(NULL, &got, x, WIDTH, &norm, NULL, FORM_ROWS));
        rig_download(host, want, size * FORM_ROWS * WIDTH);
        same_memory("padded norm", got.values,
                    rig_float_rows(float_types[t], host, FORM_ROWS, FORM_ROWS, WIDTH),
                    size * FORM_ROWS * PADDED);
    }
}

static void norms_for_float_weights_have_zeros_up_to_32(void **state)
{
    (void)state;
    rig_in_all_orders(padded_all);
}

static void rows_of_f16_are_never_infinite(void **state)
{
    (void)state;
    enum { WIDTH = 32 };
    float x[WIDTH] = {1e5f, -1e30f, NAN, 65520, 2};
    uint16_t got[WIDTH];
    struct cuda_rows rows = rig_rows(DTYPE_F16, WIDTH, 1, 1);
    cuda_ok(cuda_norm_rows(NULL, &rows, rig_upload(x, sizeof x), WIDTH, NULL, NULL, 1));
    rig_download(got, rows.values, sizeof got);
    assert_true(f16_to_f32(got[0]) == 65504 && f16_to_f32(got[1]) == -65504);
    assert_true(isnan(f16_to_f32(got[2])));
    assert_true(f16_to_f32(got[3]) == 65504 && f16_to_f32(got[4]) == 2);
}

/* --- rope and the KV cache --- */

struct rope_case {
    enum dtype kv;
    enum rope_style style;
    int n_dims;
    bool normed;
    enum qk_norm_span span;
    enum norm_kind kind;
};
enum { ROPE_ROWS = 4, Q_HEADS = 6, KV_HEADS = 3, DIM = 40, LAYERS = 2, BLOCK = 32, PAGES = 3 };
static const int32_t rope_positions[ROPE_ROWS] = {0, 17, 5, 31};
static const int32_t rope_slots[ROPE_ROWS] = {2 * BLOCK, BLOCK + 17, -1, 31};

static void ref_heads(const struct rope_case *c, const struct rope_config *rope, int n_heads,
                      int position, const float *x, const float *w, double *out)
{
    bool all = c->span == QK_NORM_ALL;
    int width = n_heads * DIM, n = all ? width : DIM;
    double *dw = as_double(w, c->span == QK_NORM_HEAD ? DIM : width);
    for (int i = 0; i < width; i++)
        out[i] = x[i];
    for (int at = 0; c->normed && at < width; at += n)
        ref_norm(c->kind, x + at, dw + (c->span == QK_NORM_HEAD ? 0 : at), NULL, n, 1e-6, out + at);
    for (int h = 0; h < n_heads; h++)
        ref_rotate(rope, position, out + h * DIM);
    free(dw);
}

static float *rope_table(const struct rope_config *rope)
{
    int half = rope->n_dims / 2;
    float *table = malloc(sizeof *table * 32 * (size_t)rope->n_dims);
    for (int p = 0; p < 32; p++)
        for (int i = 0; i < half; i++) {
            double angle = (float)p * rope->inv_freq[i];
            table[(p * half + i) * 2] = (float)(cos(angle) * rope->mscale);
            table[(p * half + i) * 2 + 1] = (float)(sin(angle) * rope->mscale);
        }
    void *device = rig_upload(table, sizeof *table * 32 * (size_t)rope->n_dims);
    free(table);
    return device;
}

/* Index of K (which 0) or V of a head at a slot, as kernels.h says the pool lies */
static size_t pool_at(int layer, int slot, int which, int head)
{
    size_t page = (size_t)slot / BLOCK, in = (size_t)slot % BLOCK;
    return (((((page * LAYERS + layer) * (BLOCK / 16) + in / 16) * 2 + which) * KV_HEADS + head) *
                16 +
            in % 16) *
           DIM;
}

static void check_pool(const struct rope_case *c, const float *pool, const double *k,
                       const float *v, int64_t n)
{
    double *want = malloc(sizeof *want * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        want[i] = NAN; /* what nobody wrote */
    for (int r = 0; r < ROPE_ROWS; r++)
        for (int i = 0; rope_slots[r] >= 0 && i < KV_HEADS * DIM; i++) {
            int at = r * KV_HEADS * DIM + i;
            want[pool_at(1, rope_slots[r], 0, i / DIM) + i % DIM] = ref_round(c->kv, k[at]);
            want[pool_at(1, rope_slots[r], 1, i / DIM) + i % DIM] = ref_round(c->kv, v[at]);
        }
    rig_near("KV pool", pool, want, n, 1e-5, rounding(c->kv));
    free(want);
}

static void run_rope(struct rope_case c)
{
    enum { QW = Q_HEADS * DIM, KW = KV_HEADS * DIM };
    uint64_t seed = 11;
    float inv_freq[DIM / 2];
    for (int i = 0; i < DIM / 2; i++)
        inv_freq[i] = powf(100, -(float)i / 20);
    struct rope_config config = {c.style, c.n_dims, inv_freq, 1.25f, 32};
    float *q = rig_randoms(ROPE_ROWS * QW, 2, &seed), *k = rig_randoms(ROPE_ROWS * KW, 2, &seed);
    float *v = rig_randoms(ROPE_ROWS * KW, 2, &seed);
    float *qw = rig_randoms(QW, 1, &seed), *kw = rig_randoms(KW, 1, &seed);
    v[3] = 1e30f; /* more than f16 has */
    double dq[ROPE_ROWS * QW], dk[ROPE_ROWS * KW];
    for (int r = 0; r < ROPE_ROWS; r++) {
        ref_heads(&c, &config, Q_HEADS, rope_positions[r], q + r * QW, qw, dq + r * QW);
        ref_heads(&c, &config, KV_HEADS, rope_positions[r], k + r * KW, kw, dk + r * KW);
    }
    struct cuda_kv kv = {NULL, c.kv, LAYERS, KV_HEADS, DIM, BLOCK};
    size_t bytes = PAGES * cuda_kv_page_bytes(&kv);
    int64_t n = (int64_t)(bytes / value_bytes(c.kv));
    kv.pool = rig_device(bytes);
    struct cuda_qk_norm norm = {c.kind, c.span, rig_upload(qw, QW * 4), rig_upload(kw, KW * 4),
                                1e-6f};
    struct cuda_rope rope = {c.style, c.n_dims, rope_table(&config)};
    float *q_out = rig_upload(q, ROPE_ROWS * QW * 4), *k_out = rig_upload(k, ROPE_ROWS * KW * 4);
    cuda_ok(cuda_rope_write_kv(NULL, &kv, 1, c.normed ? &norm : NULL, c.style ? &rope : NULL,
                               Q_HEADS, q_out, k_out, rig_upload(v, ROPE_ROWS * KW * 4),
                               rig_upload(rope_positions, sizeof rope_positions),
                               rig_upload(rope_slots, sizeof rope_slots), ROPE_ROWS));
    check("q", DTYPE_F32, q_out, dq, ROPE_ROWS * QW, 1e-5);
    check("k", DTYPE_F32, k_out, dk, ROPE_ROWS * KW, 1e-5);
    float *pool = fetch(c.kv, kv.pool, n);
    check_pool(&c, pool, dk, v, n);
    free(pool);
}

static void rope_all(void)
{
    run_rope((struct rope_case){DTYPE_F16, ROPE_NEOX, DIM, .normed = false});
    run_rope((struct rope_case){DTYPE_BF16, ROPE_NORMAL, DIM, .normed = false});
    run_rope((struct rope_case){DTYPE_F32, ROPE_NONE, 0, .normed = false});
    run_rope((struct rope_case){DTYPE_F32, ROPE_NEOX, 24, true, QK_NORM_HEAD, NORM_RMS});
    run_rope((struct rope_case){DTYPE_F16, ROPE_NORMAL, 16, true, QK_NORM_HEADS, NORM_LAYER});
    run_rope((struct rope_case){DTYPE_BF16, ROPE_NEOX, DIM, true, QK_NORM_ALL, NORM_RMS});
    run_rope((struct rope_case){DTYPE_F32, ROPE_NONE, 0, true, QK_NORM_ALL, NORM_LAYER});
}

static void q_and_k_are_normed_and_turned_and_written_to_their_pages(void **state)
{
    (void)state;
    rig_in_all_orders(rope_all);
}

/* --- a cache of 8 bits --- */

enum { Q8_ROWS = 3, Q8_DIM = 48, Q8_WIDTH = KV_HEADS * Q8_DIM };
static const int32_t q8_slots[Q8_ROWS] = {BLOCK + 17, 3, 2 * BLOCK - 1};

/* The arithmetic that kernels.h promises, in float32 as the CPU's: codes in order of dims, and the
 * scale */
static uint16_t codes_of(enum dtype t, const float *x, float codes[Q8_DIM])
{
    const float largest = t == DTYPE_INT8 ? 127 : 448;
    float most = 0, scale;
    bool nan = false;
    for (int d = 0; d < Q8_DIM; d++) {
        nan = nan || isnan(x[d]);
        most = fmaxf(most, fminf(fabsf(x[d]), 3e38f));
        codes[d] = 0;
    }
    if (nan || most < 1e-30f)
        return nan ? 0x7fc0 : 0;
    scale = most / largest;
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bits = (bits + 0xffff) & 0xffff0000;
    memcpy(&scale, &bits, sizeof bits);
    for (int d = 0; d < Q8_DIM; d++) {
        float y = fmaxf(fminf(x[d], 3e38f), -3e38f) * (1 / scale), step = 1;
        if (t == DTYPE_F8_E4M3)
            step = ldexpf(1, fabsf(y) < 0x1p-6f ? -9 : ilogbf(y) - 3);
        codes[d] = rintf(y / step) * step;
    }
    return (uint16_t)(bits >> 16);
}

static float code_value(enum dtype t, uint8_t code)
{
    return t == DTYPE_INT8 ? code - 128 : f16_to_f32(f8_to_f16(t, code));
}

/* A head of a token is there as kernels.h says, and what nobody wrote is as it was. */
static void check_codes(enum dtype t, const uint8_t *pool, const float *x, int slot, int which,
                        int head)
{
    const size_t page = (size_t)slot / BLOCK, in = (size_t)slot % BLOCK;
    const size_t block = (page * LAYERS + 1) * (BLOCK / 16) + in / 16;
    const uint8_t *at =
        pool + ((block * 2 + (size_t)which) * KV_HEADS + (size_t)head) * 16 * (Q8_DIM + 2);
    const uint16_t *scales = (const uint16_t *)(at + 16 * Q8_DIM);
    float codes[Q8_DIM];
    uint16_t scale = codes_of(t, x, codes);
    if (scales[in % 16] != scale || scales[in % 16 ^ 1] != 0xffff)
        fail_msg("KV pool: the scale is %04x, not %04x", scales[in % 16], scale);
    for (int d = 0; d < Q8_DIM; d++) {
        float got = code_value(t, at[in % 16 * Q8_DIM + d / 16 * 16 + d % 8 * 2 + d % 16 / 8]);
        if (got != codes[d])
            fail_msg("KV pool: value %d of head %d is %g, not %g", d, head, (double)got,
                     (double)codes[d]);
    }
}

static void write_q8(enum dtype t, const float *k, const float *v)
{
    const int32_t positions[Q8_ROWS] = {0};
    struct cuda_kv kv = {NULL, t, LAYERS, KV_HEADS, Q8_DIM, BLOCK};
    const size_t bytes = PAGES * cuda_kv_page_bytes(&kv);
    uint8_t *pool = malloc(bytes);
    assert_int_equal(bytes, PAGES * LAYERS * BLOCK * 2 * KV_HEADS * (Q8_DIM + 2));
    kv.pool = rig_device(bytes);
    cuda_ok(cudaMemset(kv.pool, 0xff, bytes));
    cuda_ok(cuda_rope_write_kv(
        NULL, &kv, 1, NULL, NULL, KV_HEADS, rig_upload(k, 4 * Q8_ROWS * Q8_WIDTH),
        rig_upload(k, 4 * Q8_ROWS * Q8_WIDTH), rig_upload(v, 4 * Q8_ROWS * Q8_WIDTH),
        rig_upload(positions, sizeof positions), rig_upload(q8_slots, sizeof q8_slots), Q8_ROWS));
    rig_download(pool, kv.pool, bytes);
    for (int i = 0; i < Q8_ROWS * KV_HEADS; i++) {
        check_codes(t, pool, k + i * Q8_DIM, q8_slots[i / KV_HEADS], 0, i % KV_HEADS);
        check_codes(t, pool, v + i * Q8_DIM, q8_slots[i / KV_HEADS], 1, i % KV_HEADS);
    }
    free(pool);
}

static void q8_all(void)
{
    uint64_t seed = 31;
    float *k = rig_randoms(Q8_ROWS * Q8_WIDTH, 2, &seed);
    float *v = rig_randoms(Q8_ROWS * Q8_WIDTH, 1e-3, &seed);
    for (int d = 0; d < Q8_DIM; d++) {
        v[d] = ldexpf(v[d], -d);                       /* all of E4M3's exponents */
        v[Q8_DIM + d] *= 1e-28f;                       /* nought */
        v[2 * Q8_DIM + d] *= 1e30f;                    /* large */
        k[d] = (float)(d % 2 ? d : 2 * d - 94) * 0.5f; /* ties */
    }
    k[2 * Q8_DIM - 1] = NAN;
    k[2 * Q8_DIM] = INFINITY;
    v[Q8_WIDTH] = -INFINITY;
    write_q8(DTYPE_INT8, k, v);
    write_q8(DTYPE_F8_E4M3, k, v);
}

static void a_cache_of_8_bits_has_codes_and_a_scale_of_each_token_and_head(void **state)
{
    (void)state;
    rig_in_all_orders(q8_all);
}

static void nan_all(void)
{
    enum { W = KV_HEADS * DIM };
    float x[W];
    for (int i = 0; i < W; i++)
        x[i] = i == 7 ? NAN : i == 8 ? INFINITY : i == 9 ? -INFINITY : 1;
    for (int t = 0; t < N_FLOAT_TYPES; t++) {
        const int32_t zero = 0;
        struct cuda_kv kv = {NULL, float_types[t], LAYERS, KV_HEADS, DIM, BLOCK};
        kv.pool = rig_device(cuda_kv_page_bytes(&kv));
        float *q = rig_upload(x, sizeof x), *k = rig_upload(x, sizeof x);
        cuda_ok(cuda_rope_write_kv(NULL, &kv, 0, NULL, NULL, KV_HEADS, q, k,
                                   rig_upload(x, sizeof x), rig_upload(&zero, 4),
                                   rig_upload(&zero, 4), 1));
        float *pool = fetch(kv.dtype, kv.pool, DIM);
        assert_true(isnan(pool[7]));
        assert_true(isfinite(pool[8]) && pool[8] > 6e4f);
        assert_true(pool[9] == -pool[8]);
        free(pool);
    }
}

static void infinities_are_clamped_in_the_cache_and_nan_stays(void **state)
{
    (void)state;
    rig_in_all_orders(nan_all);
}

/* --- pages --- */

static void copy_case(enum dtype t)
{
    const int32_t src[] = {4, 0}, dst[] = {1, 3};
    struct cuda_kv kv = {NULL, t, 3, 2, 24, 16};
    size_t bytes = cuda_kv_page_bytes(&kv);
    uint8_t *pool = malloc(5 * bytes), *after = malloc(5 * bytes);
    for (size_t i = 0; i < 5 * bytes; i++)
        pool[i] = (uint8_t)(i * 31 + i / bytes);
    kv.pool = rig_upload(pool, 5 * bytes);
    cuda_ok(cuda_page_copy(NULL, &kv, rig_upload(src, sizeof src), rig_upload(dst, sizeof dst), 2));
    rig_download(after, kv.pool, 5 * bytes);
    memcpy(pool + bytes, pool + 4 * bytes, bytes);
    memcpy(pool + 3 * bytes, pool, bytes);
    assert_memory_equal(after, pool, 5 * bytes);
    free(pool);
    free(after);
}

static void copy_all(void)
{
    copy_case(DTYPE_F16);
    copy_case(DTYPE_INT8);
}

static void pages_are_copied_whole_and_no_others(void **state)
{
    (void)state;
    rig_in_all_orders(copy_all);
}

/* --- values --- */

static void act_all(void)
{
    enum { N = 700 };
    uint64_t seed = 21;
    float *gate = rig_randoms(N, 12, &seed), *up = rig_randoms(N, 9, &seed);
    double want[N];
    for (int fn = ACT_SILU; fn <= ACT_SWIGLU_CLAMPED; fn++)
        for (int t = 0; t < N_FLOAT_TYPES; t++) {
            bool gated = fn == ACT_SWIGLU_CLAMPED || t != 1;
            void *out = rig_device(value_bytes(float_types[t]) * N);
            for (int i = 0; i < N; i++)
                want[i] = ref_act((enum act_fn)fn, gate[i], gated ? up[i] : 1);
            cuda_ok(cuda_act(NULL, (enum act_fn)fn, out, float_types[t],
                             rig_upload(gate, sizeof *gate * N),
                             gated ? rig_upload(up, sizeof *up * N) : NULL, N));
            check("act", float_types[t], out, want, N, 2e-5);
        }
}

static void activations_agree_with_the_reference(void **state)
{
    (void)state;
    rig_in_all_orders(act_all);
}

/* Rows for a reader are those that cuda_act and a conversion make. */
static void act_rows_case(enum dtype reader, int width, int planes, bool gated)
{
    uint64_t seed = 24;
    const int n = FORM_ROWS * width;
    float *gate = rig_upload(rig_randoms(n, 5, &seed), 4 * (size_t)n);
    float *up = gated ? rig_upload(rig_randoms(n, 5, &seed), 4 * (size_t)n) : NULL;
    float *plain = rig_device(4 * (size_t)n);
    struct cuda_rows got = rig_rows(reader, width, FORM_ROWS, planes);
    struct cuda_rows want = rig_rows(reader, width, FORM_ROWS, planes);
    cuda_ok(cuda_act(NULL, ACT_GELU, plain, DTYPE_F32, gate, up, n));
    cuda_ok(cuda_norm_rows(NULL, &want, plain, width, NULL, NULL, FORM_ROWS));
    cuda_ok(cuda_act_rows(NULL, ACT_GELU, &got, gate, up, width, FORM_ROWS));
    if (got.values) {
        same_memory("activations", got.values, want.values,
                    (size_t)FORM_ROWS * (size_t)((width + 31) / 32 * 32) * value_bytes(reader));
        return;
    }
    size_t blocks = (size_t)(width / 32) * (size_t)got.q.stride;
    same_memory("activations in blocks", got.q.q, want.q.q, blocks * 32);
    same_memory("scales of activations in blocks", got.q.s, want.q.s, blocks * sizeof *got.q.s);
}

static void act_rows_all(void)
{
    act_rows_case(DTYPE_Q8_0, 32, 1, true);
    act_rows_case(DTYPE_Q8_0, 224, 2, true);
    act_rows_case(DTYPE_Q8_0, 96, 1, false);
    for (int t = 0; t < N_FLOAT_TYPES; t++)
        act_rows_case(float_types[t], 70, 1, t != 1);
}

static void activations_are_written_as_their_reader_wants_them(void **state)
{
    (void)state;
    rig_in_all_orders(act_rows_all);
}

static void cap_all(void)
{
    enum { N = 300 };
    uint64_t seed = 22;
    float *x = rig_randoms(N, 90, &seed), *dx = rig_upload(x, sizeof *x * N);
    double want[N];
    for (int i = 0; i < N; i++)
        want[i] = 30 * tanh(x[i] / 30.0);
    cuda_ok(cuda_soft_cap(NULL, dx, N, 30));
    check("soft cap", DTYPE_F32, dx, want, N, 1e-5);
}

static void logits_are_capped_softly(void **state)
{
    (void)state;
    rig_in_all_orders(cap_all);
}

static void gated_all(void)
{
    enum { ROWS = 3, W = 270, IN = 95 };
    uint64_t seed = 23;
    float *x = rig_randoms(ROWS * W, 1, &seed), *y = rig_randoms(ROWS * W, 1, &seed);
    float *in = rig_randoms(ROWS * IN, 1, &seed), *w = rig_randoms(IN, 1, &seed);
    double want[ROWS * W];
    for (int r = 0; r < ROWS; r++) {
        double dot = 0;
        for (int i = 0; i < IN; i++)
            dot += (double)in[r * IN + i] * w[i];
        for (int i = 0; i < W; i++)
            want[r * W + i] = x[r * W + i] + y[r * W + i] / (1 + exp(-dot));
    }
    float *dx = rig_upload(x, ROWS * W * 4);
    cuda_ok(cuda_gated_add(NULL, dx, rig_upload(y, ROWS * W * 4), W, rig_upload(in, ROWS * IN * 4),
                           rig_upload(w, IN * 4), IN, ROWS));
    check("gated addition", DTYPE_F32, dx, want, ROWS * W, 1e-5);
}

static void the_shared_experts_gate_weighs_what_is_added(void **state)
{
    (void)state;
    rig_in_all_orders(gated_all);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_copies_the_rows_of_the_ids),
        cmocka_unit_test(embedding_gives_the_files_values_of_every_quantised_type),
        cmocka_unit_test(norms_agree_with_the_reference),
        cmocka_unit_test(norms_are_added_to_the_residual_stream),
        cmocka_unit_test(without_a_norm_the_row_is_rounded_to_the_readers_type),
        cmocka_unit_test(rows_of_f16_are_never_infinite),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(norms_write_the_blocks_that_quantising_their_rows_makes),
        cmocka_unit_test(norms_for_float_weights_have_zeros_up_to_32),
        cmocka_unit_test(q_and_k_are_normed_and_turned_and_written_to_their_pages),
        cmocka_unit_test(a_cache_of_8_bits_has_codes_and_a_scale_of_each_token_and_head),
        cmocka_unit_test(infinities_are_clamped_in_the_cache_and_nan_stays),
        cmocka_unit_test(pages_are_copied_whole_and_no_others),
        cmocka_unit_test(activations_agree_with_the_reference),
        cmocka_unit_test(activations_are_written_as_their_reader_wants_them),
        cmocka_unit_test(logits_are_capped_softly),
        cmocka_unit_test(the_shared_experts_gate_weighs_what_is_added),
    };
    if (argc > 1) /* a part of the names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
