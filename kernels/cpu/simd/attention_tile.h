/* attention_tile.h: how a tile of queries is cut up, whatever the pool's type. */
#ifndef TOKEND_SIMD_ATTENTION_TILE_H
#define TOKEND_SIMD_ATTENTION_TILE_H

#include "attention.h"

/* Some rows and the tokens that any of them sees, from the segment's start */
struct band {
    int row, rows, lo, hi;
};

INL struct band band_at(int row, int rows, int segment, const int *lo, const int *hi)
{
    struct band b = {row, rows, SEGMENT, 0};
    for (int r = row; r < row + b.rows; r++) {
        if (lo[r] >= hi[r])
            continue;
        b.lo = lo[r] - segment < b.lo ? lo[r] - segment : b.lo;
        b.hi = hi[r] - segment > b.hi ? hi[r] - segment : b.hi;
    }
    return b;
}

/* Bands of `each` rows, fewer at the end */
INL int make_bands(struct band *bands, int rows, int each, int segment, const int *lo,
                   const int *hi)
{
    int n = 0;
    for (int r = 0; r < rows; r += each)
        bands[n++] = band_at(r, rows - r < each ? rows - r : each, segment, lo, hi);
    return n;
}

/* Runs the statement with N, a constant, for `rows`: 1 to MOST, which is at most 6. */
#define WITH_ROWS(rows, MOST, N, ...)                                                              \
    do {                                                                                           \
        switch (rows) {                                                                            \
            ROWS_CASE(6, MOST, N, __VA_ARGS__)                                                     \
            ROWS_CASE(5, MOST, N, __VA_ARGS__)                                                     \
            ROWS_CASE(4, MOST, N, __VA_ARGS__)                                                     \
            ROWS_CASE(3, MOST, N, __VA_ARGS__)                                                     \
            ROWS_CASE(2, MOST, N, __VA_ARGS__)                                                     \
            ROWS_CASE(1, MOST, N, __VA_ARGS__)                                                     \
        }                                                                                          \
    } while (0)
#define ROWS_CASE(n, MOST, N, ...)                                                                 \
    case (n):                                                                                      \
        if ((n) <= (MOST)) {                                                                       \
            enum { N = (n) <= (MOST) ? (n) : 1 };                                                  \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
        break;

/* attend_tile over INT8 */
void ISA_FN(attend_tile_int8)(const struct kv_view *, const struct score_config *, int segment,
                              const int *lo, const int *hi, const float *q, int ldq, int rows,
                              float *part, int ldp, float *scratch);

#endif
