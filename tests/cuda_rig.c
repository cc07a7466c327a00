#include "cuda_rig.h"

#include "dtype.h"
#include "panel.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

enum { MAX_PIECES = 1024 };
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
    if (!emu_emulated()) /* a GPU has its own order, another each time */
        return;
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

/* --- matrices and rows --- */

static size_t value_bytes(enum dtype t)
{
    return t == DTYPE_F32 ? 4 : 2;
}

static int padded(int cols)
{
    return (cols + 31) / 32 * 32;
}

void *rig_float_rows(enum dtype t, const void *rows, int n, int n_taken, int cols)
{
    const size_t from = (size_t)cols * value_bytes(t), to = (size_t)padded(cols) * value_bytes(t);
    uint8_t *all = malloc((size_t)n_taken * to);
    memset(all, 0xff, (size_t)n_taken * to);
    memset(all, 0, (size_t)n * to);
    for (int r = 0; r < n; r++)
        memcpy(all + (size_t)r * to, (const uint8_t *)rows + (size_t)r * from, from);
    void *at = rig_upload(all, (size_t)n_taken * to);
    free(all);
    return at;
}

struct cuda_matrix rig_matrix(const struct ref_matrix *m)
{
    const struct panel_form form = panel_form(m->type);
    struct cuda_matrix w = {m->type, m->rows, m->cols, NULL};
    if (!form.bits) {
        w.data = rig_float_rows(m->type, m->bytes, m->rows, m->rows, m->cols);
        return w;
    }
    size_t size = (size_t)panel_sizes(&form, m->cols).bytes;
    int n = (m->rows + PANEL_ROWS - 1) / PANEL_ROWS;
    uint8_t *panels = malloc(size * (size_t)n);
    for (int i = 0; i < n; i++)
        panel_pack(m->type, m->rows, m->cols, m->bytes, i * PANEL_ROWS, panels + size * (size_t)i);
    w.data = rig_upload(panels, size * (size_t)n);
    free(panels);
    return w;
}

struct cuda_rows rig_rows(enum dtype reader, int width, int n, int planes)
{
    struct cuda_rows r = {.type = reader};
    if (!panel_form(reader).bits) {
        r.values = rig_device((size_t)cuda_qrows_stride(n, 1) * (size_t)padded(width) *
                              value_bytes(reader));
        return r;
    }
    r.q.planes = planes;
    r.q.stride = cuda_qrows_stride(n, planes);
    size_t blocks = (size_t)(width / BLOCK_VALUES) * (size_t)r.q.stride;
    r.q.q = rig_device(blocks * BLOCK_VALUES);
    r.q.s = rig_device(blocks * sizeof *r.q.s);
    return r;
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
