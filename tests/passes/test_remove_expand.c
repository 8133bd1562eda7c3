/* Pass remove_expand. */
#include "passtest.h"

#define XG     "x: f32[2,3,4,5], g: f32[2,3,1,1]"
#define Y      "y: f32[2,3,4,5]"
#define S      "s: i64[4] = [2,3,4,5]\n"
#define S_TEXT "s: i64[4] = [2, 3, 4, 5]\n"

static const pass_case cases[] = {
    {"second operand", TEST_GRAPH(XG, Y, S "e = Expand(g, s)\ny = Mul(x, e)\n"),
     "y = Mul(x, g)\n", false},
    {"first operand", TEST_GRAPH(XG, Y, S "e = Expand(g, s)\ny = Sub(e, x)\n"),
     "y = Sub(g, x)\n", false},
    {"shape of the other, whatever it is",
     TEST_GRAPH("x: f32[N,3,H,W], g: f32[N,3,1,1]", "y: f32[N,3,H,W]",
                "s = Shape(x)\ne = Expand(g, s)\ny = Mul(x, e)\n"),
     "y = Mul(x, g)\n", false},
    {"read elsewhere, too",
     TEST_GRAPH(XG, Y ", e: f32[2,3,4,5]",
                S "e = Expand(g, s)\ny = Mul(x, e)\n"),
     S_TEXT "e = Expand(g, s)\ny = Mul(x, g)\n", false},
    {"both operands",
     TEST_GRAPH("g: f32[2,3,1,1]", Y, S "e = Expand(g, s)\ny = Mul(e, e)\n"),
     S_TEXT "e = Expand(g, s)\ny = Mul(e, g)\n", false},
    {"the other is smaller",
     TEST_GRAPH("x: f32[4,1], g: f32[2,3,1,1]", Y,
                S "e = Expand(g, s)\ny = Mul(x, e)\n"),
     NULL, false},
    {"the operator does not broadcast",
     TEST_GRAPH(XG, "y: f32[4,3,4,5]",
                S "e = Expand(g, s)\ny = Concat(x, e) {axis=0}\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("remove_expand", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("remove_expand", tests, NULL, NULL);
}
