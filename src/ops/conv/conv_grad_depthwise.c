/* Gradients of depthwise weights: for each tap the products of dy and x at
 * that distance, added up over images and pixels.
 *
 * A thread takes a block of channels of some images, row by row of dy: the sums
 * of a tap stay in registers, and the rows of x that meet a row of dy in the
 * first-level cache. */
#include "ops/conv/conv_grad.h"

#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

enum {
    LANES = 16,   /* channels of a block */
    ROW_MOST = 7, /* taps of a row */
    ROWS_MOST = 7,
    ONEDNN_MOST = 3,
};

bool sb_conv_grad_depthwise_suits(const sb_conv *conv)
{
    const sb_window *w = &conv->w;

    return w->n == 2 && conv->groups == conv->in_channels &&
           conv->groups == conv->out_channels && w->kernel[1] <= ROW_MOST &&
           w->kernel[0] <= ROWS_MOST &&
           (w->kernel[0] > ONEDNN_MOST || w->kernel[1] > ONEDNN_MOST ||
            w->dilation[0] > 1 || w->dilation[1] > 1);
}

typedef struct depthwise_job {
    const sb_conv *conv;
    const float *x, *dy;
    float *parts; /* sums of some images, added up in the end */
} depthwise_job;

/* Adds the products of `count` pixels of dy and x, `step`s apart. */
SB_HOT static void depthwise_tap(const float *x, int64_t x_step,
                                 const float *dy, int64_t dy_step,
                                 int64_t count, size_t n, float sum[LANES])
{
    float part[2][LANES] = {{0}}; /* two, which need not wait for each other */
    int64_t i = 0;

    if (n < LANES) {
        for (; i < count; i++)
            for (size_t j = 0; j < n; j++)
                sum[j] +=
                    dy[i * dy_step + (int64_t)j] * x[i * x_step + (int64_t)j];
        return;
    }
    for (; i + 2 <= count; i += 2)
        for (int k = 0; k < 2; k++) {
            const float *d = dy + (i + k) * dy_step, *v = x + (i + k) * x_step;
            for (int j = 0; j < LANES; j++)
                part[k][j] += d[j] * v[j];
        }
    for (int j = 0; j < LANES; j++)
        sum[j] += part[0][j] + part[1][j];
    for (int j = 0; j < LANES && i < count; j++)
        sum[j] += dy[i * dy_step + j] * x[i * x_step + j];
}

/* Adds the products of a row of dy and a row of x to the sums of the taps. */
static void depthwise_row(const sb_window *w, int64_t channels, const float *x,
                          const float *dy, size_t n, float sum[ROW_MOST][LANES])
{
    int64_t stride = w->stride[1];

    for (int64_t tap = 0; tap < w->kernel[1]; tap++) {
        /* Pixel `at` meets x at `from + at stride`. */
        int64_t from = tap * w->dilation[1] - w->pad_lo[1];
        int64_t begin = from < 0 ? (stride - 1 - from) / stride : 0;
        int64_t end = (w->in[1] - from + stride - 1) / stride;

        end = w->in[1] <= from ? 0 : end < w->out[1] ? end : w->out[1];
        if (begin < end)
            depthwise_tap(x + (from + begin * stride) * channels,
                          stride * channels, dy + begin * channels, channels,
                          end - begin, n, sum[tap]);
    }
}

/* The channels [c, c + n) of one image, added to `out`. */
static void depthwise_image(const depthwise_job *job, int64_t image, int64_t c,
                            size_t n, float *out)
{
    const sb_conv *conv = job->conv;
    const sb_window *w = &conv->w;
    int64_t channels = conv->in_channels;
    const float *x = job->x + image * w->in_count * channels + c;
    const float *dy = job->dy + image * w->out_count * channels + c;
    float sum[ROWS_MOST][ROW_MOST][LANES];

    memset(sum, 0, sizeof sum);
    for (int64_t at = 0; at < w->out[0]; at++) {
        int64_t begin, end, start = sb_window_clip(w, 0, at, &begin, &end);
        for (int64_t row = begin; row < end; row++)
            depthwise_row(w, channels,
                          x + (start + row * w->dilation[0]) * w->in[1] *
                                  channels,
                          dy + at * w->out[1] * channels, n, sum[row]);
    }
    for (size_t j = 0; j < n; j++)
        for (int64_t t = 0; t < w->taps; t++)
            out[(c + (int64_t)j) * w->taps + t] +=
                sum[t / w->kernel[1]][t % w->kernel[1]][j];
}

static int64_t depthwise_parts(const sb_conv *conv)
{
    return conv->n_batch < SB_REDUCE_PARTS ? conv->n_batch : SB_REDUCE_PARTS;
}

/* Items are (part of the images, block of channels). */
static void depthwise_blocks(void *arg, size_t begin, size_t end)
{
    const depthwise_job *job = arg;
    const sb_conv *conv = job->conv;
    int64_t parts = depthwise_parts(conv), channels = conv->in_channels;
    int64_t blocks = (channels + LANES - 1) / LANES;

    for (size_t i = begin; i < end; i++) {
        int64_t part = (int64_t)i / blocks, c = (int64_t)i % blocks * LANES;
        int64_t n = channels - c < LANES ? channels - c : LANES;
        float *out = job->parts + part * channels * conv->w.taps;

        memset(out + c * conv->w.taps, 0,
               (size_t)(n * conv->w.taps) * sizeof *out);
        for (int64_t image = conv->n_batch * part / parts;
             image < conv->n_batch * (part + 1) / parts; image++)
            depthwise_image(job, image, c, (size_t)n, out);
    }
}

size_t sb_conv_grad_depthwise_scratch(const sb_conv *conv)
{
    return sizeof(float) *
           (size_t)(depthwise_parts(conv) * conv->in_channels * conv->w.taps);
}

void sb_conv_grad_depthwise(sb_ctx *ctx, const sb_conv *conv, const float *x,
                            const float *dy, float *dw, void *scratch)
{
    depthwise_job job = {conv, x, dy, scratch};
    int64_t parts = depthwise_parts(conv);
    int64_t weights = conv->in_channels * conv->w.taps;
    int64_t blocks = (conv->in_channels + LANES - 1) / LANES;

    sb_parallel_for(ctx, (size_t)(blocks * parts), 1, depthwise_blocks, &job);
    for (int64_t i = 0; i < weights; i++) {
        double sum = 0;
        for (int64_t p = 0; p < parts; p++)
            sum += (double)job.parts[p * weights + i];
        dw[i] = (float)sum;
    }
}
