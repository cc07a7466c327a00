/* Products of BF16 weights, straight from the kernels of each set: against a model of one addition
 * after the other, to the bit. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "test.h"

#include "random.h"

enum { MAX_N = TOKEN_TILE, LD = 48 };

/* rows x cols of weights as panels, MAX_N rows of x, both of random values by `make` */
struct product {
    struct weight w;
    struct rows_view x;
    int rows, cols;
    uint16_t *weights; /* [rows][cols] */
    float *values;     /* [MAX_N][stride] */
};

typedef float make_fn(uint64_t *seed);

static float usual(uint64_t *seed)
{
    return (float)((double)random_next(seed) / 9223372036854775808.0 - 1);
}

/* Any bits of a finite number, of all sizes of which a product is finite, too: subnormal ones */
static float any_size(uint64_t *seed)
{
    const uint32_t bits = (uint32_t)random_next(seed) & 0xbfffffff;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Products at the edge of what is normal */
static float tiny(uint64_t *seed)
{
    return ldexpf(usual(seed), -64 + (int)(random_next(seed) % 4)) *
           (random_next(seed) % 8 ? 1 : 0x1p-66f);
}

static struct product product_new(int rows, int cols, make_fn *make, uint64_t *seed)
{
    const int stride = ((cols + 15) / 16 | 1) * 16;
    struct product p = {.rows = rows, .cols = cols};
    p.w = (struct weight){.type = DTYPE_BF16, .rows = rows, .cols = cols};
    p.w.panels = (rows + PANEL - 1) / PANEL;
    p.w.panel_bytes = (size_t)cols * PANEL * sizeof(uint16_t);
    p.w.data = aligned_alloc(64, ((size_t)p.w.panels * p.w.panel_bytes + 63) / 64 * 64);
    p.weights = malloc((size_t)rows * (size_t)cols * sizeof *p.weights);
    p.values = malloc((size_t)MAX_N * (size_t)stride * sizeof *p.values);
    assert_true(p.w.data && p.weights && p.values);
    memset(p.w.data, 0, (size_t)p.w.panels * p.w.panel_bytes);
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < cols; k++) {
            const uint16_t w = f32_to_bf16(make(seed));
            const size_t panel = (size_t)(r / PANEL) * p.w.panel_bytes;
            p.weights[(size_t)r * (size_t)cols + (size_t)k] = w;
            memcpy(p.w.data + panel + (size_t)(k * PANEL + r % PANEL) * 2, &w, 2);
        }
    for (int i = 0; i < MAX_N * stride; i++)
        p.values[i] = i % stride < cols ? make(seed) : NAN; /* what is behind a row is not read */
    p.x = (struct rows_view){.f = p.values, .stride = stride, .planes = 1};
    return p;
}

static void product_free(struct product *p)
{
    free(p->w.data);
    free(p->weights);
    free(p->values);
}

static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* Row r times row t by pairs: the odd one first, subnormal numbers being zeros */
static float pairs_in_order(const struct product *p, int r, int t)
{
    const float *x = p->values + t * p->x.stride;
    const uint16_t *w = p->weights + (size_t)r * (size_t)p->cols;
    float acc = 0;
    for (int i = 0; i < (p->cols + 1) / 2 * 2; i++) {
        const int k = i ^ 1;
        const bool there = k < p->cols;
        const float a = there ? flushed(bf16_to_f32(w[k])) : 0,
                    b = there ? bf16_to_f32(f32_to_bf16(flushed(x[k]))) : 0;
        acc = flushed(fmaf(a, b, acc));
    }
    return acc;
}

