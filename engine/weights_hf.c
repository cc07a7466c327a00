#include "weights_hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hf_names.h"
#include "hf_unread.h"
#include "weights_impl.h"

struct hf_weights {
    struct weights base;
    struct hf_names names;
    const struct model_spec *spec;
    char dir[128]; /* for messages */
    uint64_t elems;
};

static const struct hf_weights *of(const struct weights *w)
{
    return (const struct hf_weights *)w;
}

/* What is asked for, and where it lies. */
struct query {
    const struct hf_weights *w;
    const char *name;
    int expert;
    int64_t rows, cols;
    bool check; /* make nothing */
    struct hf_source src;
    struct weight_view *out;
    struct err *e;
};

/* --- shapes --- */

static bool wrong_shape(const struct query *q, int n, const int64_t *want)
{
    char is[96], should[96];
    int at = 0;
    for (int i = 0; i < q->src.t->n_dims; i++)
        at += snprintf(is + at, sizeof is - (size_t)at, "%s%" PRId64, i ? ", " : "",
                       q->src.t->dims[i]);
    if (q->src.t->n_dims == 0)
        is[0] = '\0';
    at = 0;
    for (int i = 0; i < n; i++)
        at +=
            snprintf(should + at, sizeof should - (size_t)at, "%s%" PRId64, i ? ", " : "", want[i]);
    return err_set(q->e, ERR_INVALID, "%s: tensor \"%s\" has the shape [%s], expected [%s]",
                   q->w->dir, q->src.t->name, is, should);
}

/* dims of 1 in front do not matter, as of a vector's [1, n] */
static bool has_shape(const struct query *q, int n, const int64_t *want)
{
    const struct st_tensor *t = q->src.t;
    for (int i = t->n_dims, k = n; i > 0 || k > 0; i--, k--)
        if ((i > 0 ? t->dims[i - 1] : 1) != (k > 0 ? want[k - 1] : 1))
            return wrong_shape(q, n, want);
    return true;
}

static bool has_matrix(const struct query *q, int64_t rows, int64_t cols)
{
    const int64_t want[2] = {rows, cols};
    return rows == 1 ? has_shape(q, 1, want + 1) : has_shape(q, 2, want);
}

static bool has_stack(const struct query *q, int64_t a, int64_t b)
{
    const int64_t want[3] = {q->w->spec->n_experts, a, b};
    return has_shape(q, 3, want);
}

/* --- making views --- */

static bool set_type(const struct query *q)
{
    if (!q->src.t->known)
        return err_set(q->e, ERR_UNSUPPORTED,
                       "%s: tensor \"%s\" is of type %s, which is not supported here", q->w->dir,
                       q->src.t->name, q->src.t->type);
    q->out->dtype = q->src.t->dtype;
    return true;
}

static const char *bytes_of_tensor(const struct query *q)
{
    return q->src.t->data;
}

/* Notes which n elements of the file the view is made of. */
static void made_of(const struct query *q, const void *at, int64_t n)
{
    if (!q->src.t->mapped)
        return;
    q->out->mapped.at = at;
    q->out->mapped.bytes = (size_t)n * ((size_t)q->src.t->bits / 8);
}

/* The view begins `elem` elements into the tensor. */
static bool point_at(const struct query *q, int64_t elem)
{
    if (!set_type(q))
        return false;
    q->out->data = bytes_of_tensor(q) + elem * (q->src.t->bits / 8);
    made_of(q, q->out->data, q->rows * q->cols);
    return true;
}

/* False where nothing is to be made, too. */
static bool own(const struct query *q, size_t bytes)
{
    if (q->check)
        return false;
    q->out->data = q->out->owned = malloc(bytes ? bytes : 1);
    if (!q->out->owned)
        err_set(q->e, ERR_MEMORY, "%s: no memory to rearrange tensor \"%s\"", q->w->dir,
                q->src.t->name);
    return q->out->owned;
}

