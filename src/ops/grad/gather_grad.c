/* GatherGrad: dx of the given shape, zero but for the rows that were gathered,
 * each the sum of its gradients in the order of the indices.
 *
 * A thread owns rows of dx and looks for them among all indices, so that sums
 * do not depend on the number of threads. */
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/move/move_util.h"

typedef struct {
    int64_t axis;
} gather_grad_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(gather_grad_attrs, axis), .i = 0},
    {0},
};

enum { GATHER_GRAD_GRAIN = 16 * 1024 };

typedef struct {
    const sb_tensor *indices;
    const float *dy; /* [outer, n_index, run] */
    float *dx;       /* [outer, n_axis, run] */
    size_t n_index, n_axis, run;
} gather_grad_job;

static sb_status gather_grad_infer(sb_infer *in)
{
    const gather_grad_attrs *a = in->attrs;
    sb_shape shape;
    int axis;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (!sb_infer_content(in, 2, &shape))
        return SB_OK;
    SB_TRY(sb_infer_axis(in, a->axis, shape.rank, &axis));
    sb_infer_set(in, 0, in->in[0]->type.dtype, &shape);
    return SB_OK;
}

static sb_status gather_grad_prepare(sb_kernel *k)
{
    const gather_grad_attrs *a = k->attrs;
    const sb_tensor *dy = k->in[0], *idx = k->in[1], *dx = k->out[0];
    int axis = sb_axis_norm(a->axis, dx->rank), at = 0;
    bool fits = dy->rank == dx->rank - 1 + idx->rank;

    for (int i = 0; fits && i < axis; i++)
        fits = dy->dims[at++] == dx->dims[i];
    for (int i = 0; fits && i < idx->rank; i++)
        fits = dy->dims[at++] == idx->dims[i];
    for (int i = axis + 1; fits && i < dx->rank; i++)
        fits = dy->dims[at++] == dx->dims[i];
    if (!fits)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "inputs and shape do not fit together");
    if (idx->dtype != SB_DTYPE_I32 && idx->dtype != SB_DTYPE_I64)
        return sb_kernel_fail(k, SB_BAD_MODEL, "indices of type %s",
                              sb_dtype_name(idx->dtype));
    return SB_OK;
}

/* Rows [begin, end) of all [outer, n_axis]. */
static void gather_grad_rows(void *arg, size_t begin, size_t end)
{
    const gather_grad_job *job = arg;
    size_t run = job->run;

    memset(job->dx + begin * run, 0, (end - begin) * run * sizeof(float));
    for (size_t outer = begin / job->n_axis; outer * job->n_axis < end;
         outer++) {
        for (size_t i = 0; i < job->n_index; i++) {
            int64_t at = sb_index_at(job->indices, (int64_t)i);
            size_t row = outer * job->n_axis +
                         (size_t)(at < 0 ? at + (int64_t)job->n_axis : at);
            if (row < begin || row >= end)
                continue;
            const float *dy = job->dy + (outer * job->n_index + i) * run;
            float *dx = job->dx + row * run;
            SB_SIMD
            for (size_t j = 0; j < run; j++)
                dx[j] += dy[j];
        }
    }
}

static sb_status gather_grad_forward(sb_kernel *k)
{
    const gather_grad_attrs *a = k->attrs;
    const sb_tensor *dx = k->out[0];
    int axis = sb_axis_norm(a->axis, dx->rank);
    gather_grad_job job = {
        .indices = k->in[1],
        .dy = k->in[0]->data,
        .dx = dx->data,
        .n_index = (size_t)sb_tensor_count(k->in[1]),
        .n_axis = (size_t)dx->dims[axis],
        .run = (size_t)sb_dims_product(dx->dims, axis + 1, dx->rank)};
    size_t rows = (size_t)sb_dims_product(dx->dims, 0, axis + 1);

    SB_TRY(sb_index_check_all(k, k->in[1], dx->dims[axis]));
    if (sb_tensor_count(dx) > 0)
        sb_parallel_for(k->ctx, rows, GATHER_GRAD_GRAIN / job.run + 1,
                        gather_grad_rows, &job);
    return SB_OK;
}

const sb_op_def sb_op_gather_grad = {
    .name = "GatherGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 1 | 1u << 2,
    .attrs_size = sizeof(gather_grad_attrs),
    .attrs = attrs,
    .infer = gather_grad_infer,
    .prepare = gather_grad_prepare,
    .forward = gather_grad_forward,
};
