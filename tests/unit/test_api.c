/* The public functions: building, counting, simplifying, running, refusing. */
#include "sbtest.h"

#include <stdlib.h>
#include <time.h>

static const char cnn[] = "graph cnn(x: f32[N,2,4,4]) -> (y) {\n"
                          "    w: f32[3,2,3,3] = random(1)\n"
                          "    b: f32[3] = [1, 2, 3]\n"
                          "    c = Conv(x, w, b) {pads=[1,1,1,1]} @ body.conv\n"
                          "    i = Identity(c)\n"
                          "    y = Relu(i) @ body.act\n"
                          "}\n";

static sb_model *parse(const char *text)
{
    sb_model *model = NULL;

    assert_ok(sb_model_parse(test_ctx(), text, &model));
    return model;
}

static void test_info_counts(void **state)
{
    (void)state;
    sb_model *model = parse(cnn);
    const sb_model_info *info = NULL;

    assert_ok(sb_model_info_get(model, &info));
    assert_string_equal(info->name, "cnn");
    assert_int_equal(info->nodes, 3);
    assert_int_equal(info->params, 3 * 2 * 3 * 3 + 3);
    assert_int_equal(info->weight_bytes, 4 * (54 + 3));
    /* 16 places, 3 channels out, 2 x 3 x 3 products each; N taken as 1 */
    assert_close("macs", info->macs, 16 * 3 * 18, 0);
    assert_true(info->macs_assumed);
    assert_int_equal(info->n_ops, 3);
    assert_string_equal(info->ops[0]->name, "Conv");
    assert_int_equal(info->ops[0]->params, 57);
    assert_true(info->ops[0]->runnable);
    assert_int_equal(info->n_modules, 2);
    assert_string_equal(info->modules[0]->name, "body.conv");
    sb_model_free(model);
}

/* The shape passes through a matrix, so that only folding finds it. */
static void test_info_macs_behind_shapes(void **state)
{
    (void)state;
    sb_model *model = parse("graph g(x: f32[N,8]) -> (y: f32[?,?]) {\n"
                            "  w: f32[4,5] = random(1)\n"
                            "  row: i64[2] = [1, 2]\n"
                            "  flat: i64[1] = [2]\n"
                            "  add: i64[2] = [1, -4]\n"
                            "  s = Shape(x)\n"
                            "  a = Reshape(s, row)\n"
                            "  b = Reshape(a, flat)\n"
                            "  c = Add(b, add)\n"
                            "  z = Reshape(x, c)\n"
                            "  y = MatMul(z, w)\n"
                            "}\n");
    const sb_model_info *info = NULL;

    assert_ok(sb_model_info_get(model, &info));
    /* With N = 1, z is [2, 4]. */
    assert_close("macs", info->macs, 2 * 4 * 5, 0);
    assert_true(info->macs_assumed);
    sb_model_free(model);
}

static void test_inputs_and_outputs(void **state)
{
    (void)state;
    sb_model *model = parse(cnn);

    assert_int_equal(sb_model_input_count(model), 1);
    assert_int_equal(sb_model_output_count(model), 1);
    const sb_value_info *x = sb_model_input(model, 0);
    const sb_value_info *y = sb_model_output(model, 0);
    assert_string_equal(x->name, "x");
    assert_string_equal(x->text, "float[N,2,4,4]");
    assert_int_equal(x->rank, 4);
    assert_int_equal(x->dims[0], -1);
    assert_int_equal(x->dims[1], 2);
    assert_string_equal(y->text, "float[N,3,4,4]");
    sb_model_free(model);
}

static void test_simplify_with_fixed_shape(void **state)
{
    (void)state;
    sb_model *model = parse(cnn);
    sb_simplify_options opt = SB_SIMPLIFY_OPTIONS_INIT;
    const sb_pass_result *const *results = NULL;
    size_t n = 0;

    assert_ok(sb_model_fix_shape(model, "x", 4, (const int64_t[]){5, 2, 4, 4}));
    assert_ok(sb_model_simplify(model, &opt, &results, &n));
    assert_true(n > 0);
    assert_string_equal(sb_model_output(model, 0)->text, "float[5,3,4,4]");
    assert_status(
        sb_model_fix_shape(model, "x", 4, (const int64_t[]){6, 2, 4, 4}),
        SB_BAD_ARG);
    assert_status(
        sb_model_fix_shape(model, "x", 4, (const int64_t[]){5, 2, 4, -1}),
        SB_BAD_ARG);
    assert_status(sb_model_fix_shape(model, "x", 99, NULL), SB_BAD_ARG);
    assert_status(sb_model_fix_shape(model, "z", 1, (const int64_t[]){1}),
                  SB_BAD_ARG);
    opt.passes = "no_such_pass";
    assert_int_not_equal(sb_model_simplify(model, &opt, NULL, NULL), SB_OK);
    /* A failure leaves the model as it was. */
    assert_string_equal(sb_model_output(model, 0)->text, "float[5,3,4,4]");
    sb_model_free(model);
}

