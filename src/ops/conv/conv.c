/* Conv: y[n, m] = b[m] + sum over channels and taps of x * w, any number of
 * spatial dimensions, with groups.  conv_select.c chooses how.
 */
#include "ops/conv/conv.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    sb_window_attrs window;
    int64_t group;
} conv_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"group", SB_ATTR_INT, offsetof(conv_attrs, group), .i = 1},
    {0},
};

/* Checks what is known of channels against the groups. */
static sb_status conv_check(const sb_infer *in, const sb_shape *x,
                            const sb_shape *w, const sb_shape *b, int64_t group)
{
    sb_dim c = x->rank > 1 ? x->dim[1] : SB_DIM_UNKNOWN;
    sb_dim per = w->rank > 1 ? w->dim[1] : SB_DIM_UNKNOWN;
    sb_dim m = w->rank > 0 ? w->dim[0] : SB_DIM_UNKNOWN;

    if (group < 1)
        return sb_infer_fail(in, "group is %lld, want at least 1",
                             (long long)group);
    if (sb_dim_known(c) && sb_dim_known(per) && sb_dim_mul(per, group) != c)
        return sb_infer_fail(in, "%lld input channels, want %lld x %lld groups",
                             (long long)c, (long long)per, (long long)group);
    if (sb_dim_known(m) && m % group != 0)
        return sb_infer_fail(in, "%lld output channels in %lld groups",
                             (long long)m, (long long)group);
    if (b && b->rank >= 0 &&
        (b->rank != 1 ||
         (sb_dim_known(m) && sb_dim_known(b->dim[0]) && b->dim[0] != m)))
        return sb_infer_fail(in, "bias does not have %lld elements",
                             (long long)m);
    return SB_OK;
}

sb_status sb_conv_infer(sb_infer *in, const sb_window_attrs *a, int64_t group)
{
    const sb_shape *x = &in->in[0]->type.shape;
    const sb_shape *w = &in->in[1]->type.shape;
    const sb_fact *b = sb_infer_in(in, 2);
    sb_window_who who = sb_window_who_infer(in);
    sb_window win;

    SB_TRY(sb_window_set(&who, a, x, w, &win));
    SB_TRY(conv_check(in, x, w, b ? &b->type.shape : NULL, group));
    sb_window_infer_out(in, 0, in->in[0]->type.dtype, &win,
                        x->rank > 0 ? x->dim[0] : SB_DIM_UNKNOWN,
                        w->rank > 0 ? w->dim[0] : SB_DIM_UNKNOWN);
    return SB_OK;
}

sb_status sb_conv_sizes(const sb_kernel *k, const sb_window_attrs *a,
                        int64_t group, sb_conv *out)
{
    sb_shape x = sb_shape_of(k->in[0]), w = sb_shape_of(k->in[1]);
    sb_window_who who = sb_window_who_kernel(k);

    *out = (sb_conv){.n_batch = x.dim[0],
                     .in_channels = x.dim[1],
                     .out_channels = w.dim[0],
                     .groups = group};
    SB_TRY(sb_window_set(&who, a, &x, &w, &out->w));
    return sb_window_count(&who, &out->w);
}

static sb_status conv_infer(sb_infer *in)
{
    const conv_attrs *a = in->attrs;

    return sb_conv_infer(in, &a->window, a->group);
}

static sb_status conv_prepare(sb_kernel *k)
{
    const conv_attrs *a = k->attrs;
    sb_conv conv;

    SB_TRY(sb_conv_sizes(k, &a->window, a->group, &conv));
    return sb_conv_prepare(k, &conv, NULL, 0);
}

const sb_op_def sb_op_conv = {
    .name = "Conv",
    .since = 1,
    .quant = SB_ROLE_WEIGHTED,
    .integer = "ConvInteger",
    .parameters = 1u << 1 | 1u << 2,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_CONV,
    .attrs_size = sizeof(conv_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = conv_infer,
    .layout = sb_conv_layout,
    .prepare = conv_prepare,
    .forward = sb_conv_forward,
    .grad = sb_grad_conv,
    .release = sb_conv_release,
    .macs = sb_conv_macs,
    .tie = sb_tie_conv,
    .recut = sb_recut_conv,
};
