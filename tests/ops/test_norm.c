/* Normalizations against the formulas in double, with hand values for the small
 * ones; the same bytes for any number of threads. */
#include "sbtest_node.h"

#include <math.h>

static void moments(const float *x, int64_t n, double *mean, double *var)
{
    *mean = *var = 0;
    for (int64_t i = 0; i < n; i++)
        *mean += (double)x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        *var += ((double)x[i] - *mean) * ((double)x[i] - *mean) / (double)n;
}

static void test_batch_norm(void **state)
{
    (void)state;
    enum { N = 3, C = 5, S = 14 };
    sb_rng rng;
    sb_tensor *y;

    sb_rng_init(&rng, 1);
    sb_tensor *x = test_floats(&rng, 4, (int64_t[]){N, C, 2, 7});
    sb_tensor *p[4];
    for (int i = 0; i < 4; i++)
        p[i] = test_floats(&rng, 1, (int64_t[]){C});
    float *var = p[3]->data;
    for (int i = 0; i < C; i++)
        var[i] = fabsf(var[i]);
    test_node node = {.op = "BatchNormalization",
                      .attrs = "epsilon=0.01",
                      .in = {x, p[0], p[1], p[2], p[3]},
                      .n_in = 5,
                      .n_out = 1,
                      .constant = 30};
    test_node_threads(&node, &y);
    for (int i = 0; i < N * C * S; i++) {
        int c = i / S % C;
        double want =
            ((double)((float *)x->data)[i] - (double)((float *)p[2]->data)[c]) /
                sqrt((double)var[c] + 0.01) * (double)((float *)p[0]->data)[c] +
            (double)((float *)p[1]->data)[c];
        assert_close("element", ((float *)y->data)[i], want, 1e-5);
    }
}

/* The batch has means 2 and 20, variances 1 and 100. */
static void test_batch_norm_training(void **state)
{
    (void)state;
    sb_tensor *out[3];
    test_node node = {
        .op = "BatchNormalization",
        .attrs = "training_mode=1, momentum=0.5, epsilon=0.0",
        .in = {test_f32("2x2", 1, 10, 3, 30), test_f32("2", 1, 2),
               test_f32("2", 0, 1), test_f32("2", 4, 40), test_f32("2", 3, 0)},
        .n_in = 5,
        .n_out = 3,
    };

    test_node_run(&node, out);
    assert_tensor("y", out[0], test_f32("2x2", -1, -1, 1, 3), 1e-6);
    assert_tensor("mean", out[1], test_f32("2", 3, 30), 1e-6);
    assert_tensor("variance", out[2], test_f32("2", 2, 50), 1e-6);
}

static void check_groups(const char *op, const char *attrs, int64_t groups)
{
    enum { N = 2, C = 6, S = 35 };
    sb_rng rng;
    sb_tensor *y;

    sb_rng_init(&rng, 2);
    sb_tensor *x = test_floats(&rng, 4, (int64_t[]){N, C, 5, 7});
    sb_tensor *scale = test_floats(&rng, 1, (int64_t[]){C});
    sb_tensor *bias = test_floats(&rng, 1, (int64_t[]){C});
    test_node node = {.op = op,
                      .attrs = attrs,
                      .in = {x, scale, bias},
                      .n_in = 3,
                      .n_out = 1};
    test_node_threads(&node, &y);
    int64_t per = C / groups * S;
    for (int64_t i = 0; i < N * C * S; i++) {
        double mean, var;
        moments((float *)x->data + i / per * per, per, &mean, &var);
        double want = ((double)((float *)x->data)[i] - mean) /
                          sqrt(var + 0.001) *
                          (double)((float *)scale->data)[i / S % C] +
                      (double)((float *)bias->data)[i / S % C];
        assert_close(op, ((float *)y->data)[i], want, 2e-5);
    }
}

static void test_instance_and_group(void **state)
{
    (void)state;
    check_groups("InstanceNormalization", "epsilon=0.001", 6);
    check_groups("GroupNormalization", "epsilon=0.001, num_groups=3", 3);
    check_groups("GroupNormalization", "epsilon=0.001, num_groups=1", 1);
}

