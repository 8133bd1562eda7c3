/* correct.h - what is done after scales are known, so that less accuracy is
 * lost. */
#ifndef SB_QUANT_CORRECT_CORRECT_H
#define SB_QUANT_CORRECT_CORRECT_H

#include "quant/correct/output_form.h"
#include "quant/model/quant_model.h"

/* ---- the list of methods (refine.c) ------------------------------------- */

/* Does the configuration ask for a method that needs the calibration batches
 * once more? */
bool sb_refine_wanted(const sb_quant_model *qm);
/* Are they judged by the outputs of the float network? */
bool sb_refine_measures(const sb_quant_model *qm);
/* Runs the methods that the configuration asks for, over the batches that were
 * kept, and notes what each gained. */
SB_MUST_USE sb_status sb_refine(sb_quant_model *qm);
/* What training starts from: weights rounded by what their layers see, if the
 * configuration asks for it. */
SB_MUST_USE sb_status sb_refine_start(sb_quant_model *qm);

/* ---- going back (snapshot.c) -------------------------------------------- */

/* Constants, what lies over them, scales, and what observers of activations
 * saw: a method that observes anew puts other observers in their place, and
 * frees none. */
typedef struct sb_snapshot {
    sb_tensor *constants, *overlay; /* by value */
    sb_qparams *qparams;            /* by quantizer */
    bool *left_out;                 /* by quantizer */
    sb_point_state *points;
    bool equalized;
    size_t n_nodes, n_values; /* of the network */
    bool whole;               /* it can be gone back to */
} sb_snapshot;

/* sb_snapshot_settle() in any case. */
SB_MUST_USE sb_status sb_snapshot_take(const sb_quant_model *qm,
                                       sb_snapshot *s);
/* Goes back to the snapshot unless `keep`, and frees it. */
void sb_snapshot_settle(sb_quant_model *qm, sb_snapshot *s, bool keep);

/* ---- what is measured (judged.c) ---------------------------------------- */

typedef struct sb_judged {
    sb_value_id *v; /* sb_free() it, even if finding them failed */
    size_t n, cap;
} sb_judged;

/* The values that are compared: outputs, or what they are computed from. */
SB_MUST_USE sb_status sb_judged_values(const sb_quant_model *qm,
                                       sb_judged *out);

/* ---- measuring (output_error.c) ----------------------------------------- */

/* What the float network makes of the batches that judge. */
typedef struct sb_reference {
    sb_quant_model *qm;
    sb_judged judged;
    sb_batch_store *outputs; /* own, or those that calibration kept */
    sb_output_form *forms;   /* of each judged value */
    size_t *batch;           /* which they are */
    size_t n_batches, n_samples;
} sb_reference;

/* sb_reference_close() in any case. */
SB_MUST_USE sb_status sb_reference_open(sb_quant_model *qm, sb_reference *r);
void sb_reference_close(sb_reference *r);
/* How far the outputs of the quantized network are from the reference, for each
 * of n_samples: the mean over outputs of noise / signal.  Fewer samples run
 * once it is clear that errors are more than `left` times `before` (NULL: not
 * known); *seen is how many. */
SB_MUST_USE sb_status sb_reference_errors(sb_reference *r, const double *before,
                                          double left, double *errors,
                                          size_t *seen);
/* Noise of a sample is relative to its own signal: a few samples with large
 * values must not decide for all others.  But of one with next to none, as a
 * page without text has, it is relative to this: a tenth of what the median
 * sample has.  Sorts the signals. */
double sb_least_signal(double *signals, size_t n);
double sb_errors_mean(const double *errors, size_t n);
/* Are they less: the mean, and sample by sample on average?  With `sure` above
 * 0 by more than so many times the uncertainty (standard error) of that
 * average, which three samples or more tell, so that others will gain, too.
 * What is not finite is more than what is. */
bool sb_errors_fell(const double *before, const double *after, size_t n,
                    double sure);
/* Are they more by so much that further samples will not turn it round? */
bool sb_errors_rose(const double *before, const double *after, size_t n);

/* ---- the first layers (float_start.c) ----------------------------------- */

/* Without a configuration of the user, where the target loses no time. */
bool sb_float_start_wanted(const sb_quant_model *qm);
/* Switches the quantizers of the first layers off; *layers is how many layers.
 */
SB_MUST_USE sb_status sb_float_start(sb_quant_model *qm, size_t *layers);

/* ---- ranges (ranges.c) -------------------------------------------------- */

/* Are ranges to be chosen: without a configuration of the user, where observers
 * clip? */
bool sb_ranges_wanted(const sb_quant_model *qm);
/* At first they hold all that was seen; then as much of it as is chosen
 * (state.h: clip); *layers is of how many values. */
SB_MUST_USE sb_status sb_clip_ranges(sb_quant_model *qm, size_t *layers);

typedef struct sb_range_choice {
    uint32_t point;
    float share; /* of the way from what the observer says to the whole range */
} sb_range_choice;

/* All ranges that would be narrower, in the order of points, for which `list`
 * has room. */
SB_MUST_USE sb_status sb_ranges_list(const sb_quant_model *qm,
                                     sb_range_choice *list, size_t *n);
/* The shares with which rounding loses least of the values. */
SB_MUST_USE sb_status sb_ranges_choose(sb_quant_model *qm,
                                       sb_range_choice *list, size_t n);

/* ---- channels (equalize.c) ---------------------------------------------- */

/* Exchanges constants of the float graph for such with which channels of values
 * that are quantized are of similar size, and puts products with factors in
 * front of layers; the network computes the same (with offsets, while channels
 * are not below them: equalize.h); *layers is for how many values. */
SB_MUST_USE sb_status sb_equalize(sb_quant_model *qm, size_t *layers);
/* Takes products with factors away that it has put into a network of so many
 * nodes. */
void sb_factors_take_back(sb_quant_model *qm, size_t n_nodes);
/* When that has helped: what it changed is observed on the batches that judged
 * it, too. */
SB_MUST_USE sb_status sb_equalize_settle(sb_quant_model *qm);

/* ---- biases (bias_layers.c, bias_correction.c) -------------------------- */

/* A layer whose bias can be corrected. */
typedef struct sb_bias_layer {
    sb_node_id node;
    sb_value_id bias;   /* a constant [channels] that no other node reads */
    sb_value_id result; /* of the layer with its bias */
    int axis;           /* of the channels in the result */
    int64_t channels;
} sb_bias_layer;

/* The layer of a node with a weight; false if it has no bias that can be
 * corrected. */
bool sb_bias_layer_find(const sb_graph *g, sb_node_id node, sb_bias_layer *out);
/* Gives every layer with a constant weight that can have a bias one that is its
 * own, zero if it had none.  Before quantizers are placed. */
SB_MUST_USE sb_status sb_bias_layers_complete(sb_graph *g);

/* Lays biases over those of the network with which the means of each layer's
 * results are those of the float network; *layers is how many. */
SB_MUST_USE sb_status sb_correct_biases(sb_quant_model *qm, size_t *layers);

/* ---- biases without samples (bias_from_norms.c) ------------------------- */

/* Before the model's file is gone: keeps what its batch norms say of values, if
 * biases may have to be corrected without samples. */
SB_MUST_USE sb_status sb_norms_keep(sb_quant_model *qm);
void sb_norms_free(sb_quant_model *qm);
/* As sb_correct_biases(), by the means behind batch norms. */
SB_MUST_USE sb_status sb_correct_biases_by_norms(sb_quant_model *qm,
                                                 size_t *layers);

#endif
