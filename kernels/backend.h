/* backend.h: what a device does for the engine.
 *
 * A backend is a table of functions over its own memory. The engine knows tokens, pages and
 * the order of operations; the backend knows layouts, precision and threads. A forward pass
 * is a list of calls that *record* operations into the step's plan; `submit` runs the plan
 * and returns when its host-visible results (logits) can be read.
 *
 * Threads: every function is called by the one thread that owns the device (the engine
 * thread; before it starts, the thread that opens the model). Helpers are the backend's own.
 *
 * Memory: everything is sized and taken by open, weight_load, activation_new and kv_open.
 * Nothing between step_begin and the end of submit allocates (promise 4).
 *
 * Numbers: for one backend, instruction set and block size, every output element is computed
 * by one fixed order of operations, whatever else is in the batch and however many helpers
 * there are (promise 1, batch invariance); on CUDA with `batch_invariant`.
 *
 * Errors: open, weight_load, activation_new and kv_open can fail and say why. The recording
 * functions cannot fail; misuse (a wrong width, an unknown buffer) is a programming error and
 * asserts. submit fails only when the device does.
 *
 * Steps ahead: a backend that can draw tokens itself lets the next step be started before the
 * last one's results are there; its rows name tokens that nobody has seen yet. The device does
 * steps and page_copy in the order in which they were asked for, so the pages of a sequence that
 * ends may go to another one at once, though a row of it is still to be computed. */
#ifndef TOKEND_BACKEND_H
#define TOKEND_BACKEND_H

#include "dtype.h"
#include "err.h"
#include "sampling_math.h"

struct backend;    /* a device that was opened */
struct weight;     /* a matrix or vector in the backend's own layout */
struct activation; /* [max_rows][width] values in the backend's own type */

/* Sizes that bound every step, known at open. */
struct backend_config {
    int threads;    /* helpers of the CPU backend, the engine thread counted; 0 = as many as
                       affinity and control group let run at once */
    int max_rows;   /* most rows (tokens) of a step */
    int max_seqs;   /* most sequences of a step */
    int max_pages;  /* most pages of one sequence's page table */
    int max_logits; /* most rows of a step whose logits are wanted */
    size_t attention_partials; /* CPU: bytes for partial results of attention; 0: 32 MiB. More is
                                  taken where one row needs more, less where all need less */
    bool fine_activations; /* what quantised weights read has 16 bits a value instead of 8 (CPU: two
                              int8 planes): twice the multiplications, a 250th of the rounding;
                              and what BF16 weights read is not rounded to bf16 (CPU) */
    bool batch_invariant;  /* CUDA: nothing that computes a row in another order among other rows */
    bool pin_threads;      /* CPU: each to a processor of its own, different cores first */
    double memory_share;   /* CUDA: of the device's memory that may be used; 0: 0.9 */
    bool enforce_eager; /* CUDA: kernels of a decode step are launched one by one, not as a graph */
    /* CPU: the file in which packed weights are kept for the next open; NULL: in none. `model` is a
     * number that another model's files, or these after a change, do not have. */
    const char *repack_cache;
    uint64_t model;
};

/* One sequence's share of a step: rows [row, row + n_rows) are its tokens at positions
 * [start, start + n_rows), whose K and V this step writes; they attend to positions
 * 0 … own position through its page table. */
struct step_seq {
    int row, n_rows;
    int start; /* position of the first row */
};

/* The inputs of a step, at addresses fixed for the backend's life. The engine fills them
 * between step_begin and submit. */
struct step_inputs {
    int n_rows, n_seqs, n_logits;
    int32_t *ids;          /* [max_rows] token ids; -1 - k: the one that draw k of the step that was
                              started before gives (0 if it fails) */
    int32_t *positions;    /* [max_rows] */
    int32_t *kv_slots;     /* [max_rows] page * block_size + offset, where K and V of the row go */
    int32_t *adapters;     /* [max_rows] adapter index of the row, -1 = none */
    struct step_seq *seqs; /* [max_seqs], ascending rows, covering all of them */
    int32_t *page_tables;  /* [max_seqs][max_pages] physical pages; only those in use are read */
    int32_t *logit_rows;   /* [max_logits] rows whose logits are wanted, ascending */
};

