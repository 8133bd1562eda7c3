/* Pruning while a network is trained: masks that the learner keeps, of more and
 * more channels or weights; channels are cut when training is over. */
#include <math.h>
#include <string.h>

#include "api/prune/prune_state.h"
#include "learn/learner.h"
#include "prune/criterion/axis_norm.h"

int sb_prune_is_gradual(const sb_prune *p)
{
    const sb_prune_config *cfg = p->pruner.cfg;

    return cfg->type == SB_PRUNE_UNSTRUCTURED ||
           cfg->file.schedule != SB_SCHEDULE_ONE_SHOT;
}

double sb_prune_share(const sb_prune *p, double epoch, double epochs)
{
    const sb_prune_file *f = &p->pruner.cfg->file;
    double end = f->end >= 0 ? f->end : epochs / 2, last = 1;

    if (epoch < f->begin)
        return 0;
    if (end > f->begin && f->iterations > 1)
        last = floor((epoch - f->begin) / (end - f->begin) *
                         (double)(f->iterations - 1) +
                     1e-9) +
               1;
    else
        last = (double)f->iterations;
    return sb_prune_config_share(p->pruner.cfg, last / (double)f->iterations);
}

sb_status sb_prune_source(const sb_prune *p, sb_model **out)
{
    sb_graph *g = NULL;

    SB_TRY(sb_graph_clone(p->pruner.graph, &g));
    return sb_model_wrap(g, out);
}

/* ---- masks -------------------------------------------------------------------- */

/* Calls `fn` for each constant that is a trained parameter and in an axis of
 * channels (or whose elements become zero), once. */
typedef sb_status (*tune_fn)(sb_prune *p, sb_learner *l, sb_value_id v,
                             void *user);

static bool axis_has_channel(const sb_channels *ch, const sb_prune_axis *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (ch->channel_of[a->first + i] != SB_NONE)
            return true;
    return false;
}

static bool is_trained(const sb_prune *p, const sb_learner *l, sb_value_id v)
{
    const sb_parameter_info *info =
        sb_learner_find_parameter(l, sb_graph_value(p->pruner.graph, v)->name);

    return info && info->trained && info->role == SB_PARAMETER_ROLE_WEIGHT;
}

static sb_status tune_each(sb_prune *p, sb_learner *l, tune_fn fn, void *user)
{
    const sb_channels *ch = &p->pruner.ch;
    sb_value_id last = SB_NONE;

    if (p->pruner.cfg->type == SB_PRUNE_UNSTRUCTURED) {
        for (size_t i = 0; i < p->pruner.n_masked; i++)
            if (is_trained(p, l, p->pruner.masked[i].weight))
                SB_TRY(fn(p, l, p->pruner.masked[i].weight, user));
        return SB_OK;
    }
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->value == SB_NONE || a->value == last ||
            !sb_is_const(ch->graph, a->value) || !axis_has_channel(ch, a) ||
            !is_trained(p, l, a->value))
            continue;
        last = a->value;
        SB_TRY(fn(p, l, a->value, user));
    }
    return SB_OK;
}

/* All ones in the shape of a constant. */
static sb_status tune_ones(const sb_prune *p, sb_value_id v, sb_tensor *out)
{
    const sb_tensor *like = sb_const_of(p->pruner.graph, v);
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, like->rank, like->dims);

    SB_TRY(sb_tensor_alloc_raw(p->ctx, &t));
    for (int64_t i = 0; i < sb_tensor_count(&t); i++)
        ((float *)t.data)[i] = 1;
    *out = t;
    return SB_OK;
}

static sb_status tune_attach(sb_prune *p, sb_learner *l, sb_value_id v,
                             void *user)
{
    sb_tensor t;

    (void)user;
    SB_TRY(tune_ones(p, v, &t));
    sb_status status =
        sb_learner_set_mask(l, sb_graph_value(p->pruner.graph, v)->name, &t);
    sb_tensor_drop(&t);
    return status;
}

sb_status sb_prune_attach(sb_prune *p, sb_learner *learner)
{
    return tune_each(p, learner, tune_attach, NULL);
}

sb_status sb_prune_follow(sb_prune *p, const sb_learner *learner)
{
    sb_pruner_renew(&p->pruner);
    return sb_store_overlay(&learner->store, p->pruner.graph,
                            SB_LEARN_VALUES_LAST);
}

/* Zeros where channels are gone, in all axes of the value. */
static sb_status tune_channels(sb_prune *p, sb_learner *l, sb_value_id v,
                               void *user)
{
    const sb_channels *ch = &p->pruner.ch;
    const uint8_t *gone = user;
    sb_tensor t;

    SB_TRY(tune_ones(p, v, &t));
    for (size_t i = 0; i < ch->n_axes; i++)
        if (ch->axes[i].value == v)
            sb_mask_axis(ch, &ch->axes[i], gone, &t);
    sb_status status =
        sb_learner_set_mask(l, sb_graph_value(p->pruner.graph, v)->name, &t);
    sb_tensor_drop(&t);
    return status;
}

