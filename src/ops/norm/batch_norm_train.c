/* sparsebit.BatchNormTrain(x, scale, bias, running_mean, running_var) -> y,
 * mean, inv_std, running_mean, running_var: normalization by the statistics of
 * the batch, as PyTorch does it while training (the running variance takes that
 * of a sample, divided by one less); and
 * sparsebit.BatchNormGrad(dy, x, scale, mean, inv_std) -> dx, dscale, dbias:
 *
 *     dbias  = sum dy           dscale = sum dy (x - mean) inv_std
 *     dx     = scale inv_std (dy - dbias / n - xhat dscale / n)
 *
 * Where several ranks share a batch, mean, variance and the sums in dx are
 * those of the whole batch; dscale and dbias are parts, as all gradients of a
 * rank. */
#include <math.h>

#include "ops/grad/grad_rules.h"
#include "ops/norm/channel_sums.h"
#include "ops/norm/norm_util.h"

typedef struct {
    float epsilon, momentum;
} batch_norm_train_attrs;

static const sb_attr_def attrs[] = {
    {"epsilon", SB_ATTR_FLOAT, offsetof(batch_norm_train_attrs, epsilon),
     .f = 1e-5f},
    {"momentum", SB_ATTR_FLOAT, offsetof(batch_norm_train_attrs, momentum),
     .f = 0.9f},
    {0},
};

static sb_status batch_norm_train_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape;
    sb_dim c = x->rank > 1 ? x->dim[1] : SB_DIM_UNKNOWN;
    sb_shape per_channel = {.rank = 1, .dim = {c}};

    if (x->rank == 0 || x->rank == 1)
        return sb_infer_fail(in, "input has rank %d, want 2 or more", x->rank);
    for (uint32_t i = 1; i < 5; i++)
        SB_TRY(sb_infer_per_channel(in, i, c));
    in->out[0].type = in->in[0]->type;
    for (uint32_t i = 1; i < 5; i++)
        sb_infer_set(in, i, in->in[0]->type.dtype, &per_channel);
    return SB_OK;
}

static sb_status batch_norm_grad_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[1]->type.shape;
    sb_shape per_channel = {.rank = 1,
                            .dim = {x->rank > 1 ? x->dim[1] : SB_DIM_UNKNOWN}};

    for (uint32_t i = 2; i < 5; i++)
        SB_TRY(sb_infer_per_channel(in, i, per_channel.dim[0]));
    in->out[0].type = in->in[1]->type;
    sb_infer_set(in, 1, in->in[0]->type.dtype, &per_channel);
    sb_infer_set(in, 2, in->in[0]->type.dtype, &per_channel);
    return SB_OK;
}

