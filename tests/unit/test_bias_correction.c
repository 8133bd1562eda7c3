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

/* ---- without a configuration of the user -------------------------------- */

#define CHOICE(bits)                                                        \
    "SCHEDULE: {BIAS_CORRECTION: true, LAYERWISE: false}\n"                 \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: " bits ", TYPE: " \
    "gptq}}\n" TEST_A8

static const char wide[] =
    "graph main(x: f32[N,6,2,2]) -> (y) {\n"
    "w: f32[8,6,1,1] = [0.25, 0.48, 0.59, 0.88, 0.48, 0.84, -0.94, "
    "-0.07, 0.89, 0.30, 0.80, -0.77, -0.06, -0.51, 0.09, 0.15, -0.97, "
    "-0.57, -0.44, 0.83, 0.53, -0.68, 0.59, -0.72, 0.23, -0.75, -1.00, "
    "0.74, -0.58, -0.57, 0.96, 0.74, -0.42, 0.92, 0.08, 0.36, -0.59, "
    "0.88, 0.38, 0.93, 0.79, -0.40, -0.28, -0.67, -0.71, -0.87, -0.40, "
    "0.21]\n"
    "v: f32[2,8,1,1] = [-0.99, 0.36, -0.32, -0.38, 0.64, -0.04, -0.37, "
    "-0.04, 0.41, -0.89, 0.95, -0.95, 0.50, 0.69, -0.96, 0.58]\n"
    "b: f32[2] = [0.1, -0.2]\n"
    "c = Conv(x, w) \"first\"\n"
    "r = Relu(c)\n"
    "y = Conv(r, v, b) \"second\"\n}";

enum { SAMPLES = 64 };

static void random_samples(const sb_tensor **data)
{
    for (unsigned i = 0; i < SAMPLES; i++)
        data[i] = test_random(SB_DTYPE_F32, "1x6x2x2", 10 + i);
    data[SAMPLES] = NULL;
}

/* Noise of the outputs on samples that calibration did not see. */
static double noise_of(sb_quant_model *qm)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "40x6x2x2", 99);
    double want[40 * 8], sum = 0;
    const sb_tensor *y = test_quant_forward(qm, x);

    for (int i = 0; i < 40 * 8; i++)
        want[i] = sb_tensor_get_f64(y, i);
    sb_quant_model_set_quant(qm, 1, 1);
    y = test_quant_forward(qm, x);
    for (int i = 0; i < 40 * 8; i++) {
        double d = sb_tensor_get_f64(y, i) - want[i];
        sum += d * d;
    }
    return sum;
}

/* Two bits are far off: the second layer makes up for what the first one lost.
 * Rounding and biases alone, as a configuration says, do not. */
static void test_far_off_is_fitted(void **state)
{
    const sb_tensor *data[SAMPLES + 1];
    sb_quant_model *fitted = test_quant(wide, CHOICE("2"), NULL);
    sb_quant_model *rounded = test_quant(wide, CHOICE("2"), NULL);

    (void)state;
    rounded->asked = true;
    random_samples(data);
    test_calibrate(fitted, NULL, data);
    test_calibrate(rounded, NULL, data);
    const sb_quant_step *step = sb_quant_model_step(fitted, 0);
    assert_non_null(step);
    assert_string_equal(step->name, "weights fitted layer by layer");
    assert_true(step->kept);
    assert_true(step->after < step->before);
    assert_null(sb_quant_model_step(fitted, 1));
    step = sb_quant_model_step(rounded, 0);
    assert_string_equal(step->name, "rounding of weights");
    assert_true(noise_of(fitted) < noise_of(rounded));
    sb_quant_model_free(fitted);
    sb_quant_model_free(rounded);
}

/* Eight are near: there is nothing to make up for. */
static void test_near_is_rounded(void **state)
{
    const sb_tensor *data[SAMPLES + 1];
    sb_quant_model *qm = test_quant(wide, CHOICE("8"), NULL);

    (void)state;
    random_samples(data);
    test_calibrate(qm, NULL, data);
    assert_string_equal(sb_quant_model_step(qm, 0)->name,
                        "rounding of weights");
    sb_quant_model_free(qm);
}

static void check_step(const sb_quant_model *qm, size_t i, const char *name,
                       size_t layers, int kept)
{
    const sb_quant_step *step = sb_quant_model_step(qm, i);

    assert_non_null(step);
    assert_string_equal(step->name, name);
    assert_int_equal(step->layers, layers);
    assert_int_equal(step->kept, kept);
}

/* A transposed convolution cannot be fitted: its bias is corrected, and no
 * other. */
static void test_beside_fitted_layers(void **state)
{
    const sb_tensor *data[SAMPLES + 1];
    sb_quant_model *qm =
        test_quant("graph main(x: f32[N,6,2,2]) -> (y) {\n"
                   "w: f32[8,6,1,1] = random(1)\nb: f32[8] = random(2)\n"
                   "v: f32[8,2,2,2] = random(3)\nd: f32[2] = random(4)\n"
                   "c = Conv(x, w, b)\nr = Relu(c)\n"
                   "y = ConvTranspose(r, v, d)\n}",
                   CHOICE("2"), NULL);

    (void)state;
    random_samples(data);
    test_calibrate(qm, NULL, data);
    check_step(qm, 0, "weights fitted layer by layer", 1, 1);
    const sb_quant_step *step = sb_quant_model_step(qm, 1);
    assert_non_null(step);
    assert_string_equal(step->name, "bias correction");
    assert_int_equal(step->layers, 1);
    assert_null(sb_quant_model_step(qm, 2));
    sb_quant_model_free(qm);
}

/* Of zeros nothing can be learned.  A preset that fits in any case then rounds
 * and corrects, as the others do. */
static void test_rounded_if_not_fitted(void **state)
{
    const double zeros[24] = {0};
    const sb_tensor *x = test_tensor(SB_DTYPE_F32, "1x6x2x2", zeros);
    const sb_tensor *data[] = {x, x, x, x, NULL};
    sb_quant_model *qm = test_quant(
        wide,
        "SCHEDULE: {BIAS_CORRECTION: true, LAYERWISE: true}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8, TYPE: "
        "gptq}}\n" TEST_A8,
        NULL);

    (void)state;
    test_calibrate(qm, NULL, data);
    check_step(qm, 0, "weights fitted layer by layer", 2, 0);
    check_step(qm, 1, "rounding of weights", 2, 0);
    check_step(qm, 2, "bias correction", 2, 0);
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means_come_back),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_far_off_is_fitted),
        cmocka_unit_test(test_near_is_rounded),
        cmocka_unit_test(test_beside_fitted_layers),
        cmocka_unit_test(test_rounded_if_not_fitted),
    };

    return cmocka_run_group_tests_name("bias_correction", tests, NULL, NULL);
}
