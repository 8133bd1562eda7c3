/* quantize.h - quantization, its configuration, and what runtimes make of the
 * result.  Part of sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_QUANTIZE_H
#define SPARSEBIT_QUANTIZE_H

#include <sparsebit/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_quant_model sb_quant_model; /* a model being quantized */

/* ---- quantization ------------------------------------------------------- */

/** x86 processors without VNNI add two products of 8-bit numbers in 16 bits,
 *  which overflows for large weights: how these are kept small for targets that
 *  may run there. */
typedef enum sb_reduce_range {
    SB_REDUCE_RANGE_OFF,  /**< not at all: for processors with VNNI */
    SB_REDUCE_RANGE_AUTO, /**< scales grow as far as a channel needs */
    SB_REDUCE_RANGE_ALL   /**< all weights within [-64, 64] */
} sb_reduce_range;

/** Options of sb_quant_model_create().  Start from SB_QUANT_OPTIONS_INIT. */
typedef struct sb_quant_options {
    size_t struct_size;      /**< set by the INIT macro */
    const char *config;      /**< a qconfig.yaml; NULL for the defaults */
    const char *config_text; /**< the text of one, instead of a file; or NULL */
    const char *target; /**< a runtime to write for; NULL: as BACKEND says */
    int exact; /**< no approximations that round differently (Winograd) */
    sb_reduce_range reduce_range;
    /** Samples will be given.  Without them, and without a config, a file that
     *  is quantized weight-only, or dynamically, stays what it is; with them
     *  its activations are calibrated. */
    int calibrate;
    /** Scales of weights are float16 numbers, which files of language models
     *  hold, embeddings stay in float, and layers without a bias get none; see
     *  sb_model_save_language(). */
    int half_scales;
    /** NULL, or stages (sb_list_get "stages"), separated by commas or spaces,
     *  after which the graph goes to the log as text. */
    const char *dump_after;
    /** Patterns of nodes and modules that stay in float, as under
     *  SKIP_TRACE_MODULES of a configuration; one that matches nothing is an
     *  error. */
    const char *const *exclude;
    size_t n_exclude;
    /** Without a config, how much is done for accuracy, as in the list
     *  "presets": "fast", "balanced" (NULL) or "best"; not beside a config,
     *  which says it itself. */
    const char *preset;
    /** It will be trained (train.h): learned quantizers are allowed, and batch
     *  norms are folded, for training to put them back. */
    int train;
    /** NULL, or what linear layers of a language model will be in a GGUF file,
     *  such as "q4_k" (any of its formats of blocks): their bits, groups and
     *  scheme are those of the format, whatever the config says.  Rows that are
     *  no multiple of 256 take formats of 32 instead, which the log says. */
    const char *gguf_type;
} sb_quant_options;

#define SB_QUANT_OPTIONS_INIT                                                \
    {                                                                        \
        sizeof(sb_quant_options), NULL, NULL, NULL, 0, SB_REDUCE_RANGE_AUTO, \
            0, 0, NULL, NULL, 0, NULL, 0, NULL                               \
    }

/** A model to quantize, in the context of `model`, which is not changed and not
 *  needed later.
 *
 *      create -> prepare_calibration -> forward ... -> calc_qparams
 *             -> set_quant -> forward ... -> export -> free
 *
 *  @param opt NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_quant_model_create(const sb_model *model,
                                                   const sb_quant_options *opt,
                                                   sb_quant_model **out);
/** Frees a quantized model; NULL is allowed. */
SB_API void sb_quant_model_free(sb_quant_model *qm);

/** Options of sb_quant_model_prepare_calibration().  Start from
 *  SB_CALIBRATION_OPTIONS_INIT. */
typedef struct sb_calibration_options {
    size_t struct_size; /**< set by the INIT macro */
    /** What is quantized in the part of the network before the value that is
     *  observed; neither: observers see the float network. */
    int asym_weights, asym_activations;
    /** With asym_activations: bytes of activations to keep in memory at most;
     *  more go to a temporary file (in TMPDIR).  0: 512 MB. */
    size_t memory_limit;
    /** A folder that is made for weights whose rounding calc_qparams() has
     *  decided, and for blocks that it has learned, or NULL.  If it is there
     *  from a run with the same model, samples and settings that was ended,
     *  that run goes on.  Folder and text must stay until the model is freed or
     *  end_journal() was called. */
    const char *journal;
    uint64_t seed; /**< of methods that draw samples at random */
} sb_calibration_options;

#define SB_CALIBRATION_OPTIONS_INIT                      \
    {                                                    \
        sizeof(sb_calibration_options), 0, 0, 0, NULL, 0 \
    }

/** From now on forward() observes; what was observed before is forgotten.
 *  @param opt NULL: observers see the float network */
SB_API SB_MUST_USE sb_status sb_quant_model_prepare_calibration(
    sb_quant_model *qm, const sb_calibration_options *opt);
/** Removes the folder of sb_calibration_options::journal, once what it is for
 *  is written. */
