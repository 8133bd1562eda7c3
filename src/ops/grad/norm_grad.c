/* NormGrad: gradients of LayerNormalization and (rms = 1) RMSNormalization.
 *
 *     g = dy scale,  z = (x - mean) / sigma
 *     dx = (g - average(g) - z average(g z)) / sigma,  dscale = sum(dy z)
 *
 * without the first average for RMS.  Mean and sigma of a row are computed
 * again: the row is in the cache anyway, and nothing has to be kept.  Scales
 * are summed in SB_REDUCE_PARTS parts of the rows, whatever the threads. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/infer_util.h"
#include "ops/norm/norm_util.h"

typedef struct {
    int64_t axis, rms;
    float epsilon;
} norm_grad_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(norm_grad_attrs, axis), .i = -1},
    {"epsilon", SB_ATTR_FLOAT, offsetof(norm_grad_attrs, epsilon), .f = 1e-5f},
    {"rms", SB_ATTR_INT, offsetof(norm_grad_attrs, rms), .i = 0},
    {0},
};

/* ---- the rule ----------------------------------------------------------- */

/* May `scale` have just the dimensions of x from `axis` on? */
static bool norm_grad_plain(const sb_shape *x, const sb_shape *scale,
                            int64_t axis)
{
    int first = (int)(axis < 0 ? axis + x->rank : axis);
    bool plain = x->rank >= 0 && scale->rank == x->rank - first;

    for (int i = 0; plain && i < scale->rank; i++)
        plain = !sb_dim_known(scale->dim[i]) ||
                !sb_dim_known(x->dim[first + i]) ||
                scale->dim[i] == x->dim[first + i];
    return plain;
}

sb_status sb_grad_layer_norm(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), scale = sb_grad_in(g, 1), out[2];
    int64_t axis = sb_node_int(g->node, "axis", -1);
    const sb_attr list[] = {
        SB_EMIT_INT("axis", axis),
        SB_EMIT_INT("rms", !sb_node_is(g->node, "LayerNormalization")),
        SB_EMIT_FLOAT("epsilon", sb_node_float(g->node, "epsilon", 1e-5f))};

    if (!norm_grad_plain(&sb_grad_type(g, x)->shape,
                         &sb_grad_type(g, scale)->shape, axis))
        return sb_grad_refuse(g, "the scale has other dimensions");
    for (uint32_t i = 1; i < g->node->n_out; i++)
        if (g->dy[i] != SB_NONE)
            return sb_grad_refuse(g, "output %u", i);
    if (g->wanted[0] || g->wanted[1])
        sb_emit(g, &(sb_emit_spec){.op = "NormGrad",
                                   .in = {g->dy[0], x, scale},
                                   .n_in = 3,
                                   .attrs = list,
                                   .n_attrs = 3,
                                   .n_out = g->wanted[1] ? 2 : 1,
                                   .more_out = out});
    if (g->status != SB_OK)
        return SB_OK;
    if (g->wanted[0])
        g->dx[0] = out[0];
    if (g->wanted[1])
        g->dx[1] = out[1];
    if (sb_grad_wants(g, 2))
        g->dx[2] = sb_grad_sum_to(g, g->dy[0], sb_grad_in(g, 2));
    return SB_OK;
}

/* ---- kernel ------------------------------------------------------------- */

enum { LANES = 16 };

typedef struct {
    size_t rows, size;
    bool rms;
    float epsilon;
    const float *dy, *x, *scale;
    float *dx, *parts; /* parts: [SB_REDUCE_PARTS, size]; NULL: not wanted */
} norm_grad_job;

static sb_status norm_grad_infer(sb_infer *in)
{
    const norm_grad_attrs *a = in->attrs;
    const sb_shape *x = &in->in[1]->type.shape;
    int axis;

    if (x->rank >= 0)
        SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    sb_infer_set(in, 0, in->in[1]->type.dtype, x);
    sb_infer_set(in, 1, in->in[2]->type.dtype, &in->in[2]->type.shape);
    return SB_OK;
}

static size_t norm_grad_size(const sb_kernel *k)
{
    const norm_grad_attrs *a = k->attrs;
    const sb_tensor *x = k->in[1];
    int axis = (int)(a->axis < 0 ? a->axis + x->rank : a->axis);

    return (size_t)sb_dims_product(x->dims, axis, x->rank);
}

static sb_status norm_grad_prepare(sb_kernel *k)
{
    size_t size = norm_grad_size(k);

    if (sb_tensor_count(k->in[0]) != sb_tensor_count(k->in[1]) ||
        (size_t)sb_tensor_count(k->in[2]) != size)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "inputs do not fit together: want dy like x, and "
                              "a scale for each of %zu elements",
                              size);
    if (sb_kernel_out(k, 1))
        k->scratch_size = SB_REDUCE_PARTS * size * sizeof(float);
    return SB_OK;
}

