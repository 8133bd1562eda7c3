/* LSTM layers whose activations are quantized at each run, as com.microsoft
 * DynamicQuantizeLSTM: the node itself rounds what it reads and its hidden
 * state, so nothing stands before it.  Its weights lie as [D, inputs, rows],
 * the transpose of ONNX's, with scales for each direction ([D]) or for each row
 * of each ([D, rows]). */
#include <string.h>

#include "ops/op_registry.h"
#include "quant/export/export.h"
#include "quant/model/weight.h"

/* [D, rows, n] of bytes becomes [D, n, rows]. */
static sb_status turn_weights(sb_ctx *ctx, const sb_tensor *w, sb_tensor *out)
{
    const int64_t dims[] = {w->dims[0], w->dims[2], w->dims[1]};
    const uint8_t *from = w->data;

    *out = sb_tensor_make(w->dtype, 3, dims);
    SB_TRY(sb_tensor_alloc(ctx, out));
    uint8_t *to = out->data;
    for (int64_t d = 0; d < dims[0]; d++)
        for (int64_t i = 0; i < dims[1]; i++)
            for (int64_t r = 0; r < dims[2]; r++)
                *to++ = from[(d * dims[2] + r) * dims[1] + i];
    return SB_OK;
}

static sb_status add_integers(const sb_quant_model *qm, sb_graph *g,
                              const sb_quantizer *q, sb_value_id *out)
{
    const char *name = sb_graph_value(qm->graph, q->value)->name;
    sb_tensor w, t = {0};

    SB_TRY(sb_quantizer_integers(qm, q, &w));
    sb_status status = turn_weights(qm->ctx, &w, &t);
    if (status == SB_OK)
        status = sb_export_constant(g, name, "_quantized", &t, out);
    sb_tensor_drop(&t);
    sb_tensor_drop(&w);
    return status;
}

/* The same numbers for each direction. */
static sb_status add_params(const sb_quant_model *qm, sb_graph *g,
                            const sb_quantizer *q, sb_value_id *scale,
                            sb_value_id *zero)
{
    const char *name = sb_graph_value(qm->graph, q->value)->name;
    const sb_qparams *p = sb_quantizer_qparams(qm, q);
    sb_integer_type type = sb_quantizer_type(qm, q);
    int64_t dirs = sb_graph_value(qm->graph, q->value)->constant.dims[0];
    const int64_t dims[] = {dirs, p->n};
    int rank = q->axis < 0 ? 1 : 2;
    sb_tensor s = sb_tensor_make(SB_DTYPE_F32, rank, dims);
    sb_tensor z = sb_tensor_make(type.dtype, rank, dims);
    sb_status status = sb_tensor_alloc(qm->ctx, &s);

    if (status == SB_OK)
        status = sb_tensor_alloc(qm->ctx, &z);
    for (int64_t i = 0; status == SB_OK && i < dirs * p->n; i++) {
        ((float *)s.data)[i] = p->scale[i % p->n];
        ((uint8_t *)z.data)[i] =
            (uint8_t)((int)p->zero_point[i % p->n] + type.offset);
    }
    if (status == SB_OK)
        status = sb_export_constant(g, name, "_scale", &s, scale);
    if (status == SB_OK)
        status = sb_export_constant(g, name, "_zero_point", &z, zero);
    sb_tensor_drop(&s);
    sb_tensor_drop(&z);
    return status;
}

sb_status sb_export_recurrent(const sb_quant_model *qm, sb_graph *g,
                              const sb_quantizer *w, const sb_quantizer *r)
{
    sb_node_id id = w->uses[0].node;
    const sb_node old = *sb_graph_node(g, id);
    sb_value_id in[12];
    sb_node_spec spec = {.op = sb_op_of(&old)->dynamic,
                         .domain = "com.microsoft",
                         .name = old.name,
                         .module = old.module,
                         .inputs = in,
                         .n_in = SB_COUNT(in),
                         .outputs = old.outputs,
                         .n_out = old.n_out,
                         .attrs = old.attrs,
                         .n_attrs = old.n_attrs,
                         .position = old.position};

    for (uint32_t i = 0; i < 8; i++)
        in[i] = sb_node_in(&old, i);
    SB_TRY(add_integers(qm, g, w, &in[1]));
    SB_TRY(add_integers(qm, g, r, &in[2]));
    SB_TRY(add_params(qm, g, w, &in[8], &in[9]));
    SB_TRY(add_params(qm, g, r, &in[10], &in[11]));
    sb_graph_remove_node(g, id);
    return sb_graph_add_node(g, &spec, &id);
}
