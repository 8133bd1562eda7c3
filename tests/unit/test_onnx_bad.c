/* Reading ONNX files that are wrong: the message for each kind, and that
 * damaged bytes never do more than fail.  The files are put together byte by
 * byte, see pb_bytes.h. */
#include "sbtest.h"

#include "graph/graph.h"
#include "onnx/onnx.h"
#include "pb_bytes.h"

static const int64_t dims23[] = {2, 3};

static sb_status load_bytes(const pb *m, sb_graph **out)
{
    return sb_onnx_load_memory(test_ctx(), "test", NULL, m->data, m->n, out);
}

static void bad_no_graph(pb *m)
{
    pb_int(m, MODEL_IR, 8);
}

static void bad_no_opset(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_int(m, MODEL_IR, 8);
    pb_msg(m, MODEL_GRAPH, &g);
}

static void bad_opset_zero(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_model(m, &g, 0);
}

static void bad_two_graphs(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_model(m, &g, 17);
    pb_msg(m, MODEL_GRAPH, &g);
}

static void bad_length(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_model(m, &g, 17);
    m->n--;
}

static void bad_group(pb *m)
{
    m->data[0] = 1 << 3 | 3; /* a wire type that ONNX does not use */
    m->n = 1;
}

static void bad_missing_input(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_node(&g, GRAPH_NODE, "Add", "x ghost", "z", NULL);
    pb_model(m, &g, 17);
}

static void bad_missing_output(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_value(&g, GRAPH_OUTPUT, "ghost", 2, dims23);
    pb_model(m, &g, 17);
}

static void bad_twice_output(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_node(&g, GRAPH_NODE, "Neg", "x", "y", NULL);
    pb_model(m, &g, 17);
}

static void bad_twice_listed(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_value(&g, GRAPH_OUTPUT, "y", 2, dims23);
    pb_model(m, &g, 17);
}

static void bad_cycle(pb *m)
{
    pb g;

    pb_relu_graph(&g);
    pb_node(&g, GRAPH_NODE, "Neg", "a", "b", NULL);
    pb_node(&g, GRAPH_NODE, "Neg", "b", "a", NULL);
    pb_model(m, &g, 17);
}

static void bad_negative_dim(pb *m)
{
    const int64_t dims[] = {-7};
    pb g;

    pb_relu_graph(&g);
    pb_value(&g, GRAPH_INPUT, "w", 1, dims);
    pb_model(m, &g, 17);
}

static void bad_no_operator(pb *m)
{
    pb g, node = {.n = 0};

    pb_relu_graph(&g);
    pb_text(&node, NODE_NAME, "nameless");
    pb_msg(&g, GRAPH_NODE, &node);
    pb_model(m, &g, 17);
}

static void bad_attr_twice(pb *m)
{
    pb g, node = {.n = 0}, a;

    pb_relu_graph(&g);
    pb_text(&node, NODE_OP, "Flatten");
    pb_text(&node, NODE_INPUT, "x");
    pb_text(&node, NODE_OUTPUT, "z");
    pb_msg(&node, NODE_ATTR, pb_attr_int(&a, "axis", 1));
    pb_msg(&node, NODE_ATTR, pb_attr_int(&a, "axis", 2));
    pb_msg(&g, GRAPH_NODE, &node);
    pb_model(m, &g, 17);
}

static void bad_attr_reference(pb *m)
{
    pb g, a;

    pb_relu_graph(&g);
    pb_attr_int(&a, "axis", 1);
    pb_text(&a, ATTR_REF, "outer");
    pb_node(&g, GRAPH_NODE, "Flatten", "x", "z", &a);
    pb_model(m, &g, 17);
}

static void bad_attr_type(pb *m)
{
    pb g, a = {.n = 0};

    pb_relu_graph(&g);
    pb_text(&a, ATTR_NAME, "axis");
    pb_int(&a, ATTR_TYPE, 99);
    pb_node(&g, GRAPH_NODE, "Flatten", "x", "z", &a);
    pb_model(m, &g, 17);
}

/* If in If in If ... */
static void bad_deep(pb *m)
{
    pb g, outer, a;

    pb_relu_graph(&g);
    for (int i = 0; i < 60; i++) {
        pb_clear(&a);
        pb_text(&a, ATTR_NAME, "then_branch");
        pb_msg(&a, ATTR_G, &g);
        pb_clear(&outer);
        pb_node(&outer, GRAPH_NODE, "If", "x", "z", &a);
        g = outer;
    }
    pb_model(m, &g, 17);
}