/* By tile registers: of 32 k the even ones and the odd ones by themselves */
static float registers_in_order(const struct product *p, int r, int t)
{
    const float *x = p->values + t * p->x.stride;
    const uint16_t *w = p->weights + (size_t)r * (size_t)p->cols;
    float acc = 0;
    for (int k = 0; k < p->cols; k += 32) {
        float part[2] = {0, 0};
        for (int i = k; i < k + 32; i++) {
            const bool there = i < p->cols;
            const float a = there ? flushed(bf16_to_f32(w[i])) : 0,
                        b = there ? bf16_to_f32(f32_to_bf16(flushed(x[i]))) : 0;
            part[i % 2] = flushed(fmaf(a, b, part[i % 2]));
        }
        acc = flushed(acc + flushed(part[0] + part[1]));
    }
    return acc;
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void check_rows(const struct kernels *k, const struct product *p, int t0, int n,
                       const float *want)
{
    static float got[MAX_N * LD];
    memset(got, 0, sizeof got);
    k->linear(&p->w, &p->x, t0, n, 0, p->w.panels, got, LD);
    for (int t = 0; t < n; t++)
        for (int r = 0; r < p->rows; r++)
            if (!same(got[t * LD + r], want[(t0 + t) * p->rows + r]))
                fail_msg("%s: %d columns, row %d of %d: %a, expected %a", k->name, p->cols, t, n,
                         (double)got[t * LD + r], (double)want[(t0 + t) * p->rows + r]);
}

/* Any number of rows, with each set; `fused`: of those that fuse a product and a sum */
static void check(const struct product *p, bool fused)
{
    static const int ns[] = {1, 2, 3, 5, 8, 9, 16, 17, 47, MAX_N};
    float *want = malloc((size_t)MAX_N * (size_t)p->rows * sizeof *want), *by_amx;
    const struct kernels *k;
    bool usable;
    by_amx = malloc((size_t)MAX_N * (size_t)p->rows * sizeof *want);
    for (int t = 0; t < MAX_N; t++)
        for (int r = 0; r < p->rows; r++) {
            want[t * p->rows + r] = pairs_in_order(p, r, t);
            by_amx[t * p->rows + r] = registers_in_order(p, r, t);
        }
    for (int i = 0; (k = kernels_compiled(i, &usable)); i++)
        for (size_t j = 0; usable && j < sizeof ns / sizeof *ns; j++)
            if (!fused || strcmp(k->name, "generic") != 0)
                check_rows(k, p, MAX_N - ns[j], ns[j],
                           strncmp(k->name, "amx", 3) == 0 ? by_amx : want);
    free(want);
    free(by_amx);
}

static void check_shapes(make_fn *make, bool fused)
{
    static const int shapes[][2] = {{16, 2}, {5, 1}, {40, 64}, {33, 301}, {16, 1200}, {48, 63}};
    uint64_t seed = 21;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct product p = product_new(shapes[i][0], shapes[i][1], make, &seed);
        check(&p, fused);
        product_free(&p);
    }
}

static void pairs_are_added_in_one_order_by_every_set_and_number_of_rows(void **state)
{
    check_shapes(usual, false);
}

static void subnormal_numbers_count_as_zeros(void **state)
{
    check_shapes(tiny, true);
    check_shapes(any_size, true);
}

/* The first row sees a NaN or an infinity among its values, the second panel among its weights. */
static void what_is_not_finite_reaches_the_products_that_have_it_and_no_others(void **state)
{
    static const float odd_ones[] = {NAN, INFINITY, -INFINITY};
    uint64_t seed = 22;
    for (int i = 0; i < 3; i++) {
        struct product p = product_new(32, 75, usual, &seed);
        const uint16_t w = f32_to_bf16(odd_ones[i]);
        p.values[(MAX_N - 1) * p.x.stride + 74 - i] = odd_ones[i];
        p.weights[20 * 75 + 70 + i] = w;
        memcpy(p.w.data + p.w.panel_bytes + (size_t)((70 + i) * PANEL + 4) * 2, &w, 2);
        assert_false(isfinite(pairs_in_order(&p, 0, MAX_N - 1)));
        assert_false(isfinite(pairs_in_order(&p, 20, 0)));
        assert_true(isfinite(pairs_in_order(&p, 0, 0)));
        check(&p, false);
        product_free(&p);
    }
}

static void exact_rows_are_not_rounded(void **state)
{
    uint64_t seed = 23;
    struct product p = product_new(20, 130, usual, &seed);
    const struct kernels *k;
    bool usable;
    p.x.exact = true;
    for (int i = 0; (k = kernels_compiled(i, &usable)); i++)
        for (int n = 1; usable && n < 20; n += 3) {
            float got[20 * LD];
            k->linear(&p.w, &p.x, 0, n, 0, p.w.panels, got, LD);
            for (int r = 0; r < p.rows; r++) {
                double want = 0;
                for (int c = 0; c < p.cols; c++)
                    want += (double)bf16_to_f32(p.weights[r * p.cols + c]) *
                            (double)p.values[(n - 1) * p.x.stride + c];
                assert_true(fabs((double)got[(n - 1) * LD + r] - want) < 1e-5);
            }
        }
    product_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_added_in_one_order_by_every_set_and_number_of_rows),
        cmocka_unit_test(subnormal_numbers_count_as_zeros),
        cmocka_unit_test(what_is_not_finite_reaches_the_products_that_have_it_and_no_others),
        cmocka_unit_test(exact_rows_are_not_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
