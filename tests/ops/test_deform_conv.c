/* DeformConv: without offsets it is Conv; hand values for a moved tap, a mask,
 * and what lies outside. */
#include "sbtest_node.h"

static void test_like_conv(void **state)
{
    (void)state;
    sb_rng rng;
    sb_tensor *plain, *moved;

    sb_rng_init(&rng, 4);
    sb_tensor *x = test_floats(&rng, 4, (int64_t[]){2, 6, 7, 8});
    sb_tensor *w = test_floats(&rng, 4, (int64_t[]){4, 3, 3, 2});
    sb_tensor *b = test_floats(&rng, 1, (int64_t[]){4});
    test_node conv = {.op = "Conv",
                      .in = {x, w, b},
                      .n_in = 3,
                      .n_out = 1,
                      .attrs = "group=2, pads=[1,0,1,1], strides=[2,1]"};
    test_node deform = {
        .op = "DeformConv",
        .attrs = "group=2, pads=[1,0,1,1], strides=[2,1], offset_group=3",
        .in = {x, w, test_tensor(SB_DTYPE_F32, "2x36x4x8", NULL), b},
        .n_in = 4,
        .n_out = 1,
    };

    test_node_run(&conv, &plain);
    test_node_threads(&deform, &moved);
    assert_tensor("as Conv", moved, plain, 1e-5);
}

/* One tap of weight 1 over {1, 2, 4, 8} (2 x 2), moved by half a step. */
static void test_moved_tap(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {
        .op = "DeformConv",
        .in = {test_f32("1x1x2x2", 1, 2, 4, 8), test_f32("1x1x1x1", 1),
               test_f32("1x2x2x2", 0.5, 0, 0, -3, 0.5, 0.25, -0.5, 0), NULL,
               test_f32("1x1x2x2", 1, 2, 1, 1)},
        .n_in = 5,
        .n_out = 1,
    };

    /* (0.5, 0.5): the mean; (0, 1.25): 2 fades out, twice; (1, -0.5): half of
     * 4; (-2, 1): nothing. */
    test_node_run(&node, &y);
    assert_tensor("samples", y, test_f32("1x1x2x2", 3.75, 3, 2, 0), 1e-6);
}

static void test_bad_models(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "DeformConv",
                      .n_in = 3,
                      .n_out = 1,
                      .in = {test_random(SB_DTYPE_F32, "1x2x3x3", 1),
                             test_random(SB_DTYPE_F32, "1x2x2x2", 1),
                             test_random(SB_DTYPE_F32, "1x8x2x3", 1)}};

    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "offset_group=3";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = "group=2";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_conv),
        cmocka_unit_test(test_moved_tap),
        cmocka_unit_test(test_bad_models),
    };
    return cmocka_run_group_tests_name("deform_conv", tests, NULL, NULL);
}
