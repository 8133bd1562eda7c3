/* Quantizer "uniform": per channel, by group, beside fused activations, against
 * what the definition gives in double precision. */
#include <math.h>

#include "graph/text.h"
#include "qattest.h"

#define A8_PER_CHANNEL "A: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: 8}}\n"

static void test_per_channel_activations(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(
        "graph main(x: f32[N,3,2]) -> (y) {\nw: f32[2,2] = random(1)\n"
        "y = MatMul(x, w) \"fc\"\n}",
        TEST_W8 A8_PER_CHANNEL, NULL);
    const sb_tensor *data[] = {
        test_f32("2x3x2", 1, 2, -3, 4, 0, 0, 5, 0, 1, 1, 0, -2),
        test_f32("1x3x2", -1, 0, 9, 0, 0, 0), NULL};
    /* channel 0: 1 2 5 0 -1 0; 1: -3 4 1 1 9 0; 2: 0 0 0 -2 0 0 */
    static const double lo[] = {-1, -3, -2}, hi[] = {5, 9, 0};

    test_calibrate(qm, NULL, data);
    sb_quantizer_info q = test_quantizer(qm, "fc.input_quantizer");
    assert_int_equal(q.n, 3);
    assert_int_equal(q.axis, 1);
    for (int c = 0; c < 3; c++) {
        test_scale want = test_affine8(lo[c], hi[c]);
        assert_close("scale", q.scale[c], want.scale, 1e-7);
        assert_close("zero", q.zero_point[c], want.zero, 0);
    }
    sb_quant_model_set_quant(qm, 0, 1);
    const sb_tensor *out[1];
    assert_ok(test_quant_run(qm, data, out)); /* scales fit */
    sb_quant_model_free(qm);
}

/* The number of channels may not change from batch to batch. */
static void test_channels_that_change(void **state)
{
    (void)state;
    sb_quant_model *qm =
        test_quant("graph main(x: f32[N,C,2]) -> (y) {\n"
                   "w: f32[2,2] = random(1)\ny = MatMul(x, w) \"fc\"\n}",
                   TEST_W8 A8_PER_CHANNEL, NULL);
    const sb_tensor *a = test_random(SB_DTYPE_F32, "1x3x2", 1);
    const sb_tensor *b = test_random(SB_DTYPE_F32, "1x4x2", 2), *out[1];

    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_ok(test_quant_run(qm, &a, out));
    assert_status(test_quant_run(qm, &b, out), SB_BAD_ARG);
    assert_error_has("'x': 4 channels, want 3");
    sb_quant_model_free(qm);
}

/* Groups of 16 of 20 columns: the last of each row has 4. */
static void test_the_last_group_may_be_short(void **state)
{
    (void)state;
    static const char text[] =
        "graph main(x: f32[N,20]) -> (y) {\nw: f32[20,3] = random(5)\n"
        "y = MatMul(x, w) \"fc\"\n}";
    sb_quant_model *qm = test_quant(
        text,
        "W: {QSCHEME: per-group-symmetric, QUANTIZER: {BIT: 4, GROUP_SIZE: 16}}"
        "\nA: none\n",
        NULL);
    const sb_tensor *x = test_random(SB_DTYPE_F32, "2x20", 1);
    sb_graph *g = NULL;
    double scale[2][3], want[2][3] = {{0}};

    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_ok(sb_quant_model_calc_qparams(qm));
    sb_quantizer_info q = test_quantizer(qm, "fc.weight_quantizer");
    assert_int_equal(q.n, 6);
    assert_int_equal(q.axis, 0);
    assert_int_equal(q.group_size, 16);
    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    const float *w = g->values[sb_graph_find_value(g, "w")].constant.data;
    for (int b = 0; b < 2; b++)
        for (int c = 0; c < 3; c++) {
            double most = 0;
            for (int k = 16 * b; k < (b ? 20 : 16); k++) {
                double size = fabs((double)w[k * 3 + c]);
                most = size > most ? size : most;
            }
            scale[b][c] = most * 2 / 15;
            assert_close("scale", q.scale[b * 3 + c], scale[b][c],
                         1e-6 * scale[b][c]);
        }
    sb_quant_model_set_quant(qm, 1, 0);
    const sb_tensor *y = test_quant_forward(qm, x);
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 3; c++) {
            for (int k = 0; k < 20; k++) {
                test_scale s = {scale[k / 16][c], 0, -8, 7};
                want[i][c] += test_fake(s, (double)w[k * 3 + c]) *
                              (double)((const float *)x->data)[i * 20 + k];
            }
            assert_close("result", ((const float *)y->data)[i * 3 + c],
                         want[i][c], 1e-5);
        }
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* A value read by an activation that joined its layer, and by another layer:
 * that one is quantized all the same. */
