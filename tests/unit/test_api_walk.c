/* Looking at a model through the public interface, and changing it. */
#include "sbtest.h"

static const char text[] =
    "graph walk(x: f32[N,1,4,4]) -> (y) {\n"
    "  w: f32[2,1,3,3] = random(1)\n"
    "  shape: i64[2] = [-1, 8]\n"
    "  c = Conv(x, w, _) {pads=[1,1,1,1], group=1, auto_pad=\"NOTSET\"} "
    "\"conv1\" @ body.conv\n"
    "  p = MaxPool(c) {kernel_shape=[2,2], strides=[2,2]}\n"
    "  l = LeakyRelu(p) {alpha=0.5}\n"
    "  y = Reshape(l, shape)\n"
    "}\n";

static sb_model *parse(void)
{
    sb_model *model = NULL;

    assert_ok(sb_model_parse(test_ctx(), text, &model));
    return model;
}

static const sb_attr_info *find_attr(const sb_node_info *node, const char *name)
{
    for (size_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i]->name, name) == 0)
            return node->attrs[i];
    fail_msg("no attribute '%s'", name);
    return NULL;
}

static void test_nodes_and_attributes(void **state)
{
    (void)state;
    sb_model *model = parse();
    const sb_node_info *const *nodes = NULL;
    size_t n = 0;

    assert_ok(sb_model_nodes(model, &nodes, &n));
    assert_int_equal(n, 4);
    assert_string_equal(nodes[0]->op, "Conv");
    assert_string_equal(nodes[0]->name, "conv1");
    assert_string_equal(nodes[0]->module, "body.conv");
    assert_string_equal(nodes[0]->domain, "");
    assert_string_equal(nodes[0]->inputs[0], "x");
    assert_string_equal(nodes[0]->inputs[1], "w");
    if (nodes[0]->n_inputs == 3)
        assert_string_equal(nodes[0]->inputs[2], "");
    assert_string_equal(nodes[0]->outputs[0], "c");
    const sb_attr_info *pads = find_attr(nodes[0], "pads");
    assert_int_equal(pads->type, SB_ATTR_INTS);
    assert_int_equal(pads->n, 4);
    assert_int_equal(pads->ints[3], 1);
    const sb_attr_info *mode = find_attr(nodes[0], "auto_pad");
    assert_int_equal(mode->type, SB_ATTR_STRING);
    assert_string_equal(mode->strings[0], "NOTSET");
    const sb_attr_info *alpha = find_attr(nodes[2], "alpha");
    assert_int_equal(alpha->type, SB_ATTR_FLOAT);
    assert_int_equal(alpha->n, 1);
    assert_close("alpha", alpha->floats[0], 0.5, 0);
    sb_model_free(model);
}

static const sb_value_info *find_value(const sb_value_info *const *values,
                                       size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(values[i]->name, name) == 0)
            return values[i];
    fail_msg("no value '%s'", name);
    return NULL;
}

static void test_values_know_producers_and_consumers(void **state)
{
    (void)state;
    sb_model *model = parse();
    const sb_value_info *const *values = NULL;
    size_t n = 0;

    assert_ok(sb_model_values(model, &values, &n));
    assert_int_equal(n, 7);
    const sb_value_info *x = find_value(values, n, "x");
    assert_true(x->is_input && !x->is_constant && x->n_consumers == 1);
    assert_true(x->producer == SB_NO_INDEX);
    const sb_value_info *w = find_value(values, n, "w");
    assert_true(w->is_constant && !w->is_input);
    assert_string_equal(w->text, "float[2,1,3,3]");
    const sb_value_info *l = find_value(values, n, "l");
    assert_int_equal(l->producer, 2);
    assert_string_equal(l->text, "float[N,2,2,2]");
    assert_true(find_value(values, n, "y")->is_output);
    sb_model_free(model);
}

/* Twice the weight is twice the output; old sessions keep the old one. */
static void test_weights_can_be_set(void **state)
{
    (void)state;
    sb_model *model = parse();
    const sb_tensor *x = test_random(SB_DTYPE_F32, "2x1x4x4", 3);
    const sb_tensor *before = NULL, *after = NULL;
    sb_session *old = NULL, *new = NULL;
    sb_tensor *twice = NULL;

    assert_null(sb_model_weight(model, "x"));
    assert_null(sb_model_weight(model, "nothing"));
    const sb_tensor *w = sb_model_weight(model, "w");
    assert_non_null(w);
    assert_int_equal(sb_tensor_elements(w), 18);
    assert_ok(sb_session_create(model, NULL, &old));
    assert_ok(sb_tensor_copy(test_ctx(), w, &twice));
    for (int i = 0; i < 18; i++)
        ((float *)sb_tensor_data_mutable(twice))[i] *= 2;
    assert_ok(sb_model_set_weight(model, "w", twice));
    assert_ok(sb_session_create(model, NULL, &new));
    assert_ok(sb_session_run(old, &x, 1, &before, 1));
    assert_ok(sb_session_run(new, &x, 1, &after, 1));
    for (int64_t i = 0; i < sb_tensor_elements(before); i++) {
        double a, b;

        assert_true(sb_tensor_read_f64(before, i, 1, &a));
        assert_true(sb_tensor_read_f64(after, i, 1, &b));
        assert_close("twice", b, 2 * a, 1e-6);
    }
    assert_status(sb_model_set_weight(model, "w", x), SB_BAD_ARG);
    assert_error_has("weight 'w'");
    assert_status(sb_model_set_weight(model, "nothing", x), SB_BAD_ARG);
    sb_tensor_free(twice);
    sb_session_free(old);
    sb_session_free(new);
    sb_model_free(model);
}

