/* Groups of Q/DQ nodes: what ONNX Runtime 1.31 makes of small graphs
 * (tests/ort/test_targets_table.py asks it itself), TensorRT's rules, and the
 * graph that sb_sim_to_integer() leaves. */
#include "sbtest.h"

#include "graph/text.h"
#include "ops/op_registry.h"
#include "runtime/sim/sim.h"
#include "runtime/sim/sim_internal.h"
#include "runtime/target.h"

static sb_graph *parse(const char *text)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_graph_infer(g));
    return g;
}

/* The verdict on the first node of an operator. */
static sb_sim_verdict verdict_on(const char *target, const char *text,
                                 const char *op)
{
    sb_graph *g = parse(text);
    sb_sim_verdict found = {.node = SB_NONE};
    sb_sim_report report;

    assert_ok(sb_sim_analyze(g, sb_target_find(target), &report));
    for (size_t i = 0; i < report.n_nodes && found.node == SB_NONE; i++)
        if (strcmp(sb_graph_node(g, report.nodes[i].node)->op, op) == 0)
            found = report.nodes[i];
    sb_sim_report_free(&report);
    sb_graph_free(g);
    assert_int_not_equal(found.node, SB_NONE);
    return found;
}

/* ---- ONNX Runtime ------------------------------------------------------- */

/* One convolution with this activation type and zero point, int8 weights, and
 * something (`tail`) between it and the Q. */
static const char *conv_graph(const char *type, int zero, const char *tail)
{
    static char text[2048];

    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[1,4,8,8]) -> (y) {\n"
                   "  s: f32[] = 0.1\n"
                   "  z: %s[] = %d\n"
                   "  w: i8[4,4,1,1] = random(1)\n"
                   "  ws: f32[4] = [0.01, 0.02, 0.03, 0.04]\n"
                   "  wz: i8[4] = zeros()\n"
                   "  b: f32[4] = [1, 2, 3, 4]\n"
                   "  xq = QuantizeLinear(x, s, z)\n"
                   "  xd = DequantizeLinear(xq, s, z)\n"
                   "  wd = DequantizeLinear(w, ws, wz) {axis=0}\n"
                   "  c = Conv(xd, wd, b)\n"
                   "  %s\n"
                   "}\n",
                   type, zero, tail);
    return text;
}

#define TO_Q(value)                         \
    "q = QuantizeLinear(" value ", s, z)\n" \
    "  y = DequantizeLinear(q, s, z)"

static void expect(const char *target, const char *text, const char *op,
                   const char *kernel, const char *rule)
{
    sb_sim_verdict v = verdict_on(target, text, op);

    if (kernel) {
        assert_int_equal(v.fate, SB_SIM_INTEGER);
        assert_string_equal(v.kernel, kernel);
        return;
    }
    assert_int_equal(v.fate, SB_SIM_FLOAT);
    assert_non_null(v.reason);
    assert_string_equal(v.reason->rule, rule);
}

static void test_convolutions_fuse_as_in_runtimes(void **state)
{
    (void)state;
    const char *x86 = "onnxruntime-x86", *arm = "onnxruntime-arm";
    const char *plain = TO_Q("c"), *relu = "r = Relu(c)\n  " TO_Q("r");
    const char *clip = "lo: f32[] = 0\n  hi: f32[] = 6\n"
                       "  r = Clip(c, lo, hi)\n  " TO_Q("r");

    expect(x86, conv_graph("u8", 128, plain), "Conv", "QLinearConv", NULL);
    expect(x86, conv_graph("u8", 0, relu), "Conv", "QLinearConv", NULL);
    expect(x86, conv_graph("u8", 128, relu), "Conv", NULL, "relu");
    expect(x86, conv_graph("i8", 0, plain), "Conv", "QLinearConv", NULL);
    expect(x86, conv_graph("i8", 0, relu), "Conv", NULL, "relu");
    expect(x86, conv_graph("i8", -128, relu), "Conv", "QLinearConv", NULL);
    expect(arm, conv_graph("i8", 0, plain), "Conv", "QLinearConv", NULL);
    /* 0.1 * 255 is more than 6. */
    expect(x86, conv_graph("u8", 0, clip), "Conv", NULL, "clip");
    /* -0.56 becomes -6; a limit that is absent is beyond an int32. */
    expect(x86,
           conv_graph("u8", 6,
                      "lo: f32[] = -0.56\n  hi: f32[] = 1e8\n"
                      "  r = Clip(c, lo, hi)\n  " TO_Q("r")),
           "Conv", "QLinearConv", NULL);
    expect(x86,
           conv_graph("u8", 6,
                      "lo: f32[] = -0.56\n"
                      "  r = Clip(c, lo)\n  " TO_Q("r")),
           "Conv", NULL, "clip");
    expect(x86, conv_graph("u16", 0, plain), "Conv", NULL, "16-bit");
    expect(x86, conv_graph("u8", 0, "y = Neg(c)"), "Conv", NULL, "inputs");
    expect(x86,
           conv_graph("u8", 0, TO_Q("c") "\n  n = Neg(c)\n  k = Add(n, y)"),
           "Conv", NULL, "inputs");
}

