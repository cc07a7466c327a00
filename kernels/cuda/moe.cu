/* A mixture of experts. Rows choose their experts; the (row, expert) pairs, which are slots, are
 * sorted by expert, so that an expert is a matrix product over all rows that want it, in tiles of
 * some slots. How many tiles there are only the device knows: launches have room for the most, and
 * blocks without a tile end at once.
 *
 * Which slot of its expert a pair gets does not matter: a row's choice depends on its own logits, a
 * product on its own row (linear.cuh), and a row's results are added in the order of its choice.
 *
 * Bound: few rows by the chosen experts' bytes, many by the products, as any linear. */
#include "linear.cuh"

enum {
    ROUTE_WARPS = 8,
    SORT_THREADS = 1024,
    SORT_WARPS = SORT_THREADS / 32,
    ROWS_OF_ONE_BLOCK = 2 * SORT_WARPS, /* that choose in the block that sorts */
    COPY_THREADS = 128,
    COPY_BLOCKS = 64,
    MIX_THREADS = 256,
};

/* What the scratch memory holds. A slot is -1 where a row is left out. */
struct moe_lists {
    int32_t *chosen; /* [max_rows][n_used] experts, best first */
    float *share;    /* [max_rows][n_used] their weights */
    int32_t *slot;   /* [max_rows][n_used] where their results are */
    int32_t *row;    /* [max_rows * n_used] of each slot */
    struct expert_tile *tiles;
    int32_t *n_tiles, *n_slots; /* of the step */
};
struct moe_scratch {
    struct moe_lists lists;
    struct cuda_rows x, middle; /* of slots, as gates and ups, and as downs read them */
    float *gated;               /* [slots][n_ff] */
    float *y;                   /* [slots][n_embd]; before that [slots][n_ff] of ups */
    size_t bytes;
};

/* --- the choice, a warp a row --- */

struct candidate {
    float logit;
    int expert;
};

/* Larger logits first, of equal ones the first */
INLINE bool is_before(struct candidate a, struct candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

/* The first of those after `last`, to all lanes */
INLINE struct candidate next_best(const float *logits, int n, struct candidate last)
{
    struct candidate best = {-INFINITY, n};
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        struct candidate c = {logits[i], i};
        if (is_before(last, c) && is_before(c, best))
            best = c;
    }
    for (int by = 16; by > 0; by /= 2) {
        struct candidate c = {__shfl_xor_sync((unsigned)ALL_LANES, best.logit, by),
                              __shfl_xor_sync((unsigned)ALL_LANES, best.expert, by)};
        if (is_before(c, best))
            best = c;
    }
    return best;
}

/* The greatest logit; NaN if one is */
INLINE float greatest(const float *logits, int n)
{
    float most = -INFINITY;
    bool nan = false;
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        nan = nan || logits[i] != logits[i];
        most = fmaxf(most, logits[i]);
    }
    for (int by = 16; by > 0; by /= 2)
        most = fmaxf(most, __shfl_xor_sync((unsigned)ALL_LANES, most, by));
    return __any_sync((unsigned)ALL_LANES, nan) ? NAN : most;
}

INLINE void choose(const struct cuda_moe &m, const struct moe_lists &to, const float *logits,
                   int row)
{
    const int lane = threadIdx.x % 32, n = m.n_experts;
    logits += (size_t)row * n;
    float most = greatest(logits, n), all = 0, sum = 0, weights[2] = {};
    int experts[2] = {lane, lane + 32}; /* the lane's share of the chosen; of NaN any */
    for (int i = lane; i < n; i += 32)
        all += expf(logits[i] - most);
    all = warp_sum(all);
    struct candidate best = {INFINITY, -1};
    for (int k = 0; k < m.n_used && most == most; k++) {
        best = next_best(logits, n, best);
        float weight = expf(best.logit - most);
        sum += weight;
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (k == lane + 32 * i) {
                experts[i] = best.expert;
                weights[i] = weight;
            }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int k = lane + 32 * i;
        if (k >= m.n_used)
            continue;
        to.chosen[(size_t)row * m.n_used + k] = experts[i];
        to.share[(size_t)row * m.n_used + k] =
            most == most ? weights[i] / (m.renormalise ? sum : all) : NAN;
    }
}

