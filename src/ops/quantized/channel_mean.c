/* sparsebit.ChannelMean(x) -> mean [C], and
 * sparsebit.CorrectMean(y, wanted, shift, count) -> y + shift', shift', count'
 *
 * for correcting the biases of a quantized network in one pass.  `wanted` is
 * the mean of each channel that the float network has for the same samples;
 * shift' is the mean of what was missing, in this run and in `count` elements
 * of runs before.  What the layers behind see is corrected by all that is known
 * so far.  Channels are those of `axis`, 1 or the last. */
#include "ops/infer_util.h"
#include "ops/norm/channel_sums.h"
#include "ops/norm/norm_util.h"

typedef struct channel_mean_attrs {
    int64_t axis;
} channel_mean_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(channel_mean_attrs, axis), .i = 1},
    {0},
};

static bool mean_axis_fits(int64_t axis, int rank)
{
    return axis >= 0 && axis < rank && (axis == 1 || axis == rank - 1);
}

static sb_status mean_check_axis(sb_infer *in, sb_dim *channels)
{
    const channel_mean_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;

    *channels = SB_DIM_UNKNOWN;
    if (x->rank < 0)
        return SB_OK;
    if (!mean_axis_fits(a->axis, x->rank))
        return sb_infer_fail(in, "axis %lld of rank %d, want 1 or the last",
                             (long long)a->axis, x->rank);
    *channels = x->dim[a->axis];
    return SB_OK;
}

static sb_status channel_mean_infer(sb_infer *in)
{
    sb_shape out = {.rank = 1};

    SB_TRY(mean_check_axis(in, &out.dim[0]));
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

static sb_status correct_mean_infer(sb_infer *in)
{
    sb_dim channels;

    SB_TRY(mean_check_axis(in, &channels));
    SB_TRY(sb_infer_per_channel(in, 1, channels));
    SB_TRY(sb_infer_per_channel(in, 2, channels));
    in->out[0].type = in->in[0]->type;
    in->out[1].type = in->in[2]->type;
    in->out[2].type = in->in[3]->type;
    return SB_OK;
}

static void mean_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const channel_mean_attrs *a = k->attrs;

    if (a->axis != 1 || k->in[0]->rank < 3 ||
        k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST)
        return;
    in[0] = SB_LAYOUT_CHANNELS_LAST;
    if (k->n_out > 1)
        out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_channel_view mean_view(const sb_kernel *k)
{
    const channel_mean_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];

    if (a->axis == 1)
        return sb_channel_view_of(x);
    return (sb_channel_view){
        .n = sb_dims_product(x->dims, 0, x->rank - 1),
        .c = x->dims[x->rank - 1],
        .size = 1,
        .last = true,
    };
}

/* Scratch: two sums and two factors a channel, then what sums need. */
static sb_status mean_prepare(sb_kernel *k)
{
    sb_channel_view view = mean_view(k);

    if (k->n_in > 1 && sb_tensor_count(k->in[3]) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL, "count has %lld elements, not 1",
                              (long long)sb_tensor_count(k->in[3]));
    k->scratch_size =
        (2 * (size_t)view.c + sb_channel_sums_scratch(&view)) * sizeof(double) +
        2 * (size_t)view.c * sizeof(float);
    return SB_OK;
}

/* Sums of all channels, at the start of the scratch memory. */
static const double *mean_sums(const sb_kernel *k, const sb_channel_view *view)
{
    double *scratch = k->scratch;
    const sb_channel_sums sums = {.view = *view,
                                  .u = k->in[0]->data,
                                  .v = k->in[0]->data,
                                  .sum = scratch,
                                  .product = scratch + view->c,
                                  .scratch = scratch + 2 * view->c};

    sb_channel_sums_run(k->ctx, &sums);
    return scratch;
}

static sb_status channel_mean_forward(sb_kernel *k)
{
    sb_channel_view view = mean_view(k);
    const double *sum = mean_sums(k, &view);
    double n = (double)sb_channel_count(&view);
    float *mean = k->out[0]->data;

    for (int64_t c = 0; c < view.c; c++)
        mean[c] = n > 0 ? (float)(sum[c] / n) : 0;
    return SB_OK;
}

static sb_status correct_mean_forward(sb_kernel *k)
{
    sb_channel_view view = mean_view(k);
    const double *sum = mean_sums(k, &view);
    double n = (double)sb_channel_count(&view);
    const float *wanted = k->in[1]->data, *before = k->in[2]->data;
    double all = n + (double)*(const float *)k->in[3]->data;
    float *one = (float *)((char *)k->scratch + k->scratch_size) - 2 * view.c;
    float *shift = one + view.c;

    for (int64_t c = 0; c < view.c; c++) {
        double missing = n > 0 ? (double)wanted[c] - sum[c] / n : 0;
        double share = all > 0 ? n / all : 0;
        one[c] = 1;
        shift[c] = (float)((double)before[c] * (1 - share) + missing * share);
    }
    const sb_channel_map map = {.view = view,
                                .u = k->in[0]->data,
                                .fu = one,
                                .shift = shift,
                                .y = k->out[0]->data};
    sb_channel_map_run(k->ctx, &map);
    if (k->out[1])
        for (int64_t c = 0; c < view.c; c++)
            ((float *)k->out[1]->data)[c] = shift[c];
    if (k->out[2])
        *(float *)k->out[2]->data = (float)all;
    return SB_OK;
}

const sb_op_def sb_op_channel_mean = {
    .name = "ChannelMean",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(channel_mean_attrs),
    .attrs = attrs,
    .infer = channel_mean_infer,
    .layout = mean_layout,
    .prepare = mean_prepare,
    .forward = channel_mean_forward,
};

const sb_op_def sb_op_correct_mean = {
    .name = "CorrectMean",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 4,
    .in_max = 4,
    .out_min = 3,
    .out_max = 3,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(channel_mean_attrs),
    .attrs = attrs,
    .infer = correct_mean_infer,
    .layout = mean_layout,
    .prepare = mean_prepare,
    .forward = correct_mean_forward,
};
