/* analyze.h - what quantization costs, layer by layer.  Part of sparsebit.h,
 * whose rules hold. */
#ifndef SPARSEBIT_ANALYZE_H
#define SPARSEBIT_ANALYZE_H

#include <sparsebit/quantize.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors of layers ---------------------------------------------------- */

typedef struct sb_quant_errors sb_quant_errors; /* errors being measured */

/** Options of sb_quant_errors_create().  Start from
 *  SB_QUANT_ERRORS_OPTIONS_INIT. */
typedef struct sb_quant_errors_options {
    size_t struct_size; /**< set by the INIT macro */
    /** Also counts the values of every activation that is quantized, for the
     *  histograms of a report. */
    int histograms;
} sb_quant_errors_options;

#define SB_QUANT_ERRORS_OPTIONS_INIT       \
    {                                      \
        sizeof(sb_quant_errors_options), 0 \
    }

/** How far a tensor is from the same in float, over all samples. */
typedef struct sb_difference {
    double mse;     /**< mean of squared differences */
    double sqnr_db; /**< 10 log10(sum of squares / sum of squared differences);
                         infinite if there is no difference */
    double cosine;  /**< of the angle between both */
    double largest; /**< absolute difference */
} sb_difference;

/** What quantization does to the result of one node. */
typedef struct sb_layer_error {
    const char *name;   /**< of the node, or its result if it has none */
    const char *op;     /**< "Conv"; "Output": rounding of a network's output */
    const char *module; /**< dotted path; "" if unknown */
    const char *output; /**< name of the result that was compared */
    int has_weights, has_activations; /**< quantizers on the node's inputs */
    /** Only this layer is quantized, all before it is float. */
    const sb_difference *async;
    /** The same with only its weights, or only its activations quantized; NULL
     *  unless it has such quantizers. */
    const sb_difference *weights, *activations;
    /** The whole network is quantized: what has added up so far.  NULL if it
     *  is not known: behind control flow. */
    const sb_difference *sync;
    /** Noise to signal (squared) of `sync` less that of what the layer reads:
     *  large where the noise of the network arises, negative where it is
     *  averaged away. */
    double sync_added;
    /** How many times as far from zero as the median one the farthest channel
     *  of what the layer reads reaches: if it is large, one scale is too coarse
     *  for most of them.  0 if the layer sums over no channels, or
     *  these have scales of their own. */
    double channel_spread;
} sb_layer_error;

/** What quantization does to one output of the network. */
typedef struct sb_output_error {
    const char *name;
    const sb_difference *difference; /**< NULL if it is not known */
    /** Mean over samples (and places) of the Kullback-Leibler divergence of
     *  classes, float from quantized, in nats: of the output itself where it
     *  is a distribution, else of its softmax.  NaN without classes. */
    double kl;
    /** Share of samples (and places) with the same class, in [0, 1]; NaN
     *  without classes. */
    double agreement;
} sb_output_error;

/** Prepares to measure the errors of all quantizers of a model that has its
 *  scales (sb_quant_model_calc_qparams()).  The model must not change, and must
 *  outlive the result.  Float and quantized network run side by side, and next
 *  to each layer a copy of it that alone is quantized: nothing is kept but
 *  sums, and memory does not depend on the number of samples.
 *  @param opt NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_quant_errors_create(
    const sb_quant_model *qm, const sb_quant_errors_options *opt,
    sb_quant_errors **out);
/** Adds the samples of one run.  Inputs as in sb_quant_model_forward();
 *  `outputs` receives those of the float network, borrowed until the next
 *  run. */
SB_API SB_MUST_USE sb_status sb_quant_errors_run(sb_quant_errors *errors,
                                                 const sb_tensor *const *inputs,
                                                 size_t n_inputs,
                                                 const sb_tensor **outputs,
                                                 size_t n_outputs);
/** How many layers there are. */
SB_API size_t sb_quant_errors_count(const sb_quant_errors *errors);
/** The i-th in order of execution; NULL out of range.  Valid until the next
 *  run. */
SB_API const sb_layer_error *
sb_quant_errors_layer(const sb_quant_errors *errors, size_t i);
/** The i-th output of the network; NULL out of range.  Valid until the next
 *  run. */
SB_API const sb_output_error *
sb_quant_errors_output(const sb_quant_errors *errors, size_t i);
/** Frees it; NULL is allowed. */
SB_API void sb_quant_errors_free(sb_quant_errors *errors);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_ANALYZE_H */
