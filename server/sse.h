/* sse.h: server-sent events as OpenAI's clients read them: `data: JSON` and a blank line, no
 * other field. Any thread. */
#ifndef TOKEND_SSE_H
#define TOKEND_SSE_H

#include "buf.h"

#include <jansson.h>

/* Appends one event to *out and frees it. Line separators that some clients split lines at
 * (U+0085, U+2028, U+2029) are escaped. False: out of memory (a NULL event counts as that);
 * what *out holds is then not to be sent. */
bool sse_add(struct buf *out, json_t *event);
/* data: [DONE], the end of a stream. */
bool sse_add_done(struct buf *out);

#endif
