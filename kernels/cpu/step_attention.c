/* Attention as units of work.
 *
 * A long chunk of a prompt is cut into tiles of queries; a unit is (tile, KV head, up to three
 * of its heads) and goes through all segments, joining as it goes. The row of a decoding
 * sequence would give too few units so; for it a unit is (segment, KV head, row), partial
 * results are kept and joined after a barrier. Units are ordered by segment first, so that
 * sequences that share pages read them one after the other. Both join the same segments in the
 * same order. Lone rows that do not fit the memory for partial results at once go in waves. */
#include "step.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define PARTS_BYTES ((size_t)32 << 20) /* room for partial results, unless configured */

struct pass {
    const struct attention_config *c;
    const struct record *r;
    struct score_config score;
    int group;    /* heads of a KV head */
    int per_unit; /* of them, heads of a tile unit */
    int splits;   /* tile units a KV head */
    int ldp;      /* floats of a partial result */
    bool staged;  /* blocks of 32 outputs are of more than one unit: quantised after all of them */
    float *out;   /* [rows][ld_out], unless quantised at once */
    int ld_out;
};

/* A wave: lone rows [first, end) and the segments that any of them sees */
struct wave {
    int first, end, seg0, n_segs;
};

static int part_floats(const struct kv_pool *kv)
{
    return PART_HEAD + kv->v_dim;
}

/* Floats for partial results: those of all rows, at most what is configured, at least one row's */
static size_t parts_wanted(const struct cpu_backend *b, const struct kv_pool *kv)
{
    size_t bytes = b->config.attention_partials ? b->config.attention_partials : PARTS_BYTES;
    size_t most = bytes / sizeof(float), rows = (size_t)b->config.max_rows;
    int heads = b->widest / kv->head_dim + 1;
    int64_t context = (int64_t)b->config.max_pages * kv->block_size;
    size_t row = (size_t)(context / SEGMENT + 1) * heads * part_floats(kv);
    size_t want = row > most / rows ? most : row * rows;
    return want < row ? row : want;
}

/* Floats that one member works in */
static size_t scratch_wanted(const struct kv_pool *kv)
{
    return attend_scratch(kv->v_dim) +
           (size_t)TILE_ROWS * ((size_t)kv->head_dim + 2 * (size_t)part_floats(kv));
}

uint64_t step_attention_bytes(const struct cpu_backend *b, const struct kv_pool *kv)
{
    size_t members = (size_t)team_size(b->team);
    return sizeof(float) * (parts_wanted(b, kv) + members * scratch_wanted(kv));
}

bool step_attention_reserve(struct cpu_backend *b, struct err *e)
{
    const struct kv_pool *kv = &b->kv;
    if (!kv->data)
        return true;
    size_t want = parts_wanted(b, kv), scratch = scratch_wanted(kv);
    uint64_t *count = &b->memory.activations;
    if (want > b->max_parts) {
        blocks_give(&b->blocks, b->parts, count);
        b->parts = blocks_take(&b->blocks, want, sizeof *b->parts, "attention", count, e);
        b->max_parts = b->parts ? want : 0;
    }
    for (int i = 0; i < team_size(b->team); i++) {
        struct worker *w = &b->workers[i];
        if (!w->attend)
            w->attend = blocks_take(&b->blocks, scratch, sizeof(float), "attention", count, e);
        if (!w->attend)
            return false;
    }
    return b->parts != NULL;
}

void step_attention_plan(struct cpu_backend *b)
{
    const struct step_inputs *in = &b->inputs;
    b->n_lone = b->n_tiles = 0;
    for (int s = 0; s < in->n_seqs; s++) {
        const struct step_seq *q = &in->seqs[s];
        for (int i = 0; i < q->n_rows && q->n_rows <= LONE_ROWS; i++)
            b->lone[b->n_lone++] = (struct lone_row){q->row + i, s, q->start + i};
        for (int i = 0; i < q->n_rows && q->n_rows > LONE_ROWS; i += QUERY_TILE) {
            int n = q->n_rows - i < QUERY_TILE ? q->n_rows - i : QUERY_TILE;
            b->tiles[b->n_tiles++] = (struct query_tile){q->row + i, n, s, q->start + i};
        }
    }
}