/* Of q, k and v in one tensor: the outputs of all, and those before. */
static void find_in_qkv(const struct query *q, int64_t *all, int64_t *before)
{
    const struct model_spec *s = q->w->spec;
    const int64_t n = (int64_t)s->n_heads * s->head_dim, kv = (int64_t)s->n_kv_heads * s->head_dim;
    *all = n + 2 * kv;
    *before = q->src.slot == 0 ? 0 : n + (q->src.slot - 1) * kv;
}

static bool view_qkv(const struct query *q)
{
    const bool vector = q->rows == 1;
    int64_t all, before;
    find_in_qkv(q, &all, &before);
    return has_matrix(q, vector ? 1 : all, vector ? all : q->cols) &&
           point_at(q, vector ? before : before * q->cols);
}

static bool view_halves(const struct query *q)
{
    const bool vector = q->rows == 1;
    return has_matrix(q, vector ? 1 : 2 * q->rows, vector ? 2 * q->cols : q->cols) &&
           point_at(q, q->src.slot * (vector ? q->cols : q->rows * q->cols));
}

static bool view_stack(const struct query *q)
{
    const int halves = q->src.layout == HF_STACK_HALVES ? 2 : 1;
    return has_stack(q, halves * q->rows, q->cols) &&
           point_at(q, (q->expert * halves + q->src.slot) * q->rows * q->cols);
}

/* dst[r * cols + c] = src[c * stride + r * step]: columns of a wider matrix become rows, in tiles
 * that stay in cache. */
static void transpose(char *dst, const char *src, int64_t rows, int64_t cols, int64_t stride,
                      int64_t step, size_t elem)
{
    enum { TILE = 32 };
    for (int64_t r0 = 0; r0 < rows; r0 += TILE)
        for (int64_t c = 0; c < cols; c++)
            for (int64_t r = r0; r < rows && r < r0 + TILE; r++)
                memcpy(dst + (size_t)(r * cols + c) * elem,
                       src + (size_t)(c * stride + r * step) * elem, elem);
}

static bool view_transposed(const struct query *q)
{
    const int64_t step = q->src.layout == HF_STACK_T_PAIRS ? 2 : 1, stride = step * q->rows;
    const size_t elem = (size_t)q->src.t->bits / 8;
    if (!has_stack(q, q->cols, stride) || !set_type(q))
        return false;
    if (!own(q, (size_t)q->rows * (size_t)q->cols * elem))
        return q->check;
    const char *src = bytes_of_tensor(q) + (size_t)(q->expert * q->cols * stride) * elem;
    made_of(q, src, q->cols * stride);
    transpose(q->out->owned, src + (size_t)q->src.slot * elem, q->rows, q->cols, stride, step,
              elem);
    return true;
}

static bool view_pairs(const struct query *q)
{
    const size_t elem = (size_t)q->src.t->bits / 8;
    if (!has_matrix(q, q->rows, 2 * q->cols) || !set_type(q))
        return false;
    if (!own(q, (size_t)q->rows * (size_t)q->cols * elem))
        return q->check;
    made_of(q, bytes_of_tensor(q), 2 * q->rows * q->cols);
    for (int64_t i = 0; i < q->rows * q->cols; i++)
        memcpy((char *)q->out->owned + (size_t)i * elem,
               bytes_of_tensor(q) + (size_t)(2 * i + q->src.slot) * elem, elem);
    return true;
}

/* A checkpoint's 32 values lie in pairs, neighbours in one byte; ours have the first half of the
 * values in the lower nibbles. */
static void mxfp4_block(unsigned char *dst, unsigned char scale, const unsigned char *pairs)
{
    dst[0] = scale;
    for (int i = 0; i < 16; i++) {
        const int shift = i % 2 * 4;
        const int low = pairs[i / 2] >> shift & 15, high = pairs[8 + i / 2] >> shift & 15;
        dst[1 + i] = (unsigned char)(low | high << 4);
    }
}

