/* Operators that gradients are made of: values by hand, and what is refused.
 * What they are for is tested in test_gradients.c. */
#include "sbtest_node.h"

#define FUSED "sparsebit"

static void expect(const test_node *node, const sb_tensor *want)
{
    sb_tensor *out[TEST_NODE_MOST] = {0};

    test_node_threads(node, out);
    assert_tensor(node->op, out[0], want, 1e-6);
}

static void test_sums_and_recurrent_layers(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);

    /* h = relu(2 * 3 + 4 / 2): the gradient of its only gate is that of y. */
    expect(
        &(test_node){"RnnGrad",
                     FUSED,
                     "activations=[\"Relu\"]",
                     {test_f32("1x1x1", 2), test_f32("1x1x1", 3),
                      test_f32("1x1x1", .5), NULL, NULL, test_f32("1x1x1", 4),
                      NULL, NULL, test_f32("1x1x1x1", 1.5)},
                     9,
                     3,
                     0},
        test_f32("1x1x1", 1.5));
    expect(&(test_node){"SumTo", FUSED, NULL, {x, test_i64("1", 3)}, 2, 1, 2},
           test_f32("3", 5, 7, 9));
    expect(
        &(test_node){"SumTo", FUSED, NULL, {x, test_i64("2", 2, 1)}, 2, 1, 2},
        test_f32("2x1", 6, 15));
    expect(&(test_node){"SumTo",
                        FUSED,
                        NULL,
                        {x, test_tensor(SB_DTYPE_I64, "0", NULL)},
                        2,
                        1,
                        2},
           test_f32("", 21));
}

static void test_functions_of_one_element(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);

    expect(&(test_node){"EwGrad",
                        FUSED,
                        "of=\"Relu\"",
                        {x, test_f32("2x3", 0, 1, 0, 2, 0, 0)},
                        2,
                        1,
                        0},
           test_f32("2x3", 0, 2, 0, 4, 0, 0));
    expect(&(test_node){"EwGrad",
                        FUSED,
                        "of=\"LeakyRelu\", alpha=0.5",
                        {x, test_f32("2x3", -1, 1, -1, 2, 0, 3)},
                        2,
                        1,
                        0},
           test_f32("2x3", .5, 2, 1.5, 4, 2.5, 6));
    expect(&(test_node){"ClipGrad",
                        FUSED,
                        NULL,
                        {x, test_f32("2x3", 0, 1, 6, 2, 0, 3), test_f32("", 0),
                         test_f32("", 6)},
                        4,
                        1,
                        0},
           test_f32("2x3", 0, 2, 0, 4, 0, 6));
}

static void test_parts_and_rows(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);

    expect(&(test_node){"GatherGrad",
                        FUSED,
                        "axis=0",
                        {x, test_i64("2", 1, -2), test_i64("2", 3, 3)},
                        3,
                        1,
                        6},
           test_f32("3x3", 0, 0, 0, 5, 7, 9, 0, 0, 0));
    expect(
        &(test_node){"SliceGrad",
                     FUSED,
                     NULL,
                     {x, test_i64("2", 2, 6), test_i64("1", 5),
                      test_i64("1", -7), test_i64("1", 1), test_i64("1", -2)},
                     6,
                     1,
                     62},
        test_f32("2x6", 0, 3, 0, 2, 0, 1, 0, 6, 0, 5, 0, 4));
    expect(&(test_node){"SoftmaxGrad",
                        FUSED,
                        NULL,
                        {test_f32("2", 1, 0), test_f32("2", .25, .75)},
                        2,
                        1,
                        0},
           test_f32("2", .1875, -.1875));
    /* x = 3, 5: mean 4, sigma 1; dy scale = 2, 0; z = -1, 1 */
    expect(&(test_node){"NormGrad",
                        FUSED,
                        "epsilon=0.0",
                        {test_f32("1x2", 1, 0), test_f32("1x2", 3, 5),
                         test_f32("2", 2, 2)},
                        3,
                        2,
                        0},
           test_f32("1x2", 0, 0));
}

