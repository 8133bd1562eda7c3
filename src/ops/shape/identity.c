/* Identity: y = x, for anything; and Dropout, which is the same outside of
 * training, with a mask that keeps everything. */
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

static sb_status identity_infer(sb_infer *in)
{
    in->out[0].type = in->in[0]->type;
    in->out[0].content = in->in[0]->content;
    return SB_OK;
}

static sb_status identity_forward(sb_kernel *k)
{
    if (k->out[0] && k->out[0]->data != k->in[0]->data)
        memcpy(k->out[0]->data, k->in[0]->data, sb_tensor_bytes(k->in[0]));
    return SB_OK;
}

const sb_op_def sb_op_identity = {
    .name = "Identity",
    .since = 1,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_VIEW | SB_OP_SEQUENCES,
    .batch = sb_batch_same,
    .infer = identity_infer,
    .layout = sb_move_layout,
    .forward = identity_forward,
    .grad = sb_grad_view,
    .tie = sb_tie_identity,
};

static sb_status dropout_infer(sb_infer *in)
{
    in->out[0].type = in->in[0]->type;
    sb_infer_set(in, 1, SB_DTYPE_BOOL, &in->in[0]->type.shape);
    return SB_OK;
}

/* Training mode is a request that we cannot honor: it would be random. */
static sb_status dropout_forward(sb_kernel *k)
{
    const sb_tensor *training = sb_kernel_in(k, 2);
    const sb_tensor *ratio = sb_kernel_in(k, 1);
    sb_tensor *mask = sb_kernel_out(k, 1);

    if (training && sb_tensor_count(training) == 1 &&
        sb_tensor_get_i64(training, 0) != 0 &&
        !(ratio && sb_tensor_count(ratio) == 1 &&
          sb_tensor_get_f64(ratio, 0) == 0))
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "training_mode is true: train the model, or "
                              "export it in evaluation form to run it");
    if (mask)
        memset(mask->data, 1, sb_tensor_bytes(mask));
    return identity_forward(k);
}

const sb_op_def sb_op_dropout = {
    .name = "Dropout",
    .since = 12,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 3,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_VIEW,
    .batch = sb_batch_same,
    .infer = dropout_infer,
    .layout = sb_move_layout,
    .forward = dropout_forward,
    .grad = sb_grad_view,
    .tie = sb_tie_identity,
};
