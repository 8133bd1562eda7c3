/* `A: none` and `A: dynamic`: where quantizers stand, what is refused and why,
 * and that files hold what is simulated: every width, every granularity, in
 * each form.  What a weight becomes is computed here from the definition. */
#define _POSIX_C_SOURCE 200809L
#include "quanttest.h"

#include <math.h>
#include <stdlib.h>

#include "graph/text.h"
#include "quant/export/export.h"

#define W(scheme, bits, more) \
    "W: {QSCHEME: " scheme ", QUANTIZER: {BIT: " bits "}" more "}\n"
#define W8   W("per-channel-symmetric", "8", "")
#define NONE "A: none\n"
#define DYN  "A: dynamic\n"
#define G32                                                                 \
    "W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 32}}\n" \
    "A: none\n"

#define NET                                                 \
    "graph net(x: f32[N,40], i: i64[2]) -> (y, e) {\n"      \
    "t: f32[9,40] = random(1)\nw: f32[40,12] = random(2)\n" \
    "v: f32[7,12] = random(3)\nb: f32[7] = random(4)\n"     \
    "e = Gather(t, i) \"table\"\n"                          \
    "a = MatMul(x, w) \"fc1\"\nr = Relu(a) \"act\"\n"       \
    "y = Gemm(r, v, b) {transB=1, alpha=0.5, beta=2.0} \"fc2\"\n}"
#define CONV                                               \
    "graph net(x: f32[N,4,6,6]) -> (y) {\n"                \
    "w: f32[8,4,3,3] = random(5)\nb: f32[8] = random(6)\n" \
    "y = Conv(x, w, b) {pads=[1,1,1,1], strides=[2,2]} \"conv\"\n}"

/* ---- placement ---------------------------------------------------------- */

static const struct {
    const char *what, *graph, *yaml, *target, *want;
} cases[] = {
    {"weight-only", NET, W8 NONE, NULL,
     "table.weight_quantizer: t 8 per-channel-symmetric\n"
     "fc1.weight_quantizer: w 8 per-channel-symmetric\n"
     "fc2.weight_quantizer: v_0 8 per-channel-symmetric\n"},
    {"groups; tables are bytes in onnxruntime", NET, G32, "onnxruntime-x86",
     "table.weight_quantizer: t 8 per-group-affine\n"
     "fc1.weight_quantizer: w 4 per-group-affine\n"
     "fc2.weight_quantizer: v_0 4 per-group-affine\n"},
    {"openvino has no kernel for tables", NET, G32, "openvino",
     "fc1.weight_quantizer: w 4 per-group-affine\n"
     "fc2.weight_quantizer: v_0 4 per-group-affine\n"},
    {"a convolution has no columns: per channel", CONV, G32, NULL,
     "conv.weight_quantizer: w 4 per-channel-affine\n"},
    {"a group of all columns is a channel", NET,
     "W: {QSCHEME: per-group-symmetric, QUANTIZER: {BIT: 4, GROUP_SIZE: "
     "-1}}\n" NONE,
     "onnxruntime-x86",
     "table.weight_quantizer: t 8 per-channel-symmetric\n"
     "fc1.weight_quantizer: w 4 per-channel-symmetric\n"
     "fc2.weight_quantizer: v_0 4 per-channel-symmetric\n"},
    {"some stay float", NET,
     "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}, "
     "SPECIFIC: {fc2: [QUANTIZER.DISABLE, true], "
     "table: [QUANTIZER.BIT, 0]}}\n" NONE,
     NULL, "fc1.weight_quantizer: w 8 per-channel-symmetric\n"},
    {"dynamic", NET, W8 DYN, "onnxruntime-arm",
     "table.weight_quantizer: t 8 per-channel-symmetric\n"
     "fc1.input_quantizer: x 8 per-tensor-affine\n"
     "fc1.weight_quantizer: w 8 per-channel-symmetric\n"
     "fc2.input_quantizer: r 8 per-tensor-affine\n"
     "fc2.weight_quantizer: v_0 8 per-channel-symmetric\n"},
    {"dynamic convolution", CONV, W8 DYN, NULL,
     "conv.input_quantizer: x 8 per-tensor-affine\n"
     "conv.weight_quantizer: w 8 per-channel-symmetric\n"},
};

