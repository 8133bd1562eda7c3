/* Sampling and detection operators: cases small enough to do by hand. */
#include <stdio.h>

#include "sbtest.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

static void test_identity_grid(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "2x3x4x5", 5);
    const char *const text =
        "graph g(x: f32[2,3,4,5]) -> (y) {\n"
        "  t: f32[2,2,3] = [1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0]\n"
        "  s: i64[4] = [2, 3, 4, 5]\n"
        "  g = AffineGrid(t, s) {align_corners=%d}\n"
        "  y = GridSample(x, g) {align_corners=%d, mode=\"%s\"}\n}\n";
    const char *const modes[] = {"linear", "nearest", "cubic"};

    for (int align = 0; align < 2; align++)
        for (size_t m = 0; m < SB_COUNT(modes); m++) {
            char buf[512];
            (void)snprintf(buf, sizeof buf, text, align, align, modes[m]);
            assert_tensor(modes[m], test_run1(buf, INPUTS(x)), x, 1e-5);
        }
}

static void test_grid_padding(void **state)
{
    (void)state;
    /* x = 1.5 of [-1, 1] is pixel 1.25 beyond the middle of four. */
    static const struct {
        const char *padding;
        double want;
    } cases[] = {{"zeros", 0}, {"border", 4}, {"reflection", 3}};

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[1,1,1,4]) -> (y) {\n"
                       "  g: f32[1,1,1,2] = [1.75, 0]\n"
                       "  y = GridSample(x, g) {mode=\"nearest\", "
                       "padding_mode=\"%s\"}\n}\n",
                       cases[i].padding);
        assert_tensor(cases[i].padding,
                      test_run1(text, INPUTS(test_f32("1x1x1x4", 1, 2, 3, 4))),
                      test_tensor(SB_DTYPE_F32, "1x1x1x1", &cases[i].want), 0);
    }
}

static void test_grids_of_volumes_are_sampled(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x2x3x4x5", 6);

    assert_tensor("identity",
                  test_run1("graph g(x: f32[1,2,3,4,5]) -> (y) {\n"
                            "  t: f32[1,3,4] = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, "
                            "1, 0]\n  s: i64[5] = [1, 2, 3, 4, 5]\n"
                            "  g = AffineGrid(t, s)\n"
                            "  y = GridSample(x, g)\n}\n",
                            INPUTS(x)),
                  x, 1e-5);
}

static void test_roi_align(void **state)
{
    (void)state;
    double v[16];

    for (int i = 0; i < 16; i++)
        v[i] = i;
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "1x1x4x4", v);
    /* The map is linear, so a bin is the value at its center. */
    assert_tensor("bins of a plane",
                  test_run1("graph g(x: f32[1,1,4,4]) -> (y) {\n"
                            "  r: f32[1,4] = [0.5, 0.5, 3.5, 3.5]\n"
                            "  b: i64[1] = [0]\n"
                            "  y = RoiAlign(x, r, b) {output_height=2, "
                            "output_width=2, sampling_ratio=2}\n}\n",
                            INPUTS(x)),
                  test_f32("1x1x2x2", 3.75, 5.25, 9.75, 11.25), 1e-5);
    assert_status(test_try_run("graph g(x: f32[1,1,4,4]) -> (y) {\n"
                               "  r: f32[1,4] = [0, 0, 3, 3]\n"
                               "  b: i64[1] = [1]\n"
                               "  y = RoiAlign(x, r, b)\n}\n",
                               INPUTS(x)),
                  SB_BAD_DATA);
    assert_error_has("batch index 1");
    assert_tensor("maximum",
                  test_run1("graph g(x: f32[1,1,4,4]) -> (y) {\n"
                            "  r: f32[1,5] = [0, 0, 0, 1, 2]\n"
                            "  y = MaxRoiPool(x, r) {pooled_shape=[1,2]}\n}\n",
                            INPUTS(x)),
                  test_f32("1x1x1x2", 8, 9), 0);
}

/* Three boxes: the second overlaps the first by 0.8, the third is apart. */
static void test_overlapping_boxes_are_suppressed(void **state)
{
    (void)state;
    const char *const text =
        "graph g(s: f32[1,1,3]) -> (y) {\n"
        "  b: f32[1,3,4] = [0, 0, 1, 1, 0, 0.1, 1, 1.1, 0, 10, 1, 11]\n"
        "  n: i64[1] = [3]\n  t: f32[1] = [%g]\n  m: f32[1] = [0.5]\n"
        "  y = NonMaxSuppression(b, s, n, t, m)\n}\n";
    char buf[512];
    sb_tensor *s = test_f32("1x1x3", 0.8, 0.9, 0.8);

    (void)snprintf(buf, sizeof buf, text, 0.5);
    assert_tensor("the overlapping one goes", test_run1(buf, INPUTS(s)),
                  test_i64("2x3", 0, 0, 1, 0, 0, 2), 0);
    (void)snprintf(buf, sizeof buf, text, 0.9);
    assert_tensor("equal scores by index", test_run1(buf, INPUTS(s)),
                  test_i64("3x3", 0, 0, 1, 0, 0, 0, 0, 0, 2), 0);
    assert_tensor("none above the threshold",
                  test_run1(buf, INPUTS(test_f32("1x1x3", 0.5, 0.1, 0))),
                  test_tensor(SB_DTYPE_I64, "0x3", NULL), 0);
}

static void test_unpool_and_columns(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("1x1x1x2", 5, 6);

    assert_tensor("unpool",
                  test_run1("graph g(x: f32[1,1,1,2]) -> (y) {\n"
                            "  i: i64[1,1,1,2] = [1, 6]\n"
                            "  y = MaxUnpool(x, i) {kernel_shape=[2,2], "
                            "strides=[2,2]}\n}\n",
                            INPUTS(x)),
                  test_f32("1x1x2x4", 0, 5, 0, 0, 0, 0, 6, 0), 0);
    assert_status(test_try_run("graph g(x: f32[1,1,1,2]) -> (y) {\n"
                               "  i: i64[1,1,1,2] = [1, 8]\n"
                               "  y = MaxUnpool(x, i) {kernel_shape=[2,2], "
                               "strides=[2,2]}\n}\n",
                               INPUTS(x)),
                  SB_BAD_DATA);
    /* Pads that have no opposite number give no size. */
    assert_true(test_try_run("graph g(x: f32[1,1,1,2]) -> (y) {\n"
                             "  i: i64[1,1,1,2] = [0, 1]\n"
                             "  y = MaxUnpool(x, i) {kernel_shape=[2,2], "
                             "pads=[-9223372036854775808,0,0,0]}\n}\n",
                             INPUTS(x)) != SB_OK);
    /* Blocks [1,2] at 0 and 1 of a row of three meet in the middle. */
    assert_tensor("columns",
                  test_run1("graph g(x: f32[1,2,2]) -> (y) {\n"
                            "  i: i64[2] = [1, 3]\n  b: i64[2] = [1, 2]\n"
                            "  y = Col2Im(x, i, b)\n}\n",
                            INPUTS(test_f32("1x2x2", 1, 2, 10, 20))),
                  test_f32("1x1x1x3", 1, 12, 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity_grid),
        cmocka_unit_test(test_grid_padding),
        cmocka_unit_test(test_grids_of_volumes_are_sampled),
        cmocka_unit_test(test_roi_align),
        cmocka_unit_test(test_overlapping_boxes_are_suppressed),
        cmocka_unit_test(test_unpool_and_columns),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
