/* sparsebit.h - public interface of libsparsebit.
 *
 * Life of a program:
 *
 *     sb_ctx_create -> sb_model_load (or _create and the builder calls)
 *         -> sb_model_simplify -> sb_session_create -> sb_session_run ...
 *         -> sb_model_save -> _free in any order, the context last
 *
 * Rules that hold for every function here
 *   status    A function that can fail returns sb_status; SB_OK is 0.  On any
 *             other value *out is untouched and sb_ctx_error() says why, in
 *             one line.
 *   ownership What comes back through an `out` parameter belongs to the caller
 *             until the matching _free().  What comes back as a return value
 *             is borrowed and lives as long as the object it came from.
 *   threads   One sb_ctx per thread; objects may move between threads, but
 *             are never used by two at once.  sb_ctx_interrupt() may be called
 *             from anywhere, a signal handler included.
 */
#ifndef SPARSEBIT_SPARSEBIT_H
#define SPARSEBIT_SPARSEBIT_H

#include <stddef.h>
#include <stdint.h>

#include <sparsebit/export.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_ctx sb_ctx;         /* allocator, threads, last error */
typedef struct sb_model sb_model;     /* one ONNX network */
typedef struct sb_session sb_session; /* a model made ready to run */
typedef struct sb_tensor sb_tensor;   /* an array of elements */
typedef struct sb_data sb_data;       /* samples to run a model on */
typedef struct sb_quant_model sb_quant_model; /* a model being quantized */

/* ---- status ------------------------------------------------------------- */

/* clang-format off */
#define SB_STATUS_MAP(X)                                                       \
    X(OK,          "success")                                                  \
    X(NO_MEMORY,   "out of memory")                                            \
    X(BAD_ARG,     "the caller passed an invalid argument")                    \
    X(BAD_MODEL,   "the ONNX file breaks its own specification")               \
    X(BAD_CONFIG,  "the configuration is not valid")                           \
    X(BAD_DATA,    "the data does not fit")                                    \
    X(UNSUPPORTED, "valid, but this version cannot do it")                     \
    X(IO,          "a file could not be read or written")                      \
    X(BACKEND,     "a oneDNN call failed")                                     \
    X(INTERRUPTED, "interrupted")
/* clang-format on */

typedef enum sb_status {
#define X(name, text) SB_##name,
    SB_STATUS_MAP(X)
#undef X
        SB_STATUS_COUNT
} sb_status;

/** What a status means in general. */
SB_API const char *sb_status_text(sb_status status);

/* ---- context ------------------------------------------------------------ */

/** Memory hooks.  `resize` is realloc (NULL pointer: malloc), `free` is free.
 *  Data sets with decoding threads call them from those threads as well. */
typedef struct sb_allocator {
    void *user;
    void *(*resize)(void *user, void *ptr, size_t size);
    void (*free)(void *user, void *ptr);
} sb_allocator;

/** Receives warnings, one line each, without newline. */
typedef void (*sb_log_fn)(void *user, const char *line);

/** @param alloc NULL for malloc; copied */
SB_API SB_MUST_USE sb_status sb_ctx_create(const sb_allocator *alloc,
                                           sb_ctx **out);
/** Frees a context after everything made with it; NULL is allowed. */
SB_API void sb_ctx_free(sb_ctx *ctx);
/** Why the last call on `ctx` failed; never NULL; valid until the next one. */
SB_API const char *sb_ctx_error(const sb_ctx *ctx);
SB_API void sb_ctx_set_log(sb_ctx *ctx, sb_log_fn log, void *user);
/** Threads to use; 0 means one per core.  Results do not depend on it. */
SB_API void sb_ctx_set_threads(sb_ctx *ctx, int n_threads);
SB_API int sb_ctx_threads(const sb_ctx *ctx);
/** Makes the running call (and later ones) return SB_INTERRUPTED soon.
 *  Signal handlers need a stack of their own (SA_ONSTACK) on threads that
 *  compute, or better a thread that waits for signals: oneDNN's kernels do not
 *  keep the stack pointer where a handler could use it. */
SB_API void sb_ctx_interrupt(sb_ctx *ctx);
/** "0.1.0" */
SB_API const char *sb_version(void);

/* ---- tensors ------------------------------------------------------------ */

