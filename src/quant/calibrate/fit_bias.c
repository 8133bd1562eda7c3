/* Biases as int32, with the scale of the products that they are added to:
 *
 *     scale = s_x * s_w[c],  b_q = round(b / scale),  zero point 0.
 *
 * That is what integer kernels add.  A bias far larger than the products would
 * not fit into 32 bits; then the scale of that channel's weight is enlarged,
 * which costs less than a wrong bias.
 *
 * ONNX Runtime makes a Gemm of MatMul and the Add of a bias behind it, if the
 * shape is fixed.  That is an integer kernel only if the bias is one of
 * integers: in a transformer with a fixed batch it decides about all layers. */
#include <math.h>

#include "ops/op_registry.h"
#include "quant/calibrate/calibrate.h"
#include "quant/model/overlay.h"
#include "quant/place/place.h"

static bool shape_fixed(const sb_shape *s)
{
    for (int i = 0; i < s->rank; i++)
        if (!sb_dim_known(s->dim[i]))
            return false;
    return s->rank >= 0;
}

/* The edge of a bias in an Add that is the only consumer of the product, and is
 * not quantized itself. */
static bool find_behind(const sb_quant_model *qm, const sb_node *node,
                        sb_use *out)
{
    const sb_graph *g = qm->graph;
    const sb_shape *x = &sb_graph_value(g, node->inputs[0])->type.shape;
    const sb_shape *w = &sb_graph_value(g, node->inputs[1])->type.shape;
    const sb_value *y = sb_graph_value(g, node->outputs[0]);

    /* A batch that was freed for calibration is a number in the file again. */
    if ((x->rank != 2 && !shape_fixed(x) && qm->file_batch == 0) ||
        w->rank != 2 || y->n_uses != 1 || y->is_output)
        return false;
    sb_node_id id = y->uses[0].node;
    const sb_node *add = sb_graph_node(g, id);
    if (!sb_node_adds(add) || sb_quantizer_on(qm, id, 0) ||
        sb_quantizer_on(qm, id, 1))
        return false;
    *out = (sb_use){id, 1 - y->uses[0].input};
    const sb_shape *b = &sb_graph_value(g, add->inputs[out->input])->type.shape;
    return b->rank == 1 && b->dim[0] == w->dim[1];
}

bool sb_biased_layer_find(const sb_quant_model *qm, const sb_quantizer *w,
                          sb_biased_layer *out)
{
    int64_t n_scales = sb_quantizer_qparams(qm, w)->n;

    if (w->spec.kind != SB_QUANT_WEIGHT || w->n_uses != 1 || n_scales == 0 ||
        w->block > 0)
        return false;
    sb_node_id id = w->uses[0].node;
    const sb_node *node = sb_graph_node(qm->graph, id);
    const sb_target_op *row = sb_target_op_find(qm->target, node);
    if (!row || row->weight != w->uses[0].input)
        return false;
    sb_use use = {id, row->bias};
    if (row->bias == 0 && (!row->bias_behind || !find_behind(qm, node, &use)))
        return false;
    *out = (sb_biased_layer){
        .x = sb_quantizer_on(qm, id, 0),
        .w = w,
        .bias = sb_node_in(sb_graph_node(qm->graph, use.node), use.input),
        .use = use};
    if (!out->x || sb_quantizer_qparams(qm, out->x)->n != 1 ||
        !sb_is_const(qm->graph, out->bias))
        return false;
    const sb_tensor *b = sb_overlay_constant(qm, out->bias);
    out->n = sb_tensor_count(b);
    return b->dtype == SB_DTYPE_F32 && b->rank == 1 &&
           (n_scales == 1 || n_scales == out->n) &&
           sb_node_float(node, "alpha", 1) == 1 &&
           sb_node_float(node, "beta", 1) == 1;
}

float sb_biased_layer_scale(const sb_quant_model *qm, const sb_biased_layer *l,
                            int64_t i)
{
    const sb_qparams *w = sb_quantizer_qparams(qm, l->w);

    return sb_quantizer_qparams(qm, l->x)->scale[0] *
           w->scale[w->n == 1 ? 0 : i];
}

/* Layers that share the weight share its scale. */
static void fit_bias_enlarge(sb_quant_model *qm, const sb_quantizer *w,
                             int64_t c, float scale)
{
    int64_t n = sb_quantizer_qparams(qm, w)->n;
    const sb_quantizer *q;

    for (uint32_t i = qm->place.points[w->point].head; i != SB_NONE;
         i = q->next) {
        q = &qm->place.quantizers[i];
        if (sb_quantizer_qparams(qm, q)->n == n)
            sb_quantizer_state_of(qm, q)->qparams.scale[c] = scale;
    }
}

static void fit_bias_layer(sb_quant_model *qm, const sb_biased_layer *l)
{
    /* A scale that is enlarged leaves 1e-4 of the integers free, far more than
     * the rounding of scales to float32 (6e-8) can take.  Half of it is asked
     * for: what was enlarged once, and read from a file, is left alone. */
    const double room = 1.0001, half_room = 1.00005;
    const sb_tensor *b = sb_overlay_constant(qm, l->bias);
    double x = (double)sb_quantizer_qparams(qm, l->x)->scale[0];

    for (int64_t i = 0; i < l->n; i++) {
        double most = fabs(sb_tensor_get_f64(b, i));
        double least = room * 2 * most / (4294967296.0 - 2);
        float scale = (float)(least / x);
        if (isnormal(scale) &&
            (double)sb_biased_layer_scale(qm, l, i) * half_room < least)
            fit_bias_enlarge(qm, l->w,
                             sb_quantizer_qparams(qm, l->w)->n == 1 ? 0 : i,
                             scale);
    }
}

void sb_calibrate_fit_biases(sb_quant_model *qm)
{
    if (qm->target->bias != SB_BIAS_INT32)
        return;
    for (size_t k = 0; k < qm->place.n_quantizers; k++) {
        sb_biased_layer l;

        if (sb_biased_layer_find(qm, &qm->place.quantizers[k], &l))
            fit_bias_layer(qm, &l);
    }
}
