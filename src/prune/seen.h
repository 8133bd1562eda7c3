/* seen.h - what data shows of the values that layers read and make. */
#ifndef SB_PRUNE_SEEN_H
#define SB_PRUNE_SEEN_H

#include "exec/exec.h"
#include "prune/prune_config.h"
#include "prune/slopes.h"

/* What is collected of one value, along one axis of n indices. */
typedef struct sb_seen_value {
    sb_value_id value;
    int axis;
    int64_t n;
    /* Sums over positions of x[i] x[j], [n + 1, n + 1]: the last index is a
     * constant 1, so that its row holds the sums of x, and the last element the
     * number of positions. */
    double *gram;
    /* (optional) Sums over samples of the rank of each channel's image. */
    double *rank;
    int64_t samples;
} sb_seen_value;

struct sb_prune_seen {
    sb_ctx *ctx;
    const sb_graph *graph; /* borrowed */
    sb_graph *beside;      /* what runs: fused, with nodes that look */
    sb_exec *exec;
    sb_seen_value *values;
    size_t n, cap;
    uint32_t *at; /* by value of the graph: place in `values`, SB_NONE */
    bool ranks;
    sb_slopes *slopes; /* or NULL */
};

/* What the criterion of the configuration, and the re-fit, want to know. */
SB_MUST_USE sb_status sb_seen_create(const sb_channels *ch,
                                     const sb_prune_config *cfg, uint64_t seed,
                                     struct sb_prune_seen **out);
void sb_seen_free(struct sb_prune_seen *seen); /* NULL is allowed */
/* Runs the network once and collects; `labels` as sb_slopes_run() has them. */
SB_MUST_USE sb_status sb_seen_run(struct sb_prune_seen *seen,
                                  const sb_tensor *const *inputs,
                                  const int64_t *labels, size_t n);
/* What was collected of a value along an axis, or NULL. */
const sb_seen_value *sb_seen_of(const struct sb_prune_seen *seen,
                                sb_value_id value, int axis);

#endif
