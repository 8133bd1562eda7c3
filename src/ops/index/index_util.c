/* What GatherElements and the Scatter operators share. */
#include "ops/index/index_util.h"

#include <string.h>

#include "ops/move/move_util.h"

sb_status sb_index_walk_init(const sb_kernel *k, const sb_tensor *data,
                             const sb_tensor *indices, int axis,
                             sb_index_walk *out)
{
    sb_index_walk w = {.indices = indices, .axis = axis, .rank = data->rank};
    int64_t n = sb_tensor_count(indices);

    for (int i = 0; i < data->rank; i++)
        if (i != axis && indices->dims[i] > data->dims[i])
            return sb_kernel_fail(
                k, SB_BAD_DATA,
                "dimension %d of the indices is %lld, of the data only %lld", i,
                (long long)indices->dims[i], (long long)data->dims[i]);
    w.n_axis = data->dims[axis];
    SB_TRY(sb_index_check_all(k, indices, w.n_axis));
    sb_strides_of(data->rank, data->dims, w.stride);
    w.axis_stride = w.stride[axis];
    w.step = axis == data->rank - 1 ? 0 : 1;
    w.stride[axis] = 0;
    w.n_last = indices->dims[data->rank - 1];
    w.n_rows = w.n_last ? n / w.n_last : 0;
    *out = w;
    return SB_OK;
}

int64_t sb_index_walk_row(const sb_index_walk *w, int64_t row)
{
    int64_t offset = 0;

    for (int i = w->rank - 2; i >= 0; i--) {
        offset += row % w->indices->dims[i] * w->stride[i];
        row /= w->indices->dims[i];
    }
    return offset;
}

sb_status sb_index_tuple(const sb_kernel *k, const sb_tensor *data, int first,
                         const sb_tensor *indices, int64_t at, int depth,
                         int64_t *out)
{
    int64_t offset = 0;

    for (int i = 0; i < depth; i++) {
        int64_t x = 0, n = data->dims[first + i];
        SB_TRY(sb_index_check(k, sb_index_at(indices, at + i), n, &x));
        offset = offset * n + x;
    }
    *out = offset * sb_dims_product(data->dims, first + depth, data->rank);
    return SB_OK;
}

/* ---- reductions --------------------------------------------------------- */

/* One loop for each element type and operation; `get` and `put` convert
 * between what is stored and what is computed with.  Integers wrap, which in C
 * only unsigned arithmetic does. */
#define DEFINE_COMBINE(type, name, work, get, put, expr)    \
    static void name(void *dst, const void *src, int64_t n) \
    {                                                       \
        type *d = dst;                                      \
        const type *s = src;                                \
                                                            \
        for (int64_t i = 0; i < n; i++) {                   \
            work a = get(d[i]), b = get(s[i]);              \
            d[i] = (type)put(expr);                         \
        }                                                   \
    }
#define DEFINE_FAMILY(suffix, type, work, get, put, wide)               \
    DEFINE_COMBINE(type, add_##suffix, work, get, put,                  \
                   ((work)((wide)a + (wide)b)))                         \
    DEFINE_COMBINE(type, mul_##suffix, work, get, put,                  \
                   ((work)((wide)a * (wide)b)))                         \
    DEFINE_COMBINE(type, max_##suffix, work, get, put, (a < b ? b : a)) \
    DEFINE_COMBINE(type, min_##suffix, work, get, put, (b < a ? b : a))
#define AS_IS(v) (v)

DEFINE_FAMILY(f32, float, float, AS_IS, AS_IS, float)
DEFINE_FAMILY(f64, double, double, AS_IS, AS_IS, double)
DEFINE_FAMILY(f16, uint16_t, float, sb_f16_to_f32, sb_f32_to_f16, float)
DEFINE_FAMILY(bf16, uint16_t, float, sb_bf16_to_f32, sb_f32_to_bf16, float)
DEFINE_FAMILY(u8, uint8_t, uint8_t, AS_IS, AS_IS, uint64_t)
DEFINE_FAMILY(i8, int8_t, int8_t, AS_IS, AS_IS, uint64_t)
DEFINE_FAMILY(u16, uint16_t, uint16_t, AS_IS, AS_IS, uint64_t)
DEFINE_FAMILY(i16, int16_t, int16_t, AS_IS, AS_IS, uint64_t)
DEFINE_FAMILY(u32, uint32_t, uint32_t, AS_IS, AS_IS, uint64_t)
DEFINE_FAMILY(i32, int32_t, int32_t, AS_IS, AS_IS, uint64_t)
DEFINE_FAMILY(u64, uint64_t, uint64_t, AS_IS, AS_IS, uint64_t)
DEFINE_FAMILY(i64, int64_t, int64_t, AS_IS, AS_IS, uint64_t)
/* Sums of truth values are "or", products "and". */
DEFINE_COMBINE(uint8_t, or_bool, uint8_t, AS_IS, AS_IS, (a | b))
DEFINE_COMBINE(uint8_t, and_bool, uint8_t, AS_IS, AS_IS, (a & b))

static const struct {
    sb_dtype dtype;
    sb_combine_fn fn[4]; /* add, mul, max, min */
} combines[] = {
#define ROW(DTYPE, s)                          \
    {                                          \
        SB_DTYPE_##DTYPE,                      \
        {                                      \
            add_##s, mul_##s, max_##s, min_##s \
        }                                      \
    }
    ROW(F32, f32),
    ROW(F64, f64),
    ROW(F16, f16),
    ROW(BF16, bf16),
    ROW(U8, u8),
    ROW(I8, i8),
    ROW(U16, u16),
    ROW(I16, i16),
    ROW(U32, u32),
    ROW(I32, i32),
    ROW(U64, u64),
    ROW(I64, i64),
#undef ROW
    {SB_DTYPE_BOOL, {or_bool, and_bool, or_bool, and_bool}},
};

sb_status sb_combine_find(const sb_kernel *k, const char *reduction,
                          sb_dtype dtype, sb_combine_fn *out)
{
    static const char *const names[] = {"add", "mul", "max", "min"};

    *out = NULL;
    if (strcmp(reduction, "none") == 0)
        return SB_OK;
    for (size_t op = 0; op < SB_COUNT(names); op++) {
        if (strcmp(reduction, names[op]) != 0)
            continue;
        for (size_t i = 0; i < SB_COUNT(combines); i++)
            if (combines[i].dtype == dtype)
                *out = combines[i].fn[op];
        return *out ? SB_OK
                    : sb_kernel_fail(k, SB_UNSUPPORTED, "reduction %s of %s",
                                     reduction, sb_dtype_name(dtype));
    }
    return sb_kernel_fail(k, SB_BAD_MODEL,
                          "reduction '%s', want none, add, mul, max or min",
                          reduction);
}

sb_status sb_scatter_prepare(sb_kernel *k, const char *reduction)
{
    sb_combine_fn fn = NULL;

    if (k->in[2]->dtype != k->in[0]->dtype)
        return sb_kernel_fail(k, SB_BAD_MODEL, "updates are %s, data is %s",
                              sb_dtype_name(k->in[2]->dtype),
                              sb_dtype_name(k->in[0]->dtype));
    SB_TRY(sb_combine_find(k, reduction, k->in[0]->dtype, &fn));
    return sb_move_prepare(k);
}
