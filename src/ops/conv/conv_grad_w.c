/* sparsebit.ConvGradW(x, dy, w): the gradient of Conv for its weights,
 *
 *     dw[m, c, tap] = sum over images and places of dy[m] x[c, place + tap]
 *
 * Of w only the shape is read.  Channels last by oneDNN, and what its kernels
 * do not know, or not well, by matrix products or by loops of our own; the rest
 * in plain loops. */
#include "base/threads.h"
#include "ops/conv/conv.h"
#include "ops/conv/conv_grad.h"

typedef struct {
    sb_window_attrs window;
    int64_t group;
} conv_grad_w_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"group", SB_ATTR_INT, offsetof(conv_grad_w_attrs, group), .i = 1},
    {0},
};

typedef struct conv_grad_w_state {
    sb_conv conv;
    bool depthwise;
    sb_conv_grad_gemm *gemm;
    sb_conv_grad_winograd *winograd;
    sb_dnn_conv_dw *dnn; /* none of them: loops */
} conv_grad_w_state;

static sb_status conv_grad_w_infer(sb_infer *in)
{
    sb_infer_set(in, 0, in->in[0]->type.dtype, &in->in[2]->type.shape);
    return SB_OK;
}

static void conv_grad_w_layout(const sb_kernel *k, sb_layout *in,
                               sb_layout *out)
{
    const sb_tensor *x = k->in[0], *dy = k->in[1];

    (void)out;
    if (x->rank < 4 || x->rank > 2 + SB_DNN_MAX_SPATIAL ||
        sb_tensor_count(x) == 0 || sb_tensor_count(dy) == 0)
        return;
    in[0] = in[1] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_status conv_grad_w_sizes(sb_kernel *k, sb_conv *conv)
{
    const conv_grad_w_attrs *a = k->attrs;
    sb_shape x = sb_shape_of(k->in[0]), dy = sb_shape_of(k->in[1]);
    sb_shape w = sb_shape_of(k->in[2]);
    sb_window_who who = sb_window_who_kernel(k);

    *conv = (sb_conv){.n_batch = x.dim[0],
                      .in_channels = x.dim[1],
                      .out_channels = w.dim[0],
                      .groups = a->group};
    SB_TRY(sb_window_set(&who, &a->window, &x, &w, &conv->w));
    for (int i = 0; i < conv->w.n; i++)
        if (conv->w.out[i] != dy.dim[2 + i])
            return sb_kernel_fail(
                k, SB_BAD_MODEL,
                "dimension %d of the gradient is %lld, want %lld", 2 + i,
                (long long)dy.dim[2 + i], (long long)conv->w.out[i]);
    return sb_window_count(&who, &conv->w);
}

static sb_status conv_grad_w_products(sb_kernel *k, conv_grad_w_state *s)
{
    sb_status status = sb_conv_grad_gemm_create(k, &s->conv, &s->gemm);

    if (status == SB_OK)
        k->scratch_size = sb_conv_grad_gemm_scratch(s->gemm);
    return status == SB_UNSUPPORTED ? SB_OK : status;
}

static sb_status conv_grad_w_choose(sb_kernel *k, conv_grad_w_state *s)
{
    sb_dnn_conv_desc d = sb_conv_desc(k, &s->conv);
    sb_status status;

    if (sb_conv_grad_gemm_suits(&s->conv))
        return conv_grad_w_products(k, s);
    status = sb_conv_grad_winograd_create(k, &s->conv, &s->winograd);
    if (status == SB_OK)
        k->scratch_size = sb_conv_grad_winograd_scratch(s->winograd);
    if (status != SB_UNSUPPORTED)
        return status;
    d.src_layout = d.in_channels;
    d.dst_layout = d.out_channels;
    status = sb_dnn_conv_dw_create(k->ctx, &d, &s->dnn);
    if (status == SB_OK)
        k->scratch_size = sb_dnn_conv_dw_scratch(s->dnn);
    return status == SB_UNSUPPORTED ? conv_grad_w_products(k, s) : status;
}

static sb_status conv_grad_w_prepare(sb_kernel *k)
{
    conv_grad_w_state *s = sb_alloc(k->ctx, 1, sizeof *s);

    if (!s)
        return SB_NO_MEMORY;
    k->state = s;
    SB_TRY(conv_grad_w_sizes(k, &s->conv));
    if (k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST ||
        k->in[1]->layout != SB_LAYOUT_CHANNELS_LAST)
        return SB_OK;
    s->depthwise = sb_conv_grad_depthwise_suits(&s->conv);
    if (!s->depthwise)
        return conv_grad_w_choose(k, s);
    k->scratch_size = sb_conv_grad_depthwise_scratch(&s->conv);
    return SB_OK;
}

/* ---- plain loops -------------------------------------------------------- */

/* Elements of a tensor [N, C, places...] in either layout. */
typedef struct grad_view {
    const float *v;
    int64_t image, channel, place; /* steps */
} grad_view;

static grad_view grad_view_of(const sb_tensor *t, int64_t places)
{
    bool last = t->layout == SB_LAYOUT_CHANNELS_LAST;
    int64_t c = t->dims[1];

    return (grad_view){.v = t->data,
                       .image = c * places,
                       .channel = last ? 1 : places,
                       .place = last ? c : 1};
}

typedef struct grad_w_job {
    const sb_conv *conv;
    grad_view x, dy;
    float *dw;
} grad_w_job;

/* Where place `at` of the output meets x at a tap; -1: in the padding. */
static int64_t grad_w_meets(const sb_window *w, int64_t at, int64_t tap)
{
    int64_t from = 0, step = 1;

    for (int i = w->n - 1; i >= 0; i--) {
        int64_t p = at % w->out[i] * w->stride[i] - w->pad_lo[i] +
                    tap % w->kernel[i] * w->dilation[i];
        if (p < 0 || p >= w->in[i])
            return -1;
        from += p * step;
        step *= w->in[i];
        at /= w->out[i];
        tap /= w->kernel[i];
    }
    return from;
}

/* Weights of one output channel. */
static void grad_w_channel(const grad_w_job *job, int64_t m)
{
    const sb_conv *c = job->conv;
    int64_t in = c->in_channels / c->groups, taps = c->w.taps;
    int64_t first = m / (c->out_channels / c->groups) * in;

    for (int64_t i = 0; i < in * taps; i++) {
        const float *x = job->x.v + (first + i / taps) * job->x.channel;
        const float *dy = job->dy.v + m * job->dy.channel;
        double sum = 0;

        for (int64_t at = 0; at < c->w.out_count; at++) {
            int64_t from = grad_w_meets(&c->w, at, i % taps);
            for (int64_t n = 0; n < c->n_batch && from >= 0; n++)
                sum += (double)x[n * job->x.image + from * job->x.place] *
                       (double)dy[n * job->dy.image + at * job->dy.place];
        }
        job->dw[m * in * taps + i] = (float)sum;
    }
}

static void grad_w_channels(void *arg, size_t begin, size_t end)
{
    for (size_t m = begin; m < end; m++)
        grad_w_channel(arg, (int64_t)m);
}

static sb_status conv_grad_w_forward(sb_kernel *k)
{
    const conv_grad_w_state *s = k->state;
    const float *x = k->in[0]->data, *dy = k->in[1]->data;
    float *dw = k->out[0]->data;

    if (s->dnn)
        return sb_dnn_conv_dw_run(s->dnn, x, dy, dw, k->scratch);
    if (s->winograd)
        return sb_conv_grad_winograd_run(s->winograd, x, dy, dw, k->scratch);
    if (s->gemm)
        return sb_conv_grad_gemm_run(s->gemm, x, dy, dw, k->scratch);
    if (s->depthwise) {
        sb_conv_grad_depthwise(k->ctx, &s->conv, x, dy, dw, k->scratch);
        return SB_OK;
    }
    grad_w_job job = {.conv = &s->conv,
                      .x = grad_view_of(k->in[0], s->conv.w.in_count),
                      .dy = grad_view_of(k->in[1], s->conv.w.out_count),
                      .dw = dw};
    sb_parallel_for(k->ctx, (size_t)s->conv.out_channels, 1, grad_w_channels,
                    &job);
    return SB_OK;
}

static void conv_grad_w_release(sb_kernel *k)
{
    conv_grad_w_state *s = k->state;

    if (s) {
        sb_dnn_conv_dw_free(s->dnn);
        sb_conv_grad_gemm_free(s->gemm);
        sb_conv_grad_winograd_free(s->winograd);
    }
    sb_free(k->ctx, s);
}

static double conv_grad_w_macs(const sb_kernel *k)
{
    const sb_tensor *dy = k->in[1], *w = k->in[2];

    return (double)sb_tensor_count(dy) * (double)sb_tensor_count(w) /
           (double)(w->dims[0] > 0 ? w->dims[0] : 1);
}

const sb_op_def sb_op_conv_grad_w = {
    .name = "ConvGradW",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(conv_grad_w_attrs),
    .attrs = attrs,
    .infer = conv_grad_w_infer,
    .layout = conv_grad_w_layout,
    .prepare = conv_grad_w_prepare,
    .forward = conv_grad_w_forward,
    .release = conv_grad_w_release,
    .macs = conv_grad_w_macs,
};
