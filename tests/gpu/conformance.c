/* conformance.c: does each wrapper of device.cuh do on this device what it does on the other?
 *
 *   conformance FILE            writes what the wrappers make of random fragments
 *   conformance FILE REFERENCE  and compares it with what another device's run wrote
 *
 * Integers, moves and conversions must agree in every bit; sums of products as near as an order of
 * addition that the ISA leaves open allows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "dtype.h"
#include "fragments.h"

enum { TIMES = 16, LANES = 32, WORDS_IN = LANES * FRAGMENT_IN, WORDS_OUT = LANES * FRAGMENT_OUT };

struct results {
    uint32_t words[FRAGMENT_OPS][TIMES][WORDS_OUT];
};

static const struct {
    const char *name;
    double atol, rtol; /* of float32; 0, 0: bits */
} ops[FRAGMENT_OPS] = {
    [FRAGMENT_MMA_F16] = {"mma_f16", 2e-5, 1e-5},
    [FRAGMENT_MMA_BF16] = {"mma_bf16", 2e-5, 1e-5},
    [FRAGMENT_MMA_S8] = {"mma_s8", 0, 0},
    [FRAGMENT_MMA_S8_HALF] = {"mma_s8_half", 0, 0},
    [FRAGMENT_LDMATRIX] = {"ldmatrix_x4", 0, 0},
    [FRAGMENT_LDMATRIX_TRANS] = {"ldmatrix_x4_trans", 0, 0},
    [FRAGMENT_CP_ASYNC] = {"cp_async16", 0, 0},
    [FRAGMENT_EXP2] = {"exp2_approx", 0, 0x1p-21},
    [FRAGMENT_WARP_SUM] = {"warp_sum", 0, 0},
    [FRAGMENT_STORE] = {"store_float", 0, 0},
};

static uint64_t state;

static uint32_t random_word(void)
{
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = state;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)((x ^ x >> 27) >> 32);
}

/* In [-scale, scale) */
static float random_float(float scale)
{
    return ((float)(random_word() >> 8) * 0x1p-23f - 1) * scale;
}

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint32_t random_pair(enum fragment_op op)
{
    const float a = random_float(1), b = random_float(1);
    return op == FRAGMENT_MMA_F16 ? f32_to_f16(a) | (uint32_t)f32_to_f16(b) << 16
                                  : f32_to_bf16(a) | (uint32_t)f32_to_bf16(b) << 16;
}

static uint32_t random_input(enum fragment_op op, int i)
{
    switch (op) {
    case FRAGMENT_MMA_F16:
    case FRAGMENT_MMA_BF16:
        return i < 6 ? random_pair(op) : float_bits(random_float(1));
    case FRAGMENT_EXP2:
        return float_bits(random_float(140));
    case FRAGMENT_WARP_SUM:
        return float_bits(random_float(1));
    case FRAGMENT_STORE:
        return float_bits(random_float(i ? 1e38f : 7e4f));
    default:
        return random_word();
    }
}

static int failed_call(cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        printf("%s: %s (%s)\n", what, cudaGetErrorName(e), cudaGetErrorString(e));
    return e != cudaSuccess;
}

static int run(struct results *r)
{
    uint32_t in[WORDS_IN], *device_in = NULL, *device_out = NULL;
    int failed = failed_call(cudaMalloc((void **)&device_in, sizeof in), "cudaMalloc") ||
                 failed_call(cudaMalloc((void **)&device_out, sizeof r->words[0][0]), "cudaMalloc");
    for (int op = 0; op < FRAGMENT_OPS && !failed; op++) {
        state = (uint64_t)op;
        for (int t = 0; t < TIMES && !failed; t++) {
            for (int i = 0; i < WORDS_IN; i++)
                in[i] = random_input((enum fragment_op)op, i % FRAGMENT_IN);
            failed =
                failed_call(cudaMemcpy(device_in, in, sizeof in, cudaMemcpyHostToDevice), "in") ||
                failed_call(fragment_run(NULL, (enum fragment_op)op, device_out, device_in),
                            ops[op].name) ||
                failed_call(cudaMemcpy(r->words[op][t], device_out, sizeof r->words[op][t],
                                       cudaMemcpyDeviceToHost),
                            ops[op].name);
        }
    }
    cudaFree(device_in);
    cudaFree(device_out);
    return failed;
}

static int agree(int op, uint32_t a, uint32_t b)
{
    float x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    if (a == b || (ops[op].rtol > 0 && isnan(x) && isnan(y)))
        return 1;
    return ops[op].rtol > 0 && fabs((double)x - y) <= ops[op].atol + ops[op].rtol * fabs(y);
}

static int compare(const struct results *got, const struct results *want)
{
    int n_failed = 0;
    for (int op = 0; op < FRAGMENT_OPS; op++) {
        int n = 0;
        for (int i = 0; i < TIMES * WORDS_OUT; i++) {
            const int run = i / WORDS_OUT, at = i % WORDS_OUT;
            const uint32_t a = got->words[op][run][at], b = want->words[op][run][at];
            if (!agree(op, a, b) && n++ == 0)
                printf("%s: run %d, lane %d, register %d is %08x here, %08x there\n", ops[op].name,
                       run, at / FRAGMENT_OUT, at % FRAGMENT_OUT, a, b);
        }
        printf("%-20s %s\n", ops[op].name, n ? "DIFFERS" : "agrees");
        n_failed += n > 0;
    }
    printf("%d passed, %d failed\n", FRAGMENT_OPS - n_failed, n_failed);
    return n_failed;
}

int main(int argc, char **argv)
{
    struct results *got = calloc(2, sizeof *got), *want = got + 1;
    if (argc < 2 || !got || run(got))
        return 2;
    FILE *f = fopen(argv[1], "wb");
    if (!f || fwrite(got, sizeof *got, 1, f) != 1 || fclose(f) != 0)
        return perror(argv[1]), 2;
    if (argc < 3)
        return 0;
    f = fopen(argv[2], "rb");
    if (!f || fread(want, sizeof *want, 1, f) != 1)
        return perror(argv[2]), 2;
    fclose(f);
    return compare(got, want) > 0;
}
