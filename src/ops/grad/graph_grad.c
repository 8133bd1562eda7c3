/* Differentiating a graph: from the loss backwards, each node's row says which
 * nodes compute the gradients of its inputs.
 *
 * Only what lies between the loss and the values asked for gets gradients, so
 * that frozen parts in front cost nothing.  Where a value has several readers
 * their gradients are added.  A node that cannot be learned through gets
 * stand-ins of the right type, so that the walk goes on and finds the others;
 * then all additions are taken back. */
#include "ops/grad/grad.h"

#include <stdalign.h>
#include <string.h>

typedef struct grad_walk {
    sb_graph *graph;
    bool *learned;     /* by value: depends smoothly on what is asked for */
    sb_value_id *grad; /* by value; SB_NONE: none yet */
    sb_node_id *order;
    size_t n_order;
    sb_value_id *dx; /* of one node */
    bool *wanted;
    sb_value_id *dy;
    sb_str refused; /* what cannot be learned through */
    size_t n_refused, n_named;
} grad_walk;

enum { GRAD_NAMES_MAX = 800 }; /* bytes of names in a message */

sb_op_learn sb_op_learns(const sb_op_def *op)
{
    if (op && op->grad)
        return SB_LEARN_YES;
    return op && (op->flags & SB_OP_FLAT) ? SB_LEARN_FLAT : SB_LEARN_NO;
}

static bool grad_is_float(const sb_graph *graph, sb_value_id v)
{
    return sb_dtype_is_float(sb_graph_value(graph, v)->type.dtype);
}

/* ---- what depends on the values asked for ------------------------------- */

static void mark_learned(grad_walk *w, const sb_value_id *wrt, size_t n)
{
    for (size_t i = 0; i < n; i++)
        w->learned[wrt[i]] = true;
    for (size_t i = 0; i < w->n_order; i++) {
        const sb_node *node = sb_graph_node(w->graph, w->order[i]);
        sb_op_learn learns = sb_op_learns(sb_op_of(node));
        bool any = false;

        for (uint32_t j = 0; j < node->n_in + node->n_implicit; j++)
            any = any ||
                  (node->inputs[j] != SB_NONE && w->learned[node->inputs[j]]);
        if (!any || learns == SB_LEARN_FLAT)
            continue;
        for (uint32_t j = 0; j < node->n_out; j++)
            if (node->outputs[j] != SB_NONE &&
                (learns == SB_LEARN_NO ||
                 grad_is_float(w->graph, node->outputs[j])))
                w->learned[node->outputs[j]] = true;
    }
}

/* ---- one node ----------------------------------------------------------- */

static void grad_name_refused(grad_walk *w, const sb_node *node,
                              const char *reason)
{
    w->n_refused++;
    if (w->refused.len > GRAD_NAMES_MAX)
        return;
    sb_str_addf(&w->refused, "%s'%s' (%s%s%s)", w->n_named++ ? ", " : "",
                sb_node_label(w->graph, node), node->op, *reason ? ": " : "",
                reason);
}

/* Adds what row->grad() says; with SB_UNSUPPORTED it is only noted. */
static sb_status grad_call(grad_walk *w, const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);
    alignas(max_align_t) unsigned char attrs[SB_ATTRS_MAX];
    sb_grad g = {.graph = w->graph,
                 .node = node,
                 .op = op,
                 .attrs = attrs,
                 .dy = w->dy,
                 .wanted = w->wanted,
                 .dx = w->dx};
    sb_status status = SB_UNSUPPORTED;

    if (op && op->grad && node->n_implicit == 0) {
        SB_TRY(sb_op_read_attrs(w->graph->ctx, w->graph, node, op, attrs));
        status = op->grad(&g);
    }
    if (status == SB_OK)
        status = g.status;
    if (status != SB_UNSUPPORTED)
        return status;
    grad_name_refused(w, node, g.reason);
    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++)
        w->dx[i] = w->wanted[i] ? node->inputs[i] : SB_NONE;
    return SB_OK;
}

