/* What shape inference functions share. */
#include "ops/infer_util.h"

#include <stdarg.h>
#include <stdio.h>

sb_status sb_infer_fail(const sb_infer *in, const char *fmt, ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_fail(in->ctx, SB_BAD_MODEL, "node '%s' (%s): %s",
                   sb_node_label(in->graph, in->node), in->node->op, text);
}

sb_status sb_kernel_fail(const sb_kernel *k, sb_status code, const char *fmt,
                         ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_fail(k->ctx, code, "node '%s' (%s): %s",
                   sb_node_label(k->graph, k->node), k->node->op, text);
}

const sb_fact *sb_infer_in(const sb_infer *in, uint32_t i)
{
    return i < in->n_in ? in->in[i] : NULL;
}

sb_tensor *sb_kernel_in(const sb_kernel *k, uint32_t i)
{
    return i < k->n_in ? k->in[i] : NULL;
}

sb_tensor *sb_kernel_out(const sb_kernel *k, uint32_t i)
{
    return i < k->n_out ? k->out[i] : NULL;
}

void sb_infer_set(sb_infer *in, uint32_t i, sb_dtype dtype,
                  const sb_shape *shape)
{
    if (i >= in->n_out)
        return;
    in->out[i].type.dtype = dtype;
    in->out[i].type.shape = *shape;
}

sb_status sb_infer_want_ints(const sb_infer *in, uint32_t i)
{
    const sb_fact *fact = sb_infer_in(in, i);
    sb_dtype t = fact ? fact->type.dtype : SB_DTYPE_NONE;

    if (t == SB_DTYPE_NONE || t == SB_DTYPE_I64 || t == SB_DTYPE_I32)
        return SB_OK;
    return sb_infer_fail(in, "input %u has elements of type %s, want int64", i,
                         sb_dtype_name(t));
}

sb_status sb_infer_want_one(const sb_infer *in, uint32_t i, sb_dtype dtype)
{
    const sb_fact *fact = sb_infer_in(in, i);
    bool other = false;

    if (!fact)
        return SB_OK;
    const sb_type *t = &fact->type;
    if (dtype != SB_DTYPE_NONE && t->dtype != SB_DTYPE_NONE)
        other = t->dtype != dtype;
    for (int d = 0; d < t->shape.rank; d++)
        other =
            other || (sb_dim_known(t->shape.dim[d]) && t->shape.dim[d] != 1);
    return other ? sb_infer_fail(in, "input %u is not one element of type %s",
                                 i, sb_dtype_name(dtype))
                 : SB_OK;
}

sb_status sb_infer_same(sb_infer *in)
{
    in->out[0].type = in->in[0]->type;
    return SB_OK;
}

sb_shape sb_shape_unknown(void)
{
    return (sb_shape){.rank = -1};
}

sb_shape sb_shape_of_rank(int rank)
{
    sb_shape s = {.rank = rank};

    for (int i = 0; i < rank; i++)
        s.dim[i] = SB_DIM_UNKNOWN;
    return s;
}

sb_shape sb_shape_of(const sb_tensor *t)
{
    sb_shape s = {.rank = t->rank};

    for (int i = 0; i < t->rank; i++)
        s.dim[i] = t->dims[i];
    return s;
}

sb_dim sb_dim_mul(sb_dim a, sb_dim b)
{
    sb_dim product = 0;

    if (a == 1)
        return b;
    if (b == 1)
        return a;
    if (!sb_dim_known(a) || !sb_dim_known(b) || !sb_mul_i64(a, b, &product) ||
        !sb_dim_known(product))
        return SB_DIM_UNKNOWN;
    return product;
}

sb_dim sb_dim_add(sb_dim a, sb_dim b)
{
    sb_dim sum = 0;

    if (a == 0)
        return b;
    if (b == 0)
        return a;
    if (!sb_dim_known(a) || !sb_dim_known(b) || !sb_add_i64(a, b, &sum) ||
        !sb_dim_known(sum))
        return SB_DIM_UNKNOWN;
    return sum;
}

/* One pair of dimensions; false if they can never fit.  A number other than 1
 * wins over an unknown, because the unknown can then only be it or 1. */
static bool broadcast_dim(sb_dim *a, sb_dim b)
{
    if (*a == 1) {
        *a = b;
    } else if (b == 1 || sb_dim_same(*a, b)) {
        return true;
    } else if (sb_dim_known(*a) && sb_dim_known(b)) {
        return false;
    } else if (sb_dim_known(b)) {
        *a = b;
    } else if (!sb_dim_known(*a)) {
        *a = SB_DIM_UNKNOWN;
    }
    return true;
}

bool sb_shape_broadcast(sb_shape *a, const sb_shape *b)
{
    if (a->rank < 0 || b->rank < 0) {
        *a = sb_shape_unknown();
        return true;
    }
    int rank = a->rank > b->rank ? a->rank : b->rank;
    sb_shape out = {.rank = rank};
    for (int i = 0; i < rank; i++) {
        int ia = i - (rank - a->rank), ib = i - (rank - b->rank);
        out.dim[i] = ia < 0 ? 1 : a->dim[ia];
        if (!broadcast_dim(&out.dim[i], ib < 0 ? 1 : b->dim[ib]))
            return false;
    }
    *a = out;
    return true;
}

static sb_status broadcast_all(sb_infer *in, sb_dtype dtype)
{
    sb_shape shape = {.rank = 0};

    for (uint32_t i = 0; i < in->n_in; i++)
        if (in->in[i] && !sb_shape_broadcast(&shape, &in->in[i]->type.shape))
            return sb_infer_fail(in,
                                 "input %u does not broadcast with the "
                                 "inputs before it",
                                 i);
    sb_infer_set(in, 0, dtype, &shape);
    return SB_OK;
}

sb_status sb_infer_broadcast(sb_infer *in)
{
    return broadcast_all(in, in->in[0]->type.dtype);
}

sb_status sb_infer_compare(sb_infer *in)
{
    return broadcast_all(in, SB_DTYPE_BOOL);
}

sb_status sb_infer_axis(const sb_infer *in, int64_t axis, int rank, int *out)
{
    if (axis < -rank || axis >= rank)
        return sb_infer_fail(in, "axis %lld is outside rank %d",
                             (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return SB_OK;
}

int64_t sb_infer_ints(const sb_infer *in, uint32_t i, int64_t *out, int64_t max)
{
    const sb_fact *f = sb_infer_in(in, i);

    if (!f || !f->constant || !sb_dtype_is_integral(f->constant->dtype))
        return -1;
    int64_t n = sb_tensor_count(f->constant);
    for (int64_t j = 0; j < n && j < max; j++)
        out[j] = sb_tensor_get_i64(f->constant, j);
    return n;
}

int64_t sb_kernel_ints(const sb_kernel *k, uint32_t i, int64_t *out,
                       int64_t max)
{
    const sb_tensor *t = sb_kernel_in(k, i);

    if (!t || !t->data || !sb_dtype_is_integral(t->dtype))
        return -1;
    int64_t n = sb_tensor_count(t);
    for (int64_t j = 0; j < n && j < max; j++)
        out[j] = sb_tensor_get_i64(t, j);
    return n;
}
