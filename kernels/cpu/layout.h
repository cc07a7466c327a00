/* layout.h: how the CPU backend keeps weights, activations and KV pages.
 *
 * A SIMD lane is an output row. Weights lie in panels of 16 rows: a line of 64 bytes holds 4
 * consecutive k of 16 rows, so that a 32-bit lane belongs to one row.
 *
 *   quantised: blocks of one part of 32 k or, where there are integer scales, 8 parts; at the end
 *        of a block f16 d[16] (NVFP4: f16 d[2][16], of 16 k each; MXFP4: e8m0 d[16]), then
 *        f16 m[16] where there are minima, u8 zero[16] for Q4_Z. A part is, by the bits of q,
 *        8: 8 lines (line j: k = 4j…4j+3, as w + 128)
 *        4: 4 lines (line j: low nibbles k = 4j…4j+3, high nibbles 16+4j…16+4j+3)
 *        5: as 4, and one line (bit j of a byte: k = 4j + byte)
 *        6: as 4, and two lines (line h: pairs of bits, lowest first, of k = 16h + 4j + byte,
 *             j = 0…3)
 *        2: those two lines alone;   3: as 2, and one line as of 5
 *        then i8 scales[16] and u8 minima[16], or of 16 k each [2][16]; Q2_K: scale and minimum
 *        are the nibbles of u8 [2][16]
 *   F32, F16, BF16: [k][16 rows]
 *
 * What has no form of its own here gets one that has all its values: F8 becomes F16; the points
 * of the IQ1, IQ2 and IQ3 lattices are spelt out as 4-bit codes of their coordinates (4.3 bits a
 * weight, 4.6 with a scale of each 16; 1.6 to 3.4 in the file); TQ1_0, TQ2_0 and Q1_0 have 2 bits
 * and a d of each 32 (2.5 bits a weight; 1.1 to 2.1 in the file).
 *
 * The last panel is filled up with rows of zeros. A float matrix of one row (the weight of a
 * norm, a bias) is kept as plain float32 instead.
 *
 * Rows that a quantised weight reads are int8 blocks of 32 with a scale d and d * sum(q);
 * blocks are outermost, so that a tile of tokens of one block is contiguous. Fine rows have two
 * planes, x = high + low: row 2r holds the int8 blocks of row r, row 2r + 1 those of what these
 * leave of it. To the kernels they are two rows; their products are added (step_product). */
#ifndef TOKEND_LAYOUT_H
#define TOKEND_LAYOUT_H

#include <stdint.h>

#include "quant_block.h"

#define PANEL 16 /* output rows of a panel; tokens of a KV sub-page */
#define QBLOCK 32
#define TOKEN_TILE 128 /* most tokens of one call of a linear kernel */
#define MAX_PLANES 2
#define SEGMENT 256  /* tokens of an attention segment: absolute, fixed (promise 1) */
#define TILE_ROWS 96 /* most (query, head) rows of one call of the attention tile kernel */
#define PART_HEAD 16 /* floats before a partial result's values: max, sum, unused */

struct weight {
    enum dtype type;
    int64_t rows, cols;
    int panels;
    size_t panel_bytes;
    uint8_t *data; /* [panels][panel_bytes] */
    float *vector; /* instead of data: [cols] */
};

struct activation {
    int width, stride; /* values of a row; floats from row to row, an odd number of lines: rows of
                          a tile do not fall on one another in the L1 cache */
    int max_rows;
    bool logit_rows, quantised;
    bool exact;    /* BF16 weights are multiplied with f as it is: where activations are fine */
    int planes;    /* int8 rows of a row: 2 where fine, else 1 */
    float *f;      /* [max_rows][stride], NULL if quantised */
    int8_t *q;     /* [width/32][qstride(n * planes)][32] for the n rows of the step */
    float *d, *s;  /* [width/32][qstride(n * planes)]: scale, scale * sum of q */
    int16_t *sums; /* [width/32][qstride(n * planes)][2]: sum of q of each half */
};

/* Rows between the blocks of a quantised activation that holds n rows (planes count). Close, so
 * that little memory is used by small steps; an odd multiple of 128 bytes, so that blocks of a row
 * do not fall on one another in the L1 cache. */
