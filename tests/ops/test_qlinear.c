/* The byte-to-byte operators of com.microsoft, and MatMulNBits: hand values.
 * (tests/ort/test_quant_random.py compares them with ONNX Runtime.) */
#include "sbtest.h"

#include <math.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define VALUES(...) ((const double[]){__VA_ARGS__})

static sb_tensor *u8(const char *shape, const double *v)
{
    return test_tensor(SB_DTYPE_U8, shape, v);
}

static sb_tensor *i8(const char *shape, const double *v)
{
    return test_tensor(SB_DTYPE_I8, shape, v);
}

static void test_add_mul(void **state)
{
    (void)state;
    sb_tensor *a = u8("2x3", VALUES(10, 20, 30, 40, 250, 0));
    sb_tensor *b = u8("3", VALUES(5, 6, 7));

    /* ((a - 10) * 0.5 + (b - 5) * 1) / 0.5 + 1 */
    assert_tensor("add",
                  test_run1("graph g(a: u8[2,3], b: u8[3]) -> (y: u8[2,3]) {\n"
                            "  as: f32[] = 0.5\n  az: u8[] = 10\n"
                            "  bs: f32[] = 1\n  bz: u8[] = 5\n"
                            "  cs: f32[] = 0.5\n  cz: u8[] = 1\n"
                            "  y = com.microsoft::QLinearAdd(a, as, az, b, bs,"
                            " bz, cs, cz)\n}\n",
                            INPUTS(a, b)),
                  u8("2x3", VALUES(1, 13, 25, 31, 243, 0)), 0);
    /* (a - 10) * 0.5 * (b - 5) / 4 + 1, ties to even */
    assert_tensor("mul",
                  test_run1("graph g(a: u8[2,3], b: u8[3]) -> (y: u8[2,3]) {\n"
                            "  as: f32[] = 0.5\n  az: u8[] = 10\n"
                            "  bs: f32[] = 1\n  bz: u8[] = 5\n"
                            "  cs: f32[] = 4\n  cz: u8[] = 1\n"
                            "  y = com.microsoft::QLinearMul(a, as, az, b, bs,"
                            " bz, cs, cz)\n}\n",
                            INPUTS(a, b)),
                  u8("2x3", VALUES(1, 2, 6, 1, 31, 0)), 0);
}

static void test_unary_operators_are_tables_of_bytes(void **state)
{
    (void)state;
    sb_tensor *x = i8("5", VALUES(-128, -10, 0, 10, 127));

    /* x * 0.5 -> alpha 0.5 below 0 -> / 0.5 */
    assert_tensor("leaky relu",
                  test_run1("graph g(x: i8[5]) -> (y: i8[5]) {\n"
                            "  s: f32[] = 0.5\n  z: i8[] = 0\n"
                            "  y = com.microsoft::QLinearLeakyRelu(x, s, z, s,"
                            " z) {alpha=0.5}\n}\n",
                            INPUTS(x)),
                  i8("5", VALUES(-64, -5, 0, 10, 127)), 0);
    /* sigmoid(-64, -5, 0, 5, 63.5) * 256 - 128, saturated */
    assert_tensor("sigmoid",
                  test_run1("graph g(x: i8[5]) -> (y: i8[5]) {\n"
                            "  s: f32[] = 0.5\n  z: i8[] = 0\n"
                            "  ys: f32[] = 0.00390625\n  yz: i8[] = -128\n"
                            "  y = com.microsoft::QLinearSigmoid(x, s, z, ys,"
                            " yz)\n}\n",
                            INPUTS(x)),
                  i8("5", VALUES(-128, -126, 0, 126, 127)), 0);
}

/* More than a vector of them, and some that are left over: 128 below 0 become
 * half of themselves, ties to even. */
static void test_all_bytes_are_looked_up(void **state)
{
    enum { N = 300 };
    double x[N], want[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        x[i] = i % 256 - 128;
        want[i] = x[i] < 0 ? rint(x[i] / 2) : x[i];
    }
    assert_tensor("leaky relu of all bytes",
                  test_run1("graph g(x: i8[300]) -> (y: i8[300]) {\n"
                            "  s: f32[] = 0.5\n  z: i8[] = 0\n"
                            "  y = com.microsoft::QLinearLeakyRelu(x, s, z, s,"
                            " z) {alpha=0.5}\n}\n",
                            INPUTS(i8("300", x))),
                  i8("300", want), 0);
}

