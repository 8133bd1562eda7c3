/* SumTo: x summed over the dimensions in which a tensor of the given shape was
 * broadcast to it; the way back of Expand.
 *
 *     SumTo(x [8,3,5,5], [3,1,1])  ->  [3,1,1]
 *
 * Takes a shape, as Expand does, and not the tensor that has it, whose memory
 * would have to be kept. */
#include "ops/infer_util.h"
#include "ops/move/move_util.h"
#include "ops/reduce/reduce.h"

static sb_status sum_to_infer(sb_infer *in)
{
    sb_shape shape, both;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (!sb_infer_content(in, 1, &shape))
        return SB_OK;
    both = in->in[0]->type.shape;
    if (both.rank >= 0 &&
        (shape.rank > both.rank || !sb_shape_broadcast(&both, &shape)))
        return sb_infer_fail(in, "the shape does not broadcast to the input");
    sb_infer_set(in, 0, in->in[0]->type.dtype, &shape);
    return SB_OK;
}

/* Dimensions of x that are summed over; false if the shapes do not fit. */
static bool sum_to_mask(const sb_tensor *x, const sb_tensor *y, uint32_t *mask)
{
    int lead = x->rank - y->rank;

    *mask = 0;
    for (int d = 0; d < x->rank; d++) {
        int64_t n = d < lead ? 1 : y->dims[d - lead];
        if (d < lead || (n == 1 && x->dims[d] != 1))
            *mask |= 1u << d;
        else if (n != x->dims[d])
            return false;
    }
    return lead >= 0;
}

static sb_status sum_to_prepare(sb_kernel *k)
{
    uint32_t mask;

    if (!sum_to_mask(k->in[0], k->out[0], &mask))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the shape does not broadcast to the input");
    return sb_reduce_check(k, &sb_reduce_sum_def);
}

static sb_status sum_to_forward(sb_kernel *k)
{
    uint32_t mask = 0;

    (void)sum_to_mask(k->in[0], k->out[0], &mask);
    return sb_reduce_run(k, &sb_reduce_sum_def, mask);
}

/* The sums lie as the elements do: with as many dimensions in the same layout;
 * with fewer, in NCHW order if there are no others than channels. */
static void sum_to_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const sb_tensor *x = k->in[0], *y = k->out[0];
    int64_t n = sb_tensor_count(y);
    uint32_t mask;

    if (x->layout == SB_LAYOUT_PLAIN || !sum_to_mask(x, y, &mask))
        return;
    if (y->rank == x->rank)
        in[0] = out[0] = SB_LAYOUT_CHANNELS_LAST;
    else if (n == 1 || (n == x->dims[1] && !(mask >> 1 & 1)))
        in[0] = SB_LAYOUT_CHANNELS_LAST;
}

const sb_op_def sb_op_sum_to = {
    .name = "SumTo",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .infer = sum_to_infer,
    .layout = sum_to_layout,
    .prepare = sum_to_prepare,
    .forward = sum_to_forward,
};