static void batch_norm_train_layout(const sb_kernel *k, sb_layout *in,
                                    sb_layout *out)
{
    if (k->in[0]->rank < 3 || k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST)
        return;
    in[0] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

/* dy and x must lie alike: channels last if one of them does. */
static void batch_norm_grad_layout(const sb_kernel *k, sb_layout *in,
                                   sb_layout *out)
{
    if (k->in[1]->rank < 3 || (k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST &&
                               k->in[1]->layout != SB_LAYOUT_CHANNELS_LAST))
        return;
    in[0] = in[1] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

/* Scratch: two sums of each channel, how many elements are in them, then what
 * sums need; three factors of each channel. */
typedef struct batch_norm_scratch {
    double *sum, *product, *rest;
    float *a, *b, *shift;
} batch_norm_scratch;

static sb_status batch_norm_train_prepare(sb_kernel *k)
{
    sb_channel_view view = sb_channel_view_of(k->in[0]);
    size_t c = (size_t)view.c;

    k->scratch_size =
        (2 * c + 1 + sb_channel_sums_scratch(&view)) * sizeof(double) +
        3 * c * sizeof(float);
    return SB_OK;
}

static batch_norm_scratch batch_norm_scratch_of(const sb_kernel *k)
{
    sb_channel_view view = sb_channel_view_of(k->in[0]);
    size_t c = (size_t)view.c;
    batch_norm_scratch s = {.sum = k->scratch};

    s.product = s.sum + c;
    s.rest = s.product + c + 1;
    s.a = (float *)(void *)(s.rest + sb_channel_sums_scratch(&view));
    s.b = s.a + c;
    s.shift = s.b + c;
    return s;
}

static float *batch_norm_result(const sb_kernel *k, uint32_t i)
{
    const sb_tensor *t = sb_kernel_out(k, i);

    return t ? t->data : NULL;
}

/* The sums of all ranks.  Each has summed up differences to a value of its own,
 * s->b; now they are to the running mean, which all have alike. */
static sb_status train_join_ranks(sb_kernel *k, const batch_norm_scratch *s,
                                  int64_t channels, double *n)
{
    const float *common = k->in[3]->data;
    int rank;

    if (k->host->ranks(k, &rank) == 1)
        return SB_OK;
    for (int64_t c = 0; c < channels; c++) {
        double d = (double)s->b[c] - (double)common[c];
        s->product[c] += 2 * d * s->sum[c] + *n * d * d;
        s->sum[c] += *n * d;
        s->b[c] = common[c];
    }
    s->product[channels] = *n;
    SB_TRY(k->host->sum(k, s->sum, 2 * (size_t)channels + 1));
    *n = s->product[channels];
    return SB_OK;
}

/* What is kept of channel c, and its factor and shift. */
static void train_channel(const sb_kernel *k, const batch_norm_scratch *s,
                          int64_t c, double mean, double var, double n)
{
    const batch_norm_train_attrs *a = k->attrs;
    const float *scale = k->in[1]->data, *bias = k->in[2]->data;
    const float *old_mean = k->in[3]->data, *old_var = k->in[4]->data;
    double keep = (double)a->momentum;
    double inv = 1 / sqrt(var + (double)a->epsilon);
    const double kept[] = {mean, inv,
                           (double)old_mean[c] * keep + mean * (1 - keep),
                           (double)old_var[c] * keep +
                               var * (n > 1 ? n / (n - 1) : 1) * (1 - keep)};

    for (uint32_t i = 0; i < SB_COUNT(kept); i++) {
        float *out = batch_norm_result(k, i + 1);
        if (out)
            out[c] = (float)kept[i];
    }
    double f = (double)scale[c] * inv;
    s->a[c] = (float)f;
    s->shift[c] = (float)((double)bias[c] - mean * f);
}

static sb_status batch_norm_train_forward(sb_kernel *k)
{
    batch_norm_scratch s = batch_norm_scratch_of(k);
    sb_channel_view view = sb_channel_view_of(k->in[0]);
    const float *x = k->in[0]->data;
    double n = (double)sb_channel_count(&view);

    if (n == 0)
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "a batch without elements has "
                              "no statistics");
    /* Sums of differences to one of the values, so that a large mean costs no
     * digits. */
    for (int64_t c = 0; c < view.c; c++)
        s.b[c] = x[view.last ? c : c * view.size];
    const sb_channel_sums sums = {.view = view,
                                  .u = x,
                                  .u_shift = s.b,
                                  .v = x,
                                  .v_shift = s.b,
                                  .sum = s.sum,
                                  .product = s.product,
                                  .scratch = s.rest};
    sb_channel_sums_run(k->ctx, &sums);
    SB_TRY(train_join_ranks(k, &s, view.c, &n));
    for (int64_t c = 0; c < view.c; c++) {
        double d = s.sum[c] / n, var = s.product[c] / n - d * d;
        train_channel(k, &s, c, (double)s.b[c] + d, var > 0 ? var : 0, n);
    }
    const sb_channel_map map = {.view = view,
                                .u = x,
                                .fu = s.a,
                                .shift = s.shift,
                                .y = k->out[0]->data};
    sb_channel_map_run(k->ctx, &map);
    return SB_OK;
}

static sb_status batch_norm_grad_forward(sb_kernel *k)
{
    batch_norm_scratch s = batch_norm_scratch_of(k);
    sb_channel_view view = sb_channel_view_of(k->in[0]);
    const float *scale = k->in[2]->data, *mean = k->in[3]->data;
    const float *inv = k->in[4]->data;
    float *dx = batch_norm_result(k, 0), *dscale = batch_norm_result(k, 1);
    float *dbias = batch_norm_result(k, 2);
    double n = (double)sb_channel_count(&view);
    const sb_channel_sums sums = {.view = view,
                                  .u = k->in[0]->data,
                                  .v = k->in[1]->data,
                                  .v_shift = mean,
                                  .sum = s.sum,
                                  .product = s.product,
                                  .scratch = s.rest};

    sb_channel_sums_run(k->ctx, &sums);
    for (int64_t c = 0; c < view.c; c++) {
        if (dscale)
            dscale[c] = (float)(s.product[c] * (double)inv[c]);
        if (dbias)
            dbias[c] = (float)s.sum[c];
    }
    s.product[view.c] = n;
    SB_TRY(k->host->sum(k, s.sum, 2 * (size_t)view.c + 1));
    n = s.product[view.c];
    for (int64_t c = 0; c < view.c; c++) {
        double f = (double)scale[c] * (double)inv[c];
        double xhat = s.product[c] * (double)inv[c]; /* sum dy xhat */
        double g = n > 0 ? -f * xhat / n * (double)inv[c] : 0;

        s.a[c] = (float)f;
        s.b[c] = (float)g;
        s.shift[c] =
            (float)((n > 0 ? -f * s.sum[c] / n : 0) - g * (double)mean[c]);
    }
    const sb_channel_map map = {.view = view,
                                .u = k->in[0]->data,
                                .fu = s.a,
                                .v = k->in[1]->data,
                                .fv = s.b,
                                .shift = s.shift,
                                .y = dx};
    if (dx)
        sb_channel_map_run(k->ctx, &map);
    return SB_OK;
}

const sb_op_def sb_op_batch_norm_train = {
    .name = "BatchNormTrain",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .parameters = 1u << 1 | 1u << 2,
    .statistics = 1u << 3 | 1u << 4,
    .in_min = 5,
    .in_max = 5,
    .out_min = 1,
    .out_max = 5,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(batch_norm_train_attrs),
    .attrs = attrs,
    .infer = batch_norm_train_infer,
    .layout = batch_norm_train_layout,
    .prepare = batch_norm_train_prepare,
    .forward = batch_norm_train_forward,
    .grad = sb_grad_batch_norm_train,
};

const sb_op_def sb_op_batch_norm_grad = {
    .name = "BatchNormGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 5,
    .in_max = 5,
    .out_min = 1,
    .out_max = 3,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .infer = batch_norm_grad_infer,
    .layout = batch_norm_grad_layout,
    .prepare = batch_norm_train_prepare,
    .forward = batch_norm_grad_forward,
};