static void test_qlinear_softmax_by_hand(void **state)
{
    (void)state;
    sb_tensor *x = u8("2x2", VALUES(10, 10, 0, 255));

    assert_tensor("rows",
                  test_run1("graph g(x: u8[2,2]) -> (y: u8[2,2]) {\n"
                            "  s: f32[] = 0.1\n  z: u8[] = 0\n"
                            "  ys: f32[] = 0.00390625\n"
                            "  y = com.microsoft::QLinearSoftmax(x, s, z, ys,"
                            " z) {axis=1, opset=13}\n}\n",
                            INPUTS(x)),
                  u8("2x2", VALUES(128, 128, 0, 255)), 0);
    assert_tensor("columns",
                  test_run1("graph g(x: u8[2,2]) -> (y: u8[2,2]) {\n"
                            "  s: f32[] = 0.1\n  z: u8[] = 0\n"
                            "  ys: f32[] = 0.00390625\n"
                            "  y = com.microsoft::QLinearSoftmax(x, s, z, ys,"
                            " z) {axis=0, opset=13}\n}\n",
                            INPUTS(x)),
                  u8("2x2", VALUES(187, 0, 69, 255)), 0);
}

static void test_concat_where(void **state)
{
    (void)state;
    sb_tensor *a = u8("2x1", VALUES(10, 20)),
              *b = u8("2x2", VALUES(1, 2, 3, 4));
    sb_tensor *cond = test_tensor(SB_DTYPE_BOOL, "2x1", VALUES(1, 0));

    assert_tensor("concat",
                  test_run1("graph g(a: u8[2,1], b: u8[2,2]) -> (y: u8[2,3]) {"
                            "\n  ys: f32[] = 0.5\n  yz: u8[] = 1\n"
                            "  bs: f32[] = 2\n  bz: u8[] = 1\n"
                            "  y = com.microsoft::QLinearConcat(ys, yz, a, ys,"
                            " yz, b, bs, bz) {axis=1}\n}\n",
                            INPUTS(a, b)),
                  u8("2x3", VALUES(10, 1, 5, 20, 9, 13)), 0);
    assert_tensor("where",
                  test_run1("graph g(c: bool[2,1], a: u8[2,1], b: u8[2,2]) ->"
                            " (y: u8[2,2]) {\n"
                            "  ys: f32[] = 0.5\n  yz: u8[] = 1\n"
                            "  bs: f32[] = 2\n  bz: u8[] = 1\n"
                            "  y = com.microsoft::QLinearWhere(c, a, ys, yz,"
                            " b, bs, bz, ys, yz)\n}\n",
                            INPUTS(cond, a, b)),
                  u8("2x2", VALUES(10, 10, 9, 13)), 0);
}

static void test_qlinear_pools_by_hand(void **state)
{
    (void)state;
    sb_tensor *x = u8("1x2x2x2", VALUES(1, 2, 3, 4, 10, 20, 30, 41));

    /* mean(x - 1) * 0.5 / 0.25 + 2 */
    assert_tensor("global",
                  test_run1("graph g(x: u8[1,2,2,2]) -> (y: u8[1,2,1,1]) {\n"
                            "  xs: f32[] = 0.5\n  xz: u8[] = 1\n"
                            "  ys: f32[] = 0.25\n  yz: u8[] = 2\n"
                            "  y = com.microsoft::QLinearGlobalAveragePool(x,"
                            " xs, xz, ys, yz)\n}\n",
                            INPUTS(x)),
                  u8("1x2x1x1", VALUES(5, 50)), 0);
    assert_tensor("channels last",
                  test_run1("graph g(x: u8[1,2,2,2]) -> (y: u8[1,1,1,2]) {\n"
                            "  xs: f32[] = 0.5\n  xz: u8[] = 1\n"
                            "  ys: f32[] = 0.25\n  yz: u8[] = 2\n"
                            "  y = com.microsoft::QLinearGlobalAveragePool(x,"
                            " xs, xz, ys, yz) {channels_last=1}\n}\n",
                            INPUTS(x)),
                  u8("1x1x1x2", VALUES(22, 34)), 0);
    assert_tensor("sliding, padding not counted",
                  test_run1("graph g(x: u8[1,2,2,2]) -> (y: u8[1,2,2,2]) {\n"
                            "  xs: f32[] = 0.5\n  xz: u8[] = 1\n"
                            "  y = com.microsoft::QLinearAveragePool(x, xs, xz,"
                            " xs, xz) {kernel_shape=[2,2], strides=[2,2],"
                            " pads=[1,1,1,1]}\n}\n",
                            INPUTS(x)),
                  u8("1x2x2x2", VALUES(1, 2, 3, 4, 10, 20, 30, 41)), 0);
    assert_tensor("padding counted",
                  test_run1("graph g(x: u8[1,2,2,2]) -> (y: u8[1,2,1,1]) {\n"
                            "  xs: f32[] = 0.5\n  xz: u8[] = 1\n"
                            "  y = com.microsoft::QLinearAveragePool(x, xs, xz,"
                            " xs, xz) {kernel_shape=[3,2], pads=[1,0,0,0],"
                            " count_include_pad=1}\n}\n",
                            INPUTS(x)),
                  u8("1x2x1x1", VALUES(2, 17)), 0);
}

