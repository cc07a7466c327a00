/* Packing by whole 32-bit lanes instead of values: in these types the bytes of a file and of a
 * panel hold nearly the same neighbours. Blocks outside and rows inside, so that a block of the
 * panel is written while it is in the L1 cache; bounded by memory bandwidth. */
#include "repack_fast.h"

#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE uint32_t load4(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* Row r of line j */
ALWAYS_INLINE void put(uint8_t *lines, int j, int r, uint32_t v)
{
    memcpy(lines + j * 64 + r * 4, &v, 4);
}

ALWAYS_INLINE void put_f16(uint8_t *head, int r, const uint8_t *from)
{
    memcpy(head + r * 2, from, 2);
}

typedef void pack_block(uint8_t *to, int r, const uint8_t *from);

ALWAYS_INLINE void pack_rows(enum dtype t, uint8_t *to, const struct file_rows *rows, pack_block *f)
{
    const struct dtype_info *info = dtype_info(t);
    const size_t to_bytes = (size_t)panel_block_bytes(t), from_bytes = (size_t)info->block_bytes;
    const int64_t n = rows->cols / info->block_elems;
    for (int64_t i = 0; i < n; i++, to += to_bytes)
        for (int r = 0; r < rows->n; r++)
            f(to, r, rows->data + (size_t)r * rows->row_bytes + (size_t)i * from_bytes);
}

/* --- one d for 32 values --- */

ALWAYS_INLINE void q4_0(uint8_t *to, int r, const uint8_t *from)
{
    for (int j = 0; j < 4; j++)
        put(to, j, r, load4(from + 2 + 4 * j));
    put_f16(to + panel_head_at(DTYPE_Q4_0), r, from);
}

ALWAYS_INLINE void q4_1(uint8_t *to, int r, const uint8_t *from)
{
    for (int j = 0; j < 4; j++)
        put(to, j, r, load4(from + 4 + 4 * j));
    put_f16(to + panel_head_at(DTYPE_Q4_1), r, from);
    put_f16(to + panel_second_at(DTYPE_Q4_1), r, from + 2);
}

ALWAYS_INLINE void q8_0(uint8_t *to, int r, const uint8_t *from)
{
    for (int j = 0; j < 8; j++)
        put(to, j, r, load4(from + 2 + 4 * j) ^ 0x80808080);
    put_f16(to + panel_head_at(DTYPE_Q8_0), r, from);
}

/* --- blocks of 256 --- */

#define LOW 0x0F0F0F0Fu
#define HIGH 0xF0F0F0F0u

/* The low, or the high, nibbles of 32 bytes as the four lines of a part */
ALWAYS_INLINE void put_nibbles(uint8_t *part, int r, const uint8_t *from, bool high)
{
    for (int j = 0; j < 4; j++) {
        uint32_t a = load4(from + 4 * j), b = load4(from + 4 * j + 16);
        put(part, j, r, high ? (a >> 4 & LOW) | (b & HIGH) : (a & LOW) | (b & LOW) << 4);
    }
}

/* Eight 6-bit scales and minima in 12 bytes, as Q4_K and Q5_K have them */
ALWAYS_INLINE void put_scales_k(enum dtype t, uint8_t *to, int r, const uint8_t *from)
{
    const uint32_t six = 0x3F3F3F3F, top = 0x30303030;
    const uint32_t a = load4(from), b = load4(from + 4), c = load4(from + 8);
    const uint32_t all[4] = {a & six, (c & LOW) | (a >> 2 & top), b & six,
                             (c >> 4 & LOW) | (b >> 2 & top)};
    uint8_t scales[16];
    memcpy(scales, all, sizeof scales);
    to += panel_line_bytes(t) + r;
    for (int i = 0; i < 8; i++, to += panel_part_bytes(t)) {
        to[0] = scales[i];
        to[PANEL] = scales[8 + i];
    }
}

ALWAYS_INLINE void put_heads_k(enum dtype t, uint8_t *to, int r, const uint8_t *from)
{
    put_f16(to + panel_head_at(t), r, from);
    put_f16(to + panel_second_at(t), r, from + 2);
    put_scales_k(t, to, r, from + 4);
}

ALWAYS_INLINE void q4_k(uint8_t *to, int r, const uint8_t *from)
{
    put_heads_k(DTYPE_Q4_K, to, r, from);
    for (int i = 0; i < 8; i++)
        put_nibbles(to + i * panel_part_bytes(DTYPE_Q4_K), r, from + 16 + i / 2 * 32, i % 2);
}

/* Bit i of 32 bytes as one line */
ALWAYS_INLINE uint32_t bits_of(const uint8_t *from, int i)
{
    uint32_t v = 0;
    for (int j = 0; j < 8; j++)
        v |= (load4(from + 4 * j) >> i & 0x01010101) << j;
    return v;
}

ALWAYS_INLINE void q5_k(uint8_t *to, int r, const uint8_t *from)
{
    put_heads_k(DTYPE_Q5_K, to, r, from);
    for (int i = 0; i < 8; i++, to += panel_part_bytes(DTYPE_Q5_K)) {
        put_nibbles(to, r, from + 48 + i / 2 * 32, i % 2);
        put(to, 4, r, bits_of(from + 16, i));
    }
}

