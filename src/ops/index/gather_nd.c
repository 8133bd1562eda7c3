/* GatherND: each row of indices [..., m] names a slice of the data; the first
 * batch_dims dimensions of both go together. */
#include <string.h>

#include "ops/grad/grad_rules.h"
#include "ops/index/index_util.h"

typedef struct {
    int64_t batch_dims;
} gather_nd_attrs;

static const sb_attr_def attrs[] = {
    {"batch_dims", SB_ATTR_INT, offsetof(gather_nd_attrs, batch_dims), .i = 0},
    {0},
};

static sb_status gather_nd_infer(sb_infer *in)
{
    const gather_nd_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *idx = &in->in[1]->type.shape;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (x->rank < 0 || idx->rank < 0)
        return SB_OK;
    if (idx->rank < 1 || x->rank < 1 || a->batch_dims < 0 ||
        a->batch_dims >= idx->rank || a->batch_dims >= x->rank)
        return sb_infer_fail(in, "batch_dims %lld for ranks %d and %d",
                             (long long)a->batch_dims, x->rank, idx->rank);
    sb_dim m = idx->dim[idx->rank - 1];
    if (!sb_dim_known(m))
        return SB_OK;
    int64_t first = a->batch_dims + m;
    if (m < 0 || first > x->rank)
        return sb_infer_fail(in, "indices of %lld numbers into rank %d",
                             (long long)m, x->rank);
    int rank = idx->rank - 1 + x->rank - (int)first;
    if (rank > SB_MAX_RANK)
        return sb_infer_fail(in, "rank %d, want at most %d", rank, SB_MAX_RANK);
    for (int i = 0; i < a->batch_dims; i++)
        if (sb_dim_known(x->dim[i]) && sb_dim_known(idx->dim[i]) &&
            x->dim[i] != idx->dim[i])
            return sb_infer_fail(in, "batch dimension %d is %lld and %lld", i,
                                 (long long)x->dim[i], (long long)idx->dim[i]);
    sb_shape out = {.rank = 0};
    for (int i = 0; i < idx->rank - 1; i++)
        out.dim[out.rank++] = idx->dim[i];
    for (int64_t i = first; i < x->rank; i++)
        out.dim[out.rank++] = x->dim[i];
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

static sb_status gather_nd_forward(sb_kernel *k)
{
    const gather_nd_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *idx = k->in[1];
    int b = (int)a->batch_dims, m = (int)idx->dims[idx->rank - 1];
    size_t elem = sb_dtype_size(x->dtype);
    size_t run = (size_t)sb_dims_product(x->dims, b + m, x->rank) * elem;
    int64_t n_batch = sb_dims_product(x->dims, 0, b);
    int64_t slab = sb_dims_product(x->dims, b, x->rank);
    int64_t per = sb_dims_product(idx->dims, b, idx->rank - 1);
    char *dst = k->out[0]->data;

    for (int64_t i = 0; i < n_batch * per; i++) {
        int64_t at = 0;
        SB_TRY(sb_index_tuple(k, x, b, idx, i * m, m, &at));
        if (run)
            memcpy(dst + (size_t)i * run,
                   (const char *)x->data + (size_t)(i / per * slab + at) * elem,
                   run);
    }
    return SB_OK;
}

const sb_op_def sb_op_gather_nd = {
    .name = "GatherND",
    .since = 12,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_PICKS,
    .attrs_size = sizeof(gather_nd_attrs),
    .attrs = attrs,
    .infer = gather_nd_infer,
    .prepare = sb_move_prepare,
    .forward = gather_nd_forward,
    .grad = sb_grad_gather_nd,
};
