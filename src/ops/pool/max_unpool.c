/* MaxUnpool: puts each element back where a max pooling found it; the rest is
 * 0.  Indices count in the whole unpooled tensor.  If `output_shape` asks for
 * more than pads, strides and kernel give, the result lies at its start. */
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"

typedef struct {
    sb_ints kernel, pads, strides;
} unpool_attrs;

static const sb_attr_def attrs[] = {
    {"kernel_shape", SB_ATTR_INTS, offsetof(unpool_attrs, kernel),
     .required = true},
    {"pads", SB_ATTR_INTS, offsetof(unpool_attrs, pads), .i = 0},
    {"strides", SB_ATTR_INTS, offsetof(unpool_attrs, strides), .i = 0},
    {0},
};

/* What the pooling must have seen along spatial axis i. */
static sb_dim max_unpool_unpooled(const unpool_attrs *a, size_t i, sb_dim n)
{
    int64_t size = 0;
    int64_t stride = a->strides.n ? a->strides.v[i] : 1;
    int64_t pads = 0;

    if (a->pads.n &&
        !sb_add_i64(a->pads.v[i], a->pads.v[i + a->kernel.n], &pads))
        return SB_DIM_UNKNOWN;
    if (!sb_dim_known(n) || n <= 0 || !sb_mul_i64(n - 1, stride, &size) ||
        !sb_add_i64(size, a->kernel.v[i], &size) ||
        !sb_mul_i64(pads, -1, &pads) || !sb_add_i64(size, pads, &size))
        return SB_DIM_UNKNOWN;
    return size;
}

static sb_status unpool_infer(sb_infer *in)
{
    const unpool_attrs *a = in->attrs;
    sb_shape out = in->in[0]->type.shape, want = {0};
    size_t n = a->kernel.n;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if ((a->pads.n && a->pads.n != 2 * n) ||
        (a->strides.n && a->strides.n != n))
        return sb_infer_fail(in, "%zu kernel sizes, %zu pads, %zu strides", n,
                             a->pads.n, a->strides.n);
    if (out.rank < 0)
        return SB_OK;
    if ((size_t)out.rank != n + 2)
        return sb_infer_fail(in, "input of rank %d, want %zu", out.rank, n + 2);
    for (size_t i = 0; i < n; i++) {
        out.dim[i + 2] = max_unpool_unpooled(a, i, out.dim[i + 2]);
        if (sb_dim_known(out.dim[i + 2]) && out.dim[i + 2] <= 0)
            return sb_infer_fail(in, "axis %zu becomes %lld", i + 2,
                                 (long long)out.dim[i + 2]);
    }
    if (sb_infer_in(in, 2)) {
        if (!sb_infer_content(in, 2, &want))
            want = sb_shape_of_rank(out.rank);
        if (want.rank != out.rank)
            return sb_infer_fail(in, "output_shape of rank %d, want %d",
                                 want.rank, out.rank);
        for (int i = 0; i < want.rank; i++)
            if (sb_dim_known(want.dim[i]) && want.dim[i] < 0)
                return sb_infer_fail(in, "output_shape[%d] is %lld", i,
                                     (long long)want.dim[i]);
        out = want;
    }
    sb_infer_set(in, 0, in->in[0]->type.dtype, &out);
    return SB_OK;
}

static sb_status unpool_prepare(sb_kernel *k)
{
    if (sb_tensor_count(k->in[0]) != sb_tensor_count(k->in[1]))
        return sb_kernel_fail(k, SB_BAD_MODEL, "%lld elements, %lld indices",
                              (long long)sb_tensor_count(k->in[0]),
                              (long long)sb_tensor_count(k->in[1]));
    return sb_move_prepare(k);
}

/* Position in y of element `at` of a tensor shaped `dims`; false if y has no
 * such place. */
static bool place_in(const sb_tensor *y, const int64_t *dims, int64_t at,
                     int64_t *out)
{
    int64_t stride = 1;

    *out = 0;
    for (int i = y->rank - 1; i >= 0; i--) {
        if (at % dims[i] >= y->dims[i])
            return false;
        *out += at % dims[i] * stride;
        at /= dims[i];
        stride *= y->dims[i];
    }
    return true;
}

static sb_status unpool_forward(sb_kernel *k)
{
    const unpool_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    size_t elem = sb_dtype_size(x->dtype), bytes = sb_tensor_bytes(y);
    int64_t n = sb_tensor_count(x), total = 1, at = 0, to = 0;
    int64_t dims[SB_MAX_RANK];

    for (int i = 0; i < x->rank; i++) {
        dims[i] = i < 2 ? x->dims[i]
                        : max_unpool_unpooled(a, (size_t)i - 2, x->dims[i]);
        if (!sb_dim_known(dims[i]) || !sb_mul_i64(total, dims[i], &total))
            total = 0;
    }
    if (bytes)
        memset(y->data, 0, bytes);
    for (int64_t i = 0; i < n; i++) {
        SB_TRY(sb_index_check(k, sb_index_at(k->in[1], i), total, &at));
        if (place_in(y, dims, at, &to))
            memcpy((char *)y->data + (size_t)to * elem,
                   (const char *)x->data + (size_t)i * elem, elem);
    }
    return SB_OK;
}

const sb_op_def sb_op_max_unpool = {
    .name = "MaxUnpool",
    .since = 11,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(unpool_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = unpool_infer,
    .prepare = unpool_prepare,
    .forward = unpool_forward,
    .grad = sb_grad_max_unpool,
};
