/* Constants of the quantized network that differ from those of the float one.
 */
#include "quant/model/overlay.h"

#include <assert.h>

void sb_overlay_drop(sb_quant_model *qm, sb_value_id value)
{
    sb_tensor *t = &qm->state.overlay[value];

    if (t->buf)
        sb_tensor_drop(t);
    *t = (sb_tensor){0};
}

void sb_overlay_set(sb_quant_model *qm, sb_value_id value, const sb_tensor *t)
{
    assert(t->buf && sb_graph_value(qm->graph, value)->is_constant);
    sb_tensor copy = sb_tensor_share(t);

    sb_overlay_drop(qm, value);
    qm->state.overlay[value] = copy;
}

const sb_tensor *sb_overlay_constant(const sb_quant_model *qm,
                                     sb_value_id value)
{
    /* There is no state before all quantizers are placed. */
    const sb_tensor *t = qm->state.overlay ? &qm->state.overlay[value] : NULL;

    return t && t->buf ? t : &sb_graph_value(qm->graph, value)->constant;
}

sb_status sb_overlay_apply(const sb_quant_model *qm, sb_graph *g)
{
    return sb_overlay_apply_part(qm, NULL, g);
}

sb_status sb_overlay_apply_part(const sb_quant_model *qm,
                                const sb_graph_part *part, sb_graph *g)
{
    for (sb_value_id v = 0; v < qm->graph->n_values; v++) {
        sb_value_id at = sb_graph_part_value(part, v);

        if (at != SB_NONE && qm->state.overlay[v].buf)
            SB_TRY(sb_graph_set_constant(g, at, &qm->state.overlay[v]));
    }
    return SB_OK;
}
