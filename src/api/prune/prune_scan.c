/* What each group of channels costs by itself, at several ratios. */
#include <math.h>
#include <string.h>

#include "api/prune/prune_state.h"

typedef struct scan_job {
    sb_prune *p;
    sb_batch_store *want; /* outputs of the whole network */
    const sb_tensor **outputs;
    double *ratios; /* by group; all 0 but one */
} scan_job;

/* ---- running ----------------------------------------------------------------- */

/* Runs a network over all batches; the first time its outputs are kept, later
 * compared with those. */
static sb_status scan_run(scan_job *j, sb_session *session, sb_eval *eval,
                          bool first)
{
    sb_prune *p = j->p;
    size_t n_in = p->pruner.graph->n_inputs, n_out = p->pruner.graph->n_outputs;
    sb_batch batch = SB_BATCH_INIT;

    for (size_t i = 0; i < sb_batch_store_count(p->batches); i++) {
        const sb_tensor *const *in = NULL, *const *want = NULL;

        SB_TRY(sb_batch_store_get(p->batches, i, &in));
        batch.count = (size_t)sb_batch_store_samples(p->batches, i);
        batch.inputs = in;
        batch.n_inputs = n_in;
        batch.labels = p->labels + batch.first;
        SB_TRY(sb_session_run(session, in, n_in, j->outputs, n_out));
        SB_TRY(sb_eval_add(eval, &batch, j->outputs));
        if (first) {
            SB_TRY(sb_batch_store_take(j->want, j->outputs));
        } else {
            SB_TRY(sb_batch_store_get(j->want, i, &want));
            SB_TRY(sb_eval_compare(eval, &batch, j->outputs, want));
        }
        batch.first += batch.count;
    }
    return SB_OK;
}

static sb_status scan_graph(scan_job *j, const sb_graph *g, bool first,
                            double *error, double *accuracy)
{
    sb_ctx *ctx = j->p->ctx;
    sb_eval_options opt = SB_EVAL_OPTIONS_INIT;
    sb_session *session = NULL;
    sb_eval *eval = NULL;

    opt.task = "none";
    sb_status status = sb_prune_session(g, &session);
    if (status == SB_OK)
        status = sb_eval_create(ctx, g->n_outputs, &opt, &eval);
    if (status == SB_OK)
        status = scan_run(j, session, eval, first);
    if (status == SB_OK) {
        const sb_eval_result *r = sb_eval_get(eval);

        *error = first ? 0 : pow(10, -r->sqnr_db / 20);
        *accuracy = r->labeled ? r->top1 / 100 : (double)NAN;
    }
    sb_eval_free(eval);
    sb_session_free(session);
    return status;
}

/* ---- groups ------------------------------------------------------------------ */

static sb_status scan_point(scan_job *j, uint32_t group, sb_prune_point *pt)
{
    sb_pruner *q = &j->p->pruner;
    sb_graph *g = NULL;

    j->ratios[group] = pt->ratio;
    sb_status status = sb_pruner_cut_ratios(q, j->ratios, true, &g);
    j->ratios[group] = 0;
    SB_TRY(status);
    pt->removed = q->chosen.removed[group];
    status = sb_prune_measure(g, &pt->macs, &pt->params);
    if (status == SB_OK)
        status = scan_graph(j, g, false, &pt->error, &pt->accuracy);
    sb_graph_free(g);
    return status;
}

static sb_status scan_group(scan_job *j, uint32_t group, sb_prune_group *out,
                            const double *ratios, size_t n)
{
    sb_prune *p = j->p;
    const sb_graph *g = p->pruner.graph;
    const sb_channel_group *of = &p->pruner.ch.groups[group];
    const sb_node *maker = sb_graph_node(g, of->maker);
    sb_prune_point *points = sb_arena_alloc(&p->scanned, n, sizeof *points);
    const sb_prune_point **list = sb_arena_alloc(&p->scanned, n, sizeof *list);

    *out = (sb_prune_group){
        .name = sb_arena_str(&p->scanned, sb_node_label(g, maker)),
        .op = sb_arena_str(&p->scanned, maker->op),
        .channels = of->n,
        .index = group,
        .points = list,
        .n_points = n};
    if (!points || !list || !out->name || !out->op)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        points[i] = (sb_prune_point){.ratio = ratios[i]};
        list[i] = &points[i];
        SB_TRY(scan_point(j, group, &points[i]));
    }
    return SB_OK;
}

