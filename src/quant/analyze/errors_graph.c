/* The graph that measures errors: the float network, the quantized one beside
 * it, next to each quantized layer copies of it on float inputs, and Compare
 * nodes between what should be equal.
 *
 * What is copied comes from the graphs of simulation, whose nodes and values
 * have the numbers of the float graph where they are the same, and higher ones
 * where quantizers were put in between.  Parts that no quantizer reaches are
 * not copied, and what is the same twice (a weight rounded for a copy and for
 * the quantized network) is merged when the graph is lowered. */
#include "graph/op.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "quant/analyze/errors.h"
#include "quant/model/instrument.h"
#include "quant/model/simulate.h"

/* A graph of simulation, and where its values are in the graph being built. */
typedef struct errors_view {
    sb_graph *from;
    sb_value_id *at; /* SB_NONE: not copied yet, or not there */
} errors_view;

/* ---- copying ------------------------------------------------------------- */

/* A value of the float graph that simulation left as it is. */
static bool errors_same(const sb_quant_errors *e, const sb_graph *from,
                        sb_value_id v)
{
    const sb_graph *own = e->qm->graph;

    if (v >= own->n_values)
        return false;
    return !sb_graph_value(from, v)->is_constant ||
           sb_graph_value(from, v)->constant.data ==
               sb_graph_value(own, v)->constant.data;
}

static sb_status copy_constant(sb_quant_errors *e, errors_view *view,
                               sb_value_id v)
{
    const sb_value *from = sb_graph_value(view->from, v);

    SB_TRY(sb_graph_add_value_like(e->graph, from->name, &view->at[v]));
    return sb_graph_set_constant(e->graph, view->at[v], &from->constant);
}