/* The choices of rows from `row` on, `step` apart; a row of slot -1 has none. */
INLINE void choose_rows(const struct cuda_moe &m, const struct moe_lists &to, const float *logits,
                        const int32_t *slots, int row, int step, int n_rows)
{
    for (; row < n_rows; row += step)
        if (!slots || slots[row] >= 0)
            choose(m, to, logits, row);
        else
            for (int k = threadIdx.x % 32; k < m.n_used; k += 32)
                to.chosen[(size_t)row * m.n_used + k] = -1;
}

static __global__ void __launch_bounds__(32 * ROUTE_WARPS)
    choose_kernel(struct cuda_moe m, struct moe_lists to, const float *logits, const int32_t *slots,
                  int n_rows)
{
    int warp = threadIdx.x / 32;
    choose_rows(m, to, logits, slots, blockIdx.x * ROUTE_WARPS + warp, gridDim.x * ROUTE_WARPS,
                n_rows);
}

/* --- the order by expert, by one block: a counting sort --- */

/* The sum of x of the threads before this one. `sums` [SORT_WARPS] is shared memory. */
INLINE uint64_t sum_before(uint64_t x, uint64_t *sums)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t sum = x;
    for (int by = 1; by < 32; by *= 2) {
        uint64_t below = __shfl_up_sync((unsigned)ALL_LANES, sum, by);
        if (lane >= by)
            sum += below;
    }
    if (lane == 31)
        sums[warp] = sum;
    __syncthreads();
    sum -= x;
    for (int w = 0; w < warp; w++)
        sum += sums[w];
    return sum;
}

/* Slots and tiles of the experts that this thread has, in turn; next[expert] holds how many slots
 * there are, then the first. */
INLINE void share_slots(const struct cuda_moe &m, const struct moe_lists &to, int tile_slots,
                        int *next, uint64_t *sums)
{
    const int a_thread = (m.n_experts + SORT_THREADS - 1) / SORT_THREADS;
    const int first = min((int)threadIdx.x * a_thread, m.n_experts);
    const int end = min(first + a_thread, m.n_experts);
    uint64_t mine = 0; /* slots, and tiles in the upper half */
    for (int e = first; e < end; e++)
        mine += (uint64_t)((next[e] + tile_slots - 1) / tile_slots) << 32 | (uint32_t)next[e];
    mine = sum_before(mine, sums);
    int slot = (int)(uint32_t)mine, tile = (int)(mine >> 32);
    for (int e = first; e < end; e++) {
        const int n = next[e];
        next[e] = slot;
        for (int i = 0; i < n; i += tile_slots)
            to.tiles[tile++] = {e, slot + i, min(tile_slots, n - i)};
        slot += n;
    }
    if (threadIdx.x == SORT_THREADS - 1) {
        *to.n_tiles = tile;
        *to.n_slots = slot;
    }
}

/* logits NULL: the choices are there. */
static __global__ void __launch_bounds__(SORT_THREADS)
    sort_kernel(struct cuda_moe m, struct moe_lists to, const float *logits, const int32_t *slots,
                int n_rows, int tile_slots)
{
    SHARED(int, next, [MOE_MAX_EXPERTS]);
    SHARED(uint64_t, sums, [SORT_WARPS]);
    const int n = n_rows * m.n_used;
    for (int e = threadIdx.x; e < m.n_experts; e += SORT_THREADS)
        next[e] = 0;
    if (logits)
        choose_rows(m, to, logits, slots, threadIdx.x / 32, SORT_WARPS, n_rows);
    __syncthreads(); /* choices and zeros are there */
    for (int i = threadIdx.x; i < n; i += SORT_THREADS)
        if (to.chosen[i] >= 0)
            atomicAdd(&next[to.chosen[i]], 1);
    __syncthreads(); /* all are counted */
    share_slots(m, to, tile_slots, next, sums);
    __syncthreads(); /* next[] are the first slots */
    for (int i = threadIdx.x; i < n; i += SORT_THREADS) {
        int slot = to.chosen[i] < 0 ? -1 : atomicAdd(&next[to.chosen[i]], 1);
        to.slot[i] = slot;
        if (slot >= 0)
            to.row[slot] = i / m.n_used;
    }
}

