/* loss.h - putting a loss behind a network. */
#ifndef SB_OPS_LEARN_LOSS_H
#define SB_OPS_LEARN_LOSS_H

#include "ops/op_registry.h"

typedef enum sb_loss_kind {
    SB_LOSS_CROSS_ENTROPY, /* target: labels */
    SB_LOSS_KL,            /* target: logits of a teacher */
    /* Of every element, target of the same shape: */
    SB_LOSS_MSE,
    SB_LOSS_L1,
    SB_LOSS_SMOOTH_L1, /* squares up to a difference of `beta` */
    SB_LOSS_BCE,       /* of logits, with targets 0 to 1 */
} sb_loss_kind;

typedef struct sb_loss_options {
    sb_loss_kind kind;
    int axis;             /* of the classes; negative: from the end */
    float smoothing;      /* of labels, 0 to 1 */
    float temperature;    /* of KL; 0: 1 */
    int64_t ignore_index; /* labels that do not count */
    float beta;           /* of SMOOTH_L1, more than 0 */
} sb_loss_options;

/* Adds the mean loss of `x`, a result of the graph, as a value named `loss`.
 * Labels have all dimensions of x but that of the classes.  On failure the
 * graph may have nodes that nothing reads. */
SB_MUST_USE sb_status sb_graph_add_loss(sb_graph *graph,
                                        const sb_loss_options *opt,
                                        sb_value_id x, sb_value_id target,
                                        sb_value_id *out);

#endif
