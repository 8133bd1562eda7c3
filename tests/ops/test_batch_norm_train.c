/* Batch normalization while learning: results against the definition in
 * double, gradients against central differences of that definition.  Plain and
 * with channels last, more and fewer channels than are added at a time. */
#include "sbtest.h"
#include "sbtest_node.h"

#include <math.h>

enum { MOST = 40 * 6 * 35 };

typedef struct bn_case {
    const char *shape;
    int n, c, size;
} bn_case;

static const bn_case cases[] = {
    {"4x3x5x7", 4, 3, 35}, {"6x40x5x7", 6, 40, 35}, {"9x5", 9, 5, 1},
    {"2x4x30", 2, 4, 30},  {"50x40", 50, 40, 1},
};

typedef struct bn_numbers {
    double x[MOST], scale[64], bias[64], dy[MOST];
    double y[MOST], mean[64], var[64];
} bn_numbers;

static void fill(double *to, const sb_tensor *t)
{
    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        to[i] = sb_tensor_get_f64(t, i);
}

/* y, mean and variance; returns the sum of dy y. */
static double definition(const bn_case *k, bn_numbers *v)
{
    double loss = 0;

    for (int c = 0; c < k->c; c++) {
        double sum = 0, square = 0, m = k->n * k->size;
        for (int pass = 0; pass < 3; pass++)
            for (int n = 0; n < k->n; n++)
                for (int i = 0; i < k->size; i++) {
                    int at = (n * k->c + c) * k->size + i;
                    double d = v->x[at] - sum / m;
                    if (pass == 0)
                        sum += v->x[at];
                    else if (pass == 1)
                        square += d * d;
                    else
                        v->y[at] = d / sqrt(square / m + 1e-3) * v->scale[c] +
                                   v->bias[c];
                    loss += pass == 2 ? v->dy[at] * v->y[at] : 0;
                }
        v->mean[c] = sum / m;
        v->var[c] = square / m;
    }
    return loss;
}

static double slope(const bn_case *k, bn_numbers *v, double *at)
{
    double h = 1e-5, was = *at;

    *at = was + h;
    double up = definition(k, v);
    *at = was - h;
    double down = definition(k, v);
    *at = was;
    return (up - down) / (2 * h);
}

static void check_case(const bn_case *k, uint64_t seed)
{
    static bn_numbers v;
    char channels[8];

    (void)snprintf(channels, sizeof channels, "%d", k->c);
    sb_tensor *x = test_random(SB_DTYPE_F32, k->shape, seed);
    sb_tensor *dy = test_random(SB_DTYPE_F32, k->shape, seed + 1);
    sb_tensor *scale = test_random(SB_DTYPE_F32, channels, seed + 2);
    sb_tensor *bias = test_random(SB_DTYPE_F32, channels, seed + 3);
    sb_tensor *mean = test_random(SB_DTYPE_F32, channels, seed + 4);
    sb_tensor *var = test_random(SB_DTYPE_F32, channels, seed + 5);
    test_node train = {.op = "BatchNormTrain",
                       .domain = "sparsebit",
                       .attrs = "epsilon=0.001, momentum=0.75",
                       .in = {x, scale, bias, mean, var},
                       .n_in = 5,
                       .n_out = 5};
    sb_tensor *out[5], *grad[3];

    fill(v.x, x);
    fill(v.dy, dy);
    fill(v.scale, scale);
    fill(v.bias, bias);
    (void)definition(k, &v);
    test_node_threads(&train, out);
    double m = k->n * k->size;
    for (int64_t i = 0; i < sb_tensor_count(x); i++)
        assert_close("y", sb_tensor_get_f64(out[0], i), v.y[i], 1e-5);
    for (int c = 0; c < k->c; c++) {
        assert_close("mean", sb_tensor_get_f64(out[1], c), v.mean[c], 1e-6);
        assert_close("inv_std", sb_tensor_get_f64(out[2], c),
                     1 / sqrt(v.var[c] + 1e-3), 1e-5);
        assert_close("running mean", sb_tensor_get_f64(out[3], c),
                     0.75 * sb_tensor_get_f64(mean, c) + 0.25 * v.mean[c],
                     1e-6);
        assert_close("running variance", sb_tensor_get_f64(out[4], c),
                     0.75 * sb_tensor_get_f64(var, c) +
                         0.25 * v.var[c] * m / (m - 1),
                     1e-5);
    }
    test_node back = {.op = "BatchNormGrad",
                      .domain = "sparsebit",
                      .in = {dy, x, scale, out[1], out[2]},
                      .n_in = 5,
                      .n_out = 3};
    test_node_threads(&back, grad);
    for (int64_t i = 0; i < sb_tensor_count(x); i += 7)
        assert_close("dx", sb_tensor_get_f64(grad[0], i), slope(k, &v, &v.x[i]),
                     1e-4);
    for (int c = 0; c < k->c; c++) {
        assert_close("dscale", sb_tensor_get_f64(grad[1], c),
                     slope(k, &v, &v.scale[c]), 1e-3);
        assert_close("dbias", sb_tensor_get_f64(grad[2], c),
                     slope(k, &v, &v.bias[c]), 1e-3);
    }
}

static void test_against_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        check_case(&cases[i], 10 * i + 1);
}

/* A mean that is large beside the deviation costs few digits. */
static void test_large_mean(void **state)
{
    sb_tensor *x = test_f32("4x1x1x1", 10000, 10001, 10002, 10003);
    sb_tensor *one = test_f32("1", 1), *zero = test_f32("1", 0), *out[3];
    test_node train = {.op = "BatchNormTrain",
                       .domain = "sparsebit",
                       .attrs = "epsilon=0.0",
                       .in = {x, one, zero, zero, one},
                       .n_in = 5,
                       .n_out = 3};

    (void)state;
    test_node_run(&train, out);
    assert_close("mean", sb_tensor_get_f64(out[1], 0), 10001.5, 1e-3);
    assert_close("inv_std", sb_tensor_get_f64(out[2], 0), 1 / sqrt(1.25), 1e-6);
}

static void test_empty_batch_is_refused(void **state)
{
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "0x1x2x2", NULL);
    sb_tensor *one = test_f32("1", 1), *out;
    test_node train = {.op = "BatchNormTrain",
                       .domain = "sparsebit",
                       .in = {x, one, one, one, one},
                       .n_in = 5,
                       .n_out = 1};

    (void)state;
    assert_status(test_node_try(&train, &out), SB_BAD_DATA);
    assert_error_has("has no statistics");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_large_mean),
        cmocka_unit_test(test_empty_batch_is_refused),
    };

    return cmocka_run_group_tests_name("batch_norm_train", tests, NULL, NULL);
}
