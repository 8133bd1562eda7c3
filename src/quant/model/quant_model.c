/* Making and freeing quantized models, and questions to their quantizers. */
#include "quant/model/quant_model.h"

#include <assert.h>

#include "quant/correct/correct.h"
#include "quant/model/stages.h"
#include "quant/train/qat.h"

/* ---- quantizers --------------------------------------------------------- */

bool sb_quantizer_is_constant(const sb_quant_model *qm, const sb_quantizer *q)
{
    return sb_graph_value(qm->graph, q->value)->is_constant;
}

bool sb_quantizer_is_off(const sb_quant_model *qm, const sb_quantizer *q)
{
    /* There is no state before all quantizers are placed. */
    return q->fake_fused ||
           (qm->state.quantizers && sb_quantizer_state_of(qm, q)->left_out);
}

bool sb_quantizer_enabled(const sb_quant_model *qm, const sb_quantizer *q)
{
    return !sb_quantizer_is_off(qm, q) &&
           (sb_quantizer_is_constant(qm, q) ? qm->run.weights_on
                                            : qm->run.activations_on);
}

/* ---- life --------------------------------------------------------------- */

sb_status sb_quant_model_build(sb_ctx *ctx, const sb_graph *graph,
                               sb_quant_config *config,
                               const sb_target_def *target,
                               const sb_build_options *opt,
                               sb_quant_model **out)
{
    static const sb_build_options none = {0};
    sb_quant_model *qm = sb_alloc(ctx, 1, sizeof *qm);

    if (!qm) {
        sb_quant_config_free(config);
        return SB_NO_MEMORY;
    }
    opt = opt ? opt : &none;
    qm->ctx = ctx;
    qm->config = config;
    qm->file = graph;
    qm->follow = opt->follow;
    qm->asked = opt->asked;
    qm->train = opt->train;
    qm->blocks = opt->blocks;
    qm->half_scales = opt->half_scales;
    qm->target = target ? target : sb_quant_config_target(config);
    sb_arena_init(&qm->arena, ctx);
    if (opt->dump_after)
        qm->dump_after = sb_arena_str(&qm->arena, opt->dump_after);
    sb_status status =
        opt->dump_after && !qm->dump_after ? SB_NO_MEMORY : SB_OK;
    if (status == SB_OK)
        status = sb_graph_clone(graph, &qm->graph);
    if (status == SB_OK)
        status = sb_quant_stages_run(qm);
    qm->file = NULL;
    if (status == SB_OK)
        *out = qm;
    else
        sb_quant_model_free(qm);
    return status;
}

void sb_quant_model_free(sb_quant_model *qm)
{
    if (!qm)
        return;
    sb_qat_free(qm->qat);
    sb_quant_run_drop(qm);
    sb_quant_state_free(qm);
    sb_norms_free(qm);
    sb_free(qm->ctx, qm->place.points);
    sb_free(qm->ctx, qm->place.quantizers);
    sb_free(qm->ctx, qm->place.of_value);
    sb_graph_free(qm->graph);
    sb_imported_free(qm->ctx, &qm->known);
    sb_quant_config_free(qm->config);
    sb_arena_free(&qm->arena);
    sb_free(qm->ctx, qm);
}
