/* Which edges get a quantizer: where the target's row makes integer kernels of
 * them, under the configuration.
 *
 * Layers with a constant weight (anchors) run on integers wherever the target
 * can.  Operators between them join in if all they read comes from integer
 * kernels and something that runs on integers reads them; elsewhere Q and DQ
 * would cost more than they save.  A result of a kernel that makes integers
 * is quantized once, and everybody reads it so; other values are quantized only
 * for those who want integers. */
#include "passes/rewrite.h"
#include "quant/place/place.h"
#include "runtime/sim/sim.h"

typedef struct targeter {
    sb_quant_model *qm;
    const sb_graph *g;
    const sb_target_def *target;
    sb_node_id *order;
    size_t n_order;
    const sb_target_op **row; /* by node; NULL: stays float */
    bool *integer;            /* by node: runs on integers */
    bool *anchor;             /* by node */
    bool *made;               /* by value: comes from an integer kernel */
    bool *result;             /* by value: and is stored as integers */
    uint32_t *point;          /* by value: of its quantizer; SB_NONE */
} targeter;

/* ---- questions ---------------------------------------------------------- */

static bool is_float(const targeter *t, sb_value_id v)
{
    return v != SB_NONE &&
           sb_dtype_is_float(sb_graph_value(t->g, v)->type.dtype);
}

static bool is_computed(const targeter *t, sb_value_id v)
{
    return is_float(t, v) && !sb_is_const(t->g, v);
}

static bool has_place(const targeter *t, sb_node_id id, sb_place place)
{
    return t->row[id] && t->row[id]->place == place;
}

/* Does the kernel store integers, which everybody has to read? */
static bool stores_integers(const targeter *t, sb_node_id id)
{
    return t->integer[id] && (has_place(t, id, SB_PLACE_BOTH) ||
                              has_place(t, id, SB_PLACE_SHARE) ||
                              has_place(t, id, SB_PLACE_SHARE_ALL));
}

/* The value at which the result of a node is quantized: behind a Relu or Clip
 * that alone reads it. */
static sb_value_id result_of(const targeter *t, sb_node_id id)
{
    sb_value_id r = sb_graph_node(t->g, id)->outputs[0];
    const sb_value *v = sb_graph_value(t->g, r);

    if (v->n_uses != 1 || v->is_output ||
        !has_place(t, v->uses[0].node, SB_PLACE_FOLD) || v->uses[0].input != 0)
        return r;
    return sb_graph_node(t->g, v->uses[0].node)->outputs[0];
}

/* Does an anchor read the value, perhaps after it was moved about? */
static bool anchor_reads(const targeter *t, sb_value_id value, int depth)
{
    const sb_value *v = sb_graph_value(t->g, value);

    for (uint32_t i = 0; i < v->n_uses && depth < SB_WALK_MOST; i++) {
        sb_node_id id = v->uses[i].node;
        if (t->anchor[id] && v->uses[i].input == 0)
            return true;
        if ((has_place(t, id, SB_PLACE_SHARE) ||
             has_place(t, id, SB_PLACE_FOLD)) &&
            anchor_reads(t, sb_graph_node(t->g, id)->outputs[0], depth + 1))
            return true;
    }
    return false;
}

/* ---- which nodes run on integers ---------------------------------------- */

/* The row of a node, unless the configuration or the node itself is against
 * it. */
static const sb_target_op *choose_row(const targeter *t, const sb_node *node)
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

static bool is_anchor(const targeter *t, sb_node_id id)
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

/* Does every computed input come from an integer kernel?  (And is there
 * one.) */
