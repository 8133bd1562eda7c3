/* Compress: keeps the slices along an axis (or the elements, without one)
 * whose condition is true; a short condition ends with false. */
#include <string.h>

#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"

typedef struct {
    int64_t axis;
} compress_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(compress_attrs, axis), .i = INT64_MIN},
    {0},
};

static sb_status compress_infer(sb_infer *in)
{
    const compress_attrs *a = in->attrs;
    sb_shape out = in->in[0]->type.shape;
    const sb_fact *cond = in->in[1];
    int axis = 0;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (cond->type.shape.rank >= 0 && cond->type.shape.rank != 1)
        return sb_infer_fail(in, "condition of rank %d, want 1",
                             cond->type.shape.rank);
    if (a->axis == INT64_MIN)
        out = sb_shape_of_rank(1);
    else if (out.rank >= 0)
        SB_TRY(sb_infer_axis(in, a->axis, out.rank, &axis));
    if (out.rank >= 0)
        out.dim[axis] = SB_DIM_UNKNOWN;
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

static sb_status compress_prepare(sb_kernel *k)
{
    if (k->in[1]->dtype != SB_DTYPE_BOOL)
        return sb_kernel_fail(k, SB_BAD_MODEL, "condition is %s, want bool",
                              sb_dtype_name(k->in[1]->dtype));
    return sb_move_prepare(k);
}

static sb_status compress_forward(sb_kernel *k)
{
    const compress_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    const uint8_t *cond = k->in[1]->data;
    bool flat = a->axis == INT64_MIN;
    int axis = flat ? 0 : sb_axis_norm(a->axis, x->rank);
    int64_t n = flat ? sb_tensor_count(x) : x->dims[axis];
    int64_t outer = flat ? 1 : sb_dims_product(x->dims, 0, axis);
    size_t run = sb_dtype_size(x->dtype);
    int64_t n_cond = sb_tensor_count(k->in[1]), kept = 0;
    int64_t dims[SB_MAX_RANK];

    n_cond = n_cond < n ? n_cond : n;
    for (int64_t i = 0; i < n_cond; i++)
        kept += cond[i] != 0;
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = kept;
    SB_TRY(k->host->resize_out(k, 0, x->dtype, flat ? 1 : x->rank, dims));
    if (!flat)
        run *= (size_t)sb_dims_product(x->dims, axis + 1, x->rank);
    if (run == 0)
        return SB_OK;
    char *dst = k->out[0]->data;
    for (int64_t o = 0; o < outer; o++) {
        const char *src = (const char *)x->data + (size_t)(o * n) * run;
        for (int64_t i = 0; i < n_cond; i++) {
            if (!cond[i])
                continue;
            memcpy(dst, src + (size_t)i * run, run);
            dst += run;
        }
    }
    return SB_OK;
}

const sb_op_def sb_op_compress = {
    .name = "Compress",
    .since = 11,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_DATA_SHAPE,
    .attrs_size = sizeof(compress_attrs),
    .attrs = attrs,
    .infer = compress_infer,
    .prepare = compress_prepare,
    .forward = compress_forward,
    .grad = sb_grad_compress,
};
