/* cuda_backend.h: what the files of the CUDA backend share.
 *
 * cuda_backend.c has the table, opening and the KV pool; cuda_memory.c memory of the device and
 * copies to it; cuda_weights.c and cuda_rows.c what the model loads; cuda_record.c records a step,
 * cuda_inputs.c uploads what it reads, cuda_step.c and cuda_linears.c run it, or cuda_graph.c does
 * by a graph; cuda_sampler.c draws from its logits. All of it runs on one stream, but for
 * cuda_swap.c's copies of pages. */
#ifndef TOKEND_CUDA_BACKEND_H
#define TOKEND_CUDA_BACKEND_H

#include <cuda_runtime_api.h>

#include "backend.h"
#include "blocks.h"
#include "cublas_linear.h"
#include "kernels.h"
#include "panel.h"
#include "team.h"

/* Memory of the device that is given back at close only: small parts lie side by side in pieces
 * that they share. */
struct cuda_arena {
    struct cuda_piece *pieces;
    uint8_t *at; /* in the newest shared piece */
    size_t left;
    uint64_t bytes; /* of all pieces */
};

/* A buffer whose content no operation leaves to another */
struct cuda_scratch {
    void *at;
    size_t bytes;
};

struct weight {
    enum dtype type;
    int64_t rows, cols;
    float *vector;             /* [cols] on the device; NULL: a matrix */
    struct cuda_matrix matrix; /* data NULL: a vector */
};

/* The forms of rows. A linear of float weights reads their type; the float32 rows beside it are
 * what it is made from, and what readers of another type get. */
enum rows_form {
    ROWS_PLAIN,     /* float32 */
    ROWS_FLOAT,     /* values, and float32 where some reader wants it */
    ROWS_QUANTISED, /* int8 blocks */
};
struct activation {
    int width, max_rows;
    bool logit_rows;
    enum rows_form form;
    float *f;     /* [max_rows][width]; of ROWS_QUANTISED NULL */
    bool wants_f; /* of ROWS_FLOAT: f is written, too */
    struct cuda_rows
        rows; /* values: f itself where that is the same; the stride of q is the step's */
    /* Of plain logit rows: a pinned copy of those that the step wrote */
    float *host;
    bool written;
    struct activation *next_host;
};

/* The experts of a layer, whose weights' places are on the device; `of` says which layer */
struct cuda_layer_experts {
    const struct weight *const *of;
    struct cuda_moe_layer layer;
    struct cuda_layer_experts *next;
};
struct moe {
    struct cuda_moe moe;
    struct cuda_layer_experts *layers;
};

struct rope {
    struct cuda_rope rope;
    int max_positions;
};

enum op {
    OP_EMBED,
    OP_NORM,
    OP_NORM_ADD,
    OP_LINEAR,
    OP_ROPE_WRITE_KV,
    OP_ATTENTION,
    OP_SOFT_CAP,
    OP_GATED_ADD,
    OP_MOE,
};
struct record {
    enum op op;
    struct activation *out;     /* what it writes; of linear: outs */
    const struct activation *x; /* what it reads */
    union {
        struct {
            const struct weight *table;
            float scale;
        } embed;
        struct cuda_norm norm; /* w NULL: none */
        struct {
            enum linear_into into;
            enum act_fn act;
            int n_w;
            const struct weight *w[CUDA_MAX_JOBS], *bias[CUDA_MAX_JOBS];
            struct activation *outs[CUDA_MAX_JOBS];
        } linear;
        struct {
            int layer, n_heads;
            struct cuda_qk_norm norm;
            const struct rope *rope; /* NULL: no turn */
            struct activation *q, *k, *v;
        } rope;
        struct {
            int layer, window; /* window: which of the step's */
            struct attention_config config;
            const float *sinks;
        } attention;
        float cap;
        struct {
            const struct activation *in;
            const float *w;
        } gated_add;
        struct {
            enum linear_into into;
            const struct moe *moe;
            const struct cuda_moe_layer *layer;
            const struct activation *logits;
        } moe;
    };
};

enum {
    CUDA_MAX_WINDOWS = 4,
    CUDA_FIRST_PLAN = 256, /* records before kv_open says how many layers there are */
    CUDA_UPLOAD_BYTES = 4 << 20,
    CUDA_STEPS_AHEAD = 2,       /* steps whose inputs may be on their way */
    CUDA_MOST_GRAPH_ROWS = 256, /* of a decode step that is run as a graph */
};

/* Its float32 rows are all that it has. */
static inline bool cuda_is_float(const struct activation *a)
{
    return a->f && (a->form == ROWS_PLAIN || a->rows.values == a->f);
}

static inline bool cuda_is_quantised(enum dtype t)
{
    return panel_form(t).bits > 0;
}

enum { CUDA_FLOAT_STEP = 32 }; /* float rows that linears read are padded to a multiple of it */
static inline int64_t cuda_float_stride(int64_t width)
{
    return (width + CUDA_FLOAT_STEP - 1) / CUDA_FLOAT_STEP * CUDA_FLOAT_STEP;
}

