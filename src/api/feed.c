/* Batches to inputs: each tensor to its place, states from run to run.
 *
 * A state is an input that takes what an output was in the run before: the
 * memory of a recurrent network, or the cache of a decoder.  It starts as zeros
 * of the shape that the model gives, unknown dimensions taken as 1. */
#include "api/feed.h"

#include <string.h>

#include "base/options.h"
#include "base/str.h"

void sb_feed_init(sb_feed *feed, sb_ctx *ctx, const sb_model_io *io)
{
    *feed = (sb_feed){.ctx = ctx, .io = io};
}

static void forget_states(sb_feed *feed)
{
    for (size_t i = 0; i < feed->n_states; i++)
        sb_tensor_drop(&feed->states[i].tensor);
    feed->n_states = 0;
}

void sb_feed_clear(sb_feed *feed)
{
    forget_states(feed);
    sb_free(feed->ctx, feed->states);
    feed->states = NULL;
    feed->cap_states = 0;
}

sb_status sb_feed_create(const sb_model *model, sb_feed **out)
{
    sb_feed *feed = sb_alloc(model->ctx, 1, sizeof *feed);

    if (!feed)
        return SB_NO_MEMORY;
    sb_feed_init(feed, model->ctx, &model->io);
    *out = feed;
    return SB_OK;
}

void sb_feed_free(sb_feed *feed)
{
    if (!feed)
        return;
    sb_feed_clear(feed);
    sb_free(feed->ctx, feed);
}

sb_status sb_batch_read(sb_ctx *ctx, const sb_batch *from, sb_batch *out)
{
    const sb_batch empty = SB_BATCH_INIT;

    SB_TRY(sb_options_read(ctx, "sb_batch", from, &empty, sizeof empty, out));
    for (size_t i = 0; i < out->n_inputs; i++) {
        const sb_tensor *t = out->inputs ? out->inputs[i] : NULL;
        int axis = out->axes ? out->axes[i] : 0;

        if (t && (out->whole || axis < 0))
            continue;
        if (!t || t->rank <= axis || t->dims[axis] != (int64_t)out->count)
            return sb_fail(ctx, SB_BAD_ARG,
                           "tensor %zu of the batch does not have %zu samples "
                           "in axis %d",
                           i, out->count, axis);
    }
    return SB_OK;
}

/* ---- states -------------------------------------------------------------- */

static size_t feed_find(const sb_value_info *infos, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(infos[i].name, name) == 0)
            return i;
    return SB_NO_INDEX;
}

/* Zeros for an input, which the model must describe. */
static sb_status start_state(sb_feed *feed, const char *name, sb_fed_state *out)
{
    const sb_model_io *io = feed->io;
    size_t at = feed_find(io->inputs, io->n_inputs, name);

    if (at == SB_NO_INDEX)
        return sb_fail(feed->ctx, SB_BAD_DATA,
                       "STATE: the model has no input '%s'", name);
    const sb_value_info *in = &io->inputs[at];
    if (in->rank < 0 || sb_dtype_size(in->dtype) == 0)
        return sb_fail(feed->ctx, SB_BAD_DATA,
                       "STATE: input '%s' is %s, want a known number of "
                       "dimensions to start with zeros",
                       name, in->text);
    sb_tensor t = sb_tensor_make(in->dtype, in->rank, in->dims);
    for (int d = 0; d < t.rank; d++)
        t.dims[d] = t.dims[d] < 0 ? 1 : t.dims[d];
    if (!sb_tensor_size_ok(&t))
        return sb_fail(feed->ctx, SB_BAD_DATA, "STATE: '%s' is too large",
                       name);
    SB_TRY(sb_tensor_alloc(feed->ctx, &t));
    if (sb_tensor_bytes(&t))
        memset(t.data, 0, sb_tensor_bytes(&t));
    *out = (sb_fed_state){at, t};
    return SB_OK;
}

static sb_status start_states(sb_feed *feed, const sb_batch *batch)
{
    forget_states(feed);
    SB_TRY(sb_grow(feed->ctx, &feed->states, &feed->cap_states, batch->n_states,
                   sizeof *feed->states));
    for (size_t i = 0; i < batch->n_states; i++) {
        SB_TRY(start_state(feed, batch->state_inputs[i], &feed->states[i]));
        feed->n_states++;
    }
    return SB_OK;
}

/* ---- inputs and outputs -------------------------------------------------- */

/* What there is instead of data for an input. */
static sb_status feed_no_data(const sb_feed *feed, const sb_batch *batch,
                              const char *input)
{
    const size_t most = 8; /* enough to see what is amiss */
    sb_str list;

    sb_str_init(&list, feed->ctx);
    for (size_t i = 0; i < batch->n_inputs && i < most; i++)
        sb_str_addf(&list, "%s'%s'", i ? ", " : "", batch->input_names[i]);
    sb_status status = sb_fail(
        feed->ctx, SB_BAD_DATA,
        "the data have nothing for the model's input '%s', only %s%s", input,
        sb_str_text(&list), batch->n_inputs > most ? " and others" : "");
    sb_str_free(&list);
    return status;
}

