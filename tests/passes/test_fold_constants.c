/* Pass fold_constants: known inputs, known results. */
#include "passtest.h"

static const pass_case cases[] = {
    {"a chain of constants",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a: f32[] = 2\n"
                "b: f32[] = 3\n"
                "c = Add(a, b)\n"
                "d = Neg(c)\n"
                "y = Mul(x, d)\n"),

     "d: f32[] = -5\n"
     "y = Mul(x, d)\n",
     false},
    {"an output that is constant",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4], z: f32[]",
                "a: f32[] = 2\n"
                "z = Neg(a)\n"
                "y = Mul(x, z)\n"),
     "z_0: f32[] = -2\n"
     "z = Identity(z_0)\n"
     "y = Mul(x, z)\n",
     false},
    {"quantized weights stay quantized",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,2]",
                "q: i8[4,2] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "s: f32[] = 0.5\n"
                "w = DequantizeLinear(q, s)\n"
                "y = MatMul(x, w)\n"),
     NULL, false},
    {"a big result from nothing stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[100000]",
                "n: i64[1] = [100000]\n"
                "y = ConstantOfShape(n)\n"),
     NULL, false},
    {"a big result of a big constant",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,20000]",
                "w: f32[20000,4] = random(1)\n"
                "t = Transpose(w)\n"
                "y = MatMul(x, t)\n"),

     "t: f32[4,20000] = {...}\n"
     "y = MatMul(x, t)\n",
     false},
    {"unless the constant is used elsewhere",
     TEST_GRAPH("x: f32[2,4], i: i64[]", "y: f32[2,20000], z: f32[4]",
                "w: f32[20000,4] = random(1)\n"
                "t = Transpose(w)\n"
                "y = MatMul(x, t)\n"
                "z = Gather(w, i)\n"),
     NULL, false},
    {"several results",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "w: f32[2,4] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "a, b = Split(w) {axis=0, num_outputs=2}\n"
                "c = Mul(x, a)\n"
                "y = Add(c, b)\n"),
     "a: f32[1,4] = [1, 2, 3, 4]\n"
     "b: f32[1,4] = [5, 6, 7, 8]\n"
     "c = Mul(x, a)\n"
     "y = Add(c, b)\n",
     false},
    {"an unknown operator stays",
     TEST_GRAPH("x: f32[2,4]", "y: f32[2,4]",
                "a: f32[] = 2\n"
                "b = com.example::Foo(a)\n"
                "y = Mul(x, b)\n"),
     NULL, true},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fold_constants", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("fold_constants", tests, NULL, NULL);
}
