/* Ranges of activations: what an observer clips stays clipped only if that
 * helps the outputs.
 *
 * Of 2048 numbers one is 20 and the others are below 1.  With 2 bits, `mse`
 * leaves the 20 out: 19^2 / 2048 is less than what rounding all others to 0
 * costs. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "quanttest.h"

enum { SIZE = 2048, ROWS = 4 };

/* A product with weights `first` for the 20 and `rest` for the others. */
static sb_quant_model *product(int first, int rest)
{
    char *text = malloc(4 * SIZE + 256), *at = text;

    assert_non_null(text);
    at += sprintf(at, "graph main(x: f32[N,%d]) -> (y) {\nw: f32[%d,1] = [%d",
                  SIZE, SIZE, first);
    for (int i = 1; i < SIZE; i++)
        at += sprintf(at, ",%d", rest);
    (void)sprintf(at, "]\ny = MatMul(x, w) \"m\"\n}");
    sb_quant_model *qm = test_quant(
        text,
        TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 2}, "
                "OBSERVER: {TYPE: mse}}\n",
        NULL);
    free(text);
    qm->choose_ranges = true; /* as without a configuration of the user */
    return qm;
}

static void calibrate_with(sb_quant_model *qm,
                           const sb_calibration_options *opt)
{
    sb_tensor *batches[5] = {NULL};

    for (unsigned b = 0; b < 4; b++) {
        batches[b] = test_random(SB_DTYPE_F32, "4x2048", b + 1);
        float *x = batches[b]->data;
        for (int i = 0; i < ROWS * SIZE; i++)
            x[i] = i % SIZE == 0 ? 20 : x[i] < 0 ? -x[i] : x[i];
    }
    test_calibrate(qm, opt, (const sb_tensor *const *)batches);
}

static void calibrate(sb_quant_model *qm)
{
    calibrate_with(qm, NULL);
}

static double scale(const sb_quant_model *qm)
{
    return (double)test_quantizer(qm, "m.input_quantizer").scale[0];
}

static void test_clipped(void **state)
{
    sb_quant_model *qm = product(0, 1);

    (void)state;
    calibrate(qm);
    const sb_quant_step *step = sb_quant_model_step(qm, 0);
    assert_non_null(step);
    assert_string_equal(step->name, "clipping of ranges");
    assert_true(step->kept);
    assert_true(scale(qm) < 2);
    sb_quant_model_free(qm);
}

static void test_whole(void **state)
{
    sb_quant_model *qm = product(1, 0);

    (void)state;
    calibrate(qm);
    assert_false(sb_quant_model_step(qm, 0)->kept);
    assert_close("scale", scale(qm), 20.0 / 3, 1e-6);
    sb_quant_model_free(qm);
}

/* Of eight samples of 100 ones the last has a 50 in it, whose weight is 0: the
 * ends averaged over samples, 0.9 * 1 + 0.1 * 50 = 5.9, serve the others
 * better.  Of the ranges from there to 50, that of a quarter of the way has a
 * number next to 1: 16.925 / 15 = 1.128. */
static void test_averaged(void **state)
{
    char text[1024], *at = text;
    sb_tensor *batches[9] = {NULL};

    (void)state;
    at += sprintf(at, "graph main(x: f32[N,100]) -> (y) {\n"
                      "w: f32[100,1] = [0");
    for (int i = 1; i < 100; i++)
        at += sprintf(at, ",1");
    (void)sprintf(at, "]\ny = MatMul(x, w) \"m\"\n}");
    sb_quant_model *qm =
        test_quant(text,
                   TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: "
                           "4}, OBSERVER: {TYPE: moving_average}}\n",
                   NULL);
    qm->choose_ranges = true;
    for (int b = 0; b < 8; b++) {
        batches[b] = test_random(SB_DTYPE_F32, "1x100", 3);
        for (int i = 0; i < 100; i++)
            ((float *)batches[b]->data)[i] = b == 7 && i == 0 ? 50 : 1;
    }
    test_calibrate(qm, NULL, (const sb_tensor *const *)batches);
    assert_string_equal(sb_quant_model_step(qm, 0)->name, "clipping of ranges");
    assert_true(sb_quant_model_step(qm, 0)->kept);
    assert_close("scale", scale(qm), 16.925 / 15, 1e-5);
    sb_quant_model_free(qm);
}

enum { VALUES = 8, EACH = 100, ALL = VALUES * EACH };

/* x in eight pieces, each of them multiplied by 99 ones after a zero. */
static const char *eight_values(void)
{
    static char text[16384];
    char *at = text;

    at += sprintf(at, "graph main(x: f32[N,800]) -> (y0");
    for (int i = 1; i < VALUES; i++)
        at += sprintf(at, ", y%d", i);
    at += sprintf(at, ") {\nk: i64[8] = [100, 100, 100, 100, 100, 100, 100, "
                      "100]\nv0");
    for (int i = 1; i < VALUES; i++)
        at += sprintf(at, ", v%d", i);
    at += sprintf(at, " = Split(x, k) {axis=1}\n");
    for (int i = 0; i < VALUES; i++) {
        at += sprintf(at, "w%d: f32[100,1] = [0", i);
        for (int k = 1; k < EACH; k++)
            at += sprintf(at, ",1");
        at += sprintf(at, "]\ny%d = MatMul(v%d, w%d) \"m%d\"\n", i, i, i, i);
    }
    (void)sprintf(at, "}");
    return text;
}

