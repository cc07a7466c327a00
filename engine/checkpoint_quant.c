#include "checkpoint_quant.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { BLOCK = 32, Q4_Z_BYTES = 19, F8_TOP = 448, F8_E5M2_TOP = 57344 };

static uint32_t word_at(const void *words, int64_t i)
{
    uint32_t w;
    memcpy(&w, (const uint8_t *)words + i * 4, 4);
    return w;
}

static float float_at(enum dtype t, const void *values, int64_t i)
{
    float f;
    dtype_to_f32(t, (const uint8_t *)values + i * dtype_info(t)->block_bytes, &f, 1);
    return f;
}

static bool is_float(enum dtype t)
{
    return t == DTYPE_F16 || t == DTYPE_BF16 || t == DTYPE_F32;
}

static bool check_scales(enum dtype t, const char *what, struct err *e)
{
    if (is_float(t))
        return true;
    return err_set(e, ERR_UNSUPPORTED, "%s: scales are of type %s, expected F16, BF16 or F32", what,
                   dtype_info(t)->name);
}

/* --- four bits --- */

/* Where a word of AWQ has each of eight outputs */
static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

static int q_at(const struct int4_matrix *m, int64_t row, int64_t k)
{
    if (m->packing == INT4_AWQ)
        return word_at(m->qweight, k * (m->rows / 8) + row / 8) >> 4 * awq_place[row % 8] & 15;
    return word_at(m->qweight, k / 8 * m->rows + row) >> 4 * (k % 8) & 15;
}

static int zero_at(const struct int4_matrix *m, int64_t row, int64_t group)
{
    const uint32_t word = word_at(m->qzeros, group * (m->rows / 8) + row / 8);
    if (m->packing == INT4_AWQ)
        return word >> 4 * awq_place[row % 8] & 15;
    return (int)(word >> 4 * (row % 8) & 15) + (m->packing == INT4_GPTQ);
}

static int64_t group_of(const struct int4_matrix *m, int64_t k)
{
    return m->g_idx ? (int64_t)word_at(m->g_idx, k) : k / m->group;
}

static bool check_groups(const struct int4_matrix *m, const char *what, bool *in_order,
                         struct err *e)
{
    const int64_t n = m->cols / m->group;
    *in_order = m->group % BLOCK == 0;
    for (int64_t k = 0; m->g_idx && k < m->cols; k++) {
        const int64_t group = group_of(m, k);
        if (group >= n)
            return err_set(e, ERR_INVALID,
                           "%s: input %" PRId64 " is of group %" PRId64 ", expected 0 to %" PRId64,
                           what, k, group, n - 1);
        *in_order = *in_order && group == group_of(m, k / BLOCK * BLOCK);
    }
    return true;
}

bool int4_check(const struct int4_matrix *m, const char *what, enum dtype *type, struct err *e)
{
    bool in_order;
    if (m->rows < 1 || m->cols < 1 || m->rows % 8 != 0 || m->cols % 8 != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: %" PRId64 " outputs of %" PRId64 " inputs, expected multiples of 8",
                       what, m->rows, m->cols);
    if (m->group < 1 || m->cols % m->group != 0)
        return err_set(e, ERR_INVALID, "%s: groups of %" PRId64 " do not divide %" PRId64 " inputs",
                       what, m->group, m->cols);
    if (!check_scales(m->scale_type, what, e) || !check_groups(m, what, &in_order, e))
        return false;
    *type = in_order && m->cols % BLOCK == 0 ? DTYPE_Q4_Z : DTYPE_F16;
    return true;
}

static void put_q4_z(const struct int4_matrix *m, int64_t row, int64_t k, uint8_t *out)
{
    const int64_t group = group_of(m, k);
    const uint16_t d = f32_to_f16(float_at(m->scale_type, m->scales, group * m->rows + row));
    memcpy(out, &d, 2);
    out[2] = (uint8_t)zero_at(m, row, group);
    for (int i = 0; i < 16; i++)
        out[3 + i] = (uint8_t)(q_at(m, row, k + i) | q_at(m, row, k + 16 + i) << 4);
}

static void put_f16(const struct int4_matrix *m, int64_t row, int64_t k, uint8_t *out)
{
    const int64_t group = group_of(m, k);
    const float d = float_at(m->scale_type, m->scales, group * m->rows + row);
    const uint16_t h = f32_to_f16(d * (float)(q_at(m, row, k) - zero_at(m, row, group)));
    memcpy(out, &h, 2);
}

/* Inputs outermost: neighbouring rows' numbers share cache lines. */
void int4_rows(const struct int4_matrix *m, enum dtype type, int64_t row, int64_t n, void *out)
{
    const size_t row_bytes = dtype_row_bytes(type, m->cols);
    const bool blocks = type == DTYPE_Q4_Z;
    uint8_t *to = out;
    for (int64_t k = 0; k < m->cols; k += blocks ? BLOCK : 1, to += blocks ? Q4_Z_BYTES : 2)
        for (int64_t r = 0; r < n; r++)
            (blocks ? put_q4_z : put_f16)(m, row + r, k, to + (size_t)r * row_bytes);
}

/* --- eight bits --- */

static int64_t blocks_of(int64_t n, int64_t block)
{
    return (n - 1) / block + 1;
}

bool fp8_check(const struct fp8_matrix *m, const char *what, enum dtype *type, struct err *e)
{
    if (m->type != DTYPE_F8_E4M3 && m->type != DTYPE_F8_E5M2)
        return err_set(e, ERR_UNSUPPORTED, "%s: type %s, expected F8_E4M3 or F8_E5M2", what,
                       dtype_info(m->type)->name);
    if (m->rows < 1 || m->cols < 1 || m->block_rows < 1 || m->block_cols < 1)
        return err_set(e, ERR_INVALID,
                       "%s: %" PRId64 " x %" PRId64 " in blocks of %" PRId64 " x %" PRId64, what,
                       m->rows, m->cols, m->block_rows, m->block_cols);
    if (!check_scales(m->scale_type, what, e))
        return false;
    const float top = m->type == DTYPE_F8_E4M3 ? F8_TOP : F8_E5M2_TOP;
    const int64_t n = blocks_of(m->rows, m->block_rows) * blocks_of(m->cols, m->block_cols);
    *type = DTYPE_F16;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(float_at(m->scale_type, m->scales, i)) * top <= 65504))
            *type = DTYPE_F32;
    return true;
}

void fp8_rows(const struct fp8_matrix *m, enum dtype type, int64_t row, int64_t n, void *out)
{
    const int64_t per_row = blocks_of(m->cols, m->block_cols);
    uint8_t *to = out;
    for (int64_t r = row; r < row + n; r++) {
        const uint8_t *from = (const uint8_t *)m->data + r * m->cols;
        for (int64_t c = 0; c < m->cols; c++, to += dtype_info(type)->block_bytes) {
            float x = f16_to_f32(f8_to_f16(m->type, from[c]));
            x *=
                float_at(m->scale_type, m->scales, r / m->block_rows * per_row + c / m->block_cols);
            dtype_from_f32(type, &x, to, 1);
        }
    }
}
