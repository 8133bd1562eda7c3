/* pruner.h - a network being pruned: what is behind sb_prune. */
#ifndef SB_PRUNE_PRUNER_H
#define SB_PRUNE_PRUNER_H

#include "prune/mask.h"
#include "prune/seen.h"
#include "prune/select.h"
#include "prune/thin.h"

typedef struct sb_pruner {
    sb_ctx *ctx;
    sb_prune_config *cfg;
    sb_graph *graph; /* simplified, sorted */
    sb_channels ch;
    sb_selection chosen; /* structured */
    bool scored;
    sb_masked *masked; /* unstructured */
    size_t n_masked;
    struct sb_prune_seen *seen; /* or NULL */
    sb_thinner *thinner;        /* or NULL */
    bool thinning;              /* layers are left that want all data again */
    sb_graph *origin;           /* before training, or NULL */
    sb_prune_args args;
    bool masks_only;
    int64_t step;    /* of ITERATIONS */
    uint32_t *first; /* by group: channels before the first, or NULL */
    uint32_t n_first;
} sb_pruner;

/* Takes the configuration, also on failure; copies the graphs.  `origin`: the
 * network before training, or NULL.  SB_UNSUPPORTED if nothing can be
 * pruned. */
SB_MUST_USE sb_status sb_pruner_init(const sb_graph *graph,
                                     const sb_graph *origin,
                                     sb_prune_config *cfg, bool masks_only,
                                     uint64_t seed, sb_pruner *out);
void sb_pruner_free(sb_pruner *p);
/* One batch through the network, to be seen by criteria and re-fit.  `labels`:
 * the classes of its n samples, or NULL. */
SB_MUST_USE sb_status sb_pruner_forward(sb_pruner *p,
                                        const sb_tensor *const *inputs,
                                        const int64_t *labels, size_t n);
/* Scores of all channels, unless they are there already. */
SB_MUST_USE sb_status sb_pruner_score(sb_pruner *p);
/* Forgets scores and what data showed: weights have changed. */
void sb_pruner_renew(sb_pruner *p);
/* The network with this share removed; may be called again with another.
 * `refit`: and fitted to data, if there was any and it is wanted. */
SB_MUST_USE sb_status sb_pruner_cut(sb_pruner *p, double ratio, bool refit,
                                    sb_graph **out);
/* The same with a ratio for each group of channels. */
SB_MUST_USE sb_status sb_pruner_cut_ratios(sb_pruner *p, const double *ratios,
                                           bool refit, sb_graph **out);
/* The share of every ratio that is gone after the present step. */
double sb_pruner_step_share(const sb_pruner *p);
/* The result of a step becomes the network of the next one. */
SB_MUST_USE sb_status sb_pruner_advance(sb_pruner *p, const sb_graph *result);

#endif
