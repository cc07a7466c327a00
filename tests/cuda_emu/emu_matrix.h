/* emu_matrix.h: the instructions of device.cuh that have no name in CUDA C. Fragment layouts are
 * those of the PTX ISA: with g = lane / 4 and t = lane % 4, register i of A holds row
 * g + 8 * (i & 1), of B column g; of D column 2 t + (i & 1) of row g + 8 * (i / 2). */
#ifndef TOKEND_EMU_MATRIX_H
#define TOKEND_EMU_MATRIX_H

static inline void cp_async16(void *shared, const void *global, int n_source, EMU_HERE)
{
    emu_copy_async(shared, global, 16, n_source, EMU_THERE);
}

static inline void cp_async_commit()
{
    emu_copy_commit();
}

template <int N> static inline void cp_async_wait()
{
    emu_copy_wait(N);
}

/* --- ldmatrix --- */

struct emu_ldmatrix {
    uint16_t row[8];
    uint32_t r[4];
};

template <bool TRANS> void emu_ldmatrix_meet(void **operands, unsigned)
{
    for (int lane = 0; lane < 32; lane++)
        for (int m = 0; m < 4; m++) {
            uint32_t pair = 0;
            for (int j = 0; j < 2; j++) {
                int row = TRANS ? lane % 4 * 2 + j : lane / 4;
                int col = TRANS ? lane / 4 : lane % 4 * 2 + j;
                auto *from = (emu_ldmatrix *)operands[8 * m + row];
                pair |= (uint32_t)from->row[col] << 16 * j;
            }
            ((emu_ldmatrix *)operands[lane])->r[m] = pair;
        }
}

template <bool TRANS>
static inline void emu_load_matrix(uint32_t r[4], const void *row, emu_place at)
{
    emu_ldmatrix op;
    if ((uintptr_t)row & 15)
        emu_fault(at, "ldmatrix: a row's address is not a multiple of 16");
    memcpy(op.row, row, sizeof op.row);
    emu_meet(0xffffffffu, TRANS ? "ldmatrix.trans" : "ldmatrix", emu_ldmatrix_meet<TRANS>, &op,
             false, at);
    memcpy(r, op.r, sizeof op.r);
}

static inline void ldmatrix_x4(uint32_t r[4], const void *row, EMU_HERE)
{
    emu_load_matrix<false>(r, row, EMU_THERE);
}

static inline void ldmatrix_x4_trans(uint32_t r[4], const void *row, EMU_HERE)
{
    emu_load_matrix<true>(r, row, EMU_THERE);
}

static inline float exp2_approx(float x)
{
    float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
}

/* --- mma --- */

template <class T> struct emu_mma {
    T *d;
    const uint32_t *a, *b;
};

static inline float emu_f16(uint32_t bits)
{
    __half_raw raw;
    raw.x = (unsigned short)bits;
    return __half2float(__half(raw));
}

static inline float emu_bf16(uint32_t bits)
{
    __nv_bfloat16_raw raw;
    raw.x = (unsigned short)bits;
    return __bfloat162float(__nv_bfloat16(raw));
}

/* D[16][8] += A[16][K] * B[K][8], registers of PER values, K = 8 * PER */
template <class T, class IN, class SUM, int PER, IN (*VALUE)(uint32_t)>
void emu_mma_meet(void **operands, unsigned)
{
    IN a[16][PER * 8], b[PER * 8][8];
    for (int lane = 0; lane < 32; lane++) {
        auto *op = (emu_mma<T> *)operands[lane];
        int g = lane / 4, t = lane % 4;
        for (int j = 0; j < PER; j++) {
            int shift = 32 / PER * j, k = t * PER + j;
            for (int i = 0; i < 4; i++)
                a[g + i % 2 * 8][k + i / 2 * 4 * PER] = VALUE(op->a[i] >> shift);
            for (int i = 0; i < 2; i++)
                b[k + i * 4 * PER][g] = VALUE(op->b[i] >> shift);
        }
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            T *d = ((emu_mma<T> *)operands[lane])->d + i;
            SUM sum = 0;
            for (int k = 0; k < PER * 8; k++)
                sum += (SUM)a[lane / 4 + i / 2 * 8][k] * (SUM)b[k][lane % 4 * 2 + i % 2];
            *d = (T)((SUM)*d + sum);
        }
}

static inline int emu_s8(uint32_t bits)
{
    return (int8_t)bits;
}

static inline void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2], EMU_HERE)
{
    emu_mma<float> op = {d, a, b};
    emu_meet(0xffffffffu, "mma.f16", emu_mma_meet<float, float, double, 2, emu_f16>, &op, false,
             EMU_THERE);
}

static inline void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2], EMU_HERE)
{
    emu_mma<float> op = {d, a, b};
    emu_meet(0xffffffffu, "mma.bf16", emu_mma_meet<float, float, double, 2, emu_bf16>, &op, false,
             EMU_THERE);
}

static inline void mma_s8(int d[4], const uint32_t a[4], const uint32_t b[2], EMU_HERE)
{
    emu_mma<int> op = {d, a, b};
    emu_meet(0xffffffffu, "mma.s8", emu_mma_meet<int, int, int, 4, emu_s8>, &op, false, EMU_THERE);
}

/* Of the half that is missing A is 0. */
static inline void mma_s8_half(int d[4], uint32_t a0, uint32_t a1, uint32_t b, EMU_HERE)
{
    const uint32_t rows[4] = {a0, a1, 0, 0}, columns[2] = {b, 0};
    emu_mma<int> op = {d, rows, columns};
    emu_meet(0xffffffffu, "mma.s8 of 16", emu_mma_meet<int, int, int, 4, emu_s8>, &op, false,
             EMU_THERE);
}

/* Half of k, and half of the rows: what compute capability 7.5 has */
static inline void mma_f16_k8(float d[4], uint32_t a0, uint32_t a1, uint32_t b, EMU_HERE)
{
    const uint32_t rows[4] = {a0, a1, 0, 0}, columns[2] = {b, 0};
    emu_mma<float> op = {d, rows, columns};
    emu_meet(0xffffffffu, "mma.f16 of 8", emu_mma_meet<float, float, double, 2, emu_f16>, &op,
             false, EMU_THERE);
}

static inline void mma_s8_m8(int d[2], uint32_t a, uint32_t b, EMU_HERE)
{
    const uint32_t rows[4] = {a, 0, 0, 0}, columns[2] = {b, 0};
    int sums[4] = {d[0], d[1], 0, 0};
    emu_mma<int> op = {sums, rows, columns};
    emu_meet(0xffffffffu, "mma.s8 of 8 rows", emu_mma_meet<int, int, int, 4, emu_s8>, &op, false,
             EMU_THERE);
    d[0] = sums[0];
    d[1] = sums[1];
}

#endif