/* int8 with two readers cannot be made uint8: the rewriting asks for one. */
static void test_signed_with_two_readers(void **state)
{
    (void)state;
    const char *two = TO_Q("c") "\n"
                                "  d2 = DequantizeLinear(q, s, z)\n"
                                "  a = Add(y, d2)\n"
                                "  aq = QuantizeLinear(a, s, z)\n"
                                "  ad = DequantizeLinear(aq, s, z)";

    expect("onnxruntime-x86", conv_graph("i8", 0, two), "Conv", NULL, "types");
    expect("onnxruntime-x86", conv_graph("u8", 0, two), "Conv", "QLinearConv",
           NULL);
    expect("onnxruntime-arm", conv_graph("i8", 0, two), "Conv", "QLinearConv",
           NULL);
}

/* One operator between DQ and Q with parameters of its own on each side. */
static const char *unary(const char *node, const char *q_scale)
{
    static char text[1024];

    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[1,4,8,8]) -> (y) {\n"
                   "  s: f32[] = 0.1\n"
                   "  t: f32[] = %s\n"
                   "  z: u8[] = 0\n"
                   "  xq = QuantizeLinear(x, s, z)\n"
                   "  xd = DequantizeLinear(xq, s, z)\n"
                   "  u = %s\n"
                   "  q = QuantizeLinear(u, t, z)\n"
                   "  y = DequantizeLinear(q, t, z)\n"
                   "}\n",
                   q_scale, node);
    return text;
}

static void test_other_operators(void **state)
{
    (void)state;
    const char *x86 = "onnxruntime-x86";
    static const struct {
        const char *node, *op, *kernel, *rule;
    } cases[] = {
        {"Sigmoid(xd)", "Sigmoid", "QLinearSigmoid", NULL},
        {"Softmax(xd)", "Softmax", "QLinearSoftmax", NULL},
        {"LeakyRelu(xd)", "LeakyRelu", "QLinearLeakyRelu", NULL},
        {"GlobalAveragePool(xd)", "GlobalAveragePool",
         "QLinearGlobalAveragePool", NULL},
        {"Add(xd, xd)", "Add", "QLinearAdd", NULL},
        {"Mul(xd, xd)", "Mul", "QLinearMul", NULL},
        {"Concat(xd, xd) {axis=1}", "Concat", "QLinearConcat", NULL},
        {"Tanh(xd)", "Tanh", NULL, "no-kernel"},
        {"Sub(xd, xd)", "Sub", NULL, "no-kernel"},
        {"Transpose(xd) {perm=[0,2,3,1]}", "Transpose", NULL, "same-scale"},
    };

    for (size_t i = 0; i < SB_COUNT(cases); i++)
        expect(x86, unary(cases[i].node, "0.2"), cases[i].op, cases[i].kernel,
               cases[i].rule);
    assert_int_equal(verdict_on(x86,
                                unary("Transpose(xd) {perm=[0,2,3,1]}", "0.1"),
                                "Transpose")
                         .fate,
                     SB_SIM_MOVES);
    assert_int_equal(
        verdict_on(x86, unary("MaxPool(xd) {kernel_shape=[2,2]}", "0.1"),
                   "MaxPool")
            .fate,
        SB_SIM_MOVES);
}

/* Q moves back over a MaxPool that has none before it. */
static void test_q_moves_back(void **state)
{
    (void)state;
    const char *text = conv_graph(
        "u8", 0, "p = MaxPool(c) {kernel_shape=[2,2]}\n  " TO_Q("p"));

    expect("onnxruntime-x86", text, "Conv", "QLinearConv", NULL);
    assert_int_equal(verdict_on("onnxruntime-x86", text, "MaxPool").fate,
                     SB_SIM_MOVES);
}

