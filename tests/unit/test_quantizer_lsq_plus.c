/* Quantizer "lsq+": first values, values and gradients against the definition
 * in double precision. */
#include <math.h>

#include "qattest.h"

#define LSQ_PLUS                                                             \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {TYPE: lsq+, BIT: 4}}\n" \
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: LSQ+, BIT: 4}}\n"

/* 2 max(|mean - 3 deviation|, |mean + 3 deviation|) / 15, of a column. */
static double start_of(const double *w, int m)
{
    double mean = 0, square = 0;

    for (int k = 0; k < QAT_K; k++)
        mean += w[k * QAT_M + m] / QAT_K;
    for (int k = 0; k < QAT_K; k++)
        square += pow(w[k * QAT_M + m] - mean, 2);
    double d = 3 * sqrt(square / (QAT_K - 1));
    return 2 * fmax(fabs(mean - d), fabs(mean + d)) / 15;
}

static void check_gradients(test_qat *q, test_scale sx, const test_scale *sw)
{
    double ds[QAT_M] = {0}, dsx = 0, dzx = 0;
    double factor = 1 / sqrt(QAT_N * QAT_K * 15.0);

    for (int i = 0; i < QAT_N * QAT_K; i++)
        q->xq[i] = test_ste_of(sx, q->x[i], 0).y;
    for (int i = 0; i < QAT_K * QAT_M; i++)
        q->wq[i] = test_ste_of(sw[i % QAT_M], q->w[i], 0).y;
    test_qat_run(q);
    for (int i = 0; i < QAT_N * QAT_K; i++) {
        test_ste e = test_ste_of(sx, q->x[i], q->dxq[i]);
        dsx += e.ds;
        dzx += e.dz;
    }
    assert_close("ds of x", test_qat_gradient(q, "fc.input_quantizer.scale", 0),
                 dsx * factor, 1e-6);
    assert_close("dz of x",
                 test_qat_gradient(q, "fc.input_quantizer.zero_point", 0),
                 dzx * factor, 1e-6);
    for (int i = 0; i < QAT_K * QAT_M; i++) {
        test_ste e = test_ste_of(sw[i % QAT_M], q->w[i], q->dwq[i]);
        ds[i % QAT_M] += e.ds;
        assert_close("dw", test_qat_gradient(q, "w", i), e.dx, 1e-5);
    }
    for (int m = 0; m < QAT_M; m++)
        assert_close("ds of w",
                     test_qat_gradient(q, "fc.weight_quantizer.scale", m),
                     ds[m] / sqrt(QAT_K * 7.0), 1e-6);
}

static void set_scalar(const test_qat *q, const char *name, double v)
{
    sb_tensor *t = test_f32("1", v);

    t->rank = 0;
    assert_ok(sb_learner_set_parameter(q->learner, name, t));
}

static void test_values_and_gradients(void **state)
{
    /* x is in [-1, 2]. */
    test_scale sx = {3.0 / 15, rint(1 / (3.0 / 15)), 0, 15}, sw[QAT_M];
    test_qat q;

    (void)state;
    test_qat_open(&q, LSQ_PLUS, -1);
    assert_close("scale of x",
                 test_qat_value(&q, "fc.input_quantizer.scale", 0), sx.scale,
                 1e-7);
    assert_close("zero point of x",
                 test_qat_value(&q, "fc.input_quantizer.zero_point", 0),
                 sx.zero, 0);
    for (int m = 0; m < QAT_M; m++) {
        sw[m] = (test_scale){start_of(q.w, m), 0, -8, 7};
        assert_close("scale of w",
                     test_qat_value(&q, "fc.weight_quantizer.scale", m),
                     sw[m].scale, 1e-6);
    }
    check_gradients(&q, sx, sw);
    /* A zero point between whole numbers is used rounded; a narrower range
     * clips on both sides. */
    set_scalar(&q, "fc.input_quantizer.zero_point", 6.7);
    set_scalar(&q, "fc.input_quantizer.scale", 0.13);
    sx = (test_scale){(double)0.13F, 7, 0, 15};
    check_gradients(&q, sx, sw);
    sb_quantizer_info info = test_qat_settled(&q, "fc.input_quantizer");
    assert_close("settled zero point", info.zero_point[0], 7, 0);
    assert_close("settled scale", info.scale[0], sx.scale, 0);
    /* At the end of the integers it still learns. */
    set_scalar(&q, "fc.input_quantizer.zero_point", 0);
    sx.zero = 0;
    check_gradients(&q, sx, sw);
    assert_true(test_qat_gradient(&q, "fc.input_quantizer.zero_point", 0) != 0);
    /* Beyond them it is the last of them. */
    set_scalar(&q, "fc.input_quantizer.zero_point", -2.2);
    for (int i = 0; i < QAT_N * QAT_K; i++)
        q.xq[i] = test_ste_of(sx, q.x[i], 0).y;
    test_qat_run(&q);
    info = test_qat_settled(&q, "fc.input_quantizer");
    assert_close("settled zero point", info.zero_point[0], 0, 0);
    test_qat_close(&q);
}

static void test_needs_training(void **state)
{
    (void)state;
    test_quant_config_only(LSQ_PLUS, "QUANTIZER.TYPE 'lsq+' needs training");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_gradients),
        cmocka_unit_test(test_needs_training),
    };

    return cmocka_run_group_tests_name("quantizer_lsq_plus", tests, NULL, NULL);
}
