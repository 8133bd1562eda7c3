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
 * not depend on each other share a level.  Level by level, the nodes of one
 * level run over all batches as a graph of their own, each node in just one
 * of them; the points of the level observe, then get their scales.  Between two
 * levels only the cut is kept: values that a node still has to read (spill.h:
 * in memory up to a limit, beyond it in a file).
 *
 * Where an edge has the scale of a point further down (the inputs of a Concat),
 * it is not quantized while that point is observed.  It only moves elements, so
 * what comes out of the quantizer behind it is the same. */
#include <assert.h>

#include "passes/pass.h"
#include "quant/calibrate/calibrate.h"
#include "quant/model/instrument.h"
#include "quant/model/simulate.h"
#include "tensor/spill.h"

enum { UNKNOWN = -1 };
static const size_t DEFAULT_LIMIT = (size_t)512 << 20;

struct sb_blocks {
    sb_quant_model *qm;
    const sb_graph *g;
    sb_node_id *order;
    size_t n_order;
    int32_t *node_level;  /* [node] UNKNOWN: nothing observed needs it */
    int32_t *value_level; /* [value] where it is made; 0 for inputs */
    int32_t *kept_until;  /* [value] the last level that reads it */
    int32_t *point_level; /* [point] UNKNOWN: not observed */
    int32_t n_levels;
    sb_spill *spill;
    sb_spilled_tensor **kept; /* [value] NULL, or [cap_batches] */
    size_t n_batches, cap_batches;
    size_t done, total; /* of the work, for progress */
};

static bool is_given(const sb_graph *g, sb_value_id v)
{
    const sb_value *value = sb_graph_value(g, v);

    return value->is_input && !value->is_constant;
}

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
        if (point != SB_NONE) { /* UNKNOWN + 1 is 0: no matter */
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

/* Marks what the observed values need, from the end; other nodes do not run. */
static void mark_needed(sb_blocks *b)
{
    const sb_graph *g = b->g;

    for (uint32_t s = 0; s < b->qm->place.n_points; s++)
        if (b->point_level[s] != UNKNOWN)
            b->kept_until[b->qm->place.points[s].value] = b->point_level[s];
    for (size_t i = b->n_order; i-- > 0;) {
        const sb_node *node = sb_graph_node(g, b->order[i]);
        int32_t level = b->node_level[b->order[i]];
        bool needed = false;

        for (uint32_t k = 0; k < node->n_out; k++)
            needed |= node->outputs[k] != SB_NONE &&
                      b->kept_until[node->outputs[k]] != UNKNOWN;
        if (!needed)
            b->node_level[b->order[i]] = UNKNOWN;
        for (uint32_t k = 0; needed && k < node->n_in + node->n_implicit; k++) {
            sb_value_id v = node->inputs[k];
            if (v != SB_NONE)
                b->kept_until[v] = at_least(b->kept_until[v], level);
        }
    }
}

static void set_levels(sb_blocks *b, const edges *e)
{
    const sb_graph *g = b->g;

    for (size_t i = 0; i < g->n_inputs; i++)
        level_of_points(b, g->inputs[i], 0);
    for (size_t i = 0; i < b->n_order; i++) {
        const sb_node *node = sb_graph_node(g, b->order[i]);
        int32_t level = level_of_node(b, e, b->order[i]);

        b->node_level[b->order[i]] = level;
        for (uint32_t k = 0; k < node->n_out; k++) {
            if (node->outputs[k] == SB_NONE)
                continue;
            b->value_level[node->outputs[k]] = level;
            level_of_points(b, node->outputs[k], level);
        }
    }
    for (uint32_t s = 0; s < b->qm->place.n_points; s++)
        b->n_levels = at_least(b->n_levels, b->point_level[s] + 1);
    mark_needed(b);
}

static sb_status alloc_arrays(sb_blocks *b)
{
    sb_ctx *ctx = b->qm->ctx;
    size_t n_values = b->g->n_values, n_points = b->qm->place.n_points;

    b->node_level = sb_alloc(ctx, b->g->n_nodes + 1, sizeof *b->node_level);
    b->value_level = sb_alloc(ctx, n_values + 1, sizeof *b->value_level);
    b->kept_until = sb_alloc(ctx, n_values + 1, sizeof *b->kept_until);
    b->point_level = sb_alloc(ctx, n_points + 1, sizeof *b->point_level);
    b->kept = sb_alloc(ctx, n_values + 1, sizeof *b->kept);
    if (!b->node_level || !b->value_level || !b->kept_until ||
        !b->point_level || !b->kept)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n_values; i++)
        b->kept_until[i] = UNKNOWN;
    for (size_t i = 0; i < n_points; i++)
        b->point_level[i] = UNKNOWN;
    return SB_OK;
}