/* ---- products ----------------------------------------------------------- */

static const char *product(const char *lines)
{
    static char text[1024];

    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[2,8]) -> (y) {\n"
                   "  s: f32[] = 0.1\n"
                   "  z: u8[] = 0\n"
                   "  zi: i8[] = 0\n"
                   "  w: i8[8,4] = random(1)\n"
                   "  b: f32[4] = [1, 2, 3, 4]\n"
                   "  xq = QuantizeLinear(x, s, z)\n"
                   "  xd = DequantizeLinear(xq, s, z)\n"
                   "  wd = DequantizeLinear(w, s, zi)\n"
                   "  %s\n"
                   "}\n",
                   lines);
    return text;
}

static void test_products_fuse_as_in_runtimes(void **state)
{
    (void)state;
    const char *x86 = "onnxruntime-x86";

    expect(x86, product("y = MatMul(xd, wd)"), "MatMul", "MatMulIntegerToFloat",
           NULL);
    expect(x86, product("m = MatMul(xd, wd)\n  " TO_Q("m")), "MatMul",
           "QLinearMatMul", NULL);
    expect(x86, product("y = Gemm(xd, wd)"), "Gemm", "QGemm", NULL);
    /* A float bias becomes int32 only where a Q follows. */
    expect(x86, product("y = Gemm(xd, wd, b)"), "Gemm", NULL, "inputs");
    expect(x86, product("m = Gemm(xd, wd, b)\n  " TO_Q("m")), "Gemm", "QGemm",
           NULL);
    /* MatMul + Add is one Gemm. */
    expect(x86, product("m = MatMul(xd, wd)\n  a = Add(m, b)\n  " TO_Q("a")),
           "MatMul", "QGemm", NULL);
    expect(x86, product("m = MatMul(xd, wd)\n  y = Add(m, b)"), "MatMul", NULL,
           "inputs");
    expect(x86, product("y = MatMul(x, wd)"), "MatMul", NULL,
           "weight-constant");
}

/* ---- saturation --------------------------------------------------------- */

static bool saturates(const char *weights)
{
    char text[1024];

    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[1,4]) -> (y) {\n"
                   "  s: f32[] = 0.1\n"
                   "  z: u8[] = 0\n"
                   "  zi: i8[] = 0\n"
                   "  w: i8[4,1] = [%s]\n"
                   "  xq = QuantizeLinear(x, s, z)\n"
                   "  xd = DequantizeLinear(xq, s, z)\n"
                   "  wd = DequantizeLinear(w, s, zi)\n"
                   "  m = MatMul(xd, wd)\n"
                   "  y = Neg(m)\n"
                   "}\n",
                   weights);
    return verdict_on("onnxruntime-x86", text, "MatMul").saturates;
}

static void test_saturating_weights_are_found(void **state)
{
    (void)state;
    assert_false(saturates("64, 64, -64, -64")); /* 255 * 128 = 32640 */
    assert_true(saturates("64, 65, 0, 0"));      /* 255 * 129 = 32895 */
    assert_true(saturates("0, 0, -100, -100"));
    assert_false(saturates("127, -127, 127, 1")); /* signs cancel */
    assert_false(saturates("0, 127, 127, 0"));    /* not in one pair */
}

/* ---- TensorRT ----------------------------------------------------------- */

static const char *trt(const char *declarations, const char *x_params,
                       const char *w_params, const char *rest)
{
    static char text[2048];

    (void)snprintf(text, sizeof text,
                   "graph g(x: f32[1,16,8,8]) -> (y) {\n"
                   "  s: f32[] = 0.1\n"
                   "  z: i8[] = 0\n"
                   "  w: i8[16,16,3,3] = random(1)\n"
                   "  ws: f32[16] = 0.01\n"
                   "  wz: i8[16] = zeros()\n"
                   "  b: f32[16] = 1.0\n"
                   "  %s\n"
                   "  xq = QuantizeLinear(x, %s)\n"
                   "  xd = DequantizeLinear(xq, %s)\n"
                   "  wd = DequantizeLinear(w, %s) {axis=0}\n"
                   "  %s\n"
                   "}\n",
                   declarations, x_params, x_params, w_params, rest);
    return text;
}

