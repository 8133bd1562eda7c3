/* search.h - bit widths for each layer, within a budget.  Part of sparsebit.h,
 * whose rules hold. */
#ifndef SPARSEBIT_SEARCH_H
#define SPARSEBIT_SEARCH_H

#include <sparsebit/quantize.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_search sb_search; /* a search for bit widths */

/** What is limited. */
typedef enum sb_search_budget {
    SB_SEARCH_BUDGET_BITS,     /**< mean bits of an element of the weights */
    SB_SEARCH_BUDGET_SIZE,     /**< bytes of the exported file */
    SB_SEARCH_BUDGET_MAC_BITS, /**< sum over layers of multiply-accumulates of
                                    a sample, times bits of the weight */
    SB_SEARCH_BUDGET_ERROR     /**< of the outputs: noise to signal, squared;
                                    the smallest weights within it are found */
} sb_search_budget;

/** Options of sb_search_create().  Start from SB_SEARCH_OPTIONS_INIT. */
typedef struct sb_search_options {
    size_t struct_size;      /**< set by the INIT macro */
    const char *config;      /**< a qconfig.yaml; NULL for the defaults */
    const char *config_text; /**< the text of one, instead of a file; or NULL */
    const char *target; /**< a runtime to write for; NULL: as BACKEND says */
    /** Widths to choose from; NULL: those of 2, 4 and 8 that the target and
     *  the configuration take. */
    const int *bits;
    size_t n_bits;
    sb_search_budget budget;
    double limit;               /**< in the unit of the budget */
    const char *const *exclude; /**< as in sb_quant_options */
    size_t n_exclude;
} sb_search_options;

#define SB_SEARCH_OPTIONS_INIT                                \
    {                                                         \
        sizeof(sb_search_options), NULL, NULL, NULL, NULL, 0, \
            SB_SEARCH_BUDGET_BITS, 0, NULL, 0                 \
    }

/** A layer, and what each width would cost. */
typedef struct sb_search_layer {
    const char *name, *op;
    double elements; /**< of the weight */
    double macs;     /**< multiply-accumulates of one sample */
    int bits;        /**< that were chosen */
    /** By width: how much the error of the outputs grows if this layer alone
     *  has it and all others the largest. */
    const double *errors;
} sb_search_layer;

/** A mixture of widths. */
typedef struct sb_search_point {
    double bits, bytes, mac_bits; /**< as the budgets; `bytes` of weights */
    double error;                 /**< of the outputs */
    int measured; /**< by a run; else the sum of what was measured by layer */
    int uniform;  /**< the width that all layers have; 0: mixed */
} sb_search_point;

/** What was found.  Arrays hold pointers. */
typedef struct sb_search_result {
    size_t n_widths;
    const int *widths; /**< that were to choose from, descending */
    size_t n_layers;
    const sb_search_layer *const *layers;
    size_t n_points; /**< the best mixtures for all sizes, ascending */
    const sb_search_point *const *points;
    size_t n_uniform; /**< all layers alike, by width */
    const sb_search_point *const *uniform;
    const sb_search_point *found;
    /** What the mixture gives when the model is really quantized with the
     *  configuration that was written: error, and bytes of the file. */
    double error, file_bytes;
    size_t runs; /**< of all samples that it took */
} sb_search_result;

/** A search over the weights of a model, which must outlive it.
 *  @param opt needs a limit */
SB_API SB_MUST_USE sb_status sb_search_create(const sb_model *model,
                                              const sb_search_options *opt,
                                              sb_search **out);
/** Adds a batch, which calibrates activations and measures errors; it is
 *  copied.  Inputs as in sb_quant_model_forward(); `outputs` receives those of
 *  the float network. */
SB_API SB_MUST_USE sb_status sb_search_add(sb_search *search,
                                           const sb_tensor *const *inputs,
                                           size_t n_inputs,
                                           const sb_tensor **outputs,
                                           size_t n_outputs);
/** How many samples a run must have; 0: any. */
SB_API int64_t sb_search_fixed_batch(const sb_search *search);
/** Measures what each width of each layer costs at the outputs, finds the best
 *  mixture within the budget, measures again around it where it costs most, and
 *  quantizes with the result.
 *  @param out borrowed
 *  @return SB_BAD_ARG if no mixture fits; the message says the least limit */
SB_API SB_MUST_USE sb_status sb_search_run(sb_search *search,
                                           const sb_search_result **out);
/** The configuration with the widths that were found, as YAML; free it with
 *  sb_memory_free(). */
SB_API SB_MUST_USE sb_status sb_search_config(const sb_search *search,
                                              char **out);
/** The configuration of the options, or that of a search without one, with
 *  nodes that stay in float, by patterns of their names, as YAML; free it with
 *  sb_memory_free(). */
SB_API SB_MUST_USE sb_status
sb_search_float_config(sb_ctx *ctx, const sb_search_options *opt,
                       const char *const *floats, size_t n, char **out);
/** Frees it; NULL is allowed. */
SB_API void sb_search_free(sb_search *search);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_SEARCH_H */