static bool all_made(const targeter *t, const sb_node *node,
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
static bool is_summed(const targeter *t, sb_node_id id)
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
static bool needs_q_behind(const targeter *t, sb_node_id id, sb_value_id result)
{
    const sb_value *v = sb_graph_value(t->g, result);

    if (result == sb_graph_node(t->g, id)->outputs[0])
        return is_summed(t, id);
    return v->n_uses == 1 && !v->is_output;
}

static void mark_made(targeter *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);
    const sb_target_op *row = t->row[id];
    sb_value_id r = result_of(t, id);

    if (row->result_optional && !anchor_reads(t, r, 0) &&
        !needs_q_behind(t, id, r))
        return;
    t->made[r] = true;
    for (uint32_t i = 1; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            t->made[node->outputs[i]] = true;
}

/* Has a convolution groups so narrow that the target is slow on integers? */
static bool is_narrow(const targeter *t, const sb_node *node,
                      const sb_target_op *row)
{
    const sb_tensor *w = sb_const_of(t->g, sb_node_in(node, row->weight));
    int64_t groups = sb_node_int(node, "group", 1);

    if (!w || w->rank < 3 || !sb_node_flag(node, SB_OP_CONV) || groups < 2)
        return false;
    int64_t each = w->dims[0] / groups;
    return each * w->dims[1] > 1 &&
           (each < t->target->min_group || w->dims[1] < t->target->min_group);
}

/* Forwards: anchors, and what follows from them. */
static void place_target_spread(targeter *t)
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

/* Does a node that runs on integers read one of the results? */
static bool is_useful(const targeter *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);

    for (uint32_t k = 0; k < node->n_out; k++) {
        sb_value_id r = k == 0 ? result_of(t, id) : node->outputs[k];
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
static void give_up(targeter *t)
{
    for (size_t i = t->n_order; i-- > 0;) {
        sb_node_id id = t->order[i];
        const sb_node *node = sb_graph_node(t->g, id);

        if (!t->integer[id] || t->anchor[id] || is_useful(t, id))
            continue;
        t->integer[id] = false;
        t->made[result_of(t, id)] = false;
        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE)
                t->made[node->outputs[k]] = false;
    }
}

/* Anchors that the target computes faster in float.  What a configuration asks
 * for, and what a quantized file has as integers, stays so. */
static void leave_depthwise(targeter *t)
{
    for (size_t i = 0; i < t->n_order; i++) {
        sb_node_id id = t->order[i];

        if (!t->anchor[id] || !t->integer[id] ||
            !sb_is_depthwise(t->g, sb_graph_node(t->g, id), t->row[id]->weight))
            continue;
        sb_value_id x = sb_graph_node(t->g, id)->inputs[0];
        if (sb_graph_value(t->g, x)->producer == SB_NONE || t->made[x] ||
            is_useful(t, id))
            continue;
        t->integer[id] = t->anchor[id] = false;
        t->made[result_of(t, id)] = false;
    }
}

/* ---- residual sums ------------------------------------------------------ */

/* Of a sum into which the convolution before it is fused, the input that
 * stays float: the later one that comes from an anchor and goes nowhere
 * else. */
static uint32_t fused_input(const targeter *t, sb_node_id id)
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

/* Does the node read the value as integers, and through which input? */
static bool reads_integers(const targeter *t, sb_use use)
{
    const sb_target_op *row = t->row[use.node];

    return t->integer[use.node] && sb_target_is_data(row, use.input) &&
           row->place != SB_PLACE_THROUGH &&
           fused_input(t, use.node) != use.input;
}

/* ---- settings ----------------------------------------------------------- */

static sb_status place_target_check(const targeter *t, const sb_node *node,
                                    const sb_quant_spec *spec)
{
    return sb_quant_config_check_node(t->qm->config, t->target, spec,
                                      sb_node_label(t->g, node));
}

/* ---- quantizers --------------------------------------------------------- */

/* The quantizer of a computed value, named after its producer. */
static sb_status add_activation(const targeter *t, sb_quantizer_spec *spec,
                                sb_quantizer **out)
{
    const sb_value *v = sb_graph_value(t->g, spec->value);

    if (v->producer == SB_NONE)
        return sb_place_add_named(t->qm, spec, v->name, ".input_quantizer",
                                  out);
    const sb_node *node = sb_graph_node(t->g, v->producer);
    return sb_place_add_named(
        t->qm, spec, v->output == 0 ? sb_quant_base_name(t->g, node) : v->name,
        ".output_quantizer", out);
}

static void set_natural_range(const targeter *t, const sb_quantizer *q)
{
    sb_node_id producer = sb_graph_value(t->g, q->value)->producer;
    sb_quant_point *point = &t->qm->place.points[q->point];
    float levels = (float)(1 << q->spec.bits);

    if (producer == SB_NONE || !t->integer[producer] ||
        t->row[producer]->range == SB_RANGE_NONE)
        return;
    point->natural = true;
    point->range = t->row[producer]->range == SB_RANGE_UNIT
                       ? (sb_range){0, (levels - 1) / levels}
                       : (sb_range){-1, (levels - 2) / levels};
}

/* What only moves elements keeps the scale of what it moves. */
static void keep_scale(const targeter *t, const sb_quantizer *q)
{
    sb_node_id producer = sb_graph_value(t->g, q->value)->producer;

    if (producer == SB_NONE || !t->integer[producer] ||
        !has_place(t, producer, SB_PLACE_SHARE))
        return;
    uint32_t from = t->point[sb_graph_node(t->g, producer)->inputs[0]];
    if (from != SB_NONE)
        t->qm->place.points[q->point].same_as =
            t->qm->place.points[from].same_as;
}

/* The edges of a value that its quantizer serves, and a node that reads it as
 * integers.  Not that to a Q of the file: a second scale of the value, which
 * the first one must not narrow. */
static void collect_uses(const targeter *t, sb_value_id value, sb_use *uses,
                         size_t *n, sb_node_id *consumer)
{
    const sb_value *v = sb_graph_value(t->g, value);

    *consumer = v->producer;
    for (uint32_t i = 0; i < v->n_uses; i++) {
        sb_use use = v->uses[i];
        bool integers = reads_integers(t, use) &&
                        !has_place(t, use.node, SB_PLACE_SHARE_ALL);
        if (integers && *consumer == v->producer)
            *consumer = use.node;
        if (integers ||
            (t->result[value] &&
             sb_node_role(sb_graph_node(t->g, use.node)) != SB_ROLE_QUANTIZE))
            uses[(*n)++] = use;
    }
}

static sb_status place_uses(targeter *t, sb_quantizer_spec *spec,
                            sb_node_id consumer)
{
    const sb_node *node = sb_graph_node(t->g, consumer);
    sb_quant_spec settings;
    sb_quantizer *q = NULL;

    sb_quant_config_spec(t->qm->config, SB_QUANT_ACTIVATION, node, &settings);
    SB_TRY(place_target_check(t, node, &settings));
    settings.granularity = SB_QUANT_PER_TENSOR;
    spec->settings = &settings;
    SB_TRY(add_activation(t, spec, &q));
    q->at_output =
        t->result[spec->value] && sb_graph_value(t->g, spec->value)->is_output;
    t->point[spec->value] = q->point;
    set_natural_range(t, q);
    keep_scale(t, q);
    return SB_OK;
}

/* The quantizer of one computed value: on the edges that read integers, on all
 * if it is stored as integers. */
static sb_status place_value(targeter *t, sb_value_id value)
{
    const sb_value *v = sb_graph_value(t->g, value);
    sb_quantizer_spec spec = {.value = value, .axis = -1};
    sb_node_id consumer = SB_NONE;

    if (!is_computed(t, value))
        return SB_OK;
    sb_use *uses = sb_alloc(t->qm->ctx, (size_t)v->n_uses + 1, sizeof *uses);
    if (!uses)
        return SB_NO_MEMORY;
    collect_uses(t, value, uses, &spec.n_uses, &consumer);
    spec.uses = uses;
    sb_status status = SB_OK;
    /* Where only a Q of the file reads it, that one stores the integers. */
    if (spec.n_uses > 0 || (t->result[value] && v->is_output))
        status = place_uses(t, &spec, consumer);
    sb_free(t->qm->ctx, uses);
    return status;
}

static sb_status place_weight(const targeter *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);
    const sb_use use = {id, t->row[id]->weight};
    sb_value_id w = node->inputs[use.input];
    sb_quant_spec settings;
    sb_quantizer_spec spec = {.settings = &settings,
                              .value = w,
                              .uses = &use,
                              .n_uses = 1,
                              .axis = -1};
    sb_quantizer *q = NULL;

    sb_quant_config_spec(t->qm->config, SB_QUANT_WEIGHT, node, &settings);
    SB_TRY(place_target_check(t, node, &settings));
    if (settings.granularity == SB_QUANT_PER_CHANNEL)
        spec.axis = sb_target_weight_axis(
            t->row[id], node, sb_graph_value(t->g, w)->constant.rank);
    if (spec.axis < 0)
        settings.granularity = SB_QUANT_PER_TENSOR;
    SB_TRY(sb_place_add_named(t->qm, &spec, sb_quant_base_name(t->g, node),
                              ".weight_quantizer", &q));
    if (t->target->weight_narrow && settings.symmetric && settings.bits > 1) {
        q->qmax = sb_qmax(settings.bits, true);
        q->qmin = -q->qmax;
    }
    return SB_OK;
}

