/* Criteria of plug-ins. */
#include "api/plugin/plugin.h"
#include "base/options.h"
#include "prune/criterion/criterion.h"

typedef struct added_criterion {
    sb_criterion_def def; /* first: the row is this */
    sb_criterion_plugin plugin;
} added_criterion;

static sb_status added_failed(const sb_criterion_ask *ask)
{
    return sb_fail(ask->ctx, SB_BAD_DATA, "criterion '%s': its plug-in failed",
                   ask->criterion->name);
}

static sb_status added_axis(const sb_criterion_ask *ask, const sb_prune_axis *a,
                            const sb_tensor *t, double *out)
{
    const sb_criterion_plugin *p =
        &((const added_criterion *)ask->criterion)->plugin;

    return p->score(p->user, t, a->axis, out) == SB_OK ? SB_OK
                                                       : added_failed(ask);
}

static sb_status added_score(const sb_criterion_ask *ask, double *out)
{
    bool found;

    return sb_score_by_axis(ask, SB_AXIS_MADE, added_axis, out, &found);
}

static sb_status added_weigh(const sb_criterion_ask *ask, float *out)
{
    const sb_criterion_plugin *p =
        &((const added_criterion *)ask->criterion)->plugin;
    const sb_tensor *t = sb_const_of(ask->channels->graph, ask->weight);

    return p->weigh(p->user, t, out) == SB_OK ? SB_OK : added_failed(ask);
}

sb_status sb_ctx_add_criterion(sb_ctx *ctx, const sb_criterion_plugin *plugin)
{
    const sb_criterion_plugin defaults = SB_CRITERION_PLUGIN_INIT;
    sb_criterion_plugin p;

    SB_TRY(sb_options_read(ctx, "sb_criterion_plugin", plugin, &defaults,
                           sizeof p, &p));
    SB_TRY(sb_plugin_check_key(ctx, "criterion", p.name,
                               p.name && sb_criterion_find(ctx, p.name)));
    if (!p.score && !p.weigh)
        return sb_fail(ctx, SB_BAD_ARG,
                       "criterion '%s': score or weigh must be set", p.name);
    added_criterion *c = sb_alloc(ctx, 1, sizeof *c);
    if (!c)
        return SB_NO_MEMORY;
    c->plugin = p;
    c->def = (sb_criterion_def){.name = p.name,
                                .summary = p.summary ? p.summary : "",
                                .score = p.score ? added_score : NULL,
                                .weigh = p.weigh ? added_weigh : NULL};
    return sb_ctx_add_row(ctx, SB_ROW_CRITERION, c);
}
