/* trainer.h - one training run.
 *
 * Everything that decides how it goes on is in the learner's parameters and in
 * `sb_train_progress`; a checkpoint is both in one file, so there is no moment
 * at which they do not fit together. */
#ifndef SB_TRAIN_TRAINER_H
#define SB_TRAIN_TRAINER_H

#include <sparsebit/comm.h>

#include "base/str.h"
#include "train/train_keys.h"

/* What the log has of an epoch. */
typedef struct sb_train_row {
    double rate, loss, accuracy, validation, seconds;
} sb_train_row;

typedef struct sb_train_progress {
    size_t epoch, step;       /* the next ones */
    double loss;              /* sums over the steps of this epoch */
    size_t right, seen;       /* samples of this epoch */
    double best;              /* NaN: none */
    size_t best_epoch, worse; /* epochs since then */
    double seconds;           /* of this epoch, before the last start */
    sb_train_row *rows;       /* one for each epoch that is complete */
} sb_train_progress;

typedef enum sb_train_metric {
    SB_TRAIN_ACCURACY, /* of one class a sample */
    SB_TRAIN_IOU,      /* of a class for each pixel */
    SB_TRAIN_NUMBERS,  /* as the loss has it */
} sb_train_metric;

typedef struct sb_trainer {
    sb_ctx *ctx;
    sb_train_options opt;
    sb_train_keys keys;
    sb_yaml_doc *doc, *other_doc;
    const sb_model *model; /* in float */
    sb_quant_model *qm;    /* whose quantizers are trained, too; or NULL */
    sb_learner *learner;
    sb_session *teacher;
    const sb_tensor **teacher_out; /* of its last run */
    size_t n_teacher_out;
    const char **features; /* ours, by the names of FEATURES */
    sb_tensor *target;     /* what the loss compares with, or NULL: labels */
    sb_data *train, *valid;
    size_t steps; /* in an epoch */
    /* Marks of the network and the weights that training starts from, and of
     * the teacher's weights. */
    uint64_t network, weights, teacher_weights;
    sb_train_progress at;
    sb_model *best;
    bool best_lost;   /* its checkpoint could not be written */
    bool saved;       /* the folder holds a checkpoint of this run */
    bool made_folder; /* of checkpoints; else it was there */
    sb_prune *prune;  /* masks while training; or NULL */
    sb_model *source; /* the network that is trained, if it is not the one that
                         was given */
    sb_str pruning;   /* its settings, as in a checkpoint; empty: none */
    double share;     /* that the masks have reached */
    sb_train_metric metric; /* what is validated, as far as samples were seen */
    double began; /* the clock when this epoch began, or was resumed */
} sb_trainer;

/* Trains `model`, whose context, data and options are set; an interrupted run
 * leaves a checkpoint.  Close it in any case. */
SB_MUST_USE sb_status sb_trainer_run(sb_trainer *t, const sb_model *model);
/* The best that was learned, for the caller. */
SB_MUST_USE sb_status sb_trainer_model(sb_trainer *t, sb_model **out);
void sb_trainer_close(sb_trainer *t);

/* What is validated and kept. */
sb_learn_values sb_trainer_values(const sb_trainer *t);

/* train_mark.c: a number that models with other constants do not share but by
 * chance.  With a learner (or NULL), which has a stage of a pipeline, all ranks
 * take part, each with the constants that it reads. */
SB_MUST_USE sb_status sb_train_mark(const sb_model *model,
                                    const sb_learner *learner, uint64_t *out);

/* The same of nodes: which operators, how connected, with which attributes, as
 * the factor of adapters is one. */
uint64_t sb_train_mark_network(const sb_model *model);

/* checkpoint.c.  Failures to write are warnings. */
void sb_checkpoint_save(sb_trainer *t);
void sb_checkpoint_save_best(sb_trainer *t);
/* Has every rank the options and samples of rank 0?  Else SB_BAD_DATA. */
SB_MUST_USE sb_status sb_checkpoint_compare(const sb_trainer *t);
/* Takes over what is in the folder; SB_BAD_DATA with what differs if it is of
 * another run. */
SB_MUST_USE sb_status sb_checkpoint_load(sb_trainer *t);
/* Makes the folder; fails if it holds a run already. */
SB_MUST_USE sb_status sb_checkpoint_folder(sb_trainer *t);
/* Removes it if this run made it and nothing is in it. */
void sb_checkpoint_leave(const sb_trainer *t);

