/* measure.h - the error of a network's outputs for any mixture of weights.
 *
 * Activations are quantized as one model says; the weight of each layer is
 * taken from one of several models of the same network.  Weights are states of
 * one executor, so that another mixture costs no more than a run. */
#ifndef SB_QUANT_SEARCH_MEASURE_H
#define SB_QUANT_SEARCH_MEASURE_H

#include "exec/exec.h"
#include "quant/model/quant_model.h"

/* A weight that can be one of several. */
typedef struct sb_mixed_layer {
    uint32_t point; /* of the models' placement */
    sb_node_id node;
    double elements, macs; /* macs: of one sample */
    sb_tensor *weights;    /* [n_models] as the integers hold it */
    double *bits;          /* [n_models] that an element takes in the file */
} sb_mixed_layer;

typedef struct sb_measure {
    sb_ctx *ctx;
    sb_quant_model *const *models; /* borrowed; the first has all scales */
    size_t n_models;
    sb_mixed_layer *layers;
    size_t n_layers;
    sb_graph *graph;
    sb_exec *exec;
    sb_state *states;          /* of the layers */
    const sb_tensor **in;      /* of the graph */
    const sb_tensor **outputs; /* the same */
    /* Inputs and float outputs of the samples. */
    struct sb_measure_batch {
        sb_tensor *tensors; /* [n_inputs + n_outputs]; data NULL: none */
    } * batches;
    size_t n_batches, cap_batches;
    size_t runs; /* of all samples, so far */
} sb_measure;

/* Keeps a copy of a batch and of the float network's outputs for it. */
SB_MUST_USE sb_status sb_measure_keep(sb_measure *m,
                                      const sb_tensor *const *inputs,
                                      const sb_tensor *const *outputs);
/* Ready to run, once all models have their scales (those of activations, only
 * the first). */
SB_MUST_USE sb_status sb_measure_make(sb_measure *m);
void sb_measure_free(sb_measure *m);
/* Noise to signal (squared) of the outputs, mean over outputs, with layer l's
 * weight from model choices[l]. */
SB_MUST_USE sb_status sb_measure_run(sb_measure *m, const uint32_t *choices,
                                     double *error);
/* The same sum for outputs of a batch that were computed elsewhere; `sums` is
 * [2 * outputs], zero at first. */
void sb_measure_add(const sb_measure *m, size_t batch,
                    const sb_tensor *const *outputs, double *sums);
SB_MUST_USE sb_status sb_measure_error(const sb_measure *m, const double *sums,
                                       double *error);

#endif