static void test_quantizers_are_on_weights_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_quant_model *qm =
            test_quant(cases[i].graph, cases[i].yaml, cases[i].target);

        if (strcmp(test_quant_list(qm), cases[i].want) != 0)
            fail_msg("%s: got\n%s", cases[i].what, test_quant_list(qm));
        assert_false(sb_quant_model_needs_calibration(qm));
        sb_quant_model_free(qm);
    }
}

/* A layer that stays in float stays as the file has it. */
static void test_left_out_layers_are_not_turned(void **state)
{
    sb_quant_model *qm =
        test_quant(NET, W8 NONE "SKIP_TRACE_MODULES: [fc2]\n", NULL);
    sb_value_id v = sb_graph_find_value(qm->graph, "v");

    (void)state;
    assert_true(v != SB_NONE);
    const sb_value *weight = sb_graph_value(qm->graph, v);
    assert_int_equal(weight->n_uses, 1);
    const sb_node *fc2 = sb_graph_node(qm->graph, weight->uses[0].node);
    assert_string_equal(fc2->name, "fc2");
    assert_int_equal(sb_node_int(fc2, "transB", 0), 1);
    sb_quant_model_free(qm);
}

static const struct {
    const char *graph, *yaml, *target, *part;
} refusals[] = {
    {NET, W8 NONE, "qnn", "has no kernels for that"},
    {NET, W8 DYN, "tensorrt", "has no kernels for that"},
    {NET, W("per-channel-affine", "8", "") NONE, "tensorrt",
     "cannot take affine weights (node 'fc1')"},
    {NET, W("per-channel-symmetric", "3", "") NONE, "onnxruntime-x86",
     "it wants W.QUANTIZER.BIT 2, 4 or 8"},
    {NET, W("per-channel-symmetric", "2", "") NONE, "openvino",
     "it wants W.QUANTIZER.BIT 4 or 8"},
    {NET, W("per-channel-symmetric", "9", "") DYN, NULL,
     "weights of more than 8 bit with `A: dynamic`"},
    {NET, W("per-group-symmetric", "8", "") DYN, NULL,
     "groups with `A: dynamic`"},
    {CONV, W("per-channel-affine", "8", "") DYN, NULL,
     "a zero point a channel in ConvInteger"},
    {CONV, W8 NONE, "onnxruntime-x86", "no kernel for the weights of Conv"},
};

static void test_what_has_no_sense_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(refusals); i++) {
        sb_quant_model *qm = NULL;

        assert_int_not_equal(test_quant_try(test_ctx(), refusals[i].graph,
                                            refusals[i].yaml,
                                            refusals[i].target, &qm),
                             SB_OK);
        assert_error_has(refusals[i].part);
    }
}

/* ---- files hold what is simulated --------------------------------------- */

/* Outputs of the exported file on the inputs. */
static void run_file(const sb_quant_model *qm, sb_export_format format,
                     const sb_tensor *const *in, sb_tensor **out, size_t n_out)
{
    sb_export_options opt = SB_EXPORT_OPTIONS_INIT;
    sb_session_options exact = SB_SESSION_OPTIONS_INIT;
    const sb_tensor *got[4];
    sb_model *m = NULL;
    sb_session *s = NULL;

    opt.format = format;
    exact.exact = 1;
    assert_ok(sb_quant_model_export(qm, test_quant_file(), &opt));
    assert_ok(sb_model_load(test_ctx(), test_quant_file(), &m));
    assert_ok(sb_session_create(m, &exact, &s));
    assert_ok(test_session_run(s, in, got));
    for (size_t i = 0; i < n_out; i++) {
        out[i] = test_tensor(SB_DTYPE_F32, "0", NULL); /* freed at exit */
        sb_tensor_drop(out[i]);
        *out[i] = sb_tensor_make(SB_DTYPE_F32, got[i]->rank, got[i]->dims);
        assert_ok(sb_tensor_alloc(test_ctx(), out[i]));
        memcpy(out[i]->data, got[i]->data, sb_tensor_bytes(got[i]));
    }
    sb_session_free(s);
    sb_model_free(m);
}