/* First token that a row at `pos` sees */
static int first_seen(const struct attention_config *c, int pos)
{
    return c->window > 0 && pos + 1 > c->window ? pos + 1 - c->window : 0;
}

static struct pass pass_of(const struct cpu_backend *b, const struct record *r)
{
    const struct attention_config *c = &r->attention.config;
    const struct activation *out = r->attention.out;
    struct pass p = {.c = c, .r = r, .ldp = part_floats(&b->kv)};
    p.group = c->n_heads / c->n_kv_heads;
    p.splits = (p.group + TILE_ROWS / QUERY_TILE - 1) / (TILE_ROWS / QUERY_TILE);
    p.per_unit = (p.group + p.splits - 1) / p.splits;
    p.score.soft_cap = c->soft_cap;
    p.score.scale = c->soft_cap > 0 ? c->scale : c->scale * 1.44269504088896341f;
    p.staged = out->quantised && (p.group * b->kv.head_dim % QBLOCK != 0 ||
                                  p.per_unit * b->kv.head_dim % QBLOCK != 0);
    p.out = out->quantised ? b->staging : out->f;
    p.ld_out = out->quantised ? out->width : out->stride;
    return p;
}

/* The row's outputs of heads [head, head + n), a unit's */
static void store_heads(const struct cpu_backend *b, const struct pass *p, int row, int head, int n,
                        const float *y)
{
    const struct activation *out = p->r->attention.out;
    int first = head * b->kv.head_dim, width = n * b->kv.head_dim;
    if (out->quantised && !p->staged)
        b->kernels->quantise(out, activation_qstride(out, b->inputs.n_rows), row, first / QBLOCK, y,
                             width / QBLOCK);
    else
        memcpy(p->out + (size_t)row * p->ld_out + first, y, (size_t)width * sizeof *y);
}

static const float *sink_of(const struct pass *p, int head)
{
    return p->r->attention.sinks ? p->r->attention.sinks + head : NULL;
}

static struct kv_view view_of(const struct cpu_backend *b, const struct pass *p, int seq, int head)
{
    return (struct kv_view){&b->kv, b->inputs.page_tables + (size_t)seq * b->config.max_pages,
                            p->r->attention.layer, head};
}

/* The row's queries of heads [head, head + n), scaled, `ld` floats apart */
static void load_queries(const struct cpu_backend *b, const struct pass *p, int row, int head,
                         int n, float *q)
{
    const struct activation *from = p->r->attention.q;
    const float *x = from->f + (size_t)row * from->stride + head * b->kv.head_dim;
    const float scale = p->score.scale;
    const int width = n * b->kv.head_dim;
    for (int i = 0; i < width; i++)
        q[i] = x[i] * scale;
}

/* --- tiles --- */

struct tile_rows {
    int n, head; /* rows (query, head), first head */
    int pos[TILE_ROWS], lo[TILE_ROWS], hi[TILE_ROWS];
    float *q, *acc, *part, *scratch;
};

static void tile_segment(const struct cpu_backend *b, const struct pass *p, struct tile_rows *t,
                         const struct kv_view *kv, int segment)
{
    for (int r = 0; r < t->n; r++) {
        int lo = first_seen(p->c, t->pos[r]), hi = t->pos[r] + 1;
        t->lo[r] = lo > segment ? lo : segment;
        t->hi[r] = hi < segment + SEGMENT ? hi : segment + SEGMENT;
    }
    b->kernels->attend_tile(kv, &p->score, segment, t->lo, t->hi, t->q, b->kv.head_dim, t->n,
                            t->part, p->ldp, t->scratch);
    for (int r = 0; r < t->n; r++)
        b->kernels->part_join(t->acc + (size_t)r * p->ldp, t->part + (size_t)r * p->ldp,
                              b->kv.v_dim);
}

