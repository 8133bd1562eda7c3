/* Calibration block by block: every value is observed behind quantizers.
 *
 * A value may be observed when the quantizers before it have their scales, so
 * nodes fall into levels: a node is one level above the quantizers it reads
 * through,
 *
 *     level(node) = max over inputs of  level(value), or
 *                                       level(point) + 1 if a point is there
 *
 * and the level of a point is that of the value it quantizes.  Points that do
 * not depend on each other share a level.  Level by level (staged.h), the nodes
 * of one level run over all batches; the points of the level observe, then get
 * their scales.
 *
 * Where an edge has the scale of a point further down (the inputs of a Concat),
 * it is not quantized while that point is observed.  It only moves elements, so
 * what comes out of the quantizer behind it is the same. */
#include "quant/calibrate/calibrate.h"
#include "quant/calibrate/staged.h"
#include "quant/model/instrument.h"
#include "quant/model/simulate.h"

struct sb_blocks {
    sb_quant_model *qm;
    const sb_graph *g;
    sb_staged staged;
    int32_t *value_level; /* [value] where it is made; 0 for inputs */
    int32_t *point_level; /* [point] SB_NO_LEVEL: not observed */
    int32_t n_levels;
    size_t done, total; /* of the work, for progress */
};

/* ---- levels ------------------------------------------------------------- */

/* The point on every input of every node, SB_NONE where there is none;
 * first[node] is where its inputs begin. */
typedef struct edges {
    uint32_t *point;
    size_t *first;
} edges;

static sb_status make_edges(const sb_blocks *b, edges *e)
{
    const sb_quant_model *qm = b->qm;
    size_t n = 0;

    e->first = sb_alloc(qm->ctx, b->g->n_nodes + 1, sizeof *e->first);
    if (!e->first)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < b->g->n_nodes; i++) {
        e->first[i] = n;
        n += b->g->nodes[i].n_in + b->g->nodes[i].n_implicit;
    }
    e->point = sb_alloc(qm->ctx, n + 1, sizeof *e->point);
    if (!e->point)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        e->point[i] = SB_NONE;
    /* As sb_quant_derive() does: later points override. */
    for (size_t i = 0; i < qm->place.n_quantizers; i++) {
        const sb_quantizer *q = &qm->place.quantizers[i];

        for (size_t k = 0; k < q->n_uses && !sb_quantizer_is_off(qm, q); k++) {
            uint32_t *at =
                &e->point[e->first[q->uses[k].node] + q->uses[k].input];
            if (*at == SB_NONE || *at < q->point)
                *at = q->point;
        }
    }
    return SB_OK;
}

static int32_t at_least(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t level_of_node(const sb_blocks *b, const edges *e, sb_node_id id)
{
    const sb_node *node = sb_graph_node(b->g, id);
    int32_t level = 0;

    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
        sb_value_id v = node->inputs[i];
        uint32_t point = e->point[e->first[id] + i];

        if (v == SB_NONE || sb_graph_value(b->g, v)->is_constant)
            continue;
        level = at_least(level, b->value_level[v]);
        if (point != SB_NONE) { /* SB_NO_LEVEL + 1 is 0 */
            uint32_t root = b->qm->place.points[point].same_as;
            level = at_least(level, b->point_level[root] + 1);
        }
    }
    return level;
}

static void level_of_points(sb_blocks *b, sb_value_id value, int32_t level)
{
    const sb_placement *p = &b->qm->place;

    for (uint32_t s = p->of_value[value].first; s != SB_NONE;
         s = p->points[s].next)
        if (sb_calibrate_observes(b->qm, s))
            b->point_level[s] = level;
}

static void set_levels(sb_blocks *b, const edges *e)
{
    const sb_graph *g = b->g;

    for (size_t i = 0; i < g->n_inputs; i++)
        level_of_points(b, g->inputs[i], 0);
    for (size_t i = 0; i < b->staged.n_order; i++) {
        sb_node_id id = b->staged.order[i];
        const sb_node *node = sb_graph_node(g, id);
        int32_t level = level_of_node(b, e, id);

        b->staged.node_level[id] = level;
        for (uint32_t k = 0; k < node->n_out; k++) {
            if (node->outputs[k] == SB_NONE)
                continue;
            b->value_level[node->outputs[k]] = level;
            level_of_points(b, node->outputs[k], level);
        }
    }
    for (uint32_t s = 0; s < b->qm->place.n_points; s++)
        b->n_levels = at_least(b->n_levels, b->point_level[s] + 1);
    for (uint32_t s = 0; s < b->qm->place.n_points; s++)
        if (b->point_level[s] != SB_NO_LEVEL)
            b->staged.kept_until[b->qm->place.points[s].value] =
                b->point_level[s];
    sb_staged_mark(&b->staged);
}

