#include "backend_common.h"

#include <limits.h>

bool backend_config_check(const struct backend_config *c, struct err *e)
{
    if (c->max_rows < 1 || c->max_seqs < 1 || c->max_pages < 1 || c->max_logits < 1 ||
        c->max_rows > 1 << 20 || c->max_seqs > 1 << 20 || c->max_logits > c->max_rows)
        return err_set(e, ERR_INVALID,
                       "a step of %d rows, %d sequences of %d pages, %d logits: expected 1 to "
                       "%d, and no more logits than rows",
                       c->max_rows, c->max_seqs, c->max_pages, c->max_logits, 1 << 20);
    return true;
}

bool rope_config_check(const struct rope_config *c, struct err *e)
{
    if (c->n_dims < 0 || c->n_dims % 2 != 0 || c->max_positions < 1)
        return err_set(e, ERR_INVALID,
                       "rotary embedding of %d dims and %d positions: expected an even "
                       "number and at least 1",
                       c->n_dims, c->max_positions);
    return true;
}

bool activation_check(int width, int64_t reader_cols, struct err *e)
{
    if (width < 1 || width > INT_MAX / 64 || (reader_cols && reader_cols != width))
        return err_set(e, ERR_INVALID, "an activation of width %d for a weight of %lld columns",
                       width, (long long)reader_cols);
    return true;
}

bool moe_config_check(const struct moe_config *c, struct matrix_shape gate,
                      struct matrix_shape down, int max_rows, int most_slots, struct err *e)
{
    if (c->n_experts < 1 || c->n_used < 1 || c->n_used > c->n_experts)
        return err_set(e, ERR_INVALID, "%d of %d experts are used: expected 1 or more of them",
                       c->n_used, c->n_experts);
    if (c->n_experts > MOE_MAX_EXPERTS || c->n_used > MOE_MAX_USED)
        return err_set(e, ERR_LIMIT, "%d of %d experts are used: expected at most %d of %d",
                       c->n_used, c->n_experts, MOE_MAX_USED, MOE_MAX_EXPERTS);
    if (gate.cols != c->n_embd || gate.rows != c->n_ff || down.cols != c->n_ff ||
        down.rows != c->n_embd)
        return err_set(e, ERR_INVALID,
                       "experts of width %d and %d inside, their weights being %lld x %lld and "
                       "%lld x %lld",
                       c->n_embd, c->n_ff, (long long)gate.rows, (long long)gate.cols,
                       (long long)down.rows, (long long)down.cols);
    if (max_rows > most_slots / c->n_used)
        return err_set(e, ERR_LIMIT, "%d experts for each of %d rows: more than %d", c->n_used,
                       max_rows, most_slots);
    return true;
}

bool step_inputs_take(struct step_inputs *in, const struct backend_config *c, struct blocks *blocks,
                      uint64_t *total, struct err *e)
{
    const size_t rows = (size_t)c->max_rows, seqs = (size_t)c->max_seqs;
    const struct {
        void **at;
        size_t n, size;
    } wanted[] = {
        {(void **)&in->ids, rows, sizeof *in->ids},
        {(void **)&in->positions, rows, sizeof *in->positions},
        {(void **)&in->kv_slots, rows, sizeof *in->kv_slots},
        {(void **)&in->adapters, rows, sizeof *in->adapters},
        {(void **)&in->seqs, seqs, sizeof *in->seqs},
        {(void **)&in->page_tables, seqs, (size_t)c->max_pages * sizeof *in->page_tables},
        {(void **)&in->logit_rows, (size_t)c->max_logits, sizeof *in->logit_rows},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        *wanted[i].at = blocks_take(blocks, wanted[i].n, wanted[i].size, "step inputs", total, e);
        if (!*wanted[i].at)
            return false;
    }
    return true;
}
