/* DeformConv: a convolution whose taps are moved by learnt offsets, and
 * weighted by an optional mask (arXiv 1703.06211, 1811.11168).
 *
 * For each image and group the samples that the taps meet, linearly
 * interpolated, are laid out as a matrix [C/group * taps, windows]; one matrix
 * product with the weights does the rest.  Outside of the input lies zero. */
#include <math.h>

#include "base/threads.h"
#include "dnn/dnn.h"
#include "ops/batch_rules.h"
#include "ops/conv/window.h"
#include "ops/tie/tie_rules.h"

enum { IN_X, IN_W, IN_OFFSET, IN_BIAS, IN_MASK };

typedef struct {
    sb_window_attrs window;
    int64_t group, offset_group;
} deform_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"group", SB_ATTR_INT, offsetof(deform_attrs, group), .i = 1},
    {"offset_group", SB_ATTR_INT, offsetof(deform_attrs, offset_group), .i = 1},
    {0},
};

static sb_status deform_infer(sb_infer *in)
{
    const deform_attrs *a = in->attrs;
    const sb_shape *x = &in->in[IN_X]->type.shape;
    const sb_shape *w = &in->in[IN_W]->type.shape;
    sb_window_who who = sb_window_who_infer(in);
    sb_window win;

    SB_TRY(sb_window_set(&who, &a->window, x, w, &win));
    sb_dim c = x->rank > 1 ? x->dim[1] : SB_DIM_UNKNOWN;
    sb_dim m = w->rank > 1 ? w->dim[0] : SB_DIM_UNKNOWN;
    if (a->group < 1 || a->offset_group < 1 ||
        (sb_dim_known(c) && (c % a->group || c % a->offset_group)) ||
        (sb_dim_known(m) && m % a->group))
        return sb_infer_fail(in,
                             "group %lld and offset_group %lld do not "
                             "divide the channels",
                             (long long)a->group, (long long)a->offset_group);
    if (sb_dim_known(c) && w->rank > 1 && sb_dim_known(w->dim[1]) &&
        w->dim[1] != c / a->group)
        return sb_infer_fail(in, "weights for %lld channels, want %lld",
                             (long long)w->dim[1], (long long)(c / a->group));
    sb_window_infer_out(in, 0, in->in[IN_X]->type.dtype, &win,
                        x->rank > 0 ? x->dim[0] : SB_DIM_UNKNOWN, m);
    return SB_OK;
}

typedef struct {
    sb_window w;
    int64_t channels, out_channels;
    sb_dnn_gemm *gemm; /* one image, one group */
    size_t at_gemm;
} deform_state;

/* Input i must be [N, channels, windows...]. */
static sb_status check_maps(const sb_kernel *k, const sb_window *w, uint32_t i,
                            int64_t channels)
{
    const sb_tensor *t = sb_kernel_in(k, i);
    bool ok = true;

    if (!t)
        return SB_OK;
    ok = t->rank == w->n + 2 && t->dims[0] == k->in[IN_X]->dims[0] &&
         t->dims[1] == channels;
    for (int d = 0; ok && d < w->n; d++)
        ok = t->dims[d + 2] == w->out[d];
    return ok ? SB_OK
              : sb_kernel_fail(k, SB_BAD_MODEL,
                               "input %u does not have %lld channels of the "
                               "output's size",
                               i, (long long)channels);
}

