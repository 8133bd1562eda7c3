/* observer_def.h - the row of an observer, and what the core gives it.
 *
 * The core (observer.c) looks at all data once: it finds the least and the
 * greatest value of every sample and channel, refuses what is not finite, and
 * keeps what the row asks for: a histogram (obs_hist.h), the largest values of
 * either side (obs_tails.h).  At the end it hands each channel to the row as
 * sb_obs_values, and the row says the range.
 *
 * To add an observer: write src/quant/observer_<name>.c (observer_minmax.c is
 * the shortest), add a line to observers.def, add
 * tests/unit/test_observer_<name>.c. */
#ifndef SB_QUANT_OBSERVER_DEF_H
#define SB_QUANT_OBSERVER_DEF_H

#include "quant/observer.h"

typedef struct sb_obs_tails sb_obs_tails; /* obs_tails.h */

/* One channel, as a row sees it in the end.
 *
 * Of a weight `x` are its values.  Of a feature `x` are the centres of the
 * histogram's bins that are not empty, ascending (zero itself is a bin of its
 * own), and `count` says how many values each stands for, of large tensors by
 * a sample; no value is farther
 * than half of `width` from its centre.  Without a histogram n is 0. */
typedef struct sb_obs_values {
    sb_ctx *ctx; /* for loops on threads; only if `alone` */
    const sb_quant_spec *spec;
    int64_t channel;
    bool alone;          /* the only channel: no other is computed meanwhile */
    sb_range range;      /* exact least and greatest value */
    bool non_negative;   /* no value of any channel is below 0 */
    double per_sample;   /* elements of a sample, all channels */
    double elements;     /* of this channel */
    double below;        /* of them below zero; negative: not known */
    const float *x;      /* [n] */
    const double *count; /* [n]; NULL: 1 each */
    int64_t n;
    double width;              /* of a bin; 0 for a weight */
    const sb_obs_tails *tails; /* NULL if not asked for, or a weight */
    const void *own;           /* the row's own state */
} sb_obs_values;

enum {
    SB_OBS_WEIGHT = 1 << 0,    /* may watch weights */
    SB_OBS_FEATURE = 1 << 1,   /* may watch activations */
    SB_OBS_HISTOGRAM = 1 << 2, /* keep a histogram of features */
    SB_OBS_TAILS = 1 << 3,     /* and their outermost values */
    SB_OBS_FINE = 1 << 4,      /* of a part of the values, a larger part */
};

enum { SB_OBS_OWN_MOST = 16 }; /* numbers of a row's own state, saved */

struct sb_observer_def {
    const char *name;    /* as in OBSERVER.TYPE, lower case */
    const char *summary; /* one line */
    const char *params;  /* keys of OBSERVER that it reads; "" if none */
    const char *bound;   /* how far from the exact answer; "exact" */
    unsigned flags;
    /* (optional) What this spec needs of `flags`; default: all of it. */
    unsigned (*needs)(const sb_quant_spec *spec);
    /* (optional) Bytes of the row's own state for one channel of a feature;
     * zeroed at first.  If it is not 0, all of the next five must be there. */
    size_t own_size;
    /* The next sample had this range in this channel. */
    void (*own_update)(const sb_quant_spec *spec, void *own, sb_range sample);
    /* As if what `from` saw came after what `into` saw. */
    void (*own_merge)(const sb_quant_spec *spec, void *into, const void *from);
    /* The state as numbers, own_numbers of them, and back (false: not
     * possible numbers). */
    int own_numbers;
    void (*own_save)(const void *own, double *out);
    bool (*own_load)(void *own, const double *in);
    /* (optional) The range, if it follows from the outermost values alone:
     * asked before the histogram is made values of. */
    bool (*range_of_tails)(const sb_obs_values *v, sb_range *out);
    /* The range of a channel that has values. */
    sb_range (*range)(const sb_obs_values *v);
};

#endif
