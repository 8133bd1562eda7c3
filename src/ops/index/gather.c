/* Gather: y[..., i..., ...] = x[..., indices[i...], ...] along one axis. */
#include <string.h>

#include "base/threads.h"
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis;
} gather_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(gather_attrs, axis), .i = 0},
    {0},
};

/* Picks elements of a small 1-d tensor that computes a shape. */
static void gather_content(sb_infer *in)
{
    sb_shape idx = {0}, out = {.rank = 0};
    const sb_shape *c = &in->in[0]->content;

    if (in->in[0]->type.shape.rank != 1 || c->rank < 0 ||
        in->in[1]->type.shape.rank > 1 || !sb_infer_content(in, 1, &idx))
        return;
    out.rank = idx.rank;
    for (int i = 0; i < idx.rank; i++) {
        sb_dim at = idx.dim[i];
        bool inside = sb_dim_known(at) && at >= -c->rank && at < c->rank;
        out.dim[i] =
            inside ? c->dim[at < 0 ? at + c->rank : at] : SB_DIM_UNKNOWN;
    }
    sb_infer_set_content(in, 0, &out);
}

static sb_status gather_infer(sb_infer *in)
{
    const gather_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *idx = &in->in[1]->type.shape;
    int axis = 0;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (x->rank < 0)
        return SB_OK;
    SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    if (idx->rank < 0)
        return SB_OK;
    if (x->rank + idx->rank - 1 > SB_MAX_RANK)
        return sb_infer_fail(in, "rank %d, want at most %d",
                             x->rank + idx->rank - 1, SB_MAX_RANK);
    sb_shape out = {.rank = 0};
    for (int i = 0; i < axis; i++)
        out.dim[out.rank++] = x->dim[i];
    for (int i = 0; i < idx->rank; i++)
        out.dim[out.rank++] = idx->dim[i];
    for (int i = axis + 1; i < x->rank; i++)
        out.dim[out.rank++] = x->dim[i];
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    gather_content(in);
    return SB_OK;
}

typedef struct {
    const sb_tensor *indices;
    const char *src;
    char *dst;
    int64_t n_index, n_axis;
    size_t run; /* bytes that one index copies */
} gather_job;

static void gather_range(void *arg, size_t begin, size_t end)
{
    const gather_job *job = arg;
    size_t n = (size_t)job->n_index, slab = (size_t)job->n_axis * job->run;
    size_t outer = begin / n, i = begin % n;

    for (size_t item = begin; item < end; item++, i++) {
        if (i == n) {
            i = 0;
            outer++;
        }
        int64_t at = sb_index_at(job->indices, (int64_t)i);
        at = at < 0 ? at + job->n_axis : at;
        const char *from = job->src + outer * slab + (size_t)at * job->run;
        char *to = job->dst + item * job->run;
        if (job->run == 4)
            memcpy(to, from, 4);
        else if (job->run == 8)
            memcpy(to, from, 8);
        else
            memcpy(to, from, job->run);
    }
}

static sb_status gather_forward(sb_kernel *k)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor lies = sb_tensor_as_lies(k->in[0]), *x = &lies;
    const sb_tensor *idx = k->in[1];
    int axis = sb_tensor_place(k->in[0], sb_axis_norm(a->axis, x->rank));
    int64_t outer = sb_dims_product(x->dims, 0, axis);
    int64_t inner = sb_dims_product(x->dims, axis + 1, x->rank);
    gather_job job = {.indices = idx,
                      .src = x->data,
                      .dst = k->out[0]->data,
                      .n_index = sb_tensor_count(idx),
                      .n_axis = x->dims[axis],
                      .run = (size_t)inner * sb_dtype_size(x->dtype)};

    SB_TRY(sb_index_check_all(k, idx, job.n_axis));
    if (sb_tensor_count(k->out[0]))
        sb_parallel_for(k->ctx, (size_t)(outer * job.n_index),
                        (1u << 16) / job.run + 1, gather_range, &job);
    return SB_OK;
}

/* As many dimensions as before keep their order; one fewer keep it too unless
 * it was the channels that went. */
static void gather_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const gather_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int rank = k->in[1]->rank, axis = sb_axis_norm(a->axis, x->rank);

    if (rank > 1 || (rank == 0 && axis == 0))
        return;
    sb_move_layout(k, in, out);
    if (rank == 0 && (axis == 1 || x->rank < 4))
        out[0] = SB_LAYOUT_PLAIN;
}

const sb_op_def sb_op_gather = {
    .name = "Gather",
    .since = 1,
    .quant = SB_ROLE_TABLE,
    .parameters = 1u << 0,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_PICKS,
    .attrs_size = sizeof(gather_attrs),
    .attrs = attrs,
    .batch = sb_batch_gather,
    .infer = gather_infer,
    .layout = gather_layout,
    .prepare = sb_move_prepare,
    .forward = gather_forward,
    .grad = sb_grad_gather,
    .tie = sb_tie_gather,
    .recut = sb_recut_gather,
};
