/* Samples that have more than a class each: classes of pixels, numbers.
 *
 * The tensor that a loss compares with has the output's shape; data may leave
 * out dimensions of 1 (one number a sample for an output [N,1], maps of one
 * channel). */
#include <math.h>
#include <string.h>

#include "api/model.h"
#include "data/data.h"
#include "eval/eval.h"
#include "train/trainer.h"

enum { NO_CLASS = -100 }; /* ignore_index of the loss */

static bool of_elements(const sb_trainer *t)
{
    return t->keys.loss > SB_TRAIN_LOSS_CROSS_ENTROPY;
}

/* Of a teacher outputs are numbers; samples may have a class each all the
 * same, and then that is what counts in the end. */
static bool has_numbers(const sb_trainer *t, bool classes)
{
    return of_elements(t) && !(t->opt.teacher && classes);
}

sb_status sb_targets_check(const sb_trainer *t)
{
    if (t->opt.teacher && t->keys.loss == SB_TRAIN_LOSS_BCE)
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "LOSS bce is of labels: with a teacher want auto, mse, "
                       "l1 or smooth_l1");
    if (!t->valid)
        return SB_OK;
    if (of_elements(t) && !t->opt.teacher && !sb_data_has_labels(t->valid))
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "the validation samples have no labels");
    if (sb_ctx_ranks(t->ctx) > 1 &&
        (t->valid->targets || has_numbers(t, sb_data_has_labels(t->valid))))
        return sb_fail(t->ctx, SB_UNSUPPORTED,
                       "labels of this kind are validated by one rank: train "
                       "without validation samples, and evaluate the result");
    return SB_OK;
}

bool sb_targets_wanted(const sb_trainer *t, const sb_batch *batch)
{
    return !t->teacher && (batch->targets || of_elements(t));
}

/* The output that is learned, as far as the model knows it. */
static const sb_value_info *learned_output(const sb_trainer *t)
{
    const sb_value_info *out = sb_model_output(t->model, 0);

    for (size_t i = 0; t->keys.output && i < sb_model_output_count(t->model);
         i++)
        if (strcmp(sb_model_output(t->model, i)->name, t->keys.output) == 0)
            out = sb_model_output(t->model, i);
    return out;
}

/* ---- classes ------------------------------------------------------------ */

/* How many classes the output has; 0: unknown, and the loss will tell. */
static int64_t known_classes(const sb_trainer *t, const sb_tensor *labels)
{
    const sb_value_info *out = learned_output(t);
    int axis = (int)t->keys.class_axis;

    axis = axis < 0 ? axis + out->rank : axis ? axis : 1;
    return out->rank == labels->rank + 1 && axis > 0 && axis < out->rank &&
                   out->dims[axis] > 0
               ? out->dims[axis]
               : 0;
}

static sb_status fill_classes(const sb_trainer *t, const sb_batch *batch,
                              int64_t *out)
{
    const sb_tensor *labels = batch->targets;
    const int64_t *v = labels->data;
    int64_t n = sb_tensor_count(labels), classes = known_classes(t, labels);

    for (int64_t i = 0; i < n; i++) {
        if (classes && v[i] >= classes)
            return sb_fail(
                t->ctx, SB_BAD_DATA,
                "'%s' has label %lld, the network has classes 0 to %lld "
                "(IGNORE_LABEL of the data file: what does not count)",
                batch->names ? batch->names[i / (n / (int64_t)batch->count)]
                             : "a sample",
                (long long)v[i], (long long)(classes - 1));
        out[i] = v[i] < 0 ? NO_CLASS : v[i];
    }
    return SB_OK;
}

static sb_status class_target(sb_trainer *t, const sb_batch *batch)
{
    const sb_tensor *labels = batch->targets;
    const sb_value_info *out = learned_output(t);
    char found[128];

    if (labels->dtype != SB_DTYPE_I64)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "the labels are %s, no classes: want LOSS mse, l1, "
                       "smooth_l1 or bce",
                       sb_tensor_describe(labels, found, sizeof found));
    if (out->rank >= 0 && out->rank != labels->rank + 1)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "the labels are %s and '%s' is %s: want one class for "
                       "each place of it, or LOSS mse, l1, smooth_l1 or bce",
                       sb_tensor_describe(labels, found, sizeof found),
                       out->name, out->text);
    SB_TRY(sb_tensor_create(t->ctx, SB_DTYPE_I64, labels->rank, labels->dims,
                            &t->target));
    t->metric = SB_TRAIN_IOU;
    return fill_classes(t, batch, t->target->data);
}

/* ---- numbers ------------------------------------------------------------ */

/* The dimensions of `from` in the output's rank: those of 1 may be in one and
 * not in the other. */
static bool number_dims(const sb_value_info *out, const sb_tensor *from,
                        int *rank, int64_t *dims)
{
    int k = 0;

    *rank = out->rank < 0 ? from->rank : out->rank;
    for (int i = 0; i < *rank; i++) {
        int64_t want = out->rank < 0 ? -1 : out->dims[i];

        while (want > 1 && k < from->rank && from->dims[k] == 1)
            k++;
        bool same = k < from->rank && (want < 0 || want == from->dims[k]);

        if (!same && want != 1)
            return false;
        dims[i] = same ? from->dims[k++] : 1;
    }
    while (k < from->rank && from->dims[k] == 1)
        k++;
    return k == from->rank;
}

