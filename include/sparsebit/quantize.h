/* quantize.h - quantization, its configuration, and what runtimes make of the
 * result.  Part of sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_QUANTIZE_H
#define SPARSEBIT_QUANTIZE_H

#include <sparsebit/base.h>
#include <sparsebit/model.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    /** Samples will be given.  Without them, and without a config, a file that
     *  quantizes weights alone, or activations at each run, stays what it is;
     *  with them its activations are calibrated. */
    int calibrate;
} sb_quant_options;

#define SB_QUANT_OPTIONS_INIT                                     \
    {                                                             \
        sizeof(sb_quant_options), NULL, NULL, 0, SB_REDUCE_OFF, 0 \
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
    /** Histograms of large activations count all values, not a part of them
     *  (docs/observers.md); slower. */
    int all_values;
} sb_calibration_options;

#define SB_CALIBRATION_OPTIONS_INIT                            \
    {                                                          \
        sizeof(sb_calibration_options), 0, 0, 0, NULL, NULL, 0 \
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

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_QUANTIZE_H */
