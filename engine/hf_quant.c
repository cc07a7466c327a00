#include "hf_quant.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* --- quantization_config --- */

static bool refuse(const struct hf_config *c, const char *method, const char *why)
{
    return hf_err(c, ERR_UNSUPPORTED,
                  "the checkpoint is quantised (quant_method \"%s\"%s), which is not supported; "
                  "4-bit AWQ and GPTQ, FP8, and MXFP4 of gpt-oss are",
                  hf_show(method).text, why);
}

static bool read_int4(const struct hf_config *c, const json_t *q, const char *method,
                      struct hf_quant *out)
{
    const bool awq = strcmp(method, "awq") == 0;
    const char *version, *format;
    bool lm_head;
    int bits;
    if (!hf_int(c, q, "bits", 1, 64, 4, &bits) ||
        !hf_int(c, q, "group_size", -1, INT_MAX, 128, &out->group) ||
        !hf_text(c, q, "version", "gemm", &version) ||
        !hf_text(c, q, "checkpoint_format", "gptq", &format) ||
        !hf_bool(c, q, "lm_head", false, &lm_head))
        return false;
    if (bits != 4)
        return refuse(c, method, ", not of 4 bits");
    if (awq && strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        return refuse(c, method, ", of another version than gemm");
    if (!awq && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return refuse(c, method, ", of another checkpoint_format than gptq");
    out->kind = HF_QUANT_INT4;
    out->packing = awq ? INT4_AWQ : strcmp(format, "gptq") == 0 ? INT4_GPTQ : INT4_GPTQ_V2;
    out->group = out->group < 1 ? 0 : out->group;
    return true;
}

bool hf_quant_read(const struct hf_config *c, const struct hf_arch *a, struct hf_quant *out)
{
    const json_t *q = hf_get(c->top, "quantization_config");
    const char *method, *format;
    *out = (struct hf_quant){0};
    if (!q)
        q = hf_get(c->model, "quantization_config");
    if (!q)
        return true;
    if (!hf_text(c, q, "quant_method", "", &method) || !hf_text(c, q, "format", "", &format))
        return false;
    if (strcmp(method, "mxfp4") == 0 && a->experts == HF_EXPERTS_TRANSPOSED) {
        out->kind = HF_QUANT_MXFP4;
        return true;
    }
    if (strcmp(method, "awq") == 0 || strcmp(method, "gptq") == 0)
        return read_int4(c, q, method, out);
    if (strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0 ||
        (strcmp(method, "compressed-tensors") == 0 && strcmp(format, "float-quantized") == 0)) {
        out->kind = HF_QUANT_FP8;
        return true;
    }
    return refuse(c, method, "");
}

/* --- one matrix --- */

static bool has_dims(const struct st_tensor *t, int64_t a, int64_t b)
{
    return t && t->n_dims == 2 && t->dims[0] == a && t->dims[1] == b;
}

static bool wrong(const struct st_tensor *t, const char *what, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "tensor \"%s\": its %s are missing, or not of the shape or type that it needs",
                   t->name, what);
}

static bool is_i32(const struct st_tensor *t)
{
    return t && strcmp(t->type, "I32") == 0;
}

/* A type that scales have. */
static bool is_plain(const struct st_tensor *t)
{
    return t && t->known && dtype_info(t->dtype)->block_elems == 1 && t->bits >= 16;
}

static bool open_int4(const struct hf_quant *q, const struct hf_packed *p, int64_t rows,
                      int64_t cols, struct hf_packed_matrix *out, struct err *e)
{
    const int64_t group = q->group ? q->group : cols, n_groups = (cols + group - 1) / group;
    const bool awq = q->packing == INT4_AWQ;
    if (rows % 8 != 0 || cols % 8 != 0 || !is_i32(p->data) ||
        !has_dims(p->data, awq ? cols : cols / 8, awq ? rows / 8 : rows))
        return err_set(e, ERR_INVALID,
                       "tensor \"%s\" is not that of %" PRId64 " by %" PRId64 " packed values",
                       p->data->name, rows, cols);
    if (!is_i32(p->zeros) || !has_dims(p->zeros, n_groups, rows / 8))
        return wrong(p->data, "qzeros", e);
    if (!is_plain(p->scales) || !has_dims(p->scales, n_groups, rows))
        return wrong(p->data, "scales", e);
    if (p->g_idx && (!is_i32(p->g_idx) || p->g_idx->n_dims != 1 || p->g_idx->dims[0] != cols))
        return wrong(p->data, "g_idx", e);
    out->is_int4 = true;
    out->int4 = (struct int4_matrix){
        .packing = q->packing,
        .rows = rows,
        .cols = cols,
        .group = group,
        .qweight = p->data->data,
        .qzeros = p->zeros->data,
        .scale_type = p->scales->dtype,
        .scales = p->scales->data,
        .g_idx = p->g_idx ? p->g_idx->data : NULL,
    };
    return int4_check(&out->int4, p->data->name, &out->type, e);
}

/* One scale, one a row, or one a block; by the shape of the scales. */
static bool find_blocks(const struct st_tensor *s, int64_t rows, int64_t cols, int64_t *block_rows,
                        int64_t *block_cols)
{
    enum { BLOCK = 128 };
    *block_rows = rows;
    *block_cols = cols;
    if (st_tensor_elems(s) == 1)
        return true;
    *block_rows = 1;
    if (st_tensor_elems(s) == rows && s->n_dims >= 1 && s->dims[0] == rows)
        return true;
    *block_rows = *block_cols = BLOCK;
    return has_dims(s, (rows + BLOCK - 1) / BLOCK, (cols + BLOCK - 1) / BLOCK);
}

static bool open_fp8(const struct hf_packed *p, int64_t rows, int64_t cols,
                     struct hf_packed_matrix *out, struct err *e)
{
    out->is_int4 = false;
    out->fp8 = (struct fp8_matrix){
        .type = p->data->dtype,
        .rows = rows,
        .cols = cols,
        .data = p->data->data,
        .scale_type = p->scales->dtype,
        .scales = p->scales->data,
    };
    if (!has_dims(p->data, rows, cols))
        return err_set(e, ERR_INVALID, "tensor \"%s\" has not the shape [%" PRId64 ", %" PRId64 "]",
                       p->data->name, rows, cols);
    if (!is_plain(p->scales) ||
        !find_blocks(p->scales, rows, cols, &out->fp8.block_rows, &out->fp8.block_cols))
        return wrong(p->data, "scales", e);
    return fp8_check(&out->fp8, p->data->name, &out->type, e);
}

void hf_packed_shape(const struct hf_quant *q, const struct hf_packed *p, int64_t *rows,
                     int64_t *cols)
{
    const int64_t *d = p->data->dims;
    const bool awq = q->packing == INT4_AWQ;
    *rows = !p->zeros ? d[0] : awq ? d[1] * 8 : d[1];
    *cols = !p->zeros ? d[1] : awq ? d[0] : d[0] * 8;
}

bool hf_packed_open(const struct hf_quant *q, const struct hf_packed *p, int64_t rows, int64_t cols,
                    struct hf_packed_matrix *out, struct err *e)
{
    return p->zeros ? open_int4(q, p, rows, cols, out, e) : open_fp8(p, rows, cols, out, e);
}

void hf_packed_rows(const struct hf_packed_matrix *m, int64_t row, int64_t n, void *out)
{
    if (m->is_int4)
        int4_rows(&m->int4, m->type, row, n, out);
    else
        fp8_rows(&m->fp8, m->type, row, n, out);
}
