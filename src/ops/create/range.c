/* Range: start, start + delta, ... below limit.
 *
 * The length follows from the three scalars, so it is known as soon as they
 * are constant; Range(0, N, 1) has N elements even if N is a symbol. */
#include <math.h>

#include "ops/infer_util.h"
#include "ops/move/move_util.h"

/* The longest range: what fits an int32 index. */
static const double range_most = 2147483647.0;

static bool range_type(sb_dtype t)
{
    sb_dtype_class cls = sb_dtype_get(t)->cls;

    return sb_dtype_size(t) != 0 &&
           (cls == SB_CLASS_FLOAT || cls == SB_CLASS_INT ||
            cls == SB_CLASS_UINT);
}

/* Elements of the range; -1 if delta is zero or NaN, or there are too many.
 * Doubles are exact enough: the quotient of integers beyond 2^53 would be too
 * long anyway unless delta is as large. */
static int64_t range_count(const sb_tensor *const t[3])
{
    double count;

    if (sb_dtype_is_integral(t[0]->dtype)) {
        int64_t start = sb_tensor_get_i64(t[0], 0);
        int64_t limit = sb_tensor_get_i64(t[1], 0);
        int64_t delta = sb_tensor_get_i64(t[2], 0);
        uint64_t gap, step;

        if (delta == 0)
            return -1;
        if (delta > 0 ? start >= limit : start <= limit)
            return 0;
        gap = delta > 0 ? (uint64_t)limit - (uint64_t)start
                        : (uint64_t)start - (uint64_t)limit;
        step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
        count = (double)(gap / step) + (gap % step != 0);
    } else {
        double start = sb_tensor_get_f64(t[0], 0);
        double limit = sb_tensor_get_f64(t[1], 0);
        double delta = sb_tensor_get_f64(t[2], 0);

        if (delta == 0)
            return -1;
        count = ceil((limit - start) / delta);
    }
    if (!(count <= range_most))
        return -1;
    return count > 0 ? (int64_t)count : 0;
}

/* Range(0, limit, 1) with symbols. */
static sb_dim range_symbolic(const sb_infer *in)
{
    sb_shape c[3];

    for (uint32_t i = 0; i < 3; i++)
        if (in->in[i]->type.shape.rank > 1 || !sb_infer_content(in, i, &c[i]) ||
            c[i].rank != 1)
            return SB_DIM_UNKNOWN;
    return c[0].dim[0] == 0 && c[2].dim[0] == 1 ? c[1].dim[0] : SB_DIM_UNKNOWN;
}

static void range_content(sb_infer *in, int64_t count)
{
    sb_shape out = {.rank = (int)count};
    int64_t start = sb_tensor_get_i64(in->in[0]->constant, 0);
    int64_t delta = sb_tensor_get_i64(in->in[2]->constant, 0);

    for (int i = 0; i < out.rank; i++) {
        int64_t step = 0;
        if (!sb_mul_i64(i, delta, &step))
            return;
        out.dim[i] = sb_dim_add(start, step);
    }
    sb_infer_set_content(in, 0, &out);
}

static sb_status range_infer(sb_infer *in)
{
    const sb_tensor *t[3];
    sb_dtype dtype = in->in[0]->type.dtype;
    sb_shape out = sb_shape_of_rank(1);
    bool known = true;

    for (uint32_t i = 0; i < 3; i++) {
        t[i] = in->in[i]->constant;
        known = known && t[i];
        if (t[i] && (sb_tensor_count(t[i]) != 1 || !range_type(t[i]->dtype) ||
                     t[i]->dtype != dtype))
            return sb_infer_fail(in, "input %u is not one number of type %s", i,
                                 sb_dtype_name(dtype));
    }
    out.dim[0] = range_symbolic(in);
    if (!known) {
        sb_infer_set(in, 0, dtype, &out);
        return SB_OK;
    }
    out.dim[0] = range_count(t);
    if (out.dim[0] < 0)
        return sb_infer_fail(in, "from %g to %g by %g has no length we can do",
                             sb_tensor_get_f64(t[0], 0),
                             sb_tensor_get_f64(t[1], 0),
                             sb_tensor_get_f64(t[2], 0));
    sb_infer_set(in, 0, dtype, &out);
    if (sb_dtype_is_integral(dtype) && out.dim[0] <= SB_MAX_RANK)
        range_content(in, out.dim[0]);
    return SB_OK;
}

static sb_status range_forward(sb_kernel *k)
{
    sb_tensor *y = k->out[0];
    size_t n = (size_t)sb_tensor_count(y), size = sb_dtype_size(y->dtype);
    bool real = sb_dtype_is_float(y->dtype);
    double f = sb_tensor_get_f64(k->in[0], 0);
    double df = sb_tensor_get_f64(k->in[2], 0);
    uint64_t u = real ? 0 : (uint64_t)sb_tensor_get_i64(k->in[0], 0);
    uint64_t du = real ? 0 : (uint64_t)sb_tensor_get_i64(k->in[2], 0);

    for (size_t i = 0; i < n; i++) {
        char *to = (char *)y->data + i * size;
        double vf = f + df * (double)i;
        uint64_t vu = u + du * i;

        if (real)
            sb_convert(SB_DTYPE_F64, &vf, y->dtype, to, 1);
        else
            sb_convert(SB_DTYPE_U64, &vu, y->dtype, to, 1);
    }
    return SB_OK;
}

static sb_status range_prepare(sb_kernel *k)
{
    if (!range_type(k->out[0]->dtype))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->out[0]->dtype));
    return SB_OK;
}

const sb_op_def sb_op_range = {
    .name = "Range",
    .since = 11,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .infer = range_infer,
    .prepare = range_prepare,
    .forward = range_forward,
};
