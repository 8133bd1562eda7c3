/* LpNormalization: y = x / |x|_p along one axis, p = 1 or 2; 0 where the norm
 * is 0. */
#include <math.h>

#include "ops/batch_rules.h"
#include "ops/elementwise/elementwise.h"
#include "ops/grad/grad_rules.h"
#include "ops/reduce/axis_walk.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis, p;
} lp_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(lp_attrs, axis), .i = -1},
    {"p", SB_ATTR_INT, offsetof(lp_attrs, p), .i = 2},
    {0},
};

typedef struct lp_job {
    sb_axis_walk walk;
    const float *x;
    float *y;
    int64_t p;
} lp_job;

static void lp_items(void *arg, size_t begin, size_t end)
{
    const lp_job *job = arg;

    for (size_t item = begin; item < end; item++) {
        sb_axis_block b = sb_axis_walk_block(&job->walk, item);
        double norm[SB_AXIS_BLOCK] = {0};

        for (size_t i = 0; i < job->walk.n; i++) {
            const float *x = job->x + b.at + i * job->walk.inner;
            for (size_t j = 0; j < b.width; j++) {
                double v = (double)x[j];
                norm[j] += job->p == 1 ? fabs(v) : v * v;
            }
        }
        for (size_t j = 0; j < b.width; j++) {
            norm[j] = job->p == 1 ? norm[j] : sqrt(norm[j]);
            norm[j] = norm[j] == 0 ? 0 : 1 / norm[j];
        }
        for (size_t i = 0; i < job->walk.n; i++) {
            size_t at = b.at + i * job->walk.inner;
            for (size_t j = 0; j < b.width; j++)
                job->y[at + j] = (float)((double)job->x[at + j] * norm[j]);
        }
    }
}

static sb_status lp_infer(sb_infer *in)
{
    const lp_attrs *a = in->attrs;
    int axis, rank = in->in[0]->type.shape.rank;

    if (a->p != 1 && a->p != 2)
        return sb_infer_fail(in, "p is %lld, want 1 or 2", (long long)a->p);
    if (rank >= 0)
        SB_TRY(sb_infer_axis(in, a->axis, rank, &axis));
    return sb_infer_same(in);
}

static sb_status lp_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

static sb_status lp_forward(sb_kernel *k)
{
    const lp_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    lp_job job = {sb_axis_walk_make(x, a->axis), x->data, k->out[0]->data,
                  a->p};

    if (sb_tensor_count(x) > 0)
        sb_axis_walk_run(k->ctx, &job.walk, lp_items, &job);
    return SB_OK;
}

const sb_op_def sb_op_lp_normalization = {
    .name = "LpNormalization",
    .since = 1,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(lp_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_axis,
    .infer = lp_infer,
    .prepare = lp_prepare,
    .forward = lp_forward,
    .grad = sb_grad_lp_norm,
    .tie = sb_tie_lp_norm,
};
