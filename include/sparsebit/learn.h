/* learn.h - training networks: gradients, optimizer steps, parameters by name.
 * Part of sparsebit.h, whose rules hold. */
#ifndef SPARSEBIT_LEARN_H
#define SPARSEBIT_LEARN_H

#include <sparsebit/run.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sb_learner sb_learner; /* a model that is being trained */

/* ---- options ------------------------------------------------------------ */

/** What is made small: a mean over all rows (samples, pixels, tokens). */
typedef enum sb_learn_loss {
    SB_LEARN_LOSS_CROSS_ENTROPY, /**< target: classes, int32 or int64 */
    SB_LEARN_LOSS_MSE,           /**< target: floats of the output's shape */
    SB_LEARN_LOSS_KL,            /**< target: logits of a teacher */
    /** None: the caller computes it between sb_learner_forward() and
     *  sb_learner_backward(). */
    SB_LEARN_LOSS_CUSTOM,
    SB_LEARN_LOSS_L1,        /**< as MSE, magnitudes of differences */
    SB_LEARN_LOSS_SMOOTH_L1, /**< half the squares below 1, L1 - 1/2 above */
    /** Target: probabilities of independent labels, floats of the output's
     *  shape.  A Sigmoid in front of the output is skipped. */
    SB_LEARN_LOSS_BCE
} sb_learn_loss;

/** How parameters follow their gradients. */
typedef enum sb_optimizer {
    SB_OPTIMIZER_SGD,  /**< with momentum and `nesterov`, as PyTorch's */
    SB_OPTIMIZER_ADAM, /**< decay is added to the gradient */
    SB_OPTIMIZER_ADAMW /**< decay multiplies the parameter */
} sb_optimizer;

/** What batch normalization goes by while a model is trained. */
typedef enum sb_learn_norm {
    SB_LEARN_NORM_BATCH,  /**< statistics of the batch; running ones follow */
    SB_LEARN_NORM_FROZEN, /**< running statistics, which stay as they are */
    SB_LEARN_NORM_MODEL   /**< as `training_mode` of each node says */
} sb_learn_norm;

/** Settings of the parameters whose names match a pattern. */
typedef struct sb_learn_group {
    size_t struct_size;  /**< set by the INIT macro */
    const char *pattern; /**< `*`, `?` and `[a-z]` as in a shell */
    double rate;         /**< times the learning rate; negative: 1 */
    double decay;        /**< weight decay; negative: as the options say */
} sb_learn_group;

#define SB_LEARN_GROUP_INIT                     \
    {                                           \
        sizeof(sb_learn_group), "*", -1.0, -1.0 \
    }

/** Options of sb_learner_create().  Start from SB_LEARN_OPTIONS_INIT. */
typedef struct sb_learn_options {
    size_t struct_size; /**< set by the INIT macro */
    sb_learn_loss loss;
    /** Which output the loss is of; NULL: the only one.  A Softmax or
     *  LogSoftmax in front of it is skipped by losses over classes. */
    const char *loss_output;
    /** Which axis of it counts the classes, negative: from the end; 0: that of
     *  the Softmax, else 1. */
    int class_axis;
    double label_smoothing; /**< 0 to 1 */
    int64_t ignore_index;   /**< labels that do not count */
    double temperature;     /**< of SB_LEARN_LOSS_KL */
    sb_optimizer optimizer;
    double learning_rate;
    double momentum; /**< of SGD */
    int nesterov;
    double beta1, beta2, epsilon; /**< of Adam */
    /** Of weights of rank 2 or more.  Biases, parameters of normalizations and
     *  quantization scales have none unless a group says so. */
    double weight_decay;
    double clip_norm; /**< most that the norm of all gradients is; 0: any */
    double ema_decay; /**< of a moving average of all parameters; 0: none */
    sb_learn_norm norm;
    int dropout; /**< Dropout nodes drop elements, at random */
    /** Patterns of the parameters to train; none: all.  A constant of type
     *  float that is named here is one. */
    const char *const *train;
    size_t n_train;
    /** Patterns of those that stay as they are, running statistics included. */
    const char *const *freeze;
    size_t n_freeze;
    /** A parameter belongs to the last group that matches it. */
    const sb_learn_group *const *groups;
    size_t n_groups;
    size_t accumulate; /**< sb_learner_step() calls that make one update */
    /** Forward passes of so many blocks are computed again in the backward
     *  pass, instead of being kept; 0: none. */
    size_t recompute;
    int exact;     /**< no approximations that round differently (Winograd) */
    int profile;   /**< measure every step; see sb_learner_profile() */
    uint64_t seed; /**< of Dropout */
    double scale_rate; /**< of quantization scales, times the learning rate */
    /** Names of intermediate results that are to be like those of a teacher,
     *  see sb_learner_set_features(). */
    const char *const *features;
    size_t n_features;
    /** What the mean over them of mean squared differences is multiplied by
     *  before it is added to the loss. */
    double feature_weight;
    /** With several ranks (comm.h): each has a stage of the network, blocks
     *  that follow each other, and every batch goes through them in so many
     *  pieces, one behind another.  All ranks give the whole batch, and get the
     *  loss; what a rank has learned the others know after
     *  sb_learner_collect().  For labels only.  0: each rank has all of the
     *  network. */
    size_t pipeline;
} sb_learn_options;

