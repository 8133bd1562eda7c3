/* A network run in stages; see staged.h. */
#include "quant/calibrate/staged.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "passes/pass.h"

/* ---- life --------------------------------------------------------------- */

sb_status sb_staged_init(sb_ctx *ctx, const sb_graph *g, size_t limit,
                         sb_staged *s)
{
    *s = (sb_staged){.ctx = ctx, .g = g, .frugal = limit > 0};
    s->node_level = sb_alloc(ctx, g->n_nodes + 1, sizeof *s->node_level);
    s->kept_until = sb_alloc(ctx, g->n_values + 1, sizeof *s->kept_until);
    s->kept = sb_alloc(ctx, g->n_values + 1, sizeof *s->kept);
    if (!s->node_level || !s->kept_until || !s->kept)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_values; i++)
        s->kept_until[i] = SB_NO_LEVEL;
    SB_TRY(sb_spill_create(ctx, limit, &s->spill));
    return sb_graph_order(g, &s->order, &s->n_order);
}

void sb_staged_drop(sb_staged *s, sb_value_id v)
{
    if (!s->kept[v])
        return;
    for (size_t i = 0; i < s->n_batches; i++)
        sb_spill_drop(s->spill, &s->kept[v][i]);
    sb_free(s->ctx, s->kept[v]);
    s->kept[v] = NULL;
}

void sb_staged_clear(sb_staged *s)
{
    if (!s->g)
        return;
    for (size_t v = 0; s->kept && v < s->g->n_values; v++)
        sb_staged_drop(s, (sb_value_id)v);
    sb_spill_free(s->spill);
    sb_free(s->ctx, s->kept);
    sb_free(s->ctx, s->order);
    sb_free(s->ctx, s->node_level);
    sb_free(s->ctx, s->kept_until);
    sb_free(s->ctx, s->by_level);
    sb_free(s->ctx, s->level_at);
    sb_workspace_free(s->ctx, &s->own);
    *s = (sb_staged){0};
}

/* ---- levels ------------------------------------------------------------- */

/* From the end. */
void sb_staged_mark(sb_staged *s)
{
    for (size_t i = s->n_order; i-- > 0;) {
        const sb_node *node = sb_graph_node(s->g, s->order[i]);
        int32_t level = s->node_level[s->order[i]];
        bool needed = false;

        for (uint32_t k = 0; k < node->n_out; k++)
            needed |= node->outputs[k] != SB_NONE &&
                      s->kept_until[node->outputs[k]] != SB_NO_LEVEL;
        if (!needed)
            s->node_level[s->order[i]] = SB_NO_LEVEL;
        for (uint32_t k = 0; needed && k < node->n_in + node->n_implicit; k++) {
            sb_value_id v = node->inputs[k];
            if (v != SB_NONE && s->kept_until[v] < level)
                s->kept_until[v] = level;
        }
    }
}

size_t sb_staged_nodes(const sb_staged *s, int32_t level)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_order; i++)
        n += s->node_level[s->order[i]] == level;
    return n;
}

/* Where the nodes of each level are, so that a stage looks at no others. */
static sb_status staged_index(sb_staged *s)
{
    if (s->by_level)
        return SB_OK;
    for (sb_node_id id = 0; id < s->g->n_nodes; id++)
        if (!s->g->nodes[id].dead && s->node_level[id] >= s->n_levels)
            s->n_levels = s->node_level[id] + 1;
    s->by_level = sb_alloc(s->ctx, s->n_order + 1, sizeof *s->by_level);
    /* One more, as each level moves its own beginning to its end. */
    s->level_at =
        sb_alloc(s->ctx, (size_t)s->n_levels + 2, sizeof *s->level_at);
    if (!s->by_level || !s->level_at)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < s->n_order; i++)
        if (s->node_level[s->order[i]] != SB_NO_LEVEL)
            s->level_at[s->node_level[s->order[i]] + 2]++;
    for (int32_t level = 0; level < s->n_levels; level++)
        s->level_at[level + 2] += s->level_at[level + 1];
    for (sb_node_id id = 0; id < s->g->n_nodes; id++)
        if (!s->g->nodes[id].dead && s->node_level[id] != SB_NO_LEVEL)
            s->by_level[s->level_at[s->node_level[id] + 1]++] = id;
    return SB_OK;
}

const sb_node_id *sb_staged_level(const sb_staged *s, int32_t level, size_t *n)
{
    *n = level < s->n_levels ? s->level_at[level + 1] - s->level_at[level] : 0;
    return *n > 0 ? s->by_level + s->level_at[level] : s->by_level;
}

/* ---- batches ------------------------------------------------------------ */