static void run_tile(const struct cpu_backend *b, const struct pass *p, int member,
                     const struct query_tile *tile, int kv_head, int split)
{
    int dim = b->kv.head_dim, first = split * p->per_unit;
    int heads = p->group - first < p->per_unit ? p->group - first : p->per_unit;
    struct tile_rows t = {.head = kv_head * p->group + first};
    if (heads <= 0)
        return;
    t.scratch = b->workers[member].attend;
    t.q = t.scratch + attend_scratch(b->kv.v_dim);
    t.acc = t.q + (size_t)TILE_ROWS * dim;
    t.part = t.acc + (size_t)TILE_ROWS * p->ldp;
    for (int i = 0; i < tile->n_rows; i++) {
        load_queries(b, p, tile->row + i, t.head, heads, t.q + (size_t)t.n * dim);
        for (int h = 0; h < heads; h++) {
            t.acc[(size_t)t.n * p->ldp + 1] = 0; /* its sum: nothing was seen */
            t.pos[t.n++] = tile->pos + i;
        }
    }
    struct kv_view kv = view_of(b, p, tile->seq, kv_head);
    int seen = first_seen(p->c, tile->pos), last = tile->pos + tile->n_rows;
    for (int segment = seen / SEGMENT * SEGMENT; segment < last; segment += SEGMENT)
        tile_segment(b, p, &t, &kv, segment);
    float *y = t.q; /* [n_rows][heads][dim], as the queries were */
    for (int r = 0; r < t.n; r++)
        b->kernels->part_finish(y + (size_t)r * dim, t.acc + (size_t)r * p->ldp,
                                sink_of(p, t.head + r % heads), dim);
    for (int i = 0; i < tile->n_rows; i++)
        store_heads(b, p, tile->row + i, t.head, heads, y + (size_t)i * heads * dim);
}

/* --- lone rows --- */

/* As many lone rows from `first` on as have room for their partial results. */
static struct wave wave_from(const struct cpu_backend *b, const struct pass *p, int first)
{
    struct wave w = {.first = first, .end = first};
    int lowest = 0, highest = -1;
    for (; w.end < b->n_lone; w.end++) {
        int pos = b->lone[w.end].pos, lo = first_seen(p->c, pos) / SEGMENT, hi = pos / SEGMENT;
        lo = w.end > first && lowest < lo ? lowest : lo;
        hi = hi > highest ? hi : highest;
        size_t parts = (size_t)(hi - lo + 1) * (w.end + 1 - first) * p->c->n_heads;
        if (parts * p->ldp > b->max_parts && w.end > first)
            break;
        assert(parts * p->ldp <= b->max_parts);
        lowest = lo;
        highest = hi;
    }
    w.seg0 = lowest;
    w.n_segs = highest - lowest + 1;
    return w;
}

/* Where the partial results of a lone row's head in a segment are */
static float *part_at(const struct cpu_backend *b, const struct pass *p, const struct wave *w,
                      int segment, int i, int head)
{
    size_t row = (size_t)(segment - w->seg0) * (w->end - w->first) + (i - w->first);
    return b->parts + (row * p->c->n_heads + head) * p->ldp;
}

/* Unit u of a wave: latest segment first, then KV heads, then rows */
struct lone_unit {
    struct attend_unit attend;
    int i, kv_head, segment;
};

/* False for a unit that is not there: past the end, or of a row that does not see the segment */
static bool lone_at(const struct cpu_backend *b, const struct pass *p, const struct wave *w, int u,
                    struct lone_unit *out)
{
    int n = w->end - w->first, per_segment = n * p->c->n_kv_heads;
    if (u >= w->n_segs * per_segment)
        return false;
    out->i = w->first + u % n;
    out->kv_head = u / n % p->c->n_kv_heads;
    out->segment = w->seg0 + w->n_segs - 1 - u / per_segment;
    const struct lone_row *row = &b->lone[out->i];
    int lo = first_seen(p->c, row->pos), hi = row->pos + 1, start = out->segment * SEGMENT;
    out->attend.kv = view_of(b, p, row->seq, out->kv_head);
    out->attend.lo = lo > start ? lo : start;
    out->attend.hi = hi < start + SEGMENT ? hi : start + SEGMENT;
    return out->attend.lo < out->attend.hi;
}

