/* Running batches: at once where the model allows it, else in pieces of the
 * size that its file fixes, whose outputs are laid side by side. */
#include <string.h>

#include "api/session.h"
#include "data/data.h"

/* Samples that one run takes; 0: any number.  Inputs that disagree are not
 * looked at here: running says what is wrong. */
static int64_t fixed_size(const sb_model *model)
{
    int64_t size = 0;

    for (size_t i = 0; i < model->n_inputs; i++) {
        if (model->inputs[i].rank < 1)
            return 0;
        if (model->inputs[i].dims[0] > 0)
            size = model->inputs[i].dims[0];
    }
    return size;
}

/* Rows [first, first + n) of a tensor; borrows. */
static sb_tensor rows(const sb_tensor *t, int64_t first, int64_t n)
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
                       s->model->outputs[i].name);
    if (sb_dtype_size(piece->dtype) == 0)
        return sb_fail(s->ctx, SB_UNSUPPORTED,
                       "output '%s' is %s: cannot lay samples side by side",
                       s->model->outputs[i].name,
                       sb_dtype_get(piece->dtype)->onnx);
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
                       s->model->outputs[i].name);
    return sb_tensor_alloc(s->ctx, t);
}

static sb_status gather(sb_session *s, const sb_tensor *const *piece,
                        int64_t size, int64_t count, int64_t at)
{
    int64_t pieces = count / size;

    for (size_t i = 0; i < s->model->n_outputs; i++) {
        size_t bytes = sb_tensor_bytes(piece[i]);

        if (at == 0)
            SB_TRY(make_room(s, i, piece[i], size, count));
        if (sb_tensor_bytes(&s->gathered[i]) != bytes * (size_t)pieces)
            return sb_fail(s->ctx, SB_UNSUPPORTED,
                           "output '%s' has another shape for each sample: run "
                           "with batches of one",
                           s->model->outputs[i].name);
        if (bytes)
            memcpy((char *)s->gathered[i].data + (size_t)at * bytes,
                   piece[i]->data, bytes);
    }
    return SB_OK;
}

static sb_status run_pieces(sb_session *s, const sb_tensor *const *inputs,
                            int64_t size, int64_t count,
                            const sb_tensor **outputs)
{
    size_t n = s->model->n_inputs;
    sb_tensor *part = sb_alloc(s->ctx, n, sizeof *part);
    const sb_tensor **list = sb_alloc(s->ctx, n, sizeof *list);
    sb_status status = part && list ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && !s->gathered) {
        s->gathered =
            sb_alloc(s->ctx, s->model->n_outputs, sizeof *s->gathered);
        status = s->gathered ? SB_OK : SB_NO_MEMORY;
    }
    for (int64_t at = 0; at < count / size && status == SB_OK; at++) {
        for (size_t i = 0; i < n; i++) {
            part[i] = rows(inputs[i], at * size, size);
            list[i] = &part[i];
        }
        status = sb_session_run(s, list, outputs);
        if (status == SB_OK)
            status = gather(s, outputs, size, count, at);
    }
    for (size_t i = 0; i < s->model->n_outputs && status == SB_OK; i++)
        outputs[i] = &s->gathered[i];
    sb_free(s->ctx, part);
    sb_free(s->ctx, list);
    return status;
}

/* Does every output of a run of `size` samples have them in its first axis? */
static bool outputs_count(const sb_model *model, int64_t size)
{
    for (size_t i = 0; i < model->n_outputs; i++)
        if (model->outputs[i].rank < 1 || model->outputs[i].dims[0] != size)
            return false;
    return true;
}

static sb_status run_bound(sb_session *s, const sb_batch *batch,
                           const sb_tensor **inputs, const char **names,
                           const sb_tensor **outputs)
{
    const sb_model *model = s->model;
    int64_t size = fixed_size(model), count = (int64_t)batch->count;

    for (size_t i = 0; i < model->n_inputs; i++)
        names[i] = model->inputs[i].name;
    SB_TRY(sb_batch_inputs(s->ctx, batch, names, model->n_inputs, inputs));
    if (size == 0 || (size == count && outputs_count(model, size)))
        return sb_session_run(s, inputs, outputs);
    if (count % size != 0)
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "the model takes %lld samples at once, the batch has "
                       "%lld",
                       (long long)size, (long long)count);
    return run_pieces(s, inputs, size, count, outputs);
}

sb_status sb_session_run_batch(sb_session *s, const sb_batch *batch,
                               const sb_tensor **outputs)
{
    size_t n = s->model->n_inputs;
    const sb_tensor **inputs = sb_alloc(s->ctx, n, sizeof *inputs);
    const char **names = sb_alloc(s->ctx, n, sizeof *names);
    sb_status status = inputs && names ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK)
        status = run_bound(s, batch, inputs, names, outputs);
    sb_free(s->ctx, inputs);
    sb_free(s->ctx, names);
    return status;
}

void sb_data_fit(sb_data *data, const sb_model *model)
{
    const char *const *names = data->source.input_names;

    for (size_t k = 0; k < data->n_inputs; k++)
        for (size_t i = 0; i < model->n_inputs; i++)
            if (names ? strcmp(names[k], model->inputs[i].name) == 0 : i == k)
                data->wanted[k] = model->inputs[i].dtype;
}
