#include "panel.h"

#include <math.h>
#include <string.h>

#include "quant_block.h"

struct panel_form panel_form(enum dtype t)
{
    const struct quant_form q = quant_form(t);
    struct panel_form f = {.bits = q.bits, .codebook = q.codebook != NULL};
    f.scales = q.scale_run == 16   ? PANEL_K16
               : q.scale_run == 32 ? PANEL_K32
               : q.d_run == 16     ? PANEL_D16
                                   : PANEL_D32;
    f.extra = q.minimum ? PANEL_MINIMUM : q.zero ? PANEL_ZERO : PANEL_PLAIN;
    f.bf16_d = q.d == QUANT_D_E8M0;
    f.factor = ldexpf(1, -q.d_shift);
    f.offset = q.bits == 8 || q.codebook ? 0 : q.offset;
    for (int i = 0; i < 16 && q.codebook; i++)
        f.codes[i] = (int8_t)(q.codebook[i] - q.offset);
    return f;
}

static bool has_super(const struct panel_form *f)
{
    return f->scales == PANEL_K32 || f->scales == PANEL_K16;
}

/* Bytes of the first kind of scales of a group */
static int scale_run_bytes(enum panel_scales s)
{
    static const int bytes_of_row[] = {
        [PANEL_D32] = 8, [PANEL_D16] = 16, [PANEL_K32] = 4, [PANEL_K16] = 8};
    return PANEL_ROWS * bytes_of_row[s];
}

struct panel_sizes panel_sizes(const struct panel_form *f, int64_t cols)
{
    struct panel_sizes s = {0};
    int run = scale_run_bytes(f->scales);
    s.groups = (int)((cols + GROUP_BLOCKS * BLOCK_VALUES - 1) / (GROUP_BLOCKS * BLOCK_VALUES));
    s.plane_bytes = f->bits * PANEL_ROWS * GROUP_BLOCKS * BLOCK_VALUES / 8;
    s.scale_bytes = run;
    if (f->extra == PANEL_MINIMUM)
        s.scale_bytes += run;
    if (f->extra == PANEL_ZERO)
        s.scale_bytes += PANEL_ROWS * GROUP_BLOCKS;
    if (has_super(f))
        s.super_bytes = PANEL_ROWS * (f->extra == PANEL_MINIMUM ? 4 : 2);
    s.bytes = (int64_t)s.groups * (s.plane_bytes + s.scale_bytes) +
              (int64_t)((s.groups + 1) / 2) * s.super_bytes;
    return s;
}

/* Adds bits of value k (0 to 31) of block b of row r to the planes of its group. */
static void put_value(uint8_t *plane, int bits, int r, int b, int k, unsigned q)
{
    int h = r / 8, lane = r % 8 * 4 + k % 16 / 4, e = k / 16, byte = k % 4;
    if (bits == 8) {
        int word = 8 * h + 2 * b + e;
        plane[(word / 4 * 32 + lane) * 16 + word % 4 * 4 + byte] = (uint8_t)(q ^ 128);
        return;
    }
    if (bits >= 4) {
        plane[(h * 32 + lane) * 16 + b * 4 + byte] |= (uint8_t)((q & 15) << 4 * e);
        plane += 1024;
        q >>= 4;
        bits -= 4;
    }
    if (bits >= 2) {
        plane[lane * 16 + (2 * h + b / 2) * 4 + byte] |= (uint8_t)((q & 3) << 2 * (b % 2 * 2 + e));
        plane += 512;
        q >>= 2;
        bits -= 2;
    }
    if (bits == 1)
        plane[lane * 8 + h * 4 + byte] |= (uint8_t)(q << (2 * b + e));
}

static void put16(uint8_t *at, int i, uint16_t v)
{
    memcpy(at + 2 * i, &v, 2);
}

/* Half of what the exponent stands for, as the codes are of doubled values */
static float e8m0_half(uint16_t e)
{
    return ldexpf(1, e - 128);
}

/* Scales of block b of its group, the s-th of the type's own block */
static void put_scales(const struct panel_form *f, uint8_t *at, int r, int b,
                       const struct quant_block *q, int s)
{
    uint8_t *second = at + scale_run_bytes(f->scales);
    int i = r * GROUP_BLOCKS + b;
    switch (f->scales) {
    case PANEL_D32:
        put16(at, i, f->bf16_d ? f32_to_bf16(e8m0_half(q->d[0])) : q->d[0]);
        break;
    case PANEL_D16:
        put16(at, 2 * i, q->d[2 * s]);
        put16(at, 2 * i + 1, q->d[2 * s + 1]);
        break;
    case PANEL_K32:
        at[i] = (uint8_t)q->scales[s];
        if (f->extra == PANEL_MINIMUM)
            second[i] = q->minima[s];
        return;
    case PANEL_K16:
        memcpy(at + 2 * i, q->scales + 2 * s, 2);
        if (f->extra == PANEL_MINIMUM)
            memcpy(second + 2 * i, q->minima + 2 * s, 2);
        return;
    }
    if (f->extra == PANEL_MINIMUM)
        put16(second, i, q->m);
    if (f->extra == PANEL_ZERO)
        second[i] = (uint8_t)q->m;
}

/* The blocks of one row, one of the file holding one or more of 32 values */
static void pack_row(enum dtype t, const struct panel_form *f, const struct panel_sizes *size,
                     int r, const uint8_t *src, int64_t cols, uint8_t *panel)
{
    const struct dtype_info *info = dtype_info(t);
    uint8_t *scales = panel + (size_t)size->groups * size->plane_bytes;
    uint8_t *supers = scales + (size_t)size->groups * size->scale_bytes;
    struct quant_block q;
    for (int64_t k = 0; k < cols; k += info->block_elems, src += info->block_bytes) {
        quant_unpack(t, src, &q);
        for (int i = 0; i < info->block_elems; i += BLOCK_VALUES) {
            int64_t block = (k + i) / BLOCK_VALUES, group = block / GROUP_BLOCKS;
            int b = (int)(block % GROUP_BLOCKS);
            uint8_t *plane = panel + (size_t)group * size->plane_bytes;
            for (int v = 0; v < BLOCK_VALUES; v++)
                put_value(plane, f->bits, r, b, v, q.q[i + v]);
            put_scales(f, scales + (size_t)group * size->scale_bytes, r, b, &q, i / BLOCK_VALUES);
        }
        if (has_super(f)) {
            uint8_t *at = supers + (size_t)(k / 256) * size->super_bytes;
            put16(at, r, q.d[0]);
            if (f->extra == PANEL_MINIMUM)
                put16(at, PANEL_ROWS + r, q.m);
        }
    }
}

void panel_pack(enum dtype t, int64_t rows, int64_t cols, const void *src, int64_t first,
                uint8_t *panel)
{
    const struct panel_form f = panel_form(t);
    const struct panel_sizes size = panel_sizes(&f, cols);
    memset(panel, 0, (size_t)size.bytes);
    for (int r = 0; r < PANEL_ROWS && first + r < rows; r++)
        pack_row(t, &f, &size, r, (const uint8_t *)src + (first + r) * dtype_row_bytes(t, cols),
                 cols, panel);
}
