/* Pass unbind: Gathers that take all of a value. */
#include "passtest.h"

static const pass_case cases[] = {
    {"two halves",
     TEST_GRAPH("x: f32[3,2,6]", "y: f32[3,6]",
                "h = Neg(x)\n"
                "i: i64[] = 1\n"
                "j: i64[] = -2\n"
                "a = Gather(h, i) {axis=1}\n"
                "b = Gather(h, j) {axis=-2}\n"
                "y = Sub(a, b)\n"),
     "axes_2: i64[1] = [1]\n"
     "h = Neg(x)\n"
     "h_0, h_1 = Split(h) {axis=1, num_outputs=2}\n"
     "a = Squeeze(h_1, axes_2)\n"
     "b = Squeeze(h_0, axes_2)\n"
     "y = Sub(a, b)\n",
     false},
    {"a part that nobody reads",
     TEST_GRAPH("x: f32[3,3,6]", "y: f32[3,6]",
                "i: i64[] = 1\n"
                "j: i64[] = 2\n"
                "a = Gather(x, i) {axis=1}\n"
                "b = Gather(x, j) {axis=1}\n"
                "y = Sub(a, b)\n"),
     NULL, false},
    {"a part that two read",
     TEST_GRAPH("x: f32[3,2,6]", "y: f32[3,6]",
                "i: i64[] = 1\n"
                "a = Gather(x, i) {axis=1}\n"
                "b = Gather(x, i) {axis=1}\n"
                "y = Sub(a, b)\n"),
     NULL, false},
    {"along different axes",
     TEST_GRAPH("x: f32[2,2]", "y: f32[2]",
                "i: i64[] = 0\n"
                "j: i64[] = 1\n"
                "a = Gather(x, i) {axis=0}\n"
                "b = Gather(x, j) {axis=1}\n"
                "y = Sub(a, b)\n"),
     NULL, false},
    {"indices in a vector",
     TEST_GRAPH("x: f32[2,6]", "y: f32[1,6]",
                "i: i64[1] = [0]\n"
                "j: i64[1] = [1]\n"
                "a = Gather(x, i) {axis=0}\n"
                "b = Gather(x, j) {axis=0}\n"
                "y = Sub(a, b)\n"),
     NULL, false},
    {"another reader",
     TEST_GRAPH("x: f32[2,6]", "y: f32[6], z: f32[2,6]",
                "i: i64[] = 0\n"
                "j: i64[] = 1\n"
                "a = Gather(x, i) {axis=0}\n"
                "b = Gather(x, j) {axis=0}\n"
                "y = Sub(a, b)\n"
                "z = Neg(x)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("unbind", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("unbind", tests, NULL, NULL);
}
