#include "repack.h"

#include <string.h>

#include "repack_fast.h"

size_t repack_panel_bytes(enum dtype t, int64_t cols)
{
    if (dtype_is_quantised(t))
        return (size_t)(cols / (panel_parts(t) * QBLOCK)) * (size_t)panel_block_bytes(t);
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

/* Where a part keeps `mask` of line j of 8, from bit `from` of q on */
struct field {
    int at, shift, from;
    uint32_t mask;
};

/* The two lines of pairs of bits */
static struct field pair_of(int at, int j, int from)
{
    return (struct field){at + j / 4 * 64, j % 4 * 2, from, 0x03030303};
}

static struct field low_of(int bits, int j)
{
    if (bits == 8)
        return (struct field){j * 64, 0, 0, 0xFFFFFFFF};
    if (bits < 4)
        return pair_of(0, j, 0);
    return (struct field){j % 4 * 64, j / 4 * 4, 0, 0x0F0F0F0F};
}

/* What is above it, if anything */
static struct field high_of(int bits, int j)
{
    if (bits == 6)
        return pair_of(256, j, 4);
    int below = bits / 2 * 2; /* of 5 bits 4, of 3 bits 2 */
    return (struct field){below * 64, j, below, bits % 2 ? 0x01010101 : 0};
}

/* 32 values q of row r into a part that is zeroed */
static void pack_lines(enum dtype t, uint8_t *part, int r, const uint8_t *q)
{
    const int bits = quant_form(t).bits;
    for (int j = 0; j < 8; j++) {
        const struct field low = low_of(bits, j), high = high_of(bits, j);
        uint32_t v = load4(q + 4 * j);
        set_bits4(part + low.at + r * 4, (v & low.mask) << low.shift);
        if (high.mask)
            set_bits4(part + high.at + r * 4, (v >> high.from & high.mask) << high.shift);
    }
}

static void unpack_lines(enum dtype t, const uint8_t *part, int r, uint8_t *q)
{
    const int bits = quant_form(t).bits;
    for (int j = 0; j < 8; j++) {
        const struct field low = low_of(bits, j), high = high_of(bits, j);
        uint32_t v = load4(part + low.at + r * 4) >> low.shift & low.mask;
        if (high.mask)
            v |= (load4(part + high.at + r * 4) >> high.shift & high.mask) << high.from;
        memcpy(q + 4 * j, &v, 4);
    }
}

/* Scales and minima of part i of row r */
static void pack_scales(enum dtype t, uint8_t *at, int r, const struct quant_block *b, int i)
{
    const struct quant_form f = quant_form(t);
    const int halves = panel_halves(t);
    for (int h = 0; f.scale_run && h < halves; h++, at += PANEL) {
        uint8_t scale = (uint8_t)b->scales[i * halves + h], minimum = b->minima[i * halves + h];
        at[r] = halves == 2 && f.minimum ? scale | (uint8_t)(minimum << 4) : scale;
        if (halves == 1 && f.minimum)
            at[PANEL + r] = minimum;
    }
}

static void unpack_scales(enum dtype t, const uint8_t *at, int r, struct quant_block *b, int i)
{
    const struct quant_form f = quant_form(t);
    const int halves = panel_halves(t);
    for (int h = 0; f.scale_run && h < halves; h++, at += PANEL) {
        bool nibbles = halves == 2 && f.minimum;
        b->scales[i * halves + h] = (int8_t)(nibbles ? at[r] & 15 : at[r]);
        if (f.minimum)
            b->minima[i * halves + h] = nibbles ? at[r] >> 4 : at[PANEL + r];
    }
}

/* d of the values from k on, and m or zero, of row r */
static void pack_head(enum dtype t, uint8_t *block, int r, const struct quant_block *b, int k)
{
    const struct quant_form f = quant_form(t);
    uint8_t *d = block + panel_head_at(t), *second = block + panel_second_at(t);
    for (int i = 0; i < (f.d_run ? panel_halves(t) : 1); i++) {
        const uint16_t *from = &b->d[f.d_run ? k / f.d_run + i : 0];
        if (f.d == QUANT_D_E8M0)
            d[r] = (uint8_t)*from;
        else
            memcpy(d + i * 2 * PANEL + r * 2, from, 2);
    }
    if (f.minimum)
        memcpy(second + r * 2, &b->m, 2);
    if (f.zero)
        second[r] = (uint8_t)b->m;
}

static void unpack_head(enum dtype t, const uint8_t *block, int r, struct quant_block *b)
{
    const struct quant_form f = quant_form(t);
    const uint8_t *d = block + panel_head_at(t), *second = block + panel_second_at(t);
    for (int i = 0; i < (f.d_run ? panel_halves(t) : 1); i++) {
        if (f.d == QUANT_D_E8M0)
            b->d[i] = d[r];
        else
            memcpy(&b->d[i], d + i * 2 * PANEL + r * 2, 2);
    }
    if (f.minimum)
        memcpy(&b->m, second + r * 2, 2);
    if (f.zero)
        b->m = second[r];
}

/* A block of the file holds one or more blocks of a panel. */
static void pack_row(enum dtype t, uint8_t *to, int r, const uint8_t *from, int64_t cols)
{
    const struct dtype_info *info = dtype_info(t);
    const int parts = panel_parts(t), part_bytes = panel_part_bytes(t);
    struct quant_block b;
    for (; cols > 0; cols -= info->block_elems, from += info->block_bytes) {
        quant_unpack(t, from, &b);
        for (int k = 0; k < info->block_elems; k += parts * QBLOCK, to += panel_block_bytes(t)) {
            pack_head(t, to, r, &b, k);
            for (int i = 0; i < parts; i++) {
                pack_lines(t, to + i * part_bytes, r, b.q + k + i * QBLOCK);
                pack_scales(t, to + i * part_bytes + panel_line_bytes(t), r, &b, i);
            }
        }
    }
}

static void unpack_row(enum dtype t, const uint8_t *from, int r, int64_t cols, float *out)
{
    const int parts = panel_parts(t), n = parts * QBLOCK, part_bytes = panel_part_bytes(t);
    struct quant_block b;
    for (; cols > 0; cols -= n, out += n, from += panel_block_bytes(t)) {
        unpack_head(t, from, r, &b);
        for (int i = 0; i < parts; i++) {
            unpack_lines(t, from + i * part_bytes, r, b.q + i * QBLOCK);
            unpack_scales(t, from + i * part_bytes + panel_line_bytes(t), r, &b, i);
        }
        quant_values(t, &b, n, out);
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

/* A row of an F8 type becomes F16. */
static void f8_row(enum dtype t, uint8_t *to, int r, const uint8_t *from, int64_t cols)
{
    for (int64_t k = 0; k < cols; k++) {
        uint16_t h = f8_to_f16(t, from[k]);
        memcpy(to + (k * PANEL + r) * 2, &h, 2);
    }
}

void repack_panel(const struct weight *w, int panel, enum dtype t, const void *src)
{
    uint8_t *to = w->data + (size_t)panel * w->panel_bytes;
    const size_t row_bytes = dtype_row_bytes(t, w->cols);
    const int64_t row = (int64_t)panel * PANEL, left = w->rows - row;
    const struct file_rows rows = {(const uint8_t *)src + (size_t)row * row_bytes, row_bytes,
                                   left < PANEL ? (int)left : PANEL, w->cols};
    if (repack_fast(t, to, &rows))
        return;
    for (int r = 0; r < rows.n; r++) {
        const uint8_t *from = rows.data + (size_t)r * row_bytes;
        if (dtype_is_quantised(t))
            pack_row(t, to, r, from, w->cols);
        else if (panel_type(t) != t)
            f8_row(t, to, r, from, w->cols);
        else
            float_row(to, r, from, w->cols, (size_t)dtype_info(t)->block_bytes);
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