/** Element types; the numbers are ONNX's. */
typedef enum sb_dtype {
    SB_DTYPE_NONE = 0,
    SB_DTYPE_F32 = 1,
    SB_DTYPE_U8 = 2,
    SB_DTYPE_I8 = 3,
    SB_DTYPE_U16 = 4,
    SB_DTYPE_I16 = 5,
    SB_DTYPE_I32 = 6,
    SB_DTYPE_I64 = 7,
    SB_DTYPE_STRING = 8,
    SB_DTYPE_BOOL = 9,
    SB_DTYPE_F16 = 10,
    SB_DTYPE_F64 = 11,
    SB_DTYPE_U32 = 12,
    SB_DTYPE_U64 = 13,
    SB_DTYPE_C64 = 14,
    SB_DTYPE_C128 = 15,
    SB_DTYPE_BF16 = 16,
    SB_DTYPE_F8E4M3FN = 17,
    SB_DTYPE_F8E4M3FNUZ = 18,
    SB_DTYPE_F8E5M2 = 19,
    SB_DTYPE_F8E5M2FNUZ = 20,
    SB_DTYPE_U4 = 21,
    SB_DTYPE_I4 = 22,
    SB_DTYPE_F4E2M1 = 23,
    SB_DTYPE_F8E8M0 = 24,
    SB_DTYPE_U2 = 25,
    SB_DTYPE_I2 = 26,
    SB_DTYPE_COUNT
} sb_dtype;

/** "float", "int8", ... as ONNX writes them. */
SB_API const char *sb_dtype_name(sb_dtype dtype);

/** A new zeroed tensor; rank at most 12. */
SB_API SB_MUST_USE sb_status sb_tensor_create(sb_ctx *ctx, sb_dtype dtype,
                                              int rank, const int64_t *dims,
                                              sb_tensor **out);
SB_API void sb_tensor_free(sb_ctx *ctx, sb_tensor *tensor);
SB_API sb_dtype sb_tensor_dtype(const sb_tensor *tensor);
SB_API int sb_tensor_rank(const sb_tensor *tensor);
SB_API const int64_t *sb_tensor_dims(const sb_tensor *tensor);
SB_API int64_t sb_tensor_elements(const sb_tensor *tensor);
SB_API size_t sb_tensor_size(const sb_tensor *tensor);
/** Row-major elements, aligned to 64 bytes unless mapped from a file. */
SB_API void *sb_tensor_data(const sb_tensor *tensor);
/** Reads a .npy file, or `ARCHIVE.npz:NAME` (the only array if no name). */
SB_API SB_MUST_USE sb_status sb_tensor_load(sb_ctx *ctx, const char *path,
                                            sb_tensor **out);
/** Writes a .npy file. */
SB_API SB_MUST_USE sb_status sb_tensor_save(sb_ctx *ctx, const char *path,
                                            const sb_tensor *tensor);
/** Fills with numbers that depend only on the seed: floats normal(0, 1),
 *  integers 0 or 1. */
SB_API void sb_tensor_fill_random(sb_tensor *tensor, uint64_t seed);
/** Writes several tensors as one .npz archive. */
SB_API SB_MUST_USE sb_status
sb_tensors_save_npz(sb_ctx *ctx, const char *path, const char *const *names,
                    const sb_tensor *const *tensors, size_t n);

/* ---- models ------------------------------------------------------------- */

/** Reads an ONNX file, checks it, upgrades it to one opset, infers shapes.
 *
 * Operators that we do not know are kept; sb_model_info() lists them.
 * @param path external tensor data is looked up beside it
 * @return SB_IO, SB_BAD_MODEL, SB_UNSUPPORTED or SB_NO_MEMORY on failure
 */
SB_API SB_MUST_USE sb_status sb_model_load(sb_ctx *ctx, const char *path,
                                           sb_model **out);
/** The same from memory, which is copied; external data is refused. */
SB_API SB_MUST_USE sb_status sb_model_load_memory(sb_ctx *ctx, const void *data,
                                                  size_t size, sb_model **out);
/** Writes the file whole or not at all.  Weights beyond 2 GB go to a file
 *  beside it, `<name>.data`. */
SB_API SB_MUST_USE sb_status sb_model_save(sb_ctx *ctx, const sb_model *model,
                                           const char *path);
SB_API void sb_model_free(sb_model *model);

/** An empty model to build in C, and from the text form of `sparsebit graph`.
 */
