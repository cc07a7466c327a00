/* attention_one.h: attention of one query, whatever the pool's type: K and V are read once, as they
 * lie, for a few heads at a time.
 *
 * Bound by memory, so that it must never wait for it: while the scores are computed this unit's
 * V is fetched, and with the values the next unit's K. Processors drop fetches when too many are
 * under way, so they are spread evenly, and each line is asked for again shortly before its use: K
 * a step ahead in the scores, V a sub-page ahead in the values. */
#ifndef TOKEND_SIMD_ATTENTION_ONE_H
#define TOKEND_SIMD_ATTENTION_ONE_H

#include "attention.h"

/* A unit, counted from the start of its segment */
struct span {
    const struct attend_unit *unit, *next;
    int segment, lo, hi;
};

/* Asks for the lines that [at, at + bytes) of some K or V begins. */
INL void fetch(const uint8_t *of, size_t at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(of + at + i, 0, 2);
}

/* Sub-page p of the unit; past its end the last one */
INL uint8_t *unit_sub_page(const struct span *u, int p)
{
    int last = (u->hi - 1) / PANEL;
    return sub_page_at(&u->unit->kv, u->segment + (p < last ? p : last) * PANEL);
}

/* K of the next unit, of the sub-page that it has where this one has p, NULL for none */
INL const uint8_t *next_k(const struct span *u, int p)
{
    if (!u->next)
        return NULL;
    const struct kv_view *kv = &u->next->kv;
    int pos = u->next->lo / PANEL * PANEL + (p - u->lo / PANEL) * PANEL;
    return pos < u->next->hi ? kv_k(kv->pool, sub_page_at(kv, pos), kv->head) : NULL;
}

/* attend_one over INT8 */
void ISA_FN(attend_one_int8)(const struct span *, float soft_cap, const float *q, int ldq, int rows,
                             float *part, int ldp);

#endif
