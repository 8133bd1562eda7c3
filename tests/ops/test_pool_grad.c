/* Gradients of pools.  AveragePool is linear and MaxPool is linear around
 * almost every x, so the sum of x dx is that of y dy for any dy; shares go to
 * the right places, ties to the first, NaN where it is.  In either layout, with
 * windows that overlap, leave gaps and reach beyond the input. */
#include "sbtest.h"
#include "sbtest_node.h"

#include <math.h>

typedef struct pool_case {
    const char *x, *y, *attrs;
} pool_case;

static const pool_case cases[] = {
    {"2x3x8x8", "2x3x4x4", "kernel_shape=[2,2], strides=[2,2]"},
    {"2x20x9x7", "2x20x5x4",
     "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]"},
    {"1x5x7x9", "1x5x7x9", "kernel_shape=[3,3], pads=[1,1,1,1]"},
    {"1x33x9x9", "1x33x2x3", "kernel_shape=[2,1], strides=[5,4]"},
    {"3x2x11", "3x2x4", "kernel_shape=[3], strides=[3], ceil_mode=1"},
    {"1x2x4x5x6", "1x2x3x4x5", "kernel_shape=[2,2,2]"},
};

static double inner_product(const sb_tensor *a, const sb_tensor *b)
{
    double sum = 0;

    assert_int_equal(sb_tensor_count(a), sb_tensor_count(b));
    for (int64_t i = 0; i < sb_tensor_count(a); i++)
        sum += sb_tensor_get_f64(a, i) * sb_tensor_get_f64(b, i);
    return sum;
}

static void check_pool(const pool_case *c, const char *pool, uint64_t seed)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, c->x, seed);
    sb_tensor *dy = test_random(SB_DTYPE_F32, c->y, seed + 1);
    char name[32], more[160];
    sb_tensor *y, *dx;

    (void)snprintf(name, sizeof name, "%sGrad", pool);
    (void)snprintf(more, sizeof more, "%s%s", c->attrs,
                   pool[0] == 'A' ? ", count_include_pad=1" : "");
    test_node forward = {
        .op = pool, .attrs = more, .in = {x}, .n_in = 1, .n_out = 1};
    test_node back = {.op = name,
                      .domain = "sparsebit",
                      .attrs = more,
                      .in = {dy, x},
                      .n_in = 2,
                      .n_out = 1};
    test_node_run(&forward, &y);
    test_node_threads(&back, &dx);
    assert_close(c->attrs, inner_product(x, dx), inner_product(y, dy), 1e-4);
}

static void test_products_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        check_pool(&cases[i], "MaxPool", 2 * i + 1);
        check_pool(&cases[i], "AveragePool", 2 * i + 1);
    }
}

/* Behind a convolution by one, x has its channels last. */
static void test_channels_last(void **state)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, "2x18x6x6", 5);
    sb_tensor *dy = test_random(SB_DTYPE_F32, "2x18x3x3", 6);
    double one[18 * 18] = {0};
    sb_tensor *got[2], *want;

    (void)state;
    for (size_t i = 0; i < 18; i++)
        one[i * 19] = 1;
    const sb_tensor *inputs[] = {x, dy,
                                 test_tensor(SB_DTYPE_F32, "18x18x1x1", one)};
    test_run("graph g(x: f32[2,18,6,6], dy: f32[2,18,3,3], w: f32[18,18,1,1]) "
             "-> (dx, da) {\n"
             "c = Conv(x, w)\n"
             "dx = sparsebit::MaxPoolGrad(dy, c) {kernel_shape=[2,2], "
             "strides=[2,2]}\n"
             "da = sparsebit::AveragePoolGrad(dy, c) {kernel_shape=[2,2], "
             "strides=[2,2]}\n}",
             inputs, got, 2);
    test_node back = {.op = "MaxPoolGrad",
                      .domain = "sparsebit",
                      .attrs = "kernel_shape=[2,2], strides=[2,2]",
                      .in = {dy, x},
                      .n_in = 2,
                      .n_out = 1};
    test_node_run(&back, &want);
    assert_tensor("maximum", got[0], want, 0);
    back.op = "AveragePoolGrad";
    test_node_run(&back, &want);
    assert_tensor("average", got[1], want, 0);
}

static void test_ties_and_nan(void **state)
{
    sb_tensor *x = test_f32("1x1x2x4", 1, 1, 5, 2, 1, 1, NAN, 7);
    sb_tensor *dy = test_f32("1x1x1x2", 3, 4), *dx;
    test_node back = {.op = "MaxPoolGrad",
                      .domain = "sparsebit",
                      .attrs = "kernel_shape=[2,2], strides=[2,2]",
                      .in = {dy, x},
                      .n_in = 2,
                      .n_out = 1};

    (void)state;
    test_node_run(&back, &dx);
    assert_tensor("ties", dx, test_f32("1x1x2x4", 3, 0, 0, 0, 0, 0, 4, 0), 0);
}

static void test_global(void **state)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x2x2x2", 1), *dx;
    test_node back = {.op = "AveragePoolGrad",
                      .domain = "sparsebit",
                      .attrs = "global=1",
                      .in = {test_f32("1x2x1x1", 4, 8), x},
                      .n_in = 2,
                      .n_out = 1};

    (void)state;
    test_node_run(&back, &dx);
    assert_tensor("global", dx, test_f32("1x2x2x2", 1, 1, 1, 1, 2, 2, 2, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_agree),
        cmocka_unit_test(test_channels_last),
        cmocka_unit_test(test_ties_and_nan),
        cmocka_unit_test(test_global),
    };

    return cmocka_run_group_tests_name("pool_grad", tests, NULL, NULL);
}
