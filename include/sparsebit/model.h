/* model.h - networks: loading, saving, building, inspecting, simplifying.  Part
 * of sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_MODEL_H
#define SPARSEBIT_MODEL_H

#include <sparsebit/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_model sb_model; /* one ONNX network */

/* ---- loading and saving ------------------------------------------------- */

/** Reads an ONNX file, checks it, upgrades it to one opset, infers shapes.
 *
 *  Operators that the library does not know are kept; sb_model_info_get() lists
 *  them.  Graph inputs that have an initializer are constants and no inputs,
 *  which the log is told; sb_model_load_with() can keep them.
 *  @param path external tensor data is looked up beside it
 *  @return SB_IO, SB_BAD_MODEL, SB_UNSUPPORTED or SB_NO_MEMORY on failure */
SB_API SB_MUST_USE sb_status sb_model_load(sb_ctx *ctx, const char *path,
                                           sb_model **out);

/** Options of sb_model_load_with().  Start from SB_LOAD_OPTIONS_INIT. */
typedef struct sb_load_options {
    size_t struct_size; /**< set by the INIT macro */
    /** Inputs that have an initializer stay inputs: a run may give another
     *  tensor for them, or NULL for what the file says.  Nothing that reads
     *  them is folded or quantized then. */
    int keep_inputs;
    /** Of a language model: unpacks only the packed weights of stage `part` of
     *  `parts`, blocks that follow each other, as a pipeline of so many ranks
     *  trains them (learn.h); those of other stages take no memory.  Weights
     *  that are not packed stay in the mapped file anyway.  Such a model can
     *  only be trained in that pipeline, and its adapters saved.  `parts` 0 or
     *  1: all. */
    size_t part, parts;
} sb_load_options;

#define SB_LOAD_OPTIONS_INIT             \
    {                                    \
        sizeof(sb_load_options), 0, 0, 0 \
    }

/** The same with options.
 *  @param opt NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_model_load_with(sb_ctx *ctx, const char *path,
                                                const sb_load_options *opt,
                                                sb_model **out);
/** The same from memory, which is copied.
 *  @param folder where external tensor data is looked up; NULL: a model that
 *                has some is refused with SB_BAD_ARG */
SB_API SB_MUST_USE sb_status sb_model_load_memory(sb_ctx *ctx, const void *data,
                                                  size_t size,
                                                  const char *folder,
                                                  sb_model **out);
/** A model from the text form that sb_model_print() writes. */
SB_API SB_MUST_USE sb_status sb_model_parse(sb_ctx *ctx, const char *text,
                                            sb_model **out);
/** A copy in `ctx`, which may be another context than the model's: the way to
 *  use one model on several threads.  Weights are shared, not copied, so the
 *  context of the original must be freed last.  The original is only read:
 *  several threads may clone it at the same time. */
SB_API SB_MUST_USE sb_status sb_model_clone(sb_ctx *ctx, const sb_model *model,
                                            sb_model **out);
/** Writes an ONNX file whole or not at all.  Weights beyond 2 GB go to a file
 *  beside it, `<name>.<hash of its bytes>.data`, so that the file that is
 *  replaced and its data stay a pair until the new pair is complete.  Data of
 *  the file that was replaced is removed if it is called `<name>.data`, or so
 *  with a hash. */
SB_API SB_MUST_USE sb_status sb_model_save(const sb_model *model,
                                           const char *path);
/** The bytes of that file; free them with sb_memory_free().
 *  @return SB_UNSUPPORTED beyond 2 GB */
SB_API SB_MUST_USE sb_status sb_model_save_memory(const sb_model *model,
                                                  void **out, size_t *size);
/** The opset to save the model in, 7 to 25, instead of the one it was loaded
 *  with.  Operators that it does not have are written out where that can be
 *  done; if it fails the model is as it was.
 *  @return SB_UNSUPPORTED, naming a node that the opset cannot hold */
SB_API SB_MUST_USE sb_status sb_model_set_opset(sb_model *model, int64_t opset);
/** Whether constants that are mostly zero are saved as sparse initializers,
 *  where that makes the file smaller: the elements that are not zero and their
 *  places, of 8 bytes each.  Off unless it is set. */
