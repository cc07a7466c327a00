/* kernels.h: the kernels of the CUDA backend, as the host calls them.
 *
 * Each function puts its work on a stream and returns; its error is that of the launch (an earlier
 * kernel's fault shows here, too). All pointers are the device's unless said. Nothing is allocated,
 * and all calls may be captured into a graph: sizes are fixed by the call, contents are read when
 * it runs. A captured batch may have more rows than the step: such padding rows have any valid id
 * and position and the slot -1, and their results are of no meaning.
 *
 * Numbers: a row's results depend on the row alone, not on n_rows nor on the other rows. */
#ifndef TOKEND_CUDA_KERNELS_H
#define TOKEND_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "backend.h"
#include "sampling_math.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- matrices and rows --- */

/* A weight [rows][cols]: of a quantised type in panels (panel.h), of a float type row-major, rows
 * `cols` rounded up to 32 apart, zeros between. */
struct cuda_matrix {
    enum dtype type;
    int rows, cols;
    const void *data;
};

/* Rows as quantised weights read them: blocks of 32 int8, value = d * q, with the sums of q of each
 * half. Blocks are outermost, so that a tile of rows of one block is contiguous. Two planes: row 2r
 * holds the blocks of row r, row 2r + 1 those of what these leave of it. */
struct cuda_block_scale {
    float d;
    uint32_t sums; /* two f16, exact */
};
struct cuda_qrows {
    int8_t *q;                  /* [width / 32][stride][32], in the order of linear.cuh */
    struct cuda_block_scale *s; /* [width / 32][stride] */
    int stride;                 /* rows, planes counted: cuda_qrows_stride */
    int planes;                 /* 1 or 2 */
};
/* Rows as the linears that read them want them */
struct cuda_rows {
    /* [][width rounded up to 32] of `type`, F32, F16 or BF16, zeros beyond width; in memory for
     * cuda_qrows_stride(n_rows, 1) rows. NULL: q, for quantised weights; width a multiple of 32 */
    void *values;
    enum dtype type;
    struct cuda_qrows q;
};

/* x[row] = table row ids[row] * scale, x [n_rows][cols]; of a quantised table bit for bit what
 * dtype_to_f32 makes of it. An id of -1 - k stands for drawn[k] (NULL: there are none). */
cudaError_t cuda_embed(cudaStream_t, float *x, const struct cuda_matrix *table, const int32_t *ids,
                       const int32_t *drawn, int n_rows, float scale);

/* As struct norm of backend.h, its vectors float32 of the device; w NULL: no norm. */
struct cuda_norm {
    enum norm_kind kind;
    const float *w, *bias; /* [width]; bias NULL: none */
    float eps;
};
/* out[i] = norm of x[rows[i]] (rows NULL: of x[i]), out F32, F16 or BF16, [n_rows][width]. May be
 * in place where rows is NULL and out F32. */
cudaError_t cuda_norm(cudaStream_t, void *out, enum dtype, const float *x, int width,
                      const struct cuda_norm *, const int32_t *rows, int n_rows);
/* The same, in the form of a reader; without a norm: x in that form. */
cudaError_t cuda_norm_rows(cudaStream_t, const struct cuda_rows *out, const float *x, int width,
                           const struct cuda_norm *, const int32_t *rows, int n_rows);
/* x[row] += norm of y[row] */
cudaError_t cuda_norm_add(cudaStream_t, float *x, const float *y, int width,
                          const struct cuda_norm *, int n_rows);

/* The pool of pages: [page][layer][block of 16 tokens][K, V][kv head][16 tokens][head_dim]; of
 * 8-bit values a head's are followed by the tokens' scales, bf16 [16] (kv.cuh has their order) */
struct cuda_kv {
    void *pool;
    enum dtype dtype; /* F32, F16 or BF16; INT8 or F8_E4M3, head_dim then a multiple of 16 */
    int n_layers, n_kv_heads, head_dim;
    int block_size; /* tokens of a page, a multiple of 16 */
};
/* Host only: bytes of a page */
size_t cuda_kv_page_bytes(const struct cuda_kv *);
/* Copies page src[i] to page dst[i], i < n. No page is in both lists. */
cudaError_t cuda_page_copy(cudaStream_t, const struct cuda_kv *, const int32_t *src,
                           const int32_t *dst, int n);

