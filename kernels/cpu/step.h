/* step.h: the recorded operations of a step, and how they are run.
 *
 * Recording appends to a fixed array; submit walks it with all members of the team in lockstep.
 * Every operation is split into units that members claim, and ends at a barrier. Sizes come
 * from the step's inputs, which are complete only at submit. */
#ifndef TOKEND_STEP_H
#define TOKEND_STEP_H

#include "blocks.h"
#include "kernels.h"
#include "team.h"

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

struct rope {
    enum rope_style style;
    int n_dims, max_positions;
    float *table; /* [max_positions][cos n_dims/2, sin n_dims/2] */
};

struct record {
    enum op op;
    union {
        struct {
            struct activation *x;
            const struct weight *table;
            float scale;
        } embed;
        struct {
            struct activation *out;
            const struct activation *x;
            struct norm norm;
        } norm; /* also norm_add's: out += norm(x) */
        struct {
            enum linear_into into;
            enum act_fn act;
            int n_w;
            const struct activation *x;
            const struct weight *w[3], *bias[3];
            struct activation *outs[3];
        } linear;
        struct {
            int layer, n_heads;
            struct qk_norm norm; /* weights NULL: none */
            const struct rope *rope;
            struct activation *q, *k, *v;
        } rope;
        struct {
            int layer;
            struct attention_config config;
            const float *sinks; /* [n_heads], NULL: none */
            struct activation *out;
            const struct activation *q;
        } attention;
        struct {
            struct activation *x;
            float cap;
        } soft_cap;
        struct {
            struct activation *x;
            const struct activation *y, *in;
            const struct weight *w;
        } gated_add;
        struct {
            struct moe *moe;
            struct moe_layer layer;
            enum linear_into into;
            const struct activation *x, *router_logits;
            struct activation *out;
        } moe;
    };
};

/* A row that attends alone, its segments being units of work (sequences of few rows), … */
struct lone_row {
    int row, seq, pos;
};
/* … or up to QUERY_TILE rows of a sequence that one unit takes through all segments. */
struct query_tile {
    int row, n_rows, seq, pos;
};
#define QUERY_TILE 32
#define LONE_ROWS 4 /* most rows of a sequence that attend alone */

/* What one member works in; fixed sizes but for `attend`. */
struct worker {
    float *out;    /* linear: [2][TOKEN_TILE][LINEAR_STRIDE], before the epilogue */
    float *row;    /* [widest activation]: a row before it is quantised */
    float *attend; /* attention: scratch, queries and partial results of a tile */
};
#define LINEAR_PANELS 8 /* most panels of a unit */
#define LINEAR_STRIDE (LINEAR_PANELS * PANEL + 16)

struct cpu_backend {
    struct backend base;
    struct backend_config config;
    const struct kernels *kernels;
    struct team *team;
    struct blocks blocks;
    struct backend_memory memory;
    struct packing *packing; /* NULL: no repack cache */
    char description[64];
    struct step_inputs inputs;

    struct record *plan;
    int n_plan, max_plan;
    struct worker *workers; /* [team_size] */
    int widest;             /* of all activations but those of logit rows */
    int widest_plain;       /* of those that no linear reads */

    struct kv_pool kv; /* data NULL before kv_open */
    uint8_t *swap;     /* [n_swap][kv.page_bytes], NULL before swap_open */
    int n_swap;
    struct lone_row *lone;
    struct query_tile *tiles;
    int n_lone, n_tiles;
    float *parts;     /* partial results of lone rows */
    size_t max_parts; /* floats */
    float *staging;   /* [max_rows][widest_plain]: attention's output before it is quantised */
};

/* Rows of an activation in this step */
static inline int step_rows(const struct cpu_backend *b, const struct activation *a)
{
    return a->logit_rows ? b->inputs.n_logits : b->inputs.n_rows;
}

/* Rows [*first, *end) of unit u when n rows are shared out among the team: contiguous, because
 * neighbouring rows share cache lines. False past the end. */
bool step_row_share(const struct cpu_backend *b, int n, int u, int *first, int *end);

/* Bytes that attention over such a pool takes besides it, given the activations so far. */
uint64_t step_attention_bytes(const struct cpu_backend *b, const struct kv_pool *);
/* Takes them; after kv_open and after every wider activation. */
bool step_attention_reserve(struct cpu_backend *b, struct err *e);
/* Sorts the step's rows into lone rows and tiles; before the team starts. */
void step_attention_plan(struct cpu_backend *b);

/* A buffer of max_rows rows of this width, plain or in quantised form. */
struct activation *step_rows_new(struct cpu_backend *b, int width, int max_rows, bool quantised,
                                 struct err *e);

/* The n rows in x, as a linear reads them */
static inline struct rows_view step_view(const struct activation *x, int n)
{
    return (struct rows_view){.f = x->f,
                              .stride = x->stride,
                              .exact = x->exact,
                              .q = x->q,
                              .d = x->d,
                              .s = x->s,
                              .sums = x->sums,
                              .qstride = activation_qstride(x, n),
                              .planes = x->planes};
}

/* y = panels [p0, p1) of w times rows [t0, t0 + n) of x, n <= step_tile: LINEAR_STRIDE from row to
 * row, and TOKEN_TILE rows of room. Of two planes it is the sum of their products. */
void step_product(const struct cpu_backend *, const struct weight *w, const struct rows_view *x,
                  int t0, int n, int p0, int p1, float *y);
static inline int step_tile(const struct activation *x)
{
    return TOKEN_TILE / x->planes;
}

/* Values [first, first + n_outs) of rows [row, row + n) */
struct tile {
    int row, n, first, n_outs;
};
/* Stores them in out, which has n_rows in all, in its form; y: LINEAR_STRIDE from row to row */
void step_store(const struct cpu_backend *, const struct activation *out, int n_rows,
                const struct tile *at, const float *y);

/* One operation, called by every member. */
void step_moe(struct cpu_backend *b, const struct record *r, int member);
void step_linear(struct cpu_backend *b, const struct record *r, int member);
void step_attention(struct cpu_backend *b, const struct record *r, int member);

/* Runs the plan. */
void step_run(struct cpu_backend *b);

#endif
