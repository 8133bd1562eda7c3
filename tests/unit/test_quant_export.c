/* What an export writes: types, integers, scales, zero points, biases and
 * names; all worked out by hand.  Ranges are such that scales come out even:
 * the activation reaches from -32 to 95.5, which is 127.5. */
#include "quanttest.h"

#include <math.h>
#include <string.h>

#include "graph/text.h"
#include "quant/export/export.h"

/* ---- helpers ------------------------------------------------------------ */

static sb_graph *exported(const sb_quant_model *qm, int64_t *opset)
{
    const sb_export_choice choice = {.format = SB_EXPORT_FORMAT_QDQ};
    sb_graph *g = NULL;

    *opset = 0;
    assert_ok(sb_export_graph(qm, &choice, &g, opset));
    return g;
}

/* The constant of that name must have this type and these elements. */
static void check(const sb_graph *g, const char *what, const char *name,
                  sb_dtype dtype, const double *want, int64_t n)
{
    sb_value_id v = sb_graph_find_value(g, name);

    if (v == SB_NONE)
        fail_msg("%s: no '%s'", what, name);
    const sb_tensor *t = &sb_graph_value(g, v)->constant;
    if (t->dtype != dtype)
        fail_msg("%s: %s is %s, want %s", what, name, sb_dtype_name(t->dtype),
                 sb_dtype_name(dtype));
    assert_int_equal(sb_tensor_count(t), n);
    for (int64_t i = 0; i < n; i++)
        assert_close(what, sb_tensor_get_f64(t, i), want[i],
                     dtype == SB_DTYPE_F32 ? 1e-6 * (1 + fabs(want[i])) : 0);
}

#define CHECK(g, what, name, dtype, ...)                 \
    check(g, what, name, dtype, (double[]){__VA_ARGS__}, \
          sizeof((double[]){__VA_ARGS__}) / sizeof(double))

static sb_quant_model *calibrated(const char *graph, const char *yaml,
                                  const char *target, const sb_tensor *x)
{
    sb_quant_model *qm = test_quant(graph, yaml, target);

    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    return qm;
}

/* ---- widths ------------------------------------------------------------- */

static const char product[] = "graph g(x: f32[N,2]) -> (y) {\n"
                              "w: f32[2,2] = [127.5, -3, 2.4, 63.75]\n"
                              "y = MatMul(x, w) \"fc\"\n}";

static const struct {
    int bits;
    sb_dtype act, weight;
    bool clip;
    int64_t opset; /* the least that has these types */
    double scale, zero;
    double w_scale[2], w[4];
} widths[] = {
    /* clang-format off */
    { 2, SB_DTYPE_U8,  SB_DTYPE_I8,  true,  13, 127.5 / 3,     1,
     {85, 42.5},                     {1, 0, 0, 1}},
    { 3, SB_DTYPE_U8,  SB_DTYPE_I8,  true,  13, 127.5 / 7,     2,
     {255. / 7, 127.5 / 7},          {3, 0, 0, 3}},
    { 4, SB_DTYPE_U4,  SB_DTYPE_I4,  false, 21, 127.5 / 15,    4,
     {17, 8.5},                      {7, 0, 0, 7}},
    { 8, SB_DTYPE_U8,  SB_DTYPE_I8,  false, 13, 0.5,           64,
     {1, 0.5},                       {127, -6, 2, 127}},
    {16, SB_DTYPE_U16, SB_DTYPE_I16, false, 21, 127.5 / 65535, 16448,
     {255. / 65535, 127.5 / 65535},  {32767, -1542, 617, 32767}},
    /* clang-format on */
};

