#include "dtype.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "test_data.h"

#include "test.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static uint32_t load_u32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void compare_vector(enum dtype t, const unsigned char *raw, const unsigned char *want,
                           uint32_t elems)
{
    float *got = malloc(elems * sizeof *got);
    assert_non_null(got);
    dtype_to_f32(t, raw, got, elems);
    for (uint32_t i = 0; i < elems; i++) {
        if (bits_of(got[i]) != load_u32(want + 4 * i))
            fail_msg("%s value %u: got %08x, want %08x", dtype_info(t)->name, i, bits_of(got[i]),
                     load_u32(want + 4 * i));
    }
    free(got);
}

static bool not_of_ggml(int t)
{
    return t == DTYPE_Q4_Z || t == DTYPE_F8_E4M3 || t == DTYPE_F8_E5M2;
}

/* dequant_vectors.bin: records of char type[8], u32 elems, u32 raw bytes, the raw blocks, and
 * what ggml's reference makes of them as float32. */
static void every_type_dequantises_bit_for_bit_as_ggml(void **state)
{
    size_t n, at = 0;
    unsigned char *bytes = test_read_data("dequant_vectors.bin", &n);
    int seen[DTYPE_COUNT] = {0};
    assert_non_null(bytes);
    while (at < n) {
        enum dtype t;
        assert_true(dtype_from_name((char *)bytes + at, &t));
        uint32_t elems = load_u32(bytes + at + 8), raw_bytes = load_u32(bytes + at + 12);
        assert_int_equal(dtype_row_bytes(t, elems), raw_bytes);
        const unsigned char *raw = bytes + at + 16;
        compare_vector(t, raw, raw + raw_bytes, elems);
        at += 16 + raw_bytes + 4 * elems;
        seen[t]++;
    }
    assert_int_equal(at, n);
    for (int t = 0; t < DTYPE_COUNT; t++)
        assert_int_equal(seen[t], t == DTYPE_F32 || not_of_ggml(t) ? 0 : 3);
    free(bytes);
}

/* All values of the corpus' vectors: quant_vectors.json says where what lies in the .bin. */
static void every_vector_of_the_corpus_dequantises_bit_for_bit(void **state)
{
    char path[4400];
    size_t n = 0, n_text = 0, checked = 0;
    snprintf(path, sizeof path, "%s/gguf/quant_vectors.json", test_corpus());
    unsigned char *text = test_read_file(path, &n_text);
    snprintf(path, sizeof path, "%s/gguf/quant_vectors.bin", test_corpus());
    unsigned char *bytes = test_read_file(path, &n);
    if (!text || !bytes) {
        printf("SKIPPED: no %s (set TOKEND_CORPUS)\n", path);
        skip();
    }
    json_t *root = json_loads((char *)text, 0, NULL), *v;
    size_t i;
    json_array_foreach(json_object_get(root, "vectors"), i, v)
    {
        const char *type;
        int elems, raw, raw_bytes, want, want_bytes;
        enum dtype t;
        assert_int_equal(json_unpack(v, "{s:s, s:i, s:i, s:i, s:i, s:i}", "type", &type, "elems",
                                     &elems, "raw_offset", &raw, "raw_bytes", &raw_bytes,
                                     "f32_offset", &want, "f32_bytes", &want_bytes),
                         0);
        assert_true(dtype_from_name(type, &t));
        assert_int_equal(dtype_row_bytes(t, elems), raw_bytes);
        assert_true((size_t)raw + (size_t)raw_bytes <= n && (size_t)want + 4 * (size_t)elems <= n);
        compare_vector(t, bytes + raw, bytes + want, (uint32_t)elems);
        checked++;
    }
    assert_true(checked >= 78);
    json_decref(root);
    free(text);
    free(bytes);
}

/* Q4_Z: d = 0.5, z = 11, then the nibbles, low ones first. */
static void a_zero_of_its_own_is_subtracted(void **state)
{
    unsigned char block[19] = {0x00, 0x38, 11};
    float got[32];
    for (int i = 0; i < 16; i++)
        block[3 + i] = (unsigned char)(i | (15 - i) << 4);
    dtype_to_f32(DTYPE_Q4_Z, block, got, 32);
    for (int i = 0; i < 16; i++) {
        assert_true(got[i] == 0.5f * (float)(i - 11));
        assert_true(got[16 + i] == 0.5f * (float)(4 - i));
    }
}

static double f8_value(int v, int exponent_bits, int bias)
{
    int fraction_bits = 7 - exponent_bits, fraction = v & ((1 << fraction_bits) - 1);
    int exponent = (v & 0x7F) >> fraction_bits;
    double magnitude = exponent ? ldexp(1 + ldexp(fraction, -fraction_bits), exponent - bias)
                                : ldexp(fraction, 1 - bias - fraction_bits);
    return v & 0x80 ? -magnitude : magnitude;
}

