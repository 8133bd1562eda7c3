/* Every allocation fails once while a quantized network is read back and
 * written again: pairs, a Clip, constants of all kinds, an embedding table. */
#include "quanttest.h"

static const char net[] =
    "graph net(x: f32[N,2,4,4]) -> (y) {\n"
    "xs: f32[] = 0.5\nxz: u8[] = 3\n"
    "xq = QuantizeLinear(x, xs, xz)\nxd = DequantizeLinear(xq, xs, xz)\n"
    "w_quantized: i8[3,2,1,1] = [1, -2, 3, 127, 5, -6]\n"
    "ws: f32[3] = [1, 0.5, 2]\nwz: i8[3] = 0\n"
    "w = DequantizeLinear(w_quantized, ws, wz) {axis=0}\n"
    "w2 = DequantizeLinear(w_quantized, ws, wz) {axis=0}\n"
    "b_quantized: i32[3] = [1, 2, 3]\nbs: f32[3] = [0.5, 0.25, 1]\n"
    "bz: i32[3] = 0\n"
    "b = DequantizeLinear(b_quantized, bs, bz) {axis=0}\n"
    "c = Conv(xd, w, b) \"conv\"\n"
    "cl: f32[] = 0\nch: f32[] = 7.5\nz0: u8[] = 0\nk = Clip(c, cl, ch)\n"
    "kq = QuantizeLinear(k, xs, z0)\nkd = DequantizeLinear(kq, xs, z0)\n"
    "v: f32[2,3,1,1] = random(3)\nvs: f32[] = 0.25\nvz: i8[] = 0\n"
    "vq = QuantizeLinear(v, vs, vz)\nvd = DequantizeLinear(vq, vs, vz)\n"
    "d = Conv(kd, vd) \"conv2\"\n"
    "eq = QuantizeLinear(d, xs, xz)\ned = DequantizeLinear(eq, xs, xz)\n"
    "y = Conv(ed, w2) \"conv3\"\n}";

static const char table[] =
    "graph net(i: i64[N,2]) -> (y) {\n"
    "t_quantized: u8[4,2] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
    "ts: f32[4,1] = [1, 0.5, 2, 4]\ntz: u8[4,1] = 3\n"
    "a = Gather(t_quantized, i)\nb = Gather(ts, i)\nc = Gather(tz, i)\n"
    "d = DequantizeLinear(a, b, c) {axis=2, block_size=2}\n"
    "u: f32[2,3] = random(4)\ny = MatMul(d, u) \"fc\"\n}";

static sb_status as_it_was(sb_ctx *ctx)
{
    return test_quant_write(ctx, net, TEST_W8 TEST_A8, NULL, SB_EXPORT_QDQ);
}

static sb_status integer_operators(sb_ctx *ctx)
{
    return test_quant_write(ctx, net, TEST_W8 TEST_A8, "onnxruntime-x86",
                            SB_EXPORT_QOPERATOR);
}

static sb_status a_table(sb_ctx *ctx)
{
    return test_quant_write(ctx, table, TEST_W8 "A: none\n", "onnxruntime-x86",
                            SB_EXPORT_QDQ);
}

/* What the file that was written last tells of itself: weights with a scale a
 * channel, and with one for all. */
static sb_status tell(sb_ctx *ctx)
{
    sb_model *m = NULL;
    sb_model_info info;

    SB_TRY(sb_model_load(ctx, test_quant_file(), &m));
    sb_status status = sb_model_info_get(ctx, m, &info);
    if (status == SB_OK)
        assert_int_equal(info.n_quant_weights, 2);
    sb_model_free(m);
    return status;
}

static void test_scenarios(void **state)
{
    (void)state;
    test_every_allocation("as it was", as_it_was);
    test_every_allocation("integer operators", integer_operators);
    test_every_allocation("told", tell);
    test_every_allocation("a table", a_table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenarios)};

    return cmocka_run_group_tests_name("oom_import", tests, NULL, NULL);
}
