/* Gradients of pools: every window gives its share back to where it came from.
 *
 * sparsebit.MaxPoolGrad(dy, x): to the first of the largest elements.
 * sparsebit.AveragePoolGrad(dy, x): to all of them alike; of x only the shape
 * is read.  With `global` the window is the whole plane.
 *
 * A thread takes some channels of an image, so that windows which overlap are
 * added by one thread, in order. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/pool/pool.h"

typedef struct {
    sb_window_attrs window;
    int64_t count_include_pad, global;
} pool_grad_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"count_include_pad", SB_ATTR_INT,
     offsetof(pool_grad_attrs, count_include_pad), .i = 0},
    {"global", SB_ATTR_INT, offsetof(pool_grad_attrs, global), .i = 0},
    {0},
};

enum { LANES = 64 }; /* channels at a time, if they are last */

typedef struct pool_grad_state {
    sb_window w;
    int64_t n, c;
    bool last;
} pool_grad_state;

static sb_status pool_grad_infer(sb_infer *in)
{
    sb_infer_set(in, 0, in->in[0]->type.dtype, &in->in[1]->type.shape);
    return SB_OK;
}

static void pool_grad_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    if (k->in[1]->rank < 4 || (k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST &&
                               k->in[1]->layout != SB_LAYOUT_CHANNELS_LAST))
        return;
    in[0] = in[1] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

/* The whole plane as one window. */
static void pool_grad_whole(const sb_shape *x, sb_window *w)
{
    *w = (sb_window){.n = x->rank - 2};
    for (int i = 0; i < w->n; i++) {
        w->in[i] = w->kernel[i] = x->dim[2 + i];
        w->out[i] = w->stride[i] = w->dilation[i] = 1;
    }
}

static sb_status pool_grad_prepare(sb_kernel *k)
{
    const pool_grad_attrs *a = k->attrs;
    sb_shape x = sb_shape_of(k->in[1]), dy = sb_shape_of(k->in[0]);
    sb_window_who who = sb_window_who_kernel(k);
    pool_grad_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    if (x.rank < 3 || dy.rank != x.rank)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "inputs have rank %d and %d, want the same, "
                              "3 or more",
                              dy.rank, x.rank);
    s->n = x.dim[0];
    s->c = x.dim[1];
    s->last = k->out[0]->layout == SB_LAYOUT_CHANNELS_LAST;
    if (a->global)
        pool_grad_whole(&x, &s->w);
    else
        SB_TRY(sb_window_set(&who, &a->window, &x, NULL, &s->w));
    for (int i = 0; i < s->w.n; i++)
        if (s->w.out[i] != dy.dim[2 + i])
            return sb_kernel_fail(
                k, SB_BAD_MODEL,
                "dimension %d of the gradient is %lld, want %lld", 2 + i,
                (long long)dy.dim[2 + i], (long long)s->w.out[i]);
    SB_TRY(sb_window_count(&who, &s->w));
    if (s->w.in_count > INT32_MAX)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "planes of %lld elements",
                              (long long)s->w.in_count);
    return SB_OK;
}

/* Some channels of one image. */
typedef struct pool_grad_part {
    const sb_window *w;
    const float *x, *dy;
    float *dx;
    int64_t step; /* between places */
    size_t n;     /* channels, beside each other */
    bool with_pad;
} pool_grad_part;

/* Takes the elements at a tap where they are larger, or NaN. */
SB_HOT static void max_take(const float *x, int32_t tap, size_t n, float *best,
                            int32_t *best_at)
{
    SB_SIMD
    for (size_t j = 0; j < n; j++) {
        bool more = x[j] > best[j] || x[j] != x[j];
        best[j] = more ? x[j] : best[j];
        best_at[j] = more ? tap : best_at[j];
    }
}

/* Gives dy to the elements whose largest is at this tap. */
SB_HOT static void max_give(const float *dy, int32_t tap, size_t n,
                            const int32_t *best_at, float *dx)
{
    SB_SIMD
    for (size_t j = 0; j < n; j++)
        dx[j] += best_at[j] == tap ? dy[j] : 0;
}