static void test_fused_beside_a_reader(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(
        "graph main(x: f32[N,2]) -> (y, r) {\nw: f32[2,2] = [1, 0, 0, 1]\n"
        "v: f32[2,2] = [0, 1, 1, 0]\n"
        "c = MatMul(x, w) \"fc1\"\nr = Relu(c) \"act\"\n"
        "y = MatMul(c, v) \"fc2\"\n}",
        TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 2}, "
                "SPECIFIC: [{\"fc1\": [QUANTIZER.DISABLE, True]}]}\n",
        NULL);
    const sb_tensor *data[] = {test_f32("1x2", 0, 3), NULL};

    test_calibrate(qm, NULL, data);
    assert_true(test_quantizer(qm, "act.input_quantizer").fused);
    assert_close("scale", test_quantizer(qm, "fc2.input_quantizer").scale[0], 1,
                 1e-6);
    sb_quant_model_set_quant(qm, 0, 1);
    const sb_tensor *y = test_quant_forward(qm, test_f32("1x2", 0.375, 2.75));
    assert_close("y0", ((const float *)y->data)[0], 3, 1e-6);
    assert_close("y1", ((const float *)y->data)[1], 0, 1e-6);
    sb_quant_model_free(qm);
}

/* Trained, it keeps the scales of calibration, and gradients pass where values
 * are not clipped. */
static void test_straight_through(void **state)
{
    test_scale sx = {3.0 / 7, rint(1 / (3.0 / 7)), 0, 7}, sw[QAT_M];
    test_qat q;

    (void)state;
    test_qat_open(&q,
                  "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4}, "
                  "OBSERVER: {TYPE: percentile, PERCENTILE: {ALPHA: 0.3}}}\n"
                  "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 3}}\n",
                  -1);
    sb_quantizer_info w = test_quantizer(q.qm, "fc.weight_quantizer");
    for (int m = 0; m < QAT_M; m++)
        sw[m] = (test_scale){(double)w.scale[m], 0, -8, 7};
    for (int i = 0; i < QAT_N * QAT_K; i++)
        q.xq[i] = test_ste_of(sx, q.x[i], 0).y;
    for (int i = 0; i < QAT_K * QAT_M; i++)
        q.wq[i] = test_ste_of(sw[i % QAT_M], q.w[i], 0).y;
    test_qat_run(&q);
    int clipped = 0;
    for (int i = 0; i < QAT_K * QAT_M; i++) {
        test_ste e = test_ste_of(sw[i % QAT_M], q.w[i], q.dwq[i]);
        clipped += e.dx == 0;
        assert_close("gradient", test_qat_gradient(&q, "w", i), e.dx, 1e-5);
    }
    assert_in_range(clipped, 1, QAT_K * QAT_M - 1);
    assert_int_equal(sb_learner_parameter_count(q.learner), 1); /* w */
    test_qat_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_straight_through),
        cmocka_unit_test(test_per_channel_activations),
        cmocka_unit_test(test_channels_that_change),
        cmocka_unit_test(test_the_last_group_may_be_short),
        cmocka_unit_test(test_fused_beside_a_reader),
    };

    return cmocka_run_group_tests_name("quantizer_uniform", tests, NULL, NULL);
}