static sb_status plan_levels(sb_blocks *b)
{
    edges e = {0};

    SB_TRY(alloc_arrays(b));
    SB_TRY(sb_graph_order(b->g, &b->order, &b->n_order));
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
    size_t limit = qm->state.calibration.memory_limit;
    sb_blocks *b = sb_alloc(qm->ctx, 1, sizeof *b);

    if (!b)
        return SB_NO_MEMORY;
    b->qm = qm;
    b->g = qm->graph;
    sb_status status =
        sb_spill_create(qm->ctx, limit ? limit : DEFAULT_LIMIT, &b->spill);
    if (status == SB_OK)
        status = plan_levels(b);
    if (status == SB_OK)
        *out = b;
    else
        sb_blocks_free(b);
    return status;
}

static void drop_value(sb_blocks *b, sb_value_id v)
{
    if (!b->kept[v])
        return;
    for (size_t i = 0; i < b->n_batches; i++)
        sb_spill_drop(b->spill, &b->kept[v][i]);
    sb_free(b->qm->ctx, b->kept[v]);
    b->kept[v] = NULL;
}

void sb_blocks_free(sb_blocks *b)
{
    if (!b)
        return;
    sb_ctx *ctx = b->qm->ctx;
    for (size_t v = 0; b->kept && v < b->g->n_values; v++)
        drop_value(b, (sb_value_id)v);
    sb_spill_free(b->spill);
    sb_free(ctx, b->kept);
    sb_free(ctx, b->order);
    sb_free(ctx, b->node_level);
    sb_free(ctx, b->value_level);
    sb_free(ctx, b->kept_until);
    sb_free(ctx, b->point_level);
    sb_free(ctx, b);
}

/* ---- batches ------------------------------------------------------------ */

/* Room for one more batch of every input that is kept. */
static sb_status grow_inputs(sb_blocks *b)
{
    size_t cap = b->cap_batches ? 2 * b->cap_batches : 16;

    if (b->n_batches < b->cap_batches)
        return SB_OK;
    for (size_t i = 0; i < b->g->n_inputs; i++) {
        sb_value_id v = b->g->inputs[i];
        size_t had = b->cap_batches;

        if (is_given(b->g, v) && b->kept_until[v] != UNKNOWN)
            SB_TRY(
                sb_grow(b->qm->ctx, &b->kept[v], &had, cap, sizeof **b->kept));
    }
    b->cap_batches = cap;
    return SB_OK;
}

sb_status sb_blocks_take(sb_blocks *b, const sb_tensor *const *inputs)
{
    const sb_graph *g = b->g;
    sb_status status = SB_OK;

    for (size_t i = 0; i < g->n_inputs; i++)
        SB_TRY(sb_exec_check_input(b->qm->ctx, sb_graph_value(g, g->inputs[i]),
                                   inputs[i]));
    SB_TRY(grow_inputs(b));
    size_t batch = b->n_batches++;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (b->kept[g->inputs[i]])
            b->kept[g->inputs[i]][batch] = (sb_spilled_tensor){0};
    for (size_t i = 0; i < g->n_inputs && status == SB_OK; i++)
        if (b->kept[g->inputs[i]])
            status = sb_spill_put(b->spill, inputs[i],
                                  &b->kept[g->inputs[i]][batch]);
    if (status != SB_OK) { /* as if it had not come */
        for (size_t i = 0; i < g->n_inputs; i++)
            if (b->kept[g->inputs[i]])
                sb_spill_drop(b->spill, &b->kept[g->inputs[i]][batch]);
        b->n_batches--;
    }
    return status;
}

/* ---- the graph of a level ----------------------------------------------- */

typedef struct block {
    sb_blocks *b;
    int32_t level;
    sb_graph *graph;
    sb_exec *exec;
    sb_value_id *watched; /* [value] what Observe makes of it; or SB_NONE */
    sb_value_id *in;      /* values of the model, one per input of the graph */
    size_t n_in;
    sb_value_id *out; /* values to keep, one per output; then observed only */
    size_t n_out;
    sb_tensor *loaded;       /* [n_in] */
    const sb_tensor **given; /* [n_in] */
    const sb_tensor **made;  /* one per output of the graph */
} block;

static bool runs_here(const block *k, sb_node_id node)
{
    return k->b->node_level[node] == k->level;
}

