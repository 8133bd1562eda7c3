/* How much must go to meet a target: one ratio for all groups, or, after a
 * scan, groups one by one, the cheapest first. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/prune/prune_state.h"

enum { HALVINGS = 10, RUNS = 15 };

typedef struct target {
    sb_prune *p;
    double all[2]; /* MACs and parameters of the whole network */
    sb_session *whole;
    double left[3]; /* what the last try left: MACs, parameters, latency */
    /* After a scan: the order in which groups lose more. */
    uint32_t *path;
    size_t n_path;
    double *ratios; /* by group */
} target;

/* ---- measuring ---------------------------------------------------------------- */

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static sb_status time_once(const sb_prune *p, sb_session *s, double *seconds)
{
    const sb_tensor *const *in = NULL;
    const sb_tensor *out = NULL;

    SB_TRY(sb_batch_store_get(p->batches, 0, &in));
    double start = sb_seconds_now();
    SB_TRY(sb_session_run(s, in, p->pruner.graph->n_inputs, &out, 1));
    *seconds = sb_seconds_now() - start;
    return SB_OK;
}

/* Medians of runs in turn, so that what else the machine does falls on both;
 * the first run of each counts for nothing. */
static sb_status target_latency(target *t, const sb_graph *g, double *share)
{
    sb_session *small = NULL;
    double times[2][RUNS + 1];

    SB_TRY(sb_prune_session(g, &small));
    sb_status status = SB_OK;
    for (int i = 0; i <= RUNS && status == SB_OK; i++) {
        status = time_once(t->p, t->whole, &times[0][i]);
        if (status == SB_OK)
            status = time_once(t->p, small, &times[1][i]);
    }
    sb_session_free(small);
    SB_TRY(status);
    for (int k = 0; k < 2; k++)
        qsort(times[k] + 1, RUNS, sizeof(double), compare_times);
    *share = times[1][1 + RUNS / 2] / times[0][1 + RUNS / 2];
    return SB_OK;
}

/* Does the network meet all targets? */
static sb_status target_met(target *t, const sb_graph *g, bool *met)
{
    const sb_prune *p = t->p;
    const double want[] = {p->target_macs, p->target_params, p->target_latency};

    SB_TRY(sb_prune_measure(g, &t->left[0], &t->left[1]));
    for (int i = 0; i < 2; i++)
        t->left[i] = t->all[i] > 0 ? t->left[i] / t->all[i] : 1;
    if (want[2] != 0)
        SB_TRY(target_latency(t, g, &t->left[2]));
    *met = true;
    for (int i = 0; i < 3; i++)
        *met = *met && (want[i] == 0 || t->left[i] <= want[i]);
    return SB_OK;
}

/* Of each target, what was asked for and what is left at the least. */
static sb_status target_fail(const target *t)
{
    static const char *const names[] = {"MACs", "parameters", "latency"};
    const sb_prune *p = t->p;
    const double want[] = {p->target_macs, p->target_params, p->target_latency};
    int64_t round_to = p->pruner.cfg->file.round_to;
    char text[256] = "", rounded[64] = "";

    for (size_t i = 0, len = 0; i < SB_COUNT(want); i++)
        if (want[i] != 0 && len < sizeof text)
            len += (size_t)snprintf(text + len, sizeof text - len,
                                    "%s%.3g %% of the %s, wanted %.3g %%",
                                    len ? "; " : "", 100 * t->left[i], names[i],
                                    100 * want[i]);
    if (round_to > 1)
        (void)snprintf(rounded, sizeof rounded, " with ROUND_TO %lld",
                       (long long)round_to);
    return sb_fail(p->ctx, SB_UNSUPPORTED,
                   "the target cannot be met: when as much is removed as "
                   "can go%s, there is left %s",
                   rounded, text);
}

/* ---- one ratio ---------------------------------------------------------------- */

/* The least ratio, by halving, that meets the targets. */
static sb_status find_ratio(target *t, double *ratio)
{
    double lo = 0, hi = 1;

    for (int i = 0; i < HALVINGS; i++) {
        double mid = (lo + hi) / 2;
        sb_graph *g = NULL;
        bool met = false;

        SB_TRY(
            sb_progress(t->p->ctx, "searching the ratio", (size_t)i, HALVINGS));
        SB_TRY(sb_pruner_cut(&t->p->pruner, mid, false, &g));
        sb_status status = target_met(t, g, &met);
        sb_graph_free(g);
        SB_TRY(status);
        lo = met ? lo : mid;
        hi = met ? mid : hi;
    }
    if (hi == 1)
        return target_fail(t);
    *ratio = hi;
    return SB_OK;
}

/* ---- groups, from a scan ------------------------------------------------------ */

/* The squared error that raising a group from level k to k + 1 adds, for each
 * MAC (or parameter, if that is the target) that it saves: errors of groups are
 * taken to be independent. */
static double step_price(const sb_prune *p, const sb_prune_group *g, size_t k)
{
    bool params = p->target_macs == 0 && p->target_latency == 0;
    const sb_prune_point *to = g->points[k];
    double before = params ? p->scan.params : p->scan.macs, error = 0;

    if (k > 0) {
        before = params ? to[-1].params : to[-1].macs;
        error = to[-1].error * to[-1].error;
    }
    /* The same network as before (ROUND_TO): the way to the next level. */
    if (to->removed == (k > 0 ? to[-1].removed : 0))
        return 0;
    double saved = before - (params ? to->params : to->macs);
    double added = to->error * to->error - error;
    return saved > 0 ? added / saved : HUGE_VAL;
}

