/* OutputGrad: results like the inputs, and nothing that it could compute; runs
 * that stop before it are in tests/unit/test_exec_states.c. */
#include "sbtest.h"

#include "graph/text.h"
#include "ops/op_registry.h"

static void test_results_are_like_inputs(void **state)
{
    (void)state;
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(),
                             "graph g(a: f32[N,3], b: f32[2]) -> (c, d) {\n"
                             "  c, d = sparsebit::OutputGrad(a, b)\n}\n",
                             &g));
    assert_ok(sb_graph_infer(g));
    for (size_t i = 0; i < 2; i++)
        assert_true(
            sb_shape_same(&sb_graph_value(g, g->inputs[i])->type.shape,
                          &sb_graph_value(g, g->outputs[i])->type.shape));
    sb_graph_free(g);
}

static void test_a_plain_run_is_refused(void **state)
{
    (void)state;
    assert_status(test_try_run("graph g(a: f32[2]) -> (c: f32[2]) {\n"
                               "  c = sparsebit::OutputGrad(a)\n}\n",
                               (const sb_tensor *[]){test_f32("2", 1, 2)}),
                  SB_BAD_ARG);
    assert_error_has("gradients come from the caller");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_are_like_inputs),
        cmocka_unit_test(test_a_plain_run_is_refused),
    };
    return cmocka_run_group_tests_name("output_grad", tests, NULL, NULL);
}
