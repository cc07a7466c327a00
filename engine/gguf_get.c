#include "gguf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gguf_file.h"

struct gguf_shown gguf_show(struct gguf_str s)
{
    struct gguf_shown shown;
    size_t room = sizeof shown.text - 4, at = 0; /* keeps "..." and the NUL */
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        bool plain = c >= 0x20 && c < 0x7F && c != '\\' && c != '"';
        if (at + (plain ? 1 : 4) > room) {
            memcpy(shown.text + at, "...", 4);
            return shown;
        }
        if (plain)
            shown.text[at++] = (char)c;
        else
            at += (size_t)snprintf(shown.text + at, 5, "\\x%02x", c);
    }
    shown.text[at] = '\0';
    return shown;
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

uint64_t gguf_file_bytes(const struct gguf *g)
{
    return g->size;
}

/* --- errors --- */

bool gguf_err(const struct gguf *g, struct err *e, enum err_code code, const char *fmt, ...)
{
    char msg[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return err_set(e, code, "%s: %s", g->shown_path, msg);
}

static bool missing(const struct gguf *g, const char *key, struct err *e)
{
    return gguf_err(g, e, ERR_NOT_FOUND, "key %.100s is missing", key);
}

static bool wrong_type(const struct gguf *g, const char *name, const struct gguf_key *key,
                       const char *want, struct err *e)
{
    bool array = key->type == GGUF_ARRAY;
    return gguf_err(g, e, ERR_INVALID, "key %.100s is of type %s%s, expected %s", name,
                    array ? "array of " : "", gguf_type_name(array ? key->elem : key->type), want);
}

static const struct gguf_key *find(const struct gguf *g, const char *key)
{
    return gguf_index_find(&g->key_index, key);
}

/* --- values --- */

/* An integer of the file: sign and size apart, since none of C's types holds them all. */
struct integer {
    bool negative;
    uint64_t magnitude;
};

/* size and signedness say which type it is. */
static struct integer load_integer(const unsigned char *p, unsigned bytes, bool is_signed)
{
    uint64_t u = 0;
    memcpy(&u, p, bytes);
    uint64_t sign_bit = UINT64_C(1) << (8 * bytes - 1);
    if (!is_signed || !(u & sign_bit))
        return (struct integer){false, u};
    return (struct integer){true, (sign_bit - 1 - (u & (sign_bit - 1))) + 1};
}

static bool key_integer(const struct gguf_key *key, struct integer *out)
{
    switch (key->type) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        *out = load_integer(key->value, gguf_type_bytes(key->type), false);
        return true;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        *out = load_integer(key->value, gguf_type_bytes(key->type), true);
        return true;
    default:
        return false;
    }
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find(g, key);
}

bool gguf_is_array(const struct gguf *g, const char *key)
{
    const struct gguf_key *k = find(g, key);
    return k && k->type == GGUF_ARRAY;
}

bool gguf_u32(const struct gguf *g, const char *key, uint32_t *out, struct err *e)
{
    const struct gguf_key *k = find(g, key);
    struct integer i;
    if (!k)
        return missing(g, key, e);
    if (!key_integer(k, &i))
        return wrong_type(g, key, k, "an integer", e);
    if (i.negative || i.magnitude > UINT32_MAX)
        return gguf_err(g, e, ERR_INVALID, "key %.100s is %s%" PRIu64 ", expected 0 to %" PRIu32,
                        key, i.negative ? "-" : "", i.magnitude, UINT32_MAX);
    *out = (uint32_t)i.magnitude;
    return true;
}

bool gguf_u32_or(const struct gguf *g, const char *key, uint32_t dflt, uint32_t *out, struct err *e)
{
    *out = dflt;
    return !find(g, key) || gguf_u32(g, key, out, e);
}

bool gguf_f32(const struct gguf *g, const char *key, float *out, struct err *e)
{
    const struct gguf_key *k = find(g, key);
    double wide;
    if (!k)
        return missing(g, key, e);
    if (k->type == GGUF_F32) {
        memcpy(out, k->value, sizeof *out);
        return true;
    }
    if (k->type != GGUF_F64)
        return wrong_type(g, key, k, "a float", e);
    memcpy(&wide, k->value, sizeof wide);
    *out = (float)wide; /* beyond float's range: infinite, as IEEE 754 converts */
    return true;
}

bool gguf_f32_or(const struct gguf *g, const char *key, float dflt, float *out, struct err *e)
{
    *out = dflt;
    return !find(g, key) || gguf_f32(g, key, out, e);
}

