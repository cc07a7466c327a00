/* Attention of prompts on capability 9.0, K and V of F16 or BF16, head_dim up to 128:
 * FlashAttention-3 (Shah et al. 2024) without its overlap within a warp group. A block has three
 * warp groups: two of consumers, each with 64 rows of a tile's 128, and one of which a single
 * thread sends keys and values on their way by TMA. q · K^T and p · V are wgmma. K and V of a tile
 * of TILE_KEYS tokens have a barrier each that says they are there, and one that says they are used
 * up.
 *
 * The order of addition: tiles at absolute positions, online softmax within a segment, segments
 * joined ascending, as in attention_mma.cuh; but a tile has TILE_KEYS tokens, so the bits of a row
 * are not those that it has among the few rows of a narrow tile. The tile at the diagonal, or at
 * the window's edge, of which rows see a part, has p · V by mma, which can leave out what is not
 * seen.
 *
 * Bound by the tensor cores, or by exp2. */
#include "attention_mma.cuh"
#include "hopper.cuh"

#include <limits.h>

enum {
    TILE_KEYS = 128,
    CONSUMERS = 2,
    CONSUMER_WARPS = 4 * CONSUMERS,
    BLOCK_THREADS = GROUP_THREADS * (CONSUMERS + 1),
    GROUP_ROWS = 4 * WARP_ROWS,
    N_STAGES = 2,
    PARTS = TILE_KEYS / KEYS /* of a tile, for functions that take KEYS */
};

/* What a stage waits for */
struct stage_barriers {
    uint64_t k_there, v_there, k_used, v_used;
};

template <class T, int D> struct wgmma_layout {
    enum {
        TILE = TILE_KEYS * D, /* of K or V, in values */
        QUERIES = GROUP_ROWS * D,
        BYTES = (2 * N_STAGES * TILE + CONSUMERS * QUERIES) * (int)sizeof(T) +
                CONSUMER_WARPS * D * 4 * (int)sizeof(float4) +
                N_STAGES * (int)sizeof(struct stage_barriers)
    };
};

/* Where a block is in its ring of stages; both sides count the same. */
struct ring {
    int stage, parity;
};

INLINE void ring_next(struct ring *r)
{
    if (++r->stage == N_STAGES) {
        r->stage = 0;
        r->parity ^= 1;
    }
}

/* --- the producer: one thread --- */

/* Sends K (which 0) or V of the tile on its way: blocks of 16 tokens that some row sees. */
template <class T, int D>
INLINE void send_tile(T *tile, const CUtensorMap *map, const struct attention_args &a,
                      const struct attention_run &run, int key0, enum kv_which which,
                      uint64_t *there)
{
    const int32_t *pages = a.page_tables + (size_t)run.tile->seq * a.max_pages;
    int from = max(run.first / KV_BLOCK * KV_BLOCK, key0), to = min(run.last + 1, key0 + TILE_KEYS);
    int n_blocks = (to - from + KV_BLOCK - 1) / KV_BLOCK;
    barrier_arrive_expecting(there, n_blocks * KV_BLOCK * D * (int)sizeof(T));
    for (int key = from; key < to; key += KV_BLOCK) {
        int slot = pages[key / a.kv.block_size] * a.kv.block_size + key % a.kv.block_size;
        int row = (int)kv_head_at(a.kv, a.layer, slot, which, run.kv_head) * KV_BLOCK;
#pragma unroll 1
        for (int d = 0; d < D; d += TILE_COLUMNS)
            tma_load(tile_at(tile, TILE_KEYS, key - key0, d), map, row, d, there);
    }
}

template <class T, int D>
INLINE void produce(T *stages, struct stage_barriers *barriers, struct ring *at,
                    const CUtensorMap *map, const struct attention_args &a,
                    const struct attention_run &run)
{
    for (int key0 = run.first / TILE_KEYS * TILE_KEYS; key0 <= run.last; key0 += TILE_KEYS) {
        struct stage_barriers *b = barriers + at->stage;
        T *k = stages + at->stage * 2 * wgmma_layout<T, D>::TILE;
        barrier_wait(&b->k_used, at->parity ^ 1);
        send_tile<T, D>(k, map, a, run, key0, KV_K, &b->k_there);
        barrier_wait(&b->v_used, at->parity ^ 1);
        send_tile<T, D>(k + wgmma_layout<T, D>::TILE, map, a, run, key0, KV_V, &b->v_there);
        ring_next(at);
    }
}

/* --- a consumer group --- */

