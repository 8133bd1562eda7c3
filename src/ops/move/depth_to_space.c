/* DepthToSpace and SpaceToDepth: blocks of b x b pixels to channels and back.
 *
 *     DCR  [N, b, b, C', H, W] <-> [N, C', H, b, W, b]
 *     CRD  [N, C', b, b, H, W] <-> [N, C', H, b, W, b]
 *
 * Both directions are one strided copy over the six axes. */
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t blocksize;
    const char *mode;
} block_attrs;

static const sb_attr_def attrs[] = {
    {"blocksize", SB_ATTR_INT, offsetof(block_attrs, blocksize),
     .required = true},
    {"mode", SB_ATTR_STRING, offsetof(block_attrs, mode), .s = "DCR"},
    {0},
};

/* d / by; fails if it does not go in. */
static sb_status depth_to_space_divide(const sb_infer *in, int axis, sb_dim d,
                                       int64_t by, sb_dim *out)
{
    *out = SB_DIM_UNKNOWN;
    if (by == 1)
        *out = d;
    else if (sb_dim_known(d) && d % by)
        return sb_infer_fail(in,
                             "dimension %d is %lld, want a multiple of "
                             "%lld",
                             axis, (long long)d, (long long)by);
    else if (sb_dim_known(d))
        *out = d / by;
    return SB_OK;
}

static sb_status block_infer(sb_infer *in, bool to_space)
{
    const block_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    int64_t b = a->blocksize;
    sb_shape out = sb_shape_of_rank(4);

    if (b < 1 || b > 32767)
        return sb_infer_fail(in, "blocksize %lld", (long long)b);
    if (strcmp(a->mode, "DCR") != 0 && strcmp(a->mode, "CRD") != 0)
        return sb_infer_fail(in, "mode '%s', want DCR or CRD", a->mode);
    if (x->rank >= 0 && x->rank != 4)
        return sb_infer_fail(in, "input of rank %d, want 4", x->rank);
    if (x->rank == 4 && to_space) {
        out.dim[0] = x->dim[0];
        SB_TRY(depth_to_space_divide(in, 1, x->dim[1], b * b, &out.dim[1]));
        out.dim[2] = sb_dim_mul(x->dim[2], b);
        out.dim[3] = sb_dim_mul(x->dim[3], b);
    } else if (x->rank == 4) {
        out.dim[0] = x->dim[0];
        out.dim[1] = sb_dim_mul(x->dim[1], b * b);
        SB_TRY(depth_to_space_divide(in, 2, x->dim[2], b, &out.dim[2]));
        SB_TRY(depth_to_space_divide(in, 3, x->dim[3], b, &out.dim[3]));
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

static sb_status to_space_infer(sb_infer *in)
{
    return block_infer(in, true);
}

static sb_status to_depth_infer(sb_infer *in)
{
    return block_infer(in, false);
}

/* The copy between `deep` and `wide`, the side with more pixels, walks the axes
 * [N, C', H, by, W, bx], or [N, H, by, W, bx, C'] channels last. */
static void block_strides(const block_attrs *a, const sb_tensor *deep,
                          const sb_tensor *wide, int64_t dims[6],
                          int64_t space[6], int64_t depth[6])
{
    static const int plain[6] = {0, 1, 2, 3, 4, 5};
    static const int last[6] = {0, 2, 3, 4, 5, 1};
    const int *order = deep->layout == SB_LAYOUT_PLAIN ? plain : last;
    int64_t b = a->blocksize, c = wide->dims[1];
    int64_t from[SB_MAX_RANK], to[SB_MAX_RANK];
    bool dcr = strcmp(a->mode, "DCR") == 0;

    sb_tensor_strides(deep, from);
    sb_tensor_strides(wide, to);
    const int64_t d[6] = {deep->dims[0], c, deep->dims[2], b, deep->dims[3], b};
    const int64_t at_deep[6] = {from[0], from[1] * (dcr ? 1 : b * b),
                                from[2], from[1] * (dcr ? b * c : b),
                                from[3], from[1] * (dcr ? c : 1)};
    const int64_t at_wide[6] = {to[0], to[1],     to[2] * b,
                                to[2], to[3] * b, to[3]};

    for (int i = 0; i < 6; i++) {
        dims[i] = d[order[i]];
        depth[i] = at_deep[order[i]];
        space[i] = at_wide[order[i]];
    }
}

static sb_status to_space_forward(sb_kernel *k)
{
    sb_strided c = {.rank = 6, .elem = sb_dtype_size(k->in[0]->dtype)};

    block_strides(k->attrs, k->in[0], k->out[0], c.dims, c.dst_stride,
                  c.src_stride);
    sb_strided_copy(k->ctx, &c, k->out[0]->data, k->in[0]->data);
    return SB_OK;
}

static sb_status to_depth_forward(sb_kernel *k)
{
    sb_strided c = {.rank = 6, .elem = sb_dtype_size(k->in[0]->dtype)};

    block_strides(k->attrs, k->out[0], k->in[0], c.dims, c.src_stride,
                  c.dst_stride);
    sb_strided_copy(k->ctx, &c, k->out[0]->data, k->in[0]->data);
    return SB_OK;
}

const sb_op_def sb_op_depth_to_space = {
    .name = "DepthToSpace",
    .since = 11,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(block_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = to_space_infer,
    .layout = sb_move_layout,
    .prepare = sb_move_prepare,
    .forward = to_space_forward,
    .grad = sb_grad_block,
    .tie = sb_tie_depth_to_space,
};

const sb_op_def sb_op_space_to_depth = {
    .name = "SpaceToDepth",
    .since = 1,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(block_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = to_depth_infer,
    .layout = sb_move_layout,
    .prepare = sb_move_prepare,
    .forward = to_depth_forward,
    .grad = sb_grad_block,
    .tie = sb_tie_space_to_depth,
};
