/* Simulation: FakeQuant nodes on the edges of quantizers that are on. */
#include "quant/model/simulate.h"

#include "graph/op.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"
#include "quant/model/weight.h"

/* A constant of `g` in place of `x`; takes the tensor. */
static sb_status put_constant(sb_graph *g, sb_value_id x, sb_tensor *t,
                              sb_value_id *out)
{
    sb_status status =
        sb_graph_add_value_like(g, sb_graph_value(g, x)->name, out);

    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, t);
    sb_tensor_drop(t);
    return status;
}

/* The weight in the quantizer's domain as a constant of `g`; as it is if that
 * changes nothing. */
static sb_status mapped_weight(const sb_quant_model *qm, const sb_quantizer *q,
                               sb_graph *g, sb_value_id x, sb_value_id *out)
{
    sb_tensor w;

    *out = x;
    if (!q->def->map_weight)
        return SB_OK;
    SB_TRY(sb_quantizer_weight(qm, q, &w));
    return put_constant(g, x, &w, out);
}

static sb_status add_params(sb_graph *g, const sb_quantizer *q,
                            const sb_qparams *p, const sb_value *x,
                            sb_value_id *scale, sb_value_id *zero)
{
    int64_t dims[SB_MAX_RANK] = {p->n};
    int rank = q->axis >= 0 ? 1 : 0;

    if (q->block > 0) { /* blocked: the rank of the weight */
        rank = x->constant.rank;
        for (int i = 0; i < rank; i++)
            dims[i] = x->constant.dims[i];
        dims[q->axis] = (dims[q->axis] + q->block - 1) / q->block;
    }
    SB_TRY(sb_graph_add_constant(g, "scale", SB_DTYPE_F32, rank, dims, p->scale,
                                 scale));
    return sb_graph_add_constant(g, "zero_point", SB_DTYPE_F32, rank, dims,
                                 p->zero_point, zero);
}

/* A weight whose zero points are no whole numbers is rounded here. */
static sb_status put_rounded(const sb_quant_model *qm, const sb_quantizer *q,
                             sb_graph *g, sb_value_id x, sb_value_id *y)
{
    sb_tensor t;

    SB_TRY(sb_quantizer_rounded(qm, q, &t));
    return put_constant(g, x, &t, y);
}

sb_status sb_quant_put_fake(const sb_quant_model *qm, sb_graph *g,
                            uint32_t point, sb_node_id beside, sb_value_id x,
                            sb_value_id *y)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    sb_value_id in[3] = {x};

    if (q->blocks)
        return put_rounded(qm, q, g, x, y);
    if (sb_quantizer_is_constant(qm, q))
        SB_TRY(mapped_weight(qm, q, g, x, &in[0]));
    else if (q->def->map_activation)
        SB_TRY(q->def->map_activation(&q->spec, g, beside, x, &in[0]));
    SB_TRY(add_params(g, q, p, sb_graph_value(g, x), &in[1], &in[2]));
    const sb_attr attrs[] = {
        {.name = "qmin", .type = SB_ATTR_INT, .i = p->qmin},
        {.name = "qmax", .type = SB_ATTR_INT, .i = p->qmax},
        {.name = "axis", .type = SB_ATTR_INT, .i = q->axis < 0 ? 0 : q->axis},
        {.name = "block_size", .type = SB_ATTR_INT, .i = q->block},
    };
    const sb_node_spec spec = {
        .op = "FakeQuant",
        .domain = SB_FUSED_DOMAIN,
        .name = q->name,
        .inputs = in,
        .n_in = 3,
        .attrs = attrs,
        .n_attrs = SB_COUNT(attrs),
    };
    return sb_quant_add_node(g, beside, &spec, x, y);
}

sb_status sb_quant_put_dynamic(sb_graph *g, sb_node_id beside, sb_value_id x,
                               const char *name, sb_value_id out[3])
{
    static const char *const suffix[] = {"_quantized", "_scale", "_zero_point"};
    static const sb_dtype dtype[] = {SB_DTYPE_U8, SB_DTYPE_F32, SB_DTYPE_U8};
    sb_node_id node = SB_NONE;

    for (int i = 0; i < 3; i++) {
        SB_TRY(sb_quant_add_value(g, name, suffix[i], &out[i]));
        sb_graph_value(g, out[i])->type.dtype = dtype[i];
    }
    sb_graph_value(g, out[0])->type.shape = sb_graph_value(g, x)->type.shape;
    const sb_node_spec spec = {
        .op = "DynamicQuantizeLinear",
        .module = sb_graph_node(g, beside)->module,
        .inputs = &x,
        .n_in = 1,
        .outputs = out,
        .n_out = 3,
        .position = sb_graph_node(g, beside)->position,
    };
    return sb_graph_add_node(g, &spec, &node);
}

/* *y is `x` as the integers of this run hold it. */
static sb_status put_dynamic_pair(sb_graph *g, sb_node_id beside, sb_value_id x,
                                  sb_value_id *y)
{
    sb_value_id in[3] = {SB_NONE, SB_NONE, SB_NONE};
    const sb_node_spec spec = {
        .op = "DequantizeLinear", .inputs = in, .n_in = 3};

    SB_TRY(sb_quant_put_dynamic(g, beside, x, sb_graph_value(g, x)->name, in));
    return sb_quant_add_node(g, beside, &spec, x, y);
}

sb_status sb_quant_put_simulated(const sb_quant_model *qm, sb_graph *g,
                                 uint32_t point, sb_node_id beside,
                                 sb_value_id x, sb_value_id *y)
{
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);

    if (q->spec.dynamic)
        return put_dynamic_pair(g, beside, x, y);
    if (sb_quantizer_qparams(qm, q)->n == 0)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "quantizer '%s' has no scale yet: calibrate before "
                       "switching quantization on",
                       q->name);
    return sb_quant_put_fake(qm, g, point, beside, x, y);
}

static sb_status put_enabled(void *user, sb_graph *g, uint32_t point,
                             sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    const sb_quant_model *qm = user;

    *y = x;
    return sb_quantizer_enabled(qm, sb_point_quantizer(&qm->place, point))
               ? sb_quant_put_simulated(qm, g, point, beside, x, y)
               : SB_OK;
}

sb_status sb_quant_simulated(const sb_quant_model *qm, sb_graph **out)
{
    /* The function changes nothing behind the pointer. */
    SB_TRY(sb_quant_derive(qm, put_enabled, (void *)(uintptr_t)qm, out));
    sb_status status = qm->run.weights_on ? sb_overlay_apply(qm, *out) : SB_OK;
    if (status != SB_OK) {
        sb_graph_free(*out);
        *out = NULL;
    }
    return status;
}
