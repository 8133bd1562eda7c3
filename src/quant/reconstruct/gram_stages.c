/* Layers in the order in which they can be rounded, and their Gram matrices.
 *
 * The level of a layer is the number of layers before it, on the longest way,
 * that are rounded, too.  Level by level (staged.h) the quantized network runs
 * up to what the layers of the level read, behind weights that are decided
 * already; all of it runs just once.  To fit layers, the float network runs
 * beside it in the same stages. */
#include <stdlib.h>

#include "quant/calibrate/batch_store.h"
#include "quant/calibrate/replay.h"
#include "quant/model/instrument.h"
#include "quant/model/overlay.h"
#include "quant/model/simulate.h"
#include "quant/reconstruct/gram_stages.h"

/* ---- levels ------------------------------------------------------------- */

static int stages_order(const void *a, const void *b)
{
    const sb_round_layer *x = a, *y = b;

    if (x->level != y->level)
        return x->level < y->level ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Of a node without the layer that it may be. */
static int32_t stages_level(const sb_graph *g, const sb_node *node,
                            const int32_t *value_level)
{
    int32_t level = 0;

    for (uint32_t k = 0; k < node->n_in + node->n_implicit; k++) {
        sb_value_id v = node->inputs[k];

        if (v != SB_NONE && !sb_graph_value(g, v)->is_constant &&
            level < value_level[v])
            level = value_level[v];
    }
    return level;
}

/* `of` are the layers by node, NULL for others. */
static void stages_set_levels(sb_staged *s, sb_round_layer *const *of,
                              int32_t *value_level)
{
    for (size_t i = 0; i < s->n_order; i++) {
        sb_node_id id = s->order[i];
        const sb_node *node = sb_graph_node(s->g, id);
        int32_t level = stages_level(s->g, node, value_level);

        if (of[id]) {
            sb_value_id x = node->inputs[0];

            of[id]->level = level++;
            if (s->kept_until[x] < of[id]->level)
                s->kept_until[x] = of[id]->level;
        }
        s->node_level[id] = level;
        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE)
                value_level[node->outputs[k]] = level;
    }
    sb_staged_mark(s);
}

