/* json_out.h: building JSON so that no member is lost unseen when there is no memory: what
 * fails becomes NULL, and stays NULL in all later calls. Any thread. */
#ifndef TOKEND_JSON_OUT_H
#define TOKEND_JSON_OUT_H

#include "buf.h"

#include <jansson.h>

/* Appends and takes over item. */
void json_add(json_t **array, json_t *item);
/* Appends the value's text and frees the value. NULL: out->failed. */
void json_write(struct buf *out, json_t *value);
/* The object with the member; takes both over. */
json_t *json_with(json_t *object, const char *key, json_t *value);

#endif
