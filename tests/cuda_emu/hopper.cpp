/* Barriers in shared memory, TMA copies, and products that go on by themselves: what a thread may
 * not see before it waited, it does not see, or only sometimes. */
#include "emu.h"
#include "emu_hopper.h"

#include <map>
#include <vector>

static bool lands_now()
{
    return emu_now.landing == EMU_EARLY || (emu_now.landing == EMU_EITHER && emu_random() % 2);
}

/* --- tensor maps --- */

/* What the emulated driver writes into a CUtensorMap */
struct map_of_matrix {
    const char *at;
    uint64_t columns, rows, stride; /* in bytes, but rows */
    uint32_t box_columns, box_rows;
};
static_assert(sizeof(map_of_matrix) <= sizeof(CUtensorMap));

static CUresult encode(CUtensorMap *to, CUtensorMapDataType, cuuint32_t rank, void *at,
                       const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                       const cuuint32_t *steps, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    map_of_matrix m = {(char *)at, dims[0] * 2, dims[1], strides[0], box[0] * 2, box[1]};
    if (rank != 2 || (uintptr_t)at % 16 || m.stride % 16 || m.stride >> 40 ||
        m.box_columns != 128 || m.box_rows > 256 || m.box_rows % 8 || dims[0] >> 32 ||
        dims[1] >> 32 || steps[0] != 1 || steps[1] != 1 ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || swizzle != CU_TENSOR_MAP_SWIZZLE_128B)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, &m, sizeof m);
    return CUDA_SUCCESS;
}

