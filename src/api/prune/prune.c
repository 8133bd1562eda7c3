/* The public side of pruning. */
#include <math.h>
#include <string.h>

#include "api/feed.h"
#include "api/prune/prune_state.h"
#include "base/options.h"

/* ---- creating ------------------------------------------------------------------ */

static sb_status prune_config(sb_ctx *ctx, const sb_prune_options *opt,
                              sb_prune_config **out)
{
    if (!opt->config == !opt->config_text)
        return sb_fail(ctx, SB_BAD_ARG,
                       "sb_prune_options: set config or config_text");
    SB_TRY(opt->config
               ? sb_prune_config_load(ctx, opt->config, out)
               : sb_prune_config_load_memory(ctx, "config", opt->config_text,
                                             strlen(opt->config_text), out));
    sb_status status =
        sb_prune_config_exclude(*out, opt->exclude, opt->n_exclude);
    if (status != SB_OK)
        sb_prune_config_free(*out);
    return status;
}

/* What a scan, or a target, does not go with. */
static sb_status check_whole(sb_ctx *ctx, const char *what,
                             const sb_prune_options *opt,
                             const sb_prune_config *cfg, bool steps)
{
    const char *found = cfg->type != SB_PRUNE_STRUCTURED ? "TYPE unstructured"
                        : opt->masks_only                ? "masks only"
                        : steps && cfg->file.iterations > 1 ? "ITERATIONS"
                                                            : NULL;

    return found ? sb_fail(ctx, SB_BAD_ARG,
                           "%s does not go with %s: it is for channels that "
                           "are removed%s",
                           what, found, steps ? " in one step" : "")
                 : SB_OK;
}

/* What a target or a scan needs, and what it excludes. */
static sb_status check_targets(sb_ctx *ctx, const sb_prune_options *opt,
                               const sb_prune_config *cfg)
{
    const double t[] = {opt->target_macs, opt->target_params,
                        opt->target_latency};

    for (size_t i = 0; i < SB_COUNT(t); i++) {
        if (t[i] != 0 && !(t[i] > 0 && t[i] < 1))
            return sb_fail(ctx, SB_BAD_ARG,
                           "a target is %g, allowed is more than 0 and less "
                           "than 1: the share that is left",
                           t[i]);
        if (t[i] != 0)
            SB_TRY(check_whole(ctx, "a target", opt, cfg, true));
    }
    return opt->scan ? check_whole(ctx, "a scan", opt, cfg, false) : SB_OK;
}

/* The layers and their sizes: weights that make channels, or all. */
static sb_status keep_rows(sb_prune *p)
{
    const sb_pruner *q = &p->pruner;
    const sb_graph *g = q->graph;

    p->rows = sb_arena_alloc(&p->kept, q->ch.n_axes, sizeof *p->rows);
    if (!p->rows)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < q->ch.n_axes; i++) {
        const sb_prune_axis *a = &q->ch.axes[i];
        if (a->maker == SB_NONE)
            continue;
        sb_prune_row *r = &p->rows[p->n_rows++];
        r->weight = sb_arena_str(&p->kept, sb_graph_value(g, a->value)->name);
        if (!r->weight)
            return SB_NO_MEMORY;
        r->axis = a->axis;
        r->size = a->n;
    }
    return SB_OK;
}

sb_status sb_prune_create(const sb_model *model,
                          const sb_prune_options *options, sb_prune **out)
{
    const sb_prune_options defaults = SB_PRUNE_OPTIONS_INIT;
    sb_ctx *ctx = model->ctx;
    sb_prune_config *cfg = NULL;
    sb_prune_options opt;

    SB_TRY(sb_options_read(ctx, "sb_prune_options", options, &defaults,
                           sizeof opt, &opt));
    SB_TRY(sb_graph_check_whole(model->graph));
    SB_TRY(prune_config(ctx, &opt, &cfg));
    sb_status status = check_targets(ctx, &opt, cfg);
    sb_prune *p = status == SB_OK ? sb_alloc(ctx, 1, sizeof *p) : NULL;
    if (!p) {
        sb_prune_config_free(cfg);
        return status == SB_OK ? SB_NO_MEMORY : status;
    }
    *p = (sb_prune){.ctx = ctx,
                    .target_macs = opt.target_macs,
                    .target_params = opt.target_params,
                    .target_latency = opt.target_latency,
                    .keep = opt.scan || opt.target_latency != 0};
    sb_arena_init(&p->answer, ctx);
    sb_arena_init(&p->scanned, ctx);
    sb_arena_init(&p->kept, ctx);
    status = sb_pruner_init(model->graph, opt.before ? opt.before->graph : NULL,
                            cfg, opt.masks_only != 0, opt.seed, &p->pruner);
    if (status == SB_OK)
        status = keep_rows(p);
    if (status == SB_OK)
        *out = p;
    else
        sb_prune_free(p);
    return status;
}

