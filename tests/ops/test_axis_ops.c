/* Operators along one axis: ArgMax, CumSum, TopK, Softmax and similar, Range.
 * Expected values are NumPy's or worked out by hand. */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

static void test_arg_max(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x4", 1, 3, 3, 0, 5, 5, 2, 5);

    assert_tensor("first",
                  test_run1("graph g(x: f32[2,4]) -> (y: i64[2]) {\n"
                            "  y = ArgMax(x) {axis=1, keepdims=0}\n}\n",
                            INPUTS(x)),
                  test_i64("2", 1, 0), 0);
    assert_tensor("last",
                  test_run1("graph g(x: f32[2,4]) -> (y: i64[2,1]) {\n"
                            "  y = ArgMax(x) {axis=-1, "
                            "select_last_index=1}\n}\n",
                            INPUTS(x)),
                  test_i64("2x1", 2, 3), 0);
    assert_tensor("min",
                  test_run1("graph g(x: f32[2,4]) -> (y: i64[1,4]) {\n"
                            "  y = ArgMin(x)\n}\n",
                            INPUTS(x)),
                  test_i64("1x4", 0, 0, 1, 0), 0);
}

static void test_cum_sum(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);

    assert_tensor("plain",
                  test_run1("graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
                            "  a: i64[] = 1\n  y = CumSum(x, a)\n}\n",
                            INPUTS(x)),
                  test_f32("2x3", 1, 3, 6, 4, 9, 15), 0);
    assert_tensor("exclusive, reversed, other axis",
                  test_run1("graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
                            "  a: i64[] = -2\n"
                            "  y = CumSum(x, a) {exclusive=1, reverse=1}\n}\n",
                            INPUTS(x)),
                  test_f32("2x3", 4, 5, 6, 0, 0, 0), 0);
    assert_tensor("product",
                  test_run1("graph g(x: f32[2,3]) -> (y: f32[2,3])"
                            " {\n  a: i64[] = 1\n"
                            "  y = CumProd(x, a)\n}\n",
                            INPUTS(x)),
                  test_f32("2x3", 1, 2, 6, 4, 20, 120), 0);
    assert_status(test_try_run("graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
                               "  a: i64[] = 2\n  y = CumSum(x, a)\n}\n",
                               INPUTS(x)),
                  SB_BAD_DATA);
}

static void test_top_k(void **state)
{
    (void)state;
    sb_tensor *out[2];
    sb_tensor *x = test_f32("2x5", 1, 5, 3, 5, -1, -0.0, 0, 2, 2, 2);

    test_run("graph g(x: f32[2,5]) -> (v: f32[2,3], i: i64[2,3]) {\n"
             "  k: i64[1] = [3]\n  v, i = TopK(x, k)\n}\n",
             INPUTS(x), out, 2);
    assert_tensor("values", out[0], test_f32("2x3", 5, 5, 3, 2, 2, 2), 0);
    assert_tensor("lower index first", out[1],
                  test_i64("2x3", 1, 3, 2, 2, 3, 4), 0);
    test_run("graph g(x: f32[2,5]) -> (v: f32[1,5], i: i64[1,5]) {\n"
             "  k: i64[1] = [1]\n  v, i = TopK(x, k) {axis=0, largest=0}\n}\n",
             INPUTS(x), out, 2);
    assert_tensor("least", out[0], test_f32("1x5", 0, 0, 2, 2, -1), 0);
    assert_tensor("least at", out[1], test_i64("1x5", 1, 1, 1, 1, 0), 0);
    assert_status(test_try_run("graph g(x: f32[2,5]) -> (v: f32[*]) {\n"
                               "  k: i64[1] = [6]\n  v = TopK(x, k)\n}\n",
                               INPUTS(x)),
                  SB_BAD_MODEL);
    assert_error_has("k is 6");
}

/* Many elements and ties: the result must be the sorted prefix. */
static void test_top_k_large(void **state)
{
    (void)state;
    sb_tensor *out[2], *x = test_random(SB_DTYPE_I32, "1000", 9);
    const int32_t *v = x->data;
    int64_t at = 0;

    test_run("graph g(x: i32[1000]) -> (v: i32[500], i: i64[500]) {\n"
             "  k: i64[1] = [500]\n  v, i = TopK(x, k)\n}\n",
             INPUTS(x), out, 2);
    for (int32_t want = 7; want >= 0; want--)
        for (int64_t i = 0; i < 1000 && at < 500; i++)
            if (v[i] == want) {
                assert_int_equal(((int32_t *)out[0]->data)[at], want);
                assert_int_equal(((int64_t *)out[1]->data)[at], i);
                at++;
            }
}

static void check_softmax(const char *shape_text, sb_tensor *x, int axis)
{
    char text[256];
    sb_tensor *out[3];
    size_t inner = 1, n = (size_t)x->dims[axis];

    for (int d = axis + 1; d < x->rank; d++)
        inner *= (size_t)x->dims[d];
    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[%s]) -> (a: f32[%s], b: f32[%s], "
                   "c: f32[%s]) {\n  a = Softmax(x) {axis=%d}\n"
                   "  b = LogSoftmax(x) {axis=%d}\n"
                   "  c = Hardmax(x) {axis=%d}\n}\n",
                   shape_text, shape_text, shape_text, shape_text, axis, axis,
                   axis - x->rank);
    test_run(text, INPUTS(x), out, 3);
    size_t rows = (size_t)sb_tensor_count(x) / n;
    for (size_t r = 0; r < rows; r++) {
        const float *v =
            (const float *)x->data + r / inner * n * inner + r % inner;
        size_t base = (size_t)(v - (const float *)x->data), best = 0;
        double sum = 0;

        for (size_t i = 0; i < n; i++) {
            sum += exp((double)v[i * inner]);
            best = v[i * inner] > v[best * inner] ? i : best;
        }
        for (size_t i = 0; i < n; i++) {
            size_t at = base + i * inner;
            double p = exp((double)v[i * inner]) / sum;

            assert_close("softmax", ((float *)out[0]->data)[at], p, 1e-6);
            assert_close("log", ((float *)out[1]->data)[at], log(p), 1e-5);
            assert_close("hard", ((float *)out[2]->data)[at], i == best, 0);
        }
    }
}