/* What steps read besides activations: packed into pinned memory, one half after the other, and
 * copied by one call */
struct cuda_inputs {
    uint8_t *host[CUDA_STEPS_AHEAD], *device;
    cudaEvent_t copied[CUDA_STEPS_AHEAD]; /* the half may be filled again */
    int next;
    size_t bytes;    /* of each */
    int32_t *tables; /* [max_seqs] where the page table of each of the step's sequences begins */
};

/* The shape of a step and where its inputs are on the device. With the plan it is all that the
 * step's launches depend on; graphs are found by it, compared byte by byte. */
struct cuda_step {
    /* A decode step whose shape other steps share: padded with rows that mean nothing, attention
     * launched for what any of them needs */
    bool fixed;
    int n_rows, n_seqs, n_logits; /* with padding */
    const void *pool;
    const int32_t *ids, *positions, *slots, *logit_rows;
    struct cuda_attention_step attention[CUDA_MAX_WINDOWS];
};

/* Pages in pinned memory of the host, and copies to and from there. Batches of copies are counted
 * from 1. */
enum { CUDA_SWAP_EVENTS = 16 };
struct cuda_swap {
    uint8_t *host; /* [n_pages] */
    int n_pages;
    cudaStream_t stream;
    cudaEvent_t given;                  /* of the steps' stream: all that it was given so far */
    cudaEvent_t done[CUDA_SWAP_EVENTS]; /* of the last batches, by number */
    uint64_t *last;                     /* [pages of the device] its last batch */
    uint64_t n_batches, n_waited;       /* n_waited: those that the steps' stream waits for */
};

struct cuda_backend {
    struct backend base;
    struct backend_config config;
    char description[160], warning[800];
    struct team *team;
    cudaStream_t stream;
    bool failed;
    struct err fault;         /* of the first call that failed: nothing runs any more */
    struct err library_fault; /* what cudaErrorUnknown of cuda_run_linear stands for */

    struct blocks blocks; /* of the host */
    struct cuda_pinned *pinned;
    struct cuda_arena weights, activations, kv_memory;
    uint64_t scratch_bytes;
    /* Loading: halves of a pinned buffer, and when the copy of each has been done */
    uint8_t *upload[2];
    cudaEvent_t uploaded[2];
    int next_upload;

    /* Rows of float32 before they become what their readers want; of a linear of two types, the
     * other one; rows of a reader whose type is another than the buffer's */
    struct cuda_scratch staging, staging_up, converted;
    struct cublas *cublas;        /* NULL: own kernels */
    bool asked_cublas;            /* some weight is of a float type */
    struct activation *host_rows; /* those with a pinned copy */

    struct cuda_kv kv;
    int n_pages;
    struct cuda_attention attention;
    float *partials;
    size_t partials_bytes;
    struct cuda_swap swap;

    struct step_inputs inputs;
    struct cuda_inputs uploads;
    struct cuda_graphs *graphs;   /* NULL: none are wanted */
    struct cuda_sampler *sampler; /* NULL: nothing is drawn on the device */
    struct record *plan;
    int n_plan, max_plan;
    int windows[CUDA_MAX_WINDOWS], n_windows; /* of this step's attention */
    struct cuda_step step;
};

static inline struct cuda_backend *cuda_of(struct backend *b)
{
    return (struct cuda_backend *)b;
}

/* --- cuda_memory.c --- */

enum { CUDA_PIECE = 2 << 20 }; /* what the driver gives is a multiple of it */

/* NULL and *e, which names `what`, when the device has not as much */
void *cuda_arena_take(struct cuda_arena *, size_t bytes, const char *what, struct err *e);
/* In a piece of its own, however small */
void *cuda_arena_take_apart(struct cuda_arena *, size_t bytes, const char *what, struct err *e);
void cuda_arena_free(struct cuda_arena *);
/* Room for at least so many bytes; what was there is lost. */
bool cuda_scratch_reserve(struct cuda_backend *, struct cuda_scratch *, size_t bytes,
                          struct err *e);
void cuda_scratch_free(struct cuda_scratch *);
/* Pinned memory of the host, freed at close */
void *cuda_pinned_take(struct cuda_backend *, size_t bytes, const char *what, struct err *e);
void cuda_pinned_free(struct cuda_backend *);
/* Copies to the device at once. */
bool cuda_put(void *to, const void *from, size_t bytes, const char *what, struct err *e);
/* False and *e, which says what was done, unless it succeeded */
bool cuda_check(cudaError_t, const char *what, struct err *e);

/* --- cuda_swap.c: the table's functions --- */

bool cuda_swap_open(struct backend *, int n_host_pages, struct err *e);
void cuda_swap_out(struct backend *, const int32_t *pages, const int32_t *host_pages, int n);
void cuda_swap_in(struct backend *, const int32_t *pages, const int32_t *host_pages, int n);
void cuda_swap_close(struct cuda_backend *);
/* What the stream is given from now on may use this page, or those of the step that is recorded. */
void cuda_swap_wait_page(struct cuda_backend *, int page);
void cuda_swap_wait_step(struct cuda_backend *);

