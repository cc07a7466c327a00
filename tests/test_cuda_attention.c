/* Attention of the CUDA backend against the reference in double precision, in every order of
 * threads, and that a row's bits depend on nothing but the row. */
#include "cuda_rig.h"
#include "reference.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static const enum dtype kv_types[] = {DTYPE_F16, DTYPE_BF16, DTYPE_F32, DTYPE_INT8, DTYPE_F8_E4M3};
enum { N_TYPES = sizeof kv_types / sizeof *kv_types };
enum { LAYERS = 2, LAYER = 1, MAX_SEQS = 21, MAX_ROWS = 530, PARTIALS = 256 << 10 };

struct shape {
    enum dtype kv;
    int n_heads, n_kv_heads, head_dim, block_size;
    int window;
    float soft_cap;
    bool sinks, wgmma;
};

/* A sequence of `n` tokens, its queries at all of them, on pages of its own */
struct text {
    int n, max_pages;
    int copies; /* of the pages: page p of copy i is i * (max_pages + 1) + p */
    struct shape s;
    struct attention_config c;
    float *q, *k, *v;           /* [n][heads][dim]; k and v as the pool has them */
    float *k_scales, *v_scales; /* [n][heads], of values that have them */
    float *sinks;
    int32_t *pages; /* [max_pages] */
    struct cuda_kv kv;
    struct cuda_attention a;
    float *device_q, *device_sinks;
};

/* --- the pool --- */

static bool has_codes(enum dtype t)
{
    return t == DTYPE_INT8 || t == DTYPE_F8_E4M3;
}

/* Bytes of K or V of a head in a block, as kernels.h says the pool lies */
static size_t head_bytes(const struct text *t)
{
    const size_t dim = (size_t)t->s.head_dim;
    return has_codes(t->s.kv) ? 16 * (dim + 2) : 16 * dim * (t->s.kv == DTYPE_F32 ? 4 : 2);
}

/* Of K (which 0) or V of a head, the block that token i lies in */
static size_t block_at(const struct text *t, int i, int which, int head)
{
    int page = t->pages[i / t->s.block_size], in = i % t->s.block_size;
    size_t block = ((size_t)page * LAYERS + LAYER) * (t->s.block_size / 16) + in / 16;
    return ((block * 2 + which) * t->s.n_kv_heads + head) * head_bytes(t);
}

static void put_floats(enum dtype t, void *at, const float *x, int n)
{
    for (int d = 0; d < n; d++)
        if (t == DTYPE_F32)
            ((float *)at)[d] = x[d];
        else
            ((uint16_t *)at)[d] = t == DTYPE_F16 ? f32_to_f16(x[d]) : f32_to_bf16(x[d]);
}

static uint8_t code_of(enum dtype t, double x)
{
    if (t == DTYPE_INT8)
        return (uint8_t)(x + 128);
    for (int c = 0; c < 256; c++)
        if ((double)f16_to_f32(f8_to_f16(DTYPE_F8_E4M3, (uint8_t)c)) == x)
            return (uint8_t)c;
    fail_msg("no E4M3 is %g", x);
    return 0;
}

/* x as codes of a scale, which is NaN if one of them is */
static void put_codes(enum dtype t, uint8_t *block, int in_block, const float *x, int n,
                      float scale)
{
    for (int d = 0; d < n; d++)
        scale = isnan(x[d]) ? NAN : scale;
    for (int d = 0; d < n; d++) /* of each 16: 0, 8, 1, 9 … */
        block[in_block * n + d / 16 * 16 + d % 8 * 2 + d % 16 / 8] =
            code_of(t, isnan(scale) || scale == 0 ? 0 : (double)x[d] / (double)scale);
    ((uint16_t *)(block + 16 * n))[in_block] = f32_to_bf16(scale);
}

/* The pool on the device, t->copies times: NaN wherever nothing was written */
static void upload_pool(struct text *t, int n_pages)
{
    size_t bytes = cuda_kv_page_bytes(&t->kv) * n_pages;
    uint8_t *pool = malloc(bytes * (size_t)t->copies);
    int dim = t->s.head_dim;
    memset(pool, 0xff, bytes);
    for (int i = 0; i < t->n; i++)
        for (int x = 0; x < 2 * t->s.n_kv_heads; x++) {
            size_t row = (size_t)i * t->s.n_kv_heads + x / 2;
            const float *from = (x % 2 ? t->v : t->k) + row * dim;
            uint8_t *block = pool + block_at(t, i, x % 2, x / 2);
            if (has_codes(t->s.kv))
                put_codes(t->s.kv, block, i % 16, from, dim,
                          (x % 2 ? t->v_scales : t->k_scales)[row]);
            else
                put_floats(t->s.kv, block + i % 16 * (head_bytes(t) / 16), from, dim);
        }
    for (int i = 1; i < t->copies; i++)
        memcpy(pool + (size_t)i * bytes, pool, bytes);
    t->kv.pool = rig_upload(pool, bytes * (size_t)t->copies);
    free(pool);
}

