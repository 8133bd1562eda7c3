/* MaxRoiPool: the maximum in each bin of a region, which is first rounded to
 * whole pixels.  A region is [batch, x0, y0, x1, y1], ends included. */
#include <math.h>

#include "base/threads.h"
#include "ops/move/move_util.h"
#include "ops/pool/pool.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    sb_ints pooled;
    float spatial_scale;
} pool_attrs;

static const sb_attr_def attrs[] = {
    {"pooled_shape", SB_ATTR_INTS, offsetof(pool_attrs, pooled),
     .required = true},
    {"spatial_scale", SB_ATTR_FLOAT, offsetof(pool_attrs, spatial_scale),
     .f = 1},
    {0},
};

static sb_status pool_infer(sb_infer *in)
{
    const pool_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *rois = &in->in[1]->type.shape;
    sb_shape out = sb_shape_of_rank(4);

    if (a->pooled.n != 2 || a->pooled.v[0] < 1 || a->pooled.v[1] < 1)
        return sb_infer_fail(in, "pooled_shape must be two positive numbers");
    if ((x->rank >= 0 && x->rank != 4) || (rois->rank >= 0 && rois->rank != 2))
        return sb_infer_fail(in, "inputs of rank %d and %d, want 4 and 2",
                             x->rank, rois->rank);
    if (rois->rank == 2 && sb_dim_known(rois->dim[1]) && rois->dim[1] != 5)
        return sb_infer_fail(in, "regions of %lld numbers, want 5",
                             (long long)rois->dim[1]);
    out.dim[0] = rois->rank == 2 ? rois->dim[0] : SB_DIM_UNKNOWN;
    out.dim[1] = x->rank == 4 ? x->dim[1] : SB_DIM_UNKNOWN;
    out.dim[2] = a->pooled.v[0];
    out.dim[3] = a->pooled.v[1];
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* Pixels [lo, hi) of a bin; numbers from nowhere end up at the border. */
static void bin_range(float start, float end, int64_t n_bin, int64_t bin,
                      int64_t n, int64_t *lo, int64_t *hi)
{
    float size = fmaxf(end - start + 1, 1) / (float)n_bin;
    float from = start + floorf((float)bin * size);
    float to = start + ceilf((float)(bin + 1) * size);

    *lo = from > 0 ? (from < (float)n ? (int64_t)from : n) : 0;
    *hi = to > 0 ? (to < (float)n ? (int64_t)to : n) : 0;
}

/* An item is one channel of one region. */
static void pool_range(void *arg, size_t begin, size_t end)
{
    const sb_kernel *k = arg;
    const pool_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int64_t n_channel = x->dims[1], h = x->dims[2], w = x->dims[3];
    int64_t ph = a->pooled.v[0], pw = a->pooled.v[1];

    for (size_t item = begin; item < end; item++) {
        int64_t c = (int64_t)item % n_channel;
        const float *roi =
            (const float *)k->in[1]->data + (int64_t)item / n_channel * 5;
        const float *map =
            (const float *)x->data + ((int64_t)roi[0] * n_channel + c) * h * w;
        float *y = (float *)k->out[0]->data + (int64_t)item * ph * pw;
        float p[4];
        for (int i = 0; i < 4; i++)
            p[i] = roundf(roi[i + 1] * a->spatial_scale);
        for (int64_t b = 0; b < ph * pw; b++) {
            int64_t y0, y1, x0, x1;
            bin_range(p[1], p[3], ph, b / pw, h, &y0, &y1);
            bin_range(p[0], p[2], pw, b % pw, w, &x0, &x1);
            float most = y1 <= y0 || x1 <= x0 ? 0 : -INFINITY;
            for (int64_t i = y0; i < y1; i++)
                for (int64_t j = x0; j < x1; j++)
                    most = sb_pool_larger(map[i * w + j], most);
            y[b] = most;
        }
    }
}

static sb_status pool_forward(sb_kernel *k)
{
    const float *rois = k->in[1]->data;
    int64_t n = k->in[1]->dims[0], n_batch = k->in[0]->dims[0];

    for (int64_t r = 0; r < n; r++)
        if (!(rois[5 * r] >= 0 && rois[5 * r] < (float)n_batch))
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "batch index %g is outside [0, %lld)",
                                  (double)rois[5 * r], (long long)n_batch);
    sb_parallel_for(k->ctx, (size_t)(n * k->in[0]->dims[1]), 16, pool_range, k);
    return SB_OK;
}

static sb_status pool_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_F32 || k->in[1]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

const sb_op_def sb_op_max_roi_pool = {
    .name = "MaxRoiPool",
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(pool_attrs),
    .attrs = attrs,
    .infer = pool_infer,
    .prepare = pool_prepare,
    .forward = pool_forward,
    .tie = sb_tie_pool,
};