SB_API SB_MUST_USE sb_status sb_model_create(sb_ctx *ctx, const char *name,
                                             sb_model **out);
SB_API SB_MUST_USE sb_status sb_model_parse(sb_ctx *ctx, const char *text,
                                            sb_model **out);

/* Builder.  Values are referred to by name.  A dimension of -1 is unknown. */
SB_API SB_MUST_USE sb_status sb_model_add_input(sb_ctx *ctx, sb_model *model,
                                                const char *name,
                                                sb_dtype dtype, int rank,
                                                const int64_t *dims);
/** Copies the elements. */
SB_API SB_MUST_USE sb_status sb_model_add_constant(sb_ctx *ctx, sb_model *model,
                                                   const char *name,
                                                   const sb_tensor *tensor);
/** @param inputs  value names separated by spaces; `_` for an absent one
 *  @param outputs names of the new values, separated by spaces
 *  @param attrs   `kernel_shape=[3,3], group=2, mode="linear"`, or NULL */
SB_API SB_MUST_USE sb_status sb_model_add_node(sb_ctx *ctx, sb_model *model,
                                               const char *op,
                                               const char *inputs,
                                               const char *outputs,
                                               const char *attrs);
SB_API SB_MUST_USE sb_status sb_model_add_output(sb_ctx *ctx, sb_model *model,
                                                 const char *name);
/** Checks the built model and infers its shapes; call it once at the end. */
SB_API SB_MUST_USE sb_status sb_model_finish(sb_ctx *ctx, sb_model *model);

/* Questions */

typedef struct sb_value_info {
    const char *name;
    sb_dtype dtype;      /**< SB_DTYPE_NONE if unknown or not a tensor */
    int rank;            /**< -1 if unknown */
    const int64_t *dims; /**< -1 where not a number */
    const char *text;    /**< "float[N,3,224,224]" */
} sb_value_info;

/* Of a model made by the builder these are known after sb_model_finish(). */
SB_API size_t sb_model_input_count(const sb_model *model);
SB_API size_t sb_model_output_count(const sb_model *model);
SB_API sb_value_info sb_model_input(const sb_model *model, size_t i);
SB_API sb_value_info sb_model_output(const sb_model *model, size_t i);

/** One row of a count: an operator type, or a module. */
typedef struct sb_count {
    const char *name;
    const char *domain; /**< of an operator; "" for ai.onnx and modules */
    size_t nodes;
    int64_t params;
    double macs;
    int runnable; /**< of an operator: can this version run it? */
} sb_count;

/** Quantized weights or activations of one kind. */
typedef struct sb_quant_count {
    sb_dtype dtype; /**< of the integers; SB_DTYPE_I32: biases */
    /** "per tensor", "per channel", "per group", "at run time", or "" if the
     * file does not say at that place. */
    const char *granularity;
    size_t values;
    int64_t elements; /**< of weights */
} sb_quant_count;

typedef struct sb_model_info {
    const char *name, *producer, *doc;
    int64_t ir_version;
    int64_t opset;  /**< in the file */
    size_t nodes;   /**< sub-graphs included */
    int64_t params; /**< elements of all weights (int64, bool: not counted) */
    uint64_t weight_bytes;
    uint64_t file_bytes; /**< model file; 0 if it came from memory */
    double macs;         /**< with unknown dimensions taken as 1 */
    int macs_assumed;    /**< were there such dimensions? */
    size_t n_ops, n_modules;
    const sb_count *ops;     /**< sorted by name */
    const sb_count *modules; /**< in order of appearance */
    /* Of a quantized file; all 0 in others. */
    size_t quantize_nodes, dequantize_nodes;
    size_t integer_nodes; /**< QLinearConv and its like */
    const char *target;   /**< "sparsebit.target" in its metadata, or "" */
    size_t n_quant_weights, n_quant_acts;
    const sb_quant_count *quant_weights; /**< in order of appearance */
    const sb_quant_count *quant_acts;
} sb_model_info;

/** Borrowed; valid until the model is changed or freed. */
SB_API SB_MUST_USE sb_status sb_model_info_get(sb_ctx *ctx, sb_model *model,
                                               sb_model_info *out);

typedef enum sb_graph_format {
    SB_GRAPH_TEXT,
    SB_GRAPH_DOT,
    SB_GRAPH_MERMAID,
} sb_graph_format;

