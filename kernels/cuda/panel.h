/* panel.h: how a quantised matrix lies on the device: what a lane of a warp multiplies, it loads
 * with whole 128-bit reads that lie side by side.
 *
 * A panel is 16 output rows; a group is four blocks of 32 k of them. With g = lane / 4 and
 * t = lane % 4, a lane has rows g and g + 8 (h = 0, 1) and of each block b the words of k = 4t…4t+3
 * and 16+4t…16+4t+3 (e = 0, 1), as mma's A of 16 x 32 int8 wants them.
 *
 * A panel holds the planes of all groups, then their scales, then what 256 k share. What is missing
 * to a whole panel or group has d = 0. */
// clang-format off
/* The planes of a group, by the bits of a value:
 *   8        u32 [4 h + b][e], in four times 16 bytes a lane: w - offset, signed
 *   4, 5, 6  u32 [h][lane][b], bits 4 e of a byte
 *   2, 3, 6  u32 [lane][h][b / 2], bits 2 (2 (b % 2) + e) of a byte: of 6 the upper two
 *   3, 5     u32 [lane][h], bit 2 b + e of a byte: the uppermost
 * Its scales:
 *   D32      f16 (MXFP4: bf16) d[16][4], then f16 m[16][4] or u8 zero[16][4]
 *   D16      f16 d[16][4][2], of each 16 k
 *   K32      i8 s[16][4], then u8 m[16][4]; of 256 k f16 d[16], then f16 m[16]
 *   K16      i8 s[16][4][2], then u8 m[16][4][2]; likewise */
// clang-format on
#ifndef TOKEND_CUDA_PANEL_H
#define TOKEND_CUDA_PANEL_H

#include <stdbool.h>
#include <stdint.h>

#include "dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PANEL_ROWS = 16, GROUP_BLOCKS = 4, BLOCK_VALUES = 32 };
enum panel_scales { PANEL_D32, PANEL_D16, PANEL_K32, PANEL_K16 };
enum panel_extra { PANEL_PLAIN, PANEL_MINIMUM, PANEL_ZERO };

/* What distinguishes the types: a value is d * s * (q - offset - zero) + m. */
struct panel_form {
    int bits;
    bool codebook; /* q is codes[4-bit value] */
    enum panel_scales scales;
    enum panel_extra extra;
    bool bf16_d;
    int offset;
    float factor; /* of d */
    int8_t codes[16];
};
/* bits 0: the type is not quantised */
struct panel_form panel_form(enum dtype);

/* The parts of a panel of `cols` values */
struct panel_sizes {
    int groups;
    int plane_bytes, scale_bytes, super_bytes; /* of a group, of a group, of two groups */
    int64_t bytes;
};
struct panel_sizes panel_sizes(const struct panel_form *, int64_t cols);

/* Fills one panel, of rows first to first + 15 of a row-major matrix of `rows` rows. */
void panel_pack(enum dtype, int64_t rows, int64_t cols, const void *src, int64_t first,
                uint8_t *panel);

#ifdef __cplusplus
}
#endif

#endif
