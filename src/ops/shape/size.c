/* Size: the number of elements of the input, an int64 scalar. */
#include "ops/move/move_util.h"

static sb_status size_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape scalar = {.rank = 0}, content = {.rank = 1, .dim = {1}};

    sb_infer_set(in, 0, SB_DTYPE_I64, &scalar);
    if (x->rank < 0)
        return SB_OK;
    for (int i = 0; i < x->rank; i++)
        content.dim[0] = sb_dim_mul(content.dim[0], x->dim[i]);
    sb_infer_set_content(in, 0, &content);
    return SB_OK;
}

static sb_status size_forward(sb_kernel *k)
{
    *(int64_t *)k->out[0]->data = sb_tensor_count(k->in[0]);
    return SB_OK;
}

const sb_op_def sb_op_size = {
    .name = "Size",
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_SHAPE_ONLY | SB_OP_FLAT,
    .infer = size_infer,
    .forward = size_forward,
};
