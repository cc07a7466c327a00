/* Frequencies of rotary embeddings, compared with what transformers' modeling_rope_utils gives
 * for the same numbers. */
#include "rope_freqs.h"

#include <math.h>

#include "test.h"

static void assert_freqs(const struct rope_spec *r, const double *want)
{
    for (int i = 0; i < r->n_dims / 2; i++)
        if (!(fabs((double)r->inv_freq[i] / want[i] - 1) < 1e-6))
            fail_msg("pair %d: %.9g, expected %.9g", i, (double)r->inv_freq[i], want[i]);
}

static void pairs_turn_slower_one_after_the_other(void **state)
{
    static const double want[8] = {1,    0.316227766,   0.1,   0.0316227766,
                                   0.01, 0.00316227766, 0.001, 0.000316227766};
    struct rope_spec r;
    rope_default(&r, 10000, 16);
    assert_true(r.n_dims == 16 && r.mscale == 1);
    assert_freqs(&r, want);
}

static void linear_scaling_divides_all(void **state)
{
    static const double want[4] = {0.25, 0.025, 0.0025, 0.00025};
    struct rope_spec r;
    rope_default(&r, 10000, 8);
    rope_scale_linear(&r, 4);
    assert_freqs(&r, want);
}

static void a_table_divides_each_pair_by_its_own(void **state)
{
    static const double want[4] = {1, 0.05, 0.0025, 0.000125};
    static const float factors[4] = {1, 2, 4, 8};
    struct rope_spec r;
    rope_default(&r, 10000, 8);
    rope_scale_by(&r, factors);
    assert_freqs(&r, want);
}

static void llama_3_stretches_long_waves(void **state)
{
    static const double large[8] = {1,
                                    0.193922745,
                                    0.0376060309,
                                    0.00729266474,
                                    0.000524846161,
                                    3.4281022e-05,
                                    6.64786987e-06,
                                    1.28917317e-06};
    static const double small[8] = {1,       0.244384599,    0.013042256, 0.00395284708,
                                    0.00125, 0.000395284708, 0.000125,    3.95284708e-05};
    struct rope_spec r;
    rope_default(&r, 500000, 16);
    rope_scale_llama3(&r, 8, 1, 4, 8192);
    assert_freqs(&r, large);
    rope_default(&r, 10000, 16);
    rope_scale_llama3(&r, 8, 1, 4, 64);
    assert_freqs(&r, small);
}

static void yarn_interpolates_what_turns_slowly(void **state)
{
    static const double whole[8] = {1,       0.316227766,   0.1,     0.025693506,
                                    0.00625, 0.00138349648, 0.00025, 7.90569415e-05};
    static const double between[8] = {1,
                                      0.225418,
                                      0.0508132748,
                                      0.00679495949,
                                      0.000456483919,
                                      1.81883367e-05,
                                      4.09997848e-06,
                                      9.2420895e-07};
    struct rope_yarn y = {.theta = 10000,
                          .factor = 4,
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .original = 4096,
                          .truncate = true};
    struct rope_spec r;
    rope_default(&r, 10000, 16);
    rope_scale_yarn(&r, &y);
    assert_freqs(&r, whole);
    assert_true(fabs((double)r.mscale - 1.138629436) < 1e-6);
    y = (struct rope_yarn){.theta = 150000,
                           .factor = 32,
                           .beta_fast = 32,
                           .beta_slow = 1,
                           .original = 4096,
                           .mscale = 1.5};
    rope_default(&r, 150000, 16);
    rope_scale_yarn(&r, &y);
    assert_freqs(&r, between);
    assert_true(r.mscale == 1.5f);
}

static void factors_of_sin_and_cos_grow_with_the_context(void **state)
{
    assert_true(fabs(rope_yarn_mscale(4, 1) - 1.138629436111989) < 1e-12);
    assert_true(fabs(rope_yarn_mscale(40, 0.707) - 1.2608037774058554) < 1e-12);
    assert_true(rope_yarn_mscale(0.5, 1) == 1);
    assert_true(fabs(rope_longrope_mscale(8, 128) - 1.1952286093343936) < 1e-12);
    assert_true(fabs(rope_longrope_mscale(32, 4096) - 1.1902380714238083) < 1e-12);
    assert_true(rope_longrope_mscale(1, 4096) == 1 && rope_longrope_mscale(8, 1) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_turn_slower_one_after_the_other),
        cmocka_unit_test(linear_scaling_divides_all),
        cmocka_unit_test(a_table_divides_each_pair_by_its_own),
        cmocka_unit_test(llama_3_stretches_long_waves),
        cmocka_unit_test(yarn_interpolates_what_turns_slowly),
        cmocka_unit_test(factors_of_sin_and_cos_grow_with_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