static bool read_here(const block *k, uint32_t point)
{
    const sb_placement *p = &k->b->qm->place;
    const sb_quantizer *q;

    for (uint32_t i = p->points[point].head; i != SB_NONE; i = q->next) {
        q = &p->quantizers[i];
        for (size_t u = 0; u < q->n_uses; u++)
            if (runs_here(k, q->uses[u].node))
                return true;
    }
    return false;
}

static sb_status put_point(void *user, sb_graph *g, uint32_t point,
                           sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    block *k = user;
    const sb_quant_model *qm = k->b->qm;
    const sb_quantizer *q = sb_point_quantizer(&qm->place, point);
    bool constant = sb_quantizer_is_constant(qm, q);
    sb_value_id watched = SB_NONE;

    *y = x;
    if (k->b->point_level[point] == k->level) {
        SB_TRY(sb_calibrate_put(qm, g, point, beside, x, &watched));
        if (k->watched[x] == SB_NONE && !q->def->map_activation) {
            k->watched[x] = watched;
            return SB_OK;
        }
        return sb_graph_add_output(g, watched);
    }
    if ((constant && !qm->state.calibration.asym_weights) ||
        sb_quantizer_qparams(qm, q)->n == 0 || q->spec.dynamic ||
        !read_here(k, point))
        return SB_OK;
    return sb_quant_put_fake(qm, g, point, beside, x, y);
}

/* Only the nodes of the level stay; what they read and others read of them
 * becomes inputs and outputs. */
static sb_status cut_out(block *k)
{
    const sb_blocks *b = k->b;
    sb_graph *g = k->graph;
    size_t extra = g->n_outputs - b->g->n_outputs;

    for (sb_node_id id = 0; id < b->g->n_nodes; id++)
        if (!runs_here(k, id) && !sb_graph_node(g, id)->dead)
            sb_graph_remove_node(g, id);
    for (size_t i = 0; i < g->n_inputs; i++)
        sb_graph_value(g, g->inputs[i])->is_input = false;
    for (size_t i = 0; i < b->g->n_outputs; i++)
        sb_graph_value(g, g->outputs[i])->is_output = false;
    g->n_inputs = 0;
    for (size_t i = 0; i < k->n_in; i++)
        SB_TRY(sb_graph_add_input(g, k->in[i]));
    /* Observed outputs that were added stand behind those of the model. */
    sb_value_id *watched = sb_arena_copy(g->arena, g->outputs + b->g->n_outputs,
                                         extra * sizeof *g->outputs);
    if (!watched)
        return SB_NO_MEMORY;
    g->n_outputs = 0;
    for (size_t i = 0; i < k->n_out; i++) {
        sb_value_id w = k->watched[k->out[i]];
        SB_TRY(sb_graph_add_output(g, w != SB_NONE ? w : k->out[i]));
        k->watched[k->out[i]] = SB_NONE;
    }
    for (sb_value_id v = 0; v < b->g->n_values; v++)
        if (k->watched[v] != SB_NONE)
            SB_TRY(sb_graph_add_output(g, k->watched[v]));
    for (size_t i = 0; i < extra; i++)
        SB_TRY(sb_graph_add_output(g, watched[i]));
    return SB_OK;
}

/* Is the value read at this level, and made before? */
static bool comes_in(const block *k, sb_value_id v)
{
    const sb_blocks *b = k->b;
    const sb_value *value = sb_graph_value(b->g, v);

    if (!b->kept[v])
        return false;
    for (uint32_t i = 0; i < value->n_uses; i++)
        if (runs_here(k, value->uses[i].node))
            return true;
    const sb_placement *p = &b->qm->place;
    for (uint32_t s = p->of_value[v].first; s != SB_NONE; s = p->points[s].next)
        if (b->point_level[s] == k->level)
            return true;
    return false;
}

static bool goes_out(const block *k, sb_value_id v)
{
    const sb_blocks *b = k->b;
    sb_node_id producer = sb_graph_value(b->g, v)->producer;

    return producer != SB_NONE && runs_here(k, producer) &&
           b->kept_until[v] > k->level;
}

static sb_status list_cut(block *k)
{
    const sb_graph *g = k->b->g;
    sb_ctx *ctx = k->b->qm->ctx;

    k->in = sb_alloc(ctx, g->n_values + 1, sizeof *k->in);
    k->out = sb_alloc(ctx, g->n_values + 1, sizeof *k->out);
    k->watched = sb_alloc(ctx, g->n_values + 1, sizeof *k->watched);
    if (!k->in || !k->out || !k->watched)
        return SB_NO_MEMORY;
    for (sb_value_id v = 0; v < g->n_values; v++) {
        k->watched[v] = SB_NONE;
        if (comes_in(k, v))
            k->in[k->n_in++] = v;
        if (goes_out(k, v))
            k->out[k->n_out++] = v;
    }
    k->loaded = sb_alloc(ctx, k->n_in + 1, sizeof *k->loaded);
    k->given = sb_alloc(ctx, k->n_in + 1, sizeof *k->given);
    return k->loaded && k->given ? SB_OK : SB_NO_MEMORY;
}

