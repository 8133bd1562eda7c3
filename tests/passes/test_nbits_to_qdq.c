/* Pass nbits_to_qdq: packed weights by hand, and nodes that contradict
 * themselves. */
#include "passtest.h"

/* Two columns of 17 rows in blocks of 16: codes 0, 1, 2 ... and 15, 14, 13 ...,
 * the second block with one row and 15 that are not used. */
#define BYTES                                                         \
    "b: u8[2,2,8] = [16,50,84,118,152,186,220,254, 5,0,0,0,0,0,0,0, " \
    "239,205,171,137,103,69,35,1, 9,0,0,0,0,0,0,0]\n"
#define SCALES       "s: f32[2,2] = [1, 2, 0.5, 4]\n"
#define ATTRS        "{K=17, N=2, bits=4, block_size=16}\n"
#define GRAPH(lines) TEST_GRAPH("x: f32[3,17]", "y: f32[3,2]", lines)
#define NODE(in)     "y = com.microsoft::MatMulNBits(" in ") "
#define TURNED       "[1, 0.5, 2, 4]\n"

/* clang-format off */
static const pass_case cases[] = {
    {"zero in the middle: signed",
     GRAPH(BYTES SCALES NODE("x, b, s") ATTRS),
     "b_quantized: i4[17,2] = {...}\n"
     "b_scales: f32[2,2] = " TURNED
     "b_quantized_0 = DequantizeLinear(b_quantized, b_scales) "
     "{axis=0, block_size=16}\n"
     "y = MatMul(x, b_quantized_0)\n", false},
    {"zero points, a bias, names of ours",
     GRAPH("w_packed: u8[2,2,8] = [16,50,84,118,152,186,220,254, 5,0,0,0,0,0,0,"
           "0, 239,205,171,137,103,69,35,1, 9,0,0,0,0,0,0,0]\n" SCALES
           "z: u8[2,1] = [33, 67]\nc: f32[2] = [1, 2]\n"
           NODE("x, w_packed, s, z, _, c") ATTRS),
     "c: f32[2] = [1, 2]\n"
     "w_quantized: u4[17,2] = {...}\n"
     "w_scales: f32[2,2] = " TURNED
     "w_zero_points: u4[2,2] = [1, 3, 2, 4]\n"
     "w_quantized_0 = DequantizeLinear(w_quantized, w_scales, w_zero_points) "
     "{axis=0, block_size=16}\n"
     "y = Gemm(x, w_quantized_0, c)\n", false},
    {"2 bit",
     TEST_GRAPH("x: f32[1,2,4]", "y: f32[1,2,1]",
                "w_Q2: u8[1,1,4] = [228, 0, 0, 0]\ns: f32[1] = [2]\n"
                NODE("x, w_Q2, s") "{K=4, N=1, bits=2, block_size=16}\n"),
     "w_quantized: i2[4,1] = [-2, -1, 0, 1]\nw_scales: f32[1,1] = [2]\n"
     "w_quantized_0 = DequantizeLinear(w_quantized, w_scales) "
     "{axis=0, block_size=16}\n"
     "y = MatMul(x, w_quantized_0)\n", false},

    /* ---- what stays ---- */
    {"computed bytes",
     TEST_GRAPH("x: f32[3,17], b: u8[2,2,8]", "y: f32[3,2]",
                SCALES NODE("x, b, s") ATTRS), NULL, false},
    {"too few bytes", GRAPH("b: u8[2,2,7] = 1\n" SCALES NODE("x, b, s") ATTRS),
     NULL, true},
    {"too few scales",
     GRAPH(BYTES "s: f32[2] = 1\n" NODE("x, b, s") ATTRS), NULL, true},
    {"scales of another type",
     GRAPH(BYTES "s: f16[2,2] = 1\n" NODE("x, b, s") ATTRS), NULL, true},
    {"too few zero points",
     GRAPH(BYTES SCALES "z: u8[1] = 1\n" NODE("x, b, s, z") ATTRS), NULL, true},
    {"zero points in float",
     GRAPH(BYTES SCALES "z: f32[2,2] = [8, 0, 15, 3]\n" NODE("x, b, s, z")
           ATTRS), NULL, false},
    {"an order of rows",
     GRAPH(BYTES SCALES "i: i32[17] = [0,0,0,1,0,0,0,0,0,0,0,0,0,0,0,0,0]\n"
           NODE("x, b, s, _, i") ATTRS), NULL, false},
    {"no block",
     GRAPH(BYTES SCALES NODE("x, b, s") "{K=17, N=2, block_size=8}\n"), NULL,
     true},
    {"bytes that codes of 3 bits do not fill",
     GRAPH(BYTES SCALES NODE("x, b, s") "{K=17, N=2, bits=3, block_size=16}\n"),
     NULL, true},
    {"sizes that no memory has",
     TEST_GRAPH("x: f32[3,n]", "y", BYTES SCALES NODE("x, b, s")
                "{K=4611686018427387904, N=4611686018427387904, bits=4, "
                "block_size=16}\n"), NULL, true},
};
/* clang-format on */

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("nbits_to_qdq", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("nbits_to_qdq", tests, NULL, NULL);
}