enum { SAMPLES = 32, GOOD = 2 };

/* 0.01 to 1; in two of eight samples 40 times that, but the third value, which
 * has but a single 50. */
static float ramp(int sample, int value, int i)
{
    bool large = value != GOOD && (sample % 8 == 3 || sample % 8 == 6);

    if (value == GOOD && sample == SAMPLES - 1 && i == 0)
        return 50;
    return (large ? 40.0F : 1.0F) * (float)(i + 1) / EACH;
}

/* What rounding to steps of end / 15 loses of a sample, of its own signal. */
static double ramp_loss(int sample, int value, double end)
{
    double noise = 0, signal = 0, step = end / 15;

    for (int i = 0; i < EACH; i++) {
        double x = (double)ramp(sample, value, i);
        double d = x - step * fmin(rint(x / step), 15);

        noise += d * d;
        signal += x * x;
    }
    return noise / signal;
}

/* The end of least loss of five, from the averaged one to the greatest, by the
 * samples that do not judge: every other one. */
static double ramp_end(int value)
{
    double average = 0, greatest = 0, best = 0, least = INFINITY;

    for (int b = 0; b < SAMPLES; b++) {
        double end = 0;

        for (int i = 0; i < EACH; i++)
            end = fmax(end, (double)ramp(b, value, i));
        average = b == 0 ? end : 0.9 * average + 0.1 * end;
        greatest = fmax(greatest, end);
    }
    for (int k = 0; k <= 4; k++) {
        double end = average + k / 4.0 * (greatest - average), loss = 0;

        for (int b = 0; b < SAMPLES; b += 2)
            loss += ramp_loss(b, value, end);
        if (loss < least) {
            least = loss;
            best = end;
        }
    }
    return best;
}

/* How much is clipped is chosen for each value. */
static void test_each(void **state)
{
    sb_tensor *batches[SAMPLES + 1] = {NULL};

    (void)state;
    sb_quant_model *qm =
        test_quant(eight_values(),
                   TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: "
                           "4}, OBSERVER: {TYPE: moving_average}}\n",
                   NULL);
    qm->choose_ranges = true;
    for (int b = 0; b < SAMPLES; b++) {
        batches[b] = test_random(SB_DTYPE_F32, "1x800", 3);
        for (int i = 0; i < ALL; i++)
            ((float *)batches[b]->data)[i] = ramp(b, i / EACH, i % EACH);
    }
    test_calibrate(qm, NULL, (const sb_tensor *const *)batches);
    const sb_quant_step *step = sb_quant_model_step(qm, 0);
    assert_non_null(step);
    assert_string_equal(step->name, "clipping of ranges");
    assert_true(step->kept);
    assert_int_equal(step->layers, VALUES);
    assert_close("the one",
                 (double)test_quantizer(qm, "m2.input_quantizer").scale[0],
                 ramp_end(GOOD) / 15, 1e-5);
    assert_close("the others",
                 (double)test_quantizer(qm, "m3.input_quantizer").scale[0],
                 ramp_end(3) / 15, 1e-5);
    assert_true(ramp_end(GOOD) < 6);
    assert_true(ramp_end(3) > 10 && ramp_end(3) < 40);
    sb_quant_model_free(qm);
}

/* A configuration of the user is done as it stands. */
static void test_asked(void **state)
{
    sb_quant_model *qm = product(1, 0);

    (void)state;
    qm->choose_ranges = false;
    calibrate(qm);
    assert_null(sb_quant_model_step(qm, 0));
    assert_true(scale(qm) < 2);
    sb_quant_model_free(qm);
}

/* What nothing judges is not clipped: layer by layer there are no outputs of
 * the whole network, and a calibration that is loaded has no samples. */
static void test_not_judged(void **state)
{
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    char path[] = "/tmp/sbtest-XXXXXX";
    int fd = mkstemp(path);
    sb_quant_model *qm = product(0, 1);

    (void)state;
    assert_true(fd >= 0);
    opt.asym_activations = 1;
    calibrate_with(qm, &opt);
    assert_close("scale", scale(qm), 20.0 / 3, 1e-6);
    sb_quant_model_free(qm);

    qm = product(0, 1);
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    const sb_tensor *x = test_random(SB_DTYPE_F32, "4x2048", 1), *y = NULL;
    *(float *)x->data = 20;
    assert_ok(sb_quant_model_forward(qm, &x, 1, &y, 1));
    assert_ok(sb_quant_model_save_calibration(qm, path));
    sb_quant_model_free(qm);
    qm = product(0, 1);
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_ok(sb_quant_model_load_calibration(qm, path));
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_true(scale(qm) > 20.0 / 3);
    sb_quant_model_free(qm);
    (void)close(fd);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clipped),  cmocka_unit_test(test_whole),
        cmocka_unit_test(test_averaged), cmocka_unit_test(test_each),
        cmocka_unit_test(test_asked),    cmocka_unit_test(test_not_judged),
    };

    return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
