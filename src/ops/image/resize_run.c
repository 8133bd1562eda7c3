/* The loops of Resize, given tables for each axis.
 *
 * Axes are kept in the order of memory, slowest varying first, so
 * the loops are the same for both layouts; channels last, the innermost runs
 * are the channels of a pixel and are copied or mixed as a whole. */
#include "ops/image/resize_run.h"

#include <assert.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/move/move_util.h"

struct sb_resize_state {
    sb_resize_config c;
    float extrapolation;
    int rank;
    sb_resize_axis axis[SB_MAX_RANK];
    int dim[SB_MAX_RANK];   /* which dimension of the tensor each axis is */
    int order[SB_MAX_RANK]; /* of the passes */
    size_t pass_elems;      /* most elements between two passes */
};

enum { GRAIN = 1 << 14 /* elements worth a thread */ };

/* ---- making ------------------------------------------------------------- */

/* Shrinking axes slowest varying first, then growing ones fastest first. */
static void order_axes(sb_resize_state *s)
{
    int n = 0;

    for (int i = 0; i < s->rank; i++)
        if (s->axis[i].n_out < s->axis[i].n_in)
            s->order[n++] = i;
    for (int i = s->rank - 1; i >= 0; i--)
        if (s->axis[i].n_out >= s->axis[i].n_in)
            s->order[n++] = i;
}

/* Elements of the largest tensor between passes; false on overflow. */
static bool size_between(sb_resize_state *s)
{
    int64_t dims[SB_MAX_RANK];

    for (int i = 0; i < s->rank; i++)
        dims[i] = s->axis[i].n_in;
    for (int i = 0; i < s->rank; i++) {
        int64_t n = 1;
        dims[s->order[i]] = s->axis[s->order[i]].n_out;
        for (int d = 0; d < s->rank; d++)
            if (!sb_mul_i64(n, dims[d], &n))
                return false;
        if ((size_t)n > s->pass_elems)
            s->pass_elems = (size_t)n;
    }
    return s->pass_elems < SIZE_MAX / 64;
}

/* Bytes of the tables of one axis, alignment included; false on overflow. */
static bool table_bytes(const sb_resize_axis *a, size_t *bytes)
{
    const size_t each = sizeof(int64_t) + sizeof(float);
    size_t n = 0, size = 0;

    if (!sb_mul_size((size_t)a->n_out, (size_t)a->taps, &n) ||
        !sb_mul_size(n, each, &size) ||
        !sb_add_size(size, (size_t)a->n_out + 16, &size) ||
        !sb_add_size(*bytes, size, bytes))
        return false;
    return true;
}

static char *place_tables(sb_resize_axis *a, char *at)
{
    size_t n = (size_t)(a->n_out * a->taps);

    a->index = (int64_t *)(void *)at;
    at += n * sizeof *a->index;
    a->weight = (float *)(void *)at;
    at += n * sizeof *a->weight;
    a->outside = (uint8_t *)at;
    at += a->n_out;
    return at + (8 - (uintptr_t)at % 8) % 8;
}

static sb_status set_scratch(sb_kernel *k, sb_resize_state *s)
{
    size_t n_in = (size_t)sb_tensor_count(k->in[0]);
    size_t n_out = (size_t)sb_tensor_count(k->out[0]);
    size_t elems = 0;

    order_axes(s);
    if (!size_between(s))
        return sb_kernel_fail(k, SB_NO_MEMORY, "too many elements");
    if (s->c.mode == SB_RESIZE_NEAREST)
        return SB_OK;
    elems = 2 * s->pass_elems;
    if (k->in[0]->dtype != SB_DTYPE_F32)
        elems += n_in + n_out;
    k->scratch_size = elems * sizeof(float);
    return SB_OK;
}

sb_status sb_resize_create(sb_kernel *k, const sb_resize_config *c,
                           const float *scale, float extrapolation)
{
    const sb_tensor *x = k->in[0], *y = k->out[0];
    sb_resize_state made = {
        .c = *c, .extrapolation = extrapolation, .rank = x->rank};
    size_t bytes = sizeof made;

    for (int i = 0; i < x->rank; i++) {
        sb_resize_axis *a = &made.axis[i];
        int d = made.dim[i] = sb_tensor_dim_at(x, i);
        *a = (sb_resize_axis){.n_in = x->dims[d],
                              .n_out = y->dims[d],
                              .scale = scale[d],
                              .roi_hi = 1};
        int64_t taps = sb_resize_taps(c, a);
        if (taps < 0)
            return sb_kernel_fail(k, SB_BAD_MODEL, "scale %g of axis %d",
                                  (double)scale[d], d);
        a->taps = (int)taps;
        if (!table_bytes(a, &bytes))
            return sb_kernel_fail(k, SB_NO_MEMORY, "axis %d is too long", d);
    }
    SB_TRY(set_scratch(k, &made));
    sb_resize_state *s = sb_alloc(k->ctx, 1, bytes);
    if (!s)
        return SB_NO_MEMORY;
    *s = made;
    char *at = (char *)(s + 1);
    for (int i = 0; i < s->rank; i++)
        at = place_tables(&s->axis[i], at);
    k->state = s;
    return SB_OK;
}

