/* run.h - running networks: sessions, data sets, evaluation.  Part of
 * sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_RUN_H
#define SPARSEBIT_RUN_H

#include <sparsebit/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_session sb_session; /* a model made ready to run */
typedef struct sb_data sb_data;       /* samples to run a model on */
typedef struct sb_batch sb_batch;     /* some of them */

/* ---- running ------------------------------------------------------------ */

/** Called for every tensor that a node made, in order of execution, on the
 *  thread of the call; another status than SB_OK ends the run with it. */
typedef sb_status (*sb_dump_fn)(void *user, const char *value_name,
                                const sb_tensor *tensor);

/** Are Q/DQ groups run as the integer kernels that ONNX Runtime on x86 makes of
 *  them, with their roundings, or as float with rounding? */
typedef enum sb_integer_mode {
    SB_INTEGER_MODE_OFF, /**< as float with rounding */
    SB_INTEGER_MODE_ON,  /**< as integers */
    /** As integers in a quantized file whose metadata name a target of ONNX
     *  Runtime, or no target at all. */
    SB_INTEGER_MODE_BY_TARGET
} sb_integer_mode;

/** Options of sb_session_create().  Start from SB_SESSION_OPTIONS_INIT. */
typedef struct sb_session_options {
    size_t struct_size; /**< set by the INIT macro */
    sb_dump_fn dump;    /**< NULL, or called with each intermediate result */
    void *dump_user;
    int exact;   /**< no approximations that round differently (Winograd) */
    int profile; /**< measure every step; see sb_session_profile() */
    sb_integer_mode integer;
} sb_session_options;

#define SB_SESSION_OPTIONS_INIT                                           \
    {                                                                     \
        sizeof(sb_session_options), NULL, NULL, 0, 0, SB_INTEGER_MODE_OFF \
    }

/** Makes a model ready to run, in the model's context.  The model is copied
 *  (weights are shared) and not needed later.  A plan is made at the first run
 *  with given input shapes and kept for later ones.
 *
 *  Several sessions of one model may exist.  Sessions of one context never run
 *  at the same time; to run a model on several threads, give each thread a
 *  context and an sb_model_clone() there, which shares the weights.
 *  @param opt NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_session_create(const sb_model *model,
                                               const sb_session_options *opt,
                                               sb_session **out);
/** Are Q/DQ groups computed as integers in it? */
SB_API int sb_session_is_integer(const sb_session *session);
/** Frees a session; NULL is allowed. */
SB_API void sb_session_free(sb_session *session);
/** Runs once.
 *  @param inputs  one tensor for each model input, in the model's order; NULL
 *                 leaves one that has a default as the file says
 *  @param outputs receives one borrowed tensor for each model output, valid
 *                 until the next run
 *  @param n_outputs as many as the model has, or fewer: the first ones */
SB_API SB_MUST_USE sb_status sb_session_run(sb_session *session,
                                            const sb_tensor *const *inputs,
                                            size_t n_inputs,
                                            const sb_tensor **outputs,
                                            size_t n_outputs);
/** The same with inputs and outputs by name, in any order; inputs that have a
 *  default may be left out. */
SB_API SB_MUST_USE sb_status
sb_session_run_named(sb_session *session, const char *const *input_names,
                     const sb_tensor *const *inputs, size_t n_inputs,
                     const char *const *output_names, const sb_tensor **outputs,
                     size_t n_outputs);
/** The same with outputs that belong to the caller.
 *  @param outputs where an entry is NULL it receives a new tensor; any other
 *                 tensor, e.g. of sb_tensor_wrap(), receives the elements, and
 *                 must have the type and shape of the result */
SB_API SB_MUST_USE sb_status sb_session_run_into(sb_session *session,
                                                 const sb_tensor *const *inputs,
                                                 size_t n_inputs,
                                                 sb_tensor **outputs,
                                                 size_t n_outputs);
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

/** Cost of runs. */
typedef struct sb_profile {
    size_t runs;               /**< measured; a plan's first run is not */
    double best_ms, median_ms; /**< of whole runs */
    size_t n_nodes, n_types;
    const sb_profile_row *const *nodes; /**< in order of execution */
    const sb_profile_row *const *types; /**< by `op`, most expensive first */
} sb_profile;

/** What the runs with the last input shapes cost.  The session must have been
 *  made with `profile` set, and have run at least twice.  Borrowed until the
 *  next call on the session. */
SB_API SB_MUST_USE sb_status sb_session_profile(sb_session *session,
                                                const sb_profile **out);

/* ---- data --------------------------------------------------------------- */