/* Room for one more batch of every input that is kept. */
static sb_status staged_grow(sb_staged *s)
{
    size_t cap = s->cap_batches ? 2 * s->cap_batches : 16;

    if (s->n_batches < s->cap_batches)
        return SB_OK;
    for (size_t i = 0; i < s->g->n_inputs; i++) {
        sb_value_id v = s->g->inputs[i];
        const sb_value *value = sb_graph_value(s->g, v);
        size_t had = s->cap_batches;

        if (value->is_input && !value->is_constant &&
            s->kept_until[v] != SB_NO_LEVEL)
            SB_TRY(sb_grow(s->ctx, &s->kept[v], &had, cap, sizeof **s->kept));
    }
    s->cap_batches = cap;
    return SB_OK;
}

sb_status sb_staged_take(sb_staged *s, const sb_tensor *const *inputs)
{
    const sb_graph *g = s->g;
    sb_status status = SB_OK;

    for (size_t i = 0; i < g->n_inputs; i++)
        SB_TRY(sb_exec_check_input(s->ctx, sb_graph_value(g, g->inputs[i]),
                                   inputs[i]));
    SB_TRY(staged_grow(s));
    size_t batch = s->n_batches++;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (s->kept[g->inputs[i]])
            s->kept[g->inputs[i]][batch] = (sb_spilled_tensor){0};
    for (size_t i = 0; i < g->n_inputs && status == SB_OK; i++)
        if (s->kept[g->inputs[i]])
            status = (s->lent ? sb_spill_lend : sb_spill_put)(
                s->spill, inputs[i], &s->kept[g->inputs[i]][batch]);
    if (status != SB_OK) { /* as if it had not come */
        for (size_t i = 0; i < g->n_inputs; i++)
            if (s->kept[g->inputs[i]])
                sb_spill_drop(s->spill, &s->kept[g->inputs[i]][batch]);
        s->n_batches--;
    }
    return status;
}

/* ---- the cut ------------------------------------------------------------ */

/* Is the value read at this level, and made before? */
static bool stage_reads(const sb_stage *k, sb_value_id v)
{
    const sb_value *value = sb_graph_value(k->s->g, v);

    if (!k->s->kept[v])
        return false;
    for (uint32_t i = 0; i < value->n_uses; i++)
        if (sb_stage_has(k, value->uses[i].node))
            return true;
    return k->wanted[v];
}

static bool stage_leaves(const sb_stage *k, sb_value_id v)
{
    sb_node_id producer = sb_graph_value(k->s->g, v)->producer;

    return !k->again && producer != SB_NONE && sb_stage_has(k, producer) &&
           k->s->kept_until[v] > k->level;
}

bool sb_stage_reads(const sb_stage *k, const sb_placement *p, uint32_t point)
{
    const sb_quantizer *q;

    for (uint32_t i = p->points[point].head; i != SB_NONE; i = q->next) {
        q = &p->quantizers[i];
        for (size_t u = 0; u < q->n_uses; u++)
            if (sb_stage_has(k, q->uses[u].node))
                return true;
    }
    return false;
}

sb_status sb_stage_open(sb_stage *k, size_t extra)
{
    sb_ctx *ctx = k->s->ctx;
    size_t n = k->s->g->n_values + 1;

    SB_TRY(staged_index(k->s));
    k->near = sb_alloc(ctx, n, sizeof *k->near);
    k->wanted = sb_alloc(ctx, n, sizeof *k->wanted);
    k->in = sb_alloc(ctx, n, sizeof *k->in);
    k->fixed = sb_alloc(ctx, n, sizeof *k->fixed);
    k->out = sb_alloc(ctx, n, sizeof *k->out);
    k->given = sb_alloc(ctx, n + extra, sizeof *k->given);
    bool all = k->near && k->wanted && k->in && k->fixed && k->out && k->given;
    return all ? SB_OK : SB_NO_MEMORY;
}

static void stage_mark_near(sb_stage *k)
{
    size_t n = 0;
    const sb_node_id *nodes = sb_staged_level(k->s, k->level, &n);

    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(k->s->g, nodes[i]);

        for (uint32_t j = 0; j < node->n_in + node->n_implicit; j++)
            if (node->inputs[j] != SB_NONE)
                k->near[node->inputs[j]] = true;
        for (uint32_t j = 0; j < node->n_out; j++)
            if (node->outputs[j] != SB_NONE)
                k->near[node->outputs[j]] = true;
    }
}

