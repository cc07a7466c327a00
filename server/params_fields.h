/* params_fields.h: the fields of a body that are not read: which of them are refused, and which
 * nobody knows. Any thread. */
#ifndef TOKEND_PARAMS_FIELDS_H
#define TOKEND_PARAMS_FIELDS_H

#include "api_error.h"

#include <jansson.h>

/* False and *e for a field whose silent loss would give another answer than was asked for. A
 * value that asks for nothing (false, 0, "", [], {}, null) is taken. */
bool params_refuse(const json_t *body, bool chat, struct api_error *e);
/* Writes the names of fields that neither this server nor the APIs it follows know into `out`
 * (at most cap bytes with the NUL; "" for none), comma-separated: most are misspelt. */
void params_unknown(const json_t *body, char *out, size_t cap);

#endif
