/* Unsqueeze: inserts dimensions of size 1, at the places in `axes` counted in
 * the output. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

static sb_status unsqueeze_infer(sb_infer *in)
{
    const sb_fact *x = in->in[0];
    int64_t axes[SB_MAX_RANK];
    bool fresh[SB_MAX_RANK] = {false};
    int64_t n = sb_infer_ints(in, 1, axes, SB_MAX_RANK);
    int x_rank = x->type.shape.rank;

    SB_TRY(sb_infer_want_ints(in, 1));
    in->out[0].type.dtype = x->type.dtype;
    if (n < 0 || x_rank < 0) {
        int64_t more = n < 0 ? sb_infer_length(in, 1) : n;
        if (more >= 0 && x_rank >= 0 && x_rank + more <= SB_MAX_RANK)
            sb_infer_set_rank(in, 0, x_rank + (int)more);
        return SB_OK;
    }
    if (n > SB_MAX_RANK - x_rank)
        return sb_infer_fail(in, "rank %lld, want at most %d",
                             (long long)(n + x_rank), SB_MAX_RANK);
    sb_shape out = {.rank = x_rank + (int)n};
    for (int64_t i = 0; i < n; i++) {
        int axis = 0;
        SB_TRY(sb_infer_axis(in, axes[i], out.rank, &axis));
        if (fresh[axis])
            return sb_infer_fail(in, "axis %d is given twice", axis);
        fresh[axis] = true;
    }
    for (int i = 0, from = 0; i < out.rank; i++)
        out.dim[i] = fresh[i] ? 1 : x->type.shape.dim[from++];
    sb_infer_set(in, 0, x->type.dtype, &out);
    if (x->content.rank >= 0)
        sb_infer_set_content(in, 0, &x->content);
    return SB_OK;
}

const sb_op_def sb_op_unsqueeze = {
    .name = "Unsqueeze",
    .since = 13,
    .quant = SB_ROLE_PASS,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_VIEW,
    .batch = sb_batch_unsqueeze,
    .infer = unsqueeze_infer,
    .layout = sb_view_layout,
    .forward = sb_view_forward,
    .grad = sb_grad_view,
    .tie = sb_tie_unsqueeze,
};
