#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf_file.h"
#include "weights_impl.h"

struct gguf_weights {
    struct weights base;
    const struct gguf *g;
};

static const struct gguf *file_of(const struct weights *w)
{
    return ((const struct gguf_weights *)w)->g;
}

/* --- where a canonical tensor lies --- */

struct place {
    const struct gguf_tensor *t;
    int expert;    /* the matrix of t; -1: t is no stack of them */
    bool slice;    /* a part of t's outputs: rows of a matrix, elements of a vector (a bias) */
    int64_t first; /* the first of them */
};

/* What is asked for. A vector has one row. */
struct shape {
    int64_t rows, cols;
};

static int64_t outputs(struct shape s)
{
    return s.rows == 1 ? s.cols : s.rows;
}

static int64_t outputs_of(const struct gguf_tensor *t, struct shape like)
{
    return t->dims[like.rows == 1 ? 0 : 1];
}

/* The tensor whose name has `by` where this one has `part`. */
static const struct gguf_tensor *find_replaced(const struct gguf *g, const char *name,
                                               const char *part, const char *by)
{
    char other[96];
    const char *at = strstr(name, part);
    if (!at)
        return NULL;
    int n =
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name, by, at + strlen(part));
    return n > 0 && (size_t)n < sizeof other ? gguf_find_tensor(g, other) : NULL;
}

/* Queries, keys and values in one tensor, in this order; keys and values are as many. */
static bool find_in_qkv(const struct gguf *g, const char *name, struct shape s, struct place *out)
{
    static const char *const parts[3] = {".attn_q.", ".attn_k.", ".attn_v."};
    for (int i = 0; i < 3; i++) {
        const struct gguf_tensor *t = find_replaced(g, name, parts[i], ".attn_qkv.");
        if (!t)
            continue;
        *out = (struct place){t, -1, true, i == 0 ? 0 : outputs_of(t, s) - (3 - i) * outputs(s)};
        return true;
    }
    return false;
}

/* Gate and up, in this order, in a tensor that is called up and has twice the outputs. */
static bool find_in_gate_up(const struct gguf *g, const char *name, struct shape s,
                            struct place *out)
{
    const struct gguf_tensor *t = find_replaced(g, name, ".ffn_gate.", ".ffn_up.");
    const bool gate = t;
    if (!t && !find_replaced(g, name, ".ffn_up.", ".ffn_gate."))
        t = find_replaced(g, name, ".ffn_up.", ".ffn_up.");
    if (!t || outputs_of(t, s) != 2 * outputs(s))
        return false;
    *out = (struct place){t, -1, true, gate ? 0 : outputs(s)};
    return true;
}

/* Files of old converters have a tensor for each expert: blk.3.ffn_gate.7.weight */
static const struct gguf_tensor *find_expert_alone(const struct gguf *g, const char *name,
                                                   int expert)
{
    char by[32];
    snprintf(by, sizeof by, ".%d.", expert);
    return find_replaced(g, name, "_exps.", by);
}

static bool find_place(const struct gguf *g, const char *name, int expert, struct shape s,
                       struct place *out)
{
    *out = (struct place){gguf_find_tensor(g, name), expert, false, 0};
    if (expert >= 0) {
        if (!out->t)
            *out = (struct place){find_expert_alone(g, name, expert), -1, false, 0};
        return out->t;
    }
    return (out->t && outputs_of(out->t, s) == outputs(s)) || find_in_gate_up(g, name, s, out) ||
           out->t || find_in_qkv(g, name, s, out);
}

/* --- checks --- */

static bool has_shape(const struct place *p, struct shape s)
{
    const int64_t *d = p->t->dims;
    if (d[3] != 1 || (p->expert < 0 ? d[2] != 1 : d[2] <= p->expert))
        return false;
    if (!p->slice)
        return d[0] == s.cols && d[1] == s.rows;
    return (s.rows == 1 ? d[1] == 1 : d[0] == s.cols) && p->first >= 0 &&
           p->first + outputs(s) <= outputs_of(p->t, s);
}