/* The first Q or DQ node that is refused, or "". */
static const char *refused(const char *text)
{
    sb_graph *g = parse(text);
    const char *rule = "";
    sb_sim_report report;

    assert_ok(sb_sim_analyze(g, sb_target_find("tensorrt"), &report));
    if (report.n_broken > 0)
        rule = report.broken[0].reason->rule;
    sb_sim_report_free(&report);
    sb_graph_free(g);
    return rule;
}

static void test_tensorrt_parser(void **state)
{
    (void)state;
    const char *conv = "y = Conv(xd, wd, b)";

    assert_string_equal(refused(trt("", "s, z", "ws, wz", conv)), "");
    assert_string_equal(refused(trt("u: u8[] = 0", "s, u", "ws, wz", conv)),
                        "T1-uint8");
    assert_string_equal(refused(trt("h: i16[] = 0", "s, h", "ws, wz", conv)),
                        "T1-type");
    assert_string_equal(refused(trt("o: i8[] = 1", "s, o", "ws, wz", conv)),
                        "T1-zero-point");
    assert_string_equal(refused(trt("n: f32[] = -0.1", "n, z", "ws, wz", conv)),
                        "T2-scale");
    assert_string_equal(refused(trt("z1: i8[1] = [0]", "s, z", "ws, z1", conv)),
                        "T2-zero-point-shape");
    assert_string_equal(refused(trt("s8: f32[8] = 0.1\n  z8: i8[8] = zeros()",
                                    "s, z", "s8, z8", conv)),
                        "T3-axis");
    assert_string_equal(refused(trt("", "ws, wz", "ws, wz", conv)),
                        "T3-activation");
}

static void test_tensorrt_placement(void **state)
{
    (void)state;
    const char *t = "tensorrt";
    const char *conv = "y = Conv(xd, wd, b)";

    expect(t, trt("", "s, z", "ws, wz", conv), "Conv", "int8 convolution",
           NULL);
    expect(t,
           trt("wf: f32[16,16,3,3] = random(2)", "s, z", "ws, wz",
               "y = Conv(xd, wf)"),
           "Conv", NULL, "T8-inputs");
    expect(t,
           trt("bi: i32[16] = 1\n  bz: i32[16] = zeros()", "s, z", "ws, wz",
               "bd = DequantizeLinear(bi, ws, bz) {axis=0}\n"
               "  y = Conv(xd, wd, bd)"),
           "Conv", NULL, "T10-bias");
    expect(t,
           trt("w3: i8[3,16,3,3] = random(3)\n  w3s: f32[3] = 0.1\n"
               "  w3z: i8[3] = zeros()",
               "s, z", "ws, wz",
               "w3d = DequantizeLinear(w3, w3s, w3z) {axis=0}\n"
               "  y = Conv(xd, w3d) {group=1}"),
           "Conv", "int8 convolution", NULL); /* 16 channels on one side */
    expect(t,
           trt("", "s, z", "ws, wz", "p = GlobalAveragePool(xd)\n  y = Neg(p)"),
           "GlobalAveragePool", NULL, "T15-both");
    expect(t,
           trt("s2: f32[] = 0.2", "s, z", "ws, wz",
               "c = Conv(xd, wd, b) {pads=[1,1,1,1]}\n"
               "  cq = QuantizeLinear(c, s2, z)\n"
               "  cd = DequantizeLinear(cq, s2, z)\n"
               "  y = Concat(cd, xd) {axis=1}"),
           "Conv", "int8 convolution", NULL);
    /* The skip branch is quantized, the other comes from the convolution. */
    expect(t,
           trt("", "s, z", "ws, wz",
               "c = Conv(xd, wd, b) {pads=[1,1,1,1]}\n"
               "  y = Add(c, xd)"),
           "Add", "int8 sum", NULL);
}