static sb_status alloc_arrays(sb_blocks *b)
{
    sb_ctx *ctx = b->qm->ctx;
    size_t n_points = b->qm->place.n_points;

    b->value_level = sb_alloc(ctx, b->g->n_values + 1, sizeof *b->value_level);
    b->point_level = sb_alloc(ctx, n_points + 1, sizeof *b->point_level);
    if (!b->value_level || !b->point_level)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n_points; i++)
        b->point_level[i] = SB_NO_LEVEL;
    return SB_OK;
}

static sb_status plan_levels(sb_blocks *b)
{
    edges e = {0};

    SB_TRY(alloc_arrays(b));
    sb_status status = make_edges(b, &e);
    if (status == SB_OK)
        set_levels(b, &e);
    sb_free(b->qm->ctx, e.point);
    sb_free(b->qm->ctx, e.first);
    return status;
}

/* ---- life --------------------------------------------------------------- */

sb_status sb_blocks_create(sb_quant_model *qm, sb_blocks **out)
{
    sb_blocks *b = sb_alloc(qm->ctx, 1, sizeof *b);

    if (!b)
        return SB_NO_MEMORY;
    b->qm = qm;
    b->g = qm->graph;
    sb_status status = sb_staged_init(
        qm->ctx, b->g, qm->state.calibration.memory_limit, &b->staged);
    if (status == SB_OK)
        status = plan_levels(b);
    if (status == SB_OK)
        *out = b;
    else
        sb_blocks_free(b);
    return status;
}

void sb_blocks_free(sb_blocks *b)
{
    if (!b)
        return;
    sb_ctx *ctx = b->qm->ctx;
    sb_staged_clear(&b->staged);
    sb_free(ctx, b->value_level);
    sb_free(ctx, b->point_level);
    sb_free(ctx, b);
}

sb_status sb_blocks_take(sb_blocks *b, const sb_tensor *const *inputs)
{
    return sb_staged_take(&b->staged, inputs);
}

/* ---- the graph of a level ----------------------------------------------- */

typedef struct block {
    sb_blocks *b;
    sb_stage stage;
    sb_value_id *watched; /* [value] what Observe makes of it; or SB_NONE */
    sb_node_id *readers;  /* of points that are observed */
    size_t n_readers;
} block;

static sb_status put_point(void *user, sb_graph *g, uint32_t point,
                           sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    block *k = user;
    const sb_quant_model *qm = k->b->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    sb_value_id value = qm->place.points[point].value, watched = SB_NONE;
    bool constant = sb_quantizer_is_constant(qm, q);

    *y = x;
    if (k->b->point_level[point] == k->stage.level) {
        SB_TRY(sb_calibrate_put(qm, g, point, beside, x, &watched));
        if (k->watched[value] == SB_NONE && !q->def->map_activation) {
            k->watched[value] = watched;
            return SB_OK;
        }
        return sb_graph_add_output(g, watched);
    }
    if ((constant && !qm->state.calibration.asym_weights) ||
        sb_quantizer_qparams(qm, q)->n == 0 || q->spec.dynamic ||
        !sb_stage_reads(&k->stage, &qm->place, point))
        return SB_OK;
    return sb_quant_put_fake(qm, g, point, beside, x, y);
}

/* What is observed becomes an output, whether the value is kept or not. */
static sb_status cut_out(block *k)
{
    SB_TRY(sb_stage_cut(&k->stage, k->watched));
    for (size_t i = 0; i < k->stage.n_out; i++)
        k->watched[k->stage.out[i]] = SB_NONE;
    for (sb_value_id v = 0; v < k->b->g->n_values; v++)
        if (k->watched[v] != SB_NONE)
            SB_TRY(sb_graph_add_output(k->stage.graph, k->watched[v]));
    return SB_OK;
}

