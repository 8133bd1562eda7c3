/* Where quantizers stand: small graphs, configs, and the lists they must give.
 * The lists are written by hand from the rules: an operator with one data
 * input quantizes it and its weight; one with several each of the computed
 * ones; nothing after the first node of conv + norm + activation. */
#include "quanttest.h"

#define SCHEDULE(text) "SCHEDULE: {" text "}\n" TEST_W8 TEST_A8
#define BASE           TEST_W8 TEST_A8
#define W3             "w: f32[4,4,3,3] = random(1)\n"
#define BN                                           \
    "g: f32[4] = [1,2,1,2]\nh: f32[4] = random(3)\n" \
    "m: f32[4] = random(4)\nv: f32[4] = [1,1,2,2]\n" \
    "n = BatchNormalization(c, g, h, m, v) \"bn\"\n"
#define IMAGE  "graph main(x: f32[N,4,6,6]) -> (y) {\n"
#define MATRIX "graph main(x: f32[N,6]) -> (y) {\n"
#define TWO    "graph main(x: f32[N,4,6,6], z: f32[N,4,6,6]) -> (y) {\n"

static const struct {
    const char *what, *yaml, *graph, *want;
} cases[] = {
    {"a convolution: input and weight", BASE,
     IMAGE W3 "y = Conv(x, w) \"conv\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"weight in 4 bit per tensor, activation in 3 symmetric",
     "W: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n"
     "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 3}}\n",
     MATRIX "w: f32[6,5] = random(1)\ny = MatMul(x, w) \"fc\"\n}",
     "fc.input_quantizer: x 3 per-tensor-symmetric\n"
     "fc.weight_quantizer: w 4 per-tensor-affine\n"},
    {"the module names the quantizers", BASE,
     IMAGE W3 "y = Conv(x, w) \"/a/b/Conv\" @ a.b\n}",
     "a.b.input_quantizer: x 8 per-tensor-affine\n"
     "a.b.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"two nodes of one module: their own names do", BASE,
     IMAGE W3 "c = Conv(x, w) \"c1\" @ a\ny = Conv(c, w) \"c2\" @ a\n}",
     "c1.input_quantizer: x 8 per-tensor-affine\n"
     "c1.weight_quantizer: w 8 per-channel-symmetric\n"
     "c2.input_quantizer: c 8 per-tensor-affine\n"
     "c2.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"gemm", BASE,
     MATRIX "w: f32[5,6] = random(1)\nb: f32[5] = random(2)\n"
            "y = Gemm(x, w, b) {transB=1} \"fc\"\n}",
     "fc.input_quantizer: x 8 per-tensor-affine\n"
     "fc.weight_quantizer: w 8 per-channel-symmetric\n"},

    /* ---- chains ---- */
    {"conv, relu: one layer", BASE,
     IMAGE W3 "c = Conv(x, w) \"conv\"\ny = Relu(c) \"act\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"
     "act.input_quantizer: c 8 per-tensor-affine fused\n"},
    {"conv, relu without the switch: two",
     SCHEDULE("DISABLE_UNNECESSARY_QUANT: false"),
     IMAGE W3 "c = Conv(x, w) \"conv\"\ny = Relu(c) \"act\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"
     "act.input_quantizer: c 8 per-tensor-affine\n"},
    {"conv, norm, relu", BASE,
     IMAGE W3 "c = Conv(x, w) \"conv\"\n" BN "y = Relu(n) \"act\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"
     "act.input_quantizer: n 8 per-tensor-affine fused\n"},
    {"conv, norm, relu; the norm folded", SCHEDULE("FUSE_BN: true"),
     IMAGE W3 "c = Conv(x, w) \"conv\"\n" BN "y = Relu(n) \"act\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w_0 8 per-channel-symmetric\n"
     "act.input_quantizer: n 8 per-tensor-affine fused\n"},
    {"norm to be tuned: folded", SCHEDULE("FUSE_BN: true, BN_TUNING: true"),
     IMAGE W3 "c = Conv(x, w) \"conv\"\n" BN "y = Relu(n) \"act\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w_0 8 per-channel-symmetric\n"
     "act.input_quantizer: n 8 per-tensor-affine fused\n"},
    {"norm, relu, both switches off",
     SCHEDULE("DISABLE_UNNECESSARY_QUANT: false"),
     IMAGE W3 "c = Conv(x, w) \"conv\"\n" BN "y = Relu(n) \"act\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"
     "act.input_quantizer: n 8 per-tensor-affine\n"},
    {"an activation after something else stands alone", BASE,
     IMAGE "c = MaxPool(x) {kernel_shape=[2,2]}\n"
           "y = Sigmoid(c) \"act\"\n}",
     "act.input_quantizer: c 8 per-tensor-affine\n"},
    {"activations join", BASE,
     IMAGE W3 "c = Conv(x, w) \"conv\"\n"
              "d = HardSwish(c) \"hs\"\ne = Conv(d, w) \"conv2\"\n"
              "lo: f32 = 0\nhi: f32 = 6\nf = Clip(e, lo, hi) \"clip\"\n"
              "h = Conv(f, w) {pads=[1,1,1,1]} "
              "\"conv3\"\n"
              "y = Gelu(h) \"gelu\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"
     "hs.input_quantizer: c 8 per-tensor-affine fused\n"
     "conv2.input_quantizer: d 8 per-tensor-affine\n"
     "conv2.weight_quantizer: w 8 per-channel-symmetric\n"
     "clip.input_quantizer: e 8 per-tensor-affine fused\n"
     "conv3.input_quantizer: f 8 per-tensor-affine\n"
     "conv3.weight_quantizer: w 8 per-channel-symmetric\n"
     "gelu.input_quantizer: h 8 per-tensor-affine fused\n"},
    {"but not those that the original keeps apart", BASE,
     IMAGE W3 "c = Conv(x, w) \"conv\"\nd = Tanh(c) \"tanh\"\n"
              "e = Conv(d, w) \"conv2\"\nk: f32[4,1,1] = random(5)\n"
              "y = PRelu(e, k) \"prelu\"\n}",
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"
     "tanh.input_quantizer: c 8 per-tensor-affine\n"
     "conv2.input_quantizer: d 8 per-tensor-affine\n"
     "conv2.weight_quantizer: w 8 per-channel-symmetric\n"
     "prelu.input_quantizer: e 8 per-tensor-affine\n"},

    /* ---- several inputs ---- */
    {"a sum is left alone", BASE,
     TWO W3 "s = Add(x, z) \"add\"\ny = Conv(s, w) \"conv\"\n}",
     "conv.input_quantizer: s 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"a sum with QADD",
     TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, QADD: "
             "{ENABLE_QUANT: true}}\n",
     TWO "s = Add(x, z) \"add\"\ny = Relu(s) \"act\"\n}",
     "add_identity0.input_quantizer: x 8 per-tensor-affine\n"
     "add_identity1.input_quantizer: z 8 per-tensor-affine\n"
     "act.input_quantizer: s 8 per-tensor-affine fused\n"},
    {"a sum with a constant has one computed input: none",
     TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, QADD: "
             "{ENABLE_QUANT: true}}\n",
     IMAGE W3 "k: f32[1,4,1,1] = random(2)\ns = Add(x, k) \"add\"\n"
              "y = Conv(s, w) \"conv\"\n}",
     "conv.input_quantizer: s 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"a sum, then an activation that does not join sums",
     TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, QADD: "
             "{ENABLE_QUANT: true}}\n",
     TWO "s = Add(x, z) \"add\"\ny = Sigmoid(s) \"act\"\n}",
     "add_identity0.input_quantizer: x 8 per-tensor-affine\n"
     "add_identity1.input_quantizer: z 8 per-tensor-affine\n"
     "act.input_quantizer: s 8 per-tensor-affine\n"},
    {"a product of two", BASE, TWO "y = Mul(x, z) \"mul\"\n}",
     "mul_identity0.input_quantizer: x 8 per-tensor-affine\n"
     "mul_identity1.input_quantizer: z 8 per-tensor-affine\n"},
    {"a square has one input: none", BASE,
     IMAGE W3 "s = Mul(x, x) \"mul\"\ny = Conv(s, w) \"conv\"\n}",
     "conv.input_quantizer: s 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"a product with a constant: none of its own", BASE,
     IMAGE W3 "k: f32[1] = [3]\nt = Mul(x, k)\ny = Conv(t, w) \"conv\"\n}",
     "conv.input_quantizer: t 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"a matrix product of two activations", BASE,
     TWO "y = MatMul(x, z) \"attn\"\n}",
     "attn_identity0.input_quantizer: x 8 per-tensor-affine\n"
     "attn_identity1.input_quantizer: z 8 per-tensor-affine\n"},
    {"which is no layer that an activation joins", BASE,
     TWO "m = MatMul(x, z) \"attn\"\ny = Relu(m) \"act\"\n}",
     "attn_identity0.input_quantizer: x 8 per-tensor-affine\n"
     "attn_identity1.input_quantizer: z 8 per-tensor-affine\n"
     "act.input_quantizer: m 8 per-tensor-affine\n"},

    /* ---- others ---- */
    {"nearest picks elements: not quantized", BASE,
     IMAGE W3 "s: f32[4] = [1,1,2,2]\nr = Resize(x, _, s) {mode=\"nearest\"} "
              "\"up\"\ny = Conv(r, w) \"conv\"\n}",
     "conv.input_quantizer: r 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"interpolation has at least 8 bit",
     TEST_W8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 4}}\n",
     IMAGE W3 "s: f32[4] = [1,1,2,2]\nr = Resize(x, _, s) {mode=\"linear\"} "
              "\"up\"\ny = Conv(r, w) \"conv\"\n}",
     "up.input_quantizer: x 8 per-tensor-affine\n"
     "conv.input_quantizer: r 4 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"an embedding: rows of a constant table", BASE,
     "graph main(x: i64[N,3]) -> (y) {\nt: f32[10,4] = random(1)\n"
     "y = Gather(t, x) \"embed\"\n}",
     "embed.weight_quantizer: t 8 per-channel-symmetric\n"},
    {"a gather of activations passes through", BASE,
     MATRIX "i: i64[2] = [0,2]\nw: f32[2,5] = random(1)\n"
            "t = Gather(x, i) {axis=1}\ny = MatMul(t, w) \"fc\"\n}",
     "fc.input_quantizer: t 8 per-tensor-affine\n"
     "fc.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"softmax, layer norm, pools", BASE,
     IMAGE "s: f32[6] = random(1)\n"
           "a = Softmax(x) \"soft\"\nb = LayerNormalization(a, s) \"norm\"\n"
           "y = GlobalAveragePool(b) \"pool\"\n}",
     "soft.input_quantizer: x 8 per-tensor-affine\n"
     "norm.input_quantizer: a 8 per-tensor-affine\n"
     "pool.input_quantizer: b 8 per-tensor-affine\n"},
    {"what passes through has none", BASE,
     IMAGE W3 "a = MaxPool(x) {kernel_shape=[2,2]}\n"
              "b = Transpose(a) {perm=[0,1,3,2]}\nc = Concat(b, b) {axis=2}\n"
              "y = Conv(c, w) \"conv\"\n}",
     "conv.input_quantizer: c 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},

    /* ---- settings by name ---- */
    {"SPECIFIC: by pattern, the first match wins",
     "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}, SPECIFIC: "
     "[{\"*conv1*\": [QUANTIZER.BIT, 4], \"*conv*\": [QUANTIZER.BIT, 6]}]}\n"
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, SPECIFIC: "
     "[{\"conv2\": [QUANTIZER.DISABLE, True]}]}\n",
     IMAGE W3 "a = Conv(x, w) \"conv1\"\ny = Conv(a, w) \"conv2\"\n}",
     "conv1.input_quantizer: x 8 per-tensor-affine\n"
     "conv1.weight_quantizer: w 4 per-channel-symmetric\n"
     "conv2.weight_quantizer: w 6 per-channel-symmetric\n"},
    {"SPECIFIC: nodes without a name, by what they make",
     "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}, SPECIFIC: "
     "[{a: [QUANTIZER.BIT, 4]}]}\n"
     "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, SPECIFIC: "
     "[{y: [QUANTIZER.DISABLE, True]}]}\n",
     IMAGE W3 "a = Conv(x, w)\ny = Conv(a, w)\n}",
     "a.input_quantizer: x 8 per-tensor-affine\n"
     "a.weight_quantizer: w 4 per-channel-symmetric\n"
     "y.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"SKIP_TRACE_MODULES: a module in float",
     "SKIP_TRACE_MODULES: [\"head*\"]\n" BASE,
     IMAGE W3 "a = Conv(x, w) \"conv1\" @ body.conv\n"
              "b = Conv(a, w) \"conv2\" @ head.conv\n"
              "y = Relu(b) \"act\" @ tail\n}",
     "body.conv.input_quantizer: x 8 per-tensor-affine\n"
     "body.conv.weight_quantizer: w 8 per-channel-symmetric\n"
     "tail.input_quantizer: b 8 per-tensor-affine\n"},
};

