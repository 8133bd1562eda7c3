/* Quantized files as models again: which quantizers stand where, and what
 * became of the scales that the file brought along; worked out by hand. */
#include "quanttest.h"

#include "graph/text.h"
#include "quant/export/export.h"

#define BN "SCHEDULE: {FUSE_BN: true}\n"

static const char dynamic_yaml[] = BN TEST_W8 "A: dynamic\n";
static const char none_yaml[] = BN TEST_W8 "A: none\n";

/* ---- helpers ------------------------------------------------------------ */

/* A model of what the file quantizes, in its own mode. */
static sb_status try_again(const char *text, const char *target,
                           sb_quant_model **out)
{
    sb_ctx *ctx = test_ctx();
    sb_quant_config *config = NULL;
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(ctx, text, &g));
    assert_ok(sb_graph_infer(g));
    sb_quant_mode mode = sb_import_mode(g);
    assert_int_not_equal(mode, SB_QUANT_STATIC);
    const char *yaml = mode == SB_QUANT_DYNAMIC ? dynamic_yaml : none_yaml;
    assert_ok(sb_quant_config_load_memory(ctx, "test.yaml", yaml, strlen(yaml),
                                          SB_QUANT_CONFIG_QUANT, &config));
    const sb_build_options opt = {.follow = true};
    sb_status status = sb_quant_model_build(
        ctx, g, config, target ? sb_target_find(target) : NULL, &opt, out);
    sb_graph_free(g);
    return status;
}

static sb_quant_model *again(const char *text, const char *target)
{
    sb_quant_model *qm = NULL;

    assert_ok(try_again(text, target, &qm));
    assert_ok(sb_quant_model_calc_qparams(qm));
    return qm;
}

static sb_graph *exported(const sb_quant_model *qm)
{
    const sb_export_choice choice = {.format = SB_EXPORT_FORMAT_QDQ};
    sb_graph *g = NULL;
    int64_t opset = 0;

    assert_ok(sb_export_graph(qm, &choice, &g, &opset));
    return g;
}

static size_t count(const sb_graph *g, const char *op)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && strcmp(g->nodes[i].op, op) == 0;
    return n;
}

static void check_constant(const sb_graph *g, const char *name, sb_dtype dtype,
                           const double *want, int64_t n)
{
    sb_value_id v = sb_graph_find_value(g, name);

    if (v == SB_NONE)
        fail_msg("no '%s'", name);
    const sb_tensor *t = &sb_graph_value(g, v)->constant;
    assert_int_equal(t->dtype, dtype);
    assert_int_equal(sb_tensor_count(t), n);
    for (int64_t i = 0; i < n; i++)
        assert_close(name, sb_tensor_get_f64(t, i), want[i], 1e-6);
}

/* ---- dynamic files ------------------------------------------------------ */

/* One layer that quantizes at each run, one that does not, a bias. */
static const char dynamic_net[] =
    "graph g(x: f32[N,2]) -> (y) {\n"
    "w_quantized: i8[2,2] = [5, -7, 3, 2]\nws: f32[2] = [0.5, 0.25]\n"
    "wz: i8[2] = 0\nb: f32[2] = [1, -1]\nv: f32[2,2] = [1, 2, 3, 4]\n"
    "q, s, z = DynamicQuantizeLinear(x)\np = MatMulInteger(q, w_quantized, z, "
    "wz)\nc = Cast(p) {to=1}\nm = Mul(s, ws)\na = Mul(c, m) \"first\"\n"
    "d = Add(a, b)\ny = MatMul(d, v) \"second\"\n}";

static void test_dynamic_stays(void **state)
{
    (void)state;
    static const char *const targets[] = {NULL, "onnxruntime-x86"};

    for (size_t i = 0; i < SB_COUNT(targets); i++) {
        sb_quant_model *qm = again(dynamic_net, targets[i]);

        assert_string_equal(
            test_quant_list(qm),
            "first.input_quantizer: x 8 per-tensor-affine\n"
            "first.weight_quantizer: w 8 per-channel-symmetric\n");
        sb_quantizer_info w = test_quantizer(qm, "first.weight_quantizer");
        assert_close("scale", (double)w.scale[1], 0.25, 0);
        sb_graph *g = exported(qm);
        assert_int_equal(count(g, "MatMulInteger"), 1);
        assert_int_equal(count(g, "MatMul"), 1);
        check_constant(g, "w_quantized", SB_DTYPE_I8, (double[]){5, -7, 3, 2},
                       4);
        check_constant(g, "w_scale", SB_DTYPE_F32, (double[]){0.5, 0.25}, 2);
        sb_graph_free(g);
        sb_quant_model_free(qm);
    }
}

