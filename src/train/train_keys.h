/* train_keys.h - the settings of a training run, and what follows from them
 * for each step. */
#ifndef SB_TRAIN_TRAIN_KEYS_H
#define SB_TRAIN_TRAIN_KEYS_H

#include <sparsebit/train.h>

#include "config/param.h"

typedef enum sb_train_loss {
    SB_TRAIN_LOSS_AUTO, /* cross-entropy, or the divergence from a teacher */
    SB_TRAIN_LOSS_CROSS_ENTROPY,
    /* Of elements: */
    SB_TRAIN_LOSS_MSE,
    SB_TRAIN_LOSS_L1,
    SB_TRAIN_LOSS_SMOOTH_L1,
    SB_TRAIN_LOSS_BCE
} sb_train_loss;

typedef struct sb_train_keys {
    int64_t epochs, accumulate, recompute, early_stop, checkpoint;
    int64_t bn_batches, calibrate;
    int64_t class_axis;
    int optimizer, schedule, bn;
    int loss; /* an sb_train_loss */
    bool nesterov;
    double rate, momentum, beta1, beta2, epsilon, decay;
    double warmup, gamma, smoothing, temperature, clip, average, scale_rate;
    double labels, mixup;
    int64_t freeze_norms;
    sb_param_floats milestones;
    sb_param_strings train, freeze, features;
    double feature_weight;
    const char *output; /* that the loss is of; NULL: the only one */
} sb_train_keys;

extern const sb_param_def sb_train_table[];

/* Reads file and text (either may be NULL); the document holds lists and must
 * live as long as the keys.  Optimizer and rate are settled: what is right
 * where none is given depends on whether quantizers are trained. */
SB_MUST_USE sb_status sb_train_keys_read(sb_ctx *ctx, const char *path,
                                         const char *text, bool quantized,
                                         sb_yaml_doc **doc, sb_yaml_doc **other,
                                         sb_train_keys *out);
/* What a learner is made with. */
void sb_train_keys_learner(const sb_train_keys *keys, sb_learn_options *out);

/* schedule.c: the learning rate of step `step` of an epoch of `steps`. */
double sb_train_rate(const sb_train_keys *keys, size_t epoch, size_t step,
                     size_t steps);

#endif