static void bad_weight_short(pb *m)
{
    pb t;

    pb_float_tensor(&t, 2, 3);
    pb_raw(&t, TENSOR_RAW, "0123456789", 10);
    pb_tensor_model(m, &t);
}

static void bad_weight_long(pb *m)
{
    const char bytes[200] = {0};
    pb t;

    pb_float_tensor(&t, 2, 3);
    pb_raw(&t, TENSOR_RAW, bytes, sizeof bytes);
    pb_tensor_model(m, &t);
}

static void bad_weight_none(pb *m)
{
    pb t;

    pb_float_tensor(&t, 2, 3);
    pb_tensor_model(m, &t);
}

static void bad_weight_negative(pb *m)
{
    pb t;

    pb_float_tensor(&t, 2, -3);
    pb_tensor_model(m, &t);
}

static void bad_weight_absurd(pb *m)
{
    pb t;

    pb_float_tensor(&t, INT64_MAX / 2, INT64_MAX / 2);
    pb_tensor_model(m, &t);
}

static void bad_weight_type(pb *m)
{
    pb t = {.n = 0};

    pb_int(&t, TENSOR_TYPE, 77);
    pb_text(&t, TENSOR_NAME, "w");
    pb_tensor_model(m, &t);
}

static void bad_weight_rank(pb *m)
{
    pb t = {.n = 0};

    for (int i = 0; i < 13; i++)
        pb_int(&t, TENSOR_DIMS, 1);
    pb_int(&t, TENSOR_TYPE, SB_DTYPE_F32);
    pb_text(&t, TENSOR_NAME, "w");
    pb_tensor_model(m, &t);
}

static void bad_weight_field(pb *m)
{
    const char bytes[96] = {0};
    pb t = {.n = 0};

    pb_int(&t, TENSOR_DIMS, 24);
    pb_int(&t, TENSOR_TYPE, SB_DTYPE_I32);
    pb_text(&t, TENSOR_NAME, "w");
    pb_raw(&t, TENSOR_FLOATS, bytes, sizeof bytes);
    pb_tensor_model(m, &t);
}

/* Our own fields for the place in the file, in a file. */
static void bad_weight_place(pb *m)
{
    pb t;

    pb_float_tensor(&t, 2, 3);
    pb_int(&t, 300000001, 0);
    pb_int(&t, 300000002, 24);
    pb_int(&t, 300000003, TENSOR_RAW);
    pb_tensor_model(m, &t);
}

static void bad_weight_nameless(pb *m)
{
    pb t = {.n = 0};

    pb_int(&t, TENSOR_TYPE, SB_DTYPE_F32);
    pb_float(&t, TENSOR_FLOATS, 1.0f);
    pb_tensor_model(m, &t);
}

static void bad_weight_external(pb *m)
{
    pb t, prop = {.n = 0};

    pb_float_tensor(&t, 2, 3);
    pb_text(&prop, 1, "location");
    pb_text(&prop, 2, "w.bin");
    pb_msg(&t, TENSOR_EXTERNAL, &prop);
    pb_int(&t, TENSOR_LOCATION, 1);
    pb_tensor_model(m, &t);
}

/* `w.bin`, a zero byte, `x`: nobody means the file w.bin by that. */
static void bad_weight_cut_name(pb *m)
{
    pb t, prop = {.n = 0};

    pb_float_tensor(&t, 2, 3);
    pb_text(&prop, 1, "location");
    pb_raw(&prop, 2, "w.bin\0x", 7);
    pb_msg(&t, TENSOR_EXTERNAL, &prop);
    pb_int(&t, TENSOR_LOCATION, 1);
    pb_tensor_model(m, &t);
}

/* f calls g calls f. */
static void bad_recursion(pb *m)
{
    static const char *const names[] = {"f", "g"};
    pb g, id = {.n = 0};

    pb_relu_graph(&g);
    pb node = {.n = 0};
    pb_text(&node, NODE_OP, "f");
    pb_text(&node, NODE_DOMAIN, "my");
    pb_text(&node, NODE_INPUT, "x");
    pb_text(&node, NODE_OUTPUT, "z");
    pb_msg(&g, GRAPH_NODE, &node);
    pb_model(m, &g, 17);
    pb_int(&id, OPSET_VERSION, 17);
    for (int i = 0; i < 2; i++) {
        pb f = {.n = 0}, call = {.n = 0};
        pb_text(&call, NODE_OP, names[1 - i]);
        pb_text(&call, NODE_DOMAIN, "my");
        pb_text(&call, NODE_INPUT, "a");
        pb_text(&call, NODE_OUTPUT, "b");
        pb_text(&f, FUNCTION_NAME, names[i]);
        pb_text(&f, FUNCTION_DOMAIN, "my");
        pb_text(&f, FUNCTION_INPUT, "a");
        pb_text(&f, FUNCTION_OUTPUT, "b");
        pb_msg(&f, FUNCTION_NODE, &call);
        pb_msg(&f, FUNCTION_OPSET, &id);
        pb_msg(m, MODEL_FUNCTIONS, &f);
    }
}

