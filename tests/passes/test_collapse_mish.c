/* Pass collapse_mish. */
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

static void test_cases(void **state)
{
    (void)state;
    test_passes("collapse_mish", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests_name("collapse_mish", tests, NULL, NULL);
}
