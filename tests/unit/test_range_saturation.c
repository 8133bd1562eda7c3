/* Ranges before functions that are flat far from 0: a convolution that copies
 * its input twice (one of a single channel stays in float), numbers from -40 to
 * 20, and where the range must end.  The ends were computed with Python from
 * the functions' definitions. */
#include "quanttest.h"

#include <math.h>

#define GRAPH(text)                                                \
    "graph main(x: f32[N,1,1,4]) -> (y) {\n"                       \
    "  w: f32[2,1,1,1] = [1, 1]\n  c = Conv(x, w) \"conv\"\n" text \
    "  u: f32[1,2,1,1] = [1, 1]\n  y = Conv(a, u) \"last\"\n}\n"

static const struct {
    const char *what, *target, *graph;
    double lo, hi;
} cases[] = {
    {"silu", "onnxruntime-x86", GRAPH("  s = Sigmoid(c)\n  a = Mul(c, s)\n"),
     -5.6452926, 20},
    {"silu, factors the other way round", "onnxruntime-x86",
     GRAPH("  s = Sigmoid(c)\n  a = Mul(s, c)\n"), -5.6452926, 20},
    {"silu of another target", "qnn",
     GRAPH("  s = Sigmoid(c)\n  a = Mul(c, s)\n"), -5.6452926, 20},
    {"gelu", "onnxruntime-x86", GRAPH("  a = Gelu(c)\n"), -2.3978004, 20},
    {"hard swish", "onnxruntime-x86", GRAPH("  a = HardSwish(c)\n"), -2.9595023,
     20},
    {"a sigmoid in 256 steps", "onnxruntime-x86", GRAPH("  a = Sigmoid(c)\n"),
     -6.9304948, 5.8299255},
    {"a second reader wants all of it", "onnxruntime-x86",
     GRAPH("  s = Sigmoid(c)\n  p = Mul(c, s)\n  a = Add(p, c)\n"), -40, 20},
    {"the gate is of another value", "onnxruntime-x86",
     GRAPH("  v: f32[2,1,1,1] = [2, 2]\n  d = Conv(x, v)\n  s = Sigmoid(d)\n  "
           "a = "
           "Mul(c, s)\n"),
     -40, 20},
    {"nothing flat", "onnxruntime-x86", GRAPH("  a = LeakyRelu(c)\n"), -40, 20},
};

static double scale_of(const sb_quant_model *qm, const char *value,
                       double *zero_point)
{
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);
        if (strcmp(q->value, value) == 0 && q->n == 1) {
            *zero_point = (double)q->zero_point[0];
            return (double)q->scale[0];
        }
    }
    fail_msg("no quantizer of '%s'", value);
    return 0;
}

static void test_ranges_end_where_functions_saturate(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const sb_tensor *x[] = {test_f32("1x1x1x4", -40, -1, 3, 20), NULL};
        sb_quant_model *qm =
            test_quant(cases[i].graph, TEST_W8 TEST_A8, cases[i].target);
        double zero = 0, width = cases[i].hi - cases[i].lo;

        test_calibrate(qm, NULL, x);
        assert_close(cases[i].what, scale_of(qm, "c", &zero), width / 255,
                     1e-6 * width);
        assert_close(cases[i].what, zero, nearbyint(-cases[i].lo / width * 255),
                     0);
        sb_quant_model_free(qm);
    }
}

/* A sigmoid whose result stays float tells small numbers apart. */
static void test_float_sigmoid(void **state)
{
    (void)state;
    const sb_tensor *x[] = {test_f32("1x1x1x4", -40, -1, 3, 20), NULL};
    sb_quant_model *qm =
        test_quant("graph main(x: f32[N,1,1,4]) -> (y) {\n"
                   "  w: f32[2,1,1,1] = [1, 1]\n  c = Conv(x, w)\n"
                   "  y = Sigmoid(c)\n}\n",
                   TEST_W8 TEST_A8, "onnxruntime-x86");
    double zero = 0;

    test_calibrate(qm, NULL, x);
    assert_close("scale", scale_of(qm, "c", &zero), 60.0 / 255, 1e-6);
    sb_quant_model_free(qm);
}

/* All below the turn, all above it, and hardly any range at all. */
static void test_odd_ranges(void **state)
{
    (void)state;
    static const struct {
        double lo, hi, want;
    } odd[] = {{-1, 5, 6}, {-60, -50, 60}, {0, 0, 0}};

    for (size_t i = 0; i < SB_COUNT(odd); i++) {
        const sb_tensor *x[] = {
            test_f32("1x1x1x4", odd[i].lo, odd[i].lo, odd[i].hi, odd[i].hi),
            NULL};
        sb_quant_model *qm =
            test_quant(GRAPH("  s = Sigmoid(c)\n  a = Mul(c, s)\n"),
                       TEST_W8 TEST_A8, "onnxruntime-x86");
        double zero = 0;

        test_calibrate(qm, NULL, x);
        double width = scale_of(qm, "c", &zero) * 255;
        assert_true(width > 0 && width <= odd[i].want + 1e-3);
        sb_quant_model_free(qm);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_end_where_functions_saturate),
        cmocka_unit_test(test_float_sigmoid),
        cmocka_unit_test(test_odd_ranges),
    };
    return cmocka_run_group_tests_name("range_saturation", tests, NULL, NULL);
}
