/* Choosing channels by their scores.
 *
 * The ratio says how many, rounded down as the original does; what stays is a
 * multiple of ROUND_TO, and no axis of any value loses its last index.  Equal
 * scores go by position. */
#include "prune/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- scores ----------------------------------------------------------------- */

/* Channels without a score stay, but not without a word. */
static double score_known(double score, uint32_t *unknown)
{
    if (isfinite(score))
        return score;
    ++*unknown;
    return HUGE_VAL;
}

static void warn_unknown(const sb_channels *ch, const sb_channel_group *group,
                         uint32_t unknown)
{
    const sb_graph *g = ch->graph;

    if (unknown > 0)
        sb_warn(g->ctx,
                "%u of %u channels of '%s' stay: their scores are not finite; "
                "does a weight hold NaN?",
                unknown, group->n,
                sb_node_label(g, sb_graph_node(g, group->maker)));
}

sb_status sb_selection_make(const sb_channels *ch, const sb_prune_args *args,
                            sb_selection *out)
{
    sb_ctx *ctx = ch->graph->ctx;
    const sb_criterion_def *criterion = args->cfg->criterion;
    double *scores = sb_alloc(ctx, ch->n_channels, sizeof *scores);

    *out = (sb_selection){
        .gone = sb_alloc(ctx, ch->n_channels, 1),
        .candidates = sb_alloc(ctx, ch->n_groups, sizeof *out->candidates),
        .removed = sb_alloc(ctx, ch->n_groups, sizeof *out->removed),
        .held = sb_alloc(ctx, ch->n_groups, sizeof *out->held),
        .scores = sb_alloc(ctx, ch->n_channels, sizeof *out->scores),
    };
    bool all = scores && out->gone && out->candidates && out->removed &&
               out->held && out->scores;
    sb_status status = all ? SB_OK : SB_NO_MEMORY;
    for (uint32_t g = 0; g < ch->n_groups && status == SB_OK; g++) {
        const sb_criterion_ask ask = {.ctx = ctx,
                                      .criterion = criterion,
                                      .channels = ch,
                                      .group = &ch->groups[g],
                                      .weight = SB_NONE,
                                      .seen = args->seen,
                                      .origin = args->origin,
                                      .seed = args->seed};
        uint32_t unknown = 0;

        status = sb_progress(ctx, "scoring channels", g, ch->n_groups);
        if (status == SB_OK)
            status = criterion->score(&ask, scores);
        for (uint32_t i = 0; i < ch->groups[g].n && status == SB_OK; i++)
            out->scores[ch->ordered[ch->groups[g].first + i]] =
                score_known(scores[i], &unknown);
        warn_unknown(ch, &ch->groups[g], unknown);
    }
    sb_free(ctx, scores);
    return status;
}

void sb_selection_free(sb_ctx *ctx, sb_selection *s)
{
    sb_free(ctx, s->gone);
    sb_free(ctx, s->candidates);
    sb_free(ctx, s->removed);
    sb_free(ctx, s->held);
    sb_free(ctx, s->scores);
    *s = (sb_selection){0};
}

/* ---- choosing ---------------------------------------------------------------- */

typedef struct ranked {
    double score;
    uint32_t channel;
} ranked;

typedef struct chooser {
    const sb_channels *ch;
    const sb_prune_config *cfg;
    const sb_prune_args *args;
    sb_selection *s;
    uint32_t *left; /* by axis: indices that stay */
    ranked *order;  /* of candidates */
    double *ratio;  /* by group */
    bool *stated;   /* by group: a pattern says so */
} chooser;

static int ranked_compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return x->channel < y->channel ? -1 : x->channel > y->channel;
}

bool sb_select_may(const sb_channels *ch, const sb_prune_config *cfg,
                   uint32_t channel)
{
    return cfg->file.statistics || !ch->channels[channel].stats;
}

void sb_select_sizes(const sb_channels *ch, const sb_prune_config *cfg,
                     uint32_t *sizes)
{
    memset(sizes, 0, ch->n_groups * sizeof *sizes);
    for (uint32_t c = 0; c < ch->n_channels; c++)
        sizes[ch->channels[c].group] += sb_select_may(ch, cfg, c);
}

