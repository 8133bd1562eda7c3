/* A linear layer that is trained quantized (qattest.h). */
#include "qattest.h"

#include <math.h>

#include "base/str.h"

static uint32_t state;

/* In [0, 1); the same numbers in every test. */
static double next_number(void)
{
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / 16777216.0;
}

static sb_tensor *floats_of(const double *v, int64_t rows, int64_t cols)
{
    char shape[32];

    (void)snprintf(shape, sizeof shape, "%lldx%lld", (long long)rows,
                   (long long)cols);
    sb_tensor *t = test_tensor(SB_DTYPE_F32, shape, NULL);
    for (int64_t i = 0; i < rows * cols; i++)
        ((float *)t->data)[i] = (float)v[i];
    return t;
}

static void fill(test_qat *q, double lowest)
{
    state = 7;
    for (int i = 0; i < QAT_N * QAT_K; i++)
        q->x[i] = (double)(float)(lowest + (2 - lowest) * next_number());
    q->x[0] = lowest;
    q->x[1] = 2;
    for (int i = 0; i < QAT_K * QAT_M; i++)
        q->w[i] = (double)(float)((next_number() - 0.4) * (1 + i % QAT_M));
    for (int i = 0; i < QAT_N * QAT_M; i++)
        q->t[i] = (double)(float)(4 * next_number() - 2);
}

void test_qat_open(test_qat *q, const char *yaml, double lowest)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_str text;

    *q = (test_qat){.qm = NULL};
    fill(q, lowest);
    sb_str_init(&text, test_ctx());
    sb_str_add(&text, "graph main(x: f32[N,6]) -> (y) {\nw: f32[6,5] = [");
    for (int i = 0; i < QAT_K * QAT_M; i++)
        sb_str_addf(&text, "%s%.9g", i ? ", " : "", q->w[i]);
    sb_str_add(&text, "]\ny = MatMul(x, w) \"fc\"\n}");
    assert_ok(test_quant_try_train(test_ctx(), sb_str_text(&text), yaml, NULL,
                                   &q->qm));
    sb_str_free(&text);
    const sb_tensor *data[] = {
        floats_of(q->x, QAT_N / 3, QAT_K),
        floats_of(q->x + QAT_N / 3 * QAT_K, QAT_N - QAT_N / 3, QAT_K), NULL};
    test_calibrate(q->qm, NULL, data);
    assert_ok(sb_qat_create(q->qm, SB_QAT_BN_AUTO, &q->qat));
    opt.loss = SB_LEARN_LOSS_MSE;
    assert_ok(sb_learner_create_graph(test_ctx(), q->qat->graph, &opt,
                                      &q->qat->roles, &q->learner));
}

void test_qat_run(test_qat *q)
{
    const sb_tensor *x = floats_of(q->x, QAT_N, QAT_K);
    double loss = 0, want = 0, dy[QAT_N * QAT_M];

    assert_ok(sb_learner_gradient(q->learner, &x, 1,
                                  floats_of(q->t, QAT_N, QAT_M), &loss));
    const float *y = sb_learner_output(q->learner)->data;
    memset(q->dxq, 0, sizeof q->dxq);
    memset(q->dwq, 0, sizeof q->dwq);
    for (int n = 0; n < QAT_N; n++)
        for (int m = 0; m < QAT_M; m++) {
            int at = n * QAT_M + m;
            double sum = 0;
            for (int k = 0; k < QAT_K; k++)
                sum += q->xq[n * QAT_K + k] * q->wq[k * QAT_M + m];
            assert_close("y", y[at], sum, 1e-5);
            dy[at] = 2 * (sum - q->t[at]) / (QAT_N * QAT_M);
            want += (sum - q->t[at]) * (sum - q->t[at]) / (QAT_N * QAT_M);
        }
    assert_close("loss", loss, want, 1e-5);
    for (int n = 0; n < QAT_N; n++)
        for (int m = 0; m < QAT_M; m++)
            for (int k = 0; k < QAT_K; k++) {
                double g = dy[n * QAT_M + m];
                q->dxq[n * QAT_K + k] += g * q->wq[k * QAT_M + m];
                q->dwq[k * QAT_M + m] += g * q->xq[n * QAT_K + k];
            }
}

void test_qat_close(test_qat *q)
{
    sb_learner_free(q->learner);
    sb_qat_free(q->qat);
    sb_quant_model_free(q->qm);
}

static const sb_parameter_info *find(const test_qat *q, const char *name)
{
    const sb_parameter_info *p = sb_learner_find_parameter(q->learner, name);

    if (!p)
        fail_msg("no parameter '%s'", name);
    return p;
}

double test_qat_value(const test_qat *q, const char *name, int64_t i)
{
    return sb_tensor_get_f64(find(q, name)->value, i);
}

double test_qat_gradient(const test_qat *q, const char *name, int64_t i)
{
    const sb_parameter_info *p = find(q, name);

    if (!p->gradient)
        fail_msg("parameter '%s' has no gradient", name);
    return sb_tensor_get_f64(p->gradient, i);
}

void test_qat_fixed(const test_qat *q, const char *name)
{
    assert_null(sb_learner_find_parameter(q->learner, name));
}

sb_quantizer_info test_qat_settled(const test_qat *q, const char *name)
{
    sb_graph *learned = NULL;

    assert_ok(sb_learner_overlay(q->learner, SB_LEARN_VALUES_LAST, &learned));
    assert_ok(sb_qat_settle(q->qat, learned));
    sb_graph_free(learned);
    return test_quantizer(q->qm, name);
}

test_ste test_ste_of(test_scale q, double x, double g)
{
    /* In float, as runtimes divide. */
    double v = (double)((float)x / (float)q.scale), r = rint(v) + q.zero;

    if (r < q.qmin)
        return (test_ste){(q.qmin - q.zero) * q.scale, 0, g * (q.qmin - q.zero),
                          -g * q.scale};
    if (r > q.qmax)
        return (test_ste){(q.qmax - q.zero) * q.scale, 0, g * (q.qmax - q.zero),
                          -g * q.scale};
    return (test_ste){(r - q.zero) * q.scale, g, g * (r - q.zero - x / q.scale),
                      0};
}
