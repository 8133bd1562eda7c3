/* Compare: sums of two tensors against plain loops in long double, for sizes
 * around those of its pieces. */
#include "sbtest_node.h"

#include <math.h>

#include "graph/op.h"
#include "ops/reduce/compare_sums.h"

static test_node compare(const sb_tensor *a, const sb_tensor *b)
{
    return (test_node){.op = "Compare",
                       .domain = SB_FUSED_DOMAIN,
                       .in = {a, b},
                       .n_in = 2,
                       .n_out = 1};
}

static void test_sums_are_those_of_plain_loops(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 7, 8, 8191, 8192, 8193, 70001};
    sb_rng rng;

    sb_rng_init(&rng, test_seed(3));
    for (size_t k = 0; k < SB_COUNT(sizes); k++) {
        sb_tensor *a = test_floats(&rng, 1, &sizes[k]), *y = NULL;
        sb_tensor *b = test_floats(&rng, 1, &sizes[k]);
        long double want[SB_COMPARE_SUMS] = {0};
        test_node node = compare(a, b);

        test_node_threads(&node, &y);
        for (int64_t i = 0; i < sizes[k]; i++) {
            long double u = ((float *)a->data)[i], v = ((float *)b->data)[i];
            want[SB_COMPARE_DD] += (u - v) * (u - v);
            want[SB_COMPARE_AA] += u * u;
            want[SB_COMPARE_BB] += v * v;
            want[SB_COMPARE_AB] += u * v;
            want[SB_COMPARE_MAX] = fmaxl(want[SB_COMPARE_MAX], fabsl(u - v));
        }
        want[SB_COMPARE_COUNT] = (long double)sizes[k];
        assert_int_equal(sb_tensor_count(y), SB_COMPARE_SUMS);
        for (int w = 0; w < SB_COMPARE_SUMS; w++)
            assert_close("sum", ((double *)y->data)[w], want[w],
                         1e-12 * (double)sizes[k]);
    }
}

static void test_nothing_and_infinities(void **state)
{
    (void)state;
    const int64_t none = 0, one = 1;
    sb_tensor *a = NULL, *b = NULL, *y = NULL;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 1, &none, &a));
    test_node node = compare(a, a);
    test_node_run(&node, &y);
    for (int w = 0; w < SB_COMPARE_SUMS; w++)
        assert_true(((double *)y->data)[w] == 0);
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 1, &one, &b));
    *(float *)b->data = INFINITY;
    node = compare(b, b);
    test_node_run(&node, &y);
    assert_true(isnan(((double *)y->data)[SB_COMPARE_DD]));
    sb_tensor_free(a);
    sb_tensor_free(b);
}

static void test_two_shapes_are_refused(void **state)
{
    (void)state;
    const int64_t dims[] = {2, 3}, turned[] = {3, 2};
    sb_tensor *a = NULL, *b = NULL, *y = NULL;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 2, dims, &a));
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 2, turned, &b));
    test_node node = compare(a, b);
    assert_int_equal(test_node_try(&node, &y), SB_BAD_MODEL);
    sb_tensor_free(a);
    sb_tensor_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_those_of_plain_loops),
        cmocka_unit_test(test_nothing_and_infinities),
        cmocka_unit_test(test_two_shapes_are_refused),
    };
    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
