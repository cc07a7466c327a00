#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model_spec_read.h"

struct key_name spec_key(const struct spec_reader *r, const char *rest)
{
    struct key_name k;
    snprintf(k.text, sizeof k.text, "%s.%s", r->s->architecture, rest);
    return k;
}

bool spec_has(const struct spec_reader *r, const char *rest)
{
    return gguf_has(r->g, spec_key(r, rest).text);
}

/* The 32-bit elements of an array; false (and no error) where it is none of those. */
static bool int_array(const struct spec_reader *r, const char *key, const unsigned char **data,
                      uint64_t *n)
{
    struct err ignored;
    const void *p;
    if (!gguf_array(r->g, key, GGUF_U32, &p, n, &ignored) &&
        !gguf_array(r->g, key, GGUF_I32, &p, n, &ignored))
        return false;
    *data = p;
    return true;
}

/* The value that all layers have. */
static bool one_for_all(const struct spec_reader *r, const char *key, uint32_t *out)
{
    const unsigned char *p = NULL;
    uint64_t n = 0;
    bool equal = int_array(r, key, &p, &n) && n > 0;
    for (uint64_t i = 1; equal && i < n; i++)
        equal = memcmp(p, p + i * sizeof *out, sizeof *out) == 0;
    if (!equal)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED,
                        "key %s is an array, a value for each layer, which is not supported "
                        "unless they are equal",
                        key);
    memcpy(out, p, sizeof *out);
    return true;
}

bool spec_int(const struct spec_reader *r, const char *rest, int least, int most, int dflt,
              int *out)
{
    const struct key_name key = spec_key(r, rest);
    uint32_t v;
    if (dflt >= 0 && !gguf_has(r->g, key.text)) {
        *out = dflt;
        return true;
    }
    if (!(gguf_is_array(r->g, key.text) ? one_for_all(r, key.text, &v)
                                        : gguf_u32(r->g, key.text, &v, r->e)))
        return false;
    if (v < (uint32_t)least || v > (uint32_t)most)
        return gguf_err(r->g, r->e, ERR_INVALID, "key %s is %" PRIu32 ", expected %d to %d",
                        key.text, v, least, most);
    *out = (int)v;
    return true;
}

bool spec_positive(const struct spec_reader *r, const char *rest, float dflt, float *out)
{
    const struct key_name key = spec_key(r, rest);
    if (!(dflt > 0 ? gguf_f32_or(r->g, key.text, dflt, out, r->e)
                   : gguf_f32(r->g, key.text, out, r->e)))
        return false;
    if (isfinite(*out) && *out > 0)
        return true;
    return gguf_err(r->g, r->e, ERR_INVALID, "key %s is %g, expected a number above 0", key.text,
                    (double)*out);
}

bool spec_not_negative(const struct spec_reader *r, const char *rest, float dflt, float *out)
{
    const struct key_name key = spec_key(r, rest);
    if (!gguf_f32_or(r->g, key.text, dflt, out, r->e))
        return false;
    if (isfinite(*out) && *out >= 0)
        return true;
    return gguf_err(r->g, r->e, ERR_INVALID, "key %s is %g, expected a number of at least 0",
                    key.text, (double)*out);
}

bool spec_layer_flags(const struct spec_reader *r, const char *rest, bool *out)
{
    const struct key_name key = spec_key(r, rest);
    const unsigned char *p = NULL;
    const void *bools;
    uint64_t n = 0;
    const bool ints = int_array(r, key.text, &p, &n);
    if (!ints) {
        if (!gguf_array(r->g, key.text, GGUF_BOOL, &bools, &n, r->e))
            return false;
        p = bools;
    }
    if (n != (uint64_t)r->s->n_layers)
        return gguf_err(r->g, r->e, ERR_INVALID, "key %s has %" PRIu64 " values, expected %d",
                        key.text, n, r->s->n_layers);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t v = p[i];
        if (ints)
            memcpy(&v, p + i * sizeof v, sizeof v);
        if (v > 1)
            return gguf_err(r->g, r->e, ERR_INVALID,
                            "key %s: value %" PRIu64 " is %" PRIu32 ", expected 0 or 1", key.text,
                            i, v);
        out[i] = v;
    }
    return true;
}

bool spec_factors(const struct spec_reader *r, const char *tensor, int n, float *out)
{
    const int64_t dims[1] = {n};
    const struct gguf_tensor *t = gguf_want_tensor(r->g, tensor, 1, dims, r->e);
    if (!t)
        return false;
    if (t->dtype != DTYPE_F32)
        return gguf_err(r->g, r->e, ERR_UNSUPPORTED, "tensor %s is of type %s, expected F32",
                        tensor, t->type_name);
    memcpy(out, t->data, (size_t)n * sizeof *out);
    for (int i = 0; i < n; i++)
        if (!isfinite(out[i]) || out[i] <= 0)
            return gguf_err(r->g, r->e, ERR_INVALID,
                            "tensor %s: value %d is %g, expected a number above 0", tensor, i,
                            (double)out[i]);
    return true;
}

const struct gguf_tensor *spec_layer_tensor(const struct spec_reader *r, int i, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s", i, part);
    return gguf_find_tensor(r->g, name);
}