/* All levels of all groups, the cheapest first; a group's in order. */
static void find_path(target *t, size_t *level)
{
    const sb_prune_scan *scan = &t->p->scan;

    for (;;) {
        size_t best = SIZE_MAX;
        double least = HUGE_VAL;

        for (size_t i = 0; i < scan->n_groups; i++) {
            const sb_prune_group *g = scan->groups[i];
            if (level[i] >= g->n_points)
                continue;
            double price = step_price(t->p, g, level[i]);
            if (best == SIZE_MAX || price < least) {
                best = i;
                least = price;
            }
        }
        if (best == SIZE_MAX)
            return;
        level[best]++;
        t->path[t->n_path++] = (uint32_t)best;
    }
}

/* The ratios of groups after the first n steps; patterns keep theirs. */
static void path_ratios(target *t, size_t n, const double *said,
                        const bool *stated)
{
    const sb_prune_scan *scan = &t->p->scan;
    uint32_t n_groups = t->p->pruner.ch.n_groups;

    for (uint32_t g = 0; g < n_groups; g++)
        t->ratios[g] = stated[g] ? said[g] : 0;
    for (size_t i = 0; i < scan->n_groups; i++) {
        const sb_prune_group *g = scan->groups[i];
        size_t level = 0;

        for (size_t k = 0; k < n; k++)
            level += t->path[k] == i;
        if (!stated[g->index])
            t->ratios[g->index] = level ? g->points[level - 1]->ratio : 0;
    }
}

/* Does the network with these ratios of groups meet the targets? */
static sb_status ratios_meet(target *t, bool *met)
{
    sb_graph *g = NULL;

    SB_TRY(sb_pruner_cut_ratios(&t->p->pruner, t->ratios, false, &g));
    sb_status status = target_met(t, g, met);
    sb_graph_free(g);
    return status;
}

/* The shortest part of the path that meets the targets, by halving. */
static sb_status find_part(target *t, const double *said, const bool *stated,
                           size_t *steps)
{
    size_t lo = 0, hi = t->n_path + 1;

    while (lo + 1 < hi) {
        size_t mid = (lo + hi) / 2;
        bool met = false;

        SB_TRY(sb_progress(t->p->ctx, "searching ratios", lo, hi));
        path_ratios(t, mid, said, stated);
        SB_TRY(ratios_meet(t, &met));
        lo = met ? lo : mid;
        hi = met ? mid : hi;
    }
    if (hi > t->n_path)
        return target_fail(t);
    *steps = hi;
    return SB_OK;
}

/* Levels are coarse: of the last step only as much is taken as is needed. */
static sb_status shorten_last(target *t, size_t steps, const double *said,
                              const bool *stated)
{
    size_t last = t->p->scan.groups[t->path[steps - 1]]->index;

    path_ratios(t, steps - 1, said, stated);
    double lo = t->ratios[last];
    path_ratios(t, steps, said, stated);
    double hi = t->ratios[last];
    for (int i = 0; i < HALVINGS && hi > lo; i++) {
        bool met = false;

        t->ratios[last] = (lo + hi) / 2;
        SB_TRY(ratios_meet(t, &met));
        lo = met ? lo : t->ratios[last];
        hi = met ? t->ratios[last] : hi;
    }
    t->ratios[last] = hi;
    return SB_OK;
}

static sb_status find_ratios(target *t)
{
    sb_prune *p = t->p;
    const sb_prune_scan *scan = &p->scan;
    uint32_t n = p->pruner.ch.n_groups;
    size_t steps = scan->n_groups * scan->groups[0]->n_points, part = 0;
    size_t *level = sb_alloc(p->ctx, scan->n_groups, sizeof *level);
    double *said = sb_alloc(p->ctx, n, sizeof *said);
    bool *stated = sb_alloc(p->ctx, n, sizeof *stated);

    t->path = sb_alloc(p->ctx, steps, sizeof *t->path);
    t->ratios = sb_arena_alloc(&p->scanned, n, sizeof *t->ratios);
    sb_status status =
        level && said && stated && t->path && t->ratios ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK) {
        sb_select_stated(&p->pruner.ch, &p->pruner.args, 0, said, stated);
        find_path(t, level);
        status = find_part(t, said, stated, &part);
    }
    if (status == SB_OK)
        status = shorten_last(t, part, said, stated);
    if (status == SB_OK) {
        p->by_group = t->ratios;
        p->ratio = 0; /* there is no single one */
    }
    sb_free(p->ctx, level);
    sb_free(p->ctx, said);
    sb_free(p->ctx, stated);
    sb_free(p->ctx, t->path);
    return status;
}

sb_status sb_prune_meet(sb_prune *p)
{
    target t = {.p = p};

    if (p->target_latency != 0 && sb_batch_store_count(p->batches) == 0)
        return sb_fail(p->ctx, SB_BAD_ARG,
                       "a latency is measured on samples: give data");
    SB_TRY(sb_prune_measure(p->pruner.graph, &t.all[0], &t.all[1]));
    if (p->target_latency != 0)
        SB_TRY(sb_prune_session(p->pruner.graph, &t.whole));
    sb_status status =
        p->scan.n_groups > 0 ? find_ratios(&t) : find_ratio(&t, &p->ratio);
    sb_session_free(t.whole);
    return status;
}
