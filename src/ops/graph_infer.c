/* Shape inference over a whole graph: facts flow along the nodes in order.
 *
 * A fact is what is known of a value before anything runs.  Nodes that we do
 * not know leave their outputs as the file declares them. */
#include "ops/infer_util.h"
#include "ops/op_registry.h"

#include <stdalign.h>

sb_fact sb_fact_unknown(void)
{
    return (sb_fact){.type = {SB_DTYPE_NONE, {.rank = -1}},
                     .content = {.rank = -1}};
}

sb_fact sb_fact_of(const sb_tensor *t)
{
    sb_fact f = sb_fact_unknown();

    f.type.dtype = t->dtype;
    f.type.shape.rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        f.type.shape.dim[i] = t->dims[i];
    if (!t->data)
        return f;
    f.constant = t;
    if ((t->dtype == SB_DTYPE_I64 || t->dtype == SB_DTYPE_I32) &&
        t->rank <= 1 && sb_tensor_count(t) <= SB_MAX_RANK) {
        f.content.rank = (int)sb_tensor_count(t);
        for (int i = 0; i < f.content.rank; i++) {
            int64_t v = sb_tensor_get_i64(t, i);
            /* Such a number could be mistaken for a symbol. */
            f.content.dim[i] = sb_dim_known(v) ? v : SB_DIM_UNKNOWN;
        }
    }
    return f;
}

/* ---- one node ----------------------------------------------------------- */

static sb_status check_arity(sb_ctx *ctx, const sb_graph *graph,
                             const sb_node *node, const sb_op_def *op)
{
    if (node->n_in < op->in_min ||
        (op->in_max != SB_ARITY_ANY && node->n_in > op->in_max))
        return sb_fail(ctx, SB_BAD_MODEL,
                       "node '%s' (%s): has %u inputs, want %u to %u",
                       sb_node_label(graph, node), node->op, node->n_in,
                       op->in_min, op->in_max);
    if (node->n_out < op->out_min ||
        (op->out_max != SB_ARITY_ANY && node->n_out > op->out_max))
        return sb_fail(ctx, SB_BAD_MODEL,
                       "node '%s' (%s): has %u outputs, want %u to %u",
                       sb_node_label(graph, node), node->op, node->n_out,
                       op->out_min, op->out_max);
    for (uint32_t i = 0; i < op->in_min; i++)
        if (node->inputs[i] == SB_NONE)
            return sb_fail(ctx, SB_BAD_MODEL,
                           "node '%s' (%s): input %u is absent",
                           sb_node_label(graph, node), node->op, i);
    /* Where there may be any number, each may be left out. */
    for (uint32_t i = 0; i < op->out_min && op->out_max != SB_ARITY_ANY; i++)
        if (node->outputs[i] == SB_NONE)
            return sb_fail(ctx, SB_BAD_MODEL,
                           "node '%s' (%s): output %u has no name",
                           sb_node_label(graph, node), node->op, i);
    return SB_OK;
}

static void forget_facts(const sb_node *node, sb_fact *out)
{
    for (uint32_t i = 0; i < node->n_out; i++)
        out[i] = sb_fact_unknown();
}

/* *misfits, if not NULL: the node is as it should be, but its inputs do not fit
 * it. */
static sb_status op_infer(sb_ctx *ctx, const sb_graph *graph,
                          const sb_node *node, const sb_fact *const *in,
                          sb_fact *out, bool *misfits)
{
    const sb_op_def *op = sb_op_of(node);
    alignas(max_align_t) unsigned char attrs[SB_ATTRS_MAX];

    forget_facts(node, out);
    if (!op)
        return SB_OK;
    SB_TRY(check_arity(ctx, graph, node, op));
    SB_TRY(sb_op_read_attrs(ctx, graph, node, op, attrs));
    sb_infer args = {.ctx = ctx,
                     .graph = graph,
                     .node = node,
                     .attrs = attrs,
                     .n_in = node->n_in,
                     .n_out = node->n_out,
                     .in = in,
                     .out = out};
    sb_status status = op->infer(&args);
    if (misfits)
        *misfits = status == SB_BAD_MODEL || status == SB_UNSUPPORTED;
    return status;
}

sb_status sb_op_infer(sb_ctx *ctx, const sb_graph *graph, const sb_node *node,
                      const sb_fact *const *in, sb_fact *out)
{
    return op_infer(ctx, graph, node, in, out, NULL);
}