#define SB_LEARN_OPTIONS_INIT                                                  \
    {                                                                          \
        sizeof(sb_learn_options), SB_LEARN_LOSS_CROSS_ENTROPY, NULL, 0, 0.0,   \
            -100, 1.0, SB_OPTIMIZER_SGD, 0.01, 0.9, 0, 0.9, 0.999, 1e-8, 0.0,  \
            0.0, 0.0, SB_LEARN_NORM_BATCH, 1, NULL, 0, NULL, 0, NULL, 0, 1, 0, \
            0, 0, 0, 1.0, NULL, 0, 1.0, 0                                      \
    }

/* ---- life --------------------------------------------------------------- */

/** Makes a model ready to be trained, in its context: adds the loss and the
 *  nodes that compute gradients.  The model is copied and not needed later.
 *  @param opt NULL for the defaults
 *  @return SB_UNSUPPORTED, with all nodes that cannot be learned through;
 *          SB_BAD_ARG for a pattern that matches nothing */
SB_API SB_MUST_USE sb_status sb_learner_create(const sb_model *model,
                                               const sb_learn_options *opt,
                                               sb_learner **out);
/** Frees a learner; NULL is allowed. */
SB_API void sb_learner_free(sb_learner *learner);

/* ---- training ----------------------------------------------------------- */

/** One step: loss, gradients, and an update of the parameters (or each
 *  `accumulate`-th time, with the mean of the gradients since the last).  If it
 *  fails or is interrupted, parameters, statistics and moments are as before
 *  it; a loss or gradient that is not finite fails with SB_BAD_DATA and the
 *  first node that made such a value.
 *
 *  With several ranks (comm.h) all make the step together, each with as many
 *  samples of its own: loss, gradients, and statistics of batch normalization
 *  are those of all samples.
 *  @param inputs one for each input of the model, as in sb_session_run()
 *  @param target what the loss compares with
 *  @param loss   receives it, before the update; may be NULL */
SB_API SB_MUST_USE sb_status sb_learner_step(sb_learner *learner,
                                             const sb_tensor *const *inputs,
                                             size_t n_inputs,
                                             const sb_tensor *target,
                                             double *loss);
/** The same with samples and labels of a data set. */
SB_API SB_MUST_USE sb_status sb_learner_step_batch(sb_learner *learner,
                                                   const sb_batch *batch,
                                                   double *loss);
/** The same with another target than the labels, for example what a teacher
 *  says of the samples. */
SB_API SB_MUST_USE sb_status sb_learner_step_batch_to(sb_learner *learner,
                                                      const sb_batch *batch,
                                                      const sb_tensor *target,
                                                      double *loss);
