/* Every allocation fails once while a quantized network is read back and
 * written again: pairs, a Clip, constants of all kinds, an embedding table. */
#include "quanttest.h"

#include "graph/text.h"
#include "quant/export/export.h"

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

/* A convolution with a bias, a product, and what ONNX Runtime fuses. */
static const char dynamic[] =
    "graph net(x: f32[N,1,2,2]) -> (y) {\n"
    "q, s, z = DynamicQuantizeLinear(x)\n"
    "k_quantized: i8[2,1,2,2] = [1, 2, 3, 4, 5, 6, 7, 8]\n"
    "ks: f32[2,1,1] = [0.5, 2]\nkz: i8[] = 0\n"
    "p = ConvInteger(q, k_quantized, z, kz)\nc = Cast(p) {to=1}\n"
    "m = Mul(s, ks)\na = Mul(c, m) \"conv\"\n"
    "b: f32[2,1,1] = [1, 2]\nd = Add(a, b)\ne = Flatten(d)\n"
    "w: u8[2,2] = [1, 2, 3, 250]\nws: f32[2] = [0.5, 0.25]\nwz: u8[] = 3\n"
    "q2, s2, z2 = DynamicQuantizeLinear(e)\n"
    "p2 = MatMulInteger(q2, w, z2, wz)\nc2 = Cast(p2) {to=1}\n"
    "m2 = Mul(s2, ws)\nf = Mul(c2, m2) \"fc\"\n"
    "y = com.microsoft::DynamicQuantizeMatMul(f, w, ws) \"fc2\"\n}";

static const char packed[] =
    "graph net(x: f32[N,16]) -> (y) {\n"
    "w_packed: u8[2,1,8] = 99\ns: f32[2] = 0.5\nz: u8[2] = 7\n"
    "b: f32[2] = [1, 2]\n"
    "a = com.microsoft::MatMulNBits(x, w_packed, s, z, _, b) "
    "{K=16, N=2, bits=4, block_size=16} \"first\"\n"
    "v_quantized: i8[3,2] = [5, -7, 3, 2, 9, 1]\n"
    "vs: f32[3] = [0.5, 0.25, 1]\nvz: i8[3] = 0\n"
    "v = DequantizeLinear(v_quantized, vs, vz) {axis=0}\n"
    "y = Gemm(a, v) {transB=1} \"second\"\n}";

static const char normalized[] =
    "graph g(x: f32[1,1,2,2]) -> (y) {\n"
    "w_quantized: i8[2,1,1,1] = [5, -7]\nws: f32[] = 0.5\nwz: i8[] = 0\n"
    "w = DequantizeLinear(w_quantized, ws, wz)\n"
    "gamma: f32[2] = [4, -1]\nbeta: f32[2] = [1, 2]\n"
    "mean: f32[2] = [0, 0]\nvar: f32[2] = [3, 3]\n"
    "c = Conv(x, w) \"conv\"\n"
    "y = BatchNormalization(c, gamma, beta, mean, var)\n}";

static sb_status as_it_was(sb_ctx *ctx)
{
    return test_quant_write(ctx, net, TEST_W8 TEST_A8, NULL,
                            SB_EXPORT_FORMAT_QDQ);
}

static sb_status integer_operators(sb_ctx *ctx)
{
    return test_quant_write(ctx, net, TEST_W8 TEST_A8, "onnxruntime-x86",
                            SB_EXPORT_FORMAT_QOPERATOR);
}

static sb_status a_table(sb_ctx *ctx)
{
    return test_quant_write(ctx, table, TEST_W8 "A: none\n", "onnxruntime-x86",
                            SB_EXPORT_FORMAT_QDQ);
}

/* What the file quantizes, in its own mode. */
static sb_status as_the_file_says(sb_ctx *ctx, const char *text,
                                  const char *target, sb_export_format format)
{
    static const char dynamic_yaml[] = TEST_W8 "A: dynamic\n";
    static const char none_yaml[] = TEST_W8 "A: none\n";
    const sb_export_choice choice = {.format = format};
    sb_quant_config *config = NULL;
    sb_quant_model *qm = NULL;
    sb_graph *g = NULL, *out = NULL;
    int64_t opset = 0;

    SB_TRY(sb_graph_parse(ctx, text, &g));
    sb_status status = sb_graph_infer(g);
    const char *yaml =
        sb_import_mode(g) == SB_QUANT_DYNAMIC ? dynamic_yaml : none_yaml;
    if (status == SB_OK)
        status =
            sb_quant_config_load_memory(ctx, "test.yaml", yaml, strlen(yaml),
                                        SB_QUANT_CONFIG_QUANT, &config);
    if (status == SB_OK)
        status = sb_quant_model_build(ctx, g, config, sb_target_find(target),
                                      &(const sb_build_options){.follow = true},
                                      &qm);
    if (status == SB_OK)
        status = sb_quant_model_calc_qparams(qm);
    if (status == SB_OK)
        status = sb_export_graph(qm, &choice, &out, &opset);
    sb_graph_free(out);
    sb_quant_model_free(qm);
    sb_graph_free(g);
    return status;
}

static sb_status a_dynamic_file(sb_ctx *ctx)
{
    return as_the_file_says(ctx, dynamic, "onnxruntime-x86",
                            SB_EXPORT_FORMAT_QDQ);
}

static sb_status packed_weights(sb_ctx *ctx)
{
    return as_the_file_says(ctx, packed, "onnxruntime-x86",
                            SB_EXPORT_FORMAT_MATMULNBITS);
}

static sb_status a_normalized_layer(sb_ctx *ctx)
{
    return test_quant_write(ctx, normalized,
                            "SCHEDULE: {FUSE_BN: true}\n" TEST_W8 "A: none\n",
                            NULL, SB_EXPORT_FORMAT_QDQ);
}

/* Biases go back into their layers. */
static sb_status calibrated_now(sb_ctx *ctx)
{
    sb_quant_model *qm = NULL;

    SB_TRY(
        test_quant_try(ctx, dynamic, TEST_W8 TEST_A8, "onnxruntime-x86", &qm));
    sb_quant_model_free(qm);
    return SB_OK;
}

/* What the file that was written last tells of itself: weights with
 * per-channel scales, and with one. */
static sb_status tell(sb_ctx *ctx)
{
    sb_model *m = NULL;
    const sb_model_info *info = NULL;

    SB_TRY(sb_model_load(ctx, test_quant_file(), &m));
    sb_status status = sb_model_info_get(m, &info);
    if (status == SB_OK)
        assert_int_equal(info->n_quant_weights, 2);
    const sb_quant_value *const *values = NULL;
    size_t n = 0;
    if (status == SB_OK)
        status = sb_model_list_quantized(m, &values, &n);
    if (status == SB_OK)
        assert_int_equal(n, 5); /* two weights, three activations */
    sb_model_free(m);
    return status;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("as it was", as_it_was);
    test_every_allocation("integer operators", integer_operators);
    test_every_allocation("told", tell);
    test_every_allocation("a table", a_table);
    test_every_allocation("a dynamic file", a_dynamic_file);
    test_every_allocation("packed weights", packed_weights);
    test_every_allocation("a normalized layer", a_normalized_layer);
    test_every_allocation("calibrated now", calibrated_now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests_name("oom_import", tests, NULL, NULL);
}
