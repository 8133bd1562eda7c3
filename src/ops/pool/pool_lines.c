/* Pooling in NCHW order, a line of windows along the last dimension at a time.
 *
 * Most windows of a line lie inside the input in that dimension.  They are done
 * tap by tap over all of them, so the inner loop has no conditions; the few at
 * the ends are walked. */
#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/pool/pool.h"

enum { LINE_GRAIN = 20000 };

typedef struct line_job {
    const sb_kernel *k;
    const sb_pool_state *s;
    sb_pool_divisor_fn divisor; /* NULL: maximum */
    int64_t begin, end;         /* windows of a line that lie inside */
} line_job;

/* Neighbors have loops of their own, which load whole vectors. */
SB_HOT static void line_max(const float *x, int64_t step, float *y, int64_t n)
{
    if (step == 1) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = sb_pool_larger(x[i], y[i]);
        return;
    }
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = sb_pool_larger(x[i * step], y[i]);
}

SB_HOT static void line_add(const float *x, int64_t step, float *y, int64_t n)
{
    if (step == 1) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
        return;
    }
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

static void inner_windows(const line_job *job, sb_pool_walk *walk,
                          const float *x, float *y)
{
    int last = walk->w->n - 1;
    int64_t n = job->end - job->begin;

    walk->at[last] = job->begin;
    sb_pool_walk_enter(walk);
    for (int64_t i = 0; i < n; i++)
        y[i] = job->divisor ? 0.0f : -INFINITY;
    for (int64_t t = sb_pool_tap_first(walk); t >= 0;
         t = sb_pool_tap_next(walk))
        (job->divisor ? line_add : line_max)(x + t, walk->w->stride[last], y,
                                             n);
    int64_t by = job->divisor ? job->divisor(job->k, walk) : 1;
    if (by > 1)
        line_divide(y, (float)by, n);
}

static float end_window(const line_job *job, sb_pool_walk *walk, const float *x,
                        int64_t at)
{
    float y = job->divisor ? 0.0f : -INFINITY;

    walk->at[walk->w->n - 1] = at;
    sb_pool_walk_enter(walk);
    for (int64_t t = sb_pool_tap_first(walk); t >= 0;
         t = sb_pool_tap_next(walk)) {
        if (job->divisor)
            y += x[t];
        else
            y = sb_pool_larger(x[t], y);
    }
    int64_t by = job->divisor ? job->divisor(job->k, walk) : 1;
    return by > 0 ? y / (float)by : 0;
}

/* The walk at the first window of line i of a plane. */
static sb_pool_walk line_start(const sb_window *w, int64_t i)
{
    sb_pool_walk walk = {.w = w};

    for (int k = w->n - 2; k >= 0; k--) {
        walk.at[k] = i % w->out[k];
        i /= w->out[k];
    }
    return walk;
}

static void pool_lines_range(void *arg, size_t begin, size_t end)
{
    const line_job *job = arg;
    const sb_window *w = &job->s->w;
    int64_t length = w->out[w->n - 1], of_plane = w->out_count / length;

    for (size_t i = begin; i < end; i++) {
        const float *x = (const float *)job->k->in[0]->data +
                         (int64_t)i / of_plane * w->in_count;
        float *y = (float *)job->k->out[0]->data + (int64_t)i * length;
        sb_pool_walk walk = line_start(w, (int64_t)i % of_plane);

        for (int64_t at = 0; at < job->begin; at++)
            y[at] = end_window(job, &walk, x, at);
        if (job->begin < job->end)
            inner_windows(job, &walk, x, y + job->begin);
        for (int64_t at = job->end; at < length; at++)
            y[at] = end_window(job, &walk, x, at);
    }
}

static bool is_inside(const sb_window *w, int64_t at)
{
    int i = w->n - 1;
    int64_t first = at * w->stride[i] - w->pad_lo[i];

    return first >= 0 && first + (w->kernel[i] - 1) * w->dilation[i] < w->in[i];
}

void sb_pool_lines(sb_kernel *k, sb_pool_divisor_fn divisor)
{
    const sb_pool_state *s = k->state;
    const sb_window *w = &s->w;
    line_job job = {k, s, divisor, 0, w->out[w->n - 1]};
    int64_t work = job.end * w->taps + 1;

    while (job.begin < job.end && !is_inside(w, job.begin))
        job.begin++;
    while (job.begin < job.end && !is_inside(w, job.end - 1))
        job.end--;
    if (w->out_count > 0)
        sb_parallel_for(
            k->ctx, (size_t)(s->planes * (w->out_count / w->out[w->n - 1])),
            (size_t)(LINE_GRAIN / work + 1), pool_lines_range, &job);
}
