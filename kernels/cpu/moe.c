#include "moe.h"

#include <limits.h>

#include "backend_common.h"
#include "step.h"

static bool take_lists(struct cpu_backend *b, struct moe *m, size_t slots, struct err *e)
{
    size_t experts = (size_t)m->config.n_experts,
           jobs = experts + slots / (TOKEN_TILE / MAX_PLANES);
    struct {
        void **at;
        size_t n, size;
    } wanted[] = {
        {(void **)&m->chosen, slots, sizeof *m->chosen},
        {(void **)&m->share, slots, sizeof *m->share},
        {(void **)&m->slot, slots, sizeof *m->slot},
        {(void **)&m->row, slots, sizeof *m->row},
        {(void **)&m->next, experts, sizeof *m->next},
        {(void **)&m->jobs, jobs, sizeof *m->jobs},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].at = blocks_pack(&b->blocks, wanted[i].n, wanted[i].size, "experts",
                                    &b->memory.activations, e);
        if (!*wanted[i].at)
            return false;
    }
    return true;
}

struct moe *moe_new(struct backend *base, const struct moe_config *c, struct err *e)
{
    struct cpu_backend *b = (struct cpu_backend *)base;
    const struct matrix_shape gate = {c->gate->rows, c->gate->cols};
    const struct matrix_shape down = {c->down->rows, c->down->cols};
    if (!moe_config_check(c, gate, down, b->config.max_rows, INT_MAX / 64, e))
        return NULL;
    struct moe *m = blocks_take(&b->blocks, 1, sizeof *m, "experts", NULL, e);
    if (!m)
        return NULL;
    *m = (struct moe){.config = *c};
    int slots = b->config.max_rows * c->n_used;
    bool ok =
        take_lists(b, m, (size_t)slots, e) &&
        (m->x = step_rows_new(b, c->n_embd, slots, dtype_is_quantised(c->gate->type), e)) != NULL &&
        (m->middle = step_rows_new(b, c->n_ff, slots, dtype_is_quantised(c->down->type), e)) &&
        (m->y = step_rows_new(b, c->n_embd, slots, false, e)) != NULL;
    return ok ? m : NULL;
}
