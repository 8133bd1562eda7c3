/* Data sets: samples one after another, gathered into batches. */
#include "data/data.h"

#include <string.h>

#include "tensor/cast_input.h"

static const sb_source_def *def_of(const sb_data *data)
{
    return data->source.def;
}

static size_t sample_at(const sb_data *data, size_t position)
{
    if (data->slices > 1) {
        size_t n = data->batch.size, i = position - data->begin;
        position =
            data->begin + (i / n * data->slices + data->slice) * n + i % n;
    }
    return data->order ? data->order[position] : position;
}

/* ---- opening and closing ------------------------------------------------- */

/* Takes the document, also on failure. */
static sb_status open_doc(sb_ctx *ctx, sb_yaml_doc *doc,
                          const sb_data_options *opt, sb_data **out)
{
    sb_data *data = sb_alloc(ctx, 1, sizeof *data);

    if (!data) {
        sb_yaml_free(doc);
        return SB_NO_MEMORY;
    }
    data->ctx = ctx;
    data->doc = doc;
    sb_arena_init(&data->arena, ctx);
    sb_status status = sb_data_setup(data, opt);
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
    sb_tensor_drop(&data->source.rows);
    for (size_t k = 0; data->batch.tensors && k < data->n_inputs; k++)
        sb_tensor_drop(&data->batch.tensors[k]);
    for (size_t k = 0; data->batch.moved && k < data->n_inputs; k++)
        sb_tensor_drop(&data->batch.moved[k]);
    sb_free(data->ctx, data->order);
    sb_free(data->ctx, data->broken.v);
    sb_arena_free(&data->arena);
    sb_yaml_free(data->other_keys);
    sb_yaml_free(data->doc);
    sb_free(data->ctx, data);
}

/* Images ahead are made anew, from the next one on. */
static void drop_prefetch(sb_data *data)
{
    sb_prefetch_stop(data->prefetch);
    data->prefetch = NULL;
}

void sb_data_start_epoch(sb_data *data, uint64_t epoch)
{
    sb_data_rewind(data);
    if (data->order)
        sb_data_shuffle(data, epoch);
    data->training = true;
    data->epoch = epoch;
}

int sb_data_varies(const sb_data *data)
{
    return data->source.def->image &&
           sb_augment_is_on(&data->transform.augment);
}

void sb_data_rewind(sb_data *data)
{
    drop_prefetch(data);
    data->training = false;
    data->at = data->first;
    data->pending = false;
    data->good = 0;
}

/* ---- parts --------------------------------------------------------------- */

static sb_status share_check(const sb_data *data, int rank, int ranks)
{
    if (ranks < 1 || rank < 0 || rank >= ranks)
        return sb_fail(data->ctx, SB_BAD_ARG, "there is no rank %d of %d", rank,
                       ranks);
    if (ranks > 1 && data->states.n)
        return sb_fail(data->ctx, SB_UNSUPPORTED,
                       "%s: its samples follow each other, so they cannot be "
                       "shared by %d ranks: use one",
                       data->doc->file, ranks);
    return SB_OK;
}

sb_status sb_data_share(sb_data *data, sb_data_part part, int rank, int ranks)
{
    size_t n = data->end - data->begin, whole = data->batch.whole;
    size_t r = (size_t)rank, all = (size_t)ranks;

    SB_TRY(share_check(data, rank, ranks));
    if (part == SB_DATA_PART_SLICES && whole % all != 0)
        return sb_fail(data->ctx, SB_BAD_DATA,
                       "%s: batches of %zu samples cannot be shared by %d "
                       "ranks: want a multiple of that",
                       data->doc->file, whole, ranks);
    data->slices = part == SB_DATA_PART_SLICES ? all : 1;
    data->slice = r;
    data->batch.size = whole / data->slices;
    data->first = data->begin;
    data->last = data->end;
    if (data->slices > 1) {
        data->last = data->begin + n / whole * data->batch.size;
    } else {
        size_t batches = (n + whole - 1) / whole;
        data->first += batches * r / all * whole;
        data->last = data->begin + batches * (r + 1) / all * whole;
        data->last = data->last < data->end ? data->last : data->end;
    }
    sb_data_rewind(data);
    return SB_OK;
}

