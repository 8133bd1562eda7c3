/* Flatten: [d0, ..., dn] to [d0 * ... * d(axis-1), d(axis) * ... * dn]. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis;
} flatten_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(flatten_attrs, axis), .i = 1},
    {0},
};

static sb_status flatten_infer(sb_infer *in)
{
    const flatten_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape out = sb_shape_of_rank(2);

    if (x->rank >= 0) {
        if (a->axis < -x->rank || a->axis > x->rank)
            return sb_infer_fail(in, "axis %lld is outside rank %d",
                                 (long long)a->axis, x->rank);
        int64_t axis = a->axis < 0 ? a->axis + x->rank : a->axis;
        out.dim[0] = out.dim[1] = 1;
        for (int i = 0; i < x->rank; i++) {
            sb_dim *d = &out.dim[i < axis ? 0 : 1];
            *d = sb_dim_mul(*d, x->dim[i]);
        }
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

const sb_op_def sb_op_flatten = {
    .name = "Flatten",
    .since = 11,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_VIEW,
    .attrs_size = sizeof(flatten_attrs),
    .attrs = attrs,
    .batch = sb_batch_reshape,
    .infer = flatten_infer,
    .layout = sb_view_layout,
    .forward = sb_view_forward,
    .grad = sb_grad_view,
    .tie = sb_tie_reshape,
};
