/* Opens a tokenizer by path. */
#include "tokenizer.h"

struct tokenizer *tokenizer_open(const char *path, const char *encoding, struct err *e)
{
    (void)encoding;
    struct gguf *g = gguf_open(path, e);
    struct tokenizer *t = g ? tokenizer_open_gguf(g, e) : NULL;
    gguf_close(g);
    return t;
}
