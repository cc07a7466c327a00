#include "model_file.h"

#include <stdlib.h>

struct model_file {
    struct gguf *gguf;
    struct model_spec spec;
    struct err spec_error; /* ERR_NONE: spec is filled */
    struct weights *weights;
};

static struct model_file *open_gguf(struct gguf *g, struct err *e)
{
    struct model_file *f = g ? calloc(1, sizeof *f) : NULL;
    if (!f) {
        if (g)
            err_set(e, ERR_MEMORY, "no memory to open a model");
        gguf_close(g);
        return NULL;
    }
    f->gguf = g;
    if (!gguf_join_parts(g, e) || !(f->weights = weights_open_gguf(g, e))) {
        model_file_close(f);
        return NULL;
    }
    model_spec_from_gguf(g, &f->spec, &f->spec_error);
    return f;
}

struct model_file *model_file_open(const char *path, struct err *e)
{
    return open_gguf(gguf_open(path, e), e);
}

struct model_file *model_file_open_memory(const void *bytes, size_t n, struct err *e)
{
    return open_gguf(gguf_open_memory(bytes, n, e), e);
}

void model_file_close(struct model_file *f)
{
    if (!f)
        return;
    weights_close(f->weights);
    gguf_close(f->gguf);
    free(f);
}

const struct model_spec *model_file_spec(const struct model_file *f, struct err *e)
{
    if (f->spec_error.code == ERR_NONE)
        return &f->spec;
    if (e)
        *e = f->spec_error;
    return NULL;
}

const struct weights *model_file_weights(const struct model_file *f, struct err *e)
{
    (void)e;
    return f->weights;
}

const struct gguf *model_file_gguf(const struct model_file *f)
{
    return f->gguf;
}
