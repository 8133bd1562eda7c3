/* The state of a quantized model before a method is tried, to go back to it. */
#include <string.h>

#include "quant/correct/correct.h"
#include "quant/model/overlay.h"

static sb_status snapshot_qparams(const sb_quant_model *qm, const sb_qparams *p,
                                  sb_qparams *out)
{
    if (p->n == 0)
        return SB_OK;
    SB_TRY(sb_qparams_init(qm->ctx, out, p->n, p->axis, p->bits, p->symmetric));
    out->qmin = p->qmin;
    out->qmax = p->qmax;
    memcpy(out->scale, p->scale, (size_t)p->n * sizeof *p->scale);
    memcpy(out->zero_point, p->zero_point,
           (size_t)p->n * sizeof *p->zero_point);
    return SB_OK;
}

static void snapshot_share(const sb_tensor *from, sb_tensor *to)
{
    if (from->buf)
        *to = sb_tensor_share(from);
}

sb_status sb_snapshot_take(const sb_quant_model *qm, sb_snapshot *s)
{
    size_t n = qm->graph->n_values, quantizers = qm->place.n_quantizers;

    *s = (sb_snapshot){
        .constants = sb_alloc(qm->ctx, n + 1, sizeof *s->constants),
        .overlay = sb_alloc(qm->ctx, n + 1, sizeof *s->overlay),
        .qparams = sb_alloc(qm->ctx, quantizers + 1, sizeof *s->qparams),
        .points = sb_alloc(qm->ctx, qm->place.n_points + 1, sizeof *s->points),
        .left_out = sb_alloc(qm->ctx, quantizers + 1, sizeof *s->left_out),
        .equalized = qm->equalized,
        .n_nodes = qm->graph->n_nodes,
        .n_values = n,
    };
    if (!s->constants || !s->overlay || !s->qparams || !s->points ||
        !s->left_out)
        return SB_NO_MEMORY;
    for (sb_value_id v = 0; v < n; v++) {
        snapshot_share(&qm->state.overlay[v], &s->overlay[v]);
        if (sb_graph_value(qm->graph, v)->is_constant)
            snapshot_share(&sb_graph_value(qm->graph, v)->constant,
                           &s->constants[v]);
    }
    for (size_t i = 0; i < qm->place.n_points; i++)
        s->points[i] = qm->state.points[i];
    for (size_t i = 0; i < quantizers; i++) {
        s->left_out[i] = qm->state.quantizers[i].left_out;
        SB_TRY(snapshot_qparams(qm, &qm->state.quantizers[i].qparams,
                                &s->qparams[i]));
    }
    s->whole = true;
    return SB_OK;
}

static void snapshot_put_constant(sb_quant_model *qm, sb_value_id v,
                                  const sb_tensor *was)
{
    sb_value *value = sb_graph_value(qm->graph, v);

    if (!was->buf || value->constant.buf == was->buf)
        return;
    sb_tensor_drop(&value->constant);
    value->constant = sb_tensor_share(was);
}

static void snapshot_go_back(sb_quant_model *qm, sb_snapshot *s)
{
    qm->equalized = s->equalized;
    sb_factors_take_back(qm, s->n_nodes);
    for (size_t i = 0; i < qm->place.n_points; i++)
        qm->state.points[i].whole = s->points[i].whole;
    for (sb_value_id v = 0; v < qm->graph->n_values; v++) {
        sb_overlay_drop(qm, v);
        if (s->overlay[v].buf)
            sb_overlay_set(qm, v, &s->overlay[v]);
        snapshot_put_constant(qm, v, &s->constants[v]);
    }
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        sb_qparams now = qm->state.quantizers[i].qparams;

        qm->state.quantizers[i].left_out = s->left_out[i];
        qm->state.quantizers[i].qparams = s->qparams[i];
        s->qparams[i] = now;
    }
}

/* Of two observers of an activation the second goes, or stays beside the first.
 * A weight has but one, which sees whatever it is asked about. */
static void snapshot_settle_points(sb_quant_model *qm, sb_snapshot *s,
                                   bool keep)
{
    for (size_t i = 0; i < qm->place.n_points; i++) {
        sb_point_state *now = &qm->state.points[i], *was = &s->points[i];
        sb_value_id v = qm->place.points[i].value;

        if (sb_graph_value(qm->graph, v)->is_constant ||
            now->observer == was->observer)
            continue;
        if (keep) {
            now->given = was->observer;
            continue;
        }
        sb_observer_free(now->observer);
        *now = *was;
    }
}

void sb_snapshot_settle(sb_quant_model *qm, sb_snapshot *s, bool keep)
{
    if (s->whole) {
        snapshot_settle_points(qm, s, keep);
        if (!keep)
            snapshot_go_back(qm, s);
    }
    for (size_t v = 0; v < s->n_values; v++) {
        if (s->overlay && s->overlay[v].buf)
            sb_tensor_drop(&s->overlay[v]);
        if (s->constants && s->constants[v].buf)
            sb_tensor_drop(&s->constants[v]);
    }
    for (size_t i = 0; s->qparams && i < qm->place.n_quantizers; i++)
        sb_qparams_free(qm->ctx, &s->qparams[i]);
    sb_free(qm->ctx, s->constants);
    sb_free(qm->ctx, s->overlay);
    sb_free(qm->ctx, s->qparams);
    sb_free(qm->ctx, s->left_out);
    sb_free(qm->ctx, s->points);
    *s = (sb_snapshot){0};
}
