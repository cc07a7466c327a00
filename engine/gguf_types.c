#include "gguf_file.h"

#include <stdio.h>

static const struct {
    const char *name;
    unsigned bytes;
} value_types[GGUF_N_TYPES] = {
    [GGUF_U8] = {"U8", 1},       [GGUF_I8] = {"I8", 1},     [GGUF_U16] = {"U16", 2},
    [GGUF_I16] = {"I16", 2},     [GGUF_U32] = {"U32", 4},   [GGUF_I32] = {"I32", 4},
    [GGUF_F32] = {"F32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"U64", 8},   [GGUF_I64] = {"I64", 8},
    [GGUF_F64] = {"F64", 8},
};

const char *gguf_type_name(enum gguf_type t)
{
    return value_types[t].name;
}

unsigned gguf_type_bytes(enum gguf_type t)
{
    return value_types[t].bytes;
}

/* ggml's numbers. Those left out were removed from ggml or never given. */
static const struct {
    const char *name;
    int block_elems, block_bytes;
} tensor_types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},
};

struct ggml_type ggml_type_of(uint32_t number)
{
    struct ggml_type t = {.name = "unknown"};
    if (number >= sizeof tensor_types / sizeof *tensor_types || !tensor_types[number].name)
        return t;
    t.name = tensor_types[number].name;
    t.block_elems = tensor_types[number].block_elems;
    t.block_bytes = tensor_types[number].block_bytes;
    t.known = dtype_from_name(t.name, &t.dtype);
    return t;
}

void ggml_known_types(char *out, size_t n)
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < sizeof tensor_types / sizeof *tensor_types; i++) {
        struct ggml_type t = ggml_type_of(i);
        int wanted = t.known ? snprintf(out + at, n - at, "%s%s", at ? ", " : "", t.name) : 0;
        at += (size_t)wanted < n - at ? (size_t)wanted : n - at - 1;
    }
}
