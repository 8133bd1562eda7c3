/* Which edges get a quantizer: where the target's row makes integer kernels of
 * them (placer.c), under the configuration.
 *
 * A result of a kernel that makes integers is quantized once, and all consumers
 * read it so; other values are quantized only for those who want integers. */
#include "quant/place/placer.h"

/* ---- settings ----------------------------------------------------------- */

static sb_status place_target_check(const sb_placer *t, const sb_node *node,
                                    const sb_quant_spec *spec)
{
    return sb_quant_config_check_node(t->qm->config, t->target, spec,
                                      sb_node_label(t->g, node));
}

/* ---- quantizers --------------------------------------------------------- */

/* The quantizer of a computed value, named after its producer. */
static sb_status add_activation(const sb_placer *t, sb_quantizer_spec *spec,
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

static void set_natural_range(const sb_placer *t, const sb_quantizer *q)
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
static void keep_scale(const sb_placer *t, const sb_quantizer *q)
{
    sb_node_id producer = sb_graph_value(t->g, q->value)->producer;

    if (producer == SB_NONE || !t->integer[producer] ||
        !sb_placer_has(t, producer, SB_PLACE_SHARE))
        return;
    uint32_t from = t->point[sb_graph_node(t->g, producer)->inputs[0]];
    if (from != SB_NONE)
        t->qm->place.points[q->point].same_as =
            t->qm->place.points[from].same_as;
}

/* The edges of a value that its quantizer serves, and a node that reads it as
 * integers.  Not that to a Q of the file: a second scale of the value, which
 * the first one must not narrow. */
static void collect_uses(const sb_placer *t, sb_value_id value, sb_use *uses,
                         size_t *n, sb_node_id *consumer)
{
    const sb_value *v = sb_graph_value(t->g, value);

    *consumer = v->producer;
    for (uint32_t i = 0; i < v->n_uses; i++) {
        sb_use use = v->uses[i];
        bool integers = sb_placer_reads(t, use) &&
                        !sb_placer_has(t, use.node, SB_PLACE_SHARE_ALL);
        if (integers && *consumer == v->producer)
            *consumer = use.node;
        if (integers ||
            (t->result[value] &&
             sb_node_role(sb_graph_node(t->g, use.node)) != SB_ROLE_QUANTIZE))
            uses[(*n)++] = use;
    }
}

/* Does the node give s times as much for s times as much, at least of small
 * numbers?  Then channels can be evened out in front of it (equalization). */
static bool scales_with_input(const sb_graph *g, const sb_node *node)
{
    double lo, hi;
    const sb_result_range *range = sb_node_range(g, node, &lo, &hi);

    return sb_node_role(node) == SB_ROLE_WEIGHTED ||
           sb_node_flag(node, SB_OP_HOMOGENEOUS) || (range && range->clips);
}

/* Do depthwise convolutions alone read the value?  Such whose result goes to
 * what runs in float: of others ONNX Runtime, with which files are compared,
 * makes kernels that it then refuses to run for their many scales. */
static bool only_depthwise(const sb_placer *t, const sb_quantizer_spec *spec)
{
    for (size_t i = 0; i < spec->n_uses; i++) {
        sb_node_id id = spec->uses[i].node;
        if (!t->anchor[id] || spec->uses[i].input != 0 ||
            !sb_is_depthwise(t->g, sb_graph_node(t->g, id),
                             t->row[id]->weight) ||
            sb_placer_is_useful(t, id))
            return false;
    }
    return spec->n_uses > 0;
}

/* Has each channel of the value a scale of its own?  As a quantized file says;
 * a configuration that wants that has no word for it, so one scale it is. */
static bool scales_channels(const sb_placer *t, const sb_quantizer_spec *spec)
{
    const sb_value *v = sb_graph_value(t->g, spec->value);
    const sb_imported_qparams *known =
        sb_imported_find(&t->qm->known, t->g, spec->value);

    if (!t->target->depthwise_channels || t->result[spec->value] ||
        v->type.shape.rank < 3 || !only_depthwise(t, spec))
        return false;
    if (known || t->qm->asked)
        return known && known->qparams.axis == 1;
    return v->producer != SB_NONE && !t->integer[v->producer] &&
           !scales_with_input(t->g, sb_graph_node(t->g, v->producer));
}

static sb_status place_uses(sb_placer *t, sb_quantizer_spec *spec,
                            sb_node_id consumer)
{
    const sb_node *node = sb_graph_node(t->g, consumer);
    sb_quant_spec settings;
    sb_quantizer *q = NULL;

    sb_quant_config_spec(t->qm->config, SB_QUANT_ACTIVATION, node, &settings);
    SB_TRY(place_target_check(t, node, &settings));
    settings.granularity = SB_QUANT_PER_TENSOR;
    if (scales_channels(t, spec)) {
        settings.granularity = SB_QUANT_PER_CHANNEL;
        spec->axis = 1;
    }
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
static sb_status place_value(sb_placer *t, sb_value_id value)
{
    const sb_value *v = sb_graph_value(t->g, value);
    sb_quantizer_spec spec = {.value = value, .axis = -1};
    sb_node_id consumer = SB_NONE;

    if (!sb_dtype_is_float(v->type.dtype) || sb_is_const(t->g, value))
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

static sb_status place_weight(const sb_placer *t, sb_node_id id)
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
static sb_status place_constant(const sb_placer *t, sb_node_id id,
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
static sb_status place_joined(const sb_placer *t, sb_node_id id, uint32_t input)
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
    uint32_t of = t->point[sb_placer_result(t, id)];

    if (of == SB_NONE)
        return SB_OK;
    sb_quant_config_spec(t->qm->config, SB_QUANT_ACTIVATION, node, &settings);
    settings.granularity = SB_QUANT_PER_TENSOR;
    SB_TRY(sb_place_add_named(t->qm, &spec, sb_quant_base_name(t->g, node),
                              ".joined_quantizer", &q));
    t->qm->place.points[q->point].same_as = t->qm->place.points[of].same_as;
    return SB_OK;
}

static sb_status place_inputs(const sb_placer *t, sb_node_id id)
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

static sb_status place_all(sb_placer *t)
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
            sb_share_concat_scale(t->qm, sb_graph_node(g, id),
                                  sb_placer_result(t, id), t->point);
    }
    for (size_t i = 0; i < t->n_order; i++)
        SB_TRY(t->integer[t->order[i]] ? place_inputs(t, t->order[i])
                                       : sb_place_table(t->qm, t->order[i]));
    return SB_OK;
}

static sb_status place_target_run(sb_placer *t)
{
    sb_placer_choose(t);
    return place_all(t);
}

sb_status sb_quant_place_target(sb_quant_model *qm)
{
    sb_ctx *ctx = qm->ctx;
    const sb_graph *g = qm->graph;
    sb_placer t = {.qm = qm, .g = g, .target = qm->target};
    sb_status status = sb_graph_order(g, &t.order, &t.n_order);

    if (status != SB_OK)
        return status;
    t.row = sb_alloc(ctx, g->n_nodes + 1, sizeof *t.row);
    t.integer = sb_alloc(ctx, g->n_nodes + 1, sizeof *t.integer);
    t.anchor = sb_alloc(ctx, g->n_nodes + 1, sizeof *t.anchor);
    t.made = sb_alloc(ctx, g->n_values + 1, sizeof *t.made);
    t.result = sb_alloc(ctx, g->n_values + 1, sizeof *t.result);
    t.point = sb_alloc(ctx, g->n_values + 1, sizeof *t.point);
    t.log = sb_alloc(ctx, g->n_values + 1, sizeof *t.log);
    if (!t.row || !t.integer || !t.anchor || !t.made || !t.result || !t.point ||
        !t.log)
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
    sb_free(ctx, t.log);
    sb_free(ctx, t.order);
    return status;
}
