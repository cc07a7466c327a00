/* Which tiles of rows a step's attention has, which of them are split, and which are shared by
 * sequences that begin with the same pages. The host's only. */
#include "attention_share.h"
#include "kernels.h"

enum { SEGMENT = CUDA_ATTENTION_SEGMENT, WARP_ROWS = 16, PARTIAL_EXTRA = 4 };

static int group_of(const struct cuda_attention *a)
{
    return a->n_heads / a->n_kv_heads;
}

/* Of each kind at most max_seqs are shared ones. */
static size_t most_tiles(const struct cuda_attention *a, enum cuda_attention_kind kind,
                         int max_rows, int max_seqs)
{
    size_t rows = (size_t)WARP_ROWS * a->kinds[kind].warps, seqs = (size_t)max_seqs;
    return 2 * seqs + (kind == CUDA_WIDE ? (size_t)max_rows * group_of(a) / rows : 0);
}

/* What the search for groups works with, for each sequence */
struct share_scratch {
    struct share_item item;
    struct share_span span;
    int32_t own; /* first segment that the sequence does not share */
};

size_t cuda_attention_plan_bytes(const struct cuda_attention *a, int max_rows, int max_seqs)
{
    size_t tiles = 0;
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++)
        tiles += most_tiles(a, (enum cuda_attention_kind)k, max_rows, max_seqs);
    return sizeof(struct cuda_attention_plan) + tiles * sizeof(struct cuda_attention_tile) +
           (size_t)max_rows *
               (sizeof(struct cuda_attention_row) + sizeof(struct cuda_attention_member)) +
           (size_t)max_seqs * sizeof(struct share_scratch);
}

