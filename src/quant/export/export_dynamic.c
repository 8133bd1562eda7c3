/* Layers whose activations are quantized at each run (export.h), written as
 * ONNX Runtime's own tool writes them, so that it fuses them the same way: one
 * DynamicQuantizeLinear a value, then for each layer
 *
 *     integer product -> Cast -> Mul by s_x * s_w [-> Add bias]
 *
 * Gemm becomes MatMulInteger; its weight lies as [K, N] already
 * (canonicalize_gemm.c). */
#include "ops/op_registry.h"
#include "passes/rewrite.h"
#include "quant/export/export.h"
#include "quant/model/simulate.h"
#include "quant/model/weight.h"
#include "quant/place/place.h"

/* ---- one layer ---------------------------------------------------------- */

typedef struct layer {
    const sb_quant_model *qm;
    sb_graph *g;
    const sb_quantizer *w;
    const char *kernel;
    sb_node_id id;
    int n_tail; /* dimensions of the result behind its channels */
    sb_value_id x[3];
} layer;

/* What is added is named after the weight, so that a file which is read and
 * written again has the same names. */
static const char *weight_name(const layer *l)
{
    return sb_graph_value(l->qm->graph, l->w->value)->name;
}

static sb_status export_dynamic_add(const layer *l, const char *op,
                                    const sb_value_id *in, size_t n_in,
                                    const char *suffix, sb_dtype dtype,
                                    sb_value_id *out)
{
    const sb_node_spec spec = {.op = op, .inputs = in, .n_in = n_in};

    SB_TRY(
        sb_export_node(l->g, l->id, &spec, in[0], weight_name(l), suffix, out));
    sb_graph_value(l->g, *out)->type =
        (sb_type){.dtype = dtype, .shape = {.rank = -1}};
    return SB_OK;
}

/* [n] floats that broadcast against the result: n, then a 1 for each
 * dimension behind the channels; a scalar if n is 1. */
static sb_status add_channels(const layer *l, const char *base,
                              const char *suffix, int64_t n, const float *v,
                              sb_value_id *out)
{
    int64_t dims[SB_MAX_RANK] = {n};

    for (int i = 1; i <= l->n_tail; i++)
        dims[i] = 1;
    const sb_tensor like =
        sb_tensor_make(SB_DTYPE_F32, n == 1 ? 0 : 1 + l->n_tail, dims);
    return sb_export_array(l->g, base, suffix, &like, v, out);
}

/* Scale and zero point of a convolution's weight.  ConvInteger has one zero
 * point; symmetric ones are all the same. */
static sb_status add_conv_params(const layer *l, sb_value_id *scale,
                                 sb_value_id *zero)
{
    const sb_qparams *p = sb_quantizer_qparams(l->qm, l->w);
    sb_integer_type type = sb_quantizer_type(l->qm, l->w);
    const sb_tensor scalar = sb_tensor_make(type.dtype, 0, NULL);
    uint8_t byte = (uint8_t)((int)p->zero_point[0] + type.offset);

    SB_TRY(add_channels(l, weight_name(l), "_scale", p->n, p->scale, scale));
    return sb_export_array(l->g, weight_name(l), "_zero_point", &scalar, &byte,
                           zero);
}

/* Integers, scale and zero point of the weight. */
static sb_status add_weight(const layer *l, sb_value_id *out)
{
    sb_tensor w;

    SB_TRY(sb_quantizer_integers(l->qm, l->w, &w));
    sb_status status =
        sb_export_constant(l->g, weight_name(l), "_quantized", &w, &out[0]);
    sb_tensor_drop(&w);
    if (status != SB_OK)
        return status;
    if (l->n_tail > 0)
        return add_conv_params(l, &out[1], &out[2]);
    return sb_export_params(l->g, l->qm, l->w, &out[1], &out[2]);
}

/* The integer product, with the attributes of the layer. */
static sb_status add_product(const layer *l, const sb_value_id *w,
                             sb_value_id *out)
{
    const sb_value_id in[] = {l->x[0], w[0], l->x[2], w[2]};

    SB_TRY(
        export_dynamic_add(l, l->kernel, in, 4, "_product", SB_DTYPE_I32, out));
    if (!sb_node_flag(sb_graph_node(l->g, l->id), SB_OP_CONV))
        return SB_OK;
    sb_node_id made = sb_graph_value(l->g, *out)->producer;
    for (uint32_t i = 0; i < sb_graph_node(l->g, l->id)->n_attrs; i++) {
        sb_attr attr = sb_graph_node(l->g, l->id)->attrs[i];
        SB_TRY(sb_graph_set_attr(l->g, made, &attr));
    }
    return SB_OK;
}