/* Reasons about nodes that carry quantization on are notes, not refusals. */
static void test_tensorrt_notes(void **state)
{
    (void)state;
    const char *between = trt("", "s, z", "ws, wz",
                              "c = Conv(xd, wd, b)\n"
                              "  cq = QuantizeLinear(c, s, z)\n"
                              "  cd = DequantizeLinear(cq, s, z)\n"
                              "  y = Relu(cd)");
    sb_sim_verdict v = verdict_on("tensorrt", between, "Relu");
    assert_string_equal(v.reason->rule, "T11-between");

    v = verdict_on("tensorrt",
                   trt("s2: f32[] = 0.2", "s, z", "ws, wz",
                       "c = Conv(xd, wd, b) {pads=[1,1,1,1]}\n"
                       "  cq = QuantizeLinear(c, s2, z)\n"
                       "  cd = DequantizeLinear(cq, s2, z)\n"
                       "  y = Concat(cd, xd) {axis=1}"),
                   "Concat");
    assert_string_equal(v.reason->rule, "T16-concat");
    v = verdict_on("tensorrt",
                   trt("v: i8[8,1] = random(2)\n  vs: f32[] = 0.1", "s, z",
                       "ws, wz",
                       "vd = DequantizeLinear(v, vs, z)\n"
                       "  y = MatMul(xd, vd)"),
                   "MatMul");
    assert_string_equal(v.reason->rule, "T17-vector");
}

/* ---- the others --------------------------------------------------------- */

static void test_openvino_and_qnn(void **state)
{
    (void)state;
    const char *o = "openvino";
    const char *two = "cq = QuantizeLinear(c, s2, z)\n"
                      "  cd = DequantizeLinear(cq, s2, z)\n"
                      "  j = Concat(xd, cd) {axis=1}\n"
                      "  y = Conv(j, w2) {pads=[1,1,1,1]}";
    char body[512];

    expect(o, conv_graph("u8", 0, "y = Relu(c)"), "Conv", "int8 convolution",
           NULL);
    /* The same reasons as TensorRT's have other numbers. */
    expect(o,
           trt("wf: f32[16,16,3,3] = random(2)", "s, z", "ws, wz",
               "y = Conv(xd, wf)"),
           "Conv", NULL, "O5-inputs");
    expect(o,
           trt("", "s, z", "ws, wz",
               "a = Conv(xd, wd, b)\n  c = Conv(xd, wd)\n  s1 = Add(a, c)\n"
               "  q = QuantizeLinear(s1, s, z)\n"
               "  y = DequantizeLinear(q, s, z)"),
           "Add", NULL, "O5-residual");
    (void)snprintf(body, sizeof body,
                   "w2 = DequantizeLinear(w2i, ws, wz) {axis=0}\n"
                   "  c = Conv(xd, wd, b) {pads=[1,1,1,1]}\n  %s",
                   two);
    sb_sim_verdict v =
        verdict_on(o,
                   trt("s2: f32[] = 0.2\n  w2i: i8[16,32,3,3] = random(5)",
                       "s, z", "ws, wz", body),
                   "Concat");
    assert_string_equal(v.reason->rule, "O4-concat");
    expect("qnn", conv_graph("u8", 0, TO_Q("c")), "Conv", NULL, "inputs");
    expect("qnn", unary("Tanh(xd)", "0.2"), "Tanh", "QNN Tanh", NULL);
    expect("qnn", unary("Erf(xd)", "0.2"), "Erf", NULL, "no-kernel");
}

/* ---- the integer graph -------------------------------------------------- */

static size_t count_op(const sb_graph *g, const char *op)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && strcmp(g->nodes[i].op, op) == 0;
    return n;
}

static void test_integer_graph(void **state)
{
    (void)state;
    sb_graph *g = parse(conv_graph(
        "i8", -128,
        "r = Relu(c)\n  p = MaxPool(r) {kernel_shape=[2,2]}\n  " TO_Q("p")));

    assert_ok(sb_sim_to_integer(g, sb_target_default()));
    assert_ok(sb_graph_verify(g));
    size_t n_nodes = g->n_nodes;
    assert_int_equal(count_op(g, "QLinearConv"), 1);
    assert_int_equal(count_op(g, "MaxPool"), 1);
    assert_int_equal(count_op(g, "Relu"), 0);
    assert_int_equal(count_op(g, "QuantizeLinear"), 1);
    assert_int_equal(count_op(g, "DequantizeLinear"), 1);
    assert_ok(sb_sim_to_integer(g, sb_target_default()));
    assert_int_equal(g->n_nodes, n_nodes); /* nothing is left to do */
    sb_graph_free(g);
}

#define SCALES   "  s: f32[] = 0.05\n  z: u8[] = 128\n"
#define DQ(y, x) "  " y " = DequantizeLinear(" x ", s, z)\n"
#define Q(y, x)  "  " y " = QuantizeLinear(" x ", s, z)\n"

