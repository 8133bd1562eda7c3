/* Slice: x[start:end:step] along some axes, with almost NumPy's rules: negative
 * positions count from the end, all are clamped, a negative step walks back. */
#include <string.h>

#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/tie/tie_rules.h"

/* Elements that a range takes from an axis of n; *start becomes the first. */
static int64_t range_count(int64_t n, int64_t *start, int64_t end, int64_t step)
{
    int64_t lo = step < 0 ? -1 : 0, hi = step < 0 ? n - 1 : n;
    int64_t s = *start < 0 ? *start + n : *start;
    int64_t e = end < 0 ? end + n : end;

    if (n == 0)
        return 0;
    /* Models mean "to the end" by it, whichever way they walk; ONNX Runtime
     * understands them. */
    if (step < 0 && (end == INT32_MAX || end == INT64_MAX))
        e = -1;
    s = s < 0 ? 0 : s > hi ? hi : s; /* walking back, NumPy would use -1 */
    e = e < lo ? lo : e > hi ? hi : e;
    *start = s;
    if (step > 0)
        return e > s ? (e - s - 1) / step + 1 : 0;
    /* -step of INT64_MIN would overflow; any huge step takes one element. */
    uint64_t back = 0 - (uint64_t)step;
    return s > e ? (int64_t)(((uint64_t)(s - e) - 1) / back) + 1 : 0;
}

/* One axis of the output, as far as it can be known. */
static sb_dim slice_dim(sb_dim n, sb_dim start, sb_dim end, sb_dim step)
{
    if (sb_dim_known(step) && sb_dim_known(n) && sb_dim_known(start) &&
        sb_dim_known(end))
        return range_count(n, &start, end, step);
    /* x[0:], x[0:n] and x[::-1] of a symbolic axis are whole. */
    if (step == 1 && start == 0 &&
        (sb_dim_same(end, n) || (sb_dim_known(end) && end >= INT32_MAX)))
        return n;
    /* x[:seq] of a table of n positions: seq, unless it is beyond the table,
     * where such a model fails anyway. */
    if (step == 1 && start == 0 && sb_dim_symbol_index(end) >= 0 &&
        sb_dim_known(n))
        return end;
    if (step == -1 && start == -1 && sb_dim_known(end) && end <= INT32_MIN)
        return n;
    return SB_DIM_UNKNOWN;
}

static void slice_content(sb_infer *in, sb_dim start, sb_dim end, sb_dim step)
{
    const sb_shape *c = &in->in[0]->content;
    sb_shape out = {.rank = 0};

    if (c->rank < 0 || in->in[0]->type.shape.rank != 1 ||
        !sb_dim_known(start) || !sb_dim_known(end) || !sb_dim_known(step))
        return;
    int64_t from = start;
    int64_t n = range_count(c->rank, &from, end, step);
    for (int64_t i = 0; i < n; i++)
        out.dim[out.rank++] = c->dim[from + i * step];
    sb_infer_set_content(in, 0, &out);
}

/* Starts, ends, axes and steps are lists of integers. */
static sb_status slice_check_lists(const sb_infer *in)
{
    for (uint32_t i = 1; i < 5; i++) {
        const sb_fact *list = sb_infer_in(in, i);

        SB_TRY(sb_infer_want_ints(in, i));
        if (list && list->type.shape.rank > 1)
            return sb_infer_fail(in, "input %u has rank %d, want 1", i,
                                 list->type.shape.rank);
    }
    return SB_OK;
}

