/* Quantizer "gptq" against the algorithm of the paper, with the inverse of the
 * matrix and updates of all columns that follow, and passes after it from their
 * definition, in double precision. */
#include <math.h>
#include <string.h>

#include "quant/quantize/cholesky.h"
#include "quant/train/qat.h"
#include "roundtest.h"

typedef struct gptq_test_params { /* as in quantizer_gptq.c */
    double damping;
    bool act_order;
    int64_t passes;
} gptq_test_params;

enum { N = ROUND_COLS };

/* Gauss and Jordan. */
static void invert(double a[N][N])
{
    for (int p = 0; p < N; p++) {
        double pivot = a[p][p];
        a[p][p] = 1;
        for (int j = 0; j < N; j++)
            a[p][j] /= pivot;
        for (int i = 0; i < N; i++) {
            double f = a[i][p];
            if (i == p)
                continue;
            a[i][p] = 0;
            for (int j = 0; j < N; j++)
                a[i][j] -= f * a[p][j];
        }
    }
}

/* One row: quantize a column, give the error to the others by the inverse, and
 * take the column out of the inverse. */
static void paper_row(const test_rounding *t, int row, const int *order,
                      double inverse[N][N], double *w)
{
    for (int k = 0; k < N; k++) {
        int c = order[k];
        double q = (double)sb_rounding_nearest(&t->r, row, c, (float)w[c]);
        double e = (w[c] - q) / inverse[k][k];

        for (int j = k + 1; j < N; j++)
            w[order[j]] -= e * inverse[k][j];
        w[c] = q;
        double pivot = inverse[k][k];
        double column[N];
        for (int i = 0; i < N; i++)
            column[i] = inverse[i][k];
        for (int i = k + 1; i < N; i++)
            for (int j = k + 1; j < N; j++)
                inverse[i][j] -= column[i] * column[j] / pivot;
    }
}

/* Each element of a row anew, given all others: the error is a parabola. */
static void passes_row(const test_rounding *t, int row, int passes,
                       double added, double *w)
{
    for (int k = 0; k < passes * N; k++) {
        int c = k % N;
        double slope = added * (w[c] - (double)t->before[row * N + c]);

        for (int i = 0; i < N; i++)
            slope += (double)t->gram[c * N + i] *
                     (w[i] - (double)t->before[row * N + i]);
        slope /= (double)t->gram[c * (N + 1)] + added;
        w[c] =
            (double)sb_rounding_nearest(&t->r, row, c, (float)(w[c] - slope));
    }
}

static void paper(const test_rounding *t, const int *order, double damping,
                  int passes, double *w)
{
    double mean = 0;

    for (int i = 0; i < N; i++)
        mean += (double)t->gram[i * N + i] / N;
    for (int row = 0; row < ROUND_ROWS; row++) {
        double h[N][N];
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                h[i][j] = (double)t->gram[order[i] * N + order[j]] +
                          (i == j ? damping * mean : 0);
        invert(h);
        paper_row(t, row, order, h, w + row * N);
        passes_row(t, row, passes, damping * mean, w + row * N);
    }
}

/* Adds the error of all rows to sums[0], that of nearest to sums[1]. */
static void check(bool act_order, int passes, uint64_t seed, double *sums)
{
    const gptq_test_params params = {0.01, act_order, passes};
    const sb_quantizer_def *def = sb_quantizer_find(NULL, "gptq");
    static test_rounding t;
    int order[N];
    double w[ROUND_ROWS * N];

    test_rounding_make(&t, seed);
    for (int i = 0; i < N; i++)
        order[i] = i;
    for (int i = 0; i < N && act_order; i++)
        for (int j = 0; j + 1 < N; j++)
            if (t.gram[order[j] * (N + 1)] < t.gram[order[j + 1] * (N + 1)]) {
                int other = order[j];
                order[j] = order[j + 1];
                order[j + 1] = other;
            }
    for (int i = 0; i < ROUND_ROWS * N; i++)
        w[i] = (double)t.w[i];
    /* More than what was asked for where terms are few. */
    paper(&t, order, fmax(params.damping, N / (4 * t.r.count)), passes, w);
    t.r.params = &params;
    assert_int_equal(def->round(&t.r), SB_OK);
    assert_null(t.r.why_not);
    for (int i = 0; i < ROUND_ROWS * N; i++)
        assert_close("weight", (double)t.w[i], w[i], 1e-6);
    float nearest[ROUND_ROWS * N];
    memcpy(nearest, t.before, sizeof nearest);
    t.r.w = nearest;
    sb_rounding_all_nearest(&t.r);
    sums[0] += test_rounding_error(&t, t.w);
    sums[1] += test_rounding_error(&t, nearest);
}

