/* Layers fitted to the float network: against least squares in double, and
 * through a model whose answer is found by hand. */
#include <math.h>

#include "quant/quantize/cholesky.h"
#include "quant/reconstruct/reconstruct.h"
#include "quanttest.h"

enum { TERMS = 200, COLS = 5, ROWS = 3, SIZE = COLS + 1 };

/* Terms of y and x, each with a 1 behind it, and their sums. */
static void sum_up(const float *y, const float *x, float *sums)
{
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) {
            double sum = 0;
            for (int t = 0; t < TERMS; t++)
                sum += (double)(i < COLS ? y[t * COLS + i] : 1) *
                       (double)(j < COLS ? x[t * COLS + j] : 1);
            sums[i * SIZE + j] = (float)sum;
        }
}

static double mean_of(const float *x, int column)
{
    double sum = 0;

    for (int t = 0; t < TERMS; t++)
        sum += (double)x[t * COLS + column];
    return sum / TERMS;
}

static double covariance(const float *y, int i, const float *x, int j)
{
    double sum = 0, a = mean_of(y, i), b = mean_of(x, j);

    for (int t = 0; t < TERMS; t++)
        sum += ((double)y[t * COLS + i] - a) * ((double)x[t * COLS + j] - b);
    return sum / TERMS;
}

/* (W' - W) (C_xx + damping) = W (C_yx - C_xx), whatever the damping is; and
 * with hardly any, W' x is nearer to W y than W x is. */
static void test_normal_equations(void **state)
{
    const float *y = test_random(SB_DTYPE_F32, "200x5", 1)->data;
    const float *noise = test_random(SB_DTYPE_F32, "200x5", 2)->data;
    const float *own = test_random(SB_DTYPE_F32, "3x5", 3)->data;
    float x[TERMS * COLS], sums[SIZE * SIZE], cross[SIZE * SIZE];
    float means[2 * COLS], w[ROWS * COLS], factor[COLS * COLS];
    bool done = false;
    sb_gram gram = {.groups = 1,
                    .cols = COLS,
                    .biased = true,
                    .sums = sums,
                    .cross = cross,
                    .means = means,
                    .count = TERMS};

    (void)state;
    for (int i = 0; i < TERMS * COLS; i++)
        x[i] = 0.8F * y[i] + 0.2F * noise[i] + 0.5F;
    for (int i = 0; i < ROWS * COLS; i++)
        w[i] = own[i];
    sum_up(x, x, sums);
    sum_up(y, x, cross);
    sb_refit_center(&gram);
    for (int c = 0; c < COLS; c++) {
        assert_close("mean x", (double)means[c], mean_of(x, c), 1e-5);
        assert_close("mean y", (double)means[COLS + c], mean_of(y, c), 1e-5);
    }
    assert_int_equal(sb_refit_factor(test_ctx(), &gram, 0, factor, &done),
                     SB_OK);
    assert_true(done);
    assert_int_equal(sb_refit_rows(test_ctx(), &gram, 0, factor, w, ROWS),
                     SB_OK);
    double damping = NAN;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            double left = 0, right = 0;
            for (int k = 0; k < COLS; k++) {
                double change =
                    (double)w[r * COLS + k] - (double)own[r * COLS + k];
                left += change * covariance(x, k, x, c);
                right += (double)own[r * COLS + k] *
                         (covariance(y, k, x, c) - covariance(x, k, x, c));
            }
            double change = (double)w[r * COLS + c] - (double)own[r * COLS + c];
            if (isnan(damping))
                damping = (right - left) / change;
            assert_true(damping > 0);
            assert_close("equation", left + damping * change, right, 1e-4);
        }
}