static sb_status slice_infer(sb_infer *in)
{
    const sb_fact *x = in->in[0];
    sb_shape starts = {0}, ends = {0}, axes = {0}, steps = {0};
    sb_shape out = x->type.shape;
    bool seen[SB_MAX_RANK] = {false};

    SB_TRY(slice_check_lists(in));
    in->out[0].type.dtype = x->type.dtype;
    if (out.rank < 0)
        return SB_OK;
    if (out.rank == 0)
        return sb_infer_fail(in, "a scalar cannot be sliced");
    sb_infer_set_rank(in, 0, out.rank);
    if (!sb_infer_content(in, 1, &starts) || !sb_infer_content(in, 2, &ends))
        return SB_OK;
    bool has_axes = sb_infer_in(in, 3), has_steps = sb_infer_in(in, 4);
    if ((has_axes && !sb_infer_content(in, 3, &axes)) ||
        (has_steps && !sb_infer_content(in, 4, &steps)))
        return SB_OK;
    if (ends.rank != starts.rank || (has_axes && axes.rank != starts.rank) ||
        (has_steps && steps.rank != starts.rank) || starts.rank > out.rank)
        return sb_infer_fail(in, "starts, ends, axes and steps differ in "
                                 "length");
    for (int i = 0; i < starts.rank; i++) {
        sb_dim at = has_axes ? axes.dim[i] : i;
        sb_dim step = has_steps ? steps.dim[i] : 1;
        int axis = 0;
        if (!sb_dim_known(at)) /* any axis may change */
            return SB_OK;
        SB_TRY(sb_infer_axis(in, at, out.rank, &axis));
        if (step == 0 || seen[axis])
            return sb_infer_fail(
                in, step ? "axis %d is given twice" : "step of axis %d is 0",
                axis);
        seen[axis] = true;
        out.dim[axis] =
            slice_dim(out.dim[axis], starts.dim[i], ends.dim[i], step);
        sb_infer_set(in, 0, x->type.dtype, &out);
        slice_content(in, starts.dim[i], ends.dim[i], step);
    }
    sb_infer_set(in, 0, x->type.dtype, &out);
    if (starts.rank == 0 && x->content.rank >= 0)
        sb_infer_set_content(in, 0, &x->content);
    return SB_OK;
}

static sb_status slice_forward(sb_kernel *k)
{
    const sb_tensor *x = k->in[0], *axes = sb_kernel_in(k, 3);
    const sb_tensor *steps = sb_kernel_in(k, 4);
    sb_tensor *y = k->out[0];
    int64_t n = sb_tensor_count(k->in[1]), offset = 0;
    int64_t stride[SB_MAX_RANK], steps_by[SB_MAX_RANK];

    sb_tensor_strides(x, stride);
    for (int i = 0; i < x->rank; i++)
        steps_by[i] = 1;
    for (int64_t i = 0; i < n; i++) {
        int axis = sb_axis_norm(axes ? sb_index_at(axes, i) : i, x->rank);
        int64_t start = sb_index_at(k->in[1], i);
        int64_t step = steps ? sb_index_at(steps, i) : 1;
        int64_t count =
            range_count(x->dims[axis], &start, sb_index_at(k->in[2], i), step);
        if (count != y->dims[axis])
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "axis %d gives %lld elements,"
                                  " want %lld",
                                  axis, (long long)count,
                                  (long long)y->dims[axis]);
        offset += count ? start * stride[axis] : 0;
        steps_by[axis] = count > 1 ? step : 0;
    }
    if (sb_tensor_count(y) == 0)
        return SB_OK;
    sb_strided c = sb_strided_between(y, x, y->dims);
    for (int at = 0; at < y->rank; at++)
        c.src_stride[at] *= steps_by[sb_tensor_dim_at(y, at)];
    sb_strided_copy(k->ctx, &c, y->data,
                    (const char *)x->data +
                        (size_t)offset * sb_dtype_size(x->dtype));
    return SB_OK;
}

/* ---- SliceGrad: zeros of the given shape, and in them what was sliced ---- */

static sb_status slice_grad_infer(sb_infer *in)
{
    sb_shape shape;

    in->out[0].type.dtype = in->in[0]->type.dtype;
    if (sb_infer_content(in, 1, &shape))
        sb_infer_set(in, 0, in->in[0]->type.dtype, &shape);
    return SB_OK;
}

/* Range i of the inputs, which may say anything at the run. */
static sb_status slice_grad_range(const sb_kernel *k, int64_t i, int *axis,
                                  int64_t *start, int64_t *end, int64_t *step)
{
    const sb_tensor *axes = sb_kernel_in(k, 4), *steps = sb_kernel_in(k, 5);
    int rank = k->out[0]->rank;
    int64_t at = axes ? sb_index_at(axes, i) : i;

    *start = sb_index_at(k->in[2], i);
    *end = sb_index_at(k->in[3], i);
    *step = steps ? sb_index_at(steps, i) : 1;
    if (at < -rank || at >= rank || *step == 0)
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "axis %lld with step %lld of rank %d",
                              (long long)at, (long long)*step, rank);
    *axis = sb_axis_norm(at, rank);
    return SB_OK;
}

