/* cuda_memory.c: memory of the device, pinned memory of the host. */
#include "cuda_backend.h"

#include <stdlib.h>

static const double MiB = 1024.0 * 1024.0;

enum {
    ALIGNMENT = 256,
    SHARED_PIECE = 4 << 20, /* of parts that are at most half as large */
};

struct cuda_piece {
    struct cuda_piece *next;
    void *at;
};

struct cuda_pinned {
    struct cuda_pinned *next;
    void *at;
};

bool cuda_check(cudaError_t code, const char *what, struct err *e)
{
    return code == cudaSuccess || err_set(e, ERR_DEVICE, "CUDA: %s: %s (%s)", what,
                                          cudaGetErrorString(code), cudaGetErrorName(code));
}

/* --- memory of the device --- */

static void *take(size_t bytes, const char *what, struct err *e)
{
    void *at = NULL;
    size_t free_bytes = 0, total = 0;
    const cudaError_t code = cudaMalloc(&at, bytes);
    if (code == cudaSuccess)
        return at;
    cudaGetLastError(); /* no kernel's error */
    if (code != cudaErrorMemoryAllocation)
        cuda_check(code, what, e);
    else if (cuda_check(cudaMemGetInfo(&free_bytes, &total), what, e))
        err_set(e, ERR_MEMORY,
                "%s: %.1f MiB of the GPU's memory are wanted, of which %.1f of %.1f MiB are free",
                what, (double)bytes / MiB, (double)free_bytes / MiB, (double)total / MiB);
    return NULL;
}

static size_t whole_pieces(size_t bytes)
{
    return (bytes + CUDA_PIECE - 1) / CUDA_PIECE * CUDA_PIECE;
}

static void *take_piece(struct cuda_arena *a, size_t bytes, const char *what, struct err *e)
{
    struct cuda_piece *p = malloc(sizeof *p);
    if (!p) {
        err_set(e, ERR_MEMORY, "%s: out of memory", what);
        return NULL;
    }
    p->at = take(bytes, what, e);
    if (!p->at) {
        free(p);
        return NULL;
    }
    p->next = a->pieces;
    a->pieces = p;
    a->bytes += bytes;
    return p->at;
}

void *cuda_arena_take_apart(struct cuda_arena *a, size_t bytes, const char *what, struct err *e)
{
    if (bytes <= SIZE_MAX / 2)
        return take_piece(a, whole_pieces(bytes), what, e);
    err_set(e, ERR_MEMORY, "%s: too large", what);
    return NULL;
}

void *cuda_arena_take(struct cuda_arena *a, size_t bytes, const char *what, struct err *e)
{
    if (bytes > SIZE_MAX / 2) {
        err_set(e, ERR_MEMORY, "%s: too large", what);
        return NULL;
    }
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (bytes > SHARED_PIECE / 2)
        return take_piece(a, whole_pieces(bytes), what, e);
    if (bytes > a->left) {
        uint8_t *piece = take_piece(a, SHARED_PIECE, what, e);
        if (!piece)
            return NULL;
        a->at = piece;
        a->left = SHARED_PIECE;
    }
    uint8_t *at = a->at;
    a->at += bytes;
    a->left -= bytes;
    return at;
}

void cuda_arena_free(struct cuda_arena *a)
{
    for (struct cuda_piece *p = a->pieces, *next; p; p = next) {
        next = p->next;
        cudaFree(p->at);
        free(p);
    }
    *a = (struct cuda_arena){0};
}

bool cuda_scratch_reserve(struct cuda_backend *b, struct cuda_scratch *s, size_t bytes,
                          struct err *e)
{
    if (bytes <= s->bytes)
        return true;
    b->scratch_bytes -= s->bytes;
    cuda_scratch_free(s);
    cuda_graphs_forget(b);
    bytes = whole_pieces(bytes);
    s->at = take(bytes, "activations", e);
    s->bytes = s->at ? bytes : 0;
    b->scratch_bytes += s->bytes;
    return s->at;
}

void cuda_scratch_free(struct cuda_scratch *s)
{
    cudaFree(s->at);
    *s = (struct cuda_scratch){0};
}

bool cuda_put(void *to, const void *from, size_t bytes, const char *what, struct err *e)
{
    cudaError_t code = cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
    if (code == cudaSuccess) /* else it may be on its way, which other streams do not wait for */
        code = cudaDeviceSynchronize();
    return cuda_check(code, what, e);
}

/* --- pinned memory --- */

void *cuda_pinned_take(struct cuda_backend *b, size_t bytes, const char *what, struct err *e)
{
    struct cuda_pinned *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(e, ERR_MEMORY, "%s: out of memory", what);
        return NULL;
    }
    if (!cuda_check(cudaHostAlloc(&p->at, bytes, cudaHostAllocDefault), what, e)) {
        err_prefix(e, "%.1f MiB of pinned memory", (double)bytes / MiB);
        free(p);
        return NULL;
    }
    p->next = b->pinned;
    b->pinned = p;
    return p->at;
}

void cuda_pinned_free(struct cuda_backend *b)
{
    for (struct cuda_pinned *p = b->pinned, *next; p; p = next) {
        next = p->next;
        cudaFreeHost(p->at);
        free(p);
    }
    b->pinned = NULL;
}
