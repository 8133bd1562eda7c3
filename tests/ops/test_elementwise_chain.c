/* ElementwiseChain against naive loops in double. */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define CHAIN       "sparsebit::ElementwiseChain"

/* (x * s + z) * sigmoid(x * s + z), of sizes below, at and above a strip, on
 * any number of threads. */
static void test_chains_give_naive_values(void **state)
{
    static const int sizes[] = {1, 2, 1023, 1024, 1025, 5000, 70001};

    (void)state;
    for (size_t k = 0; k < SB_COUNT(sizes); k++) {
        char text[512], shape[32];

        (void)snprintf(shape, sizeof shape, "%d", sizes[k]);
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[%d], s: f32[], z: f32[%d]) -> "
                       "(y: f32[%d]) {\n"
                       "  y = " CHAIN
                       "(x, s, z) {ops=[\"Mul\",\"Add\",\"Sigmoid\",\"Mul\"], "
                       "operands=[0,1,-1, 3,2,-1, 4,-1,-1, 4,5,-1]}\n}\n",
                       sizes[k], sizes[k], sizes[k]);
        const sb_tensor *x = test_random(SB_DTYPE_F32, shape, 1);
        const sb_tensor *z = test_random(SB_DTYPE_F32, shape, 2);
        for (int threads = 1; threads <= 3; threads++) {
            sb_ctx_set_threads(test_ctx(), threads);
            sb_tensor *y = test_run1(text, INPUTS(x, test_f32("", 1.5), z));
            for (int64_t i = 0; i < sizes[k]; i++) {
                double t =
                    sb_tensor_get_f64(x, i) * 1.5 + sb_tensor_get_f64(z, i);
                assert_close("silu", sb_tensor_get_f64(y, i), t / (1 + exp(-t)),
                             2e-6);
            }
        }
        sb_ctx_set_threads(test_ctx(), 1);
    }
}

/* By hand: limits, one of them absent; attributes; the order of operands. */
static void test_by_hand(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("4", -4, -1, 1, 3);
    const sb_tensor *one = test_f32("1", 1);

    assert_tensor("1 - x, at most 1, leaky",
                  test_run1("graph g(x: f32[4], s: f32[1]) -> (y: f32[4]) {\n"
                            "  y = " CHAIN
                            "(x, s) {ops=[\"Sub\",\"Clip\",\"LeakyRelu\"], "
                            "operands=[1,0,-1, 2,-1,1, 3,-1,-1], "
                            "params=[0.5]}\n}\n",
                            INPUTS(x, one)),
                  test_f32("4", 1, 1, 0, -1), 0);
    assert_tensor("(x - 1)^2 + x",
                  test_run1("graph g(x: f32[4], s: f32[1]) -> (y: f32[4]) {\n"
                            "  y = " CHAIN
                            "(x, s) {ops=[\"Sub\",\"Mul\",\"Add\"], "
                            "operands=[0,1,-1, 2,2,-1, 3,0,-1]}\n}\n",
                            INPUTS(x, one)),
                  test_f32("4", 21, 3, 1, 7), 0);
}

/* In place: x dies with the chain, which reads it in its last step again. */
static void test_in_place(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "3x1000", 4);
    sb_tensor *y =
        test_run1("graph g(x: f32[3,1000]) -> (y: f32[3,1000]) {\n"
                  "  n = Neg(x)\n"
                  "  c = " CHAIN "(n) {ops=[\"Abs\",\"Mul\",\"Sub\"], "
                  "operands=[0,-1,-1, 1,1,-1, 2,0,-1]}\n"
                  "  y = Neg(c)\n}\n",
                  INPUTS(x));

    for (int64_t i = 0; i < 3000; i++) {
        double v = sb_tensor_get_f64(x, i);
        assert_close("in place", sb_tensor_get_f64(y, i), -(v * v + v), 1e-6);
    }
}

