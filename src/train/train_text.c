/* Texts: what each token is to be followed by. */
#include "tensor/tensor.h"
#include "train/trainer.h"

enum { NO_TARGET = -100 }; /* ignore_index of the loss */

/* Position i learns token i + 1, if that counts. */
static void fill_targets(const sb_batch *b, int64_t len, int64_t *out)
{
    const int64_t *ids = (b->text_labels ? b->text_labels : b->inputs[0])->data;

    for (size_t r = 0; r < b->count; r++, ids += len, out += len) {
        for (int64_t i = 0; i + 1 < len; i++)
            out[i] = i + 1 >= (int64_t)b->text_from ? ids[i + 1] : NO_TARGET;
        out[len - 1] = NO_TARGET;
    }
}

sb_status sb_train_text_step(sb_trainer *t, const sb_batch *batch, double *loss)
{
    const sb_tensor *ids = batch->inputs[0], *labels = batch->text_labels;
    sb_tensor target;

    if (ids->dtype != SB_DTYPE_I64 || ids->rank != 2 || ids->dims[1] < 1 ||
        ids->dims[0] != (int64_t)batch->count)
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "texts of type %s with %d dimensions, want int64 "
                       "[samples, tokens]",
                       sb_dtype_name(ids->dtype), ids->rank);
    if (labels &&
        (labels->dtype != SB_DTYPE_I64 || labels->rank != 2 ||
         labels->dims[0] != ids->dims[0] || labels->dims[1] != ids->dims[1]))
        return sb_fail(t->ctx, SB_BAD_DATA,
                       "the labels of texts are not like their tokens");
    target = sb_tensor_make(SB_DTYPE_I64, 2, ids->dims);
    SB_TRY(sb_tensor_alloc_raw(t->ctx, &target));
    fill_targets(batch, ids->dims[1], target.data);
    sb_status status =
        sb_learner_step_batch_to(t->learner, batch, &target, loss);
    sb_tensor_drop(&target);
    return status;
}
