/* The training loop. */
#include "train/trainer.h"

#include <math.h>
#include <string.h>

#include "api/model.h"
#include "base/options.h"
#include "base/ranks/comm.h"
#include "base/str.h"
#include "eval/eval.h"

sb_learn_values sb_trainer_values(const sb_trainer *t)
{
    return t->keys.average > 0 ? SB_LEARN_VALUES_AVERAGE : SB_LEARN_VALUES_LAST;
}

/* ---- right answers ------------------------------------------------------ */

/* How many rows of `scores`, [N, classes], are greatest at their class; those
 * of class -1 do not count in *seen. */
static size_t count_right(const sb_tensor *scores, const int64_t *classes,
                          size_t n, size_t *seen)
{
    const int64_t *dims = scores ? sb_tensor_dims(scores) : NULL;
    size_t right = 0;

    if (!scores || !classes || !sb_dtype_is_float(scores->dtype) ||
        sb_tensor_rank(scores) < 2 || dims[0] != (int64_t)n || dims[1] < 1 ||
        sb_tensor_elements(scores) != dims[0] * dims[1])
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (classes[i] < 0)
            continue;
        right += sb_eval_largest(scores, (int64_t)i * dims[1], dims[1], 1) ==
                 classes[i];
        ++*seen;
    }
    return right;
}

/* The classes that samples of a batch should have: the labels, else what the
 * teacher says; in memory of the caller. */
static sb_status batch_classes(sb_trainer *t, const sb_batch *batch,
                               int64_t *out)
{
    if (t->teacher && (!batch->labels || batch->labels[0] < 0))
        return sb_distill_classes(t, batch, out);
    for (size_t i = 0; i < batch->count; i++)
        out[i] = batch->labels ? batch->labels[i] : -1;
    return SB_OK;
}

/* Counts of all ranks. */
static sb_status sum_counts(const sb_trainer *t, size_t *right, size_t *seen)
{
    double counts[] = {(double)*right, (double)*seen};

    SB_TRY(sb_comm_sum_f64(t->ctx, counts, SB_COUNT(counts)));
    *right = (size_t)counts[0];
    *seen = (size_t)counts[1];
    return SB_OK;
}

/* Of the output that is learned; that there is one, the learner has checked. */
static size_t output_index(const sb_trainer *t)
{
    size_t i = 0, n = sb_model_output_count(t->model);

    while (t->keys.output && i + 1 < n &&
           strcmp(sb_model_output(t->model, i)->name, t->keys.output) != 0)
        i++;
    return i;
}

/* Top-1 on the validation samples, or what fits their targets; NaN if they have
 * none. */
static sb_status validate_epoch(sb_trainer *t, double *out)
{
    size_t right = 0, seen = 0, cap = 0;
    const sb_batch *batch = NULL;
    const sb_tensor **outputs = NULL;
    int64_t *classes = NULL;
    size_t n = output_index(t) + 1;
    sb_eval *e = NULL; /* of targets */

    *out = (double)NAN;
    outputs = sb_alloc(t->ctx, n, sizeof *outputs);
    if (!outputs)
        return SB_NO_MEMORY;
    sb_status status = sb_eval_create(t->ctx, 1, NULL, &e);
    sb_data_rewind(t->valid);
    while (status == SB_OK &&
           (status = sb_data_next(t->valid, &batch)) == SB_OK && batch->count) {
        status = sb_learner_eval_batch(t->learner, sb_trainer_values(t), batch,
                                       outputs, n);
        if (status == SB_OK && sb_targets_metric_wanted(t, batch)) {
            status = sb_targets_validate(t, e, batch, outputs[n - 1]);
            continue;
        }
        if (status == SB_OK)
            status =
                sb_grow(t->ctx, &classes, &cap, batch->count, sizeof *classes);
        if (status == SB_OK)
            status = batch_classes(t, batch, classes);
        if (status != SB_OK)
            break;
        right += count_right(outputs[n - 1], classes, batch->count, &seen);
    }
    if (status == SB_OK)
        *out = sb_targets_metric(t, e);
    sb_eval_free(e);
    sb_free(t->ctx, classes);
    sb_free(t->ctx, outputs);
    SB_TRY(status);
    SB_TRY(sum_counts(t, &right, &seen));
    if (seen > 0)
        *out = (double)right / (double)seen;
    return SB_OK;
}