/* n rows of `dim`, rounded to a type; their scales if it has some */
static float *rounded(enum dtype type, int64_t n, int dim, double size, uint64_t *seed,
                      float *scales)
{
    float *x = rig_randoms(n * dim, size, seed);
    double row[256];
    for (int64_t i = 0; i < n; i++) {
        for (int d = 0; d < dim; d++)
            row[d] = has_codes(type) ? x[i * dim + d] : ref_round(type, x[i * dim + d]);
        if (has_codes(type))
            scales[i] = (float)ref_round_codes(type, row, dim);
        for (int d = 0; d < dim; d++)
            x[i * dim + d] = (float)row[d];
    }
    return x;
}

static struct text text_copies(struct shape s, int n, int copies)
{
    uint64_t seed = (uint64_t)n * 7 + s.head_dim;
    int heads = s.n_heads * s.head_dim;
    struct text t = {
        .n = n, .s = s, .copies = copies, .max_pages = (n + s.block_size - 1) / s.block_size};
    t.c = (struct attention_config){s.n_heads, s.n_kv_heads, s.head_dim, 1 / sqrtf(s.head_dim),
                                    s.window,  s.soft_cap};
    const int64_t rows = (int64_t)n * s.n_kv_heads;
    t.q = rounded(has_codes(s.kv) ? DTYPE_F16 : s.kv, (int64_t)n * s.n_heads, s.head_dim, 3, &seed,
                  NULL);
    t.k_scales = rig_randoms(2 * rows, 1, &(uint64_t){1});
    t.v_scales = t.k_scales + rows;
    t.k = rounded(s.kv, rows, s.head_dim, 2, &seed, t.k_scales);
    t.v = rounded(s.kv, rows, s.head_dim, 2, &seed, t.v_scales);
    t.sinks = rig_randoms(s.n_heads, 3, &seed);
    t.pages = (int32_t *)rig_randoms(t.max_pages, 1, &seed);
    for (int i = 0; i < t.max_pages; i++) /* descending, one page left out */
        t.pages[i] = t.max_pages - i - (i > t.max_pages / 2);
    t.kv = (struct cuda_kv){NULL, s.kv, LAYERS, s.n_kv_heads, s.head_dim, s.block_size};
    upload_pool(&t, t.max_pages + 1);
    t.device_q = rig_upload(t.q, sizeof *t.q * n * heads);
    t.device_sinks = s.sinks ? rig_upload(t.sinks, sizeof *t.sinks * s.n_heads) : NULL;
    cuda_ok(cuda_attention_open(&t.a, s.n_heads, &t.kv));
    if (s.wgmma)
        cuda_ok(cuda_attention_use_wgmma(&t.a));
    assert_true(t.a.wgmma == s.wgmma);
    return t;
}

static struct text text_new(struct shape s, int n)
{
    return text_copies(s, n, 1);
}

/* --- a step --- */

/* What a test chooses of a step: rows [start, start + n) of the text for each sequence; SHARE: on
 * pages of the first copy up to token `shared`, then on its own copy's; OWN_COPIES: on that only */
struct part {
    int start, n, shared;
};
enum { ANY_GRID = 1, NO_PARTIALS = 2, SHARE = 4, OWN_COPIES = 8 };

static void put_table(const struct text *t, int seq, const struct part *part, int how,
                      int32_t *table)
{
    const int shared = how & OWN_COPIES ? 0 : part->shared / t->s.block_size;
    for (int i = 0; i < t->max_pages; i++) {
        table[i] = t->pages[i];
        if (how & (SHARE | OWN_COPIES) && i >= shared)
            table[i] += seq * (t->max_pages + 1);
    }
}

static int rows_of(const struct part *parts, int n)
{
    int rows = 0;
    for (int i = 0; i < n; i++)
        rows += parts[i].n;
    return rows;
}

static int n_segments_read; /* of a KV head, by the tiles of the last step_of */

