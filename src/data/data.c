/* Data sets: samples one after another, gathered into batches. */
#include "data/data.h"

#include <string.h>

#include "tensor/fit.h"

static const sb_source_def *def_of(const sb_data *data)
{
    return data->source.def;
}

static size_t sample_at(const sb_data *data, size_t position)
{
    return data->order ? data->order[position] : position;
}

/* ---- opening and closing ------------------------------------------------- */

/* Takes the document, also on failure. */
static sb_status open_doc(sb_ctx *ctx, sb_yaml_doc *doc,
                          const sb_data_options *opt, sb_data **out)
{
    const sb_data_options defaults = SB_DATA_OPTIONS_INIT;
    sb_data *data = sb_alloc(ctx, 1, sizeof *data);

    if (!data) {
        sb_yaml_free(doc);
        return SB_NO_MEMORY;
    }
    data->ctx = ctx;
    data->doc = doc;
    sb_arena_init(&data->arena, ctx);
    sb_status status = sb_data_setup(data, opt ? opt : &defaults);
    if (status == SB_OK)
        *out = data;
    else
        sb_data_free(data);
    return status;
}

sb_status sb_data_open(sb_ctx *ctx, const char *path,
                       const sb_data_options *opt, sb_data **out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load(ctx, path, &doc));
    return open_doc(ctx, doc, opt, out);
}

sb_status sb_data_parse(sb_ctx *ctx, const char *text, const char *path,
                        const sb_data_options *opt, sb_data **out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load_memory(ctx, path, text, strlen(text), &doc));
    return open_doc(ctx, doc, opt, out);
}

void sb_data_free(sb_data *data)
{
    if (!data)
        return;
    sb_prefetch_stop(data->prefetch);
    if (def_of(data) && def_of(data)->close)
        def_of(data)->close(&data->source);
    for (size_t k = 0; data->batch.tensors && k < data->n_inputs; k++)
        sb_tensor_drop(&data->batch.tensors[k]);
    sb_free(data->ctx, data->order);
    sb_free(data->ctx, data->broken.v);
    sb_arena_free(&data->arena);
    sb_yaml_free(data->doc);
    sb_free(data->ctx, data);
}

void sb_data_rewind(sb_data *data)
{
    sb_prefetch_stop(data->prefetch);
    data->prefetch = NULL;
    data->at = data->begin;
    data->pending = false;
    data->good = 0;
}

size_t sb_data_count(const sb_data *data)
{
    return data->end - data->begin;
}

int sb_data_labelled(const sb_data *data)
{
    return data->source.labels != NULL;
}

size_t sb_data_broken_count(const sb_data *data)
{
    return data->broken.n;
}

const char *sb_data_broken(const sb_data *data, size_t i)
{
    return i < data->broken.n ? data->broken.v[i] : "";
}

/* ---- one sample ---------------------------------------------------------- */

/* Runs in any thread; reads nothing that changes. */
static sb_status make_image(const void *user, sb_ctx *ctx, size_t position,
                            sb_pixels *out)
{
    const sb_data *data = user;
    const sb_source *s = &data->source;
    size_t i = sample_at(data, position);
    char text[SB_SAMPLE_NAME];
    sb_image image = {0};

    SB_TRY(s->def->image(s, ctx, i, &image));
    return sb_transform_apply(&data->transform, ctx,
                              s->def->name_of(s, i, text, sizeof text), &image,
                              out);
}

static sb_status start_prefetch(sb_data *data)
{
    int threads = data->opt.threads;
    size_t slots = 2 * data->batch.size;

    if (threads < 0) {
        threads = sb_ctx_threads(data->ctx);
        threads = threads > 1 ? threads : 0;
    }
    slots = slots < 4 ? 4 : slots > 128 ? 128 : slots;
    return sb_prefetch_start(data->ctx, data->at, data->end, slots, threads,
                             make_image, data, &data->prefetch);
}

/* Writes down a broken sample, once; an error if that is how it is wanted. */
static sb_status note_broken(sb_data *data, size_t position, sb_status status,
                             const char *message)
{
    const sb_source *s = &data->source;
    char text[SB_SAMPLE_NAME];

    if (status == SB_NO_MEMORY || status == SB_INTERRUPTED || data->opt.strict)
        return sb_fail(data->ctx, status, "%s", message);
    if (position < data->seen)
        return SB_OK;
    const char *name =
        sb_arena_str(&data->arena, s->def->name_of(s, sample_at(data, position),
                                                   text, sizeof text));
    SB_TRY(sb_name_list_add(data->ctx, &data->broken, name));
    data->seen = position + 1;
    sb_warn(data->ctx, "%s (left out)", message);
    return SB_OK;
}

/* Images come through the ring of decoding threads. */
static sb_status fetch_image(sb_data *data)
{
    const sb_made *made = NULL;

    if (!data->prefetch)
        SB_TRY(start_prefetch(data));
    SB_TRY(sb_prefetch_take(data->prefetch, &made));
    if (made->status != SB_OK) {
        data->at++;
        return note_broken(data, data->at - 1, made->status, made->error);
    }
    data->sample[0] = sb_tensor_make(SB_DTYPE_F32, 3, made->pixels.dims);
    data->sample[0].data = made->pixels.data;
    data->pending = true;
    data->pending_at = data->at++;
    return SB_OK;
}

