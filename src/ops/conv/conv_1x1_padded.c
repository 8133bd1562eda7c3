/* A 1x1 convolution with padding: of zeros nothing comes but the bias, so the
 * padding is not multiplied.  The convolution runs without it, into scratch
 * memory; then a frame of biases is laid around the result, and activation and
 * sum follow row by row.
 *
 * SqueezeNet's last convolution is one, and a quarter of its pixels padding. */
#include "ops/conv/conv.h"

#include <string.h>

#include "base/threads.h"

typedef struct padded {
    sb_ctx *ctx;
    sb_conv conv;
    sb_epilogue posts;
    bool has_bias;
    sb_dnn_conv *dnn;
    size_t n_lanes;
    size_t at_inner, at_rows, row_bytes; /* in the scratch memory */
} padded;

/* Two dimensions, kernel and stride 1, some padding, channels last. */
static bool padded_suits(const sb_kernel *k, const sb_conv *conv)
{
    const sb_window *w = &conv->w;
    bool some = false, fits = w->n == 2 && !conv->transposed;

    for (int i = 0; i < 2 && fits; i++) {
        fits = w->kernel[i] == 1 && w->stride[i] == 1 && w->pad_lo[i] >= 0 &&
               w->out[i] >= w->pad_lo[i] + w->in[i];
        some = some || w->out[i] > w->in[i];
    }
    return fits && some && k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST &&
           k->out[0]->layout == SB_LAYOUT_CHANNELS_LAST;
}

static size_t round_up(size_t n)
{
    return (n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

static void padded_free(void *object)
{
    padded *f = object;

    if (!f)
        return;
    sb_dnn_conv_free(f->dnn);
    sb_free(f->ctx, f);
}

static sb_status padded_create(const sb_kernel *k, sb_conv_state *s)
{
    const sb_conv *conv = &s->conv;
    sb_dnn_conv_desc inner = sb_conv_desc(k, conv);
    padded *f = sb_alloc(k->ctx, 1, sizeof *f);

    if (!f)
        return SB_NO_MEMORY;
    f->ctx = k->ctx;
    f->conv = *conv;
    f->posts = s->posts;
    f->has_bias = inner.has_bias;
    f->n_lanes = (size_t)k->ctx->n_threads;
    for (int i = 0; i < 2; i++) {
        inner.out[i] = inner.in[i];
        inner.pad_lo[i] = 0;
    }
    sb_status status = sb_dnn_conv_create(k->ctx, &inner, &f->dnn);
    if (status == SB_OK && sb_dnn_conv_packing(f->dnn)->bytes == 0)
        status = SB_UNSUPPORTED;
    if (status != SB_OK) {
        padded_free(f);
        return status;
    }
    f->at_inner = round_up(sb_dnn_conv_scratch(f->dnn));
    f->at_rows =
        f->at_inner +
        round_up(sizeof(float) * (size_t)(conv->n_batch * conv->w.in_count *
                                          conv->out_channels));
    f->row_bytes =
        round_up(sizeof(float) * (size_t)(conv->w.out[1] * conv->out_channels));
    s->object = f;
    return SB_OK;
}

static const sb_dnn_packing *padded_packing(const void *object)
{
    return sb_dnn_conv_packing(((const padded *)object)->dnn);
}

static sb_status padded_pack(void *object, const float *weights, void *packed,
                             void *scratch)
{
    return sb_dnn_conv_pack(((padded *)object)->dnn, weights, packed, scratch);
}

static size_t padded_scratch(const void *object)
{
    const padded *f = object;

    return f->at_rows + f->n_lanes * f->row_bytes;
}

typedef struct frame_job {
    const padded *f;
    const float *inner, *bias, *z;
    float *y;
    char *rows;
} frame_job;

/* `n` pixels of padding. */
static void put_bias(const frame_job *job, float *to, int64_t n)
{
    int64_t channels = job->f->conv.out_channels;

    for (int64_t i = 0; i < n; i++, to += channels) {
        if (job->bias)
            memcpy(to, job->bias, (size_t)channels * sizeof *to);
        else
            memset(to, 0, (size_t)channels * sizeof *to);
    }
}

static void frame_row(void *arg, size_t lane, size_t index)
{
    const frame_job *job = arg;
    const padded *f = job->f;
    const sb_window *w = &f->conv.w;
    int64_t channels = f->conv.out_channels, wide = w->out[1] * channels;
    int64_t image = (int64_t)index / w->out[0];
    int64_t from = (int64_t)index % w->out[0] - w->pad_lo[0];
    float *row = (float *)(void *)(job->rows + lane * f->row_bytes);
    int64_t at = (int64_t)index * wide;

    if (from < 0 || from >= w->in[0]) {
        put_bias(job, row, w->out[1]);
    } else {
        int64_t end = w->pad_lo[1] + w->in[1];
        put_bias(job, row, w->pad_lo[1]);
        memcpy(row + w->pad_lo[1] * channels,
               job->inner + (image * w->in_count + from * w->in[1]) * channels,
               (size_t)(w->in[1] * channels) * sizeof *row);
        put_bias(job, row + end * channels, w->out[1] - end);
    }
    for (size_t p = 0; p < f->posts.n; p++)
        sb_epilogue_op_row(&f->posts.post[p], row, job->z ? job->z + at : NULL,
                           (size_t)wide);
    memcpy(job->y + at, row, (size_t)wide * sizeof *row);
}

static sb_status padded_run(const sb_conv_state *s, const sb_conv_args *a)
{
    const padded *f = s->object;
    char *mine = a->scratch;
    float *inner = (float *)(void *)(mine + f->at_inner);
    frame_job job = {.f = f,
                     .inner = inner,
                     .bias = f->has_bias ? a->b : NULL,
                     .z = a->z,
                     .y = a->y,
                     .rows = mine + f->at_rows};

    SB_TRY(sb_dnn_conv_run(f->dnn, a->x, a->w, a->b, inner, a->scratch, NULL));
    sb_parallel_lanes(f->ctx, (size_t)(f->conv.n_batch * f->conv.w.out[0]),
                      f->n_lanes, frame_row, &job);
    return SB_OK;
}

const sb_conv_impl sb_conv_1x1_padded = {
    .name = "1x1_padded",
    .suits = padded_suits,
    .create = padded_create,
    .packing = padded_packing,
    .pack = padded_pack,
    .scratch = padded_scratch,
    .run = padded_run,
    .free = padded_free,
};
