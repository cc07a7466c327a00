#ifndef TOKEND_NORMALISER_IMPL_H
#define TOKEND_NORMALISER_IMPL_H

#include "buf.h"
#include "normaliser.h"

struct normal_scratch {
    struct buf a, b; /* what steps write, by turns */
    struct regex_scratch *match;
    int32_t *codes; /* characters of a piece that is normalised */
    size_t cap_codes;
    struct special_matches protected_;
};

/* Each writes to out what it makes of the text; a failed buffer tells that memory ran out. */
void normal_unicode(const struct normal_step *, struct normal_scratch *, struct str text,
                    struct buf *out);
void normal_charsmap(const struct normal_step *, struct str text, struct buf *out);
bool normal_sentencepiece(const struct normal_step *, struct normal_scratch *, struct str text,
                          int where, struct buf *out, struct err *e);

#endif
