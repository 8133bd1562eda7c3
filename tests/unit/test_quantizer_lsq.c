/* Quantizer "lsq": first scales, values and gradients against the definition in
 * double precision. */
#include <math.h>

#include "qattest.h"

#define W4 \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: LSQ, BIT: 4}}\n"

static double mean_abs(const double *v, int first, int step, int n)
{
    double sum = 0;
    int count = 0;

    for (int i = first; i < n; i += step, count++)
        sum += fabs(v[i]);
    return sum / count;
}

/* The scale of x, whose integers go from qmin to qmax, and a scale for each
 * column of w. */
static void check(test_qat *q, double qmin, double qmax)
{
    test_scale sx = {.qmin = qmin, .qmax = qmax}, sw[QAT_M];
    double ds[QAT_M] = {0}, dsx = 0;

    sx.scale = test_qat_value(q, "fc.input_quantizer.scale", 0);
    assert_close("scale of x", sx.scale,
                 2 * mean_abs(q->x, 0, 1, QAT_N * QAT_K) / sqrt(qmax), 1e-6);
    for (int m = 0; m < QAT_M; m++) {
        sw[m] = (test_scale){.qmin = -8, .qmax = 7};
        sw[m].scale = test_qat_value(q, "fc.weight_quantizer.scale", m);
        assert_close("scale of w", sw[m].scale,
                     2 * mean_abs(q->w, m, QAT_M, QAT_K * QAT_M) / sqrt(7),
                     1e-6);
    }
    for (int i = 0; i < QAT_N * QAT_K; i++)
        q->xq[i] = test_ste_of(sx, q->x[i], 0).y;
    for (int i = 0; i < QAT_K * QAT_M; i++)
        q->wq[i] = test_ste_of(sw[i % QAT_M], q->w[i], 0).y;
    test_qat_run(q);
    for (int i = 0; i < QAT_N * QAT_K; i++)
        dsx += test_ste_of(sx, q->x[i], q->dxq[i]).ds;
    assert_close("gradient of the scale of x",
                 test_qat_gradient(q, "fc.input_quantizer.scale", 0),
                 dsx / sqrt(QAT_N * QAT_K * qmax), 1e-6);
    for (int i = 0; i < QAT_K * QAT_M; i++) {
        test_ste e = test_ste_of(sw[i % QAT_M], q->w[i], q->dwq[i]);
        ds[i % QAT_M] += e.ds;
        assert_close("gradient of w", test_qat_gradient(q, "w", i), e.dx, 1e-5);
    }
    for (int m = 0; m < QAT_M; m++)
        assert_close("gradient of a scale of w",
                     test_qat_gradient(q, "fc.weight_quantizer.scale", m),
                     ds[m] / sqrt(QAT_K * 7.0), 1e-6);
}

static void test_affine_without_negatives(void **state)
{
    test_qat q;

    (void)state;
    test_qat_open(&q,
                  W4 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, "
                     "BIT: 4}}\n",
                  0);
    check(&q, 0, 15);
    test_qat_close(&q);
}

/* Where values below zero were seen it is symmetric. */
static void test_affine_falls_back(void **state)
{
    test_qat q;

    (void)state;
    test_qat_open(&q,
                  W4 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: lsq, "
                     "BIT: 3}}\n",
                  -1.5);
    check(&q, -4, 3);
    assert_string_equal(test_quantizer(q.qm, "fc.input_quantizer").scheme,
                        "per-tensor-symmetric");
    test_qat_close(&q);
}

/* A scale is used by its magnitude, and its gradient has its sign. */
static void test_negative_scale(void **state)
{
    test_qat q;
    double before;

    (void)state;
    test_qat_open(&q,
                  W4 "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: "
                     "lsq, BIT: 4}}\n",
                  -1);
    check(&q, -8, 7);
    before = test_qat_gradient(&q, "fc.input_quantizer.scale", 0);
    float minus = -(float)test_qat_value(&q, "fc.input_quantizer.scale", 0);
    sb_tensor *t = test_f32("1", 0.0);
    t->rank = 0;
    *(float *)t->data = minus;
    assert_ok(
        sb_learner_set_parameter(q.learner, "fc.input_quantizer.scale", t));
    test_qat_run(&q);
    assert_close("gradient",
                 test_qat_gradient(&q, "fc.input_quantizer.scale", 0), -before,
                 1e-7);
    assert_close("settled", test_qat_settled(&q, "fc.input_quantizer").scale[0],
                 -minus, 0);
    test_qat_close(&q);
}

static void test_needs_training(void **state)
{
    (void)state;
    test_quant_config_only(W4 TEST_A8, "QUANTIZER.TYPE 'lsq' needs training");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affine_without_negatives),
        cmocka_unit_test(test_affine_falls_back),
        cmocka_unit_test(test_negative_scale),
        cmocka_unit_test(test_needs_training),
    };

    return cmocka_run_group_tests_name("quantizer_lsq", tests, NULL, NULL);
}
