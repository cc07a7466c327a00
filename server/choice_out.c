#include "choice_out.h"

#include <stdlib.h>

static void note_extent(struct choice_out *o, size_t start, size_t end)
{
    if (o->n_tokens == o->extents_cap) {
        int cap = o->extents_cap ? o->extents_cap * 2 : 32;
        struct token_extent *p = realloc(o->extents, (size_t)cap * sizeof *p);
        if (!p) {
            o->failed = true;
            return;
        }
        o->extents = p;
        o->extents_cap = cap;
    }
    o->extents[o->n_tokens] = (struct token_extent){(uint32_t)start, (uint32_t)end};
}

/* Looks for stop strings in text[start …]; cuts and finishes at the first. */
static void match_stops(struct choice_out *o, const struct gen_params *p, size_t start)
{
    size_t used;
    int len = stop_feed(&o->matcher, &p->stops, o->text.data + start, o->text.len - start, &used);
    if (len == 0)
        return;
    o->text.len = start + used - (p->include_stop_str ? 0 : (size_t)len);
    o->detok = (struct detokenizer){0};
    o->finish = FINISH_STOP;
}

void choice_out_take(struct choice_out *o, const struct gen_params *p, const struct tokenizer *t,
                     int32_t id, bool stop_token)
{
    size_t start = o->text.len;
    if (!stop_token || p->include_stop_str)
        detokenize_add(&o->detok, t, id, !p->keep_special, &o->text);
    if (p->logprobs) /* a token that only began a character ends inside that character */
        note_extent(o, start, o->text.len + (o->detok.n_held > 0));
    o->n_tokens++;
    o->ends_in_stop_token = stop_token;
    if (!stop_token && o->text.len > start && o->n_tokens > p->sampling.min_tokens)
        match_stops(o, p, start);
    o->released = o->text.len;
    if (o->finish == FINISH_NONE)
        o->released -= (size_t)stop_held(&o->matcher, &p->stops);
    o->failed |= o->text.failed;
}

void choice_out_finish(struct choice_out *o, enum finish_reason why)
{
    if (o->finish == FINISH_NONE) {
        detokenize_flush(&o->detok, &o->text);
        o->finish = why;
    }
    o->released = o->text.len;
    o->failed |= o->text.failed;
}

int choice_out_listable(const struct choice_out *o, const struct gen_params *p)
{
    if (p->return_token_ids) /* logprobs then stand beside every id */
        return o->n_tokens;
    int n = o->n_tokens - (o->ends_in_stop_token && !p->include_stop_str);
    int i = o->listed;
    while (i < n && (o->extents[i].start < o->released || o->extents[i].end <= o->released))
        i++;
    return i;
}

void choice_out_free(struct choice_out *o)
{
    buf_free(&o->text);
    free(o->extents);
    *o = (struct choice_out){0};
}