/* --- rows to slots, and back --- */

/* Half a block of one plane a thread, neighbours beside each other */
static __global__ void __launch_bounds__(COPY_THREADS)
    gather_blocks_kernel(struct cuda_qrows to, struct cuda_qrows from, int n_blocks,
                         struct moe_lists lists)
{
    int i = blockIdx.x * COPY_THREADS + threadIdx.x, half = i % 2;
    int to_row = i / 2, slot = to_row / to.planes;
    if (slot >= *lists.n_slots)
        return;
    int from_row = lists.row[slot] * to.planes + to_row % to.planes;
    for (int block = blockIdx.y; block < n_blocks; block += gridDim.y) {
        size_t at = (size_t)block * to.stride + to_row;
        size_t source = (size_t)block * from.stride + from_row;
        ((uint4 *)to.q)[2 * at + half] = ((const uint4 *)from.q)[2 * source + half];
        if (half == 0)
            to.s[at] = from.s[source];
    }
}

/* A block a slot; a row is n times 16 bytes. */
static __global__ void __launch_bounds__(COPY_THREADS)
    gather_values_kernel(uint4 *to, const uint4 *from, int n, struct moe_lists lists)
{
    const int slot = blockIdx.x;
    if (slot >= *lists.n_slots)
        return;
    const uint4 *row = from + (size_t)lists.row[slot] * n;
    for (int i = threadIdx.x; i < n; i += COPY_THREADS)
        to[(size_t)slot * n + i] = row[i];
}

/* A thread a value */
static __global__ void __launch_bounds__(MIX_THREADS)
    mix_kernel(float *out, const float *y, int width, int n_used, bool add, struct moe_lists lists)
{
    const int32_t *slot = lists.slot + (size_t)blockIdx.x * n_used;
    const float *share = lists.share + (size_t)blockIdx.x * n_used;
    int i = blockIdx.y * MIX_THREADS + threadIdx.x;
    if (i >= width || slot[0] < 0)
        return;
    float sum = y[(size_t)slot[0] * width + i] * share[0];
    for (int k = 1; k < n_used; k++)
        sum = fmaf(y[(size_t)slot[k] * width + i], share[k], sum);
    float *to = out + (size_t)blockIdx.x * width + i;
    *to = add ? *to + sum : sum;
}

/* --- the host's part --- */

static bool is_quantised(enum dtype t)
{
    return panel_form(t).bits > 0;
}

/* The next n bytes of the scratch memory, whose first `*bytes` are taken */
static void *take(const struct cuda_moe *m, size_t *bytes, size_t n)
{
    void *at = m->scratch ? (char *)m->scratch + *bytes : NULL;
    *bytes += (n + 255) / 256 * 256;
    return at;
}

/* Rows of n slots as matrices of type t read them, whole tiles from any slot on */
static struct cuda_rows take_rows(const struct cuda_moe *m, size_t *bytes, enum dtype t, int width,
                                  int n)
{
    struct cuda_rows r = {};
    size_t rows = (size_t)n + MAX_TILES * TILE_TOKENS;
    r.type = t;
    if (!is_quantised(t)) {
        r.values = take(m, bytes, rows * padded_width(width) * (t == DTYPE_F32 ? 4 : 2));
        return r;
    }
    r.q.planes = m->planes;
    r.q.stride = n * m->planes + MAX_TILES * TILE_TOKENS;
    size_t blocks = (size_t)(width / BLOCK_VALUES) * r.q.stride;
    r.q.q = (int8_t *)take(m, bytes, blocks * BLOCK_VALUES);
    r.q.s = (struct cuda_block_scale *)take(m, bytes, blocks * sizeof *r.q.s);
    return r;
}