/* Calibrated now: the same integers, and the bias inside. */
static void test_dynamic_is_calibrated(void **state)
{
    (void)state;
    sb_quant_model *qm =
        test_quant(dynamic_net, TEST_W8 TEST_A8, "onnxruntime-x86");

    assert_false(sb_imported_calibrated(&qm->known));
    sb_tensor *x = test_f32("2x2", -32, 95.5, 1, 2);
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    sb_quantizer_info w = test_quantizer(qm, "first.weight_quantizer");
    assert_close("scale", (double)w.scale[0], 0.5, 0);
    sb_graph *g = exported(qm);
    assert_int_equal(count(g, "Gemm"), 1);
    assert_int_equal(count(g, "Add"), 0);
    assert_int_equal(count(g, "DynamicQuantizeLinear"), 0);
    check_constant(g, "w_quantized", SB_DTYPE_I8, (double[]){5, -7, 3, 2}, 4);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

static void test_dynamic_without_kernels(void **state)
{
    (void)state;
    sb_quant_model *qm = NULL;

    assert_status(try_again(dynamic_net, "tensorrt", &qm), SB_BAD_ARG);
    assert_error_has("the file quantizes activations at each run, and target "
                     "tensorrt has no kernels for that");
}

/* ---- weight-only -------------------------------------------------------- */

static const char nbits_net[] =
    "graph g(x: f32[N,16]) -> (y) {\n"
    "w_packed: u8[1,1,8] = [16,50,84,118,152,186,220,254]\n"
    "s: f32[1] = [-0.5]\nv: f32[1,2] = [1, 2]\n"
    "a = com.microsoft::MatMulNBits(x, w_packed, s) "
    "{K=16, N=1, bits=4, block_size=16} \"first\"\n"
    "y = MatMul(a, v) \"second\"\n}";

static void test_packed_weights(void **state)
{
    (void)state;
    static const char *const targets[] = {NULL, "onnxruntime-x86", "openvino"};
    static const double codes[] = {-8, -7, -6, -5, -4, -3, -2, -1,
                                   0,  1,  2,  3,  4,  5,  6,  7};

    for (size_t i = 0; i < SB_COUNT(targets); i++) {
        sb_quant_model *qm = again(nbits_net, targets[i]);

        assert_string_equal(
            test_quant_list(qm),
            "first.weight_quantizer: w 4 per-group-symmetric\n");
        sb_graph *g = exported(qm);
        check_constant(g, "w_quantized", SB_DTYPE_I4, codes, 16);
        check_constant(g, "w_scale", SB_DTYPE_F32, (double[]){-0.5}, 1);
        sb_graph_free(g);
        sb_quant_model_free(qm);
    }
}

/* Kernels want scales above 0: quantized anew, to nearly the same weights. */
static void test_packed_for_kernels(void **state)
{
    (void)state;
    sb_quant_model *qm =
        test_quant(nbits_net, TEST_W8 TEST_A8, "onnxruntime-x86");
    sb_tensor *x = test_random(SB_DTYPE_F32, "1x16", 1);

    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    sb_quantizer_info w = test_quantizer(qm, "first.weight_quantizer");
    assert_int_equal(w.bits, 8);
    assert_close("scale", (double)w.scale[0], 4.0 / 127, 1e-6);
    sb_quant_model_free(qm);
}

static const char table_net[] =
    "graph g(i: i64[N]) -> (y) {\n"
    "t_quantized: i4[3,2] = [-7, 7, 1, 2, 3, 4]\n"
    "s: f32[3] = [0.5, 2, 1]\nz: i4[3] = 0\n"
    "t = DequantizeLinear(t_quantized, s, z) {axis=0}\n"
    "y = Gather(t, i) \"table\"\n}";

/* Gather takes bytes there: the same numbers in them, of 4 bit still. */
static void test_table_of_4_bit(void **state)
{
    (void)state;
    sb_quant_model *qm = again(table_net, "onnxruntime-x86");

    assert_string_equal(test_quant_list(qm),
                        "table.weight_quantizer: t 4 per-channel-symmetric\n");
    sb_graph *g = exported(qm);
    check_constant(g, "t_quantized", SB_DTYPE_I8, (double[]){-7, 7, 1, 2, 3, 4},
                   6);
    assert_int_equal(count(g, "Gather"), 3);
    sb_graph_free(g);
    sb_quant_model_free(qm);
    qm = again(table_net, NULL);
    g = exported(qm);
    check_constant(g, "t_quantized", SB_DTYPE_I4, (double[]){-7, 7, 1, 2, 3, 4},
                   6);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* ---- scales that follow their weight ------------------------------------ */

/* gamma / sqrt(var + epsilon) is 2 and -0.5; the kernel has one scale. */
static const char normalized[] =
    "graph g(x: f32[1,1,2,2]) -> (y) {\n"
    "w_quantized: i8[2,1,1,1] = [5, -7]\nws: f32[] = 0.5\nwz: i8[] = 0\n"
    "w = DequantizeLinear(w_quantized, ws, wz)\n"
    "gamma: f32[2] = [4, -1]\nbeta: f32[2] = [1, 2]\n"
    "mean: f32[2] = [0, 0]\nvar: f32[2] = [3, 3]\n"
    "c = Conv(x, w) \"conv\"\n"
    "y = BatchNormalization(c, gamma, beta, mean, var) {epsilon=1.0}\n}";

static void test_batch_normalization(void **state)
{
    (void)state;
    sb_quant_model *qm = again(normalized, NULL);
    sb_quantizer_info w = test_quantizer(qm, "conv.weight_quantizer");

    assert_int_equal(w.n, 2);
    assert_close("scale", (double)w.scale[0], 1, 0);
    assert_close("scale", (double)w.scale[1], -0.25, 0);
    sb_graph *g = exported(qm);
    assert_int_equal(count(g, "BatchNormalization"), 0);
    for (size_t i = 0; i < g->n_values; i++)
        if (sb_graph_value(g, (sb_value_id)i)->type.dtype == SB_DTYPE_I8 &&
            sb_graph_value(g, (sb_value_id)i)->constant.rank == 4)
            check_constant(g, sb_graph_value(g, (sb_value_id)i)->name,
                           SB_DTYPE_I8, (double[]){5, -7}, 2);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* The turned weight of a Gemm: integers and scales turn, too. */
static void test_gemm_is_turned(void **state)
{
    (void)state;
    sb_quant_model *qm =
        again("graph g(x: f32[N,2]) -> (y) {\n"
              "w_quantized: i8[3,2] = [5, -7, 3, 2, 9, 1]\n"
              "ws: f32[3] = [0.5, 0.25, 1]\nwz: i8[3] = 0\n"
              "w = DequantizeLinear(w_quantized, ws, wz) {axis=0}\n"
              "y = Gemm(x, w) {transB=1, alpha=2.0} \"fc\"\n}",
              "onnxruntime-x86");
    sb_quantizer_info w = test_quantizer(qm, "fc.weight_quantizer");

    assert_int_equal(w.axis, 1);
    assert_close("scale", (double)w.scale[1], 0.5, 0);
    sb_graph *g = exported(qm);
    char name[64];
    (void)snprintf(name, sizeof name, "%s_quantized", w.value);
    check_constant(g, name, SB_DTYPE_I8, (double[]){5, 3, 9, -7, 2, 1}, 6);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* ---- for want of data --------------------------------------------------- */

/* The second layer has no scale in the file: left out without data, and back
 * when there is some. */
static void test_left_out_until_data(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(
        "graph g(x: f32[N,2]) -> (y) {\ns: f32[] = 0.5\nz: u8[] = 3\n"
        "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\n"
        "w: f32[2,2] = [1, 2, 3, 4]\na = MatMul(d, w) \"first\"\n"
        "t = Tanh(a)\ny = MatMul(t, w) \"second\"\n}",
        TEST_W8 TEST_A8, "onnxruntime-x86");
    sb_tensor *x = test_f32("1x2", 1, 2);
    size_t off = 0;

    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_ok(sb_quant_model_calc_qparams(qm));
    for (size_t i = 0; i < qm->place.n_quantizers; i++)
        off += sb_quantizer_is_off(qm, &qm->place.quantizers[i]);
    assert_int_equal(off, 1);
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        assert_false(sb_quantizer_is_off(qm, &qm->place.quantizers[i]));
        assert_true(qm->state.quantizers[i].qparams.n > 0);
    }
    sb_quant_model_free(qm);
}

/* ---- what a file has and a configuration asks for ----------------------- */

/* The integers of a file do not become others without the floats. */
static void test_other_settings_are_refused(void **state)
{
    static const char text[] =
        "graph g(x: f32[N,16]) -> (y) {\nws: f32[1,1] = [1]\n"
        "wq: i8[16,1] = [127, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, "
        "-127]\n"
        "w = DequantizeLinear(wq, ws) {axis=0, block_size=16}\n"
        "y = MatMul(x, w) \"fc\"\n}";
    static const struct {
        const char *settings, *target, *want; /* want NULL: as the file */
    } rows[] = {
        {"BIT: 8, GROUP_SIZE: 16", "onnxruntime-x86", NULL},
        {"BIT: 8, GROUP_SIZE: 16", "virtual", NULL},
        {"BIT: 4, GROUP_SIZE: 16", "onnxruntime-x86",
         "test.yaml: W.QUANTIZER.BIT is 4, but 'w' is quantized to 8 bits "
         "already; quantize the float model"},
        {"BIT: 4, GROUP_SIZE: 16", "virtual", "W.QUANTIZER.BIT is 4"},
        {"BIT: 8, GROUP_SIZE: 32", "onnxruntime-x86",
         "W.QUANTIZER.GROUP_SIZE is 32, but 'w' has groups of 16 already"},
    };
    sb_ctx *ctx = test_ctx();

    (void)state;
    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        const sb_build_options opt = {.asked = true};
        sb_quant_config *config = NULL;
        sb_quant_model *qm = NULL;
        sb_graph *g = NULL;
        char yaml[160];

        (void)snprintf(yaml, sizeof yaml,
                       "W: {QSCHEME: per-group-symmetric, QUANTIZER: {%s}}\n"
                       "A: none\n",
                       rows[i].settings);
        assert_ok(sb_graph_parse(ctx, text, &g));
        assert_ok(sb_graph_infer(g));
        assert_ok(sb_quant_config_load_memory(ctx, "test.yaml", yaml,
                                              strlen(yaml),
                                              SB_QUANT_CONFIG_QUANT, &config));
        sb_status status = sb_quant_model_build(
            ctx, g, config, sb_target_find(rows[i].target), &opt, &qm);
        sb_graph_free(g);
        if (rows[i].want) {
            assert_status(status, SB_BAD_CONFIG);
            assert_error_has(rows[i].want);
        } else {
            assert_ok(status);
            sb_quant_model_free(qm);
        }
    }
}

/* An output of integers has a scale of its own; the layer before it needs no
 * second one, which nothing would read. */
static void test_integers_as_output(void **state)
{
    static const char *const targets[] = {
        "onnxruntime-x86", "onnxruntime-arm", "tensorrt", "openvino", "qnn",
        "virtual"};
    sb_tensor *x = test_f32("1x2x1x1", 1, 2);

    (void)state;
    for (size_t i = 0; i < SB_COUNT(targets); i++) {
        sb_quant_model *qm = test_quant(
            "graph g(x: f32[N,2,1,1]) -> (y) {\n"
            "s: f32[] = 0.5\nz: u8[] = 0\nw: f32[2,2,1,1] = [1, 2, 3, 4]\n"
            "c = Conv(x, w) \"conv\"\na = Relu(c)\n"
            "y = QuantizeLinear(a, s, z)\n}",
            strncmp(targets[i], "tensorrt", 8) == 0
                ? "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n"
                  "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n"
                : "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n"
                  "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n",
            targets[i]);
        test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
        sb_graph_free(exported(qm));
        sb_quant_model_free(qm);
    }
}

static void test_scales_of_activations_are_positive(void **state)
{
    sb_quant_model *qm = NULL;

    (void)state;
    assert_status(test_quant_try(test_ctx(),
                                 "graph g(x: f32[N,2]) -> (y) {\n"
                                 "s: f32[] = -0.5\nz: u8[] = 3\n"
                                 "w: f32[2,2] = [1, 2, 3, 4]\n"
                                 "q = QuantizeLinear(x, s, z) \"quant\"\n"
                                 "d = DequantizeLinear(q, s, z)\n"
                                 "y = MatMul(d, w) \"first\"\n}",
                                 TEST_W8 TEST_A8, "onnxruntime-x86", &qm),
                  SB_BAD_MODEL);
    assert_error_has("node 'quant': scale 0 is -0.5, want a finite number "
                     "above 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dynamic_stays),
        cmocka_unit_test(test_dynamic_is_calibrated),
        cmocka_unit_test(test_dynamic_without_kernels),
        cmocka_unit_test(test_packed_weights),
        cmocka_unit_test(test_packed_for_kernels),
        cmocka_unit_test(test_table_of_4_bit),
        cmocka_unit_test(test_batch_normalization),
        cmocka_unit_test(test_gemm_is_turned),
        cmocka_unit_test(test_left_out_until_data),
        cmocka_unit_test(test_other_settings_are_refused),
        cmocka_unit_test(test_integers_as_output),
        cmocka_unit_test(test_scales_of_activations_are_positive),
    };

    return cmocka_run_group_tests_name("quant_readback", tests, NULL, NULL);
}
