/* First-order changes of the loss, from gradients of the learning core. */
#include "prune/slopes.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "learn/learner.h"
#include "prune/criterion/criterion.h"
#include "prune/select.h"

struct sb_slopes {
    sb_ctx *ctx;
    const sb_channels *ch;
    sb_learner *learner; /* made with the first batch */
    bool classes;        /* it has the labels' loss */
    bool weights;
    sb_slope *v;
    size_t n, cap;
    uint32_t *at;      /* by value of the graph: place in `v`, SB_NONE */
    double *now;       /* by channel: of this batch */
    bool *read;        /* by channel: a constant reads it */
    double *magnitude; /* by channel */
    double *square;
    sb_rng rng;
};

/* ---- life ------------------------------------------------------------------- */

/* Does the axis of a weight without a gradient have what could go? */
static bool axis_may_go(const sb_channels *ch, const sb_prune_axis *a,
                        const bool *allowed)
{
    for (uint32_t k = 0; k < a->n; k++) {
        uint32_t c = ch->channel_of[a->first + k];
        if (c != SB_NONE && allowed[c])
            return true;
    }
    return false;
}

/* Channels of weights without a gradient would look as if nothing needed them;
 * integers are no single weights. */
static sb_status slopes_check(const sb_channels *ch, bool weights,
                              const bool *allowed)
{
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        const sb_tensor *t =
            a->value == SB_NONE ? NULL : sb_const_of(ch->graph, a->value);
        if (t && (a->maker != SB_NONE || a->reader != SB_NONE) &&
            t->dtype != SB_DTYPE_F32 &&
            (weights ? sb_dtype_is_float(t->dtype)
                     : axis_may_go(ch, a, allowed)))
            return sb_fail(ch->graph->ctx, SB_UNSUPPORTED,
                           "weight '%s' is of type %s: this criterion needs "
                           "gradients, which are there for float",
                           sb_graph_value(ch->graph, a->value)->name,
                           sb_dtype_name(t->dtype));
    }
    return SB_OK;
}

static sb_status slopes_allowed(const sb_channels *ch,
                                const sb_prune_config *cfg)
{
    sb_ctx *ctx = ch->graph->ctx;
    bool *allowed = sb_alloc(ctx, ch->n_channels, sizeof *allowed);
    sb_status status =
        allowed ? sb_select_allowed(ch, cfg, allowed) : SB_NO_MEMORY;

    if (status == SB_OK)
        status = slopes_check(ch, cfg->type == SB_PRUNE_UNSTRUCTURED, allowed);
    sb_free(ctx, allowed);
    return status;
}

sb_status sb_slopes_create(const sb_channels *ch, const sb_prune_config *cfg,
                           uint64_t seed, sb_slopes **out)
{
    SB_TRY(slopes_allowed(ch, cfg));
    sb_ctx *ctx = ch->graph->ctx;
    sb_slopes *s = sb_alloc(ctx, 1, sizeof *s);
    size_t n = ch->n_channels;

    if (!s)
        return SB_NO_MEMORY;
    *s = (sb_slopes){.ctx = ctx,
                     .ch = ch,
                     .weights = cfg->type == SB_PRUNE_UNSTRUCTURED,
                     .at = sb_alloc(ctx, ch->graph->n_values, sizeof *s->at),
                     .now = sb_alloc(ctx, n, sizeof *s->now),
                     .read = sb_alloc(ctx, n, sizeof *s->read),
                     .magnitude = sb_alloc(ctx, n, sizeof *s->magnitude),
                     .square = sb_alloc(ctx, n, sizeof *s->square)};
    sb_rng_init(&s->rng, seed);
    if (!s->at || !s->now || !s->read || !s->magnitude || !s->square) {
        sb_slopes_free(s);
        return SB_NO_MEMORY;
    }
    memset(s->at, 0xff, ch->graph->n_values * sizeof *s->at);
    *out = s;
    return SB_OK;
}

void sb_slopes_free(sb_slopes *s)
{
    if (!s)
        return;
    sb_learner_free(s->learner);
    for (size_t i = 0; i < s->n; i++) {
        sb_free(s->ctx, s->v[i].magnitude);
        sb_free(s->ctx, s->v[i].square);
    }
    sb_free(s->ctx, s->v);
    sb_free(s->ctx, s->at);
    sb_free(s->ctx, s->now);
    sb_free(s->ctx, s->read);
    sb_free(s->ctx, s->magnitude);
    sb_free(s->ctx, s->square);
    sb_free(s->ctx, s);
}

