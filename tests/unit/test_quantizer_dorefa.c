/* Quantizer "dorefa" against what the definition gives in double precision. */
#include <math.h>

#include "qattest.h"

/* tanh(w) / max|tanh(w)| is rounded with the scale of [-1, 1]. */
static void test_weights_are_rounded_as_defined(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(
        "graph main(x: f32[N,2]) -> (y) {\nw: f32[2,2] = [0.5, -1, 2, 0]\n"
        "y = MatMul(x, w) \"fc\"\n}",
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: DoReFa, BIT: 4}}"
        "\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: dorefa, BIT: 8}}"
        "\n",
        NULL);
    const sb_tensor *data[] = {test_f32("2x2", 0.5, 1, 3, -0.25),
                               test_f32("1x2", 0, 0.125), NULL};
    const double w[] = {0.5, -1, 2, 0}, most = tanh(2.0);
    test_scale sw = {2.0 / 15, 0, -8, 7};
    /* the second batch alone has its own maximum: 0 and 1 */
    test_scale sx = test_affine8(tanh(-0.25) / tanh(3), 1);
    double x[] = {1, -0.5}, want[2] = {0, 0};

    test_calibrate(qm, NULL, data);
    sb_quantizer_info q = test_quantizer(qm, "fc.weight_quantizer");
    assert_close("weight", q.scale[0], sw.scale, 1e-7);
    q = test_quantizer(qm, "fc.input_quantizer");
    assert_close("input", q.scale[0], sx.scale, 1e-7);
    assert_close("input", q.zero_point[0], sx.zero, 0);
    sb_quant_model_set_quant(qm, 1, 1);
    const sb_tensor *y = test_quant_forward(qm, test_f32("1x2", 1, -0.5));
    for (int c = 0; c < 2; c++)
        for (int k = 0; k < 2; k++)
            want[c] += test_fake(sx, tanh(x[k]) / tanh(1)) *
                       test_fake(sw, tanh(w[k * 2 + c]) / most);
    assert_close("y0", ((const float *)y->data)[0], want[0], 1e-6);
    assert_close("y1", ((const float *)y->data)[1], want[1], 1e-6);
    sb_quant_model_free(qm);
}

/* t = tanh(v) / max|tanh(v)|, rounded with scale s: fills yq, and the gradients
 * of v from those of yq. */
static void squash(const double *v, int n, test_scale s, double *yq,
                   const double *dyq, double *dv)
{
    double most = 0, dmost = 0;
    int at = 0;

    for (int i = 0; i < n; i++)
        if (fabs(tanh(v[i])) > most) {
            most = fabs(tanh(v[i]));
            at = i;
        }
    for (int i = 0; i < n; i++) {
        double t = tanh(v[i]);
        test_ste e = test_ste_of(s, t / most, dyq ? dyq[i] : 0);

        yq[i] = e.y;
        dmost -= e.dx * t / (most * most);
        if (dv)
            dv[i] = e.dx / most * (1 - t * t);
    }
    if (dv)
        dv[at] += dmost * (v[at] < 0 ? -1 : 1) * (1 - most * most);
}

static void test_gradients(void **state)
{
    test_scale sw = {2.0 / 15, 0, -8, 7}, sx = {.qmin = 0, .qmax = 255};
    double dw[QAT_K * QAT_M];
    test_qat q;

    (void)state;
    test_qat_open(
        &q,
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: DoReFa, BIT: 4}}"
        "\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {TYPE: dorefa, BIT: 8}}"
        "\n",
        -1);
    sx.scale = (double)test_quantizer(q.qm, "fc.input_quantizer").scale[0];
    sx.zero = (double)test_quantizer(q.qm, "fc.input_quantizer").zero_point[0];
    squash(q.x, QAT_N * QAT_K, sx, q.xq, NULL, NULL);
    squash(q.w, QAT_K * QAT_M, sw, q.wq, NULL, NULL);
    test_qat_run(&q);
    squash(q.w, QAT_K * QAT_M, sw, q.wq, q.dwq, dw);
    for (int i = 0; i < QAT_K * QAT_M; i++)
        assert_close("gradient of w", test_qat_gradient(&q, "w", i), dw[i],
                     2e-6);
    test_qat_fixed(&q, "fc.weight_quantizer.scale");
    test_qat_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_rounded_as_defined),
        cmocka_unit_test(test_gradients),
    };

    return cmocka_run_group_tests_name("quantizer_dorefa", tests, NULL, NULL);
}