/* Is it a shape that was computed, and the same for all batches? */
static bool stage_fixes(const sb_stage *k, sb_value_id v)
{
    const sb_staged *s = k->s;
    const sb_tensor *first = &s->kept[v][0].t;

    if (!k->as_kept || s->n_batches == 0 ||
        sb_graph_value(s->g, v)->producer == SB_NONE ||
        first->dtype != SB_DTYPE_I64 || first->rank > 1 ||
        sb_tensor_count(first) > SB_MAX_RANK)
        return false;
    for (size_t i = 0; i < s->n_batches; i++) {
        const sb_spilled_tensor *x = &s->kept[v][i];

        if (!x->there || x->in_file || x->t.dtype != first->dtype ||
            x->t.rank != first->rank ||
            sb_tensor_count(&x->t) != sb_tensor_count(first) ||
            memcmp(x->t.data, first->data, sb_tensor_bytes(first)) != 0)
            return false;
    }
    return true;
}

sb_status sb_stage_list(sb_stage *k)
{
    stage_mark_near(k);
    for (sb_value_id v = 0; v < k->s->g->n_values; v++) {
        if (!k->near[v] && !k->wanted[v])
            continue;
        if (stage_reads(k, v) && stage_fixes(k, v))
            k->fixed[k->n_fixed++] = v;
        else if (stage_reads(k, v))
            k->in[k->n_in++] = v;
        if (stage_leaves(k, v))
            k->out[k->n_out++] = v;
    }
    k->loaded = sb_alloc(k->s->ctx, k->n_in + 1, sizeof *k->loaded);
    return k->loaded ? SB_OK : SB_NO_MEMORY;
}

static int stage_compare_nodes(const void *a, const void *b)
{
    const sb_node_id x = *(const sb_node_id *)a, y = *(const sb_node_id *)b;

    return (x > y) - (x < y);
}

sb_status sb_stage_take_part(sb_stage *k, const sb_node_id *others, size_t n)
{
    const sb_staged *s = k->s;
    size_t own = 0, unique = 0;
    const sb_node_id *nodes = sb_staged_level(s, k->level, &own);
    sb_node_id *list = sb_alloc(s->ctx, own + n + 1, sizeof *list);

    k->part.nodes = list;
    k->part.value_of =
        sb_alloc(s->ctx, s->g->n_values + 1, sizeof *k->part.value_of);
    if (!list || !k->part.value_of)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < own + n; i++)
        list[i] = i < own ? nodes[i] : others[i - own];
    qsort(list, own + n, sizeof *list, stage_compare_nodes);
    for (size_t i = 0; i < own + n; i++)
        if (i == 0 || list[i] != list[i - 1])
            list[unique++] = list[i];
    k->part.n = unique;
    return SB_OK;
}

/* What stands behind the first `n` of a list of inputs or outputs. */
static sb_status stage_tail(sb_graph *g, const sb_value_id *list, size_t n,
                            size_t all, sb_value_id **out)
{
    *out = NULL;
    if (all == n)
        return SB_OK;
    *out = sb_arena_copy(g->arena, list + n, (all - n) * sizeof *list);
    return *out ? SB_OK : SB_NO_MEMORY;
}

static sb_status stage_inputs(sb_stage *k)
{
    sb_graph *g = k->graph;
    const sb_graph_part *part = sb_stage_part(k);
    size_t own = part ? 0 : k->s->g->n_inputs, extra = g->n_inputs - own;
    sb_value_id *tail = NULL;

    SB_TRY(stage_tail(g, g->inputs, own, g->n_inputs, &tail));
    for (size_t i = 0; i < g->n_inputs; i++)
        sb_graph_value(g, g->inputs[i])->is_input = false;
    g->n_inputs = 0;
    for (size_t i = 0; i < k->n_fixed; i++)
        SB_TRY(sb_graph_set_constant(g, sb_graph_part_value(part, k->fixed[i]),
                                     &k->s->kept[k->fixed[i]][0].t));
    for (size_t i = 0; i < k->n_in; i++)
        SB_TRY(sb_graph_add_input(g, sb_graph_part_value(part, k->in[i])));
    for (size_t i = 0; i < extra; i++)
        SB_TRY(sb_graph_add_input(g, tail[i]));
    return SB_OK;
}

static sb_status stage_outputs(sb_stage *k, const sb_value_id *instead)
{
    sb_graph *g = k->graph;
    const sb_graph_part *part = sb_stage_part(k);
    size_t own = part ? 0 : k->s->g->n_outputs, extra = g->n_outputs - own;
    sb_value_id *tail = NULL;

    SB_TRY(stage_tail(g, g->outputs, own, g->n_outputs, &tail));
    sb_graph_clear_outputs(g);
    for (size_t i = 0; i < k->n_out; i++) {
        sb_value_id v = k->out[i];
        bool other = instead && instead[v] != SB_NONE;
        SB_TRY(sb_graph_add_output(g, other ? instead[v]
                                            : sb_graph_part_value(part, v)));
    }
    for (size_t i = 0; i < extra; i++)
        SB_TRY(sb_graph_add_output(g, tail[i]));
    return SB_OK;
}

