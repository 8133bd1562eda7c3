/* BatchNormalization: y = (x - mean) / sqrt(var + epsilon) * scale + bias for
 * each channel, as one factor and one shift.
 *
 * With training_mode the statistics are those of the batch, and outputs 1 and 2
 * are the running ones: running * momentum + batch * (1 - momentum). */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/norm/norm_util.h"
#include "ops/tie/tie_rules.h"

#include <math.h>

#include "base/simd.h"
#include "base/threads.h"

typedef struct {
    float epsilon, momentum;
    int64_t training_mode;
} batch_norm_attrs;

static const sb_attr_def attrs[] = {
    {"epsilon", SB_ATTR_FLOAT, offsetof(batch_norm_attrs, epsilon), .f = 1e-5f},
    {"momentum", SB_ATTR_FLOAT, offsetof(batch_norm_attrs, momentum),
     .f = 0.9f},
    {"training_mode", SB_ATTR_INT, offsetof(batch_norm_attrs, training_mode),
     .i = 0, .flag = true},
    {0},
};

static sb_status batch_norm_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape;
    sb_dim c = x->rank > 1 ? x->dim[1] : x->rank == 1 ? 1 : SB_DIM_UNKNOWN;
    sb_shape per_channel = {.rank = 1, .dim = {c}};

    if (x->rank == 0)
        return sb_infer_fail(in, "input is a scalar, want rank 1 or more");
    for (uint32_t i = 1; i < in->n_in && i < 5; i++)
        SB_TRY(sb_infer_per_channel(in, i, c));
    in->out[0].type = in->in[0]->type;
    sb_infer_set(in, 1, in->in[3]->type.dtype, &per_channel);
    sb_infer_set(in, 2, in->in[4]->type.dtype, &per_channel);
    return SB_OK;
}

/* [N, C, size] */
typedef struct {
    int64_t n, c, size;
} batch_norm_sizes;

static batch_norm_sizes sizes_of(const sb_kernel *k)
{
    const sb_tensor *x = k->in[0];

    return (batch_norm_sizes){x->dims[0], x->rank > 1 ? x->dims[1] : 1,
                              x->rank > 2 ? sb_dims_product(x->dims, 2, x->rank)
                                          : 1};
}

static sb_status batch_norm_prepare(sb_kernel *k)
{
    for (int i = 1; i < 5; i++)
        if (k->in[i]->dtype != SB_DTYPE_F32)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %d of type %s", i,
                                  sb_dtype_name(k->in[i]->dtype));
    if (k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    k->scratch_size = (size_t)sizes_of(k).c * 2 * sizeof(float);
    return SB_OK;
}

/* Factor and shift of channel c from its statistics. */
static void set_factor(const sb_kernel *k, int64_t c, double mean, double var)
{
    const batch_norm_attrs *a = k->attrs;
    const float *scale = k->in[1]->data, *bias = k->in[2]->data;
    float *factor = k->scratch, *shift = factor + sizes_of(k).c;
    double f = (double)scale[c] / sqrt(var + (double)a->epsilon);

    factor[c] = (float)f;
    shift[c] = (float)((double)bias[c] - mean * f);
}

/* Mean and variance of a channel over the batch. */
static sb_moments channel_moments(const sb_kernel *k, int64_t c)
{
    batch_norm_sizes s = sizes_of(k);
    const float *x = k->in[0]->data;
    double sum = 0, square = 0, count = (double)(s.n * s.size);

    for (int64_t n = 0; n < s.n; n++)
        for (int64_t i = 0; i < s.size; i++)
            sum += (double)x[(n * s.c + c) * s.size + i];
    double mean = count > 0 ? sum / count : 0;
    for (int64_t n = 0; n < s.n; n++)
        for (int64_t i = 0; i < s.size; i++) {
            double d = (double)x[(n * s.c + c) * s.size + i] - mean;
            square += d * d;
        }
    return (sb_moments){mean, count > 0 ? square / count : 0};
}

static void batch_norm_channels(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const batch_norm_attrs *a = k->attrs;
    const float *mean = k->in[3]->data, *var = k->in[4]->data;
    sb_tensor *run_mean = sb_kernel_out(k, 1), *run_var = sb_kernel_out(k, 2);
    double keep = (double)a->momentum;

    for (size_t c = begin; c < end; c++) {
        if (!a->training_mode) {
            set_factor(k, (int64_t)c, (double)mean[c], (double)var[c]);
            continue;
        }
        sb_moments m = channel_moments(k, (int64_t)c);
        set_factor(k, (int64_t)c, m.mean, m.var);
        if (run_mean)
            ((float *)run_mean->data)[c] =
                (float)((double)mean[c] * keep + m.mean * (1 - keep));
        if (run_var)
            ((float *)run_var->data)[c] =
                (float)((double)var[c] * keep + m.var * (1 - keep));
    }
}

static void batch_norm_planes(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    batch_norm_sizes s = sizes_of(k);
    const float *factor = k->scratch, *shift = factor + s.c;
    const float *x = k->in[0]->data;
    float *y = k->out[0]->data;

    for (size_t i = begin; i < end; i++) {
        int64_t at = (int64_t)i * s.size, c = (int64_t)i % s.c;
        sb_scale_shift(x + at, y + at, s.size, factor[c], shift[c]);
    }
}

/* Channels last: items are places, each a row of all channels. */
SB_HOT static void batch_norm_row(const float *x, const float *factor,
                                  const float *shift, float *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor[i] + shift[i];
}

static void batch_norm_places(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    int64_t c = sizes_of(k).c;
    const float *factor = k->scratch, *shift = factor + c;

    for (size_t i = begin; i < end; i++)
        batch_norm_row((const float *)k->in[0]->data + (int64_t)i * c, factor,
                       shift, (float *)k->out[0]->data + (int64_t)i * c, c);
}

static void batch_norm_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const batch_norm_attrs *a = k->attrs;

    if (k->in[0]->rank < 3 || a->training_mode ||
        k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST)
        return;
    in[0] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_status batch_norm_forward(sb_kernel *k)
{
    batch_norm_sizes s = sizes_of(k);

    sb_parallel_for(k->ctx, (size_t)s.c, 64, batch_norm_channels, k);
    if (k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST) {
        sb_parallel_for(k->ctx, (size_t)(s.n * s.size),
                        (size_t)(65536 / (s.c + 1) + 1), batch_norm_places, k);
        return SB_OK;
    }
    sb_parallel_for(k->ctx, (size_t)(s.n * s.c),
                    (size_t)(65536 / (s.size + 1) + 1), batch_norm_planes, k);
    return SB_OK;
}

const sb_op_def sb_op_batch_normalization = {
    .name = "BatchNormalization",
    .since = 9,
    .quant = SB_ROLE_NORM,
    .parameters = 1u << 1 | 1u << 2,
    .statistics = 1u << 3 | 1u << 4,
    .in_min = 5,
    .in_max = 5,
    .out_min = 1,
    .out_max = 3,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(batch_norm_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = batch_norm_infer,
    .layout = batch_norm_layout,
    .prepare = batch_norm_prepare,
    .forward = batch_norm_forward,
    .grad = sb_grad_batch_norm,
    .tie = sb_tie_batch_norm,
};