static void compare(const char *what, sb_quant_model *qm,
                    sb_export_format format, const sb_tensor *const *in,
                    size_t n_out, double tol)
{
    const sb_tensor *sim[4];
    sb_tensor *got[4];

    run_file(qm, format, in, got, n_out);
    sb_quant_model_set_quant(qm, 1, 1);
    assert_ok(test_quant_run(qm, in, sim));
    for (size_t i = 0; i < n_out; i++)
        assert_tensor(what, got[i], sim[i], tol);
}

/* Bit for bit: a table alone, where nothing is computed with the numbers. */
static void test_widths_of_weights(void **state)
{
    static const char *const schemes[] = {
        "per-tensor-symmetric", "per-tensor-affine",   "per-channel-symmetric",
        "per-channel-affine",   "per-group-symmetric", "per-group-affine"};
    const sb_tensor *const in[] = {test_random(SB_DTYPE_F32, "3x40", 1),
                                   test_i64("2", 8, 0)};

    (void)state;
    for (int bits = 1; bits <= 16; bits++)
        for (size_t s = 0; s < SB_COUNT(schemes); s++) {
            char yaml[256];
            (void)snprintf(yaml, sizeof yaml,
                           "W: {QSCHEME: %s, QUANTIZER: {BIT: %d, GROUP_SIZE: "
                           "16}}\nA: none\n",
                           schemes[s], bits);
            sb_quant_model *qm = test_quant(NET, yaml, NULL);
            assert_ok(sb_quant_model_calc_qparams(qm));
            compare(yaml, qm, SB_EXPORT_FORMAT_QDQ, in, 2, 1e-6);
            if (bits <= 8)
                compare(yaml, qm, SB_EXPORT_FORMAT_MATMULNBITS, in, 2, 1e-5);
            sb_quant_model_free(qm);
            if (bits != 2 && bits != 4 && bits != 8)
                continue;
            qm = test_quant(NET, yaml, "onnxruntime-x86");
            assert_ok(sb_quant_model_calc_qparams(qm));
            compare(yaml, qm, SB_EXPORT_FORMAT_QDQ, in, 2, 1e-6);
            compare(yaml, qm, SB_EXPORT_FORMAT_MATMULNBITS, in, 2, 1e-5);
            sb_quant_model_free(qm);
        }
}

/* Activations and weights of every width: Q and DQ with what the width
 * needs. */
static void test_widths_of_activations(void **state)
{
    const sb_tensor *x = test_random(SB_DTYPE_F32, "3x6", 1);
    static const char net[] = "graph net(x: f32[N,6]) -> (y) {\n"
                              "w: f32[6,5] = random(2)\n"
                              "a = MatMul(x, w) \"fc\"\ny = Tanh(a) \"t\"\n}";

    (void)state;
    for (int bits = 1; bits <= 16; bits++)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            char yaml[256];
            const char *s = symmetric ? "symmetric" : "affine";
            (void)snprintf(yaml, sizeof yaml,
                           "W: {QSCHEME: per-channel-%s, QUANTIZER: {BIT: "
                           "%d}}\nA: {QSCHEME: per-tensor-%s, QUANTIZER: {BIT: "
                           "%d}}\nSCHEDULE: {DISABLE_UNNECESSARY_QUANT: "
                           "false}\n",
                           s, bits, s, bits);
            sb_quant_model *qm = test_quant(net, yaml, NULL);
            test_calibrate(qm, NULL,
                           (const sb_tensor *const[]){
                               test_random(SB_DTYPE_F32, "4x6", 7), NULL});
            compare(yaml, qm, SB_EXPORT_FORMAT_QDQ, &x, 1, 1e-6);
            sb_quant_model_free(qm);
        }
}

static void test_dynamic_files_hold_what_is_simulated(void **state)
{
    static const char *const schemes[] = {
        "per-tensor-symmetric", "per-tensor-affine", "per-channel-symmetric",
        "per-channel-affine"};
    const sb_tensor *const in[] = {test_random(SB_DTYPE_F32, "3x40", 1),
                                   test_i64("2", 8, 0)};
    const sb_tensor *const image[] = {test_random(SB_DTYPE_F32, "2x4x6x6", 2)};

    (void)state;
    for (int bits = 2; bits <= 8; bits++)
        for (size_t s = 0; s < SB_COUNT(schemes); s++) {
            char yaml[256];
            (void)snprintf(yaml, sizeof yaml,
                           "W: {QSCHEME: %s, QUANTIZER: {BIT: %d}}\n"
                           "A: dynamic\n",
                           schemes[s], bits);
            sb_quant_model *qm = test_quant(NET, yaml, NULL);
            assert_ok(sb_quant_model_calc_qparams(qm));
            compare(yaml, qm, SB_EXPORT_FORMAT_QDQ, in, 2, 1e-5);
            sb_quant_model_free(qm);
            if (s == 3)
                continue;
            qm = test_quant(CONV, yaml, NULL);
            assert_ok(sb_quant_model_calc_qparams(qm));
            compare(yaml, qm, SB_EXPORT_FORMAT_QDQ, image, 1, 1e-5);
            sb_quant_model_free(qm);
        }
}

