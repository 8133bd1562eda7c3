/* Pass chain_pools. */
#include "passtest.h"

static const pass_case cases[] = {
    {"a pyramid, in any order",
     TEST_GRAPH("x: f32[N,2,9,8]",
                "a: f32[N,2,9,8], b: f32[N,2,9,8], c: f32[N,2,9,8]",
                "c = MaxPool(x) {kernel_shape=[13,13], pads=[6,6,6,6]}\n"
                "a = MaxPool(x) {kernel_shape=[5,5], pads=[2,2,2,2]}\n"
                "b = MaxPool(x) {kernel_shape=[9,9], pads=[4,4,4,4]}\n"),
     "a = MaxPool(x) {kernel_shape=[5,5], pads=[2,2,2,2]}\n"
     "b = MaxPool(a) {kernel_shape=[5,5], pads=[2,2,2,2]}\n"
     "c = MaxPool(b) {kernel_shape=[5,5], pads=[2,2,2,2]}\n",
     false},
    {"windows that are not square, pads on one side",
     TEST_GRAPH("x: f32[1,1,7,9]", "a: f32[1,1,7,8], b: f32[1,1,6,7]",
                "a = MaxPool(x) {kernel_shape=[3,2], pads=[0,0,2,0]}\n"
                "b = MaxPool(x) {kernel_shape=[5,4], strides=[1,1], "
                "pads=[1,0,2,1]}\n"),
     "a = MaxPool(x) {kernel_shape=[3,2], pads=[0,0,2,0]}\n"
     "b = MaxPool(a) {kernel_shape=[3,3], strides=[1,1], "
     "pads=[1,0,0,1]}\n",
     false},
    {"fewer pads than the smaller one",
     TEST_GRAPH("x: f32[1,1,7,9]", "a: f32[1,1,9,11], b: f32[1,1,3,5]",
                "a = MaxPool(x) {kernel_shape=[3,3], pads=[2,2,2,2]}\n"
                "b = MaxPool(x) {kernel_shape=[5,5]}\n"),
     NULL, false},
    {"strides",
     TEST_GRAPH("x: f32[1,1,7,9]", "a: f32[1,1,5,7], b: f32[1,1,2,3]",
                "a = MaxPool(x) {kernel_shape=[3,3]}\n"
                "b = MaxPool(x) {kernel_shape=[5,5], strides=[2,2]}\n"),
     NULL, false},
    {"different inputs",
     TEST_GRAPH("x: f32[1,1,7,9], z: f32[1,1,7,9]",
                "a: f32[1,1,5,7], b: f32[1,1,3,5]",
                "a = MaxPool(x) {kernel_shape=[3,3]}\n"
                "b = MaxPool(z) {kernel_shape=[5,5]}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("chain_pools", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("chain_pools", tests, NULL, NULL);
}