/* The group's queries, rounded, each warp its own; zeros after the last row and dim */
template <class T, int D>
INLINE void store_queries(T *q, const struct attention_args &a, const struct attention_run &run)
{
    int warp = threadIdx.x / 32, first = warp * WARP_ROWS;
    for (int r = 0; r < WARP_ROWS; r++) {
        const float *from = a.q;
        bool there = first + r < run.tile->n_rows;
        if (there)
            from += out_at(a, tile_row(a, run.tile, first + r), tile_head(a, run, first + r));
        for (int d = (int)threadIdx.x % 32 * 2; d < D; d += 64) {
            *(uint32_t *)tile_at(q, GROUP_ROWS, warp % 4 * WARP_ROWS + r, d) =
                query_pair(T(), there && d < a.kv.head_dim ? from + d : NULL);
        }
    }
    tile_written();
}

/* acc += p · V of a tile that all rows see */
template <class T, int D>
INLINE void add_whole_values(float acc[D / 8][4], uint32_t p[TILE_KEYS / 16][4], const T *v)
{
    settle<TILE_KEYS / 16>(p);
    products_begin();
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 16; n++)
        product_of_registers<D>(acc, p[n], v, n);
    products_commit();
    products_wait();
    settle<D / 8>(acc);
}

/* V of keys [16 n, 16 n + 16) and dims [16 d, 16 d + 16) as mma's right side; 0 where no row of the
 * tile sees the key, for what lies there is anything */
template <class T>
INLINE void values_of(uint32_t b[4], const T *v, int n, int d, int key0,
                      const struct attention_run &run)
{
    int lane = threadIdx.x % 32;
    ldmatrix_x4_trans(b, tile_at((T *)v, TILE_KEYS, n * 16 + lane % 16, d * 16 + lane / 16 * 8));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int key = key0 + n * 16 + i % 2 * 8 + lane % 4 * 2;
        b[i] &= (key >= run.first && key <= run.last ? 0xffffu : 0) |
                (key + 1 >= run.first && key + 1 <= run.last ? 0xffff0000u : 0);
    }
}

/* acc += p · V, a V that is NaN taken as 0; whether there was one */
template <class T, int D>
INLINE bool add_seen_values(float acc[D / 8][4], const uint32_t p[TILE_KEYS / 16][4], const T *v,
                            int key0, const struct attention_run &run)
{
    uint32_t any = 0;
#pragma unroll
    for (int n = 0; n < TILE_KEYS / 16; n++) {
        __syncwarp(); /* for the compiler: lest it reads all at once, into too many registers */
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            uint32_t b[4];
            values_of(b, v, n, d, key0, run);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                uint32_t nan = nan_halves(T(), b[i]);
                any |= nan;
                b[i] &= ~(nan * 0xffff);
            }
            mma(T(), acc[2 * d], p[n], b);
            mma(T(), acc[2 * d + 1], p[n], b + 2);
        }
    }
    return any != 0;
}

/* NaN to the sums of rows that see a V that is NaN: counts these by products of ones. */
template <class T, int D>
INLINE void poison_seen(float acc[D / 8][4], const int position[2], const struct attention_args &a,
                        int key0, const T *v, const struct attention_run &run)
{
    const uint32_t one = pack(T(), 1, 0);
#pragma unroll 1
    for (int n = 0; n < TILE_KEYS / 16; n++) {
        uint32_t left[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = key_of(key0, 2 * n + i / 2, 0), at = position[i % 2];
            left[i] = pack(T(), is_seen(key, at, a.window), is_seen(key + 1, at, a.window));
        }
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            float counts[2][4] = {};
            uint32_t b[4];
            values_of(b, v, n, d, key0, run);
#pragma unroll
            for (int i = 0; i < 4; i++)
                b[i] = nan_halves(T(), b[i]) * one;
            mma(T(), counts[0], left, b);
            mma(T(), counts[1], left, b + 2);
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (counts[e / 4][e % 4] > 0)
                    acc[2 * d + e / 4][e % 4] = NAN;
        }
    }
}

/* A lane of each warp says that the warp has read what was there. */
INLINE void used_up(uint64_t *b)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(b);
}

/* The least and greatest position of the group's rows, which may be of several sequences; high -1:
 * it has no rows */
struct group_span {
    int low, high;
};

INLINE struct group_span span_of(const struct attention_args &a, const struct attention_run &run)
{
    int first = (int)threadIdx.x / GROUP_THREADS * GROUP_ROWS;
    struct group_span s = {INT_MAX, -1};
    for (int r = first; r < first + GROUP_ROWS && r < run.tile->n_rows; r++) {
        int at = tile_position(a, run.tile, r);
        s.low = min(s.low, at);
        s.high = max(s.high, at);
    }
    return s;
}

