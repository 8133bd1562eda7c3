/* All groups of a graph, one node after the other: what fuses is replaced, what
 * does not is noted with the first reason against it. */
#include <string.h>

#include "passes/rewrite.h"
#include "runtime/sim/sim_internal.h"

static bool reads_dq(const sb_graph *g, const sb_node *node)
{
    for (uint32_t i = 0; i < node->n_in; i++)
        if (sb_dq_of(g, node, i))
            return true;
    return false;
}

bool sb_qdq_touches(const sb_graph *g, const sb_node *node)
{
    if (reads_dq(g, node))
        return true;
    for (uint32_t k = 0; k < node->n_out; k++) {
        if (node->outputs[k] == SB_NONE)
            continue;
        const sb_value *y = sb_graph_value(g, node->outputs[k]);
        for (uint32_t i = 0; i < y->n_uses; i++)
            if (sb_is_q(sb_graph_node(g, y->uses[i].node)))
                return true;
    }
    return false;
}

static void note_float(sb_sim *sim, sb_node_id id, const sb_sim_reason *reason)
{
    sb_node_id origin = sb_sim_origin(sim, id);
    const sb_node *node = sb_graph_node(sim->g, id);

    if (origin == SB_NONE || !sim->verdicts)
        return;
    sb_sim_verdict *v = &sim->verdicts[origin];
    /* A Q behind an operator without kernel is where integers begin. */
    bool near = reason ? sb_qdq_touches(sim->g, node) : reads_dq(sim->g, node);
    if (v->fate != SB_SIM_FLOAT)
        return; /* of an earlier round */
    v->overhead = near;
    v->reason = !near ? NULL : reason ? reason : &sb_reason_no_kernel;
}

static void note_saturation(sb_sim *sim, const sb_sim_group *grp)
{
    sb_node_id origin = sb_sim_origin(sim, grp->node);
    sb_qdq x;

    if (!sim->verdicts || origin == SB_NONE || grp->n_dq < 2 ||
        !grp->weighted || !(sim->target->sim_flags & SB_SIM_S8_TO_U8))
        return;
    sb_qdq_read(sim->g, sb_graph_node(sim->g, grp->dq[0]), &x);
    sim->verdicts[origin].saturates =
        x.type == SB_DTYPE_U8 &&
        sb_weight_saturates(sim->g, sb_graph_node(sim->g, grp->node),
                            sb_graph_node(sim->g, grp->dq[1]));
}

/* Tries the group of the node's operator, then that of its weight alone. */
static sb_status select_node(sb_sim *sim, sb_node_id id)
{
    const sb_node *node = sb_graph_node(sim->g, id);
    const sb_target_op *row = sb_target_op_find(sim->target, node);
    const sb_sim_reason *first = NULL;
    sb_sim_group group;

    if (sb_is_qdq(node))
        return SB_OK;
    for (int i = 0; row && i < 2; i++) {
        const sb_fusion *rule = i == 0 ? &row->fuse : &row->fuse_weight;
        if (rule->kind == SB_FUSE_NONE)
            continue;
        const sb_sim_reason *r = sb_group_find(sim, id, rule, &group);
        if (!r) {
            group.weighted = sb_target_is_weighted(row);
            note_saturation(sim, &group);
            return sb_group_fuse(sim, &group);
        }
        /* What only its weight was quantized for says more. */
        if (!first ||
            (rule->kind == SB_FUSE_WEIGHT && strcmp(r->rule, "inputs") != 0))
            first = r;
    }
    note_float(sim, id, first);
    return SB_OK;
}

sb_status sb_sim_select(sb_sim *sim)
{
    return sb_sim_each(sim, select_node);
}