static const struct {
    const char *what, *text;
    const char *part; /* of the graph that is left; NULL: nothing changes */
} rewrites[] = {
    {"a sum",
     "graph g(x: u8[2,8]) -> (y: u8[2,8]) {\n" SCALES DQ("a", "x")
         DQ("b", "x") "  c = Add(a, b)\n" Q("y", "c") "}\n",
     "com.microsoft::QLinearAdd(x, s, z, x, s, z, s, z)"},
    {"a float operator stays",
     "graph g(x: u8[2,8]) -> (y: u8[2,8]) {\n" SCALES DQ(
         "a", "x") "  c = Sin(a)\n" Q("y", "c") "}\n",
     NULL},
    {"no Q/DQ, nothing to do",
     "graph g(x: f32[2,8]) -> (y: f32[2,8]) {\n  y = Add(x, x)\n}\n", NULL},
    {"a branch of an If",
     "graph g(q: bool[], x: u8[2,8]) -> (y: u8[2,8]) {\n" SCALES
     "  y = If(q) {\n"
     "    then_branch=graph t() -> (u: u8[2,8]) {\n" DQ("a", "x")
         DQ("b", "x") "  c = Mul(a, b)\n" Q(
             "u", "c") "    },\n"
                       "    else_branch=graph e() -> (v: u8[2,8]) { v = "
                       "Identity(x) }}\n}\n",
     "com.microsoft::QLinearMul(x, s, z, x, s, z, s, z)"},
};

static void test_groups_become_integer_operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(rewrites); i++) {
        sb_graph *g = parse(rewrites[i].text);
        sb_str before, after;

        sb_str_init(&before, test_ctx());
        sb_str_init(&after, test_ctx());
        assert_ok(sb_graph_print(g, &before));
        assert_ok(sb_sim_to_integer(g, sb_target_default()));
        assert_ok(sb_graph_verify(g));
        assert_ok(sb_graph_print(g, &after));
        const char *got = sb_str_text(&after);
        if (rewrites[i].part ? !strstr(got, rewrites[i].part)
                             : strcmp(got, sb_str_text(&before)) != 0)
            fail_msg("%s: got\n%s", rewrites[i].what, got);
        if (rewrites[i].part)
            assert_null(strstr(got, "DequantizeLinear"));
        sb_str_free(&before);
        sb_str_free(&after);
        sb_graph_free(g);
    }
}

/* Two pairs in a row become one with the range that both leave:
 * [0, 25.5] and [-10, 15.5] give [0, 15.5]. */
static void test_double_pairs(void **state)
{
    (void)state;
    sb_graph *g = parse("graph g(x: f32[4]) -> (y) {\n"
                        "  s: f32[] = 0.1\n"
                        "  z1: u8[] = 0\n"
                        "  z2: u8[] = 100\n"
                        "  a = QuantizeLinear(x, s, z1)\n"
                        "  b = DequantizeLinear(a, s, z1)\n"
                        "  c = QuantizeLinear(b, s, z2)\n"
                        "  y = DequantizeLinear(c, s, z2)\n"
                        "}\n");

    assert_ok(sb_sim_to_integer(g, sb_target_default()));
    assert_int_equal(count_op(g, "QuantizeLinear"), 1);
    for (size_t i = 0; i < g->n_nodes; i++) {
        sb_qdq p;
        if (g->nodes[i].dead || !sb_is_q(&g->nodes[i]))
            continue;
        sb_qdq_read(g, &g->nodes[i], &p);
        assert_close("scale", p.s, 15.5 / 255, 1e-6);
        assert_int_equal(p.z, 0);
    }
    sb_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convolutions_fuse_as_in_runtimes),
        cmocka_unit_test(test_signed_with_two_readers),
        cmocka_unit_test(test_other_operators),
        cmocka_unit_test(test_q_moves_back),
        cmocka_unit_test(test_products_fuse_as_in_runtimes),
        cmocka_unit_test(test_saturating_weights_are_found),
        cmocka_unit_test(test_tensorrt_parser),
        cmocka_unit_test(test_tensorrt_placement),
        cmocka_unit_test(test_tensorrt_notes),
        cmocka_unit_test(test_openvino_and_qnn),
        cmocka_unit_test(test_integer_graph),
        cmocka_unit_test(test_groups_become_integer_operators),
        cmocka_unit_test(test_double_pairs),
    };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
