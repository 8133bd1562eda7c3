/* The public side of quantized models. */
#include "api/model.h"
#include "quant/quant_model.h"

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
            return sb_fail(ctx, SB_BAD_ARG,
                           "there is no target '%s'; see `sparsebit list "
                           "targets`",
                           opt->target);
    }

    if (opt && opt->config)
        SB_TRY(sb_quant_config_load(ctx, opt->config, SB_QUANT_CONFIG_QUANT,
                                    &config));
    else
        SB_TRY(sb_quant_config_default(ctx, &config));
    SB_TRY(sb_quant_model_build(ctx, model->graph, config, target, &qm));
    qm->exact = opt && opt->exact;
    *out = qm;
    return SB_OK;
}

int64_t sb_quant_model_batch(const sb_quant_model *qm)
{
    return qm->fixed_batch;
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
