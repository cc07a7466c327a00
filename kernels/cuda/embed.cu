/* Embedding: a row of the table for each token. Bound by bytes: one read and one write a value. */
#include "linear_quant.cuh"

enum { EMBED_THREADS = 128, WORD_VALUES = 4 };

/* The block's token */
INLINE int token_of(const int32_t *ids, const int32_t *drawn)
{
    const int id = ids[blockIdx.x];
    return id < 0 ? drawn[-1 - id] : id;
}

template <class T>
static __global__ void __launch_bounds__(EMBED_THREADS)
    embed_kernel(float *x, const T *table, int width, int stride, const int32_t *ids,
                 const int32_t *drawn, float scale)
{
    const T *from = table + (size_t)token_of(ids, drawn) * stride;
    float *to = x + (size_t)blockIdx.x * width;
    for (int i = threadIdx.x; i < width; i += EMBED_THREADS)
        to[i] = to_float(from[i]) * scale;
}

/* --- out of panels: a thread a word, which is four values; panel.h has the places --- */

/* Word w of a row's group */
struct word_place {
    int row; /* of the panel */
    int h, lane, b, e;
};

INLINE struct word_place place_of_word(int row, int w)
{
    struct word_place p = {row, row / 8, row % 8 * 4 + w % 4, w / 8, w / 4 % 2};
    return p;
}

INLINE uint32_t word_at(const uint8_t *plane, int i)
{
    return ((const uint32_t *)plane)[i];
}

/* The four values as they are packed, a byte each */
INLINE uint32_t packed_word(const uint8_t *plane, int bits, const struct word_place &p)
{
    uint32_t q = 0;
    int shift = 0;
    if (bits == 8) {
        int word = 8 * p.h + 2 * p.b + p.e;
        return word_at(plane, (word / 4 * 32 + p.lane) * 4 + word % 4);
    }
    if (bits >= 4) {
        q = word_at(plane, (p.h * 32 + p.lane) * 4 + p.b) >> 4 * p.e & 0x0f0f0f0f;
        plane += 1024;
        shift = 4;
    }
    if (bits % 4 >= 2) {
        uint32_t pairs = word_at(plane, p.lane * 4 + 2 * p.h + p.b / 2);
        q |= (pairs >> 2 * (p.b % 2 * 2 + p.e) & 0x03030303) << shift;
        plane += 512;
        shift += 2;
    }
    if (bits % 2)
        q |= (word_at(plane, p.lane * 2 + p.h) >> (2 * p.b + p.e) & 0x01010101) << shift;
    return q;
}

/* Those of the word, in d[0] and m[0] */
INLINE struct row_scales word_scales(const struct panel_form &f, const uint8_t *at,
                                     const uint8_t *super, float factor, const struct word_place &p)
{
    struct row_scales s = {};
    const int halves = f.scales == PANEL_D16 || f.scales == PANEL_K16 ? 2 : 1;
    const int run = PANEL_ROWS * GROUP_BLOCKS * halves;
    int i = (p.row * GROUP_BLOCKS + p.b) * halves + (halves == 2 ? p.e : 0);
    if (f.scales == PANEL_K32 || f.scales == PANEL_K16) {
        s.d[0] = half_at(super, p.row) * factor * (float)(int8_t)at[i];
        if (f.extra == PANEL_MINIMUM)
            s.m[0] = -half_at(super, PANEL_ROWS + p.row) * (float)at[run + i];
        return s;
    }
    s.d[0] =
        (f.bf16_d ? __bfloat162float(((const __nv_bfloat16 *)at)[i]) : half_at(at, i)) * factor;
    if (f.extra == PANEL_MINIMUM)
        s.m[0] = half_at(at + 2 * run, i);
    if (f.extra == PANEL_ZERO)
        s.zero = (float)at[2 * run + i];
    return s;
}

INLINE float word_value(const struct panel_form &f, float offset, const struct row_scales &s,
                        uint32_t q, int i)
{
    uint32_t byte = q >> 8 * i & 0xff;
    float whole = f.bits == 8 || f.codebook ? (float)(int8_t)byte : (float)byte - offset;
    float y = s.d[0] * (whole - s.zero);
    return f.extra == PANEL_MINIMUM ? y + s.m[0] : y;
}

static __global__ void __launch_bounds__(EMBED_THREADS)
    embed_panels_kernel(float *x, const uint8_t *panels, struct panel_form f,
                        struct quant_facts facts, int width, const int32_t *ids,
                        const int32_t *drawn, float scale)
{
    const int id = token_of(ids, drawn), group_words = GROUP_BLOCKS * BLOCK_VALUES / WORD_VALUES;
    const struct panel_sizes &size = facts.size;
    const uint8_t *panel = panels + (size_t)(id / PANEL_ROWS) * size.bytes;
    const uint8_t *scales = panel + (size_t)size.groups * size.plane_bytes;
    const uint8_t *supers = scales + (size_t)size.groups * size.scale_bytes;
    float4 *to = (float4 *)(x + (size_t)blockIdx.x * width);
    for (int w = threadIdx.x; w < width / WORD_VALUES; w += EMBED_THREADS) {
        int group = w / group_words;
        struct word_place p = place_of_word(id % PANEL_ROWS, w % group_words);
        uint32_t q = packed_word(panel + (size_t)group * size.plane_bytes, f.bits, p);
        if (f.codebook)
            q = look_up(facts.codes, q);
        struct row_scales s =
            word_scales(f, scales + (size_t)group * size.scale_bytes,
                        supers + (size_t)(group / 2) * size.super_bytes, facts.factor, p);
        to[w] = make_float4(word_value(f, facts.offset, s, q, 0) * scale,
                            word_value(f, facts.offset, s, q, 1) * scale,
                            word_value(f, facts.offset, s, q, 2) * scale,
                            word_value(f, facts.offset, s, q, 3) * scale);
    }
}

cudaError_t cuda_embed(cudaStream_t s, float *x, const struct cuda_matrix *table,
                       const int32_t *ids, const int32_t *drawn, int n_rows, float scale)
{
    const struct panel_form form = panel_form(table->type);
    int width = table->cols;
    if (form.bits > 0)
        LAUNCH(embed_panels_kernel, n_rows, EMBED_THREADS, 0, s)
    (x, (const uint8_t *)table->data, form, facts_of(form, width), width, ids, drawn, scale);
    else WITH_FLOAT_TYPE(
        table->type, T,
        LAUNCH(embed_kernel<T>, n_rows, EMBED_THREADS, 0,
               s)(x, (const T *)table->data, width, padded_width(width), ids, drawn, scale));
    return cudaGetLastError();
}