/* Zeros where the pruned graph has them; and its other weights, if they were
 * changed. */
static sb_status tune_weights(sb_prune *p, sb_learner *l, sb_value_id v,
                              void *user)
{
    const sb_graph *pruned = user;
    const char *name = sb_graph_value(p->pruner.graph, v)->name;
    const sb_tensor *w = sb_const_of(pruned, v);
    sb_tensor t;

    SB_TRY(tune_ones(p, v, &t));
    for (int64_t i = 0; i < sb_tensor_count(&t); i++)
        ((float *)t.data)[i] = sb_weight_at(w, i) != 0 ? 1.0f : 0.0f;
    sb_status status = sb_learner_set_mask(l, name, &t);
    if (status == SB_OK && p->pruner.cfg->criterion->thin &&
        w->dtype == SB_DTYPE_F32)
        status = sb_learner_set_parameter(l, name, w);
    sb_tensor_drop(&t);
    return status;
}

/* Which channels the masks of the learner hold at zero. */
static sb_status tune_gone(const sb_prune *p, const sb_learner *l,
                           uint8_t *gone)
{
    const sb_channels *ch = &p->pruner.ch;

    memset(gone, 0, ch->n_channels);
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        const sb_tensor *mask =
            a->maker != SB_NONE && sb_is_const(ch->graph, a->value)
                ? sb_learner_mask(l, sb_graph_value(ch->graph, a->value)->name)
                : NULL;
        if (!mask)
            continue;
        double *sums = sb_alloc(p->ctx, a->n, sizeof *sums);
        if (!sums)
            return SB_NO_MEMORY;
        sb_axis_sums(mask, a->axis, false, sums);
        for (uint32_t k = 0; k < a->n; k++)
            if (ch->channel_of[a->first + k] != SB_NONE && sums[k] == 0)
                gone[ch->channel_of[a->first + k]] = 1;
        sb_free(p->ctx, sums);
    }
    return SB_OK;
}

/* Channels that are gone stay gone. */
static sb_status mask_channels(sb_prune *p, sb_learner *l)
{
    sb_pruner *q = &p->pruner;

    SB_TRY(sb_pruner_score(q));
    SB_TRY(tune_gone(p, l, q->chosen.gone));
    for (uint32_t c = 0; c < q->ch.n_channels; c++)
        if (q->chosen.gone[c])
            q->chosen.scores[c] = -HUGE_VAL;
    SB_TRY(
        sb_select_channels(&q->ch, &q->args, q->cfg->file.ratio, &q->chosen));
    return tune_each(p, l, tune_channels, q->chosen.gone);
}

static sb_status mask_weights(sb_prune *p, sb_learner *l)
{
    sb_pruner *q = &p->pruner;
    sb_graph *g = NULL;

    SB_TRY(sb_pruner_cut(q, q->cfg->file.ratio, false, &g));
    sb_status status = tune_each(p, l, tune_weights, g);
    sb_graph_free(g);
    return status;
}

sb_status sb_prune_mask(sb_prune *p, sb_learner *l, double share, int *more)
{
    sb_pruner *q = &p->pruner;

    q->args.share = share;
    sb_status status = q->cfg->type == SB_PRUNE_STRUCTURED ? mask_channels(p, l)
                                                           : mask_weights(p, l);
    q->args.share = 1;
    if (more)
        *more = q->thinning;
    return status;
}

/* ---- the end ------------------------------------------------------------------ */

/* The trained constants, by name. */
static sb_status take_constants(const sb_graph *from, sb_graph *to)
{
    for (sb_value_id v = 0; v < to->n_values; v++) {
        const sb_tensor *own = sb_const_of(to, v);
        sb_value_id other =
            own ? sb_graph_find_value(from, sb_graph_value(to, v)->name)
                : SB_NONE;
        const sb_tensor *t = other != SB_NONE ? sb_const_of(from, other) : NULL;

        if (t && t->dtype == own->dtype &&
            sb_tensor_count(t) == sb_tensor_count(own))
            SB_TRY(sb_graph_set_constant(to, v, t));
    }
    return SB_OK;
}

sb_status sb_prune_finish(sb_prune *p, const sb_learner *learner,
                          const sb_model *trained, sb_model **out)
{
    sb_graph *g = NULL;
    uint8_t *gone = sb_alloc(p->ctx, p->pruner.ch.n_channels, 1);
    sb_status status = gone ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = sb_graph_clone(p->pruner.graph, &g);
    if (status == SB_OK)
        status = take_constants(trained->graph, g);
    if (status == SB_OK && p->pruner.cfg->type == SB_PRUNE_STRUCTURED) {
        status = tune_gone(p, learner, gone);
        if (status == SB_OK)
            status = sb_channels_cut(&p->pruner.ch, gone, g);
    }
    sb_free(p->ctx, gone);
    if (status != SB_OK) {
        sb_graph_free(g);
        return status;
    }
    return sb_model_wrap(g, out);
}
