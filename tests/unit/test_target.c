/* Targets: rows are complete, found by name and alias, and agree with the
 * facts that runtimes document. */
#include "sbtest.h"

#include "graph/text.h"
#include "quant/target.h"

static void test_rows_are_complete(void **state)
{
    (void)state;
    size_t n = 0;
    const sb_target_def *const *all = sb_target_all(&n);

    assert_int_equal(n, 6);
    for (size_t i = 0; i < n; i++) {
        const sb_target_def *t = all[i];

        assert_ptr_equal(sb_target_find(t->name), t);
        assert_true(*t->summary);
        assert_true(sb_target_has_type(t->act_types, t->act));
        assert_true(sb_target_has_type(t->weight_types, t->weight));
        assert_true(t->act_schemes && t->weight_schemes);
        assert_true(t->opset >= 13 && t->opset_wide >= 21);
        assert_true((t->ops == NULL) == (t->n_ops == 0));
        for (size_t k = 0; k < t->n_ops; k++) {
            const sb_target_op *op = &t->ops[k];
            for (size_t j = 0; j < k; j++)
                if (strcmp(op->op, t->ops[j].op) == 0)
                    fail_msg("%s: %s twice", t->name, op->op);
            assert_true((op->place == SB_PLACE_FLOAT) == (op->why != NULL));
        }
    }
    assert_ptr_equal(sb_target_find("onnxruntime"),
                     sb_target_find("onnxruntime-x86"));
    assert_null(sb_target_find("no-such-target"));
}

/* What is placed must be what the runtime is known to take. */
static void test_placement_agrees_with_fusion(void **state)
{
    (void)state;
    size_t n = 0;
    const sb_target_def *const *all = sb_target_all(&n);

    for (size_t i = 0; i < n; i++) {
        const sb_target_def *t = all[i];
        for (size_t k = 0; k < t->n_ops; k++) {
            const sb_target_op *op = &t->ops[k];
            sb_node node = {.op = op->op, .domain = ""};

            if (op->place == SB_PLACE_FLOAT || op->place == SB_PLACE_FOLD)
                continue;
            const sb_qdq_rule *rule = sb_qdq_rule_find(t->rules, &node);
            if (!rule)
                fail_msg("%s: %s is placed but not fused", t->name, op->op);
            if (op->weight)
                assert_true(rule->flags & SB_QDQ_WEIGHTED ||
                            rule->kind == SB_QDQ_NORM);
        }
    }
}

static int axis_of(const char *target, const char *text, int rank)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    const sb_node *node = sb_graph_node(g, 0);
    const sb_target_def *t = sb_target_find(target);
    int axis = sb_target_weight_axis(sb_target_op_find(t, node), node, rank);

    sb_graph_free(g);
    return axis;
}

static void test_axis_of_weights(void **state)
{
    (void)state;
    const char *conv = "graph g(x: f32[1,4,8,8], w: f32[4,4,3,3]) -> (y) {\n"
                       "  y = Conv(x, w)\n}";
    const char *up1 = "graph g(x: f32[1,4,8,8], w: f32[4,4,3,3]) -> (y) {\n"
                      "  y = ConvTranspose(x, w)\n}";
    const char *up2 = "graph g(x: f32[1,4,8,8], w: f32[4,2,3,3]) -> (y) {\n"
                      "  y = ConvTranspose(x, w) {group=2}\n}";
    const char *gemm = "graph g(x: f32[1,4], w: f32[4,4]) -> (y) {\n"
                       "  y = Gemm(x, w)\n}";
    const char *gemm_t = "graph g(x: f32[1,4], w: f32[4,4]) -> (y) {\n"
                         "  y = Gemm(x, w) {transB=1}\n}";
    const char *matmul = "graph g(x: f32[1,4], w: f32[4,4]) -> (y) {\n"
                         "  y = MatMul(x, w)\n}";

    assert_int_equal(axis_of("onnxruntime-x86", conv, 4), 0);
    assert_int_equal(axis_of("tensorrt", up1, 4), 1);
    assert_int_equal(axis_of("tensorrt", up2, 4), -1);
    assert_int_equal(axis_of("onnxruntime-x86", gemm, 2), 1);
    assert_int_equal(axis_of("onnxruntime-x86", gemm_t, 2), 0);
    assert_int_equal(axis_of("onnxruntime-x86", matmul, 2), 1);
    assert_int_equal(axis_of("onnxruntime-x86", matmul, 3), 2);
    assert_int_equal(axis_of("qnn", matmul, 2), -1);
}

static void test_data_inputs(void **state)
{
    (void)state;
    const sb_target_def *t = sb_target_find("onnxruntime-x86");
    sb_node conv = {.op = "Conv", .domain = ""};
    sb_node where = {.op = "Where", .domain = ""};
    sb_node foreign = {.op = "Conv", .domain = "com.example"};
    const sb_target_op *c = sb_target_op_find(t, &conv);
    const sb_target_op *w = sb_target_op_find(t, &where);

    assert_null(sb_target_op_find(t, &foreign));
    assert_true(sb_target_is_data(c, 0) && sb_target_is_data(c, 1));
    assert_false(sb_target_is_data(c, 2));
    assert_false(sb_target_is_data(w, 0));
    assert_true(sb_target_is_data(w, 1) && sb_target_is_data(w, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_placement_agrees_with_fusion),
        cmocka_unit_test(test_axis_of_weights),
        cmocka_unit_test(test_data_inputs),
    };
    return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