/* The shape of the KV pool: n_pages pages, each holding K and V of block_size tokens for
 * all layers. The layout inside a page is the backend's. */
struct kv_config {
    int n_layers, n_kv_heads, head_dim;
    int block_size; /* tokens of a page: 16 or a multiple */
    int n_pages;
    enum dtype dtype; /* F32, F16, BF16, INT8 or, CUDA only, F8_E4M3 (these two with one scale for
                         each token and head of K, and of V, fixed when it is written) */
    int n_heads;      /* of the queries; CUDA: attention is prepared for them */
};

enum act_fn {
    ACT_SILU,
    ACT_GELU_TANH,      /* the approximation by tanh */
    ACT_GELU,           /* by erf */
    ACT_SWIGLU_CLAMPED, /* gpt-oss, gated only: g = min(gate, 7), u = up within +-7:
                           g * sigmoid(1.702 g) * (u + 1) */
};

enum norm_kind {
    NORM_RMS,   /* x / sqrt(mean(x^2) + eps) * w (Zhang & Sennrich 2019) */
    NORM_LAYER, /* (x - mean) / sqrt(variance + eps) * w + bias (Ba et al. 2016) */
};
struct norm {
    enum norm_kind kind;
    const struct weight *w, *bias; /* [1][width]; bias NULL: none */
    float eps;
};

enum rope_style {
    ROPE_NONE,
    ROPE_NEOX,   /* pairs (i, i + n/2) */
    ROPE_NORMAL, /* pairs (2i, 2i + 1): GGUF's llama, whose q and k rows are permuted */
};

/* Rotary embedding: pair i of `n_dims` turns by position * inv_freq[i]; sin and cos are
 * scaled by `mscale`. Computed once by the model; the backend copies it at rope_new. */
struct rope_config {
    enum rope_style style;
    int n_dims;            /* rotated dims, even, <= head_dim */
    const float *inv_freq; /* [n_dims / 2] */
    float mscale;
    int max_positions;
};
struct rope; /* tables in the backend's form */

/* Norms of q and k before they are turned, without biases. */
enum qk_norm_span {
    QK_NORM_HEAD,  /* every head by itself, one weight for all: [1][head_dim] */
    QK_NORM_HEADS, /* every head by itself, each with its own weights: [1][n_heads * head_dim] */
    QK_NORM_ALL,   /* the whole projection as one row: [1][n_heads * head_dim] */
};
struct qk_norm {
    enum norm_kind kind;
    enum qk_norm_span span;
    const struct weight *q, *k; /* k: of n_kv_heads */
    float eps;
};

struct attention_config {
    int n_heads, n_kv_heads, head_dim;
    float scale; /* of the scores, usually 1/sqrt(head_dim) */
    int window;  /* 0 = all earlier tokens; else the row sees the last `window`, itself counted */
    float soft_cap; /* 0 = none; else cap * tanh(score / cap) */
};

/* How a linear's results are stored. */
enum linear_into {
    INTO_STORE,   /* out = y */
    INTO_ADD,     /* out += y: the residual stream */
    INTO_ACT_MUL, /* out = act(y of w[0]) * (y of w[1]): a gated activation */
    INTO_ACT,     /* out = act(y): an MLP without gate */
};

enum { MOE_MAX_EXPERTS = 4096, MOE_MAX_USED = 64 };
/* A mixture of experts: its shape, and what its scratch memory holds. The scratch has room for
 * max_rows * n_used expert rows and serves all layers of that shape. */
