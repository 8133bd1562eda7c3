/* Batch norms that come back for training.
 *
 *     y = Conv(x, w, b)  ->  c = Conv(x, w),  y = BN(c)
 *
 * with gamma = sqrt(var + epsilon) and beta = mean + b of what c is on the
 * calibration samples: in inference form the same function, and what training
 * needs to settle the ranges of activations again.
 *
 * A norm makes its layer blind to the size of the weights, but steps of the
 * optimizer are not: they turn weights of half the size by four times the
 * angle.  Folding left weights of any size behind, so training sees those of
 * each output channel times a power of two that brings their length near 1, as
 * networks that were trained with norms have it; gamma takes the factor back,
 * without rounding. */
#include <math.h>

#include "graph/op.h"
#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/model/overlay.h"
#include "quant/place/place.h"
#include "quant/train/qat.h"

enum { NORM_MOST = 20 }; /* octaves that weights are enlarged by */

/* ---- where -------------------------------------------------------------- */

/* Is the value, moved at most, a result of the network? */
static bool norm_is_result(const sb_graph *g, sb_value_id v, int depth)
{
    const sb_value *value = sb_graph_value(g, v);

    if (value->is_output || value->n_uses == 0)
        return true;
    if (depth == 0 || value->n_uses > 1)
        return false;
    const sb_node *node = sb_graph_node(g, value->uses[0].node);
    const sb_op_def *op = sb_op_of(node);
    bool moves = op && ((op->flags & SB_OP_VIEW) || op->quant == SB_ROLE_PASS ||
                        sb_node_is(node, "Softmax"));
    return moves && norm_is_result(g, node->outputs[0], depth - 1);
}

/* A convolution with a weight and a bias of its own. */
static bool norm_fits(const sb_graph *g, sb_node_id id, sb_bias_layer *out)
{
    const sb_node *node = sb_graph_node(g, id);

    return !node->dead && sb_node_flag(node, SB_OP_CONV) &&
           sb_bias_layer_find(g, id, out) && out->result == node->outputs[0] &&
           sb_graph_value(g, node->inputs[1])->n_uses == 1 &&
           !norm_is_result(g, out->result, SB_WALK_MOST);
}

/* Can the factors of output channels go into the scales of the weight? */
static bool norm_scales_fit(const sb_quant_model *qm, const sb_qat_norm *norm)
{
    const sb_node *node = sb_graph_node(qm->graph, norm->layer.node);
    const sb_quantizer *w = norm->weight;

    return !w ||
           (w->block == 0 && w->axis >= 0 &&
            sb_quantizer_qparams(qm, w)->n == norm->layer.channels &&
            w->axis ==
                sb_op_weight_axis(
                    node, sb_graph_value(qm->graph, w->value)->constant.rank));
}

/* Grouped transposed convolutions have fewer rows of weights than output
 * channels, which share them. */
static bool norm_has_rows(const sb_quant_model *qm, const sb_qat_norm *norm)
{
    const sb_node *node = sb_graph_node(qm->graph, norm->layer.node);
    const sb_tensor *w = &sb_graph_value(qm->graph, node->inputs[1])->constant;

    return w->dims[sb_op_weight_axis(node, w->rank)] == norm->layer.channels;
}

static sb_status norm_room(sb_qat *qat, sb_qat_norm *norm)
{
    size_t n = (size_t)norm->layer.channels;

    norm->mean = sb_arena_alloc(&qat->arena, n, sizeof *norm->mean);
    norm->var = sb_arena_alloc(&qat->arena, n, sizeof *norm->var);
    norm->factor = sb_arena_alloc(&qat->arena, n, sizeof *norm->factor);
    norm->scales = sb_arena_alloc(&qat->arena, n, sizeof *norm->scales);
    return norm->mean && norm->var && norm->factor && norm->scales
               ? SB_OK
               : SB_NO_MEMORY;
}

/* Only what is trained has optimizer steps. */
static void norm_find_factors(const sb_quant_model *qm, sb_qat_norm *norm)
{
    const sb_node *node = sb_graph_node(qm->graph, norm->layer.node);
    const sb_tensor *w = &sb_graph_value(qm->graph, node->inputs[1])->constant;
    int axis = sb_op_weight_axis(node, w->rank);
    int64_t inner = sb_dims_product(w->dims, axis + 1, w->rank);
    int64_t channels = norm->layer.channels, n = sb_tensor_count(w);

    for (int64_t c = 0; c < channels; c++) {
        double squares = 0;

        for (int64_t at = c * inner; at < n; at += channels * inner)
            for (int64_t k = at; k < at + inner; k++)
                squares += sb_tensor_get_f64(w, k) * sb_tensor_get_f64(w, k);
        norm->factor[c] =
            !qm->train || !isnormal(squares)
                ? 1
                : exp2f((float)-rint(fmax(log2(squares) / 2, -NORM_MOST)));
        norm->scales[c] = norm->factor[c];
    }
}

