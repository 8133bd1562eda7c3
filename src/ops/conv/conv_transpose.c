/* ConvTranspose: the gradient of a convolution used forward; every input
 * element adds its weights to a window of the output.
 *
 *     out = stride (in - 1) + output_padding + reach - pad_lo - pad_hi
 *
 * With output_shape, or auto_pad SAME_* (then out <= in * stride), the pads
 * follow from that formula; the odd one goes to the end for SAME_UPPER and to
 * the beginning otherwise. */
#include "ops/batch_rules.h"
#include "ops/conv/conv.h"
#include "ops/grad/grad_rules.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    sb_window_attrs window;
    int64_t group;
    sb_ints output_padding, output_shape;
} conv_transpose_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"group", SB_ATTR_INT, offsetof(conv_transpose_attrs, group), .i = 1},
    {"output_padding", SB_ATTR_INTS,
     offsetof(conv_transpose_attrs, output_padding), .i = 0},
    {"output_shape", SB_ATTR_INTS, offsetof(conv_transpose_attrs, output_shape),
     .i = 0},
    {0},
};

static sb_status conv_transpose_refuse(const sb_window_who *who,
                                       const char *text)
{
    return sb_fail(who->ctx, SB_BAD_MODEL, "node '%s' (%s): %s",
                   sb_node_label(who->graph, who->node), who->node->op, text);
}