static void eight_bit_floats_are_exact(void **state)
{
    for (int v = 0; v < 256; v++) {
        unsigned char byte = (unsigned char)v;
        float e4m3, e5m2;
        dtype_to_f32(DTYPE_F8_E4M3, &byte, &e4m3, 1);
        dtype_to_f32(DTYPE_F8_E5M2, &byte, &e5m2, 1);
        assert_int_equal(signbit(e4m3) != 0, v >> 7);
        if ((v & 0x7F) == 0x7F)
            assert_true(isnan(e4m3));
        else
            assert_true((double)e4m3 == f8_value(v, 4, 7));
        if ((v & 0x7F) > 0x7C)
            assert_true(isnan(e5m2));
        else if ((v & 0x7F) == 0x7C)
            assert_true(isinf(e5m2));
        else
            assert_true((double)e5m2 == f8_value(v, 5, 15));
    }
}

static void f32_is_copied(void **state)
{
    const float src[3] = {1.5f, -0.0f, INFINITY};
    float dst[3];
    dtype_to_f32(DTYPE_F32, src, dst, 3);
    assert_memory_equal(src, dst, sizeof src);
}

static void every_half_goes_to_float_and_back(void **state)
{
    for (uint32_t h = 0; h < 0x10000; h++) {
        float f = f16_to_f32((uint16_t)h);
        int exponent = h >> 10 & 31, fraction = h & 1023;
        if (exponent == 31 && fraction) {
            assert_true(isnan(f));
            assert_true(isnan(f16_to_f32(f32_to_f16(f))));
            continue;
        }
        double want = exponent == 31  ? INFINITY
                      : exponent == 0 ? ldexp(fraction, -24)
                                      : ldexp(1024 + fraction, exponent - 25);
        assert_true((double)f == (h & 0x8000 ? -want : want));
        assert_int_equal(signbit(f) != 0, h >> 15);
        assert_int_equal(f32_to_f16(f), h);
    }
}

/* Between two neighbouring halves: below the middle goes down, above it up, the middle itself
 * to the even one. */
static void floats_round_to_the_nearest_half(void **state)
{
    for (uint32_t h = 0; h < 0x7C00; h++) {
        double low = f16_to_f32((uint16_t)h);
        double high = h == 0x7BFF ? 65536.0 : f16_to_f32((uint16_t)(h + 1));
        float middle = (float)((low + high) / 2);
        assert_int_equal(f32_to_f16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(f32_to_f16(-nextafterf(middle, INFINITY)), (h + 1) | 0x8000);
    }
    assert_int_equal(f32_to_f16(1e30f), 0x7C00);
    assert_int_equal(f32_to_f16(-INFINITY), 0xFC00);
    assert_int_equal(f32_to_f16(1e-30f), 0);
}

static void floats_round_to_the_nearest_bf16(void **state)
{
    for (uint32_t h = 0; h < 0x7F80; h++) {
        uint32_t half = h << 16 | 0x8000;
        float middle;
        memcpy(&middle, &half, sizeof middle);
        assert_int_equal(f32_to_bf16(bf16_to_f32((uint16_t)h)), h);
        assert_int_equal(f32_to_bf16(middle), h & 1 ? h + 1 : h);
        assert_int_equal(f32_to_bf16(nextafterf(middle, 0)), h);
        assert_int_equal(f32_to_bf16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(f32_to_bf16(-INFINITY), 0xFF80);
    uint32_t nan_in_low_bits = 0x7F800001;
    float f;
    memcpy(&f, &nan_in_low_bits, sizeof f);
    assert_true(isnan(bf16_to_f32(f32_to_bf16(f))));
}

static void names_are_found_in_any_case(void **state)
{
    enum dtype t;
    for (int i = 0; i < DTYPE_ALL; i++) {
        assert_true(dtype_from_name(dtype_info((enum dtype)i)->name, &t));
        assert_int_equal(t, i);
    }
    assert_true(dtype_from_name("bf16", &t));
    assert_int_equal(t, DTYPE_BF16);
    assert_false(dtype_from_name("q8", &t));
    assert_false(dtype_from_name("", &t));
}

static void rows_take_whole_blocks(void **state)
{
    assert_int_equal(dtype_row_bytes(DTYPE_F32, 3), 12);
    assert_int_equal(dtype_row_bytes(DTYPE_BF16, 3), 6);
    assert_int_equal(dtype_row_bytes(DTYPE_Q8_0, 64), 68);
    assert_int_equal(dtype_row_bytes(DTYPE_Q4_1, 96), 60);
    assert_int_equal(dtype_row_bytes(DTYPE_Q6_K, 512), 420);
    assert_int_equal(dtype_row_bytes(DTYPE_F16, 1ll << 40), 1ll << 41);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_dequantises_bit_for_bit_as_ggml),
        cmocka_unit_test(every_vector_of_the_corpus_dequantises_bit_for_bit),
        cmocka_unit_test(a_zero_of_its_own_is_subtracted),
        cmocka_unit_test(eight_bit_floats_are_exact),
        cmocka_unit_test(f32_is_copied),
        cmocka_unit_test(every_half_goes_to_float_and_back),
        cmocka_unit_test(floats_round_to_the_nearest_half),
        cmocka_unit_test(floats_round_to_the_nearest_bf16),
        cmocka_unit_test(names_are_found_in_any_case),
        cmocka_unit_test(rows_take_whole_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
