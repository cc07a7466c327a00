/* Attention of a tile of queries over INT8: two small matrix products of bytes, as they lie in the
 * pool, and digits. */
#include "attention_int8.h"
#include "attention_tile.h"

#if LANES == 16
#define ROWS 6
#elif LANES == 8
#define ROWS 4
#else
#define ROWS 2
#endif
#define LDS (SEGMENT + 16) /* of scores: rows fall into different sets of L1 */
#define SUB_PAGES (SEGMENT / PANEL)

/* A tile and a segment */
struct work {
    const struct kv_pool *pool;
    uint8_t *k[SUB_PAGES], *v[SUB_PAGES];
    float k_scale[SEGMENT], v_scale[SEGMENT];
    struct digit_row q[TILE_ROWS], p[TILE_ROWS];
    const uint8_t *digits; /* of queries: [rows][ldd] */
    size_t ldd;
    float *s; /* [rows][LDS]: scores, then the digits of weights */
};

/* acc[r] += the sums of n quads, `step` bytes from one to the next */
INL void add_quads(vi (*acc)[GROUPS], const uint8_t *x, size_t step, int n, const uint8_t *digits,
                   size_t ldd, const int rows)
{
    for (int j = 0; j < n; j++) {
        struct quads b[GROUPS];
        for (int g = 0; g < GROUPS; g++)
            b[g] = quads_load(x + j * step + g * VBYTES);
        for (int r = 0; r < rows; r++) {
            struct quad_digits d = digits_splat(digits + r * ldd + j * QUAD_DIGIT_BYTES);
            for (int g = 0; g < GROUPS; g++)
                acc[r][g] = quads_add(acc[r][g], b[g], d);
        }
    }
}

/* Scores of sub-page p, rows [row, row + rows) */
INL void band_scores(const struct work *w, int p, int row, const int rows)
{
    vi acc[ROWS][GROUPS];
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < GROUPS; g++)
            acc[r][g] = vi_splat(w->q[row + r].start);
    add_quads(acc, w->k[p], QUAD, (w->pool->head_dim + 3) / 4, w->digits + row * w->ldd, w->ldd,
              rows);
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(w->s + (size_t)(row + r) * LDS + p * PANEL + g * LANES,
                     score_of(acc[r][g], vf_load(w->k_scale + p * PANEL + g * LANES),
                              w->q[row + r].scale));
}

/* Dims [d, d + 16) of what the rows see of sub-pages [p0, p1) */
INL void band_values(const struct work *w, const struct band *b, int d, float *part, int ldp,
                     const int rows)
{
    vi acc[ROWS][GROUPS];
    const uint8_t *digits = (const uint8_t *)(w->s + (size_t)b->row * LDS);
    const size_t step = (size_t)w->pool->v_dim * 4;
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < GROUPS; g++)
            acc[r][g] = vi_splat(w->p[b->row + r].start);
    for (int p = b->lo / PANEL; p * PANEL < b->hi; p++)
        add_quads(acc, w->v[p] + d * 4, step, PANEL / 4, digits + p * (QUAD_DIGIT_BYTES * 4),
                  LDS * sizeof *w->s, rows);
    for (int r = 0; r < rows; r++)
        for (int g = 0; g < GROUPS; g++)
            vf_store(part + (size_t)(b->row + r) * ldp + PART_HEAD + d + g * LANES,
                     __builtin_convertvector(acc[r][g], vf) * w->p[b->row + r].scale);
}

static void scores_of(const struct work *w, int p, const struct band *b)
{
    WITH_ROWS(b->rows, ROWS, N, band_scores(w, p, b->row, N));
}

static void values_of(const struct work *w, const struct band *b, int d, float *part, int ldp)
{
    WITH_ROWS(b->rows, ROWS, N, band_values(w, b, d, part, ldp, N));
}

/* Where tokens [lo, hi) of the segment lie, and their scales */
INL void find_pages(struct work *w, const struct kv_view *kv, int segment, int lo, int hi)
{
    for (int p = lo / PANEL; p * PANEL < hi; p++) {
        uint8_t *sub = sub_page_at(kv, segment + p * PANEL);
        w->k[p] = kv_k(kv->pool, sub, kv->head);
        w->v[p] = kv_v(kv->pool, sub, kv->head);
        load_scales(kv->pool, w->k[p], w->k_scale + p * PANEL, w->v_scale + p * PANEL);
    }
}

INL void weights(struct work *w, const struct band *b, float soft_cap, int segment, const int *lo,
                 const int *hi, float *part, int ldp)
{
    int p0 = b->lo / PANEL, p1 = (b->hi + PANEL - 1) / PANEL;
    for (int r = b->row; r < b->row + b->rows; r++) {
        float *s = w->s + (size_t)r * LDS;
        int first = lo[r] - segment, end = hi[r] - segment;
        softmax_row(s, p0, p1 > p0 ? p1 : p0, first, end, soft_cap, part + (size_t)r * ldp);
        if (p1 > p0)
            w->p[r] = weight_digits(s, w->v_scale, p0, p1, first, end);
    }
}

void ISA_FN(attend_tile_int8)(const struct kv_view *kv, const struct score_config *c, int segment,
                              const int *lo, const int *hi, const float *q, int ldq, int rows,
                              float *part, int ldp, float *scratch)
{
    struct work w = {.pool = kv->pool, .s = scratch};
    struct band bands[TILE_ROWS];
    int dims = kv->pool->head_dim, first = SEGMENT, last = 0;
    int n = make_bands(bands, rows, ROWS, segment, lo, hi);
    uint8_t *digits = (uint8_t *)(scratch + (size_t)TILE_ROWS * LDS);
    w.digits = digits;
    w.ldd = (size_t)round_up_16(dims) * 2;
    for (const struct band *b = bands; b < bands + n; b++) {
        first = b->lo < first ? b->lo : first;
        last = b->hi > last ? b->hi : last;
    }
    find_pages(&w, kv, segment, first, last);
    for (int r = 0; r < rows; r++)
        w.q[r] = query_digits(q + (size_t)r * ldq, dims, digits + r * w.ldd);
    for (int p = first / PANEL; p * PANEL < last; p++) /* one sub-page of K, all rows */
        for (const struct band *b = bands; b < bands + n; b++)
            if (p >= b->lo / PANEL && p * PANEL < b->hi)
                scores_of(&w, p, b);
    for (const struct band *b = bands; b < bands + n; b++)
        weights(&w, b, c->soft_cap, segment, lo, hi, part, ldp);
    for (int d = 0; d < kv->pool->v_dim; d += 16) /* one slice of V, all rows */
        for (const struct band *b = bands; b < bands + n; b++)
            if (b->lo < b->hi)
                values_of(&w, b, d, part, ldp);
}
