/* Pass recognize_silu. */
#include "passtest.h"

static const pass_case cases[] = {
    {"silu",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "s = Sigmoid(x)\n"
                "y = Mul(x, s)\n"),

     "y = Swish(x)\n", false},
    {"from the left",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "s = Sigmoid(x)\n"
                "y = Mul(s, x)\n"),

     "y = Swish(x)\n", false},
    {"written out",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "o: f32[] = 1\n"
                "n = Neg(x)\n"
                "e = Exp(n)\n"
                "d = Add(o, e)\n"
                "y = Div(x, d)\n"),

     "y = Swish(x)\n", false},
    {"quick gelu",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[] = 1.702\n"
                "m = Mul(x, a)\n"
                "s = Sigmoid(m)\n"
                "y = Mul(x, s)\n"),

     "y = Swish(x) {alpha=1.702}\n", false},
    {"a gate of another value",
     TEST_GRAPH("x: f32[2,8], z: f32[2,8]", "y: f32[2,8]",
                "s = Sigmoid(x)\n"
                "y = Mul(z, s)\n"),
     NULL, false},
    {"the sigmoid is used elsewhere",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], z: f32[2,8]",
                "s = Sigmoid(x)\n"
                "y = Mul(x, s)\n"
                "z = Neg(s)\n"),
     NULL, false},
    {"the sigmoid is an output",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], s: f32[2,8]",
                "s = Sigmoid(x)\n"
                "y = Mul(x, s)\n"),
     NULL, false},
    {"one factor for each channel",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "a: f32[8] = random(3)\n"
                "m = Mul(x, a)\n"
                "s = Sigmoid(m)\n"
                "y = Mul(x, s)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_silu", cases, SB_COUNT(cases));
}

static void test_each_of_five_thousand_is_found(void **state)
{
    (void)state;
    assert_int_equal(
        test_pass_chain("recognize_silu", "f32[2,4]", "",
                        "s%o = Sigmoid(v%i)\nv%o = Mul(v%i, s%o)\n", 5000),
        5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_each_of_five_thousand_is_found),
    };
    return cmocka_run_group_tests_name("recognize_silu", tests, NULL, NULL);
}
