/* Rewrites for one runtime, at export: the model that is calibrated and
 * simulated is the network as it is, the one that is written is rewritten and
 * has its scales. */
#include "quanttest.h"

#include <math.h>

#include "passes/rewrite.h"
#include "quant/export/export.h"
#include "quant/model/weight.h"
#include "runtime/sim/sim.h"

static const char net[] =
    "graph main(x: f32[N,3,6,8]) -> (y) {\n"
    "w: f32[8,3,3,3] = random(1)\nb: f32[8] = random(3)\n"
    "u: f32[4,8,1,1] = random(2)\n"
    "c = Conv(x, w, b) {strides=[2,2], pads=[1,1,1,1]} \"conv\"\n"
    "r = Relu(c)\nd = Conv(r, u) \"next\"\ny = Relu(d)\n}";

/* Every second row and column, each in channels of its own (YOLOX). */
static const char focus[] =
    "graph main(x: f32[N,3,8,16]) -> (y) {\n"
    "w: f32[8,12,3,3] = random(1)\nu: f32[4,8,1,1] = random(2)\n"
    "a00: i64[2] = [0, 0]\na01: i64[2] = [0, 1]\n"
    "a10: i64[2] = [1, 0]\na11: i64[2] = [1, 1]\n"
    "end: i64[2] = [8, 16]\naxes: i64[2] = [2, 3]\nsteps: i64[2] = [2, 2]\n"
    "p = Slice(x, a00, end, axes, steps)\n"
    "q = Slice(x, a10, end, axes, steps)\n"
    "r = Slice(x, a01, end, axes, steps)\n"
    "s = Slice(x, a11, end, axes, steps)\n"
    "k = Concat(p, q, r, s) {axis=1}\n"
    "c = Conv(k, w) {pads=[1,1,1,1]} \"conv\"\n"
    "e = Relu(c)\nd = Conv(e, u) \"next\"\ny = Relu(d)\n}";

static sb_quant_model *calibrated(const char *text, const char *yaml,
                                  const char *target, const char *shape)
{
    sb_quant_model *qm = test_quant(text, yaml, target);

    qm->reduce_range = SB_REDUCE_RANGE_OFF;
    const sb_tensor *x[] = {test_random(SB_DTYPE_F32, shape, 5), NULL};

    if (sb_quant_model_needs_calibration(qm))
        test_calibrate(qm, NULL, x);
    else
        assert_ok(sb_quant_model_calc_qparams(qm));
    return qm;
}

static void test_only_the_copy_is_rewritten(void **state)
{
    static const struct {
        const char *what, *yaml, *target;
        size_t n_nodes; /* 0: nothing is rewritten */
    } rows[] = {
        {"folded", TEST_W8 TEST_A8, "onnxruntime-x86", 10},
        {"other kernels", TEST_W8 TEST_A8, "onnxruntime-arm", 0},
        {"the layer is left out",
         TEST_W8 TEST_A8 "SKIP_TRACE_MODULES: [conv]\n", "onnxruntime-x86", 0},
        {"activations at each run", TEST_W8 "A: dynamic\n", "onnxruntime-x86",
         0},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        sb_quant_model *out = NULL, *qm = calibrated(net, rows[i].yaml,
                                                     rows[i].target, "2x3x6x8");

        assert_int_equal(sb_graph_live_nodes(qm->graph), 4);
        assert_ok(sb_export_deploy(qm, &out));
        assert_close(rows[i].what,
                     out ? (double)sb_graph_live_nodes(out->graph) : 0,
                     (double)rows[i].n_nodes, 0);
        sb_export_deployed_free(out);
        sb_quant_model_free(qm);
    }
}

