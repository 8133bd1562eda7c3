/* GlobalAveragePool, GlobalMaxPool, GlobalLpPool: one number for each plane. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/pool/pool.h"
#include "ops/tie/tie_rules.h"

#include <math.h>

#include "base/threads.h"

typedef struct {
    int64_t p;
} global_lp_attrs;

static const sb_attr_def lp_attrs[] = {
    {"p", SB_ATTR_INT, offsetof(global_lp_attrs, p), .i = 2},
    {0},
};

static sb_status global_infer(sb_infer *in)
{
    sb_shape shape = in->in[0]->type.shape;

    if (shape.rank >= 0 && shape.rank < 2)
        return sb_infer_fail(in, "input of rank %d, want at least 2",
                             shape.rank);
    for (int i = 2; i < shape.rank; i++)
        shape.dim[i] = 1;
    sb_infer_set(in, 0, in->in[0]->type.dtype, &shape);
    return SB_OK;
}

static float plane_mean(const float *x, int64_t n, const void *attrs)
{
    double part[4] = {0};
    int64_t i = 0;

    (void)attrs;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            part[j] += (double)x[i + j];
    for (; i < n; i++)
        part[0] += (double)x[i];
    return (float)(((part[0] + part[2]) + (part[1] + part[3])) / (double)n);
}

static float plane_max(const float *x, int64_t n, const void *attrs)
{
    float best = -INFINITY;

    (void)attrs;
    for (int64_t i = 0; i < n; i++)
        best = sb_pool_larger(x[i], best);
    return best;
}

static float plane_lp(const float *x, int64_t n, const void *attrs)
{
    const global_lp_attrs *a = attrs;
    double sum = 0, p = (double)a->p;

    for (int64_t i = 0; i < n; i++)
        sum += pow(fabs((double)x[i]), p);
    return (float)pow(sum, 1 / p);
}

/* What a row's `aux` points at. */
typedef struct global_fn {
    float (*plane)(const float *x, int64_t n, const void *attrs);
} global_fn;

static const global_fn mean_fn = {plane_mean};
static const global_fn max_fn = {plane_max};
static const global_fn lp_fn = {plane_lp};

typedef struct global_job {
    const sb_kernel *k;
    int64_t size; /* of a plane */
} global_job;

static void global_range(void *arg, size_t begin, size_t end)
{
    const global_job *job = arg;
    const global_fn *fn = job->k->op->aux;
    const float *x = job->k->in[0]->data;
    float *y = job->k->out[0]->data;

    for (size_t i = begin; i < end; i++)
        y[i] = fn->plane(x + (int64_t)i * job->size, job->size, job->k->attrs);
}

static sb_status global_prepare(sb_kernel *k)
{
    if (k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST)
        k->scratch_size = sb_global_pool_scratch(k->in[0]);
    return SB_OK;
}

static sb_status global_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    int64_t size = sb_dims_product(x->dims, 2, x->rank);
    global_job job = {k, size};

    if (x->layout == SB_LAYOUT_CHANNELS_LAST) {
        sb_global_pool_nhwc(k, k->op->aux == &mean_fn);
        return SB_OK;
    }
    sb_parallel_for(k->ctx, (size_t)(x->dims[0] * x->dims[1]),
                    (size_t)(30000 / (size + 1) + 1), global_range, &job);
    return SB_OK;
}

const sb_op_def sb_op_global_average_pool = {
    .name = "GlobalAveragePool",
    .since = 1,
    .quant = SB_ROLE_SINGLE,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_HOMOGENEOUS,
    .aux = &mean_fn,
    .batch = sb_batch_first,
    .infer = global_infer,
    .layout = sb_pool_layout,
    .prepare = global_prepare,
    .forward = global_forward,
    .grad = sb_grad_global_average,
    .tie = sb_tie_pool,
};

const sb_op_def sb_op_global_max_pool = {
    .name = "GlobalMaxPool",
    .since = 1,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_HOMOGENEOUS,
    .aux = &max_fn,
    .batch = sb_batch_first,
    .infer = global_infer,
    .layout = sb_pool_layout,
    .prepare = global_prepare,
    .forward = global_forward,
    .grad = sb_grad_global_max,
    .tie = sb_tie_pool,
};

const sb_op_def sb_op_global_lp_pool = {
    .name = "GlobalLpPool",
    .since = 2,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .attrs_size = sizeof(global_lp_attrs),
    .attrs = lp_attrs,
    .aux = &lp_fn,
    .batch = sb_batch_first,
    .infer = global_infer,
    .forward = global_forward,
    .grad = sb_grad_global_lp_pool,
    .tie = sb_tie_pool,
};
