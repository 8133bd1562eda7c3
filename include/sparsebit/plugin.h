/* plugin.h - operators, passes, observers, quantizers, criteria and data
 * sources that a program adds to a context.  Not part of sparsebit.h; its rules
 * hold.
 *
 * Each kind is a struct of facts and functions that is copied when it is added
 * and lives as long as the context.  Names and other texts must stay valid that
 * long.  What is added is found where the library's own things are: by the
 * names in a model, in sb_simplify_options.passes, in a configuration or in a
 * data file; sb_list_get() lists it.  A name that the library or another
 * plug-in has already is refused (SB_BAD_ARG).  Add before models are loaded
 * and configurations are read.  Another context knows nothing of it, also after
 * sb_model_clone().
 *
 * Functions are called on the thread that called the library, unless the struct
 * says otherwise, and must not call functions on other objects of the context.
 * A status other than SB_OK ends the call of the library with it; the message
 * is that of the function's own sb_..._fail() call. */
#ifndef SPARSEBIT_PLUGIN_H
#define SPARSEBIT_PLUGIN_H

#include <sparsebit/sparsebit.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- operators ---------------------------------------------------------- */

typedef struct sb_op_call sb_op_call; /* one node, while a function runs */

/** An operator.  Quantization leaves it in float; it is written to files as it
 *  was read. */
typedef struct sb_op_plugin {
    size_t struct_size; /**< set by the INIT macro */
    const char *domain; /**< "com.example"; not "" */
    const char *name;
    void *user; /**< first argument of the functions */
    int min_inputs, max_inputs;
    int min_outputs, max_outputs;
    /** Says the types of all outputs with sb_op_set_output(), as far as they
     *  are known: while a model is loaded, dimensions may be unknown; before a
     *  run all are numbers, and all outputs must be said. */
    sb_status (*infer)(void *user, sb_op_call *call);
    /** Computes the outputs from the inputs. */
    sb_status (*run)(void *user, sb_op_call *call);
} sb_op_plugin;

#define SB_OP_PLUGIN_INIT                                              \
    {                                                                  \
        sizeof(sb_op_plugin), NULL, NULL, NULL, 0, 0, 1, 1, NULL, NULL \
    }

/** Adds an operator to a context. */
SB_API SB_MUST_USE sb_status sb_ctx_add_op(sb_ctx *ctx,
                                           const sb_op_plugin *plugin);
/** Inputs of the node, absent ones included. */
SB_API size_t sb_op_input_count(const sb_op_call *call);
/** Outputs of the node, absent ones included. */
SB_API size_t sb_op_output_count(const sb_op_call *call);
/** The type of an input; 0 if it is absent.
 *  @param rank receives -1 if it is unknown
 *  @param dims receives rank numbers, room for SB_RANK_MAX.  A negative one
 *              stands for a dimension that is not known yet; handed on to
 *              sb_op_set_output() it means the same dimension */
SB_API int sb_op_input_type(const sb_op_call *call, size_t i, sb_dtype *dtype,
                            int *rank, int64_t *dims);
/** Says the type of an output; only in infer().  rank -1 if it is unknown. */
SB_API SB_MUST_USE sb_status sb_op_set_output(sb_op_call *call, size_t i,
                                              sb_dtype dtype, int rank,
                                              const int64_t *dims);
/** An input; NULL if it is absent, in infer() also if its elements are not
 *  known. */
SB_API const sb_tensor *sb_op_input(const sb_op_call *call, size_t i);
/** An output to write; NULL if nothing reads it; only in run(). */
SB_API sb_tensor *sb_op_output(sb_op_call *call, size_t i);
/** An integer attribute, or `preset` if the node does not have it. */
SB_API int64_t sb_op_attr_int(const sb_op_call *call, const char *name,
                              int64_t preset);
/** A float attribute, or `preset`. */
SB_API float sb_op_attr_float(const sb_op_call *call, const char *name,
                              float preset);
/** A string attribute, or `preset`. */
SB_API const char *sb_op_attr_string(const sb_op_call *call, const char *name,
                                     const char *preset);
/** An attribute of integers; NULL, and *n 0, if the node does not have it. */
SB_API const int64_t *sb_op_attr_ints(const sb_op_call *call, const char *name,
                                      size_t *n);
/** Records why the node failed, in one line; its name is put before it.
 *  @return `status`, so that a function can return the call */
SB_API sb_status sb_op_fail(sb_op_call *call, sb_status status,
                            const char *message);

/* ---- passes ------------------------------------------------------------- */

