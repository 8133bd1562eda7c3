/* Functions that a model brings along: what inlining leaves, as text. */
#include "sbtest.h"

#include "graph/text.h"
#include "onnx/onnx.h"
#include "pb_bytes.h"

enum {
    FUNCTION_ATTR_DEFAULT = 11,
    ATTR_FLOAT = 1,
    NODE_OVERLOAD = 8,
    FUNCTION_OVERLOAD = 13
};

static const int64_t dims23[] = {2, 3};

/* A node of the domain "my", with its name. */
static void call(pb *to, unsigned field, const char *op, const char *in,
                 const char *out, const pb *attr)
{
    pb node = {.n = 0};

    pb_text(&node, NODE_OP, op);
    pb_text(&node, NODE_DOMAIN, "my");
    pb_text(&node, NODE_NAME, "call");
    if (in)
        pb_text(&node, NODE_INPUT, in);
    pb_text(&node, NODE_OUTPUT, out);
    if (attr)
        pb_msg(&node, NODE_ATTR, attr);
    pb_msg(to, field, &node);
}

/* The head of a function of opset `opset`; nodes follow. */
static void function(pb *f, const char *name, const char *in, const char *out,
                     int64_t opset)
{
    pb id = {.n = 0};

    pb_clear(f);
    pb_text(f, FUNCTION_NAME, name);
    pb_text(f, FUNCTION_DOMAIN, "my");
    if (in)
        pb_text(f, FUNCTION_INPUT, in);
    pb_text(f, FUNCTION_OUTPUT, out);
    pb_int(&id, OPSET_VERSION, opset);
    pb_msg(f, FUNCTION_OPSET, &id);
}

static void float_attr(pb *a, const char *name, float value)
{
    pb_clear(a);
    pb_text(a, ATTR_NAME, name);
    pb_float(a, ATTR_F, value);
    pb_int(a, ATTR_TYPE, ATTR_FLOAT);
}

/* `name` of the node is the call's attribute `of`. */
static void reference(pb *a, const char *name, const char *of)
{
    pb_clear(a);
    pb_text(a, ATTR_NAME, name);
    pb_text(a, ATTR_REF, of);
    pb_int(a, ATTR_TYPE, ATTR_FLOAT);
}

static void expect(const pb *graph, const pb *functions, size_t n,
                   const char *want)
{
    sb_graph *g = NULL;
    pb m;
    sb_str text;

    pb_model(&m, graph, 17);
    for (size_t i = 0; i < n; i++)
        pb_msg(&m, MODEL_FUNCTIONS, &functions[i]);
    assert_ok(sb_onnx_load_memory(test_ctx(), "test", NULL, m.data, m.n, &g));
    sb_str_init(&text, test_ctx());
    assert_ok(sb_graph_print(g, &text));
    assert_string_equal(sb_str_text(&text), want);
    sb_str_free(&text);
    sb_graph_free(g);
}

static void graph_of(pb *g, const char *op, const pb *attr)
{
    pb_clear(g);
    pb_text(g, GRAPH_NAME, "g");
    call(g, GRAPH_NODE, op, "x", "y", attr);
    pb_value(g, GRAPH_INPUT, "x", 2, dims23);
    pb_value(g, GRAPH_OUTPUT, "y", 2, dims23);
}

/* The attribute of the call, else the default, else none. */
static void test_attributes_of_the_call_go_before_defaults(void **state)
{
    (void)state;
    pb g, f, a;

    function(&f, "F", "a", "b", 17);
    reference(&a, "alpha", "slope");
    pb_node(&f, FUNCTION_NODE, "LeakyRelu", "a", "b", &a);
    graph_of(&g, "F", NULL);
    expect(&g, &f, 1,
           "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
           "    y = LeakyRelu(x)\n"
           "}\n");
    float_attr(&a, "slope", 0.5f);
    pb_msg(&f, FUNCTION_ATTR_DEFAULT, &a);
    expect(&g, &f, 1,
           "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
           "    y = LeakyRelu(x) {alpha=0.5}\n"
           "}\n");
    float_attr(&a, "slope", 0.25f);
    graph_of(&g, "F", &a);
    expect(&g, &f, 1,
           "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
           "    y = LeakyRelu(x) {alpha=0.25}\n"
           "}\n");
}

