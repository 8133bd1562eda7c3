/* Reading ONNX files: what comes out of good ones (bad ones: test_onnx_bad.c).
 * The files are put together byte by byte, see pb_bytes.h. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdlib.h>
#include <unistd.h>

#include "graph/graph.h"
#include "onnx/onnx.h"
#include "pb_bytes.h"

static const int64_t dims23[] = {2, 3};

static sb_status load_bytes(const pb *m, sb_graph **out)
{
    return sb_onnx_load_memory(test_ctx(), "test", NULL, m->data, m->n, out);
}

static sb_graph *load_ok(const pb *graph, int64_t opset)
{
    sb_graph *g = NULL;
    pb m;

    pb_model(&m, graph, opset);
    assert_ok(load_bytes(&m, &g));
    return g;
}

static const sb_value *value_of(const sb_graph *g, const char *name)
{
    sb_value_id id = sb_graph_find_value(g, name);

    assert_int_not_equal(id, SB_NONE);
    return sb_graph_value(g, id);
}

static void test_a_small_file_gives_its_graph(void **state)
{
    (void)state;
    pb g;

    pb_relu_graph(&g);
    sb_graph *out = load_ok(&g, 17);
    assert_string_equal(out->name, "main");
    assert_int_equal(out->n_inputs, 1);
    assert_int_equal(out->n_outputs, 1);
    assert_int_equal(out->file_opset, 17);
    assert_int_equal(out->ir_version, 8);
    const sb_value *x = value_of(out, "x");
    assert_int_equal(x->type.dtype, SB_DTYPE_F32);
    assert_int_equal(x->type.shape.rank, 2);
    assert_int_equal(x->type.shape.dim[1], 3);
    assert_true(sb_node_is(sb_graph_producer(out, out->outputs[0]), "Relu"));
    sb_graph_free(out);
}

/* ---- elements in typed fields ------------------------------------------- */

typedef struct typed_case {
    sb_dtype dtype;
    unsigned field;
    int64_t n;        /* elements */
    size_t n_numbers; /* in the field */
    int64_t numbers[4];
    size_t n_bytes;
    unsigned char bytes[16]; /* as they must lie in memory */
} typed_case;

/* clang-format off */
static const typed_case typed_cases[] = {
    {SB_DTYPE_I32,  TENSOR_INT32S,  2, 2, {1, -2},       8, {1, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff}},
    {SB_DTYPE_U8,   TENSOR_INT32S,  2, 2, {1, 255},      2, {1, 255}},
    {SB_DTYPE_I8,   TENSOR_INT32S,  2, 2, {1, -1},       2, {1, 255}},
    {SB_DTYPE_BOOL, TENSOR_INT32S,  2, 2, {1, 0},        2, {1, 0}},
    {SB_DTYPE_F16,  TENSOR_INT32S,  2, 2, {0x3c00, 0x8000}, 4, {0, 0x3c, 0, 0x80}},
    {SB_DTYPE_BF16, TENSOR_INT32S,  1, 1, {0x3f80},      2, {0x80, 0x3f}},
    {SB_DTYPE_I16,  TENSOR_INT32S,  1, 1, {-2},          2, {0xfe, 0xff}},
    {SB_DTYPE_F8E5M2, TENSOR_INT32S, 1, 1, {0x3c},       1, {0x3c}},
    {SB_DTYPE_U4,   TENSOR_INT32S,  3, 2, {0x21, 0x03},  2, {0x21, 0x03}},
    {SB_DTYPE_I4,   TENSOR_INT32S,  1, 1, {0x0f},        1, {0x0f}},
    {SB_DTYPE_I64,  TENSOR_INT64S,  1, 1, {-2},          8, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
    {SB_DTYPE_U32,  TENSOR_UINT64S, 1, 1, {0xfffffffe},  4, {0xfe, 0xff, 0xff, 0xff}},
    {SB_DTYPE_U64,  TENSOR_UINT64S, 1, 1, {1},           8, {1}},
};
/* clang-format on */

static void test_typed_fields_give_their_elements(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(typed_cases); i++) {
        const typed_case *c = &typed_cases[i];
        sb_graph *g = NULL;
        pb t = {.n = 0}, m;

        pb_int(&t, TENSOR_DIMS, c->n);
        pb_int(&t, TENSOR_TYPE, c->dtype);
        pb_text(&t, TENSOR_NAME, "w");
        for (size_t k = 0; k < c->n_numbers; k++)
            pb_int(&t, c->field, c->numbers[k]);
        pb_tensor_model(&m, &t);
        assert_ok(load_bytes(&m, &g));
        const sb_tensor *w = &value_of(g, "w")->constant;
        assert_int_equal(w->dtype, c->dtype);
        assert_int_equal(sb_tensor_bytes(w), c->n_bytes);
        assert_memory_equal(w->data, c->bytes, c->n_bytes);
        sb_graph_free(g);
    }
}