SB_API SB_MUST_USE sb_status sb_quant_model_end_journal(sb_quant_model *qm);
/** Runs once: observing while calibrating, else with the quantizers that are
 *  on.  As sb_session_run().
 *
 *  Calibrating with asym_activations it only keeps a copy of the inputs, and
 *  `outputs` are all NULL: calc_qparams() runs the network, block by block. The
 *  same where no activation is observed and no output is asked for. */
SB_API SB_MUST_USE sb_status sb_quant_model_forward(
    sb_quant_model *qm, const sb_tensor *const *inputs, size_t n_inputs,
    const sb_tensor **outputs, size_t n_outputs);
/** With several ranks (comm.h), each of which has run other samples: all get
 *  what one would have that has run all of them, those of rank 0 first.  Called
 *  by all of them before calc_qparams(), which all of them then call as well;
 *  alone nothing happens. */
SB_API SB_MUST_USE sb_status
sb_quant_model_share_calibration(sb_quant_model *qm);
/** What was observed, as a JSON file, so that scales can be computed again
 *  without data.  With asym_activations that is known after calc_qparams(). */
SB_API SB_MUST_USE sb_status
sb_quant_model_save_calibration(const sb_quant_model *qm, const char *path);
/** Adds what another calibration of the same model with the same settings has
 *  seen.  Call it before calc_qparams(), in place of forward() or beside it.
 *  Channels are not equalized then, which takes all samples. */
SB_API SB_MUST_USE sb_status sb_quant_model_load_calibration(sb_quant_model *qm,
                                                             const char *path);
/** Computes scales and zero points from what was observed and ends the
 *  calibration.  If it fails, start again with prepare_calibration(). */
SB_API SB_MUST_USE sb_status sb_quant_model_calc_qparams(sb_quant_model *qm);

/** What was done beyond scales, to lose less accuracy. */
typedef struct sb_quant_step {
    const char *name; /**< "bias correction" */
    size_t layers;    /**< how many it changed */
    /** Error of the network's outputs on some of the calibration samples,
     *  before and after it: noise / signal, the mean over outputs; that of
     *  their logarithms where outputs are probabilities.  NAN if it was not
     *  measured: the whole of a large language model would have had to be in
     *  memory. */
    double before, after;
    int kept; /**< 0: it did not help and was taken back */
} sb_quant_step;

/** The i-th step of calc_qparams(), valid until the next; NULL past the
 *  end. */
SB_API const sb_quant_step *sb_quant_model_step(const sb_quant_model *qm,
                                                size_t i);
/** Which quantizers forward() simulates; none at first. */
SB_API void sb_quant_model_set_quant(sb_quant_model *qm, int weights,
                                     int activations);
/** Does it need calibration samples: has it activations whose ranges must come
 *  from them, or weights whose rounding does?  If not (`A: none`, `A:
 *  dynamic`), calc_qparams() may follow create(). */
SB_API int sb_quant_model_needs_calibration(const sb_quant_model *qm);
/** Is calibration data of use: is there a quantizer that it would give its
 *  scale (of a file that is quantized already, one for which the file has
 *  none), or a method that runs over samples? */
SB_API int sb_quant_model_can_calibrate(const sb_quant_model *qm);
/** Does calc_qparams() learn weights in many steps (AdaRound, BLOCKWISE),
 *  beside activations that are quantized?  That takes minutes; a journal is of
 *  use. */
SB_API int sb_quant_model_learns(const sb_quant_model *qm);
/** The name of the runtime that it is made for, as in the list "targets". */
SB_API const char *sb_quant_model_target(const sb_quant_model *qm);
/** How many samples a run must have, if the network is made for just one
 *  number; 0: any. */
SB_API int64_t sb_quant_model_fixed_batch(const sb_quant_model *qm);

/** How quantized layers are written. */
typedef enum sb_export_format {
    SB_EXPORT_FORMAT_QDQ,        /**< float operators between Q and DQ nodes */
    SB_EXPORT_FORMAT_QOPERATOR,  /**< integer operators: QLinearConv, ... */
    SB_EXPORT_FORMAT_MATMULNBITS /**< `A: none`: com.microsoft MatMulNBits */
} sb_export_format;

/** Options of sb_quant_model_export().  Start from SB_EXPORT_OPTIONS_INIT. */
typedef struct sb_export_options {
    size_t struct_size; /**< set by the INIT macro */
    /** Weights as float constants behind Q and DQ, instead of integers behind
     *  DQ. */
    int float_weights;
    /** Attribute `bits` on Q and DQ nodes, as Sparsebit wrote it; ONNX Runtime
     *  refuses files with it. */
    int extra_info;
    sb_export_format format;
    /** Of the file; 0: that of the model, or the lowest above it that holds
     *  all nodes.  SB_UNSUPPORTED if this one cannot. */
    int64_t opset;
    /** Of MatMulNBits: what ONNX Runtime computes with.  1: float, faster for
     *  many rows at once; 2: float16; 3: bfloat16; 4: activations rounded to 8
     *  bits by block, faster for one row or a few; 0: the default, 4. */
    int accuracy_level;
} sb_export_options;

