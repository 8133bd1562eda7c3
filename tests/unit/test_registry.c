/* The lists of operators and passes: order, uniqueness, mandatory members. */
#include "sbtest.h"

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
        if (op->since < 1 || op->since > 99)
            fail_msg("%s: since %d", what, op->since);
        if ((op->attrs_size == 0) != (op->attrs == NULL))
            fail_msg("%s: attribute table without struct or the reverse", what);
        for (const sb_attr_def *a = op->attrs; a && a->name; a++)
            if (a->offset >= op->attrs_size || a->type == SB_ATTR_NONE)
                fail_msg("%s: attribute %s", what, a->name);
    }
}

static void test_passes_are_complete(void **state)
{
    (void)state;
    size_t n = 0;
    const sb_pass_def *const *passes = sb_pass_all(&n);

    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(sb_pass_find(passes[i]->name), passes[i]);
        assert_non_null(passes[i]->run);
        assert_true(passes[i]->summary && *passes[i]->summary);
    }
    assert_null(sb_pass_find("no_such_pass"));
    assert_non_null(sb_pipeline_find("simplify"));
}

/* Lists of the public header end, and unknown ones are empty. */
static void test_public_lists(void **state)
{
    (void)state;
    size_t n_ops = 0, n = 0;
    sb_listing row;

    (void)sb_op_all(&n_ops);
    while (sb_list_row("ops", n, &row)) {
        assert_true(*row.name && row.since > 0);
        n++;
    }
    assert_int_equal(n, n_ops);
    assert_false(sb_list_row("nothing", 0, &row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operators_are_sorted_and_found),
        cmocka_unit_test(test_operator_rows_are_complete),
        cmocka_unit_test(test_passes_are_complete),
        cmocka_unit_test(test_public_lists),
    };
    return cmocka_run_group_tests_name("registry", tests, NULL, NULL);
}