/* Readers of later levels are needed to see the edges of the point. */
static void list_point(block *k, uint32_t point)
{
    const sb_placement *p = &k->b->qm->place;

    k->stage.wanted[p->points[point].value] = true;
    for (uint32_t i = p->points[point].head; i != SB_NONE;
         i = p->quantizers[i].next)
        if (p->quantizers[i].n_uses > 0)
            k->readers[k->n_readers++] = p->quantizers[i].uses[0].node;
}

static sb_status list_cut(block *k)
{
    const sb_graph *g = k->b->g;
    const sb_placement *p = &k->b->qm->place;

    SB_TRY(sb_stage_open(&k->stage, 0));
    k->watched = sb_alloc(k->b->qm->ctx, g->n_values + 1, sizeof *k->watched);
    if (!k->watched)
        return SB_NO_MEMORY;
    for (sb_value_id v = 0; v < g->n_values; v++)
        k->watched[v] = SB_NONE;
    k->readers =
        sb_alloc(k->b->qm->ctx, p->n_quantizers + 1, sizeof *k->readers);
    if (!k->readers)
        return SB_NO_MEMORY;
    for (uint32_t s = 0; s < p->n_points; s++)
        if (k->b->point_level[s] == k->stage.level)
            list_point(k, s);
    SB_TRY(sb_stage_list(&k->stage));
    return sb_stage_take_part(&k->stage, k->readers, k->n_readers);
}

static sb_status make_block(block *k)
{
    sb_quant_model *qm = k->b->qm;
    sb_exec_options opt = {.exact = qm->exact,
                           .observe = sb_calibrate_observe,
                           .tap = sb_calibrate_tap,
                           .observe_user = qm};

    SB_TRY(list_cut(k));
    SB_TRY(sb_quant_derive_part(qm, &k->stage.part, put_point, k,
                                &k->stage.graph));
    SB_TRY(cut_out(k));
    return sb_stage_start(&k->stage, &opt);
}

/* ---- running ------------------------------------------------------------ */

static size_t weight_of_level(const sb_blocks *b, int32_t level)
{
    return 1 + sb_staged_nodes(&b->staged, level);
}

static sb_status run_block(block *k)
{
    sb_blocks *b = k->b;
    size_t weight = weight_of_level(b, k->stage.level);

    SB_TRY(make_block(k));
    for (size_t i = 0; i < b->staged.n_batches; i++) {
        SB_TRY(sb_stage_run(&k->stage, i));
        b->done += weight;
        SB_TRY(sb_progress(b->qm->ctx, "calibrate", b->done, b->total));
    }
    sb_stage_done(&k->stage);
    return SB_OK;
}

static sb_status run_level(sb_blocks *b, int32_t level)
{
    block k = {.b = b, .stage = {.s = &b->staged, .level = level}};

    if (b->staged.n_batches > 0) { /* else all was loaded */
        sb_status status = run_block(&k);
        sb_stage_clear(&k.stage);
        sb_free(b->qm->ctx, k.watched);
        sb_free(b->qm->ctx, k.readers);
        SB_TRY(status);
    }
    if (b->qm->state.shared)
        SB_TRY(sb_calibrate_join(b->qm, b->point_level, level));
    for (uint32_t s = 0; s < b->qm->place.n_points; s++)
        if (b->point_level[s] == level)
            SB_TRY(sb_calibrate_calc(b->qm, s));
    return SB_OK;
}

sb_status sb_blocks_run(sb_blocks *b)
{
    sb_quant_model *qm = b->qm;

    for (uint32_t s = 0; s < qm->place.n_points; s++)
        if (qm->place.points[s].same_as == s &&
            b->point_level[s] == SB_NO_LEVEL)
            SB_TRY(sb_calibrate_calc(qm, s));
    b->done = b->total = 0;
    for (int32_t level = 0; level < b->n_levels; level++)
        b->total += weight_of_level(b, level) * b->staged.n_batches;
    for (int32_t level = 0; level < b->n_levels; level++)
        SB_TRY(run_level(b, level));
    return SB_OK;
}
