/* run.h - running networks: sessions, data sets, evaluation.  Part of
 * sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_RUN_H
#define SPARSEBIT_RUN_H

#include <sparsebit/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- running ------------------------------------------------------------ */

/** Called for every tensor that a node made, in order of execution. */
typedef sb_status (*sb_dump_fn)(void *user, const char *value_name,
                                const sb_tensor *tensor);

typedef struct sb_session_options {
    size_t struct_size; /**< set by the INIT macro */
    sb_dump_fn dump;    /**< NULL, or called with each intermediate result */
    void *dump_user;
    int exact;   /**< no faster algorithms that round differently (Winograd) */
    int profile; /**< measure every step; see sb_session_profile() */
    /** Q/DQ groups run as the integer kernels that ONNX Runtime on x86 makes of
     *  them, with their roundings, instead of as float with rounding: 0 no, 1
     *  yes, SB_INTEGER_BY_TARGET as the file's runtime would. */
    int integer;
} sb_session_options;

/** Of sb_session_options.integer: yes for a quantized file whose metadata name
 *  a target of ONNX Runtime, or no target at all; no for other targets. */
#define SB_INTEGER_BY_TARGET (-1)

#define SB_SESSION_OPTIONS_INIT                         \
    {                                                   \
        sizeof(sb_session_options), NULL, NULL, 0, 0, 0 \
    }

/** Makes a model ready to run.  The model must outlive the session and must
 *  not be changed meanwhile.  A plan is made at the first run with given input
 *  shapes and kept for later ones. */
SB_API SB_MUST_USE sb_status sb_session_create(sb_ctx *ctx,
                                               const sb_model *model,
                                               const sb_session_options *opt,
                                               sb_session **out);
/** Are Q/DQ groups computed as integers in it? */
SB_API int sb_session_is_integer(const sb_session *session);
SB_API void sb_session_free(sb_session *session);
/** Runs once.
 *  @param inputs  one tensor for each model input, in the model's order
 *  @param outputs receives one borrowed tensor for each model output, valid
 *                 until the next run */
SB_API SB_MUST_USE sb_status sb_session_run(sb_session *session,
                                            const sb_tensor *const *inputs,
                                            const sb_tensor **outputs);
/** Bytes of workspace (activations) of the plan of the last run. */
SB_API size_t sb_session_workspace(const sb_session *session);

/** Cost of one step of a run, or of all steps that do the same. */
typedef struct sb_profile_row {
    const char *name;  /**< of the node */
    const char *op;    /**< "Conv+Relu" with what was fused into it; "Reorder"
                            for a change of memory layout */
    const char *shape; /**< of its first result: "float[1,64,56,56]" */
    size_t nodes;      /**< 1, or how many are summed up */
    double best_ms, median_ms;
    double macs;  /**< multiply-accumulates of the usual algorithm; or 0 */
    double bytes; /**< inputs, weights and results; 0 if nothing is moved */
} sb_profile_row;

typedef struct sb_profile {
    size_t runs;               /**< measured; a plan's first run is not */
    double best_ms, median_ms; /**< of whole runs */
    size_t n_nodes, n_types;
    const sb_profile_row *nodes; /**< in order of execution */
    const sb_profile_row *types; /**< by `op`, the dearest first */
} sb_profile;

/** What the runs with the last input shapes cost.  The session must have been
 *  made with `profile` set, and have run at least twice.  Borrowed until the
 *  next call on the session. */
SB_API SB_MUST_USE sb_status sb_session_profile(sb_session *session,
                                                sb_profile *out);
/** The same as an HTML page with charts, complete in one file.
 *  @param title       for the head of the page, e.g. the model's name
 *  @param subtitle    a line below it
 *  @param peak_gflops for shares of the peak; 0: leave them out */
SB_API SB_MUST_USE sb_status sb_session_profile_save(sb_session *session,
                                                     const char *title,
                                                     const char *subtitle,
                                                     double peak_gflops,
                                                     const char *path);
/** Float32 operations a second in 1e9 that all threads of the context reach at
 *  best, measured with multiply-adds in registers (each counts as two); takes
 *  some ten milliseconds.
 *  @param how receives what was used, e.g. "AVX2 FMA"; may be NULL */
SB_API double sb_peak_measure(sb_ctx *ctx, const char **how);

/* ---- data --------------------------------------------------------------- */

typedef struct sb_data_options {
    size_t struct_size; /**< set by the INIT macro */
    size_t samples;     /**< take at most this many; 0: all */
    size_t skip;        /**< after leaving out this many */
    size_t batch;       /**< samples in a batch; 0: as the file says */
    int strict;         /**< a broken sample is an error, not a warning */
    int threads;   /**< that decode ahead; -1: as many as the context has (none
                        if it has one); 0: none, sb_data_next() decodes */
    uint64_t seed; /**< of SHUFFLE */
} sb_data_options;