/** The graph as text; free it with sb_text_free(). */
SB_API SB_MUST_USE sb_status sb_model_print(sb_ctx *ctx, const sb_model *model,
                                            sb_graph_format format, char **out);
SB_API void sb_text_free(sb_ctx *ctx, char *text);

/* ---- passes ------------------------------------------------------------- */

typedef struct sb_pass_result {
    const char *name;
    size_t changes;
    double seconds;
} sb_pass_result;

typedef struct sb_simplify_options {
    size_t struct_size;     /**< set by the INIT macro */
    const char *passes;     /**< pipeline or pass names separated by commas */
    const char *dump_after; /**< NULL, or a pass after which to log the graph */
    /** Fixed input shapes, `name=1x3x224x224` separated by spaces; or NULL. */
    const char *input_shapes;
} sb_simplify_options;

#define SB_SIMPLIFY_OPTIONS_INIT                            \
    {                                                       \
        sizeof(sb_simplify_options), "simplify", NULL, NULL \
    }

/** Runs graph passes in place until nothing changes.
 *  @param results  receives a borrowed array, valid until the next call on the
 *                  model; may be NULL */
SB_API SB_MUST_USE sb_status sb_model_simplify(sb_ctx *ctx, sb_model *model,
                                               const sb_simplify_options *opt,
                                               const sb_pass_result **results,
                                               size_t *n_results);

/** Lets a model whose file fixes the batch to a number run with any: the first
 *  dimension of all inputs becomes symbolic, constants that repeat the number
 *  in Reshape follow, shapes are inferred anew.
 *  @param done receives 0, with the model as it was, if samples cannot be told
 *              apart by the first dimension of every input and output */
SB_API SB_MUST_USE sb_status sb_model_relax_batch(sb_ctx *ctx, sb_model *model,
                                                  int *done);

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
     *  them, with their roundings, instead of as float with rounding. */
    int integer;
} sb_session_options;

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

/* ---- quantization ------------------------------------------------------- */

/** Which 8-bit weights keep within [-64, 64], so that sums of two products fit
 *  16 bits: none, those of layers where they would not, all. */
typedef enum sb_reduce_range {
    SB_REDUCE_OFF,
    SB_REDUCE_AUTO,
    SB_REDUCE_ALL
} sb_reduce_range;

typedef struct sb_quant_options {
    size_t struct_size; /**< set by the INIT macro */
    const char *config; /**< a qconfig.yaml; NULL for the defaults */
    const char *target; /**< a runtime to write for; NULL: as BACKEND says */
    int exact; /**< no faster algorithms that round differently (Winograd) */
    sb_reduce_range reduce_range;
} sb_quant_options;

#define SB_QUANT_OPTIONS_INIT                                  \
    {                                                          \
        sizeof(sb_quant_options), NULL, NULL, 0, SB_REDUCE_OFF \
    }

/** A model to quantize; `model` itself is not changed and not needed later.
 *
 *      create -> prepare_calibration -> forward ... -> calc_qparams
 *             -> set_quant -> forward ... -> export -> free
 */
SB_API SB_MUST_USE sb_status sb_quant_model_create(sb_ctx *ctx,
                                                   const sb_model *model,
                                                   const sb_quant_options *opt,
                                                   sb_quant_model **out);
SB_API void sb_quant_model_free(sb_quant_model *qm);
/** Says how far a long call has come. */
typedef void (*sb_progress_fn)(void *user, size_t done, size_t total);

typedef struct sb_calibration_options {
    size_t struct_size; /**< set by the INIT macro */
    /** What is quantized in the part of the network before the value that is
     *  observed; neither: observers see the float network. */
    int asym_weights, asym_features;
    /** With asym_features: bytes of activations to keep in memory at most; more
     *  go to a temporary file (in TMPDIR).  0: 512 MB. */
    size_t memory_limit;
    sb_progress_fn progress; /**< NULL, or called by calc_qparams() */
    void *progress_user;
} sb_calibration_options;

#define SB_CALIBRATION_OPTIONS_INIT                         \
    {                                                       \
        sizeof(sb_calibration_options), 0, 0, 0, NULL, NULL \
    }

/** From now on forward() observes; what was observed before is forgotten.
 *  @param opt NULL: observers see the float network */
SB_API SB_MUST_USE sb_status sb_quant_model_prepare_calibration(
    sb_quant_model *qm, const sb_calibration_options *opt);
