/* Expand: broadcasts the input with a shape; unlike torch's expand a 1 in the
 * shape keeps the input's dimension. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

static sb_status expand_infer(sb_infer *in)
{
    const sb_fact *x = in->in[0];
    sb_shape target = {0}, out = x->type.shape;

    SB_TRY(sb_infer_want_ints(in, 1));
    in->out[0].type.dtype = x->type.dtype;
    if (!sb_infer_content(in, 1, &target)) {
        if (sb_infer_length(in, 1) > SB_MAX_RANK)
            return sb_infer_fail(in, "the shape has more than %d dimensions",
                                 SB_MAX_RANK);
        return SB_OK;
    }
    for (int i = 0; i < target.rank; i++)
        if (sb_dim_known(target.dim[i]) && target.dim[i] < 0)
            return sb_infer_fail(in, "shape[%d] is %lld", i,
                                 (long long)target.dim[i]);
    if (!sb_shape_broadcast(&out, &target))
        return sb_infer_fail(in, "the input does not broadcast to the shape");
    sb_infer_set(in, 0, x->type.dtype, &out);
    /* One element repeated stays a small tensor of dimensions. */
    if (x->content.rank == 1 && out.rank == 1 && out.dim[0] >= 0 &&
        out.dim[0] <= SB_MAX_RANK) {
        sb_shape content = {.rank = (int)out.dim[0]};
        for (int i = 0; i < content.rank; i++)
            content.dim[i] = x->content.dim[0];
        sb_infer_set_content(in, 0, &content);
    } else if (out.rank <= 1 && x->content.rank > 1) {
        sb_infer_set_content(in, 0, &x->content);
    }
    return SB_OK;
}

static sb_status expand_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    sb_strided c = sb_strided_to(sb_dtype_size(x->dtype), y->rank, y->dims);
    int64_t strides[SB_MAX_RANK];
    int lead = y->rank - x->rank;

    sb_strides_of(x->rank, x->dims, strides);
    for (int i = 0; i < x->rank; i++)
        c.src_stride[lead + i] = x->dims[i] == 1 ? 0 : strides[i];
    sb_strided_copy(k->ctx, &c, y->data, x->data);
    return SB_OK;
}

const sb_op_def sb_op_expand = {
    .name = "Expand",
    .since = 8,
    .quant = SB_ROLE_PASS,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .batch = sb_batch_if_kept,
    .infer = expand_infer,
    .prepare = sb_move_prepare,
    .forward = expand_forward,
    .grad = sb_grad_broadcast,
    .tie = sb_tie_expand,
    .recut = sb_recut_expand,
};
