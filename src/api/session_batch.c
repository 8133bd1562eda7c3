/* Running batches: at once where the model allows it, else in pieces of the
 * size that its file fixes, whose outputs are laid side by side. */
#include <string.h>

#include "api/session.h"
#include "base/options.h"
#include "data/data.h"
#include "llm/llm_load.h"

/* Samples that one run takes; 0: any number.  Inputs that disagree are not
 * looked at here: running says what is wrong. */
static int64_t fixed_size(const sb_model_io *model)
{
    int64_t size = 0;

    for (size_t i = 0; i < model->n_inputs; i++) {
        if (model->inputs[i].is_constant)
            continue;
        if (model->inputs[i].rank < 1)
            return 0;
        if (model->inputs[i].dims[0] > 0)
            size = model->inputs[i].dims[0];
    }
    return size;
}

/* Rows [first, first + n) of a tensor; borrows. */
static sb_tensor session_batch_rows(const sb_tensor *t, int64_t first,
                                    int64_t n)
{
    sb_tensor part = sb_tensor_make(t->dtype, t->rank, t->dims);

    if (part.rank > 0 && part.dims[0] > 0) {
        size_t row = sb_tensor_bytes(t) / (size_t)t->dims[0];

        part.dims[0] = n;
        part.data = (char *)t->data + (size_t)first * row;
    }
    return part;
}

/* Memory for output `i` of all pieces, from the first piece's: an output that
 * counts the samples grows, another one gets an axis that does. */
static sb_status make_room(sb_session *s, size_t i, const sb_tensor *piece,
                           int64_t size, int64_t count)
{
    sb_tensor *t = &s->gathered[i];
    bool counts = piece->rank > 0 && piece->dims[0] == size;
    int64_t pieces = count / size;

    if (!counts && piece->rank == SB_MAX_RANK)
        return sb_fail(s->ctx, SB_BAD_DATA, "output '%s' has too many axes",
                       s->io.outputs[i].name);
    if (sb_dtype_size(piece->dtype) == 0)
        return sb_fail(s->ctx, SB_UNSUPPORTED,
                       "output '%s' is %s: cannot lay samples side by side",
                       s->io.outputs[i].name, sb_dtype_get(piece->dtype)->onnx);
    sb_tensor_drop(t);
    *t = sb_tensor_make(piece->dtype, piece->rank, piece->dims);
    if (counts) {
        t->dims[0] = count;
    } else {
        memmove(t->dims + 1, t->dims, (size_t)piece->rank * sizeof *t->dims);
        t->dims[0] = pieces;
        t->rank++;
    }
    if (!sb_tensor_size_ok(t))
        return sb_fail(s->ctx, SB_BAD_DATA, "output '%s' is too large",
                       s->io.outputs[i].name);
    return sb_tensor_alloc(s->ctx, t);
}

static sb_status session_batch_gather(sb_session *s,
                                      const sb_tensor *const *piece,
                                      int64_t size, int64_t count, int64_t at)
{
    int64_t pieces = count / size;

    for (size_t i = 0; i < s->io.n_outputs; i++) {
        size_t bytes = sb_tensor_bytes(piece[i]);

        if (at == 0)
            SB_TRY(make_room(s, i, piece[i], size, count));
        if (sb_tensor_bytes(&s->gathered[i]) != bytes * (size_t)pieces)
            return sb_fail(s->ctx, SB_UNSUPPORTED,
                           "output '%s' has another shape for each sample: run "
                           "with batches of one",
                           s->io.outputs[i].name);
        if (bytes)
            memcpy((char *)s->gathered[i].data + (size_t)at * bytes,
                   piece[i]->data, bytes);
    }
    return SB_OK;
}

static sb_status run_pieces(sb_session *s, const sb_tensor *const *inputs,
                            int64_t size, int64_t count)
{
    size_t n = s->io.n_inputs;
    sb_tensor *part = sb_alloc(s->ctx, n, sizeof *part);
    const sb_tensor **list = sb_alloc(s->ctx, n, sizeof *list);
    sb_status status = part && list ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && !s->gathered) {
        s->gathered = sb_alloc(s->ctx, s->io.n_outputs, sizeof *s->gathered);
        status = s->gathered ? SB_OK : SB_NO_MEMORY;
    }
    for (int64_t at = 0; at < count / size && status == SB_OK; at++) {
        for (size_t i = 0; i < n; i++) {
            if (!inputs[i]) /* its default stands */
                continue;
            part[i] = session_batch_rows(inputs[i], at * size, size);
            list[i] = &part[i];
        }
        status = sb_session_run_all(s, list);
        if (status == SB_OK)
            status = session_batch_gather(s, s->outputs, size, count, at);
    }
    for (size_t i = 0; i < s->io.n_outputs && status == SB_OK; i++)
        s->outputs[i] = &s->gathered[i];
    sb_free(s->ctx, part);
    sb_free(s->ctx, list);
    return status;
}