/* ---- gradients -------------------------------------------------------------- */

/* Do the samples have classes, and the network scores of them? */
static bool slopes_classes(const sb_graph *g, const int64_t *labels, size_t n)
{
    const sb_value *y = sb_graph_value(g, g->outputs[0]);

    if (!labels || g->n_outputs != 1 || y->type.shape.rank != 2)
        return false;
    for (size_t i = 0; i < n; i++)
        if (labels[i] < 0)
            return false;
    return true;
}

static sb_status slopes_learner(sb_slopes *s, bool classes)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;

    s->classes = classes;
    opt.loss = classes ? SB_LEARN_LOSS_CROSS_ENTROPY : SB_LEARN_LOSS_CUSTOM;
    opt.norm = SB_LEARN_NORM_FROZEN;
    opt.learning_rate = opt.momentum = 0; /* nothing is learned */
    opt.dropout = 0;
    return sb_learner_create_graph(s->ctx, s->ch->graph, &opt, NULL,
                                   &s->learner);
}

static sb_status slopes_by_class(sb_slopes *s, const sb_tensor *const *inputs,
                                 const int64_t *labels, size_t n)
{
    const int64_t count = (int64_t)n;
    sb_tensor target = sb_tensor_make(SB_DTYPE_I64, 1, &count);

    SB_TRY(sb_tensor_alloc_raw(s->ctx, &target));
    memcpy(target.data, labels, n * sizeof *labels);
    sb_status status = sb_learner_gradient(
        s->learner, inputs, s->ch->graph->n_inputs, &target, NULL);
    sb_tensor_drop(&target);
    return status;
}

/* A sum of the outputs, each element plus or minus. */
static sb_status slopes_signs(sb_slopes *s, const sb_tensor *like,
                              sb_tensor *out)
{
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, like->rank, like->dims);

    SB_TRY(sb_tensor_alloc_raw(s->ctx, &t));
    for (int64_t i = 0; i < sb_tensor_count(&t); i++)
        ((float *)t.data)[i] = sb_rng_uniform(&s->rng) < 0.5 ? -1.0f : 1.0f;
    *out = t;
    return SB_OK;
}

static sb_status slopes_by_outputs(sb_slopes *s, const sb_tensor *const *inputs)
{
    const sb_graph *g = s->ch->graph;
    const sb_tensor **y = sb_alloc(s->ctx, g->n_outputs, sizeof *y);
    const sb_tensor **dy = sb_alloc(s->ctx, g->n_outputs, sizeof *dy);
    sb_tensor *signs = sb_alloc(s->ctx, g->n_outputs, sizeof *signs);
    sb_status status = y && dy && signs ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = sb_learner_forward(s->learner, inputs, g->n_inputs, y,
                                    g->n_outputs);
    for (size_t i = 0; i < g->n_outputs && status == SB_OK; i++)
        if (y[i]) {
            status = slopes_signs(s, y[i], &signs[i]);
            dy[i] = &signs[i];
        }
    if (status == SB_OK)
        status = sb_learner_backward(s->learner, dy, g->n_outputs);
    for (size_t i = 0; signs && i < g->n_outputs; i++)
        sb_tensor_drop(&signs[i]);
    sb_free(s->ctx, y);
    sb_free(s->ctx, dy);
    sb_free(s->ctx, signs);
    return status;
}

/* ---- sums ------------------------------------------------------------------- */

static const sb_parameter_info *slopes_parameter(const sb_slopes *s,
                                                 sb_value_id v)
{
    const sb_parameter_info *p = sb_learner_find_parameter(
        s->learner, sb_graph_value(s->ch->graph, v)->name);

    return p && p->gradient ? p : NULL;
}

static sb_status slope_room(sb_slopes *s, sb_value_id v, int64_t n)
{
    SB_TRY(sb_grow(s->ctx, &s->v, &s->cap, s->n + 1, sizeof *s->v));
    sb_slope *one = &s->v[s->n];
    *one = (sb_slope){
        .weight = v,
        .magnitude = sb_alloc(s->ctx, (size_t)n, sizeof *one->magnitude),
        .square = sb_alloc(s->ctx, (size_t)n, sizeof *one->square)};
    s->at[v] = (uint32_t)s->n++;
    return one->magnitude && one->square ? SB_OK : SB_NO_MEMORY;
}