static inline int qstride(int n)
{
    return (n + 3) / 4 % 2 ? (n + 3) / 4 * 4 : ((n + 3) / 4 + 1) * 4;
}

/* … of this one, with n rows of the step */
static inline int activation_qstride(const struct activation *a, int n)
{
    return qstride(n * a->planes);
}

static inline bool dtype_is_quantised(enum dtype t)
{
    return quant_form(t).bits > 0;
}

/* The type that panels of a type have: what a weight's `type` says */
static inline enum dtype panel_type(enum dtype t)
{
    return t == DTYPE_F8_E4M3 || t == DTYPE_F8_E5M2 ? DTYPE_F16 : t;
}

/* Scales, or ds, that each 32 k have */
static inline int panel_halves(enum dtype t)
{
    return quant_form(t).scale_run == 16 || quant_form(t).d_run == 16 ? 2 : 1;
}

/* Sizes in the panel of a quantised type: lines of a part, … */
static inline int panel_line_bytes(enum dtype t)
{
    return quant_form(t).bits * 64;
}

/* … its scales and minima, … */
static inline int panel_scale_bytes(enum dtype t)
{
    const struct quant_form f = quant_form(t);
    if (!f.scale_run)
        return 0;
    return panel_halves(t) * PANEL * (f.minimum && f.scale_run == 32 ? 2 : 1);
}

static inline int panel_part_bytes(enum dtype t)
{
    return panel_line_bytes(t) + panel_scale_bytes(t);
}

/* … parts of a block, … */
static inline int panel_parts(enum dtype t)
{
    return quant_form(t).scale_run ? 8 : 1;
}

/* … where its d[16] starts, what follows them, and all of it */
static inline int panel_head_at(enum dtype t)
{
    return panel_parts(t) * panel_part_bytes(t);
}

static inline int panel_second_at(enum dtype t)
{
    const struct quant_form f = quant_form(t);
    int ds = f.d_run ? panel_halves(t) : 1;
    return panel_head_at(t) + ds * PANEL * (f.d == QUANT_D_E8M0 ? 1 : 2);
}

static inline int panel_block_bytes(enum dtype t)
{
    const struct quant_form f = quant_form(t);
    return panel_second_at(t) + PANEL * (f.minimum ? 2 : f.zero ? 1 : 0);
}

/* The KV pool. A page holds, layer by layer, sub-pages of 16 tokens; a sub-page holds
 * K [kv head][dim][16 tokens], then V [kv head][16 tokens][dim, padded to 16].
 * INT8 has four values side by side, so that a 32-bit lane belongs to one token, or dim:
 *   K of a head [dim / 4][16 tokens][4 dims] of u8 q + 128, then the tokens' scales,
 *     bf16 [K, V][16];
 *   V of a head [4][dim, padded to 16][4 tokens] of u8 q + 128 */
struct kv_pool {
    uint8_t *data; /* [n_pages][page_bytes] */
    enum dtype type;
    int n_layers, n_kv_heads, head_dim, block_size, n_pages;
    int v_dim;               /* head_dim rounded up to 16 */
    size_t k_bytes, v_bytes; /* of one head in a sub-page */
    size_t sub_bytes, layer_bytes, page_bytes;
    size_t v_offset; /* of V in a sub-page */
};
#define INT8_MAX_DIM 512 /* of a head: its sums of int8 times int16 fit into 32 bits */

static inline uint8_t *kv_sub_page(const struct kv_pool *kv, int layer, int page, int sub)
{
    return kv->data + (size_t)page * kv->page_bytes + (size_t)layer * kv->layer_bytes +
           (size_t)sub * kv->sub_bytes;
}

static inline uint8_t *kv_k(const struct kv_pool *kv, uint8_t *sub_page, int head)
{
    return sub_page + (size_t)head * kv->k_bytes;
}

static inline uint8_t *kv_v(const struct kv_pool *kv, uint8_t *sub_page, int head)
{
    return sub_page + kv->v_offset + (size_t)head * kv->v_bytes;
}

/* Of an INT8 pool, given a head's K: bf16 [K, V][16 tokens] */
static inline uint16_t *kv_scales(const struct kv_pool *kv, uint8_t *k)
{
    return (uint16_t *)(void *)(k + kv->k_bytes) - 2 * PANEL;
}

#endif