/* Two columns at a time: channel 8 o + i is channel i of the old weight. */
static void test_scales_are_carried_over(void **state)
{
    sb_quant_model *out = NULL, *qm = calibrated(net, TEST_W8 TEST_A8,
                                                 "onnxruntime-x86", "2x3x6x8");
    sb_quantizer_info x = test_quantizer(qm, "x.input_quantizer");
    sb_quantizer_info w = test_quantizer(qm, "conv.weight_quantizer");
    size_t seen = 0;

    (void)state;
    assert_ok(sb_export_deploy(qm, &out));
    assert_non_null(out);
    assert_int_equal(w.n, 8);
    sb_quantizer_info folded = test_quantizer(out, "conv.weight_quantizer");
    assert_int_equal(folded.n, 16);
    for (size_t i = 0; i < 16; i++)
        assert_true(folded.scale[i] == w.scale[i % 8]);
    for (size_t i = 0; i < sb_quant_model_quantizer_count(out); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(out, i);
        assert_true(q->n > 0);
        seen += q->n == 1 && q->scale[0] == x.scale[0] &&
                q->zero_point[0] == x.zero_point[0];
    }
    assert_int_equal(seen, 1);
    sb_export_deployed_free(out);
    sb_quant_model_free(qm);
}

/* Folded weights have other neighbors, of which processors without VNNI add two
 * products in 16 bits. */
static void test_pairs_of_the_rewritten_weight_count(void **state)
{
    sb_quant_model *out = NULL,
                   *qm = test_quant(net, TEST_W8 TEST_A8, "onnxruntime-x86");
    const sb_tensor *x[] = {test_random(SB_DTYPE_F32, "2x3x6x8", 5), NULL};
    bool found = false;

    (void)state;
    qm->reduce_range = SB_REDUCE_RANGE_AUTO;
    test_calibrate(qm, NULL, x);
    assert_ok(sb_export_deploy(qm, &out));
    assert_non_null(out);
    for (size_t i = 0; i < out->place.n_quantizers; i++) {
        const sb_quantizer *q = &out->place.quantizers[i];
        int sums[16];
        sb_tensor w;

        if (sb_quantizer_qparams(out, q)->n != 16)
            continue;
        found = true;
        assert_ok(sb_quantizer_integers(out, q, &w));
        assert_false(sb_integers_pair_sums(
            sb_graph_node(out->graph, q->uses[0].node), &w, 0, sums));
        sb_tensor_drop(&w);
    }
    assert_true(found);
    sb_export_deployed_free(out);
    sb_quant_model_free(qm);
}

/* Both simulations round in the same places; sums in another order may differ
 * by a step of the result now and then. */
static void check_same_results(const char *text, const char *shape,
                               const char *yaml)
{
    sb_quant_model *out = NULL,
                   *qm = calibrated(text, yaml, "onnxruntime-x86", shape);
    const sb_tensor *x = test_random(SB_DTYPE_F32, shape, 6);
    sb_quantizer_info y = test_quantizer(qm, "y.output_quantizer");
    size_t off = 0;

    assert_ok(sb_export_deploy(qm, &out));
    assert_non_null(out);
    sb_quant_model_set_quant(qm, 1, 1);
    sb_quant_model_set_quant(out, 1, 1);
    const sb_tensor *a = test_quant_forward(qm, x);
    const sb_tensor *b = test_quant_forward(out, x);
    size_t n = (size_t)sb_tensor_elements(a);
    assert_int_equal(sb_tensor_elements(b), n);
    for (size_t i = 0; i < n; i++) {
        float gap = fabsf(((float *)a->data)[i] - ((float *)b->data)[i]);
        assert_true(gap < 1.01f * y.scale[0]);
        off += gap > 0.01f * y.scale[0];
    }
    assert_true(off <= n / 50);
    sb_export_deployed_free(out);
    sb_quant_model_free(qm);
}

static void test_the_same_is_computed(void **state)
{
    static const char whole[] =
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n" TEST_A8;

    (void)state;
    check_same_results(net, "2x3x6x8", whole);
    check_same_results(focus, "2x3x8x16", whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_copy_is_rewritten),
        cmocka_unit_test(test_scales_are_carried_over),
        cmocka_unit_test(test_pairs_of_the_rewritten_weight_count),
        cmocka_unit_test(test_the_same_is_computed),
    };

    return cmocka_run_group_tests_name("quant_deploy", tests, NULL, NULL);
}
