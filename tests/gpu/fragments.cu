#include "device.cuh"

#include "fragments.h"

INLINE uint32_t bits(float x)
{
    return (uint32_t)__float_as_int(x);
}

INLINE float value(uint32_t x)
{
    return __int_as_float((int)x);
}

INLINE void run_mma(enum fragment_op op, uint32_t out[4], const uint32_t in[FRAGMENT_IN])
{
    float d[4] = {value(in[6]), value(in[7]), value(in[8]), value(in[9])};
    if (op == FRAGMENT_MMA_F16)
        mma_f16(d, in, in + 4);
    else
        mma_bf16(d, in, in + 4);
    for (int i = 0; i < 4; i++)
        out[i] = bits(d[i]);
}

INLINE void run_mma_s8(enum fragment_op op, uint32_t out[4], const uint32_t in[FRAGMENT_IN])
{
    int d[4] = {(int)in[6], (int)in[7], (int)in[8], (int)in[9]};
    if (op == FRAGMENT_MMA_S8)
        mma_s8(d, in, in + 4);
    else
        mma_s8_half(d, in[0], in[1], in[4]);
    for (int i = 0; i < 4; i++)
        out[i] = (uint32_t)d[i];
}

/* By way of shared memory, a row of 16 bytes a lane */
INLINE void run_rows(enum fragment_op op, uint4 *rows, uint32_t out[4], const uint32_t *in)
{
    uint32_t *row = (uint32_t *)(rows + threadIdx.x);
    if (op == FRAGMENT_CP_ASYNC) {
        cp_async16(row, in, (int)(in[4] % 17));
        cp_async_commit();
        cp_async_wait<0>();
        for (int i = 0; i < 4; i++)
            out[i] = row[i];
        return;
    }
    for (int i = 0; i < 4; i++)
        row[i] = in[i];
    __syncwarp();
    if (op == FRAGMENT_LDMATRIX)
        ldmatrix_x4(out, row);
    else
        ldmatrix_x4_trans(out, row);
}

INLINE void run_scalars(enum fragment_op op, uint32_t out[4], const uint32_t *in)
{
    if (op == FRAGMENT_EXP2) {
        for (int i = 0; i < 4; i++)
            out[i] = bits(exp2_approx(value(in[i])));
    } else if (op == FRAGMENT_WARP_SUM) {
        out[0] = bits(warp_sum(value(in[0])));
    } else {
        __half h;
        __nv_bfloat16 b;
        store_float(&h, value(in[0]));
        store_float(&b, value(in[1]));
        out[0] = bits(to_float(h));
        out[1] = bits(to_float(b));
    }
}

/* Sources of copies lie at multiples of 16: rows of `in` as the host gives them do not. */
static __global__ void fragment_kernel(enum fragment_op op, uint32_t *out, const uint32_t *in)
{
    SHARED(uint4, rows, [32]);
    const int lane = threadIdx.x;
    uint32_t mine[FRAGMENT_IN], got[4] = {};
    for (int i = 0; i < FRAGMENT_IN; i++)
        mine[i] = in[lane * FRAGMENT_IN + i];
    if (op <= FRAGMENT_MMA_BF16)
        run_mma(op, got, mine);
    else if (op <= FRAGMENT_MMA_S8_HALF)
        run_mma_s8(op, got, mine);
    else if (op <= FRAGMENT_LDMATRIX_TRANS)
        run_rows(op, rows, got, mine);
    else if (op == FRAGMENT_CP_ASYNC) /* `in` is [32][8] then, 4 words a row of no meaning */
        run_rows(op, rows, got, in + lane * 8);
    else
        run_scalars(op, got, mine);
    for (int i = 0; i < FRAGMENT_OUT; i++)
        out[lane * FRAGMENT_OUT + i] = got[i];
}

cudaError_t fragment_run(cudaStream_t s, enum fragment_op op, uint32_t *out, const uint32_t *in)
{
    LAUNCH(fragment_kernel, 1, 32, 0, s)(op, out, in);
    return cudaGetLastError();
}