/* y R R^T = x. */
static void test_solve_rows(void **state)
{
    const float *v = test_random(SB_DTYPE_F32, "70x100", 7)->data;
    const float *x = test_random(SB_DTYPE_F32, "3x70", 8)->data;
    float a[70 * 70] = {0}, r[70 * 70], y[3 * 70];
    bool done = false;

    (void)state;
    for (int i = 0; i < 70 * 70; i++) {
        for (int s = 0; s < 100; s++)
            a[i] += v[i / 70 * 100 + s] * v[i % 70 * 100 + s];
        r[i] = a[i];
    }
    for (int i = 0; i < 3 * 70; i++)
        y[i] = x[i];
    assert_int_equal(sb_cholesky_upper(test_ctx(), r, 70, &done), SB_OK);
    assert_true(done);
    sb_cholesky_solve_rows(test_ctx(), r, 70, y, 3);
    for (int i = 0; i < 3 * 70; i++) {
        double sum = 0;
        for (int k = 0; k < 70; k++)
            sum += (double)y[i / 70 * 70 + k] * (double)a[k * 70 + i % 70];
        assert_close("row", sum, (double)x[i], 1e-2);
    }
}

/* In steps of 2 / 7 the weights of the first layer, 1 and 0.36, become 0.857
 * (there is no 4) and 0.286: of 1.36 x only 1.143 x is left, unless the second
 * layer, of 8 bits, makes up for it. */
static double factor(const char *layerwise)
{
    char config[512];
    const sb_tensor *x = test_random(SB_DTYPE_F32, "400x1", 4);
    const sb_tensor *data[] = {x, NULL};
    double first = sb_tensor_get_f64(x, 0);

    (void)snprintf(
        config, sizeof config,
        "SCHEDULE: {LAYERWISE: %s}\n"
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: gptq, BIT: 8}, "
        "SPECIFIC: [{first: [QUANTIZER.BIT, 3]}]}\nA: none\n",
        layerwise);
    sb_quant_model *qm =
        test_quant("graph main(x: f32[N,1]) -> (y) {\nw: f32[1,2] = [1, 0.36]\n"
                   "v: f32[2,1] = [1, 1]\nh = MatMul(x, w) \"first\"\n"
                   "y = MatMul(h, v) \"second\"\n}",
                   config, NULL);
    test_calibrate(qm, NULL, data);
    assert_close("float",
                 sb_tensor_get_f64(test_quant_forward(qm, x), 0) / first, 1.36,
                 1e-6);
    sb_quant_model_set_quant(qm, 1, 1);
    double found = sb_tensor_get_f64(test_quant_forward(qm, x), 0) / first;
    sb_quant_model_free(qm);
    return found;
}

static void test_model(void **state)
{
    (void)state;
    assert_close("as it is", factor("false"), 8.0 / 7, 0.01);
    assert_close("fitted", factor("true"), 1.36, 0.03);
    assert_close("as it does by itself", factor("auto"), 1.36, 0.03);
}

static sb_status never(void *user, bool *out)
{
    ++*(int *)user;
    *out = false;
    return SB_OK;
}

/* Of 16 layers in a row four are decided when it is asked whether to go on, and
 * no more if not. */
static void test_watched(void **state)
{
    int asked = 0;
    const sb_round_watch watch = {.goes_on = never, .user = &asked};
    const sb_tensor *x = test_random(SB_DTYPE_F32, "16x2", 4);
    char text[2048], *at = text;

    (void)state;
    at += sprintf(at, "graph main(h0: f32[N,2]) -> (h16) {\n");
    for (int i = 0; i < 16; i++)
        at += sprintf(at,
                      "w%d: f32[2,2] = random(%d)\n"
                      "h%d = MatMul(h%d, w%d) \"m%d\"\n",
                      i, i + 1, i + 1, i, i, i);
    (void)sprintf(at, "}");
    sb_quant_model *qm = test_quant(
        text,
        "SCHEDULE: {LAYERWISE: true}\nW: {QSCHEME: "
        "per-tensor-symmetric, QUANTIZER: {BIT: 8, TYPE: gptq}}\n" TEST_A8,
        NULL);
    qm->state.watch = &watch;
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    assert_int_equal(asked, 1);
    assert_int_equal(sb_quant_model_step(qm, 0)->layers, 4);
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_normal_equations),
        cmocka_unit_test(test_solve_rows),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_watched),
    };

    return cmocka_run_group_tests_name("fit_layer", tests, NULL, NULL);
}
