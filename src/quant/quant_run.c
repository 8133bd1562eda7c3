/* Running a quantized model: derive the graph that the present state asks for,
 * lower it, keep its executor until the state changes. */
#include <string.h>

#include "graph/op.h"
#include "passes/pass.h"
#include "quant/dynamic.h"

void sb_quant_run_drop(sb_quant_model *qm)
{
    sb_exec_free(qm->run.exec);
    sb_graph_free(qm->run.graph);
    sb_free(qm->ctx, qm->run.inputs);
    sb_free(qm->ctx, qm->run.outputs);
    qm->run = (sb_quant_run){0};
}

void sb_quant_model_set_quant(sb_quant_model *qm, int weights, int features)
{
    sb_quant_run_drop(qm);
    qm->weights_on = weights != 0;
    qm->features_on = features != 0;
}

/* ---- simulation --------------------------------------------------------- */

void sb_quantizer_map_weight(const sb_quantizer *q, const sb_tensor *w,
                             float *to)
{
    sb_convert(w->dtype, w->data, SB_DTYPE_F32, to, (size_t)sb_tensor_count(w));
    if (q->def->map_weight)
        q->def->map_weight(to, sb_tensor_count(w));
}

sb_status sb_quantizer_weight(const sb_quant_model *qm, const sb_quantizer *q,
                              sb_tensor *out)
{
    const sb_tensor *w = &sb_graph_value(qm->graph, q->value)->constant;
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, w->rank, w->dims);

    SB_TRY(sb_tensor_alloc_raw(qm->ctx, &t));
    sb_quantizer_map_weight(q, w, t.data);
    *out = t;
    return SB_OK;
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
    sb_status status =
        sb_graph_add_value_like(g, sb_graph_value(g, x)->name, out);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, *out, &w);
    sb_tensor_drop(&w);
    return status;
}

static sb_status add_params(sb_graph *g, const sb_quantizer *q,
                            const sb_value *x, sb_value_id *scale,
                            sb_value_id *zero)
{
    const sb_qparams *p = &q->qparams;
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

sb_status sb_quant_put_fake(const sb_quant_model *qm, sb_graph *g,
                            uint32_t site, sb_node_id like, sb_value_id x,
                            sb_value_id *y)
{
    const sb_quantizer *q = &qm->quantizers[qm->sites[site].first];
    sb_value_id in[3] = {x};

    if (sb_quantizer_is_constant(qm, q))
        SB_TRY(mapped_weight(qm, q, g, x, &in[0]));
    else if (q->def->map_feature)
        SB_TRY(q->def->map_feature(g, like, x, &in[0]));
    SB_TRY(add_params(g, q, sb_graph_value(g, x), &in[1], &in[2]));
    const sb_attr attrs[] = {
        {.name = "qmin", .type = SB_ATTR_INT, .i = q->qparams.qmin},
        {.name = "qmax", .type = SB_ATTR_INT, .i = q->qparams.qmax},
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
    return sb_quant_add_node(g, like, &spec, x, y);
}

static sb_status put_enabled(void *user, sb_graph *g, uint32_t site,
                             sb_node_id like, sb_value_id x, sb_value_id *y)
{
    const sb_quant_model *qm = user;
    const sb_quantizer *q = &qm->quantizers[qm->sites[site].first];

    *y = x;
    if (!sb_quantizer_enabled(qm, q))
        return SB_OK;
    if (q->spec.dynamic)
        return sb_dynamic_fake(g, like, x, y);
    if (q->qparams.n == 0)
        return sb_fail(qm->ctx, SB_BAD_ARG,
                       "quantizer '%s' has no scale yet: calibrate before "
                       "switching quantization on",
                       q->name);
    return sb_quant_put_fake(qm, g, site, like, x, y);
}

/* The graph with FakeQuant nodes for the quantizers that are on; SB_BAD_ARG if
 * their scales are not known yet. */
static sb_status simulated(const sb_quant_model *qm, sb_graph **out)
{
    /* The function changes nothing behind the pointer. */
    return sb_quant_derive(qm, put_enabled, (void *)(uintptr_t)qm, out);
}

/* ---- forward ------------------------------------------------------------ */

static sb_status make_exec(sb_quant_model *qm)
{
    sb_exec_options opt = {.exact = qm->exact};
    sb_pass_result *results = NULL;
    size_t n = 0;

    if (qm->calibrating)
        SB_TRY(sb_calibrate_graph(qm, &opt, &qm->run.graph));
    else
        SB_TRY(simulated(qm, &qm->run.graph));
    SB_TRY(sb_passes_run(qm->run.graph, "lower", NULL, &results, &n));
    sb_free(qm->ctx, results);
    return sb_exec_create(qm->ctx, qm->run.graph, &opt, &qm->run.exec);
}

static sb_status make_run(sb_quant_model *qm)
{
    const sb_graph *g = qm->graph;

    if (!qm->blocks) {
        SB_TRY(make_exec(qm));
        g = qm->run.graph;
    }
    qm->run.inputs = sb_alloc(qm->ctx, g->n_inputs, sizeof(sb_tensor *));
    qm->run.outputs = sb_alloc(qm->ctx, g->n_outputs, sizeof(sb_tensor *));
    return qm->run.inputs && qm->run.outputs ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_quant_model_forward(sb_quant_model *qm,
                                 const sb_tensor *const *inputs,
                                 const sb_tensor **outputs)
{
    const sb_graph *g = qm->graph;
    size_t given = 0;

    if (!qm->run.inputs) {
        sb_status status = make_run(qm);
        if (status != SB_OK) {
            sb_quant_run_drop(qm);
            return status;
        }
    }
    for (size_t i = 0; i < g->n_inputs; i++) /* defaults stand */
        qm->run.inputs[i] = sb_graph_value(g, g->inputs[i])->is_constant
                                ? NULL
                                : inputs[given++];
    if (qm->blocks) {
        SB_TRY(sb_blocks_take(qm->blocks, qm->run.inputs));
    } else {
        SB_TRY(
            sb_exec_run(qm->run.exec, qm->run.inputs, NULL, qm->run.outputs));
        if (qm->calibrating)
            sb_obs_room_settle(qm->ctx, &qm->room);
    }
    memcpy(outputs, qm->run.outputs, g->n_outputs * sizeof *outputs);
    return SB_OK;
}
