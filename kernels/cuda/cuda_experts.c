/* cuda_experts.c: mixtures of experts: scratch memory, and where the weights of a layer's are. */
#include "backend_common.h"
#include "cuda_backend.h"

#include <assert.h>

struct moe *cuda_moe_new(struct backend *base, const struct moe_config *c, struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    const struct matrix_shape gate = {c->gate->rows, c->gate->cols};
    const struct matrix_shape down = {c->down->rows, c->down->cols};
    if (!moe_config_check(c, gate, down, b->config.max_rows, 1 << 24, e))
        return NULL;
    struct moe *m = blocks_take(&b->blocks, 1, sizeof *m, "experts", NULL, e);
    if (!m)
        return NULL;
    m->moe = (struct cuda_moe){
        .n_experts = c->n_experts,
        .n_used = c->n_used,
        .n_embd = c->n_embd,
        .n_ff = c->n_ff,
        .renormalise = c->renormalise,
        .act = c->act,
        .x_reader = c->gate->type,
        .middle_reader = c->down->type,
        .planes = b->config.fine_activations ? 2 : 1,
        .max_rows = b->config.max_rows,
    };
    m->moe.scratch = cuda_arena_take(&b->activations, cuda_moe_bytes(&m->moe), "experts", e);
    return m->moe.scratch ? m : NULL;
}

/* All of one type: the reader's own, or any quantised one. */
static bool check_experts(const struct weight *const *w, int n, int rows, int cols,
                          enum dtype reader, struct err *e)
{
    for (int i = 0; i < n; i++) {
        assert(w[i]->rows == rows && w[i]->cols == cols);
        if (w[i]->type != w[0]->type)
            return err_set(e, ERR_UNSUPPORTED,
                           "experts of a layer of types %s and %s: the CUDA backend wants one",
                           dtype_info(w[0]->type)->name, dtype_info(w[i]->type)->name);
    }
    return cuda_is_quantised(w[0]->type) || w[0]->type == reader ||
           err_set(e, ERR_UNSUPPORTED,
                   "experts of types %s and %s: the CUDA backend wants one for all layers",
                   dtype_info(reader)->name, dtype_info(w[0]->type)->name);
}

/* One of the three matrices: their places go to the device. */
static bool put_experts(struct cuda_backend *b, struct cuda_experts *to,
                        const struct weight *const *w, const struct weight *bias, int n,
                        struct err *e)
{
    const size_t bytes = (size_t)n * sizeof(void *);
    const void **places = blocks_take(&b->blocks, 1, bytes, "experts", NULL, e);
    void *at = places ? cuda_arena_take(&b->weights, bytes, "experts", e) : NULL;
    for (int i = 0; at && i < n; i++)
        places[i] = w[i]->matrix.data;
    const bool ok = at && cuda_put(at, places, bytes, "copying where experts are", e);
    blocks_give(&b->blocks, places, NULL);
    *to = (struct cuda_experts){.type = w[0]->type, .data = at};
    if (bias)
        to->bias = bias->matrix;
    return ok && (!bias || to->bias.data ||
                  err_set(e, ERR_UNSUPPORTED, "a bias of one expert: the CUDA backend wants more"));
}

bool cuda_moe_layer_new(struct backend *base, struct moe *m, const struct moe_layer *l,
                        struct err *e)
{
    struct cuda_backend *b = cuda_of(base);
    const struct cuda_moe *c = &m->moe;
    const int n = c->n_experts;
    if (!check_experts(l->gate, n, c->n_ff, c->n_embd, c->x_reader, e) ||
        !check_experts(l->up, n, c->n_ff, c->n_embd, c->x_reader, e) ||
        !check_experts(l->down, n, c->n_embd, c->n_ff, c->middle_reader, e))
        return false;
    struct cuda_layer_experts *x = blocks_take(&b->blocks, 1, sizeof *x, "experts", NULL, e);
    if (!x || !put_experts(b, &x->layer.gate, l->gate, l->gate_bias, n, e) ||
        !put_experts(b, &x->layer.up, l->up, l->up_bias, n, e) ||
        !put_experts(b, &x->layer.down, l->down, l->down_bias, n, e))
        return false;
    x->of = l->gate;
    x->next = m->layers;
    m->layers = x;
    return true;
}

const struct cuda_moe_layer *cuda_moe_layer_of(const struct moe *m, const struct moe_layer *l)
{
    const struct cuda_layer_experts *x = m->layers;
    while (x && x->of != l->gate)
        x = x->next;
    assert(x);
    return &x->layer;
}
