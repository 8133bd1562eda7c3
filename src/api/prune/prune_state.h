/* prune_state.h - what is behind the public sb_prune. */
#ifndef SB_API_PRUNE_PRUNE_STATE_H
#define SB_API_PRUNE_PRUNE_STATE_H

#include "api/model.h"
#include "prune/pruner.h"
#include "quant/calibrate/batch_store.h"

/* A layer as it was before the first step. */
typedef struct sb_prune_row {
    const char *weight; /* in the arena of the first graph, which is kept */
    int axis;
    int64_t size;
} sb_prune_row;

typedef struct sb_prune_norms sb_prune_norms;

struct sb_prune {
    sb_ctx *ctx;
    sb_pruner pruner;
    bool fed;              /* samples came since the last step */
    sb_prune_norms *norms; /* they are for these now, or NULL */
    sb_graph *result;      /* NULL before apply() */
    bool advanced;         /* the pruner has gone on to it */
    double target_macs, target_params, target_latency, ratio;
    sb_arena answer;
    sb_arena kept; /* first sizes */
    sb_prune_row *rows;
    size_t n_rows;
    sb_prune_report report;
    /* Of a scan, or a latency: the batches, and the labels of all of them. */
    bool keep;
    sb_batch_store *batches;
    int64_t *labels;
    size_t n_labels, cap_labels;
    sb_arena scanned;
    sb_prune_scan scan; /* no groups: there was none */
    double *by_group;   /* ratios that were chosen from it, or NULL */
};

/* MACs and parameters of a graph, as `sparsebit info` counts them. */
SB_MUST_USE sb_status sb_prune_measure(const sb_graph *g, double *macs,
                                       double *params);
/* A session of a copy of the graph. */
SB_MUST_USE sb_status sb_prune_session(const sb_graph *g, sb_session **out);
/* prune_norms.c: has the network batch norms whose statistics can be measured
 * anew? */
bool sb_prune_has_norms(const sb_graph *g);
/* Measures those of a network; the graph is not kept. */
SB_MUST_USE sb_status sb_prune_norms_open(const sb_graph *g,
                                          sb_prune_norms **out);
SB_MUST_USE sb_status sb_prune_norms_take(sb_prune_norms *s,
                                          const sb_tensor *const *inputs);
/* Puts the means of all batches into that network. */
SB_MUST_USE sb_status sb_prune_norms_set(sb_prune_norms *s, sb_graph *g);
void sb_prune_norms_free(sb_prune_norms *s); /* NULL is allowed */
/* target.c: the ratio, or the ratios of groups, that meet the targets. */
SB_MUST_USE sb_status sb_prune_meet(sb_prune *p);

#endif