/* ---- telling ------------------------------------------------------------ */

static double share_right(const sb_train_progress *at)
{
    return at->seen ? (double)at->right / (double)at->seen : (double)NAN;
}

static double epoch_seconds(const sb_trainer *t)
{
    return t->at.seconds + sb_seconds_now() - t->began;
}

/* Tells the caller; `validation` is NaN within an epoch. */
static sb_status tell_watcher(sb_trainer *t, size_t samples, double seconds,
                              double validation)
{
    const sb_train_progress *at = &t->at;
    double done = (double)at->step / (double)t->steps;
    double left = (double)t->keys.epochs - (double)at->epoch - done;
    sb_train_state s = {
        .struct_size = sizeof s,
        .epoch = at->epoch,
        .epochs = (size_t)t->keys.epochs,
        .step = at->step,
        .steps = t->steps,
        .learning_rate = sb_learner_learning_rate(t->learner),
        .loss = at->step ? at->loss / (double)at->step : (double)NAN,
        .accuracy = share_right(at),
        .validation = validation,
        .best = at->best,
        .best_epoch = at->best_epoch,
        .samples_per_second = seconds > 0 ? (double)samples / seconds : 0,
        .seconds_left = done > 0 ? epoch_seconds(t) / done * left : (double)NAN,
        .pruned = t->prune ? t->share : 1,
        .metric = sb_targets_metric_name(t),
    };

    if (t->opt.watch && t->opt.watch(t->opt.watch_user, &s) != 0)
        return sb_fail(t->ctx, SB_INTERRUPTED, "training was ended");
    return SB_OK;
}

/* ---- steps and epochs --------------------------------------------------- */

static sb_status learn_batch(sb_trainer *t, const sb_batch *batch)
{
    sb_train_progress *at = &t->at;
    double loss = 0;
    size_t cap = 0, right = 0, seen = 0;
    int64_t *classes = NULL;

    sb_learner_set_learning_rate(
        t->learner, sb_train_rate(&t->keys, at->epoch, at->step, t->steps));
    sb_status status =
        batch->text_from > 0          ? sb_train_text_step(t, batch, &loss)
        : sb_targets_wanted(t, batch) ? sb_targets_step(t, batch, &loss)
        : sb_soft_wanted(&t->keys, t->teacher != NULL)
            ? sb_soft_step(t, batch, &loss)
            : sb_learner_step_batch(t->learner, batch, &loss);
    if (status != SB_OK)
        return sb_note(t->ctx, status, "in step %zu of epoch %zu", at->step + 1,
                       at->epoch + 1);
    SB_TRY(sb_grow(t->ctx, &classes, &cap, batch->count, sizeof *classes));
    status = batch_classes(t, batch, classes);
    if (status == SB_OK && batch->targets)
        sb_targets_count(t, batch, &right, &seen);
    else if (status == SB_OK && !sb_targets_metric_wanted(t, batch))
        right = count_right(sb_learner_output(t->learner), classes,
                            batch->count, &seen);
    sb_free(t->ctx, classes);
    SB_TRY(status);
    SB_TRY(sum_counts(t, &right, &seen));
    at->right += right;
    at->seen += seen;
    at->loss += loss;
    at->step++;
    return SB_OK;
}

/* The next batch of full size; samples that do not fill one are left out. */
static sb_status next_batch(sb_trainer *t, const sb_batch **out)
{
    SB_TRY(sb_data_next(t->train, out));
    if ((*out)->count == 0)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "only %zu of %zu batches can be made: samples are "
                       "broken, or differ in size",
                       t->at.step, t->steps);
    return SB_OK;
}

static sb_status run_steps(sb_trainer *t)
{
    sb_train_progress *at = &t->at;
    double since = sb_seconds_now();

    sb_data_start_epoch(t->train, at->epoch);
    for (size_t i = 0; i < t->steps; i++) {
        const sb_batch *batch = NULL;
        bool moved = false;

        if (t->prune && i == at->step)
            SB_TRY(sb_train_prune_step(t, &moved));
        if (moved) {
            sb_data_start_epoch(t->train, at->epoch);
            i = 0;
        }
        SB_TRY(next_batch(t, &batch));
        if (i < at->step) /* of an epoch that is resumed */
            continue;
        SB_TRY(learn_batch(t, batch));
        double now = sb_seconds_now();
        size_t samples =
            batch->count * (t->opt.pipeline ? 1 : (size_t)sb_ctx_ranks(t->ctx));
        SB_TRY(tell_watcher(t, samples, now - since, (double)NAN));
        since = now;
        if (t->keys.checkpoint && at->step < t->steps &&
            (at->epoch * t->steps + at->step) % (size_t)t->keys.checkpoint ==
                0) {
            SB_TRY(sb_learner_collect(t->learner));
            sb_checkpoint_save(t);
        }
    }
    return SB_OK;
}

