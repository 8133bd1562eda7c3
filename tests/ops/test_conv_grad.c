/* Gradients of convolutions.  Conv is linear in x and in w, so
 *
 *     <Conv(x, w), dy> = <x, ConvGradX(dy, w)> = <w, ConvGradW(x, dy)>
 *
 * for any dy; and a wrong element of a gradient shows, since all of them are
 * random.  Sizes that divide evenly and that do not, strides, dilations,
 * groups, one to four spatial dimensions, depthwise; the same bytes for any
 * number of threads. */
#include "sbtest.h"
#include "sbtest_node.h"

#include <math.h>

typedef struct grad_case {
    const char *x, *w, *y; /* shapes */
    const char *attrs;
} grad_case;

static const grad_case cases[] = {
    {"2x3x9x8", "5x3x3x3", "2x5x9x8", "pads=[1,1,1,1]"},
    {"5x16x10x10", "32x16x3x3", "5x32x5x5", "pads=[1,1,1,1], strides=[2,2]"},
    {"3x16x11x9", "8x16x3x2", "3x8x4x4",
     "pads=[0,1,1,0], strides=[3,2], dilations=[1,2]"},
    {"17x8x7x7", "24x8x1x1", "17x24x7x7", ""},
    {"4x32x6x6", "32x32x1x1", "4x32x3x3", "strides=[2,2]"},
    {"2x12x8x8", "18x4x3x3", "2x18x8x8", "pads=[1,1,1,1], group=3"},
    {"3x24x9x9", "24x1x3x3", "3x24x9x9", "pads=[1,1,1,1], group=24"},
    {"3x20x9x9", "20x1x5x5", "3x20x5x5",
     "pads=[2,2,2,2], strides=[2,2], group=20"},
    {"2x33x12x10", "33x1x7x7", "2x33x12x10", "pads=[3,3,3,3], group=33"},
    {"2x16x13x13", "16x1x3x3", "2x16x13x13",
     "pads=[2,2,2,2], dilations=[2,2], group=16"},
    {"2x4x9x9", "8x1x3x3", "2x8x9x9", "pads=[1,1,1,1], group=4"},
    {"2x4x12", "6x4x3", "2x6x6", "pads=[1,1], strides=[2]"},
    {"2x4x5x6x7", "6x4x3x3x3", "2x6x5x6x7", "pads=[1,1,1,1,1,1]"},
    {"1x2x3x3x3x3", "2x2x2x2x2x2", "1x2x2x2x2x2", ""},
    {"13x32x15x14", "48x32x3x3", "13x48x15x14", "pads=[1,1,1,1]"},
    {"9x48x19x17", "32x48x3x3", "9x32x18x18", "pads=[0,1,1,2]"},
    {"3x3x32x32", "16x3x16x16", "3x16x2x2", "strides=[16,16]"},
    {"2x12x17x9", "20x12x3x3", "2x20x13x5", "dilations=[2,2]"},
    {"1x3x8x8", "4x3x3x3", "1x4x8x8", "auto_pad=\"SAME_UPPER\""},
    /* Few channels: the first layer of a network. */
    {"5x3x33x38", "24x3x7x7", "5x24x17x19", "pads=[3,3,3,3], strides=[2,2]"},
    {"4x4x19x17", "16x4x3x5", "4x16x10x5", "pads=[1,0,1,1], strides=[2,3]"},
    {"4x1x16x16", "16x1x3x3", "4x16x16x16", "pads=[1,1,1,1]"},
    {"6x2x13x13", "32x2x2x2", "6x32x3x3", "strides=[4,4]"},
    /* Weights that outweigh the tiles of Winograd. */
    {"13x256x7x7", "240x256x3x3", "13x240x7x7", "pads=[1,1,1,1]"},
};

static double inner_product(const sb_tensor *a, const sb_tensor *b)
{
    double sum = 0;

    assert_int_equal(sb_tensor_count(a), sb_tensor_count(b));
    for (int64_t i = 0; i < sb_tensor_count(a); i++)
        sum += sb_tensor_get_f64(a, i) * sb_tensor_get_f64(b, i);
    return sum;
}

static double norm_of(const sb_tensor *a)
{
    return sqrt(inner_product(a, a));
}

static void check_case(const grad_case *c, uint64_t seed)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, c->x, seed);
    sb_tensor *w = test_random(SB_DTYPE_F32, c->w, seed + 1);
    sb_tensor *dy = test_random(SB_DTYPE_F32, c->y, seed + 2);
    test_node conv = {
        .op = "Conv", .attrs = c->attrs, .in = {x, w}, .n_in = 2, .n_out = 1};
    test_node grad_x = {.op = "ConvGradX",
                        .domain = "sparsebit",
                        .attrs = c->attrs,
                        .in = {dy, w, NULL, NULL, x},
                        .n_in = 5,
                        .n_out = 1};
    test_node grad_w = {.op = "ConvGradW",
                        .domain = "sparsebit",
                        .attrs = c->attrs,
                        .in = {x, dy, w},
                        .n_in = 3,
                        .n_out = 1};
    sb_tensor *y, *dx, *dw;

    test_node_run(&conv, &y);
    test_node_threads(&grad_x, &dx);
    test_node_threads(&grad_w, &dw);
    double want = inner_product(y, dy);
    assert_close(c->w, inner_product(x, dx), want,
                 1e-6 * norm_of(x) * norm_of(dx));
    assert_close(c->w, inner_product(w, dw), want,
                 1e-6 * norm_of(w) * norm_of(dw));
}

static void test_products_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        check_case(&cases[i], 3 * i + 1);
}

static void test_batches_may_be_empty(void **state)
{
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "0x3x8x8", NULL);
    sb_tensor *w = test_random(SB_DTYPE_F32, "4x3x3x3", 1);
    sb_tensor *dy = test_tensor(SB_DTYPE_F32, "0x4x6x6", NULL);
    test_node grad_w = {.op = "ConvGradW",
                        .domain = "sparsebit",
                        .in = {x, dy, w},
                        .n_in = 3,
                        .n_out = 1};
    sb_tensor *dw;

    (void)state;
    test_node_run(&grad_w, &dw);
    assert_int_equal(sb_tensor_count(dw), 4 * 27);
    assert_close("empty", norm_of(dw), 0, 0);
}

static void test_wrong_shapes_are_refused(void **state)
{
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x3x8x8", 1);
    sb_tensor *w = test_random(SB_DTYPE_F32, "4x3x3x3", 2);
    sb_tensor *dy = test_random(SB_DTYPE_F32, "1x4x5x6", 3), *out;
    test_node grad_x = {.op = "ConvGradX",
                        .domain = "sparsebit",
                        .in = {dy, w, NULL, NULL, x},
                        .n_in = 5,
                        .n_out = 1};
    test_node grad_w = {.op = "ConvGradW",
                        .domain = "sparsebit",
                        .in = {x, dy, w},
                        .n_in = 3,
                        .n_out = 1};

    (void)state;
    assert_status(test_node_try(&grad_x, &out), SB_BAD_MODEL);
    assert_error_has("dimension 2 of the gradient is 5, want 6");
    assert_status(test_node_try(&grad_w, &out), SB_BAD_MODEL);
    assert_error_has("dimension 2 of the gradient is 5, want 6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_agree),
        cmocka_unit_test(test_batches_may_be_empty),
        cmocka_unit_test(test_wrong_shapes_are_refused),
    };

    return cmocka_run_group_tests_name("conv_grad", tests, NULL, NULL);
}