static void test_as_the_paper_does(void **state)
{
    double sums[2] = {0}, more[2] = {0};

    (void)state;
    for (uint64_t seed = 1; seed < 6; seed++) {
        check(false, 0, 10 * seed, sums);
        check(true, 0, 10 * seed, sums);
        check(false, 2, 10 * seed, more);
        check(true, 2, 10 * seed, more);
    }
    assert_true(sums[0] < 0.8 * sums[1]);
    assert_true(more[0] < 0.98 * sums[0]);
}

/* Inputs that are always zero: their weights are rounded to nearest;
 * sums that are no Gram matrix: all is rounded to nearest, with a reason. */
static void test_dead_columns_and_fallback(void **state)
{
    const gptq_test_params params = {0.01, true, 2};
    const sb_quantizer_def *def = sb_quantizer_find(NULL, "gptq");
    static test_rounding t;

    (void)state;
    test_rounding_make(&t, 77);
    for (int i = 0; i < N; i++)
        t.gram[3 * N + i] = t.gram[i * N + 3] = 0;
    t.r.params = &params;
    assert_int_equal(def->round(&t.r), SB_OK);
    assert_int_equal(t.r.dead, 1);
    for (int row = 0; row < ROUND_ROWS; row++)
        assert_close(
            "dead", (double)t.w[row * N + 3],
            (double)sb_rounding_nearest(&t.r, row, 3, t.before[row * N + 3]),
            1e-6);
    test_rounding_make(&t, 78);
    t.gram[1] = t.gram[N] = 1e9F;
    t.r.params = &params;
    assert_int_equal(def->round(&t.r), SB_OK);
    assert_non_null(t.r.why_not);
    for (int i = 0; i < ROUND_ROWS * N; i++)
        assert_close(
            "nearest", (double)t.w[i],
            (double)sb_rounding_nearest(&t.r, i / N, i % N, t.before[i]), 0);
}

/* R R^T is the matrix again, for sizes around and beyond a block. */
static void test_cholesky(void **state)
{
    static const char *const sizes[] = {"5x9", "48x60", "131x200"};

    (void)state;
    for (size_t k = 0; k < SB_COUNT(sizes); k++) {
        const sb_tensor *x = test_random(SB_DTYPE_F32, sizes[k], k + 1);
        int64_t n = x->dims[0], m = x->dims[1];
        const float *v = x->data;
        float *a = sb_alloc(test_ctx(), (size_t)(n * n), 2 * sizeof *a);
        float *was = a + n * n;
        bool done = false;

        assert_non_null(a);
        for (int64_t i = 0; i < n * n; i++) {
            for (int64_t s = 0; s < m; s++)
                a[i] += v[i / n * m + s] * v[i % n * m + s];
            was[i] = a[i];
        }
        assert_int_equal(sb_cholesky_upper(test_ctx(), a, n, &done), SB_OK);
        assert_true(done);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i; j < n; j++) {
                double sum = 0;
                for (int64_t s = j; s < n; s++)
                    sum += (double)a[i * n + s] * (double)a[j * n + s];
                assert_close("product", sum, (double)was[i * n + j],
                             1e-4 * (double)was[0]);
            }
        sb_free(test_ctx(), a);
    }
}

