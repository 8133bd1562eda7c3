/* Pass widen_io: it changes types of inputs, so results are not compared. */
#include "passtest.h"

static const pass_case cases[] = {
    {"before and behind casts",
     TEST_GRAPH("x: f16[2]", "y: bf16[2]",
                "a = Cast(x) {to=1}\nb = Relu(a)\ny = Cast(b) {to=16}\n"),
     "a = Cast(x) {to=1}\nb = Relu(a)\ny = Cast(b) {to=1}\n", true},
    {"read as it is", TEST_GRAPH("x: f16[2]", "y: f16[2]", "y = Relu(x)\n"),
     NULL, true},
    {"of float64",
     TEST_GRAPH("x: f64[2]", "y: f64[2]",
                "a = Cast(x) {to=1}\ny = Cast(a) {to=11}\n"),
     NULL, true},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("widen_io", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("widen_io", tests, NULL, NULL);
}
