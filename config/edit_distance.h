/* edit_distance.h: how far two names are apart, for "did you mean". */
#ifndef TOKEND_EDIT_DISTANCE_H
#define TOKEND_EDIT_DISTANCE_H

#include <stddef.h>

enum { EDIT_DISTANCE_MAX = 63 };

/* Levenshtein's: letters to insert, delete or replace to make b of a[n]. Names longer than
 * EDIT_DISTANCE_MAX bytes are SIZE_MAX from all. */
size_t edit_distance(const char *a, size_t n, const char *b);

#endif
