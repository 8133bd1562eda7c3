/* training.h - how a quantizer is trained: what it learns, from which values
 * on, and the nodes that it is in a graph with gradients.
 *
 * What is not learned (scales of "uniform") stays as calibrated; gradients of
 * x pass rounding as if it were not there. */
#ifndef SB_QUANT_QUANTIZE_TRAINING_H
#define SB_QUANT_QUANTIZE_TRAINING_H

#include "ops/grad/grad.h"
#include "quant/config/quant_config.h"

enum { SB_LEARNED_MOST = 2 }; /* tensors that a quantizer learns */

/* What is known of the values that share a scale, before training. */
typedef struct sb_quant_seen {
    const sb_quant_spec *spec;
    int32_t qmin, qmax;
    double mean, mean_abs, deviation;
    float scale, zero_point; /* as calibrated */
    float most;              /* that the scale may be; 0: anything */
} sb_quant_seen;

/* For adding the nodes of a quantizer. */
typedef struct sb_quant_nodes {
    sb_grad *to;     /* what sb_emit() takes */
    sb_node_id like; /* a node that reads the result */
    const sb_quant_spec *spec;
    sb_value_id x;
    sb_value_id learned[SB_LEARNED_MOST];
    sb_value_id scale, zero_point; /* as calibrated, constants */
    int32_t qmin, qmax;
    float most;    /* as in sb_quant_seen */
    int axis;      /* of the scales; 0 if there is one */
    int64_t block; /* as in sb_quantizer */
} sb_quant_nodes;

typedef struct sb_quant_training {
    /* What is learned, each with as many elements as there are scales; NULL
     * behind the last.  Parameters are called QUANTIZER.NAME. */
    const char *learned[SB_LEARNED_MOST];
    /* Has no zero point: where values below zero were seen, an affine scheme
     * gives way to a symmetric one. */
    bool no_zero_point;
    /* (optional) Instead of this, for results of a Relu or Clip that the
     * runtime leaves to the rounding: its zero point is given. */
    const struct sb_quant_training *folded;
    /* (optional, with `learned`) First values of one scale. */
    void (*start)(const sb_quant_seen *seen, float *out);
    /* Adds nodes that turn n->x into what the network goes on with; SB_NONE
     * after a failure, which is in n->to->status. */
    sb_value_id (*add)(const sb_quant_nodes *n);
    /* (optional, with `learned`) Scale and zero point from learned values. */
    void (*settle)(const sb_quant_seen *seen, const float *learned,
                   float *scale, float *zero_point);
} sb_quant_training;

/* ---- for rows ----------------------------------------------------------- */

/* How a FakeQuant node is differentiated. */
typedef enum sb_fake_gradient {
    SB_FAKE_PLAIN,   /* of x where it is not clipped, and of scales */
    SB_FAKE_LEARNED, /* the same, those of scales times 1 / sqrt(n qmax) */
    SB_FAKE_THROUGH  /* of x everywhere */
} sb_fake_gradient;

sb_value_id sb_quant_add_fake(const sb_quant_nodes *n, sb_value_id x,
                              sb_value_id scale, sb_value_id zero_point,
                              sb_fake_gradient gradient);
/* The magnitude of what is learned, which is no more than `per_scale` times
 * what a scale may be: as a node, at the start, and at the end. */
sb_value_id sb_quant_add_magnitude(const sb_quant_nodes *n, sb_value_id learned,
                                   double per_scale);
float sb_quant_start_magnitude(const sb_quant_seen *seen, double v,
                               double per_scale);
float sb_quant_magnitude(const sb_quant_seen *seen, float learned,
                         double per_scale);
/* x rounded to the integers, as a zero point is; its gradient passes, beyond
 * them as well. */
sb_value_id sb_quant_add_round(const sb_quant_nodes *n, sb_value_id x);

/* Rounding with scales that are not learned. */
extern const sb_quant_training sb_quant_training_fixed;

#endif