static bool has_mxfp4_shapes(const struct query *q, int64_t rows, int64_t n_blocks)
{
    const int64_t blocks[4] = {q->w->spec->n_experts, rows, n_blocks, 16};
    struct query scales = *q;
    scales.src.t = q->src.scales;
    if (q->cols % 32 != 0)
        return err_set(q->e, ERR_INVALID,
                       "%s: tensor \"%s\" has rows of %" PRId64 ", expected a multiple of 32",
                       q->w->dir, q->src.t->name, q->cols);
    if (strcmp(q->src.t->type, "U8") != 0 || strcmp(q->src.scales->type, "U8") != 0)
        return err_set(q->e, ERR_INVALID, "%s: tensor \"%s\" or its scales are not of type U8",
                       q->w->dir, q->src.t->name);
    return has_shape(q, 4, blocks) && has_stack(&scales, rows, n_blocks);
}

static bool view_mxfp4(const struct query *q)
{
    const int step = q->src.layout == HF_MXFP4_PAIRS ? 2 : 1;
    const int64_t n = q->cols / 32, rows = step * q->rows;
    if (!has_mxfp4_shapes(q, rows, n))
        return false;
    q->out->dtype = DTYPE_MXFP4;
    if (!own(q, (size_t)q->rows * dtype_row_bytes(DTYPE_MXFP4, q->cols)))
        return q->check;
    unsigned char *dst = q->out->owned;
    for (int64_t r = 0; r < q->rows; r++) {
        const int64_t first = (q->expert * rows + r * step + q->src.slot) * n;
        for (int64_t i = 0; i < n; i++, dst += 17)
            mxfp4_block(dst, ((const unsigned char *)q->src.scales->data)[first + i],
                        (const unsigned char *)q->src.t->data + (first + i) * 16);
    }
    return true;
}

/* A tensor for each row: the norms of single heads. */
static bool view_heads(const struct query *q)
{
    const size_t row = (size_t)q->cols * ((size_t)q->src.t->bits / 8);
    if (!set_type(q) || (!own(q, (size_t)q->rows * row) && !q->check))
        return false;
    struct query one = *q;
    for (int64_t i = 0; i < q->rows; i++) {
        one.src.t = hf_source_head(&q->w->names, &q->src, (int)i);
        if (!one.src.t || !one.src.t->known || one.src.t->dtype != q->out->dtype)
            return err_set(q->e, ERR_NOT_FOUND,
                           "%s: tensor \"%s\" is missing for number %" PRId64
                           ", or not of the type of the first",
                           q->w->dir, q->src.name, i);
        if (!has_matrix(&one, 1, q->cols))
            return false;
        if (!q->check)
            memcpy((char *)q->out->owned + (size_t)i * row, one.src.t->data, row);
    }
    return true;
}

/* Of a quantised checkpoint. */
static bool view_packed(const struct query *q)
{
    struct hf_packed_matrix m;
    int64_t all = q->rows, before = 0;
    if (q->src.layout == HF_QKV)
        find_in_qkv(q, &all, &before);
    else if (q->src.layout == HF_HALVES) {
        all = 2 * q->rows;
        before = q->src.slot * q->rows;
    } else if (q->src.layout != HF_WHOLE || q->rows == 1)
        return err_set(q->e, ERR_UNSUPPORTED,
                       "%s: tensor \"%s\" is quantised, which is not "
                       "supported of such a tensor",
                       q->w->dir, q->src.t->name);
    if (!hf_packed_open(&q->w->names.quant, &q->src.packed, all, q->cols, &m, q->e))
        return err_prefix(q->e, "%s", q->w->dir);
    q->out->dtype = m.type;
    if (!own(q, (size_t)q->rows * dtype_row_bytes(m.type, q->cols)))
        return q->check;
    hf_packed_rows(&m, before, q->rows, q->out->owned);
    return true;
}

