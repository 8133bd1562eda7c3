/* Every allocation fails once while a network is quantized: made, calibrated in
 * one pass and block by block, simulated, exported, saved and loaded. */
#define _DEFAULT_SOURCE
#include "quanttest.h"

#include <stdlib.h>
#include <unistd.h>

static const char net[] =
    "graph net(x: f32[N,2,4,4]) -> (y) {\n"
    "w: f32[3,2,3,3] = random(1)\nb: f32[3] = random(2)\n"
    "c = Conv(x, w, b) {pads=[1,1,1,1]} \"conv\" @ body.conv\n"
    "r = Relu(c) @ body.act\n"
    "v: f32[3,3,1,1] = random(3)\n"
    "d = Conv(r, v) \"conv2\" @ body.conv2\n"
    "s = Add(d, r) @ body.add\n"
    "p = GlobalAveragePool(s) @ pool\n"
    "f = Flatten(p)\nu: f32[3,2] = random(4)\n"
    "y = MatMul(f, u) \"fc\" @ head.fc\n}";

/* Begins with parts of an image that become one convolution, which is folded
 * for onnxruntime-x86, padded and cut; then an image that is enlarged, and
 * pools of two sizes. */
static const char focus[] =
    "graph net(x: f32[N,1,4,6]) -> (y) {\n"
    "zero: i64[2] = [0, 0]\nright: i64[2] = [0, 1]\n"
    "below: i64[2] = [1, 0]\nboth: i64[2] = [1, 1]\n"
    "end: i64[2] = [4, 6]\naxes: i64[2] = [2, 3]\ntwo: i64[2] = [2, 2]\n"
    "p = Slice(x, zero, end, axes, two)\nq = Slice(x, right, end, axes, two)\n"
    "r = Slice(x, below, end, axes, two)\ns = Slice(x, both, end, axes, two)\n"
    "c = Concat(p, q, r, s) {axis=1}\n"
    "w: f32[16,4,1,1] = random(1)\nb: f32[16] = random(2)\n"
    "d = Conv(c, w, b) @ first\ne = Relu(d) @ act\n"
    "two_f: f32[4] = [1, 1, 2, 2]\nf = Resize(e, _, two_f)\n"
    "g = MaxPool(f) {kernel_shape=[3,3], pads=[1,1,1,1]}\n"
    "h = MaxPool(f) {kernel_shape=[5,5], pads=[2,2,2,2]}\n"
    "j = Concat(g, h) {axis=1}\nu: f32[4,32,1,1] = random(3)\n"
    "y = Conv(j, u) @ last\n}";

#define CONFIG                                                               \
    "SCHEDULE: {FUSE_BN: true}\nSKIP_TRACE_MODULES: [\"head*\"]\n" TEST_W8   \
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}, OBSERVER: {TYPE: " \
    "mse}, QADD: {ENABLE_QUANT: true}}\n"

static char dir[] = "/tmp/sparsebit-oom-XXXXXX";
static char path[64], json[64];

static sb_status feed(sb_ctx *ctx, sb_quant_model *qm, bool asym, size_t limit)
{
    sb_calibration_options opt = SB_CALIBRATION_OPTIONS_INIT;
    const int64_t dims[] = {2, 2, 4, 4};
    const sb_tensor *out[1];
    sb_tensor *x = NULL;

    opt.asym_weights = opt.asym_activations = asym;
    opt.memory_limit = limit;
    SB_TRY(sb_quant_model_prepare_calibration(qm, &opt));
    SB_TRY(sb_tensor_create(ctx, SB_DTYPE_F32, 4, dims, &x));
    sb_tensor_fill_random(x, 1);
    const sb_tensor *in[] = {x};
    sb_status status = test_quant_run(qm, in, out);
    if (status == SB_OK)
        status = test_quant_run(qm, in, out);
    if (status == SB_OK)
        status = sb_quant_model_calc_qparams(qm);
    sb_quant_model_set_quant(qm, 1, 1);
    if (status == SB_OK)
        status = test_quant_run(qm, in, out);
    sb_tensor_free(x);
    return status;
}

static sb_status run(sb_ctx *ctx, const char *target, bool asym, size_t limit)
{
    sb_quant_model *qm = NULL;

    SB_TRY(test_quant_try(ctx, net, CONFIG, target, &qm));
    sb_status status = feed(ctx, qm, asym, limit);
    if (status == SB_OK)
        status = sb_quant_model_export(qm, path, NULL);
    sb_quant_model_free(qm);
    return status;
}

static sb_status one_pass(sb_ctx *ctx)
{
    return run(ctx, NULL, false, 0);
}

static sb_status by_blocks(sb_ctx *ctx)
{
    return run(ctx, NULL, true, 0);
}

static sb_status by_blocks_in_a_file(sb_ctx *ctx)
{
    return run(ctx, "onnxruntime-x86", true, 1);
}

