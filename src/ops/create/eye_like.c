/* EyeLike: ones on the k-th diagonal of a matrix shaped like the input. */
#include "ops/move/move_util.h"

#include <string.h>

typedef struct {
    int64_t dtype, k;
} eye_attrs;

static const sb_attr_def attrs[] = {
    {"dtype", SB_ATTR_INT, offsetof(eye_attrs, dtype), .i = 0},
    {"k", SB_ATTR_INT, offsetof(eye_attrs, k), .i = 0},
    {0},
};

static sb_status eye_infer(sb_infer *in)
{
    const eye_attrs *a = in->attrs;
    const sb_type *x = &in->in[0]->type;
    sb_shape out = sb_shape_of_rank(2);

    if (a->dtype < 0 || a->dtype >= SB_DTYPE_COUNT)
        return sb_infer_fail(in, "dtype %lld", (long long)a->dtype);
    if (x->shape.rank >= 0 && x->shape.rank != 2)
        return sb_infer_fail(in, "input of rank %d, want 2", x->shape.rank);
    sb_infer_set(in, 0, a->dtype ? (sb_dtype)a->dtype : x->dtype,
                 x->shape.rank == 2 ? &x->shape : &out);
    return SB_OK;
}

static sb_status eye_prepare(sb_kernel *k)
{
    sb_dtype dtype = k->out[0]->dtype;

    if (sb_dtype_size(dtype) == 0 || sb_dtype_get(dtype)->cls == SB_CLASS_OTHER)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "dtype %s",
                              sb_dtype_name(dtype));
    return SB_OK;
}

static sb_status eye_forward(sb_kernel *k)
{
    const eye_attrs *a = k->attrs;
    sb_tensor *y = k->out[0];
    size_t elem = sb_dtype_size(y->dtype), bytes = sb_tensor_bytes(y);
    int64_t n = y->dims[0], m = y->dims[1];
    const float one = 1;
    unsigned char value[16];

    if (bytes == 0 || a->k >= m || a->k <= -n) {
        if (bytes)
            memset(y->data, 0, bytes);
        return SB_OK;
    }
    memset(y->data, 0, bytes);
    sb_convert(SB_DTYPE_F32, &one, y->dtype, value, 1);
    for (int64_t i = a->k < 0 ? -a->k : 0; i < n && i + a->k < m; i++)
        memcpy((char *)y->data + (size_t)(i * m + i + a->k) * elem, value,
               elem);
    return SB_OK;
}

const sb_op_def sb_op_eye_like = {
    .name = "EyeLike",
    .since = 9,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_SHAPE_ONLY | SB_OP_FLAT,
    .attrs_size = sizeof(eye_attrs),
    .attrs = attrs,
    .infer = eye_infer,
    .prepare = eye_prepare,
    .forward = eye_forward,
};
