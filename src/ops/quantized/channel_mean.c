/* sparsebit.ChannelMean(x) -> mean [N, C] of each sample, and
 * sparsebit.CorrectMean(y, wanted, seen, count) -> y + shift, seen', count'
 *
 * for correcting the biases of a quantized network in one pass.  `wanted` are
 * the means that the float network has for the same samples; `seen` [2, C] the
 * sums, over `count` samples of runs before, of what was missing and of its
 * square.  What the layers behind get is corrected by all that is known so
 * far, with `sure` 1 only as far as it is no chance (channel_mean.h).  Channels
 * are those of `axis`, 1 or the last. */
#include "ops/quantized/channel_mean.h"

#include <math.h>
#include <string.h>

#include "ops/infer_util.h"
#include "ops/norm/channel_sums.h"
#include "ops/norm/norm_util.h"

typedef struct channel_mean_attrs {
    int64_t axis, sure;
} channel_mean_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(channel_mean_attrs, axis), .i = 1},
    {"sure", SB_ATTR_INT, offsetof(channel_mean_attrs, sure), .i = 0,
     .flag = true},
    {0},
};

static bool mean_axis_fits(int64_t axis, int rank)
{
    return rank >= 2 && axis >= 0 && (axis == 1 || axis == rank - 1);
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
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape out = {.rank = 2};

    SB_TRY(mean_check_axis(in, &out.dim[1]));
    out.dim[0] = x->rank > 0 ? x->dim[0] : SB_DIM_UNKNOWN;
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

static sb_status correct_mean_infer(sb_infer *in)
{
    sb_dim channels;

    SB_TRY(mean_check_axis(in, &channels));
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

/* One sample, in which a channel has `size` elements. */
static sb_channel_view mean_view(const sb_kernel *k)
{
    const channel_mean_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    sb_channel_view view;

    if (a->axis == 1) {
        view = sb_channel_view_of(x);
        view.n = 1;
        return view;
    }
    return (sb_channel_view){
        .n = 1,
        .c = x->dims[x->rank - 1],
        .size = sb_dims_product(x->dims, 1, x->rank - 1),
        .last = true,
    };
}

/* Scratch: two sums a channel, what sums need, then two factors a channel. */
static sb_status mean_prepare(sb_kernel *k)
{
    const channel_mean_attrs *a = k->attrs;

    if (!mean_axis_fits(a->axis, k->in[0]->rank))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "axis %lld of rank %d, want 1 or the last",
                              (long long)a->axis, k->in[0]->rank);
    sb_channel_view view = mean_view(k);
    size_t c = (size_t)view.c;
    if (k->n_in > 1 &&
        (sb_tensor_count(k->in[3]) != 1 ||
         sb_tensor_count(k->in[2]) != 2 * view.c ||
         sb_tensor_count(k->in[1]) != k->in[0]->dims[0] * view.c))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "%lld means, %lld sums and %lld counts of %lld "
                              "channels of %lld samples",
                              (long long)sb_tensor_count(k->in[1]),
                              (long long)sb_tensor_count(k->in[2]),
                              (long long)sb_tensor_count(k->in[3]),
                              (long long)view.c, (long long)k->in[0]->dims[0]);
    k->scratch_size =
        (2 * c + sb_channel_sums_scratch(&view)) * sizeof(double) +
        2 * c * sizeof(float);
    return SB_OK;
}

/* Sums of all channels of a sample, at the start of the scratch memory. */
static const double *mean_sums(const sb_kernel *k, const sb_channel_view *view,
                               int64_t sample)
{
    double *scratch = k->scratch;
    const float *x =
        (const float *)k->in[0]->data + sample * view->c * view->size;
    const sb_channel_sums sums = {.view = *view,
                                  .u = x,
                                  .v = x,
                                  .sum = scratch,
                                  .product = scratch + view->c,
                                  .scratch = scratch + 2 * view->c};

    sb_channel_sums_run(k->ctx, &sums);
    return scratch;
}

static sb_status channel_mean_forward(sb_kernel *k)
{
    sb_channel_view view = mean_view(k);
    float *mean = k->out[0]->data;

    for (int64_t n = 0; n < k->in[0]->dims[0]; n++) {
        const double *sum = mean_sums(k, &view, n);

        for (int64_t c = 0; c < view.c; c++)
            *mean++ = view.size > 0 ? (float)(sum[c] / (double)view.size) : 0;
    }
    return SB_OK;
}

/* Adds what is missing in the samples of this run. */
static void correct_see(const sb_kernel *k, const sb_channel_view *view,
                        float *seen)
{
    const float *wanted = k->in[1]->data;

    memmove(seen, k->in[2]->data, 2 * (size_t)view->c * sizeof *seen);
    for (int64_t n = 0; n < k->in[0]->dims[0] && view->size > 0; n++) {
        const double *sum = mean_sums(k, view, n);

        for (int64_t c = 0; c < view->c; c++) {
            double missing =
                (double)wanted[n * view->c + c] - sum[c] / (double)view->size;
            seen[c] += (float)missing;
            seen[view->c + c] += (float)(missing * missing);
        }
    }
}

float sb_correct_mean_shift(const float *seen, int64_t channels, int64_t c,
                            double count, bool sure)
{
    double mean = count > 0 ? (double)seen[c] / count : 0;
    double square = count > 0 ? (double)seen[channels + c] / count : 0;

    if (!sure || count < 2 || !(mean * mean > 0))
        return (float)mean;
    double unsure = fmax(square - mean * mean, 0) / (count - 1);
    return (float)(mean * fmax(1 - unsure / (mean * mean), 0));
}

static sb_status correct_mean_forward(sb_kernel *k)
{
    const channel_mean_attrs *a = k->attrs;
    sb_channel_view view = mean_view(k), all = view;
    double count =
        (double)*(const float *)k->in[3]->data + (double)k->in[0]->dims[0];
    float *one = (float *)((char *)k->scratch + k->scratch_size) - 2 * view.c;
    float *shift = one + view.c;

    correct_see(k, &view, k->out[1]->data);
    for (int64_t c = 0; c < view.c; c++) {
        one[c] = 1;
        shift[c] =
            sb_correct_mean_shift(k->out[1]->data, view.c, c, count, a->sure);
    }
    all.n = k->in[0]->dims[0];
    const sb_channel_map map = {.view = all,
                                .u = k->in[0]->data,
                                .fu = one,
                                .shift = shift,
                                .y = k->out[0]->data};
    sb_channel_map_run(k->ctx, &map);
    *(float *)k->out[2]->data = (float)count;
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