static void test_layer_norm(void **state)
{
    (void)state;
    enum { ROWS = 6, SIZE = 37 };
    sb_rng rng;
    sb_tensor *out[3];

    sb_rng_init(&rng, 3);
    sb_tensor *x = test_floats(&rng, 3, (int64_t[]){2, 3, SIZE});
    sb_tensor *scale = test_floats(&rng, 1, (int64_t[]){SIZE});
    sb_tensor *bias = test_floats(&rng, 1, (int64_t[]){SIZE});
    test_node node = {.op = "LayerNormalization",
                      .attrs = "epsilon=0.001",
                      .in = {x, scale, bias},
                      .n_in = 3,
                      .n_out = 3};
    test_node_threads(&node, out);
    assert_int_equal(out[1]->dims[2], 1);
    for (int r = 0; r < ROWS; r++) {
        double mean, var;
        moments((float *)x->data + r * SIZE, SIZE, &mean, &var);
        double inv = 1 / sqrt(var + 0.001);
        assert_close("mean", ((float *)out[1]->data)[r], mean, 1e-6);
        assert_close("deviation", ((float *)out[2]->data)[r], inv, 1e-5);
        for (int i = 0; i < SIZE; i++) {
            double v = (double)((float *)x->data)[r * SIZE + i];
            assert_close("y", ((float *)out[0]->data)[r * SIZE + i],
                         (v - mean) * inv * (double)((float *)scale->data)[i] +
                             (double)((float *)bias->data)[i],
                         1e-5);
        }
    }
}

/* A scale that differs by row. */
static void test_layer_norm_spread(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "LayerNormalization",
                      .attrs = "epsilon=0.0",
                      .in = {test_f32("2x2", 1, 3, 5, 9),
                             test_f32("2x1", 1, 10), test_f32("1", 0.5)},
                      .n_in = 3,
                      .n_out = 1};

    test_node_run(&node, &y);
    assert_tensor("y", y, test_f32("2x2", -0.5, 1.5, -9.5, 10.5), 1e-5);
}

static void test_rms_norm(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "RMSNormalization",
                      .attrs = "epsilon=0.0",
                      .in = {test_f32("1x2", 1, 7), test_f32("2", 1, 2)},
                      .n_in = 2,
                      .n_out = 1};

    test_node_run(&node, &y); /* root of (1 + 49) / 2 is 5 */
    assert_tensor("y", y, test_f32("1x2", 0.2, 2.8), 1e-6);
}

/* x + skip + bias = {1, 7, 1, 7}, mean 4, deviation 3. */
static void test_skip_norm(void **state)
{
    (void)state;
    sb_tensor *out[4];
    test_node node = {
        .op = "SkipLayerNormalization",
        .domain = "com.microsoft",
        .attrs = "epsilon=0.0",
        .in = {test_f32("1x1x4", 0, 1, 2, 3), test_f32("1x1x4", 0, 5, -2, 3),
               test_f32("4", 1, 1, 1, 2), test_f32("4", 0, 0, 0, 1),
               test_f32("4", 1, 1, 1, 1)},
        .n_in = 5,
        .n_out = 4,
    };

    test_node_run(&node, out);
    assert_tensor("sum", out[3], test_f32("1x1x4", 1, 7, 1, 7), 0);
    assert_tensor("y", out[0], test_f32("1x1x4", -1, 1, -1, 3), 1e-6);
    node.op = "SkipSimplifiedLayerNormalization";
    node.in[3] = node.in[4];
    node.n_in = 4;
    test_node_run(&node, out);
    assert_tensor("y", out[0], test_f32("1x1x4", 0.2, 1.4, 0.2, 2.8), 1e-6);
}

static void test_lrn_divides_by_neighbors(void **state)
{
    (void)state;
    sb_tensor *y;
    test_node node = {.op = "LRN",
                      .attrs = "size=3, alpha=3.0, beta=1.0, bias=2.0",
                      .in = {test_f32("1x4x1x1", 1, 2, 3, 4)},
                      .n_in = 1,
                      .n_out = 1};

    test_node_run(&node, &y);
    assert_tensor("y", y,
                  test_f32("1x4x1x1", 1.0 / 7, 2.0 / 16, 3.0 / 31, 4.0 / 27),
                  1e-6);
}

static void test_bad_models(void **state)
{
    (void)state;
    sb_tensor *y;
    sb_tensor *x = test_random(SB_DTYPE_F32, "2x4x3", 1);
    sb_tensor *five = test_random(SB_DTYPE_F32, "5", 1);
    sb_tensor *four = test_random(SB_DTYPE_F32, "4", 1);
    test_node node = {.op = "BatchNormalization",
                      .n_in = 5,
                      .n_out = 1,
                      .in = {x, four, four, five, four}};

    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.op = "GroupNormalization";
    node.n_in = 3;
    node.attrs = "num_groups=3";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.op = "LayerNormalization";
    node.attrs = "axis=3";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.attrs = NULL;
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
    node.op = "LRN";
    node.n_in = 1;
    node.attrs = "size=0";
    assert_status(test_node_try(&node, &y), SB_BAD_MODEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_norm),
        cmocka_unit_test(test_batch_norm_training),
        cmocka_unit_test(test_instance_and_group),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_layer_norm_spread),
        cmocka_unit_test(test_rms_norm),
        cmocka_unit_test(test_skip_norm),
        cmocka_unit_test(test_lrn_divides_by_neighbors),
        cmocka_unit_test(test_bad_models),
    };
    return cmocka_run_group_tests_name("norm", tests, NULL, NULL);
}