/* An input of a fixed value is a constant: gone from the inputs, and folded. */
static void test_fixed_value_resolves_an_if(void **state)
{
    (void)state;
    sb_model *model =
        parse("graph g(x: f32[2], rate: i64[]) -> (y: f32[2]) {\n"
              "    wanted: i64[] = [16000]\n"
              "    same = Equal(rate, wanted)\n"
              "    y = If(same) {then_branch = graph a() -> (p: f32[2]) {\n"
              "        p = Relu(x)\n"
              "    }, else_branch = graph b() -> (q: f32[2]) {\n"
              "        q = Neg(x)\n"
              "    }}\n"
              "}\n");
    const sb_node_info *const *nodes = NULL;
    sb_tensor *rate = NULL, *wide = NULL;
    size_t n = 0;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_I64, 0, NULL, &rate));
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_I64, 1,
                               (const int64_t[]){3}, &wide));
    assert_true(sb_tensor_write_i64(rate, 0, 1, (const int64_t[]){16000}));
    assert_status(sb_model_fix_value(model, "rate", wide), SB_BAD_ARG);
    assert_status(sb_model_fix_value(model, "x", rate), SB_BAD_ARG);
    assert_status(sb_model_fix_value(model, "z", rate), SB_BAD_ARG);
    assert_int_equal(sb_model_input_count(model), 2);
    assert_ok(sb_model_fix_value(model, "rate", rate));
    assert_int_equal(sb_model_input_count(model), 1);
    assert_string_equal(sb_model_input(model, 0)->name, "x");
    assert_ok(sb_model_simplify(model, NULL, NULL, NULL));
    assert_ok(sb_model_nodes(model, &nodes, &n));
    assert_int_equal(n, 1);
    assert_string_equal(nodes[0]->op, "Relu");
    sb_tensor_free(rate);
    sb_tensor_free(wide);
    sb_model_free(model);
}

static void test_session_checks_its_inputs(void **state)
{
    (void)state;
    sb_model *model = parse(cnn);
    sb_session *session = NULL;
    const sb_tensor *out = NULL;
    const sb_tensor *good = test_random(SB_DTYPE_F32, "3x2x4x4", 1);

    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(test_session_run(session, &good, &out));
    assert_int_equal(sb_tensor_dims(out)[0], 3);
    assert_true(sb_session_workspace(session) > 0);
    const sb_tensor *bad[] = {test_random(SB_DTYPE_F32, "3x2x4", 1),
                              test_random(SB_DTYPE_F32, "3x1x4x4", 1),
                              test_random(SB_DTYPE_I64, "3x2x4x4", 1)};
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        assert_int_not_equal(test_session_run(session, &bad[i], &out), SB_OK);
        assert_error_has("'x'");
    }
    assert_ok(test_session_run(session, &good, &out));
    sb_session_free(session);
    sb_model_free(model);
}

/* A node with one input and one output. */
static sb_status add_node(sb_model *m, const char *op, const char *x,
                          const char *y, const char *attrs)
{
    return sb_model_add_node(m, op, &x, 1, &y, 1, attrs);
}

static void test_builder_refuses(void **state)
{
    (void)state;
    const int64_t dims[] = {2};
    sb_ctx *ctx = test_ctx();
    sb_model *m = NULL;

    assert_ok(sb_model_create(ctx, "m", &m));
    assert_ok(sb_model_add_input(m, "x", SB_DTYPE_F32, 1, dims));
    assert_int_not_equal(sb_model_add_input(m, "x", SB_DTYPE_F32, 1, dims),
                         SB_OK);
    assert_status(sb_model_add_input(m, "r", SB_DTYPE_F32, 99, dims),
                  SB_BAD_ARG);
    assert_status(add_node(m, "Relu", "nobody", "y", NULL), SB_BAD_ARG);
    assert_error_has("nobody");
    assert_int_not_equal(add_node(m, "Relu", "x", "y", "alpha=[1,"), SB_OK);
    assert_status(sb_model_add_output(m, "nothing"), SB_BAD_ARG);
    assert_ok(sb_model_add_output(m, "x"));
    assert_status(sb_model_add_output(m, "x"), SB_BAD_ARG);
    assert_error_has("'x' is an output already");
    sb_model_free(m);
}

