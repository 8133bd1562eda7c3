/* InstanceNormalization and GroupNormalization: the planes of a group of
 * channels are normalized together, then each channel gets scale and bias.
 * An instance is a group of one channel. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/norm/norm_util.h"
#include "ops/tie/tie_rules.h"

#include <math.h>

#include "base/simd.h"
#include "base/threads.h"

typedef struct {
    float epsilon;
    int64_t num_groups, stash_type;
} group_norm_attrs;

static const sb_attr_def instance_attrs[] = {
    {"epsilon", SB_ATTR_FLOAT, offsetof(group_norm_attrs, epsilon), .f = 1e-5f},
    {0},
};

static const sb_attr_def group_attrs[] = {
    {"epsilon", SB_ATTR_FLOAT, offsetof(group_norm_attrs, epsilon), .f = 1e-5f},
    {"num_groups", SB_ATTR_INT, offsetof(group_norm_attrs, num_groups),
     .required = true},
    {"stash_type", SB_ATTR_INT, offsetof(group_norm_attrs, stash_type), .i = 1},
    {0},
};

static sb_status norm_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape;
    sb_dim c = x->rank > 1 ? x->dim[1] : SB_DIM_UNKNOWN;

    if (x->rank >= 0 && x->rank < 2)
        return sb_infer_fail(in, "input of rank %d, want at least 2", x->rank);
    for (uint32_t i = 1; i < 3; i++)
        SB_TRY(sb_infer_per_channel(in, i, c));
    in->out[0].type = in->in[0]->type;
    return SB_OK;
}

static sb_status group_infer(sb_infer *in)
{
    const group_norm_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;

    if (a->num_groups < 1 ||
        (x->rank > 1 && sb_dim_known(x->dim[1]) && x->dim[1] % a->num_groups))
        return sb_infer_fail(in,
                             "num_groups is %lld, which does not divide "
                             "the channels",
                             (long long)a->num_groups);
    return norm_infer(in);
}

typedef struct {
    const sb_kernel *k;
    int64_t channels; /* of a group */
    int64_t groups;   /* of an image */
    int64_t size;     /* of a plane */
    float epsilon;
    int64_t columns; /* side by side: whole groups */
} group_job;

static void norm_range(void *arg, size_t begin, size_t end)
{
    const group_job *job = arg;
    const float *x = job->k->in[0]->data;
    const float *scale = job->k->in[1]->data, *bias = job->k->in[2]->data;
    float *y = job->k->out[0]->data;
    int64_t n = job->channels * job->size;

    for (size_t g = begin; g < end; g++) {
        int64_t first = (int64_t)g % job->groups * job->channels;
        sb_moments m = sb_moments_of(x + (int64_t)g * n, n);
        double inv = 1 / sqrt(m.var + (double)job->epsilon);
        for (int64_t c = 0; c < job->channels; c++) {
            int64_t at = (int64_t)g * n + c * job->size;
            double f = (double)scale[first + c] * inv;
            double shift = (double)bias[first + c] - m.mean * f;
            sb_scale_shift(x + at, y + at, job->size, (float)f, (float)shift);
        }
    }
}

/* ---- channels last --------------------------------------------------------
 * The channels of a place are neighbors, so whole groups are taken side by
 * side, at least a cache line wide; every column has its own sum, and those of
 * a group are added in the end. */

enum { SIDE_BY_SIDE = 64 };

SB_HOT static void columns_sum(const float *x, double *sum, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)x[i];
}

SB_HOT static void columns_square(const float *x, const double *mean,
                                  double *sum, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - mean[i];
        sum[i] += d * d;
    }
}

SB_HOT static void columns_scale(const float *x, const float *factor,
                                 const float *shift, float *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor[i] + shift[i];
}

/* Every column of a group gets the mean of the group's sums. */
static void share_in_groups(const group_job *job, double *v, int64_t n)
{
    double count = (double)(job->channels * job->size);

    for (int64_t c = 0; c < n; c += job->channels) {
        double sum = 0;
        for (int64_t i = 0; i < job->channels; i++)
            sum += v[c + i];
        for (int64_t i = 0; i < job->channels; i++)
            v[c + i] = count > 0 ? sum / count : 0;
    }
}

/* `n` columns, from column `first` of an image whose data `x` and `y` are, with
 * room for COLUMN_ROOM numbers a column. */
enum { COLUMN_ROOM = 3 };

