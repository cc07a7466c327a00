#include "repack.h"

#include <string.h>

/* What a block of the file holds, in bytes */
enum { Q4_1_Q = 4, Q8_0_Q = 2, Q8_0_ZERO = 128 };

size_t repack_panel_bytes(enum dtype t, int64_t cols)
{
    if (t == DTYPE_Q4_1)
        return (size_t)(cols / QBLOCK) * Q4_1_BYTES;
    if (t == DTYPE_Q8_0)
        return (size_t)(cols / QBLOCK) * Q8_0_BYTES;
    return (size_t)cols * PANEL * (t == DTYPE_F32 ? 4 : 2);
}

/* One row's block; both nibbles of a byte stay together. */
static void q4_1_block(uint8_t *to, int r, const uint8_t *from)
{
    for (int j = 0; j < 4; j++)
        memcpy(to + j * 64 + r * 4, from + Q4_1_Q + j * 4, 4);
    memcpy(to + 256 + r * 2, from, 2);
    memcpy(to + 288 + r * 2, from + 2, 2);
}

static void q8_0_block(uint8_t *to, int r, const uint8_t *from)
{
    for (int k = 0; k < QBLOCK; k++)
        to[k / 4 * 64 + r * 4 + k % 4] = from[Q8_0_Q + k] ^ Q8_0_ZERO;
    memcpy(to + 512 + r * 2, from, 2);
}

static void float_row(uint8_t *to, int r, const uint8_t *from, int64_t cols, size_t elem)
{
    for (int64_t k = 0; k < cols; k++)
        memcpy(to + (k * PANEL + r) * elem, from + k * elem, elem);
}

void repack_panel(const struct weight *w, int panel, const void *src)
{
    uint8_t *to = w->data + (size_t)panel * w->panel_bytes;
    size_t row_bytes = dtype_row_bytes(w->type, w->cols);
    size_t block_bytes = (size_t)dtype_info(w->type)->block_bytes;
    int64_t n_blocks = w->cols / QBLOCK, row = (int64_t)panel * PANEL;
    if (w->type == DTYPE_Q8_0) /* rows past the end: zeros are stored as 128 */
        for (int64_t b = 0; b < n_blocks; b++)
            memset(to + b * Q8_0_BYTES, Q8_0_ZERO, 512);
    for (int r = 0; r < PANEL && row < w->rows; r++, row++) {
        const uint8_t *from = (const uint8_t *)src + row * row_bytes;
        if (!dtype_is_quantised(w->type)) {
            float_row(to, r, from, w->cols, block_bytes);
            continue;
        }
        for (int64_t b = 0; b < n_blocks; b++, from += block_bytes) {
            if (w->type == DTYPE_Q4_1)
                q4_1_block(to + b * Q4_1_BYTES, r, from);
            else
                q8_0_block(to + b * Q8_0_BYTES, r, from);
        }
    }
}

static float f16_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return f16_to_f32(h);
}

static void q4_1_row(const uint8_t *from, int r, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, from += Q4_1_BYTES, out += QBLOCK) {
        float d = f16_at(from + 256 + r * 2), m = f16_at(from + 288 + r * 2);
        for (int k = 0; k < 16; k++) {
            uint8_t q = from[k / 4 * 64 + r * 4 + k % 4];
            out[k] = (float)(q & 15) * d + m;
            out[k + 16] = (float)(q >> 4) * d + m;
        }
    }
}

static void q8_0_row(const uint8_t *from, int r, int64_t n_blocks, float *out)
{
    for (int64_t b = 0; b < n_blocks; b++, from += Q8_0_BYTES, out += QBLOCK) {
        float d = f16_at(from + 512 + r * 2);
        for (int k = 0; k < QBLOCK; k++)
            out[k] = (float)(from[k / 4 * 64 + r * 4 + k % 4] - Q8_0_ZERO) * d;
    }
}

static void float_values(const struct weight *w, const uint8_t *from, int r, float *out)
{
    for (int64_t k = 0; k < w->cols; k++) {
        uint16_t h;
        if (w->type == DTYPE_F32) {
            memcpy(out + k, from + (k * PANEL + r) * 4, 4);
            continue;
        }
        memcpy(&h, from + (k * PANEL + r) * 2, 2);
        out[k] = w->type == DTYPE_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
}

void repack_row(const struct weight *w, int64_t row, float scale, float *out)
{
    const uint8_t *panel = w->data + (size_t)(row / PANEL) * w->panel_bytes;
    int r = (int)(row % PANEL);
    if (w->vector)
        memcpy(out, w->vector, (size_t)w->cols * sizeof *out);
    else if (w->type == DTYPE_Q4_1)
        q4_1_row(panel, r, w->cols / QBLOCK, out);
    else if (w->type == DTYPE_Q8_0)
        q8_0_row(panel, r, w->cols / QBLOCK, out);
    else
        float_values(w, panel, r, out);
    for (int64_t k = 0; k < w->cols; k++)
        out[k] *= scale;
}
