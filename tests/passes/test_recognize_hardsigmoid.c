/* Pass recognize_hardsigmoid. */
#include "passtest.h"

static const pass_case cases[] = {
    {"divided by 6",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 3\n"
                "l: f32[] = 0\n"
                "u: f32[] = 6\n"
                "b = Add(x, a)\n"
                "c = Clip(b, l, u)\n"
                "y = Div(c, u)\n"),
     "y = HardSigmoid(x) {alpha=0.16666667, beta=0.5}\n", false},
    {"times 1/6",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 3\n"
                "l: f32[] = 0\n"
                "u: f32[] = 6\n"
                "s: f32[] = 0.16666667\n"
                "b = Add(a, x)\n"
                "c = Clip(b, l, u)\n"
                "y = Mul(c, s)\n"),
     "y = HardSigmoid(x) {alpha=0.16666667, beta=0.5}\n", false},
    {"relu and min",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 3\n"
                "u: f32[] = 6\n"
                "b = Add(x, a)\n"
                "r = Relu(b)\n"
                "c = Min(r, u)\n"
                "y = Div(c, u)\n"),
     "y = HardSigmoid(x) {alpha=0.16666667, beta=0.5}\n", false},
    {"clipped elsewhere",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 3\n"
                "l: f32[] = 0\n"
                "u: f32[] = 5\n"
                "s: f32[] = 6\n"
                "b = Add(x, a)\n"
                "c = Clip(b, l, u)\n"
                "y = Div(c, s)\n"),
     NULL, false},
    {"double precision, which runtimes lack",
     TEST_GRAPH("x: f64[2,8]", "y: f64[2,8]",
                "a: f64[] = 3\n"
                "l: f64[] = 0\n"
                "u: f64[] = 6\n"
                "b = Add(x, a)\n"
                "c = Clip(b, l, u)\n"
                "y = Div(c, u)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_hardsigmoid", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_hardsigmoid", tests, NULL,
                                       NULL);
}
