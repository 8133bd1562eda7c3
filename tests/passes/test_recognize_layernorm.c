/* Pass recognize_layernorm: the forms of layer normalization. */
#include "passtest.h"

static const pass_case cases[] = {
    {"with scale and bias",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(d, s)\n"
                "k = Mul(n, g)\n"
                "y = Add(k, b)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
     "y = LayerNormalization(x, g, b) {axis=-1, epsilon=1e-05}\n",
     false},
    {"the scale from the left, by a positive axis",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(d, s)\n"
                "k = Mul(g, n)\n"
                "y = Add(b, k)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
     "y = LayerNormalization(x, g, b) {axis=-1, epsilon=1e-05}\n",
     false},
    {"square by product, inverse root",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Mul(d, d)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "r = Reciprocal(s)\n"
                "n = Mul(d, r)\n"
                "k = Mul(n, g)\n"
                "y = Add(k, b)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
     "y = LayerNormalization(x, g, b) {axis=-1, epsilon=1e-05}\n",
     false},
    {"without scale and bias",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(d, s)\n"),
     "ones_0: f32[8] = [1, 1, 1, 1, 1, 1, 1, 1]\n"
     "y = LayerNormalization(x, ones_0) {axis=-1, epsilon=1e-05}\n",
     false},
    {"with scale only",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(d, s)\n"
                "y = Mul(n, g)\n"),
     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "y = LayerNormalization(x, g) {axis=-1, epsilon=1e-05}\n",
     false},
    {"parameters with dimensions of 1 before",
     TEST_GRAPH("x: f32[2,3,8]", "y: f32[2,3,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[1,1,8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "b: f32[1,8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(d, s)\n"
                "k = Mul(n, g)\n"
                "y = Add(k, b)\n"),
     "g_1: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "b_2: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
     "y = LayerNormalization(x, g_1, b_2) {axis=-1, epsilon=1e-05}\n",
     false},
    {"over two axes",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[2,3,4]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[2] = [1, 2]\n"
                "g: f32[3,4] = random(5)\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(d, s)\n"
                "y = Mul(n, g)\n"),
     "g: f32[3,4] = [-0.6609818, -0.49357203, 0.6293137, -1.3042316, "
     "0.25954643, -1.1776793, 0.42659548, -1.1045047, -0.6955964, 0.64549553, "
     "-0.013375343, 3.6109352]\n"
     "y = LayerNormalization(x, g) {axis=-2, epsilon=1e-05}\n",
     false},
    {"a scale of another shape is not taken in",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[2,1] = [1, 2]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(d, s)\n"
                "y = Mul(n, g)\n"),
     "g: f32[2,1] = [1, 2]\n"
     "ones_0: f32[8] = [1, 1, 1, 1, 1, 1, 1, 1]\n"
     "n = LayerNormalization(x, ones_0) {axis=-1, epsilon=1e-05}\n"
     "y = Mul(n, g)\n",
     false},
    {"multiplied out",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "r = Reciprocal(s)\n"
                "k = Mul(r, g)\n"
                "l = Mul(x, k)\n"
                "o = Mul(m, k)\n"
                "c = Sub(b, o)\n"
                "y = Add(l, c)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "b: f32[8] = [8, 7, 6, 5, 4, 3, 2, 1]\n"
     "y = LayerNormalization(x, g, b) {axis=-1, epsilon=1e-05}\n",
     false},
    {"half precision between casts",
     TEST_GRAPH("x: f16[2,8]", "y: f16[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "c = Cast(x) {to=1}\n"
                "m = ReduceMean(c, ax)\n"
                "d = Sub(c, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(d, s)\n"
                "k = Cast(n) {to=10}\n"
                "y = Mul(k, g)\n"),
     "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "y = LayerNormalization(x, g) {axis=-1, epsilon=1e-05}\n",
     false},
    {"over channels, which is not the last axis",
     TEST_GRAPH("x: f32[2,8,3]", "y: f32[2,8,3]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(d, s)\n"),
     NULL, false},
    {"over different axes",
     TEST_GRAPH("x: f32[2,8,3]", "y: f32[2,8,3]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "az: i64[2] = [1, 2]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, az)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(d, s)\n"),
     NULL, false},
    {"another power",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 100\n"
                "p: f32[] = 3\n"
                "ax: i64[1] = [-1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(d, s)\n"),
     NULL, false},
    {"the deviation is an output",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], s: f32[2,1]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(d, s)\n"),
     NULL, false},
    {"the centered value is used elsewhere",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], z: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "m = ReduceMean(x, ax)\n"
                "d = Sub(x, m)\n"
                "q = Pow(d, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(d, s)\n"
                "z = Neg(d)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_layernorm", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_layernorm", tests, NULL,
                                       NULL);
}
