/* BF16 weights times rows that are rounded to bf16 (to the nearest, ties to even): pairs of k
 * ascending, acc = fma(w[odd], x[odd], acc), then acc = fma(w[even], x[even], acc), subnormal
 * numbers taken and left as zeros. vdpbf16ps does this for 16 rows at once. A product of two bf16
 * is exact in float32 unless it is subnormal, so that sets without it come to the same bits, and so
 * does one without fma, but for sums of that size.
 *
 * As in linear_float.c, many tokens are bound by multiplications. Pieces of k carry the chains
 * through memory. A piece of all rows is rounded once for all panels of the call; a panel's piece
 * stays in L1, while the next one comes from memory to L2. With vdpbf16ps it is read as it lies,
 * because putting pairs side by side costs a tile nothing; the other sets convert it to float32
 * once for all tokens. */
#include "bf16_rows.h"
#include "linear_bf16_amx.h"

#define PIECE (9 * 16) /* lines of a panel's piece that many tokens read */

#if AMX
/* The panels' pieces of nk at w; `next` is wanted after them. */
static __attribute__((noinline)) void panels(const uint8_t *w, size_t panel_bytes, int n_panels,
                                             int nk, const struct rounded *x, const uint8_t *next,
                                             float *y, int ldy)
{
    float lines[PIECE * PANEL] __attribute__((aligned(64)));
    for (int p = 0; p < n_panels; p++, w += panel_bytes, y += PANEL)
        for (int k = 0; k < nk; k += 2 * PIECE) {
            const int n = nk - k < 2 * PIECE ? nk - k : 2 * PIECE;
            const uint8_t *at = w + (size_t)k * 2 * PANEL, *after = at + (size_t)n * 2 * PANEL;
            if (k + n == nk)
                after = p + 1 < n_panels ? w + panel_bytes : next;
            for (int i = 0; i < n / 2; i++)
                __builtin_prefetch(after + i * 64, 0, 2);
            const int n_lines = amx_lines(at, n, lines);
            amx_panel(lines, x->first && k == 0, x->x + k / 2, x->ld, n_lines, x->n, y, ldy);
        }
}
#else
TILE_OF(tile_f32, LINES_F32)
TILE_OF(tile_pairs, LINES_BF16_PAIRS)

/* nk values, an even number, of k of a panel; `next` is wanted after them. */
INL void panel(const uint8_t *w, int nk, const struct rounded *x, const uint8_t *next, float *y,
               int ldy)
{
    enum { STEP = PIECE * 2 / OF_A_PAIR };
    float buffer[BF16_PAIRS ? 1 : PIECE * PANEL] __attribute__((aligned(64)));
    for (int k = 0; k < nk || k == 0; k += STEP) {
        const int n = nk - k < STEP ? nk - k : STEP, n_lines = n / 2 * OF_A_PAIR;
        const void *lines = w + (size_t)k * 2 * PANEL;
        const uint8_t *after = k + n < nk ? w + (size_t)(k + n) * 2 * PANEL : next;
        tile_fn *tile_of = tile_pairs;
        if (!BF16_PAIRS && x->n > TOKENS) {
            for (int i = 0; i < n_lines; i++)
                for (int g = 0; g < GROUPS; g++)
                    vf_store(buffer + i * PANEL + g * LANES,
                             line_load(lines, i, g, LINES_BF16_PAIRS));
            lines = buffer;
            tile_of = tile_f32;
        }
        tiles(tile_of, lines, x->first && k == 0, x->x + k / 2 * OF_A_PAIR, x->ld, n_lines, x->n, y,
              ldy, after, (size_t)n * 2 * PANEL);
    }
}

/* The last of an odd number of k */
INL void last_pair(const uint8_t *w, int k, const struct rounded *x, float *y, int ldy)
{
    uint16_t pair[2][PANEL] = {{0}};
    memcpy(pair, w + (size_t)k * sizeof *pair, sizeof *pair);
    tiles(tile_pairs, pair, false, x->x + k / 2 * OF_A_PAIR, x->ld, OF_A_PAIR, x->n, y, ldy, w, 0);
}

/* The panels' pieces of nk at w; a function of its own, so that none of it is moved to where the
 * mode is another one. */
static __attribute__((noinline)) void panels(const uint8_t *w, size_t panel_bytes, int n_panels,
                                             int nk, const struct rounded *x, const uint8_t *next,
                                             float *y, int ldy)
{
    const int even = nk & ~1;
    if (x->n == 1)
        one_token(w, panel_bytes, n_panels, LINES_BF16_PAIRS, x->first, x->x, even / 2 * OF_A_PAIR,
                  y);
    else
        for (int p = 0; p < n_panels; p++)
            panel(w + p * panel_bytes, even, x, p + 1 < n_panels ? w + (p + 1) * panel_bytes : next,
                  y + p * PANEL, ldy);
    for (int p = 0; p < n_panels && nk % 2; p++)
        last_pair(w + p * panel_bytes, even, x, y + p * PANEL, ldy);
}

#endif

void ISA_FN(linear_bf16)(const struct weight *w, const float *x, int ldx, int n, int p0, int p1,
                         float *y, int ldy)
{
    float room[ROUNDED] __attribute__((aligned(64)));
    const uint8_t *first = w->data + p0 * w->panel_bytes, *end = w->data + p1 * w->panel_bytes;
    const int cols = (int)w->cols, rows = AMX ? (n + AMX_TOKENS - 1) / AMX_TOKENS * AMX_TOKENS : n;
    /* An odd number of lines from row to row: they do not fall on one another in L1. */
    struct rounded r = {.x = room, .n = n, .ld = ((ROUNDED / 16 / rows - 1) | 1) * 16};
    const int step = r.ld * 2 / OF_A_PAIR;
    const unsigned mode = flush_subnormals();
    memset(room + (size_t)n * r.ld, 0, (size_t)(rows - n) * r.ld * sizeof *room);
#if AMX
    amx_begin(64);
#endif
    for (int k = 0; k < cols; k += step) {
        const int nk = cols - k < step ? cols - k : step;
        const uint8_t *at = first + (size_t)k * 2 * PANEL;
        r.first = k == 0;
        for (int t = 0; t < n; t++)
            round_row(x + (size_t)t * ldx + k, nk, room + (size_t)t * r.ld);
        panels(at, w->panel_bytes, p1 - p0, nk, &r,
               k + nk < cols ? at + (size_t)nk * 2 * PANEL : end, y, ldy);
    }
#if AMX
    amx_end();
#endif
    restore_subnormals(mode);
}