static sb_status keep_best(sb_trainer *t, double validation)
{
    sb_train_progress *at = &t->at;

    if (!isnan(at->best) &&
        !(sb_targets_less_is_better(t) ? validation < at->best
                                       : validation > at->best)) {
        at->worse++;
        return SB_OK;
    }
    sb_model_free(t->best);
    t->best = NULL;
    SB_TRY(sb_learner_model(t->learner, sb_trainer_values(t), &t->best));
    at->best = validation;
    at->best_epoch = at->epoch;
    at->worse = 0;
    sb_checkpoint_save_best(t);
    return SB_OK;
}

static sb_status end_epoch(sb_trainer *t)
{
    sb_train_progress *at = &t->at;
    double validation = (double)NAN;

    if (t->valid)
        SB_TRY(validate_epoch(t, &validation));
    if (!isnan(validation) && (!t->prune || t->share >= 1))
        SB_TRY(keep_best(t, validation));
    at->rows[at->epoch] = (sb_train_row){
        .rate = sb_learner_learning_rate(t->learner),
        .loss = at->loss / (double)t->steps,
        .accuracy = share_right(at),
        .validation = validation,
        .seconds = epoch_seconds(t),
    };
    /* A run that is ended here goes on with the next epoch. */
    sb_status status = tell_watcher(t, 0, 0, validation);
    at->epoch++;
    at->step = 0;
    at->loss = 0;
    at->right = at->seen = 0;
    at->seconds = 0;
    t->began = sb_seconds_now();
    sb_train_log_write(t);
    if (status == SB_OK)
        status = sb_learner_collect(t->learner);
    if (status == SB_OK)
        sb_checkpoint_save(t);
    return status;
}

/* A run that had ended before it was resumed tells its last epoch again. */
static sb_status tell_ended(sb_trainer *t)
{
    const sb_train_row *row = &t->at.rows[t->at.epoch - 1];
    const sb_train_progress all = t->at;

    t->at.epoch--;
    t->at.step = t->steps;
    t->at.loss = row->loss * (double)t->steps;
    sb_status status = tell_watcher(t, 0, 0, row->validation);
    t->at = all;
    return status;
}

static sb_status run_epochs(sb_trainer *t)
{
    const sb_train_keys *keys = &t->keys;

    t->began = sb_seconds_now();
    if (t->at.epoch == (size_t)keys->epochs)
        return tell_ended(t);
    while (t->at.epoch < (size_t)keys->epochs) {
        if (keys->early_stop && t->at.worse >= (size_t)keys->early_stop)
            break;
        if (keys->freeze_norms >= 0 &&
            t->at.epoch >= (size_t)keys->freeze_norms)
            SB_TRY(sb_learner_set_norm(t->learner, SB_LEARN_NORM_FROZEN));
        SB_TRY(run_steps(t));
        SB_TRY(end_epoch(t));
    }
    return SB_OK;
}

/* ---- one run ------------------------------------------------------------ */

/* Each rank takes its part of the samples. */
static sb_status share_samples(const sb_trainer *t, int rank, int ranks)
{
    if (t->opt.pipeline)
        return SB_OK;
    SB_TRY(sb_data_share(t->train, SB_DATA_PART_SLICES, rank, ranks));
    return t->valid ? sb_data_share(t->valid, SB_DATA_PART_BATCHES, rank, ranks)
                    : SB_OK;
}

void sb_trainer_close(sb_trainer *t)
{
    sb_model_free(t->best);
    sb_prune_free(t->prune);
    sb_str_free(&t->pruning);
    sb_distill_close(t);
    sb_tensor_free(t->target);
    sb_learner_free(t->learner);
    sb_model_free(t->source);
    sb_free(t->ctx, t->at.rows);
    sb_yaml_free(t->other_doc);
    sb_yaml_free(t->doc);
}