/** What `features` of the options are to be like in the next step, one tensor
 *  of floats for each, of its shape; borrowed until that step is done. */
SB_API SB_MUST_USE sb_status sb_learner_set_features(
    sb_learner *learner, const sb_tensor *const *features, size_t n);
/** Loss and gradients alone: nothing changes but what sb_parameter_info calls
 *  gradient. */
SB_API SB_MUST_USE sb_status sb_learner_gradient(sb_learner *learner,
                                                 const sb_tensor *const *inputs,
                                                 size_t n_inputs,
                                                 const sb_tensor *target,
                                                 double *loss);
/** The first half of a step with SB_LEARN_LOSS_CUSTOM: the outputs, borrowed
 *  until the next call on the learner.
 *  @param inputs    borrowed until sb_learner_backward() has returned
 *  @param n_outputs as the model has, or fewer: the first ones; NULL is put
 *                   for those that no loss can be of: not of floats, or not
 *                   `loss_output` */
SB_API SB_MUST_USE sb_status sb_learner_forward(sb_learner *learner,
                                                const sb_tensor *const *inputs,
                                                size_t n_inputs,
                                                const sb_tensor **outputs,
                                                size_t n_outputs);
/** The second half: gradients from those of the outputs, and the update.
 *  @param gradients of the loss with respect to the first outputs, floats of
 *                   their shapes; NULL: zero, as those behind the n-th are */
SB_API SB_MUST_USE sb_status sb_learner_backward(
    sb_learner *learner, const sb_tensor *const *gradients, size_t n);
/** The value that the loss of the last step was computed from (logits);
 *  borrowed until the next call on the learner; NULL if there is none, and with
 *  a pipeline. */
SB_API const sb_tensor *sb_learner_output(const sb_learner *learner);

/** The learning rate from the next step on. */
SB_API void sb_learner_set_learning_rate(sb_learner *learner, double rate);
/** The learning rate. */
SB_API double sb_learner_learning_rate(const sb_learner *learner);
/** How many updates there were. */
SB_API int64_t sb_learner_updates(const sb_learner *learner);
/** The norm of all gradients at the last update, before clipping. */
SB_API double sb_learner_gradient_norm(const sb_learner *learner);
/** What batch normalization goes by from the next step on. */
SB_API SB_MUST_USE sb_status sb_learner_set_norm(sb_learner *learner,
                                                 sb_learn_norm norm);
/** Bytes of workspace (activations and gradients of them) of the last step. */
SB_API size_t sb_learner_workspace(const sb_learner *learner);
/** What steps with the last input shapes cost, forward and backward nodes and
 *  the update; as sb_session_profile(). */
SB_API SB_MUST_USE sb_status sb_learner_profile(sb_learner *learner,
                                                const sb_profile **out);

/* ---- evaluating --------------------------------------------------------- */

/** Which numbers a trained network has. */
typedef enum sb_learn_values {
    SB_LEARN_VALUES_LAST,   /**< those of the last update */
    SB_LEARN_VALUES_AVERAGE /**< their moving average; see `ema_decay` */
} sb_learn_values;

/** Runs the network in inference form with the present parameters, in place:
 *  nothing is copied.  As sb_session_run().
 *  @return SB_UNSUPPORTED with a pipeline */
SB_API SB_MUST_USE sb_status sb_learner_eval(
    sb_learner *learner, sb_learn_values values, const sb_tensor *const *inputs,
    size_t n_inputs, const sb_tensor **outputs, size_t n_outputs);
/** The same with samples of a data set; outputs have as many as the batch. */
SB_API SB_MUST_USE sb_status sb_learner_eval_batch(sb_learner *learner,
                                                   sb_learn_values values,
                                                   const sb_batch *batch,
                                                   const sb_tensor **outputs,
                                                   size_t n_outputs);
/** A copy of the model as it was given, in inference form, with the present
 *  parameters; the caller frees it. */
SB_API SB_MUST_USE sb_status sb_learner_model(const sb_learner *learner,
                                              sb_learn_values values,
                                              sb_model **out);