/* Pads and output size of dimension i. */
static sb_status set_out(const sb_window_who *who,
                         const conv_transpose_attrs *a, sb_auto_pad mode,
                         sb_window *w, int i)
{
    int64_t extra = a->output_padding.n ? a->output_padding.v[i] : 0;
    int64_t reach = (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t full = 0, out = 0;
    bool same = mode == SB_PAD_SAME_UPPER || mode == SB_PAD_SAME_LOWER;

    if (a->output_shape.n &&
        (a->output_shape.v[i] < 0 || a->output_shape.v[i] > INT32_MAX))
        return conv_transpose_refuse(who, "output_shape is out of range");
    if (!sb_dim_known(w->in[i])) {
        if (a->output_shape.n)
            w->out[i] = a->output_shape.v[i];
        return SB_OK;
    }
    if (extra < 0 || extra > INT32_MAX ||
        !sb_mul_i64(w->stride[i], w->in[i] - 1, &full))
        return conv_transpose_refuse(
            who, "output_padding or the output size is out of range");
    full += extra + reach;
    if (a->output_shape.n)
        out = a->output_shape.v[i];
    else if (same)
        out = w->in[i] * w->stride[i];
    else
        out = full - w->pad_lo[i] - w->pad_hi[i];
    if (a->output_shape.n || same) {
        int64_t pad = full > out ? full - out : 0;
        /* ONNX Runtime lets a stride beyond the kernel give fewer. */
        out = same && !a->output_shape.n ? full - pad : out;
        w->pad_lo[i] = mode == SB_PAD_SAME_UPPER ? pad / 2 : pad - pad / 2;
        w->pad_hi[i] = pad - w->pad_lo[i];
    }
    if (out < 0 || (out == 0 && w->in[i] > 0))
        return conv_transpose_refuse(who, "the output has no elements");
    w->out[i] = out;
    return SB_OK;
}

static sb_status set_window(const sb_window_who *who,
                            const conv_transpose_attrs *a, const sb_shape *x,
                            const sb_shape *weights, sb_window *w)
{
    sb_auto_pad mode;
    size_t given = a->output_shape.n;
    conv_transpose_attrs b = *a;

    SB_TRY(sb_window_auto_pad(who, &a->window, &mode));
    SB_TRY(sb_window_read(who, &a->window, x, weights, w));
    /* The batch and channel dimensions may be there, too. */
    if (w->n && given == (size_t)w->n + 2) {
        b.output_shape.v += 2;
        b.output_shape.n -= 2;
    }
    if (w->n && b.output_shape.n && b.output_shape.n != (size_t)w->n)
        return conv_transpose_refuse(
            who, "output_shape has the wrong number of elements");
    if (w->n && b.output_padding.n && b.output_padding.n != (size_t)w->n)
        return conv_transpose_refuse(
            who, "output_padding has the wrong number of elements");
    for (int i = 0; i < w->n; i++) {
        if (mode != SB_PAD_NOTSET)
            w->pad_lo[i] = w->pad_hi[i] = 0;
        SB_TRY(set_out(who, &b, mode, w, i));
    }
    return SB_OK;
}

static sb_status conv_transpose_infer(sb_infer *in)
{
    const conv_transpose_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    const sb_shape *w = &in->in[1]->type.shape;
    const sb_fact *b = sb_infer_in(in, 2);
    sb_window_who who = sb_window_who_infer(in);
    sb_window win;

    if (a->group < 1)
        return sb_infer_fail(in, "group is %lld, want at least 1",
                             (long long)a->group);
    SB_TRY(set_window(&who, a, x, w, &win));
    sb_dim c = x->rank > 1 ? x->dim[1] : SB_DIM_UNKNOWN;
    sb_dim rows = w->rank > 1 ? w->dim[0] : SB_DIM_UNKNOWN;
    sb_dim m = w->rank > 1 ? sb_dim_mul(w->dim[1], a->group) : SB_DIM_UNKNOWN;
    if (sb_dim_known(c) && sb_dim_known(rows) && c != rows)
        return sb_infer_fail(in, "%lld input channels, want %lld", (long long)c,
                             (long long)rows);
    if (sb_dim_known(c) && c % a->group != 0)
        return sb_infer_fail(in, "%lld input channels in %lld groups",
                             (long long)c, (long long)a->group);
    if (b && b->type.shape.rank >= 0 &&
        (b->type.shape.rank != 1 ||
         (sb_dim_known(m) && sb_dim_known(b->type.shape.dim[0]) &&
          b->type.shape.dim[0] != m)))
        return sb_infer_fail(in, "bias does not have %lld elements",
                             (long long)m);
    sb_window_infer_out(in, 0, in->in[0]->type.dtype, &win,
                        x->rank > 0 ? x->dim[0] : SB_DIM_UNKNOWN, m);
    return SB_OK;
}

static sb_status conv_transpose_prepare(sb_kernel *k)
{
    const conv_transpose_attrs *a = k->attrs;
    sb_shape x = sb_shape_of(k->in[0]), w = sb_shape_of(k->in[1]);
    sb_window_who who = sb_window_who_kernel(k);
    sb_conv conv = {.transposed = true,
                    .n_batch = x.dim[0],
                    .in_channels = x.dim[1],
                    .out_channels = w.dim[1] * a->group,
                    .groups = a->group};

    SB_TRY(set_window(&who, a, &x, &w, &conv.w));
    SB_TRY(sb_window_count(&who, &conv.w));
    return sb_conv_prepare(k, &conv, NULL, 0);
}

/* W is [C_in, C_out / group, k...]. */
static int conv_transpose_weight_axis(const sb_node *node)
{
    (void)node;
    return 1;
}

const sb_op_def sb_op_conv_transpose = {
    .name = "ConvTranspose",
    .since = 1,
    .quant = SB_ROLE_WEIGHTED,
    .weight_axis = conv_transpose_weight_axis,
    .parameters = 1u << 1 | 1u << 2,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_CONV,
    .attrs_size = sizeof(conv_transpose_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = conv_transpose_infer,
    .layout = sb_conv_layout,
    .prepare = conv_transpose_prepare,
    .forward = sb_conv_forward,
    .grad = sb_grad_conv_transpose,
    .release = sb_conv_release,
    .macs = sb_conv_macs,
    .tie = sb_tie_conv_transpose,
    .recut = sb_recut_conv_transpose,
};