/* --- cuda_weights.c: the table's functions --- */

struct weight *cuda_weight_load(struct backend *, enum dtype, int64_t rows, int64_t cols,
                                const void *src, struct err *e);
void cuda_weights_loaded(struct backend *);
void cuda_uploads_close(struct cuda_backend *);

/* --- cuda_rows.c --- */

struct activation *cuda_activation_new(struct backend *, int width, const struct weight *reader,
                                       bool logit_rows, struct err *e);
struct rope *cuda_rope_new(struct backend *, const struct rope_config *, struct err *e);

/* --- cuda_experts.c --- */

struct moe *cuda_moe_new(struct backend *, const struct moe_config *, struct err *e);
bool cuda_moe_layer_new(struct backend *, struct moe *, const struct moe_layer *, struct err *e);
const struct cuda_moe_layer *cuda_moe_layer_of(const struct moe *, const struct moe_layer *);

/* --- cuda_linears.c --- */

/* There will be linears of float weights: cuBLASLt is opened for them, unless it is missing or
 * would break a promise. */
void cuda_linears_open(struct cuda_backend *);
void cuda_linears_close(struct cuda_backend *);
/* Appends to b->description what they run on. */
void cuda_linears_describe(struct cuda_backend *);

/* --- cuda_record.c; recording is in cuda_record.h --- */

bool cuda_plan_grow(struct cuda_backend *, int n_layers, struct err *e);

/* --- cuda_sampler.c: the table's functions, and --- */

bool cuda_sampler_open(struct backend *, const struct sampler_config *, struct err *e);
void cuda_sampler_close(struct cuda_backend *);
void cuda_record_sample(struct backend *, const struct activation *logits, const struct draw *,
                        int n);
bool cuda_start(struct backend *, struct err *e);
bool cuda_finish(struct backend *, const struct drawn **out, struct err *e);
/* A step's recording begins. */
void cuda_sampler_begin(struct cuda_backend *);
/* On the device: the tokens of the last step that drew some; NULL: no step does. */
const int32_t *cuda_drawn_ids(const struct cuda_backend *);
bool cuda_nothing_started(const struct cuda_backend *);

/* --- cuda_inputs.c --- */

/* Bytes of a step's packed inputs at most */
size_t cuda_inputs_bytes(const struct cuda_backend *, const struct cuda_attention *);
bool cuda_inputs_open(struct cuda_backend *, struct err *e);
void cuda_inputs_close(struct cuda_backend *);
/* Chooses the step's shape and sends its inputs to the device, behind what the stream does
 * already. Waits where CUDA_STEPS_AHEAD earlier steps' are still on their way. */
cudaError_t cuda_inputs_upload(struct cuda_backend *);

/* --- cuda_graph.c --- */

/* After the plan has its full size */
bool cuda_graphs_open(struct cuda_backend *, struct err *e);
/* Whether there are, or may come to be, graphs */
bool cuda_graphs_wanted(const struct cuda_backend *);
/* Of the device, as far as it can be told */
uint64_t cuda_graphs_bytes(const struct cuda_backend *);
/* Destroys them: at the end, and when something changed that launches depend on and that neither
 * the plan nor the step's shape shows. */
void cuda_graphs_forget(struct cuda_backend *);
/* Launches the graph of the step's plan, once its inputs are on their way; false: there
 * is none. */
bool cuda_graph_launch(struct cuda_backend *, cudaError_t *);
/* After these operations' kernels were launched: captures them for later steps of the shape, if it
 * is a fixed one. */
void cuda_graph_keep(struct cuda_backend *);

/* --- cuda_step.c, cuda_linears.c --- */

bool cuda_submit(struct backend *, struct err *e);
/* Uploads what the recorded step reads and launches its kernels. */
bool cuda_launch_step(struct cuda_backend *);
/* False: the device failed, and b->fault says with what first. */
bool cuda_note(struct cuda_backend *, cudaError_t, const char *what);
/* Launches the kernels of the plan; *at: the operation that failed. */
cudaError_t cuda_run_plan(struct cuda_backend *, int *at);
/* The rows of the step that an activation has, with padding */
static inline int cuda_rows(const struct cuda_backend *b, const struct activation *a)
{
    return a->logit_rows ? b->step.n_logits : b->step.n_rows;
}
/* Where an operation writes float32 rows of `a`, and what then makes of them what its readers
 * want */
float *cuda_rows_begin(struct cuda_backend *, struct activation *);
cudaError_t cuda_rows_end(struct cuda_backend *, struct activation *, int n);
/* The rows of x as weights of `type` read them */
cudaError_t cuda_rows_as(struct cuda_backend *, const struct activation *x, enum dtype type, int n,
                         struct cuda_rows *rows);
cudaError_t cuda_run_linear(struct cuda_backend *, const struct record *);

#endif