void sb_resize_set_region(sb_resize_state *s, const float *lo, const float *hi)
{
    for (int i = 0; i < s->rank; i++) {
        s->axis[i].roi_lo = lo[s->dim[i]];
        s->axis[i].roi_hi = hi[s->dim[i]];
        if (s->axis[i].n_in > 0)
            sb_resize_fill(&s->c, &s->axis[i]);
    }
}

/* ---- nearest ------------------------------------------------------------ */

typedef struct {
    const sb_resize_state *s;
    const char *src;
    char *dst;
    size_t elem;
    int64_t stride[SB_MAX_RANK]; /* of the input, in elements */
} nearest_job;

#define DEFINE_ROW(size)                                                     \
    static void row_##size(const int64_t *index, int64_t n, const char *src, \
                           char *dst)                                        \
    {                                                                        \
        for (int64_t i = 0; i < n; i++)                                      \
            memcpy(dst + i * size, src + index[i] * size, size);             \
    }
DEFINE_ROW(1)
DEFINE_ROW(2)
DEFINE_ROW(4)
DEFINE_ROW(8)
DEFINE_ROW(16)
#undef DEFINE_ROW

/* Every element twice, the usual case. */
static void row_twice(int64_t n, const uint32_t *src, uint32_t *dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[2 * i] = src[i];
        dst[2 * i + 1] = src[i];
    }
}

static void nearest_row(const sb_resize_axis *a, size_t elem, const char *src,
                        char *dst)
{
    if (a->identity)
        memcpy(dst, src, (size_t)a->n_out * elem);
    else if (a->doubled && elem == 4)
        row_twice(a->n_in, (const uint32_t *)(const void *)src,
                  (uint32_t *)(void *)dst);
    else if (elem == 1)
        row_1(a->index, a->n_out, src, dst);
    else if (elem == 2)
        row_2(a->index, a->n_out, src, dst);
    else if (elem == 4)
        row_4(a->index, a->n_out, src, dst);
    else if (elem == 8)
        row_8(a->index, a->n_out, src, dst);
    else
        row_16(a->index, a->n_out, src, dst);
}

static void nearest_rows(void *arg, size_t begin, size_t end)
{
    const nearest_job *job = arg;
    const sb_resize_state *s = job->s;
    int last = s->rank - 1;
    size_t row_bytes = (size_t)s->axis[last].n_out * job->elem;
    int64_t before = -1;

    for (size_t row = begin; row < end; row++) {
        int64_t rest = (int64_t)row, at = 0;
        for (int i = last - 1; i >= 0; i--) {
            const sb_resize_axis *a = &s->axis[i];
            at += a->index[rest % a->n_out] * job->stride[i];
            rest /= a->n_out;
        }
        char *dst = job->dst + row * row_bytes;
        if (at == before) /* enlarging repeats whole rows */
            memcpy(dst, dst - row_bytes, row_bytes);
        else
            nearest_row(&s->axis[last], job->elem,
                        job->src + (size_t)at * job->elem, dst);
        before = at;
    }
}

static void run_nearest(sb_kernel *k, const sb_resize_state *s)
{
    nearest_job job = {.s = s,
                       .src = k->in[0]->data,
                       .dst = k->out[0]->data,
                       .elem = sb_dtype_size(k->in[0]->dtype)};
    int64_t n = sb_tensor_count(k->out[0]), row = s->axis[s->rank - 1].n_out;
    sb_tensor x = sb_tensor_as_lies(k->in[0]);

    sb_tensor_strides(&x, job.stride);
    sb_parallel_for(k->ctx, (size_t)(n / row), (size_t)(GRAIN / row + 1),
                    nearest_rows, &job);
}

/* ---- linear and cubic --------------------------------------------------- */

/* One axis of [outer, n_in, inner]. */
typedef struct {
    const sb_resize_axis *a;
    const float *src;
    float *dst;
    int64_t inner;
} pass_job;

typedef struct {
    const sb_resize_axis *ay, *ax;
    const float *src;
    float *dst;
    int64_t inner;
} plane_job;

typedef struct {
    float first, second;
} tap_pair;