/** A pass over the graph of a model; bodies of If, Loop and Scan are not
 *  visited. */
typedef struct sb_pass_plugin {
    size_t struct_size; /**< set by the INIT macro */
    const char *name;
    const char *summary; /**< one line */
    void *user;
    /** Changes the model and adds to *changes how often: called again until
     *  nothing changes.  The model must not be freed, cloned or kept; of the
     *  functions in model.h those that inspect and build may be called. */
    sb_status (*run)(void *user, sb_model *model, size_t *changes);
} sb_pass_plugin;

#define SB_PASS_PLUGIN_INIT                            \
    {                                                  \
        sizeof(sb_pass_plugin), NULL, NULL, NULL, NULL \
    }

/** Adds a pass to a context. */
SB_API SB_MUST_USE sb_status sb_ctx_add_pass(sb_ctx *ctx,
                                             const sb_pass_plugin *plugin);
/** All nodes that read `from` read `to` instead.  If `from` is an output of the
 *  model, `to` takes its name and place.
 *  @param done receives 0, with nothing changed, where that cannot be: `to` is
 *              an input, a constant or an output itself */
SB_API SB_MUST_USE sb_status sb_model_replace_value(sb_model *model,
                                                    const char *from,
                                                    const char *to, int *done);
/** Removes the node that computes the value `output`; what still reads its
 *  results must be told to read something else before. */
SB_API SB_MUST_USE sb_status sb_model_remove_node(sb_model *model,
                                                  const char *output);
/** Sets attributes of the node that computes `output`, in the form of
 *  sb_model_add_node(). */
SB_API SB_MUST_USE sb_status sb_model_set_attrs(sb_model *model,
                                                const char *output,
                                                const char *attrs);

/* ---- observers and quantizers ------------------------------------------- */

/** A number that a configuration may set: the key OBSERVER.<NAME>.<KEY> or
 *  QUANTIZER.<NAME>.<KEY>, with the name of the plug-in in capitals. */
typedef struct sb_plugin_param {
    size_t struct_size; /**< set by the INIT macro */
    const char *key;    /**< "ALPHA" */
    const char *help;   /**< one line */
    double preset;      /**< if the configuration does not set it */
    double min, max;    /**< both 0: no limit */
} sb_plugin_param;

#define SB_PLUGIN_PARAM_INIT                         \
    {                                                \
        sizeof(sb_plugin_param), NULL, NULL, 0, 0, 0 \
    }

/** What an observer has seen of one channel (of one tensor, if there is one
 *  scale for all).  Of a weight `x` are its values.  Of an activation `x` are
 *  the centers of the bins of a histogram that are not empty, ascending, and
 *  `count` says how many values each stands for. */
typedef struct sb_observer_values {
    int is_weight;
    int bits;             /**< of the quantizer */
    int is_symmetric;     /**< is its zero point 0? */
    size_t channel;       /**< from 0 */
    const double *params; /**< in the order of sb_observer_plugin.params */
    float least, most;    /**< of all values, exact */
    size_t n;
    const float *x;      /**< [n] */
    const double *count; /**< [n]; NULL: 1 each */
    double bin_width;    /**< 0 for a weight */
} sb_observer_values;

/** An observer, by its name under OBSERVER.TYPE of a configuration. */
typedef struct sb_observer_plugin {
    size_t struct_size;  /**< set by the INIT macro */
    const char *name;    /**< lower case */
    const char *summary; /**< one line */
    void *user;
    int for_weights, for_activations; /**< what it may watch */
    /** May range() be called on any thread, several times at once? */
    int on_threads;
    const sb_plugin_param *const *params;
    size_t n_params;
    /** Says the range to quantize; it need not contain zero.  Another status,
     *  or no range, ends the call of the library with SB_BAD_DATA. */
    sb_status (*range)(void *user, const sb_observer_values *values,
                       float *least, float *most);
} sb_observer_plugin;

#define SB_OBSERVER_PLUGIN_INIT                                              \
    {                                                                        \
        sizeof(sb_observer_plugin), NULL, NULL, NULL, 1, 1, 0, NULL, 0, NULL \
    }

/** Adds an observer to a context. */
SB_API SB_MUST_USE sb_status
sb_ctx_add_observer(sb_ctx *ctx, const sb_observer_plugin *plugin);

/** A quantizer, by its name under QUANTIZER.TYPE of a configuration.  Values
 *  are brought into another domain, observed and rounded there. */