/* The device's copy of the plan, and the grid */
static struct cuda_attention_step step_of(const struct text *t, const struct part *parts, int n,
                                          int how)
{
    int rows = rows_of(parts, n), at = 0;
    struct step_seq seqs[MAX_SEQS];
    int32_t *tables = malloc(sizeof *tables * n * t->max_pages);
    size_t bytes = cuda_attention_plan_bytes(&t->a, MAX_ROWS, MAX_SEQS);
    struct cuda_attention_plan *plan = malloc(bytes);
    for (int i = 0; i < n; i++) {
        seqs[i] = (struct step_seq){at, parts[i].n, parts[i].start};
        put_table(t, i, parts + i, how, tables + i * t->max_pages);
        at += parts[i].n;
    }
    const struct cuda_attention_pages pages = {tables, t->max_pages, t->s.block_size};
    cuda_attention_plan_make(&t->a, plan, MAX_ROWS, MAX_SEQS, seqs, n,
                             how & (SHARE | OWN_COPIES) ? &pages : NULL, t->s.window,
                             how & NO_PARTIALS ? 0 : PARTIALS);
    n_segments_read = 0;
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++)
        for (int i = 0; i < plan->n_tiles[k]; i++)
            n_segments_read +=
                ((struct cuda_attention_tile *)((char *)plan + plan->tiles_at[k]))[i].n_segments;
    struct cuda_attention_step step = {.max_pages = t->max_pages};
    step.grid = how & ANY_GRID ? cuda_attention_grid_any(&t->a, rows + 3)
                               : cuda_attention_grid_of(&t->a, plan);
    step.plan = rig_upload(plan, bytes);
    step.page_tables = rig_upload(tables, sizeof *tables * n * t->max_pages);
    size_t used = (size_t)plan->n_partials * (t->s.head_dim + 4) * sizeof(float);
    step.partials = rig_device(how & ANY_GRID ? PARTIALS : used + 1);
    free(plan);
    free(tables);
    return step;
}

/* The rows' results, freed by the caller */
static float *attend(const struct text *t, const struct part *parts, int n, int how)
{
    size_t width = (size_t)t->s.n_heads * t->s.head_dim, rows = rows_of(parts, n), at = 0;
    struct cuda_attention_step step = step_of(t, parts, n, how);
    float *q = rig_device(sizeof *q * width * rows), *out = rig_device(sizeof *q * width * rows);
    float *got = malloc(sizeof *got * width * rows);
    for (int i = 0; i < n; i++) {
        cuda_ok(cudaMemcpy(q + at, t->q + parts[i].start * width, sizeof *q * width * parts[i].n,
                           cudaMemcpyHostToDevice));
        at += parts[i].n * width;
    }
    cuda_ok(
        cuda_attend(NULL, &t->a, &t->kv, LAYER, &t->c, t->device_sinks, out, DTYPE_F32, q, &step));
    rig_download(got, out, sizeof *got * width * rows);
    return got;
}

static void reference_row(const struct text *t, int position, double *want)
{
    const struct shape *s = &t->s;
    size_t n = (size_t)(position + 1) * s->head_dim;
    double *k = malloc(n * sizeof *k), *v = malloc(n * sizeof *v), q[256];
    for (int head = 0; head < s->n_heads; head++) {
        double sink = t->sinks[head];
        for (size_t i = 0; i < n; i++) {
            size_t token = i / s->head_dim, kv_head = head / (s->n_heads / s->n_kv_heads);
            size_t from = (token * s->n_kv_heads + kv_head) * s->head_dim + i % s->head_dim;
            k[i] = t->k[from];
            v[i] = t->v[from];
        }
        for (int d = 0; d < s->head_dim; d++)
            q[d] = t->q[((size_t)position * s->n_heads + head) * s->head_dim + d];
        ref_attend(&t->c, position, s->sinks ? &sink : NULL, q, k, v, want + head * s->head_dim);
    }
    free(k);
    free(v);
}

static void check_row(const char *what, const struct text *t, int position, const float *got)
{
    int width = t->s.n_heads * t->s.head_dim;
    double *want = malloc(sizeof *want * width);
    double near = t->s.kv == DTYPE_F32 ? 1e-5 : t->s.kv == DTYPE_BF16 ? 1.2e-2 : 1.5e-3;
    reference_row(t, position, want);
    rig_near(what, got, want, width, near, near / 10);
    free(want);
}

/* --- against the reference --- */

static void run_decode(struct shape s, int n)
{
    struct text t = text_new(s, n);
    const struct part last = {n - 1, 1};
    float *got = attend(&t, &last, 1, 0);
    check_row("decode", &t, n - 1, got);
    free(got);
    rig_free_all();
}

static void decode_all(void)
{
    run_decode((struct shape){DTYPE_F16, 4, 2, 64, 16, 0, 0, false}, 300);
    run_decode((struct shape){DTYPE_BF16, 5, 1, 96, 32, 0, 0, true}, 270);
    run_decode((struct shape){DTYPE_F32, 4, 2, 64, 16, 0, 0, true}, 300);
    run_decode((struct shape){DTYPE_F16, 2, 2, 16, 48, 100, 20, false}, 290);
    run_decode((struct shape){DTYPE_F32, 3, 1, 80, 16, 70, 15, false}, 290);
    run_decode((struct shape){DTYPE_BF16, 2, 1, 256, 16, 0, 0, false}, 1);
    run_decode((struct shape){DTYPE_F16, 40, 2, 64, 16, 0, 0, false}, 34);
    run_decode((struct shape){DTYPE_INT8, 4, 2, 64, 16, 0, 0, false}, 300);
    run_decode((struct shape){DTYPE_F8_E4M3, 5, 1, 96, 32, 0, 0, true}, 270);
    run_decode((struct shape){DTYPE_F8_E4M3, 2, 2, 16, 48, 100, 20, false}, 290);
    run_decode((struct shape){DTYPE_INT8, 2, 1, 256, 16, 0, 0, false}, 1);
}