#define SB_EXPORT_OPTIONS_INIT                                      \
    {                                                               \
        sizeof(sb_export_options), 0, 0, SB_EXPORT_FORMAT_QDQ, 0, 0 \
    }

/** Whether the options fit the target and the mode of the model, for asking
 *  before it is calibrated.
 *  @return SB_BAD_ARG, with what does not fit */
SB_API SB_MUST_USE sb_status sb_quant_model_check_export(
    const sb_quant_model *qm, const sb_export_options *opt);
/** Writes the quantized model as an ONNX file, whole or not at all.
 *  @param opt NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_quant_model_export(
    const sb_quant_model *qm, const char *path, const sb_export_options *opt);
/** The bytes of that file; free them with sb_memory_free(). */
SB_API SB_MUST_USE sb_status sb_quant_model_export_memory(
    const sb_quant_model *qm, const sb_export_options *opt, void **out,
    size_t *size);
/** The exported network as a model, to run or inspect without a file. */
SB_API SB_MUST_USE sb_status sb_quant_model_export_model(
    const sb_quant_model *qm, const sb_export_options *opt, sb_model **out);

/** A quantizer on an edge of the network. */
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
 *  each; free it with sb_memory_free(). */
SB_API SB_MUST_USE sb_status sb_quant_model_print(const sb_quant_model *qm,
                                                  sb_graph_format format,
                                                  char **out);
/** How many quantizers there are. */
SB_API size_t sb_quant_model_quantizer_count(const sb_quant_model *qm);
/** The i-th; NULL out of range.  Valid until the scales change or the model is
 *  freed. */
SB_API const sb_quantizer_info *
sb_quant_model_quantizer(const sb_quant_model *qm, size_t i);

/** Elements of the weight that the i-th quantizer is on; 0 for activations. */
SB_API int64_t sb_quant_model_quantizer_elements(const sb_quant_model *qm,
                                                 size_t i);

/* ---- configuration ------------------------------------------------------ */

/** Reads a config (the keys of Sparsebit's qconfig.yaml and sconfig.yaml) or a
 *  data file (which has SOURCE) and checks every setting and combination.
 *  @param summary NULL, or receives what the file says, one line per setting;
 *                 free it with sb_memory_free()
 *  @return SB_IO, or SB_BAD_CONFIG with `file:line: KEY: found, allowed` */
SB_API SB_MUST_USE sb_status sb_config_check(sb_ctx *ctx, const char *path,
                                             char **summary);
/** A complete config, explained in comments; free it with sb_memory_free(). */
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

typedef struct sb_key_list sb_key_list; /* keys of a config */

/** A key and those below it; NULL gives all of a config, "data" all of a data
 *  file.
 *  @return SB_BAD_ARG if there is no such key; the message may suggest one */
SB_API SB_MUST_USE sb_status sb_config_keys(sb_ctx *ctx, const char *key,
                                            sb_key_list **out);
/** How many keys are in a list. */
SB_API size_t sb_key_list_count(const sb_key_list *keys);
/** The i-th; NULL out of range. */
SB_API const sb_config_key *sb_key_list_get(const sb_key_list *keys, size_t i);
/** Frees a list; NULL is allowed. */
SB_API void sb_key_list_free(sb_key_list *keys);

/* ---- what a runtime makes of a quantized model -------------------------- */

/** What a runtime makes of a node. */
typedef enum sb_lint_fate {
    SB_LINT_FATE_FLOAT,   /**< computes in float */
    SB_LINT_FATE_INTEGER, /**< an integer kernel replaces it and its Q/DQ */
    SB_LINT_FATE_MOVES,   /**< runs on integers as it is; its Q/DQ vanish */
    SB_LINT_FATE_ABSORBED /**< goes away: the Q or the layer beside does it */
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

/** What becomes of a model. */
typedef struct sb_lint {
    const char *target;
    size_t n_nodes; /**< all nodes but Q and DQ, in graph order */
    const sb_lint_node *const *nodes;
    size_t n_broken; /**< Q and DQ nodes that the runtime refuses */
    const sb_lint_node *const *broken;
    size_t n_weighted, n_weighted_integer;
    size_t n_q, n_dq; /**< in the file */
    /** Those that the runtime still executes; known for ONNX Runtime only. */
    int left_known;
    size_t n_q_left, n_dq_left;
} sb_lint;

/** Is the target of that name a runtime, of which it is known what it makes of
 *  a file?  0 for `virtual`, which stands for none in particular, and for names
 *  that are not in the list "targets". */
SB_API int sb_target_is_runtime(const char *target);
/** Says what the runtime `target` (see the list "targets"; NULL is the first
 *  runtime there) makes of the model.
 *  Borrowed; valid until the next call or until the model is changed. */
SB_API SB_MUST_USE sb_status sb_model_lint(sb_model *model, const char *target,
                                           const sb_lint **out);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_QUANTIZE_H */