/* Mean and 1 / sigma of a row. */
static void norm_grad_moments(const norm_grad_job *job, const float *x,
                              float *mean, float *inverse)
{
    sb_moments m = sb_moments_of(x, (int64_t)job->size);

    if (job->rms)
        m = (sb_moments){.mean = 0, .var = m.var + m.mean * m.mean};
    *mean = (float)m.mean;
    *inverse = (float)(1.0 / sqrt(m.var + (double)job->epsilon));
}

/* The sums of dy scale and of dy scale z, in parts that may lie in a vector. */
SB_HOT static void norm_grad_sums(const norm_grad_job *job, const float *dy,
                                  const float *x, float mean, float inverse,
                                  double *sum, double *sum_z)
{
    double part[LANES] = {0}, part_z[LANES] = {0};
    size_t n = job->size, whole = n - n % LANES;

    for (size_t i = 0; i < whole; i += LANES) {
        SB_SIMD
        for (size_t j = 0; j < LANES; j++) {
            float g = dy[i + j] * job->scale[i + j];
            part[j] += (double)g;
            part_z[j] += (double)(g * ((x[i + j] - mean) * inverse));
        }
    }
    for (size_t i = whole; i < n; i++) {
        float g = dy[i] * job->scale[i];
        part[i - whole] += (double)g;
        part_z[i - whole] += (double)(g * ((x[i] - mean) * inverse));
    }
    *sum = *sum_z = 0;
    for (size_t j = 0; j < LANES; j++) {
        *sum += part[j];
        *sum_z += part_z[j];
    }
}

SB_HOT static void norm_grad_row(const norm_grad_job *job, size_t row,
                                 float *dscale)
{
    const float *dy = job->dy + row * job->size, *x = job->x + row * job->size;
    float *dx = job->dx + row * job->size;
    size_t n = job->size;
    float mean, inverse;
    double sum, sum_z;

    norm_grad_moments(job, x, &mean, &inverse);
    norm_grad_sums(job, dy, x, mean, inverse, &sum, &sum_z);
    const float average = job->rms ? 0 : (float)(sum / (double)n);
    const float average_z = (float)(sum_z / (double)n);
    if (dscale) {
        SB_SIMD
        for (size_t i = 0; i < n; i++)
            dscale[i] += dy[i] * ((x[i] - mean) * inverse);
    }
    SB_SIMD
    for (size_t i = 0; i < n; i++)
        dx[i] = inverse * (dy[i] * job->scale[i] - average -
                           (x[i] - mean) * inverse * average_z);
}

/* Parts of the rows; which rows are in a part depends on their number only. */
static void norm_grad_parts(void *arg, size_t begin, size_t end)
{
    const norm_grad_job *job = arg;

    for (size_t part = begin; part < end; part++) {
        float *dscale = job->parts ? job->parts + part * job->size : NULL;
        size_t first = part * job->rows / SB_REDUCE_PARTS;
        size_t last = (part + 1) * job->rows / SB_REDUCE_PARTS;

        if (dscale)
            memset(dscale, 0, job->size * sizeof *dscale);
        for (size_t row = first; row < last; row++)
            norm_grad_row(job, row, dscale);
    }
}

static sb_status norm_grad_forward(sb_kernel *k)
{
    const norm_grad_attrs *a = k->attrs;
    sb_tensor *dscale = sb_kernel_out(k, 1);
    size_t size = norm_grad_size(k);
    norm_grad_job job = {.size = size,
                         .rows = size ? (size_t)sb_tensor_count(k->in[1]) / size
                                      : 0,
                         .rms = a->rms != 0,
                         .epsilon = a->epsilon,
                         .dy = k->in[0]->data,
                         .x = k->in[1]->data,
                         .scale = k->in[2]->data,
                         .dx = k->out[0]->data,
                         .parts = dscale ? k->scratch : NULL};

    sb_parallel_for(k->ctx, SB_REDUCE_PARTS, 1, norm_grad_parts, &job);
    for (size_t i = 0; dscale && i < size; i++) {
        double sum = 0;
        for (size_t part = 0; part < SB_REDUCE_PARTS; part++)
            sum += (double)job.parts[part * size + i];
        ((float *)dscale->data)[i] = (float)sum;
    }
    return SB_OK;
}

const sb_op_def sb_op_norm_grad = {
    .name = "NormGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(norm_grad_attrs),
    .attrs = attrs,
    .infer = norm_grad_infer,
    .prepare = norm_grad_prepare,
    .forward = norm_grad_forward,
};