static void a_decoded_row_agrees_with_the_reference(void **state)
{
    (void)state;
    rig_in_all_orders(decode_all);
}

static void run_prefill(struct shape s, int n, int start)
{
    struct text t = text_new(s, n);
    const struct part part = {start, n - start};
    float *got = attend(&t, &part, 1, 0);
    for (int i = start; i < n; i += i + 3 < n ? 3 : 1)
        check_row("prefill", &t, i, got + (size_t)(i - start) * s.n_heads * s.head_dim);
    free(got);
    rig_free_all();
}

static void prefill_all(void)
{
    run_prefill((struct shape){DTYPE_F16, 2, 1, 64, 16, 0, 0, false}, 101, 0);
    run_prefill((struct shape){DTYPE_BF16, 3, 1, 80, 16, 0, 30, true}, 290, 260);
    run_prefill((struct shape){DTYPE_F32, 3, 1, 64, 32, 20, 0, true}, 280, 250);
    run_prefill((struct shape){DTYPE_F16, 2, 1, 128, 16, 33, 0, true}, 283, 240);
    run_prefill((struct shape){DTYPE_BF16, 1, 1, 192, 16, 0, 0, false}, 35, 1);
    run_prefill((struct shape){DTYPE_INT8, 3, 1, 80, 16, 0, 30, true}, 290, 260);
    run_prefill((struct shape){DTYPE_F8_E4M3, 2, 1, 128, 16, 33, 0, true}, 283, 240);
    run_prefill((struct shape){DTYPE_INT8, 2, 1, 64, 48, 0, 0, false}, 101, 0);
    run_prefill((struct shape){DTYPE_F8_E4M3, 1, 1, 192, 16, 0, 0, false}, 35, 1);
}

static void a_prompts_rows_agree_with_the_reference(void **state)
{
    (void)state;
    rig_in_all_orders(prefill_all);
}

static void wants_wgmma(void)
{
    struct cudaDeviceProp p;
    cuda_ok(cudaGetDeviceProperties(&p, 0));
    if (p.major != 9)
        skip();
}

static void wgmma_all(void)
{
    run_prefill((struct shape){DTYPE_F16, 2, 1, 64, 16, 0, 0, false, true}, 150, 0);
    run_prefill((struct shape){DTYPE_BF16, 1, 1, 128, 32, 0, 30, true, true}, 290, 270);
    run_prefill((struct shape){DTYPE_F16, 3, 1, 80, 16, 200, 0, true, true}, 420, 360);
    run_prefill((struct shape){DTYPE_BF16, 4, 2, 48, 48, 33, 0, false, true}, 77, 20);
}

static void a_prompts_rows_by_wgmma_agree_with_the_reference(void **state)
{
    (void)state;
    wants_wgmma();
    rig_in_all_orders(wgmma_all);
}

/* --- a row's bits --- */

static const float *row_at(const struct text *t, const float *rows, int row)
{
    return rows + (size_t)row * t->s.n_heads * t->s.head_dim;
}

static void same_bits(const char *what, const struct text *t, const float *got, const float *want,
                      int n)
{
    int width = t->s.n_heads * t->s.head_dim;
    for (int i = 0; i < n * width; i++)
        if (memcmp(got + i, want + i, sizeof *got))
            fail_msg("%s: dim %d of row %d is %a, not %a", what, i % width, i / width, got[i],
                     want[i]);
}

/* All rows of the text in one step, tiles not split: what others are compared with */
static float *all_rows(const struct text *t)
{
    const struct part all = {0, t->n};
    return attend(t, &all, 1, NO_PARTIALS);
}

