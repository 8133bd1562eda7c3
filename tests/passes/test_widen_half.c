/* Pass widen_half. */
#include "passtest.h"

static const pass_case cases[] = {
    {"inputs and outputs keep their type",
     TEST_GRAPH("x: f16[2]", "y: f16[2]",
                "w: f16[2] = [1, 2]\na = Mul(x, w)\ny = Relu(a)\n"),
     "w: f32[2] = [1, 2]\nx_0 = Cast(x) {to=1}\na = Mul(x_0, w)\n"
     "y_2 = Relu(a)\ny = Cast(y_2) {to=10}\n",
     true},
    {"an output that is read, too",
     TEST_GRAPH("x: bf16[2]", "y: bf16[2], z: bf16[2]",
                "y = Relu(x)\nz = Neg(y)\n"),
     "x_0 = Cast(x) {to=1}\ny_2 = Relu(x_0)\ny = Cast(y_2) {to=16}\n"
     "z_4 = Neg(y_2)\nz = Cast(z_4) {to=16}\n",
     true},
    {"inputs and outputs of float32 with casts inside",
     TEST_GRAPH("x: f32[2]", "y: f32[2]",
                "h = Cast(x) {to=10}\na = Relu(h)\ny = Cast(a) {to=1}\n"),
     "h = Cast(x) {to=1}\na = Relu(h)\ny = Cast(a) {to=1}\n", true},
    {"attributes that name the type",
     TEST_GRAPH("n: i64[1]", "y: f16[?]",
                "c = ConstantOfShape(n) {value=tensor f16[1] = [1.5]}\n"
                "y = Neg(c)\n"),
     "c = ConstantOfShape(n) {value=tensor f32[1] = [1.5]}\ny_1 = Neg(c)\n"
     "y = Cast(y_1) {to=10}\n",
     true},
    {"an input that is an output",
     TEST_GRAPH("x: f16[2]", "x, y: f16[2]", "y = Relu(x)\n"),
     "x_0 = Cast(x) {to=1}\ny_2 = Relu(x_0)\ny = Cast(y_2) {to=10}\n", true},
    {"bodies",
     TEST_GRAPH("c: bool, x: f16[2]", "y: f16[2]",
                "y = If(c) {then_branch=graph t() -> (p: f16[2]) { p = Neg(x) "
                "}, else_branch=graph e() -> (q: f16[2]) { k: f16[2] = [1, 2]\n"
                "q = Add(x, k) }}\n"),
     "x_0 = Cast(x) {to=1}\n"
     "y_2 = If(c) {then_branch=graph t() -> (p: f32[2]) {\n"
     "    p = Neg(x_0)\n"
     "}, else_branch=graph e() -> (q: f32[2]) {\n"
     "    k: f32[2] = [1, 2]\n"
     "    q = Add(x_0, k)\n"
     "}}\n"
     "y = Cast(y_2) {to=10}\n",
     true},
    {"float32 stays as it is",
     TEST_GRAPH("x: f32[2]", "y: f32[2]", "y = Relu(x)\n"), NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("widen_half", cases, SB_COUNT(cases));
}

static const pass_case again[] = {
    {"twice is once",
     TEST_GRAPH("x: f16[2]", "y: f16[2]",
                "x_0 = Cast(x) {to=1}\ny_1 = Relu(x_0)\n"
                "y = Cast(y_1) {to=10}\n"),
     NULL, false},
};

static void test_widened_graphs_stay(void **state)
{
    (void)state;
    test_passes("widen_half", again, SB_COUNT(again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_widened_graphs_stay),
    };
    return cmocka_run_group_tests_name("widen_half", tests, NULL, NULL);
}