/* The lane's rows' positions, looked up wherever they are wanted: kept, they would take registers
 */
INLINE void find_rows(int position[2], const struct attention_args &a,
                      const struct attention_run &run)
{
    position[0] = tile_position(a, run.tile, warp_row(0));
    position[1] = tile_position(a, run.tile, warp_row(1));
}

/* A tile of keys; the whole group does the same. */
template <class T, int D>
INLINE void consume_tile(struct mma_state<T, D> *s, const struct attention_args &a,
                         const struct attention_run &run, const struct group_span *span, const T *q,
                         const T *k, struct stage_barriers *b, int parity, int key0)
{
    const T *v = k + wgmma_layout<T, D>::TILE;
    float scores[TILE_KEYS / 8][4], scale[2];
    uint32_t weights[TILE_KEYS / 16][4];
    bool some = key0 <= span->high && key0 + TILE_KEYS > first_seen(span->low, a.window);
    bool whole = key0 + TILE_KEYS - 1 <= span->low && key0 > span->high - a.window;
    barrier_wait(&b->k_there, parity);
    if (some) {
        products_begin();
#pragma unroll
        for (int d = 0; d < D / 16; d++)
            product_of_tiles(scores, q, k, d, d > 0);
        products_commit();
        products_wait();
        settle<TILE_KEYS / 8>(scores);
    }
    used_up(&b->k_used);
    if (some) {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            if (a.cap > 0)
                cap_scores(scores + i * KEYS / 8, a);
            if (!whole) {
                find_rows(s->position, a, run);
                mask_scores(scores + i * KEYS / 8, s->position, a.window, key0 + i * KEYS);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; half++)
            scale[half] = weigh(scores, half, a.to_log2, &s->most[half], &s->sum[half]);
        scale_sums<D>(s->acc, scale);
#pragma unroll
        for (int n = 0; n < TILE_KEYS / 16; n++)
            weights_of<T>(weights[n], scores, n);
    }
    barrier_wait(&b->v_there, parity);
    if (some && whole)
        add_whole_values<T, D>(s->acc, weights, v);
    else if (some && __any_sync((unsigned)ALL_LANES,
                                add_seen_values<T, D>(s->acc, weights, v, key0, run))) {
        find_rows(s->position, a, run);
        poison_seen<T, D>(s->acc, s->position, a, key0, v, run);
    }
    used_up(&b->v_used);
}

template <class T, int D>
INLINE void consume(struct mma_state<T, D> *s, T *stages, struct stage_barriers *barriers,
                    struct ring *at, T *q, struct group_span *span, const struct attention_args &a,
                    const struct attention_run &run)
{
    int group = (int)threadIdx.x / GROUP_THREADS;
    named_barrier(1 + group, GROUP_THREADS); /* the last run's queries have been read */
    store_queries<T, D>(q, a, run);
    if (threadIdx.x % GROUP_THREADS == 0)
        *span = span_of(a, run);
    named_barrier(1 + group, GROUP_THREADS);
    segment_begin(s);
    int tile = run.first / TILE_KEYS, start = tile, last = run.last / TILE_KEYS;
    const int in_segment = SEGMENT / TILE_KEYS;
    for (; tile <= last; tile++) {
        consume_tile(s, a, run, span, q, stages + at->stage * 2 * wgmma_layout<T, D>::TILE,
                     barriers + at->stage, at->parity, tile * TILE_KEYS);
        ring_next(at);
        if ((tile + 1) % in_segment == 0 || tile == last) {
            find_rows(s->position, a, run);
            segment_end(s, a, run, tile / in_segment, tile / in_segment == start / in_segment,
                        tile == last);
        }
    }
}

/* --- the kernel --- */

/* What a block starts with, 384 * 168 registers, is all that its groups can share: 128 * 24 + 256 *
 * 240. Multiples of 8 */
enum { PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240 };

