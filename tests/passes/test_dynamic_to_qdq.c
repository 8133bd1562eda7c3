/* Pass dynamic_to_qdq: layers that quantize at each run, as float ones; and
 * what only looks like them. */
#include "passtest.h"

#define WEIGHT       "w: u8[2,2] = [1, 2, 3, 250]\nws: f32[2] = [0.5, 0.25]\n"
#define ZEROS        "wz: u8[2] = [3, 4]\n"
#define BEGIN        "q, s, z = DynamicQuantizeLinear(x)\n"
#define PRODUCT(in)  "p = MatMulInteger(" in ")\nf = Cast(p) {to=1}\n"
#define GRAPH(lines) TEST_GRAPH("x: f32[3,2]", "y: f32[3,2]", lines)
#define KERNEL       "k: i8[2,1,2,2] = [1, 2, 3, 4, -5, 6, 7, 127]\n"

/* clang-format off */
static const pass_case cases[] = {
    {"a product with per-column scales",
     GRAPH(WEIGHT ZEROS BEGIN PRODUCT("q, w, z, wz")
           "m = Mul(s, ws)\ny = Mul(f, m) \"fc_quant_output_scale_mul\"\n"),
     WEIGHT ZEROS BEGIN
     "q_0 = DequantizeLinear(q, s, z) {axis=0}\n"
     "w_1 = DequantizeLinear(w, ws, wz) {axis=1}\n"
     "y = MatMul(q_0, w_1) \"fc\"\n", false},
    {"factors one after another, no zero point",
     GRAPH("w: i8[2,2] = [1, -2, 3, 127]\nws: f32[] = 0.5\n" BEGIN
           PRODUCT("q, w, z") "m = Mul(s, f)\ny = Mul(ws, m)\n"),
     "w: i8[2,2] = [1, -2, 3, 127]\nws: f32[] = 0.5\n" BEGIN
     "q_0 = DequantizeLinear(q, s, z) {axis=0}\n"
     "w_1 = DequantizeLinear(w, ws) {axis=1}\n"
     "y = MatMul(q_0, w_1)\n", false},
    {"one zero point for all columns",
     GRAPH(WEIGHT "wz: u8[] = 3\n" BEGIN PRODUCT("q, w, z, wz")
           "m = Mul(s, ws)\ny = Mul(f, m)\n"),
     WEIGHT "wz_1: u8[2] = [3, 3]\n" BEGIN
     "q_0 = DequantizeLinear(q, s, z) {axis=0}\n"
     "w_2 = DequantizeLinear(w, ws, wz_1) {axis=1}\n"
     "y = MatMul(q_0, w_2)\n", false},
    {"a convolution, with its attributes",
     TEST_GRAPH("x: f32[1,1,4,4]", "y: f32[1,2,5,5]",
                KERNEL "ks: f32[2,1,1] = [0.5, 0.25]\nkz: i8[] = 0\n" BEGIN
                "p = ConvInteger(q, k, z, kz) {pads=[1,1,1,1]}\n"
                "f = Cast(p) {to=1}\nm = Mul(s, ks)\ny = Mul(f, m)\n"),
     KERNEL "ks_0: f32[2] = [0.5, 0.25]\nkz_2: i8[2] = [0, 0]\n" BEGIN
     "q_1 = DequantizeLinear(q, s, z) {axis=0}\n"
     "k_3 = DequantizeLinear(k, ks_0, kz_2) {axis=0}\n"
     "y = Conv(q_1, k_3) {pads=[1,1,1,1]}\n", false},
    {"two activations",
     TEST_GRAPH("x: f32[3,2], v: f32[2,4]", "y: f32[3,4]",
                BEGIN "q2, s2, z2 = DynamicQuantizeLinear(v)\n"
                PRODUCT("q, q2, z, z2") "m = Mul(s2, s)\ny = Mul(f, m)\n"),
     BEGIN "q2, s2, z2 = DynamicQuantizeLinear(v)\n"
     "q_0 = DequantizeLinear(q, s, z) {axis=0}\n"
     "q2_1 = DequantizeLinear(q2, s2, z2) {axis=0}\n"
     "y = MatMul(q_0, q2_1)\n", false},
    {"fused by ONNX Runtime",
     GRAPH(WEIGHT ZEROS "b: f32[2] = [1, 2]\n"
           "y = com.microsoft::DynamicQuantizeMatMul(x, w, ws, wz, b) \"fc\"\n"),
     WEIGHT ZEROS "b: f32[2] = [1, 2]\n"
     "x_0, x_1, x_2 = DynamicQuantizeLinear(x)\n"
     "x_0_3 = DequantizeLinear(x_0, x_1, x_2) {axis=0}\n"
     "w_4 = DequantizeLinear(w, ws, wz) {axis=1}\n"
     "y_5 = MatMul(x_0_3, w_4) \"fc\"\n"
     "y = Add(y_5, b)\n", false},
    {"fused, behind another node, with more columns than rows",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,3]",
                "w: u8[2,3] = [1, 2, 3, 4, 5, 6]\nws: f32[3] = [1, 2, 3]\n"
                "r = Relu(x)\n"
                "y = com.microsoft::DynamicQuantizeMatMul(r, w, ws) \"fc\"\n"),
     "w: u8[2,3] = [1, 2, 3, 4, 5, 6]\nws: f32[3] = [1, 2, 3]\n"
     "r = Relu(x)\n"
     "r_0, r_1, r_2 = DynamicQuantizeLinear(r)\n"
     "r_0_3 = DequantizeLinear(r_0, r_1, r_2) {axis=0}\n"
     "w_4 = DequantizeLinear(w, ws) {axis=1}\n"
     "y = MatMul(r_0_3, w_4) \"fc\"\n", false},

    /* ---- what stays ---- */
    {"the zero point of another value",
     TEST_GRAPH("x: f32[3,2], t: u8", "y: f32[3,2]",
                WEIGHT BEGIN PRODUCT("q, w, t") "m = Mul(s, ws)\n"
                "y = Mul(f, m)\n"), NULL, false},
    {"no zero point at all",
     GRAPH(WEIGHT BEGIN PRODUCT("q, w") "m = Mul(s, ws)\ny = Mul(f, m)\n"),
     NULL, false},
    {"the scale of another value",
     TEST_GRAPH("x: f32[3,2], t: f32", "y: f32[3,2]",
                WEIGHT BEGIN PRODUCT("q, w, z") "m = Mul(t, ws)\n"
                "y = Mul(f, m)\n"), NULL, false},
    {"the sums are read, too",
     TEST_GRAPH("x: f32[3,2]", "y: f32[3,2], p: i32[3,2]",
                WEIGHT BEGIN PRODUCT("q, w, z") "m = Mul(s, ws)\n"
                "y = Mul(f, m)\n"), NULL, false},
    {"a scale that is not one a column",
     GRAPH("w: u8[2,2] = [1, 2, 3, 4]\nws: f32[3,1] = [1, 2, 3]\n" BEGIN
           PRODUCT("q, w, z") "m = Mul(s, ws)\ny = Mul(f, m)\n"),
     NULL, false},
    {"a scale that adds a dimension",
     TEST_GRAPH("x: f32[3,2]", "y: f32[1,3,2]",
                "w: u8[2,2] = [1, 2, 3, 4]\nws: f32[1,1,1] = [2]\n" BEGIN
                PRODUCT("q, w, z") "m = Mul(s, ws)\ny = Mul(f, m)\n"),
     NULL, false},
    {"a scale that is computed",
     TEST_GRAPH("x: f32[3,2], ws: f32[2]", "y: f32[3,2]",
                "w: u8[2,2] = [1, 2, 3, 4]\n" BEGIN
                PRODUCT("q, w, z") "m = Mul(s, ws)\ny = Mul(f, m)\n"),
     NULL, false},
    {"a square", GRAPH("w: u8[2,2] = [7, 7, 7, 7]\n" BEGIN PRODUCT("q, w, z") "y = Mul(f, f)\n"),
     NULL, false},
    {"a Cast to something else",
     TEST_GRAPH("x: f32[3,2], d: f64[2]", "y: f64[3,2]",
                "w: u8[2,2] = [1, 2, 3, 4]\n" BEGIN "p = MatMulInteger(q, w, z)\n"
                "f = Cast(p) {to=11}\ny = Mul(f, d)\n"), NULL, false},
};
/* clang-format on */

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("dynamic_to_qdq", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("dynamic_to_qdq", tests, NULL, NULL);
}