/* What ONNX Runtime gives: NaN is never 1, and hides what follows if it comes
 * first. */
static void test_hardmax_of_nan(void **state)
{
    sb_tensor *x = test_f32("3x2", (double)NAN, (double)NAN, (double)NAN, 1, 1,
                            (double)NAN);
    sb_tensor *y = test_run1("graph g(x: f32[3,2]) -> (y: f32[3,2]) {\n"
                             "  y = Hardmax(x)\n}\n",
                             INPUTS(x));

    (void)state;
    assert_tensor("hardmax", y, test_f32("3x2", 0, 0, 0, 0, 1, 0), 0);
}

static void test_softmax_along_every_axis(void **state)
{
    (void)state;
    check_softmax("7", test_random(SB_DTYPE_F32, "7", 1), 0);
    check_softmax("3,100", test_random(SB_DTYPE_F32, "3x100", 2), 1);
    check_softmax("3,100", test_random(SB_DTYPE_F32, "3x100", 3), 0);
    check_softmax("2,9,130", test_random(SB_DTYPE_F32, "2x9x130", 4), 1);
    /* Short rows, more and fewer than a block of them. */
    check_softmax("200,1", test_random(SB_DTYPE_F32, "200x1", 5), 1);
    check_softmax("4420,2", test_random(SB_DTYPE_F32, "4420x2", 6), 1);
    check_softmax("63,16", test_random(SB_DTYPE_F32, "63x16", 7), 1);
    check_softmax("65,17", test_random(SB_DTYPE_F32, "65x17", 8), 1);
    /* Large numbers must not overflow. */
    sb_tensor *y =
        test_run1("graph g(x: f32[2,2]) -> (y: f32[2,2]) {\n"
                  "  y = Softmax(x)\n}\n",
                  INPUTS(test_f32("2x2", 10000, 10001, -20000, -20000)));
    assert_tensor("large", y, test_f32("2x2", 0.26894142, 0.73105858, 0.5, 0.5),
                  1e-6);
}

static void test_range_counts_up_and_down(void **state)
{
    (void)state;
    assert_tensor("down",
                  test_run1("graph g(x: f32[1]) -> (y: i32[*]) {\n"
                            "  a: i32[] = 10\n  b: i32[] = 4\n"
                            "  d: i32[] = -2\n  y = Range(a, b, d)\n}\n",
                            INPUTS(test_f32("1", 0))),
                  test_tensor(SB_DTYPE_I32, "3", (double[]){10, 8, 6}), 0);
    /* The length is known at run time only. */
    assert_tensor("dynamic",
                  test_run1("graph g(n: i64[]) -> (y: i64[*]) {\n"
                            "  a: i64[] = 0\n  d: i64[] = 1\n"
                            "  y = Range(a, n, d)\n}\n",
                            INPUTS(test_i64("", 3))),
                  test_i64("3", 0, 1, 2), 0);
    assert_status(test_try_run("graph g(n: f32[]) -> (y: f32[*]) {\n"
                               "  a: f32[] = 0\n  d: f32[] = 0\n"
                               "  y = Range(a, n, d)\n}\n",
                               INPUTS(test_f32("", 3))),
                  SB_BAD_MODEL);
}

static void test_lp_normalization_divides_by_the_norm(void **state)
{
    (void)state;
    assert_tensor("l2",
                  test_run1("graph g(x: f32[2,2]) -> (y: f32[2,2]) {\n"
                            "  y = LpNormalization(x)\n}\n",
                            INPUTS(test_f32("2x2", 3, 4, 0, 0))),
                  test_f32("2x2", 0.6, 0.8, 0, 0), 1e-6);
    assert_tensor("l1 down",
                  test_run1("graph g(x: f32[2,2]) -> (y: f32[2,2])"
                            " {\n  y = LpNormalization(x) "
                            "{axis=0, p=1}\n}\n",
                            INPUTS(test_f32("2x2", 3, 4, -1, 0))),
                  test_f32("2x2", 0.75, 1, -0.25, 0), 1e-6);
    /* mean 2, deviation 1 along axis 1 */
    assert_tensor("mvn",
                  test_run1("graph g(x: f32[1,2]) -> (y: f32[1,2]) {\n"
                            "  y = MeanVarianceNormalization(x) "
                            "{axes=[1]}\n}\n",
                            INPUTS(test_f32("1x2", 1, 3))),
                  test_f32("1x2", -1, 1), 1e-6);
    assert_tensor("det",
                  test_run1("graph g(x: f32[2,2,2]) -> (y: f32[2]) {\n"
                            "  y = Det(x)\n}\n",
                            INPUTS(test_f32("2x2x2", 1, 2, 3, 4, 0, 1, 1, 0))),
                  test_f32("2", -2, -1), 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arg_max),
        cmocka_unit_test(test_cum_sum),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_k_large),
        cmocka_unit_test(test_softmax_along_every_axis),
        cmocka_unit_test(test_hardmax_of_nan),
        cmocka_unit_test(test_range_counts_up_and_down),
        cmocka_unit_test(test_lp_normalization_divides_by_the_norm),
    };
    return cmocka_run_group_tests_name("axis_ops", tests, NULL, NULL);
}
