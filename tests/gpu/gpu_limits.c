#include "gpu_limits.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int ok(cudaError_t e, const char *what)
{
    if (e != cudaSuccess)
        fprintf(stderr, "%s: %s (%s)\n", what, cudaGetErrorName(e), cudaGetErrorString(e));
    return e == cudaSuccess;
}

/* Operations of f16 to float32 that an SM does in a cycle, by NVIDIA's white papers; consumer
 * devices of 8.6 and 8.9 have half of what others of these have */
static double f16_ops_a_cycle(int major, int minor, const char *name)
{
    const int consumer = strstr(name, "GeForce") != NULL;
    switch (major * 10 + minor) {
    case 75:
        return consumer ? 512 : 1024;
    case 80:
        return 2048;
    case 86:
    case 89:
        return consumer ? 512 : 1024;
    case 90:
        return 4096;
    case 100:
    case 103:
        return 8192;
    case 120:
        return consumer ? 512 : 1024;
    default:
        return 0;
    }
}

#ifdef GPU_EMULATED /* has no clocks */
static int attribute(enum cudaDeviceAttr a)
{
    (void)a;
    return 1000;
}
#else
static int attribute(enum cudaDeviceAttr a)
{
    int x = 0;
    return cudaDeviceGetAttribute(&x, a, 0) == cudaSuccess ? x : 0;
}
#endif

static int describe(struct gpu_limits *l)
{
    struct cudaDeviceProp p;
    if (!ok(cudaGetDeviceProperties(&p, 0), "the device's properties"))
        return 0;
    snprintf(l->name, sizeof l->name, "%s", p.name);
    l->major = p.major;
    l->minor = p.minor;
    l->sms = p.multiProcessorCount;
    l->memory_bytes = (double)p.totalGlobalMem;
    /* kHz, and bits of a bus that moves two of them a cycle */
    l->nominal_bandwidth = 2e3 * attribute(cudaDevAttrMemoryClockRate) *
                           attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
    l->nominal_f16 =
        f16_ops_a_cycle(p.major, p.minor, p.name) * l->sms * 1e3 * attribute(cudaDevAttrClockRate);
    return 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum what { COPY, READ, MMA_F16, MMA_S8 };
struct buffers {
    char *from, *to;
    size_t bytes;
    float *sink;
    int blocks, n_mma;
};

static int start(enum what w, const struct buffers *b)
{
    switch (w) {
    case COPY:
        return ok(cudaMemcpyAsync(b->to, b->from, b->bytes, cudaMemcpyDeviceToDevice, NULL),
                  "copy");
    case READ:
        return ok(limits_read(NULL, b->from, b->bytes / 16, b->sink, b->blocks), "read");
    default:
        return ok(limits_mma(NULL, w == MMA_S8, b->n_mma, b->sink, b->blocks), "mma");
    }
}

/* Seconds of one, the best of a few runs of several */
static double seconds(enum what w, const struct buffers *b, int n)
{
    double best = 1e30;
    for (int run = 0; run < 4; run++) {
        const double from = now();
        for (int i = 0; i < n; i++)
            if (!start(w, b))
                return -1;
        if (!ok(cudaDeviceSynchronize(), "waiting"))
            return -1;
        const double took = (now() - from) / n;
        best = took < best ? took : best;
    }
    return best;
}

int gpu_limits_measure(struct gpu_limits *l, int tiny)
{
    struct buffers b = {.bytes = tiny ? 1 << 16 : (size_t)1 << 30, .n_mma = tiny ? 2 : 1 << 14};
    memset(l, 0, sizeof *l);
    if (!describe(l))
        return 0;
    b.blocks = tiny ? 2 : l->sms * 8;
    int all_ok = ok(cudaMalloc((void **)&b.from, b.bytes), "memory") &&
                 ok(cudaMalloc((void **)&b.to, b.bytes), "memory") &&
                 ok(cudaMalloc((void **)&b.sink, sizeof *b.sink), "memory") &&
                 ok(cudaMemset(b.from, 0x5a, b.bytes), "filling");
    double took[4];
    for (int w = COPY; w <= MMA_S8 && all_ok; w++)
        all_ok = (took[w] = seconds((enum what)w, &b, w <= READ && !tiny ? 8 : 1)) > 0;
    if (all_ok) {
        l->copy_bandwidth = 2 * (double)b.bytes / took[COPY];
        l->read_bandwidth = (double)b.bytes / took[READ];
        l->mma_f16 = limits_mma_ops(0, b.n_mma, b.blocks) / took[MMA_F16];
        l->mma_s8 = limits_mma_ops(1, b.n_mma, b.blocks) / took[MMA_S8];
    }
    cudaFree(b.from);
    cudaFree(b.to);
    cudaFree(b.sink);
    return all_ok;
}
