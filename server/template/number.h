/* number.h: numbers as Python reads them from text. */
#ifndef TOKEND_TEMPLATE_NUMBER_H
#define TOKEND_TEMPLATE_NUMBER_H

#include "str.h"

enum number_result { NUMBER_OK, NUMBER_BAD, NUMBER_TOO_LARGE };

/* int(text, base) and float(text). */
enum number_result number_int(const struct str *, int64_t base, int64_t *out);
enum number_result number_float(const struct str *, double *out);
/* int(f) */
enum number_result number_truncate(double f, int64_t *out);

#endif