static sb_status fetch_arrays(sb_data *data)
{
    size_t position = data->at++;

    SB_TRY(sb_ctx_poll(data->ctx));
    SB_TRY(def_of(data)->arrays(&data->source, sample_at(data, position),
                                data->sample));
    data->pending = true;
    data->pending_at = position;
    return SB_OK;
}

/* ---- batches ------------------------------------------------------------- */

/* May the pending sample stand beside those in the batch? */
static bool fits_batch(const sb_data *data)
{
    for (size_t k = 0; k < data->n_inputs; k++) {
        const sb_tensor *a = &data->sample[k], *b = &data->batch.tensors[k];

        if (sb_fit_dtype(a->dtype, data->wanted[k]) != b->dtype ||
            a->rank + 1 != b->rank ||
            memcmp(a->dims, b->dims + 1, (size_t)a->rank * sizeof a->dims[0]) !=
                0)
            return false;
    }
    return true;
}

/* Memory for a batch of samples like the pending one. */
static sb_status start_batch(sb_data *data)
{
    for (size_t k = 0; k < data->n_inputs; k++) {
        const sb_tensor *sample = &data->sample[k];
        sb_tensor *t = &data->batch.tensors[k];
        sb_tensor want = {.dtype = sb_fit_dtype(sample->dtype, data->wanted[k]),
                          .rank = sample->rank + 1};

        if (sample->rank >= SB_MAX_RANK)
            return sb_fail(data->ctx, SB_BAD_DATA,
                           "data of %d dimensions, want at most %d",
                           sample->rank + 1, SB_MAX_RANK);
        want.dims[0] = (int64_t)data->batch.size;
        memcpy(want.dims + 1, sample->dims,
               (size_t)sample->rank * sizeof want.dims[0]);
        if (!sb_tensor_size_ok(&want))
            return sb_fail(data->ctx, SB_BAD_DATA,
                           "a batch of %zu samples is too large for memory",
                           data->batch.size);
        if (t->buf && sb_tensor_bytes(&want) <= data->batch.cap[k]) {
            want.data = t->data;
            want.buf = t->buf;
        } else {
            sb_tensor_drop(t);
            data->batch.cap[k] = 0;
            SB_TRY(sb_tensor_alloc(data->ctx, &want));
            data->batch.cap[k] = sb_tensor_bytes(&want);
        }
        *t = want;
    }
    return SB_OK;
}

static sb_status add_to_batch(sb_data *data, sb_batch *out)
{
    const sb_source *s = &data->source;
    size_t i = sample_at(data, data->pending_at), n = out->count;

    data->batch.names[n] =
        s->def->name_of(s, i, data->batch.name_text[n], SB_SAMPLE_NAME);
    data->batch.labels[n] =
        s->labels ? s->labels[i] + data->keys.label_offset : -1;
    for (size_t k = 0; k < data->n_inputs; k++) {
        sb_tensor *t = &data->batch.tensors[k];
        size_t bytes = sb_tensor_bytes(t) / data->batch.size;
        sb_status status = sb_fit_copy(data->ctx, &data->sample[k], t->dtype,
                                       (char *)t->data + n * bytes);
        if (status != SB_OK)
            return sb_note(data->ctx, status, "in %s", data->batch.names[n]);
    }
    if (n == 0)
        out->first = data->pending_at;
    out->count++;
    data->pending = false;
    data->good++;
    return SB_OK;
}

static sb_status fill_batch(sb_data *data, sb_batch *out)
{
    while (out->count < data->batch.size) {
        while (!data->pending && data->at < data->end)
            SB_TRY(def_of(data)->image ? fetch_image(data)
                                       : fetch_arrays(data));
        if (!data->pending)
            return SB_OK;
        if (out->count == 0)
            SB_TRY(start_batch(data));
        else if (!fits_batch(data))
            return SB_OK;
        SB_TRY(add_to_batch(data, out));
    }
    return SB_OK;
}

sb_status sb_data_next(sb_data *data, sb_batch *out)
{
    sb_batch b = {.n_inputs = data->n_inputs,
                  .inputs = data->batch.list,
                  .input_names = data->source.input_names,
                  .labels = data->batch.labels,
                  .names = data->batch.names};

    SB_TRY(fill_batch(data, &b));
    for (size_t k = 0; b.count && k < data->n_inputs; k++)
        data->batch.tensors[k].dims[0] = (int64_t)b.count;
    if (b.count == 0 && data->good == 0)
        return sb_fail(data->ctx, SB_BAD_DATA,
                       "%s: none of the %zu samples can be read",
                       data->doc->file, sb_data_count(data));
    *out = b;
    return SB_OK;
}

sb_status sb_batch_inputs(sb_ctx *ctx, const sb_batch *batch,
                          const char *const *names, size_t n,
                          const sb_tensor **out)
{
    if (!batch->input_names && batch->n_inputs != n)
        return sb_fail(ctx, SB_BAD_DATA,
                       "the data have %zu inputs, the model wants %zu",
                       batch->n_inputs, n);
    for (size_t i = 0; i < n; i++) {
        out[i] = batch->input_names ? NULL : batch->inputs[i];
        for (size_t k = 0; batch->input_names && k < batch->n_inputs; k++)
            if (strcmp(batch->input_names[k], names[i]) == 0)
                out[i] = batch->inputs[k];
        if (!out[i])
            return sb_fail(ctx, SB_BAD_DATA,
                           "the data have nothing for the model's input '%s'",
                           names[i]);
    }
    return SB_OK;
}