/* The same of a matrix whose rows are longer than what is done at a time. */
static void test_large_cholesky(void **state)
{
    enum { SIDE = 1100, STEP = 37 };
    float *a = sb_alloc(test_ctx(), (size_t)SIDE * SIDE, sizeof *a);
    bool done = false;

    (void)state;
    assert_non_null(a);
    for (int64_t i = 0; i < SIDE; i++)
        for (int64_t j = 0; j < SIDE; j++)
            a[i * SIDE + j] =
                (float)((i == j ? 40 : 0) +
                        (double)(i % 7 - 3) * (double)(j % 7 - 3) +
                        (double)(i % 5) * (double)(j % 5));
    assert_int_equal(sb_cholesky_upper(test_ctx(), a, SIDE, &done), SB_OK);
    assert_true(done);
    for (int64_t i = 0; i < SIDE; i += STEP)
        for (int64_t j = i; j < SIDE; j += STEP) {
            double sum = 0;

            for (int64_t s = j; s < SIDE; s++)
                sum += (double)a[i * SIDE + s] * (double)a[j * SIDE + s];
            assert_close("product", sum,
                         (i == j ? 40 : 0) +
                             (double)(i % 7 - 3) * (double)(j % 7 - 3) +
                             (double)(i % 5) * (double)(j % 5),
                         1e-3);
        }
    sb_free(test_ctx(), a);
}

/* Through a model: inputs that are always the same three numbers.  In steps of
 * 2 / 7 the weights are 3.5, 1.26 and 1.26; to nearest 3 (there is no 4), 1 and
 * 1, whose sum is 1 less than it could be. */
static void test_model(void **state)
{
    sb_quant_model *qm = test_quant(
        "graph main(x: f32[N,3]) -> (y) {\nw: f32[3,1] = [1, 0.36, 0.36]\n"
        "y = MatMul(x, w) \"fc\"\n}",
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: gptq, BIT: 3, "
        "GPTQ: {ACT_ORDER: false}}}\nA: none\n",
        NULL);
    sb_tensor *x = test_random(SB_DTYPE_F32, "90x3", 1);
    const sb_tensor *data[] = {x, NULL};

    (void)state;
    for (int i = 0; i < 270; i++)
        ((float *)x->data)[i] = (float)(i / 3 % 3 - 1);
    assert_int_equal(sb_quant_model_needs_calibration(qm), 1);
    test_calibrate(qm, NULL, data);
    const sb_tensor *y = test_quant_forward(qm, test_f32("1x3", 1, 1, 1));
    assert_close("float", sb_tensor_get_f64(y, 0), 1.72, 1e-6);
    sb_quant_model_set_quant(qm, 1, 1);
    y = test_quant_forward(qm, test_f32("1x3", 1, 1, 1));
    assert_close("sum", sb_tensor_get_f64(y, 0), 6 * 2 / 7.0, 1e-6);
    y = test_quant_forward(qm, test_f32("1x3", 0, 1, 0));
    assert_close("second", sb_tensor_get_f64(y, 0), 2 * 2 / 7.0, 1e-6);
    sb_quant_model_free(qm);
}

/* The same layer, to be trained: it starts from these integers, 3, 2 and 1, not
 * from those that are nearest, and without a step they are what is left. */
static void test_training_starts_from_it(void **state)
{
    static const double integers[] = {3, 2, 1};
    sb_quant_model *qm = NULL;
    sb_tensor *x = test_random(SB_DTYPE_F32, "90x3", 1);
    const sb_tensor *data[] = {x, NULL};
    sb_qat *qat = NULL;

    (void)state;
    assert_ok(test_quant_try_train(
        test_ctx(),
        "graph main(x: f32[N,3]) -> (y) {\nw: f32[3,1] = [1, 0.36, 0.36]\n"
        "y = MatMul(x, w) \"fc\"\n}",
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: gptq, BIT: 3, "
        "GPTQ: {ACT_ORDER: false}}}\nA: none\n",
        NULL, &qm));
    for (int i = 0; i < 270; i++)
        ((float *)x->data)[i] = (float)(i / 3 % 3 - 1);
    test_calibrate(qm, NULL, data);
    assert_ok(sb_qat_create(qm, SB_QAT_BN_AUTO, &qat));
    sb_value_id w = sb_graph_find_value(qat->graph, "w");
    for (int i = 0; i < 3; i++)
        assert_close(
            "start",
            sb_tensor_get_f64(&sb_graph_value(qat->graph, w)->constant, i),
            integers[i] * 2 / 7, 1e-6);
    assert_ok(sb_qat_settle(qat, qat->graph));
    sb_quant_model_set_quant(qm, 1, 1);
    const sb_tensor *y = test_quant_forward(qm, test_f32("1x3", 1, 10, 100));
    assert_close("end", sb_tensor_get_f64(y, 0), 123 * 2 / 7.0, 1e-4);
    sb_qat_free(qat);
    sb_quant_model_free(qm);
}

