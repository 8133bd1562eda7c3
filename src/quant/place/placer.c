/* Which nodes run on integers.
 *
 * Layers with a constant weight (anchors) run on integers wherever the target
 * can.  Operators between them join in if all they read comes from integer
 * kernels and something that runs on integers reads them; elsewhere Q and DQ
 * would cost more than they save. */
#include "quant/place/placer.h"
#include "runtime/sim/sim.h"

/* ---- questions ---------------------------------------------------------- */

static bool is_float(const sb_placer *t, sb_value_id v)
{
    return v != SB_NONE &&
           sb_dtype_is_float(sb_graph_value(t->g, v)->type.dtype);
}

static bool is_computed(const sb_placer *t, sb_value_id v)
{
    return is_float(t, v) && !sb_is_const(t->g, v);
}

bool sb_placer_has(const sb_placer *t, sb_node_id id, sb_place place)
{
    return t->row[id] && t->row[id]->place == place;
}

/* Does the kernel store integers, which all consumers have to read? */
static bool stores_integers(const sb_placer *t, sb_node_id id)
{
    return t->integer[id] && (sb_placer_has(t, id, SB_PLACE_BOTH) ||
                              sb_placer_has(t, id, SB_PLACE_SHARE) ||
                              sb_placer_has(t, id, SB_PLACE_SHARE_ALL));
}

sb_value_id sb_placer_result(const sb_placer *t, sb_node_id id)
{
    sb_value_id r = sb_graph_node(t->g, id)->outputs[0];
    const sb_value *v = sb_graph_value(t->g, r);

    if (v->n_uses != 1 || v->is_output ||
        !sb_placer_has(t, v->uses[0].node, SB_PLACE_FOLD) ||
        v->uses[0].input != 0)
        return r;
    return sb_graph_node(t->g, v->uses[0].node)->outputs[0];
}

/* Does an anchor read the value, perhaps after it was moved about? */
static bool anchor_reads(const sb_placer *t, sb_value_id value, int depth)
{
    const sb_value *v = sb_graph_value(t->g, value);

    for (uint32_t i = 0; i < v->n_uses && depth < SB_WALK_MOST; i++) {
        sb_node_id id = v->uses[i].node;
        if (t->anchor[id] && v->uses[i].input == 0)
            return true;
        if ((sb_placer_has(t, id, SB_PLACE_SHARE) ||
             sb_placer_has(t, id, SB_PLACE_FOLD)) &&
            anchor_reads(t, sb_graph_node(t->g, id)->outputs[0], depth + 1))
            return true;
    }
    return false;
}

/* ---- which nodes run on integers ---------------------------------------- */

/* The row of a node, unless the configuration or the node itself is against
 * it. */
static const sb_target_op *choose_row(const sb_placer *t, const sb_node *node)
{
    const sb_target_op *row = sb_target_op_find(t->target, node);
    sb_quant_config *config = t->qm->config;
    sb_quant_spec spec;

    if (!row || row->place == SB_PLACE_FLOAT || node->n_out == 0 ||
        sb_quant_config_skips(config, node))
        return NULL;
    sb_quant_config_spec(config, SB_QUANT_ACTIVATION, node, &spec);
    if (spec.disabled || spec.dynamic)
        return NULL;
    for (uint32_t i = 0; i < node->n_in; i++)
        if (node->inputs[i] != SB_NONE && sb_target_is_data(row, i) &&
            !is_float(t, node->inputs[i]))
            return NULL;
    const sb_op_def *op = sb_op_of(node);
    if (op && op->interpolates && op->interpolates(node) &&
        row->place == SB_PLACE_SHARE)
        return NULL;
    return row;
}

static bool is_anchor(const sb_placer *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);
    const sb_target_op *row = t->row[id];
    sb_quant_spec spec;

    if (!row || row->weight == 0 ||
        !sb_is_const(t->g, sb_node_in(node, row->weight)) ||
        !is_computed(t, sb_node_in(node, 0)))
        return false;
    sb_quant_config_spec(t->qm->config, SB_QUANT_WEIGHT, node, &spec);
    return !spec.disabled;
}

/* Is there a computed input, and do all come from integer kernels? */
static bool all_made(const sb_placer *t, const sb_node *node,
                     const sb_target_op *row)
{
    bool any = false;

    for (uint32_t i = 0; i < node->n_in; i++) {
        sb_value_id v = node->inputs[i];
        if (v == SB_NONE || !sb_target_is_data(row, i) || !is_computed(t, v))
            continue;
        if (!t->made[v])
            return false;
        any = true;
    }
    return any;
}

/* Does the runtime make a float Gemm of the product and a sum with what is
 * computed, as it does unless a Q stands between?  A constant is a bias, which
 * becomes int32. */
static bool is_summed(const sb_placer *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);

    if (!sb_sim_takes_sum(t->target, t->g, id))
        return false;
    sb_use use = sb_graph_value(t->g, node->outputs[0])->uses[0];
    return !sb_is_const(t->g,
                        sb_graph_node(t->g, use.node)->inputs[1 - use.input]);
}

/* A Relu or Clip that one node reads counts as a part of the layer in front of
 * it: without a Q behind it the runtime makes no kernel of either. */
static bool needs_q_behind(const sb_placer *t, sb_node_id id,
                           sb_value_id result)
{
    const sb_value *v = sb_graph_value(t->g, result);

    if (result == sb_graph_node(t->g, id)->outputs[0])
        return is_summed(t, id);
    return v->n_uses == 1 && !v->is_output;
}

static void mark_made(sb_placer *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);
    const sb_target_op *row = t->row[id];
    sb_value_id r = sb_placer_result(t, id);

    if (row->result_optional && !anchor_reads(t, r, 0) &&
        !needs_q_behind(t, id, r))
        return;
    t->made[r] = true;
    for (uint32_t i = 1; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            t->made[node->outputs[i]] = true;
}

