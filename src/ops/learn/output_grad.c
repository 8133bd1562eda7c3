/* sparsebit.OutputGrad(y, ...) -> dy, ...: gradients of a loss that the caller
 * computes, one for each result y of a network.
 *
 * It computes nothing: a run stops before it (sb_exec_run_to()), and who called
 * fills in dy. */
#include "ops/infer_util.h"

static sb_status output_grad_infer(sb_infer *in)
{
    for (uint32_t i = 0; i < in->n_out && i < in->n_in; i++)
        if (sb_infer_in(in, i))
            in->out[i].type = in->in[i]->type;
    return SB_OK;
}

static sb_status output_grad_forward(sb_kernel *k)
{
    return sb_kernel_fail(k, SB_BAD_ARG, "gradients come from the caller");
}

const sb_op_def sb_op_output_grad = {
    .name = "OutputGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = SB_ARITY_ANY,
    .flags = SB_OP_F32 | SB_OP_FLAT | SB_OP_IMPURE,
    .infer = output_grad_infer,
    .forward = output_grad_forward,
};
