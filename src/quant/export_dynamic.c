/* Layers whose activations are quantized at each run (dynamic.h), written as
 * ONNX Runtime's own tool writes them, so that it fuses them the same way: one
 * DynamicQuantizeLinear a value, then for each layer
 *
 *     integer product -> Cast -> Mul by s_x * s_w [-> Add bias]
 *
 * Gemm becomes MatMulInteger; its weight lies as [K, N] already
 * (straight_gemm.c). */
#include "passes/rewrite.h"
#include "quant/dynamic.h"
#include "quant/export.h"

const char *sb_dynamic_kernel(const sb_graph *g, const sb_node *node)
{
    sb_value_id x = sb_node_in(node, 0), w = sb_node_in(node, 1);

    if (!sb_is_const(g, w) || x == SB_NONE ||
        sb_graph_value(g, x)->type.dtype != SB_DTYPE_F32)
        return NULL;
    int rank = sb_graph_value(g, w)->constant.rank;
    if (sb_node_is(node, "Conv"))
        return rank >= 3 ? "ConvInteger" : NULL;
    if (rank != 2)
        return NULL;
    if (sb_node_is(node, "MatMul"))
        return "MatMulInteger";
    /* What could not be straightened stays. */
    if (sb_node_is(node, "Gemm") && sb_node_int(node, "transA", 0) == 0 &&
        sb_node_int(node, "transB", 0) == 0 &&
        sb_node_float(node, "alpha", 1) == 1 &&
        sb_node_float(node, "beta", 1) == 1)
        return "MatMulInteger";
    return NULL;
}

/* The quantizer on an input of a node, NULL if there is none or it is never
 * on. */
static const sb_quantizer *quantizer_on(const sb_quant_model *qm,
                                        sb_node_id node, uint32_t input)
{
    for (size_t i = 0; i < qm->n_quantizers; i++) {
        const sb_quantizer *q = &qm->quantizers[i];
        for (size_t k = 0; k < q->n_uses && !q->fake_fused; k++)
            if (q->uses[k].node == node && q->uses[k].input == input)
                return q;
    }
    return NULL;
}

bool sb_quantizer_is_dynamic(const sb_quant_model *qm, const sb_quantizer *q)
{
    const sb_quantizer *x;

    if (q->spec.dynamic)
        return true;
    if (q->n_uses == 0 || q->uses[0].input != 1)
        return false;
    x = quantizer_on(qm, q->uses[0].node, 0);
    return x && x->spec.dynamic;
}

/* ---- one value ---------------------------------------------------------- */

/* Integers, scale and zero point of `x`, a value called `name`, into out[3]. */
static sb_status quantize(sb_graph *g, sb_node_id like, sb_value_id x,
                          const char *name, sb_value_id *out)
{
    static const char *const suffix[] = {"_quantized", "_scale", "_zero_point"};
    static const sb_dtype dtype[] = {SB_DTYPE_U8, SB_DTYPE_F32, SB_DTYPE_U8};
    sb_node_id node = SB_NONE;

    for (int i = 0; i < 3; i++) {
        SB_TRY(sb_export_value(g, name, suffix[i], &out[i]));
        sb_graph_value(g, out[i])->type.dtype = dtype[i];
    }
    sb_graph_value(g, out[0])->type.shape = sb_graph_value(g, x)->type.shape;
    const sb_node_spec spec = {
        .op = "DynamicQuantizeLinear",
        .module = sb_graph_node(g, like)->module,
        .inputs = &x,
        .n_in = 1,
        .outputs = out,
        .n_out = 3,
        .position = sb_graph_node(g, like)->position,
    };
    return sb_graph_add_node(g, &spec, &node);
}

sb_status sb_dynamic_fake(sb_graph *g, sb_node_id like, sb_value_id x,
                          sb_value_id *y)
{
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE};
    const sb_node_spec spec = {
        .op = "DequantizeLinear", .inputs = in, .n_in = 3};

    SB_TRY(quantize(g, like, x, sb_graph_value(g, x)->name, in));
    return sb_quant_add_node(g, like, &spec, x, y);
}

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

static sb_status add(const layer *l, const char *op, const sb_value_id *in,
                     size_t n_in, const char *suffix, sb_dtype dtype,
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
    const sb_qparams *p = &l->w->qparams;
    sb_export_type type = sb_export_type_of(l->qm, l->w);
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

    SB_TRY(sb_export_integers(l->qm, l->w, &w));
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

    SB_TRY(add(l, l->kernel, in, 4, "_product", SB_DTYPE_I32, out));
    if (!sb_node_is(sb_graph_node(l->g, l->id), "Conv"))
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
    return add(l, "Reshape", in, 2, "_bias", SB_DTYPE_F32, out);
}

static sb_status write_layer(const layer *l)
{
    sb_value_id w[3], sum = SB_NONE, scale = SB_NONE, bias = SB_NONE;
    sb_node_id node = SB_NONE;

    SB_TRY(add_weight(l, w));
    SB_TRY(add_product(l, w, &sum));
    SB_TRY(add(l, "Cast", &sum, 1, "_product_float", SB_DTYPE_F32, &sum));
    SB_TRY(sb_graph_set_attr_int(l->g, sb_graph_value(l->g, sum)->producer,
                                 "to", SB_DTYPE_F32));
    const sb_value_id scales[] = {l->x[1], w[1]};
    SB_TRY(add(l, "Mul", scales, 2, "_product_scale", SB_DTYPE_F32, &scale));
    SB_TRY(add_bias(l, &bias));
    sb_value_id in[] = {sum, scale};
    if (bias == SB_NONE)
        return sb_rewrite_node(l->g, l->id, "Mul", in, 2, &node);
    SB_TRY(add(l, "Mul", in, 2, "_scaled", SB_DTYPE_F32, &in[0]));
    in[1] = bias;
    return sb_rewrite_node(l->g, l->id, "Add", in, 2, &node);
}

/* ---- all of them -------------------------------------------------------- */

sb_status sb_export_dynamic(const sb_quant_model *qm, sb_graph *g)
{
    sb_value_id(*made)[3] =
        sb_alloc(qm->ctx, qm->n_sites + 1, sizeof *made); /* by site */
    sb_status status = made ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; status == SB_OK && i < qm->n_sites; i++)
        made[i][0] = SB_NONE;
    for (size_t i = 0; status == SB_OK && i < qm->n_quantizers; i++) {
        const sb_quantizer *w = &qm->quantizers[i];

        if (w->spec.dynamic || !sb_quantizer_is_dynamic(qm, w))
            continue;
        const sb_node *node = sb_graph_node(qm->graph, w->uses[0].node);
        layer l = {.qm = qm,
                   .g = g,
                   .w = w,
                   .id = w->uses[0].node,
                   .kernel = sb_dynamic_kernel(qm->graph, node)};
        if (sb_node_is(node, "Conv"))
            l.n_tail = sb_graph_value(g, w->value)->constant.rank - 2;
        const sb_quantizer *x = quantizer_on(qm, l.id, 0);
        if (made[x->site][0] == SB_NONE)
            status = quantize(g, l.id, x->value,
                              sb_graph_value(qm->graph, x->value)->name,
                              made[x->site]);
        for (int k = 0; k < 3; k++)
            l.x[k] = made[x->site][k];
        if (status == SB_OK)
            status = write_layer(&l);
    }
    sb_free(qm->ctx, made);
    return status;
}