void sb_prune_free(sb_prune *p)
{
    if (!p)
        return;
    sb_prune_norms_free(p->norms);
    sb_graph_free(p->result);
    sb_pruner_free(&p->pruner);
    sb_batch_store_free(p->batches);
    sb_free(p->ctx, p->labels);
    sb_arena_free(&p->scanned);
    sb_arena_free(&p->answer);
    sb_arena_free(&p->kept);
    sb_free(p->ctx, p);
}

sb_prune_data sb_prune_wants_data(const sb_prune *p)
{
    const sb_prune_config *cfg = p->pruner.cfg;

    if (cfg->criterion->needs_data || p->keep)
        return SB_PRUNE_DATA_NEEDED;
    return cfg->file.refit && !p->pruner.masks_only &&
                   (cfg->type == SB_PRUNE_STRUCTURED ||
                    sb_prune_has_norms(p->pruner.graph))
               ? SB_PRUNE_DATA_HELPS
               : SB_PRUNE_DATA_UNUSED;
}

/* ---- running ------------------------------------------------------------------- */

/* Samples for what runs them again; each has a label, -1 for none. */
static sb_status keep_batch(sb_prune *p, const sb_tensor *const *inputs,
                            const int64_t *labels, size_t n_labels)
{
    if (!p->keep)
        return SB_OK;
    if (!p->batches)
        SB_TRY(sb_batch_store_create(p->ctx, p->pruner.graph->n_inputs, 0,
                                     &p->batches));
    SB_TRY(sb_batch_store_take(p->batches, inputs));
    size_t n = (size_t)sb_batch_store_samples(
        p->batches, sb_batch_store_count(p->batches) - 1);
    sb_status status = sb_grow(p->ctx, &p->labels, &p->cap_labels,
                               p->n_labels + n, sizeof *p->labels);
    if (status != SB_OK) { /* no batch without labels */
        sb_batch_store_free(p->batches);
        p->batches = NULL;
        p->n_labels = 0;
        return status;
    }
    for (size_t i = 0; i < n; i++)
        p->labels[p->n_labels++] = labels && i < n_labels ? labels[i] : -1;
    return SB_OK;
}

/* One NaN would spoil every sum over samples, and with it all decisions. */
static sb_status check_finite(const sb_prune *p, const sb_tensor *const *inputs,
                              size_t first)
{
    const sb_graph *g = p->pruner.graph;

    for (size_t k = 0; k < g->n_inputs; k++) {
        const sb_tensor *t = inputs[k];
        if (!t || t->dtype != SB_DTYPE_F32)
            continue;
        int64_t n = sb_tensor_count(t);
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(((const float *)t->data)[i]))
                return sb_fail(
                    p->ctx, SB_BAD_DATA,
                    "'%s' holds %s in sample %lld, want finite numbers",
                    sb_graph_value(g, g->inputs[k])->name,
                    isnan(((const float *)t->data)[i]) ? "NaN" : "an infinity",
                    (long long)first +
                        (t->rank > 0 ? (long long)(i / (n / t->dims[0])) : 0));
    }
    return SB_OK;
}

/* Samples of which the first has the number `first`. */
static sb_status prune_look(sb_prune *p, const sb_tensor *const *inputs,
                            size_t first, const int64_t *labels,
                            size_t n_labels)
{
    SB_TRY(check_finite(p, inputs, first));
    if (p->norms)
        return sb_prune_norms_take(p->norms, inputs);
    SB_TRY(keep_batch(p, inputs, labels, n_labels));
    p->fed = true;
    return sb_pruner_forward(&p->pruner, inputs, labels, n_labels);
}

static bool all_done(const sb_prune *p)
{
    const sb_pruner *q = &p->pruner;

    return p->result && !p->advanced && !q->thinning &&
           q->step + 1 >= q->cfg->file.iterations;
}

/* Goes on to what the last step left, before samples for the next one are run:
 * what they say must be of that network. */
static sb_status go_on(sb_prune *p)
{
    if (!p->result || p->advanced || p->pruner.thinning || all_done(p))
        return SB_OK;
    SB_TRY(sb_pruner_advance(&p->pruner, p->result));
    p->advanced = true;
    return SB_OK;
}