struct moe_config {
    int n_experts,
        n_used; /* at most MOE_MAX_EXPERTS and MOE_MAX_USED: choosing takes their product */
    int n_embd, n_ff;
    bool renormalise; /* the chosen weights sum to 1 */
    enum act_fn act;
    const struct weight *gate; /* an example [n_ff][n_embd]: the class of what reads x */
    const struct weight *down; /* an example [n_embd][n_ff]: the class of what reads the middle */
};
struct moe;
/* One layer's experts. All gates and ups are of one class, and all downs. */
struct moe_layer {
    const struct weight *const *gate, *const *up; /* [n_experts], each [n_ff][n_embd] */
    const struct weight *const *down;             /* [n_experts], each [n_embd][n_ff] */
    /* Float matrices [n_experts][n_ff], [n_experts][n_ff], [n_experts][n_embd]; NULL: none */
    const struct weight *gate_bias, *up_bias, *down_bias;
};

/* What is drawn from a row of logits; several may read one row. The order of things is
 * engine/sampling.h's, the arithmetic sampling_math.h's: the tokens are those of the engine's
 * sampler. What it points to is read until `start` returns. */
enum { DRAW_MAX_BIAS = 512, DRAW_MAX_BANNED = 96 };
struct draw {
    int logit;         /* of this step's logit_rows */
    int n_logprobs;    /* -1: none; 0: the token's own; k: and the k best; of the model's logits */
    float temperature; /* 0: the best (ties: lowest id) */
    int top_k;         /* 0: off */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float presence_penalty, frequency_penalty, repetition_penalty; /* read if there are counts */
    uint64_t seed;
    int choice, position;          /* for the random numbers */
    const struct logit_bias *bias; /* [n_bias], ascending ids; at most DRAW_MAX_BIAS */
    int n_bias;
    struct {
        const int32_t *ids;        /* [n] */
        int n;                     /* of both lists together at most DRAW_MAX_BANNED */
    } banned[2];                   /* never these */
    int counts;                    /* slot of the counts for penalties, which the token is added to
                                      (no other draw's of this step); -1: none */
    const uint16_t *counts_before; /* [n_vocab] is put into the slot first; NULL: it goes on with
                                      what it has */
};
struct drawn {
    int32_t id;
    enum sampling_result result; /* unless it is OK the rest means nothing */
    float logprob;
    const struct top_logprob *tops; /* [n_logprobs] in order; id -1: the vocabulary has no more */
};
struct sampler_config {
    int n_vocab;
    int max_draws;     /* of a step */
    int n_count_slots; /* for counts */
};

struct backend_memory {
    uint64_t total; /* bytes that may be taken: of a GPU its share of the memory, less what others
                       have there now; CPU: of the machine or the control group */
    bool dedicated; /* nothing else wants what is left: the KV pool may have all of it */
    uint64_t weights, kv, activations; /* bytes that this backend took */
    /* GPU: bytes in all; those in use now that are none of the three: the driver's, the kernels'
     * and libraries', other programs' */
    uint64_t device, others;
};

struct backend_ops {
    const char *name; /* "cpu" */

    void (*close)(struct backend *); /* frees everything that the backend gave out; NULL is fine */
    void (*memory)(struct backend *, struct backend_memory *out);
    /* A line about what runs the kernels ("avx2, 2 threads"), owned by the backend. */
    const char *(*describe)(struct backend *);