/* A loss of numbers wants one everywhere. */
static sb_status check_ignored(const sb_trainer *t, const sb_tensor *from)
{
    const int64_t *v = from->data;

    for (int64_t i = 0; i < sb_tensor_count(from); i++)
        if (from->dtype == SB_DTYPE_I64 && v[i] == SB_LABEL_IGNORED)
            return sb_fail(t->ctx, SB_BAD_DATA,
                           "a label is IGNORE_LABEL (in masks 255 unless the "
                           "data file has another), which only LOSS "
                           "cross_entropy leaves out");
    return SB_OK;
}

static sb_status check_shares(const sb_trainer *t)
{
    const float *v = t->target->data;

    for (int64_t i = 0; i < sb_tensor_count(t->target); i++)
        if (!(v[i] >= 0 && v[i] <= 1))
            return sb_fail(t->ctx, SB_BAD_DATA,
                           "LOSS bce: found a label of %g, want 0 to 1",
                           (double)v[i]);
    return SB_OK;
}

static sb_status number_target(sb_trainer *t, const sb_batch *batch)
{
    const int64_t count = (int64_t)batch->count;
    sb_tensor classes = sb_tensor_make(SB_DTYPE_I64, 1, &count);
    const sb_tensor *from = batch->targets ? batch->targets : &classes;
    const sb_value_info *out = learned_output(t);
    int64_t dims[SB_MAX_RANK];
    char found[128];
    int rank = 0;

    classes.data = (void *)(uintptr_t)batch->labels;
    if (!from->data)
        return sb_fail(t->ctx, SB_BAD_DATA, "the samples have no labels");
    t->metric = SB_TRAIN_NUMBERS;
    SB_TRY(check_ignored(t, from));
    if (!number_dims(out, from, &rank, dims))
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "the labels are %s, which does not fit '%s', %s",
                       sb_tensor_describe(from, found, sizeof found), out->name,
                       out->text);
    SB_TRY(sb_tensor_create(t->ctx, SB_DTYPE_F32, rank, dims, &t->target));
    sb_convert(from->dtype, from->data, SB_DTYPE_F32, t->target->data,
               (size_t)sb_tensor_count(from));
    return t->keys.loss == SB_TRAIN_LOSS_BCE ? check_shares(t) : SB_OK;
}

/* ---- steps -------------------------------------------------------------- */

sb_status sb_targets_step(sb_trainer *t, const sb_batch *batch, double *loss)
{
    sb_tensor_free(t->target);
    t->target = NULL;
    SB_TRY(of_elements(t) ? number_target(t, batch) : class_target(t, batch));
    return sb_learner_step_batch_to(t->learner, batch, t->target, loss);
}

void sb_targets_count(const sb_trainer *t, const sb_batch *batch, size_t *right,
                      size_t *seen)
{
    const sb_tensor *scores = sb_learner_output(t->learner);

    if (scores && batch->targets && !of_elements(t))
        sb_eval_count_places(scores, batch->targets, right, seen);
}

/* ---- validation --------------------------------------------------------- */

bool sb_targets_metric_wanted(const sb_trainer *t, const sb_batch *batch)
{
    return batch->targets ||
           has_numbers(t, batch->labels && batch->labels[0] >= 0);
}

sb_status sb_targets_validate(sb_trainer *t, sb_eval *e, const sb_batch *batch,
                              const sb_tensor *output)
{
    sb_batch one = *batch;
    const int64_t count = (int64_t)batch->count;
    sb_tensor classes = sb_tensor_make(SB_DTYPE_I64, 1, &count);

    classes.data = (void *)(uintptr_t)batch->labels;
    if (!batch->targets && t->teacher)
        SB_TRY(sb_distill_target(t, batch));
    if (!batch->targets)
        one.targets = t->teacher ? t->target : &classes;
    t->metric = has_numbers(t, sb_eval_class_axis(output, one.targets) >= 0)
                    ? SB_TRAIN_NUMBERS
                    : SB_TRAIN_IOU;
    return sb_eval_add_targets(e, &one, output);
}

bool sb_targets_less_is_better(const sb_trainer *t)
{
    return t->metric == SB_TRAIN_NUMBERS && t->keys.loss != SB_TRAIN_LOSS_BCE;
}

const char *sb_targets_metric_name(const sb_trainer *t)
{
    static const char *const names[] = {[SB_TRAIN_LOSS_MSE] = "MSE",
                                        [SB_TRAIN_LOSS_L1] = "MAE",
                                        [SB_TRAIN_LOSS_SMOOTH_L1] = "MAE",
                                        [SB_TRAIN_LOSS_BCE] = "F1"};

    return t->metric == SB_TRAIN_NUMBERS ? names[t->keys.loss]
           : t->metric == SB_TRAIN_IOU   ? "mIoU"
                                         : "accuracy";
}

double sb_targets_metric(const sb_trainer *t, sb_eval *e)
{
    const sb_eval_result *r = sb_eval_get(e);

    if (t->metric != SB_TRAIN_NUMBERS)
        return r->mean_iou / 100;
    if (t->keys.loss == SB_TRAIN_LOSS_BCE)
        return r->label_f1 / 100;
    return t->keys.loss == SB_TRAIN_LOSS_MSE ? r->mean_squared_error
                                             : r->mean_absolute_error;
}