sb_status sb_prune_forward(sb_prune *p, const sb_tensor *const *inputs,
                           size_t n_inputs)
{
    SB_TRY(go_on(p));
    const sb_graph *g = p->pruner.graph;

    if (n_inputs != g->n_inputs)
        return sb_fail(p->ctx, SB_BAD_ARG, "got %zu inputs, want %zu", n_inputs,
                       g->n_inputs);
    for (size_t i = 0; i < n_inputs; i++)
        if (!inputs[i] && !sb_graph_value(g, g->inputs[i])->is_constant)
            return sb_fail(p->ctx, SB_BAD_ARG, "input %zu is missing", i);
    return prune_look(p, inputs, 0, NULL, 0);
}

sb_status sb_prune_forward_batch(sb_prune *p, const sb_batch *batch)
{
    sb_bound_batch b;

    SB_TRY(go_on(p));
    sb_status status = sb_bound_batch_open(p->ctx, p->pruner.graph, batch, &b);

    if (status == SB_OK)
        status = prune_look(p, b.inputs, b.batch.first, b.batch.labels,
                            b.batch.count);
    sb_bound_batch_close(p->ctx, &b);
    return status;
}

sb_status sb_prune_measure(const sb_graph *g, double *macs, double *params)
{
    sb_graph *copy = NULL;
    sb_model *model = NULL;
    const sb_model_info *info = NULL;

    SB_TRY(sb_graph_clone(g, &copy));
    SB_TRY(sb_model_wrap(copy, &model));
    sb_status status = sb_model_info_get(model, &info);
    if (status == SB_OK) {
        *macs = info->macs;
        *params = (double)info->params;
    }
    sb_model_free(model);
    return status;
}

sb_status sb_prune_session(const sb_graph *g, sb_session **out)
{
    sb_graph *copy = NULL;
    sb_model *model = NULL;

    SB_TRY(sb_graph_clone(g, &copy));
    SB_TRY(sb_model_wrap(copy, &model));
    sb_status status = sb_session_create(model, NULL, out);
    sb_model_free(model);
    return status;
}

/* After the last step: samples are wanted once more if they were given and the
 * network has norms. */
static sb_status begin_norms(sb_prune *p, int *more)
{
    const sb_pruner *q = &p->pruner;

    if (!p->fed || q->masks_only || !q->cfg->file.refit ||
        !sb_prune_has_norms(p->result))
        return SB_OK;
    SB_TRY(sb_prune_norms_open(p->result, &p->norms));
    *more = 1;
    return SB_OK;
}

static sb_status end_norms(sb_prune *p)
{
    sb_status status = sb_prune_norms_set(p->norms, p->result);

    sb_prune_norms_free(p->norms);
    p->norms = NULL;
    p->fed = false;
    return status;
}

static sb_status prune_step(sb_prune *p, sb_graph **out)
{
    sb_pruner *q = &p->pruner;

    if (p->target_macs != 0 || p->target_params != 0 || p->target_latency != 0)
        SB_TRY(sb_prune_meet(p));
    return p->by_group ? sb_pruner_cut_ratios(q, p->by_group, true, out)
                       : sb_pruner_cut(q, p->ratio, true, out);
}

sb_status sb_prune_apply(sb_prune *p, int *more)
{
    sb_pruner *q = &p->pruner;
    sb_graph *g = NULL;
    int rest = 0;

    more = more ? more : &rest;
    *more = 0;
    if (p->norms)
        return end_norms(p);
    if (all_done(p))
        return sb_fail(p->ctx, SB_BAD_ARG, "all steps are done");
    SB_TRY(go_on(p));
    p->ratio = q->cfg->file.ratio;
    q->args.share = sb_pruner_step_share(q);
    sb_status status = prune_step(p, &g);
    q->args.share = 1;
    SB_TRY(status);
    sb_graph_free(p->result);
    p->result = g;
    p->advanced = false;
    *more = q->thinning || q->step + 1 < q->cfg->file.iterations;
    return *more ? SB_OK : begin_norms(p, more);
}

sb_status sb_prune_model(const sb_prune *p, sb_model **out)
{
    sb_graph *copy = NULL;

    if (!p->result)
        return sb_fail(p->ctx, SB_BAD_ARG, "nothing was pruned yet: apply()");
    SB_TRY(sb_graph_clone_sorted(p->result, &copy));
    return sb_model_wrap(copy, out);
}