static sb_status weights_only(sb_ctx *ctx)
{
    sb_quant_model *qm = NULL;

    SB_TRY(test_quant_try(ctx, net,
                          "W: {QSCHEME: per-channel-symmetric, QUANTIZER: "
                          "{TYPE: dorefa, BIT: 4}}\nA: none\n",
                          NULL, &qm));
    sb_status status = sb_quant_model_calc_qparams(qm);
    sb_quant_model_free(qm);
    return status;
}

static sb_status folded(sb_ctx *ctx)
{
    sb_quant_model *qm = NULL;

    SB_TRY(test_quant_try(ctx, focus, CONFIG, "onnxruntime-x86", &qm));
    sb_quant_model_free(qm);
    return SB_OK;
}

static sb_status graph_page(sb_ctx *ctx, sb_report *report)
{
    const char *const results[] = {"y"}, *const cells[] = {"y"};
    const double values[] = {3};
    sb_report_marks marks = SB_REPORT_MARKS_INIT;
    sb_model *model = NULL;

    marks.n = 1;
    marks.results = results;
    marks.values = values;
    marks.jump = "worst";
    SB_TRY(sb_model_parse(ctx, net, &model));
    sb_status status = sb_report_graph(report, model, &marks);
    sb_report_nodes(report, model, results, "l", cells, cells, 1);
    sb_model_free(model);
    return status;
}

static sb_status analyzed(sb_ctx *ctx)
{
    const sb_quant_errors_options opt = {sizeof opt, 1};
    const int64_t dims[] = {2, 2, 4, 4};
    sb_quant_model *qm = NULL;
    sb_quant_errors *errors = NULL;
    sb_report *report = NULL;
    sb_tensor *x = NULL;

    SB_TRY(test_quant_try(ctx, net, CONFIG, NULL, &qm));
    sb_status status = feed(ctx, qm, false, 0);
    if (status == SB_OK)
        status = sb_quant_errors_create(qm, &opt, &errors);
    if (status == SB_OK)
        status = sb_tensor_create(ctx, SB_DTYPE_F32, 4, dims, &x);
    if (status == SB_OK)
        status =
            sb_quant_errors_run(errors, (const sb_tensor *[]){x}, 1, NULL, 0);
    if (status == SB_OK)
        status = sb_report_create(ctx, "title", "below", &report);
    if (status == SB_OK)
        status = sb_report_quantization(report, errors);
    if (status == SB_OK)
        status = graph_page(ctx, report);
    if (status == SB_OK)
        status = sb_report_save(report, path);
    sb_report_free(report);
    sb_tensor_free(x);
    sb_quant_errors_free(errors);
    sb_quant_model_free(qm);
    return status;
}

static sb_status searched(sb_ctx *ctx)
{
    sb_search_options opt = SB_SEARCH_OPTIONS_INIT;
    const int64_t dims[] = {2, 2, 4, 4};
    const sb_search_result *result = NULL;
    sb_model *model = NULL;
    sb_search *search = NULL;
    sb_tensor *x = NULL;

    opt.config_text = TEST_W8 TEST_A8;
    opt.limit = 6;
    SB_TRY(sb_model_parse(ctx, net, &model));
    sb_status status = sb_search_create(model, &opt, &search);
    if (status == SB_OK)
        status = sb_tensor_create(ctx, SB_DTYPE_F32, 4, dims, &x);
    if (status == SB_OK) {
        sb_tensor_fill_random(x, 1);
        status = sb_search_add(search, (const sb_tensor *[]){x}, 1, NULL, 0);
    }
    if (status == SB_OK)
        status = sb_search_run(search, &result);
    sb_tensor_free(x);
    sb_search_free(search);
    sb_model_free(model);
    return status;
}

static sb_status load(sb_ctx *ctx)
{
    sb_quant_model *qm = NULL;

    SB_TRY(test_quant_try(ctx, net, CONFIG, NULL, &qm));
    sb_status status = sb_quant_model_load_calibration(qm, json);
    if (status == SB_OK)
        status = sb_quant_model_calc_qparams(qm);
    if (status == SB_OK)
        status = sb_quant_model_save_calibration(qm, json);
    sb_quant_model_free(qm);
    return status;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    sb_quant_model *qm = test_quant(net, CONFIG, NULL);

    test_every_allocation("one pass", one_pass);
    test_every_allocation("block by block", by_blocks);
    test_every_allocation("block by block, in a file", by_blocks_in_a_file);
    test_every_allocation("weights only", weights_only);
    test_every_allocation("analyzed", analyzed);
    test_every_allocation("searched", searched);
    test_every_allocation("a folded convolution", folded);
    assert_ok(feed(test_ctx(), qm, false, 0));
    assert_ok(sb_quant_model_save_calibration(qm, json));
    sb_quant_model_free(qm);
    test_every_allocation("load a calibration", load);
}

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    (void)snprintf(path, sizeof path, "%s/out.onnx", dir);
    (void)snprintf(json, sizeof json, "%s/seen.json", dir);
    return 0;
}

/* Fails if anything else was left behind. */
static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)unlink(json);
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_every_failed_allocation_is_reported, make_dir, remove_dir),
    };

    return cmocka_run_group_tests_name("oom_quantize", tests, NULL, NULL);
}