/* Groups that might lose channels. */
static sb_status scan_groups(scan_job *j, const double *ratios, size_t n)
{
    sb_prune *p = j->p;
    const sb_channels *ch = &p->pruner.ch;
    bool *stated = sb_alloc(p->ctx, ch->n_groups, sizeof *stated);
    double *said = sb_alloc(p->ctx, ch->n_groups, sizeof *said);
    sb_prune_group **list =
        sb_arena_alloc(&p->scanned, ch->n_groups, sizeof(sb_prune_group *));
    sb_status status = stated && said && list ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        sb_select_stated(ch, &p->pruner.args, 1, said, stated);
    for (uint32_t g = 0; g < ch->n_groups && status == SB_OK; g++) {
        bool may = false;
        for (uint32_t i = 0; i < ch->groups[g].n && !may; i++)
            may = sb_select_may(ch, p->pruner.cfg,
                                ch->ordered[ch->groups[g].first + i]);
        if (!may || said[g] == 0)
            continue;
        status = sb_progress(p->ctx, "scanning groups", g, ch->n_groups);
        sb_prune_group *one = sb_arena_alloc(&p->scanned, 1, sizeof *one);
        if (!one)
            status = SB_NO_MEMORY;
        if (status == SB_OK)
            status = scan_group(j, g, one, ratios, n);
        list[p->scan.n_groups++] = one;
    }
    p->scan.groups = (const sb_prune_group *const *)list;
    sb_free(p->ctx, stated);
    sb_free(p->ctx, said);
    return status;
}

/* ---- all of it --------------------------------------------------------------- */

static sb_status check_scan(const sb_prune *p, const double *ratios, size_t n)
{
    if (p->result)
        return sb_fail(p->ctx, SB_BAD_ARG, "a scan comes before apply()");
    if (sb_batch_store_count(p->batches) == 0)
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "a scan needs samples: set `scan` of the options, and "
                       "give data");
    for (size_t i = 0; i < n; i++)
        if (!(ratios[i] > 0 && ratios[i] < 1) ||
            (i > 0 && ratios[i] <= ratios[i - 1]))
            return sb_fail(p->ctx, SB_BAD_ARG,
                           "ratio %zu of a scan is %g, allowed are rising "
                           "ones above 0 and below 1",
                           i + 1, ratios[i]);
    return n ? SB_OK : sb_fail(p->ctx, SB_BAD_ARG, "a scan without ratios");
}

sb_status sb_prune_scan_groups(sb_prune *p, const double *ratios, size_t n,
                               const sb_prune_scan **out)
{
    scan_job j = {.p = p};
    const sb_graph *g = p->pruner.graph;

    SB_TRY(check_scan(p, ratios, n));
    sb_arena_free(&p->scanned);
    sb_arena_init(&p->scanned, p->ctx);
    p->by_group = NULL; /* was there */
    p->scan = (sb_prune_scan){.samples = p->n_labels};
    j.outputs = sb_alloc(p->ctx, g->n_outputs, sizeof(const sb_tensor *));
    j.ratios = sb_alloc(p->ctx, p->pruner.ch.n_groups, sizeof *j.ratios);
    double none;
    sb_status status = j.outputs && j.ratios ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = sb_batch_store_create(p->ctx, g->n_outputs, 0, &j.want);
    if (status == SB_OK)
        status = sb_prune_measure(g, &p->scan.macs, &p->scan.params);
    if (status == SB_OK)
        status = scan_graph(&j, g, true, &none, &p->scan.accuracy);
    if (status == SB_OK)
        status = scan_groups(&j, ratios, n);
    sb_batch_store_free(j.want);
    sb_free(p->ctx, j.outputs);
    sb_free(p->ctx, j.ratios);
    if (status != SB_OK)
        p->scan = (sb_prune_scan){.samples = 0};
    else if (out)
        *out = &p->scan;
    return status;
}