struct cuda_qk_norm {
    enum norm_kind kind;
    enum qk_norm_span span;
    const float *q, *k; /* NULL: no norm */
    float eps;
};
struct cuda_rope {
    enum rope_style style;
    int n_dims;
    const float *table; /* [max_positions][n_dims / 2][2]: cos and sin, times mscale */
};
/* As rope_write_kv of backend.h: q [n_rows][n_heads * head_dim], k and v
 * [n_rows][n_kv_heads * head_dim] of layer `layer`; a row of slot -1 is not written to a page.
 * head_dim is even. Values of 8 bits: the scale is the bf16 that is not below max|x| / 127 (INT8;
 * the CPU's cache holds the same values) or / 448 (F8_E4M3), the code the nearest, ties to even; of
 * less than 1e-30 all are 0, and a NaN makes the scale NaN. */
cudaError_t cuda_rope_write_kv(cudaStream_t, const struct cuda_kv *, int layer,
                               const struct cuda_qk_norm *, const struct cuda_rope *, int n_heads,
                               float *q, float *k, const float *v, const int32_t *positions,
                               const int32_t *slots, int n_rows);

/* --- attention ---
 *
 * Rows of queries are worked on in tiles: one sequence, one KV head, all of its query heads, as
 * many tokens as fit. Which tiles there are, and which of them are split into segments of
 * CUDA_ATTENTION_SEGMENT tokens that several blocks do at once, says a plan, made on the host
 * before the step: one for each window of the model's layers. Splitting does not change a bit.
 *
 * Sequences of few rows that begin with the same pages share the tiles of those segments, so that
 * keys and values are read once for all (cascade attention); this does not change a bit either. */
enum { CUDA_ATTENTION_SEGMENT = 256 }; /* tokens, at absolute positions */
enum cuda_attention_kind {
    CUDA_NARROW, /* rows, times query heads of a KV head, of a sequence or a group of such that
                    share pages: at most 16 */
    CUDA_WIDE,
    CUDA_ATTENTION_KINDS
};
/* How attention of one shape runs on a device */
struct cuda_attention {
    int n_heads, n_kv_heads, head_dim;
    enum dtype dtype;
    bool wgmma; /* wide tiles by another kernel, below */
    struct {
        int warps, n_stages; /* of a block; of warps those that have rows */
        size_t shared_bytes;
        int blocks; /* that the device runs at once */
    } kinds[CUDA_ATTENTION_KINDS];
};
/* Host only; of the current device. head_dim is a multiple of 16 up to 256, n_heads of n_kv_heads.
 * cudaErrorNotSupported: the device has too little shared memory (F32 beyond 128 on capability 7.5)
 * or no mma of the type (BF16 there). */
cudaError_t cuda_attention_open(struct cuda_attention *, int n_heads, const struct cuda_kv *);
/* Wide tiles by the kernel for capability 9.0 where the device, the type and head_dim allow; before
 * the first plan. A row's bits are then not those that it has in a narrow tile. */
cudaError_t cuda_attention_use_wgmma(struct cuda_attention *);

struct cuda_attention_tile {
    int32_t seq;       /* its page table; of several sequences that share pages, of one of them */
    int32_t member;    /* its first token, among the plan's members */
    int32_t low, high; /* the least and the greatest position of the tokens */
    int32_t head;      /* first row's query head, of those of a KV head */
    int32_t n_rows;    /* tokens' query heads: all of a token, then the next token's */
    int32_t segment, n_segments;
    int32_t unit;  /* the tile's first unit: units are its KV heads or, if split, their segments */
    int32_t split; /* segments may go to several blocks; partial results */
};
struct cuda_attention_row {
    int32_t partial, position; /* first partial result, -1: it has none */
};
/* A token of the step; those of a sequence, and of sequences that share pages, are neighbours. */
struct cuda_attention_member {
    int32_t row, position;
};
/* A plan's head; offsets are in bytes from it. */
struct cuda_attention_plan {
    int32_t n_tiles[CUDA_ATTENTION_KINDS], n_units[CUDA_ATTENTION_KINDS];
    int32_t tiles_at[CUDA_ATTENTION_KINDS]; /* struct cuda_attention_tile[] */
    int32_t rows_at;                        /* struct cuda_attention_row[max_rows] */
    int32_t members_at;                     /* struct cuda_attention_member[max_rows] */
    int32_t n_members;                      /* of sequences that may share pages: the first */
    int32_t n_rows;                         /* of the step */
    int32_t n_partials;                     /* used of those that the buffer has room for */
};
/* Host only: bytes of a plan for up to so many rows and sequences */
size_t cuda_attention_plan_bytes(const struct cuda_attention *, int max_rows, int max_seqs);
/* The pages of a step's sequences, of the host */
struct cuda_attention_pages {
    const int32_t *tables; /* [n_seqs][max_pages] */
    int max_pages, block_size;
};
/* Host only: the plan of a step, for layers of this window. Pages NULL: nothing is shared.
 * `partials` is the size of the buffer of partial results; more than it has room for is neither
 * shared nor split. 64 MiB do for most. */
