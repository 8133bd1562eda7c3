/* Pass fold_pad. */
#include "passtest.h"

#define X      "x: f32[1,2,6,6]"
#define W      "w: f32[3,2,3,3] = random(1)\n"
#define P      "p: i64[8] = [0,0,1,1,0,0,1,1]\n"
#define P_TEXT "p: i64[8] = [0, 0, 1, 1, 0, 0, 1, 1]\n"
#define POOLED "y: f32[1,2,6,6]"

static const pass_case cases[] = {
    {"convolution",
     TEST_GRAPH(X, "y: f32[1,3,6,6]", W P "q = Pad(x, p)\ny = Conv(q, w)\n"),
     "w: f32[3,2,3,3] = {...}\ny = Conv(x, w) {pads=[1,1,1,1]}\n", false},
    {"pads of both, of one side, by axes; VALID",
     TEST_GRAPH(X, "y: f32[1,3,4,7], z: f32[1,3,4,5]",
                W "p: i64[4] = [0,1,0,0]\nn: f32 = [0]\na: i64[2] = [-2,3]\n"
                  "q = Pad(x, p, n, a)\n"
                  "y = Conv(q, w) {pads=[0,1,0,1]}\n"
                  "z = Conv(q, w) {auto_pad=\"VALID\"}\n"),
     "w: f32[3,2,3,3] = {...}\n"
     "y = Conv(x, w) {pads=[0,2,0,1]}\n"
     "z = Conv(x, w) {pads=[0,1,0,0]}\n",
     false},
    {"another number",
     TEST_GRAPH(X, "y: f32[1,3,6,6]",
                W P "n: f32 = [1]\nq = Pad(x, p, n)\ny = Conv(q, w)\n"),
     NULL, false},
    {"another mode",
     TEST_GRAPH(X, "y: f32[1,3,6,6]",
                W P "q = Pad(x, p) {mode=\"edge\"}\ny = Conv(q, w)\n"),
     NULL, false},
    {"channels",
     TEST_GRAPH("x: f32[1,1,6,6]", "y: f32[1,3,4,4]",
                W "p: i64[8] = [0,1,0,0,0,0,0,0]\nq = Pad(x, p)\n"
                  "y = Conv(q, w)\n"),
     NULL, false},
    {"as far as the kernel reaches: slow, or refused",
     TEST_GRAPH(X, "y: f32[1,3,8,8]",
                "w: f32[3,2,1,1] = random(1)\n" P
                "q = Pad(x, p)\ny = Conv(q, w)\n"),
     NULL, false},
    {"cut off",
     TEST_GRAPH(X, "y: f32[1,3,2,4]",
                W "p: i64[8] = [0,0,-1,0,0,0,-1,0]\nq = Pad(x, p)\n"
                  "y = Conv(q, w)\n"),
     NULL, false},
    {"an average counts the zeros",
     TEST_GRAPH(X, POOLED,
                P "q = Pad(x, p)\ny = AveragePool(q) {kernel_shape=[3,3]}\n"),
     "y = AveragePool(x) {kernel_shape=[3,3], pads=[1,1,1,1], "
     "count_include_pad=1}\n",
     false},
    {"an average that does not count its own",
     TEST_GRAPH(X, "y: f32[1,2,8,8]",
                P "q = Pad(x, p)\ny = AveragePool(q) {kernel_shape=[3,3], "
                  "pads=[1,1,1,1]}\n"),
     NULL, false},
    {"a maximum of what is not negative",
     TEST_GRAPH(X, POOLED,
                P "r = Relu(x)\nq = Pad(r, p)\n"
                  "y = MaxPool(q) {kernel_shape=[3,3]}\n"),
     "r = Relu(x)\ny = MaxPool(r) {kernel_shape=[3,3], pads=[1,1,1,1]}\n",
     false},
    {"a maximum of any numbers",
     TEST_GRAPH(X, POOLED,
                P "q = Pad(x, p)\ny = MaxPool(q) {kernel_shape=[3,3]}\n"),
     NULL, false},
    {"a clip whose lower bound is above the upper one",
     TEST_GRAPH(X, POOLED,
                P "l: f32 = [0]\nh: f32 = [-1]\nc = Clip(x, l, h)\n"
                  "q = Pad(c, p)\ny = MaxPool(q) {kernel_shape=[3,3]}\n"),
     NULL, false},
    {"rounded up, windows would begin elsewhere",
     TEST_GRAPH(X, "y: f32[1,2,4,4]",
                P "r = Relu(x)\nq = Pad(r, p)\n"
                  "y = MaxPool(q) {kernel_shape=[3,3], strides=[2,2], "
                  "ceil_mode=1}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fold_pad", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("fold_pad", tests, NULL, NULL);
}
