/* Which tiles of rows a step's attention has, and which of them are split. The host's only. */
#include "kernels.h"

enum { SEGMENT = CUDA_ATTENTION_SEGMENT, WARP_ROWS = 16, PARTIAL_EXTRA = 4 };

static int group_of(const struct cuda_attention *a)
{
    return a->n_heads / a->n_kv_heads;
}

static size_t most_tiles(const struct cuda_attention *a, enum cuda_attention_kind kind,
                         int max_rows, int max_seqs)
{
    size_t rows = (size_t)WARP_ROWS * a->kinds[kind].warps;
    return kind == CUDA_NARROW ? (size_t)max_seqs
                               : max_seqs + (size_t)max_rows * group_of(a) / rows;
}

size_t cuda_attention_plan_bytes(const struct cuda_attention *a, int max_rows, int max_seqs)
{
    size_t tiles = 0;
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++)
        tiles += most_tiles(a, (enum cuda_attention_kind)k, max_rows, max_seqs);
    return sizeof(struct cuda_attention_plan) + tiles * sizeof(struct cuda_attention_tile) +
           (size_t)max_rows * sizeof(struct cuda_attention_row);
}

/* A plan in the making */
struct planner {
    const struct cuda_attention *a;
    struct cuda_attention_plan *plan;
    struct cuda_attention_tile *tiles[CUDA_ATTENTION_KINDS];
    struct cuda_attention_row *rows;
    int window;
    int64_t partials; /* that the buffer has room for */
};

static int first_segment(const struct planner *p, int position)
{
    return p->window > 0 && position >= p->window ? (position - p->window + 1) / SEGMENT : 0;
}

static enum cuda_attention_kind kind_of(const struct planner *p, const struct step_seq *s)
{
    return (int64_t)s->n_rows * group_of(p->a) <= WARP_ROWS ? CUDA_NARROW : CUDA_WIDE;
}

static int tile_rows(const struct planner *p, enum cuda_attention_kind kind)
{
    return WARP_ROWS * p->a->kinds[kind].warps;
}

/* Tile i of a sequence */
static struct cuda_attention_tile tile_of(const struct planner *p, const struct step_seq *s, int i)
{
    int group = group_of(p->a), rows = tile_rows(p, kind_of(p, s));
    int first = i * rows, left = s->n_rows * group - first, n = left < rows ? left : rows;
    struct cuda_attention_tile t = {};
    t.row = s->row + first / group;
    t.position = s->start + first / group;
    t.head = first % group;
    t.n_rows = n;
    t.segment = first_segment(p, t.position);
    t.n_segments = (s->start + (first + n - 1) / group) / SEGMENT - t.segment + 1;
    return t;
}

static int n_tiles(const struct planner *p, const struct step_seq *s)
{
    int rows = tile_rows(p, kind_of(p, s));
    return (s->n_rows * group_of(p->a) + rows - 1) / rows;
}

/* How many segments a tile may have before it is split: such that a block that has a whole tile
 * has not more than half of what each has on average */
static void split_limits(const struct planner *p, const struct step_seq *seqs, int n_seqs,
                         int64_t limits[CUDA_ATTENTION_KINDS])
{
    int64_t segments[CUDA_ATTENTION_KINDS] = {};
    for (int i = 0; i < n_seqs; i++)
        for (int t = 0; t < n_tiles(p, &seqs[i]); t++)
            segments[kind_of(p, &seqs[i])] += tile_of(p, &seqs[i], t).n_segments;
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++) {
        limits[k] = segments[k] * p->a->n_kv_heads / (2 * p->a->kinds[k].blocks);
        limits[k] = limits[k] < 1 ? 1 : limits[k];
    }
}

/* Gives the rows of a sequence their partial results; whether there was room. */
static bool take_partials(struct planner *p, const struct step_seq *s)
{
    int64_t used = p->plan->n_partials;
    for (int r = 0; r < s->n_rows; r++) {
        int position = s->start + r;
        used += (int64_t)p->a->n_heads * (position / SEGMENT - first_segment(p, position) + 1);
    }
    if (used > p->partials)
        return false;
    used = p->plan->n_partials;
    for (int r = 0; r < s->n_rows; r++) {
        int position = s->start + r;
        p->rows[s->row + r].partial = (int32_t)used;
        p->rows[s->row + r].position = position;
        used += (int64_t)p->a->n_heads * (position / SEGMENT - first_segment(p, position) + 1);
    }
    p->plan->n_partials = (int32_t)used;
    return true;
}

/* The last tile, which sees most, comes first. */
static void add_sequence(struct planner *p, const struct step_seq *s, int seq, int64_t limit)
{
    enum cuda_attention_kind kind = kind_of(p, s);
    int last = n_tiles(p, s) - 1;
    bool split = last >= 0 && tile_of(p, s, last).n_segments > limit && take_partials(p, s);
    for (int i = last; i >= 0; i--) {
        struct cuda_attention_tile *t = &p->tiles[kind][p->plan->n_tiles[kind]++];
        *t = tile_of(p, s, i);
        t->seq = seq;
        t->split = split;
        t->unit = p->plan->n_units[kind];
        p->plan->n_units[kind] += p->a->n_kv_heads * (split ? t->n_segments : 1);
    }
}

void cuda_attention_plan_make(const struct cuda_attention *a, struct cuda_attention_plan *plan,
                              int max_rows, int max_seqs, const struct step_seq *seqs, int n_seqs,
                              int window, size_t partials)
{
    struct planner p = {a, plan, {}, NULL, window, 0};
    int64_t limits[CUDA_ATTENTION_KINDS];
    size_t at = sizeof *plan;
    *plan = {};
    p.partials = (int64_t)(partials / (sizeof(float) * (a->head_dim + PARTIAL_EXTRA)));
    p.partials = p.partials > INT32_MAX ? INT32_MAX : p.partials;
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++) {
        plan->tiles_at[k] = (int32_t)at;
        p.tiles[k] = (struct cuda_attention_tile *)((char *)plan + at);
        at += most_tiles(a, (enum cuda_attention_kind)k, max_rows, max_seqs) *
              sizeof(struct cuda_attention_tile);
    }
    plan->rows_at = (int32_t)at;
    p.rows = (struct cuda_attention_row *)((char *)plan + at);
    for (int i = 0; i < max_rows; i++)
        p.rows[i].partial = -1;
    split_limits(&p, seqs, n_seqs, limits);
    for (int i = 0; i < n_seqs; i++) {
        add_sequence(&p, &seqs[i], i, limits[kind_of(&p, &seqs[i])]);
        plan->n_rows = seqs[i].row + seqs[i].n_rows;
    }
}

/* Narrow tiles' blocks share the units; a wide one, whose units differ, has one. */
struct cuda_attention_grid cuda_attention_grid_of(const struct cuda_attention *a,
                                                  const struct cuda_attention_plan *plan)
{
    int narrow = plan->n_units[CUDA_NARROW], most = a->kinds[CUDA_NARROW].blocks;
    return {{narrow < most ? narrow : most, plan->n_units[CUDA_WIDE]},
            plan->n_partials > 0 ? plan->n_rows : 0};
}

struct cuda_attention_grid cuda_attention_grid_any(const struct cuda_attention *a, int n_rows)
{
    return {{a->kinds[CUDA_NARROW].blocks, a->kinds[CUDA_WIDE].blocks}, n_rows};
}