void sb_select_stated(const sb_channels *ch, const sb_prune_args *args,
                      double ratio, double *ratios, bool *stated)
{
    for (uint32_t g = 0; g < ch->n_groups; g++) {
        ratios[g] = args->share * ratio;
        stated[g] = false;
    }
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->maker == SB_NONE)
            continue;
        bool said;
        double r = args->share *
                   sb_prune_config_ratio(
                       args->cfg, sb_graph_node(ch->graph, a->maker), &said);
        for (uint32_t k = 0; said && k < a->n; k++) {
            uint32_t channel = ch->channel_of[a->first + k];
            if (channel == SB_NONE)
                continue;
            uint32_t g = ch->channels[channel].group;
            if (!stated[g] || r == 0)
                ratios[g] = r;
            stated[g] = true;
        }
    }
}

sb_status sb_select_allowed(const sb_channels *ch, const sb_prune_config *cfg,
                            bool *out)
{
    const sb_prune_args args = {.cfg = cfg, .share = 1};
    sb_ctx *ctx = ch->graph->ctx;
    double *ratios = sb_alloc(ctx, ch->n_groups, sizeof *ratios);
    bool *stated = sb_alloc(ctx, ch->n_groups, sizeof *stated);
    sb_status status = ratios && stated ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        sb_select_stated(ch, &args, 1, ratios, stated);
    for (uint32_t c = 0; status == SB_OK && c < ch->n_channels; c++) {
        uint32_t g = ch->channels[c].group;
        out[c] = sb_select_may(ch, cfg, c) && !(stated[g] && ratios[g] == 0);
    }
    sb_free(ctx, ratios);
    sb_free(ctx, stated);
    return status;
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    return b ? common_divisor(b, a % b) : a;
}

/* How many channels a group keeps a multiple of: a channel may be several
 * indices wide, as a head is. */
static uint32_t group_unit(const chooser *c, const sb_channel_group *g)
{
    const sb_channels *ch = c->ch;
    const sb_channel *first = &ch->channels[ch->ordered[g->first]];
    uint32_t round_to = (uint32_t)c->cfg->file.round_to, width = 0;
    const sb_prune_axis *axis = NULL;

    for (uint32_t i = 0; i < first->n; i++) {
        const sb_prune_axis *a =
            sb_channels_axis(ch, ch->members[first->first + i]);
        if (a->maker == SB_NONE || (axis && a != axis))
            continue;
        axis = a;
        width++;
    }
    return round_to / common_divisor(round_to, width ? width : 1);
}

/* Puts the first n members of a channel back. */
static void chooser_return(chooser *c, uint32_t channel, uint32_t n)
{
    const sb_channels *ch = c->ch;
    uint32_t first = ch->channels[channel].first;

    for (uint32_t i = 0; i < n; i++)
        c->left[sb_channels_axis(ch, ch->members[first + i]) - ch->axes]++;
    c->s->gone[channel] = 0;
}

/* Takes the channel out unless an axis would lose its last index. */
static bool chooser_take(chooser *c, uint32_t channel)
{
    const sb_channels *ch = c->ch;
    const sb_channel *x = &ch->channels[channel];

    c->s->gone[channel] = 1;
    for (uint32_t i = 0; i < x->n; i++) {
        const sb_prune_axis *a =
            sb_channels_axis(ch, ch->members[x->first + i]);
        if (--c->left[a - ch->axes] > 0)
            continue;
        chooser_return(c, channel, i + 1);
        return false;
    }
    return true;
}

/* Removes up to `k` of the first n in `order`, all of one group. */
static void chooser_remove(chooser *c, uint32_t g, const ranked *order,
                           uint32_t n, uint32_t k)
{
    uint32_t unit = group_unit(c, &c->ch->groups[g]);
    uint32_t total = c->ch->groups[g].n, keep = total - k, taken = 0;

    keep = (keep + unit - 1) / unit * unit;
    if (keep < unit)
        keep = unit;
    c->s->held[g] = keep > total - k && total - k < unit;
    k = keep < total ? total - keep : 0;
    for (uint32_t i = 0; i < n && taken < k; i++)
        taken += order[i].score < HUGE_VAL && chooser_take(c, order[i].channel);
    /* What could not go must not break the multiple. */
    for (uint32_t i = n; i-- > 0 && (total - taken) % unit != 0 && taken;)
        if (c->s->gone[order[i].channel]) {
            chooser_return(c, order[i].channel,
                           c->ch->channels[order[i].channel].n);
            taken--;
        }
    c->s->held[g] |= taken < k;
    c->s->removed[g] = taken;
}

/* Candidates of a group, the lowest scores first. */
static uint32_t chooser_rank(const chooser *c, uint32_t g, ranked *out)
{
    const sb_channel_group *group = &c->ch->groups[g];
    uint32_t n = 0;

    for (uint32_t i = 0; i < group->n; i++) {
        uint32_t channel = c->ch->ordered[group->first + i];
        if (sb_select_may(c->ch, c->cfg, channel))
            out[n++] = (ranked){c->s->scores[channel], channel};
    }
    qsort(out, n, sizeof *out, ranked_compare);
    return n;
}

