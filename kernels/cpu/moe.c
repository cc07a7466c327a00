#include "moe.h"

#include <limits.h>

#include "step.h"

static bool check_config(const struct cpu_backend *b, const struct moe_config *c, struct err *e)
{
    if (c->n_experts < 1 || c->n_used < 1 || c->n_used > c->n_experts)
        return err_set(e, ERR_INVALID, "%d of %d experts are used: expected 1 or more of them",
                       c->n_used, c->n_experts);
    if (c->n_experts > MOE_MAX_EXPERTS || c->n_used > MOE_MAX_USED)
        return err_set(e, ERR_LIMIT, "%d of %d experts are used: expected at most %d of %d",
                       c->n_used, c->n_experts, MOE_MAX_USED, MOE_MAX_EXPERTS);
    if (c->gate->cols != c->n_embd || c->gate->rows != c->n_ff || c->down->cols != c->n_ff ||
        c->down->rows != c->n_embd)
        return err_set(e, ERR_INVALID,
                       "experts of width %d and %d inside, their weights being %lld x %lld and "
                       "%lld x %lld",
                       c->n_embd, c->n_ff, (long long)c->gate->rows, (long long)c->gate->cols,
                       (long long)c->down->rows, (long long)c->down->cols);
    if (b->config.max_rows > INT_MAX / 64 / c->n_used)
        return err_set(e, ERR_LIMIT, "%d experts for each of %d rows: more than %d", c->n_used,
                       b->config.max_rows, INT_MAX / 64);
    return true;
}

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
    if (!check_config(b, c, e))
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