/* Without a configuration of the user 640 columns are rounded in two parts:
 * with inputs that are all the same, the sum of each part is kept within a
 * step, 2 / 7.  To nearest each of 0.36 would lose 0.26 steps. */
static void test_large_in_parts(void **state)
{
    enum { COLS = 640 };
    char text[COLS * 8], *at = text;
    sb_tensor *x = test_random(SB_DTYPE_F32, "4x640", 1);
    sb_tensor *half = test_random(SB_DTYPE_F32, "2x640", 1);
    const sb_tensor *data[] = {x, NULL};

    (void)state;
    at += sprintf(at, "graph main(x: f32[N,640]) -> (y) {\n"
                      "w: f32[640,1] = [1");
    for (int i = 1; i < COLS; i++)
        at += sprintf(at, ", 0.36");
    (void)sprintf(at, "]\ny = MatMul(x, w) \"fc\"\n}");
    for (int i = 0; i < 4 * COLS; i++)
        ((float *)x->data)[i] = (float)(1 + i / COLS);
    for (int i = 0; i < 2 * COLS; i++)
        ((float *)half->data)[i] = i / (COLS / 2) % 3 == 0;
    sb_quant_model *qm = test_quant(
        text,
        "SCHEDULE: {LAYERWISE: false}\n"
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: gptq, BIT: 3}}\n"
        "A: none\n",
        NULL);
    test_calibrate(qm, NULL, data);
    assert_true(sb_quant_model_step(qm, 0)->kept);
    sb_quant_model_set_quant(qm, 1, 1);
    const sb_tensor *y = test_quant_forward(qm, half);
    assert_close("first", sb_tensor_get_f64(y, 0), 1 + 319 * 0.36, 2 / 7.0);
    assert_close("second", sb_tensor_get_f64(y, 1), 320 * 0.36, 2 / 7.0);
    sb_quant_model_free(qm);
}

static void keep_line(void *user, sb_log_level level, const char *line)
{
    char *lines = user;

    (void)level;
    if (strncmp(line, "gptq:", 5) == 0)
        (void)snprintf(lines + strlen(lines), 1000 - strlen(lines), "%s\n",
                       line);
}

/* Weights that cannot be rounded by their inputs: one line for each reason. */
static void test_one_line_for_a_reason(void **state)
{
    char lines[1000] = "";
    sb_quant_model *qm = test_quant(
        "graph main(x: f32[N,2,2,2]) -> (y) {\n"
        "a: f32[2,2,1,1] = random(1)\n b: f32[2,2,1,1] = random(2)\n"
        "c: f32[2,2,1,1] = random(3)\n d: f32[2,2,1,1] = random(4)\n"
        "p = ConvTranspose(x, a) \"one\"\n q = ConvTranspose(p, b) \"two\"\n"
        "r = Conv(q, c) \"three\"\n y = ConvTranspose(r, d) \"four\"\n}",
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {TYPE: gptq, BIT: 8}}\n"
        "A: none\n",
        NULL);
    const sb_tensor *data[] = {test_random(SB_DTYPE_F32, "2x2x2x2", 1), NULL};

    (void)state;
    sb_ctx_set_log(test_ctx(), keep_line, lines);
    test_calibrate(qm, NULL, data);
    sb_ctx_set_log(test_ctx(), NULL, NULL);
    assert_string_equal(lines, "gptq: 3 weights are rounded to nearest, the "
                               "first is 'one.weight_quantizer': it is a "
                               "transposed convolution\n");
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_paper_does),
        cmocka_unit_test(test_dead_columns_and_fallback),
        cmocka_unit_test(test_cholesky),
        cmocka_unit_test(test_large_cholesky),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_training_starts_from_it),
        cmocka_unit_test(test_large_in_parts),
        cmocka_unit_test(test_one_line_for_a_reason),
    };

    return cmocka_run_group_tests_name("quantizer_gptq", tests, NULL, NULL);
}