/* One more gradient of the value. */
static sb_status grad_add(grad_walk *w, const sb_node *node, sb_value_id v,
                          sb_value_id dx)
{
    sb_grad g = {.graph = w->graph, .node = node};
    const sb_type *type = &sb_graph_value(w->graph, v)->type;

    /* What is known of a value is known of its gradient. */
    if (sb_graph_value(w->graph, dx)->type.shape.rank < 0)
        sb_graph_value(w->graph, dx)->type.shape = type->shape;
    if (w->grad[v] != SB_NONE)
        dx = sb_emit2(&g, "Add", w->grad[v], dx);
    w->grad[v] = dx;
    return g.status;
}

/* Has the node a gradient to pass on, and inputs that want one? */
static bool grad_is_on_way(grad_walk *w, const sb_node *node)
{
    bool any_dy = false, any_wanted = false;

    for (uint32_t i = 0; i < node->n_out; i++) {
        w->dy[i] =
            node->outputs[i] == SB_NONE ? SB_NONE : w->grad[node->outputs[i]];
        any_dy = any_dy || w->dy[i] != SB_NONE;
    }
    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
        sb_value_id v = node->inputs[i];
        w->dx[i] = SB_NONE;
        w->wanted[i] = v != SB_NONE && w->learned[v];
        any_wanted = any_wanted || w->wanted[i];
    }
    return any_dy && any_wanted &&
           sb_op_learns(sb_op_of(node)) != SB_LEARN_FLAT;
}

static sb_status grad_walk_node(grad_walk *w, sb_node_id id)
{
    const sb_node node = *sb_graph_node(w->graph, id);

    if (!grad_is_on_way(w, &node))
        return SB_OK;
    SB_TRY(grad_call(w, &node));
    for (uint32_t i = 0; i < node.n_in + node.n_implicit; i++)
        if (w->wanted[i] && w->dx[i] != SB_NONE)
            SB_TRY(grad_add(w, &node, node.inputs[i], w->dx[i]));
    return SB_OK;
}

/* ---- the whole ---------------------------------------------------------- */

static sb_status grad_check(const sb_graph *graph, sb_value_id loss,
                            const sb_value_id *wrt, size_t n)
{
    const sb_value *v =
        loss < graph->n_values ? sb_graph_value(graph, loss) : NULL;

    if (!v || v->producer == SB_NONE)
        return sb_fail(graph->ctx, SB_BAD_ARG,
                       "loss '%s' is not computed by a node", v ? v->name : "");
    bool one = v->type.shape.rank >= 0 && sb_dtype_is_float(v->type.dtype);
    for (int i = 0; i < v->type.shape.rank; i++)
        one = one && v->type.shape.dim[i] == 1;
    if (!one)
        return sb_fail(graph->ctx, SB_BAD_ARG,
                       "loss '%s' is not one float; want a mean or sum of "
                       "it (ReduceMean)",
                       v->name);
    for (size_t i = 0; i < n; i++)
        if (wrt[i] >= graph->n_values || !grad_is_float(graph, wrt[i]))
            return sb_fail(graph->ctx, SB_BAD_ARG,
                           "value '%s' is to be learned but is not a float",
                           wrt[i] < graph->n_values
                               ? sb_graph_value(graph, wrt[i])->name
                               : "");
    return SB_OK;
}

static sb_status grad_alloc(grad_walk *w)
{
    sb_graph *g = w->graph;
    size_t most_in = 1, most_out = 1;

    SB_TRY(sb_graph_order(g, &w->order, &w->n_order));
    for (size_t i = 0; i < w->n_order; i++) {
        const sb_node *node = sb_graph_node(g, w->order[i]);
        size_t n_in = node->n_in + node->n_implicit;
        most_in = n_in > most_in ? n_in : most_in;
        most_out = node->n_out > most_out ? node->n_out : most_out;
    }
    w->learned = sb_alloc(g->ctx, g->n_values + 1, sizeof *w->learned);
    w->grad = sb_alloc(g->ctx, g->n_values + 1, sizeof *w->grad);
    w->dx = sb_alloc(g->ctx, most_in, sizeof *w->dx);
    w->wanted = sb_alloc(g->ctx, most_in, sizeof *w->wanted);
    w->dy = sb_alloc(g->ctx, most_out, sizeof *w->dy);
    if (!w->learned || !w->grad || !w->dx || !w->wanted || !w->dy)
        return SB_NO_MEMORY;
    for (sb_value_id v = 0; v < g->n_values; v++)
        w->grad[v] = SB_NONE;
    return SB_OK;
}

