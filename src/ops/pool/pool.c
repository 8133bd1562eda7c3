/* Windows over planes, for all pooling operators. */
#include "ops/pool/pool.h"

#include "base/threads.h"

sb_status sb_pool_infer(sb_infer *in, const sb_window_attrs *a, uint32_t i,
                        sb_dtype dtype)
{
    const sb_shape *x = &in->in[0]->type.shape;
    sb_window_who who = sb_window_who_infer(in);
    sb_window w;

    SB_TRY(sb_window_set(&who, a, x, NULL, &w));
    sb_window_infer_out(in, i, dtype, &w,
                        x->rank > 0 ? x->dim[0] : SB_DIM_UNKNOWN,
                        x->rank > 0 ? x->dim[1] : SB_DIM_UNKNOWN);
    return SB_OK;
}

/* ---- implementations ---------------------------------------------------- */

static const sb_pool_impl *pool_choose(const sb_kernel *k,
                                       const sb_pool_state *s,
                                       const sb_pool_impl *impls, size_t n)
{
    size_t i = 0;

    while (i + 1 < n && !impls[i].suits(k, s))
        i++;
    return &impls[i];
}

sb_status sb_pool_prepare(sb_kernel *k, const sb_window_attrs *a,
                          const sb_pool_impl *impls, size_t n)
{
    sb_shape x = sb_shape_of(k->in[0]);
    sb_window_who who = sb_window_who_kernel(k);
    sb_pool_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    SB_TRY(sb_window_set(&who, a, &x, NULL, &s->w));
    SB_TRY(sb_window_count(&who, &s->w));
    s->planes = x.dim[0] * x.dim[1];
    s->impl = pool_choose(k, s, impls, n);
    return SB_OK;
}

sb_status sb_pool_forward(sb_kernel *k)
{
    const sb_pool_state *s = k->state;

    return s->impl->run(k);
}

void sb_pool_release(sb_kernel *k)
{
    sb_free(k->ctx, k->state);
}

bool sb_pool_suits_last(const sb_kernel *k, const sb_pool_state *s)
{
    (void)s;
    return k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST;
}

bool sb_pool_suits_line(const sb_kernel *k, const sb_pool_state *s)
{
    return s->w.n > 0 && k->in[0]->dtype == SB_DTYPE_F32 &&
           !sb_kernel_out(k, 1);
}

/* ---- planes ------------------------------------------------------------- */

typedef struct planes_job {
    const sb_kernel *k;
    sb_plane_fn fn;
} planes_job;

static void planes_range(void *arg, size_t begin, size_t end)
{
    const planes_job *job = arg;

    for (size_t i = begin; i < end; i++)
        job->fn(job->k, job->k->state, (int64_t)i);
}

void sb_pool_planes(sb_kernel *k, sb_plane_fn fn)
{
    const sb_pool_state *s = k->state;
    planes_job job = {k, fn};
    int64_t work = s->w.out_count * s->w.taps + 1;

    if (s->w.out_count > 0)
        sb_parallel_for(k->ctx, (size_t)s->planes, (size_t)(20000 / work + 1),
                        planes_range, &job);
}

/* ---- walking ------------------------------------------------------------ */

static void pool_enter(sb_pool_walk *walk, int i)
{
    walk->start[i] =
        sb_window_clip(walk->w, i, walk->at[i], &walk->lo[i], &walk->hi[i]);
}

static void count_inside(sb_pool_walk *walk)
{
    walk->inside = 1;
    for (int i = 0; i < walk->w->n; i++)
        walk->inside *= walk->hi[i] - walk->lo[i];
}

void sb_pool_walk_enter(sb_pool_walk *walk)
{
    for (int i = 0; i < walk->w->n; i++)
        pool_enter(walk, i);
    count_inside(walk);
}

void sb_pool_walk_begin(sb_pool_walk *walk, const sb_window *w)
{
    *walk = (sb_pool_walk){.w = w};
    sb_pool_walk_enter(walk);
}

bool sb_pool_walk_next(sb_pool_walk *walk)
{
    for (int i = walk->w->n - 1; i >= 0; i--) {
        bool more = ++walk->at[i] < walk->w->out[i];
        if (!more)
            walk->at[i] = 0;
        pool_enter(walk, i);
        if (more) {
            count_inside(walk);
            return true;
        }
    }
    return false;
}

static int64_t tap_offset(const sb_pool_walk *walk)
{
    int64_t at = 0;

    for (int i = 0; i < walk->w->n; i++)
        at = at * walk->w->in[i] + walk->start[i] +
             walk->tap[i] * walk->w->dilation[i];
    return at;
}

int64_t sb_pool_tap_first(sb_pool_walk *walk)
{
    if (walk->inside == 0)
        return -1;
    for (int i = 0; i < walk->w->n; i++)
        walk->tap[i] = walk->lo[i];
    return tap_offset(walk);
}

int64_t sb_pool_tap_next(sb_pool_walk *walk)
{
    int last = walk->w->n - 1;

    for (int i = last; i >= 0; i--) {
        if (++walk->tap[i] < walk->hi[i])
            return tap_offset(walk);
        walk->tap[i] = walk->lo[i];
    }
    return -1;
}