static void test_widths_have_their_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        char yaml[256], what[32];
        int bits = widths[i].bits;
        int64_t opset = 0;

        (void)snprintf(what, sizeof what, "%d bit", bits);
        (void)snprintf(
            yaml, sizeof yaml,
            "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: %d}}\n"
            "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: %d}}\n",
            bits, bits);
        sb_quant_model *qm =
            calibrated(product, yaml, NULL, test_f32("2x2", -32, 95.5, 0, 1));
        sb_graph *g = exported(qm, &opset);
        double scale = widths[i].scale, zero = widths[i].zero;

        CHECK(g, what, "x_scale", SB_DTYPE_F32, scale);
        CHECK(g, what, "x_zero_point", widths[i].act, zero);
        check(g, what, "w_scale", SB_DTYPE_F32, widths[i].w_scale, 2);
        CHECK(g, what, "w_zero_point", widths[i].weight, 0, 0);
        check(g, what, "w_quantized", widths[i].weight, widths[i].w, 4);
        assert_int_equal(opset, widths[i].opset);
        assert_int_equal(sb_graph_find_value(g, "x_clip_min") != SB_NONE,
                         widths[i].clip);
        if (widths[i].clip) {
            CHECK(g, what, "x_clip_min", SB_DTYPE_F32, -zero * scale);
            CHECK(g, what, "x_clip_max", SB_DTYPE_F32,
                  ((1 << bits) - 1 - zero) * scale);
        }
        sb_graph_free(g);
        sb_quant_model_free(qm);
    }
}

/* Symmetric integers in a type without a sign: 0 is in the middle. */
static void test_symmetric_integers_without_sign_are_offset(void **state)
{
    (void)state;
    sb_quant_model *qm = calibrated(
        product,
        TEST_W8 "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n",
        NULL, test_f32("1x2", -127.5, 3));
    const sb_target_def *target = qm->target;
    sb_target_def narrow = *target;
    int64_t opset = 0;

    sb_graph *g = exported(qm, &opset);
    CHECK(g, "signed", "x_scale", SB_DTYPE_F32, 1);
    CHECK(g, "signed", "x_zero_point", SB_DTYPE_I8, 0);
    sb_graph_free(g);
    narrow.act_types = SB_TYPE(U8);
    narrow.weight_types = SB_TYPE(U8);
    qm->target = &narrow;
    g = exported(qm, &opset);
    CHECK(g, "unsigned", "x_scale", SB_DTYPE_F32, 1);
    CHECK(g, "unsigned", "x_zero_point", SB_DTYPE_U8, 128);
    CHECK(g, "unsigned", "w_zero_point", SB_DTYPE_U8, 128, 128);
    CHECK(g, "unsigned", "w_quantized", SB_DTYPE_U8, 255, 122, 130, 255);
    sb_graph_free(g);
    qm->target = target;
    sb_quant_model_free(qm);
}

/* ---- biases ------------------------------------------------------------- */

/* The target leaves -128 out, so the scale is that of 127 steps. */
#define CONV(bias)                                      \
    "graph g(x: f32[N,1,1,2]) -> (y) {\n"               \
    "w: f32[2,1,1,1] = [127, -63.5]\nb: f32[2] = " bias \
    "\ny = Conv(x, w, b) \"conv\"\n}"

