/* kernels.h: the functions that are compiled once per instruction set.
 *
 * The sources in simd/ are compiled for each set with ISA defined to its name; each copy fills
 * one `struct kernels`, and isa.c picks one when the backend opens. They work on whole units
 * of an operation; how an operation is split into units is the business of the step_*.c
 * files. No result may depend on that split: an output element is computed by one order of
 * operations (kernels/README.md lists them). */
#ifndef TOKEND_KERNELS_H
#define TOKEND_KERNELS_H

#include "backend.h"
#include "layout.h"

/* The rows that a linear reads: of the two forms the one that its weight wants. */
struct rows_view {
    const float *f; /* [n][stride], a row readable up to a multiple of 16 */
    int stride;
    bool exact;          /* BF16 weights are multiplied with f as it is, not rounded to bf16 */
    const int8_t *q;     /* [cols/32][qstride][32] */
    const float *d, *s;  /* [cols/32][qstride] */
    const int16_t *sums; /* [cols/32][qstride][2] */
    int qstride;
    int planes; /* of q's rows, the n rows being [n][planes] */
};

/* A norm of one row: its weights from the row's first value on. */
struct norm_row {
    enum norm_kind kind;
    const float *w, *bias; /* bias NULL: none */
    float eps;
};

/* One KV head of one sequence and layer. */
struct kv_view {
    const struct kv_pool *pool;
    const int32_t *table; /* logical page -> physical page */
    int layer, head;
};

/* Tokens [lo, hi) of it, all of one segment */
struct attend_unit {
    struct kv_view kv;
    int lo, hi;
};

/* Scores are in units of log2: q comes multiplied by `scale`, which holds log2(e) when there is
 * no soft cap. */
struct score_config {
    float scale, soft_cap;
};

/* A partial result is [PART_HEAD + v_dim] floats: [0] = max of the scores, [1] = sum of the
 * weights, from PART_HEAD the weighted values, not yet divided. Nothing seen: max = -inf. */
struct kernels {
    const char *name;

    /* Blocks [0, n_blocks) of x into row `row`, all planes of it, starting at block `block`. */
    void (*quantise)(const struct activation *, int qstride, int row, int block, const float *x,
                     int n_blocks);
    /* y[t * ldy + r] = row r (counted from panel p0) of w times row t0 + t, for panels [p0, p1)
     * and n <= TOKEN_TILE rows, of which each plane is one. */
    void (*linear)(const struct weight *w, const struct rows_view *x, int t0, int n, int p0, int p1,
                   float *y, int ldy);
    /* x[i] = act(x[i]), gate[i] = act(gate[i]) * up[i]; n a multiple of 16 */
    void (*act)(enum act_fn, float *x, int n);
    void (*act_mul)(enum act_fn, float *gate, const float *up, int n);
    /* x[i] = cap * tanh(x[i] / cap) */
    void (*soft_cap)(float *x, int n, float cap);
    /* x[0..n) += sigmoid(in · w) * y[0..n); in, w: [n_in] */
    void (*gated_add)(float *x, const float *y, int n, const float *in, const float *w, int n_in);
    /* The n_used best of n logits (of equal ones the first), best first, and their share of the
     * softmax of all, or of those chosen. A NaN makes all shares NaN. scratch: [n, padded to 16] */
    void (*route)(const float *logits, int n, int n_used, bool renormalise, float *scratch,
                  int32_t *chosen, float *share);
    /* out[0..n) = or += the sum of share[k] times row slots[k] of y, k ascending; rows are padded
     * to 16 floats */
    void (*mix)(float *out, bool add, const float *y, int stride, const int32_t *slots,
                const float *share, int n_used, int n);
    /* out = the norm of x (may be out), or out += it; no alignment, no padding */
    void (*norm)(float *out, const float *x, int n, const struct norm_row *);
    void (*norm_add)(float *out, const float *x, int n, const struct norm_row *);

    /* Turns n_dims of one head by cos[n_dims/2], sin[n_dims/2]. */
    void (*rotate)(enum rope_style, float *x, const float *cos, const float *sin, int n_dims);
    /* Writes k and v of one token and head to slot `slot` of a sub-page. */
    void (*kv_write)(const struct kv_pool *, uint8_t *sub_page, int slot, int head, const float *k,
                     const float *v);

    /* What `rows` heads of one query see of a unit: q [rows][ldq], scaled. Partial results to
     * part[r * ldp]. K of `next` (may be NULL), which this member does next, is fetched early. */
    void (*attend_one)(const struct attend_unit *, const struct attend_unit *next,
                       const struct score_config *, const float *q, int ldq, int rows, float *part,
                       int ldp);
    /* As attend_one for rows <= TILE_ROWS that see [lo[r], hi[r]), all of the segment that
     * starts at `segment`; empty ranges are fine. `scratch` has attend_scratch floats. */
    void (*attend_tile)(const struct kv_view *, const struct score_config *, int segment,
                        const int *lo, const int *hi, const float *q, int ldq, int rows,
                        float *part, int ldp, float *scratch);
    /* acc = acc and the later segment's part together, over n dims (a multiple of 16) */
    void (*part_join)(float *acc, const float *part, int n);
    /* out[0..n) = values / sum. `sink` NULL, or a logit more in the sum (natural units). */
    void (*part_finish)(float *out, const float *part, const float *sink, int n);
};

static inline size_t attend_scratch(int v_dim)
{
    return (size_t)SEGMENT * v_dim * 2 + (size_t)TILE_ROWS * SEGMENT;
}

/* The best set that this machine has, or the one that TOKEND_ISA names. NULL and *e when that
 * one is unknown or missing. */
const struct kernels *kernels_choose(struct err *e);
/* The i-th set that was compiled in, best first, NULL past the end; *usable: this machine has it.
 */
const struct kernels *kernels_compiled(int i, bool *usable);

#endif