static void norm_columns(const group_job *job, int64_t first, int64_t n,
                         const float *x, float *y, double *room)
{
    double *mean = room, *var = room + n;
    float *factor = (float *)(void *)(room + 2 * n), *shift = factor + n;
    const float *scale = (const float *)job->k->in[1]->data + first;
    const float *bias = (const float *)job->k->in[2]->data + first;
    int64_t row = job->channels * job->groups;

    for (int64_t i = 0; i < n; i++)
        mean[i] = var[i] = 0;
    for (int64_t s = 0; s < job->size; s++)
        columns_sum(x + s * row + first, mean, n);
    share_in_groups(job, mean, n);
    for (int64_t s = 0; s < job->size; s++)
        columns_square(x + s * row + first, mean, var, n);
    share_in_groups(job, var, n);
    for (int64_t i = 0; i < n; i++) {
        double f = (double)scale[i] / sqrt(var[i] + (double)job->epsilon);
        factor[i] = (float)f;
        shift[i] = (float)((double)bias[i] - mean[i] * f);
    }
    for (int64_t s = 0; s < job->size; s++)
        columns_scale(x + s * row + first, factor, shift, y + s * row + first,
                      n);
}

static void norm_columns_range(void *arg, size_t begin, size_t end)
{
    const group_job *job = arg;
    int64_t row = job->channels * job->groups;
    int64_t parts = (row + job->columns - 1) / job->columns;

    for (size_t item = begin; item < end; item++) {
        int64_t image = (int64_t)item / parts;
        int64_t first = (int64_t)item % parts * job->columns;
        int64_t n = row - first < job->columns ? row - first : job->columns;
        double *room =
            (double *)job->k->scratch + COLUMN_ROOM * (image * row + first);
        int64_t at = image * row * job->size;
        norm_columns(job, first, n, (const float *)job->k->in[0]->data + at,
                     (float *)job->k->out[0]->data + at, room);
    }
}

static void norm_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    if (k->in[0]->rank < 3 || k->in[0]->layout == SB_LAYOUT_PLAIN)
        return;
    in[0] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_status norm_prepare(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];

    if (x->layout == SB_LAYOUT_CHANNELS_LAST)
        k->scratch_size =
            (size_t)(x->dims[0] * x->dims[1]) * COLUMN_ROOM * sizeof(double);
    return SB_OK;
}

static sb_status norm_forward(sb_kernel *k, int64_t groups)
{
    const group_norm_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    group_job job = {k,          groups ? x->dims[1] / groups : 0,
                     groups,     sb_dims_product(x->dims, 2, x->rank),
                     a->epsilon, 0};
    int64_t n = job.channels * job.size;

    if (x->layout == SB_LAYOUT_CHANNELS_LAST && n > 0) {
        job.columns = (SIDE_BY_SIDE / job.channels + 1) * job.channels;
        int64_t parts = (x->dims[1] + job.columns - 1) / job.columns;
        sb_parallel_for(k->ctx, (size_t)(x->dims[0] * parts), 1,
                        norm_columns_range, &job);
        return SB_OK;
    }

    sb_parallel_for(k->ctx, (size_t)(x->dims[0] * groups),
                    (size_t)(16384 / (n + 1) + 1), norm_range, &job);
    return SB_OK;
}

static sb_status instance_forward(sb_kernel *k)
{
    return norm_forward(k, k->in[0]->dims[1]);
}

static sb_status group_forward(sb_kernel *k)
{
    const group_norm_attrs *a = k->attrs;

    return norm_forward(k, a->num_groups);
}

const sb_op_def sb_op_instance_normalization = {
    .name = "InstanceNormalization",
    .since = 6,
    .quant = SB_ROLE_SINGLE,
    .parameters = 1u << 1 | 1u << 2,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(group_norm_attrs),
    .attrs = instance_attrs,
    .batch = sb_batch_first,
    .infer = norm_infer,
    .layout = norm_layout,
    .prepare = norm_prepare,
    .forward = instance_forward,
    .grad = sb_grad_group_norm,
    .tie = sb_tie_instance_norm,
};

const sb_op_def sb_op_group_normalization = {
    .name = "GroupNormalization",
    .since = 21,
    .quant = SB_ROLE_SINGLE,
    .parameters = 1u << 1 | 1u << 2,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(group_norm_attrs),
    .attrs = group_attrs,
    .batch = sb_batch_first,
    .infer = group_infer,
    .layout = norm_layout,
    .prepare = norm_prepare,
    .forward = group_forward,
    .grad = sb_grad_group_norm,
    .tie = sb_tie_group_norm,
    .recut = sb_recut_group_norm,
};
