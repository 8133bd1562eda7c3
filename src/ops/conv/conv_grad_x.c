/* sparsebit.ConvGradX(dy, w, none, addend, x): the gradient of Conv for its
 * input, which is a transposed convolution of dy with the same weights.  Of x
 * only the shape is read: a stride hides by how much the windows missed its
 * end. */
#include "ops/batch_rules.h"
#include "ops/conv/conv.h"

typedef struct {
    sb_window_attrs window;
    int64_t group;
} conv_grad_x_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"group", SB_ATTR_INT, offsetof(conv_grad_x_attrs, group), .i = 1},
    {0},
};

enum { GRAD_X_LIKE = 4 };

static sb_status conv_grad_x_infer(sb_infer *in)
{
    const sb_fact *x = sb_infer_in(in, GRAD_X_LIKE);

    if (!x)
        return sb_infer_fail(in, "input %d is missing", GRAD_X_LIKE);
    sb_infer_set(in, 0, in->in[0]->type.dtype, &x->type.shape);
    return SB_OK;
}

/* That of a convolution; x may lie as it likes. */
static void conv_grad_x_layout(const sb_kernel *k, sb_layout *in,
                               sb_layout *out)
{
    sb_conv_layout(k, in, out);
    in[GRAD_X_LIKE] = k->in[GRAD_X_LIKE]->layout;
}

static sb_status conv_grad_x_prepare(sb_kernel *k)
{
    const conv_grad_x_attrs *a = k->attrs;
    sb_shape dy = sb_shape_of(k->in[0]), w = sb_shape_of(k->in[1]);
    sb_shape x = sb_shape_of(k->in[GRAD_X_LIKE]);
    sb_window_who who = sb_window_who_kernel(k);
    sb_conv conv = {.transposed = true,
                    .n_batch = x.dim[0],
                    .in_channels = w.dim[0],
                    .out_channels = x.dim[1],
                    .groups = a->group};

    SB_TRY(sb_window_set(&who, &a->window, &x, &w, &conv.w));
    /* Seen from dy. */
    for (int i = 0; i < conv.w.n; i++) {
        sb_dim in = conv.w.in[i];
        if (conv.w.out[i] != dy.dim[2 + i])
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "dimension %d of the gradient is %lld, want "
                                  "%lld",
                                  2 + i, (long long)dy.dim[2 + i],
                                  (long long)conv.w.out[i]);
        conv.w.in[i] = conv.w.out[i];
        conv.w.out[i] = in;
    }
    SB_TRY(sb_window_count(&who, &conv.w));
    return sb_conv_prepare(k, &conv, NULL, 0);
}

static double conv_grad_x_macs(const sb_kernel *k)
{
    const sb_tensor *dy = k->in[0], *w = k->in[1];

    return (double)sb_tensor_count(dy) * (double)sb_tensor_count(w) /
           (double)(w->dims[0] > 0 ? w->dims[0] : 1);
}

const sb_op_def sb_op_conv_grad_x = {
    .name = "ConvGradX",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(conv_grad_x_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = conv_grad_x_infer,
    .layout = conv_grad_x_layout,
    .prepare = conv_grad_x_prepare,
    .forward = sb_conv_forward,
    .release = sb_conv_release,
    .macs = conv_grad_x_macs,
};