    /* Loads a matrix [rows][cols] (row-major, as in the file) into the layout that linear
     * likes. The source may be unmapped afterwards. NULL and *e when it cannot. */
    struct weight *(*weight_load)(struct backend *, enum dtype, int64_t rows, int64_t cols,
                                  const void *src, struct err *e);
    /* No more will be loaded. */
    void (*weights_loaded)(struct backend *);
    /* An activation buffer of `width` values a row for max_rows rows (max_logits if
     * `logit_rows`). `reader` says what a linear will multiply it with (NULL: none, plain
     * float32, the form that rope, attention and residual adds work on); the producing
     * operation then leaves the row in the form that this weight's kernel wants (int8 blocks
     * for quantised weights). All weights that read one buffer have the same dtype class.
     * A buffer keeps its rows, over steps, until an operation writes them again. */
    struct activation *(*activation_new)(struct backend *, int width, const struct weight *reader,
                                         bool logit_rows, struct err *e);
    /* Scratch memory of a mixture of experts. */
    struct moe *(*moe_new)(struct backend *, const struct moe_config *, struct err *e);
    /* Tells of a layer's experts while loading, before the first `moe` with them; its arrays stay
     * where they are. NULL: nobody wants to know. */
    bool (*moe_layer_new)(struct backend *, struct moe *, const struct moe_layer *, struct err *e);
    struct rope *(*rope_new)(struct backend *, const struct rope_config *, struct err *e);
    /* Whether the backend can have such a pool, memory aside; n_pages is not read. To be asked
     * before weights are loaded. NULL: any. */
    bool (*kv_check)(struct backend *, const struct kv_config *, struct err *e);
    /* Takes the KV pool. Its pages start filled with NaN in debug builds. Where memory is
     * dedicated it may be called again: with another n_pages, for a pool in place of the first. */
    bool (*kv_open)(struct backend *, const struct kv_config *, struct err *e);
    /* Bytes that one page of such a pool takes, all layers. */
    uint64_t (*kv_page_bytes)(struct backend *, const struct kv_config *);
    /* Bytes that kv_open takes besides the pool, given the activations made so far. */
    uint64_t (*kv_extra_bytes)(struct backend *, const struct kv_config *);
    /* Copies whole pages inside the pool, at once: after every earlier submit, before every later
     * one. */
    void (*page_copy)(struct backend *, int src_page, int dst_page);
    /* Fills a page with a byte (tests: 0xFF makes NaN of every float type). */
    void (*page_fill)(struct backend *, int page, uint8_t byte);
    /* Memory for draws on the device. NULL: this backend draws nothing; then so are `sample`,
     * `start` and `finish`. */
    bool (*sampler_open)(struct backend *, const struct sampler_config *, struct err *e);

    /* Takes memory of the host for so many pages, for what must make room: after the last kv_open,
     * once. CUDA: pinned; CPU: touched when a page first goes there. */
    bool (*swap_open)(struct backend *, int n_host_pages, struct err *e);
    /* Copies pages[i] of the pool to host_pages[i], or back, for i < n; no page and no host page
     * twice. As if at once: after every earlier submit, copy and swap, before every later one. On a
     * GPU steps run meanwhile, but for those that use one of the pages; what fails is told by the
     * next submit. */
    void (*swap_out)(struct backend *, const int32_t *pages, const int32_t *host_pages, int n);
    void (*swap_in)(struct backend *, const int32_t *pages, const int32_t *host_pages, int n);

    /* --- a step --- */
    struct step_inputs *(*step_begin)(struct backend *); /* empties the plan */

