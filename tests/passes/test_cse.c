/* Pass cse: equal nodes and equal constants become one. */
#include "passtest.h"

static const pass_case cases[] = {
    {"two equal nodes",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Exp(x)\n"
                "b = Exp(x)\n"
                "y = Add(a, b)\n"),

     "a = Exp(x)\n"
     "y = Add(a, a)\n",
     false},
    {"equal chains",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Exp(x)\n"
                "b = Neg(a)\n"
                "c = Exp(x)\n"
                "d = Neg(c)\n"
                "y = Add(b, d)\n"),

     "a = Exp(x)\n"
     "b = Neg(a)\n"
     "y = Add(b, b)\n",
     false},
    {"inputs that may change places",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Exp(x)\n"
                "b = Add(a, x)\n"
                "c = Add(x, a)\n"
                "y = Mul(b, c)\n"),

     "a = Exp(x)\n"
     "b = Add(a, x)\n"
     "y = Mul(b, b)\n",
     false},
    {"inputs that may not",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = Exp(x)\n"
                "b = Sub(a, x)\n"
                "c = Sub(x, a)\n"
                "y = Mul(b, c)\n"),
     NULL, false},
    {"other attributes",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = LeakyRelu(x) {alpha=0.1}\n"
                "b = LeakyRelu(x) {alpha=0.2}\n"
                "y = Add(a, b)\n"),
     NULL, false},
    {"equal constants",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "p: f32[] = 2\n"
                "q: f32[] = 2\n"
                "a = Mul(x, p)\n"
                "b = Mul(x, q)\n"
                "y = Sub(a, b)\n"),

     "p: f32[] = 2\n"
     "a = Mul(x, p)\n"
     "y = Sub(a, a)\n",
     false},
    {"equal elements of another shape",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "p: f32[] = 2\n"
                "q: f32[1] = [2]\n"
                "a = Mul(x, p)\n"
                "y = Mul(a, q)\n"),
     NULL, false},
    {"two outputs keep both names",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4], z: f32[2,4]",
                "y = Exp(x)\n"
                "z = Exp(x)\n"),
     NULL, false},
    {"an output takes the place of an inner value",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4], z: f32[2,4]",
                "a = Exp(x)\n"
                "z = Exp(x)\n"
                "y = Neg(a)\n"),

     "z = Exp(x)\n"
     "y = Neg(z)\n",
     false},
    {"quantizers stay in pairs",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "s: f32[] = 0.5\n"
                "a = QuantizeLinear(x, s)\n"
                "b = DequantizeLinear(a, s)\n"
                "c = DequantizeLinear(a, s)\n"
                "y = Sub(b, c)\n"),
     NULL, false},
    {"parameters that are equal before training stay apart",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "p: f32[4] = [0, 0, 0, 0]\n"
                "q: f32[4] = [0, 0, 0, 0]\n"
                "a = Add(x, p)\n"
                "b = Exp(a)\n"
                "y = Add(b, q)\n"),
     NULL, false},
    {"unknown operators may have a memory",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = com.example::Foo(x)\n"
                "b = com.example::Foo(x)\n"
                "y = Add(a, b)\n"),
     NULL, true},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("cse", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("cse", tests, NULL, NULL);
}