static void test_biases_are_integers_of_both_scales(void **state)
{
    (void)state;
    sb_quant_model *qm =
        calibrated(CONV("[3, -2.3]"), TEST_W8 TEST_A8, "onnxruntime-arm",
                   test_f32("1x1x1x2", -32, 95.5));
    int64_t opset = 0;
    sb_graph *g = exported(qm, &opset);

    CHECK(g, "bias", "x_scale", SB_DTYPE_F32, 0.5);
    CHECK(g, "bias", "w_scale", SB_DTYPE_F32, 1, 0.5);
    CHECK(g, "bias", "w_quantized", SB_DTYPE_I8, 127, -127);
    CHECK(g, "bias", "b_scale", SB_DTYPE_F32, 0.5, 0.25);
    CHECK(g, "bias", "b_zero_point", SB_DTYPE_I32, 0, 0);
    CHECK(g, "bias", "b_quantized", SB_DTYPE_I32, 6, -9);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* 2^32 is 2^33 steps of 0.5: the scale of that channel has to grow. */
static void test_large_bias(void **state)
{
    (void)state;
    sb_quant_model *qm =
        calibrated(CONV("[4294967296, -2.3]"), TEST_W8 TEST_A8,
                   "onnxruntime-arm", test_f32("1x1x1x2", -32, 95.5));
    int64_t opset = 0;
    sb_graph *g = exported(qm, &opset);
    const sb_tensor *b =
        &sb_graph_value(g, sb_graph_find_value(g, "b_quantized"))->constant;
    const sb_tensor *s =
        &sb_graph_value(g, sb_graph_find_value(g, "b_scale"))->constant;

    assert_true(sb_tensor_get_f64(b, 0) > 2.147e9);
    assert_true(sb_tensor_get_f64(b, 0) < 2147483647.0);
    assert_close("as a float",
                 sb_tensor_get_f64(b, 0) * sb_tensor_get_f64(s, 0),
                 4294967296.0, 512);
    assert_close("scale", sb_tensor_get_f64(s, 0), 2.0002, 1e-5);
    CHECK(g, "the other", "w_quantized", SB_DTYPE_I8, 32, -127);
    assert_close("the other", sb_tensor_get_f64(b, 1), -9, 0);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* No file has a scale that is not a positive number, be it that of an
 * activation, of a weight or the product of both. */
static void test_bad_scales_are_refused(void **state)
{
    static const struct {
        float x, w;
        const char *message;
    } bad[] = {
        {0, 1, "value 'x': scale 0 is 0, want a finite number above 0"},
        {-1, 1, "value 'x': scale 0 is -1, want"},
        {INFINITY, 1, "value 'x': scale 0 is inf, want"},
        {1, NAN, "value 'w': scale 1 is nan, want"},
        {1, 0, "value 'w': scale 1 is 0, want"},
        {1, -2, "value 'w': scale 1 is -2, want"},
        {1e-30F, 1e-30F, "value 'b': scale 1 is 0, want"},
        {1e30F, 1e30F, "value 'b': scale 1 is inf, want"},
    };
    const sb_export_choice choice = {.format = SB_EXPORT_FORMAT_QDQ};
    sb_quant_model *qm =
        calibrated(CONV("[3, -2.3]"), TEST_W8 TEST_A8, "onnxruntime-arm",
                   test_f32("1x1x1x2", -32, 95.5));

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sb_graph *g = NULL;
        int64_t opset = 0;

        for (size_t k = 0; k < qm->place.n_quantizers; k++) {
            sb_qparams *p = &qm->state.quantizers[k].qparams;
            p->scale[p->n - 1] = p->n == 2 ? bad[i].w : bad[i].x;
        }
        assert_status(sb_export_graph(qm, &choice, &g, &opset), SB_BAD_ARG);
        assert_error_has(bad[i].message);
    }
    sb_quant_model_free(qm);
}

/* Behind a product of fixed shape, or of matrices, ONNX Runtime takes an Add
 * for the bias of a Gemm; elsewhere it stays float. */
static void test_bias_behind(void **state)
{
    static const struct {
        const char *shape, *bias, *target;
        bool ints;
    } cases[] = {
        {"N,2", "b: f32[2] = [3, -2.3]", "onnxruntime-x86", true},
        {"1,1,2", "b: f32[2] = [3, -2.3]", "onnxruntime-arm", true},
        {"N,1,2", "b: f32[2] = [3, -2.3]", "onnxruntime-x86", false},
        {"1,1,2", "b: f32[1] = [3]", "onnxruntime-x86", false},
        {"1,1,2", "b: f32[1,2] = [3, -2.3]", "onnxruntime-x86", false},
        {"1,1,2", "b: f32[2] = [3, -2.3]", "openvino", false},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char text[400];
        int rank = cases[i].shape[3] ? 3 : 2;
        int64_t opset = 0;

        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[%s]) -> (y) {\n"
                       "w: f32[2,2] = [127, -3, 2, 63.5]\n%s\n"
                       "m = MatMul(x, w) \"fc\"\ny = Add(m, b)\n}",
                       cases[i].shape, cases[i].bias);
        sb_quant_model *qm =
            calibrated(text, TEST_W8 TEST_A8, cases[i].target,
                       test_f32(rank == 3 ? "1x1x2" : "1x2", -32, 95.5));
        sb_graph *g = exported(qm, &opset);
        if (cases[i].ints) {
            CHECK(g, "behind", "b_scale", SB_DTYPE_F32, 0.5, 0.25);
            CHECK(g, "behind", "b_quantized", SB_DTYPE_I32, 6, -9);
        } else if (sb_graph_find_value(g, "b_quantized") != SB_NONE) {
            fail_msg("case %zu: the bias is one of integers", i);
        }
        sb_graph_free(g);
        sb_quant_model_free(qm);
    }
}

