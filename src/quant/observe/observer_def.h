/* observer_def.h - the row of an observer, and what the core gives it.
 *
 * The core (observer.c) sees all values: it finds the least and the greatest
 * of every sample and channel, refuses what is not finite, and keeps what the
 * row asks for: a histogram (histogram.h), the largest values of either sign
 * (extremes.h).  At the end it hands each channel to the row as
 * sb_obs_values, and the row says the range.
 *
 * To add an observer: write src/quant/observe/observer_<name>.c
 * (observer_minmax.c is the shortest, observer_percentile.c has a parameter),
 * add a line to observers.def, add tests/unit/test_observer_<name>.c. */
#ifndef SB_QUANT_OBSERVE_OBSERVER_DEF_H
#define SB_QUANT_OBSERVE_OBSERVER_DEF_H

#include "quant/observe/observer.h"

typedef struct sb_extremes sb_extremes; /* extremes.h */

/* One channel, as a row sees it in the end.
 *
 * Of a weight `x` are its values.  Of an activation `x` are the centers of the
 * histogram's bins that are not empty, ascending (zero itself is a bin of its
 * own), and `count` says how many values each stands for; no value is farther
 * than half of `width` from its center.  Without a histogram n is 0. */
typedef struct sb_obs_values {
    sb_ctx *ctx; /* for loops on threads; only if `alone` */
    const sb_quant_spec *spec;
    int64_t channel;
    bool alone;          /* the only channel: no other is computed meanwhile */
    sb_range range;      /* exact least and greatest value */
    bool non_negative;   /* no value of any channel is below 0 */
    double per_sample;   /* elements of a sample, all channels */
    const float *x;      /* [n] */
    const double *count; /* [n]; NULL: 1 each */
    int64_t n;
    double width;                /* of a bin; 0 for a weight */
    const sb_extremes *extremes; /* NULL if not asked for, or a weight */
    const double *state;         /* the row's own */
} sb_obs_values;

enum {
    SB_OBS_WEIGHT = 1 << 0,     /* may watch weights */
    SB_OBS_ACTIVATION = 1 << 1, /* may watch activations */
    SB_OBS_HISTOGRAM = 1 << 2,  /* keep a histogram of activations */
    SB_OBS_EXTREMES = 1 << 3,   /* and their largest values of either sign */
    SB_OBS_SERIAL = 1 << 4,     /* range() only on the thread of the caller */
};

struct sb_observer_def {
    const char *name;    /* as in OBSERVER.TYPE, lower case */
    const char *summary; /* one line */
    const char *bound;   /* how far from the exact answer; "exact" */
    unsigned flags;
    const char *why_one; /* it is for weights, or activations, alone; or NULL */
    /* (optional) Keys of OBSERVER.<NAME>, and the size of the struct that they
     * fill: what the callbacks get as spec->observer_params. */
    const sb_param_def *params;
    size_t params_size;
    /* (optional) What this spec needs of `flags`; default: all of it. */
    unsigned (*needs)(const sb_quant_spec *spec);
    /* (optional) Numbers of the row's own state for one channel of an
     * activation, finite and within the range of a float; zero at first.  If
     * there are some, the next two must be there. */
    size_t state_size;
    /* The next sample, of which `seen` came before, had this range. */
    void (*state_update)(const sb_quant_spec *spec, double *state, int64_t seen,
                         sb_range sample);
    /* As if the samples that `from` saw came after those of `into`; both saw
     * some. */
    void (*state_merge)(const sb_quant_spec *spec, double *into,
                        const double *from, int64_t from_seen);
    /* With SB_OBS_EXTREMES: the fraction of the values of either sign that is
     * beyond the range.  Lists that are too short for that are dropped. */
    double (*extremes_fraction)(const sb_quant_spec *spec);
    /* The range of a channel that has values. */
    sb_range (*range)(const sb_obs_values *v);
};

#endif
