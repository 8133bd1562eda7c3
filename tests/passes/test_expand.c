/* Pass expand: too new for the file, so written out. */
#include "passtest.h"

static const pass_case cases[] = {
    {"swish", TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]", "y = Swish(x)\n"),
     "y_0 = Sigmoid(x)\n"
     "y = Mul(x, y_0)\n",
     false},
    {"swish with a factor",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]", "y = Swish(x) {alpha=1.702}\n"),
     "number_0: f32[] = 1.702\n"
     "y_1 = Mul(x, number_0)\n"
     "y_2 = Sigmoid(y_1)\n"
     "y = Mul(x, y_2)\n",
     false},
    {"rms normalisation",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]",
                "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "y = RMSNormalization(x, g) {epsilon=0.01}\n"),
     "g: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "axes_1: i64[1] = [-1]\n"
     "number_3: f32[] = 0.01\n"
     "y_0 = Mul(x, x)\n"
     "y_2 = ReduceMean(y_0, axes_1)\n"
     "y_4 = Add(y_2, number_3)\n"
     "y_5 = Sqrt(y_4)\n"
     "y_6 = Reciprocal(y_5)\n"
     "y_7 = Mul(x, y_6)\n"
     "y = Mul(y_7, g)\n",
     false},
    {"half precision is normalised in single",
     TEST_GRAPH("x: f16[2,8]", "y: f16[2,8]",
                "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
                "y = RMSNormalization(x, g) {epsilon=0.01}\n"),
     "g: f16[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
     "axes_2: i64[1] = [-1]\n"
     "number_4: f32[] = 0.01\n"
     "y_0 = Cast(x) {to=1}\n"
     "y_1 = Mul(y_0, y_0)\n"
     "y_3 = ReduceMean(y_1, axes_2)\n"
     "y_5 = Add(y_3, number_4)\n"
     "y_6 = Sqrt(y_5)\n"
     "y_7 = Reciprocal(y_6)\n"
     "y_8 = Mul(y_0, y_7)\n"
     "y_9 = Cast(y_8) {to=10}\n"
     "y = Mul(y_9, g)\n",
     false},
    {"what is old enough stays",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]", "y = Gelu(x)\n"), NULL, false},
};

static void test_cases(void **state)
{
    (void)state;
    test_passes("expand", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests_name("expand", tests, NULL, NULL);
}