/* ---- outputs ------------------------------------------------------------ */

/* A pair at an output has its name; what is before it gets another. */
static void test_outputs_keep_their_names(void **state)
{
    (void)state;
    sb_quant_model *qm =
        calibrated("graph g(x: f32[N,2]) -> (y) {\n"
                   "w: f32[2,2] = [127.5, -3, 2.4, 63.75]\n"
                   "y = MatMul(x, w) \"fc\"\n}",
                   TEST_W8 TEST_A8, "qnn", test_f32("1x2", 1, 0));
    int64_t opset = 0;
    sb_graph *g = exported(qm, &opset);
    sb_value_id y = sb_graph_find_value(g, "y");

    assert_int_equal(g->n_outputs, 1);
    assert_int_equal(g->outputs[0], y);
    const sb_node *dq = sb_graph_producer(g, y);
    assert_string_equal(dq->op, "DequantizeLinear");
    const sb_node *q = sb_graph_producer(g, dq->inputs[0]);
    assert_string_equal(q->op, "QuantizeLinear");
    assert_string_equal(sb_graph_value(g, q->inputs[0])->name, "y_float");
    assert_string_equal(sb_graph_producer(g, q->inputs[0])->op, "MatMul");
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* Neighbors along k are added in pairs.  Column 0 has 127 and 76 beside each
 * other in steps of 100 / 127, and its scale grows by (127 + 76 + 1) / 127;
 * the signs of column 1 differ, and it stays as it is. */
#define LOOKUP(rows, outputs, more)           \
    "graph g(i: i64[2]) -> (" outputs ") {\n" \
    "t: f32[" rows ",64] = random(1)\n"       \
    "w: f32[64,2] = random(2)\n"              \
    "e = Gather(t, i)\n" more "a = Tanh(e)\n" \
    "y = MatMul(a, w) \"fc\"\n}"

/* Rows are taken of bytes where the target can and it makes the file smaller.
 */
static void test_large_tables_become_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *target;
        bool bytes;
    } tables[] = {
        {LOOKUP("256", "y", ""), "onnxruntime-x86", true},
        {LOOKUP("256", "y", ""), "onnxruntime-arm", true},
        {LOOKUP("255", "y", ""), "onnxruntime-x86", false}, /* small */
        {LOOKUP("256", "y", ""), "openvino", false},
        {LOOKUP("256", "y, z", "j = Abs(i)\nz = Gather(t, j)\n"),
         "onnxruntime-x86", false},
    };

    for (size_t k = 0; k < SB_COUNT(tables); k++) {
        int64_t opset = 0;
        sb_quant_model *qm = calibrated(
            tables[k].text, TEST_W8 TEST_A8, tables[k].target,
            test_tensor(SB_DTYPE_I64, "2", (const double[]){3, 200}));
        sb_graph *g = exported(qm, &opset);
        sb_value_id v = sb_graph_find_value(g, "t_quantized");

        assert_int_equal(v != SB_NONE, tables[k].bytes);
        assert_int_equal(sb_graph_find_value(g, "t") == SB_NONE,
                         tables[k].bytes);
        if (v != SB_NONE) {
            const sb_value *t = sb_graph_value(g, v);
            assert_int_equal(t->constant.dtype, SB_DTYPE_I8);
            assert_int_equal(t->n_uses, 1);
            assert_true(
                sb_node_is(sb_graph_node(g, t->uses[0].node), "Gather"));
            assert_true(opset < 21); /* one scale needs no blocks */
        }
        sb_graph_free(g);
        sb_quant_model_free(qm);
    }
}

