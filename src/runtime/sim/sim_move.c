/* Q backwards and DQ forwards over operators that only move elements.
 *
 *     x -> MaxPool -> Q -> DQ      becomes  x -> Q -> DQ -> MaxPool -> Q -> DQ
 *     DQ -> Transpose -> y         becomes  DQ -> Transpose -> Q -> DQ -> y
 *
 * so that the operator has Q/DQ with the same parameters on both sides and can
 * run on integers.  Only with constant scalar parameters. */
#include <string.h>

#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

/* Operators whose nodes older than this opset are left alone: MaxPool has no
 * integer form before 12. */
enum { OLDEST_MAXPOOL = 12, MAX_QUEUE = 64 };

static bool move_movable(const sb_sim *sim, const sb_node *node)
{
    return sb_fusion_flag(sim->target, node, SB_FUSE_MOVABLE) &&
           (!sb_fusion_flag(sim->target, node, SB_FUSE_POSITIVE) ||
            sim->g->file_opset == 0 || sim->g->file_opset >= OLDEST_MAXPOOL);
}

static bool scalar_params(const sb_graph *g, const sb_node *node)
{
    sb_qdq p;

    sb_qdq_read(g, node, &p);
    return p.is_constant && p.is_scalar;
}

/* ---- new nodes ---------------------------------------------------------- */

/* A Q or DQ like `model`, reading `x`. */
static sb_status add_like(sb_sim *sim, sb_node_id model, const char *op,
                          sb_value_id x, sb_value_id y)
{
    sb_graph *g = sim->g;
    const sb_node old = *sb_graph_node(g, model);
    const sb_value_id in[] = {x, old.inputs[1], sb_node_in(&old, 2)};
    sb_node_spec spec = {.op = op,
                         .inputs = in,
                         .n_in = in[2] == SB_NONE ? 2 : 3,
                         .outputs = &y,
                         .n_out = 1,
                         .position = old.position};
    sb_node_id fresh;
    sb_qdq p;

    sb_qdq_read(g, &old, &p);
    SB_TRY(sb_graph_add_node(g, &spec, &fresh));
    SB_TRY(
        sb_graph_set_attr_int(g, fresh, "axis", sb_node_int(&old, "axis", 1)));
    if (strcmp(op, "QuantizeLinear") == 0 && in[2] == SB_NONE)
        SB_TRY(sb_graph_set_attr_int(g, fresh, "output_dtype", p.type));
    return SB_OK;
}

static sb_status add_value(sb_graph *g, const sb_type *type, sb_dtype dtype,
                           const char *stem, sb_value_id *out)
{
    sb_type copy = *type;

    SB_TRY(sb_graph_add_value_like(g, stem, out));
    copy.dtype = dtype;
    sb_graph_value(g, *out)->type = copy;
    return SB_OK;
}

/* Puts Q -> DQ between `x` and one consumer. */
static sb_status pair_before(sb_sim *sim, sb_node_id model, sb_value_id x,
                             sb_use use)
{
    sb_graph *g = sim->g;
    const sb_type type = sb_graph_value(g, x)->type;
    sb_value_id ints = SB_NONE, floats = SB_NONE;
    sb_qdq p;

    sb_qdq_read(g, sb_graph_node(g, model), &p);
    SB_TRY(add_value(g, &type, p.type, "moved_q", &ints));
    SB_TRY(add_value(g, &type, type.dtype, "moved_dq", &floats));
    SB_TRY(add_like(sim, model, "QuantizeLinear", x, ints));
    SB_TRY(add_like(sim, model, "DequantizeLinear", ints, floats));
    sim->changes++;
    return sb_graph_set_input(g, use.node, use.input, floats);
}

/* ---- Q backwards -------------------------------------------------------- */

/* Can something be put between input 0 of the node and what makes it?  Only if
 * that has no other consumer; not between a constant and its consumer. */
static bool edge_before(const sb_graph *g, const sb_node *node)
{
    sb_value_id x = sb_node_in(node, 0);
    if (x == SB_NONE)
        return false;
    const sb_value *v = sb_graph_value(g, x);
    if (v->producer == SB_NONE)
        return v->is_input;
    return !v->is_output && v->n_uses == 1;
}

static sb_status q_backwards(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    sb_node_id at = id;

    if (!sb_is_q(sb_graph_node(g, id)) ||
        !scalar_params(g, sb_graph_node(g, id)) ||
        !edge_before(g, sb_graph_node(g, id)))
        return SB_OK;
    for (;;) {
        const sb_node *consumer = sb_graph_node(g, at);
        sb_node_id above = sb_graph_value(g, consumer->inputs[0])->producer;
        if (above == SB_NONE || !move_movable(sim, sb_graph_node(g, above)) ||
            !edge_before(g, sb_graph_node(g, above)))
            return SB_OK;
        sb_value_id x = sb_graph_node(g, above)->inputs[0];
        const sb_node *from = sb_graph_producer(g, x);
        if (from && sb_is_dq(from))
            return SB_OK;
        sb_node_id next = from ? sb_graph_value(g, x)->producer : SB_NONE;
        SB_TRY(pair_before(sim, id, x, (sb_use){above, 0}));
        if (next == SB_NONE)
            return SB_OK;
        /* The Q just added reads x; go on above what makes x. */
        const sb_value *v = sb_graph_value(g, x);
        at = v->uses[v->n_uses - 1].node;
    }
}