extern "C" cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **at, unsigned,
                                                        unsigned long long,
                                                        cudaDriverEntryPointQueryResult *found)
{
    bool there = !strcmp(name, "cuTensorMapEncodeTiled");
    *at = there ? (void *)encode : nullptr;
    *found = there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

/* --- barriers --- */

struct tma_copy {
    map_of_matrix map;
    char *to;
    int64_t row, column; /* in bytes */
};
struct mbarrier {
    int expected, missing;
    int64_t bytes; /* expected and not yet there */
    int phase;
    std::vector<tma_copy> on_way;
    std::vector<int> waiting;
};

static std::map<uint64_t *, mbarrier> mbarriers;

static mbarrier *mbarrier_at(uint64_t *b, emu_place at)
{
    auto it = mbarriers.find(b);
    if (it == mbarriers.end())
        emu_fault(at, "mbarrier: not initialised");
    return &it->second;
}

static void end_phase_if_full(mbarrier *m)
{
    if (m->missing || m->bytes)
        return;
    m->phase++;
    m->missing = m->expected;
    for (int t : m->waiting)
        emu_wake(t);
    m->waiting.clear();
}

void emu_mbarrier_init(uint64_t *b, int n, emu_place at)
{
    if ((uintptr_t)b % 8 || n < 1)
        emu_fault(at, "mbarrier: at a multiple of 8, of at least one");
    mbarriers[b] = mbarrier{n, n, 0, 0, {}, {}};
    race_access(b, 8, true, __builtin_return_address(0));
}

void emu_mbarrier_arrive(uint64_t *b, int bytes, emu_place at)
{
    race_access(b, 8, false, __builtin_return_address(0));
    mbarrier *m = mbarrier_at(b, at);
    if (!m->missing)
        emu_fault(at, "mbarrier: more than %d have arrived", m->expected);
    race_release(b);
    m->bytes += bytes;
    m->missing--;
    end_phase_if_full(m);
}

static void land(const tma_copy *c)
{
    for (uint32_t r = 0; r < c->map.box_rows; r++)
        for (uint32_t piece = 0; piece < 8; piece++) {
            uintptr_t to = (uintptr_t)c->to + 128 * r + 16 * piece;
            int64_t row = c->row + r, column = c->column + 16 * piece;
            to ^= (to >> 7 & 7) << 4;
            if (row >= 0 && row < (int64_t)c->map.rows && column >= 0 &&
                column < (int64_t)c->map.columns)
                memcpy((void *)to, c->map.at + row * (int64_t)c->map.stride + column, 16);
            else
                memset((void *)to, 0, 16);
        }
}

static void land_all(mbarrier *m)
{
    std::vector<tma_copy> copies;
    copies.swap(m->on_way);
    for (const tma_copy &c : copies) {
        land(&c);
        m->bytes -= 128 * c.map.box_rows;
    }
    end_phase_if_full(m);
}

void emu_mbarrier_wait(uint64_t *b, int parity, emu_place at)
{
    race_access(b, 8, false, __builtin_return_address(0));
    mbarrier *m = mbarrier_at(b, at);
    while (m->phase % 2 == parity) {
        if (!m->on_way.empty()) {
            land_all(m);
            continue;
        }
        m->waiting.push_back(emu_thread());
        emu_sleep("mbarrier", at);
    }
    race_acquire(b);
}

void emu_tma_load(void *to, const CUtensorMap *map, int row, int column, uint64_t *b, emu_place at)
{
    mbarrier *m = mbarrier_at(b, at);
    tma_copy c = {{}, (char *)to, row, column * 2};
    memcpy(&c.map, map, sizeof c.map);
    if ((uintptr_t)to % 1024)
        emu_fault(at, "TMA: a swizzled box lies at a multiple of 1,024");
    race_access(to, 128 * c.map.box_rows, true, __builtin_return_address(0));
    race_release(b);
    m->on_way.push_back(c);
    if (lands_now() || !m->waiting.empty())
        land_all(m);
}

/* --- products --- */

/* Of a warp: its 16 rows of the group's 64 */
struct product {
    emu_wgmma_lane lane[32];
    uint32_t a[32][4];
    int warp; /* of the group */
    bool done;
};
struct products {
    std::vector<product> issued;
    size_t n_committed;
    bool fenced;
    size_t n_begun; /* of all so far */
};

static products of_warp[32];
static std::vector<emu_place> of_group[8]; /* what its first warp to come did, in order */

void hopper_reset()
{
    mbarriers.clear();
    for (products &p : of_warp)
        p = {};
    for (auto &g : of_group)
        g.clear();
}

static float value_at(uintptr_t at, bool bf16)
{
    uint16_t bits;
    at ^= (at >> 7 & 7) << 4;
    memcpy(&bits, (void *)at, sizeof bits);
    return bf16 ? emu_bf16(bits) : emu_f16(bits);
}

/* Where what a descriptor says has row r and column c of 16: K-major */
static uintptr_t k_major(const tile_view &v, int r, int c)
{
    return (uintptr_t)v.at + (uintptr_t)(r / 8 * v.stride + r % 8 * 128 + 2 * c);
}

/* and row k of 16 and column n: N-major */
static uintptr_t n_major(const tile_view &v, int k, int n)
{
    return (uintptr_t)v.at +
           (uintptr_t)(n / 64 * v.leading + n % 64 * 2 + k / 8 * v.stride + k % 8 * 128);
}

static void run(product *p)
{
    const emu_wgmma_lane &one = p->lane[0];
    float a[16][16], b[16][128];
    if (p->done)
        return;
    p->done = true;
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++) { /* two values a register, as mma has them */
            int row = lane / 4 + i / 2 % 2 * 8, k = lane % 4 * 2 + i % 2 + i / 4 * 8;
            uint32_t bits = p->a[lane][i / 2] >> 16 * (i % 2);
            a[row][k] = !one.a     ? value_at(k_major(one.at_a, 16 * p->warp + row, k), one.bf16)
                        : one.bf16 ? emu_bf16(bits)
                                   : emu_f16(bits);
        }
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < one.n; n++)
            b[k][n] = value_at(one.a ? n_major(one.b, k, n) : k_major(one.b, n, k), one.bf16);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < one.n / 2; i++) {
            int row = lane / 4 + i % 4 / 2 * 8, n = i / 4 * 8 + lane % 4 * 2 + i % 2;
            double sum = 0;
            for (int k = 0; k < 16; k++)
                sum += (double)a[row][k] * b[k][n];
            float *d = p->lane[lane].d + i;
            *d = (float)(one.add ? *d + sum : sum);
        }
}