/* Pair of bits i of 16 bytes as one line */
ALWAYS_INLINE uint32_t pairs_of(const uint8_t *from, int i)
{
    uint32_t v = 0;
    for (int j = 0; j < 4; j++)
        v |= (load4(from + 4 * j) >> 2 * i & 0x03030303) << 2 * j;
    return v;
}

ALWAYS_INLINE void q6_k(uint8_t *to, int r, const uint8_t *from)
{
    const uint8_t *high = from + 128, *scales = from + 192;
    put_f16(to + panel_head_at(DTYPE_Q6_K), r, from + 208);
    for (int i = 0; i < 8; i++, to += panel_part_bytes(DTYPE_Q6_K)) {
        const int half = i / 4, c = i % 4;
        put_nibbles(to, r, from + half * 64 + c % 2 * 32, c / 2);
        put(to, 4, r, pairs_of(high + half * 32, c));
        put(to, 5, r, pairs_of(high + half * 32 + 16, c));
        to[panel_line_bytes(DTYPE_Q6_K) + r] = scales[2 * i];
        to[panel_line_bytes(DTYPE_Q6_K) + PANEL + r] = scales[2 * i + 1];
    }
}

/* --- floats: 8 x 8 of 16 bits, 4 x 4 of 32 bits are turned in registers --- */

typedef uint16_t half8 __attribute__((vector_size(16)));
typedef uint32_t word4 __attribute__((vector_size(16)));

/* Element pairs of the upper (lower) halves of a and b, one after the other */
#define ZIP16(a, b, o)                                                                             \
    __builtin_shufflevector(a, b, (o), (o) + 8, (o) + 1, (o) + 9, (o) + 2, (o) + 10, (o) + 3,      \
                            (o) + 11)
#define ZIP32(a, b, o) __builtin_shufflevector(a, b, (o), (o) + 4, (o) + 1, (o) + 5)

/* Three rounds of interleaving i with i + 4 transpose 8 x 8. */
ALWAYS_INLINE void turn8(half8 v[8])
{
    for (int round = 0; round < 3; round++) {
        half8 w[8];
        for (int i = 0; i < 4; i++) {
            w[2 * i] = ZIP16(v[i], v[i + 4], 0);
            w[2 * i + 1] = ZIP16(v[i], v[i + 4], 4);
        }
        memcpy(v, w, sizeof w);
    }
}

ALWAYS_INLINE void turn4(word4 v[4])
{
    for (int round = 0; round < 2; round++) {
        word4 w[4];
        for (int i = 0; i < 2; i++) {
            w[2 * i] = ZIP32(v[i], v[i + 2], 0);
            w[2 * i + 1] = ZIP32(v[i], v[i + 2], 2);
        }
        memcpy(v, w, sizeof w);
    }
}

static void halves(uint8_t *to, const struct file_rows *rows)
{
    for (int64_t k = 0; k < rows->cols; k += 8)
        for (int r = 0; r < PANEL; r += 8) {
            half8 v[8];
            for (int i = 0; i < 8; i++)
                memcpy(&v[i], rows->data + (size_t)(r + i) * rows->row_bytes + (size_t)k * 2, 16);
            turn8(v);
            for (int i = 0; i < 8; i++)
                memcpy(to + ((size_t)(k + i) * PANEL + (size_t)r) * 2, &v[i], 16);
        }
}

static void words(uint8_t *to, const struct file_rows *rows)
{
    for (int64_t k = 0; k < rows->cols; k += 4)
        for (int r = 0; r < PANEL; r += 4) {
            word4 v[4];
            for (int i = 0; i < 4; i++)
                memcpy(&v[i], rows->data + (size_t)(r + i) * rows->row_bytes + (size_t)k * 4, 16);
            turn4(v);
            for (int i = 0; i < 4; i++)
                memcpy(to + ((size_t)(k + i) * PANEL + (size_t)r) * 4, &v[i], 16);
        }
}

bool repack_fast(enum dtype t, uint8_t *to, const struct file_rows *rows)
{
    const bool full = rows->n == PANEL;
    switch (t) {
    case DTYPE_Q4_0:
        pack_rows(DTYPE_Q4_0, to, rows, q4_0);
        return true;
    case DTYPE_Q4_1:
        pack_rows(DTYPE_Q4_1, to, rows, q4_1);
        return true;
    case DTYPE_Q8_0:
        pack_rows(DTYPE_Q8_0, to, rows, q8_0);
        return true;
    case DTYPE_Q4_K:
        pack_rows(DTYPE_Q4_K, to, rows, q4_k);
        return true;
    case DTYPE_Q5_K:
        pack_rows(DTYPE_Q5_K, to, rows, q5_k);
        return true;
    case DTYPE_Q6_K:
        pack_rows(DTYPE_Q6_K, to, rows, q6_k);
        return true;
    case DTYPE_F16:
    case DTYPE_BF16:
        if (full && rows->cols % 8 == 0)
            halves(to, rows);
        return full && rows->cols % 8 == 0;
    case DTYPE_F32:
        if (full && rows->cols % 4 == 0)
            words(to, rows);
        return full && rows->cols % 4 == 0;
    default:
        return false;
    }
}
