/* Any bytes as a quantized ONNX file: told of, linted, run on integers, read
 * back, calibrated where it lacks scales, written for a target, and loaded
 * again.  The size of the file chooses target and form.
 *
 * What must never happen: a crash, a hang, a leak, and a file of ours that we
 * cannot read. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz_model.h"

#include <stdio.h>
#include <unistd.h>

static const char *const targets[] = {"virtual",  "onnxruntime-x86",
                                      "tensorrt", "onnxruntime-arm",
                                      "openvino", "qnn"};

static void lint_and_run(sb_model *model, const char *target, sb_tensor **in)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    sb_session *session = NULL;
    const sb_lint *lint = NULL;

    (void)!sb_model_lint(model, target, &lint);
    opt.integer = SB_INTEGER_MODE_ON;
    if (sb_session_create(model, &opt, &session) == SB_OK)
        (void)!sb_session_run(session, (const sb_tensor *const *)in,
                              sb_model_input_count(model), NULL, 0);
    sb_session_free(session);
}

/* Scales from the file, or from one random batch. */
static sb_status find_scales(sb_quant_model *qm, sb_tensor **in, size_t n)
{
    if (sb_quant_model_needs_calibration(qm)) {
        sb_status status = sb_quant_model_prepare_calibration(qm, NULL);
        if (status == SB_OK)
            status = sb_quant_model_forward(qm, (const sb_tensor *const *)in, n,
                                            NULL, 0);
        if (status != SB_OK)
            return status;
    }
    return sb_quant_model_calc_qparams(qm);
}

static void write_again(sb_ctx *ctx, const sb_quant_model *qm, size_t size)
{
    const char *folder = getenv("TMPDIR");
    sb_export_options opt = SB_EXPORT_OPTIONS_INIT;
    sb_model *again = NULL;
    char path[512];

    (void)snprintf(path, sizeof path, "%s/fuzz-quant-%ld.onnx",
                   folder ? folder : "/tmp", (long)getpid());
    opt.format = size / 6 % 3 == 1   ? SB_EXPORT_FORMAT_QOPERATOR
                 : size / 6 % 3 == 2 ? SB_EXPORT_FORMAT_MATMULNBITS
                                     : SB_EXPORT_FORMAT_QDQ;
    if (sb_quant_model_export(qm, path, &opt) != SB_OK)
        return;
    sb_status status = sb_model_load(ctx, path, &again);
    if (status != SB_OK && status != SB_NO_MEMORY) {
        fprintf(stderr, "cannot read our own file: %s\n", sb_ctx_error(ctx));
        abort();
    }
    sb_model_free(again);
    (void)unlink(path);
}

static void use(sb_ctx *ctx, sb_model *model, size_t size)
{
    sb_tensor *in[MOST_INPUTS] = {0};
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_quant_model *qm = NULL;
    const sb_model_info *info = NULL;

    opt.target = targets[size % 6];
    if (sb_model_info_get(model, &info) == SB_OK && info->macs <= 1e7 &&
        info->nodes <= 500 && make_inputs(ctx, model, in)) {
        lint_and_run(model, opt.target, in);
        if (sb_quant_model_create(model, &opt, &qm) == SB_OK &&
            find_scales(qm, in, sb_model_input_count(model)) == SB_OK)
            write_again(ctx, qm, size);
    }
    sb_quant_model_free(qm);
    free_inputs(in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return with_model(data, size, use);
}
