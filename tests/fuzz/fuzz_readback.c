/* Any bytes as a quantized ONNX file: read back, and written again for several
 * targets and forms.
 *
 * What must never happen: a crash, a hang, a read outside, a leak, a message of
 * more than one line, and a scale that cannot be divided by.  Sizes are bounded
 * by the allocator. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/model.h"
#include "fuzz_budget.h"
#include "quant/export/export.h"

static void must(int ok)
{
    if (!ok)
        abort();
}

static void write(sb_ctx *ctx, const sb_quant_model *qm,
                  sb_export_format format)
{
    const sb_export_choice choice = {.format = format};
    sb_graph *g = NULL;
    int64_t opset = 0;

    if (sb_export_graph(qm, &choice, &g, &opset) != SB_OK)
        must(!strchr(sb_ctx_error(ctx), '\n'));
    sb_graph_free(g);
}

static void again(sb_ctx *ctx, const sb_model *model, const char *target)
{
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_quant_model *qm = NULL;

    opt.target = target;
    sb_status status = sb_quant_model_create(model, &opt, &qm);
    if (status == SB_OK)
        status = sb_quant_model_calc_qparams(qm);
    if (status != SB_OK)
        must(!strchr(sb_ctx_error(ctx), '\n'));
    for (size_t i = 0; status == SB_OK && i < qm->place.n_quantizers; i++) {
        const sb_qparams *p = &qm->state.quantizers[i].qparams;
        for (int64_t k = 0; k < p->n; k++)
            must(isfinite(p->scale[k]) && p->scale[k] != 0 &&
                 isfinite(p->zero_point[k]));
    }
    for (int f = SB_EXPORT_FORMAT_QDQ;
         status == SB_OK && f <= SB_EXPORT_FORMAT_MATMULNBITS; f++)
        write(ctx, qm, (sb_export_format)f);
    sb_quant_model_free(qm);
}

static void use(sb_ctx *ctx, sb_model *model)
{
    static const char *const targets[] = {"virtual", "onnxruntime-x86",
                                          "tensorrt", "openvino", "qnn"};
    const sb_quant_value *const *values = NULL;
    const sb_model_info *info = NULL;
    size_t n = 0;

    if (sb_model_info_get(model, &info) != SB_OK || info->macs > 1e7 ||
        info->nodes > 500 ||
        sb_model_list_quantized(model, &values, &n) != SB_OK)
        return;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        again(ctx, model, targets[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    budget used = {0};
    const sb_allocator alloc = {sizeof alloc, &used, budget_resize,
                                budget_free};
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;

    if (sb_ctx_create(&alloc, &ctx) != SB_OK)
        return 0;
    sb_ctx_set_threads(ctx, 1);
    if (sb_model_load_memory(ctx, data, size, NULL, &model) == SB_OK)
        use(ctx, model);
    sb_model_free(model);
    sb_ctx_free(ctx);
    must(used.live == 0);
    return 0;
}
