/* Ranges of activations: what an observer clips stays clipped only if that
 * helps the outputs.
 *
 * Of 2048 numbers one is 20 and the others are below 1.  With 2 bits, `mse`
 * leaves the 20 out: 19^2 / 2048 is less than what rounding all others to 0
 * costs. */
#define _POSIX_C_SOURCE 200809L
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
 * better. */
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
    assert_close("scale", scale(qm), 5.9 / 15, 1e-5);
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

/* Of eight values one is as above: 50 once, where its weight is 0.  The others
 * are 40 in every fourth sample, which averaged ends lose.  Neither all nor a
 * half of them may be clipped, but the one may, of which rounding loses less
 * then. */
static void test_the_best(void **state)
{
    enum { SAMPLES = 32, GOOD = 2 };
    sb_tensor *batches[SAMPLES + 1] = {NULL};

    (void)state;
    sb_quant_model *qm =
        test_quant(eight_values(),
                   TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: "
                           "4}, OBSERVER: {TYPE: moving_average}}\n",
                   NULL);
    qm->choose_ranges = true;
    for (int b = 0; b < SAMPLES; b++) {
        bool large = b % 8 == 3 || b % 8 == 6;

        batches[b] = test_random(SB_DTYPE_F32, "1x800", 3);
        for (int i = 0; i < ALL; i++)
            ((float *)batches[b]->data)[i] =
                i / EACH != GOOD                       ? (large ? 40 : 1)
                : b == SAMPLES - 1 && i == GOOD * EACH ? 50
                                                       : 1;
    }
    test_calibrate(qm, NULL, (const sb_tensor *const *)batches);
    for (size_t i = 0; i < 3; i++)
        assert_false(sb_quant_model_step(qm, i)->kept);
    const sb_quant_step *step = sb_quant_model_step(qm, 3);
    assert_non_null(step);
    assert_string_equal(step->name, "clipping of ranges");
    assert_true(step->kept);
    assert_int_equal(step->layers, 1);
    assert_close("the one",
                 (double)test_quantizer(qm, "m2.input_quantizer").scale[0],
                 5.9 / 15, 1e-5);
    assert_close("the others",
                 (double)test_quantizer(qm, "m3.input_quantizer").scale[0],
                 40.0 / 15, 1e-5);
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
        cmocka_unit_test(test_averaged), cmocka_unit_test(test_the_best),
        cmocka_unit_test(test_asked),    cmocka_unit_test(test_not_judged),
    };

    return cmocka_run_group_tests_name("ranges", tests, NULL, NULL);
}
