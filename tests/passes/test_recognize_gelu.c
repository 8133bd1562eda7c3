/* Pass recognize_gelu: the forms in which exporters write GELU. */
#include "passtest.h"

static const pass_case cases[] = {
    {"erf, half at the end",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.4142135\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(x, c)\n"
                "y = Mul(d, h)\n"),

     "y = Gelu(x)\n", false},
    {"erf, half first, constants on the left",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.4142135\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(o, b)\n"
                "d = Mul(h, x)\n"
                "y = Mul(c, d)\n"),

     "y = Gelu(x)\n", false},
    {"erf, half with the sum",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[1] = [0.5]\n"
                "o: f32[1,1] = [1]\n"
                "r: f32[] = 0.70710678\n"
                "a = Mul(r, x)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(h, c)\n"
                "y = Mul(x, d)\n"),

     "y = Gelu(x)\n", false},
    {"half precision",
     TEST_GRAPH("x: f16[2,8]", "y: f16[2,8]",
                "h: f16[] = 0.5\n"
                "o: f16[] = 1\n"
                "r: f16[] = 1.4142135\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(x, c)\n"
                "y = Mul(d, h)\n"),

     "y = Gelu(x)\n", false},
    {"another constant",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.5\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(x, c)\n"
                "y = Mul(d, h)\n"),
     NULL, false},
    {"the other way round",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.4142135\n"
                "a = Div(r, x)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(x, c)\n"
                "y = Mul(d, h)\n"),
     NULL, false},
    {"times another value",
     TEST_GRAPH("x: f32[2,8], z: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.4142135\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(z, c)\n"
                "y = Mul(d, h)\n"),
     NULL, false},
    {"an inner value is used elsewhere",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], z: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.4142135\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(x, c)\n"
                "y = Mul(d, h)\n"
                "z = Neg(b)\n"),
     NULL, false},
    {"an inner value is an output",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], b: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.4142135\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(x, c)\n"
                "y = Mul(d, h)\n"),
     NULL, false},
    {"a constant widens the result",
     TEST_GRAPH("x: f32[8]", "y: f32[1,8]",
                "h: f32[1,1] = [0.5]\n"
                "o: f32[] = 1\n"
                "r: f32[] = 1.4142135\n"
                "a = Div(x, r)\n"
                "b = Erf(a)\n"
                "c = Add(b, o)\n"
                "d = Mul(x, c)\n"
                "y = Mul(d, h)\n"),
     NULL, false},
    {"tanh, by power",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "k: f32[] = 0.7978846\n"
                "c: f32[] = 0.044715\n"
                "p: f32[] = 3\n"
                "a = Pow(x, p)\n"
                "b = Mul(a, c)\n"
                "d = Add(x, b)\n"
                "e = Mul(d, k)\n"
                "f = Tanh(e)\n"
                "g = Add(f, o)\n"
                "i = Mul(x, h)\n"
                "y = Mul(i, g)\n"),

     "y = Gelu(x) {approximate=\"tanh\"}\n", false},
    {"tanh, by products",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "k: f32[] = 0.7978846\n"
                "c: f32[] = 0.044715\n"
                "a = Mul(x, x)\n"
                "q = Mul(x, a)\n"
                "b = Mul(c, q)\n"
                "d = Add(b, x)\n"
                "e = Mul(k, d)\n"
                "f = Tanh(e)\n"
                "g = Add(o, f)\n"
                "i = Mul(h, g)\n"
                "y = Mul(i, x)\n"),

     "y = Gelu(x) {approximate=\"tanh\"}\n", false},
    {"tanh, factored",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "k: f32[] = 0.7978846\n"
                "c: f32[] = 0.044715\n"
                "s = Mul(x, k)\n"
                "a = Mul(x, c)\n"
                "q = Mul(a, x)\n"
                "d = Add(q, o)\n"
                "e = Mul(s, d)\n"
                "f = Tanh(e)\n"
                "g = Add(f, o)\n"
                "i = Mul(x, h)\n"
                "y = Mul(i, g)\n"),

     "y = Gelu(x) {approximate=\"tanh\"}\n", false},
    {"tanh of a square is not it",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "h: f32[] = 0.5\n"
                "o: f32[] = 1\n"
                "k: f32[] = 0.7978846\n"
                "c: f32[] = 0.044715\n"
                "p: f32[] = 2\n"
                "a = Pow(x, p)\n"
                "b = Mul(a, c)\n"
                "d = Add(x, b)\n"
                "e = Mul(d, k)\n"
                "f = Tanh(e)\n"
                "g = Add(f, o)\n"
                "i = Mul(x, h)\n"
                "y = Mul(i, g)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_gelu", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_gelu", tests, NULL, NULL);
}