static void run_chunks(struct shape s, int n)
{
    struct text t = text_new(s, n);
    float *want = all_rows(&t);
    const struct part chunks[] = {{n - 1, 1}, {n - 3, 2}, {n - 40, 37}, {0, 19}};
    float *got = attend(&t, chunks, 4, 0); /* decode and prefill together */
    same_bits("decoded", &t, got, row_at(&t, want, n - 1), 1);
    same_bits("two", &t, row_at(&t, got, 1), row_at(&t, want, n - 3), 2);
    same_bits("chunk", &t, row_at(&t, got, 3), row_at(&t, want, n - 40), 37);
    same_bits("prompt", &t, row_at(&t, got, 40), want, 19);
    free(got);
    got = attend(&t, chunks + 1, 2, NO_PARTIALS);
    same_bits("not split", &t, got, row_at(&t, want, n - 3), 2);
    same_bits("not split", &t, row_at(&t, got, 2), row_at(&t, want, n - 40), 37);
    free(got);
    got = attend(&t, chunks, 1, ANY_GRID);
    same_bits("in a fixed grid", &t, got, row_at(&t, want, n - 1), 1);
    free(got);
    free(want);
    rig_free_all();
}

static void a_row_has_the_same_bits_in_any_chunk_and_batch(void **state)
{
    (void)state;
    run_chunks((struct shape){DTYPE_F16, 3, 1, 64, 16, 0, 0, false}, 300);
    run_chunks((struct shape){DTYPE_BF16, 4, 2, 32, 16, 0, 25, true}, 520);
    run_chunks((struct shape){DTYPE_F32, 2, 1, 64, 16, 0, 0, true}, 300);
    run_chunks((struct shape){DTYPE_F16, 2, 2, 64, 16, 50, 0, true}, 300);
    run_chunks((struct shape){DTYPE_INT8, 3, 1, 64, 16, 0, 0, true}, 520);
    run_chunks((struct shape){DTYPE_F8_E4M3, 2, 2, 64, 16, 50, 20, false}, 300);
}

/* Rows of prompts, whichever others are there and however segments are shared out */
static void run_prompt_chunks(struct shape s, int n)
{
    struct text t = text_new(s, n);
    float *want = all_rows(&t);
    const struct part chunks[] = {{n - 1, 1}, {n - 40, 37}, {200, 80}, {0, 19}};
    for (int how = 0; how <= NO_PARTIALS; how += NO_PARTIALS) {
        float *got = attend(&t, chunks, 4, how);
        same_bits("chunk", &t, row_at(&t, got, 1), row_at(&t, want, n - 40), 37);
        same_bits("middle", &t, row_at(&t, got, 38), row_at(&t, want, 200), 80);
        same_bits("prompt", &t, row_at(&t, got, 118), want, 19);
        free(got);
    }
    free(want);
    rig_free_all();
}

/* --- sequences that share pages --- */

/* The same contents on pages of their own give the same bits, and so do other steps; how many
 * segments are read, of a KV head */
static void run_shared(struct shape s, int n, const struct part *parts, int n_parts, int n_read)
{
    struct text t = text_copies(s, n, n_parts);
    int rows = rows_of(parts, n_parts);
    float *want = attend(&t, parts, n_parts, OWN_COPIES);
    float *got = attend(&t, parts, n_parts, SHARE);
    if (n_segments_read != n_read)
        fail_msg("%d segments are read, not %d", n_segments_read, n_read);
    same_bits("shared", &t, got, want, rows);
    free(got);
    got = attend(&t, parts, n_parts, SHARE | ANY_GRID);
    same_bits("shared in a fixed grid", &t, got, want, rows);
    free(got);
    got = attend(&t, parts, n_parts, SHARE | NO_PARTIALS);
    same_bits("no room to share", &t, got, want, rows);
    free(got);
    check_row("shared", &t, parts[0].start, want);
    free(want);
    rig_free_all();
}

static void a_prompts_row_by_wgmma_has_the_same_bits_in_any_prompt(void **state)
{
    (void)state;
    wants_wgmma();
    run_prompt_chunks((struct shape){DTYPE_F16, 2, 1, 64, 16, 0, 0, false, true}, 520);
    run_prompt_chunks((struct shape){DTYPE_BF16, 3, 1, 128, 16, 150, 0, true, true}, 400);
}

/* Four share a segment, the first and the fourth another one. Read are these two, the rest of each,
 * and all of the last two, which share nothing. */
static const struct part five[] = {{600, 1, 512}, {523, 1, 400}, {590, 1, 256},
                                   {530, 2, 600}, {20, 1, 600},  {577, 1, 64}};

static void shared_all(void)
{
    run_shared((struct shape){DTYPE_F16, 2, 1, 32, 16, 0, 0, false}, 601, five, 4,
               1 + 1 + 1 + 2 + 2 + 1);
}

static void crowd_of(enum dtype kv, int n_heads, int block_size, int window, float soft_cap)
{
    struct part crowd[MAX_SEQS];
    for (int i = 0; i < MAX_SEQS; i++)
        crowd[i] = (struct part){300 + 7 * (i * 5 % MAX_SEQS), 1, 300};
    struct shape s = {kv, n_heads, 1, 16, block_size, window, soft_cap, true};
    const int own = MAX_SEQS, rows = MAX_SEQS * n_heads; /* one segment for each, or tile of 64 */
    run_shared(s, 448, crowd, MAX_SEQS, own + (rows + 63) / 64);
}