/* Elements of one weight. */
static sb_status slope_add(sb_slopes *s, sb_value_id v,
                           const sb_parameter_info *p)
{
    const float *w = p->value->data, *g = p->gradient->data;
    int64_t n = sb_tensor_count(p->value);

    if (s->at[v] == SB_NONE)
        SB_TRY(slope_room(s, v, n));
    sb_slope *one = &s->v[s->at[v]];
    for (int64_t i = 0; i < n; i++) {
        float change = w[i] * g[i];
        one->magnitude[i] += fabsf(change);
        one->square[i] += change * change;
    }
    return SB_OK;
}

/* What each index of an axis changes goes to its channel; as a maker only where
 * nothing else tells. */
static void axis_add(sb_slopes *s, const sb_prune_axis *a,
                     const sb_parameter_info *p)
{
    const sb_channels *ch = s->ch;
    const float *w = p->value->data, *g = p->gradient->data;
    int64_t inner =
        sb_dims_product(p->value->dims, a->axis + 1, p->value->rank);
    int64_t outer = sb_dims_product(p->value->dims, 0, a->axis);

    for (int64_t o = 0; o < outer; o++)
        for (uint32_t i = 0; i < a->n; i++, w += inner, g += inner) {
            uint32_t c = ch->channel_of[a->first + i];
            double sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += (double)w[k] * (double)g[k];
            if (c != SB_NONE && (a->reader != SB_NONE || !s->read[c]))
                s->now[c] += sum;
        }
}

/* Readers decide, since cutting a channel is the same as zeros in them; where
 * no constant reads a channel (a product of two activations), its makers. */
static void slopes_mark_readers(sb_slopes *s)
{
    const sb_channels *ch = s->ch;

    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (a->value == SB_NONE || a->reader == SB_NONE ||
            !sb_is_const(ch->graph, a->value) || !slopes_parameter(s, a->value))
            continue;
        for (uint32_t k = 0; k < a->n; k++)
            if (ch->channel_of[a->first + k] != SB_NONE)
                s->read[ch->channel_of[a->first + k]] = true;
    }
}

/* One batch's gradients are there. */
static sb_status slopes_take(sb_slopes *s)
{
    const sb_channels *ch = s->ch;
    sb_value_id last = SB_NONE;

    slopes_mark_readers(s);
    memset(s->now, 0, ch->n_channels * sizeof *s->now);
    for (size_t i = 0; i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        const sb_parameter_info *p =
            a->value != SB_NONE && sb_is_const(ch->graph, a->value) &&
                    (a->maker != SB_NONE || a->reader != SB_NONE)
                ? slopes_parameter(s, a->value)
                : NULL;
        if (!p)
            continue;
        if (s->weights && a->value != last)
            SB_TRY(slope_add(s, a->value, p));
        last = a->value;
        if (!s->weights)
            axis_add(s, a, p);
    }
    for (uint32_t c = 0; c < ch->n_channels; c++) {
        s->magnitude[c] += fabs(s->now[c]);
        s->square[c] += s->now[c] * s->now[c];
    }
    return SB_OK;
}

sb_status sb_slopes_run(sb_slopes *s, const sb_tensor *const *inputs,
                        const int64_t *labels, size_t n)
{
    if (!s->learner)
        SB_TRY(slopes_learner(s, slopes_classes(s->ch->graph, labels, n)));
    if (s->classes && !slopes_classes(s->ch->graph, labels, n))
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "a batch has no labels, those before had");
    SB_TRY(s->classes ? slopes_by_class(s, inputs, labels, n)
                      : slopes_by_outputs(s, inputs));
    return slopes_take(s);
}

const sb_slope *sb_slopes_of(const sb_slopes *s, sb_value_id weight)
{
    return s->at[weight] == SB_NONE ? NULL : &s->v[s->at[weight]];
}

double sb_slopes_channel(const sb_slopes *s, uint32_t channel, bool square)
{
    return square ? s->square[channel] : s->magnitude[channel];
}