/** Options of sb_data_open().  Start from SB_DATA_OPTIONS_INIT. */
typedef struct sb_data_options {
    size_t struct_size; /**< set by the INIT macro */
    size_t samples;     /**< take at most this many; 0: all */
    size_t skip;        /**< after leaving out this many */
    size_t batch;       /**< samples in a batch; 0: as the file says */
    int strict;         /**< a broken sample is an error, not a warning */
    int threads;   /**< that decode ahead; -1: as many as the context has (none
                        if it has one); 0: none, sb_data_next() decodes */
    uint64_t seed; /**< of SHUFFLE */
    /** NULL, or YAML (`SCALE: 255`, one key per line) that stands instead of
     *  what the file says about these keys. */
    const char *keys;
} sb_data_options;

#define SB_DATA_OPTIONS_INIT                             \
    {                                                    \
        sizeof(sb_data_options), 0, 0, 0, 0, -1, 0, NULL \
    }

/** Some samples, side by side in tensors whose first axis counts them, or one
 *  run.  Made by sb_data_next(), or by the caller from tensors of other origin.
 */
struct sb_batch {
    size_t struct_size; /**< set by the INIT macro */
    size_t count;       /**< samples in it; 0: there are no more */
    size_t first;       /**< number of its first sample, from 0, for messages */
    size_t n_inputs;
    const sb_tensor *const *inputs;
    /** Of the model inputs that the tensors are for; NULL if the data set does
     *  not name them: then they go by position. */
    const char *const *input_names;
    const int64_t *labels; /**< class of each sample, -1 if unknown; or NULL */
    const char *const *names; /**< of each sample, for messages; or NULL */
    /** The tensors are the inputs of one run as they are (FEED: files or rows):
     *  `count` is 1, and no axis counts samples. */
    int whole;
    /** In which axis each tensor counts the samples, -1: in none (a scalar that
     *  holds for all of them); NULL: all in the first. */
    const int *axes;
    /** States: inputs of the model that take what an output was in the run
     *  before; zeros at first, and if `restart` is set. */
    size_t n_states;
    const char *const *state_inputs, *const *state_outputs;
    int restart; /**< a sequence begins with this batch */
    int reserved;
    /** Of texts: the first position of a sample whose token is to be predicted
     *  from those before it; 0: the samples are no texts. */
    size_t text_from;
    /** Of texts: as the tokens, with -100 for those that are not to be
     *  predicted; NULL: all are, from `text_from` on. */
    const sb_tensor *text_labels;
    /** What samples have instead of a class each, with samples in the first
     *  axis: int64, classes of pixels (or whatever has one each, below 0: does
     *  not count) or integers to be met; or floats.  SB_LABEL_IGNORED stands
     *  where the data have IGNORE_LABEL.  NULL: none. */
    const sb_tensor *targets;
};

/** Of `targets`: does not count, be it a class or a number. */
#define SB_LABEL_IGNORED INT64_MIN

#define SB_BATCH_INIT                                                        \
    {                                                                        \
        sizeof(sb_batch), 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, 0, NULL, \
            NULL, 0, 0, 0, NULL, NULL                                        \
    }

/** Opens the data set that a YAML file describes (docs/data.md).
 *  @param opt NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_data_open(sb_ctx *ctx, const char *path,
                                          const sb_data_options *opt,
                                          sb_data **out);
/** The same with the description in memory.
 *  @param path stands for the file in messages; paths are relative to it */
SB_API SB_MUST_USE sb_status sb_data_parse(sb_ctx *ctx, const char *text,
                                           const char *path,
                                           const sb_data_options *opt,
                                           sb_data **out);
/** A data file for samples that come without one.
 *  @param path a folder of images, an image, a .npy or .npz file, a folder of
 *              such files or, for a language model, a text (.txt)
 *  @param keys as in sb_data_options: what is given there is not guessed
 *  @param out  receives YAML for sb_data_parse() that names `path` and the
 *              preprocessing that the model's inputs suggest; free it with
 *              sb_memory_free()
 *  @return SB_BAD_ARG if they do not say enough */
SB_API SB_MUST_USE sb_status sb_data_describe(const sb_model *model,
                                              const char *path,
                                              const char *keys, char **out);
/** Frees a data set; NULL is allowed. */
SB_API void sb_data_free(sb_data *data);
/** From the next batch on, samples come in the element types of the model's
 *  inputs: any number as a float of any width, an integer as another one that
 *  holds it.  What cannot (floats for integers) stays as it is.  Without this
 *  call doubles come as floats, and all else as it is.
 *  @return SB_BAD_ARG if the model is of another context */
SB_API SB_MUST_USE sb_status sb_data_set_model(sb_data *data,
                                               const sb_model *model);
/** The next batch, in an order that never depends on threads.  It is borrowed
 *  until the next call on `data`; its `count` is 0 after the last sample.  All
 *  samples in it have the same shapes, so it may be smaller than asked for.
 *  Broken samples are left out and logged, or fail the call if the options say
 *  strict. */