/** Runs once: observing while calibrating, else with the quantizers that are
 *  on.  As sb_session_run().
 *
 *  Calibrating with asym_features it only keeps a copy of the inputs, and
 *  `outputs` are all NULL: calc_qparams() runs the network, block by block. */
SB_API SB_MUST_USE sb_status
sb_quant_model_forward(sb_quant_model *qm, const sb_tensor *const *inputs,
                       const sb_tensor **outputs);
/** What was observed, as a JSON file, so that scales can be computed again
 *  without data.  With asym_features that is known after calc_qparams(). */
SB_API SB_MUST_USE sb_status
sb_quant_model_save_calibration(const sb_quant_model *qm, const char *path);
/** Adds what another calibration of the same model with the same settings has
 *  seen.  Call it before calc_qparams(), in place of forward() or beside it. */
SB_API SB_MUST_USE sb_status sb_quant_model_load_calibration(sb_quant_model *qm,
                                                             const char *path);
/** Computes scales and zero points from what was observed and ends the
 *  calibration.  If it fails, start again with prepare_calibration(). */
SB_API SB_MUST_USE sb_status sb_quant_model_calc_qparams(sb_quant_model *qm);
/** Which quantizers forward() simulates; none at first. */
SB_API void sb_quant_model_set_quant(sb_quant_model *qm, int weights,
                                     int features);
/** Has it activations whose ranges come from calibration samples?  If not (`A:
 *  none`, `A: dynamic`), calc_qparams() may follow create(). */
SB_API int sb_quant_model_needs_data(const sb_quant_model *qm);
/** Is there a quantizer that calibration data would give its scale?  Of a file
 *  that is quantized already, one for which the file has none. */
SB_API int sb_quant_model_takes_data(const sb_quant_model *qm);
/** How many samples a run must have, if the network is made for just one
 *  number; 0: any. */
SB_API int64_t sb_quant_model_batch(const sb_quant_model *qm);

/** How quantized layers are written. */
typedef enum sb_export_format {
    SB_EXPORT_QDQ = 0,    /**< float operators between Q and DQ nodes */
    SB_EXPORT_QOPERATOR,  /**< integer operators: QLinearConv and its like */
    SB_EXPORT_MATMULNBITS /**< `A: none`: com.microsoft MatMulNBits */
} sb_export_format;

typedef struct sb_export_options {
    size_t struct_size; /**< set by the INIT macro */
    /** Weights as float constants behind Q and DQ, instead of integers behind
     *  DQ. */
    int float_weights;
    /** Attribute `bits` on Q and DQ nodes, as Sparsebit wrote it; ONNX Runtime
     *  refuses files with it. */
    int extra_info;
    sb_export_format format;
} sb_export_options;

#define SB_EXPORT_OPTIONS_INIT                         \
    {                                                  \
        sizeof(sb_export_options), 0, 0, SB_EXPORT_QDQ \
    }

/** Writes the quantized model, whole or not at all. */
SB_API SB_MUST_USE sb_status sb_quant_model_export(
    const sb_quant_model *qm, const char *path, const sb_export_options *opt);

typedef struct sb_quantizer_info {
    const char *name;  /**< "layer1.0.conv1.input_quantizer" */
    const char *value; /**< what it quantizes, by its name in the graph */
    int is_weight;
    int fused; /**< inside conv + norm + activation: never on */
    int bits;
    const char *scheme;    /**< "per-channel-symmetric" */
    const char *quantizer; /**< "uniform" */
    const char *observer;  /**< "minmax" */
    int axis;              /**< of channels or groups; -1: per tensor */
    int64_t group_size;    /**< 0 unless by group */
    int32_t qmin, qmax;
    size_t n; /**< scales; 0 before calc_qparams() */
    const float *scale, *zero_point;
} sb_quantizer_info;

/** The graph with its quantizers, modules that are kept in float as one node
 *  each; free it with sb_text_free(). */
SB_API SB_MUST_USE sb_status sb_quant_model_print(const sb_quant_model *qm,
                                                  sb_graph_format format,
                                                  char **out);
/** The same in Mermaid's language, into a file. */
SB_API SB_MUST_USE sb_status
sb_quant_model_dump_mermaid(const sb_quant_model *qm, const char *path);
SB_API size_t sb_quant_model_quantizer_count(const sb_quant_model *qm);
/** Borrowed until the scales change or the model is freed. */
SB_API sb_quantizer_info sb_quant_model_quantizer(const sb_quant_model *qm,
                                                  size_t i);

