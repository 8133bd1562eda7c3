/* Pass integer_to_qdq: integer operators between Q and DQ. */
#include "passtest.h"

#define PARAMS                                 \
    "s: f32 = 0.5\nz: u8 = 3\nt: f32 = 0.25\n" \
    "o: u8 = 0\n"

static const pass_case cases[] = {
    {"a sigmoid",
     TEST_GRAPH("x: u8[2,8]", "y: u8[2,8]",
                PARAMS "y = com.microsoft::QLinearSigmoid(x, s, z, t, o)\n"),
     "s: f32[] = 0.5\n"
     "z: u8[] = 3\n"
     "t: f32[] = 0.25\n"
     "o: u8[] = 0\n"
     "x_1 = DequantizeLinear(x, s, z) {axis=0}\n"
     "y_0 = Sigmoid(x_1)\n"
     "y = QuantizeLinear(y_0, t, o) {axis=0}\n",
     false},
    {"a sum with its Relu, and what moves it",
     TEST_GRAPH("x: u8[2,8]", "y: u8[8,2]",
                PARAMS
                "a_quantized = com.microsoft::QLinearAdd(x, s, z, x, s, z, t, "
                "o)\n"
                "y = Transpose(a_quantized) {perm=[1,0]}\n"),
     "s: f32[] = 0.5\n"
     "z: u8[] = 3\n"
     "t: f32[] = 0.25\n"
     "o: u8[] = 0\n"
     "x_2 = DequantizeLinear(x, s, z) {axis=0}\n"
     "x_3 = DequantizeLinear(x, s, z) {axis=0}\n"
     "a_1 = Add(x_2, x_3)\n"
     "a = Relu(a_1)\n"
     "a_quantized = QuantizeLinear(a, t, o) {axis=0}\n"
     "a_quantized_4 = DequantizeLinear(a_quantized, t, o) {axis=0}\n"
     "y_5 = Transpose(a_quantized_4) {perm=[1,0]}\n"
     "y = QuantizeLinear(y_5, t, o) {axis=0}\n",
     false},
    {"per-channel scales, one zero point",
     TEST_GRAPH("x: u8[1,1,2,2]", "y: u8[1,2,2,2]",
                PARAMS "w: i8[2,1,1,1] = [3, -4]\nws: f32[2] = [0.5, 2]\n"
                       "wz: i8 = 0\n"
                       "y = QLinearConv(x, s, z, w, ws, wz, t, z)\n"),
     "s: f32[] = 0.5\n"
     "z: u8[] = 3\n"
     "t: f32[] = 0.25\n"
     "w: i8[2,1,1,1] = [3, -4]\n"
     "ws: f32[2] = [0.5, 2]\n"
     "wz_2: i8[2] = [0, 0]\n"
     "x_1 = DequantizeLinear(x, s, z) {axis=0}\n"
     "w_3 = DequantizeLinear(w, ws, wz_2) {axis=0}\n"
     "y_0 = Conv(x_1, w_3)\n"
     "y = QuantizeLinear(y_0, t, z) {axis=0}\n",
     false},
    {"float stays",
     TEST_GRAPH("x: f32[2,8]", "y: f32[2,8]", "y = Sigmoid(x)\n"), NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("integer_to_qdq", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("integer_to_qdq", tests, NULL, NULL);
}