SB_API void sb_model_set_sparse(sb_model *model, int on);
/** Bytes of the model file and its external data; 0 if it came from memory. */
SB_API uint64_t sb_model_file_bytes(const sb_model *model);
/** Frees a model; NULL is allowed. */
SB_API void sb_model_free(sb_model *model);

/* ---- building -----------------------------------------------------------
 * Values are referred to by name. */

/** An empty model. */
SB_API SB_MUST_USE sb_status sb_model_create(sb_ctx *ctx, const char *name,
                                             sb_model **out);
/** Adds an input; a dimension of -1 is unknown. */
SB_API SB_MUST_USE sb_status sb_model_add_input(sb_model *model,
                                                const char *name,
                                                sb_dtype dtype, int rank,
                                                const int64_t *dims);
/** Adds a weight; the elements are copied. */
SB_API SB_MUST_USE sb_status sb_model_add_constant(sb_model *model,
                                                   const char *name,
                                                   const sb_tensor *tensor);
/** Adds a node behind all others.
 *  @param op      "Conv"; "com.microsoft::Gelu" for another domain
 *  @param inputs  names of values that exist; NULL or "" for an absent one
 *  @param outputs names of the new values; NULL or "" for an absent one
 *  @param attrs   `kernel_shape=[3,3], group=2, mode="linear"`, or NULL */
SB_API SB_MUST_USE sb_status sb_model_add_node(
    sb_model *model, const char *op, const char *const *inputs, size_t n_inputs,
    const char *const *outputs, size_t n_outputs, const char *attrs);
/** Makes a value that exists an output. */
SB_API SB_MUST_USE sb_status sb_model_add_output(sb_model *model,
                                                 const char *name);
/** Checks the built model and infers its shapes; call it once at the end.
 *  Inputs and outputs are known after it. */
SB_API SB_MUST_USE sb_status sb_model_finish(sb_model *model);

/** Options of sb_model_new().  Start from SB_NEW_OPTIONS_INIT. */
typedef struct sb_new_options {
    size_t struct_size; /**< set by the INIT macro */
    int64_t channels;   /**< of the image; 0: as is usual for the network */
    int64_t height, width;
    int64_t classes;
    uint64_t seed; /**< the same seed gives the same weights */
} sb_new_options;

#define SB_NEW_OPTIONS_INIT                   \
    {                                         \
        sizeof(sb_new_options), 0, 0, 0, 0, 0 \
    }

/** An untrained network to start training with (sb_list_get "nets" lists
 *  them), with random weights: input "image" [N, C, H, W], output "logits"
 *  [N, classes].
 *  @param name "resnet20"
 *  @param opt  NULL for the usual sizes and seed 0 */
SB_API SB_MUST_USE sb_status sb_model_new(sb_ctx *ctx, const char *name,
                                          const sb_new_options *opt,
                                          sb_model **out);

/* ---- inspecting ---------------------------------------------------------
 * What these functions return belongs to the model and is valid until the model
 * is changed or freed, or the same question is asked again. */

/** A value: an input, an output, a weight or what a node computes. */
typedef struct sb_value_info {
    const char *name;
    sb_dtype dtype;      /**< SB_DTYPE_NONE if unknown or not a tensor */
    int rank;            /**< -1 if unknown */
    const int64_t *dims; /**< -1 where not a number */
    const char *text;    /**< "float[N,3,224,224]" */
    int is_input;        /**< of the model */
    int is_output;       /**< of the model */
    int is_constant;     /**< has elements: see sb_model_weight(); of an input:
                              the default, see sb_load_options */
    size_t producer;     /**< which node computes it; SB_NO_INDEX: none */
    size_t n_consumers;  /**< inputs of nodes that read it */
} sb_value_info;

/** No such node, input or output. */
#define SB_NO_INDEX ((size_t)-1)

/** How many inputs the model has. */
SB_API size_t sb_model_input_count(const sb_model *model);
/** How many outputs it has. */
SB_API size_t sb_model_output_count(const sb_model *model);
/** The i-th input; NULL out of range. */
SB_API const sb_value_info *sb_model_input(const sb_model *model, size_t i);
/** The i-th output; NULL out of range. */
SB_API const sb_value_info *sb_model_output(const sb_model *model, size_t i);
/** The number of the input of that name, or SB_NO_INDEX. */
SB_API size_t sb_model_find_input(const sb_model *model, const char *name);
/** The number of the output of that name, or SB_NO_INDEX. */
SB_API size_t sb_model_find_output(const sb_model *model, const char *name);