/* The greatest magnitude in each channel of a weight in the domain of its
 * quantizer, if it is trained or, without `trained`, as it is. */
static sb_status norm_mapped_ranges(const sb_quant_model *qm,
                                    const sb_qat_norm *norm, bool trained,
                                    float *most)
{
    const sb_quantizer *q = norm->weight;
    sb_tensor w;

    SB_TRY(sb_tensor_clone(qm->ctx,
                           &sb_graph_value(qm->graph, q->value)->constant, &w));
    int64_t inner = sb_dims_product(w.dims, q->axis + 1, w.rank);
    float *v = w.data;
    for (int64_t i = 0; i < sb_tensor_count(&w); i++)
        v[i] *= trained ? norm->factor[i / inner % norm->layer.channels] : 1;
    q->def->map_weight(&q->spec, v, sb_tensor_count(&w));
    for (int64_t i = 0; i < sb_tensor_count(&w); i++) {
        float *at = &most[i / inner % norm->layer.channels];

        *at = fmaxf(*at, fabsf(v[i]));
    }
    sb_tensor_drop(&w);
    return SB_OK;
}

/* A domain of its own does not follow the factors of weights as it is. */
static sb_status norm_find_scales(const sb_quant_model *qm, sb_qat_norm *norm)
{
    size_t n = (size_t)norm->layer.channels;

    if (!qm->train || !norm->weight || !norm->weight->def->map_weight)
        return SB_OK;
    float *most = sb_alloc(qm->ctx, n + 1, 2 * sizeof *most);
    sb_status status =
        most ? norm_mapped_ranges(qm, norm, false, most) : SB_NO_MEMORY;
    if (status == SB_OK)
        status = norm_mapped_ranges(qm, norm, true, most + n);
    for (size_t c = 0; status == SB_OK && c < n; c++)
        norm->scales[c] =
            most[c] > 0 && most[n + c] > 0 ? most[n + c] / most[c] : 1;
    sb_free(qm->ctx, most);
    return status;
}

float sb_qat_factor(const sb_qat *qat, const sb_quantizer *q, int64_t i)
{
    for (size_t k = 0; k < qat->n_norms; k++)
        if (qat->norms[k].weight == q)
            return qat->norms[k].scales[i];
    return 1;
}

/* Leaves them all out, or says why one cannot be. */
static sb_status norm_refuse(sb_qat *qat, sb_qat_bn bn, const sb_node *node)
{
    qat->n_norms = 0;
    if (bn != SB_QAT_BN_RESTORE)
        return SB_OK;
    return sb_fail(qat->qm->ctx, SB_BAD_CONFIG,
                   "BN: restore folds norms into scales of output channels at "
                   "the end, and layer '%s' has none of these; set W.QSCHEME "
                   "per-channel-symmetric, or BN: folded",
                   sb_node_label(qat->qm->graph, node));
}

sb_status sb_qat_find_norms(sb_qat *qat, sb_qat_bn bn)
{
    const sb_quant_model *qm = qat->qm;
    const sb_graph *g = qm->graph;

    if (bn == SB_QAT_BN_FOLDED)
        return SB_OK;
    qat->norms =
        sb_arena_alloc(&qat->arena, g->n_nodes + 1, sizeof *qat->norms);
    if (!qat->norms)
        return SB_NO_MEMORY;
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        sb_qat_norm norm = {.epsilon = 1e-5F};

        if (!norm_fits(g, id, &norm.layer))
            continue;
        norm.weight = sb_quantizer_on(qm, id, 1);
        if (!norm.weight && !norm_has_rows(qm, &norm))
            continue;
        if (!norm_scales_fit(qm, &norm))
            return norm_refuse(qat, bn, sb_graph_node(g, id));
        SB_TRY(norm_room(qat, &norm));
        norm_find_factors(qm, &norm);
        SB_TRY(norm_find_scales(qm, &norm));
        qat->norms[qat->n_norms++] = norm;
    }
    return SB_OK;
}

/* ---- nodes -------------------------------------------------------------- */

/* A constant that is learned, or follows what is. */
static sb_status norm_constant(sb_qat *qat, sb_qat_norm *norm, int param,
                               const float *numbers)
{
    static const char *const names[SB_QAT_NORM] = {"gamma", "beta", "mean",
                                                   "var"};
    sb_graph *g = qat->graph;
    const char *stem = sb_graph_value(g, norm->layer.result)->name;
    const char *name =
        sb_arena_printf(g->arena, "%s.bn.%s", stem, names[param]);
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 1, &norm->layer.channels);
    sb_parameter_role role = param < SB_QAT_MEAN ? SB_PARAMETER_ROLE_WEIGHT
                                                 : SB_PARAMETER_ROLE_STATISTIC;

    if (!name)
        return SB_NO_MEMORY;
    SB_TRY(sb_graph_add_value_as(g, name, &norm->params[param]));
    SB_TRY(sb_tensor_alloc_raw(g->ctx, &t));
    for (int64_t c = 0; c < norm->layer.channels; c++)
        ((float *)t.data)[c] = numbers[c];
    sb_status status = sb_graph_set_constant(g, norm->params[param], &t);
    sb_tensor_drop(&t);
    SB_TRY(status);
    return sb_map_put(&qat->roles, sb_graph_value(g, norm->params[param])->name,
                      (uint32_t)role + 1);
}