static sb_status count_steps(sb_trainer *t)
{
    size_t samples = sb_data_count(t->train);
    size_t batch = sb_data_batch_size(t->train);

    if (batch > samples)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "batches of %zu samples cannot be made of the %zu to "
                       "train on: want a smaller BATCH",
                       batch, samples);
    t->steps = samples / batch;
    return SB_OK;
}

/* All pieces of a batch are of the same size. */
static sb_status check_pipeline(const sb_trainer *t, bool text)
{
    size_t batch = sb_data_batch_size(t->train);

    if (t->opt.pipeline == 0)
        return SB_OK;
    if (!text || t->qm || t->opt.prune || t->opt.prune_text)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "a pipeline is for language models: the samples are %s",
                       !text ? "no texts"
                             : "learned without quantizers and pruning");
    if (batch % t->opt.pipeline != 0)
        return sb_fail(t->ctx, SB_BAD_ARG,
                       "batches of %zu samples cannot be cut into %zu pieces "
                       "of the same size for a pipeline",
                       batch, t->opt.pipeline);
    return SB_OK;
}

static sb_status check_samples(const sb_trainer *t, bool text)
{
    if (text && (t->opt.teacher || t->keys.mixup > 0))
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "texts are learned without a teacher and without MIXUP");
    if (text && t->valid)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "texts are learned without validation samples: "
                       "evaluate the result with `eval`");
    if (!text && (!t->opt.teacher || t->keys.labels > 0) &&
        !sb_data_has_labels(t->train))
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "the samples have no labels: give LABELS in the data "
                       "file, or a teacher");
    SB_TRY(sb_targets_check(t));
    return check_pipeline(t, text);
}

static sb_status trainer_open(sb_trainer *t)
{
    sb_learn_options learn = SB_LEARN_OPTIONS_INIT;

    SB_TRY(sb_train_keys_read(t->ctx, t->opt.options, t->opt.options_text,
                              t->qm != NULL, &t->doc, &t->other_doc, &t->keys));
    SB_TRY(count_steps(t));
    bool text = sb_data_text_from(t->train) > 0;
    SB_TRY(check_samples(t, text));
    sb_train_keys_learner(&t->keys, &learn);
    learn.seed = t->opt.seed;
    learn.pipeline = t->opt.pipeline;
    learn.class_axis = text ? -1 : learn.class_axis;
    if (sb_soft_wanted(&t->keys, t->opt.teacher != NULL) &&
        learn.loss == SB_LEARN_LOSS_CROSS_ENTROPY)
        learn.loss = SB_LEARN_LOSS_KL;
    if (!t->opt.teacher)
        learn.temperature = 1;
    t->network = sb_train_mark_network(t->model);
    if (!t->opt.pipeline)
        SB_TRY(sb_train_mark(t->model, NULL, &t->weights));
    if (t->opt.teacher)
        SB_TRY(sb_train_mark(t->opt.teacher, NULL, &t->teacher_weights));
    if (t->opt.prune || t->opt.prune_text)
        SB_TRY(sb_train_prune_open(t));
    SB_TRY(sb_distill_features(t, &learn));
    SB_TRY(sb_data_set_model(t->train, t->model));
    if (t->valid)
        SB_TRY(sb_data_set_model(t->valid, t->model));
    SB_TRY(t->qm ? sb_train_quant_open(t, &learn)
                 : sb_learner_create(t->model, &learn, &t->learner));
    if (t->opt.pipeline)
        SB_TRY(sb_train_mark(t->model, t->learner, &t->weights));
    if (t->prune)
        SB_TRY(sb_train_prune_attach(t));
    t->at.rows = sb_alloc(t->ctx, (size_t)t->keys.epochs, sizeof *t->at.rows);
    if (!t->at.rows)
        return SB_NO_MEMORY;
    t->at.best = (double)NAN;
    if (t->opt.teacher)
        SB_TRY(sb_distill_open(t));
    SB_TRY(sb_checkpoint_compare(t));
    SB_TRY(share_samples(t, sb_ctx_rank(t->ctx), sb_ctx_ranks(t->ctx)));
    if (!t->opt.folder)
        return sb_learner_share(t->learner);
    if (t->opt.resume) {
        SB_TRY(sb_checkpoint_load(t));
        if (t->prune)
            sb_train_prune_resume(t);
        return SB_OK;
    }
    SB_TRY(sb_checkpoint_folder(t));
    return sb_learner_share(t->learner);
}