static void test_quantizers_are_where_the_rules_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_quant_model *qm = NULL;

        if (test_quant_try(test_ctx(), cases[i].graph, cases[i].yaml, NULL,
                           &qm) != SB_OK)
            fail_msg("%s: %s", cases[i].what, sb_ctx_error(test_ctx()));
        if (strcmp(test_quant_list(qm), cases[i].want) != 0)
            fail_msg("%s: got\n%swant\n%s", cases[i].what, test_quant_list(qm),
                     cases[i].want);
        sb_quant_model_free(qm);
    }
}

/* Quantizers of one value with the same settings are one point; the weight of
 * two layers is observed once. */
static void test_points_are_shared(void **state)
{
    (void)state;
    sb_quant_model *qm =
        test_quant(IMAGE W3 "a = Conv(x, w) \"c1\"\n"
                            "b = Conv(x, w) {auto_pad=\"VALID\"} \"c2\"\n"
                            "y = Mul(a, b) \"mul\"\n}",
                   BASE, NULL);

    assert_int_equal(sb_quant_model_quantizer_count(qm), 6);
    assert_int_equal(qm->place.n_points, 4); /* x, w, a, b */
    sb_quant_model_free(qm);
}

static void test_channel_axes(void **state)
{
    (void)state;
    static const struct {
        const char *what, *node, *weight;
        int axis;
    } rows[] = {
        {"convolution", "y = Conv(x, w) \"n\"\n", "4,4,3,3", 0},
        {"transposed: output channels", "y = ConvTranspose(x, w) \"n\"\n",
         "4,2,3,3", 1},
        {"matrix product", "y = MatMul(x, w) \"n\"\n", "6,5", 1},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        char text[512];
        (void)snprintf(text, sizeof text, IMAGE "w: f32[%s] = random(1)\n%s}",
                       rows[i].weight, rows[i].node);
        sb_quant_model *qm = test_quant(text, BASE, NULL);
        assert_close(rows[i].what,
                     test_quantizer(qm, "n.weight_quantizer").axis,
                     rows[i].axis, 0);
        sb_quant_model_free(qm);
    }
    sb_quant_model *qm = test_quant(
        MATRIX "w: f32[5,6] = random(1)\ny = Gemm(x, w) {transB=1} \"n\"\n}",
        BASE, NULL);
    assert_int_equal(test_quantizer(qm, "n.weight_quantizer").axis, 0);
    sb_quant_model_free(qm);
}

