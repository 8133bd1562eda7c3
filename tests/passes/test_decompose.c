/* Pass expand: too new for the file, so written out. */
#include "passtest.h"

static const pass_case cases[] = {
    {"swish", TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]", "y = Swish(x)\n"),
     "y_Sigmoid = Sigmoid(x)\n"
     "y = Mul(x, y_Sigmoid)\n",
     false},
    {"swish with a factor",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]", "y = Swish(x) {alpha=1.702}\n"),
     "number_0: f32[] = 1.702\n"
     "y_Mul = Mul(x, number_0)\n"
     "y_Sigmoid = Sigmoid(y_Mul)\n"
     "y = Mul(x, y_Sigmoid)\n",
     false},
    {"rms normalization",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "y = RMSNormalization(x, g) {epsilon=0.01}\n"),
     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "axes_1: i64[1] = [-1]\n"
     "number_3: f32[] = 0.01\n"
     "y_Mul = Mul(x, x)\n"
     "y_ReduceMean = ReduceMean(y_Mul, axes_1)\n"
     "y_Add = Add(y_ReduceMean, number_3)\n"
     "y_Sqrt = Sqrt(y_Add)\n"
     "y_Reciprocal = Reciprocal(y_Sqrt)\n"
     "y_Mul_2 = Mul(x, y_Reciprocal)\n"
     "y = Mul(y_Mul_2, g)\n",
     false},
    {"half precision is normalized in single",
     TEST_GRAPH("x: f16[2,8]", "y: f16[2,8]",
                "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "y = RMSNormalization(x, g) {epsilon=0.01}\n"),
     "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "axes_2: i64[1] = [-1]\n"
     "number_4: f32[] = 0.01\n"
     "y_Cast = Cast(x) {to=1}\n"
     "y_Mul = Mul(y_Cast, y_Cast)\n"
     "y_ReduceMean = ReduceMean(y_Mul, axes_2)\n"
     "y_Add = Add(y_ReduceMean, number_4)\n"
     "y_Sqrt = Sqrt(y_Add)\n"
     "y_Reciprocal = Reciprocal(y_Sqrt)\n"
     "y_Mul_2 = Mul(y_Cast, y_Reciprocal)\n"
     "y_Cast_2 = Cast(y_Mul_2) {to=10}\n"
     "y = Mul(y_Cast_2, g)\n",
     false},
    {"what is old enough stays",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]", "y = Gelu(x)\n"), NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("decompose", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("decompose", tests, NULL, NULL);
}
