/* Resize: values of the ONNX documentation's examples and ONNX Runtime, and
 * what must hold for any correct interpolation (ramps stay ramps, parabolas
 * stay parabolas). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "sbtest.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

static sb_tensor *resize(const sb_tensor *x, const char *scales,
                         const char *attrs)
{
    char text[512];

    (void)snprintf(text, sizeof text,
                   "graph g(x: %s[n,c,h,w]) -> (y) {\n"
                   "  k: f32[4] = [1, 1, %s]\n"
                   "  y = Resize(x, _, k) {%s}\n}\n",
                   sb_dtype_get(x->dtype)->name, scales, attrs);
    return test_run1(text, INPUTS(x));
}

static sb_tensor *square(void)
{
    return test_f32("1x1x2x2", 1, 2, 3, 4);
}

static void test_examples_of_the_documentation(void **state)
{
    (void)state;
    assert_tensor("nearest", resize(square(), "2, 3", "mode=\"nearest\""),
                  test_f32("1x1x4x6", 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2, 3, 3,
                           3, 4, 4, 4, 3, 3, 3, 4, 4, 4),
                  0);
    assert_tensor("linear", resize(square(), "2, 2", "mode=\"linear\""),
                  test_f32("1x1x4x4", 1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5,
                           2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4),
                  1e-6);
    assert_tensor("smaller",
                  resize(test_f32("1x1x2x4", 1, 2, 3, 4, 5, 6, 7, 8),
                         "0.6, 0.6", "mode=\"linear\""),
                  test_f32("1x1x1x2", 2.6666665, 4.3333331), 1e-6);
    assert_tensor(
        "cubic, one row",
        resize(test_f32("1x1x1x4", 1, 2, 3, 4), "1, 2", "mode=\"cubic\""),
        test_f32("1x1x1x8", 0.89453125, 1.19140625, 1.66796875, 2.296875,
                 2.703125, 3.33203125, 3.80859375, 4.10546875),
        1e-6);
}

/* Aligned corners keep a plane exactly a plane. */
static void test_aligned_corners_keep_planes(void **state)
{
    (void)state;
    const char *const modes[] = {"linear", "cubic"};
    double v[5 * 7];

    for (int i = 0; i < 35; i++)
        v[i] = 3.0 * (i / 7) - 2.0 * (i % 7);
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "1x1x5x7", v);
    for (size_t m = 0; m < SB_COUNT(modes); m++) {
        char attrs[128];
        (void)snprintf(attrs, sizeof attrs,
                       "mode=\"%s\", cubic_coeff_a=-0.5, "
                       "coordinate_transformation_mode=\"align_corners\"",
                       modes[m]);
        sb_tensor *y = resize(x, "2.2, 2", attrs); /* 11 x 14 */
        const float *got = y->data;
        assert_int_equal(sb_tensor_count(y), 11 * 14);
        /* The cubic bends near the border, where it repeats the edge. */
        int skip = m ? 5 : 0;
        for (int i = skip; i < 11 - skip; i++)
            for (int j = skip; j < 14 - skip; j++)
                assert_close(modes[m], got[i * 14 + j],
                             3.0 * i * 4 / 10 - 2.0 * j * 6 / 13, 1e-5);
    }
}

/* With a = -0.5 cubic convolution reproduces polynomials of degree 2. */
static void test_cubic_keeps_parabolas(void **state)
{
    (void)state;
    double v[16];

    for (int i = 0; i < 16; i++)
        v[i] = (i - 6.0) * (i - 6.0);
    sb_tensor *y = resize(test_tensor(SB_DTYPE_F32, "1x1x1x16", v), "1, 3",
                          "mode=\"cubic\", cubic_coeff_a=-0.5");
    for (int i = 9; i < 39; i++) {
        double at = (i + 0.5) / 3 - 0.5 - 6;
        assert_close("parabola", ((float *)y->data)[i], at * at, 1e-4);
    }
}

/* Antialiasing weighs all pixels: the mean stays. */
static void test_antialiasing_keeps_the_mean(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("1x1x1x8", 0, 0, 0, 8, 8, 0, 0, 0);
    sb_tensor *y = resize(x, "1, 0.25", "mode=\"linear\", antialias=1");

    /* Triangles of half width 4 around 1.5 and 5.5, cut to whole weights. */
    assert_tensor("triangle", y, test_f32("1x1x1x2", 2, 2), 1e-5);
}

