/* Pass write_silu. */
#include "passtest.h"

static const pass_case cases[] = {
    {"as a quotient",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "o: f32[] = 1\n"
                "n = Neg(x)\n"
                "e = Exp(n)\n"
                "d = Add(o, e)\n"
                "y = Div(x, d)\n"),

     "y_Sigmoid = Sigmoid(x)\n"
     "y = Mul(x, y_Sigmoid)\n",
     false},
    {"from the left",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "s = Sigmoid(x)\n"
                "y = Mul(s, x)\n"),

     "y_Sigmoid = Sigmoid(x)\n"
     "y = Mul(x, y_Sigmoid)\n",
     false},
    {"a gate of another value",
     TEST_GRAPH("x: f32[2,8], z: f32[2,8]", "y: f32[2,8]",
                "s = Sigmoid(x)\n"
                "y = Mul(z, s)\n"),
     NULL, false},
};

static void test_forms_of_silu_become_one_product(void **state)
{
    (void)state;
    test_passes("write_silu", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_of_silu_become_one_product),
    };

    return cmocka_run_group_tests_name("write_silu", tests, NULL, NULL);
}
