/* Pooling along one dimension, in NCHW order: signals [N, C, L].
 *
 * Most windows lie inside the input entirely.  They are done tap by tap over
 * all of them, so the inner loop has no conditions; the few at the ends are
 * walked. */
#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/pool/pool.h"

enum { LINE_GRAIN = 20000 };

typedef struct line_job {
    const sb_kernel *k;
    const sb_pool_state *s;
    sb_pool_divisor_fn divisor; /* NULL: maximum */
    int64_t begin, end;         /* windows that lie inside */
} line_job;

SB_HOT static void line_max(const float *x, int64_t step, float *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = sb_pool_larger(x[i * step], y[i]);
}

SB_HOT static void line_add(const float *x, int64_t step, float *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i * step];
}

SB_HOT static void line_divide(float *y, float by, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] /= by;
}

static void inner_windows(const line_job *job, const float *x, float *y)
{
    const sb_window *w = &job->s->w;
    int64_t n = job->end - job->begin;

    x += job->begin * w->stride[0] - w->pad_lo[0];
    y += job->begin;
    for (int64_t i = 0; i < n; i++)
        y[i] = job->divisor ? 0.0f : -INFINITY;
    for (int64_t t = 0; t < w->kernel[0]; t++, x += w->dilation[0])
        (job->divisor ? line_add : line_max)(x, w->stride[0], y, n);
    if (job->divisor)
        line_divide(y, (float)w->kernel[0], n);
}

static float end_window(const line_job *job, const float *x, int64_t at)
{
    sb_pool_walk walk = {.w = &job->s->w, .at = {at}};
    float y = job->divisor ? 0.0f : -INFINITY;

    sb_pool_walk_enter(&walk);
    for (int64_t t = sb_pool_tap_first(&walk); t >= 0;
         t = sb_pool_tap_next(&walk)) {
        if (job->divisor)
            y += x[t];
        else
            y = sb_pool_larger(x[t], y);
    }
    int64_t by = job->divisor ? job->divisor(job->k, &walk) : 1;
    return by > 0 ? y / (float)by : 0;
}

static void pool_1d_lines(void *arg, size_t begin, size_t end)
{
    const line_job *job = arg;
    const sb_window *w = &job->s->w;

    for (size_t i = begin; i < end; i++) {
        const float *x =
            (const float *)job->k->in[0]->data + (int64_t)i * w->in[0];
        float *y = (float *)job->k->out[0]->data + (int64_t)i * w->out[0];

        for (int64_t at = 0; at < job->begin; at++)
            y[at] = end_window(job, x, at);
        if (job->begin < job->end)
            inner_windows(job, x, y);
        for (int64_t at = job->end; at < w->out[0]; at++)
            y[at] = end_window(job, x, at);
    }
}

static bool is_inside(const sb_window *w, int64_t at)
{
    int64_t first = at * w->stride[0] - w->pad_lo[0];

    return first >= 0 && first + (w->kernel[0] - 1) * w->dilation[0] < w->in[0];
}

void sb_pool_1d(sb_kernel *k, sb_pool_divisor_fn divisor)
{
    const sb_pool_state *s = k->state;
    const sb_window *w = &s->w;
    line_job job = {k, s, divisor, 0, w->out[0]};
    int64_t work = w->out_count * w->taps + 1;

    while (job.begin < job.end && !is_inside(w, job.begin))
        job.begin++;
    while (job.begin < job.end && !is_inside(w, job.end - 1))
        job.end--;
    if (w->out_count > 0)
        sb_parallel_for(k->ctx, (size_t)s->planes,
                        (size_t)(LINE_GRAIN / work + 1), pool_1d_lines, &job);
}