/** Kinds of attributes; the numbers are ONNX's. */
typedef enum sb_attr_type {
    SB_ATTR_NONE = 0,
    SB_ATTR_FLOAT = 1,
    SB_ATTR_INT = 2,
    SB_ATTR_STRING = 3,
    SB_ATTR_TENSOR = 4,
    SB_ATTR_GRAPH = 5,
    SB_ATTR_FLOATS = 6,
    SB_ATTR_INTS = 7,
    SB_ATTR_STRINGS = 8,
    SB_ATTR_TENSORS = 9,
    SB_ATTR_GRAPHS = 10,
    SB_ATTR_OPAQUE = 100 /**< sparse tensors, type protos: kept, not read */
} sb_attr_type;

/** An attribute of a node.  Only the members of its type are set. */
typedef struct sb_attr_info {
    const char *name;
    sb_attr_type type;
    size_t n;                        /**< elements; 1 for single ones */
    const float *floats;             /**< FLOAT, FLOATS */
    const int64_t *ints;             /**< INT, INTS */
    const char *const *strings;      /**< STRING, STRINGS; NUL-terminated */
    const sb_tensor *const *tensors; /**< TENSOR, TENSORS */
} sb_attr_info;

/** A node.  Bodies of If, Loop and Scan are not walked into. */
typedef struct sb_node_info {
    const char *name;   /**< "" if the file gives none */
    const char *op;     /**< "Conv" */
    const char *domain; /**< "" for ai.onnx */
    const char *module; /**< "layer1.0.conv1"; "" if unknown */
    size_t n_inputs, n_outputs;
    const char *const *inputs;  /**< names of values; "" for an absent one */
    const char *const *outputs; /**< likewise */
    size_t n_attrs;
    const sb_attr_info *const *attrs;
} sb_node_info;

/** All nodes in an order in which they can run. */
SB_API SB_MUST_USE sb_status sb_model_nodes(sb_model *model,
                                            const sb_node_info *const **out,
                                            size_t *n);
/** All values that are an input or an output, have elements, or come from a
 *  node. */
SB_API SB_MUST_USE sb_status sb_model_values(sb_model *model,
                                             const sb_value_info *const **out,
                                             size_t *n);
/** The elements of a weight; NULL if no constant has that name. */
SB_API const sb_tensor *sb_model_weight(const sb_model *model,
                                        const char *name);
/** Gives a weight other elements, which are copied; type and shape must stay.
 *  Sessions that exist keep the old ones. */
SB_API SB_MUST_USE sb_status sb_model_set_weight(sb_model *model,
                                                 const char *name,
                                                 const sb_tensor *tensor);

/** Number of entries in the metadata. */
SB_API size_t sb_model_metadata_count(const sb_model *model);
/** The i-th key; NULL out of range. */
SB_API const char *sb_model_metadata_key(const sb_model *model, size_t i);
/** The text under a key; NULL if there is none. */
SB_API const char *sb_model_metadata(const sb_model *model, const char *key);
/** Sets the text under a key, or removes it if `value` is NULL. */
SB_API SB_MUST_USE sb_status sb_model_set_metadata(sb_model *model,
                                                   const char *key,
                                                   const char *value);

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
     *  file does not say at that place. */
    const char *granularity;
    size_t values;
    int64_t elements; /**< of weights */
} sb_quant_count;

