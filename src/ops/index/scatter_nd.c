/* ScatterND: y = x, then each row of indices [..., m] names a slice of y that
 * is combined with the matching slice of the updates.  Serial: where indices
 * repeat, the last one wins. */
#include <string.h>

#include "ops/grad/grad_rules.h"
#include "ops/index/index_util.h"

typedef struct {
    const char *reduction;
} scatter_nd_attrs;

static const sb_attr_def attrs[] = {
    {"reduction", SB_ATTR_STRING, offsetof(scatter_nd_attrs, reduction),
     .s = "none"},
    {0},
};

/* A small 1-d tensor of dimensions with some elements replaced. */
static void scatter_nd_content(sb_infer *in)
{
    const scatter_nd_attrs *a = in->attrs;
    sb_shape c = in->in[0]->content, up = {0};
    const sb_tensor *idx = in->in[1]->constant;

    if (in->in[0]->type.shape.rank != 1 || c.rank < 0 || !idx ||
        strcmp(a->reduction, "none") != 0 || !sb_infer_content(in, 2, &up) ||
        sb_tensor_count(idx) != up.rank)
        return;
    for (int i = 0; i < up.rank; i++) {
        int64_t at = sb_tensor_get_i64(idx, i);
        if (at < -c.rank || at >= c.rank)
            return;
        c.dim[at < 0 ? at + c.rank : at] = up.dim[i];
    }
    sb_infer_set_content(in, 0, &c);
}

static sb_status scatter_nd_infer(sb_infer *in)
{
    const sb_shape *x = &in->in[0]->type.shape;
    const sb_shape *idx = &in->in[1]->type.shape, *up = &in->in[2]->type.shape;

    in->out[0].type = in->in[0]->type;
    if (x->rank < 0 || idx->rank < 0)
        return SB_OK;
    if (idx->rank < 1)
        return sb_infer_fail(in, "indices of rank 0");
    sb_dim m = idx->dim[idx->rank - 1];
    if (!sb_dim_known(m))
        return SB_OK;
    if (m > x->rank)
        return sb_infer_fail(in, "indices of %lld numbers into rank %d",
                             (long long)m, x->rank);
    int rank = idx->rank - 1 + x->rank - (int)m;
    if (up->rank >= 0 && up->rank != rank)
        return sb_infer_fail(in, "updates of rank %d, want %d", up->rank, rank);
    for (int i = 0; i < up->rank; i++) {
        sb_dim want =
            i < idx->rank - 1 ? idx->dim[i] : x->dim[i - idx->rank + 1 + m];
        if (sb_dim_known(want) && sb_dim_known(up->dim[i]) &&
            want != up->dim[i])
            return sb_infer_fail(in,
                                 "dimension %d of the updates is %lld, want "
                                 "%lld",
                                 i, (long long)up->dim[i], (long long)want);
    }
    scatter_nd_content(in);
    return SB_OK;
}

static sb_status scatter_nd_prepare(sb_kernel *k)
{
    const scatter_nd_attrs *a = k->attrs;

    return sb_scatter_prepare(k, a->reduction);
}

static sb_status scatter_nd_forward(sb_kernel *k)
{
    const scatter_nd_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *idx = k->in[1];
    int m = (int)idx->dims[idx->rank - 1];
    size_t elem = sb_dtype_size(x->dtype);
    int64_t run = sb_dims_product(x->dims, m, x->rank);
    int64_t n = sb_dims_product(idx->dims, 0, idx->rank - 1);
    const char *src = k->in[2]->data;
    char *dst = k->out[0]->data;
    sb_combine_fn fn = NULL;

    SB_TRY(sb_combine_find(k, a->reduction, x->dtype, &fn));
    SB_TRY(sb_view_forward(k));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0;
        SB_TRY(sb_index_tuple(k, x, 0, idx, i * m, m, &at));
        const char *from = src + (size_t)(i * run) * elem;
        if (run == 0)
            continue;
        if (fn)
            fn(dst + (size_t)at * elem, from, run);
        else
            memcpy(dst + (size_t)at * elem, from, (size_t)run * elem);
    }
    return SB_OK;
}

const sb_op_def sb_op_scatter_nd = {
    .name = "ScatterND",
    .since = 18,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE,
    .attrs_size = sizeof(scatter_nd_attrs),
    .attrs = attrs,
    .infer = scatter_nd_infer,
    .prepare = scatter_nd_prepare,
    .forward = scatter_nd_forward,
    .grad = sb_grad_scatter,
};