/* train_log.c: all epochs so far, as CSV and as JSON lines. */
void sb_train_log_write(const sb_trainer *t);

/* train_quant.c: a learner of the quantized model, which is calibrated first if
 * it has no scales; and its quantizers as a member of an object, for
 * checkpoints. */
SB_MUST_USE sb_status sb_train_quant_open(sb_trainer *t,
                                          const sb_learn_options *learn);
void sb_train_quant_describe(const sb_quant_model *qm, sb_str *out);

/* train_prune.c.  Opening makes `source`, which is trained, and `prune` if
 * there will be masks; the others are only called with `prune`. */
SB_MUST_USE sb_status sb_train_prune_open(sb_trainer *t);
SB_MUST_USE sb_status sb_train_prune_attach(sb_trainer *t);
/* After a checkpoint was loaded. */
void sb_train_prune_resume(sb_trainer *t);
/* Before a step: more goes, if it is time; *moved: the data set is elsewhere
 * now. */
SB_MUST_USE sb_status sb_train_prune_step(sb_trainer *t, bool *moved);
/* Cuts a trained network, which it replaces. */
SB_MUST_USE sb_status sb_train_prune_finish(sb_trainer *t, sb_model **model);

/* train_text.c: a step with samples that are texts. */
SB_MUST_USE sb_status sb_train_text_step(sb_trainer *t, const sb_batch *batch,
                                         double *loss);

/* targets.c.  Refuses, before anything is learned, what cannot be. */
SB_MUST_USE sb_status sb_targets_check(const sb_trainer *t);
/* Is the loss of such a batch not of one class a sample? */
bool sb_targets_wanted(const sb_trainer *t, const sb_batch *batch);
SB_MUST_USE sb_status sb_targets_step(sb_trainer *t, const sb_batch *batch,
                                      double *loss);
/* Of the output of the last step: pixels that are right, and that count. */
void sb_targets_count(const sb_trainer *t, const sb_batch *batch, size_t *right,
                      size_t *seen);
/* Adds a batch of validation samples to `e`. */
SB_MUST_USE sb_status sb_targets_validate(sb_trainer *t, sb_eval *e,
                                          const sb_batch *batch,
                                          const sb_tensor *output);
/* Is such a batch validated so? */
bool sb_targets_metric_wanted(const sb_trainer *t, const sb_batch *batch);
/* What is validated, its name, and whether less of it is better. */
double sb_targets_metric(const sb_trainer *t, sb_eval *e);
const char *sb_targets_metric_name(const sb_trainer *t);
bool sb_targets_less_is_better(const sb_trainer *t);

/* distill.c */
SB_MUST_USE sb_status sb_distill_open(sb_trainer *t);
/* Which results the learner learns from the teacher; for its options. */
SB_MUST_USE sb_status sb_distill_features(sb_trainer *t, sb_learn_options *out);
void sb_distill_close(sb_trainer *t);
/* t->target is what the teacher says of the batch, as logits. */
SB_MUST_USE sb_status sb_distill_target(sb_trainer *t, const sb_batch *batch);
/* Classes that the teacher sees, -1 where there are none. */
SB_MUST_USE sb_status sb_distill_classes(sb_trainer *t, const sb_batch *batch,
                                         int64_t *out);

/* soft_target.c: are targets distributions?  Then a step with them. */
bool sb_soft_wanted(const sb_train_keys *keys, bool teacher);
SB_MUST_USE sb_status sb_soft_step(sb_trainer *t, const sb_batch *batch,
                                   double *loss);
/* Labels of samples of which each is mixed with the one that stands as far from
 * the end. */
typedef struct sb_soft_rows {
    const int64_t *labels;
    size_t rows;
    int64_t classes;
    double mix;          /* share of a sample's own label */
    double smoothing;    /* share of all classes alike */
    double labels_share; /* the rest is the teacher's */
} sb_soft_rows;
/* Logarithms of distributions, [rows, classes], in the place of the teacher's
 * logits.  Returns the mean entropy, or 0 with a teacher. */
double sb_soft_fill(const sb_soft_rows *rows, float *logits);
/* The larger share of two samples, by the beta distribution. */
double sb_mixup_share(double alpha, uint64_t seed, size_t epoch, size_t step);

#endif