/* The bias as something to be added to the result; SB_NONE if there is
 * none. */
static sb_status add_bias(const layer *l, sb_value_id *out)
{
    *out = sb_node_in(sb_graph_node(l->g, l->id), 2);
    if (*out == SB_NONE || l->n_tail == 0)
        return SB_OK;
    int64_t shape[SB_MAX_RANK] = {-1};
    for (int i = 1; i <= l->n_tail; i++)
        shape[i] = 1;
    const sb_value *b = sb_graph_value(l->g, *out);
    if (b->is_constant && b->constant.dtype == SB_DTYPE_F32)
        return add_channels(l, b->name, "_channels",
                            sb_tensor_count(&b->constant), b->constant.data,
                            out);
    sb_value_id in[2] = {*out};
    int64_t rank = 1 + l->n_tail;
    const sb_tensor like = sb_tensor_make(SB_DTYPE_I64, 1, &rank);
    SB_TRY(sb_export_array(l->g, b->name, "_shape", &like, shape, &in[1]));
    return export_dynamic_add(l, "Reshape", in, 2, "_bias", SB_DTYPE_F32, out);
}

static sb_status write_layer(const layer *l)
{
    sb_value_id w[3], sum = SB_NONE, scale = SB_NONE, bias = SB_NONE;
    sb_node_id node = SB_NONE;

    SB_TRY(add_weight(l, w));
    SB_TRY(add_product(l, w, &sum));
    SB_TRY(export_dynamic_add(l, "Cast", &sum, 1, "_product_float",
                              SB_DTYPE_F32, &sum));
    SB_TRY(sb_graph_set_attr_int(l->g, sb_graph_value(l->g, sum)->producer,
                                 "to", SB_DTYPE_F32));
    const sb_value_id scales[] = {l->x[1], w[1]};
    SB_TRY(export_dynamic_add(l, "Mul", scales, 2, "_product_scale",
                              SB_DTYPE_F32, &scale));
    SB_TRY(add_bias(l, &bias));
    sb_value_id in[] = {sum, scale};
    if (bias == SB_NONE)
        return sb_rewrite_node(l->g, l->id, "Mul", in, 2, &node);
    SB_TRY(
        export_dynamic_add(l, "Mul", in, 2, "_scaled", SB_DTYPE_F32, &in[0]));
    in[1] = bias;
    return sb_rewrite_node(l->g, l->id, "Add", in, 2, &node);
}

/* ---- all of them -------------------------------------------------------- */

sb_status sb_export_dynamic(const sb_quant_model *qm, sb_graph *g)
{
    sb_value_id(*made)[3] =
        sb_alloc(qm->ctx, qm->place.n_points + 1, sizeof *made); /* by point */
    sb_status status = made ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; status == SB_OK && i < qm->place.n_points; i++)
        made[i][0] = SB_NONE;
    for (size_t i = 0; status == SB_OK && i < qm->place.n_quantizers; i++) {
        const sb_quantizer *w = &qm->place.quantizers[i];

        if (w->spec.dynamic || !sb_quantizer_is_dynamic(qm, w))
            continue;
        const sb_node *node = sb_graph_node(qm->graph, w->uses[0].node);
        if (sb_node_role(node) == SB_ROLE_RECURRENT) { /* both at once */
            if (w->uses[0].input == 1)
                status = sb_export_recurrent(
                    qm, g, w, sb_quantizer_on(qm, w->uses[0].node, 2));
            continue;
        }
        layer l = {.qm = qm,
                   .g = g,
                   .w = w,
                   .id = w->uses[0].node,
                   .kernel = sb_dynamic_kernel(qm->graph, node)};
        if (sb_node_flag(node, SB_OP_CONV))
            l.n_tail = sb_graph_value(g, w->value)->constant.rank - 2;
        const sb_quantizer *x = sb_quantizer_on(qm, l.id, 0);
        if (made[x->point][0] == SB_NONE)
            status = sb_quant_put_dynamic(
                g, l.id, x->value, sb_graph_value(qm->graph, x->value)->name,
                made[x->point]);
        for (int k = 0; k < 3; k++)
            l.x[k] = made[x->point][k];
        if (status == SB_OK)
            status = write_layer(&l);
    }
    sb_free(qm->ctx, made);
    return status;
}
