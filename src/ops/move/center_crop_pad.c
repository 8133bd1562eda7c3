/* CenterCropPad: cuts or zero-pads around the center to a wanted size. */
#include <string.h>

#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"

typedef struct {
    sb_ints axes;
} crop_attrs;

static const sb_attr_def attrs[] = {
    {"axes", SB_ATTR_INTS, offsetof(crop_attrs, axes), .i = 0},
    {0},
};

static sb_status crop_infer(sb_infer *in)
{
    const crop_attrs *a = in->attrs;
    sb_shape want = {0}, out = in->in[0]->type.shape;
    int n = a->axes.n ? (int)a->axes.n : out.rank;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (out.rank < 0)
        return SB_OK;
    if (a->axes.n > (size_t)out.rank)
        return sb_infer_fail(in, "%zu axes for rank %d", a->axes.n, out.rank);
    bool known = sb_infer_content(in, 1, &want);
    if (known && want.rank != n)
        return sb_infer_fail(in, "%d sizes for %d axes", want.rank, n);
    for (int i = 0; i < n; i++) {
        int axis = i;
        if (a->axes.n)
            SB_TRY(sb_infer_axis(in, a->axes.v[i], out.rank, &axis));
        out.dim[axis] = known ? want.dim[i] : SB_DIM_UNKNOWN;
        if (sb_dim_known(out.dim[axis]) && out.dim[axis] < 0)
            return sb_infer_fail(in, "size %lld", (long long)out.dim[axis]);
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* Both the cut and the pad put the odd element at the end. */
static sb_status crop_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    size_t elem = sb_dtype_size(x->dtype), bytes = sb_tensor_bytes(y);
    sb_strided c = {.rank = x->rank, .elem = elem};
    int64_t dst = 0, src = 0;

    if (bytes == 0)
        return SB_OK;
    sb_strides_of(x->rank, x->dims, c.src_stride);
    sb_strides_of(y->rank, y->dims, c.dst_stride);
    for (int i = 0; i < x->rank; i++) {
        int64_t n = x->dims[i], m = y->dims[i];
        c.dims[i] = n < m ? n : m;
        src += n > m ? (n - m) / 2 * c.src_stride[i] : 0;
        dst += m > n ? (m - n) / 2 * c.dst_stride[i] : 0;
    }
    memset(y->data, 0, bytes);
    if (sb_tensor_count(x))
        sb_strided_copy(k->ctx, &c, (char *)y->data + (size_t)dst * elem,
                        (const char *)x->data + (size_t)src * elem);
    return SB_OK;
}

const sb_op_def sb_op_center_crop_pad = {
    .name = "CenterCropPad",
    .since = 18,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(crop_attrs),
    .attrs = attrs,
    .infer = crop_infer,
    .prepare = sb_move_prepare,
    .forward = crop_forward,
    .grad = sb_grad_center_crop_pad,
};
