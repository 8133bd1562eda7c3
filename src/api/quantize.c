/* The public side of quantized models. */
#include "api/model.h"
#include "onnx/onnx.h"
#include "quant/export.h"

/* 8 bit, weights per channel, activations as the target likes them, or as a
 * file that is quantized already has them. */
static sb_status default_config(sb_ctx *ctx, const sb_target_def *target,
                                sb_quant_mode mode, sb_quant_config **out)
{
    /* Nothing is put together that the file has apart. */
    static const char dynamic[] =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
        "A: dynamic\n";
    static const char none[] =
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
        "A: none\n";
    static const char symmetric[] =
        "SCHEDULE: {FUSE_BN: true}\n"
        "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
        "A: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 8}}\n";

    if (mode != SB_QUANT_STATIC)
        return sb_quant_config_load_memory(
            ctx, "default", mode == SB_QUANT_DYNAMIC ? dynamic : none,
            mode == SB_QUANT_DYNAMIC ? sizeof dynamic - 1 : sizeof none - 1,
            SB_QUANT_CONFIG_QUANT, out);
    if (!target || (target->act_schemes & SB_SCHEME_AFFINE))
        return sb_quant_config_default(ctx, out);
    return sb_quant_config_load_memory(ctx, "default", symmetric,
                                       sizeof symmetric - 1,
                                       SB_QUANT_CONFIG_QUANT, out);
}

sb_status sb_quant_model_create(sb_ctx *ctx, const sb_model *model,
                                const sb_quant_options *opt,
                                sb_quant_model **out)
{
    sb_quant_config *config = NULL;
    const sb_target_def *target = NULL;
    sb_quant_model *qm = NULL;

    if (opt && opt->target) {
        target = sb_target_find(opt->target);
        if (!target)
            return sb_target_unknown(ctx, opt->target);
    }

    sb_quant_mode mode = SB_QUANT_STATIC;
    if (!opt || (!opt->config && !opt->calibrate))
        mode = sb_quant_file_mode(model->graph);
    if (opt && opt->config)
        SB_TRY(sb_quant_config_load(ctx, opt->config, SB_QUANT_CONFIG_QUANT,
                                    &config));
    else
        SB_TRY(default_config(ctx, target, mode, &config));
    if (mode == SB_QUANT_STATIC)
        SB_TRY(sb_quant_model_build(ctx, model->graph, config, target, &qm));
    else
        SB_TRY(sb_quant_model_again(ctx, model->graph, config, target, &qm));
    qm->exact = opt && opt->exact;
    qm->reduce_range = opt ? opt->reduce_range : SB_REDUCE_OFF;
    if (qm->reduce_range != SB_REDUCE_OFF && !qm->target->pairs_saturate)
        sb_warn(ctx,
                "target %s adds products in more than 16 bits: --reduce-range "
                "changes nothing",
                qm->target->name);
    *out = qm;
    return SB_OK;
}

int64_t sb_quant_model_batch(const sb_quant_model *qm)
{
    return qm->fixed_batch;
}

int sb_quant_model_takes_data(const sb_quant_model *qm)
{
    for (uint32_t i = 0; i < qm->n_sites; i++)
        if (sb_calibrate_observes(qm, i))
            return 1;
    return 0;
}

int sb_quant_model_needs_data(const sb_quant_model *qm)
{
    return sb_quant_config_mode(qm->config) == SB_QUANT_STATIC &&
           !sb_known_calibrated(&qm->known);
}

size_t sb_quant_model_quantizer_count(const sb_quant_model *qm)
{
    return qm->n_quantizers;
}

sb_quantizer_info sb_quant_model_quantizer(const sb_quant_model *qm, size_t i)
{
    const sb_quantizer *q = &qm->quantizers[i];

    return (sb_quantizer_info){
        .name = q->name,
        .value = sb_graph_value(qm->graph, q->value)->name,
        .is_weight = sb_quantizer_is_constant(qm, q),
        .fused = q->fake_fused,
        .bits = q->spec.bits,
        .scheme = sb_quant_scheme_name(q->spec.granularity, q->spec.symmetric),
        .quantizer = q->def->name,
        .observer = q->spec.observer,
        .axis = q->axis,
        .group_size = q->block,
        .qmin = q->qparams.qmin,
        .qmax = q->qparams.qmax,
        .n = (size_t)q->qparams.n,
        .scale = q->qparams.scale,
        .zero_point = q->qparams.zero_point,
    };
}

sb_status sb_quant_model_export(const sb_quant_model *qm, const char *path,
                                const sb_export_options *opt)
{
    sb_export_choice choice = {
        .float_weights = opt && opt->float_weights,
        .extra_info = opt && opt->extra_info,
        .format = opt ? opt->format : SB_EXPORT_QDQ,
    };
    sb_onnx_save_options save = {0};
    sb_graph *g = NULL;

    SB_TRY(sb_export_graph(qm, &choice, &g, &save.min_opset));
    sb_status status = sb_onnx_save(g, path, &save);
    sb_graph_free(g);
    return status;
}
