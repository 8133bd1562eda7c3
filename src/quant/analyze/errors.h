/* errors.h - what is behind the public sb_quant_errors. */
#ifndef SB_QUANT_ANALYZE_ERRORS_H
#define SB_QUANT_ANALYZE_ERRORS_H

#include <sparsebit/analyze.h>

#include "ops/reduce/compare_sums.h"
#include "quant/model/quant_model.h"
#include "quant/observe/histogram.h"

/* Which quantizers are on. */
typedef enum sb_error_kind {
    SB_ERROR_ASYNC,
    SB_ERROR_WEIGHTS,
    SB_ERROR_ACTIVATIONS,
    SB_ERROR_SYNC,
    SB_ERROR_KINDS,
} sb_error_kind;

/* A comparison: an output of the graph, and what it has added up to. */
typedef struct sb_error_sum {
    size_t output; /* SB_NO_INDEX: none */
    double sum[SB_COMPARE_SUMS];
    sb_difference result;
} sb_error_sum;

typedef struct sb_error_row {
    sb_node_id node;   /* of the quantized model's graph; SB_NONE: an output */
    sb_value_id value; /* what is compared */
    /* Weights and activations have none of their own where the layer has only
     * one of them. */
    sb_error_sum sums[SB_ERROR_KINDS];
    sb_layer_error info;
} sb_error_row;

typedef struct sb_error_output {
    size_t quantized; /* output of the graph; SB_NO_INDEX: not known */
    double sum[SB_COMPARE_SUMS];
    double kl;
    size_t places, equal;
    sb_difference result;
    sb_output_error info;
} sb_error_output;

struct sb_quant_errors {
    sb_ctx *ctx;
    const sb_quant_model *qm;
    sb_graph *simulated[SB_ERROR_SYNC]; /* own what the nodes of `graph` hold */
    sb_graph *graph;
    sb_exec *exec;
    sb_node_id *order; /* of the network */
    size_t n_order;
    const sb_tensor **outputs; /* of the graph */
    sb_error_row *rows;
    size_t n_rows, cap_rows;
    sb_error_output *results; /* by output of the network */
    bool counts;              /* histograms are wanted */
    struct sb_error_values {
        sb_histogram hist;
        sb_minmax range;
        int axis;     /* of the channels that a layer reads; -1: none */
        float *reach; /* greatest magnitude of each; NULL: none seen */
        int64_t channels;
    } * values; /* by point */
};

/* errors_graph.c: the graph that compares, and where its results are. */
SB_MUST_USE sb_status sb_errors_graph(sb_quant_errors *e);
/* errors_added.c: sets what each layer adds to the noise of the network. */
SB_MUST_USE sb_status sb_errors_added(sb_quant_errors *e);
/* errors_channels.c: which points have channels that are looked at. */
void sb_errors_channels(sb_quant_errors *e);
/* What a run has at such a point. */
SB_MUST_USE sb_status sb_errors_see_channels(sb_ctx *ctx,
                                             struct sb_error_values *v,
                                             const sb_tensor *x);
/* sb_layer_error.channel_spread of a node; SB_NONE: an output. */
SB_MUST_USE sb_status sb_errors_spread(const sb_quant_errors *e,
                                       sb_node_id node, double *out);

/* Values of a point, whether weight or activation, in `n` bins of one width
 * from *lo to *hi; false if none were counted. */
SB_MUST_USE sb_status sb_errors_histogram(const sb_quant_errors *e,
                                          uint32_t point, size_t n,
                                          double *counts, double *lo,
                                          double *hi, bool *there);

#endif
