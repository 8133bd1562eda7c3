/* ScatterElements: y = x, then y[indices[i][j]][j] (op)= updates[i][j] for
 * axis 0, and so on.  Serial: where indices repeat, the last one wins. */
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/index/index_util.h"

typedef struct {
    int64_t axis;
    const char *reduction;
} scatter_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(scatter_attrs, axis), .i = 0},
    {"reduction", SB_ATTR_STRING, offsetof(scatter_attrs, reduction),
     .s = "none"},
    {0},
};

static sb_status scatter_elements_infer(sb_infer *in)
{
    const scatter_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    const sb_shape *idx = &in->in[1]->type.shape, *up = &in->in[2]->type.shape;
    int axis = 0;

    in->out[0].type = in->in[0]->type;
    if (x->rank < 0)
        return SB_OK;
    SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    if ((idx->rank >= 0 && idx->rank != x->rank) ||
        (up->rank >= 0 && up->rank != x->rank))
        return sb_infer_fail(in,
                             "indices of rank %d, updates of rank %d, want "
                             "%d",
                             idx->rank, up->rank, x->rank);
    for (int i = 0; i < x->rank && idx->rank >= 0 && up->rank >= 0; i++)
        if (sb_dim_known(idx->dim[i]) && sb_dim_known(up->dim[i]) &&
            idx->dim[i] != up->dim[i])
            return sb_infer_fail(in,
                                 "dimension %d is %lld in the indices, "
                                 "%lld in the updates",
                                 i, (long long)idx->dim[i],
                                 (long long)up->dim[i]);
    return SB_OK;
}

static sb_status scatter_elements_prepare(sb_kernel *k)
{
    const scatter_attrs *a = k->attrs;

    return sb_scatter_prepare(k, a->reduction);
}

static sb_status scatter_elements_forward(sb_kernel *k)
{
    const scatter_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    size_t elem = sb_dtype_size(x->dtype);
    const char *src = k->in[2]->data;
    char *dst = k->out[0]->data;
    sb_combine_fn fn = NULL;
    sb_index_walk w;

    SB_TRY(sb_combine_find(k, a->reduction, x->dtype, &fn));
    SB_TRY(sb_view_forward(k));
    SB_TRY(
        sb_index_walk_init(k, x, k->in[1], sb_axis_norm(a->axis, x->rank), &w));
    for (int64_t row = 0; row < w.n_rows; row++) {
        int64_t base = sb_index_walk_row(&w, row), first = row * w.n_last;
        for (int64_t j = 0; j < w.n_last; j++) {
            int64_t at = base + j * w.step + sb_index_walk_add(&w, first + j);
            const char *from = src + (size_t)(first + j) * elem;
            if (fn)
                fn(dst + (size_t)at * elem, from, 1);
            else
                memcpy(dst + (size_t)at * elem, from, elem);
        }
    }
    return SB_OK;
}

const sb_op_def sb_op_scatter_elements = {
    .name = "ScatterElements",
    .since = 18,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE,
    .attrs_size = sizeof(scatter_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_axis,
    .infer = scatter_elements_infer,
    .prepare = scatter_elements_prepare,
    .forward = scatter_elements_forward,
    .grad = sb_grad_scatter,
};