static void test_strings_are_read(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    pb t = {.n = 0}, m;

    pb_int(&t, TENSOR_DIMS, 2);
    pb_int(&t, TENSOR_TYPE, SB_DTYPE_STRING);
    pb_text(&t, TENSOR_NAME, "w");
    pb_text(&t, TENSOR_STRINGS, "one");
    pb_text(&t, TENSOR_STRINGS, "");
    pb_tensor_model(&m, &t);
    assert_ok(load_bytes(&m, &g));
    const sb_bytes *s = value_of(g, "w")->constant.data;
    assert_string_equal(s[0].data, "one");
    assert_int_equal(s[1].len, 0);
    sb_graph_free(g);
}

/* ---- structure ---------------------------------------------------------- */

static void test_constant_node(void **state)
{
    (void)state;
    const int64_t v[] = {4, 5, 6};
    pb g, a;

    pb_relu_graph(&g);
    pb_node(&g, GRAPH_NODE, "Constant", "", "c",
            pb_attr_ints(&a, "value_ints", v, 3));
    sb_graph *out = load_ok(&g, 17);
    const sb_value *c = value_of(out, "c");
    assert_true(c->is_constant);
    assert_int_equal(c->constant.dtype, SB_DTYPE_I64);
    assert_int_equal(sb_tensor_get_i64(&c->constant, 2), 6);
    assert_int_equal(sb_graph_live_nodes(out), 1);
    sb_graph_free(out);
}

/* An initializer is no input though it is listed as one, unless the caller
 * wants to override it and the IR version (4 and above) allows that. */
static void test_initializers_that_are_inputs(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        int64_t ir = 3 + i / 2;
        bool keep = i % 2, stays = ir >= 4 && keep;
        const sb_onnx_load_options opt = {.keep_inputs = keep};
        pb g, m = {.n = 0}, t, id = {.n = 0};
        sb_graph *out = NULL;
        const float w[6] = {0};

        pb_relu_graph(&g);
        pb_value(&g, GRAPH_INPUT, "w", 2, dims23);
        pb_float_tensor(&t, 2, 3);
        pb_raw(&t, TENSOR_RAW, w, sizeof w);
        pb_msg(&g, GRAPH_INITIALIZER, &t);
        pb_int(&m, MODEL_IR, ir);
        pb_int(&id, OPSET_VERSION, 8);
        pb_msg(&m, MODEL_OPSET, &id);
        pb_msg(&m, MODEL_GRAPH, &g);
        char path[] = "/tmp/sbtest-inputs-XXXXXX";
        int fd = mkstemp(path);
        FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(m.data, 1, m.n, file), m.n);
        assert_int_equal(fclose(file), 0);
        assert_ok(sb_onnx_load_with(test_ctx(), path, &opt, &out));
        assert_int_equal(unlink(path), 0);
        assert_int_equal(out->n_inputs, stays ? 2 : 1);
        assert_true(value_of(out, "w")->is_constant);
        assert_int_equal(value_of(out, "w")->is_input, stays);
        sb_graph_free(out);
    }
}

/* x is captured through two levels of If. */
static void test_bodies_capture_through_two_levels(void **state)
{
    (void)state;
    pb inner = {.n = 0}, middle = {.n = 0}, g, a = {.n = 0}, b = {.n = 0};

    pb_node(&inner, GRAPH_NODE, "Neg", "x", "i", NULL);
    pb_value(&inner, GRAPH_OUTPUT, "i", -1, NULL);
    pb_text(&a, ATTR_NAME, "then_branch");
    pb_msg(&a, ATTR_G, &inner);
    pb_int(&a, ATTR_TYPE, SB_ATTR_GRAPH);
    pb_node(&middle, GRAPH_NODE, "If", "c", "m", &a);
    pb_value(&middle, GRAPH_OUTPUT, "m", -1, NULL);
    pb_text(&b, ATTR_NAME, "then_branch");
    pb_msg(&b, ATTR_G, &middle);
    pb_int(&b, ATTR_TYPE, SB_ATTR_GRAPH);
    pb_relu_graph(&g);
    pb_value(&g, GRAPH_INPUT, "c", 0, NULL);
    pb_node(&g, GRAPH_NODE, "If", "c", "z", &b);
    pb_value(&g, GRAPH_OUTPUT, "z", -1, NULL);
    sb_graph *out = load_ok(&g, 17);
    const sb_node *node = sb_graph_producer(out, out->outputs[1]);
    assert_int_equal(node->n_in, 1);
    assert_int_equal(node->n_implicit, 2); /* c and x */
    const sb_graph *body = sb_node_body(node, 0);
    assert_int_equal(body->n_captures, 2);
    const sb_node *nested = sb_graph_producer(body, body->outputs[0]);
    assert_int_equal(nested->n_implicit, 1);
    sb_graph_free(out);
}