/* What was learned since the last checkpoint is not lost, and the message says
 * how to go on. */
static sb_status save_interrupted(sb_trainer *t)
{
    bool whole = true;

    sb_ctx_clear_interrupt(t->ctx);
    if (t->opt.pipeline && sb_ctx_ranks(t->ctx) > 1) {
        sb_comm_give_up(t->ctx); /* tells those that were not interrupted */
        whole =
            sb_comm_reopen(t->ctx) && sb_learner_collect(t->learner) == SB_OK;
    }
    if (whole)
        sb_checkpoint_save(t);
    sb_ctx_interrupt(t->ctx);
    if (!whole && !t->saved)
        return sb_fail(t->ctx, SB_INTERRUPTED,
                       "interrupted in step %zu of epoch %zu; nothing was "
                       "saved, since not all ranks could go on",
                       t->at.step + 1, t->at.epoch + 1);
    if (!whole)
        return sb_fail(t->ctx, SB_INTERRUPTED,
                       "interrupted in step %zu of epoch %zu; %s holds what "
                       "was there at the last checkpoint (--resume)",
                       t->at.step + 1, t->at.epoch + 1, t->opt.folder);
    if (t->at.epoch == (size_t)t->keys.epochs)
        return sb_fail(t->ctx, SB_INTERRUPTED,
                       "interrupted after the last epoch; %s holds all of it "
                       "(--resume)",
                       t->opt.folder);
    return sb_fail(t->ctx, SB_INTERRUPTED,
                   "interrupted in step %zu of epoch %zu; %s holds all until "
                   "then (--resume)",
                   t->at.step + 1, t->at.epoch + 1, t->opt.folder);
}

sb_status sb_trainer_model(sb_trainer *t, sb_model **out)
{
    sb_model *model = t->best;

    t->best = NULL;
    if (!model)
        SB_TRY(sb_learner_model(t->learner, sb_trainer_values(t), &model));
    if (t->prune)
        SB_TRY(sb_train_prune_finish(t, &model));
    *out = model;
    return SB_OK;
}

sb_status sb_trainer_run(sb_trainer *t, const sb_model *model)
{
    t->model = model;
    sb_str_init(&t->pruning, t->ctx);
    sb_status status = trainer_open(t);
    if (status == SB_OK) {
        status = run_epochs(t);
        if (status == SB_INTERRUPTED && t->opt.folder)
            status = save_interrupted(t);
    }
    if (status == SB_OK && sb_ctx_ranks(t->ctx) > 1)
        status = share_samples(t, 0, 1); /* what follows, each does alone */
    if (status != SB_OK) {
        sb_checkpoint_leave(t);
        sb_comm_give_up(t->ctx);
    }
    return status;
}

sb_status sb_train_learner(const sb_model *model,
                           const sb_train_options *options, sb_learner **out)
{
    const sb_train_options defaults = SB_TRAIN_OPTIONS_INIT;
    sb_learn_options learn = SB_LEARN_OPTIONS_INIT;
    sb_yaml_doc *doc = NULL, *other = NULL;
    sb_train_options opt;
    sb_train_keys keys;

    SB_TRY(sb_options_read(model->ctx, "sb_train_options", options, &defaults,
                           sizeof opt, &opt));
    sb_status status = sb_train_keys_read(
        model->ctx, opt.options, opt.options_text, false, &doc, &other, &keys);
    if (status == SB_OK) {
        sb_train_keys_learner(&keys, &learn);
        learn.seed = opt.seed;
        status = sb_learner_create(model, &learn, out);
    }
    sb_yaml_free(other);
    sb_yaml_free(doc);
    return status;
}

sb_status sb_train(const sb_model *model, sb_data *train, sb_data *valid,
                   const sb_train_options *options, sb_model **out)
{
    const sb_train_options defaults = SB_TRAIN_OPTIONS_INIT;
    sb_ctx *ctx = model->ctx;
    sb_trainer t = {.ctx = ctx, .train = train, .valid = valid};

    SB_TRY(sb_options_read(ctx, "sb_train_options", options, &defaults,
                           sizeof t.opt, &t.opt));
    sb_status status = sb_trainer_run(&t, model);
    if (status == SB_OK)
        status = sb_trainer_model(&t, out);
    sb_trainer_close(&t);
    return status;
}