/* Has a convolution groups so narrow that the target is slow on integers, or
 * is it a depthwise one (a filter of one channel is) with so few of them? */
static bool is_narrow(const sb_placer *t, const sb_node *node,
                      const sb_target_op *row)
{
    const sb_tensor *w = sb_const_of(t->g, sb_node_in(node, row->weight));
    int64_t groups = sb_node_int(node, "group", 1);

    if (!w || w->rank < 3 || !sb_node_flag(node, SB_OP_CONV) || groups < 1)
        return false;
    int64_t each = w->dims[0] / groups;
    if (each * w->dims[1] == 1)
        return groups < t->target->min_group;
    return groups > 1 &&
           (each < t->target->min_group || w->dims[1] < t->target->min_group);
}

/* Forwards: anchors, and what follows from them. */
static void placer_spread(sb_placer *t)
{
    for (size_t i = 0; i < t->n_order; i++) {
        sb_node_id id = t->order[i];
        const sb_target_op *row = t->row[id];

        if (!row || row->place == SB_PLACE_FOLD)
            continue;
        if (!t->anchor[id] &&
            (row->weight != 0 || !all_made(t, sb_graph_node(t->g, id), row)))
            continue;
        t->integer[id] = true;
        mark_made(t, id);
    }
}

bool sb_placer_is_useful(const sb_placer *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);

    for (uint32_t k = 0; k < node->n_out; k++) {
        sb_value_id r = k == 0 ? sb_placer_result(t, id) : node->outputs[k];
        if (r == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(t->g, r);
        for (uint32_t i = 0; i < v->n_uses; i++)
            if (t->integer[v->uses[i].node])
                return true;
    }
    return false;
}

/* Backwards: without a consumer on integers a node does not join in. */
static void give_up(sb_placer *t)
{
    for (size_t i = t->n_order; i-- > 0;) {
        sb_node_id id = t->order[i];
        const sb_node *node = sb_graph_node(t->g, id);

        if (!t->integer[id] || t->anchor[id] || sb_placer_is_useful(t, id))
            continue;
        t->integer[id] = false;
        t->made[sb_placer_result(t, id)] = false;
        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE)
                t->made[node->outputs[k]] = false;
    }
}

/* Anchors that the target computes faster in float.  What a configuration asks
 * for, and what a quantized file has as integers, stays so. */
static void leave_depthwise(sb_placer *t)
{
    for (size_t i = 0; i < t->n_order; i++) {
        sb_node_id id = t->order[i];

        if (!t->anchor[id] || !t->integer[id] ||
            !sb_is_depthwise(t->g, sb_graph_node(t->g, id), t->row[id]->weight))
            continue;
        sb_value_id x = sb_graph_node(t->g, id)->inputs[0];
        if (sb_graph_value(t->g, x)->producer == SB_NONE || t->made[x] ||
            sb_placer_is_useful(t, id))
            continue;
        t->integer[id] = t->anchor[id] = false;
        t->made[sb_placer_result(t, id)] = false;
    }
}

/* ---- residual sums ------------------------------------------------------ */

/* Of a sum into which the convolution before it is fused, the input that
 * stays float: the later one that comes from an anchor and goes nowhere
 * else. */
static uint32_t fused_input(const sb_placer *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);
    uint64_t latest = 0;
    uint32_t found = SB_NONE;

    if (t->target->residual != SB_RESIDUAL_SKIP || !sb_node_adds(node))
        return SB_NONE;
    for (uint32_t i = 0; i < node->n_in; i++) {
        const sb_value *v = sb_graph_value(t->g, node->inputs[i]);
        if (v->producer == SB_NONE || v->n_uses != 1 || !t->anchor[v->producer])
            continue;
        uint64_t position = sb_graph_node(t->g, v->producer)->position;
        if (found == SB_NONE || position > latest) {
            found = i;
            latest = position;
        }
    }
    return found;
}

bool sb_placer_reads(const sb_placer *t, sb_use use)
{
    const sb_target_op *row = t->row[use.node];

    return t->integer[use.node] && sb_target_is_data(row, use.input) &&
           row->place != SB_PLACE_THROUGH &&
           fused_input(t, use.node) != use.input;
}

/* ---- all together ------------------------------------------------------- */

static void mark_results(sb_placer *t)
{
    for (size_t i = 0; i < t->n_order; i++) {
        sb_node_id id = t->order[i];
        const sb_node *node = sb_graph_node(t->g, id);

        if (!stores_integers(t, id))
            continue;
        for (uint32_t k = 0; k < node->n_out; k++) {
            sb_value_id r = k == 0 ? sb_placer_result(t, id) : node->outputs[k];
            if (r != SB_NONE)
                t->result[r] = t->made[r];
        }
    }
}

void sb_placer_choose(sb_placer *t)
{
    /* Neither a configuration nor a quantized file says what runs on integers.
     */
    const bool is_ours = !t->qm->asked && t->qm->known.n == 0;

    for (size_t i = 0; i < t->n_order; i++)
        t->row[t->order[i]] = choose_row(t, sb_graph_node(t->g, t->order[i]));
    for (size_t i = 0; i < t->n_order; i++) {
        sb_node_id id = t->order[i];
        t->anchor[id] =
            is_anchor(t, id) &&
            !(is_ours && is_narrow(t, sb_graph_node(t->g, id), t->row[id]));
    }
    if (is_ours)
        sb_placer_leave_logs(t);
    placer_spread(t);
    give_up(t);
    if (t->target->fast_float && is_ours)
        leave_depthwise(t);
    mark_results(t);
}