/* Adds a node of the view once more; its inputs are there. */
static sb_status copy_node(sb_quant_errors *e, const errors_view *view,
                           const sb_node *node, sb_value_id *out)
{
    sb_value_id *in =
        sb_alloc(e->ctx, (size_t)node->n_in + node->n_out, sizeof *in);
    sb_node_id id = SB_NONE;
    sb_status status = in ? SB_OK : SB_NO_MEMORY;

    for (uint32_t i = 0; status == SB_OK && i < node->n_in; i++)
        in[i] =
            node->inputs[i] == SB_NONE ? SB_NONE : view->at[node->inputs[i]];
    for (uint32_t i = 0; status == SB_OK && i < node->n_out; i++) {
        out[i] = SB_NONE;
        if (node->outputs[i] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(view->from, node->outputs[i]);
        status = sb_graph_add_value_like(e->graph, v->name, &out[i]);
        if (status == SB_OK)
            sb_graph_value(e->graph, out[i])->type = v->type;
    }
    const sb_node_spec spec = {.op = node->op,
                               .domain = node->domain,
                               .name = node->name,
                               .module = node->module,
                               .inputs = in,
                               .n_in = node->n_in,
                               .outputs = out,
                               .n_out = node->n_out,
                               .attrs = node->attrs,
                               .n_attrs = node->n_attrs,
                               .position = node->position};
    if (status == SB_OK)
        status = sb_graph_add_node(e->graph, &spec, &id);
    if (status == SB_OK)
        sb_graph_node(e->graph, id)->added = node->added;
    sb_free(e->ctx, in);
    return status;
}

/* The same, and the view knows its results. */
static sb_status copy_known(sb_quant_errors *e, errors_view *view,
                            const sb_node *node)
{
    sb_value_id *out = sb_alloc(e->ctx, node->n_out, sizeof *out);
    sb_status status = out ? copy_node(e, view, node, out) : SB_NO_MEMORY;

    for (uint32_t i = 0; status == SB_OK && i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            view->at[node->outputs[i]] = out[i];
    sb_free(e->ctx, out);
    return status;
}

/* ---- a layer alone ------------------------------------------------------- */

/* Brings a value to where a layer on float inputs reads it: what quantizers
 * put in between is copied.  They stand one behind another, a few at most. */
static sb_status async_value(sb_quant_errors *e, errors_view *view,
                             sb_value_id v)
{
    if (v == SB_NONE || view->at[v] != SB_NONE)
        return SB_OK;
    if (errors_same(e, view->from, v)) {
        view->at[v] = v;
        return SB_OK;
    }
    if (sb_graph_value(view->from, v)->is_constant)
        return copy_constant(e, view, v);
    const sb_node *node = sb_graph_producer(view->from, v);
    for (uint32_t i = 0; i < node->n_in; i++)
        SB_TRY(async_value(e, view, node->inputs[i]));
    return copy_known(e, view, node);
}

/* The result of a row with its layer alone quantized. */
static sb_status async_result(sb_quant_errors *e, errors_view *view,
                              const sb_error_row *row, sb_value_id *out)
{
    if (row->node == SB_NONE) { /* an output: what the network returns */
        for (size_t i = 0; i < view->from->n_outputs; i++)
            if (e->qm->graph->outputs[i] == row->value) {
                SB_TRY(async_value(e, view, view->from->outputs[i]));
                *out = view->at[view->from->outputs[i]];
            }
        return SB_OK;
    }
    const sb_node *node = sb_graph_node(view->from, row->node);
    for (uint32_t i = 0; i < node->n_in; i++)
        SB_TRY(async_value(e, view, node->inputs[i]));
    sb_value_id *results = sb_alloc(e->ctx, node->n_out, sizeof *results);
    sb_status status =
        results ? copy_node(e, view, node, results) : SB_NO_MEMORY;
    if (status == SB_OK)
        *out = results[0];
    sb_free(e->ctx, results);
    return status;
}

/* ---- the whole network --------------------------------------------------- */

/* Does it read only what is the same as in the float network?  *there: is all
 * that it reads known? */
static bool sync_same(const sb_quant_errors *e, const errors_view *view,
                      const sb_node *node, bool *there)
{
    bool same = true;

    *there = true;
    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
        sb_value_id v = node->inputs[i];
        if (v == SB_NONE)
            continue;
        *there = *there && view->at[v] != SB_NONE;
        same = same && view->at[v] == v && errors_same(e, view->from, v);
    }
    return same;
}

static sb_status sync_node(sb_quant_errors *e, errors_view *view, sb_node_id id)
{
    const sb_node *node = sb_graph_node(view->from, id);
    const sb_op_def *op = sb_op_of(node);
    bool there, same = sync_same(e, view, node, &there);

    same = same && id < e->qm->graph->n_nodes;
    /* Random numbers are drawn once, for both. */
    if (same || (op && (op->flags & SB_OP_IMPURE))) {
        for (uint32_t i = 0; i < node->n_out; i++)
            if (node->outputs[i] != SB_NONE)
                view->at[node->outputs[i]] = node->outputs[i];
        return SB_OK;
    }
    if (!there || sb_node_body(node, 0))
        return SB_OK;
    return copy_known(e, view, node);
}

/* The quantized network beside the float one. */
static sb_status sync_network(sb_quant_errors *e, errors_view *view)
{
    sb_node_id *order = NULL;
    size_t n = 0;
    sb_status status = SB_OK;

    for (sb_value_id v = 0; v < view->from->n_values && status == SB_OK; v++) {
        const sb_value *value = sb_graph_value(view->from, v);
        if (value->producer != SB_NONE)
            continue;
        if (errors_same(e, view->from, v))
            view->at[v] = v;
        else if (value->is_constant)
            status = copy_constant(e, view, v);
    }
    if (status == SB_OK)
        status = sb_graph_order(view->from, &order, &n);
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = sync_node(e, view, order[i]);
    sb_free(e->ctx, order);
    return status;
}

/* ---- comparisons --------------------------------------------------------- */

/* Where a value comes out of the graph; it becomes an output if it is none. */
static sb_status errors_put_out(sb_quant_errors *e, sb_value_id v, size_t *out)
{
    for (size_t i = 0; i < e->qm->graph->n_outputs; i++)
        if (e->graph->outputs[i] == v) {
            *out = i;
            return SB_OK;
        }
    *out = e->graph->n_outputs;
    return sb_graph_add_output(e->graph, v);
}

static sb_status put_compare(sb_quant_errors *e, const sb_error_row *row,
                             sb_value_id b, size_t *out)
{
    const sb_value_id in[] = {row->value, b};
    sb_value_id y = SB_NONE;
    sb_node_id id = SB_NONE;

    if (b == SB_NONE)
        return SB_OK;
    SB_TRY(sb_graph_add_value_like(e->graph, "sparsebit.error", &y));
    const sb_node *of = sb_graph_producer(e->graph, row->value);
    const sb_node_spec spec = {.op = "Compare",
                               .domain = SB_FUSED_DOMAIN,
                               .inputs = in,
                               .n_in = 2,
                               .outputs = &y,
                               .n_out = 1,
                               .position = of ? of->position : 0};
    SB_TRY(sb_graph_add_node(e->graph, &spec, &id));
    *out = e->graph->n_outputs;
    return sb_graph_add_output(e->graph, y);
}

static sb_status errors_row(sb_quant_errors *e, errors_view *views,
                            sb_error_row *row)
{
    const bool apart = row->info.has_weights && row->info.has_activations;
    const errors_view *sync = &views[SB_ERROR_SYNC];
    sb_value_id y = row->value;

    for (int k = 0; k < (apart ? SB_ERROR_SYNC : SB_ERROR_WEIGHTS); k++) {
        sb_value_id b = SB_NONE;

        SB_TRY(async_result(e, &views[k], row, &b));
        SB_TRY(put_compare(e, row, b, &row->sums[k].output));
    }
    if (row->node == SB_NONE)
        for (size_t i = 0; i < sync->from->n_outputs; i++)
            if (e->qm->graph->outputs[i] == row->value)
                y = sync->from->outputs[i];
    return put_compare(e, row, sync->at[y], &row->sums[SB_ERROR_SYNC].output);
}

static sb_status errors_fill(sb_quant_errors *e, errors_view *views)
{
    const errors_view *sync = &views[SB_ERROR_SYNC];

    SB_TRY(sync_network(e, &views[SB_ERROR_SYNC]));
    for (size_t i = 0; i < e->n_rows; i++)
        SB_TRY(errors_row(e, views, &e->rows[i]));
    for (size_t i = 0; i < e->qm->graph->n_outputs; i++) {
        sb_value_id v = sync->at[sync->from->outputs[i]];
        e->results[i].quantized = SB_NO_INDEX;
        if (v != SB_NONE)
            SB_TRY(errors_put_out(e, v, &e->results[i].quantized));
    }
    return SB_OK;
}

/* ---- the graphs ---------------------------------------------------------- */

/* Which quantizers are on in each of them. */
static sb_status errors_simulate(sb_quant_errors *e)
{
    for (int k = 0; k < SB_ERROR_SYNC; k++) {
        sb_quant_model view = *e->qm; /* borrows all but the two flags */

        view.run.weights_on = k != SB_ERROR_ACTIVATIONS;
        view.run.activations_on = k != SB_ERROR_WEIGHTS;
        SB_TRY(sb_quant_simulated(&view, &e->simulated[k]));
    }
    return SB_OK;
}

/* An Observe node where values are to be counted, or channels looked at. */
static sb_status put_count(void *user, sb_graph *g, uint32_t point,
                           sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    const sb_quant_errors *e = user;

    *y = x;
    if ((!e->counts && e->values[point].axis < 0) ||
        sb_graph_value(g, x)->is_constant ||
        sb_graph_value(g, x)->type.dtype != SB_DTYPE_F32)
        return SB_OK;
    return sb_quant_add_observe(g, beside, point, NULL, x, y);
}

sb_status sb_errors_graph(sb_quant_errors *e)
{
    errors_view views[SB_ERROR_KINDS] = {{0}};
    sb_status status = errors_simulate(e);

    if (status == SB_OK)
        status = sb_quant_derive(e->qm, put_count, e, &e->graph);
    for (int k = 0; k < SB_ERROR_KINDS && status == SB_OK; k++) {
        sb_graph *from = e->simulated[k == SB_ERROR_SYNC ? SB_ERROR_ASYNC : k];

        views[k].from = from;
        views[k].at =
            sb_alloc_raw(e->ctx, from->n_values + 1, sizeof(sb_value_id));
        if (!views[k].at)
            status = SB_NO_MEMORY;
        for (size_t v = 0; views[k].at && v < from->n_values; v++)
            views[k].at[v] = SB_NONE;
    }
    if (status == SB_OK)
        status = errors_fill(e, views);
    for (int k = 0; k < SB_ERROR_KINDS; k++)
        sb_free(e->ctx, views[k].at);
    return status == SB_OK ? sb_passes_run(e->graph, "lower", NULL, NULL, NULL)
                           : status;
}