static void test_long_chain(void **state)
{
    (void)state;
    enum { N = 10000 };
    /* Larger than a `pb`: written as text of known size. */
    static unsigned char bytes[N * 48];
    size_t n = 0;
    sb_graph *out = NULL;
    pb g, node, m = {.n = 0}, id = {.n = 0};
    char from[16], to[16];

    for (int i = 0; i < N; i++) {
        (void)snprintf(from, sizeof from, i ? "v%d" : "x", i);
        (void)snprintf(to, sizeof to, "v%d", i + 1);
        pb_clear(&node);
        pb_node(&node, GRAPH_NODE, "Relu", from, to, NULL);
        memcpy(bytes + n, node.data, node.n);
        n += node.n;
    }
    pb_clear(&g);
    pb_value(&g, GRAPH_INPUT, "x", 2, dims23);
    pb_value(&g, GRAPH_OUTPUT, to, 2, dims23);
    memcpy(bytes + n, g.data, g.n);
    n += g.n;
    pb_int(&id, OPSET_VERSION, 17);
    pb_int(&m, MODEL_IR, 8);
    pb_msg(&m, MODEL_OPSET, &id);
    /* Tag and length of the graph, then the graph. */
    static unsigned char all[sizeof bytes + sizeof m.data];
    size_t k = m.n;
    memcpy(all, m.data, k);
    all[k++] = MODEL_GRAPH << 3 | 2;
    for (size_t v = n; v; v >>= 7)
        all[k++] = (unsigned char)((v & 0x7f) | (v >> 7 ? 0x80 : 0));
    memcpy(all + k, bytes, n);
    assert_ok(sb_onnx_load_memory(test_ctx(), "chain", NULL, all, k + n, &out));
    assert_int_equal(sb_graph_live_nodes(out), N);
    sb_graph_free(out);
}

static sb_status load_everything(sb_ctx *ctx)
{
    const char bytes[200] = {0};
    sb_graph *g = NULL;
    pb graph, m, t, body = {.n = 0}, a = {.n = 0};

    pb_relu_graph(&graph);
    pb_float_tensor(&t, 5, 10);
    pb_raw(&t, TENSOR_RAW, bytes, sizeof bytes);
    pb_msg(&graph, GRAPH_INITIALIZER, &t);
    pb_node(&body, GRAPH_NODE, "Add", "x w", "s", NULL);
    pb_value(&body, GRAPH_OUTPUT, "s", -1, NULL);
    pb_text(&a, ATTR_NAME, "then_branch");
    pb_msg(&a, ATTR_G, &body);
    pb_node(&graph, GRAPH_NODE, "If", "x", "z", &a);
    pb_node(&graph, GRAPH_NODE, "Clip", "z", "k", pb_attr_int(&a, "unused", 1));
    pb_node(&graph, GRAPH_NODE, "Softmax", "k", "q", NULL);
    pb_model(&m, &graph, 9);
    SB_TRY(sb_onnx_load_memory(ctx, "test", NULL, m.data, m.n, &g));
    sb_graph_free(g);
    return SB_OK;
}

static void test_no_memory(void **state)
{
    (void)state;
    test_every_allocation("load", load_everything);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_file_gives_its_graph),
        cmocka_unit_test(test_typed_fields_give_their_elements),
        cmocka_unit_test(test_strings_are_read),
        cmocka_unit_test(test_constant_node),
        cmocka_unit_test(test_initializers_that_are_inputs),
        cmocka_unit_test(test_bodies_capture_through_two_levels),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests_name("onnx load", tests, NULL, NULL);
}