static sb_status make_block(block *k)
{
    sb_quant_model *qm = k->b->qm;
    sb_exec_options opt = {.exact = qm->exact,
                           .observe = sb_calibrate_observe,
                           .tap = sb_calibrate_tap,
                           .observe_user = qm};

    SB_TRY(list_cut(k));
    SB_TRY(sb_quant_derive(qm, put_point, k, &k->graph));
    SB_TRY(cut_out(k));
    SB_TRY(sb_passes_run(k->graph, "lower", NULL, NULL, NULL));
    k->made = sb_alloc(qm->ctx, k->graph->n_outputs + 1, sizeof *k->made);
    if (!k->made)
        return SB_NO_MEMORY;
    return sb_exec_create(qm->ctx, k->graph, &opt, &k->exec);
}

static void free_block(block *k)
{
    sb_ctx *ctx = k->b->qm->ctx;

    sb_exec_free(k->exec);
    sb_graph_free(k->graph);
    sb_free(ctx, k->watched);
    sb_free(ctx, k->in);
    sb_free(ctx, k->out);
    sb_free(ctx, k->loaded);
    sb_free(ctx, k->given);
    sb_free(ctx, k->made);
}

/* ---- running ------------------------------------------------------------ */

static sb_status run_loaded(const block *k, size_t batch)
{
    sb_blocks *b = k->b;

    SB_TRY(sb_exec_run(k->exec, k->given, NULL, k->made));
    /* Room first: what was read for the last time goes. */
    for (size_t i = 0; i < k->n_in; i++)
        if (b->kept_until[k->in[i]] == k->level)
            sb_spill_drop(b->spill, &b->kept[k->in[i]][batch]);
    for (size_t i = 0; i < k->n_out; i++)
        SB_TRY(sb_spill_put(b->spill, k->made[i], &b->kept[k->out[i]][batch]));
    return SB_OK;
}

static sb_status run_batch(const block *k, size_t batch)
{
    sb_blocks *b = k->b;
    sb_status status = sb_ctx_poll(b->qm->ctx);
    size_t n = 0;

    for (; n < k->n_in && status == SB_OK; n++) {
        status =
            sb_spill_get(b->spill, &b->kept[k->in[n]][batch], &k->loaded[n]);
        if (status != SB_OK)
            break;
        k->given[n] = &k->loaded[n];
    }
    if (status == SB_OK)
        status = run_loaded(k, batch);
    while (n > 0)
        sb_tensor_drop(&k->loaded[--n]);
    return status;
}

static size_t weight_of_level(const sb_blocks *b, int32_t level)
{
    size_t n = 1;

    for (size_t i = 0; i < b->n_order; i++)
        n += b->node_level[b->order[i]] == level;
    return n;
}

static sb_status run_block(block *k)
{
    sb_blocks *b = k->b;
    size_t weight = weight_of_level(b, k->level);

    SB_TRY(make_block(k));
    for (size_t i = 0; i < k->n_out; i++) {
        sb_spilled_tensor *kept =
            sb_alloc(b->qm->ctx, b->n_batches, sizeof *kept);
        if (!kept)
            return SB_NO_MEMORY;
        assert(!b->kept[k->out[i]]);
        b->kept[k->out[i]] = kept;
    }
    for (size_t i = 0; i < b->n_batches; i++) {
        SB_TRY(run_batch(k, i));
        b->done += weight;
        SB_TRY(sb_progress(b->qm->ctx, "calibrate", b->done, b->total));
    }
    for (size_t i = 0; i < k->n_in; i++)
        if (b->kept_until[k->in[i]] == k->level)
            drop_value(b, k->in[i]);
    return SB_OK;
}

static sb_status run_level(sb_blocks *b, int32_t level)
{
    block k = {.b = b, .level = level};

    if (b->n_batches > 0) { /* else all was loaded */
        sb_status status = run_block(&k);
        free_block(&k);
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
        if (qm->place.points[s].same_as == s && b->point_level[s] == UNKNOWN)
            SB_TRY(sb_calibrate_calc(qm, s));
    b->done = b->total = 0;
    for (int32_t level = 0; level < b->n_levels; level++)
        b->total += weight_of_level(b, level) * b->n_batches;
    for (int32_t level = 0; level < b->n_levels; level++)
        SB_TRY(run_level(b, level));
    return SB_OK;
}