/* Scratch memory lies the same in every call. */
static struct moe_scratch scratch_of(const struct cuda_moe *m)
{
    struct moe_scratch s = {};
    size_t *at = &s.bytes;
    const int slots = m->max_rows * m->n_used;
    const size_t n = (size_t)slots;
    s.lists.chosen = (int32_t *)take(m, at, n * sizeof(int32_t));
    s.lists.share = (float *)take(m, at, n * sizeof(float));
    s.lists.slot = (int32_t *)take(m, at, n * sizeof(int32_t));
    s.lists.row = (int32_t *)take(m, at, n * sizeof(int32_t));
    s.lists.tiles = (struct expert_tile *)take(m, at, n * sizeof(struct expert_tile));
    s.lists.n_tiles = (int32_t *)take(m, at, sizeof(int32_t));
    s.lists.n_slots = (int32_t *)take(m, at, sizeof(int32_t));
    s.x = take_rows(m, at, m->x_reader, m->n_embd, slots);
    s.middle = take_rows(m, at, m->middle_reader, m->n_ff, slots);
    s.gated = (float *)take(m, at, n * m->n_ff * sizeof(float));
    s.y = (float *)take(m, at, n * (m->n_embd > m->n_ff ? m->n_embd : m->n_ff) * sizeof(float));
    return s;
}

size_t cuda_moe_bytes(const struct cuda_moe *m)
{
    struct cuda_moe nowhere = *m;
    nowhere.scratch = NULL;
    return scratch_of(&nowhere).bytes;
}

/* Slots of a tile: twice what an expert has on average, so that few have a second tile, as far as
 * a kernel takes them. Decides how often weights are read, not the bits. */
static int tile_slots(const struct cuda_moe *m, int n_rows)
{
    bool f32 = m->x_reader == DTYPE_F32 || m->middle_reader == DTYPE_F32;
    int planes = is_quantised(m->x_reader) || is_quantised(m->middle_reader) ? m->planes : 1;
    int most = f32 ? TILE_TOKENS : MAX_TILES * TILE_TOKENS;
    int64_t wanted = 2 * ((int64_t)n_rows * m->n_used + m->n_experts - 1) / m->n_experts;
    int n = wanted < n_rows ? (int)wanted : n_rows, tile = TILE_TOKENS;
    while (tile < n * planes && tile < most)
        tile *= 2;
    return tile / planes;
}

/* Of n slots: no expert's last tile is empty. */
static int most_tiles(const struct cuda_moe *m, int n, int slots)
{
    int with_last = (m->n_experts < n ? m->n_experts : n) + n / slots;
    return with_last < n ? with_last : n;
}

static cudaError_t route(cudaStream_t s, const struct cuda_moe *m, const struct moe_lists &lists,
                         const float *logits, const int32_t *slots, int n_rows, int tile)
{
    bool at_once = n_rows <= ROWS_OF_ONE_BLOCK;
    if (!at_once)
        LAUNCH(choose_kernel, (n_rows + ROUTE_WARPS - 1) / ROUTE_WARPS, 32 * ROUTE_WARPS, 0, s)
    (*m, lists, logits, slots, n_rows);
    LAUNCH(sort_kernel, 1, SORT_THREADS, 0, s)
    (*m, lists, at_once ? logits : NULL, slots, n_rows, tile);
    return cudaGetLastError();
}

static cudaError_t gather(cudaStream_t s, const struct cuda_moe *m, const struct moe_scratch &to,
                          const struct cuda_rows *x, int n)
{
    if (x->values) {
        int width = padded_width(m->n_embd) * (m->x_reader == DTYPE_F32 ? 4 : 2);
        LAUNCH(gather_values_kernel, n, COPY_THREADS, 0, s)
        ((uint4 *)to.x.values, (const uint4 *)x->values, width / (int)sizeof(uint4), to.lists);
        return cudaGetLastError();
    }
    int blocks = m->n_embd / BLOCK_VALUES, threads = 2 * n * m->planes;
    dim3 grid((threads + COPY_THREADS - 1) / COPY_THREADS,
              blocks < COPY_BLOCKS ? blocks : COPY_BLOCKS);
    LAUNCH(gather_blocks_kernel, grid, COPY_THREADS, 0, s)(to.x.q, x->q, blocks, to.lists);
    return cudaGetLastError();
}

