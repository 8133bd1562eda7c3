/* Pass recognize_hardswish. */
#include "passtest.h"

static const pass_case cases[] = {
    {"divided at the end",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 3\n"
                "l: f32[] = 0\n"
                "u: f32[] = 6\n"
                "b = Add(x, a)\n"
                "c = Clip(b, l, u)\n"
                "d = Mul(x, c)\n"
                "y = Div(d, u)\n"),

     "y = HardSwish(x)\n", false},
    {"divided before",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 3\n"
                "l: f32[] = 0\n"
                "u: f32[] = 6\n"
                "b = Add(x, a)\n"
                "c = Clip(b, l, u)\n"
                "d = Div(c, u)\n"
                "y = Mul(x, d)\n"),

     "y = HardSwish(x)\n", false},
    {"x divided",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 3\n"
                "l: f32[] = 0\n"
                "u: f32[] = 6\n"
                "b = Add(x, a)\n"
                "c = Clip(b, l, u)\n"
                "d = Div(x, u)\n"
                "y = Mul(c, d)\n"),

     "y = HardSwish(x)\n", false},
    {"by HardSigmoid",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "s = HardSigmoid(x) {alpha=0.166666672}\n"
                "y = Mul(x, s)\n"),

     "y = HardSwish(x)\n", false},
    {"by HardSigmoid of the default slope",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "s = HardSigmoid(x)\n"
                "y = Mul(x, s)\n"),
     NULL, false},
    {"a squeeze and excite gate",
     TEST_GRAPH("x: f32[2,8], z: f32[2,8]", "y: f32[2,8]",
                "s = HardSigmoid(z) {alpha=0.166666672}\n"
                "y = Mul(x, s)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_hardswish", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_hardswish", tests, NULL,
                                       NULL);
}
