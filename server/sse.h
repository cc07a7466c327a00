/* sse.h: server-sent events as OpenAI's clients read them: `data: JSON` and a blank line, no
 * other field. Loop thread only. */
#ifndef TOKEND_SSE_H
#define TOKEND_SSE_H

#include "buf.h"
#include "http.h"

#include <jansson.h>

/* Appends one event to *out. Line separators that some clients split lines at (U+0085, U+2028,
 * U+2029) are escaped. False: out of memory. */
bool sse_format(struct buf *out, const json_t *event);
/* Writes one event and frees it (NULL counts as out of memory). `scratch` is emptied and used.
 * False: the reader is too slow or gone, or there is no memory. */
bool sse_write(struct http_request *, json_t *event, struct buf *scratch);
/* data: [DONE], and the end of the stream. */
void sse_end(struct http_request *);

#endif
