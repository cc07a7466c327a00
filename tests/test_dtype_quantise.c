#include "dtype.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "random.h"

#include "test.h"

enum { N = 256 * 64 };

static const struct {
    enum dtype type;
    double
        normal; /* most error of normally distributed values, relative to their root mean square */
    double shifted; /* of such values between 0 and 3 */
} limits[] = {
    {DTYPE_Q8_0, 0.0053, 0.0053}, {DTYPE_Q4_0, 0.080, 0.079},  {DTYPE_Q4_1, 0.070, 0.039},
    {DTYPE_Q5_0, 0.040, 0.040},   {DTYPE_Q5_1, 0.034, 0.019},  {DTYPE_Q4_K, 0.072, 0.042},
    {DTYPE_Q5_K, 0.036, 0.021},   {DTYPE_Q6_K, 0.0175, 0.017}, {DTYPE_F16, 3e-4, 3e-4},
    {DTYPE_BF16, 3e-3, 3e-3},
};
#define N_LIMITS (sizeof limits / sizeof *limits)

static void there_and_back(enum dtype t, const float *x, float *back, int n)
{
    unsigned char bytes[4 * N];
    assert_true(dtype_row_bytes(t, n) <= sizeof bytes);
    assert_true(dtype_from_f32(t, x, bytes, n));
    dtype_to_f32(t, bytes, back, n);
}

static double relative_error(enum dtype t, const float *x)
{
    static float back[N];
    double error = 0, square = 0;
    there_and_back(t, x, back, N);
    for (int i = 0; i < N; i++) {
        error += ((double)back[i] - x[i]) * ((double)back[i] - x[i]);
        square += (double)x[i] * x[i];
    }
    return sqrt(error / square);
}

/* A sum of four is near enough to a normal distribution. */
static float normal(uint64_t *seed)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)((double)random_next(seed) / 0x1p63 - 1);
    return sum * 0.866f;
}

static void the_error_of_every_type_is_small(void **state)
{
    static float x[N];
    uint64_t seed = 1;
    for (size_t l = 0; l < N_LIMITS; l++) {
        for (int i = 0; i < N; i++)
            x[i] = 0.02f * normal(&seed);
        double error = relative_error(limits[l].type, x);
        for (int i = 0; i < N; i++)
            x[i] = fabsf(normal(&seed));
        double shifted = relative_error(limits[l].type, x);
        printf("    %-5s %.5f, of positive values %.5f\n", dtype_info(limits[l].type)->name, error,
               shifted);
        if (error > limits[l].normal || shifted > limits[l].shifted)
            fail_msg("%s: limits %.5f, %.5f", dtype_info(limits[l].type)->name, limits[l].normal,
                     limits[l].shifted);
    }
}

/* Values that the type has are found again: d a power of two, all integers in use. */
static void values_that_a_type_has_are_kept(void **state)
{
    float x[256], back[256];
    for (size_t l = 0; l < N_LIMITS; l++) {
        enum dtype t = limits[l].type;
        int bits = t == DTYPE_Q6_K                                         ? 6
                   : t == DTYPE_Q5_0 || t == DTYPE_Q5_1 || t == DTYPE_Q5_K ? 5
                                                                           : 4;
        bool minimum = t == DTYPE_Q4_1 || t == DTYPE_Q5_1 || t == DTYPE_Q4_K || t == DTYPE_Q5_K;
        int n = 1 << bits, run = t == DTYPE_Q6_K ? 16 : 32;
        for (int i = 0; i < 256; i++) {
            int q = i % run == 0 ? 0 : i % run == 1 ? n - 1 : i * 7 % n;
            x[i] = 0.25f * (float)(minimum ? q - 3 : q - n / 2);
        }
        there_and_back(t, x, back, 256);
        for (int i = 0; i < 256; i++)
            if (fabsf(x[i] - back[i]) > (t == DTYPE_Q8_0 ? 0.01f : 0.0025f * (float)n / 16))
                fail_msg("%s value %d: %g became %g", dtype_info(t)->name, i, (double)x[i],
                         (double)back[i]);
    }
}

static void odd_values_become_finite_or_nan(void **state)
{
    static const float odd[] = {0, -0.0f, 1e-42f, 1e-30f, 1e-8f, 65504, 1e30f, -1e30f, 3.4e38f};
    float x[256], back[256];
    for (size_t l = 0; l < N_LIMITS; l++) {
        enum dtype t = limits[l].type;
        for (size_t o = 0; o < sizeof odd / sizeof *odd; o++) {
            for (int i = 0; i < 256; i++)
                x[i] = odd[o];
            there_and_back(t, x, back, 256);
            for (int i = 0; i < 256; i++)
                if (dtype_info(t)->block_elems > 1 && !isfinite(back[i]))
                    fail_msg("%s of %g: %g", dtype_info(t)->name, (double)odd[o], (double)back[i]);
            if (fabsf(odd[o]) < 1e-20f)
                for (int i = 0; i < 256; i++)
                    assert_true(fabsf(back[i]) < 1e-20f);
        }
        for (int i = 0; i < 256; i++)
            x[i] = 1;
        x[77] = NAN;
        there_and_back(t, x, back, 256);
        assert_true(isnan(back[77]));
        x[77] = -INFINITY;
        there_and_back(t, x, back, 256);
        assert_false(isfinite(back[77]));
        assert_true(dtype_info(t)->block_elems == 256 || back[255] == back[254]);
    }
}

static void types_without_a_way_in_are_refused(void **state)
{
    float x[256] = {0};
    unsigned char bytes[256];
    assert_false(dtype_from_f32(DTYPE_IQ2_XS, x, bytes, 256));
    assert_false(dtype_from_f32(DTYPE_F8_E4M3, x, bytes, 256));
    assert_true(dtype_from_f32(DTYPE_Q4_K, x, bytes, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_error_of_every_type_is_small),
        cmocka_unit_test(values_that_a_type_has_are_kept),
        cmocka_unit_test(odd_values_become_finite_or_nan),
        cmocka_unit_test(types_without_a_way_in_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