/* A constant among the data, such as the addend of an Add: as an activation
 * that is always the same. */
static sb_status place_constant(const targeter *t, sb_node_id id,
                                uint32_t input)
{
    const sb_node *node = sb_graph_node(t->g, id);
    const sb_use use = {id, input};
    sb_quant_spec settings;
    sb_quantizer_spec spec = {.settings = &settings,
                              .value = node->inputs[input],
                              .uses = &use,
                              .n_uses = 1,
                              .axis = -1};
    sb_quantizer *q = NULL;

    sb_quant_config_spec(t->qm->config, SB_QUANT_ACTIVATION, node, &settings);
    SB_TRY(place_target_check(t, node, &settings));
    settings.granularity = SB_QUANT_PER_TENSOR;
    settings.observer = sb_observer_find(NULL, "minmax");
    settings.observer_params = NULL;
    return sb_place_add_named(t->qm, &spec, sb_quant_base_name(t->g, node),
                              ".constant_quantizer", &q);
}

/* One scale for all that is joined: each input edge takes that of the
 * result. */
static sb_status place_joined(const targeter *t, sb_node_id id, uint32_t input)
{
    const sb_node *node = sb_graph_node(t->g, id);
    const sb_use use = {id, input};
    sb_quant_spec settings;
    sb_quantizer_spec spec = {.settings = &settings,
                              .value = node->inputs[input],
                              .uses = &use,
                              .n_uses = 1,
                              .axis = -1,
                              .alone = true};
    sb_quantizer *q = NULL;
    uint32_t of = t->point[result_of(t, id)];

    if (of == SB_NONE)
        return SB_OK;
    sb_quant_config_spec(t->qm->config, SB_QUANT_ACTIVATION, node, &settings);
    settings.granularity = SB_QUANT_PER_TENSOR;
    SB_TRY(sb_place_add_named(t->qm, &spec, sb_quant_base_name(t->g, node),
                              ".joined_quantizer", &q));
    t->qm->place.points[q->point].same_as = t->qm->place.points[of].same_as;
    return SB_OK;
}