/* Channels last and plain operands come together. */
static void test_layouts_may_be_mixed(void **state)
{
    static const char text[] =
        "graph g(x: f32[1,3,6,7], z: f32[1,2,6,7]) -> (y: f32[1,2,6,7]) {\n"
        "  w: f32[2,3,1,1] = [1,2,3,-1,0,1]\n"
        "  c = Conv(x, w)\n"
        "  y = " CHAIN "(c, z) {ops=[\"Abs\",\"Sub\"], "
        "operands=[0,-1,-1, 2,1,-1]}\n}\n";
    static const double w[2][3] = {{1, 2, 3}, {-1, 0, 1}};

    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x3x6x7", 5);
    sb_tensor *z = test_random(SB_DTYPE_F32, "1x2x6x7", 6);
    sb_tensor *y = test_run1(text, INPUTS(x, z));
    for (int64_t i = 0; i < 84; i++) {
        double sum = 0;
        for (int64_t c = 0; c < 3; c++)
            sum += w[i / 42][c] * sb_tensor_get_f64(x, c * 42 + i % 42);
        assert_close("layouts", sb_tensor_get_f64(y, i),
                     fabs(sum) - sb_tensor_get_f64(z, i), 1e-5);
    }
}

/* A shape that is known only while running; an empty one too. */
static void test_shapes_may_be_known_only_while_running(void **state)
{
    static const char text[] = "graph g(x: f32[4], s: f32[]) -> (y: f32[*]) {\n"
                               "  n = NonZero(x)\n"
                               "  f = Cast(n) {to=1}\n"
                               "  y = " CHAIN "(f, s) {ops=[\"Mul\",\"Neg\"], "
                               "operands=[0,1,-1, 2,-1,-1]}\n}\n";

    (void)state;
    const sb_tensor *s = test_f32("", 3);
    assert_tensor("two", test_run1(text, INPUTS(test_f32("4", 0, 1, 0, 2), s)),
                  test_f32("1x2", -3, -9), 0);
    assert_tensor("none", test_run1(text, INPUTS(test_f32("4", 0, 0, 0, 0), s)),
                  test_tensor(SB_DTYPE_F32, "1x0", NULL), 0);
}

/* Files may hold anything. */
static void test_wrong_attributes_are_refused(void **state)
{
    static const struct {
        const char *what, *attrs, *says;
    } bad[] = {
        {"no such operator", "ops=[\"Conv\"], operands=[0,1,-1]", "cannot"},
        {"a condition", "ops=[\"Less\"], operands=[0,1,-1]", "cannot"},
        {"a long name",
         "ops=[\"MulMulMulMulMulMulMulMulMulMulMulMulMulMul\"], "
         "operands=[0,1,-1]",
         "cannot"},
        {"too many operands", "ops=[\"Neg\"], operands=[0,0,-1]", "cannot"},
        {"too few operands", "ops=[\"Mul\"], operands=[0,-1,-1]", "cannot"},
        {"a hole", "ops=[\"Mul\"], operands=[-1,0,-1]", "does not fit"},
        {"its own result", "ops=[\"Neg\"], operands=[3,-1,-1]", "no operand"},
        {"below", "ops=[\"Neg\"], operands=[-2,-1,-1]", "no operand"},
        {"limit of full shape", "ops=[\"Clip\"], operands=[0,0,-1]",
         "does not fit"},
        {"single elements", "ops=[\"Mul\"], operands=[1,1,-1]", "single"},
        {"short list", "ops=[\"Neg\",\"Neg\"], operands=[0,-1,-1]", "steps"},
        {"no steps", "ops=strings [], operands=[]", "steps"},
        {"no parameter", "ops=[\"LeakyRelu\"], operands=[0,-1,-1]", "params"},
        {"another shape", "ops=[\"Add\"], operands=[0,2,-1]", "shape"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        char text[512];

        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[2,3], s: f32[], v: f32[%s]) -> "
                       "(y: f32[2,3]) {\n  y = " CHAIN "(x, s, v) {%s}\n}\n",
                       i + 1 == SB_COUNT(bad) ? "3" : "2,3", bad[i].attrs);
        sb_tensor *v = test_tensor(SB_DTYPE_F32,
                                   i + 1 == SB_COUNT(bad) ? "3" : "2x3", NULL);
        assert_status(
            test_try_run(text, INPUTS(test_random(SB_DTYPE_F32, "2x3", 1),
                                      test_f32("", 1), v)),
            SB_BAD_MODEL);
        assert_error_has(bad[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chains_give_naive_values),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_layouts_may_be_mixed),
        cmocka_unit_test(test_shapes_may_be_known_only_while_running),
        cmocka_unit_test(test_wrong_attributes_are_refused),
    };
    return cmocka_run_group_tests_name("elementwise_chain", tests, NULL, NULL);
}
