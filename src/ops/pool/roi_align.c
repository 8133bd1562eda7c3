/* RoiAlign: cuts regions out of feature maps, each resampled to a fixed grid
 * of bins; a bin is the mean (or maximum) of bilinear samples inside it. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "ops/move/move_util.h"
#include "ops/pool/pool.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    const char *coord, *mode;
    int64_t height, width, sampling_ratio;
    float spatial_scale;
} roi_attrs;

#define AT(field) offsetof(roi_attrs, field)
static const sb_attr_def attrs[] = {
    {"coordinate_transformation_mode", SB_ATTR_STRING, AT(coord),
     .s = "half_pixel"},
    {"mode", SB_ATTR_STRING, AT(mode), .s = "avg"},
    {"output_height", SB_ATTR_INT, AT(height), .i = 1},
    {"output_width", SB_ATTR_INT, AT(width), .i = 1},
    {"sampling_ratio", SB_ATTR_INT, AT(sampling_ratio), .i = 0},
    {"spatial_scale", SB_ATTR_FLOAT, AT(spatial_scale), .f = 1},
    {0},
};
#undef AT

/* Samples of a bin along one axis; more means a region from nowhere. */
enum { MOST_SAMPLES = 1 << 10 };

static sb_status roi_infer(sb_infer *in)
{
    const roi_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *rois = &in->in[1]->type.shape;
    const sb_shape *batch = &in->in[2]->type.shape;
    sb_shape out = sb_shape_of_rank(4);

    if (a->height < 1 || a->width < 1 || a->sampling_ratio < 0 ||
        a->sampling_ratio > MOST_SAMPLES)
        return sb_infer_fail(in, "output %lld x %lld with sampling ratio %lld",
                             (long long)a->height, (long long)a->width,
                             (long long)a->sampling_ratio);
    if (strcmp(a->mode, "avg") != 0 && strcmp(a->mode, "max") != 0)
        return sb_infer_fail(in, "mode '%s', want avg or max", a->mode);
    if (strcmp(a->coord, "half_pixel") != 0 &&
        strcmp(a->coord, "output_half_pixel") != 0)
        return sb_infer_fail(in,
                             "coordinates '%s', want half_pixel or "
                             "output_half_pixel",
                             a->coord);
    if ((x->rank >= 0 && x->rank != 4) ||
        (rois->rank >= 0 && rois->rank != 2) ||
        (batch->rank >= 0 && batch->rank != 1))
        return sb_infer_fail(in, "inputs of rank %d, %d and %d, want 4, 2, 1",
                             x->rank, rois->rank, batch->rank);
    if (rois->rank == 2 && sb_dim_known(rois->dim[1]) && rois->dim[1] != 4)
        return sb_infer_fail(in, "regions of %lld numbers, want 4",
                             (long long)rois->dim[1]);
    if (rois->rank == 2 && batch->rank == 1 && sb_dim_known(rois->dim[0]) &&
        sb_dim_known(batch->dim[0]) && rois->dim[0] != batch->dim[0])
        return sb_infer_fail(in, "%lld regions, %lld batch indices",
                             (long long)rois->dim[0], (long long)batch->dim[0]);
    out.dim[0] = rois->rank == 2 ? rois->dim[0] : SB_DIM_UNKNOWN;
    out.dim[1] = x->rank == 4 ? x->dim[1] : SB_DIM_UNKNOWN;
    out.dim[2] = a->height;
    out.dim[3] = a->width;
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

/* One axis of a region. */
typedef struct {
    float start, bin; /* in pixels */
    int samples;      /* per bin */
    int64_t n;        /* pixels of the map */
} roi_axis;

typedef struct {
    const sb_kernel *k;
    const roi_attrs *a;
    bool half_pixel, max;
} roi_job;

static roi_axis axis_of(const roi_job *job, float lo, float hi, int64_t n_bin,
                        int64_t n)
{
    float offset = job->half_pixel ? 0.5f : 0;
    float start = lo * job->a->spatial_scale - offset;
    float size = hi * job->a->spatial_scale - offset - start;

    if (!job->half_pixel && size < 1)
        size = 1;
    float samples = job->a->sampling_ratio > 0 ? (float)job->a->sampling_ratio
                                               : ceilf(size / (float)n_bin);
    return (roi_axis){.start = start,
                      .bin = size / (float)n_bin,
                      .samples = samples <= 0              ? 0
                                 : samples <= MOST_SAMPLES ? (int)samples
                                                           : -1,
                      .n = n};
}

/* Where sample s of a bin lies between two pixels. */
typedef struct {
    int64_t lo, hi;
    float w_lo, w_hi;
} roi_tap;

static bool tap_at(const roi_axis *a, int64_t bin, int s, roi_tap *tap)
{
    float x = a->start + (float)bin * a->bin +
              ((float)s + 0.5f) * a->bin / (float)a->samples;

    if (!(x >= -1 && x <= (float)a->n))
        return false;
    x = x < 0 ? 0 : x;
    tap->lo = (int64_t)x;
    if (tap->lo >= a->n - 1) {
        tap->lo = tap->hi = a->n - 1;
        x = (float)tap->lo;
    } else {
        tap->hi = tap->lo + 1;
    }
    tap->w_hi = x - (float)tap->lo;
    tap->w_lo = 1 - tap->w_hi;
    return true;
}

/* The samples of one axis of a region; those outside have weight 0. */
typedef struct {
    roi_tap tap[MOST_SAMPLES];
} roi_taps;

static void fill_taps(const roi_axis *a, int64_t bin, roi_taps *out)
{
    for (int s = 0; s < a->samples; s++)
        if (!tap_at(a, bin, s, &out->tap[s]))
            out->tap[s] = (roi_tap){0};
}

/* One bin of one channel. */
static float roi_bin(const float *map, const roi_axis *ay, const roi_axis *ax,
                     const roi_taps *ty, const roi_taps *tx, bool max)
{
    float sum = 0, most = -INFINITY;

    for (int sy = 0; sy < ay->samples; sy++) {
        const roi_tap *y = &ty->tap[sy];
        const float *lo = map + y->lo * ax->n, *hi = map + y->hi * ax->n;
        for (int sx = 0; sx < ax->samples; sx++) {
            const roi_tap *x = &tx->tap[sx];
            float a = y->w_lo * x->w_lo * lo[x->lo];
            float b = y->w_lo * x->w_hi * lo[x->hi];
            float c = y->w_hi * x->w_lo * hi[x->lo];
            float d = y->w_hi * x->w_hi * hi[x->hi];
            sum += a + b + c + d;
            if (max)
                most =
                    sb_pool_larger(sb_pool_larger(a, b),
                                   sb_pool_larger(sb_pool_larger(c, d), most));
        }
    }
    int64_t count = (int64_t)ay->samples * ax->samples;
    if (max)
        return count ? most : 0;
    return sum / (float)(count > 0 ? count : 1);
}

/* An item is one row of bins of one region, all channels: so the places of the
 * samples are computed once. */
static void roi_range(void *arg, size_t begin, size_t end)
{
    const roi_job *job = arg;
    const sb_tensor *x = job->k->in[0];
    int64_t n_channel = x->dims[1], h = x->dims[2], w = x->dims[3];
    int64_t ph = job->a->height, pw = job->a->width;

    for (size_t item = begin; item < end; item++) {
        int64_t r = (int64_t)item / ph, by = (int64_t)item % ph;
        const float *roi = (const float *)job->k->in[1]->data + 4 * r;
        roi_axis ay = axis_of(job, roi[1], roi[3], ph, h);
        roi_axis ax = axis_of(job, roi[0], roi[2], pw, w);
        const float *maps = (const float *)x->data +
                            sb_index_at(job->k->in[2], r) * n_channel * h * w;
        float *y =
            (float *)job->k->out[0]->data + (r * n_channel * ph + by) * pw;
        roi_taps ty, tx;
        fill_taps(&ay, by, &ty);
        for (int64_t bx = 0; bx < pw; bx++) {
            fill_taps(&ax, bx, &tx);
            for (int64_t c = 0; c < n_channel; c++)
                y[c * ph * pw + bx] =
                    roi_bin(maps + c * h * w, &ay, &ax, &ty, &tx, job->max);
        }
    }
}

static sb_status roi_forward(sb_kernel *k)
{
    const roi_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    const float *roi = k->in[1]->data;
    int64_t n = k->in[1]->dims[0];
    roi_job job = {.k = k,
                   .a = a,
                   .half_pixel = strcmp(a->coord, "half_pixel") == 0,
                   .max = strcmp(a->mode, "max") == 0};

    if (sb_tensor_count(k->out[0]) == 0)
        return SB_OK;
    if (x->dims[2] == 0 || x->dims[3] == 0)
        return sb_kernel_fail(k, SB_BAD_DATA, "the feature map is empty");
    for (int64_t r = 0; r < n; r++) {
        int64_t batch = sb_index_at(k->in[2], r);
        if (batch < 0 || batch >= x->dims[0])
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "batch index %lld is outside [0, %lld)",
                                  (long long)batch, (long long)x->dims[0]);
        const float *p = roi + 4 * r;
        if (axis_of(&job, p[1], p[3], a->height, 1).samples < 0 ||
            axis_of(&job, p[0], p[2], a->width, 1).samples < 0)
            return sb_kernel_fail(k, SB_BAD_DATA, "region %lld is too large",
                                  (long long)r);
    }
    sb_parallel_for(k->ctx, (size_t)(n * a->height), 4, roi_range, &job);
    return SB_OK;
}

static sb_status roi_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_F32 || k->in[1]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

const sb_op_def sb_op_roi_align = {
    .name = "RoiAlign",
    .since = 16,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 2,
    .attrs_size = sizeof(roi_attrs),
    .attrs = attrs,
    .infer = roi_infer,
    .prepare = roi_prepare,
    .forward = roi_forward,
    .tie = sb_tie_pool,
};
