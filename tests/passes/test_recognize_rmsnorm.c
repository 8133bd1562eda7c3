/* Pass recognize_rmsnorm. */
#include "passtest.h"

static const pass_case cases[] = {
    {"with scale",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "q = Pow(x, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(x, s)\n"
                "y = Mul(n, g)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "y = RMSNormalization(x, g) {axis=-1, epsilon=1e-05}\n",
     false},
    {"inverse root, square by product",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "q = Mul(x, x)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "r = Reciprocal(s)\n"
                "n = Mul(x, r)\n"
                "y = Mul(g, n)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "y = RMSNormalization(x, g) {axis=-1, epsilon=1e-05}\n",
     false},
    {"one divided by the root",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "o: f32[] = 1\n"
                "q = Pow(x, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "r = Div(o, s)\n"
                "n = Mul(x, r)\n"
                "y = Mul(g, n)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "y = RMSNormalization(x, g) {axis=-1, epsilon=1e-05}\n",
     false},
    {"a power of -0.5",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "o: f32[] = -0.5\n"
                "q = Pow(x, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "r = Pow(w, o)\n"
                "n = Mul(x, r)\n"
                "y = Mul(g, n)\n"),

     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "y = RMSNormalization(x, g) {axis=-1, epsilon=1e-05}\n",
     false},
    {"without scale",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "q = Pow(x, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(x, s)\n"),
     "ones_0: f32[8] = [1, 1, 1, 1, 1, 1, 1, 1]\n"
     "y = RMSNormalization(x, ones_0) {axis=-1, epsilon=1e-05}\n",
     false},
    {"half precision between casts",
     TEST_GRAPH("x: f16[2,8]", "y: f16[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "c = Cast(x) {to=1}\n"
                "q = Pow(c, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "n = Div(c, s)\n"
                "k = Cast(n) {to=10}\n"
                "y = Mul(g, k)\n"),
     "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "y = RMSNormalization(x, g) {axis=-1, epsilon=1e-05}\n",
     false},
    {"not over the last axis",
     TEST_GRAPH("x: f32[2,8,3]", "y: f32[2,8,3]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [1]\n"
                "q = Pow(x, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(x, s)\n"),
     NULL, false},
    {"dividing another value",
     TEST_GRAPH("x: f32[2,8], z: f32[2,8]", "y: f32[2,8]",
                "e: f32[] = 0.00001\n"
                "p: f32[] = 2\n"
                "ax: i64[1] = [-1]\n"
                "q = Pow(x, p)\n"
                "v = ReduceMean(q, ax)\n"
                "w = Add(v, e)\n"
                "s = Sqrt(w)\n"
                "y = Div(z, s)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_rmsnorm", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_rmsnorm", tests, NULL, NULL);
}