/* The weights of one output position.  Where both are the same input the sum is
 * the same; how it is rounded is not, so at the end it is halves, and before
 * the beginning the first alone. */
static tap_pair taps_at(const sb_resize_axis *a, int64_t o)
{
    if (a->index[2 * o] == a->index[2 * o + 1])
        return a->index[2 * o] == a->n_in - 1 ? (tap_pair){0.5f, 0.5f}
                                              : (tap_pair){1, 0};
    return (tap_pair){a->weight[2 * o], a->weight[2 * o + 1]};
}

/* inner == 1: items are rows. */
static void pass_rows(void *arg, size_t begin, size_t end)
{
    const pass_job *job = arg;
    const sb_resize_axis *a = job->a;
    int taps = a->taps;

    for (size_t row = begin; row < end; row++) {
        const float *src = job->src + row * (size_t)a->n_in;
        float *dst = job->dst + row * (size_t)a->n_out;
        const int64_t *index = a->index;
        const float *weight = a->weight;
        if (taps == 2) {
            for (int64_t o = 0; o < a->n_out; o++)
                dst[o] = weight[2 * o] * src[index[2 * o]] +
                         weight[2 * o + 1] * src[index[2 * o + 1]];
            continue;
        }
        for (int64_t o = 0; o < a->n_out; o++) {
            float sum = 0;
            for (int t = 0; t < taps; t++)
                sum += *weight++ * src[*index++];
            dst[o] = sum;
        }
    }
}

/* y = v * p + w * q */
SB_HOT static void mix(float *restrict y, const float *p, float v,
                       const float *q, float w, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = v * p[i] + w * q[i];
}

/* y = the sum of four, in their order */
SB_HOT static void mix_four(float *restrict y, const float *const *p,
                            const float *w, int64_t n)
{
    const float *a = p[0], *b = p[1], *c = p[2], *d = p[3];
    float wa = w[0], wb = w[1], wc = w[2], wd = w[3];

    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i];
}

/* y += w * p */
SB_HOT static void mix_in(float *restrict y, const float *p, float w, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] += w * p[i];
}

/* inner > 1: an item is one position of the axis, `inner` elements long. */
static void pass_lines(void *arg, size_t begin, size_t end)
{
    const pass_job *job = arg;
    const sb_resize_axis *a = job->a;
    int64_t inner = job->inner;

    for (size_t item = begin; item < end; item++) {
        int64_t o = (int64_t)item % a->n_out, outer = (int64_t)item / a->n_out;
        const float *base = job->src + outer * a->n_in * inner;
        float *dst = job->dst + (int64_t)item * inner;
        const int64_t *index = a->index + o * a->taps;
        const float *weight = a->weight + o * a->taps;
        mix(dst, base + index[0] * inner, weight[0], base + index[1] * inner,
            weight[1], inner);
        for (int t = 2; t < a->taps; t++)
            mix_in(dst, base + index[t] * inner, weight[t], inner);
    }
}

/* Two neighboring axes at once, two taps each, as ONNX Runtime does it: four
 * products with weights of their own, summed in this order, so that behind a
 * quantizer the same integers come out.  An item is a row of the output; each
 * element of it is a run of `inner`. */
static void plane_rows(void *arg, size_t begin, size_t end)
{
    const plane_job *job = arg;
    const sb_resize_axis *ay = job->ay, *ax = job->ax;
    int64_t inner = job->inner, width = ax->n_in * inner;

    for (size_t row = begin; row < end; row++) {
        int64_t o = (int64_t)row % ay->n_out;
        const float *plane =
            job->src + (int64_t)row / ay->n_out * ay->n_in * width;
        const float *p = plane + ay->index[2 * o] * width;
        const float *q = plane + ay->index[2 * o + 1] * width;
        float *dst = job->dst + (int64_t)row * ax->n_out * inner;
        tap_pair y = taps_at(ay, o);
        for (int64_t i = 0; i < ax->n_out; i++) {
            tap_pair x = taps_at(ax, i);
            int64_t l = ax->index[2 * i] * inner;
            int64_t r = ax->index[2 * i + 1] * inner;
            float w[] = {x.first * y.first, x.second * y.first,
                         x.first * y.second, x.second * y.second};
            if (inner == 1)
                dst[i] = w[0] * p[l] + w[1] * p[r] + w[2] * q[l] + w[3] * q[r];
            else
                mix_four(dst + i * inner,
                         (const float *[]){p + l, p + r, q + l, q + r}, w,
                         inner);
        }
    }
}

