/* The table of criteria, and what they share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "ops/op_registry.h"
#include "prune/criterion/criterion.h"

#define SB_CRITERION(id) extern const sb_criterion_def sb_criterion_##id;
#include "prune/criterion/criteria.def"
#undef SB_CRITERION

static const sb_criterion_def *const criteria[] = {
#define SB_CRITERION(id) &sb_criterion_##id,
#include "prune/criterion/criteria.def"
#undef SB_CRITERION
};

const sb_criterion_def *sb_criterion_at(const sb_ctx *ctx, size_t i)
{
    if (i < SB_COUNT(criteria))
        return criteria[i];
    return ctx ? sb_ctx_row(ctx, SB_ROW_CRITERION, i - SB_COUNT(criteria))
               : NULL;
}

const sb_criterion_def *sb_criterion_find(const sb_ctx *ctx, const char *name)
{
    const sb_criterion_def *row;

    for (size_t i = 0; (row = sb_criterion_at(ctx, i)) != NULL; i++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

double sb_weight_at(const sb_tensor *t, int64_t at)
{
    return t->dtype == SB_DTYPE_F32 ? (double)((const float *)t->data)[at]
                                    : sb_tensor_get_f64(t, at);
}

/* ---- scores of axes --------------------------------------------------------- */

/* Where in the group an atom's channel is; SB_NONE: in another. */
static uint32_t place_of(const sb_criterion_ask *ask, uint32_t atom)
{
    const sb_channels *ch = ask->channels;
    uint32_t c = ch->channel_of[atom];

    return c != SB_NONE && &ch->groups[ch->channels[c].group] == ask->group
               ? ch->channels[c].place
               : SB_NONE;
}

/* A weight as its layer reads it: integers dequantized.  Drop it. */
static sb_status axis_weight(const sb_graph *g, sb_value_id v, sb_tensor *out)
{
    const sb_value *value = sb_graph_value(g, v);
    const sb_tensor *in[3] = {NULL};

    *out = sb_tensor_share(&value->constant);
    for (size_t i = 0; i < value->n_uses; i++) {
        const sb_node *n = sb_graph_node(g, value->uses[i].node);
        bool known = sb_tie_quantizes(n) &&
                     strcmp(n->op, "DequantizeLinear") == 0 && n->n_in <= 3;
        for (uint32_t k = 0; k < n->n_in && known; k++) {
            in[k] = sb_const_of(g, n->inputs[k]);
            known = in[k] || n->inputs[k] == SB_NONE;
        }
        if (!known)
            continue;
        sb_tensor_drop(out);
        return sb_exec_eval(g->ctx, g, n, in, out);
    }
    return SB_OK;
}

/* Adds the scores of one axis to those of the channels in it. */
static sb_status add_axis(const sb_criterion_ask *ask, const sb_prune_axis *a,
                          sb_axis_score_fn fn, double *sum, uint32_t *count)
{
    double *scores = sb_alloc(ask->ctx, a->n, sizeof *scores), mean = 0;
    sb_tensor t = {0};
    sb_status status =
        scores ? axis_weight(ask->channels->graph, a->value, &t) : SB_NO_MEMORY;

    if (status == SB_OK)
        status = fn(ask, a, &t, scores);
    sb_tensor_drop(&t);
    if (status != SB_OK) {
        sb_free(ask->ctx, scores);
        return status;
    }
    for (uint32_t i = 0; i < a->n; i++)
        mean += isfinite(scores[i]) ? fabs(scores[i]) / a->n : 0;
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t at = place_of(ask, a->first + i);
        if (at == SB_NONE)
            continue;
        sum[at] += !isfinite(scores[i]) ? (double)NAN /* it stays */
                   : mean > 0           ? scores[i] / mean
                                        : 1;
        count[at]++;
    }
    sb_free(ask->ctx, scores);
    return SB_OK;
}

static bool axis_has_role(const sb_channels *ch, const sb_prune_axis *a,
                          sb_axis_role role)
{
    return a->value != SB_NONE && sb_is_const(ch->graph, a->value) &&
           (role == SB_AXIS_SCALE  ? a->scale
            : role == SB_AXIS_READ ? a->reader != SB_NONE
                                   : a->maker != SB_NONE);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* The axes of that role with channels of the group, in their order: found from
 * the channels, since a walk over all axes for each group is quadratic. */
static sb_status axes_of_group(const sb_criterion_ask *ask, sb_axis_role role,
                               uint32_t **out, size_t *n_out)
{
    const sb_channels *ch = ask->channels;
    const sb_channel_group *g = ask->group;
    size_t most = 0, n = 0;

    for (uint32_t i = 0; i < g->n; i++)
        most += ch->channels[ch->ordered[g->first + i]].n;
    uint32_t *axes = sb_alloc(ask->ctx, most + 1, sizeof *axes);
    if (!axes)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < g->n; i++) {
        const sb_channel *c = &ch->channels[ch->ordered[g->first + i]];
        for (uint32_t k = 0; k < c->n; k++) {
            const sb_prune_axis *a =
                sb_channels_axis(ch, ch->members[c->first + k]);
            if (axis_has_role(ch, a, role))
                axes[n++] = (uint32_t)(a - ch->axes);
        }
    }
    qsort(axes, n, sizeof *axes, by_number);
    *n_out = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || axes[i] != axes[i - 1])
            axes[(*n_out)++] = axes[i];
    *out = axes;
    return SB_OK;
}

sb_status sb_score_by_axis(const sb_criterion_ask *ask, sb_axis_role role,
                           sb_axis_score_fn fn, double *out, bool *found)
{
    const sb_channel_group *g = ask->group;
    uint32_t *count = sb_alloc(ask->ctx, g->n, sizeof *count), *axes = NULL;
    size_t n = 0;
    sb_status status =
        count ? axes_of_group(ask, role, &axes, &n) : SB_NO_MEMORY;

    *found = n > 0;
    for (uint32_t i = 0; i < g->n; i++)
        out[i] = 0;
    for (size_t i = 0; status == SB_OK && i < n; i++)
        status = add_axis(ask, &ask->channels->axes[axes[i]], fn, out, count);
    for (uint32_t i = 0; status == SB_OK && i < g->n; i++)
        out[i] = count[i] ? out[i] / count[i] : 0;
    sb_free(ask->ctx, axes);
    sb_free(ask->ctx, count);
    return status;
}