static void test_rounding_of_ties(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("1x1x1x4", 0, 1, 2, 3);
    static const struct {
        const char *mode;
        double want[2];
    } cases[] = {{"round_prefer_floor", {0, 2}},
                 {"round_prefer_ceil", {1, 3}},
                 {"floor", {0, 2}},
                 {"ceil", {1, 3}}};

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char attrs[128]; /* positions 0.5 and 2.5 */
        (void)snprintf(attrs, sizeof attrs, "nearest_mode=\"%s\"",
                       cases[i].mode);
        assert_tensor(cases[i].mode, resize(x, "1, 0.5", attrs),
                      test_tensor(SB_DTYPE_F32, "1x1x1x2", cases[i].want), 0);
    }
}

/* Twice as long, but not every element twice. */
static void test_almost_doubled(void **state)
{
    (void)state;
    assert_tensor("ceil(o / 2.3)",
                  resize(test_f32("1x1x1x3", 0, 1, 2), "1, 2.3",
                         "nearest_mode=\"ceil\", "
                         "coordinate_transformation_mode=\"asymmetric\""),
                  test_f32("1x1x1x6", 0, 1, 1, 2, 2, 2), 0);
}

static void test_crop_and_resize_by_hand(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("1x1x1x5", 0, 1, 2, 3, 4);

    assert_tensor("half inside",
                  test_run1("graph g(x: f32[1,1,1,5]) -> (y) {\n"
                            "  r: f32[2] = [0.5, 1.5]\n  s: i64[1] = [3]\n"
                            "  y = Resize(x, r, _, s) {axes=[3], "
                            "mode=\"linear\", extrapolation_value=9.0, "
                            "coordinate_transformation_mode="
                            "\"tf_crop_and_resize\"}\n}\n",
                            INPUTS(x)),
                  test_f32("1x1x1x3", 2, 4, 9), 0);
}

static void test_aspect_ratio(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x1x4x2", 1);
    const char *const text =
        "graph g(x: f32[1,1,4,2]) -> (y) {\n  s: i64[2] = [8, 7]\n"
        "  y = Resize(x, _, _, s) {axes=[2,3], "
        "keep_aspect_ratio_policy=\"%s\"}\n}\n";
    char buf[256];

    (void)snprintf(buf, sizeof buf, text, "not_larger");
    assert_int_equal(test_run1(buf, INPUTS(x))->dims[3], 4);
    (void)snprintf(buf, sizeof buf, text, "not_smaller");
    assert_int_equal(test_run1(buf, INPUTS(x))->dims[2], 14);
}

static void test_other_types(void **state)
{
    (void)state;
    const double v[] = {10, 20}, twice[] = {10, 10, 20, 20};
    const double between[] = {10, 12, 17, 20}; /* 12.5 and 17.5 cut */

    assert_tensor("nearest u8",
                  resize(test_tensor(SB_DTYPE_U8, "1x1x1x2", v), "1, 2", ""),
                  test_tensor(SB_DTYPE_U8, "1x1x1x4", twice), 0);
    assert_tensor("linear u8",
                  resize(test_tensor(SB_DTYPE_U8, "1x1x1x2", v), "1, 2",
                         "mode=\"linear\""),
                  test_tensor(SB_DTYPE_U8, "1x1x1x4", between), 0);
}

static void test_threads_do_not_change_the_bytes(void **state)
{
    (void)state;
    sb_tensor *x = test_random(SB_DTYPE_F32, "2x5x37x41", 3);
    const char *const modes[] = {"nearest", "linear", "cubic"};

    for (size_t m = 0; m < SB_COUNT(modes); m++) {
        char attrs[64];
        (void)snprintf(attrs, sizeof attrs, "mode=\"%s\"", modes[m]);
        sb_ctx_set_threads(test_ctx(), 1);
        sb_tensor *one = resize(x, "2.3, 0.7", attrs);
        sb_ctx_set_threads(test_ctx(), 4);
        assert_tensor(modes[m], resize(x, "2.3, 0.7", attrs), one, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples_of_the_documentation),
        cmocka_unit_test(test_aligned_corners_keep_planes),
        cmocka_unit_test(test_cubic_keeps_parabolas),
        cmocka_unit_test(test_antialiasing_keeps_the_mean),
        cmocka_unit_test(test_rounding_of_ties),
        cmocka_unit_test(test_almost_doubled),
        cmocka_unit_test(test_crop_and_resize_by_hand),
        cmocka_unit_test(test_aspect_ratio),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_threads_do_not_change_the_bytes),
    };
    return cmocka_run_group_tests_name("resize", tests, NULL, NULL);
}