static void meet_to_multiply(void **operands, unsigned)
{
    product p = {};
    p.warp = emu_thread() / 32 % 4;
    for (int lane = 0; lane < 32; lane++) {
        p.lane[lane] = *(emu_wgmma_lane *)operands[lane];
        if (p.lane[lane].a)
            memcpy(p.a[lane], p.lane[lane].a, sizeof p.a[lane]);
    }
    auto &issued = of_warp[emu_thread() / 32].issued;
    issued.push_back(p);
    for (size_t i = 0, now = lands_now(); now && i < issued.size(); i++) /* one after the other */
        run(&issued[i]);
}

/* Tells of what is read; B once for the group's warps, as each of them waits for it. */
static void note_reads(const emu_wgmma_lane *l, int warp, const void *pc)
{
    if (!emu_finds_races())
        return;
    for (int r = 0; !l->a && r < 16; r++)
        race_access((void *)((uintptr_t)l->at_a.at / 128 * 128 +
                             (uintptr_t)((2 * warp + r / 8) * l->at_a.stride + r % 8 * 128)),
                    128, false, pc);
    for (int k = 0; l->a && k < 16; k++)
        for (int n = 0; n < l->n; n += 64)
            race_access((void *)n_major(l->b, k, n), 128, false, pc);
    for (int n = 0; !l->a && n < l->n; n++)
        race_access((void *)(k_major(l->b, n, 0) / 128 * 128), 128, false, pc);
}

void emu_wgmma(emu_wgmma_lane *l, emu_place at)
{
    int warp = emu_thread() / 32;
    products *p = &of_warp[warp];
    if (!p->fenced)
        emu_fault(at, "wgmma: its registers may have changed since the last wgmma.fence");
    if (emu_lane() == 0) {
        auto &of_all = of_group[warp / 4];
        if (p->n_begun == of_all.size())
            of_all.push_back(at);
        else if (of_all[p->n_begun].line != at.line)
            emu_fault(at, "wgmma: other warps of the group do that of line %d",
                      of_all[p->n_begun].line);
        p->n_begun++;
        note_reads(l, warp % 4, __builtin_return_address(0));
    }
    emu_meet(0xffffffffu, "wgmma", meet_to_multiply, l, false, at);
}

static void meet_to_fence(void **, unsigned)
{
    of_warp[emu_thread() / 32].fenced = true;
}

static void meet_to_commit(void **, unsigned)
{
    products *p = &of_warp[emu_thread() / 32];
    p->n_committed = p->issued.size();
}

static void meet_to_wait(void **, unsigned)
{
    products *p = &of_warp[emu_thread() / 32];
    for (size_t i = 0; i < p->n_committed; i++)
        run(&p->issued[i]);
    p->issued.erase(p->issued.begin(), p->issued.begin() + (long)p->n_committed);
    p->n_committed = 0;
    p->fenced = false;
}

void emu_wgmma_fence(emu_place at)
{
    emu_meet(0xffffffffu, "wgmma.fence", meet_to_fence, nullptr, false, at);
}

void emu_wgmma_commit(emu_place at)
{
    emu_meet(0xffffffffu, "wgmma.commit_group", meet_to_commit, nullptr, false, at);
}

void emu_wgmma_wait(emu_place at)
{
    products *p = &of_warp[emu_thread() / 32];
    for (size_t i = 0; emu_lane() == 0 && i < p->n_committed; i++)
        note_reads(&p->issued[i].lane[0], p->issued[i].warp, __builtin_return_address(0));
    emu_meet(0xffffffffu, "wgmma.wait_group", meet_to_wait, nullptr, false, at);
}