SB_API SB_MUST_USE sb_status sb_data_next(sb_data *data, const sb_batch **out);
/** As `text_from` of its batches: 0 unless the samples are texts. */
SB_API size_t sb_data_text_from(const sb_data *data);
/** Back to the first sample, in the order of the last epoch. */
SB_API void sb_data_rewind(sb_data *data);
/** Back to the first sample, to train or calibrate: with SHUFFLE in an order of
 *  its own for each epoch, and with the random changes that AUGMENT asks for.
 *  Both depend on seed and epoch alone.  sb_data_rewind() ends it. */
SB_API void sb_data_start_epoch(sb_data *data, uint64_t epoch);
/** Does AUGMENT ask for such changes, so that samples differ by epoch? */
SB_API int sb_data_varies(const sb_data *data);
/** What a rank reads of a data set that several share. */
typedef enum sb_data_part {
    /** Batches one after another, about as many as the others: what all ranks
     *  read in their order is what one alone reads. */
    SB_DATA_PART_BATCHES,
    /** A slice of every batch, the first rank the first samples of it: what all
     *  ranks read at a time is the batch that one alone reads.  Samples that do
     *  not fill a batch are left out; a broken sample fails the call. */
    SB_DATA_PART_SLICES
} sb_data_part;

/** Reads, from the first sample on, the part of one of several ranks; 0 of 1
 *  ranks: all again.  Counts and sizes of batches stay those of all.
 *  @return SB_BAD_DATA if batches cannot be cut into that many slices;
 *          SB_UNSUPPORTED for samples that have to follow each other */
SB_API SB_MUST_USE sb_status sb_data_share(sb_data *data, sb_data_part part,
                                           int rank, int ranks);
/** Samples in all, broken ones included. */
SB_API size_t sb_data_count(const sb_data *data);
/** Samples in a batch, as file or options ask for it. */
SB_API size_t sb_data_batch_size(const sb_data *data);
/** The seed of order and random changes. */
SB_API uint64_t sb_data_seed(const sb_data *data);
/** Do the samples have labels? */
SB_API int sb_data_has_labels(const sb_data *data);
/** How many broken samples were met since the start. */
SB_API size_t sb_data_broken_count(const sb_data *data);
/** The name of the i-th of them; NULL out of range. */
SB_API const char *sb_data_broken(const sb_data *data, size_t i);

/* ---- batches as inputs -------------------------------------------------- */

/** Brings the tensors of batches to the inputs of a model, and its states from
 *  one batch to the next. */
typedef struct sb_feed sb_feed;

/** A feed for a model, without states from earlier batches.
 *  @param model must outlive the feed */
SB_API SB_MUST_USE sb_status sb_feed_create(const sb_model *model,
                                            sb_feed **out);
/** Frees it; NULL is allowed. */
SB_API void sb_feed_free(sb_feed *feed);
/** The tensors of a batch in the order of the model's inputs: by name if the
 *  batch has names, else by position; states where they belong.
 *  @param inputs receives `n` borrowed tensors, valid until the next call on
 *                the feed; n as the model has inputs */
SB_API SB_MUST_USE sb_status sb_feed_inputs(sb_feed *feed,
                                            const sb_batch *batch,
                                            const sb_tensor **inputs, size_t n);
/** Keeps those outputs of that run that the next batch needs as states.
 *  @param n as the model has outputs */
SB_API SB_MUST_USE sb_status sb_feed_keep(sb_feed *feed, const sb_batch *batch,
                                          const sb_tensor *const *outputs,
                                          size_t n);

/** The same for a batch without states, in one call. */
SB_API SB_MUST_USE sb_status sb_model_batch_inputs(const sb_model *model,
                                                   const sb_batch *batch,
                                                   const sb_tensor **inputs,
                                                   size_t n);

/** Runs a session on a batch.  The outputs have the samples in their first
 *  axis, also if the model is made for one sample: then it runs once for each,
 *  and outputs are laid side by side.  They are borrowed until the next run.
 *  sb_model_make_batch_dynamic() before the session is created makes that rare.
 *  Outputs of one run as it is (`whole`) are as they are.  States go on from
 *  the batch before, as with sb_feed. */
SB_API SB_MUST_USE sb_status sb_session_run_batch(sb_session *session,
                                                  const sb_batch *batch,
                                                  const sb_tensor **outputs,
                                                  size_t n_outputs);

/* ---- evaluation --------------------------------------------------------- */

typedef struct sb_eval sb_eval; /* counts over batches of outputs */