void cuda_attention_plan_make(const struct cuda_attention *, struct cuda_attention_plan *,
                              int max_rows, int max_seqs, const struct step_seq *seqs, int n_seqs,
                              const struct cuda_attention_pages *, int window, size_t partials);

/* How many blocks to launch. A graph that is used for many steps has those of
 * cuda_attention_grid_any; if its steps are known to have no wide tiles, blocks[CUDA_WIDE] may be
 * 0. */
struct cuda_attention_grid {
    int blocks[CUDA_ATTENTION_KINDS]; /* 0: not launched */
    int n_rows;                       /* whose partial results are joined; 0: not launched */
};
struct cuda_attention_grid cuda_attention_grid_of(const struct cuda_attention *,
                                                  const struct cuda_attention_plan *);
struct cuda_attention_grid cuda_attention_grid_any(const struct cuda_attention *, int n_rows);

struct cuda_attention_step {
    struct cuda_attention_grid grid;
    const struct cuda_attention_plan *plan; /* the device's copy */
    const int32_t *page_tables;             /* [][max_pages] */
    int max_pages;
    float *partials;
};
/* As attention of backend.h: out F32, F16 or BF16 and q, both [n_rows][n_heads * head_dim]; sinks
 * [n_heads] or NULL. scale is above 0. q is rounded to the type of K and V (values beyond it to its
 * largest), and so are the weights that V is multiplied with. */
cudaError_t cuda_attend(cudaStream_t, const struct cuda_attention *, const struct cuda_kv *,
                        int layer, const struct attention_config *, const float *sinks, void *out,
                        enum dtype, const float *q, const struct cuda_attention_step *);

/* out = act(gate) * up (up NULL: act(gate)), n values; out F32, F16 or BF16 */
cudaError_t cuda_act(cudaStream_t, enum act_fn, void *out, enum dtype, const float *gate,
                     const float *up, int64_t n);
/* The same of rows, gate and up [n_rows][width], in the form of a reader */
cudaError_t cuda_act_rows(cudaStream_t, enum act_fn, const struct cuda_rows *out, const float *gate,
                          const float *up, int width, int n_rows);
/* x = cap * tanh(x / cap), n values */
cudaError_t cuda_soft_cap(cudaStream_t, float *x, int64_t n, float cap);
/* x[row] += sigmoid(in[row] · w) * y[row]; x, y [n_rows][width], in [n_rows][in_width] */
cudaError_t cuda_gated_add(cudaStream_t, float *x, const float *y, int width, const float *in,
                           const float *w, int in_width, int n_rows);

/* --- linears --- */

/* Host only: the stride that n rows need */
int cuda_qrows_stride(int n_rows, int planes);
/* out = x [n_rows][width], width a multiple of 32. d = max|x| / 127, q to nearest, ties to even; a
 * NaN or infinity makes d, and so every product, NaN or infinite. */
cudaError_t cuda_quantise(cudaStream_t, const struct cuda_qrows *out, const float *x, int width,
                          int n_rows);

enum { CUDA_MAX_JOBS = 3 };
/* What linears of one x do, as `linear` of backend.h: n_w matrices of one type and cols;
 * INTO_ACT_MUL: two of equal rows, and one out. */
struct cuda_linear {
    enum linear_into into;
    enum act_fn act;
    int n_w;
    struct cuda_matrix w[CUDA_MAX_JOBS];
    const float *bias[CUDA_MAX_JOBS]; /* NULL: none */
    float *out[CUDA_MAX_JOBS];        /* [n_rows][rows] */
};
/* Of quantised weights. One order along k (linear.cuh), whatever n_rows is. */
cudaError_t cuda_linear_quantised(cudaStream_t, const struct cuda_linear *,
                                  const struct cuda_qrows *x, int n_rows);
/* Of float weights; x [rows][cols rounded up to 32] of their type, zeros beyond cols, in memory for
 * cuda_qrows_stride(n_rows, 1) rows. One order along k, too. */
cudaError_t cuda_linear_float(cudaStream_t, const struct cuda_linear *, const void *x, int n_rows);

/* --- mixtures of experts --- */

