#include "weights_imagined.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weights_impl.h"

struct imagined {
    struct weights base;
    struct imagined_types types;
};

/* Each tensor by its own name; nothing is fused, and no name stands for another's. */
static bool has(const struct weights *w, const char *name)
{
    return !strstr(name, "attn_qkv") && !strstr(name, ".ffn_up.0.");
}

static bool is_float(const char *name, int64_t rows)
{
    return rows < 2 || strstr(name, "norm") || strstr(name, ".bias") || strstr(name, "_inp") ||
           strncmp(name, "blk.", 4) != 0;
}

static bool get(const struct weights *w, const char *name, int expert, int64_t rows, int64_t cols,
                bool check, struct weight_view *out, struct err *e)
{
    const struct imagined_types *t = &((const struct imagined *)w)->types;
    enum dtype type = is_float(name, rows) ? t->plain : expert >= 0 ? t->experts : t->layers;
    if (cols % dtype_info(type)->block_elems != 0)
        type = t->plain;
    snprintf(out->what, sizeof out->what, "%s", name);
    out->rows = rows;
    out->cols = cols;
    out->dtype = type;
    return check || err_set(e, ERR_UNSUPPORTED, "tensor %s: there is only a configuration", name);
}

static bool all_f32(const struct weights *w)
{
    return ((const struct imagined *)w)->types.layers == DTYPE_F32;
}

static void close_weights(struct weights *w)
{
    free(w);
}

static const struct weights_kind kind = {has, get, all_f32, close_weights};

struct weights *weights_open_imagined(const struct imagined_types *types, struct err *e)
{
    struct imagined *w = malloc(sizeof *w);
    if (!w) {
        err_set(e, ERR_MEMORY, "no memory to count tensors");
        return NULL;
    }
    *w = (struct imagined){{&kind}, *types};
    return &w->base;
}
