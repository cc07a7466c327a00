#include "cuda_rig.h"

#include "dtype.h"
#include "random.h"
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { MAX_PIECES = 256 };
static struct {
    void *at;
    bool device;
} pieces[MAX_PIECES];
static int n_pieces;

static void *kept(void *at, bool device)
{
    assert_true(n_pieces < MAX_PIECES);
    pieces[n_pieces].at = at;
    pieces[n_pieces++].device = device;
    return at;
}

static void run_in(void (*test)(void), enum emu_order order, enum emu_landing landing,
                   enum emu_streams streams, uint64_t seed)
{
    struct emu_options o = {order, landing, streams, seed};
    emu_configure(&o);
    test();
    rig_free_all();
    cuda_ok(cudaDeviceSynchronize());
    if (emu_reports())
        fail_msg("order %d, landing %d, streams %d, seed %llu: %s", order, landing, streams,
                 (unsigned long long)seed, emu_last_report());
}

void rig_in_all_orders(void (*test)(void))
{
    uint64_t seed = random_seed("orders");
    emu_forgive();
    run_in(test, EMU_FIFO, EMU_LATE, EMU_EAGER, 0);
    run_in(test, EMU_LIFO, EMU_EARLY, EMU_LAZY, 0);
    if (emu_finds_races()) /* whatever the order */
        return;
    run_in(test, EMU_FIFO, EMU_EARLY, EMU_LAZY, 0);
    run_in(test, EMU_LIFO, EMU_LATE, EMU_EAGER, 0);
    for (int i = 0; i < 3; i++) {
        run_in(test, EMU_RANDOM, EMU_EITHER, EMU_MIXED, random_next(&seed));
        run_in(test, EMU_WARP, EMU_EITHER, EMU_MIXED, random_next(&seed));
    }
}

void rig_cuda_ok(cudaError_t e, const char *call, const char *file, int line)
{
    if (e != cudaSuccess) {
        printf("%s:%d: %s: %s %s\n", file, line, call, cudaGetErrorName(e), emu_last_report());
        fail();
    }
}

void *rig_device(size_t size)
{
    void *at = NULL;
    cuda_ok(cudaMalloc(&at, size));
    cuda_ok(cudaMemset(at, 0xff, size));
    return kept(at, true);
}

void *rig_upload(const void *from, size_t size)
{
    void *at = rig_device(size);
    cuda_ok(cudaMemcpy(at, from, size, cudaMemcpyHostToDevice));
    return at;
}

void rig_download(void *to, const void *from, size_t size)
{
    cuda_ok(cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost));
    cuda_ok(cudaGetLastError());
}

void rig_free_all(void)
{
    while (n_pieces > 0) {
        n_pieces--;
        if (pieces[n_pieces].device)
            cudaFree(pieces[n_pieces].at);
        else
            free(pieces[n_pieces].at);
    }
}

float *rig_randoms(int64_t n, double scale, uint64_t *seed)
{
    float *x = kept(malloc((size_t)n * sizeof *x), false);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(scale * ref_random(seed));
    return x;
}

void rig_widen(enum dtype type, const void *from, float *to, int64_t n)
{
    dtype_to_f32(type, from, to, n);
}

void rig_near(const char *what, const float *a, const double *b, int64_t n, double atol,
              double rtol)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= atol + rtol * fabs(b[i])) && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: value %lld is %.9g, not %.9g", what, (long long)i, a[i], b[i]);
}