#define SB_DATA_OPTIONS_INIT                       \
    {                                              \
        sizeof(sb_data_options), 0, 0, 0, 0, -1, 0 \
    }

/** Some samples, side by side in tensors whose first axis counts them. */
typedef struct sb_batch {
    size_t count; /**< samples in it; 0: there are no more */
    size_t first; /**< number of its first sample, from 0, for messages */
    size_t n_inputs;
    const sb_tensor *const *inputs;
    /** Of the model inputs that the tensors are for; NULL if the data set does
     *  not name them: then they go by position. */
    const char *const *input_names;
    const int64_t *labels;    /**< class of each sample, -1 if unknown */
    const char *const *names; /**< of each sample, for messages */
} sb_batch;

/** Opens the data set that a YAML file describes (docs/data.md). */
SB_API SB_MUST_USE sb_status sb_data_open(sb_ctx *ctx, const char *path,
                                          const sb_data_options *opt,
                                          sb_data **out);
/** The same with the description in memory.
 *  @param path stands for the file in messages; paths are relative to it */
SB_API SB_MUST_USE sb_status sb_data_parse(sb_ctx *ctx, const char *text,
                                           const char *path,
                                           const sb_data_options *opt,
                                           sb_data **out);
SB_API void sb_data_free(sb_data *data);
/** From the next batch on, samples come in the element types of the model's
 *  inputs: any number as a float of any width, an integer as another one that
 *  holds it.  What cannot (floats for integers) stays as it is.  Without this
 *  call doubles come as floats, and all else as it is. */
SB_API void sb_data_fit(sb_data *data, const sb_model *model);
/** The next batch, in an order that never depends on threads.  It is borrowed
 *  until the next call on `data`.  All samples in it have the same shapes, so
 *  it may be smaller than asked for.  Broken samples are left out and logged,
 *  or fail the call if the options say strict. */
SB_API SB_MUST_USE sb_status sb_data_next(sb_data *data, sb_batch *out);
/** Back to the first sample. */
SB_API void sb_data_rewind(sb_data *data);
/** Samples in all, broken ones included. */
SB_API size_t sb_data_count(const sb_data *data);
/** Do the samples have labels? */
SB_API int sb_data_labelled(const sb_data *data);
/** How many broken samples were met since the start, and the i-th's name. */
SB_API size_t sb_data_broken_count(const sb_data *data);
SB_API const char *sb_data_broken(const sb_data *data, size_t i);
/** Puts the tensors of a batch in the order of the named model inputs: by name
 *  if the data set has names, else by position. */
SB_API SB_MUST_USE sb_status sb_batch_inputs(sb_ctx *ctx, const sb_batch *batch,
                                             const char *const *names, size_t n,
                                             const sb_tensor **out);

/** Runs a session on a batch.  The outputs have the samples in their first
 *  axis, also if the model is made for one sample: then it runs once for each,
 *  and outputs are laid side by side.  They are borrowed until the next run.
 *  sb_model_relax_batch() before the session is created makes that rare. */
SB_API SB_MUST_USE sb_status sb_session_run_batch(sb_session *session,
                                                  const sb_batch *batch,
                                                  const sb_tensor **outputs);

/* ---- evaluation --------------------------------------------------------- */

typedef struct sb_eval sb_eval; /* counts over batches of outputs */

typedef struct sb_eval_result {
    size_t samples;  /**< given to sb_eval_add() */
    size_t labelled; /**< of them with a label */
    double top1,
        top5;        /**< per cent of the labelled ones, by the first output */
    size_t compared; /**< samples given to sb_eval_compare() */
    /** Per cent of equal classes (largest element) in the first output; NaN if
     *  it has none. */
    double agreement;
    double cosine;  /**< mean over samples, all outputs taken as one */
    double sqnr_db; /**< signal to noise, over all of them */
} sb_eval_result;

SB_API SB_MUST_USE sb_status sb_eval_create(sb_ctx *ctx, size_t n_outputs,
                                            sb_eval **out);
SB_API void sb_eval_free(sb_eval *eval);
/** Counts samples, and right answers if they have labels. */
SB_API SB_MUST_USE sb_status sb_eval_add(sb_eval *eval, const sb_batch *batch,
                                         const sb_tensor *const *outputs);
/** Compares with what another model gave for the same batch. */
SB_API SB_MUST_USE sb_status sb_eval_compare(sb_eval *eval,
                                             const sb_tensor *const *outputs,
                                             const sb_tensor *const *reference);
SB_API sb_eval_result sb_eval_get(const sb_eval *eval);
/** The same comparison of one output alone. */
SB_API void sb_eval_output(const sb_eval *eval, size_t i, double *cosine,
                           double *sqnr_db);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_RUN_H */