static sb_status stages_levels(sb_staged *s, sb_round_layer *layers, size_t n)
{
    sb_round_layer **of = sb_alloc(s->ctx, s->g->n_nodes + 1, sizeof *of);
    int32_t *levels = sb_alloc(s->ctx, s->g->n_values + 1, sizeof *levels);
    bool all = of && levels;

    for (size_t i = 0; all && i < n; i++)
        of[layers[i].node] = &layers[i];
    if (all)
        stages_set_levels(s, of, levels);
    sb_free(s->ctx, of);
    sb_free(s->ctx, levels);
    return all ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_gram_stages_order(const sb_quant_model *qm, sb_round_layer *layers,
                               size_t n)
{
    sb_staged s = {0};
    sb_status status = sb_staged_init(qm->ctx, qm->graph, 0, &s);

    if (status == SB_OK)
        status = stages_levels(&s, layers, n);
    sb_staged_clear(&s);
    if (status == SB_OK && n > 0)
        qsort(layers, n, sizeof *layers, stages_order);
    return status;
}

/* The batches that methods run over. */
static sb_status stages_take(sb_quant_model *qm, sb_staged *s)
{
    for (size_t i = 0; i < sb_batch_store_count(qm->state.batches); i++) {
        const sb_tensor *const *inputs = NULL;

        if (!sb_replay_is_for(qm, SB_REPLAY_USED, i))
            continue;
        SB_TRY(sb_batch_store_get(qm->state.batches, i, &inputs));
        SB_TRY(sb_staged_take(s, inputs));
    }
    return SB_OK;
}

sb_status sb_gram_stages_init(sb_grams *grams, sb_round_layer *layers, size_t n,
                              sb_gram_stages *s)
{
    sb_quant_model *qm = grams->qm;
    size_t limit = qm->state.calibration.memory_limit;
    sb_workspace *rooms = qm->state.rooms;

    s->grams = grams;
    s->n_layers = n;
    SB_TRY(sb_staged_init(qm->ctx, qm->graph, limit, &s->quantized));
    if (limit)
        sb_spill_share(s->quantized.spill, &qm->state.kept);
    s->quantized.as_made = s->quantized.lent = true;
    if (rooms)
        s->quantized.workspace = &rooms[0];
    SB_TRY(stages_levels(&s->quantized, layers, n));
    SB_TRY(stages_take(qm, &s->quantized));
    if (grams->fit) {
        SB_TRY(sb_staged_init(qm->ctx, qm->graph, limit, &s->plain));
        s->plain.as_made = s->plain.lent = true;
        if (limit)
            sb_spill_share(s->plain.spill, &qm->state.kept);
        if (rooms) {
            s->plain.workspace = &rooms[1];
            /* At once what the largest level will want; pages that none writes
             * to cost nothing. */
            SB_TRY(sb_workspace_reserve(qm->ctx, rooms[0].size, &rooms[1]));
        }
        SB_TRY(stages_levels(&s->plain, layers, n));
        SB_TRY(stages_take(qm, &s->plain));
    }
    qsort(layers, n, sizeof *layers, stages_order);
    s->n_levels = n ? layers[n - 1].level + 1 : 0;
    return SB_OK;
}

void sb_gram_stages_clear(sb_gram_stages *s)
{
    sb_staged_clear(&s->quantized);
    sb_staged_clear(&s->plain);
}

/* ---- one run ------------------------------------------------------------ */

typedef struct stages_run {
    sb_grams *list;
    sb_stage quantized, plain;
    sb_state *states; /* sums and count of each node */
    sb_exec_state *bound;
    size_t n_states;
    float spare;        /* counts that are the same once more */
    sb_node_id *layers; /* [gram] */
    size_t *plain_x; /* [gram] which result of the plain stage; or as given */
    bool *given;
} stages_run;

/* Does a layer of the list read its input through the point? */
static bool stages_feeds(const stages_run *run, uint32_t point)
{
    const sb_placement *p = &run->list->qm->place;
    const sb_quantizer *q;

    for (uint32_t i = p->points[point].head; i != SB_NONE; i = q->next) {
        q = &p->quantizers[i];
        for (size_t u = 0; u < q->n_uses; u++)
            for (size_t k = 0; q->uses[u].input == 0 && k < run->list->n; k++)
                if (run->list->v[k].node == q->uses[u].node)
                    return true;
    }
    return false;
}

static sb_status stages_put(void *user, sb_graph *g, uint32_t point,
                            sb_node_id beside, sb_value_id x, sb_value_id *y)
{
    const stages_run *run = user;

    *y = x;
    return sb_stage_reads(&run->quantized, &run->list->qm->place, point) ||
                   stages_feeds(run, point)
               ? sb_quant_put_simulated(run->list->qm, g, point, beside, x, y)
               : SB_OK;
}

/* What comes in and goes out; the layers' inputs in any case.  The part holds
 * the layers, too, since Gram matrices are put beside them. */
static sb_status stages_cut(stages_run *run, sb_stage *k, size_t extra)
{
    SB_TRY(sb_stage_open(k, extra));
    for (size_t i = 0; i < run->list->n; i++) {
        k->wanted[run->list->v[i].x] = true;
        run->layers[i] = run->list->v[i].node;
    }
    SB_TRY(sb_stage_list(k));
    return sb_stage_take_part(k, run->layers, run->list->n);
}

static sb_status stages_open_quantized(stages_run *run)
{
    sb_grams *list = run->list;
    sb_stage *k = &run->quantized;
    size_t y = list->fit ? list->n : 0;
    sb_exec_options opt = {.exact = list->qm->exact, .brief = !list->qm->exact};

    SB_TRY(stages_cut(run, k, y + 2 * (list->n + y)));
    SB_TRY(
        sb_quant_derive_part(list->qm, &k->part, stages_put, run, &k->graph));
    SB_TRY(sb_overlay_apply_part(list->qm, &k->part, k->graph));
    SB_TRY(sb_grams_attach(list, &k->part, k->graph, run->states, run->bound,
                           &run->spare, &run->n_states));
    SB_TRY(sb_stage_cut(k, NULL));
    SB_TRY(sb_stage_compact(k, run->bound, run->n_states));
    opt.states = run->bound;
    opt.n_states = run->n_states;
    return sb_stage_start(k, &opt);
}

static size_t stages_find(const sb_value_id *list, size_t n, sb_value_id v)
{
    size_t i = 0;

    while (i < n && list[i] != v)
        i++;
    return i;
}

/* The float network up to what the layers read. */
static sb_status stages_open_plain(stages_run *run)
{
    sb_grams *list = run->list;
    sb_stage *k = &run->plain;
    const sb_exec_options opt = {.exact = list->qm->exact,
                                 .brief = !list->qm->exact};

    SB_TRY(stages_cut(run, k, 0));
    SB_TRY(sb_graph_clone_part(list->qm->graph, &k->part, &k->graph));
    SB_TRY(sb_stage_cut(k, NULL));
    for (size_t i = 0; i < list->n; i++) {
        size_t *at = &run->plain_x[i];
        sb_value_id x = sb_graph_part_value(&k->part, list->v[i].x);

        *at = stages_find(k->in, k->n_in, list->v[i].x);
        run->given[i] = *at < k->n_in;
        if (run->given[i])
            continue;
        *at = stages_find(k->graph->outputs, k->graph->n_outputs, x);
        if (*at == k->graph->n_outputs)
            SB_TRY(sb_graph_add_output(k->graph, x));
    }
    SB_TRY(sb_stage_compact(k, NULL, 0));
    return sb_stage_start(k, &opt);
}

static sb_status stages_run_all(stages_run *run, size_t done, size_t total)
{
    const sb_grams *list = run->list;
    sb_stage *k = &run->quantized;

    for (size_t i = 0; i < k->s->n_batches; i++) {
        SB_TRY(sb_progress(list->qm->ctx, "round", done + i, total));
        if (list->fit)
            SB_TRY(sb_stage_run(&run->plain, i));
        for (size_t x = 0; x < list->n && list->fit; x++)
            k->given[k->n_in + x] = run->given[x]
                                        ? run->plain.given[run->plain_x[x]]
                                        : run->plain.made[run->plain_x[x]];
        SB_TRY(sb_stage_run(k, i));
    }
    sb_stage_done(k);
    if (list->fit)
        sb_stage_done(&run->plain);
    return SB_OK;
}

static sb_status stages_alloc(stages_run *run)
{
    sb_ctx *ctx = run->list->qm->ctx;
    size_t n = run->list->n;

    run->states = sb_alloc(ctx, 4 * n + 1, sizeof *run->states);
    run->bound = sb_alloc(ctx, 4 * n + 1, sizeof *run->bound);
    run->layers = sb_alloc(ctx, n + 1, sizeof *run->layers);
    run->plain_x = sb_alloc(ctx, n + 1, sizeof *run->plain_x);
    run->given = sb_alloc(ctx, n + 1, sizeof *run->given);
    bool all =
        run->states && run->bound && run->layers && run->plain_x && run->given;
    return all ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_gram_stages_run(sb_gram_stages *s, int32_t level, bool again)
{
    sb_grams *list = s->grams;
    sb_ctx *ctx = list->qm->ctx;
    size_t batches = s->quantized.n_batches;
    stages_run run = {
        .list = list,
        .quantized = {.s = &s->quantized,
                      .level = level,
                      .again = again,
                      .as_kept = true},
        .plain = {.s = &s->plain,
                  .level = level,
                  .again = again,
                  .as_kept = true},
    };
    sb_status status = stages_alloc(&run);

    if (status == SB_OK && list->fit)
        status = stages_open_plain(&run);
    if (status == SB_OK)
        status = stages_open_quantized(&run);
    if (status == SB_OK)
        status = stages_run_all(&run, (size_t)level * batches,
                                (size_t)s->n_levels * batches);
    if (list->fit)
        sb_stage_clear(&run.plain);
    sb_stage_clear(&run.quantized);
    sb_free(ctx, run.states);
    sb_free(ctx, run.bound);
    sb_free(ctx, run.layers);
    sb_free(ctx, run.plain_x);
    sb_free(ctx, run.given);
    for (size_t i = 0; i < list->n && status == SB_OK; i++) {
        sb_gram_mirror(&list->v[i]);
        if (list->fit)
            sb_refit_center(&list->v[i]);
    }
    return status;
}