/* A plan in the making */
struct planner {
    const struct cuda_attention *a;
    struct cuda_attention_plan *plan;
    const struct step_seq *seqs;
    int n_seqs, max_seqs;
    int window;
    int64_t partials; /* that the buffer has room for */
    struct cuda_attention_tile *tiles[CUDA_ATTENTION_KINDS];
    struct cuda_attention_row *rows;
    struct cuda_attention_member *members;
    struct share_item *items; /* sequences in the order of their members */
    struct share_span *spans;
    int32_t *own;
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

/* Tile i of a sequence, whose first token is member `member` */
static struct cuda_attention_tile tile_of(const struct planner *p, int seq, int member, int i)
{
    const struct step_seq *s = &p->seqs[seq];
    int group = group_of(p->a), rows = tile_rows(p, kind_of(p, s));
    int first = i * rows, left = s->n_rows * group - first, n = left < rows ? left : rows;
    struct cuda_attention_tile t = {};
    t.seq = seq;
    t.member = member + first / group;
    t.low = s->start + first / group;
    t.high = s->start + (first + n - 1) / group;
    t.head = first % group;
    t.n_rows = n;
    t.segment = first_segment(p, t.low);
    if (t.segment < p->own[seq])
        t.segment = p->own[seq];
    t.n_segments = t.high / SEGMENT - t.segment + 1;
    return t;
}

static int n_tiles(const struct planner *p, const struct step_seq *s)
{
    int rows = tile_rows(p, kind_of(p, s));
    return (s->n_rows * group_of(p->a) + rows - 1) / rows;
}

static void add_tile(struct planner *p, enum cuda_attention_kind kind,
                     const struct cuda_attention_tile *t)
{
    struct cuda_attention_tile *to = &p->tiles[kind][p->plan->n_tiles[kind]++];
    *to = *t;
    to->unit = p->plan->n_units[kind];
    p->plan->n_units[kind] += p->a->n_kv_heads * (t->split ? t->n_segments : 1);
}

/* --- partial results --- */

static bool has_partials(const struct planner *p, const struct step_seq *s)
{
    return s->n_rows > 0 && p->rows[s->row].partial >= 0;
}

/* That the rows of a sequence would have */
static int64_t partials_of(const struct planner *p, const struct step_seq *s)
{
    int64_t n = 0;
    for (int position = s->start; position < s->start + s->n_rows; position++)
        n += (int64_t)p->a->n_heads * (position / SEGMENT - first_segment(p, position) + 1);
    return n;
}

static bool there_is_room(const struct planner *p, int64_t partials)
{
    return p->plan->n_partials + partials <= p->partials;
}

/* Gives the rows of a sequence their partial results; there is room. */
static void take_partials(struct planner *p, const struct step_seq *s)
{
    for (int r = 0; r < s->n_rows; r++) {
        int position = s->start + r;
        p->rows[s->row + r].partial = p->plan->n_partials;
        p->rows[s->row + r].position = position;
        p->plan->n_partials +=
            p->a->n_heads * (position / SEGMENT - first_segment(p, position) + 1);
    }
}

/* --- shared tiles --- */

/* A group of neighbours among the items: whose members are neighbours, too */
struct share_group {
    int first, n;
    int member, n_tokens;
    int low, high;    /* positions */
    int64_t partials; /* that its sequences still lack */
};

static struct share_group group_at(const struct planner *p, int first, int n)
{
    struct share_group g = {first, n, 0, 0, INT32_MAX, 0, 0};
    for (int i = 0; i < first; i++)
        g.member += p->seqs[p->items[i].seq].n_rows;
    for (int i = first; i < first + n; i++) {
        const struct step_seq *s = &p->seqs[p->items[i].seq];
        int last = s->start + s->n_rows - 1;
        g.n_tokens += s->n_rows;
        g.low = s->start < g.low ? s->start : g.low;
        g.high = last > g.high ? last : g.high;
        g.partials += has_partials(p, s) ? 0 : partials_of(p, s);
    }
    return g;
}

static void add_shared_tiles(struct planner *p, const struct share_group *g,
                             enum cuda_attention_kind kind, int from, int to)
{
    int group = group_of(p->a), rows = tile_rows(p, kind), n = g->n_tokens * group;
    for (int first = 0; first < n; first += rows) {
        struct cuda_attention_tile t = {};
        t.seq = p->items[g->first].seq;
        t.member = g->member + first / group;
        t.low = g->low;
        t.high = g->high;
        t.head = first % group;
        t.n_rows = n - first < rows ? n - first : rows;
        t.segment = from;
        t.n_segments = to - from;
        t.split = true;
        add_tile(p, kind, &t);
    }
}

/* Found: items that share segments [from, to). Those that nobody's window reaches need no tile. */
static bool share(void *arg, int first, int n, int from, int to)
{
    struct planner *p = (struct planner *)arg;
    struct share_group g = group_at(p, first, n);
    int64_t rows = (int64_t)g.n_tokens * group_of(p->a);
    enum cuda_attention_kind kind = rows <= WARP_ROWS ? CUDA_NARROW : CUDA_WIDE;
    int64_t tiles = (rows + tile_rows(p, kind) - 1) / tile_rows(p, kind);
    int seen = first_segment(p, g.low);
    seen = seen < from ? from : seen;
    if (seen < to) {
        if (p->plan->n_tiles[kind] + tiles > p->max_seqs || !there_is_room(p, g.partials))
            return false;
        for (int i = first; i < first + n; i++)
            if (!has_partials(p, &p->seqs[p->items[i].seq]))
                take_partials(p, &p->seqs[p->items[i].seq]);
        add_shared_tiles(p, &g, kind, seen, to);
    }
    for (int i = first; i < first + n; i++)
        p->own[p->items[i].seq] = to;
    return true;
}

/* Shared tiles of narrow sequences: segments that end before their first row. Lists the members,
 * in an order in which groups are neighbours. */
static void share_prefixes(struct planner *p, const struct cuda_attention_pages *pages)
{
    struct share_search search = {};
    int n = 0, member = 0;
    for (int i = 0; i < p->n_seqs; i++) {
        p->own[i] = 0;
        if (pages && p->seqs[i].n_rows > 0 && kind_of(p, &p->seqs[i]) == CUDA_NARROW)
            p->items[n++] = {i, p->seqs[i].start / SEGMENT, 0};
    }
    if (pages)
        search = {pages->tables,
                  pages->max_pages,
                  pages->block_size,
                  SEGMENT,
                  p->items,
                  n,
                  p->spans,
                  share,
                  p};
    attention_share_find(&search);
    for (int i = 0; i < n; i++)
        for (int r = 0; r < p->seqs[p->items[i].seq].n_rows; r++) {
            const struct step_seq *s = &p->seqs[p->items[i].seq];
            p->members[member++] = {s->row + r, s->start + r};
        }
    p->plan->n_members = member;
}

/* --- the rest of each sequence --- */

/* How many segments a tile may have before it is split: such that a block that has a whole tile
 * has not more than half of what each has on average */
static void split_limits(const struct planner *p, int64_t limits[CUDA_ATTENTION_KINDS])
{
    int64_t segments[CUDA_ATTENTION_KINDS] = {};
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++) /* the shared ones */
        segments[k] = p->plan->n_units[k] / p->a->n_kv_heads;
    for (int i = 0; i < p->n_seqs; i++)
        for (int t = 0; t < n_tiles(p, &p->seqs[i]); t++)
            segments[kind_of(p, &p->seqs[i])] += tile_of(p, i, 0, t).n_segments;
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++) {
        limits[k] = segments[k] * p->a->n_kv_heads / (2 * p->a->kinds[k].blocks);
        limits[k] = limits[k] < 1 ? 1 : limits[k];
    }
}