static void test_nothing_to_quantize_is_told(void **state)
{
    (void)state;
    sb_quant_model *qm = NULL;

    assert_status(test_quant_try(test_ctx(),
                                 IMAGE "y = MaxPool(x) {kernel_shape=[2,2]}\n}",
                                 BASE, NULL, &qm),
                  SB_BAD_MODEL);
    assert_error_has("nothing to quantize");
    assert_status(test_quant_try(test_ctx(),
                                 TWO "s = Add(x, z)\ny = Relu(s)\n}", BASE,
                                 NULL, &qm),
                  SB_BAD_MODEL); /* the only quantizer is never on */
    assert_error_has("nothing to quantize");
    assert_status(test_quant_try(test_ctx(),
                                 "graph main(x: f32[N,4]) -> (y) {\n"
                                 "w: u8[4,4] = random(1)\n"
                                 "q, s, z = DynamicQuantizeLinear(x) \"q0\"\n"
                                 "d = MatMulInteger(q, w, z)\n"
                                 "y = Cast(d) {to=1}\n}",
                                 BASE, NULL, &qm),
                  SB_BAD_MODEL);
    assert_error_has("quantized already");
    assert_error_has("'q0'");
    assert_null(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantizers_are_where_the_rules_say),
        cmocka_unit_test(test_points_are_shared),
        cmocka_unit_test(test_channel_axes),
        cmocka_unit_test(test_nothing_to_quantize_is_told),
    };

    return cmocka_run_group_tests_name("quant_place", tests, NULL, NULL);
}
