/* What the operators that move elements share. */
#include "ops/move/move_util.h"

#include <assert.h>

#include "base/threads.h"

bool sb_fact_content(const sb_fact *f, sb_shape *out)
{
    const sb_tensor *t = f->constant;

    if (t && sb_dtype_is_integral(t->dtype) && t->rank <= 1 &&
        sb_tensor_count(t) <= SB_MAX_RANK) {
        out->rank = (int)sb_tensor_count(t);
        for (int i = 0; i < out->rank; i++) {
            int64_t v = sb_tensor_get_i64(t, i); /* INT64_MIN is no dim */
            out->dim[i] = sb_dim_known(v) ? v : SB_DIM_KNOWN_MIN;
        }
        return true;
    }
    if (f->content.rank >= 0) {
        *out = f->content;
        return true;
    }
    const sb_shape *s = &f->type.shape;
    if (s->rank == 1 && s->dim[0] >= 0 && s->dim[0] <= SB_MAX_RANK) {
        *out = sb_shape_of_rank((int)s->dim[0]);
        return true;
    }
    return false;
}

bool sb_infer_content(const sb_infer *in, uint32_t i, sb_shape *out)
{
    const sb_fact *f = sb_infer_in(in, i);

    return f && sb_fact_content(f, out);
}

void sb_infer_set_content(sb_infer *in, uint32_t i, const sb_shape *content)
{
    sb_type *t = &in->out[i].type;

    if ((t->dtype == SB_DTYPE_I64 || t->dtype == SB_DTYPE_I32 ||
         t->dtype == SB_DTYPE_BOOL) &&
        t->shape.rank >= 0 && t->shape.rank <= 1)
        in->out[i].content = *content;
}

void sb_infer_set_rank(sb_infer *in, uint32_t i, int rank)
{
    sb_shape s = sb_shape_of_rank(rank);

    sb_infer_set(in, i, in->in[0]->type.dtype, &s);
}

int64_t sb_infer_length(const sb_infer *in, uint32_t i)
{
    const sb_fact *f = sb_infer_in(in, i);

    if (!f)
        return -1;
    if (f->constant)
        return sb_tensor_count(f->constant);
    const sb_shape *s = &f->type.shape;
    return s->rank == 1 && s->dim[0] >= 0 ? s->dim[0] : -1;
}

sb_status sb_view_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];
    sb_tensor *y = k->out[0];
    size_t bytes = sb_tensor_bytes(x);

    /* Axes that come at the run may not be what their number promised. */
    if (sb_tensor_bytes(y) != bytes)
        return sb_kernel_fail(
            k, SB_BAD_DATA, "%lld elements do not fit a result of %lld",
            (long long)sb_tensor_count(x), (long long)sb_tensor_count(y));
    if (y->data != x->data)
        sb_parallel_copy(k->ctx, y->data, x->data, bytes);
    return SB_OK;
}

sb_status sb_move_prepare(sb_kernel *k)
{
    const sb_tensor *x = k->in[0];

    if (sb_dtype_size(x->dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "elements of type %s cannot be moved",
                              sb_dtype_name(x->dtype));
    return SB_OK;
}

int sb_axis_norm(int64_t axis, int rank)
{
    assert(axis >= -rank && axis < rank);
    return (int)(axis < 0 ? axis + rank : axis);
}

sb_status sb_index_check(const sb_kernel *k, int64_t index, int64_t n,
                         int64_t *out)
{
    if (index < -n || index >= n)
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "index %lld is outside [%lld, %lld)",
                              (long long)index, (long long)-n, (long long)n);
    *out = index < 0 ? index + n : index;
    return SB_OK;
}

/* Whether all are inside, without a branch for each. */
#define DEFINE_INSIDE(name, type)                             \
    static bool name(const type *v, int64_t count, int64_t n) \
    {                                                         \
        bool ok = true;                                       \
                                                              \
        for (int64_t i = 0; i < count; i++)                   \
            ok &= v[i] >= -n && v[i] < n;                     \
        return ok;                                            \
    }
DEFINE_INSIDE(inside_i64, int64_t)
DEFINE_INSIDE(inside_i32, int32_t)
#undef DEFINE_INSIDE

sb_status sb_index_check_all(const sb_kernel *k, const sb_tensor *indices,
                             int64_t n)
{
    int64_t count = sb_tensor_count(indices), ignore = 0;

    if (indices->dtype == SB_DTYPE_I64 && inside_i64(indices->data, count, n))
        return SB_OK;
    if (indices->dtype == SB_DTYPE_I32 && inside_i32(indices->data, count, n))
        return SB_OK;
    for (int64_t i = 0; i < count; i++)
        SB_TRY(sb_index_check(k, sb_index_at(indices, i), n, &ignore));
    return SB_OK;
}

void sb_strides_of(int rank, const int64_t *dims, int64_t *strides)
{
    int64_t s = 1;

    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = s;
        s *= dims[i];
    }
}

void sb_move_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    if (k->in[0]->rank < 3 || k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST)
        return;
    in[0] = SB_LAYOUT_CHANNELS_LAST;
    for (uint32_t i = 0; i < k->n_out; i++)
        out[i] = SB_LAYOUT_CHANNELS_LAST;
}

void sb_view_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const sb_tensor *x = k->in[0], *y = k->out[0];

    if (!y || x->rank < 3 || y->rank < 3 || x->dims[0] != y->dims[0] ||
        x->dims[1] != y->dims[1])
        return;
    sb_move_layout(k, in, out);
}
