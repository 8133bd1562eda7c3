/* Convolution in plain loops, of any rank.
 *
 * Only for what all others refuse (more than three spatial dimensions, nothing
 * to compute with), so clarity comes before speed; they are threaded all the
 * same. */
#include "ops/conv/conv.h"

#include <assert.h>

#include "base/threads.h"

typedef struct loops_job {
    const sb_conv *conv;
    const float *x, *w, *b;
    float *y;
} loops_job;

/* Advances a position inside the box `size`; false after the last. */
static bool next_place(int n, const int64_t *size, int64_t *at)
{
    for (int i = n - 1; i >= 0; i--) {
        if (++at[i] < size[i])
            return true;
        at[i] = 0;
    }
    return false;
}

/* sum over the taps of x[place(tap)] * w[tap] for one input channel. */
static double window_dot(const sb_window *win, const int64_t *at,
                         const float *x, const float *w)
{
    int64_t tap[SB_MAX_SPATIAL] = {0};
    int64_t index = 0;
    double sum = 0;

    do {
        int64_t from = 0;
        bool inside = true;
        for (int i = 0; i < win->n && inside; i++) {
            int64_t p = at[i] * win->stride[i] - win->pad_lo[i] +
                        tap[i] * win->dilation[i];
            inside = p >= 0 && p < win->in[i];
            from = from * win->in[i] + p;
        }
        if (inside)
            sum += (double)x[from] * (double)w[index];
        index++;
    } while (next_place(win->n, win->kernel, tap));
    return sum;
}

/* Transposed: y[at] collects every x[p], w[tap] with
 * p * stride - pad + tap * dilation = at. */
static double window_gather(const sb_window *win, const int64_t *at,
                            const float *x, const float *w)
{
    int64_t tap[SB_MAX_SPATIAL] = {0};
    int64_t index = 0;
    double sum = 0;

    do {
        int64_t from = 0;
        bool inside = true;
        for (int i = 0; i < win->n && inside; i++) {
            int64_t p = at[i] + win->pad_lo[i] - tap[i] * win->dilation[i];
            inside = p >= 0 && p % win->stride[i] == 0 &&
                     p / win->stride[i] < win->in[i];
            from = from * win->in[i] + p / win->stride[i];
        }
        if (inside)
            sum += (double)x[from] * (double)w[index];
        index++;
    } while (next_place(win->n, win->kernel, tap));
    return sum;
}

/* One (image, output channel). */
static void loops_plane(const loops_job *job, int64_t item)
{
    const sb_conv *c = job->conv;
    const sb_window *win = &c->w;
    int64_t in = c->in_channels / c->groups, out = c->out_channels / c->groups;
    int64_t n = item / c->out_channels, m = item % c->out_channels;
    int64_t g = m / out;
    const float *x = job->x + (n * c->in_channels + g * in) * win->in_count;
    float *y = job->y + item * win->out_count;
    int64_t at[SB_MAX_SPATIAL] = {0};

    for (int64_t o = 0; o < win->out_count; o++) {
        double sum = job->b ? (double)job->b[m] : 0;
        for (int64_t i = 0; i < in; i++) {
            const float *plane = x + i * win->in_count;
            if (c->transposed)
                sum += window_gather(win, at, plane,
                                     job->w + ((g * in + i) * out + m % out) *
                                                  win->taps);
            else
                sum += window_dot(win, at, plane,
                                  job->w + (m * in + i) * win->taps);
        }
        y[o] = (float)sum;
        (void)next_place(win->n, win->out, at);
    }
}

static void loops_range(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        loops_plane(arg, (int64_t)i);
}

/* Threaded over (image, channel). */
static sb_status naive_run(const sb_conv_state *s, const sb_conv_args *a)
{
    const sb_conv *conv = &s->conv;
    loops_job job = {conv, a->x, a->w, a->b, a->y};

    assert(!a->z || a->z != a->y);
    if (conv->w.out_count > 0)
        sb_parallel_for(a->ctx, (size_t)(conv->n_batch * conv->out_channels), 1,
                        loops_range, &job);
    sb_epilogue_apply(a->ctx, &s->posts, a->y, a->z, a->n_out);
    return SB_OK;
}

const sb_conv_impl sb_conv_naive = {
    .name = "naive",
    .order = SB_CONV_PLAIN,
    .overwrites = true,
    .run = naive_run,
};
