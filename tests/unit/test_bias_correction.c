/* Bias correction: means of what layers compute are those of the float network
 * again; the float network stays as it is; what is exported has the biases. */
#include "quanttest.h"

static const char graph[] =
    "graph main(x: f32[N,2,2,2]) -> (y) {\n"
    "w: f32[3,2,1,1] = [1, 0.3, -0.2, 0.7, 0.35, 0.6]\n"
    "v: f32[2,3,1,1] = [0.9, -0.4, 0.2, 0.45, 0.3, -0.75]\n"
    "b: f32[2] = [0.1, -0.2]\n"
    "c = Conv(x, w) \"first\"\n"
    "r = Relu(c)\n"
    "y = Conv(r, v, b) \"second\"\n}";

#define CONFIG(correct)                          \
    "SCHEDULE: {BIAS_CORRECTION: " correct "}\n" \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 2}}\n" TEST_A8

/* As the user's: what it says is done, whether it helps or not. */
static sb_quant_model *asked(const char *config, const char *target)
{
    sb_quant_model *qm = test_quant(graph, config, target);

    qm->asked = true;
    return qm;
}

static void means(const sb_tensor *y, double *out)
{
    for (int c = 0; c < 2; c++) {
        out[c] = 0;
        for (int64_t n = 0; n < y->dims[0]; n++)
            for (int i = 0; i < 4; i++)
                out[c] += sb_tensor_get_f64(y, (n * 2 + c) * 4 + i) /
                          (4 * (double)y->dims[0]);
    }
}

static void test_means_come_back(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "6x2x2x2", 1);
    const sb_tensor *data[] = {x, NULL};
    double want[2], plain[2], corrected[2];

    (void)state;
    sb_quant_model *qm = test_quant(graph, CONFIG("false"), NULL);
    test_calibrate(qm, NULL, data);
    means(test_quant_forward(qm, x), want);
    sb_quant_model_set_quant(qm, 1, 1);
    means(test_quant_forward(qm, x), plain);
    assert_null(sb_quant_model_step(qm, 0));
    sb_quant_model_free(qm);

    qm = asked(CONFIG("true"), NULL);
    test_calibrate(qm, NULL, data);
    const sb_quant_step *step = sb_quant_model_step(qm, 0);
    assert_non_null(step);
    assert_string_equal(step->name, "bias correction");
    assert_int_equal(step->layers, 2);
    assert_true(step->kept);
    means(test_quant_forward(qm, x), corrected);
    for (int c = 0; c < 2; c++)
        assert_close("float", corrected[c], want[c], 1e-6);
    sb_quant_model_set_quant(qm, 1, 1);
    means(test_quant_forward(qm, x), corrected);
    for (int c = 0; c < 2; c++) {
        assert_true(plain[c] - want[c] > 0.01 || want[c] - plain[c] > 0.01);
        assert_close("corrected", corrected[c], want[c], 1e-5);
    }
    sb_quant_model_free(qm);
}

/* In one batch or several: the mean over all. */
static void test_batches(void **state)
{
    const sb_tensor *a = test_random(SB_DTYPE_F32, "5x2x2x2", 2);
    const sb_tensor *b = test_random(SB_DTYPE_F32, "3x2x2x2", 3);
    const sb_tensor *data[] = {a, b, NULL};
    sb_quant_model *qm = asked(CONFIG("true"), "onnxruntime-x86");
    double sum[2][2] = {{0}}, m[2];

    (void)state;
    test_calibrate(qm, NULL, data);
    for (int on = 0; on < 2; on++) {
        sb_quant_model_set_quant(qm, on, on);
        for (int i = 0; i < 2; i++) {
            means(test_quant_forward(qm, data[i]), m);
            for (int c = 0; c < 2; c++)
                sum[on][c] += m[c] * (i == 0 ? 5 : 3) / 8;
        }
    }
    /* The second layer saw the first corrected by the first batch alone, and
     * its result is rounded to 8 bits. */
    for (int c = 0; c < 2; c++)
        assert_close("mean", sum[1][c], sum[0][c], 0.05);
    sb_quant_model_free(qm);
}

/* The file computes what the simulation does. */
static void test_export(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "6x2x2x2", 1);
    const sb_tensor *data[] = {x, NULL}, *y = NULL;
    sb_quant_model *qm = asked(CONFIG("true"), NULL);
    sb_model *model = NULL;
    sb_session *session = NULL;

    (void)state;
    test_calibrate(qm, NULL, data);
    sb_quant_model_set_quant(qm, 1, 1);
    const sb_tensor *want = test_quant_forward(qm, x);
    assert_int_equal(sb_quant_model_export_model(qm, NULL, &model), SB_OK);
    assert_int_equal(sb_session_create(model, NULL, &session), SB_OK);
    assert_int_equal(sb_session_run(session, &x, 1, &y, 1), SB_OK);
    for (int64_t i = 0; i < sb_tensor_count(want); i++)
        assert_close("y", sb_tensor_get_f64(y, i), sb_tensor_get_f64(want, i),
                     1e-5);
    sb_session_free(session);
    sb_model_free(model);
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means_come_back),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_export),
    };

    return cmocka_run_group_tests_name("bias_correction", tests, NULL, NULL);
}