sb_status sb_data_want(sb_data *data, size_t k, const sb_value_info *in)
{
    bool whole_numbers = sb_dtype_is_integral(in->dtype);

    data->wanted[k] = in->dtype;
    data->scalar[k] = in->rank == 0;
    if (!def_of(data)->image || data->transform.bytes == whole_numbers)
        return SB_OK;
    if (whole_numbers && !sb_transform_keeps_bytes(&data->transform))
        return sb_fail(data->ctx, SB_BAD_DATA,
                       "%s: input '%s' is %s, which takes pixels as they are: "
                       "want SCALE: 1, and neither MEAN nor STD",
                       data->doc->file, in->name, in->text);
    if (data->pending) /* it was made for the model before */
        data->at = data->pending_at;
    data->pending = false;
    drop_prefetch(data);
    data->transform.bytes = whole_numbers;
    return SB_OK;
}

sb_status sb_data_want_text(const sb_data *data, size_t positions,
                            size_t tokens)
{
    const sb_source *s = &data->source;

    if (s->text_window > positions)
        return sb_source_fail(s, "WINDOW",
                              "found %zu, want at most %zu, the positions of "
                              "the model",
                              s->text_window, positions);
    if (tokens > 0 && s->text_tokens > tokens)
        return sb_source_fail(s, "TOKENIZER",
                              "it made token %zu, the model has tokens below "
                              "%zu: want the model's own tokenizer",
                              s->text_tokens - 1, tokens);
    return SB_OK;
}

size_t sb_data_count(const sb_data *data)
{
    return data->end - data->begin;
}

size_t sb_data_batch_size(const sb_data *data)
{
    return data->opt.batch ? data->opt.batch : (size_t)data->keys.batch;
}

uint64_t sb_data_seed(const sb_data *data)
{
    return data->opt.seed;
}

int sb_data_has_labels(const sb_data *data)
{
    return data->source.labels != NULL || data->targets;
}

size_t sb_data_broken_count(const sb_data *data)
{
    return data->broken.n;
}

const char *sb_data_broken(const sb_data *data, size_t i)
{
    return i < data->broken.n ? data->broken.v[i] : NULL;
}

/* ---- one sample ---------------------------------------------------------- */

/* The mask of image `i`, which has that size, by the same random numbers. */
static sb_status make_mask(const sb_data *data, sb_ctx *ctx, size_t i,
                           int width, int height, sb_rng *rng, sb_pixels *out)
{
    const char *path = data->source.masks[i];
    sb_image mask = {0};

    SB_TRY(sb_mask_load(ctx, path, &mask));
    if (mask.width == width && mask.height == height)
        return sb_transform_apply(&data->mask_transform, ctx, path, rng, &mask,
                                  out);
    sb_status status =
        sb_fail(ctx, SB_BAD_DATA, "%s: %d x %d pixels, its image has %d x %d",
                path, mask.width, mask.height, width, height);
    sb_image_free(ctx, &mask);
    return status;
}