/* x / scale is -3 (below), -0.8, 0.4, 1.4 and 9 (above) for limits -2 and 3. */
static void test_quantizers_pass_what_is_inside(void **state)
{
    (void)state;
    sb_tensor *out[TEST_NODE_MOST] = {0};
    const test_node node = {"FakeQuantGrad",
                            FUSED,
                            "qmin=-1, qmax=4, grad_factor=0.5",
                            {test_f32("5", 1, 2, 3, 4, 5),
                             test_f32("5", -6, -1.6, .8, 2.8, 18),
                             test_f32("", 2), test_f32("", 1)},
                            4,
                            3,
                            0};

    test_node_threads(&node, out);
    assert_tensor("dx", out[0], test_f32("5", 0, 2, 3, 4, 0), 1e-6);
    /* 1 * -2 + 2 * (-1 + 0.8) + 3 * (0 - 0.4) + 4 * (1 - 1.4) + 5 * 3 */
    assert_tensor("dscale", out[1], test_f32("", .5 * 9.8), 1e-5);
    assert_tensor("dzero", out[2], test_f32("", .5 * -12), 1e-5);
}

/* Two rows of 18 codes in blocks of 16, of which the last is not full. */
static void test_weights_of_few_bits_are_unpacked(void **state)
{
    (void)state;
    uint8_t codes[2 * 2 * 8] = {0};
    sb_tensor *b = test_tensor(SB_DTYPE_U8, "2x2x8", NULL);
    float want[2 * 18];

    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 18; k++) {
            int code = (5 * k + 3 * n) % 16;
            codes[n * 16 + k / 16 * 8 + k % 16 / 2] |=
                (uint8_t)(code << (k % 2 * 4));
            want[n * 18 + k] = (float)(code - 8) * (float)(1 + 2 * n + k / 16);
        }
    memcpy(b->data, codes, sizeof codes);
    sb_tensor *w = test_tensor(SB_DTYPE_F32, "2x18", NULL);
    memcpy(w->data, want, sizeof want);
    expect(&(test_node){"UnpackNBits",
                        FUSED,
                        "K=18, N=2, bits=4, block_size=16",
                        {test_f32("1x2", 0, 0), b, test_f32("4", 1, 2, 3, 4)},
                        3,
                        1,
                        0},
           w);
}

static void refuse_all(const test_node *bad, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sb_tensor *out[TEST_NODE_MOST] = {0};
        if (test_node_try(&bad[i], out) == SB_OK)
            fail_msg("case %zu (%s) was not refused", i, bad[i].op);
    }
}

static void test_layers_that_do_not_fit(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);
    const sb_tensor *one = test_f32("1x1x1", 1), *dy = test_f32("1x1x1x1", 1);
    const test_node bad[] = {
        {"RnnGrad", FUSED, NULL, {one, one}, 2, 3, 0},
        {"RnnGrad",
         FUSED,
         "direction=\"both\"",
         {one, one, one, 0, 0, 0, 0, 0, dy},
         9,
         3,
         0},
        {"RnnGrad", FUSED, NULL, {one, one, one, 0, 0, 0, 0, 0, x}, 9, 3, 0},
        {"GruGrad", FUSED, NULL, {one, one, one, 0, 0, 0, 0, 0, dy}, 9, 4, 0},
        {"LstmGrad", FUSED, NULL, {one, one, one, 0, 0, 0, 0, 0, dy}, 9, 5, 0},
        {"GridSampleGrad", FUSED, NULL, {dy, dy, dy}, 3, 2, 0},
    };

    refuse_all(bad, SB_COUNT(bad));
}