static sb_status deform_prepare(sb_kernel *k)
{
    const deform_attrs *a = k->attrs;
    sb_shape x = sb_shape_of(k->in[IN_X]), w = sb_shape_of(k->in[IN_W]);
    const sb_tensor *bias = sb_kernel_in(k, IN_BIAS);
    sb_window_who who = sb_window_who_kernel(k);
    deform_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    SB_TRY(sb_window_set(&who, &a->window, &x, &w, &s->w));
    SB_TRY(sb_window_count(&who, &s->w));
    s->channels = x.dim[1];
    s->out_channels = w.dim[0];
    int64_t maps = a->offset_group * s->w.taps;
    SB_TRY(check_maps(k, &s->w, IN_OFFSET, maps * s->w.n));
    SB_TRY(check_maps(k, &s->w, IN_MASK, maps));
    if (bias && sb_tensor_count(bias) != s->out_channels)
        return sb_kernel_fail(k, SB_BAD_MODEL, "bias of the wrong size");
    int64_t rows = s->channels / a->group * s->w.taps, n = s->w.out_count;
    size_t columns = 0;
    if (!sb_mul_size((size_t)rows, (size_t)n * sizeof(float), &columns))
        return sb_kernel_fail(k, SB_NO_MEMORY, "the samples are too many");
    sb_dnn_gemm_desc d = {
        .what = sb_node_label(k->graph, k->node),
        .m = s->out_channels / a->group,
        .n = n,
        .k = rows,
        .a_row = rows,
        .a_col = 1,
        .b_row = n,
        .b_col = 1,
        .c_row = n,
    };
    SB_TRY(sb_dnn_gemm_create(k->ctx, &d, &s->gemm));
    s->at_gemm = (columns + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    k->scratch_size = s->at_gemm + sb_dnn_gemm_scratch(s->gemm);
    return SB_OK;
}

/* The plane at a place between its elements. */
static float deform_conv_sample(const sb_window *w, const float *plane,
                                const double *at)
{
    int64_t low[SB_MAX_SPATIAL];
    double part[SB_MAX_SPATIAL], sum = 0;

    for (int d = 0; d < w->n; d++) {
        if (!(at[d] > -1 && at[d] < (double)w->in[d]))
            return 0;
        low[d] = (int64_t)floor(at[d]);
        part[d] = at[d] - (double)low[d];
    }
    for (int corner = 0; corner < 1 << w->n; corner++) {
        double weight = 1;
        int64_t from = 0;
        bool inside = true;
        for (int d = 0; d < w->n && inside; d++) {
            int high = corner >> d & 1;
            int64_t p = low[d] + high;
            inside = p >= 0 && p < w->in[d];
            weight *= high ? part[d] : 1 - part[d];
            from = from * w->in[d] + p;
        }
        if (inside)
            sum += weight * (double)plane[from];
    }
    return (float)sum;
}

typedef struct {
    const sb_kernel *k;
    int64_t image, group;
} deform_job;

/* One row of the matrix: a channel of the group and a tap. */
static void sample_row(const deform_job *job, int64_t row)
{
    const sb_kernel *k = job->k;
    const deform_attrs *a = k->attrs;
    const deform_state *s = k->state;
    const sb_window *w = &s->w;
    const sb_tensor *mask = sb_kernel_in(k, IN_MASK);
    int64_t tap = row % w->taps, n = w->out_count;
    int64_t c = job->group * (s->channels / a->group) + row / w->taps;
    int64_t map = c / (s->channels / a->offset_group) * w->taps + tap;
    int64_t maps = a->offset_group * w->taps;
    const float *plane = (const float *)k->in[IN_X]->data +
                         (job->image * s->channels + c) * w->in_count;
    const float *offset = (const float *)k->in[IN_OFFSET]->data +
                          (job->image * maps + map) * w->n * n;
    const float *weight =
        mask ? (const float *)mask->data + (job->image * maps + map) * n : NULL;
    float *to = (float *)k->scratch + row * n;

    for (int64_t o = 0; o < n; o++) {
        double at[SB_MAX_SPATIAL];
        int64_t rest = o, tap_rest = tap;
        for (int d = w->n - 1; d >= 0; d--) {
            at[d] = (double)(rest % w->out[d] * w->stride[d] - w->pad_lo[d] +
                             tap_rest % w->kernel[d] * w->dilation[d]) +
                    (double)offset[d * n + o];
            rest /= w->out[d];
            tap_rest /= w->kernel[d];
        }
        to[o] = deform_conv_sample(w, plane, at) * (weight ? weight[o] : 1);
    }
}

static void sample_rows(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        sample_row(arg, (int64_t)i);
}

static void add_bias(const sb_kernel *k)
{
    const deform_state *s = k->state;
    const float *bias = k->in[IN_BIAS]->data;
    float *y = k->out[0]->data;
    int64_t planes = k->in[IN_X]->dims[0] * s->out_channels;

    for (int64_t p = 0; p < planes; p++)
        for (int64_t i = 0; i < s->w.out_count; i++)
            y[p * s->w.out_count + i] += bias[p % s->out_channels];
}

static sb_status deform_forward(sb_kernel *k)
{
    const deform_attrs *a = k->attrs;
    deform_state *s = k->state;
    int64_t m = s->out_channels / a->group, n = s->w.out_count;
    int64_t rows = s->channels / a->group * s->w.taps;

    for (int64_t i = 0; i < k->in[IN_X]->dims[0] * a->group; i++) {
        deform_job job = {k, i / a->group, i % a->group};
        sb_dnn_gemm_args args = {
            .a = (const float *)k->in[IN_W]->data + job.group * m * rows,
            .b = k->scratch,
            .c = (float *)k->out[0]->data + i * m * n,
            .scratch = (char *)k->scratch + s->at_gemm,
        };
        SB_TRY(sb_ctx_poll(k->ctx));
        sb_parallel_for(k->ctx, (size_t)rows, (size_t)(1024 / (n + 1) + 1),
                        sample_rows, &job);
        SB_TRY(sb_dnn_gemm_run(s->gemm, &args));
    }
    if (sb_kernel_in(k, IN_BIAS))
        add_bias(k);
    return SB_OK;
}

static void deform_release(sb_kernel *k)
{
    deform_state *s = k->state;

    if (s)
        sb_dnn_gemm_free(s->gemm);
    sb_free(k->ctx, s);
}

static double deform_macs(const sb_kernel *k)
{
    const sb_tensor *w = k->in[IN_W], *y = k->out[0];
    double macs = 1;

    for (int i = 0; i < y->rank; i++)
        macs *= (double)y->dims[i];
    for (int i = 1; i < w->rank; i++)
        macs *= (double)w->dims[i];
    return macs;
}

const sb_op_def sb_op_deform_conv = {
    .name = "DeformConv",
    .since = 19,
    .parameters = 1u << 1 | 1u << 3,
    .in_min = 3,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(deform_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = deform_infer,
    .prepare = deform_prepare,
    .forward = deform_forward,
    .release = deform_release,
    .macs = deform_macs,
    .tie = sb_tie_deform_conv,
};