/* What shapes depend on, they follow. */
static void test_shapes_follow_constants(void **state)
{
    (void)state;
    sb_model *model = parse();
    const int64_t dims[] = {2};
    sb_tensor *shape = NULL;

    assert_string_equal(sb_model_output(model, 0)->text, "float[N,8]");
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_I64, 1, dims, &shape));
    assert_true(sb_tensor_write_i64(shape, 0, 2, (const int64_t[]){-1, 4}));
    assert_ok(sb_model_set_weight(model, "shape", shape));
    assert_int_equal(sb_model_output(model, 0)->dims[1], 4);
    sb_tensor_free(shape);
    sb_model_free(model);
}

static void test_metadata_survives_saving(void **state)
{
    (void)state;
    sb_model *model = parse(), *back = NULL;
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(sb_model_metadata_count(model), 0);
    assert_ok(sb_model_set_metadata(model, "author", "me"));
    assert_ok(sb_model_set_metadata(model, "license", "MIT"));
    assert_ok(sb_model_set_metadata(model, "author", "you"));
    assert_ok(sb_model_save_memory(model, &bytes, &size));
    assert_ok(sb_model_load_memory(test_ctx(), bytes, size, NULL, &back));
    sb_memory_free(bytes);
    assert_int_equal(sb_model_metadata_count(back), 2);
    assert_string_equal(sb_model_metadata_key(back, 0), "author");
    assert_string_equal(sb_model_metadata(back, "author"), "you");
    assert_string_equal(sb_model_metadata(back, "license"), "MIT");
    assert_null(sb_model_metadata(back, "other"));
    assert_ok(sb_model_set_metadata(back, "author", NULL));
    assert_int_equal(sb_model_metadata_count(back), 1);
    assert_null(sb_model_metadata(back, "author"));
    sb_model_free(back);
    sb_model_free(model);
}

static void test_clone_is_independent(void **state)
{
    (void)state;
    sb_model *model = parse(), *clone = NULL;

    assert_ok(sb_model_clone(test_ctx(), model, &clone));
    assert_ok(sb_model_fix_shape(clone, "x", 4, (const int64_t[]){5, 1, 4, 4}));
    assert_ok(sb_model_simplify(clone, NULL, NULL, NULL));
    assert_string_equal(sb_model_output(clone, 0)->text, "float[5,8]");
    assert_string_equal(sb_model_output(model, 0)->text, "float[N,8]");
    sb_model_free(model);
    assert_non_null(sb_model_weight(clone, "w"));
    sb_model_free(clone);
}

/* ONNX allows any name, also with spaces; an absent input has none. */
static void test_builder_takes_any_names(void **state)
{
    (void)state;
    const int64_t dims[] = {-1, 2};
    const sb_tensor *x = test_f32("1x2", -3, 9), *y = NULL;
    const char *clip[] = {"an input", NULL, "the maximum"};
    const char *out = "an output, too";
    sb_tensor *most = NULL;
    sb_model *m = NULL;
    sb_session *session = NULL;

    assert_ok(sb_model_create(test_ctx(), "names", &m));
    assert_ok(sb_model_add_input(m, "an input", SB_DTYPE_F32, 2, dims));
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 0, NULL, &most));
    assert_true(sb_tensor_write_f64(most, 0, 1, (const double[]){5}));
    assert_ok(sb_model_add_constant(m, "the maximum", most));
    assert_ok(sb_model_add_node(m, "Clip", clip, 3, &out, 1, NULL));
    assert_ok(sb_model_add_output(m, "an output, too"));
    assert_ok(sb_model_finish(m));
    assert_ok(sb_session_create(m, NULL, &session));
    assert_ok(sb_session_run(session, &x, 1, &y, 1));
    assert_tensor("clipped", y, test_f32("1x2", -3, 5), 0);
    sb_session_free(session);
    sb_tensor_free(most);
    sb_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_and_attributes),
        cmocka_unit_test(test_values_know_producers_and_consumers),
        cmocka_unit_test(test_weights_can_be_set),
        cmocka_unit_test(test_shapes_follow_constants),
        cmocka_unit_test(test_metadata_survives_saving),
        cmocka_unit_test(test_clone_is_independent),
        cmocka_unit_test(test_builder_takes_any_names),
    };
    return cmocka_run_group_tests_name("api walk", tests, NULL, NULL);
}