static void test_shapes_that_do_not_fit(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);
    const sb_tensor *y = test_f32("3x2", 1, 2, 3, 4, 5, 6);
    const test_node bad[] = {
        {"SumTo", FUSED, NULL, {x, test_i64("1", 2)}, 2, 1, 2},
        {"SumTo", FUSED, NULL, {x, test_i64("3", 1, 2, 3)}, 2, 1, 2},
        {"SumTo", FUSED, NULL, {x, test_i64("1", -1)}, 2, 1, 2},
        {"SumTo", FUSED, NULL, {x, test_i64("1", 2)}, 2, 1, 0},
        {"EwGrad", FUSED, "of=\"Relu\"", {x, y}, 2, 1, 0},
        {"EwGrad", FUSED, "of=\"Conv\"", {x, x}, 2, 1, 0},
        {"EwGrad", FUSED, "of=\"Nothing\"", {x, x}, 2, 1, 0},
        {"EwGrad", FUSED, NULL, {x, x}, 2, 1, 0},
        {"ClipGrad", FUSED, NULL, {x, x, y}, 3, 1, 0},
        {"SoftmaxGrad", FUSED, "axis=2", {x, x}, 2, 1, 0},
        {"SoftmaxGrad", FUSED, NULL, {x, test_f32("3", 1, 2, 3)}, 2, 1, 0},
        {"NormGrad", FUSED, NULL, {x, x, test_f32("2", 1, 1)}, 3, 1, 0},
        {"NormGrad", FUSED, "axis=3", {x, x, test_f32("3", 1, 1, 1)}, 3, 1, 0},
    };

    refuse_all(bad, SB_COUNT(bad));
}

static void test_indices_that_do_not_fit(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);
    const test_node bad[] = {
        {"GatherGrad",
         FUSED,
         NULL,
         {x, test_i64("2", 1, 3), test_i64("2", 3, 3)},
         3,
         1,
         6},
        {"GatherGrad",
         FUSED,
         NULL,
         {x, test_i64("2", 1, 1), test_i64("2", 3, 4)},
         3,
         1,
         6},
        {"GatherGrad",
         FUSED,
         "axis=2",
         {x, test_i64("2", 1, 1), test_i64("2", 3, 3)},
         3,
         1,
         6},
    };

    refuse_all(bad, SB_COUNT(bad));
}

static void test_slices_that_do_not_fit(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);
    const test_node bad[] = {
        {"SliceGrad",
         FUSED,
         NULL,
         {x, test_i64("2", 2, 6), test_i64("1", 0), test_i64("1", 9),
          test_i64("1", 1)},
         5,
         1,
         62},
        {"SliceGrad",
         FUSED,
         NULL,
         {x, test_i64("2", 2, 6), test_i64("1", 0), test_i64("1", 3),
          test_i64("1", 5)},
         5,
         1,
         62},
        {"SliceGrad",
         FUSED,
         NULL,
         {x, test_i64("2", 2, 3), test_i64("1", 0), test_i64("1", 3),
          test_i64("1", 1), test_i64("1", 0)},
         6,
         1,
         62},
        {"SliceGrad",
         FUSED,
         NULL,
         {x, test_i64("1", 6), test_i64("1", 0), test_i64("1", 3)},
         4,
         1,
         62},
        {"SliceGrad",
         FUSED,
         NULL,
         {x, test_i64("2", 2, 6), test_i64("2", 1, 3), test_i64("2", 9, 6),
          test_i64("2", 1, 1)},
         5,
         1,
         62},
        {"SliceGrad",
         FUSED,
         NULL,
         {x, test_i64("2", 2, 6), test_i64("2", 0, 3), test_i64("2", 2, 6),
          test_i64("1", 1)},
         5,
         1,
         0},
    };

    refuse_all(bad, SB_COUNT(bad));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_and_recurrent_layers),
        cmocka_unit_test(test_functions_of_one_element),
        cmocka_unit_test(test_parts_and_rows),
        cmocka_unit_test(test_quantizers_pass_what_is_inside),
        cmocka_unit_test(test_weights_of_few_bits_are_unpacked),
        cmocka_unit_test(test_layers_that_do_not_fit),
        cmocka_unit_test(test_shapes_that_do_not_fit),
        cmocka_unit_test(test_indices_that_do_not_fit),
        cmocka_unit_test(test_slices_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("grad_ops", tests, NULL, NULL);
}