/** The graph that is run in a step (forward, loss, backward), before it is
 *  fused, as a model to print or inspect; the caller frees it. */
SB_API SB_MUST_USE sb_status sb_learner_graph(sb_learner *learner,
                                              sb_model **out);

/* ---- parameters --------------------------------------------------------- */

/** What a parameter is. */
typedef enum sb_parameter_role {
    SB_PARAMETER_ROLE_WEIGHT,   /**< weight, bias, table ... of a layer */
    SB_PARAMETER_ROLE_SCALE,    /**< scale or zero point of a quantizer */
    SB_PARAMETER_ROLE_STATISTIC /**< running mean or variance: no gradient */
} sb_parameter_role;

/** A parameter; valid as long as the learner, its tensors until the next call
 *  that changes them. */
typedef struct sb_parameter_info {
    const char *name; /**< as in the file */
    sb_parameter_role role;
    int trained;  /**< changes in steps */
    double rate;  /**< times the learning rate */
    double decay; /**< weight decay */
    const sb_tensor *value;
    const sb_tensor *gradient; /**< of the last step; NULL if it has none */
    const sb_tensor *average;  /**< NULL without `ema_decay` */
} sb_parameter_info;

/** How many parameters there are, frozen ones included. */
SB_API size_t sb_learner_parameter_count(const sb_learner *learner);
/** The i-th, in the order in which nodes read them; NULL out of range. */
SB_API const sb_parameter_info *sb_learner_parameter(const sb_learner *learner,
                                                     size_t i);
/** The one of that name, or NULL. */
SB_API const sb_parameter_info *
sb_learner_find_parameter(const sb_learner *learner, const char *name);
/** Gives a trained parameter other elements, which are copied. */
SB_API SB_MUST_USE sb_status sb_learner_set_parameter(sb_learner *learner,
                                                      const char *name,
                                                      const sb_tensor *value);
/** Holds elements of a trained parameter at zero: those where the mask is 0,
 *  now and after every update, in moments and averages as well.  Saved and
 *  loaded with the rest.
 *  @param mask floats of the parameter's shape, which are copied */
SB_API SB_MUST_USE sb_status sb_learner_set_mask(sb_learner *learner,
                                                 const char *name,
                                                 const sb_tensor *mask);
/** The mask of a parameter, or NULL. */
SB_API const sb_tensor *sb_learner_mask(const sb_learner *learner,
                                        const char *name);
/** A text of the caller's that is saved and loaded with the rest: what else
 *  must be known to go on.  It is copied. */
SB_API SB_MUST_USE sb_status sb_learner_set_note(sb_learner *learner,
                                                 const char *text);
/** That text; "" if there is none.  Valid until it is set or loaded. */
SB_API const char *sb_learner_note(const sb_learner *learner);
/** Writes all that steps have changed (parameters, moments, counters) as one
 *  .npz archive, whole or not at all.  Loading it goes on to the last bit. */
SB_API SB_MUST_USE sb_status sb_learner_save(const sb_learner *learner,
                                             const char *path);
/** Takes over what sb_learner_save() wrote for the same model and optimizer; if
 *  it fails the learner is as it was.
 *  @return SB_BAD_DATA, with the first name that differs */
SB_API SB_MUST_USE sb_status sb_learner_load(sb_learner *learner,
                                             const char *path);
/** With several ranks (comm.h): all take over what rank 0 has of all this, the
 *  note included.  Called by all of them; alone nothing happens. */
SB_API SB_MUST_USE sb_status sb_learner_share(sb_learner *learner);
/** With a pipeline: all ranks take over what each has learned of its stage, so
 *  that the model and the archive of any of them are complete.  Called by all
 *  of them; else nothing happens. */
SB_API SB_MUST_USE sb_status sb_learner_collect(sb_learner *learner);
/** Does the learner compute with the constant of that name?  With a pipeline
 *  only those of its stage. */
SB_API int sb_learner_reads(const sb_learner *learner, const char *name);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_LEARN_H */
