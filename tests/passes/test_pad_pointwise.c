/* Pass pad_pointwise. */
#include "passtest.h"

static const pass_case cases[] = {
    {"padded, with strides",
     TEST_GRAPH("x: f32[1,2,3,4]", "y: f32[1,2,3,4]",
                "w: f32[2,2,1,1] = [1, 2, 3, 4]\n"
                "b: f32[2] = [5, 6]\n"
                "y = Conv(x, w, b) {pads=[1,0,2,0], strides=[2,1]}\n"),
     "w: f32[2,2,1,1] = [1, 2, 3, 4]\n"
     "b: f32[2] = [5, 6]\n"
     "pads_0: i64[8] = [0, 0, 1, 0, 0, 0, 2, 0]\n"
     "y_1 = Pad(x, pads_0)\n"
     "y = Conv(y_1, w, b) {strides=[2,1]}\n",
     false},
    {"stride 1: the kernel lays the frame itself",
     TEST_GRAPH("x: f32[1,2,3,4]", "y: f32[1,2,6,4]",
                "w: f32[2,2,1,1] = [1, 2, 3, 4]\n"
                "y = Conv(x, w) {pads=[1,0,2,0]}\n"),
     NULL, false},
    {"with strides, in one dimension",
     TEST_GRAPH("x: f32[1,2,5]", "y: f32[1,1,4]",
                "w: f32[1,2,1] = [1, 2]\n"
                "y = Conv(x, w) {pads=[1,1], strides=[2]}\n"),
     "w: f32[1,2,1] = [1, 2]\n"
     "pads_0: i64[6] = [0, 0, 1, 0, 0, 1]\n"
     "y_1 = Pad(x, pads_0)\n"
     "y = Conv(y_1, w) {strides=[2]}\n",
     false},
    {"no pads",
     TEST_GRAPH("x: f32[1,2,3,4]", "y: f32[1,1,3,4]",
                "w: f32[1,2,1,1] = [1, 2]\n"
                "y = Conv(x, w) {pads=[0,0,0,0]}\n"),
     NULL, false},
    {"a larger kernel",
     TEST_GRAPH("x: f32[1,2,3,4]", "y: f32[1,1,3,4]",
                "w: f32[1,2,3,3] = random(1)\n"
                "y = Conv(x, w) {pads=[1,1,1,1]}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("pad_pointwise", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("pad_pointwise", tests, NULL, NULL);
}
