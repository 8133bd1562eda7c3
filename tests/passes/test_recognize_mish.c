/* Pass recognize_mish. */
#include "passtest.h"

static const pass_case cases[] = {
    {"mish",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "p = Softplus(x)\n"
                "t = Tanh(p)\n"
                "y = Mul(x, t)\n"),

     "y = Mish(x)\n", false},
    {"written out",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "o: f32[] = 1\n"
                "e = Exp(x)\n"
                "d = Add(e, o)\n"
                "p = Log(d)\n"
                "t = Tanh(p)\n"
                "y = Mul(t, x)\n"),

     "y = Mish(x)\n", false},
    {"of another value",
     TEST_GRAPH("x: f32[2,8], z: f32[2,8]", "y: f32[2,8]",
                "p = Softplus(x)\n"
                "t = Tanh(p)\n"
                "y = Mul(z, t)\n"),
     NULL, false},
    {"softplus is used elsewhere",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], z: f32[2,8]",
                "p = Softplus(x)\n"
                "t = Tanh(p)\n"
                "y = Mul(x, t)\n"
                "z = Neg(p)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_mish", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_mish", tests, NULL, NULL);
}
