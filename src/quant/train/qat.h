/* qat.h - quantization-aware training: the network with quantizers as nodes
 * that have gradients, and the way back.
 *
 *     calibrated model -> sb_qat_create -> learner over qat->graph
 *                      -> sb_qat_settle -> model with learned weights, scales
 *
 * The graph is the folded float graph, before rewrites for a runtime, with the
 * nodes of quantizers where they are placed.  Batch norms, which were folded,
 * come back as identities behind convolutions, if asked for: weights are
 * quantized before them, channel by channel, so that folding them again is
 * exact. */
#ifndef SB_QUANT_TRAIN_QAT_H
#define SB_QUANT_TRAIN_QAT_H

#include "learn/store.h"
#include "quant/correct/correct.h"
#include "quant/model/quant_model.h"

typedef enum sb_qat_bn {
    SB_QAT_BN_AUTO,    /* restored, if all weights of convolutions let it */
    SB_QAT_BN_RESTORE, /* SB_BAD_CONFIG if one does not */
    SB_QAT_BN_FOLDED
} sb_qat_bn;

/* What was measured on calibration samples for one scale, or one channel. */
typedef struct sb_qat_moments {
    double mean, mean_abs, mean_square, lowest;
} sb_qat_moments;

enum { SB_QAT_GAMMA, SB_QAT_BETA, SB_QAT_MEAN, SB_QAT_VAR, SB_QAT_NORM };

/* A batch norm behind a layer. */
typedef struct sb_qat_norm {
    sb_bias_layer layer;
    const sb_quantizer *weight; /* NULL: in float */
    double *mean, *var;         /* of the layer's results, [channels] */
    float *factor;              /* of its weights in training, [channels] */
    float *scales;              /* of their scales */
    sb_value_id params[SB_QAT_NORM]; /* constants of sb_qat.graph */
    float epsilon;
} sb_qat_norm;

typedef struct sb_qat_point {
    sb_qat_moments *seen; /* one for each scale; NULL: none are needed */
    int64_t n_seen;
    /* Constants of sb_qat.graph; those as calibrated are of each point. */
    sb_value_id learned[SB_LEARNED_MOST];
    sb_value_id scale, zero_point;
} sb_qat_point;

typedef struct sb_qat {
    sb_quant_model *qm;
    sb_graph *graph; /* what is trained; values of qm->graph have their IDs */
    sb_arena arena;
    sb_map
        roles; /* of its constants, as sb_learner_create_graph() takes them */
    sb_qat_point *points; /* as in the placement */
    sb_qat_norm *norms;
    size_t n_norms;
} sb_qat;

/* For a model built to be trained, or tuned, whose calibration is complete. */
SB_MUST_USE sb_status sb_qat_create(sb_quant_model *qm, sb_qat_bn bn,
                                    sb_qat **out);
void sb_qat_free(sb_qat *qat); /* NULL is allowed */
/* Weights, biases and scales of `learned`, the graph with other constants,
 * become those of the quantized model; norms are folded. */
SB_MUST_USE sb_status sb_qat_settle(const sb_qat *qat, const sb_graph *learned);

/* SCHEDULE.BN_TUNING, over the batches that calibration kept; *layers is of how
 * many. */
SB_MUST_USE sb_status sb_tune_norms(sb_quant_model *qm, size_t *layers);

/* ---- parts -------------------------------------------------------------- */

/* qat_norms.c: the layers behind which norms are restored. */
SB_MUST_USE sb_status sb_qat_find_norms(sb_qat *qat, sb_qat_bn bn);
/* Puts them into the graph. */
SB_MUST_USE sb_status sb_qat_add_norms(sb_qat *qat);
/* What training multiplies scale `i` of a quantizer by. */
float sb_qat_factor(const sb_qat *qat, const sb_quantizer *q, int64_t i);
/* qat_bias.c: biases are rounded as the file will have them. */
SB_MUST_USE sb_status sb_qat_add_biases(sb_qat *qat);
/* The norm that has the running mean; SB_NONE if none has. */
sb_node_id sb_qat_norm_node(const sb_graph *g, sb_value_id mean);
/* qat.c: nodes made from `first` on belong to the module of `beside`. */
void sb_qat_claim_nodes(sb_graph *g, size_t first, sb_node_id beside);
/* qat_measure.c: runs the float network over the kept batches. */
SB_MUST_USE sb_status sb_qat_measure(sb_qat *qat);
/* Statistics of norms in a learned graph from batches, one after another. */
typedef struct sb_qat_statistics sb_qat_statistics;
SB_MUST_USE sb_status sb_qat_statistics_open(const sb_qat *qat,
                                             sb_graph *learned,
                                             sb_qat_statistics **out);
/* A batch, which counts `weight` times. */
SB_MUST_USE sb_status sb_qat_statistics_take(sb_qat_statistics *s,
                                             const sb_tensor *const *inputs,
                                             double weight);
/* Puts their means into the graph. */
SB_MUST_USE sb_status sb_qat_statistics_set(sb_qat_statistics *s);
void sb_qat_statistics_free(sb_qat_statistics *s); /* NULL is allowed */
/* Makes a constant the means of `sums`, [channels, 2] of numbers and their
 * squares, each counted `weight` times, or the variances around them. */
SB_MUST_USE sb_status sb_statistics_put(sb_graph *g, sb_value_id value,
                                        bool variance, const double *sums,
                                        double weight);

/* The largest scale with which rounding does the work of the Relu or Clip that
 * makes the values, if the runtime wants that; 0: there is none. */
float sb_qat_most(const sb_quant_model *qm, uint32_t point);
/* What training a point goes by: the settings of the point whose scales it
 * has.  NULL: it is off. */
const sb_quant_training *sb_qat_training(const sb_quant_model *qm,
                                         uint32_t point);

#endif
