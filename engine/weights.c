#include "weights.h"

#include <stdlib.h>

#include "file_map.h"
#include "weights_impl.h"

bool weights_has(const struct weights *w, const char *name)
{
    return w->kind->has(w, name);
}

static bool get(const struct weights *w, const char *name, int expert, int64_t rows, int64_t cols,
                bool check, struct weight_view *out, struct err *e)
{
    *out = (struct weight_view){0};
    if (w->kind->get(w, name, expert, rows, cols, check, out, e))
        return true;
    weight_view_free(out);
    return false;
}

bool weights_get(const struct weights *w, const char *name, int expert, int64_t rows, int64_t cols,
                 struct weight_view *out, struct err *e)
{
    return get(w, name, expert, rows, cols, false, out, e);
}

bool weights_check(const struct weights *w, const char *name, int expert, int64_t rows,
                   int64_t cols, struct weight_view *out, struct err *e)
{
    const bool ok = get(w, name, expert, rows, cols, true, out, e);
    out->data = NULL;
    out->mapped.at = NULL;
    return ok;
}

void weight_view_free(struct weight_view *v)
{
    if (v->mapped.at)
        file_map_forget(v->mapped.at, v->mapped.bytes);
    free(v->owned);
    *v = (struct weight_view){0};
}

bool weights_all_f32(const struct weights *w)
{
    return w->kind->all_f32(w);
}

void weights_close(struct weights *w)
{
    if (w)
        w->kind->close(w);
}