/* ---- configuration ------------------------------------------------------ */

/** Reads a config (the keys of Sparsebit's qconfig.yaml and sconfig.yaml) or a
 *  data file (which has SOURCE) and checks every setting and combination.
 *  @param summary NULL, or receives what the file says, a line each thing;
 *                 free it with sb_text_free()
 *  @return SB_IO, or SB_BAD_CONFIG with `file:line: KEY: found, allowed` */
SB_API SB_MUST_USE sb_status sb_config_check(sb_ctx *ctx, const char *path,
                                             char **summary);
/** A complete config, explained in comments; free it with sb_text_free(). */
SB_API SB_MUST_USE sb_status sb_config_default(sb_ctx *ctx, char **out);

/** A key of a config. */
typedef struct sb_config_key {
    const char *key;     /**< "W.QUANTIZER.BIT" */
    const char *preset;  /**< value if the key is left out; NULL if none */
    const char *allowed; /**< "1..16, or 0 for float" */
    const char *help;    /**< one line */
    const char *more;    /**< further lines; "" if there are none */
    int section;         /**< holds other keys */
} sb_config_key;

/** A key and those below it; NULL gives all of a config, "data" all of a data
 *  file.  Free with sb_config_keys_free().
 *  @return SB_BAD_ARG if there is no such key; the message may suggest one */
SB_API SB_MUST_USE sb_status sb_config_keys(sb_ctx *ctx, const char *key,
                                            sb_config_key **out, size_t *n);
SB_API void sb_config_keys_free(sb_ctx *ctx, sb_config_key *keys);

/* ---- what a runtime makes of a quantized model -------------------------- */

typedef enum sb_lint_fate {
    SB_LINT_FLOAT,    /**< computes in float */
    SB_LINT_INTEGER,  /**< an integer kernel replaces it and the Q/DQ around */
    SB_LINT_MOVES,    /**< runs on integers as it is; Q/DQ around it vanish */
    SB_LINT_ABSORBED, /**< goes away: the Q or the layer beside does its work */
} sb_lint_fate;

/** What becomes of one node.  Texts are "" where there is nothing to say. */
typedef struct sb_lint_node {
    const char *name;   /**< as in the file; may be "" */
    const char *output; /**< name of its first result */
    const char *op;
    sb_lint_fate fate;
    const char *kernel; /**< of INTEGER: "QLinearConv" */
    const char *rule;   /**< of FLOAT with Q/DQ beside it: what is broken, */
    const char *why;    /**< in words, */
    const char *remedy; /**< and what helps */
    int weighted;       /**< a layer with constant weights */
    int overhead;       /**< Q/DQ beside it cost time and gain nothing */
    int saturates;      /**< its weights can overflow int16 sums on AVX2 */
} sb_lint_node;

typedef struct sb_lint {
    const char *target;
    size_t n_nodes; /**< all nodes but Q and DQ, in graph order */
    const sb_lint_node *nodes;
    size_t n_broken; /**< Q and DQ nodes that the runtime refuses */
    const sb_lint_node *broken;
    size_t n_weighted, n_weighted_integer;
    size_t n_q, n_dq; /**< in the file */
    /** Those that the runtime still executes; known for ONNX Runtime only. */
    int left_known;
    size_t n_q_left, n_dq_left;
} sb_lint;

/** Says what the runtime `target` (see the list "targets") makes of the model.
 *  Borrowed; valid until the next call or until the model is changed. */
SB_API SB_MUST_USE sb_status sb_model_lint(sb_ctx *ctx, sb_model *model,
                                           const char *target, sb_lint *out);

/* ---- registries --------------------------------------------------------- */

typedef struct sb_listing {
    const char *name;
    const char *domain;  /**< of an operator; "" for ai.onnx and passes */
    const char *summary; /**< of a pass or target; "" for operators */
    int since;           /**< of an operator: opset of the form that we run */
} sb_listing;

/** Row `i` of the list "ops", "passes", "observers", "quantizers", "sources" or
 *  "targets"; 0 past the end, or if there is no such list.  The texts are
 *  static. */
SB_API int sb_list_row(const char *what, size_t i, sb_listing *out);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_SPARSEBIT_H */