static sb_status place_inputs(const targeter *t, sb_node_id id)
{
    const sb_node *node = sb_graph_node(t->g, id);
    const sb_target_op *row = t->row[id];

    for (uint32_t i = 0; i < node->n_in; i++) {
        if (node->inputs[i] == SB_NONE || !sb_target_is_data(row, i))
            continue;
        if (t->anchor[id] && i == row->weight)
            SB_TRY(place_weight(t, id));
        else if (row->place == SB_PLACE_SHARE_ALL)
            SB_TRY(place_joined(t, id, i));
        else if (sb_is_const(t->g, node->inputs[i]) &&
                 row->place != SB_PLACE_THROUGH)
            SB_TRY(place_constant(t, id, i));
    }
    return SB_OK;
}

/* ---- all together ------------------------------------------------------- */

static sb_status place_all(targeter *t)
{
    const sb_graph *g = t->g;

    for (size_t i = 0; i < g->n_inputs; i++)
        SB_TRY(place_value(t, g->inputs[i]));
    for (size_t i = 0; i < t->n_order; i++) {
        const sb_node *node = sb_graph_node(g, t->order[i]);
        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE)
                SB_TRY(place_value(t, node->outputs[k]));
    }
    for (size_t i = t->n_order; i-- > 0;) {
        sb_node_id id = t->order[i];
        if (t->integer[id] && t->row[id]->join)
            sb_share_concat_scale(t->qm, sb_graph_node(g, id), result_of(t, id),
                                  t->point);
    }
    for (size_t i = 0; i < t->n_order; i++)
        SB_TRY(t->integer[t->order[i]] ? place_inputs(t, t->order[i])
                                       : sb_place_table(t->qm, t->order[i]));
    return SB_OK;
}