/* The lists have one length, and dy as many dimensions as dx. */
static sb_status slice_grad_check(const sb_kernel *k)
{
    int64_t n = sb_tensor_count(k->in[2]);

    for (uint32_t i = 3; i < 6; i++)
        if (sb_kernel_in(k, i) && sb_tensor_count(k->in[i]) != n)
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "starts, ends, axes and steps differ in "
                                  "length");
    if (k->in[0]->rank != k->out[0]->rank || n > k->out[0]->rank)
        return sb_kernel_fail(k, SB_BAD_DATA, "%lld ranges, rank %d, want %d",
                              (long long)n, k->in[0]->rank, k->out[0]->rank);
    return SB_OK;
}

static sb_status slice_grad_forward(sb_kernel *k)
{
    const sb_tensor *dy = k->in[0];
    sb_tensor *dx = k->out[0];
    int64_t stride[SB_MAX_RANK], to = 0, from = 0;
    size_t size = sb_dtype_size(dy->dtype);
    bool sliced[SB_MAX_RANK] = {false};

    SB_TRY(slice_grad_check(k));
    sb_strided c = sb_strided_to(size, dy->rank, dy->dims);
    sb_strides_of(dy->rank, dy->dims, c.src_stride);
    sb_strides_of(dx->rank, dx->dims, stride);
    memcpy(c.dst_stride, stride, sizeof stride[0] * (size_t)dx->rank);
    for (int64_t i = 0; i < sb_tensor_count(k->in[2]); i++) {
        int64_t start, end, step;
        int axis = 0;
        SB_TRY(slice_grad_range(k, i, &axis, &start, &end, &step));
        int64_t n = range_count(dx->dims[axis], &start, end, step);
        if (sliced[axis] || n != dy->dims[axis])
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "axis %d gives %lld elements, want %lld, or "
                                  "is given twice",
                                  axis, (long long)n,
                                  (long long)dy->dims[axis]);
        sliced[axis] = true;
        if (n < 2)
            step = 1;
        /* Both walk the same way; what is written, forwards. */
        to += (step < 0 ? start + (n - 1) * step : start) * stride[axis];
        from += step < 0 ? (n - 1) * c.src_stride[axis] : 0;
        c.dst_stride[axis] *= step < 0 ? -step : step;
        c.src_stride[axis] *= step < 0 ? -1 : 1;
    }
    for (int i = 0; i < dx->rank; i++)
        if (!sliced[i] && dx->dims[i] != dy->dims[i])
            return sb_kernel_fail(
                k, SB_BAD_DATA, "axis %d has %lld elements, want %lld", i,
                (long long)dy->dims[i], (long long)dx->dims[i]);
    memset(dx->data, 0, sb_tensor_bytes(dx));
    if (sb_tensor_count(dy) > 0)
        sb_strided_copy(k->ctx, &c, (char *)dx->data + (size_t)to * size,
                        (const char *)dy->data + (size_t)from * size);
    return SB_OK;
}

const sb_op_def sb_op_slice_grad = {
    .name = "SliceGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 4,
    .in_max = 6,
    .out_min = 1,
    .out_max = 1,
    .infer = slice_grad_infer,
    .prepare = sb_move_prepare,
    .forward = slice_grad_forward,
};

const sb_op_def sb_op_slice = {
    .name = "Slice",
    .since = 10,
    .quant = SB_ROLE_PASS,
    .in_min = 3,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_PICKS,
    .batch = sb_batch_slice,
    .infer = slice_infer,
    .layout = sb_move_layout,
    .prepare = sb_move_prepare,
    .forward = slice_forward,
    .grad = sb_grad_slice,
    .tie = sb_tie_slice,
    .recut = sb_recut_slice,
};