static void sequences_that_share_pages_have_the_same_bits_as_others(void **state)
{
    (void)state;
    rig_in_all_orders(shared_all);
    run_shared((struct shape){DTYPE_F16, 3, 1, 64, 16, 0, 0, true}, 601, five, 6,
               1 + 1 + 1 + 2 + 2 + 1 + 1 + 3);
    run_shared((struct shape){DTYPE_INT8, 4, 2, 32, 64, 0, 20, false}, 601, five, 6,
               1 + 1 + 1 + 2 + 2 + 1 + 1 + 3);
    run_shared((struct shape){DTYPE_F32, 2, 2, 32, 256, 0, 0, true}, 601, five, 6,
               1 + 1 + 1 + 2 + 2 + 1 + 1 + 3);
    /* of the first segment some see nothing */
    run_shared((struct shape){DTYPE_BF16, 2, 1, 32, 16, 330, 0, false}, 601, five, 6,
               1 + 1 + 1 + 2 + 2 + 1 + 1 + 3);
    /* nobody sees the first segment */
    run_shared((struct shape){DTYPE_F32, 2, 1, 32, 16, 100, 0, false}, 601, five, 4,
               1 + 1 + 2 + 2 + 1);
    crowd_of(DTYPE_F16, 4, 16, 0, 0);
    crowd_of(DTYPE_F8_E4M3, 5, 48, 0, 0);
    crowd_of(DTYPE_F32, 4, 16, 120, 15);
}

static void captured(struct text *t, const struct part *parts, int n, cudaGraphExec_t *exec,
                     struct cuda_attention_step *step, float *out)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *step = step_of(t, parts, n, ANY_GRID);
    step->grid.blocks[CUDA_WIDE] = 0;
    cuda_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    cuda_ok(
        cuda_attend(stream, &t->a, &t->kv, LAYER, &t->c, NULL, out, DTYPE_F32, t->device_q, step));
    cuda_ok(cudaStreamEndCapture(stream, &graph));
    cuda_ok(cudaGraphInstantiate(exec, graph, 0));
    cuda_ok(cudaGraphDestroy(graph));
    cuda_ok(cudaStreamDestroy(stream));
}

/* A graph captured for two sequences runs a later step of one with more segments. */
static void graph_all(void)
{
    struct text t = text_new((struct shape){DTYPE_F16, 2, 1, 64, 16, 0, 0, false}, 290);
    const struct part then[] = {{5, 1}, {7, 1}}, now[] = {{280, 1}};
    int width = 128;
    cudaGraphExec_t exec;
    struct cuda_attention_step step, next = step_of(&t, now, 1, 0);
    float *out = rig_device(sizeof *out * 5 * width), got[128];
    captured(&t, then, 2, &exec, &step, out);
    size_t bytes = cuda_attention_plan_bytes(&t.a, MAX_ROWS, MAX_SEQS);
    cuda_ok(cudaMemcpy((void *)step.plan, next.plan, bytes, cudaMemcpyDeviceToDevice));
    cuda_ok(cudaMemcpy((void *)step.page_tables, next.page_tables, 4 * t.max_pages,
                       cudaMemcpyDeviceToDevice));
    cuda_ok(cudaMemcpy(t.device_q, t.q + 280 * width, sizeof got, cudaMemcpyHostToDevice));
    cuda_ok(cudaGraphLaunch(exec, NULL));
    rig_download(got, out, sizeof got);
    check_row("graph", &t, 280, got);
    cuda_ok(cudaGraphExecDestroy(exec));
}

static void a_captured_step_reads_its_plan_when_it_runs(void **state)
{
    (void)state;
    rig_in_all_orders(graph_all);
}

/* --- NaN --- */

static void set_nan(struct text *t, int token, int head, int d, bool of_v)
{
    float *x = of_v ? t->v : t->k;
    x[((size_t)token * t->s.n_kv_heads + head) * t->s.head_dim + d] = NAN;
    upload_pool(t, t->max_pages + 1);
}

/* Rows that see a NaN are NaN (of V: in its dim, but where tokens have scales), of the heads that
 * read it; others keep their bits. */
static void run_nan(struct shape s, int n, int token, bool of_v)
{
    enum { DIM = 5, HEAD = 1 };
    struct text t = text_new(s, n);
    int group = s.n_heads / s.n_kv_heads, window = s.window ? s.window : INT_MAX;
    float *clean = all_rows(&t);
    set_nan(&t, token, HEAD, DIM, of_v);
    float *got = all_rows(&t);
    for (int i = 0; i < n * s.n_heads * s.head_dim; i++) {
        int d = i % s.head_dim, head = i / s.head_dim % s.n_heads, row = i / s.head_dim / s.n_heads;
        bool sees = row >= token && row - token < window && head / group == HEAD;
        if (sees && (!of_v || d == DIM || has_codes(s.kv)))
            assert_true(isnan(got[i]));
        else
            assert_memory_equal(got + i, clean + i, sizeof *got);
    }
    free(clean);
    free(got);
    rig_free_all();
}