/* ---- the whole graph ---------------------------------------------------- */

/* What the file says of a value that no node makes. */
static sb_fact declared_fact(const sb_value *value)
{
    if (value->is_constant)
        return sb_fact_of(&value->constant);
    sb_fact f = sb_fact_unknown();
    f.type = value->type;
    return f;
}

static bool graph_infer_nameless(sb_dim d)
{
    return sb_dim_symbol_index(d) >= SB_SYMBOL_NAMELESS;
}

/* Takes from the declaration whatever inference did not find out. */
static void merge_declared(sb_graph *graph, const sb_value *value,
                           sb_fact *fact)
{
    const sb_type *d = &value->type;
    sb_shape *s = &fact->type.shape;

    if (fact->type.dtype == SB_DTYPE_NONE)
        fact->type.dtype = d->dtype;
    else if (d->dtype != SB_DTYPE_NONE && d->dtype != fact->type.dtype)
        sb_warn(graph->ctx, "value '%s': declared %s, is %s", value->name,
                sb_dtype_get(d->dtype)->onnx,
                sb_dtype_get(fact->type.dtype)->onnx);
    if (d->shape.rank < 0)
        return;
    if (s->rank < 0) {
        *s = d->shape;
        return;
    }
    if (s->rank != d->shape.rank) {
        sb_warn(graph->ctx, "value '%s': declared with rank %d, has %d",
                value->name, d->shape.rank, s->rank);
        return;
    }
    for (int i = 0; i < s->rank; i++) {
        sb_dim want = d->shape.dim[i];
        if (!sb_dim_known(s->dim[i])) {
            if (sb_dim_known(want) || s->dim[i] == SB_DIM_UNKNOWN ||
                (graph_infer_nameless(s->dim[i]) && want != SB_DIM_UNKNOWN &&
                 !graph_infer_nameless(want)))
                s->dim[i] = want;
        } else if (sb_dim_known(want) && want != s->dim[i]) {
            sb_warn(graph->ctx,
                    "value '%s': dimension %d declared as %lld, is %lld",
                    value->name, i, (long long)want, (long long)s->dim[i]);
        }
    }
}

static bool infer_carries(const sb_node *node)
{
    const sb_op_def *op = sb_op_of(node);

    return op && (op->flags & SB_OP_CARRIES);
}

static bool may_be(const sb_shape *declared, const sb_shape *is)
{
    if (declared->rank < 0 || is->rank < 0)
        return true;
    if (declared->rank != is->rank)
        return false;
    for (int i = 0; i < is->rank; i++)
        if (sb_dim_known(declared->dim[i]) && sb_dim_known(is->dim[i]) &&
            declared->dim[i] != is->dim[i])
            return false;
    return true;
}

/* Input i of a body has the elements of input i of the node (Loop, Scan); but
 * its shape may be that of a slice, or change from run to run.  A file may
 * declare what a carried value becomes, and start it as something else that
 * no run reads: that declaration is forgotten. */
static void tell_inputs(const sb_node *node, const sb_fact *facts,
                        sb_graph *body)
{
    for (size_t i = 0; i < body->n_inputs && i < node->n_in; i++) {
        sb_value *inner = sb_graph_value(body, body->inputs[i]);
        if (node->inputs[i] == SB_NONE)
            continue;
        const sb_type *from = &facts[node->inputs[i]].type;
        if (inner->type.dtype == SB_DTYPE_NONE &&
            sb_dtype_valid((int)from->dtype))
            inner->type.dtype = from->dtype;
        if (i >= 2 && infer_carries(node) &&
            !may_be(&inner->type.shape, &from->shape))
            inner->type.shape = sb_shape_unknown();
    }
}

/* What is declared of results that are carried on is no proof. */
static void doubt_carried(sb_graph *body)
{
    for (size_t i = 1; i < body->n_outputs && i + 1 < body->n_inputs; i++) {
        sb_value *next = sb_graph_value(body, body->outputs[i]);
        if (next->producer != SB_NONE)
            next->type.shape = sb_shape_unknown();
    }
}

/* Forgets shapes of carried inputs that results do not have, or not for
 * certain; was there one? */
static bool forget_carried(sb_graph *body)
{
    bool any = false;

    for (size_t i = 1; i < body->n_outputs && i + 1 < body->n_inputs; i++) {
        sb_shape *is = &sb_graph_value(body, body->inputs[i + 1])->type.shape;
        const sb_shape *next =
            &sb_graph_value(body, body->outputs[i])->type.shape;
        if (is->rank < 0 || (next->rank >= 0 && may_be(is, next)))
            continue;
        *is = sb_shape_unknown();
        any = true;
    }
    return any;
}

