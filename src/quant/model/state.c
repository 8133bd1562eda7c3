/* The state of a quantized model: from its placement to its end. */
#include "quant/model/state.h"

#include "quant/calibrate/calibrate.h"
#include "quant/model/overlay.h"

sb_status sb_quant_state_init(sb_quant_model *qm)
{
    const sb_placement *p = &qm->place;
    sb_quant_state *s = &qm->state;

    s->quantizers =
        sb_alloc(qm->ctx, p->n_quantizers + 1, sizeof *s->quantizers);
    s->points = sb_alloc(qm->ctx, p->n_points + 1, sizeof *s->points);
    s->overlay = sb_alloc(qm->ctx, qm->graph->n_values + 1, sizeof *s->overlay);
    if (!s->quantizers || !s->points || !s->overlay)
        return SB_NO_MEMORY;
    sb_quant_state_reset(qm);
    return SB_OK;
}

void sb_quant_state_reset(sb_quant_model *qm)
{
    const sb_placement *p = &qm->place;
    sb_quant_state *s = &qm->state;

    sb_blocks_free(s->blocks);
    s->blocks = NULL;
    sb_batch_store_free(s->batches);
    s->batches = NULL;
    sb_batch_store_free(s->outputs);
    s->outputs = NULL;
    s->n_steps = 0;
    s->told = false;
    for (size_t v = 0; s->overlay && v < qm->graph->n_values; v++)
        sb_overlay_drop(qm, (sb_value_id)v);
    for (size_t i = 0; i < p->n_points && s->points; i++) {
        sb_observer_free(s->points[i].observer);
        sb_observer_free(s->points[i].given);
        s->points[i] = (sb_point_state){.channels = s->points[i].channels};
    }
    for (size_t i = 0; i < p->n_quantizers && s->quantizers; i++) {
        sb_qparams_free(qm->ctx, &s->quantizers[i].qparams);
        s->quantizers[i] = (sb_quantizer_state){
            .qmin = p->quantizers[i].qmin,
            .qmax = p->quantizers[i].qmax,
        };
    }
}

void sb_quant_state_free(sb_quant_model *qm)
{
    sb_quant_state_reset(qm);
    sb_observer_slots_free(qm->ctx, &qm->state.slots);
    sb_free(qm->ctx, qm->state.overlay);
    sb_free(qm->ctx, qm->state.steps);
    sb_free(qm->ctx, qm->state.weight);
    sb_free(qm->ctx, qm->state.points);
    sb_free(qm->ctx, qm->state.quantizers);
}