/* Is the first axis of an output unknown where that of all inputs is 1, as that
 * of boxes after suppression is?  These cannot be laid side by side. */
static bool outputs_vary(const sb_model_io *model)
{
    for (size_t i = 0; i < model->n_inputs; i++)
        if (!model->inputs[i].is_constant &&
            (model->inputs[i].rank < 1 || model->inputs[i].dims[0] != 1))
            return false;
    for (size_t i = 0; i < model->n_outputs; i++)
        if (model->outputs[i].rank < 1 || model->outputs[i].dims[0] < 0)
            return true;
    return false;
}

/* Does every output of a run of `size` samples have them in its first axis? */
static bool outputs_count(const sb_model_io *model, int64_t size)
{
    for (size_t i = 0; i < model->n_outputs; i++)
        if (model->outputs[i].rank < 1 || model->outputs[i].dims[0] != size)
            return false;
    return true;
}

/* Are the samples in the first axis of every input, or in none? */
static bool counts_first(const sb_batch *batch)
{
    for (size_t i = 0; batch->axes && i < batch->n_inputs; i++)
        if (batch->axes[i] != 0)
            return false;
    return !batch->whole && batch->n_states == 0;
}

static sb_status run_bound(sb_session *s, const sb_batch *batch,
                           const sb_tensor **inputs)
{
    int64_t size = counts_first(batch) ? fixed_size(&s->io) : 0;
    int64_t count = (int64_t)batch->count;

    SB_TRY(sb_feed_bind(&s->feed, batch, inputs));
    if (size == 0 || (size == count &&
                      (outputs_vary(&s->io) || outputs_count(&s->io, size)))) {
        SB_TRY(sb_session_run_all(s, inputs));
        return sb_feed_store(&s->feed, batch, s->outputs);
    }
    if (count % size != 0)
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "the model takes %lld samples at once, the batch has "
                       "%lld",
                       (long long)size, (long long)count);
    return run_pieces(s, inputs, size, count);
}

sb_status sb_session_run_batch(sb_session *s, const sb_batch *batch,
                               const sb_tensor **outputs, size_t n_outputs)
{
    sb_batch given;

    SB_TRY(sb_batch_read(s->ctx, batch, &given));
    if (n_outputs > s->io.n_outputs)
        return sb_fail(s->ctx, SB_BAD_ARG, "got %zu outputs, want at most %zu",
                       n_outputs, s->io.n_outputs);
    const sb_tensor **inputs =
        sb_alloc(s->ctx, s->io.n_inputs, sizeof(*inputs));
    if (!inputs)
        return SB_NO_MEMORY;
    sb_status status = run_bound(s, &given, inputs);
    for (size_t i = 0; i < n_outputs && status == SB_OK; i++)
        outputs[i] = s->outputs[i];
    sb_free(s->ctx, inputs);
    return status;
}

/* Where samples are not in the first axis, a model that fixes their number runs
 * with that number: nothing cuts such batches into pieces. */
static sb_status fix_batch(sb_data *data, const sb_value_info *in, int axis)
{
    int64_t size = axis >= 0 && axis < in->rank ? in->dims[axis] : -1;

    if (!data->array_keys.axis || size < 1 || data->batch.size == (size_t)size)
        return SB_OK;
    if ((size_t)size > data->batch.size)
        return sb_fail(data->ctx, SB_BAD_DATA,
                       "input '%s' is %s: want BATCH: %lld", in->name, in->text,
                       (long long)size);
    data->batch.size = (size_t)size;
    return SB_OK;
}

sb_status sb_data_set_model(sb_data *data, const sb_model *model)
{
    const char *const *names = data->source.input_names;
    const sb_model_io *io = &model->io;
    size_t positions = sb_model_positions(model);

    SB_TRY(sb_ctx_check(data->ctx, model->ctx, "model"));
    if (positions > 0) /* another network may call anything `logits` */
        SB_TRY(sb_data_want_text(data, positions,
                                 sb_llm_vocabulary(model->graph)));
    for (size_t k = 0; k < data->n_inputs - data->targets; k++)
        for (size_t i = 0; i < io->n_inputs; i++) {
            const sb_value_info *in = &io->inputs[i];

            if (names ? strcmp(names[k], in->name) != 0 : i != k)
                continue;
            SB_TRY(sb_data_want(data, k, in));
            if (data->source.axes)
                SB_TRY(fix_batch(data, in, data->source.axes[k]));
        }
    if (outputs_vary(io) && !data->source.axes)
        data->batch.size = 1;
    return SB_OK;
}

sb_status sb_data_describe(const sb_model *model, const char *path,
                           const char *keys, char **out)
{
    const sb_data_model to = {
        .inputs = model->io.inputs,
        .n_inputs = model->io.n_inputs,
        .positions = sb_model_positions(model),
        .path = model->path,
    };

    return sb_data_suggest(model->ctx, &to, path, keys, out);
}