/* F calls G twice; G is written in an older opset.  Names stay apart. */
static void test_nested_calls_keep_names_apart(void **state)
{
    (void)state;
    pb g, f[2];

    function(&f[0], "F", "a", "b", 17);
    call(&f[0], FUNCTION_NODE, "G", "a", "t", NULL);
    call(&f[0], FUNCTION_NODE, "G", "t", "b", NULL);
    function(&f[1], "G", "a", "b", 11);
    pb_node(&f[1], FUNCTION_NODE, "Relu", "a", "t", NULL);
    pb_node(&f[1], FUNCTION_NODE, "Softmax", "t", "b", NULL);
    graph_of(&g, "F", NULL);
    expect(&g, f, 2,
           "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
           "    call/call/t = Relu(x)\n"
           "    call/t = Softmax(call/call/t) {axis=-1}\n"
           "    call/call/t_0 = Relu(call/t)\n"
           "    y = Softmax(call/call/t_0) {axis=-1}\n"
           "}\n");
}

/* An input that is not given, and a result that is an input. */
static void test_missing_inputs_and_handed_through_results(void **state)
{
    (void)state;
    pb g, f;

    function(&f, "F", "a", "b", 17);
    pb_text(&f, FUNCTION_INPUT, "low");
    pb_text(&f, FUNCTION_INPUT, "high");
    pb_node(&f, FUNCTION_NODE, "Clip", "a low high", "b", NULL);
    graph_of(&g, "F", NULL);
    expect(&g, &f, 1,
           "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
           "    y = Clip(x)\n"
           "}\n");
    function(&f, "F", "a", "a", 17);
    expect(&g, &f, 1,
           "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
           "    y = Identity(x)\n"
           "}\n");
}

/* Functions of one name are told apart by the overload. */
static void test_overloads_are_told_apart(void **state)
{
    (void)state;
    pb g, f[2], node = {.n = 0};

    for (int i = 0; i < 2; i++) {
        function(&f[i], "F", "a", "b", 17);
        pb_text(&f[i], FUNCTION_OVERLOAD, i ? "second" : "first");
        pb_node(&f[i], FUNCTION_NODE, i ? "Neg" : "Abs", "a", "b", NULL);
    }
    pb_clear(&g);
    pb_text(&g, GRAPH_NAME, "g");
    pb_text(&node, NODE_OP, "F");
    pb_text(&node, NODE_DOMAIN, "my");
    pb_text(&node, NODE_OVERLOAD, "second");
    pb_text(&node, NODE_INPUT, "x");
    pb_text(&node, NODE_OUTPUT, "y");
    pb_msg(&g, GRAPH_NODE, &node);
    pb_value(&g, GRAPH_INPUT, "x", 2, dims23);
    pb_value(&g, GRAPH_OUTPUT, "y", 2, dims23);
    expect(&g, f, 2,
           "graph g(x: f32[2,3]) -> (y: f32[2,3]) {\n"
           "    y = Neg(x)\n"
           "}\n");
}

/* 2^40 nodes: refused before the first is made, with hardly any memory. */
static void test_explosions_are_refused_in_time(void **state)
{
    (void)state;
    sb_graph *out = NULL;
    sb_ctx *ctx = NULL;
    pb g, m;

    graph_of(&g, "f0", NULL);
    pb_model(&m, &g, 17);
    for (int i = 0; i < 40; i++) {
        char name[8], next[8];
        pb f;
        (void)snprintf(name, sizeof name, "f%d", i);
        (void)snprintf(next, sizeof next, "f%d", i + 1);
        function(&f, name, "a", "b", 17);
        call(&f, FUNCTION_NODE, next, "a", "t", NULL);
        call(&f, FUNCTION_NODE, next, "t", "b", NULL);
        pb_msg(&m, MODEL_FUNCTIONS, &f);
    }
    assert_ok(sb_ctx_create(NULL, &ctx));
    sb_ctx_set_max_memory(ctx, 1 << 20);
    assert_int_equal(sb_onnx_load_memory(ctx, "test", NULL, m.data, m.n, &out),
                     SB_UNSUPPORTED);
    assert_int_equal(sb_ctx_memory(ctx), 0);
    sb_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attributes_of_the_call_go_before_defaults),
        cmocka_unit_test(test_nested_calls_keep_names_apart),
        cmocka_unit_test(test_missing_inputs_and_handed_through_results),
        cmocka_unit_test(test_overloads_are_told_apart),
        cmocka_unit_test(test_explosions_are_refused_in_time),
    };

    return cmocka_run_group_tests_name("onnx functions", tests, NULL, NULL);
}
