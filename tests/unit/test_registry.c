/* The lists of operators and passes: order, uniqueness, mandatory members. */
#include "sbtest.h"

#include "ops/elementwise/elementwise.h"
#include "ops/op_registry.h"
#include "passes/pass.h"

static const char *domain_of(const sb_op_def *op)
{
    return op->domain ? op->domain : "";
}

static void test_operators_are_sorted_and_found(void **state)
{
    (void)state;
    size_t n = 0;
    const sb_op_def *const *ops = sb_op_all(&n);

    assert_true(n > 100);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(sb_op_find(domain_of(ops[i]), ops[i]->name), ops[i]);
        if (i == 0)
            continue;
        int order = strcmp(domain_of(ops[i - 1]), domain_of(ops[i]));
        if (order == 0)
            order = strcmp(ops[i - 1]->name, ops[i]->name);
        if (order >= 0)
            fail_msg("%s does not come after %s", ops[i]->name,
                     ops[i - 1]->name);
    }
    assert_null(sb_op_find("", "NoSuchOperator"));
    assert_null(sb_op_find("no.such.domain", "Relu"));
    assert_non_null(sb_op_find("ai.onnx", "Relu"));
}

static void test_operator_rows_are_complete(void **state)
{
    (void)state;
    size_t n = 0;
    const sb_op_def *const *ops = sb_op_all(&n);

    for (size_t i = 0; i < n; i++) {
        const sb_op_def *op = ops[i];
        const char *what = op->name;

        if (!op->infer || op->in_min > op->in_max || op->out_min > op->out_max)
            fail_msg("%s: incomplete row", what);
        if (op->grad && (op->flags & SB_OP_FLAT))
            fail_msg("%s: both flat and with a gradient", what);
        if (op->grad == sb_grad_unary && !((const sb_ew_def *)op->aux)->grad)
            fail_msg("%s: no strip for its gradient", what);
        if (op->since < 1 || op->since > 99)
            fail_msg("%s: since %d", what, op->since);
        if ((op->attrs_size == 0) != (op->attrs == NULL))
            fail_msg("%s: attribute table without struct or the reverse", what);
        for (const sb_attr_def *a = op->attrs; a && a->name; a++)
            if (a->offset >= op->attrs_size || a->type == SB_ATTR_NONE)
                fail_msg("%s: attribute %s", what, a->name);
    }
}

static sb_node node_of(const char *domain, const char *op)
{
    return (sb_node){.domain = domain, .op = op};
}

/* Inputs and axes as ONNX and ONNX Runtime document them. */
static void test_weights_of_operators(void **state)
{
    static const struct {
        const char *domain, *op;
        bool integer;
        uint32_t input; /* of an integer operator's weight */
        int axis;       /* of a matrix */
    } cases[] = {
        {"", "Conv", false, 0, 0},
        {"", "ConvTranspose", false, 0, 1},
        {"", "MatMul", false, 0, 1},
        {"", "Gemm", false, 0, 1},
        {"", "ConvInteger", true, 1, 0},
        {"", "MatMulInteger", true, 1, 1},
        {"", "QLinearConv", true, 3, 0},
        {"", "QLinearMatMul", true, 3, 1},
        {"com.microsoft", "QGemm", true, 3, 1},
        {"com.microsoft", "MatMulIntegerToFloat", true, 1, 1},
        {"com.microsoft", "DynamicQuantizeMatMul", true, 1, 1},
        {"com.microsoft", "MatMulNBits", true, 1, 0},
        {"com.microsoft", "QLinearAdd", true, 0, 0},
        {"com.microsoft", "QAttention", true, 1, 0}, /* has no row */
        {"com.microsoft", "QLinearReduceMean", true, 0, 0},
        {"", "QuantizeLinear", false, 0, 0},
        {"", "DynamicQuantizeLinear", false, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const sb_node node = node_of(cases[i].domain, cases[i].op);
        uint32_t input = 99;

        if (sb_op_is_integer(&node, &input) != cases[i].integer ||
            input != cases[i].input ||
            sb_op_weight_axis(&node, 2) != cases[i].axis)
            fail_msg("%s: input %u, axis %d", cases[i].op, (unsigned)input,
                     sb_op_weight_axis(&node, 2));
        assert_int_equal(sb_op_weight_axis(&node, 1), -1);
    }
    const sb_node batched = node_of("", "MatMul");
    assert_int_equal(sb_op_weight_axis(&batched, 4), 3);
    assert_int_equal(sb_op_weight_axis(&batched, -1), -1);
}

static void test_passes_are_complete(void **state)
{
    (void)state;
    size_t n = 0;
    const sb_pass_def *const *passes = sb_pass_all(&n);

    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(sb_pass_find(NULL, passes[i]->name), passes[i]);
        assert_non_null(passes[i]->run);
        assert_true(passes[i]->summary && *passes[i]->summary);
    }
    assert_null(sb_pass_find(NULL, "no_such_pass"));
    assert_non_null(sb_pipeline_find("simplify"));
}

/* Lists of the public header end, and unknown ones are empty. */
static void test_public_lists(void **state)
{
    (void)state;
    size_t n_ops = 0, n = 0;
    const sb_listing *row;

    (void)sb_op_all(&n_ops);
    while ((row = sb_list_get(test_ctx(), "ops", n)) != NULL) {
        assert_true(*row->name && row->since > 0);
        n++;
    }
    assert_int_equal(n, n_ops);
    assert_null(sb_list_get(test_ctx(), "nothing", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators_are_sorted_and_found),
        cmocka_unit_test(test_operator_rows_are_complete),
        cmocka_unit_test(test_weights_of_operators),
        cmocka_unit_test(test_passes_are_complete),
        cmocka_unit_test(test_public_lists),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