static void nan_all(void)
{
    for (int i = 0; i < N_TYPES; i++)
        for (int of_v = 0; of_v < 2; of_v++) {
            run_nan((struct shape){kv_types[i], 4, 2, 32, 16, 0, 0, false}, 44, 13, of_v);
            run_nan((struct shape){kv_types[i], 2, 2, 16, 16, 21, 0, true}, 70, 30, of_v);
        }
}

static void a_nan_reaches_those_who_see_it_and_no_others(void **state)
{
    (void)state;
    nan_all();
}

static void a_nan_is_seen_by_wgmma_as_by_mma(void **state)
{
    (void)state;
    wants_wgmma();
    for (int of_v = 0; of_v < 2; of_v++) {
        run_nan((struct shape){DTYPE_F16, 4, 2, 64, 16, 0, 0, false, true}, 150, 13, of_v);
        run_nan((struct shape){DTYPE_BF16, 2, 2, 16, 16, 21, 0, true, true}, 140, 90, of_v);
    }
}

/* --- sizes of values with scales --- */

/* V of token i times 2^power + mixed, the latter by tokens */
static void resize_values(struct text *t, int power, bool mixed)
{
    for (int i = 0; i < t->n * t->s.n_kv_heads; i++) {
        int by = power + (mixed ? i / t->s.n_kv_heads * 37 % 61 - 30 : 0);
        t->v_scales[i] = ldexpf(t->v_scales[i], by);
        for (int d = 0; d < t->s.head_dim; d++)
            t->v[i * t->s.head_dim + d] = ldexpf(t->v[i * t->s.head_dim + d], by);
    }
    upload_pool(t, t->max_pages + 1);
}

/* V of 2^power times the size gives results of 2^power times the size, to the bit. */
static void check_scaled(struct text *t, const float *usual, int power)
{
    resize_values(t, power, false);
    float *got = all_rows(t);
    for (int i = 0; i < t->n * t->s.n_heads * t->s.head_dim; i++)
        got[i] = ldexpf(got[i], -power);
    same_bits("V of another size", t, got, usual, t->n);
    free(got);
    resize_values(t, -power, false);
}

/* Tokens whose V differ by powers of two: errors are those of what adds most */
static void check_mixed(struct text *t)
{
    const int n = t->s.n_heads * t->s.head_dim;
    double *want = malloc(sizeof *want * n), *sizes = malloc(sizeof *sizes * n);
    struct text absolute = *t;
    resize_values(t, 0, true);
    absolute.v = malloc(sizeof *t->v * t->n * t->s.n_kv_heads * t->s.head_dim);
    for (int i = 0; i < t->n * t->s.n_kv_heads * t->s.head_dim; i++)
        absolute.v[i] = fabsf(t->v[i]);
    float *got = all_rows(t);
    for (int row = 0; row < t->n; row += row < 8 ? 1 : 7) {
        reference_row(t, row, want);
        reference_row(&absolute, row, sizes);
        for (int i = 0; i < n; i++)
            if (!(fabs(got[row * n + i] - want[i]) <= 1e-3 * sizes[i]))
                fail_msg("dim %d of row %d is %g, not %g (of sizes %g)", i, row,
                         (double)got[row * n + i], want[i], sizes[i]);
    }
    free(absolute.v);
    free(got);
    free(want);
    free(sizes);
}

static void values_with_scales_may_have_any_size(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        if (!has_codes(kv_types[i]))
            continue;
        struct text t = text_new((struct shape){kv_types[i], 2, 1, 32, 16, 0, 0, true}, 270);
        float *usual = all_rows(&t);
        check_scaled(&t, usual, 100);
        check_scaled(&t, usual, -60);
        check_mixed(&t);
        free(usual);
        rig_free_all();
    }
}

static void a_nan_in_a_query_is_its_rows_alone(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        struct text t = text_new((struct shape){kv_types[i], 2, 2, 32, 16, 0, 0, false}, 20);
        float *clean = all_rows(&t);
        t.q[(6 * 2 + 1) * 32 + 3] = NAN;
        float *got = all_rows(&t);
        for (int x = 0; x < 20 * 64; x++)
            if (x / 32 == 13)
                assert_true(isnan(got[x]));
            else
                assert_memory_equal(got + x, clean + x, sizeof *got);
        free(clean);
        free(got);
        rig_free_all();
    }
}