/* Runs in any thread; reads nothing that changes. */
static sb_status make_image(const void *user, sb_ctx *ctx, size_t position,
                            sb_pixels *out)
{
    const sb_data *data = user;
    const sb_source *s = &data->source;
    size_t i = sample_at(data, position);
    char text[SB_SAMPLE_NAME];
    sb_image image = {0};
    sb_rng rng = {0};

    if (data->training)
        sb_augment_seed(&rng, data->opt.seed, data->epoch, i);
    SB_TRY(s->def->image(s, ctx, i, &image));
    const int width = image.width, height = image.height;
    sb_rng same = rng;
    SB_TRY(sb_transform_apply(
        &data->transform, ctx, s->def->name_of(s, i, text, sizeof text),
        data->training ? &rng : NULL, &image, &out[SB_MADE_IMAGE]));
    return s->masks
               ? make_mask(data, ctx, i, width, height,
                           data->training ? &same : NULL, &out[SB_MADE_MASK])
               : SB_OK;
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
    return sb_prefetch_start(data->ctx, data->at, data->last, slots, threads,
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
    if (data->slices > 1)
        return sb_fail(data->ctx, status,
                       "%s (with several ranks, none may be left out)",
                       message);
    const char *name =
        s->def->name_of(s, sample_at(data, position), text, sizeof text);
    for (size_t i = 0; i < data->broken.n; i++)
        if (strcmp(data->broken.v[i], name) == 0)
            return SB_OK; /* in another epoch, maybe in another order */
    if (!data->why)
        data->why = sb_arena_str(&data->arena, message);
    name = sb_arena_str(&data->arena, name);
    SB_TRY(sb_name_list_add(data->ctx, &data->broken, name));
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
    data->sample[0] =
        sb_tensor_make(data->transform.bytes ? SB_DTYPE_U8 : SB_DTYPE_F32, 3,
                       made->pixels[SB_MADE_IMAGE].dims);
    data->sample[0].data = made->pixels[SB_MADE_IMAGE].data;
    if (data->source.masks) {
        const sb_pixels *mask = &made->pixels[SB_MADE_MASK];

        data->sample[1] = sb_tensor_make(SB_DTYPE_U8, 2, mask->dims + 1);
        data->sample[1].data = mask->data;
    }
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

static bool is_whole(const sb_data *data)
{
    return data->array_keys.feed != SB_FEED_BATCHES;
}

/* The axis of the pending sample's input `k` in which a batch puts samples; -1:
 * one for all of them. */
static int axis_of(const sb_data *data, size_t k)
{
    if (data->scalar[k] && data->sample[k].rank == 0)
        return -1;
    return data->source.axes && k < data->source.n_inputs ? data->source.axes[k]
                                                          : 0;
}

/* Does the pending sample begin a sequence? */
static bool data_begins(const sb_data *data)
{
    const sb_source *s = &data->source;

    return data->pending_at == data->first ||
           (s->def->begins &&
            s->def->begins(s, sample_at(data, data->pending_at)));
}

/* What all samples of the batch share is small and equal, or of one file. */
static bool data_shares(const sb_data *data, size_t k)
{
    size_t bytes = sb_tensor_bytes(&data->sample[k]);

    return bytes <= SB_SHARED_BYTES
               ? memcmp(data->batch.shared[k], data->sample[k].data, bytes) == 0
               : !data_begins(data);
}

/* May the pending sample stand beside those in the batch? */
static bool fits_batch(const sb_data *data)
{
    for (size_t k = 0; k < data->n_inputs; k++) {
        const sb_tensor *a = &data->sample[k], *b = &data->batch.tensors[k];
        int extra = axis_of(data, k) >= 0;

        if (sb_cast_input_dtype(a->dtype, data->wanted[k]) != b->dtype ||
            a->rank + extra != b->rank ||
            memcmp(a->dims, b->dims + extra,
                   (size_t)a->rank * sizeof a->dims[0]) != 0 ||
            (!extra && !data_shares(data, k)))
            return false;
    }
    return true;
}

/* Memory of type and dimensions `want`, the old one if that suffices. */
static sb_status make_room(sb_data *data, sb_tensor *want, sb_tensor *t,
                           size_t *cap)
{
    if (!sb_tensor_size_ok(want))
        return sb_fail(data->ctx, SB_BAD_DATA,
                       "a batch of %zu samples is too large for memory",
                       data->batch.size);
    if (t->buf && sb_tensor_bytes(want) <= *cap) {
        want->data = t->data;
        want->buf = t->buf;
    } else {
        sb_tensor_drop(t);
        *cap = 0;
        SB_TRY(sb_tensor_alloc(data->ctx, want));
        *cap = sb_tensor_bytes(want);
    }
    *t = *want;
    return SB_OK;
}

/* Memory for a batch of samples like the pending one. */
static sb_status start_batch(sb_data *data)
{
    for (size_t k = 0; k < data->n_inputs; k++) {
        const sb_tensor *sample = &data->sample[k];
        int axis = axis_of(data, k);
        bool shared = axis < 0 || is_whole(data);
        sb_tensor want =
            sb_tensor_make(sb_cast_input_dtype(sample->dtype, data->wanted[k]),
                           sample->rank, sample->dims);
        size_t bytes = sb_tensor_bytes(sample);

        data->batch.axes[k] = shared ? -1 : axis;
        data->batch.list[k] =
            axis > 0 ? &data->batch.moved[k] : &data->batch.tensors[k];
        if (!shared && sample->rank >= SB_MAX_RANK)
            return sb_fail(data->ctx, SB_BAD_DATA,
                           "data of %d dimensions, want at most %d",
                           sample->rank + 1, SB_MAX_RANK);
        if (!shared) {
            memmove(want.dims + 1, want.dims,
                    (size_t)want.rank * sizeof want.dims[0]);
            want.dims[0] = (int64_t)data->batch.size;
            want.rank++;
        } else if (bytes && bytes <= SB_SHARED_BYTES) {
            memcpy(data->batch.shared[k], sample->data, bytes);
        }
        SB_TRY(make_room(data, &want, &data->batch.tensors[k],
                         &data->batch.cap[k]));
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

        if (data->batch.axes[k] < 0 && n > 0)
            continue;
        sb_status status = sb_cast_input_copy(
            data->ctx, &data->sample[k], t->dtype, (char *)t->data + n * bytes);
        if (status != SB_OK)
            return sb_note(data->ctx, status, "in %s", data->batch.names[n]);
        if (data->targets && k + 1 == data->n_inputs &&
            t->dtype == SB_DTYPE_I64)
            sb_data_settle_target(data,
                                  (int64_t *)((char *)t->data + n * bytes),
                                  bytes / sizeof(int64_t));
    }
    if (n == 0) {
        out->first = data->pending_at;
        out->restart = data_begins(data);
    }
    out->count++;
    data->pending = false;
    data->good++;
    return SB_OK;
}

/* [N, ...] to [..., N, ...] with the samples in axis `axis`. */
static sb_status move_samples(sb_data *data, size_t k)
{
    const sb_tensor *from = &data->batch.tensors[k];
    int axis = data->batch.axes[k];
    sb_tensor to = sb_tensor_make(from->dtype, from->rank, from->dims);

    if (axis >= from->rank)
        return sb_source_fail(&data->source, "AXIS",
                              "'%s' has no axis %d, it has %d",
                              data->source.input_names[k], axis, from->rank);
    memmove(to.dims, from->dims + 1, (size_t)axis * sizeof to.dims[0]);
    to.dims[axis] = from->dims[0];
    sb_tensor_drop(&data->batch.moved[k]);
    SB_TRY(sb_tensor_alloc(data->ctx, &to));
    data->batch.moved[k] = to;
    size_t outer = (size_t)sb_dims_product(to.dims, 0, axis);
    size_t n = (size_t)from->dims[0], bytes = sb_tensor_bytes(from);
    size_t piece = outer && n ? bytes / outer / n : 0;
    for (size_t i = 0; i < n && piece; i++)
        for (size_t o = 0; o < outer; o++)
            memcpy((char *)to.data + (o * n + i) * piece,
                   (const char *)from->data + (i * outer + o) * piece, piece);
    return SB_OK;
}

/* The tensors of the batch as the caller sees them. */
static sb_status finish_batch(sb_data *data, const sb_batch *b)
{
    for (size_t k = 0; k < data->n_inputs; k++) {
        if (data->batch.axes[k] < 0)
            continue;
        data->batch.tensors[k].dims[0] = (int64_t)b->count;
        if (data->batch.axes[k] > 0)
            SB_TRY(move_samples(data, k));
    }
    return SB_OK;
}

static sb_status fill_batch(sb_data *data, sb_batch *out)
{
    while (out->count < data->batch.size) {
        while (!data->pending && data->at < data->last)
            SB_TRY(def_of(data)->image ? fetch_image(data)
                                       : fetch_arrays(data));
        if (!data->pending)
            return SB_OK;
        if (data->targets)
            sb_data_fetch_target(data, sample_at(data, data->pending_at));
        if (out->count == 0)
            SB_TRY(start_batch(data));
        else if (!fits_batch(data))
            return SB_OK;
        SB_TRY(add_to_batch(data, out));
    }
    return SB_OK;
}

size_t sb_data_text_from(const sb_data *data)
{
    return data->source.text_from;
}

sb_status sb_data_next(sb_data *data, const sb_batch **out)
{
    sb_batch b = {.struct_size = sizeof b,
                  .n_inputs = data->n_inputs,
                  .inputs = data->batch.list,
                  .input_names = data->source.input_names,
                  .labels = data->batch.labels,
                  .names = data->batch.names,
                  .whole = is_whole(data),
                  .axes = data->batch.axes,
                  .n_states = data->states.n,
                  .state_inputs = data->states.inputs,
                  .state_outputs = data->states.outputs,
                  .text_from = data->source.text_from};

    SB_TRY(fill_batch(data, &b));
    if (b.count)
        SB_TRY(finish_batch(data, &b));
    if (data->source.text_labels) {
        b.n_inputs--;
        b.text_labels = b.inputs[b.n_inputs];
    }
    if (data->targets) {
        b.n_inputs--;
        b.targets = b.inputs[b.n_inputs];
    }
    if (b.count == 0 && data->good == 0 && data->first < data->last)
        return sb_fail(data->ctx, SB_BAD_DATA,
                       "%s: none of the %zu samples can be read: %s",
                       data->doc->file, sb_data_count(data),
                       data->why ? data->why : "no memory");
    data->given = b;
    *out = &data->given;
    return SB_OK;
}
