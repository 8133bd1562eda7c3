/* Runtimes that look at inputs only: an operator runs in int8 if what it reads
 * was quantized, directly or before operators that only carry it on.  What
 * they say to nodes that stay float, and further conditions, are in the files
 * of their targets. */
#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

static bool inputs_passes(const sb_sim *sim, const sb_node *node)
{
    const sb_fusion *rule = sb_fusion_find(sim->target, node);

    return rule && rule->kind == SB_FUSE_THROUGH;
}

/* The DQ that a value comes from, over operators that carry it on. */
static const sb_node *source_dq(const sb_sim *sim, sb_value_id value)
{
    for (int depth = 0; depth < 64 && value != SB_NONE; depth++) {
        const sb_node *from = sb_graph_producer(sim->g, value);
        if (!from)
            return NULL;
        if (sb_is_dq(from))
            return from;
        if (!inputs_passes(sim, from) || sb_node_is(from, "Relu") ||
            sb_node_is(from, "Clip"))
            return NULL;
        value = sb_node_in(from, 0);
    }
    return NULL;
}

/* Does a value come straight from a layer with weights, perhaps over an
 * activation, so that a sum can be fused with it? */
static bool from_layer(const sb_sim *sim, sb_value_id value)
{
    const sb_node *from = sb_graph_producer(sim->g, value);

    if (from && (sb_node_is(from, "Relu") || sb_node_is(from, "Clip")))
        from = sb_graph_producer(sim->g, sb_node_in(from, 0));
    const sb_target_op *row =
        from ? sb_target_op_find(sim->target, from) : NULL;
    return row && sb_target_is_weighted(row);
}

/* Are all consumers Q, over operators that carry it on? */
static bool goes_to_q(const sb_sim *sim, sb_value_id value, int depth)
{
    const sb_value *v = sb_graph_value(sim->g, value);

    if (v->n_uses == 0 || v->is_output || depth > 32)
        return false;
    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *consumer = sb_graph_node(sim->g, v->uses[i].node);
        if (sb_is_q(consumer))
            continue;
        if (!inputs_passes(sim, consumer) ||
            !goes_to_q(sim, consumer->outputs[0], depth + 1))
            return false;
    }
    return true;
}

/* Have the inputs of a Concat different scales? */
static bool scales_differ(const sb_sim *sim, const sb_node *node)
{
    sb_qdq first, p;
    bool seen = false;

    for (uint32_t i = 0; i < node->n_in; i++) {
        const sb_node *dq = source_dq(sim, node->inputs[i]);
        if (!dq)
            continue;
        sb_qdq_read(sim->g, dq, &p);
        if (seen &&
            !(p.is_scalar && first.is_scalar && p.s == first.s &&
              (p.z == first.z || !sim->target->inputs->concat_zero_points)))
            return true;
        first = p;
        seen = true;
    }
    return false;
}

bool sb_sim_from_many_scales(const sb_sim *sim, sb_value_id value)
{
    for (int depth = 0; depth < 64 && value != SB_NONE; depth++) {
        const sb_node *from = sb_graph_producer(sim->g, value);

        if (!from || !inputs_passes(sim, from))
            return false;
        if (sb_node_is(from, "Concat") && scales_differ(sim, from))
            return true;
        value = sb_node_in(from, 0);
    }
    return false;
}

static const sb_sim_reason *check_layer(const sb_sim *sim, const sb_node *node)
{
    const sb_sim_inputs_rules *rules = sim->target->inputs;

    for (uint32_t i = 0; i < 2 && i < node->n_in; i++)
        if (!source_dq(sim, node->inputs[i]))
            return rules->input;
    return rules->layer(sim, node);
}

static const sb_sim_reason *check_sum(const sb_sim *sim, const sb_node *node)
{
    size_t n_dq = 0, n_other = 0;

    for (uint32_t i = 0; i < node->n_in; i++) {
        if (source_dq(sim, node->inputs[i]))
            n_dq++;
        else if (!from_layer(sim, node->inputs[i]))
            n_other++;
    }
    if (n_other > 0)
        return sim->target->inputs->input;
    return n_dq > 0 ? NULL : sim->target->inputs->skip;
}

/* An activation whose input was quantized after a layer: the pair between
 * stands against their fusion. */
static bool pair_before(const sb_sim *sim, const sb_node *node)
{
    const sb_node *dq = sb_dq_of(sim->g, node, 0);
    const sb_node *q = dq ? sb_graph_producer(sim->g, sb_node_in(dq, 0)) : NULL;

    return q && sb_is_q(q) && from_layer(sim, sb_node_in(q, 0));
}

static const sb_sim_reason *check_through(const sb_sim *sim,
                                          const sb_node *node)
{
    if ((sb_node_is(node, "Relu") || sb_node_is(node, "Clip")) &&
        pair_before(sim, node))
        return sim->target->inputs->between;
    if (sb_node_is(node, "Concat") && scales_differ(sim, node))
        return sim->target->inputs->concat;
    return NULL;
}

static void note_inputs(sb_sim *sim, sb_node_id id, const sb_fusion *rule,
                        const sb_sim_reason *reason)
{
    const sb_node *node = sb_graph_node(sim->g, id);
    sb_sim_verdict *v = &sim->verdicts[id];
    bool near = sb_qdq_touches(sim->g, node);

    v->reason = NULL;
    if (rule && rule->kind == SB_FUSE_THROUGH) {
        v->fate = source_dq(sim, sb_node_in(node, 0)) ||
                          (near && goes_to_q(sim, node->outputs[0], 0))
                      ? SB_SIM_MOVES
                      : SB_SIM_FLOAT;
        v->reason = reason;
        v->overhead = reason != NULL;
    } else if (!reason) {
        v->fate = SB_SIM_INTEGER;
        v->kernel = rule->kernel;
    } else {
        v->fate = SB_SIM_FLOAT;
        v->overhead = near;
        v->reason = near ? reason : NULL;
    }
}

static sb_status inputs_judge(sb_sim *sim, sb_node_id id)
{
    const sb_node *node = sb_graph_node(sim->g, id);
    const sb_target_op *row = sb_target_op_find(sim->target, node);
    const sb_fusion *rule = row ? &row->fuse : NULL;
    const sb_sim_reason *r = NULL;

    if (sb_is_qdq(node))
        return SB_OK;
    if (!rule)
        r = &sb_reason_no_kernel;
    else if (rule->kind == SB_FUSE_THROUGH)
        r = check_through(sim, node);
    else if (sb_target_is_weighted(row))
        r = check_layer(sim, node);
    else if (node->n_in > 1 && rule->kind == SB_FUSE_INPUTS &&
             sb_node_is(node, "Add"))
        r = check_sum(sim, node);
    else
        for (uint32_t i = 0; i < node->n_in && !r; i++)
            if (i == 0 || sb_node_is(node, "Mul"))
                r = source_dq(sim, node->inputs[i])
                        ? NULL
                        : sim->target->inputs->input;
    if (!r && rule->kind == SB_FUSE_BOTH &&
        !goes_to_q(sim, node->outputs[0], 0))
        r = sim->target->inputs->both;
    note_inputs(sim, id, rule, r);
    return SB_OK;
}

sb_status sb_sim_inputs(sb_sim *sim)
{
    return sb_sim_each(sim, inputs_judge);
}