/* The last tile, which sees most, comes first. */
static void add_sequence(struct planner *p, int seq, int member, int64_t limit)
{
    const struct step_seq *s = &p->seqs[seq];
    int last = n_tiles(p, s) - 1;
    bool split = has_partials(p, s);
    if (!split && last >= 0 && tile_of(p, seq, member, last).n_segments > limit &&
        there_is_room(p, partials_of(p, s))) {
        take_partials(p, s);
        split = true;
    }
    for (int i = last; i >= 0; i--) {
        struct cuda_attention_tile t = tile_of(p, seq, member, i);
        t.split = split;
        add_tile(p, kind_of(p, s), &t);
    }
}

static void add_sequences(struct planner *p, bool shared)
{
    int64_t limits[CUDA_ATTENTION_KINDS];
    int member = 0;
    split_limits(p, limits);
    for (int i = 0; shared && member < p->plan->n_members; i++) {
        int seq = p->items[i].seq;
        add_sequence(p, seq, member, limits[CUDA_NARROW]);
        member += p->seqs[seq].n_rows;
    }
    for (int i = 0; i < p->n_seqs; i++) {
        const struct step_seq *s = &p->seqs[i];
        if (shared && kind_of(p, s) == CUDA_NARROW)
            continue;
        for (int r = 0; r < s->n_rows; r++)
            p->members[member + r] = {s->row + r, s->start + r};
        add_sequence(p, i, member, limits[kind_of(p, s)]);
        member += s->n_rows;
    }
}

/* Places the plan's parts; those of the search are behind all that the device reads. */
static void lay_out(struct planner *p, int max_rows)
{
    struct cuda_attention_plan *plan = p->plan;
    char *at = (char *)(plan + 1);
    for (int k = 0; k < CUDA_ATTENTION_KINDS; k++) {
        plan->tiles_at[k] = (int32_t)(at - (char *)plan);
        p->tiles[k] = (struct cuda_attention_tile *)at;
        at += most_tiles(p->a, (enum cuda_attention_kind)k, max_rows, p->max_seqs) *
              sizeof(struct cuda_attention_tile);
    }
    plan->rows_at = (int32_t)(at - (char *)plan);
    p->rows = (struct cuda_attention_row *)at;
    p->members = (struct cuda_attention_member *)(p->rows + max_rows);
    plan->members_at = (int32_t)((char *)p->members - (char *)plan);
    p->items = (struct share_item *)(p->members + max_rows);
    p->spans = (struct share_span *)(p->items + p->max_seqs);
    p->own = (int32_t *)(p->spans + p->max_seqs);
}

void cuda_attention_plan_make(const struct cuda_attention *a, struct cuda_attention_plan *plan,
                              int max_rows, int max_seqs, const struct step_seq *seqs, int n_seqs,
                              const struct cuda_attention_pages *pages, int window, size_t partials)
{
    struct planner p = {};
    *plan = {};
    p.a = a;
    p.plan = plan;
    p.seqs = seqs;
    p.n_seqs = n_seqs;
    p.max_seqs = max_seqs;
    p.window = window;
    p.partials = (int64_t)(partials / (sizeof(float) * (a->head_dim + PARTIAL_EXTRA)));
    p.partials = p.partials > INT32_MAX ? INT32_MAX : p.partials;
    lay_out(&p, max_rows);
    for (int i = 0; i < max_rows; i++)
        p.rows[i].partial = -1;
    share_prefixes(&p, pages);
    add_sequences(&p, pages != NULL);
    plan->n_rows = n_seqs > 0 ? seqs[n_seqs - 1].row + seqs[n_seqs - 1].n_rows : 0;
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