sb_status sb_feed_bind(sb_feed *feed, const sb_batch *batch,
                       const sb_tensor **inputs)
{
    const char *const *names = batch->input_names;
    const sb_model_io *io = feed->io;
    size_t given = 0;

    if (batch->restart || feed->n_states != batch->n_states)
        SB_TRY(start_states(feed, batch));
    memset(inputs, 0, io->n_inputs * sizeof *inputs);
    for (size_t i = 0; i < feed->n_states; i++)
        inputs[feed->states[i].input] = &feed->states[i].tensor;
    for (size_t i = 0; i < io->n_inputs; i++) {
        if (inputs[i])
            continue;
        if (!names && given < batch->n_inputs)
            inputs[i] = batch->inputs[given];
        given += inputs[i] || !io->inputs[i].is_constant;
        for (size_t k = 0; names && k < batch->n_inputs; k++)
            if (strcmp(names[k], io->inputs[i].name) == 0)
                inputs[i] = batch->inputs[k];
        if (!inputs[i] && names && !io->inputs[i].is_constant)
            return feed_no_data(feed, batch, io->inputs[i].name);
    }
    if (!names && given != batch->n_inputs)
        return sb_fail(feed->ctx, SB_BAD_DATA,
                       "the data have %zu input%s, the model wants %zu",
                       batch->n_inputs, batch->n_inputs == 1 ? "" : "s", given);
    return SB_OK;
}

sb_status sb_feed_store(sb_feed *feed, const sb_batch *batch,
                        const sb_tensor *const *outputs)
{
    const sb_model_io *io = feed->io;

    for (size_t i = 0; i < feed->n_states; i++) {
        const char *name = batch->state_outputs[i];
        size_t at = feed_find(io->outputs, io->n_outputs, name);
        sb_tensor *t = &feed->states[i].tensor;

        if (at == SB_NO_INDEX)
            return sb_fail(feed->ctx, SB_BAD_DATA,
                           "STATE: the model has no output '%s'", name);
        if (!outputs[at])
            return sb_fail(feed->ctx, SB_UNSUPPORTED,
                           "STATE: output '%s' is not computed in this mode "
                           "(--asym a): calibrate without it",
                           name);
        sb_tensor next = sb_tensor_make(outputs[at]->dtype, outputs[at]->rank,
                                        outputs[at]->dims);
        if (sb_dtype_size(next.dtype) == 0)
            return sb_fail(feed->ctx, SB_BAD_DATA,
                           "STATE: output '%s' holds no numbers", name);
        SB_TRY(sb_tensor_alloc(feed->ctx, &next));
        if (sb_tensor_bytes(&next))
            memcpy(next.data, outputs[at]->data, sb_tensor_bytes(&next));
        sb_tensor_drop(t);
        *t = next;
    }
    return SB_OK;
}

sb_status sb_feed_inputs(sb_feed *feed, const sb_batch *batch,
                         const sb_tensor **inputs, size_t n)
{
    sb_batch given;

    SB_TRY(sb_batch_read(feed->ctx, batch, &given));
    if (n != feed->io->n_inputs)
        return sb_fail(feed->ctx, SB_BAD_ARG,
                       "got room for %zu inputs, the model has %zu", n,
                       feed->io->n_inputs);
    return sb_feed_bind(feed, &given, inputs);
}

sb_status sb_feed_keep(sb_feed *feed, const sb_batch *batch,
                       const sb_tensor *const *outputs, size_t n)
{
    sb_batch given;

    SB_TRY(sb_batch_read(feed->ctx, batch, &given));
    if (n != feed->io->n_outputs)
        return sb_fail(feed->ctx, SB_BAD_ARG,
                       "got %zu outputs, the model has %zu", n,
                       feed->io->n_outputs);
    return sb_feed_store(feed, &given, outputs);
}

sb_status sb_model_batch_inputs(const sb_model *model, const sb_batch *batch,
                                const sb_tensor **inputs, size_t n)
{
    sb_feed feed;

    sb_feed_init(&feed, model->ctx, &model->io);
    sb_status status = sb_feed_inputs(&feed, batch, inputs, n);
    if (status == SB_OK && feed.n_states)
        status = sb_fail(model->ctx, SB_BAD_ARG,
                         "the batch has states: want sb_feed_inputs()");
    sb_feed_clear(&feed);
    return status;
}

sb_status sb_bound_batch_open(sb_ctx *ctx, const sb_graph *graph,
                              const sb_batch *batch, sb_bound_batch *out)
{
    *out = (sb_bound_batch){.inputs = NULL};
    SB_TRY(sb_batch_read(ctx, batch, &out->batch));
    SB_TRY(sb_model_io_fill(&out->io, graph));
    sb_feed_init(&out->feed, ctx, &out->io);
    out->inputs = sb_alloc(ctx, out->io.n_inputs + 1, sizeof(*out->inputs));
    if (!out->inputs)
        return SB_NO_MEMORY;
    return sb_feed_bind(&out->feed, &out->batch, out->inputs);
}

void sb_bound_batch_close(sb_ctx *ctx, sb_bound_batch *b)
{
    sb_free(ctx, b->inputs);
    if (b->feed.ctx)
        sb_feed_clear(&b->feed);
    if (b->io.arena.ctx)
        sb_model_io_free(&b->io);
}
