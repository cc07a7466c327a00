/* reference_blocks.h: what reference.c and reference_blocks.c give each other. */
#ifndef TOKEND_REFERENCE_BLOCKS_H
#define TOKEND_REFERENCE_BLOCKS_H

#include "reference.h"

/* Two bytes of a value that f16 has */
void ref_put_half(uint8_t *at, double x);
/* Fills a matrix of a quantised type with random blocks of values up to about `scale`. */
void ref_blocks_fill(struct ref_matrix *, double scale, uint64_t *seed);

#endif
