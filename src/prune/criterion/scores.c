/* The table of criteria, and what they share. */
#include <string.h>

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

/* Adds the scores of one axis to those of the channels in it. */
static sb_status add_axis(const sb_criterion_ask *ask, const sb_prune_axis *a,
                          sb_axis_score_fn fn, const uint32_t *place,
                          double *sum, uint32_t *count)
{
    const sb_channels *ch = ask->channels;
    const sb_tensor *t = sb_const_of(ch->graph, a->value);
    double *scores = sb_alloc(ask->ctx, a->n, sizeof *scores), mean = 0;

    if (!scores)
        return SB_NO_MEMORY;
    sb_status status = fn(ask, t, a->axis, scores);
    for (uint32_t i = 0; i < a->n; i++)
        mean += scores[i] / a->n;
    for (uint32_t i = 0; i < a->n && status == SB_OK; i++) {
        uint32_t c = ch->channel_of[a->first + i];
        if (c == SB_NONE || place[c] == SB_NONE)
            continue;
        sum[place[c]] += mean > 0 ? scores[i] / mean : 1;
        count[place[c]]++;
    }
    sb_free(ask->ctx, scores);
    return status;
}

static bool axis_has_role(const sb_channels *ch, const sb_prune_axis *a,
                          sb_axis_role role)
{
    return a->value != SB_NONE && sb_is_const(ch->graph, a->value) &&
           (role == SB_AXIS_SCALE  ? a->scale
            : role == SB_AXIS_READ ? a->reader != SB_NONE
                                   : a->maker != SB_NONE);
}

/* Is a channel of the group in this axis? */
static bool axis_meets(const sb_channels *ch, const sb_prune_axis *a,
                       const uint32_t *place)
{
    for (uint32_t i = 0; i < a->n; i++) {
        uint32_t c = ch->channel_of[a->first + i];
        if (c != SB_NONE && place[c] != SB_NONE)
            return true;
    }
    return false;
}

sb_status sb_score_by_axis(const sb_criterion_ask *ask, sb_axis_role role,
                           sb_axis_score_fn fn, double *out, bool *found)
{
    const sb_channels *ch = ask->channels;
    const sb_channel_group *g = ask->group;
    uint32_t *place = sb_alloc(ask->ctx, ch->n_channels, sizeof *place);
    uint32_t *count = sb_alloc(ask->ctx, g->n, sizeof *count);
    sb_status status = place && count ? SB_OK : SB_NO_MEMORY;

    *found = false;
    if (place)
        memset(place, 0xff, ch->n_channels * sizeof *place);
    for (uint32_t i = 0; status == SB_OK && i < g->n; i++) {
        place[ch->ordered[g->first + i]] = i;
        out[i] = 0;
    }
    for (size_t i = 0; status == SB_OK && i < ch->n_axes; i++) {
        const sb_prune_axis *a = &ch->axes[i];
        if (!axis_has_role(ch, a, role) || !axis_meets(ch, a, place))
            continue;
        *found = true;
        status = add_axis(ask, a, fn, place, out, count);
    }
    for (uint32_t i = 0; status == SB_OK && i < g->n; i++)
        out[i] = count[i] ? out[i] / count[i] : 0;
    sb_free(ask->ctx, place);
    sb_free(ask->ctx, count);
    return status;
}