/** What is in a model. */
typedef struct sb_model_info {
    const char *name, *producer, *doc;
    int64_t ir_version;
    int64_t opset;  /**< in the file */
    size_t nodes;   /**< sub-graphs included */
    int64_t params; /**< elements of all weights (int64, bool: not counted) */
    uint64_t weight_bytes;
    uint64_t file_bytes; /**< model file with its external data; 0 if it came
                              from memory */
    double macs;         /**< with unknown dimensions taken as 1 */
    int macs_assumed;    /**< were there such dimensions? */
    size_t n_ops, n_modules;
    const sb_count *const *ops;     /**< sorted by name */
    const sb_count *const *modules; /**< in order of appearance */
    /* Of a quantized file; all 0 in others. */
    size_t quantize_nodes, dequantize_nodes;
    size_t integer_nodes; /**< QLinearConv and similar */
    const char *target;   /**< "sparsebit.target" in its metadata, or "" */
    size_t n_quant_weights, n_quant_activations;
    const sb_quant_count *const *quant_weights; /**< in order of appearance */
    const sb_quant_count *const *quant_activations;
} sb_model_info;

/** Counts what is in a model. */
SB_API SB_MUST_USE sb_status sb_model_info_get(sb_model *model,
                                               const sb_model_info **out);

/** How many elements of float weights are subnormal, too small for full
 *  precision: runtimes take a hundred times longer over each of them, unless
 *  they take them for zero, as sb_session_run() does.  sb_model_simplify()
 *  makes them zero.  Reads all weights. */
SB_API int64_t sb_model_count_subnormals(const sb_model *model);

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
 *  biases are left out. */
SB_API SB_MUST_USE sb_status sb_model_list_quantized(
    sb_model *model, const sb_quant_value *const **out, size_t *n);

/** Forms in which a graph is printed. */
typedef enum sb_graph_format {
    SB_GRAPH_FORMAT_TEXT,   /**< read back by sb_model_parse() */
    SB_GRAPH_FORMAT_DOT,    /**< Graphviz */
    SB_GRAPH_FORMAT_MERMAID /**< for Markdown pages */
} sb_graph_format;

/** The graph as text; free it with sb_memory_free(). */
SB_API SB_MUST_USE sb_status sb_model_print(const sb_model *model,
                                            sb_graph_format format, char **out);

/* ---- fixing inputs ------------------------------------------------------ */

/** Gives an input this shape for good and infers the others from it.  If it
 *  fails the model is as it was.
 *  @return SB_BAD_ARG if the file says otherwise, SB_BAD_MODEL if nodes cannot
 *          have it */
SB_API SB_MUST_USE sb_status sb_model_fix_shape(sb_model *model,
                                                const char *name, int rank,
                                                const int64_t *dims);
/** Makes an input a constant with these elements, which are copied: it is no
 *  input any more.  sb_model_simplify() then folds what depends on it, such as
 *  the choice of an If.  If it fails the model is as it was.
 *  @param value of the input's type, and of a shape that the file allows */
SB_API SB_MUST_USE sb_status sb_model_fix_value(sb_model *model,
                                                const char *name,
                                                const sb_tensor *value);

/* ---- passes ------------------------------------------------------------- */

/** What one pass did. */
typedef struct sb_pass_result {
    const char *name;
    size_t changes;
    double seconds;
} sb_pass_result;

/** Options of sb_model_simplify().  Start from SB_SIMPLIFY_OPTIONS_INIT. */
typedef struct sb_simplify_options {
    size_t struct_size;     /**< set by the INIT macro */
    const char *passes;     /**< pipeline or pass names separated by commas */
    const char *dump_after; /**< NULL, or a pass after which to log the graph */
} sb_simplify_options;

#define SB_SIMPLIFY_OPTIONS_INIT                      \
    {                                                 \
        sizeof(sb_simplify_options), "simplify", NULL \
    }

/** Runs graph passes in place until nothing changes.  If it fails the model is
 *  as it was.
 *  @param opt      NULL for the defaults
 *  @param results  receives an array of the model's, one entry for each pass;
 *                  may be NULL */
SB_API SB_MUST_USE sb_status
sb_model_simplify(sb_model *model, const sb_simplify_options *opt,
                  const sb_pass_result *const **results, size_t *n_results);

/** Lets a model whose file fixes the batch to a number run with any: the first
 *  dimension of all inputs becomes symbolic, constants that repeat the number
 *  in Reshape follow, shapes are inferred anew.
 *  @param done receives 0, with the model as it was, if samples cannot be told
 *              apart by the first dimension of every input and output */
SB_API SB_MUST_USE sb_status sb_model_make_batch_dynamic(sb_model *model,
                                                         int *done);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_MODEL_H */
