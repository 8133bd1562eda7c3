/* train.h - the training loop: epochs, schedules, validation, checkpoints.
 * Part of sparsebit.h, whose rules hold.  Written with learn.h and run.h alone:
 * whatever it does, a loop of your own can do. */
#ifndef SPARSEBIT_TRAIN_H
#define SPARSEBIT_TRAIN_H

#include <sparsebit/prune.h>
#include <sparsebit/quantize.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How far training has come. */
typedef struct sb_train_state {
    size_t struct_size;
    size_t epoch, epochs; /**< from 0; how many there will be */
    size_t step, steps;   /**< of this epoch: done; in all */
    double learning_rate;
    double loss;       /**< mean over the epoch so far */
    double accuracy;   /**< top-1 on the training samples so far, or on their
                            pixels; NaN: none */
    double validation; /**< after the epoch, see `metric`; NaN: not yet, none */
    double best;       /**< best validation so far; NaN: none */
    size_t best_epoch;
    double samples_per_second; /**< since the last call of this kind */
    double seconds_left;       /**< until the last epoch ends; NaN: unknown */
    double pruned; /**< share of what is to go that has gone; 1: all, or none
                        is to go */
    /** What `validation` and `best` are: "accuracy" (top-1), "mIoU" of labels
     * by pixel, "F1" of LOSS bce, which are shares; "MSE" of LOSS mse and "MAE"
     * of l1 and smooth_l1, of which the lowest is best. */
    const char *metric;
} sb_train_state;

/** Called after every step, and after every epoch (then step == steps and
 *  `validation` is known).
 *  @return 0 to go on; anything else ends training as an interrupt does */
typedef int (*sb_train_fn)(void *user, const sb_train_state *state);

typedef struct sb_train_options {
    size_t struct_size;       /**< set by the INIT macro */
    const char *options;      /**< a YAML file (docs/training.md), or NULL */
    const char *options_text; /**< YAML that stands instead of what it says */
    /** A folder for checkpoints and the log, made if it is not there; NULL:
     *  neither is written. */
    const char *folder;
    int resume; /**< go on from the checkpoint in the folder */
    const sb_model
        *teacher;      /**< learn its outputs instead of labels; or NULL */
    uint64_t seed;     /**< of dropout; samples have that of the data */
    sb_train_fn watch; /**< or NULL */
    void *watch_user;
    const char *prune;      /**< an sconfig.yaml: prune the network; or NULL */
    const char *prune_text; /**< the text of one, instead of a file; or NULL */
    /** With several ranks, of texts: `pipeline` of sb_learn_options; 0: each
     *  rank has all of the network and takes a slice of every batch. */
    size_t pipeline;
} sb_train_options;

#define SB_TRAIN_OPTIONS_INIT                                               \
    {                                                                       \
        sizeof(sb_train_options), NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, \
            NULL, NULL, 0                                                   \
    }

/** Trains a model.  With `valid` the parameters of the best epoch are kept,
 * else those of the last.  A checkpoint is written after each epoch (and in
 * between, if the options say so), whole or not at all; one that cannot be
 * written is a warning.  Resuming gives the same bytes as not having stopped,
 * for any number of threads.
 *
 * With several ranks (comm.h) all call it with the same options and data; each
 * takes a slice of every batch, and the result is that of one rank but for
 * rounding.  The first one reads and writes the folder.  If one fails, all do.
 * With `pipeline` each reads whole batches and has a stage of the network; a
 * model of which every rank has read its part only (sb_load_options) will do.
 *  @param train samples with labels, unless there is a teacher
 *  @param valid samples to validate on after each epoch; or NULL
 *  @param out   receives the trained model; the caller frees it
 *  @return SB_INTERRUPTED after a checkpoint of where it stopped; SB_BAD_DATA,
 *          with step and node, if the loss is not finite */
SB_API SB_MUST_USE sb_status sb_train(const sb_model *model, sb_data *train,
                                      sb_data *valid,
                                      const sb_train_options *opt,
                                      sb_model **out);
/** The learner that such options make, before its first step: to see which
 *  parameters there are and which would be trained.  Of the options only
 *  `options`, `options_text` and `seed` are used. */
SB_API SB_MUST_USE sb_status sb_train_learner(const sb_model *model,
                                              const sb_train_options *opt,
                                              sb_learner **out);

/* ---- quantization-aware training ---------------------------------------- */

/** What becomes of batch norms, all of which were folded into layers. */
typedef enum sb_train_bn {
    /** Restored behind convolutions if their weights have per-channel scales,
     *  else folded. */
    SB_TRAIN_BN_AUTO,
    SB_TRAIN_BN_RESTORE, /**< SB_BAD_CONFIG if a weight has no such scales */
    SB_TRAIN_BN_FOLDED   /**< trained as they were folded */
} sb_train_bn;

/** Makes a learner (learn.h) of a quantized model that was created with `train`
 *  and calibrated: its quantizers round in the forward pass, gradients pass
 *  them, and what they learn (scales, zero points, bounds) are parameters named
 *  QUANTIZER.scale and so on, of role SB_PARAMETER_ROLE_SCALE.
 *
 *      create (train = 1) -> prepare_calibration -> forward ... -> calc_qparams
 *          -> learner -> sb_learner_step ... -> take -> export
 *
 *  The model must live as long as the learner is of use to it.  The samples of
 *  the calibration are forgotten.
 *  @param opt NULL for the defaults */
SB_API SB_MUST_USE sb_status sb_quant_model_learner(sb_quant_model *qm,
                                                    const sb_learn_options *opt,
                                                    sb_train_bn bn,
                                                    sb_learner **out);
/** Gives the quantized model what its learner has learned: weights, biases and
 *  scales, with norms folded.  May be called again. */
SB_API SB_MUST_USE sb_status sb_quant_model_take(sb_quant_model *qm,
                                                 const sb_learner *learner,
                                                 sb_learn_values values);

/** How the exported network compares with the one that was trained: its first
 *  output on up to 1,000 samples of the validation set, or else of the training
 *  set. */
typedef struct sb_train_check {
    size_t struct_size; /**< set by the INIT macro */
    size_t samples;
    double
        agreement; /**< share of samples whose greatest element is the same */
    double error;  /**< norm of the difference / norm of the output */
} sb_train_check;

#define SB_TRAIN_CHECK_INIT             \
    {                                   \
        sizeof(sb_train_check), 0, 0, 0 \
    }

/** Trains a quantized model that was created with `train`: calibrates it, if it
 *  has no scales yet, trains as sb_train() does, measures restored norms once
 *  more, takes what was learned, and checks what it exports.
 *  @param check receives the result of that; SB_TRAIN_CHECK_INIT before, or
 * NULL
 *  @return as sb_train() */
SB_API SB_MUST_USE sb_status sb_quant_model_train(sb_quant_model *qm,
                                                  sb_data *train,
                                                  sb_data *valid,
                                                  const sb_train_options *opt,
                                                  sb_train_check *check);

#ifdef __cplusplus
}
#endif
#endif /* SPARSEBIT_TRAIN_H */