/* Products of all slots with one or two of the experts' matrices, of one type, [rows][cols] each */
static cudaError_t product(cudaStream_t s, struct cuda_linear l, struct linear_experts e,
                           const struct cuda_experts *const *w, int rows, int cols,
                           const struct cuda_rows &x)
{
    for (int i = 0; i < l.n_w; i++) {
        l.w[i] = {w[i]->type, rows, cols, NULL};
        e.data[i] = w[i]->data;
        e.bias[i] = w[i]->bias.data;
        e.bias_type[i] = w[i]->bias.type;
    }
    if (!x.values)
        return linear_quantised(s, l, e, x.q, 0);
    return x.type == l.w[0].type ? linear_float(s, l, e, x.values, 0) : cudaErrorInvalidValue;
}

static struct cuda_linear linear_into(enum linear_into into, int n_w, float *out)
{
    struct cuda_linear l = {};
    l.into = into;
    l.n_w = n_w;
    l.out[0] = out;
    return l;
}

/* middle = act(gate(x)) * up(x) of n slots */
static cudaError_t gate_and_up(cudaStream_t s, const struct cuda_moe *m,
                               const struct cuda_moe_layer *layer, const struct linear_experts &e,
                               const struct moe_scratch &at, const struct cuda_rows &x, int n)
{
    const struct cuda_experts *w[2] = {&layer->gate, &layer->up};
    struct cuda_linear l = linear_into(INTO_ACT_MUL, 2, at.gated);
    cudaError_t error;
    l.act = m->act;
    if (w[0]->type == w[1]->type) {
        error = product(s, l, e, w, m->n_ff, m->n_embd, x);
        if (error != cudaSuccess)
            return error;
        return cuda_norm_rows(s, &at.middle, at.gated, m->n_ff, NULL, NULL, n);
    }
    error = product(s, linear_into(INTO_STORE, 1, at.gated), e, w, m->n_ff, m->n_embd, x);
    if (error == cudaSuccess)
        error = product(s, linear_into(INTO_STORE, 1, at.y), e, w + 1, m->n_ff, m->n_embd, x);
    if (error != cudaSuccess)
        return error;
    return cuda_act_rows(s, m->act, &at.middle, at.gated, at.y, m->n_ff, n);
}

/* y of n slots */
static cudaError_t experts(cudaStream_t s, const struct cuda_moe *m,
                           const struct cuda_moe_layer *layer, const struct linear_experts &e,
                           const struct moe_scratch &at, const struct cuda_rows *x, int n)
{
    const struct cuda_experts *w = &layer->down;
    struct linear_experts first = e;
    first.same_x = x != &at.x;
    cudaError_t error = gate_and_up(s, m, layer, first, at, *x, n);
    if (error != cudaSuccess)
        return error;
    return product(s, linear_into(INTO_STORE, 1, at.y), e, &w, m->n_embd, m->n_ff, at.middle);
}

cudaError_t cuda_moe(cudaStream_t s, const struct cuda_moe *m, const struct cuda_moe_layer *layer,
                     enum linear_into into, float *out, const struct cuda_rows *x,
                     const float *router_logits, const int32_t *slots, int n_rows)
{
    const struct moe_scratch at = scratch_of(m);
    const int n = n_rows * m->n_used;
    struct linear_experts e = {};
    e.tiles = at.lists.tiles;
    e.n_tiles = at.lists.n_tiles;
    e.tile_slots = tile_slots(m, n_rows);
    e.max_tiles = most_tiles(m, n, e.tile_slots);
    cudaError_t error = route(s, m, at.lists, router_logits, slots, n_rows, e.tile_slots);
    if (error == cudaSuccess && n_rows > 1) /* of one row all slots read it */
        error = gather(s, m, at, x, n);
    if (error == cudaSuccess)
        error = experts(s, m, layer, e, at, n_rows > 1 ? &at.x : x, n);
    if (error != cudaSuccess)
        return error;
    dim3 grid(n_rows, (m->n_embd + MIX_THREADS - 1) / MIX_THREADS);
    LAUNCH(mix_kernel, grid, MIX_THREADS, 0, s)
    (out, at.y, m->n_embd, m->n_used, into == INTO_ADD, at.lists);
    return cudaGetLastError();
}
