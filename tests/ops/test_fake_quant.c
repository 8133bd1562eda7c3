/* FakeQuant and Observe.  Expected values by hand, from
 *     y = (clamp(round_half_even(x / s) + z, qmin, qmax) - z) * s. */
#include "sbtest_node.h"

#include "graph/op.h"

static sb_tensor *floats(int64_t n, const float *v)
{
    sb_tensor *t = NULL;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 1, &n, &t));
    memcpy(t->data, v, (size_t)n * sizeof(float));
    return t;
}

static const struct {
    const char *what;
    const char *attrs;
    float scale, zero;
    float x[6], want[6];
} cases[] = {
    {"unsigned, ties to even, both ends",
     "qmin=0, qmax=255",
     0.5f,
     10,
     {0.25f, 0.75f, -5.0f, -5.3f, 122.5f, 200.0f},
     {0.0f, 1.0f, -5.0f, -5.0f, 122.5f, 122.5f}},
    {"signed four bit",
     "qmin=-8, qmax=7",
     1.0f,
     0,
     {-9.0f, -8.0f, -0.5f, 0.5f, 7.4f, 1e30f},
     {-8.0f, -8.0f, 0.0f, 0.0f, 7.0f, 7.0f}},
    {"one bit",
     "qmin=0, qmax=1",
     2.0f,
     0,
     {-1.0f, 0.9f, 1.0f, 1.1f, 3.0f, 9.0f},
     {0.0f, 0.0f, 0.0f, 2.0f, 2.0f, 2.0f}},
};

static void test_per_tensor(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_tensor *x = floats(6, cases[i].x), *y = NULL;
        sb_tensor *s = floats(1, &cases[i].scale);
        sb_tensor *z = floats(1, &cases[i].zero);
        test_node node = {.op = "FakeQuant",
                          .domain = SB_FUSED_DOMAIN,
                          .attrs = cases[i].attrs,
                          .in = {x, s, z},
                          .n_in = 3,
                          .n_out = 1,
                          .constant = 6};

        test_node_threads(&node, &y);
        for (int k = 0; k < 6; k++)
            assert_close(cases[i].what, ((float *)y->data)[k], cases[i].want[k],
                         0);
        sb_tensor_free(x);
        sb_tensor_free(s);
        sb_tensor_free(z);
    }
}

/* x [2, 2, 2], a scale for each index of axis 1. */
static void test_per_channel(void **state)
{
    const int64_t dims[] = {2, 2, 2};
    const float from[] = {1.2f, -1.2f, 1.2f, -1.2f, 0.6f, 9, 0.6f, 9};
    /* 1.2 / 0.5 = 2.4 -> 2 -> 1.0;  0.6 / 0.5 -> 1 -> 0.5 */
    const float want[] = {1, -1, 1, -1, 1, 7, 0.5f, 3.5f};
    const float scale[] = {1, 0.5f}, zero[] = {0, 0};
    sb_tensor *x = NULL, *y = NULL;
    sb_tensor *s = floats(2, scale), *z = floats(2, zero);

    (void)state;
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 3, dims, &x));
    memcpy(x->data, from, sizeof from);
    test_node node = {.op = "FakeQuant",
                      .domain = SB_FUSED_DOMAIN,
                      .attrs = "qmin=-8, qmax=7, axis=1",
                      .in = {x, s, z},
                      .n_in = 3,
                      .n_out = 1,
                      .constant = 6};
    test_node_threads(&node, &y);
    for (int k = 0; k < 8; k++)
        assert_close("per channel", ((float *)y->data)[k], want[k], 0);
    sb_tensor_free(x);
    sb_tensor_free(s);
    sb_tensor_free(z);
}

/* By hand, qmin 0, qmax 15, scale 0.5, zero point 4: v = x / scale is cut off
 * at -4 and 11.  x = 0.6: v 1.2, rounds to 1; -3: below; 7: above; -2: on the
 * border. */
static void test_gradients_are_those_of_lsq(void **state)
{
    const float from[] = {0.6f, -3, 7, -2}, up[] = {1, 2, -1, 0.5f};
    const float dx[] = {1, 0, 0, 0.5f};
    const float half = 0.5f, four = 4;
    sb_tensor *dy = floats(4, up), *x = floats(4, from), *y[3] = {0};
    sb_tensor *s = floats(1, &half), *z = floats(1, &four);
    test_node node = {.op = "FakeQuantGrad",
                      .domain = SB_FUSED_DOMAIN,
                      .attrs = "qmin=0, qmax=15, grad_factor=0.25",
                      .in = {dy, x, s, z},
                      .n_in = 4,
                      .n_out = 3};

    (void)state;
    test_node_run(&node, y);
    for (int k = 0; k < 4; k++)
        assert_close("dx", ((float *)y[0]->data)[k], dx[k], 0);
    /* 1 * (1 - 1.2) + 2 * -4 + -1 * 11 + 0.5 * 0, times the factor */
    assert_close("dscale", ((float *)y[1]->data)[0], 0.25 * -19.2, 1e-6);
    /* -(2 - 1) * 0.5, times the factor */
    assert_close("dzero", ((float *)y[2]->data)[0], 0.25 * -0.5, 1e-7);
    sb_tensor_free(dy);
    sb_tensor_free(x);
    sb_tensor_free(s);
    sb_tensor_free(z);
}

/* Without an observer the node is an identity. */
static void test_observe_is_a_view(void **state)
{
    const float from[] = {1, -2, 3};
    sb_tensor *x = floats(3, from), *y = NULL;
    test_node node = {.op = "Observe",
                      .domain = SB_FUSED_DOMAIN,
                      .attrs = "id=3",
                      .in = {x},
                      .n_in = 1,
                      .n_out = 1};

    (void)state;
    test_node_run(&node, &y);
    assert_memory_equal(y->data, from, sizeof from);
    sb_tensor_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_per_tensor),
        cmocka_unit_test(test_per_channel),
        cmocka_unit_test(test_gradients_are_those_of_lsq),
        cmocka_unit_test(test_observe_is_a_view),
    };

    return cmocka_run_group_tests_name("fake_quant", tests, NULL, NULL);
}
