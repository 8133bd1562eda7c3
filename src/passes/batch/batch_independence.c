/* Do the samples of a batch keep apart?
 *
 * Shapes alone do not tell.  For one sample, [1, T, C] to [T, 1, C] is a
 * Reshape as much as a Transpose, and simplifying prefers the Reshape, which
 * mixes the samples of a larger batch; so does a mean over the whole tensor.
 * So the axis of the samples is followed from the inputs to the outputs by the
 * rows of operators.  What no row vouches for counts as mixed. */
#include "ops/batch_rules.h"
#include "ops/op_registry.h"
#include "passes/batch/dynamic_batch.h"

static const sb_samples none = {SB_BATCH_NONE, 0};

/* Samples in and out of one node, from and to `at`, by value. */
static bool batch_follow(const sb_graph *g, const sb_node *node, sb_samples *at,
                         sb_samples *in, sb_samples *out)
{
    const sb_op_def *op = sb_op_of(node);
    sb_batch_trace t = {
        .graph = g, .node = node, .op = op, .in = in, .out = out};
    bool any = false, apart = true;

    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
        in[i] = node->inputs[i] == SB_NONE ? none : at[node->inputs[i]];
        any = any || in[i].axis != SB_BATCH_NONE;
    }
    for (uint32_t i = 0; i < node->n_out; i++)
        out[i] = none;
    if (any && op && (op->flags & SB_OP_SHAPE_ONLY))
        any = false;
    if (any && (!op || node->n_implicit > 0))
        apart = false;
    else if (any && op->batch)
        apart = op->batch(&t);
    else if (any)
        apart = (op->flags & SB_OP_ELEMENTWISE) && sb_batch_broadcast(&t);
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            at[node->outputs[i]] = out[i];
    return apart;
}

typedef struct batch_walk {
    sb_samples *at;       /* [value] */
    sb_samples *in, *out; /* of one node */
    sb_node_id *order;
    size_t n_order;
} batch_walk;

static sb_status batch_walk_make(const sb_graph *g, batch_walk *w)
{
    size_t most = 1;

    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];
        size_t n = node->n_in + node->n_implicit + node->n_out;
        most = n > most ? n : most;
    }
    w->at = sb_alloc(g->ctx, g->n_values + 1, sizeof *w->at);
    w->in = sb_alloc(g->ctx, most, sizeof *w->in);
    w->out = sb_alloc(g->ctx, most, sizeof *w->out);
    if (!w->at || !w->in || !w->out)
        return SB_NO_MEMORY;
    for (sb_value_id v = 0; v < g->n_values; v++)
        w->at[v] = none;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (!sb_graph_value(g, g->inputs[i])->is_constant)
            w->at[g->inputs[i]] = (sb_samples){0, 1};
    return sb_graph_order(g, &w->order, &w->n_order);
}

static bool batch_walk_run(const sb_graph *g, batch_walk *w)
{
    for (size_t i = 0; i < w->n_order; i++)
        if (!batch_follow(g, sb_graph_node(g, w->order[i]), w->at, w->in,
                          w->out))
            return false;
    for (size_t i = 0; i < g->n_outputs; i++) {
        sb_samples b = w->at[g->outputs[i]];
        if (b.axis != 0 || b.step != 1)
            return false;
    }
    return true;
}

sb_status sb_batch_is_independent(const sb_graph *g, bool *apart)
{
    batch_walk w = {0};
    sb_status status = batch_walk_make(g, &w);

    if (status == SB_OK)
        *apart = batch_walk_run(g, &w);
    sb_free(g->ctx, w.order);
    sb_free(g->ctx, w.at);
    sb_free(g->ctx, w.in);
    sb_free(g->ctx, w.out);
    return status;
}