/* As moe_config of backend.h */
struct cuda_moe {
    int n_experts, n_used; /* at most MOE_MAX_EXPERTS and MOE_MAX_USED */
    int n_embd, n_ff;
    bool renormalise;
    enum act_fn act;
    /* Who reads x, and who the middle: the type of all layers' weights if that is a float type,
     * else any quantised one */
    enum dtype x_reader, middle_reader;
    int planes;    /* of what quantised weights read: 1 or 2 */
    int max_rows;  /* of a call; max_rows * n_used is at most 2^24 */
    void *scratch; /* of cuda_moe_bytes, for all layers of this shape, one after the other */
};
/* Host only: bytes of scratch memory (`scratch` is not read) */
size_t cuda_moe_bytes(const struct cuda_moe *);

/* One of the three matrices of all experts of a layer */
struct cuda_experts {
    enum dtype type;
    const void *const *data; /* of the device: [n_experts], each as of cuda_matrix */
    struct cuda_matrix bias; /* of a float type, [n_experts][rows]; data NULL: none */
};
struct cuda_moe_layer {
    struct cuda_experts gate, up; /* [n_ff][n_embd] */
    struct cuda_experts down;     /* [n_embd][n_ff] */
};
/* As `moe` of backend.h: out [n_rows][n_embd]; INTO_STORE or INTO_ADD; x [n_rows][n_embd] in the
 * form of x_reader, router_logits [n_rows][n_experts]. Rows whose slot (as of
 * cuda_rope_write_kv; NULL: no row) is -1 are left out, so that padding reads no expert; their out
 * is not written. Launches depend on n_rows alone. */
cudaError_t cuda_moe(cudaStream_t, const struct cuda_moe *, const struct cuda_moe_layer *,
                     enum linear_into, float *out, const struct cuda_rows *x,
                     const float *router_logits, const int32_t *slots, int n_rows);

/* --- sampling ---
 *
 * The order of things is engine/sampling.h's and the arithmetic sampling_math.h's, so tokens and
 * log probabilities equal those of the engine's sampler in every bit, given the same logits. */
enum { CUDA_MAX_VOCAB = 1 << 20 };
/* What is done with a row of logits; several may read one row. All pointers are the device's. */
struct cuda_draw {
    int32_t row;        /* of the logits; -1: nothing, padding */
    int32_t given;      /* -1: a token is drawn; else it is this one */
    int32_t next;       /* where among `ids` the token goes; -1: nowhere */
    int32_t n_logprobs; /* -1: none; 0: the token's own; k: and the k best; of the model's logits */
    float temperature;  /* 0: the best (ties: lowest id) */
    int32_t top_k;      /* 0: off */
    float top_p;        /* 1: off */
    float min_p;        /* 0: off */
    float presence_penalty, frequency_penalty, repetition_penalty; /* read if there are counts */
    int32_t choice, position;
    int32_t n_bias, n_banned;
    uint64_t seed;
    const struct logit_bias *bias; /* [n_bias], ascending ids, each once */
    const int32_t *banned;         /* [n_banned]: never these (end tokens before min_tokens) */
    const uint32_t *allowed;       /* bit id % 32 of word id / 32; NULL: all are */
    const uint16_t *counts;        /* [n_vocab], as sampling_penalised takes them, or NULL */
    uint16_t *counted; /* counts that the token is added to, no other draw's of this call;
                          may be `counts`; NULL: none */
};
struct cuda_sample {
    int32_t id;     /* -1: none */
    int32_t result; /* enum sampling_result; unless it is OK nothing else is written */
    float logprob;
    struct top_logprob tops[SAMPLING_MAX_TOP_LOGPROBS]; /* n_logprobs of them, in order; id -1: the
                                                           vocabulary has no more */
};
struct cuda_sampling {
    const float *logits;           /* [][n_vocab] */
    int n_vocab;                   /* at most CUDA_MAX_VOCAB */
    const struct cuda_draw *draws; /* [n_draws] */
    int n_draws;
    bool best_only;          /* all have temperature 0 and no log probabilities: fewer launches */
    void *scratch;           /* of cuda_sampling_bytes, aligned to 256 bytes; empty between calls */
    int32_t *ids;            /* of the next step; a draw that fails gives 0 */
    struct cuda_sample *out; /* [n_draws]; may be the host's pinned memory */
};
/* Host only: bytes of scratch memory, about 8 n_vocab a draw */
size_t cuda_sampling_bytes(int n_vocab, int max_draws);
cudaError_t cuda_sample(cudaStream_t, const struct cuda_sampling *);

#ifdef __cplusplus
}
#endif

#endif
