/* Placement: the list of quantizers and of their points, and who fills it. */
#include "quant/place/place.h"

#include <string.h>

#include "base/str.h"
#include "ops/op_registry.h"
#include "passes/rewrite.h"

/* ---- points ------------------------------------------------------------- */

/* Would both give the same scale to the same data? */
static bool same_settings(const sb_quantizer *a, const sb_quantizer *b)
{
    const sb_quant_spec *s = &a->spec, *t = &b->spec;

    return a->value == b->value && a->axis == b->axis && a->block == b->block &&
           s->kind == t->kind && s->granularity == t->granularity &&
           s->symmetric == t->symmetric && s->bits == t->bits &&
           sb_quant_spec_same_rows(s, t);
}

/* The point of a quantizer: that of one with the same settings, or a new one.
 */
static sb_status place_find_point(sb_quant_model *qm, const sb_quantizer *q,
                                  bool alone, uint32_t *out)
{
    sb_placement *p = &qm->place;
    struct sb_value_points *list = &p->of_value[q->value];

    for (uint32_t i = list->first; i != SB_NONE && !alone;
         i = p->points[i].next) {
        if (same_settings(q, &p->quantizers[p->points[i].head])) {
            *out = i;
            return SB_OK;
        }
    }
    SB_TRY(sb_grow(qm->ctx, &p->points, &p->cap_points, p->n_points + 1,
                   sizeof *p->points));
    uint32_t made = (uint32_t)p->n_points++;
    p->points[made] = (sb_quant_point){.value = q->value,
                                       .head = SB_NONE,
                                       .same_as = made,
                                       .next = SB_NONE,
                                       .unscaled = SB_NONE,
                                       .followers = SB_NONE,
                                       .next_follower = SB_NONE};
    if (list->first == SB_NONE)
        list->first = made;
    else
        p->points[list->last].next = made;
    list->last = made;
    *out = made;
    return SB_OK;
}

/* Puts the last quantizer of the list to its point. */
static void place_link(sb_placement *p)
{
    uint32_t i = (uint32_t)p->n_quantizers - 1;
    sb_quant_point *point = &p->points[p->quantizers[i].point];

    if (point->head == SB_NONE)
        point->head = point->first = i;
    else
        p->quantizers[point->tail].next = i;
    point->tail = i;
}

/* ---- quantizers --------------------------------------------------------- */

/* Groups cut the axis of a matrix that is summed over. */
static sb_status group_axis(const sb_quant_model *qm, const sb_node *node,
                            const sb_tensor *w, int64_t size, int *axis,
                            int64_t *block)
{
    const sb_op_def *op = sb_op_of(node);

    if (w->rank != 2)
        return sb_fail(qm->ctx, SB_BAD_CONFIG,
                       "node '%s' (%s): groups of columns are for weights of "
                       "rank 2, and this one has rank %d; use per-channel",
                       sb_node_label(qm->graph, node), node->op, w->rank);
    *axis = op && op->quant == SB_ROLE_TABLE ? 1 : 1 - *axis;
    *block = size > 0 && size < w->dims[*axis] ? size : w->dims[*axis];
    return SB_OK;
}

sb_status sb_place_axis(const sb_quant_model *qm, const sb_quant_spec *settings,
                        sb_use use, int *axis, int64_t *block)
{
    const sb_node *node = sb_graph_node(qm->graph, use.node);
    const sb_value *v = sb_graph_value(qm->graph, node->inputs[use.input]);
    int rank = v->type.shape.rank;

    *axis = -1;
    *block = 0;
    if (settings->granularity == SB_QUANT_PER_TENSOR || rank == 0)
        return SB_OK;
    if (settings->kind == SB_QUANT_ACTIVATION) {
        *axis = settings->channel_axis;
        /* What is flat has its channels last. */
        if (rank > 0 && *axis >= rank)
            *axis = rank - 1;
        return SB_OK;
    }
    if (rank == 1) /* a vector that is summed over */
        return SB_OK;
    *axis = sb_op_weight_axis(node, rank);
    if (settings->granularity != SB_QUANT_PER_GROUP)
        return SB_OK;
    return group_axis(qm, node, &v->constant, settings->group_size, axis,
                      block);
}