/* --- results' types, and what cannot be --- */

static void results_are_rounded_to_the_readers_type(void **state)
{
    (void)state;
    struct text t = text_new((struct shape){DTYPE_F16, 2, 1, 48, 16, 0, 0, false}, 33);
    const struct part last = {32, 1};
    const enum dtype types[] = {DTYPE_F16, DTYPE_BF16};
    float *want = attend(&t, &last, 1, 0), *q = t.device_q + 32 * 96;
    for (int i = 0; i < 2; i++) {
        uint16_t raw[96];
        float got[96];
        struct cuda_attention_step step = step_of(&t, &last, 1, 0);
        void *out = rig_device(sizeof raw);
        cuda_ok(cuda_attend(NULL, &t.a, &t.kv, LAYER, &t.c, NULL, out, types[i], q, &step));
        rig_download(raw, out, sizeof raw);
        rig_widen(types[i], raw, got, 96);
        for (int x = 0; x < 96; x++)
            assert_true(got[x] == (float)ref_round(types[i], want[x]));
    }
    free(want);
    rig_free_all();
}

static void shapes_that_no_kernel_has_are_refused(void **state)
{
    (void)state;
    struct cuda_attention a;
    struct cuda_kv kv = {NULL, DTYPE_F16, 1, 2, 64, 16};
    assert_int_equal(cuda_attention_open(&a, 4, &kv), cudaSuccess);
    assert_int_equal(cuda_attention_open(&a, 3, &kv), cudaErrorInvalidValue);
    kv.head_dim = 72;
    assert_int_equal(cuda_attention_open(&a, 4, &kv), cudaErrorInvalidValue);
    kv.head_dim = 272;
    assert_int_equal(cuda_attention_open(&a, 4, &kv), cudaErrorInvalidValue);
    kv = (struct cuda_kv){NULL, DTYPE_Q8_0, 1, 2, 64, 16};
    assert_int_equal(cuda_attention_open(&a, 4, &kv), cudaErrorInvalidValue);
}

/* As few warps and tiles on their way as 64 KiB of shared memory leave; two head_dims have one */
static void narrow_memory_all(void)
{
    run_decode((struct shape){DTYPE_F16, 2, 1, 256, 16, 0, 0, false}, 290);
    run_prefill((struct shape){DTYPE_F16, 2, 1, 256, 16, 0, 0, true}, 70, 3);
    run_prefill((struct shape){DTYPE_F32, 1, 1, 128, 16, 0, 0, false}, 70, 30);
    run_prefill((struct shape){DTYPE_F16, 2, 1, 128, 16, 0, 0, false}, 70, 30);
}

static void attention_fits_the_shared_memory_of_capability_7_5(void **state)
{
    (void)state;
    struct cuda_attention a;
    struct cuda_kv kv = {NULL, DTYPE_F16, 1, 2, 256, 16};
    if (!emu_emulated())
        skip();
    emu_device(75);
    rig_in_all_orders(narrow_memory_all);
    assert_int_equal(cuda_attention_open(&a, 2, &kv), cudaSuccess);
    assert_true(a.kinds[CUDA_NARROW].n_stages == 1 && a.kinds[CUDA_WIDE].warps == 1);
    kv.dtype = DTYPE_F32;
    assert_int_equal(cuda_attention_open(&a, 2, &kv), cudaErrorNotSupported);
    kv = (struct cuda_kv){NULL, DTYPE_BF16, 1, 2, 64, 16};
    assert_int_equal(cuda_attention_open(&a, 2, &kv), cudaErrorNotSupported);
    emu_device(90);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decoded_row_agrees_with_the_reference),
        cmocka_unit_test(a_prompts_rows_agree_with_the_reference),
        cmocka_unit_test(a_prompts_rows_by_wgmma_agree_with_the_reference),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_chunk_and_batch),
        cmocka_unit_test(a_prompts_row_by_wgmma_has_the_same_bits_in_any_prompt),
        cmocka_unit_test(sequences_that_share_pages_have_the_same_bits_as_others),
        cmocka_unit_test(a_captured_step_reads_its_plan_when_it_runs),
        cmocka_unit_test(a_nan_reaches_those_who_see_it_and_no_others),
        cmocka_unit_test(a_nan_is_seen_by_wgmma_as_by_mma),
        cmocka_unit_test(values_with_scales_may_have_any_size),
        cmocka_unit_test(a_nan_in_a_query_is_its_rows_alone),
        cmocka_unit_test(results_are_rounded_to_the_readers_type),
        cmocka_unit_test(shapes_that_no_kernel_has_are_refused),
        cmocka_unit_test(attention_fits_the_shared_memory_of_capability_7_5),
    };
    if (argc > 1) /* a part of the names */
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
