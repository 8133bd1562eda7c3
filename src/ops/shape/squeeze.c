/* Squeeze: drops dimensions of size 1, those in `axes` or all. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

/* Marks the axes to drop; *known is false if that depends on data. */
static sb_status squeeze_axes(const sb_infer *in, bool drop[SB_MAX_RANK],
                              bool *known)
{
    const sb_shape *x = &in->in[0]->type.shape;
    int64_t axes[SB_MAX_RANK];

    *known = true;
    if (!sb_infer_in(in, 1)) {
        for (int i = 0; i < x->rank; i++) {
            drop[i] = x->dim[i] == 1;
            *known = *known && sb_dim_known(x->dim[i]);
        }
        return SB_OK;
    }
    int64_t n = sb_infer_ints(in, 1, axes, SB_MAX_RANK);
    *known = n >= 0;
    if (n > SB_MAX_RANK)
        return sb_infer_fail(in, "%lld axes, want at most %d", (long long)n,
                             SB_MAX_RANK);
    for (int64_t i = 0; i < n; i++) {
        int axis = 0;
        SB_TRY(sb_infer_axis(in, axes[i], x->rank, &axis));
        drop[axis] = true;
        if (sb_dim_known(x->dim[axis]) && x->dim[axis] != 1)
            return sb_infer_fail(in, "axis %d has %lld elements, want 1", axis,
                                 (long long)x->dim[axis]);
    }
    return SB_OK;
}

static sb_status squeeze_infer(sb_infer *in)
{
    const sb_fact *x = in->in[0];
    sb_shape out = {.rank = 0};
    bool drop[SB_MAX_RANK] = {false}, known = true;

    SB_TRY(sb_infer_want_ints(in, 1));
    in->out[0].type.dtype = x->type.dtype;
    if (x->type.shape.rank < 0)
        return SB_OK;
    SB_TRY(squeeze_axes(in, drop, &known));
    if (!known) {
        int64_t n = sb_infer_length(in, 1);
        if (n >= 0 && n <= x->type.shape.rank)
            sb_infer_set_rank(in, 0, x->type.shape.rank - (int)n);
        return SB_OK;
    }
    for (int i = 0; i < x->type.shape.rank; i++)
        if (!drop[i])
            out.dim[out.rank++] = x->type.shape.dim[i];
    sb_infer_set(in, 0, x->type.dtype, &out);
    if (x->content.rank >= 0)
        sb_infer_set_content(in, 0, &x->content);
    return SB_OK;
}

const sb_op_def sb_op_squeeze = {
    .name = "Squeeze",
    .since = 13,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_VIEW,
    .batch = sb_batch_squeeze,
    .infer = squeeze_infer,
    .layout = sb_view_layout,
    .forward = sb_view_forward,
    .grad = sb_grad_view,
    .tie = sb_tie_squeeze,
};