/* True if that did it: an image is resized in both directions. */
static bool run_plane(sb_kernel *k, const sb_resize_state *s, const float *src,
                      float *dst)
{
    int first = 0, last = s->rank - 1;

    while (first < s->rank && s->axis[first].identity)
        first++;
    while (last > first && s->axis[last].identity)
        last--;
    if (s->c.mode != SB_RESIZE_LINEAR || s->c.antialias || last != first + 1)
        return false;
    plane_job job = {&s->axis[first], &s->axis[last], src, dst, 1};
    if (job.ay->taps != 2 || job.ax->taps != 2)
        return false;
    for (int i = last + 1; i < s->rank; i++)
        job.inner *= s->axis[i].n_out;
    int64_t n = job.ax->n_out * job.inner;
    sb_parallel_for(k->ctx, (size_t)(sb_tensor_count(k->out[0]) / n),
                    (size_t)(GRAIN / n + 1), plane_rows, &job);
    return true;
}

static void run_pass(sb_ctx *ctx, const pass_job *job, int64_t outer)
{
    pass_job copy = *job;
    int64_t n_out = job->a->n_out, inner = job->inner;

    assert(job->a->taps >= 2);
    if (inner == 1)
        sb_parallel_for(ctx, (size_t)outer, (size_t)(GRAIN / n_out + 1),
                        pass_rows, &copy);
    else
        sb_parallel_for(ctx, (size_t)(outer * n_out),
                        (size_t)(GRAIN / inner + 1), pass_lines, &copy);
}

static void run_passes(sb_kernel *k, const sb_resize_state *s, const float *src,
                       float *dst, float *scratch)
{
    int64_t dims[SB_MAX_RANK];
    const float *from = src;
    int left = 0, turn = 0;

    for (int i = 0; i < s->rank; i++) {
        dims[i] = s->axis[i].n_in;
        left += !s->axis[i].identity;
    }
    if (run_plane(k, s, src, dst))
        return;
    if (left == 0)
        memcpy(dst, src, (size_t)sb_tensor_count(k->in[0]) * sizeof *dst);
    for (int i = 0; i < s->rank; i++) {
        int axis = s->order[i];
        const sb_resize_axis *a = &s->axis[axis];
        if (a->identity)
            continue;
        float *to = --left ? scratch + (size_t)turn * s->pass_elems : dst;
        pass_job job = {.a = a,
                        .src = from,
                        .dst = to,
                        .inner = sb_dims_product(dims, axis + 1, s->rank)};
        run_pass(k->ctx, &job, sb_dims_product(dims, 0, axis));
        dims[axis] = a->n_out;
        from = to;
        turn = 1 - turn;
    }
}

/* ---- both --------------------------------------------------------------- */

/* Overwrites what lies outside the region, along each axis. */
static void resize_run_extrapolate(sb_kernel *k, const sb_resize_state *s)
{
    const sb_tensor lies = sb_tensor_as_lies(k->out[0]), *y = &lies;
    size_t elem = sb_dtype_size(y->dtype);
    unsigned char value[16];

    if (sb_dtype_get(y->dtype)->cls == SB_CLASS_OTHER)
        memset(value, 0, sizeof value);
    else
        sb_convert(SB_DTYPE_F32, &s->extrapolation, y->dtype, value, 1);
    for (int i = 0; i < s->rank; i++) {
        const sb_resize_axis *a = &s->axis[i];
        int64_t outer = sb_dims_product(y->dims, 0, i);
        int64_t inner = sb_dims_product(y->dims, i + 1, y->rank);
        for (int64_t o = 0; a->any_outside && o < outer * a->n_out; o++)
            if (a->outside[o % a->n_out])
                sb_fill((char *)y->data + (size_t)(o * inner) * elem, elem,
                        value, inner);
    }
}

void sb_resize_run(sb_kernel *k)
{
    const sb_resize_state *s = k->state;
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    size_t n_in = (size_t)sb_tensor_count(x),
           n_out = (size_t)sb_tensor_count(y);
    float *scratch = k->scratch;

    if (s->rank == 0) {
        memcpy(y->data, x->data, sb_dtype_size(x->dtype));
    } else if (s->c.mode == SB_RESIZE_NEAREST) {
        run_nearest(k, s);
    } else if (x->dtype == SB_DTYPE_F32) {
        run_passes(k, s, x->data, y->data, scratch);
    } else {
        float *fx = scratch + 2 * s->pass_elems, *fy = fx + n_in;
        sb_convert(x->dtype, x->data, SB_DTYPE_F32, fx, n_in);
        run_passes(k, s, fx, fy, scratch);
        sb_convert(SB_DTYPE_F32, fy, y->dtype, y->data, n_out);
    }
    resize_run_extrapolate(k, s);
}