/* Texts too are copied, not pointed at. */
static void test_constant_texts(void **state)
{
    (void)state;
    sb_ctx *ctx = test_ctx();
    char word[] = "cat";
    sb_bytes bytes = {word, 3};
    sb_tensor texts = sb_tensor_make(SB_DTYPE_STRING, 0, NULL);
    sb_model *m = NULL;
    sb_session *session = NULL;
    const sb_tensor *y = NULL;

    texts.data = &bytes;
    assert_ok(sb_model_create(ctx, "texts", &m));
    assert_ok(sb_model_add_constant(m, "c", &texts));
    memset(word, 'x', 3);
    assert_ok(sb_model_add_output(m, "c"));
    assert_ok(sb_model_finish(m));
    assert_ok(sb_session_create(m, NULL, &session));
    assert_ok(test_session_run(session, NULL, &y));
    assert_string_equal(((const sb_bytes *)y->data)->data, "cat");
    sb_session_free(session);
    sb_model_free(m);
}

static void test_graphs_are_printed_in_every_format(void **state)
{
    (void)state;
    static const struct {
        sb_graph_format format;
        const char *want;
    } cases[] = {
        {SB_GRAPH_FORMAT_TEXT,
         "c = Conv(x, w, b) {pads=[1,1,1,1]} @ body.conv"},
        {SB_GRAPH_FORMAT_DOT, "[label=\"Conv\\nbody.conv\"]"},
        {SB_GRAPH_FORMAT_MERMAID, "[\"Conv<br/>body.conv\"]"},
    };
    sb_model *model = parse(cnn);
    char *text = NULL;

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        assert_ok(sb_model_print(model, cases[i].format, &text));
        if (!strstr(text, cases[i].want))
            fail_msg("%s is not in:\n%s", cases[i].want, text);
        sb_memory_free(text);
    }
    assert_status(sb_model_print(model, (sb_graph_format)9, &text), SB_BAD_ARG);
    sb_model_free(model);
}

static void test_garbage_in_memory(void **state)
{
    (void)state;
    static const char garbage[] = "\x08\x08:\xff\xff\xff\xff\x0fgarbage";
    sb_model *model = NULL;

    assert_int_not_equal(
        sb_model_load_memory(test_ctx(), garbage, sizeof garbage, NULL, &model),
        SB_OK);
    assert_int_not_equal(sb_model_load_memory(test_ctx(), "", 0, NULL, &model),
                         SB_OK);
    assert_null(model);
}

/* Nothing recurses along the graph, and nothing is quadratic. */
static void test_ten_thousand_nodes_in_a_row(void **state)
{
    (void)state;
    enum { NODES = 10000 };
    const int64_t dims[] = {4};
    sb_ctx *ctx = test_ctx();
    sb_model *m = NULL;
    sb_session *session = NULL;
    char in[16] = "x", out[16];
    const sb_tensor *x = test_f32("4", -1, 0, 1, 2), *y = NULL;
    clock_t begin = clock();

    assert_ok(sb_model_create(ctx, "chain", &m));
    assert_ok(sb_model_add_input(m, "x", SB_DTYPE_F32, 1, dims));
    for (int i = 0; i < NODES; i++) {
        (void)snprintf(out, sizeof out, "v%d", i);
        assert_ok(add_node(m, i % 2 ? "Neg" : "Sin", in, out, NULL));
        memcpy(in, out, sizeof in);
    }
    assert_ok(sb_model_add_output(m, out));
    assert_ok(sb_model_finish(m));
    assert_ok(sb_model_simplify(m, NULL, NULL, NULL));
    assert_ok(sb_session_create(m, NULL, &session));
    assert_ok(test_session_run(session, &x, &y));
    sb_session_free(session);
    sb_model_free(m);
    /* A tenth of a second when this was written; a minute means a square. */
    assert_true(clock() - begin < 60 * (clock_t)CLOCKS_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_info_counts),
        cmocka_unit_test(test_info_macs_behind_shapes),
        cmocka_unit_test(test_inputs_and_outputs),
        cmocka_unit_test(test_simplify_with_fixed_shape),
        cmocka_unit_test(test_fixed_value_resolves_an_if),
        cmocka_unit_test(test_session_checks_its_inputs),
        cmocka_unit_test(test_builder_refuses),
        cmocka_unit_test(test_constant_texts),
        cmocka_unit_test(test_graphs_are_printed_in_every_format),
        cmocka_unit_test(test_garbage_in_memory),
        cmocka_unit_test(test_ten_thousand_nodes_in_a_row),
    };
    return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