typedef struct sb_quantizer_plugin {
    size_t struct_size;  /**< set by the INIT macro */
    const char *name;    /**< lower case */
    const char *summary; /**< one line */
    void *user;
    int for_weights, for_activations; /**< what it may quantize */
    const sb_plugin_param *const *params;
    size_t n_params;
    /** (optional) Brings a weight of n elements into the domain, in place. */
    void (*map_weight)(void *user, const double *params, float *weight,
                       size_t n);
    /** (optional) The operator that does so with an activation: one input, one
     *  output of the same shape, no attributes; "Tanh", or one of a plug-in as
     *  "com.example::Name". */
    const char *map_activation;
} sb_quantizer_plugin;

#define SB_QUANTIZER_PLUGIN_INIT                                            \
    {                                                                       \
        sizeof(sb_quantizer_plugin), NULL, NULL, NULL, 1, 1, NULL, 0, NULL, \
            NULL                                                            \
    }

/** Adds a quantizer to a context. */
SB_API SB_MUST_USE sb_status
sb_ctx_add_quantizer(sb_ctx *ctx, const sb_quantizer_plugin *plugin);

/* ---- criteria ----------------------------------------------------------- */

/** A criterion for pruning, by its name under SPARSER.STRATEGY of a
 *  configuration.  What scores lowest is pruned first; what is not a finite
 *  number stays.  At least one of both functions must be set; another status
 *  ends the call of the library with SB_BAD_DATA. */
typedef struct sb_criterion_plugin {
    size_t struct_size;  /**< set by the INIT macro */
    const char *name;    /**< lower case */
    const char *summary; /**< one line */
    void *user;
    /** (optional) Scores the channels that a weight makes: out[i] for index i
     *  along `axis` of the weight.  Scores of a weight are compared with those
     *  of others after division by their mean. */
    sb_status (*score)(void *user, const sb_tensor *weight, int axis,
                       double *out);
    /** (optional) Scores each element of a weight, for TYPE unstructured. */
    sb_status (*weigh)(void *user, const sb_tensor *weight, float *out);
} sb_criterion_plugin;

#define SB_CRITERION_PLUGIN_INIT                                  \
    {                                                             \
        sizeof(sb_criterion_plugin), NULL, NULL, NULL, NULL, NULL \
    }

/** Adds a criterion to a context. */
SB_API SB_MUST_USE sb_status
sb_ctx_add_criterion(sb_ctx *ctx, const sb_criterion_plugin *plugin);

/* ---- data sources ------------------------------------------------------- */

typedef struct sb_source_call sb_source_call; /* a data set being opened */

/** A source of samples, by its name under SOURCE in a data file. */
typedef struct sb_source_plugin {
    size_t struct_size; /**< set by the INIT macro */
    const char *name;
    const char *summary; /**< one line */
    void *user;
    /** Looks for what there is and says it with sb_source_set_count().
     *  @param state receives what the other functions get */
    sb_status (*open)(void *user, sb_source_call *call, void **state);
    /** (optional) Called once for each successful open(). */
    void (*close)(void *user, void *state);
    /** The tensors of sample `i`, without the axis that counts samples.  They
     *  stay the plug-in's, valid until the next call on the state. */
    sb_status (*sample)(void *user, void *state, size_t i,
                        const sb_tensor **tensors);
} sb_source_plugin;

#define SB_SOURCE_PLUGIN_INIT                                        \
    {                                                                \
        sizeof(sb_source_plugin), NULL, NULL, NULL, NULL, NULL, NULL \
    }

/** Adds a data source to a context. */
SB_API SB_MUST_USE sb_status sb_ctx_add_source(sb_ctx *ctx,
                                               const sb_source_plugin *plugin);
/** How many entries PATH has. */
SB_API size_t sb_source_path_count(const sb_source_call *call);
/** The i-th, relative to the folder of the data file; NULL out of range. */
SB_API const char *sb_source_path_get(sb_source_call *call, size_t i);
/** How many samples there are, and how many tensors each has.
 *  @param names of the model inputs that the tensors are for, copied; NULL: by
 *               position
 *  @param labels one for each sample, -1 if unknown, copied; or NULL */
SB_API SB_MUST_USE sb_status sb_source_set_count(sb_source_call *call,
                                                 size_t n_samples,
                                                 size_t n_tensors,
                                                 const char *const *names,
                                                 const int64_t *labels);
/** Records why the data set cannot be opened, in one line; the data file and
 *  the line of SOURCE are put before it.
 *  @return `status`, so that open() can return the call */
SB_API sb_status sb_source_open_fail(sb_source_call *call, sb_status status,
                                     const char *message);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_PLUGIN_H */