typedef struct bad_case {
    void (*make)(pb *m);
    sb_status status;
    const char *message; /* a part of it */
} bad_case;

/* clang-format off */
static const bad_case bad_cases[] = {
    {bad_no_graph,        SB_BAD_MODEL,   "no graph"},
    {bad_no_opset,        SB_BAD_MODEL,   "does not say which opset"},
    {bad_opset_zero,      SB_BAD_MODEL,   "opset 0"},
    {bad_two_graphs,      SB_BAD_MODEL,   "'graph' is given twice"},
    {bad_length,          SB_BAD_MODEL,   "cut short"},
    {bad_group,           SB_BAD_MODEL,   "broken field at byte 0"},
    {bad_missing_input,   SB_BAD_MODEL,   "node 'z' (Add): its input 'ghost'"},
    {bad_missing_output,  SB_BAD_MODEL,   "graph output 'ghost'"},
    {bad_twice_output,    SB_BAD_MODEL,   "'y' is defined twice"},
    {bad_twice_listed,    SB_BAD_MODEL,   "'y' is listed twice"},
    {bad_cycle,           SB_BAD_MODEL,   "cycle"},
    {bad_negative_dim,    SB_BAD_MODEL,   "'w': dimension -7"},
    {bad_no_operator,     SB_BAD_MODEL,   "'nameless' has no operator"},
    {bad_attr_twice,      SB_BAD_MODEL,   "'axis' is given twice"},
    {bad_attr_reference,  SB_BAD_MODEL,   "outside of a function"},
    {bad_attr_type,       SB_BAD_MODEL,   "'axis' has no type"},
    {bad_deep,            SB_BAD_MODEL,   "nested deeper than 64"},
    {bad_weight_short,    SB_BAD_MODEL,   "'w': 10 bytes, f32[2,3] wants 24"},
    {bad_weight_long,     SB_BAD_MODEL,   "'w': 200 bytes"},
    {bad_weight_none,     SB_BAD_MODEL,   "'w': 0 numbers in float_data"},
    {bad_weight_negative, SB_BAD_MODEL,   "'w': dimension 1 is negative"},
    {bad_weight_absurd,   SB_BAD_MODEL,   "absurdly large"},
    {bad_weight_type,     SB_UNSUPPORTED, "'w': element type 77"},
    {bad_weight_rank,     SB_UNSUPPORTED, "rank 13, at most 12"},
    {bad_weight_field,    SB_BAD_MODEL,   "wrong field"},
    {bad_weight_place,    SB_BAD_MODEL,   "broken field"},
    {bad_weight_nameless, SB_BAD_MODEL,   "no name"},
    {bad_weight_external, SB_BAD_ARG,     "'w.bin'"},
    {bad_weight_cut_name, SB_BAD_MODEL,   "zero byte in its text"},
    {bad_recursion,       SB_BAD_MODEL,   "calls itself"},
};
/* clang-format on */

static void test_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(bad_cases); i++) {
        sb_graph *g = NULL;
        pb m = {.n = 0};

        bad_cases[i].make(&m);
        assert_status(load_bytes(&m, &g), bad_cases[i].status);
        assert_error_has(bad_cases[i].message);
        assert_null(g);
    }
}

/* Every prefix and every flipped bit of a file: an error or a graph. */
static void test_damaged_bytes_only_fail(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    pb graph, m, t;
    const char bytes[96] = {0};

    pb_relu_graph(&graph);
    pb_float_tensor(&t, 4, 6);
    pb_raw(&t, TENSOR_RAW, bytes, sizeof bytes);
    pb_msg(&graph, GRAPH_INITIALIZER, &t);
    pb_model(&m, &graph, 17);
    for (size_t n = 0; n < m.n; n++) {
        pb cut = m;
        cut.n = n;
        assert_int_not_equal(load_bytes(&cut, &g), SB_OK);
    }
    for (size_t bit = 0; bit < m.n * 8; bit++) {
        pb flipped = m;
        flipped.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (load_bytes(&flipped, &g) == SB_OK)
            sb_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_damaged_bytes_only_fail),
    };

    return cmocka_run_group_tests_name("onnx bad", tests, NULL, NULL);
}
