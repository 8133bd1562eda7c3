/* Pass keep_axes. */
#include "passtest.h"

static const pass_case cases[] = {
    {"axes from the front and from the end",
     TEST_GRAPH("x: f32[N,5,6,4]", "y: f32[N,4], z: f32[N,5,4]",
                "a: i64[2] = [1, 2]\nb: i64[1] = [-2]\n"
                "y = ReduceMean(x, a) {keepdims=0}\n"
                "z = ReduceMax(x, b) {keepdims=0}\n"),
     "a: i64[2] = [1, 2]\nb: i64[1] = [-2]\n"
     "y_0 = ReduceMean(x, a) {keepdims=1}\n"
     "y = Squeeze(y_0, a)\n"
     "z_1 = ReduceMax(x, b) {keepdims=1}\n"
     "z = Squeeze(z_1, b)\n",
     false},
    {"axes that stay, and a result without any",
     TEST_GRAPH("x: f32[N,5,4]", "y: f32[N,1,4], z: f32[]",
                "a: i64[1] = [1]\ny = ReduceMean(x, a)\n"
                "z = ReduceSum(x) {keepdims=0}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("keep_axes", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("keep_axes", tests, NULL, NULL);
}