static bool view(const struct query *q)
{
    if (q->src.is_packed)
        return view_packed(q);
    switch (q->src.layout) {
    case HF_WHOLE:
        return has_matrix(q, q->rows, q->cols) && point_at(q, 0);
    case HF_QKV:
        return view_qkv(q);
    case HF_HALVES:
        return view_halves(q);
    case HF_STACK:
    case HF_STACK_HALVES:
        return view_stack(q);
    case HF_STACK_T:
    case HF_STACK_T_PAIRS:
        return view_transposed(q);
    case HF_PAIRS:
        return view_pairs(q);
    case HF_MXFP4:
    case HF_MXFP4_PAIRS:
        return view_mxfp4(q);
    case HF_HEADS:
        return view_heads(q);
    }
    return false;
}

/* Gemma's norms multiply by 1 + w. */
static bool add_one(const struct query *q)
{
    struct weight_view *v = q->out;
    const int64_t n = v->rows * v->cols;
    if (q->check) {
        v->dtype = DTYPE_F32;
        return true;
    }
    float *f = malloc((size_t)n * sizeof *f);
    if (!f)
        return err_set(q->e, ERR_MEMORY, "no memory for tensor %s", q->name);
    dtype_to_f32(v->dtype, v->data, f, n);
    for (int64_t i = 0; i < n; i++)
        f[i] += 1;
    free(v->owned);
    v->data = v->owned = f;
    v->dtype = DTYPE_F32;
    return true;
}

/* --- the functions of weights.h --- */

static bool get(const struct weights *w, const char *name, int expert, int64_t rows, int64_t cols,
                bool check, struct weight_view *out, struct err *e)
{
    struct query q = {of(w), name, expert, rows, cols, check, .out = out, .e = e};
    if (!hf_source_find(&q.w->names, name, expert, &q.src))
        return err_set(e, ERR_NOT_FOUND, "%s: no tensor for %.100s", q.w->dir, name);
    out->rows = rows;
    out->cols = cols;
    snprintf(out->what, sizeof out->what, "%s", q.src.t->name);
    return view(&q) && (!q.w->names.arch->plus_one || !strstr(name, "norm") || add_one(&q));
}

static bool has(const struct weights *w, const char *name)
{
    struct hf_source src;
    return hf_source_find(&of(w)->names, name, -1, &src);
}

static bool all_f32(const struct weights *w)
{
    const struct hf_shards *s = of(w)->names.shards;
    for (size_t i = 0; i < hf_shards_n(s); i++) {
        const struct st_tensor *t = hf_shards_at(s, i);
        if (t->n_dims > 1 && !(t->known && t->dtype == DTYPE_F32))
            return false;
    }
    return true;
}

static void close_weights(struct weights *w)
{
    free(w);
}

static const struct weights_kind hf_kind = {has, get, all_f32, close_weights};

uint64_t weights_hf_elems(const struct weights *w)
{
    return of(w)->elems;
}

struct weights *weights_open_hf(const struct hf_shards *shards, const char *dir,
                                const struct hf_arch *arch, const struct hf_quant *quant,
                                const struct model_spec *spec, struct err *e)
{
    int64_t rows;
    struct hf_weights *w = calloc(1, sizeof *w);
    if (!w) {
        err_set(e, ERR_MEMORY, "no memory to open the tensors");
        return NULL;
    }
    w->base.kind = &hf_kind;
    w->names.shards = shards;
    w->names.arch = arch;
    w->names.quant = *quant;
    w->spec = spec;
    memcpy(w->dir, file_map_shown(dir).text, sizeof w->dir);
    if (hf_find_embedding(shards, w->names.prefix, &rows, e) &&
        hf_count_read(&w->names, spec, w->dir, &w->elems, e))
        return &w->base;
    free(w);
    return NULL;
}
