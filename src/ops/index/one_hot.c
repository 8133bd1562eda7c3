/* OneHot: a new axis of size `depth` that holds `on` where its position is the
 * index and `off` elsewhere; indices outside [-depth, depth) are all off. */
#include <string.h>

#include "ops/move/move_util.h"

typedef struct {
    int64_t axis;
} one_hot_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(one_hot_attrs, axis), .i = -1},
    {0},
};

/* Depth may be of any numeric type. */
static sb_status one_hot_depth(const sb_infer *in, sb_dim *depth)
{
    const sb_fact *f = in->in[1];
    sb_shape c = {0};

    *depth = SB_DIM_UNKNOWN;
    if (f->constant && sb_tensor_count(f->constant) == 1 &&
        sb_dtype_get(f->constant->dtype)->cls != SB_CLASS_OTHER) {
        double d = sb_tensor_get_f64(f->constant, 0);
        if (!(d >= 0 && d < 1e15))
            return sb_infer_fail(in, "depth %g", d);
        *depth = (int64_t)d;
    } else if (f->content.rank == 1 && sb_fact_content(f, &c)) {
        *depth = c.dim[0];
        if (sb_dim_known(*depth) && *depth < 0)
            return sb_infer_fail(in, "depth %lld", (long long)*depth);
    }
    return SB_OK;
}

static sb_status one_hot_infer(sb_infer *in)
{
    const one_hot_attrs *a = in->attrs;
    const sb_shape *idx = &in->in[0]->type.shape;
    sb_dim depth = SB_DIM_UNKNOWN;
    int axis = 0;

    in->out[0].type.dtype = in->in[2]->type.dtype;
    if (idx->rank < 0)
        return SB_OK;
    if (idx->rank == SB_MAX_RANK)
        return sb_infer_fail(in, "rank %d, want at most %d", idx->rank + 1,
                             SB_MAX_RANK);
    SB_TRY(sb_infer_axis(in, a->axis, idx->rank + 1, &axis));
    SB_TRY(one_hot_depth(in, &depth));
    sb_shape out = {.rank = idx->rank + 1};
    for (int i = 0, from = 0; i < out.rank; i++)
        out.dim[i] = i == axis ? depth : idx->dim[from++];
    sb_infer_set(in, 0, in->in[2]->type.dtype, &out);
    return SB_OK;
}

static sb_status one_hot_prepare(sb_kernel *k)
{
    if (sb_dtype_size(k->in[2]->dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "values of type %s",
                              sb_dtype_name(k->in[2]->dtype));
    if (sb_tensor_count(k->in[2]) != 2)
        return sb_kernel_fail(k, SB_BAD_MODEL, "%lld values, want off and on",
                              (long long)sb_tensor_count(k->in[2]));
    return SB_OK;
}

static sb_status one_hot_forward(sb_kernel *k)
{
    const one_hot_attrs *a = k->attrs;
    const sb_tensor *idx = k->in[0];
    sb_tensor *y = k->out[0];
    size_t elem = sb_dtype_size(y->dtype);
    const char *values = k->in[2]->data;
    int axis = sb_axis_norm(a->axis, y->rank);
    int64_t depth = y->dims[axis], n = sb_tensor_count(idx);
    int64_t inner = sb_dims_product(y->dims, axis + 1, y->rank);

    sb_fill(y->data, elem, values, sb_tensor_count(y));
    for (int64_t i = 0; i < n; i++) {
        double v = sb_tensor_get_f64(idx, i);
        v = v < 0 ? v + (double)depth : v;
        if (!(v >= 0 && v < (double)depth))
            continue;
        int64_t at = (i / inner * depth + (int64_t)v) * inner + i % inner;
        memcpy((char *)y->data + (size_t)at * elem, values + elem, elem);
    }
    return SB_OK;
}

const sb_op_def sb_op_one_hot = {
    .name = "OneHot",
    .since = 11,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(one_hot_attrs),
    .attrs = attrs,
    .infer = one_hot_infer,
    .prepare = one_hot_prepare,
    .forward = one_hot_forward,
};