static void test_matmul_nbits(void **state)
{
    (void)state;
    /* K 17 in blocks of 16: the second block holds one weight. */
    double a[17], packed[2 * 2 * 8];
    float want[2] = {0, 0};
    const double scales[4] = {1, 2, 0.5, 4};

    for (int k = 0; k < 17; k++)
        a[k] = k - 5;
    for (int i = 0; i < 32; i++)
        packed[i] = (i * 37 + 11) % 256;
    for (int n = 0; n < 2; n++)
        for (int k = 0; k < 17; k++) {
            int byte = (int)packed[n * 16 + k / 2];
            int q = k % 2 ? byte / 16 : byte % 16;
            int zero = k < 16 ? 3 : 9; /* 0x93 */

            want[n] += (float)(a[k] * (q - zero) * scales[n * 2 + k / 16]);
        }
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "1x17", a);
    sb_tensor *b = u8("2x2x8", packed);
    sb_tensor *y = test_run1(
        "graph g(x: f32[1,17], b: u8[2,2,8]) -> (y: f32[1,2]) {\n"
        "  s: f32[4] = [1, 2, 0.5, 4]\n  z: u8[2] = [147, 147]\n"
        "  bias: f32[2] = [1, -1]\n"
        "  y = com.microsoft::MatMulNBits(x, b, s, z, _, bias) {K=17, N=2,"
        " bits=4, block_size=16}\n}\n",
        INPUTS(x, b));

    assert_close("0", ((float *)y->data)[0], want[0] + 1, 1e-4);
    assert_close("1", ((float *)y->data)[1], want[1] - 1, 1e-4);
    assert_status(test_try_run("graph g(x: f32[1,17], b: u8[2,2,8]) ->"
                               " (y: f32[1,2]) {\n  s: f32[3] = [1, 2, 3]\n"
                               "  y = com.microsoft::MatMulNBits(x, b, s)"
                               " {K=17, N=2, block_size=16}\n}\n",
                               INPUTS(x, b)),
                  SB_BAD_MODEL);
    assert_status(test_try_run("graph g(x: f32[1,17], b: u8[2,2,8]) ->"
                               " (y: f32[1,2]) {\n  s: f32[4] = 1\n"
                               "  y = com.microsoft::MatMulNBits(x, b, s)"
                               " {K=17, N=2, bits=5, block_size=16}\n}\n",
                               INPUTS(x, b)),
                  SB_UNSUPPORTED);
}

/* 3 bits: eight codes in three bytes, here 0 to 7 (0xfac688) over and over. */
static void test_matmul_nbits_of_three_bits(void **state)
{
    (void)state;
    double a[16], packed[6] = {0x88, 0xc6, 0xfa, 0x88, 0xc6, 0xfa};
    double want = 0;

    for (int k = 0; k < 16; k++) {
        a[k] = k * k;
        want += a[k] * (k % 8 - 4) * 0.5;
    }
    sb_tensor *y = test_run1(
        "graph g(x: f32[1,16], b: u8[1,1,6]) -> (y: f32[1,1]) {\n"
        "  s: f32[1] = 0.5\n  y = com.microsoft::MatMulNBits(x, b, s)"
        " {K=16, N=1, bits=3, block_size=16}\n}\n",
        INPUTS(test_tensor(SB_DTYPE_F32, "1x16", a), u8("1x1x6", packed)));

    assert_close("y", ((float *)y->data)[0], want, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_mul),
        cmocka_unit_test(test_unary_operators_are_tables_of_bytes),
        cmocka_unit_test(test_all_bytes_are_looked_up),
        cmocka_unit_test(test_qlinear_softmax_by_hand),
        cmocka_unit_test(test_concat_where),
        cmocka_unit_test(test_qlinear_pools_by_hand),
        cmocka_unit_test(test_matmul_nbits),
        cmocka_unit_test(test_matmul_nbits_of_three_bits),
    };
    return cmocka_run_group_tests_name("qlinear", tests, NULL, NULL);
}
