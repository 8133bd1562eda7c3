/* Relu: y = max(x, 0). */
#include "ops/infer_util.h"

static sb_status relu_forward(sb_kernel *k)
{
    const float *x = k->in[0]->data;
    float *y = k->out[0]->data;
    int64_t n = sb_tensor_count(k->in[0]);

    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > 0 ? x[i] : 0;
    return SB_OK;
}

const sb_op_def sb_op_relu = {
    .name = "Relu",
    .since = 6,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .infer = sb_infer_same,
    .forward = relu_forward,
};