static void run_lone(const struct cpu_backend *b, const struct pass *p, const struct wave *w,
                     int member, int u, int next)
{
    struct lone_unit unit, after;
    if (!lone_at(b, p, w, u, &unit))
        return;
    bool more = lone_at(b, p, w, next, &after);
    int head = unit.kv_head * p->group;
    float *q = b->workers[member].row;
    load_queries(b, p, b->lone[unit.i].row, head, p->group, q);
    b->kernels->attend_one(&unit.attend, more ? &after.attend : NULL, &p->score, q, b->kv.head_dim,
                           p->group, part_at(b, p, w, unit.segment, unit.i, head), p->ldp);
}

static void join_lone(const struct cpu_backend *b, const struct pass *p, const struct wave *w,
                      int member, int i, int kv_head)
{
    const struct lone_row *row = &b->lone[i];
    int dim = b->kv.head_dim, head = kv_head * p->group;
    int first = first_seen(p->c, row->pos) / SEGMENT, last = row->pos / SEGMENT;
    float *y = b->workers[member].row;
    for (int h = head; h < head + p->group; h++) {
        float *acc = part_at(b, p, w, first, i, h);
        for (int s = first + 1; s <= last; s++)
            b->kernels->part_join(acc, part_at(b, p, w, s, i, h), b->kv.v_dim);
        b->kernels->part_finish(y + (size_t)(h - head) * dim, acc, sink_of(p, h), dim);
    }
    store_heads(b, p, row->row, head, p->group, y);
}

static void join_wave(const struct cpu_backend *b, const struct pass *p, const struct wave *w,
                      int member)
{
    int heads = p->c->n_kv_heads, first, end;
    while (step_row_share(b, (w->end - w->first) * heads, team_claim(b->team), &first, &end))
        for (int i = first; i < end; i++)
            join_lone(b, p, w, member, w->first + i / heads, i % heads);
}

static void quantise_rows(const struct cpu_backend *b, const struct pass *p)
{
    const struct activation *out = p->r->attention.out;
    int n = b->inputs.n_rows, first, end;
    while (step_row_share(b, n, team_claim(b->team), &first, &end))
        for (int row = first; row < end; row++)
            b->kernels->quantise(out, activation_qstride(out, n), row, 0,
                                 p->out + (size_t)row * p->ld_out, out->width / QBLOCK);
}

/* Tiles first, the last of them, which have the most to see, before the others. Of lone rows the
 * next unit is claimed early, so that its K can be fetched. */
static void run_units(const struct cpu_backend *b, const struct pass *p, const struct wave *w,
                      int member, int n_tiles)
{
    int per_tile = p->c->n_kv_heads * p->splits;
    int n = n_tiles * per_tile, all = n + w->n_segs * (w->end - w->first) * p->c->n_kv_heads;
    for (int u = team_claim(b->team), next; u < all; u = next) {
        if (u < n)
            run_tile(b, p, member, &b->tiles[n_tiles - 1 - u / per_tile], u % per_tile / p->splits,
                     u % p->splits);
        next = team_claim(b->team);
        if (u >= n)
            run_lone(b, p, w, member, u - n, next - n);
    }
}

/* Units, then, of lone rows, a join, and a last phase where outputs were staged; step.c ends it */
void step_attention(struct cpu_backend *b, const struct record *r, int member)
{
    struct pass p = pass_of(b, r);
    struct wave w = wave_from(b, &p, 0);
    run_units(b, &p, &w, member, b->n_tiles);
    while (w.first < w.end) {
        team_barrier(b->team, member);
        join_wave(b, &p, &w, member);
        w = wave_from(b, &p, w.end);
        if (w.first == w.end)
            break;
        team_barrier(b->team, member);
        run_units(b, &p, &w, member, 0);
    }
    if (p.staged) {
        team_barrier(b->team, member);
        quantise_rows(b, &p);
    }
}
