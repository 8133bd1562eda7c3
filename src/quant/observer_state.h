/* observer_state.h - what an observer holds; for observer*.c alone. */
#ifndef SB_QUANT_OBSERVER_STATE_H
#define SB_QUANT_OBSERVER_STATE_H

#include "quant/obs_hist.h"
#include "quant/obs_tails.h"
#include "quant/observer_def.h"

struct sb_observer {
    sb_ctx *ctx;
    const sb_observer_def *def;
    sb_quant_spec spec; /* texts in it are not used */
    unsigned needs;     /* of SB_OBS_HISTOGRAM and SB_OBS_TAILS */
    int64_t channels;
    int64_t samples;
    int64_t elements;    /* of all channels */
    sb_obs_keys *keys;   /* [channels] least and greatest so far */
    sb_hist hist;        /* features, if the row wants one */
    sb_obs_tails *tails; /* [channels], the same; else NULL */
    int64_t raised;      /* elements when bars were raised last */
    bool sampled;        /* the histogram: some lines stand for others */
    /* Single channels with lists of outermost values, see observer_tensor.c. */
    uint64_t below;            /* values below zero */
    int32_t bar_high, bar_low; /* of the samples from bars_from on; */
    int64_t bars_from;         /* 0: not set */
    sb_obs_room *room;         /* or NULL */
    struct sb_obs_job *job;    /* the last view, or NULL */
    char *own;                 /* [channels] states of the row, or NULL */
    sb_range *done;            /* [channels] weights: the result; else NULL */
    sb_range answer;  /* of a single channel, as it was asked for last, */
    int64_t answered; /* when there were so many elements; 0: never */
};

static inline void *sb_observer_own(const sb_observer *obs, int64_t c)
{
    return obs->own ? obs->own + (size_t)c * obs->def->own_size : NULL;
}

/* A view that is being looked at (observer_tensor.c). */
typedef struct sb_obs_job sb_obs_job;
void sb_obs_job_free(sb_obs_job *job); /* NULL is allowed */

/* Takes in a weight, whose values are finite (observer_weight.c). */
SB_MUST_USE sb_status sb_observer_weight(sb_observer *obs,
                                         const sb_obs_view *view,
                                         const sb_obs_keys *keys);

/* Counts a view of features: of a single channel (observer_tensor.c), where
 * it also finds the keys of each sample, and counts nothing if some are not
 * finite; of several channels (observer_feature.c), whose keys are known and
 * finite. */
SB_MUST_USE sb_status sb_observer_tensor(sb_observer *obs,
                                         const sb_obs_view *view,
                                         sb_obs_keys *keys);
SB_MUST_USE sb_status sb_observer_channels(sb_observer *obs,
                                           const sb_obs_view *view,
                                           const sb_obs_keys *keys);

#endif