/* What is still to go of n that are left of `first`: floor(ratio * first) in
 * all, with what a decimal fraction lacks in binary. */
static uint32_t share_of(double ratio, uint32_t n, uint32_t first)
{
    uint32_t all = (uint32_t)floor(ratio * first + 1e-9), gone = first - n;

    return all > gone ? all - gone : 0;
}

/* The candidates of a group before the first step, of which n are left. */
static uint32_t chooser_first(const chooser *c, uint32_t g, uint32_t n)
{
    double share = c->args->share;
    double before = share > 0 ? c->ratio[g] * c->args->before / share : 0;

    if (!c->args->first)
        return (uint32_t)lround(n / (1 - before));
    return c->args->first[g] > n ? c->args->first[g] : n;
}

static void choose_layers(chooser *c)
{
    for (uint32_t g = 0; g < c->ch->n_groups; g++) {
        uint32_t n = chooser_rank(c, g, c->order);
        c->s->candidates[g] = n;
        chooser_remove(c, g, c->order, n,
                       share_of(c->ratio[g], n, chooser_first(c, g, n)));
    }
}

/* Groups for which a pattern states a ratio do not take part. */
static void choose_global(chooser *c, double ratio)
{
    const sb_channels *ch = c->ch;
    uint32_t n = 0, first = 0, k;

    for (uint32_t g = 0; g < ch->n_groups; g++)
        if (!c->stated[g]) {
            uint32_t m = chooser_rank(c, g, c->order + n);
            first += chooser_first(c, g, m);
            n += m;
        }
    qsort(c->order, n, sizeof *c->order, ranked_compare);
    k = share_of(ratio, n, first);
    for (uint32_t i = 0; i < k; i++)
        c->s->removed[ch->channels[c->order[i].channel].group]++;
    for (uint32_t g = 0; g < ch->n_groups; g++) {
        uint32_t m = chooser_rank(c, g, c->order);
        c->s->candidates[g] = m;
        chooser_remove(c, g, c->order, m,
                       c->stated[g]
                           ? share_of(c->ratio[g], m, chooser_first(c, g, m))
                           : c->s->removed[g]);
    }
}

static void chooser_reset(chooser *c)
{
    const sb_channels *ch = c->ch;

    memset(c->s->gone, 0, ch->n_channels);
    memset(c->s->removed, 0, ch->n_groups * sizeof *c->s->removed);
    memset(c->s->held, 0, ch->n_groups * sizeof *c->s->held);
    for (size_t i = 0; i < ch->n_axes; i++)
        c->left[i] = ch->axes[i].n;
}

/* `ratios`: of each group, or NULL: `ratio` and patterns say it. */
static sb_status choose_all(const sb_channels *ch, const sb_prune_args *args,
                            double ratio, const double *ratios, sb_selection *s)
{
    sb_ctx *ctx = ch->graph->ctx;
    chooser c = {.ch = ch,
                 .cfg = args->cfg,
                 .args = args,
                 .s = s,
                 .left = sb_alloc(ctx, ch->n_axes, sizeof *c.left),
                 .order = sb_alloc(ctx, ch->n_channels, sizeof *c.order),
                 .ratio = sb_alloc(ctx, ch->n_groups, sizeof *c.ratio),
                 .stated = sb_alloc(ctx, ch->n_groups, sizeof *c.stated)};
    bool all = c.left && c.order && c.ratio && c.stated;

    if (all) {
        chooser_reset(&c);
        if (ratios)
            memcpy(c.ratio, ratios, ch->n_groups * sizeof *ratios);
        else
            sb_select_stated(ch, args, ratio, c.ratio, c.stated);
        if (args->cfg->scope == SB_SCOPE_GLOBAL && !ratios)
            choose_global(&c, args->share * ratio);
        else
            choose_layers(&c);
    }
    sb_free(ctx, c.left);
    sb_free(ctx, c.order);
    sb_free(ctx, c.ratio);
    sb_free(ctx, c.stated);
    return all ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_select_channels(const sb_channels *ch, const sb_prune_args *args,
                             double ratio, sb_selection *s)
{
    return choose_all(ch, args, ratio, NULL, s);
}

sb_status sb_select_ratios(const sb_channels *ch, const sb_prune_args *args,
                           const double *ratios, sb_selection *s)
{
    return choose_all(ch, args, 0, ratios, s);
}
