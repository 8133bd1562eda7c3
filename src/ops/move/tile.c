/* Tile: the input repeated repeats[i] times along each axis i. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

static sb_status tile_infer(sb_infer *in)
{
    const sb_fact *x = in->in[0];
    sb_shape repeats = {0}, out = x->type.shape;

    SB_TRY(sb_infer_want_ints(in, 1));
    in->out[0].type.dtype = x->type.dtype;
    if (out.rank < 0)
        return SB_OK;
    if (!sb_infer_content(in, 1, &repeats))
        repeats = sb_shape_of_rank(out.rank);
    if (repeats.rank != out.rank)
        return sb_infer_fail(in, "%d repeats for rank %d", repeats.rank,
                             out.rank);
    for (int i = 0; i < out.rank; i++) {
        if (sb_dim_known(repeats.dim[i]) && repeats.dim[i] < 0)
            return sb_infer_fail(in, "repeats[%d] is %lld", i,
                                 (long long)repeats.dim[i]);
        bool numbers = sb_dim_known(repeats.dim[i]) && sb_dim_known(out.dim[i]);
        out.dim[i] = sb_dim_mul(out.dim[i], repeats.dim[i]);
        if (numbers && !sb_dim_known(out.dim[i]))
            return sb_infer_fail(in, "dimension %d becomes too large", i);
    }
    sb_infer_set(in, 0, x->type.dtype, &out);
    if (out.rank <= 1 && x->content.rank >= 0 &&
        (out.rank == 0 || repeats.dim[0] == 1))
        sb_infer_set_content(in, 0, &x->content);
    return SB_OK;
}

/* A tensor [r0, d0, r1, d1, ...] whose r axes have stride 0; neighboring
 * axes that are not repeated count as one, so 12 are enough for rank 12 unless
 * more than half of them repeat. */
static sb_status tile_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    int64_t strides[SB_MAX_RANK], stride = 1;
    sb_strided c = {.elem = sb_dtype_size(x->dtype), .rank = SB_MAX_RANK};
    int at = SB_MAX_RANK;

    if (sb_tensor_count(y) == 0)
        return SB_OK;
    sb_strides_of(x->rank, x->dims, strides);
    for (int i = x->rank - 1; i >= 0; i--) {
        int64_t repeat = y->dims[i] / x->dims[i];
        int need = (x->dims[i] > 1) + (repeat > 1);
        if (at < need)
            return sb_kernel_fail(k, SB_UNSUPPORTED,
                                  "more than %d axes to copy", SB_MAX_RANK);
        if (x->dims[i] > 1) {
            at--;
            c.dims[at] = x->dims[i];
            c.src_stride[at] = strides[i];
            c.dst_stride[at] = stride;
        }
        if (repeat > 1) {
            at--;
            c.dims[at] = repeat;
            c.src_stride[at] = 0;
            c.dst_stride[at] = stride * x->dims[i];
        }
        stride *= y->dims[i];
    }
    for (int i = 0; i < at; i++)
        c.dims[i] = 1;
    sb_strided_copy(k->ctx, &c, y->data, x->data);
    return SB_OK;
}

const sb_op_def sb_op_tile = {
    .name = "Tile",
    .since = 6,
    .quant = SB_ROLE_PASS,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .batch = sb_batch_tile,
    .infer = tile_infer,
    .prepare = sb_move_prepare,
    .forward = tile_forward,
    .grad = sb_grad_tile,
    .tie = sb_tie_tile,
};
