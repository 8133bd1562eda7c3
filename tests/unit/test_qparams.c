/* Scales and zero points against values worked out by hand. */
#include "sbtest.h"

#include <float.h>

#include "quant/quantize/qparams.h"

static void test_bounds_of_every_width(void **state)
{
    (void)state;
    assert_int_equal(sb_qmin(8, true), -128);
    assert_int_equal(sb_qmax(8, true), 127);
    assert_int_equal(sb_qmin(8, false), 0);
    assert_int_equal(sb_qmax(8, false), 255);
    assert_int_equal(sb_qmin(1, true), -1);
    assert_int_equal(sb_qmax(1, true), 0);
    assert_int_equal(sb_qmax(1, false), 1);
    assert_int_equal(sb_qmin(16, true), -32768);
    assert_int_equal(sb_qmax(16, false), 65535);
}

static const struct {
    const char *what;
    sb_range range;
    int bits;
    bool symmetric;
    double scale, zero;
} cases[] = {
    {"affine", {-1, 4}, 8, false, 5.0 / 255, 51},
    {"affine, above zero", {1, 5.1F}, 8, false, 0.02, 0},
    {"affine, below zero", {-5.1F, -1}, 8, false, 0.02, 255},
    {"symmetric by its top", {-1, 2.55F}, 8, true, 0.02, 0},
    {"symmetric by its bottom", {-2.55F, 1}, 8, true, 0.02, 0},
    {"one bit", {-1, 1}, 1, true, 2, 0},
    {"sixteen bits", {-1, 1}, 16, false, 2.0 / 65535, 32768},
    {"nothing", {0, 0}, 8, false, 1e-6, 0},
    {"nothing, symmetric", {0, 0}, 4, true, 1e-6, 0},
    {"too little", {-1e-6F, 1e-6F}, 8, false, 1e-6, 1},
    {"everything", {-FLT_MAX, FLT_MAX}, 8, false, 2.0 * FLT_MAX / 255, 128},
    {"everything in a bit", {-FLT_MAX, FLT_MAX}, 1, false, FLT_MAX, 1},
    {"everything, symmetric", {-FLT_MAX, 0}, 8, true, FLT_MAX / 127.5, 0},
};

static void test_scales_and_zero_points_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        float scale, zero;
        sb_qparams_from_range(cases[i].range, cases[i].bits, cases[i].symmetric,
                              &scale, &zero);
        assert_close(cases[i].what, (double)scale / cases[i].scale, 1, 3e-7);
        assert_close(cases[i].what, zero, cases[i].zero, 0);
    }
}

/* The original, in float32, on activations of a real network: range, scale and
 * zero point as PyTorch has them. */
static void test_float_arithmetic_is_that_of_pytorch(void **state)
{
    float scale, zero;

    (void)state;
    sb_qparams_from_range((sb_range){-2.1178666F, 2.64F}, 8, false, &scale,
                          &zero);
    assert_true(scale == (2.64F - -2.1178666F) / 255.0F);
    assert_true(zero == 114.0F);
    sb_qparams_from_range((sb_range){-2.1178666F, 2.64F}, 4, true, &scale,
                          &zero);
    assert_true(scale == 2.64F * 2.0F / 15.0F);
}

static void test_channels_have_scales_of_their_own(void **state)
{
    sb_qparams q;
    sb_range ranges[] = {{-1, 1.55F}, {0, 2.55F}, {-2.55F, 0}};

    (void)state;
    assert_ok(sb_qparams_init(test_ctx(), &q, 3, 1, 8, false));
    assert_true(q.scale[2] == 1.0F && q.zero_point[2] == 0.0F);
    assert_int_equal(q.qmax, 255);
    assert_int_equal(q.axis, 1);
    sb_qparams_set(&q, ranges);
    assert_close("scale", q.scale[0], 0.01, 1e-8);
    assert_close("zero", q.zero_point[0], 100, 0);
    assert_close("scale", q.scale[1], 0.01, 1e-8);
    assert_close("zero", q.zero_point[2], 255, 0);
    sb_qparams_free(test_ctx(), &q);
    sb_qparams_free(test_ctx(), &q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds_of_every_width),
        cmocka_unit_test(test_scales_and_zero_points_by_hand),
        cmocka_unit_test(test_float_arithmetic_is_that_of_pytorch),
        cmocka_unit_test(test_channels_have_scales_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
