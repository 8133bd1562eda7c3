/* ChannelShuffle: channels [groups, C / groups] change places with each other,
 *
 *     y[n, j * groups + i, ...] = x[n, i * (C / groups) + j, ...]
 *
 * as ShuffleNet does with two Reshapes and a Transpose, from which the pass
 * fuse_shuffle makes it.  In NCHW order whole planes move; channels last, each
 * pixel is a small matrix to transpose. */
#include "ops/move/move_util.h"
#include "ops/move/strided_copy.h"

typedef struct {
    int64_t groups;
} shuffle_attrs;

static const sb_attr_def attrs[] = {
    {"groups", SB_ATTR_INT, offsetof(shuffle_attrs, groups), .required = true},
    {0},
};

static sb_status shuffle_infer(sb_infer *in)
{
    const shuffle_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;

    if (x->rank >= 0 && x->rank < 2)
        return sb_infer_fail(in, "input of rank %d, want at least 2", x->rank);
    if (a->groups < 1 ||
        (x->rank > 1 && sb_dim_known(x->dim[1]) && x->dim[1] % a->groups != 0))
        return sb_infer_fail(in,
                             "groups is %lld, which does not divide the "
                             "channels",
                             (long long)a->groups);
    in->out[0].type = in->in[0]->type;
    return SB_OK;
}

static sb_status shuffle_forward(sb_kernel *k)
{
    const shuffle_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int64_t size = sb_dims_product(x->dims, 2, x->rank);
    int64_t each = x->dims[1] / a->groups;

    if (sb_tensor_count(x) == 0)
        return SB_OK;
    if (x->layout == SB_LAYOUT_CHANNELS_LAST) {
        const int64_t dims[3] = {x->dims[0] * size, a->groups, each};
        sb_tensor from = sb_tensor_make(x->dtype, 3, dims), to = from;
        from.data = x->data;
        to.data = k->out[0]->data;
        to.layout = SB_LAYOUT_CHANNELS_LAST;
        sb_tensor_reorder(k->ctx, &from, &to);
        return SB_OK;
    }
    const int64_t dims[4] = {x->dims[0], each, a->groups, size};
    sb_strided c = sb_strided_to(sb_dtype_size(x->dtype), 4, dims);
    c.src_stride[0] = x->dims[1] * size;
    c.src_stride[1] = size;
    c.src_stride[2] = each * size;
    c.src_stride[3] = 1;
    sb_strided_copy(k->ctx, &c, k->out[0]->data, x->data);
    return SB_OK;
}

const sb_op_def sb_op_channel_shuffle = {
    .name = "ChannelShuffle",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(shuffle_attrs),
    .attrs = attrs,
    .infer = shuffle_infer,
    .layout = sb_move_layout,
    .prepare = sb_move_prepare,
    .forward = shuffle_forward,
};
