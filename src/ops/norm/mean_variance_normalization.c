/* MeanVarianceNormalization: y = (x - mean) / (sqrt(var) + 1e-9), mean and
 * variance over `axes`.
 *
 * Every element belongs to one group of the kept dimensions; sums are kept
 * per group in double. */
#include <math.h>
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/infer_util.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    sb_ints axes;
} mvn_attrs;

static const sb_attr_def attrs[] = {
    {"axes", SB_ATTR_INTS, offsetof(mvn_attrs, axes), .i = 0},
    {0},
};

typedef struct mvn_group {
    double mean, scale;
} mvn_group;

static const int64_t default_axes[] = {0, 2, 3};

static sb_ints mvn_axes(const mvn_attrs *a)
{
    return a->axes.n ? a->axes : (sb_ints){default_axes, 3};
}

static sb_status mvn_infer(sb_infer *in)
{
    sb_ints axes = mvn_axes(in->attrs);
    int axis, rank = in->in[0]->type.shape.rank;

    for (size_t i = 0; i < axes.n && rank >= 0; i++)
        SB_TRY(sb_infer_axis(in, axes.v[i], rank, &axis));
    return sb_infer_same(in);
}

/* Strides that lead from an index of x to its group; returns the number of
 * groups. */
static size_t mvn_strides(const sb_kernel *k, size_t stride[SB_MAX_RANK])
{
    const sb_tensor *x = k->in[0];
    sb_ints axes = mvn_axes(k->attrs);
    bool reduced[SB_MAX_RANK] = {false};
    size_t groups = 1;

    for (size_t i = 0; i < axes.n; i++)
        reduced[sb_axis_norm(axes.v[i], x->rank)] = true;
    for (int d = x->rank - 1; d >= 0; d--) {
        stride[d] = reduced[d] ? 0 : groups;
        groups *= reduced[d] ? 1 : (size_t)x->dims[d];
    }
    return groups;
}

static sb_status mvn_prepare(sb_kernel *k)
{
    size_t stride[SB_MAX_RANK];

    if (k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    if (sb_tensor_count(k->in[0]) > 0)
        k->scratch_size = mvn_strides(k, stride) * sizeof(mvn_group);
    return SB_OK;
}

/* Moves to the next element: `index` counts, `group` follows. */
static void mvn_next(const sb_tensor *x, const size_t *stride, int64_t *index,
                     size_t *group)
{
    for (int d = x->rank - 1; d >= 0; d--) {
        *group += stride[d];
        if (++index[d] < x->dims[d])
            return;
        *group -= stride[d] * (size_t)x->dims[d];
        index[d] = 0;
    }
}

static sb_status mvn_forward(sb_kernel *k)
{
    const sb_tensor *t = k->in[0];
    const float *x = t->data;
    float *y = k->out[0]->data;
    mvn_group *g = k->scratch;
    size_t stride[SB_MAX_RANK], n = (size_t)sb_tensor_count(t), at = 0;
    size_t groups = mvn_strides(k, stride);
    double each = (double)n / (double)(groups ? groups : 1);
    int64_t index[SB_MAX_RANK] = {0};

    if (n == 0)
        return SB_OK;
    memset(g, 0, groups * sizeof *g);
    for (size_t i = 0; i < n; i++, mvn_next(t, stride, index, &at))
        g[at].mean += (double)x[i];
    for (size_t i = 0; i < groups; i++)
        g[i].mean /= each;
    for (size_t i = 0; i < n; i++, mvn_next(t, stride, index, &at)) {
        double d = (double)x[i] - g[at].mean;
        g[at].scale += d * d;
    }
    for (size_t i = 0; i < groups; i++)
        g[i].scale = 1 / (sqrt(g[i].scale / each) + 1e-9);
    for (size_t i = 0; i < n; i++, mvn_next(t, stride, index, &at))
        y[i] = (float)(((double)x[i] - g[at].mean) * g[at].scale);
    return SB_OK;
}

const sb_op_def sb_op_mean_variance_normalization = {
    .name = "MeanVarianceNormalization",
    .since = 9,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(mvn_attrs),
    .attrs = attrs,
    .batch = sb_batch_normalize_axes,
    .infer = mvn_infer,
    .prepare = mvn_prepare,
    .forward = mvn_forward,
    .grad = sb_grad_mean_variance,
    .tie = sb_tie_mean_variance,
};
