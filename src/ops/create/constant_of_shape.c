/* ConstantOfShape: a tensor of a given shape filled with one value. */
#include "ops/move/move_util.h"

typedef struct {
    const sb_tensor *value; /* one element; NULL means float 0 */
} fill_attrs;

static const sb_attr_def attrs[] = {
    {"value", SB_ATTR_TENSOR, offsetof(fill_attrs, value), .i = 0},
    {0},
};

/* A small int64 tensor of rank 1 may be a shape in the making. */
static void fill_content(sb_infer *in, const sb_shape *out,
                         const sb_tensor *value)
{
    sb_shape content = {.rank = 0};

    if (!value || !sb_dtype_is_integral(value->dtype) || out->rank > 1)
        return;
    int64_t n = out->rank ? out->dim[0] : 1;
    int64_t v = sb_tensor_get_i64(value, 0);
    if (n < 0 || n > SB_MAX_RANK || !sb_dim_known(v))
        return;
    for (; content.rank < n; content.rank++)
        content.dim[content.rank] = v;
    sb_infer_set_content(in, 0, &content);
}

static sb_status fill_infer(sb_infer *in)
{
    const fill_attrs *a = in->attrs;
    sb_shape out = sb_shape_unknown();

    SB_TRY(sb_infer_want_ints(in, 0));
    if (a->value && sb_tensor_count(a->value) != 1)
        return sb_infer_fail(in, "value has %lld elements, want 1",
                             (long long)sb_tensor_count(a->value));
    if (sb_infer_content(in, 0, &out)) {
        for (int i = 0; i < out.rank; i++)
            if (sb_dim_known(out.dim[i]) && out.dim[i] < 0)
                return sb_infer_fail(in, "shape[%d] is %lld", i,
                                     (long long)out.dim[i]);
    } else if (sb_infer_length(in, 0) > SB_MAX_RANK) {
        return sb_infer_fail(in, "rank %lld, want at most %d",
                             (long long)sb_infer_length(in, 0), SB_MAX_RANK);
    }
    sb_infer_set(in, 0, a->value ? a->value->dtype : SB_DTYPE_F32, &out);
    if (out.rank >= 0)
        fill_content(in, &out, a->value);
    return SB_OK;
}

static sb_status fill_forward(sb_kernel *k)
{
    const fill_attrs *a = k->attrs;
    const float zero = 0;
    sb_tensor *y = k->out[0];
    size_t elem = sb_dtype_size(y->dtype);

    if (elem == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "value of type %s",
                              sb_dtype_name(y->dtype));
    sb_fill(y->data, elem, a->value ? a->value->data : (const void *)&zero,
            sb_tensor_count(y));
    return SB_OK;
}

const sb_op_def sb_op_constant_of_shape = {
    .name = "ConstantOfShape",
    .since = 9,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(fill_attrs),
    .attrs = attrs,
    .infer = fill_infer,
    .forward = fill_forward,
};
