/* Pass flush_subnormals: 2^-126 is the least float of full precision. */
#include "passtest.h"

#include <float.h>
#include <math.h>

#include "base/alloc.h"
#include "graph/text.h"
#include "passes/pass.h"

static const pass_case cases[] = {
    {"numbers of full precision stay",
     TEST_GRAPH("x: f32[3]", "y: f32[3]",
                "w: f32[3] = [0, 1.1754944e-38, -1.1754944e-38]\n"
                "y = Mul(x, w)\n"),
     NULL, false},
    {"other types stay",
     TEST_GRAPH("x: f64[1]", "y: f64[1]",
                "w: f64[1] = [1e-310]\ny = Mul(x, w)\n"),
     NULL, false},
};

static void test_what_stays(void **state)
{
    (void)state;
    test_passes("flush_subnormals", cases, SB_COUNT(cases));
}

static void test_elements_become_zero_and_are_counted(void **state)
{
    sb_graph *g = NULL;
    sb_pass_result *results = NULL;
    size_t n = 0;

    (void)state;
    assert_ok(sb_graph_parse(test_ctx(),
                             "graph g(x: f32[5]) -> (y: f32[5]) {\n"
                             "  w: f32[5] = [1, 1e-40, -1e-45, 2, 1e-39]\n"
                             "  y = Mul(x, w)\n}\n",
                             &g));
    assert_ok(sb_passes_run(g, "simplify", NULL, &results, &n));
    assert_string_equal(results[n - 1].name, "flush_subnormals");
    assert_int_equal(results[n - 1].changes, 3);
    const float *w =
        sb_graph_value(g, sb_graph_find_value(g, "w"))->constant.data;
    assert_true(w[0] == 1 && w[1] == 0 && w[2] == 0 && w[3] == 2 && w[4] == 0);
    assert_true(signbit(w[2]));
    sb_free(test_ctx(), results);
    sb_graph_free(g);
}

static void test_weights_are_counted_and_simplified(void **state)
{
    sb_model *model = NULL;

    (void)state;
    assert_ok(sb_model_parse(test_ctx(),
                             "graph g(x: f32[3]) -> (y: f32[3]) {\n"
                             "  w: f32[3] = [1e-40, 1, -1e-44]\n"
                             "  y = Mul(x, w)\n}\n",
                             &model));
    assert_int_equal(sb_model_count_subnormals(model), 2);
    assert_ok(sb_model_simplify(model, NULL, NULL, NULL));
    assert_int_equal(sb_model_count_subnormals(model), 0);
    sb_model_free(model);
}

/* A product below 2^-126 is zero, on every thread, and afterwards the caller
 * computes as before. */
static void test_runs_take_subnormals_for_zero(void **state)
{
    enum { N = 1 << 16 };
    volatile float least = FLT_MIN;
    sb_tensor *x = test_tensor(SB_DTYPE_F32, "65536", NULL);

    (void)state;
    for (int i = 0; i < N; i++)
        ((float *)x->data)[i] = i % 2 ? 1e-40f : FLT_MIN;
    sb_ctx_set_threads(test_ctx(), 4);
    sb_tensor *y = test_run1("graph g(x: f32[65536]) -> (y: f32[65536]) {\n"
                             "  k: f32 = 0.5\n  a = Mul(x, k)\n"
                             "  e = Neg(a)\n  y = Mul(e, e)\n}\n",
                             (const sb_tensor *[]){x});
    for (int i = 0; i < N; i++)
        assert_true(((const float *)y->data)[i] == 0);
    y = test_run1("graph g(x: f32[65536]) -> (y: f32[65536]) {\n"
                  "  k: f32 = 1048576\n  y = Mul(x, k)\n}\n",
                  (const sb_tensor *[]){x});
    for (int i = 0; i < N; i++)
        assert_true(((const float *)y->data)[i] == (i % 2 ? 0 : 0x1p-106f));
    assert_true(least / 2 > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_stays),
        cmocka_unit_test(test_elements_become_zero_and_are_counted),
        cmocka_unit_test(test_weights_are_counted_and_simplified),
        cmocka_unit_test(test_runs_take_subnormals_for_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
