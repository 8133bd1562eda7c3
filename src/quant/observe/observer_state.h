/* observer_state.h - what an observer holds; for observer*.c alone. */
#ifndef SB_QUANT_OBSERVE_OBSERVER_STATE_H
#define SB_QUANT_OBSERVE_OBSERVER_STATE_H

#include "quant/observe/extremes.h"
#include "quant/observe/histogram.h"
#include "quant/observe/observer_def.h"

/* Least and greatest values of a view, as worker slots found them. */
typedef struct sb_slot_scan sb_slot_scan;
typedef struct sb_view_scan {
    const float *data; /* NULL: none */
    size_t samples, per_sample;
    char *slots; /* [n_slot] sb_slot_scan, `step` bytes apart */
    size_t n_slot, step, size;
} sb_view_scan;

/* What a worker slot counts on its own. */
typedef struct sb_slot_counts {
    uint32_t *table; /* of sb_histogram_table_size() */
    sb_extremes extremes;
} sb_slot_counts;

struct sb_observer {
    sb_ctx *ctx;
    const sb_observer_def *def;
    sb_quant_spec spec;
    unsigned needs; /* of SB_OBS_HISTOGRAM and SB_OBS_EXTREMES */
    int64_t channels;
    int64_t samples;
    int64_t elements;      /* of all channels */
    sb_minmax *minmax;     /* [channels] least and greatest so far */
    sb_histogram hist;     /* activations, if the row wants one */
    sb_extremes *extremes; /* [channels], the same; else NULL */
    double *state;         /* [channels, def->state_size], or NULL */
    /* Where ranks share the samples and the row has a state: the range of every
     * sample, [samples, channels], so that it can be merged to the last bit. */
    bool logs;
    sb_range *log;
    size_t n_log, cap_log;
    sb_range *done;    /* [channels] weights: the result; else NULL */
    sb_range answer;   /* of a single channel, as it was asked for last, */
    int64_t answered;  /* when there were so many elements; 0: never */
    sb_view_scan scan; /* of the view that is being produced */
    sb_observer_slots *slots; /* shared ones, or */
    sb_observer_slots own_slots;
};

static inline double *sb_observer_state(const sb_observer *obs, int64_t c)
{
    return obs->state ? obs->state + (size_t)c * obs->def->state_size : NULL;
}

/* Do the parameters show in what is kept?  Of an activation that the core
 * counts they do not: the same counts answer for any. */
static inline bool sb_observer_keeps_params(const sb_observer *obs)
{
    return obs->def->params && (obs->done || obs->state);
}

/* Takes in a weight, whose values are finite (observer_weight.c). */
SB_MUST_USE sb_status sb_observer_weight(sb_observer *obs,
                                         const sb_obs_view *view,
                                         const sb_minmax *found);

/* Activations with one range (collect.c): least and greatest value of each
 * sample, [samples]; then, if they are finite, what else is kept. */
SB_MUST_USE sb_status sb_observer_scan(sb_observer *obs,
                                       const sb_obs_view *view,
                                       sb_minmax *found);
SB_MUST_USE sb_status sb_observer_count(sb_observer *obs,
                                        const sb_obs_view *view,
                                        const sb_minmax *found);
/* The same for several channels, [samples, channels] (collect_channels.c). */
SB_MUST_USE sb_status sb_observer_count_channels(sb_observer *obs,
                                                 const sb_obs_view *view,
                                                 const sb_minmax *found);

/* The grain for sb_parallel_for() over `parts` that ask the row: all of them,
 * so that they stay on this thread, if it must not be asked on others. */
static inline size_t sb_observer_grain(const sb_observer *obs, size_t parts)
{
    return obs->def->flags & SB_OBS_SERIAL ? parts : 1;
}

#endif