template <class T, int D>
static __global__ void __launch_bounds__(BLOCK_THREADS, 1)
    attention_wgmma_kernel(struct attention_args a, const __grid_constant__ CUtensorMap map)
{
    typedef wgmma_layout<T, D> layout;
    DYN_SHARED(unsigned char, bytes);
    /* each thread's own, and each group's: registers less */
    SHARED(int, units, [CONSUMERS * GROUP_THREADS + 1]);
    SHARED(struct group_span, spans, [CONSUMERS]);
    T *stages = (T *)tile_room(bytes);
    T *queries = stages + 2 * N_STAGES * layout::TILE;
    float4 *joined_sums = (float4 *)(queries + CONSUMERS * layout::QUERIES);
    struct stage_barriers *barriers =
        (struct stage_barriers *)(joined_sums + CONSUMER_WARPS * D * 4);
    struct ring at = {0, 0};
    struct attention_run run;
    if (threadIdx.x == 0) {
        for (int i = 0; i < N_STAGES; i++) {
            barrier_init(&barriers[i].k_there, 1);
            barrier_init(&barriers[i].v_there, 1);
            barrier_init(&barriers[i].k_used, CONSUMER_WARPS);
            barrier_init(&barriers[i].v_used, CONSUMER_WARPS);
        }
        barriers_made();
    }
    __syncthreads();
    if (threadIdx.x >= CONSUMERS * GROUP_THREADS) {
        registers_give<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * GROUP_THREADS) {
            units[threadIdx.x] = share_begin(a, CUDA_WIDE, blockIdx.x);
            while (take_run(a, CUDA_WIDE, &units[threadIdx.x], &run))
                produce<T, D>(stages, barriers, &at, &map, a, run);
        }
        return;
    }
    registers_take<CONSUMER_REGISTERS>();
    struct mma_state<T, D> s;
    s.run_acc = joined_sums + threadIdx.x / 32 * D * 4;
    units[threadIdx.x] = share_begin(a, CUDA_WIDE, blockIdx.x);
    while (take_run(a, CUDA_WIDE, &units[threadIdx.x], &run))
        consume(&s, stages, barriers, &at, queries + threadIdx.x / GROUP_THREADS * layout::QUERIES,
                &spans[threadIdx.x / GROUP_THREADS], a, run);
}

/* --- the host --- */

typedef void (*wgmma_kernel)(struct attention_args, const CUtensorMap);

struct wgmma_code {
    wgmma_kernel kernel;
    size_t bytes;
};

template <class T, int D> static struct wgmma_code code_for()
{
    return {attention_wgmma_kernel<T, D>, wgmma_layout<T, D>::BYTES + TILE_ALIGNMENT};
}

static struct wgmma_code code_of(enum dtype type, int head_dim)
{
    if (type == DTYPE_F16)
        return head_dim <= 64 ? code_for<__half, 64>() : code_for<__half, 128>();
    return head_dim <= 64 ? code_for<__nv_bfloat16, 64>() : code_for<__nv_bfloat16, 128>();
}

cudaError_t cuda_attention_use_wgmma(struct cuda_attention *a)
{
    cudaDeviceProp device;
    int current;
    if ((a->dtype != DTYPE_F16 && a->dtype != DTYPE_BF16) || a->head_dim > 128)
        return cudaSuccess;
    cudaError_t e = cudaGetDevice(&current);
    if (e == cudaSuccess)
        e = cudaGetDeviceProperties(&device, current);
    struct wgmma_code code = code_of(a->dtype, a->head_dim);
    if (e != cudaSuccess || device.major != 9 || device.minor != 0 ||
        code.bytes + CONSUMERS * GROUP_THREADS * sizeof(int) > device.sharedMemPerBlockOptin)
        return e;
    e = cudaFuncSetAttribute((const void *)code.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)code.bytes);
    if (e != cudaSuccess)
        return e;
    a->wgmma = true;
    a->kinds[CUDA_WIDE].warps = CONSUMER_WARPS;
    a->kinds[CUDA_WIDE].n_stages = N_STAGES;
    a->kinds[CUDA_WIDE].shared_bytes = code.bytes;
    a->kinds[CUDA_WIDE].blocks = device.multiProcessorCount;
    return cudaSuccess;
}

cudaError_t attend_wgmma(cudaStream_t s, const struct attention_args &args, int n_blocks)
{
    const struct cuda_kv *kv = &args.kv;
    struct wgmma_code code = code_of(kv->dtype, kv->head_dim);
    CUtensorMap map;
    /* the pool's end is not known here; page tables are what keeps within it */
    cudaError_t e =
        tensor_map_make(&map, kv->pool, kv->dtype == DTYPE_BF16, INT32_MAX, kv->head_dim, KV_BLOCK);
    if (e != cudaSuccess)
        return e;
    wgmma_kernel kernel = code.kernel;
    LAUNCH(kernel, n_blocks, BLOCK_THREADS, code.bytes, s)(args, map);
    return cudaGetLastError();
}
