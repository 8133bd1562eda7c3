/* Pass remove_dead: nodes and constants that nothing needs. */
#include "passtest.h"

static const pass_case cases[] = {
    {"a dead end",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "c: f32[] = 2\n"
                "a = Mul(x, c)\n"
                "b = Exp(a)\n"
                "y = Neg(x)\n"),

     "y = Neg(x)\n", false},
    {"a constant without a consumer",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "c: f32[] = 2\n"
                "y = Neg(x)\n"),

     "y = Neg(x)\n", false},
    {"an unknown operator goes too",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a = com.example::Foo(x)\n"
                "y = Neg(x)\n"),

     "y = Neg(x)\n", false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("remove_dead", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("remove_dead", tests, NULL, NULL);
}