/* ---- the definition ----------------------------------------------------- */

/* Groups of 16 rows of [K, N], affine, 4 bits: scales and simulated weights. */
static void test_groups_by_definition(void **state)
{
    static const char net[] = "graph net(x: f32[40,40]) -> (y) {\n"
                              "w: f32[40,3] = random(2)\n"
                              "y = MatMul(x, w) \"fc\"\n}";
    static const char yaml[] =
        "W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 16}}\n"
        "A: none\n";
    sb_tensor *eye = test_tensor(SB_DTYPE_F32, "40x40", NULL);
    sb_quant_model *qm = test_quant(net, yaml, NULL);
    const float *w =
        sb_graph_value(qm->graph, sb_graph_find_value(qm->graph, "w"))
            ->constant.data;

    (void)state;
    for (int i = 0; i < 40; i++)
        ((float *)eye->data)[i * 41] = 1;
    assert_ok(sb_quant_model_calc_qparams(qm));
    sb_quant_model_set_quant(qm, 1, 1);
    const float *y = test_quant_forward(qm, eye)->data;
    sb_quantizer_info q = test_quantizer(qm, "fc.weight_quantizer");
    assert_int_equal(q.n, 9);
    assert_int_equal(q.axis, 0);
    assert_int_equal(q.group_size, 16);
    for (int n = 0; n < 3; n++)
        for (int b = 0; b < 3; b++) {
            float lo = 0, hi = 0;
            for (int k = b * 16; k < b * 16 + 16 && k < 40; k++) {
                lo = fminf(lo, w[k * 3 + n]);
                hi = fmaxf(hi, w[k * 3 + n]);
            }
            float s = (hi - lo) / 15, z = rintf(-lo / s);
            assert_close("scale", q.scale[b * 3 + n], s, 1e-7);
            assert_close("zero point", q.zero_point[b * 3 + n], z, 0);
            for (int k = b * 16; k < b * 16 + 16 && k < 40; k++) {
                float c = fminf(fmaxf(rintf(w[k * 3 + n] / s) + z, 0), 15);
                assert_close("weight", y[k * 3 + n], (c - z) * s, 1e-6);
            }
        }
    sb_quant_model_free(qm);
}

static void test_formats_are_refused(void **state)
{
    sb_export_options opt = SB_EXPORT_OPTIONS_INIT;
    sb_quant_model *qm = test_quant(NET, W8 DYN, NULL);

    (void)state;
    opt.format = SB_EXPORT_FORMAT_MATMULNBITS;
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_status(sb_quant_model_export(qm, test_quant_file(), &opt),
                  SB_BAD_ARG);
    assert_error_has("it needs `A: none`");
    sb_quant_model_free(qm);
    qm = test_quant(NET, W("per-tensor-affine", "12", "") NONE, NULL);
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_status(sb_quant_model_export(qm, test_quant_file(), &opt),
                  SB_BAD_MODEL);
    assert_error_has("at most 8 bit");
    sb_quant_model_free(qm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantizers_are_on_weights_alone),
        cmocka_unit_test(test_left_out_layers_are_not_turned),
        cmocka_unit_test(test_what_has_no_sense_is_refused),
        cmocka_unit_test(test_widths_of_weights),
        cmocka_unit_test(test_widths_of_activations),
        cmocka_unit_test(test_dynamic_files_hold_what_is_simulated),
        cmocka_unit_test(test_groups_by_definition),
        cmocka_unit_test(test_formats_are_refused),
    };

    return cmocka_run_group_tests_name("quant_weights", tests, NULL, NULL);
}