/* Of a body whose results are carried on, inputs keep the shapes that hold in
 * every run. */
static sb_status infer_carrying(sb_graph *body)
{
    do {
        doubt_carried(body);
        SB_TRY(sb_graph_infer(body));
    } while (forget_carried(body));
    return SB_OK;
}

/* Tells each sub-graph of the node what it captures, then infers it. */
static sb_status infer_bodies(const sb_node *node, const sb_fact *facts)
{
    uint32_t k = node->n_in;
    sb_graph *body;

    for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++) {
        for (size_t c = 0; c < body->n_captures; c++) {
            sb_value *inner = sb_graph_value(body, body->captures[c]);
            inner->type = facts[node->inputs[k++]].type;
        }
        tell_inputs(node, facts, body);
        SB_TRY(infer_carries(node) ? infer_carrying(body)
                                   : sb_graph_infer(body));
    }
    return SB_OK;
}

typedef struct infer_walk {
    sb_graph *graph;
    sb_fact *facts;      /* one per value */
    const sb_fact **ins; /* of one node */
    sb_fact *outs;       /* of one node */
    bool bodies;         /* descend into sub-graphs? */
} infer_walk;

static sb_status infer_node(infer_walk *w, const sb_node *node)
{
    sb_graph *g = w->graph;

    for (uint32_t i = 0; i < node->n_in; i++)
        w->ins[i] =
            node->inputs[i] == SB_NONE ? NULL : &w->facts[node->inputs[i]];
    if (w->bodies && node->n_attrs)
        SB_TRY(infer_bodies(node, w->facts));
    bool misfits = false;
    sb_status status = op_infer(g->ctx, g, node, w->ins, w->outs, &misfits);
    /* A branch need not fit inputs for which it is not taken. */
    if (misfits && g->parent)
        forget_facts(node, w->outs);
    else
        SB_TRY(status);
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (node->outputs[i] == SB_NONE)
            continue;
        merge_declared(g, sb_graph_value(g, node->outputs[i]), &w->outs[i]);
        w->facts[node->outputs[i]] = w->outs[i];
    }
    return SB_OK;
}

static sb_status infer_all(infer_walk *w)
{
    sb_graph *g = w->graph;
    sb_node_id *order = NULL;
    size_t n = 0;
    size_t most_in = 1, most_out = 1;

    for (sb_value_id v = 0; v < g->n_values; v++)
        w->facts[v] = declared_fact(sb_graph_value(g, v));
    SB_TRY(sb_graph_order(g, &order, &n));
    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(g, order[i]);
        most_in = node->n_in > most_in ? node->n_in : most_in;
        most_out = node->n_out > most_out ? node->n_out : most_out;
    }
    sb_status status = SB_NO_MEMORY;
    w->ins = sb_alloc(g->ctx, most_in, sizeof *w->ins);
    w->outs = sb_alloc(g->ctx, most_out, sizeof *w->outs);
    if (w->ins && w->outs)
        status = SB_OK;
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = infer_node(w, sb_graph_node(g, order[i]));
    sb_free(g->ctx, w->ins);
    sb_free(g->ctx, w->outs);
    sb_free(g->ctx, order);
    return status;
}

static sb_status infer_into(sb_graph *graph, bool bodies, sb_fact **out)
{
    infer_walk w = {.graph = graph, .bodies = bodies};

    w.facts = sb_alloc(graph->ctx, graph->n_values + 1, sizeof *w.facts);
    if (!w.facts)
        return SB_NO_MEMORY;
    sb_status status = infer_all(&w);
    if (status == SB_OK)
        *out = w.facts;
    else
        sb_free(graph->ctx, w.facts);
    return status;
}

sb_status sb_graph_infer_facts(sb_graph *graph, sb_fact **out)
{
    return infer_into(graph, false, out);
}

sb_status sb_graph_infer(sb_graph *graph)
{
    sb_fact *facts = NULL;

    SB_TRY(infer_into(graph, true, &facts));
    for (sb_value_id v = 0; v < graph->n_values; v++)
        sb_graph_value(graph, v)->type = facts[v].type;
    sb_free(graph->ctx, facts);
    return SB_OK;
}
