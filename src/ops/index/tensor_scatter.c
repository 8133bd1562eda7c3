/* TensorScatter: writes `update` into a cache along one axis, each batch item
 * at its own position; "circular" goes on at the start when the end is
 * reached. */
#include <string.h>

#include "ops/move/move_util.h"

typedef struct {
    int64_t axis;
    const char *mode;
} tensor_scatter_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(tensor_scatter_attrs, axis), .i = -2},
    {"mode", SB_ATTR_STRING, offsetof(tensor_scatter_attrs, mode),
     .s = "linear"},
    {0},
};

static sb_status tensor_scatter_infer(sb_infer *in)
{
    const tensor_scatter_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape, *up = &in->in[1]->type.shape;
    const sb_fact *at = sb_infer_in(in, 2);
    int axis = 0;

    in->out[0].type = in->in[0]->type;
    if (strcmp(a->mode, "linear") != 0 && strcmp(a->mode, "circular") != 0)
        return sb_infer_fail(in, "mode '%s', want linear or circular", a->mode);
    if (x->rank < 0)
        return SB_OK;
    SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    if (axis == 0)
        return sb_infer_fail(in, "axis 0 is the batch");
    if (up->rank >= 0 && up->rank != x->rank)
        return sb_infer_fail(in, "update of rank %d, want %d", up->rank,
                             x->rank);
    for (int i = 0; i < up->rank; i++)
        if (sb_dim_known(x->dim[i]) && sb_dim_known(up->dim[i]) &&
            (i == axis ? up->dim[i] > x->dim[i] : up->dim[i] != x->dim[i]))
            return sb_infer_fail(in,
                                 "dimension %d of the update is %lld, of "
                                 "the cache %lld",
                                 i, (long long)up->dim[i],
                                 (long long)x->dim[i]);
    if (at && at->type.shape.rank >= 0 &&
        (at->type.shape.rank != 1 ||
         (sb_dim_known(at->type.shape.dim[0]) && sb_dim_known(x->dim[0]) &&
          at->type.shape.dim[0] != x->dim[0])))
        return sb_infer_fail(in, "write_indices must have one number for each "
                                 "batch item");
    return SB_OK;
}

static sb_status tensor_scatter_prepare(sb_kernel *k)
{
    if (k->in[1]->dtype != k->in[0]->dtype)
        return sb_kernel_fail(k, SB_BAD_MODEL, "update is %s, cache is %s",
                              sb_dtype_name(k->in[1]->dtype),
                              sb_dtype_name(k->in[0]->dtype));
    return sb_move_prepare(k);
}

static sb_status tensor_scatter_forward(sb_kernel *k)
{
    const tensor_scatter_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0], *up = k->in[1], *at = sb_kernel_in(k, 2);
    int axis = sb_axis_norm(a->axis, x->rank);
    bool wraps = strcmp(a->mode, "circular") == 0;
    int64_t n = x->dims[axis], len = up->dims[axis];
    int64_t outer = sb_dims_product(x->dims, 0, axis);
    size_t run = (size_t)sb_dims_product(x->dims, axis + 1, x->rank) *
                 sb_dtype_size(x->dtype);
    const char *src = up->data;
    char *dst = k->out[0]->data;

    SB_TRY(sb_view_forward(k));
    for (int64_t o = 0; o < outer && run; o++) {
        int64_t batch = o / (outer / x->dims[0]);
        int64_t start = at ? sb_index_at(at, batch) : 0;
        if (start < 0 || start > (wraps ? INT64_MAX : n) - len)
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "write index %lld, want 0 to %lld",
                                  (long long)start, (long long)(n - len));
        for (int64_t i = 0; i < len; i++)
            memcpy(dst + (size_t)(o * n + (start + i) % n) * run,
                   src + (size_t)(o * len + i) * run, run);
    }
    return SB_OK;
}

const sb_op_def sb_op_tensor_scatter = {
    .name = "TensorScatter",
    .since = 24,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE,
    .attrs_size = sizeof(tensor_scatter_attrs),
    .attrs = attrs,
    .infer = tensor_scatter_infer,
    .prepare = tensor_scatter_prepare,
    .forward = tensor_scatter_forward,
};
