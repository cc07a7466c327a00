/* weights.h: the tensors of a model by canonical name, whatever files they come from.
 *
 * Canonical names are GGUF's: "token_embd.weight", "blk.3.attn_q.weight",
 * "blk.3.ffn_gate_exps.weight" ... Files that fuse tensors (q, k and v; gate and up; all experts
 * of a layer), or keep the experts of a layer apart, are asked by the same names. Nothing is read
 * before it is asked for. Reading needs no lock. */
#ifndef TOKEND_WEIGHTS_H
#define TOKEND_WEIGHTS_H

#include "dtype.h"
#include "err.h"
#include "gguf.h"

struct weights;

struct weight_view {
    enum dtype dtype;
    int64_t rows, cols;
    const void *data; /* in the file's mapping, or owned */
    void *owned;      /* what had to be rearranged, or NULL */
    struct {
        const void *at; /* NULL: none */
        size_t bytes;
    } mapped;       /* the part of a file's mapping that it was made of */
    char what[160]; /* the file's own name of it, for messages */
};

bool weights_has(const struct weights *, const char *name);

/* The tensor of this name (expert >= 0: that expert's matrix) with exactly this shape; rows = 1:
 * a vector. Slices of fused tensors point into the file; what must be rearranged is made in
 * memory that the view owns. A wrong shape or a type that we do not compute with is an error that
 * names file and tensor, what it is and what it should be. The view lives as long as the
 * weights. */
bool weights_get(const struct weights *, const char *name, int expert, int64_t rows, int64_t cols,
                 struct weight_view *out, struct err *e);
/* The file's pages count no longer as this process's memory. A zeroed one is fine. */
void weight_view_free(struct weight_view *);

/* As weights_get, but nothing is read or made: *out has no data, and need not be freed. */
bool weights_check(const struct weights *, const char *name, int expert, int64_t rows, int64_t cols,
                   struct weight_view *out, struct err *e);
/* All matrices are F32. */
bool weights_all_f32(const struct weights *);

/* Of a GGUF file, which must outlive it. NULL: out of memory. */
struct weights *weights_open_gguf(const struct gguf *, struct err *e);
void weights_close(struct weights *); /* NULL is fine */

#endif