/** Options of sb_eval_create().  Start from SB_EVAL_OPTIONS_INIT. */
typedef struct sb_eval_options {
    size_t struct_size; /**< set by the INIT macro */
    /** What the outputs are, and so how they are compared: `classify`, `detect`
     *  (or with the layout of boxes: `detect:yolov5`, `detect:yolov8`,
     *  `detect:yolox`, `detect:pair`, `detect:nms`, `detect:lists`), `embed`,
     *  `segment`, `text`, `language` or `none`.  NULL: guessed at the first
     *  comparison. */
    const char *task;
    /** Least score of a box (0.25) or of a pixel of a one-channel map (0.5);
     *  negative: these. */
    double threshold;
    double iou; /**< boxes agree that overlap more than this */
} sb_eval_options;

#define SB_EVAL_OPTIONS_INIT                     \
    {                                            \
        sizeof(sb_eval_options), NULL, -1.0, 0.5 \
    }

/** What was counted. */
typedef struct sb_eval_result {
    size_t samples;    /**< given to sb_eval_add() */
    size_t labeled;    /**< of them with a label */
    double top1, top5; /**< per cent of the labeled ones, by the first output */
    size_t compared;   /**< samples given to sb_eval_compare() */
    double cosine;     /**< mean over samples, all outputs taken as one */
    double sqnr_db;    /**< signal to noise, over all of them */
    const char *task;  /**< as in the options, with the layout of boxes */
    int task_guessed;
    /** `classify`, and `segment` with several channels: per cent of equal
     *  classes (largest element) in the first output; else NaN. */
    double agreement;
    double map_iou; /**< `segment` with one channel: overlap; else NaN */
    /** `detect`: boxes of both models, and how many of them agree. */
    size_t boxes, reference_boxes, matched_boxes;
    double recall, precision, f1; /**< of them, 0 to 1; NaN without any */
    size_t vectors;               /**< `embed`: compared, and their cosines: */
    double vector_cosine, vector_cosine_p1; /**< mean, lowest hundredth */
    size_t texts;       /**< `text`: read from the first output */
    double texts_equal; /**< per cent of them */
    /** `language`, for batches of texts: tokens that were predicted, and how
     *  well; `agreement` is the per cent of equal most likely tokens. */
    size_t tokens;
    double perplexity; /**< exp of the mean of -log p; NaN without tokens */
    double divergence; /**< mean of KL(reference, model) in nats, or NaN */
    /** Samples of which an output is longer in one model, as boxes after
     *  suppression are: what the other one lacks was taken for zeros. */
    size_t uneven;
    /** Of `targets` of batches that are classes of pixels (or whatever has one
     *  each): how many count, per cent of them that are right, and the mean
     *  over classes of intersection / union; NaN without. */
    size_t pixels;
    double pixel_accuracy, mean_iou;
    /** Of other `targets`: how many numbers, and how far off the output is.  If
     *  all are 0 or 1, F1 of the labels: those above `threshold`, or above 0
     *  where the output is no probability. */
    size_t numbers;
    double mean_absolute_error, mean_squared_error, label_f1;
} sb_eval_result;

/** Rows (or channels) of an output whose values are of one magnitude, where an
 *  output has some of several. */
typedef struct sb_eval_part {
    size_t output;
    int axis;         /**< that counts the rows */
    const char *rows; /**< "4..83" */
    size_t n_rows;
    double largest; /**< magnitude in the reference */
    double cosine;  /**< over all samples */
    double sqnr_db;
} sb_eval_part;

/** Counters, all zero.
 *  @param n_outputs of the model that is evaluated; at least 1
 *  @param opt       NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_eval_create(sb_ctx *ctx, size_t n_outputs,
                                            const sb_eval_options *opt,
                                            sb_eval **out);
/** Frees the counters; NULL is allowed. */
SB_API void sb_eval_free(sb_eval *eval);
/** Counts samples, and right answers if they have labels.
 *  @param outputs as many as sb_eval_create() was told */
SB_API SB_MUST_USE sb_status sb_eval_add(sb_eval *eval, const sb_batch *batch,
                                         const sb_tensor *const *outputs);
/** Compares with what another model gave for the same batch. */
SB_API SB_MUST_USE sb_status sb_eval_compare(sb_eval *eval,
                                             const sb_batch *batch,
                                             const sb_tensor *const *outputs,
                                             const sb_tensor *const *reference);
/** What was counted so far; valid until the next call on `eval`. */
SB_API const sb_eval_result *sb_eval_get(sb_eval *eval);
/** The same comparison of output `i` alone; 0 out of range. */
SB_API int sb_eval_output(const sb_eval *eval, size_t i, double *cosine,
                          double *sqnr_db);
/** The parts of outputs that differ in magnitude; none of an output whose rows
 *  are alike.  Valid until the next call on `eval`. */
SB_API SB_MUST_USE sb_status sb_eval_parts(sb_eval *eval,
                                           const sb_eval_part *const **out,
                                           size_t *n);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_RUN_H */