static bool wrong_shape(const struct gguf *g, const char *name, const struct place *p,
                        struct shape s, struct err *e)
{
    const struct gguf_tensor *t = p->t;
    char is[96], want[96], of[128] = "";
    int at = 0;
    for (int i = 0; i < t->n_dims; i++)
        at += snprintf(is + at, sizeof is - (size_t)at, "%s%" PRId64, i ? ", " : "", t->dims[i]);
    if (p->expert >= 0)
        snprintf(want, sizeof want, "%" PRId64 ", %" PRId64 ", above %d", s.cols, s.rows,
                 p->expert);
    else if (s.rows == 1)
        snprintf(want, sizeof want, "%" PRId64, s.cols);
    else
        snprintf(want, sizeof want, "%" PRId64 ", %" PRId64, s.cols, s.rows);
    if (p->slice)
        snprintf(of, sizeof of, " as a part of it (%.80s)", name);
    return gguf_err(g, e, ERR_INVALID, "tensor %s has the dims [%s], expected [%s]%s",
                    gguf_show(t->name).text, is, want, of);
}

static bool unknown_type(const struct gguf *g, const struct gguf_tensor *t, struct err *e)
{
    char types[320];
    ggml_known_types(types, sizeof types);
    return gguf_err(g, e, ERR_UNSUPPORTED,
                    "tensor %s is of type %s (ggml's number %" PRIu32
                    "), which is not supported; these are: %s",
                    gguf_show(t->name).text, t->type_name, t->ggml_type, types);
}

/* --- the functions of weights.h --- */

static bool get(const struct weights *w, const char *name, int expert, int64_t rows, int64_t cols,
                bool check, struct weight_view *out, struct err *e)
{
    const struct gguf *g = file_of(w);
    const struct shape s = {rows, cols};
    struct place p;
    if (!find_place(g, name, expert, s, &p))
        return gguf_err(g, e, ERR_NOT_FOUND, "tensor %.100s is missing", name);
    if (!has_shape(&p, s))
        return wrong_shape(g, name, &p, s, e);
    if (!p.t->known)
        return unknown_type(g, p.t, e);
    const int64_t row = p.expert >= 0 ? p.expert * rows : rows == 1 ? 0 : p.first;
    const int64_t elem = p.slice && rows == 1 ? p.first : 0;
    if (elem % dtype_info(p.t->dtype)->block_elems != 0)
        return gguf_err(g, e, ERR_UNSUPPORTED,
                        "tensor %s, of type %s, cannot be cut at element %" PRId64,
                        gguf_show(p.t->name).text, p.t->type_name, elem);
    out->dtype = p.t->dtype;
    out->rows = rows;
    out->cols = cols;
    out->data = (const char *)p.t->data + (size_t)row * dtype_row_bytes(p.t->dtype, cols) +
                dtype_row_bytes(p.t->dtype, elem);
    if (p.t->mapped) {
        out->mapped.at = out->data;
        out->mapped.bytes = dtype_row_bytes(out->dtype, cols) * (size_t)rows;
    }
    snprintf(out->what, sizeof out->what, "%s", gguf_show(p.t->name).text);
    return true;
}

/* As find_place, for any shape. */
static const struct gguf_tensor *find_any(const struct gguf *g, const char *name)
{
    struct place p;
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    if (!t)
        t = find_expert_alone(g, name, 0);
    if (!t)
        t = find_replaced(g, name, ".ffn_gate.", ".ffn_up.");
    return t || !find_in_qkv(g, name, (struct shape){1, 0}, &p) ? t : p.t;
}

static bool has(const struct weights *w, const char *name)
{
    const struct gguf_tensor *t = find_any(file_of(w), name);
    return t && !(strstr(name, ".ffn_gate.") && !gguf_find_tensor(file_of(w), name));
}

static bool all_f32(const struct weights *w)
{
    for (uint64_t i = 0; i < gguf_n_tensors(file_of(w)); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file_of(w), i);
        if (t->n_dims > 1 && t->dims[1] > 1 && !(t->known && t->dtype == DTYPE_F32))
            return false;
    }
    return true;
}

static void close_weights(struct weights *w)
{
    free(w);
}

static const struct weights_kind gguf_kind = {has, get, all_f32, close_weights};

struct weights *weights_open_gguf(const struct gguf *g, struct err *e)
{
    struct gguf_weights *w = malloc(sizeof *w);
    if (!w) {
        err_set(e, ERR_MEMORY, "no memory to open the tensors");
        return NULL;
    }
    *w = (struct gguf_weights){{&gguf_kind}, g};
    return &w->base;
}
