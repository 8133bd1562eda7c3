/* Every allocation fails once in what is done for accuracy: errors of layers,
 * bit widths within a budget, biases corrected, weights rounded by what their
 * layers compute. */
#include "quanttest.h"

#include <sparsebit/analyze.h>
#include <sparsebit/report.h>
#include <sparsebit/search.h>

static const char net[] = "graph net(x: f32[N,4]) -> (y) {\n"
                          "w: f32[4,3] = random(1)\nb: f32[3] = random(2)\n"
                          "g = Gemm(x, w, b) \"g\" @ g\nr = Relu(g) @ act\n"
                          "u: f32[3,2] = random(4)\n"
                          "y = MatMul(r, u) \"fc\" @ fc\n}";

#define W(bits, quantizer)                                       \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: " bits \
    ", TYPE: " quantizer "}}\n"

static float values[8];

static sb_tensor batch(void)
{
    sb_tensor x = sb_tensor_make(SB_DTYPE_F32, 2, (int64_t[]){2, 4});

    for (int i = 0; i < 8; i++)
        values[i] = (float)((i * 29) % 23) / 11 - 1;
    x.data = values;
    return x;
}

static sb_status calibrated(sb_ctx *ctx, const char *graph, const char *config,
                            sb_quant_model **out)
{
    const sb_tensor x = batch(), *in[] = {&x}, *y[2];
    sb_status s = test_quant_try(ctx, graph, config, NULL, out);

    if (s == SB_OK)
        s = sb_quant_model_prepare_calibration(*out, NULL);
    if (s == SB_OK)
        s = test_quant_run(*out, in, y);
    return s == SB_OK ? sb_quant_model_calc_qparams(*out) : s;
}

static sb_status quantize_net(sb_ctx *ctx, const char *graph,
                              const char *config)
{
    sb_quant_model *qm = NULL;
    sb_status s = calibrated(ctx, graph, config, &qm);

    if (s == SB_OK)
        s = sb_quant_model_export(qm, test_quant_file(), NULL);
    sb_quant_model_free(qm);
    return s;
}

static sb_status quantize(sb_ctx *ctx, const char *config)
{
    return quantize_net(ctx, net, config);
}

/* With a product that the network has not. */
static sb_status equalize(sb_ctx *ctx)
{
    return quantize_net(
        ctx,
        "graph net(x: f32[N,4]) -> (y) {\n"
        "g: f32[4] = [50, 1, 0.5, 2]\nb: f32[4] = [1, 0, -1, 0]\n"
        "v: f32[4,3] = random(3)\nn = LayerNormalization(x, g, b)\n"
        "e = Gelu(n)\ny = MatMul(e, v)\n}",
        "SCHEDULE: {EQUALIZATION: true}\n" W("8", "uniform") TEST_A8);
}

static sb_status correct_bias(sb_ctx *ctx)
{
    return quantize(ctx, "SCHEDULE: {BIAS_CORRECTION: true}\n" W("8", "uniform")
                             TEST_A8);
}

static sb_status correct_without_samples(sb_ctx *ctx)
{
    sb_quant_model *qm = NULL;
    sb_status s = test_quant_try(
        ctx,
        "graph main(x: f32[N,2,3,3]) -> (y) {\n"
        "w: f32[2,2,1,1] = [1, 0.3, -0.2, 0.7]\nb: f32[2] = [1, 2]\n"
        "c = Conv(x, w)\nn = BatchNormalization(c, b, b, b, b)\n"
        "r = Relu(n)\ny = Conv(r, w, b)\n}",
        "SCHEDULE: {FUSE_BN: true, BIAS_CORRECTION: true}\n" W(
            "4", "uniform") "A: none\n",
        NULL, &qm);

    if (s == SB_OK)
        s = sb_quant_model_calc_qparams(qm);
    sb_quant_model_free(qm);
    return s;
}

static sb_status round_gptq(sb_ctx *ctx)
{
    return quantize(ctx, W("4", "gptq") TEST_A8);
}

static sb_status round_adaround(sb_ctx *ctx)
{
    return quantize(ctx, W("4", "adaround, ADAROUND: {STEPS: 20}") TEST_A8);
}

static sb_status analyze(sb_ctx *ctx)
{
    const sb_tensor x = batch(), *in[] = {&x}, *y[1];
    sb_quant_errors_options opt = SB_QUANT_ERRORS_OPTIONS_INIT;
    sb_quant_errors *errors = NULL;
    sb_quant_model *qm = NULL;
    sb_status s = calibrated(ctx, net, W("8", "uniform") TEST_A8, &qm);

    opt.histograms = 1;
    if (s == SB_OK)
        s = sb_quant_errors_create(qm, &opt, &errors);
    if (s == SB_OK)
        s = sb_quant_errors_run(errors, in, 1, y, 1);
    sb_quant_errors_free(errors);
    sb_quant_model_free(qm);
    return s;
}

static sb_status search(sb_ctx *ctx)
{
    const sb_tensor x = batch(), *in[] = {&x}, *y[1];
    sb_search_options opt = SB_SEARCH_OPTIONS_INIT;
    const sb_search_result *found = NULL;
    sb_model *model = NULL;
    sb_search *work = NULL;
    char *yaml = NULL;
    sb_status s = sb_model_parse(ctx, net, &model);

    opt.config_text = W("8", "uniform") TEST_A8;
    opt.budget = SB_SEARCH_BUDGET_BITS;
    opt.limit = 5;
    opt.bits = (const int[]){8, 4};
    opt.n_bits = 2;
    if (s == SB_OK)
        s = sb_search_create(model, &opt, &work);
    if (s == SB_OK)
        s = sb_search_add(work, in, 1, y, 1);
    if (s == SB_OK)
        s = sb_search_run(work, &found);
    if (s == SB_OK)
        s = sb_search_config(work, &yaml);
    sb_memory_free(yaml);
    sb_search_free(work);
    sb_model_free(model);
    return s;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("bias correction", correct_bias);
    test_every_allocation("bias correction without samples",
                          correct_without_samples);
    test_every_allocation("equalization", equalize);
    test_every_allocation("gptq", round_gptq);
    test_every_allocation("adaround", round_adaround);
    test_every_allocation("analyze", analyze);
    test_every_allocation("search", search);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failed_allocation_is_reported)};

    return cmocka_run_group_tests_name("oom_accuracy", tests, NULL, NULL);
}