static sb_status place_add(sb_quant_model *qm, const sb_quantizer_spec *spec,
                           sb_quantizer **out)
{
    const sb_quant_spec *settings = spec->settings;
    sb_quantizer q = {
        .name = sb_arena_str(&qm->arena, spec->name),
        .spec = *settings,
        .def = settings->quantizer,
        .value = spec->value,
        .uses = sb_arena_copy(&qm->arena, spec->uses,
                              spec->n_uses * sizeof *spec->uses),
        .n_uses = spec->n_uses,
        .axis = spec->axis,
        .block = spec->block,
        .next = SB_NONE,
    };

    const sb_value *v = sb_graph_value(qm->graph, spec->value);
    if (v->type.dtype != SB_DTYPE_F32)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "'%s' is of type %s: only float32 networks can be "
                       "quantized; export the model in float32",
                       v->name, sb_dtype_name(v->type.dtype));
    if (v->is_constant && sb_tensor_count(&v->constant) == 0)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "the weight '%s' has no elements, so it has no scale",
                       v->name);
    if (!q.name || (!q.uses && q.n_uses > 0))
        return SB_NO_MEMORY;
    if (q.def->needs_training && !qm->train)
        return sb_fail(qm->ctx, SB_UNSUPPORTED,
                       "%s: QUANTIZER.TYPE '%s' needs training: `sparsebit "
                       "train` with this configuration",
                       sb_quant_config_file(qm->config), q.def->name);
    sb_placement *p = &qm->place;
    SB_TRY(sb_grow(qm->ctx, &p->quantizers, &p->cap_quantizers,
                   p->n_quantizers + 1, sizeof *p->quantizers));
    SB_TRY(place_find_point(qm, &q, spec->alone, &q.point));
    p->quantizers[p->n_quantizers++] = q;
    place_link(p);
    *out = &p->quantizers[p->n_quantizers - 1];
    return SB_OK;
}

sb_status sb_place_add_named(sb_quant_model *qm, sb_quantizer_spec *spec,
                             const char *base, const char *suffix,
                             sb_quantizer **out)
{
    sb_str name;

    sb_str_init(&name, qm->ctx);
    sb_str_addf(&name, "%s%s", base, suffix);
    spec->name = sb_str_text(&name);
    sb_status status = sb_str_status(&name);
    if (status == SB_OK)
        status = place_add(qm, spec, out);
    sb_str_free(&name);
    return status;
}

/* Lists the points that have the scales of another, in order. */
static void place_link_followers(sb_placement *p)
{
    for (size_t i = p->n_points; i-- > 0;) {
        sb_quant_point *root = &p->points[p->points[i].same_as];

        if (root == &p->points[i])
            continue;
        p->points[i].next_follower = root->followers;
        root->followers = (uint32_t)i;
    }
}

/* ---- neighbors ---------------------------------------------------------- */

/* Does the target compute the node on integers, if it does so around it? */
static bool place_has_kernel(const sb_quant_model *qm, const sb_node *node)
{
    const sb_target_op *row = node ? sb_target_op_find(qm->target, node) : NULL;

    return row && row->place != SB_PLACE_FLOAT &&
           !sb_quant_config_skips(qm->config, node);
}

bool sb_quant_between_kernels(const sb_quant_model *qm, const sb_graph *g,
                              const sb_node *node)
{
    const sb_value *y = sb_graph_value(g, node->outputs[0]);
    bool all = place_has_kernel(qm, sb_graph_producer(g, node->inputs[0]));

    for (uint32_t i = 0; i < y->n_uses; i++)
        all = all && place_has_kernel(qm, sb_graph_node(g, y->uses[i].node));
    return all && y->n_uses > 0 && !y->is_output;
}

