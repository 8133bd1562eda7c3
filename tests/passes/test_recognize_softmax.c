/* Pass recognize_softmax. */
#include "passtest.h"

static const pass_case cases[] = {
    {"with the maximum taken off",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "ax: i64[1] = [-1]\n"
                "m = ReduceMax(x, ax)\n"
                "d = Sub(x, m)\n"
                "e = Exp(d)\n"
                "s = ReduceSum(e, ax)\n"
                "y = Div(e, s)\n"),
     "y = Softmax(x) {axis=1}\n", false},
    {"plain, along another axis",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[2,3,4]",
                "ax: i64[1] = [1]\n"
                "e = Exp(x)\n"
                "s = ReduceSum(e, ax)\n"
                "y = Div(e, s)\n"),
     "y = Softmax(x) {axis=1}\n", false},
    {"the maximum along another axis still cancels, but is taken off alone",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[2,3,4]",
                "ax: i64[1] = [1]\n"
                "az: i64[1] = [2]\n"
                "m = ReduceMax(x, az)\n"
                "d = Sub(x, m)\n"
                "e = Exp(d)\n"
                "s = ReduceSum(e, ax)\n"
                "y = Div(e, s)\n"),
     "az: i64[1] = [2]\n"
     "m = ReduceMax(x, az)\n"
     "d = Sub(x, m)\n"
     "y = Softmax(d) {axis=1}\n",
     false},
    {"of rows, as it was before opset 13",
     TEST_GRAPH("x: f32[N,3,M]", "y: f32[N,3,M]",
                "h = Shape(x)\n"
                "f = Flatten(x) {axis=2}\n"
                "s = Softmax(f) {axis=-1}\n"
                "y = Reshape(s, h)\n"),
     "y = Softmax(x) {axis=-1}\n", false},
    {"of rows that are two axes",
     TEST_GRAPH("x: f32[N,3,M]", "y: f32[N,3,M]",
                "h = Shape(x)\n"
                "f = Flatten(x) {axis=1}\n"
                "s = Softmax(f) {axis=-1}\n"
                "y = Reshape(s, h)\n"),
     NULL, true},
    {"over two axes",
     TEST_GRAPH("x: f32[2,3,4]", "y: f32[2,3,4]",
                "ax: i64[2] = [1, 2]\n"
                "e = Exp(x)\n"
                "s = ReduceSum(e, ax)\n"
                "y = Div(e, s)\n"),
     NULL, false},
    {"the sum is an output",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8], s: f32[2,1]",
                "ax: i64[1] = [-1]\n"
                "e = Exp(x)\n"
                "s = ReduceSum(e, ax)\n"
                "y = Div(e, s)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("recognize_softmax", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("recognize_softmax", tests, NULL, NULL);
}