    /* x[row] = weight row ids[row], times `scale`, in float32 */
    void (*embed)(struct backend *, struct activation *x, const struct weight *table, float scale);
    /* out[row] = norm of x[row]; norm NULL: x[row] itself, in out's form */
    void (*norm)(struct backend *, struct activation *out, const struct activation *x,
                 const struct norm *);
    /* x[row] += norm of y[row]: of what a block adds to the residual stream */
    void (*norm_add)(struct backend *, struct activation *x, const struct activation *y,
                     const struct norm *);
    /* As norm, of only the rows in logit_rows; out is a `logit_rows` buffer: out[i] = norm of
     * x[logit_rows[i]] */
    void (*norm_logit_rows)(struct backend *, struct activation *out, const struct activation *x,
                            const struct norm *);
    /* outs[i] = x · w[i]^T (+ bias[i]) for i < n_w (at most 3, all with the same cols).
     * INTO_ACT_MUL has n_w = 2 and one out, whose width is the rows of w; INTO_ACT has n_w = 1.
     * `bias` may be NULL. act_fn is read by these two only. */
    void (*linear)(struct backend *, enum linear_into, enum act_fn, const struct activation *x,
                   int n_w, const struct weight *const *w, const struct weight *const *bias,
                   struct activation *const *outs);
    /* Norms q and k, turns them in place by the rows' positions, and writes k and v of
     * layer `layer` to kv_slots (values beyond the KV type's range are clamped to its largest
     * finite one; NaN stays; of types with scales it makes the token's whole K or V of that head
     * NaN). qk_norm NULL: no norm; rope NULL: no turn. */
    void (*rope_write_kv)(struct backend *, int layer, const struct qk_norm *, const struct rope *,
                          int n_heads, struct activation *q, struct activation *k,
                          struct activation *v);
    /* out[row] = softmax(q · K^T * scale) · V over what the row may see, [n_heads * head_dim].
     * `sinks`, [1][n_heads] or NULL: a logit more in each head's softmax, neither scaled nor
     * capped, that has no value. A NaN among what the row may see makes it NaN; one that it may
     * not see changes no bit. */
    void (*attention)(struct backend *, int layer, const struct attention_config *,
                      const struct weight *sinks, struct activation *out,
                      const struct activation *q);
    /* x = cap * tanh(x / cap), of a plain `logit_rows` buffer */
    void (*soft_cap)(struct backend *, struct activation *x, float cap);
    /* x[row] += sigmoid(in[row] · w) * y[row]; all buffers plain, w: [1][width of in] */
    void (*gated_add)(struct backend *, struct activation *x, const struct activation *y,
                      const struct activation *in, const struct weight *w);
    /* The experts of one layer: p = softmax(router_logits) over all; the n_used best logits (of
     * equal ones the first); their p divided by their sum if so configured;
     *   out[row] (+)= sum of p_e * down_e(act(gate_e(x)) * up_e(x)), from the best on down.
     * into: STORE or ADD. x in the form of its class, router_logits and out plain. A NaN among
     * the router's logits makes the row NaN. */
    void (*moe)(struct backend *, struct moe *, const struct moe_layer *, enum linear_into,
                const struct activation *x, const struct activation *router_logits,
                struct activation *out);

    /* Draws from rows of the plain `logit_rows` buffer; the last operation of a step, which is then
     * started, not submitted. */
    void (*sample)(struct backend *, const struct activation *logits, const struct draw *, int n);

    /* Runs the plan to its end. Nothing that was started may be unfinished. */
    bool (*submit)(struct backend *, struct err *e);
    /* Lets the plan run and returns; the next step's inputs may be filled meanwhile. At most one
     * other step may be started and unfinished. No logits can be read. */
    bool (*start)(struct backend *, struct err *e);
    /* Waits for the oldest step that was started: out[k] of its draws, valid until the next start.
     * What such a step failed with is told here, or by any later call. */
    bool (*finish)(struct backend *, const struct drawn **out, struct err *e);
    /* Host address of a float32 activation's row after submit, valid until the next step_begin. */
    const float *(*read)(struct backend *, const struct activation *, int row);

    /* Runs fn(arg, i) for i in [0, n) on the backend's helpers and returns when all are done:
     * host work between steps (sampling). Items run in any order, each once. */
    void (*host_for)(struct backend *, void (*fn)(void *arg, int i), void *arg, int n);
};

struct backend {
    const struct backend_ops *ops;
    int n_helpers; /* threads that host_for runs on, the engine thread counted */
    /* Known when the weights are loaded: a row's last bits depend on what else is in its step. */
    bool batch_dependent;
    const char *warning; /* what it does without, and what that costs; NULL: nothing */
};

/* Opens the CPU backend. `max_*` bound every step. */
struct backend *backend_cpu_open(const struct backend_config *, struct err *e);

#endif
