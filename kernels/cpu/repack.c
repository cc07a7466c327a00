#include "repack.h"

#include <string.h>

size_t repack_panel_bytes(enum dtype t, int64_t cols)
{
    if (dtype_is_quantised(t))
        return (size_t)(cols / dtype_info(t)->block_elems) * (size_t)panel_block_bytes(t);
    return (size_t)cols * PANEL * (t == DTYPE_F32 ? 4 : 2);
}

/* --- quantised types: four bytes of a line belong to one row --- */

static uint32_t load4(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static void set_bits4(uint8_t *p, uint32_t v)
{
    v |= load4(p);
    memcpy(p, &v, 4);
}

/* Where a part keeps what line j of 8 has above its nibbles */
struct high {
    int at, shift;
    uint32_t mask;
};

static struct high high_of(int bits, int j)
{
    if (bits == 5)
        return (struct high){256, j, 0x01010101};
    return (struct high){256 + j / 4 * 64, j % 4 * 2, 0x03030303};
}

/* 32 values q of row r into a part that is zeroed */
static void pack_lines(enum dtype t, uint8_t *part, int r, const uint8_t *q)
{
    const int bits = quant_form(t).bits;
    for (int j = 0; j < 8; j++) {
        uint32_t v = load4(q + 4 * j);
        if (bits == 8) {
            set_bits4(part + j * 64 + r * 4, v);
            continue;
        }
        set_bits4(part + j % 4 * 64 + r * 4, (v & 0x0F0F0F0F) << j / 4 * 4);
        if (bits > 4) {
            struct high h = high_of(bits, j);
            set_bits4(part + h.at + r * 4, (v >> 4 & h.mask) << h.shift);
        }
    }
}

static void unpack_lines(enum dtype t, const uint8_t *part, int r, uint8_t *q)
{
    const int bits = quant_form(t).bits;
    for (int j = 0; j < 8; j++) {
        uint32_t v;
        if (bits == 8) {
            v = load4(part + j * 64 + r * 4);
        } else {
            struct high h = high_of(bits, j);
            v = load4(part + j % 4 * 64 + r * 4) >> j / 4 * 4 & 0x0F0F0F0F;
            if (bits > 4)
                v |= (load4(part + h.at + r * 4) >> h.shift & h.mask) << 4;
        }
        memcpy(q + 4 * j, &v, 4);
    }
}

static void pack_block(enum dtype t, uint8_t *to, int r, const struct quant_block *b)
{
    const struct quant_form f = quant_form(t);
    uint8_t *head = to + panel_head_at(t);
    memcpy(head + r * 2, &b->d, 2);
    if (f.minimum)
        memcpy(head + 2 * PANEL + r * 2, &b->m, 2);
    for (int i = 0; i < panel_parts(t); i++, to += panel_part_bytes(t)) {
        uint8_t *scales = to + panel_line_bytes(t);
        pack_lines(t, to, r, b->q + i * QBLOCK);
        if (!f.scale_run)
            continue;
        scales[r] = b->scales[i * QBLOCK / f.scale_run];
        scales[PANEL + r] = f.minimum ? b->minima[i] : b->scales[i * 2 + 1];
    }
}

static void unpack_block(enum dtype t, const uint8_t *from, int r, struct quant_block *b)
{
    const struct quant_form f = quant_form(t);
    const uint8_t *head = from + panel_head_at(t);
    memcpy(&b->d, head + r * 2, 2);
    if (f.minimum)
        memcpy(&b->m, head + 2 * PANEL + r * 2, 2);
    for (int i = 0; i < panel_parts(t); i++, from += panel_part_bytes(t)) {
        const uint8_t *scales = from + panel_line_bytes(t);
        unpack_lines(t, from, r, b->q + i * QBLOCK);
        if (!f.scale_run)
            continue;
        b->scales[i * QBLOCK / f.scale_run] = scales[r];
        *(f.minimum ? &b->minima[i] : &b->scales[i * 2 + 1]) = scales[PANEL + r];
    }
}

static void pack_row(enum dtype t, uint8_t *to, int r, const uint8_t *from, int64_t cols)
{
    const struct dtype_info *info = dtype_info(t);
    struct quant_block b;
    for (; cols > 0; cols -= info->block_elems) {
        quant_unpack(t, from, &b);
        pack_block(t, to, r, &b);
        from += info->block_bytes;
        to += panel_block_bytes(t);
    }
}

static void unpack_row(enum dtype t, const uint8_t *from, int r, int64_t cols, float *out)
{
    struct quant_block b;
    for (; cols > 0; cols -= dtype_info(t)->block_elems) {
        unpack_block(t, from, r, &b);
        quant_values(t, &b, out);
        from += panel_block_bytes(t);
        out += dtype_info(t)->block_elems;
    }
}

/* --- float types --- */

static void float_row(uint8_t *to, int r, const uint8_t *from, int64_t cols, size_t elem)
{
    for (int64_t k = 0; k < cols; k++)
        memcpy(to + (k * PANEL + r) * elem, from + k * elem, elem);
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

void repack_panel(const struct weight *w, int panel, const void *src)
{
    uint8_t *to = w->data + (size_t)panel * w->panel_bytes;
    size_t row_bytes = dtype_row_bytes(w->type, w->cols);
    int64_t row = (int64_t)panel * PANEL;
    for (int r = 0; r < PANEL && row < w->rows; r++, row++) {
        const uint8_t *from = (const uint8_t *)src + row * row_bytes;
        if (dtype_is_quantised(w->type))
            pack_row(w->type, to, r, from, w->cols);
        else
            float_row(to, r, from, w->cols, (size_t)dtype_info(w->type)->block_bytes);
    }
}

void repack_row(const struct weight *w, int64_t row, float scale, float *out)
{
    const uint8_t *panel = w->data + (size_t)(row / PANEL) * w->panel_bytes;
    int r = (int)(row % PANEL);
    if (w->vector)
        memcpy(out, w->vector, (size_t)w->cols * sizeof *out);
    else if (dtype_is_quantised(w->type))
        unpack_row(w->type, panel, r, w->cols, out);
    else
        float_values(w, panel, r, out);
    for (int64_t k = 0; k < w->cols; k++)
        out[k] *= scale;
}
