/* model.h - networks: loading, saving, building, looking, simplifying.  Part of
 * sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_MODEL_H
#define SPARSEBIT_MODEL_H

#include <sparsebit/base.h>

#ifdef __cplusplus
extern "C" {
#endif

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
    int bits;       /**< in use, as far as the file tells; at most those of
                         `dtype` */
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
    uint64_t file_bytes; /**< model file with its external data; 0 if
                              it came from memory */
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

/** One quantized weight or activation. */
typedef struct sb_quant_value {
    const char *name;
    int is_weight;
    sb_dtype dtype;          /**< of the integers */
    int bits;                /**< as in sb_quant_count */
    const char *granularity; /**< as in sb_quant_count */
    size_t n_scales;         /**< 0: computed at run time */
    float scale_min, scale_max;
    float zero_min, zero_max; /**< of the zero points */
} sb_quant_value;

/** All that is quantized in a model, in the order of the nodes that read it;
 *  biases are left out.  Borrowed; valid until the model is changed or freed,
 *  or asked for sb_model_info_get(). */
SB_API SB_MUST_USE sb_status sb_model_quantized(sb_ctx *ctx, sb_model *model,
                                                const sb_quant_value **out,
                                                size_t *n);

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

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_MODEL_H */