static sb_status norm_constants(sb_qat *qat, sb_qat_norm *norm)
{
    int64_t n = norm->layer.channels;
    const sb_tensor *bias = sb_overlay_constant(qat->qm, norm->layer.bias);
    float *v = sb_alloc(qat->qm->ctx, (size_t)n, SB_QAT_NORM * sizeof *v);
    sb_status status = v ? SB_OK : SB_NO_MEMORY;

    for (int64_t c = 0; v && c < n; c++) {
        double b = sb_tensor_get_f64(bias, c), f = (double)norm->factor[c];
        double var = norm->var[c] * f * f;

        v[SB_QAT_GAMMA * n + c] =
            (float)(sqrt(var + (double)norm->epsilon) / f);
        v[SB_QAT_BETA * n + c] = (float)norm->mean[c];
        v[SB_QAT_MEAN * n + c] = (float)((norm->mean[c] - b) * f);
        v[SB_QAT_VAR * n + c] = (float)var;
    }
    for (int i = 0; status == SB_OK && i < SB_QAT_NORM; i++)
        status = norm_constant(qat, norm, i, v + i * n);
    sb_free(qat->qm->ctx, v);
    return status;
}

static sb_status norm_weight(const sb_qat *qat, const sb_qat_norm *norm)
{
    sb_graph *g = qat->graph;
    const sb_node *node = sb_graph_node(qat->qm->graph, norm->layer.node);
    sb_value_id v = node->inputs[1];
    int axis = sb_op_weight_axis(node, sb_graph_value(g, v)->constant.rank);
    sb_tensor w;

    SB_TRY(sb_tensor_clone(g->ctx, &sb_graph_value(g, v)->constant, &w));
    int64_t inner = sb_dims_product(w.dims, axis + 1, w.rank);
    for (int64_t i = 0; i < sb_tensor_count(&w); i++)
        ((float *)w.data)[i] *= norm->factor[i / inner % norm->layer.channels];
    sb_status status = sb_graph_set_constant(g, v, &w);
    sb_tensor_drop(&w);
    return status;
}

/* The layer without its bias makes a value of its own. */
static sb_status norm_layer(sb_graph *g, const sb_bias_layer *layer,
                            sb_value_id *out)
{
    const sb_node was = *sb_graph_node(g, layer->node);
    sb_node_id made = SB_NONE;

    sb_graph_remove_node(g, layer->node);
    SB_TRY(sb_graph_add_value_like(g, sb_graph_value(g, layer->result)->name,
                                   out));
    sb_graph_value(g, *out)->type = sb_graph_value(g, layer->result)->type;
    return sb_graph_add_node(g,
                             &(sb_node_spec){.op = was.op,
                                             .domain = was.domain,
                                             .name = was.name,
                                             .module = was.module,
                                             .inputs = was.inputs,
                                             .n_in = 2,
                                             .outputs = out,
                                             .n_out = 1,
                                             .attrs = was.attrs,
                                             .n_attrs = was.n_attrs,
                                             .position = was.position},
                             &made);
}

static sb_status norm_add(sb_qat *qat, sb_qat_norm *norm)
{
    sb_graph *g = qat->graph;
    const char *module = sb_graph_node(g, norm->layer.node)->module;
    uint64_t position = sb_graph_node(g, norm->layer.node)->position;
    const sb_attr epsilon = {
        .name = "epsilon", .type = SB_ATTR_FLOAT, .f = norm->epsilon};
    sb_value_id in[1 + SB_QAT_NORM];
    sb_node_id made = SB_NONE;

    SB_TRY(norm_weight(qat, norm));
    SB_TRY(norm_constants(qat, norm));
    SB_TRY(norm_layer(g, &norm->layer, &in[0]));
    for (int i = 0; i < SB_QAT_NORM; i++)
        in[1 + i] = norm->params[i];
    return sb_graph_add_node(g,
                             &(sb_node_spec){.op = "BatchNormalization",
                                             .module = module,
                                             .inputs = in,
                                             .n_in = SB_COUNT(in),
                                             .outputs = &norm->layer.result,
                                             .n_out = 1,
                                             .attrs = &epsilon,
                                             .n_attrs = 1,
                                             .position = position},
                             &made);
}

sb_status sb_qat_add_norms(sb_qat *qat)
{
    for (size_t i = 0; i < qat->n_norms; i++)
        SB_TRY(norm_add(qat, &qat->norms[i]));
    return SB_OK;
}