bool gguf_bool_or(const struct gguf *g, const char *key, bool dflt, bool *out, struct err *e)
{
    const struct gguf_key *k = find(g, key);
    *out = dflt;
    if (!k)
        return true;
    if (k->type != GGUF_BOOL)
        return wrong_type(g, key, k, "bool", e);
    *out = k->value[0] != 0;
    return true;
}

bool gguf_string(const struct gguf *g, const char *key, struct gguf_str *out, struct err *e)
{
    const struct gguf_key *k = find(g, key);
    if (!k)
        return missing(g, key, e);
    if (k->type != GGUF_STRING)
        return wrong_type(g, key, k, "string", e);
    *out = (struct gguf_str){(const char *)k->value, (size_t)k->n};
    return true;
}

/* --- arrays --- */

static const struct gguf_key *find_array(const struct gguf *g, const char *key, enum gguf_type elem,
                                         struct err *e)
{
    const struct gguf_key *k = find(g, key);
    char want[32];
    if (!k) {
        missing(g, key, e);
        return NULL;
    }
    if (k->type == GGUF_ARRAY && k->elem == elem)
        return k;
    snprintf(want, sizeof want, "array of %s", gguf_type_name(elem));
    wrong_type(g, key, k, want, e);
    return NULL;
}

bool gguf_array_len(const struct gguf *g, const char *key, enum gguf_type elem, uint64_t *out,
                    struct err *e)
{
    *out = 0;
    if (!find(g, key))
        return true;
    const struct gguf_key *k = find_array(g, key, elem, e);
    if (k)
        *out = k->n;
    return k;
}

bool gguf_array(const struct gguf *g, const char *key, enum gguf_type elem, const void **data,
                uint64_t *n, struct err *e)
{
    const struct gguf_key *k = find_array(g, key, elem, e);
    if (!k)
        return false;
    *data = k->value;
    *n = k->n;
    return true;
}

bool gguf_strings(const struct gguf *g, const char *key, struct gguf_string_iter *it, struct err *e)
{
    const struct gguf_key *k = find_array(g, key, GGUF_STRING, e);
    if (!k)
        return false;
    *it = (struct gguf_string_iter){k->value, k->n};
    return true;
}

/* Needs no bounds: the parser has walked these strings. */
bool gguf_next_string(struct gguf_string_iter *it, struct gguf_str *out)
{
    uint64_t n;
    if (it->left == 0)
        return false;
    memcpy(&n, it->at, sizeof n);
    *out = (struct gguf_str){(const char *)it->at + sizeof n, (size_t)n};
    it->at += sizeof n + n;
    it->left--;
    return true;
}

/* --- lists and tensors --- */

uint64_t gguf_n_keys(const struct gguf *g)
{
    return g->n_keys;
}

struct gguf_str gguf_key_at(const struct gguf *g, uint64_t i, enum gguf_type *type)
{
    if (type)
        *type = g->keys[i].type;
    return g->keys[i].name;
}

uint64_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    return gguf_index_find(&g->tensor_index, name);
}

static void show_dims(char out[96], int n, const int64_t *dims)
{
    int at = snprintf(out, 96, "[");
    for (int i = 0; i < n; i++)
        at += snprintf(out + at, 96 - (size_t)at, "%s%" PRId64, i ? ", " : "", dims[i]);
    snprintf(out + at, 96 - (size_t)at, "]");
}

static bool has_shape(const struct gguf_tensor *t, int n_dims, const int64_t *dims)
{
    for (int i = 0; i < 4; i++)
        if (t->dims[i] != (i < n_dims ? dims[i] : 1))
            return false;
    return true;
}

static bool unknown_type(const struct gguf *g, const char *name, const struct gguf_tensor *t,
                         struct err *e)
{
    char types[320];
    ggml_known_types(types, sizeof types);
    return gguf_err(g, e, ERR_UNSUPPORTED,
                    "tensor %.100s is of type %s (ggml's number %" PRIu32
                    "), which is not supported; these are: %s",
                    name, t->type_name, t->ggml_type, types);
}

const struct gguf_tensor *gguf_want_tensor(const struct gguf *g, const char *name, int n_dims,
                                           const int64_t *dims, struct err *e)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    char is[96], want[96];
    if (!t) {
        gguf_err(g, e, ERR_NOT_FOUND, "tensor %.100s is missing", name);
        return NULL;
    }
    if (!has_shape(t, n_dims, dims)) {
        show_dims(is, t->n_dims, t->dims);
        show_dims(want, n_dims, dims);
        gguf_err(g, e, ERR_INVALID, "tensor %.100s has the dims %s, expected %s", name, is, want);
        return NULL;
    }
    if (!t->known) {
        unknown_type(g, name, t, e);
        return NULL;
    }
    return t;
}