static void test_scales_grow_where_pairs_would_saturate(void **state)
{
    int64_t opset = 0;
    sb_tensor *x = test_f32("1x4", -32, 95.5, 0, 1);

    (void)state;
    sb_quant_model *qm = test_quant("graph g(x: f32[N,4]) -> (y) {\n"
                                    "w: f32[4,2] = [100, 100, 60, -60, 0, 30, "
                                    "0, 10]\n"
                                    "y = MatMul(x, w) \"fc\"\n}",
                                    TEST_W8 TEST_A8, "onnxruntime-x86");
    qm->reduce_range = SB_REDUCE_RANGE_AUTO;
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    sb_graph *g = exported(qm, &opset);
    CHECK(g, "pairs", "w_scale", SB_DTYPE_F32, 100.0 / 127 * 204 / 127,
          100.0 / 127);
    CHECK(g, "pairs", "w_quantized", SB_DTYPE_I8, 79, 127, 47, -76, 0, 38, 0,
          13);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* A transposed convolution counts its output channels along axis 1, of which
 * there are fewer here than columns of the kernel; neighbors are along axis 0.
 * Those of channel 0 are 127 and 76 in steps of 100 / 127. */
static void test_pairs_of_transposed_convolutions(void **state)
{
    int64_t opset = 0;
    sb_tensor *x = test_f32("1x2x1x1", -32, 95.5);

    (void)state;
    sb_quant_model *qm = test_quant("graph g(x: f32[N,2,1,1]) -> (y) {\n"
                                    "w: f32[2,2,1,3] = [100, 0, 1, 100, 0, 1, "
                                    "60, 0, 1, -60, 0, 1]\n"
                                    "y = ConvTranspose(x, w) \"up\"\n}",
                                    TEST_W8 TEST_A8, "openvino");
    qm->reduce_range = SB_REDUCE_RANGE_AUTO;
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    sb_graph *g = exported(qm, &opset);
    CHECK(g, "pairs", "w_scale", SB_DTYPE_F32, 100.0 / 127 * 204 / 127,
          100.0 / 127);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* The scale is the least float there is, which does not grow by a twelfth. */
static void test_pairs_of_subnormal_weights(void **state)
{
    static const float tiny[4] = {1.7796e-43f, 1.4e-44f, 0, 0};
    int64_t opset = 0;
    sb_tensor *x = test_f32("1x4", -32, 95.5, 0, 1);

    (void)state;
    sb_quant_model *qm =
        test_quant("graph g(x: f32[N,4]) -> (y) {\n"
                   "w: f32[4,1] = [1, 1, 1, 1]\ny = MatMul(x, w) \"fc\"\n}",
                   TEST_W8 TEST_A8, "onnxruntime-x86");
    for (sb_value_id v = 0; v < qm->graph->n_values; v++)
        if (qm->graph->values[v].is_constant)
            memcpy(qm->graph->values[v].constant.data, tiny, sizeof tiny);
    qm->reduce_range = SB_REDUCE_RANGE_AUTO;
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    sb_graph *g = exported(qm, &opset);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* The same where output channels are not the first axis, and where a table's
 * rows, which are not summed, have as many elements as it has rows. */
static void test_scales_grow_by_output_channel(void **state)
{
    int64_t opset = 0;
    sb_tensor *x = test_f32("1x2x1x1", -32, 95.5);

    (void)state;
    sb_quant_model *qm = test_quant("graph g(x: f32[N,2,1,1]) -> (y) {\n"
                                    "w: f32[2,2,1,1] = [100, -100, 60, 10]\n"
                                    "y = ConvTranspose(x, w) \"up\"\n}",
                                    TEST_W8 TEST_A8, "openvino");
    qm->reduce_range = SB_REDUCE_RANGE_AUTO;
    test_calibrate(qm, NULL, (const sb_tensor *[]){x, NULL});
    sb_graph *g = exported(qm, &opset);
    CHECK(g, "pairs", "w_quantized", SB_DTYPE_I8, 79, -127, 47, 13);
    sb_graph_free(g);
    sb_quant_model_free(qm);

    qm = test_quant("graph g(i: i64[N]) -> (y) {\n"
                    "w: f32[2,2] = [127, 127, 1, 2]\n"
                    "y = Gather(w, i) \"table\"\n}",
                    TEST_W8 "A: none\n", "onnxruntime-x86");
    qm->reduce_range = SB_REDUCE_RANGE_AUTO;
    assert_ok(sb_quant_model_calc_qparams(qm));
    g = exported(qm, &opset);
    CHECK(g, "table", "w_quantized", SB_DTYPE_I8, 127, 127, 64, 127);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* Their products are those of floats.  The scale is 254 / 255. */
static void test_scales_of_weight_only_layers_do_not_grow(void **state)
{
    int64_t opset = 0;

    (void)state;
    sb_quant_model *qm = test_quant("graph g(x: f32[N,2]) -> (y) {\n"
                                    "w: f32[2,2] = [127, -127, 127, 1]\n"
                                    "y = MatMul(x, w) \"fc\"\n}",
                                    TEST_W8 "A: none\n", "onnxruntime-x86");
    qm->reduce_range = SB_REDUCE_RANGE_AUTO;
    assert_ok(sb_quant_model_calc_qparams(qm));
    sb_graph *g = exported(qm, &opset);
    CHECK(g, "weight-only", "w_quantized", SB_DTYPE_I8, 127, -128, 127, 1);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

/* Numbers of x are multiples of its scale, 0.5, and only 2.4 is none of its
 * column's, 1: -32 * 127 + 95.5 * 2 = -3873 and so on. */
static void test_integers_are_run(void **state)
{
    (void)state;
    const sb_tensor *x = test_f32("2x2", -32, 95.5, 0, 1), *y = NULL;
    sb_quant_model *qm = calibrated("graph g(x: f32[N,2]) -> (y) {\n"
                                    "w: f32[2,2] = [127, -3, 2.4, 63.5]\n"
                                    "y = MatMul(x, w) \"fc\"\n}",
                                    TEST_W8 TEST_A8, "onnxruntime-x86", x);
    sb_graph *g = NULL;
    sb_exec *exec = NULL;

    assert_ok(sb_export_integers(qm, &g));
    assert_non_null(
        strstr(sb_graph_producer(g, g->outputs[0])->op, "MatMulInteger"));
    assert_ok(sb_exec_create(test_ctx(), g, NULL, &exec));
    assert_ok(sb_exec_run(exec, &x, NULL, &y));
    assert_tensor("integers", y, test_f32("2x2", -3873, 6160.25, 2, 63.5),
                  1e-6);
    sb_exec_free(exec);
    sb_graph_free(g);
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths_have_their_types),
        cmocka_unit_test(test_symmetric_integers_without_sign_are_offset),
        cmocka_unit_test(test_biases_are_integers_of_both_scales),
        cmocka_unit_test(test_large_bias),
        cmocka_unit_test(test_outputs_keep_their_names),
        cmocka_unit_test(test_bad_scales_are_refused),
        cmocka_unit_test(test_large_tables_become_bytes),
        cmocka_unit_test(test_scales_grow_where_pairs_would_saturate),
        cmocka_unit_test(test_scales_grow_by_output_channel),
        cmocka_unit_test(test_scales_of_weight_only_layers_do_not_grow),
        cmocka_unit_test(test_pairs_of_transposed_convolutions),
        cmocka_unit_test(test_pairs_of_subnormal_weights),
        cmocka_unit_test(test_bias_behind),
        cmocka_unit_test(test_integers_are_run),
    };

    return cmocka_run_group_tests_name("quant_export", tests, NULL, NULL);
}