bool sb_is_depthwise(const sb_graph *g, const sb_node *node, uint32_t weight)
{
    const sb_tensor *w = sb_const_of(g, sb_node_in(node, weight));

    return w && sb_node_flag(node, SB_OP_CONV) && w->rank > 2 &&
           w->dims[1] == 1 && sb_node_int(node, "group", 1) > 1;
}

/* ---- all of them -------------------------------------------------------- */

static sb_status place_by_mode(sb_quant_model *qm)
{
    sb_quant_mode mode = sb_quant_config_mode(qm->config);

    if (mode == SB_QUANT_WEIGHTS_ONLY && qm->follow && !qm->target->ops)
        return sb_quant_place_imported(qm);
    if (mode != SB_QUANT_STATIC)
        return sb_quant_place_weights(qm);
    if (qm->target->ops)
        return sb_quant_place_target(qm);
    return sb_imported_calibrated(&qm->known) ? sb_quant_place_imported(qm)
                                              : sb_quant_place_config(qm);
}

/* A point speaks through a quantizer that is on, if there is one. */
static void place_choose_speakers(sb_placement *p)
{
    for (size_t i = 0; i < p->n_points; i++) {
        uint32_t q = p->points[i].head;

        while (q != SB_NONE && p->quantizers[q].fake_fused)
            q = p->quantizers[q].next;
        p->points[i].first = q != SB_NONE ? q : p->points[i].head;
    }
}

/* Is there a quantizer that can be on? */
static bool place_has_live(const sb_quant_model *qm)
{
    for (size_t i = 0; i < qm->place.n_quantizers; i++)
        if (!qm->place.quantizers[i].fake_fused)
            return true;
    return false;
}

/* Why there is none: the logarithms, or what the model consists of. */
static sb_status place_nothing(const sb_quant_model *qm)
{
    const sb_graph *g = qm->graph;
    const sb_op_def *ops[4];
    size_t n = 0;
    bool more = false;
    sb_str list;

    if (qm->place.before_log)
        return sb_fail(qm->ctx, SB_BAD_MODEL,
                       "nothing to quantize: layers such as '%s', whose result "
                       "goes into a logarithm, stay in float: 256 equal steps "
                       "would make zeros of small numbers",
                       qm->place.before_log);
    sb_str_init(&list, qm->ctx);
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        size_t k = 0;
        while (k < n && ops[k] != sb_op_of(node))
            k++;
        if (node->dead || k < n)
            continue;
        more = n == SB_COUNT(ops);
        if (more)
            break;
        ops[n++] = sb_op_of(node);
        sb_str_addf(&list, "%s%s", k > 0 ? ", " : "", node->op);
    }
    sb_status status =
        sb_fail(qm->ctx, SB_BAD_MODEL,
                "nothing to quantize: the model (%s%s) has no operator with a "
                "quantizer under this configuration",
                sb_str_text(&list), more ? ", ..." : "");
    sb_str_free(&list);
    return status;
}

sb_status sb_quant_place(sb_quant_model *qm)
{
    sb_placement *p = &qm->place;
    size_t n = qm->graph->n_values;

    p->of_value = sb_alloc(qm->ctx, n + 1, sizeof *p->of_value);
    if (!p->of_value)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        p->of_value[i].first = p->of_value[i].last = SB_NONE;
    SB_TRY(place_by_mode(qm));
    SB_TRY(sb_quant_apply_imported(qm));
    place_choose_speakers(p);
    place_link_followers(p);
    if (!place_has_live(qm) && qm->blocks)
        return sb_fail(qm->ctx, SB_BAD_MODEL,
                       "nothing to quantize: no linear layer that is not "
                       "excluded has rows of a multiple of 32 elements, as "
                       "blocks of GGUF files want");
    return place_has_live(qm) ? SB_OK : place_nothing(qm);
}
