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
#include <string.h>

#include "passes/rewrite.h"
#include "quant/export.h"

/* A layer whose activation, weight and bias are all there. */
typedef struct biased {
    const sb_quantizer *x;
    sb_quantizer *w;
    sb_value_id bias;
    sb_use use; /* the edge of the bias */
    int64_t n;  /* elements of the bias */
} biased;

static sb_quantizer *find_on(const sb_quant_model *qm, sb_node_id node,
                             uint32_t input)
{
    for (size_t i = 0; i < qm->n_quantizers; i++) {
        sb_quantizer *q = &qm->quantizers[i];
        for (size_t k = 0; k < q->n_uses; k++)
            if (q->uses[k].node == node && q->uses[k].input == input &&
                !q->fake_fused)
                return q;
    }
    return NULL;
}

static bool shape_fixed(const sb_shape *s)
{
    for (int i = 0; i < s->rank; i++)
        if (!sb_dim_known(s->dim[i]))
            return false;
    return s->rank >= 0;
}

/* The edge of a bias in an Add that is the only reader of the product, and is
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
    if (!sb_node_is(add, "Add") || find_on(qm, id, 0) || find_on(qm, id, 1))
        return false;
    *out = (sb_use){id, 1 - y->uses[0].input};
    const sb_shape *b = &sb_graph_value(g, add->inputs[out->input])->type.shape;
    return b->rank == 1 && b->dim[0] == w->dim[1];
}

/* The layer of a weight quantizer, if its bias can be written as integers. */
static bool find_biased(const sb_quant_model *qm, sb_quantizer *w, biased *out)
{
    if (w->spec.kind != SB_QUANT_WEIGHT || w->n_uses != 1 ||
        w->qparams.n == 0 || w->block > 0)
        return false;
    sb_node_id id = w->uses[0].node;
    const sb_node *node = sb_graph_node(qm->graph, id);
    const sb_target_op *row = sb_target_op_find(qm->target, node);
    if (!row || row->weight != w->uses[0].input)
        return false;
    sb_use use = {id, row->bias};
    if (row->bias == 0 && (!row->bias_behind || !find_behind(qm, node, &use)))
        return false;
    *out = (biased){
        .x = find_on(qm, id, 0),
        .w = w,
        .bias = sb_node_in(sb_graph_node(qm->graph, use.node), use.input),
        .use = use};
    if (!out->x || out->x->qparams.n != 1 || !sb_is_const(qm->graph, out->bias))
        return false;
    const sb_tensor *b = &sb_graph_value(qm->graph, out->bias)->constant;
    out->n = sb_tensor_count(b);
    return b->dtype == SB_DTYPE_F32 && b->rank == 1 &&
           (w->qparams.n == 1 || w->qparams.n == out->n) &&
           sb_node_float(node, "alpha", 1) == 1 &&
           sb_node_float(node, "beta", 1) == 1;
}

static float product(const biased *l, int64_t i)
{
    return l->x->qparams.scale[0] *
           l->w->qparams.scale[l->w->qparams.n == 1 ? 0 : i];
}

/* Layers that share the weight share its scale. */
static void enlarge(sb_quant_model *qm, const sb_quantizer *w, int64_t c,
                    float scale)
{
    for (size_t i = 0; i < qm->n_quantizers; i++) {
        sb_quantizer *q = &qm->quantizers[i];
        if (q->site == w->site && q->qparams.n == w->qparams.n)
            q->qparams.scale[c] = scale;
    }
}

void sb_quant_fit_biases(sb_quant_model *qm)
{
    for (size_t k = 0; k < qm->n_quantizers; k++) {
        biased l;

        if (!find_biased(qm, &qm->quantizers[k], &l))
            continue;
        const sb_tensor *b = &sb_graph_value(qm->graph, l.bias)->constant;
        for (int64_t i = 0; i < l.n; i++) {
            double most = fabs(sb_tensor_get_f64(b, i));
            double least = 1.0001 * 2 * most / (4294967296.0 - 2);
            int64_t c = l.w->qparams.n == 1 ? 0 : i;
            /* Some room is made, not asked for: what was enlarged once, and
             * read from a file, is left alone. */
            float scale = (float)(least / (double)l.x->qparams.scale[0]);
            if (isnormal(scale) && (double)product(&l, i) * 1.00005 < least)
                enlarge(qm, l.w, c, scale);
        }
    }
}

/* What is read back is a float again; large integers are those of that float,
 * so that they come out the same the next time. */
static int32_t bias_integer(float b, float scale)
{
    int32_t q = 0;

    for (int i = 0; i < 8; i++) {
        double r = rint((double)b / (double)scale);
        int32_t next = (int32_t)fmin(fmax(r, -2147483647.0), 2147483647.0);
        if (next == q)
            break;
        q = next;
        b = (float)q * scale;
    }
    return q;
}

static sb_status add_bias(const sb_quant_model *qm, sb_graph *g,
                          const biased *l)
{
    const sb_value *bias = sb_graph_value(qm->graph, l->bias);
    size_t n = (size_t)l->n, n_scale = (size_t)l->w->qparams.n;
    int64_t dims[] = {l->w->qparams.n}, full[] = {l->n};
    int32_t *q = sb_alloc(qm->ctx, n, sizeof *q);
    int32_t *zero = sb_alloc(qm->ctx, n_scale, sizeof *zero);
    float *scale = sb_alloc(qm->ctx, n_scale, sizeof *scale);
    int rank = l->w->qparams.n == 1 ? 0 : 1;
    sb_value_id in[3], y = SB_NONE;
    sb_status status = q && zero && scale ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; status == SB_OK && i < n; i++)
        q[i] =
            bias_integer((float)sb_tensor_get_f64(&bias->constant, (int64_t)i),
                         product(l, (int64_t)i));
    for (size_t i = 0; status == SB_OK && i < n_scale; i++)
        scale[i] = product(l, (int64_t)i);
    const sb_tensor ints = sb_tensor_make(SB_DTYPE_I32, 1, full);
    const sb_tensor params = sb_tensor_make(SB_DTYPE_F32, rank, dims);
    const sb_tensor zeros = sb_tensor_make(SB_DTYPE_I32, rank, dims);
    if (status == SB_OK)
        status = sb_export_array(g, bias->name, "_quantized", &ints, q, &in[0]);
    if (status == SB_OK)
        status =
            sb_export_array(g, bias->name, "_scale", &params, scale, &in[1]);
    if (status == SB_OK)
        status =
            sb_export_array(g, bias->name, "_zero_point", &zeros, zero, &in[2]);
    const sb_attr axis = {.name = "axis", .type = SB_ATTR_INT, .i = 0};
    const sb_node_spec spec = {.op = "DequantizeLinear",
                               .inputs = in,
                               .n_in = 3,
                               .attrs = &axis,
                               .n_attrs = 1};
    if (status == SB_OK)
        status = sb_export_node(g, l->use.node, &spec, l->bias, bias->name,
                                "_dequantized", &y);
    if (status == SB_OK)
        status = sb_graph_set_input(g, l->use.node, l->use.input, y);
    sb_free(qm->ctx, q);
    sb_free(qm->ctx, zero);
    sb_free(qm->ctx, scale);
    return status;
}

sb_status sb_export_biases(const sb_quant_model *qm, sb_graph *g)
{
    if (qm->target->bias != SB_BIAS_INT32)
        return SB_OK;
    for (size_t k = 0; k < qm->n_quantizers; k++) {
        biased l;

        if (find_biased(qm, &qm->quantizers[k], &l))
            SB_TRY(add_bias(qm, g, &l));
    }
    return SB_OK;
}