/* ---- DQ forwards -------------------------------------------------------- */

static bool read_by_q(const sb_graph *g, const sb_value *v)
{
    for (uint32_t i = 0; i < v->n_uses; i++)
        if (sb_is_q(sb_graph_node(g, v->uses[i].node)))
            return true;
    return false;
}

/* The node gets a fresh first result and the old value is free to be made by
 * another node: the way to put nodes before an output of the graph. */
static sb_status fresh_result(sb_sim *sim, sb_node_id id, sb_node_id *out)
{
    sb_graph *g = sim->g;
    const sb_node old = *sb_graph_node(g, id);
    const sb_type type = sb_graph_value(g, old.outputs[0])->type;
    sb_value_id outputs[2] = {SB_NONE,
                              old.n_out > 1 ? old.outputs[1] : SB_NONE};
    sb_node_spec spec = {.op = old.op,
                         .domain = old.domain,
                         .name = old.name,
                         .module = old.module,
                         .inputs = old.inputs,
                         .n_in = old.n_in,
                         .outputs = outputs,
                         .n_out = old.n_out,
                         .attrs = old.attrs,
                         .n_attrs = old.n_attrs,
                         .position = old.position};

    SB_TRY(add_value(g, &type, type.dtype, "before_output", &outputs[0]));
    sb_graph_remove_node(g, id);
    SB_TRY(sb_graph_add_node(g, &spec, out));
    return sb_sim_heir(sim, *out, id);
}

/* Puts Q behind the node and a DQ before each of its consumers. */
static sb_status pairs_behind(sb_sim *sim, sb_node_id model, sb_node_id node)
{
    sb_graph *g = sim->g;
    sb_value_id y = sb_graph_node(g, node)->outputs[0], ints = SB_NONE;
    const sb_type type = sb_graph_value(g, y)->type;
    bool is_output = sb_graph_value(g, y)->is_output;
    sb_qdq p;

    sb_qdq_read(g, sb_graph_node(g, model), &p);
    SB_TRY(add_value(g, &type, p.type, "moved_q", &ints));
    sim->changes++;
    if (is_output) {
        sb_node_id fresh = SB_NONE;
        if (sb_graph_node(g, node)->n_out > 2)
            return SB_OK;
        SB_TRY(fresh_result(sim, node, &fresh));
        SB_TRY(add_like(sim, model, "QuantizeLinear",
                        sb_graph_node(g, fresh)->outputs[0], ints));
        return add_like(sim, model, "DequantizeLinear", ints, y);
    }
    uint32_t n = sb_graph_value(g, y)->n_uses;
    SB_TRY(add_like(sim, model, "QuantizeLinear", y, ints));
    for (uint32_t i = 0; i < n; i++) {
        sb_value_id floats = SB_NONE;
        sb_use use = sb_graph_value(g, y)->uses[0];
        if (sb_is_q(sb_graph_node(g, use.node)))
            use = sb_graph_value(g, y)->uses[1];
        SB_TRY(add_value(g, &type, type.dtype, "moved_dq", &floats));
        SB_TRY(add_like(sim, model, "DequantizeLinear", ints, floats));
        SB_TRY(sb_graph_set_input(g, use.node, use.input, floats));
    }
    return SB_OK;
}

static sb_status dq_forwards(sb_sim *sim, sb_node_id id)
{
    sb_graph *g = sim->g;
    const sb_node *dq = sb_graph_node(g, id);
    sb_node_id queue[MAX_QUEUE];
    size_t n = 0, done = 0;

    if (!sb_is_dq(dq) || !scalar_params(g, dq) ||
        sb_is_const(g, dq->inputs[0]) || sb_node_edges(g, dq) != 1 ||
        sb_node_makes_output(g, dq))
        return SB_OK;
    queue[n++] = sb_graph_value(g, dq->outputs[0])->uses[0].node;
    while (done < n) {
        sb_node_id at = queue[done++];
        if (!move_movable(sim, sb_graph_node(g, at)))
            continue;
        const sb_value *y = sb_graph_value(g, sb_graph_node(g, at)->outputs[0]);
        if ((y->n_uses == 0 && !y->is_output) || read_by_q(g, y))
            continue;
        for (uint32_t i = 0; i < y->n_uses && n < MAX_QUEUE; i++)
            queue[n++] = y->uses[i].node;
        SB_TRY(pairs_behind(sim, id, at));
    }
    return SB_OK;
}

sb_status sb_sim_move(sb_sim *sim)
{
    SB_TRY(sb_sim_each(sim, q_backwards));
    return sb_sim_each(sim, dq_forwards);
}