sb_status sb_stage_cut(sb_stage *k, const sb_value_id *instead)
{
    sb_graph *g = k->graph;
    const sb_graph_part *part = sb_stage_part(k);
    size_t n = part ? part->n : k->s->g->n_nodes;

    for (sb_node_id id = 0; id < n; id++)
        if (!sb_stage_has(k, part ? part->nodes[id] : id) &&
            !sb_graph_node(g, id)->dead)
            sb_graph_remove_node(g, id);
    SB_TRY(stage_inputs(k));
    return stage_outputs(k, instead);
}

sb_status sb_stage_compact(sb_stage *k, sb_exec_state *bound, size_t n)
{
    sb_graph *g = NULL;
    sb_value_id *ids = NULL;

    SB_TRY(sb_graph_clone_sorted_ids(k->graph, &g, &ids));
    for (size_t i = 0; i < n; i++) {
        bound[i].in = ids[bound[i].in];
        bound[i].out = ids[bound[i].out];
    }
    sb_free(k->s->ctx, ids);
    sb_graph_free(k->graph);
    k->graph = g;
    return SB_OK;
}

sb_status sb_stage_start(sb_stage *k, const sb_exec_options *opt)
{
    sb_staged *s = k->s;
    sb_exec_options with = *opt;

    with.as_made = s->as_made;
    if (!s->frugal)
        with.workspace = s->workspace ? s->workspace : &s->own;
    k->made = sb_alloc(s->ctx, k->graph->n_outputs + 1, sizeof *k->made);
    if (!k->made)
        return SB_NO_MEMORY;
    SB_TRY(sb_passes_run(k->graph, "lower", NULL, NULL, NULL));
    SB_TRY(sb_exec_create(s->ctx, k->graph, &with, &k->exec));
    for (size_t i = 0; i < k->n_out; i++) {
        sb_spilled_tensor *kept =
            sb_alloc(s->ctx, s->n_batches + 1, sizeof *kept);
        if (!kept)
            return SB_NO_MEMORY;
        assert(!s->kept[k->out[i]]);
        s->kept[k->out[i]] = kept;
    }
    return SB_OK;
}

/* ---- running ------------------------------------------------------------ */

static bool stage_is_last(const sb_stage *k, sb_value_id v)
{
    return !k->again && k->s->kept_until[v] == k->level;
}

static sb_status stage_run_loaded(sb_stage *k, size_t batch)
{
    sb_staged *s = k->s;

    SB_TRY(sb_exec_run(k->exec, k->given, NULL, k->made));
    /* Room first: what was read for the last time goes. */
    for (size_t i = 0; i < k->n_in; i++)
        if (stage_is_last(k, k->in[i]))
            sb_spill_drop(s->spill, &s->kept[k->in[i]][batch]);
    for (size_t i = 0; i < k->n_out; i++)
        SB_TRY(sb_spill_put(s->spill, k->made[i], &s->kept[k->out[i]][batch]));
    return SB_OK;
}

static void stage_unload(sb_stage *k)
{
    while (k->n_loaded > 0)
        sb_tensor_drop(&k->loaded[--k->n_loaded]);
}

sb_status sb_stage_run(sb_stage *k, size_t batch)
{
    sb_staged *s = k->s;

    stage_unload(k);
    SB_TRY(sb_ctx_poll(s->ctx));
    for (size_t i = 0; i < k->n_in; i++) {
        SB_TRY(
            sb_spill_get(s->spill, &s->kept[k->in[i]][batch], &k->loaded[i]));
        k->n_loaded++;
        k->given[i] = &k->loaded[i];
    }
    return stage_run_loaded(k, batch);
}

void sb_stage_done(sb_stage *k)
{
    stage_unload(k);
    for (size_t i = 0; i < k->n_in; i++)
        if (stage_is_last(k, k->in[i]))
            sb_staged_drop(k->s, k->in[i]);
    for (size_t i = 0; i < k->n_fixed; i++)
        if (stage_is_last(k, k->fixed[i]))
            sb_staged_drop(k->s, k->fixed[i]);
}

void sb_stage_clear(sb_stage *k)
{
    sb_ctx *ctx = k->s->ctx;

    stage_unload(k);
    sb_exec_free(k->exec);
    sb_graph_free(k->graph);
    sb_free(ctx, k->part.nodes);
    sb_free(ctx, k->part.value_of);
    sb_free(ctx, k->near);
    sb_free(ctx, k->wanted);
    sb_free(ctx, k->in);
    sb_free(ctx, k->fixed);
    sb_free(ctx, k->out);
    sb_free(ctx, k->loaded);
    sb_free(ctx, k->given);
    sb_free(ctx, k->made);
    *k = (sb_stage){.s = k->s};
}
