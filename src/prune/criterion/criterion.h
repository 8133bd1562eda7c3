/* criterion.h - criteria: what a channel, or a weight, is worth.
 *
 * To add one write criterion_<name>.c ending with its row, add a line to
 * criteria.def and a test.  Scores are compared with each other only: the
 * lowest go first.  Channels of one group are scored together. */
#ifndef SB_PRUNE_CRITERION_H
#define SB_PRUNE_CRITERION_H

#include "prune/channels/channels.h"

typedef struct sb_prune_seen sb_prune_seen; /* prune/seen.h */
typedef struct sb_criterion_def sb_criterion_def;

/* What a criterion is asked about. */
typedef struct sb_criterion_ask {
    sb_ctx *ctx;
    const sb_criterion_def *criterion; /* itself */
    const sb_channels *channels;
    const sb_channel_group *group; /* score() */
    sb_value_id weight;            /* weigh() */
    int made, summed;              /* its axes; -1: none */
    const sb_prune_seen *seen;     /* of data; NULL without */
    const sb_graph *origin;        /* before training; NULL: not known */
    uint64_t seed;
} sb_criterion_ask;

/* A matrix of a layer: each row makes one output of what it is multiplied
 * with. */
typedef struct sb_thin_matrix {
    sb_ctx *ctx;
    int64_t rows, cols;
    float *w;            /* [rows, cols]; out: with zeros, the others changed */
    const float *gram;   /* [cols, cols]: sums of x x^T over what was seen */
    int64_t taps;        /* columns of one input channel, next to each other */
    int64_t zeros;       /* how many elements go; or: */
    int n_of, m_of;      /* of m input channels in a row n stay; m_of 0: no */
    const char *why_not; /* out: NULL, or why nothing was done */
} sb_thin_matrix;

struct sb_criterion_def {
    const char *name;
    const char *summary;
    bool needs_data, needs_ranks;
    bool needs_slopes; /* gradients: prune/slopes.h */
    bool needs_origin; /* weights before training */
    /* Of weigh(): scores are compared within an output, not within a layer. */
    bool by_output;
    /* (optional) Of each channel of the group, in its order. */
    sb_status (*score)(const sb_criterion_ask *ask, double *out);
    /* (optional) Of each element of a weight. */
    sb_status (*weigh)(const sb_criterion_ask *ask, float *out);
    /* (optional) Chooses elements and lets the others make up for them; weigh()
     * serves layers that have no such matrix. */
    sb_status (*thin)(sb_thin_matrix *m);
};

const sb_criterion_def *sb_criterion_find(const sb_ctx *ctx, const char *name);
/* NULL past the last. */
const sb_criterion_def *sb_criterion_at(const sb_ctx *ctx, size_t i);

/* ---- what criteria share (scores.c) ---------------------------------------- */

/* Scores each index of an axis of a weight, `n` of them; `t` is the weight as
 * its layer reads it, in float also where the file has integers. */
typedef sb_status (*sb_axis_score_fn)(const sb_criterion_ask *ask,
                                      const sb_prune_axis *a,
                                      const sb_tensor *t, double *out);

typedef enum sb_axis_role {
    SB_AXIS_MADE, /* of the weights that make the channels */
    SB_AXIS_READ, /* of the weights that read them */
    SB_AXIS_SCALE /* of the scales of normalizations */
} sb_axis_role;

/* The channels' scores: the mean, over all axes of that role that a channel is
 * in, of what `fn` says of its indices there, divided by the mean of the axis.
 * So layers of any size compare.  False in *found if there is no such axis. */
SB_MUST_USE sb_status sb_score_by_axis(const sb_criterion_ask *ask,
                                       sb_axis_role role, sb_axis_score_fn fn,
                                       double *out, bool *found);
/* What the loss changes with each channel, or weight, to first order: summed up
 * over batches as it is, or squared. */
SB_MUST_USE sb_status sb_score_by_slope(const sb_criterion_ask *ask,
                                        bool square, double *out);
SB_MUST_USE sb_status sb_weigh_by_slope(const sb_criterion_ask *ask,
                                        bool square, float *out);
/* Element `at` of a float constant of any width. */
double sb_weight_at(const sb_tensor *t, int64_t at);

#endif
