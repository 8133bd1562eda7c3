/* RandomUniform, RandomNormal, their ...Like forms, Bernoulli, Multinomial:
 * moments of the distributions that ONNX names, and repeatable numbers. */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

enum { DRAWS = 20000 };

typedef struct moments {
    double mean, deviation, least, greatest;
} moments;

static moments moments_of(const sb_tensor *t)
{
    moments m = {.least = INFINITY, .greatest = -INFINITY};
    int64_t n = sb_tensor_count(t);
    double square = 0;

    for (int64_t i = 0; i < n; i++) {
        double v = sb_tensor_get_f64(t, i);
        m.mean += v / (double)n;
        square += v * v / (double)n;
        m.least = fmin(m.least, v);
        m.greatest = fmax(m.greatest, v);
    }
    m.deviation = sqrt(square - m.mean * m.mean);
    return m;
}

/* Runs twice; both runs must give the same numbers. */
static sb_tensor *draw(const char *text, const sb_tensor *x)
{
    sb_tensor *a = test_run1(text, INPUTS(x)), *b = test_run1(text, INPUTS(x));

    assert_tensor("a second run", b, a, 0);
    return a;
}

/* Uniform in [-1, 5]: mean 2, deviation 6 / sqrt(12). */
static void test_uniform_numbers_fill_their_range(void **state)
{
    (void)state;
    sb_tensor *x = test_tensor(SB_DTYPE_F64, "20000", NULL);
    sb_tensor *y = draw("graph g(x: f64[20000]) -> (y: f32[20000]) {\n"
                        "  y = RandomUniform() {shape=[20000], low=-1.0, "
                        "high=5.0, seed=3.0}\n}\n",
                        x);
    sb_tensor *z = draw("graph g(x: f64[20000]) -> (y: f64[20000]) {\n"
                        "  y = RandomUniformLike(x) {low=-1.0, high=5.0, "
                        "seed=4.0}\n}\n",
                        x);

    for (int i = 0; i < 2; i++) {
        moments m = moments_of(i ? z : y);
        assert_close("mean", m.mean, 2, 0.06);
        assert_close("deviation", m.deviation, sqrt(3), 0.04);
        assert_true(m.least >= -1 && m.least < -0.99);
        assert_true(m.greatest <= 5 && m.greatest > 4.99);
    }
    assert_true(sb_tensor_get_f64(y, 0) != sb_tensor_get_f64(z, 0));
}

static void test_normal_numbers_have_mean_and_scale(void **state)
{
    (void)state;
    sb_tensor *x = test_tensor(SB_DTYPE_I32, "4x5000", NULL);
    sb_tensor *y = draw("graph g(x: i32[4,5000]) -> (y: f32[4,5000]) {\n"
                        "  y = RandomNormalLike(x) {dtype=1, mean=-2.0, "
                        "scale=0.5, seed=1.0}\n}\n",
                        x);
    moments m = moments_of(y);

    assert_int_equal(y->dtype, SB_DTYPE_F32);
    assert_close("mean", m.mean, -2, 0.02);
    assert_close("deviation", m.deviation, 0.5, 0.015);
}

/* Probabilities 0, 1 and 0.25 in turns. */
static void test_bernoulli_draws_by_probability(void **state)
{
    (void)state;
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "20000x3", NULL);

    for (int64_t i = 0; i < DRAWS; i++) {
        ((float *)x->data)[3 * i + 1] = 1;
        ((float *)x->data)[3 * i + 2] = 0.25F;
    }
    sb_tensor *y = draw("graph g(x: f32[20000,3]) -> (y: i64[20000,3]) {\n"
                        "  y = Bernoulli(x) {dtype=7, seed=2.0}\n}\n",
                        x);
    double sums[3] = {0};

    assert_int_equal(y->dtype, SB_DTYPE_I64);
    for (int64_t i = 0; i < sb_tensor_count(y); i++)
        sums[i % 3] += sb_tensor_get_f64(y, i);
    assert_close("never", sums[0], 0, 0);
    assert_close("always", sums[1], DRAWS, 0);
    assert_close("a quarter", sums[2] / DRAWS, 0.25, 0.015);
}

/* Log probabilities, not normalized: 1 : 3 : 0, then 2 : 1 : 1. */
static void test_multinomial_draws_by_log_probability(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 0, log(3), -INFINITY, 7 + log(2), 7, 7);
    sb_tensor *y = draw("graph g(x: f32[2,3]) -> (y: i32[2,20000]) {\n"
                        "  y = Multinomial(x) {sample_size=20000, "
                        "seed=6.0}\n}\n",
                        x);
    static const double want[2][3] = {{0.25, 0.75, 0}, {0.5, 0.25, 0.25}};
    double found[2][3] = {{0}};

    for (int64_t i = 0; i < sb_tensor_count(y); i++) {
        int64_t class = (int64_t)sb_tensor_get_f64(y, i);
        assert_in_range(class, 0, 2);
        found[i / DRAWS][class] += 1.0 / DRAWS;
    }
    for (int row = 0; row < 2; row++)
        for (int class = 0; class < 3; class ++)
            assert_close("share", found[row][class], want[row][class], 0.015);
    assert_close("impossible class", found[0][2], 0, 0);
    assert_status(test_try_run("graph g(x: f32[2,3]) -> (y) {\n"
                               "  y = Multinomial(x) {sample_size=0}\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uniform_numbers_fill_their_range),
        cmocka_unit_test(test_normal_numbers_have_mean_and_scale),
        cmocka_unit_test(test_bernoulli_draws_by_probability),
        cmocka_unit_test(test_multinomial_draws_by_log_probability),
    };
    return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