static void grad_free(grad_walk *w)
{
    sb_ctx *ctx = w->graph->ctx;

    sb_free(ctx, w->order);
    sb_free(ctx, w->learned);
    sb_free(ctx, w->grad);
    sb_free(ctx, w->dx);
    sb_free(ctx, w->wanted);
    sb_free(ctx, w->dy);
    sb_str_free(&w->refused);
}

/* A value of its own for each gradient: one may serve several values, or be
 * read on the way to others. */
static sb_status grad_results(grad_walk *w, const sb_value_id *wrt, size_t n,
                              sb_value_id *out)
{
    sb_grad g = {.graph = w->graph};

    for (size_t i = 0; i < n; i++) {
        sb_value_id v = w->grad[wrt[i]];
        out[i] = SB_NONE;
        if (v == SB_NONE)
            continue;
        const sb_value *value = sb_graph_value(w->graph, v);
        if (value->n_uses > 0 || value->producer == SB_NONE ||
            strncmp(value->name, "grad.", 5) == 0)
            v = sb_emit1(&g, "Identity", v);
        SB_TRY(g.status);
        const char *name = sb_arena_printf(
            w->graph->arena, "grad.%s", sb_graph_value(w->graph, wrt[i])->name);
        if (!name)
            return SB_NO_MEMORY;
        SB_TRY(sb_graph_claim_name(w->graph, v, name));
        out[i] = v;
    }
    return SB_OK;
}

static sb_status grad_run(grad_walk *w, sb_value_id loss,
                          const sb_value_id *wrt, size_t n, sb_value_id *out)
{
    sb_graph *graph = w->graph;
    bool any = false;

    SB_TRY(grad_alloc(w));
    mark_learned(w, wrt, n);
    sb_grad g = {.graph = graph};
    w->grad[loss] = sb_grad_expand(&g, sb_grad_scalar(&g, loss, 1), loss);
    SB_TRY(g.status);
    for (size_t i = w->n_order; i-- > 0;)
        SB_TRY(grad_walk_node(w, w->order[i]));
    SB_TRY(sb_str_status(&w->refused));
    if (w->n_refused > w->n_named)
        sb_str_addf(&w->refused, " and %zu more", w->n_refused - w->n_named);
    if (w->n_refused)
        return sb_fail(graph->ctx, SB_UNSUPPORTED,
                       "cannot learn through %zu node%s: %s", w->n_refused,
                       w->n_refused > 1 ? "s" : "", sb_str_text(&w->refused));
    for (size_t i = 0; i < n; i++)
        any = any || w->grad[wrt[i]] != SB_NONE;
    if (!any)
        return sb_fail(graph->ctx, SB_BAD_ARG,
                       "loss '%s' does not change with any of the %zu values "
                       "to be learned",
                       sb_graph_value(graph, loss)->name, n);
    return grad_results(w, wrt, n, out);
}

/* The graph as it was with so many nodes and values; those added since stay in
 * the arena, of no use. */
static void grad_take_back(sb_graph *graph, size_t n_nodes, size_t n_values)
{
    for (size_t id = graph->n_nodes; id-- > n_nodes;)
        if (!sb_graph_node(graph, (sb_node_id)id)->dead)
            sb_graph_remove_node(graph, (sb_node_id)id);
    for (size_t v = n_values; v < graph->n_values; v++) {
        sb_value *value = sb_graph_value(graph, (sb_value_id)v);
        if (value->is_constant)
            sb_tensor_drop(&value->constant);
        value->is_constant = false;
    }
}

sb_status sb_graph_gradient(sb_graph *graph, sb_value_id loss,
                            const sb_value_id *wrt, size_t n, sb_value_id *out)
{
    grad_walk w = {.graph = graph};

    sb_str_init(&w.refused, graph->ctx);
    SB_TRY(sb_graph_infer(graph));
    SB_TRY(grad_check(graph, loss, wrt, n));
    size_t n_nodes = graph->n_nodes, n_values = graph->n_values;
    sb_status status = grad_run(&w, loss, wrt, n, out);
    if (status != SB_OK)
        grad_take_back(graph, n_nodes, n_values);
    grad_free(&w);
    return status;
}
