/* What was learned, back in the quantized model: scales into its state, weights
 * and biases over the constants of its graph, norms folded into both.
 *
 * With f = gamma / sqrt(var + epsilon) of a channel, the integers stay:
 *
 *     BN(scale * q * x) = (scale |f|) (sign(f) q) x + beta - f mean
 *
 * where q is without its zero point, which is mirrored with it.
 *
 * Weights are laid over as numbers that the new scale represents, so that
 * rounding them again gives the same integers. */
#include <math.h>
#include <string.h>

#include "graph/op.h"
#include "quant/calibrate/calibrate.h"
#include "quant/model/overlay.h"
#include "quant/model/weight.h"
#include "quant/train/qat.h"

/* The constant of the learned graph that has the name of one of `from`; NULL
 * if there is none. */
static const sb_tensor *settle_find(const sb_graph *learned,
                                    const sb_graph *from, sb_value_id v)
{
    sb_value_id at =
        sb_graph_find_value(learned, sb_graph_value(from, v)->name);

    return at != SB_NONE && sb_graph_value(learned, at)->is_constant
               ? &sb_graph_value(learned, at)->constant
               : NULL;
}

/* ---- scales ------------------------------------------------------------- */

/* Element `i` of a constant in the learned graph. */
static float settle_number(const sb_qat *qat, const sb_graph *learned,
                           sb_value_id v, int64_t i)
{
    return (float)sb_tensor_get_f64(settle_find(learned, qat->graph, v), i);
}

/* Scale `c` of a quantizer, from what its point has learned. */
static void settle_one(const sb_qat *qat, const sb_graph *learned,
                       const sb_quantizer *q, int64_t c)
{
    const sb_quant_model *qm = qat->qm;
    uint32_t root = qm->place.points[q->point].same_as;
    const sb_quant_training *t = sb_qat_training(qm, q->point);
    const sb_qat_point *own = &qat->points[q->point];
    sb_qparams *p = &sb_quantizer_state_of(qm, q)->qparams;
    float one[SB_LEARNED_MOST] = {0};
    sb_quant_seen seen = {.spec = &q->spec,
                          .qmin = p->qmin,
                          .qmax = p->qmax,
                          .most = sb_qat_most(qm, root),
                          .scale = settle_number(qat, learned, own->scale, c),
                          .zero_point =
                              settle_number(qat, learned, own->zero_point, c)};

    p->scale[c] = seen.scale;
    p->zero_point[c] = seen.zero_point;
    for (int k = 0; k < SB_LEARNED_MOST && t->learned[k]; k++)
        one[k] = settle_number(qat, learned, qat->points[root].learned[k], c);
    if (t->settle)
        t->settle(&seen, one, &p->scale[c], &p->zero_point[c]);
}

/* ---- constants ---------------------------------------------------------- */

/* All that training changed, as it is; what did not is no longer what an
 * earlier call made of it. */
static void settle_constants(const sb_qat *qat, const sb_graph *learned)
{
    sb_quant_model *qm = qat->qm;

    for (sb_value_id v = 0; v < qm->graph->n_values; v++) {
        const sb_value *value = sb_graph_value(qm->graph, v);
        const sb_tensor *now =
            value->is_constant ? settle_find(learned, qm->graph, v) : NULL;

        if (now && now->buf && now->dtype == SB_DTYPE_F32 &&
            now->data != value->constant.data)
            sb_overlay_set(qm, v, now);
        else if (value->is_constant)
            sb_overlay_drop(qm, v);
    }
}

/* Elements of a weight, in the domain of its quantizer, as it rounds them. */
static void settle_round(const sb_quant_model *qm, const sb_quantizer *q,
                         sb_tensor *w)
{
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    int64_t n = sb_tensor_count(w), inner = 1, channels = 1;
    float *v = w->data;

    if (q->axis >= 0) {
        channels = w->dims[q->axis];
        inner = sb_dims_product(w->dims, q->axis + 1, w->rank);
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t c = i / inner % channels;
        float zero = p->zero_point[c];
        float x = rintf(v[i] / p->scale[c]) + zero;

        x = fminf(fmaxf(x, (float)p->qmin), (float)p->qmax);
        v[i] = (x - zero) * p->scale[c];
    }
}

/* A copy of the constant that lies over the weight, or is it. */
static sb_status settle_copy(const sb_quant_model *qm, sb_value_id v,
                             sb_tensor *out)
{
    return sb_tensor_clone(qm->ctx, sb_overlay_constant(qm, v), out);
}

/* Weights with a domain of their own lie over the constants in that domain;
 * once, however many layers read them. */
static sb_status settle_mapped(sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        sb_tensor w;

        if (sb_quantizer_is_off(qm, q) || !q->def->map_weight ||
            !sb_quantizer_is_constant(qm, q) ||
            q != sb_point_quantizer(&qm->place, q->point))
            continue;
        SB_TRY(settle_copy(qm, q->value, &w));
        q->def->map_weight(&q->spec, w.data, sb_tensor_count(&w));
        settle_round(qm, q, &w);
        sb_overlay_set(qm, q->value, &w);
        sb_tensor_drop(&w);
    }
    return SB_OK;
}

