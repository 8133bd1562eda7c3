/* Pass fold_if: a known condition chooses the branch. */
#include "passtest.h"

static const pass_case cases[] = {
    {"then",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "c: bool[] = 1\n"
                "y = If(c) {then_branch=graph t() -> (a) {\n"
                "    a = Neg(x)\n"
                "}, else_branch=graph e() -> (b) {\n"
                "    b = Exp(x)\n"
                "}}\n"),

     "y = Neg(x)\n", false},
    {"else, with constants and a chain",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "c: bool[] = 0\n"
                "r = If(c) {then_branch=graph t() -> (a) {\n"
                "    a = Neg(x)\n"
                "}, else_branch=graph e() -> (b) {\n"
                "    k: f32[] = 2\n"
                "    d = Mul(x, k)\n"
                "    b = Exp(d)\n"
                "}}\n"
                "y = Abs(r)\n"),

     "k: f32[] = 2\n"
     "d = Mul(x, k)\n"
     "b = Exp(d)\n"
     "y = Abs(b)\n",
     false},
    {"a branch that hands a value through",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "c: bool[] = 1\n"
                "y = If(c) {then_branch=graph t() -> (x) {\n"
                "}, else_branch=graph e() -> (b) {\n"
                "    b = Exp(x)\n"
                "}}\n"),
     "y = Identity(x)\n", false},
    {"an unknown condition stays",
     TEST_GRAPH("x: f32[2,4], c: bool[]", "y: f32[2,4]",
                "y = If(c) {then_branch=graph t() -> (a) {\n"
                "    a = Neg(x)\n"
                "}, else_branch=graph e() -> (b) {\n"
                "    b = Exp(x)\n"
                "}}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fold_if", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("fold_if", tests, NULL, NULL);
}