static void max_grad_part(const pool_grad_part *p)
{
    const float *dy = p->dy;
    sb_pool_walk walk;

    sb_pool_walk_begin(&walk, p->w);
    do {
        float best[LANES];
        int32_t best_at[LANES]; /* counted from the first tap */
        int64_t first = sb_pool_tap_first(&walk);

        for (size_t j = 0; j < p->n; j++) {
            best[j] = -INFINITY;
            best_at[j] = 0;
        }
        for (int64_t t = first; t >= 0; t = sb_pool_tap_next(&walk))
            max_take(p->x + t * p->step, (int32_t)(t - first), p->n, best,
                     best_at);
        for (int64_t t = sb_pool_tap_first(&walk); t >= 0;
             t = sb_pool_tap_next(&walk))
            max_give(dy, (int32_t)(t - first), p->n, best_at,
                     p->dx + t * p->step);
        dy += p->step;
    } while (sb_pool_walk_next(&walk));
}

static void average_grad_part(const pool_grad_part *p)
{
    const float *dy = p->dy;
    sb_pool_walk walk;

    sb_pool_walk_begin(&walk, p->w);
    do {
        float share[LANES];
        double count = (double)sb_average_pool_divisor(&walk, p->with_pad);

        for (size_t j = 0; j < p->n; j++)
            share[j] = count > 0 ? (float)((double)dy[j] / count) : 0;
        for (int64_t t = sb_pool_tap_first(&walk); t >= 0;
             t = sb_pool_tap_next(&walk))
            for (size_t j = 0; j < p->n; j++)
                p->dx[t * p->step + (int64_t)j] += share[j];
        dy += p->step;
    } while (sb_pool_walk_next(&walk));
}

typedef struct pool_grad_job {
    const sb_kernel *k;
    void (*fn)(const pool_grad_part *p);
} pool_grad_job;

/* Items are (image, channels). */
static void pool_grad_items(void *arg, size_t begin, size_t end)
{
    const pool_grad_job *job = arg;
    const pool_grad_state *s = job->k->state;
    const pool_grad_attrs *a = job->k->attrs;
    int64_t lanes = s->last ? LANES : 1, blocks = (s->c + lanes - 1) / lanes;

    for (size_t i = begin; i < end; i++) {
        int64_t n = (int64_t)i / blocks, c = (int64_t)i % blocks * lanes;
        int64_t in =
            n * s->c * s->w.in_count + c * (s->last ? 1 : s->w.in_count);
        int64_t out =
            n * s->c * s->w.out_count + c * (s->last ? 1 : s->w.out_count);
        const float *x = job->k->in[1]->data;
        pool_grad_part part = {
            .w = &s->w,
            .x = x ? x + in : NULL,
            .dy = (const float *)job->k->in[0]->data + out,
            .dx = (float *)job->k->out[0]->data + in,
            .step = s->last ? s->c : 1,
            .n = (size_t)(s->c - c < lanes ? s->c - c : lanes),
            .with_pad = a->count_include_pad};
        job->fn(&part);
    }
}

static sb_status pool_grad_run(sb_kernel *k,
                               void (*fn)(const pool_grad_part *p))
{
    const pool_grad_state *s = k->state;
    pool_grad_job job = {k, fn};
    int64_t lanes = s->last ? LANES : 1, blocks = (s->c + lanes - 1) / lanes;

    memset(k->out[0]->data, 0, sb_tensor_bytes(k->out[0]));
    if (s->w.out_count > 0 && s->w.in_count > 0)
        sb_parallel_for(k->ctx, (size_t)(s->n * blocks), 1, pool_grad_items,
                        &job);
    return SB_OK;
}

static sb_status max_pool_grad_forward(sb_kernel *k)
{
    return pool_grad_run(k, max_grad_part);
}

static sb_status average_pool_grad_forward(sb_kernel *k)
{
    return pool_grad_run(k, average_grad_part);
}

const sb_op_def sb_op_max_pool_grad = {
    .name = "MaxPoolGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(pool_grad_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = pool_grad_infer,
    .layout = pool_grad_layout,
    .prepare = pool_grad_prepare,
    .forward = max_pool_grad_forward,
};

const sb_op_def sb_op_average_pool_grad = {
    .name = "AveragePoolGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(pool_grad_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = pool_grad_infer,
    .layout = pool_grad_layout,
    .prepare = pool_grad_prepare,
    .forward = average_pool_grad_forward,
};