/* ---- norms -------------------------------------------------------------- */

/* Weights of an output channel times `f`; those of a quantizer as integers
 * times its new scale. */
static void settle_scale(const sb_quant_model *qm, const sb_qat_norm *norm,
                         sb_tensor *w, int axis, int64_t c, float f)
{
    int64_t channels = w->dims[axis], n = sb_tensor_count(w);
    int64_t inner = sb_dims_product(w->dims, axis + 1, w->rank);
    sb_qparams *p =
        norm->weight ? &sb_quantizer_state_of(qm, norm->weight)->qparams : NULL;
    float *v = w->data, was = p ? p->scale[c] : 1, now = was * fabsf(f);
    float sign = f < 0 ? -1 : 1, zero = p ? p->zero_point[c] : 0;
    bool none = p && !isnormal(now); /* the channel is only its bias */

    if (p && f < 0 && !p->symmetric)
        zero = (float)(p->qmin + p->qmax) - zero;
    float lo = p ? (float)p->qmin - zero : 0,
          hi = p ? (float)p->qmax - zero : 0;

    for (int64_t at = c * inner; at < n; at += channels * inner)
        for (int64_t k = at; k < at + inner; k++) {
            float q = p ? rintf(v[k] / was) * sign : 0;

            q = fminf(fmaxf(q, lo), hi);
            v[k] = none ? 0 : p ? q * now : v[k] * f;
        }
    if (p && !none) {
        p->scale[c] = now;
        p->zero_point[c] = zero;
    }
}

static sb_status settle_norm(const sb_qat *qat, const sb_graph *learned,
                             const sb_qat_norm *norm)
{
    sb_quant_model *qm = qat->qm;
    const sb_node *node = sb_graph_node(qm->graph, norm->layer.node);
    const sb_tensor *params[SB_QAT_NORM];
    sb_tensor w, b;

    for (int i = 0; i < SB_QAT_NORM; i++)
        params[i] = settle_find(learned, qat->graph, norm->params[i]);
    SB_TRY(settle_copy(qm, node->inputs[1], &w));
    sb_status status = settle_copy(qm, norm->layer.bias, &b);
    if (status != SB_OK) {
        sb_tensor_drop(&w);
        return status;
    }
    if (norm->weight)
        settle_round(qm, norm->weight, &w);
    for (int64_t c = 0; c < norm->layer.channels; c++) {
        /* As the operator computes them. */
        double var = sb_tensor_get_f64(params[SB_QAT_VAR], c);
        double f = sb_tensor_get_f64(params[SB_QAT_GAMMA], c) /
                   sqrt(var + (double)norm->epsilon);
        ((float *)b.data)[c] =
            (float)(sb_tensor_get_f64(params[SB_QAT_BETA], c) -
                    sb_tensor_get_f64(params[SB_QAT_MEAN], c) * f);
        settle_scale(qm, norm, &w, sb_op_weight_axis(node, w.rank), c,
                     (float)f);
    }
    sb_overlay_set(qm, node->inputs[1], &w);
    sb_overlay_set(qm, norm->layer.bias, &b);
    sb_tensor_drop(&w);
    sb_tensor_drop(&b);
    return SB_OK;
}

/* ---- biases ------------------------------------------------------------- */

/* Biases as their integers say, so that the model is what was trained and what
 * the file holds. */
static sb_status settle_bias(sb_quant_model *qm, const sb_biased_layer *l)
{
    sb_tensor b;

    if (sb_graph_value(qm->graph, l->bias)->n_uses > 1)
        return SB_OK; /* other layers have other steps */
    SB_TRY(settle_copy(qm, l->bias, &b));
    for (int64_t i = 0; i < l->n; i++) {
        double step = (double)sb_biased_layer_scale(qm, l, i);
        float *v = (float *)b.data + i;

        if (step > 0)
            *v = (float)(rint((double)*v / step) * step);
    }
    sb_overlay_set(qm, l->bias, &b);
    sb_tensor_drop(&b);
    return SB_OK;
}

static sb_status settle_biases(sb_quant_model *qm)
{
    sb_calibrate_fit_biases(qm);
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *w = &qm->place.quantizers[i];
        sb_biased_layer l;

        if (!sb_quantizer_is_off(qm, w) && sb_biased_layer_find(qm, w, &l))
            SB_TRY(settle_bias(qm, &l));
    }
    return SB_OK;
}

sb_status sb_qat_settle(const sb_qat *qat, const sb_graph *learned)
{
    sb_quant_model *qm = qat->qm;

    sb_quant_run_drop(qm);
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];
        bool off = sb_quantizer_is_off(qm, q);

        for (int64_t c = 0; !off && c < sb_quantizer_qparams(qm, q)->n; c++)
            settle_one(qat, learned, q, c);
    }
    settle_constants(qat, learned);
    SB_TRY(settle_mapped(qm));
    for (size_t i = 0; i < qat->n_norms; i++)
        SB_TRY(settle_norm(qat, learned, &qat->norms[i]));
    return qm->target->bias == SB_BIAS_INT32 ? settle_biases(qm) : SB_OK;
}
