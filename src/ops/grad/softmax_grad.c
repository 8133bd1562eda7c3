/* SoftmaxGrad: the gradient along one axis from the result y alone,
 *
 *     Softmax     dx = y (dy - sum(dy y))
 *     LogSoftmax  dx = dy - exp(y) sum(dy)      (log = 1)
 *
 * in columns that are contiguous in memory, or along contiguous rows. */
#include <string.h>

#include "base/simd.h"
#include "dnn/vec_math.h"
#include "ops/elementwise/elementwise.h"
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/reduce/axis_walk.h"

typedef struct {
    int64_t axis, log;
} softmax_grad_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(softmax_grad_attrs, axis), .i = -1},
    {"log", SB_ATTR_INT, offsetof(softmax_grad_attrs, log), .i = 0},
    {0},
};

sb_status sb_grad_softmax(sb_grad *g)
{
    const sb_attr list[] = {
        SB_EMIT_INT("axis", sb_node_int(g->node, "axis", -1)),
        SB_EMIT_INT("log", sb_node_is(g->node, "LogSoftmax"))};

    g->dx[0] = sb_emit(g, &(sb_emit_spec){.op = "SoftmaxGrad",
                                          .in = {g->dy[0], g->node->outputs[0]},
                                          .n_in = 2,
                                          .attrs = list,
                                          .n_attrs = 2});
    return SB_OK;
}

/* ---- kernel ------------------------------------------------------------- */

typedef struct softmax_grad_job {
    sb_axis_walk walk;
    const float *dy, *y;
    float *dx;
    bool log;
} softmax_grad_job;

/* sum[j] over the axis, of dy y or of dy alone. */
SB_HOT static void softmax_grad_sums(const softmax_grad_job *job, size_t at,
                                     size_t width, float *sum)
{
    memset(sum, 0, width * sizeof *sum);
    for (size_t i = 0; i < job->walk.n; i++, at += job->walk.inner) {
        const float *dy = job->dy + at, *y = job->y + at;
        if (job->log) {
            SB_SIMD
            for (size_t j = 0; j < width; j++)
                sum[j] += dy[j];
        } else {
            SB_SIMD
            for (size_t j = 0; j < width; j++)
                sum[j] += dy[j] * y[j];
        }
    }
}

SB_HOT static void softmax_grad_finish(const softmax_grad_job *job, size_t at,
                                       size_t n, const float *sum, size_t step)
{
    const float *dy = job->dy + at, *y = job->y + at;
    float *dx = job->dx + at;

    if (job->log) {
        SB_SIMD
        for (size_t j = 0; j < n; j++)
            dx[j] = dy[j] - sb_vec_expf(y[j]) * sum[j * step];
    } else {
        SB_SIMD
        for (size_t j = 0; j < n; j++)
            dx[j] = y[j] * (dy[j] - sum[j * step]);
    }
}

/* A row is summed as columns of LANES, so that its sum is one of vectors. */
enum { SOFTMAX_GRAD_LANES = 8 };

SB_HOT static float softmax_grad_row_sum(const softmax_grad_job *job, size_t at)
{
    const float *dy = job->dy + at, *y = job->y + at;
    float lane[SOFTMAX_GRAD_LANES] = {0}, sum = 0;
    size_t i = 0, n = job->walk.n;

    for (; i + SOFTMAX_GRAD_LANES <= n; i += SOFTMAX_GRAD_LANES) {
        SB_SIMD
        for (size_t l = 0; l < SOFTMAX_GRAD_LANES; l++)
            lane[l] += job->log ? dy[i + l] : dy[i + l] * y[i + l];
    }
    for (; i < n; i++)
        sum += job->log ? dy[i] : dy[i] * y[i];
    for (size_t l = 0; l < SOFTMAX_GRAD_LANES; l++)
        sum += lane[l];
    return sum;
}

static void softmax_grad_items(void *arg, size_t begin, size_t end)
{
    const softmax_grad_job *job = arg;
    float sum[SB_AXIS_BLOCK];

    for (size_t item = begin; item < end; item++) {
        sb_axis_block b = sb_axis_walk_block(&job->walk, item);

        if (job->walk.inner == 1) {
            sum[0] = softmax_grad_row_sum(job, b.at);
            softmax_grad_finish(job, b.at, job->walk.n, sum, 0);
            continue;
        }
        softmax_grad_sums(job, b.at, b.width, sum);
        for (size_t i = 0; i < job->walk.n; i++)
            softmax_grad_finish(job, b.at + i * job->walk.inner, b.width, sum,
                                1);
    }
}

static sb_status softmax_grad_infer(sb_infer *in)
{
    const softmax_grad_attrs *a = in->attrs;
    int rank = in->in[0]->type.shape.rank, axis = 0;

    if (rank > 0)
        SB_TRY(sb_infer_axis(in, a->axis, rank, &axis));
    return sb_infer_same(in);
}

static sb_status softmax_grad_prepare(sb_kernel *k)
{
    if (sb_tensor_count(k->in[0]) != sb_tensor_count(k->in[1]))
        return sb_kernel_fail(k, SB_BAD_MODEL, "inputs differ in shape");
    return SB_OK;
}

static void softmax_grad_layout(const sb_kernel *k, sb_layout *in,
                                sb_layout *out)
{
    in[0] = in[1] = out[0] = k->in[1]->layout;
}

static sb_status softmax_grad_forward(sb_kernel *k)
{
    const softmax_grad_attrs *a = k->attrs;
    softmax_grad_job job = {.walk = sb_axis_walk_make(k->in[1], a->axis),
                            .dy = k->in[0]->data,
                            .y = k->in[1]->data,
                            .dx = k->out[0]->data,
                            .log = a->log != 0};

    if (sb_tensor_count(k->in[0]) > 0)
        sb_axis_walk_run(k->ctx, &job.walk, softmax_grad_items, &job);
    return SB_OK;
}

const sb_op_def sb_op_softmax_grad = {
    .name = "SoftmaxGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(softmax_grad_attrs),
    .attrs = attrs,
    .infer = softmax_grad_infer,
    .layout = softmax_grad_layout,
    .prepare = softmax_grad_prepare,
    .forward = softmax_grad_forward,
};