static void mark_results(targeter *t)
{
    for (size_t i = 0; i < t->n_order; i++) {
        sb_node_id id = t->order[i];
        const sb_node *node = sb_graph_node(t->g, id);

        if (!stores_integers(t, id))
            continue;
        for (uint32_t k = 0; k < node->n_out; k++) {
            sb_value_id r = k == 0 ? result_of(t, id) : node->outputs[k];
            if (r != SB_NONE)
                t->result[r] = t->made[r];
        }
    }
}

static sb_status place_target_run(targeter *t)
{
    for (size_t i = 0; i < t->n_order; i++)
        t->row[t->order[i]] = choose_row(t, sb_graph_node(t->g, t->order[i]));
    const bool free = !t->qm->asked && t->qm->known.n == 0;

    for (size_t i = 0; i < t->n_order; i++) {
        sb_node_id id = t->order[i];
        t->anchor[id] =
            is_anchor(t, id) &&
            !(free && is_narrow(t, sb_graph_node(t->g, id), t->row[id]));
    }
    place_target_spread(t);
    give_up(t);
    if (t->target->fast_float && free)
        leave_depthwise(t);
    mark_results(t);
    return place_all(t);
}

sb_status sb_quant_place_target(sb_quant_model *qm)
{
    sb_ctx *ctx = qm->ctx;
    const sb_graph *g = qm->graph;
    targeter t = {.qm = qm, .g = g, .target = qm->target};
    sb_status status = sb_graph_order(g, &t.order, &t.n_order);

    if (status != SB_OK)
        return status;
    t.row = sb_alloc(ctx, g->n_nodes + 1, sizeof *t.row);
    t.integer = sb_alloc(ctx, g->n_nodes + 1, sizeof *t.integer);
    t.anchor = sb_alloc(ctx, g->n_nodes + 1, sizeof *t.anchor);
    t.made = sb_alloc(ctx, g->n_values + 1, sizeof *t.made);
    t.result = sb_alloc(ctx, g->n_values + 1, sizeof *t.result);
    t.point = sb_alloc(ctx, g->n_values + 1, sizeof *t.point);
    if (!t.row || !t.integer || !t.anchor || !t.made || !t.result || !t.point)
        status = SB_NO_MEMORY;
    for (size_t i = 0; status == SB_OK && i < g->n_values; i++)
        t.point[i] = SB_NONE;
    if (status == SB_OK)
        status = place_target_run(&t);
    sb_free(ctx, t.row);
    sb_free(ctx, t.integer);
    sb_free(ctx, t.anchor);
    sb_free(ctx, t.made);
    sb_free(ctx, t.result);
    sb_free(ctx, t.point);
    sb_free(ctx, t.order);
    return status;
}
