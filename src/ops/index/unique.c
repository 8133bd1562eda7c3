/* Unique: the different elements (or slices along an axis), sorted or in the
 * order of first appearance, with where each first appears, which one every
 * input item became, and how often it occurs.
 *
 * Items are sorted by a stable merge sort of their numbers, so the first of a
 * group of equals is the first occurrence.  NaN counts as equal to itself and
 * larger than everything, as in NumPy. */
#include <string.h>

#include "ops/move/move_util.h"

typedef struct {
    int64_t axis, sorted;
} unique_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(unique_attrs, axis), .i = INT64_MIN},
    {"sorted", SB_ATTR_INT, offsetof(unique_attrs, sorted), .i = 1,
     .flag = true},
    {0},
};

static sb_status unique_infer(sb_infer *in)
{
    const unique_attrs *a = in->attrs;
    sb_shape y = in->in[0]->type.shape, list = sb_shape_of_rank(1);
    int axis = 0;

    if (a->axis == INT64_MIN)
        y = list;
    else if (y.rank >= 0)
        SB_TRY(sb_infer_axis(in, a->axis, y.rank, &axis));
    if (y.rank >= 0)
        y.dim[axis] = SB_DIM_UNKNOWN;
    sb_infer_set(in, 0, in->in[0]->type.dtype, &y);
    for (uint32_t i = 1; i < 4; i++)
        sb_infer_set(in, i, SB_DTYPE_I64, &list);
    return SB_OK;
}

/* ---- order of elements -------------------------------------------------- */

typedef int (*compare_fn)(const char *a, const char *b);

#define DEFINE_COMPARE(suffix, type, work, get)                 \
    static int compare_##suffix(const char *pa, const char *pb) \
    {                                                           \
        type va, vb;                                            \
                                                                \
        memcpy(&va, pa, sizeof va);                             \
        memcpy(&vb, pb, sizeof vb);                             \
        work a = get(va), b = get(vb);                          \
        if (a < b || b < a)                                     \
            return a < b ? -1 : 1;                              \
        return (a != a) - (b != b); /* NaN comes last */        \
    }
#define AS_IS(v) (v)

DEFINE_COMPARE(f32, float, float, AS_IS)
DEFINE_COMPARE(f64, double, double, AS_IS)
DEFINE_COMPARE(f16, uint16_t, float, sb_f16_to_f32)
DEFINE_COMPARE(bf16, uint16_t, float, sb_bf16_to_f32)
DEFINE_COMPARE(u8, uint8_t, uint8_t, AS_IS)
DEFINE_COMPARE(i8, int8_t, int8_t, AS_IS)
DEFINE_COMPARE(u16, uint16_t, uint16_t, AS_IS)
DEFINE_COMPARE(i16, int16_t, int16_t, AS_IS)
DEFINE_COMPARE(u32, uint32_t, uint32_t, AS_IS)
DEFINE_COMPARE(i32, int32_t, int32_t, AS_IS)
DEFINE_COMPARE(u64, uint64_t, uint64_t, AS_IS)
DEFINE_COMPARE(i64, int64_t, int64_t, AS_IS)

static compare_fn compare_of(sb_dtype dtype)
{
    static const compare_fn table[SB_DTYPE_COUNT] = {
        [SB_DTYPE_F32] = compare_f32, [SB_DTYPE_F64] = compare_f64,
        [SB_DTYPE_F16] = compare_f16, [SB_DTYPE_BF16] = compare_bf16,
        [SB_DTYPE_U8] = compare_u8,   [SB_DTYPE_I8] = compare_i8,
        [SB_DTYPE_U16] = compare_u16, [SB_DTYPE_I16] = compare_i16,
        [SB_DTYPE_U32] = compare_u32, [SB_DTYPE_I32] = compare_i32,
        [SB_DTYPE_U64] = compare_u64, [SB_DTYPE_I64] = compare_i64,
        [SB_DTYPE_BOOL] = compare_u8,
    };

    return dtype < SB_DTYPE_COUNT ? table[dtype] : NULL;
}

/* ---- items -------------------------------------------------------------- */

/* The input seen as [outer, n, inner]; an item is x[:, i, :]. */
typedef struct {
    const char *data;
    int64_t outer, n, inner;
    size_t elem;
    compare_fn compare;
} item_view;

static item_view items_of(const sb_kernel *k)
{
    const unique_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    item_view v = {.data = x->data,
                   .outer = 1,
                   .n = sb_tensor_count(x),
                   .inner = 1,
                   .elem = sb_dtype_size(x->dtype),
                   .compare = compare_of(x->dtype)};

    if (a->axis != INT64_MIN) {
        int axis = sb_axis_norm(a->axis, x->rank);
        v.outer = sb_dims_product(x->dims, 0, axis);
        v.n = x->dims[axis];
        v.inner = sb_dims_product(x->dims, axis + 1, x->rank);
    }
    return v;
}

static int compare_items(const item_view *v, int64_t i, int64_t j)
{
    for (int64_t o = 0; o < v->outer; o++)
        for (int64_t e = 0; e < v->inner; e++) {
            int64_t a = (o * v->n + i) * v->inner + e;
            int64_t b = (o * v->n + j) * v->inner + e;
            int c = v->compare(v->data + (size_t)a * v->elem,
                               v->data + (size_t)b * v->elem);
            if (c)
                return c;
        }
    return 0;
}

/* Sorts the numbers 0 ... n-1 in `order`; `tmp` is as long. */
static void sort_items(const item_view *v, int64_t *order, int64_t *tmp)
{
    int64_t n = v->n;

    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t lo = 0; lo < n; lo += 2 * width) {
            int64_t mid = lo + width < n ? lo + width : n;
            int64_t hi = mid + width < n ? mid + width : n;
            int64_t a = lo, b = mid;
            for (int64_t to = lo; to < hi; to++) {
                bool left =
                    a < mid &&
                    (b >= hi || compare_items(v, order[a], order[b]) <= 0);
                tmp[to] = left ? order[a++] : order[b++];
            }
        }
        memcpy(order, tmp, (size_t)n * sizeof *order);
    }
}

/* ---- running ------------------------------------------------------------ */

/* Four arrays of n numbers. */
typedef struct {
    int64_t *order;   /* items sorted; later first item of each output */
    int64_t *tmp;     /* scratch; later count of each output */
    int64_t *inverse; /* output that each item became */
    int64_t *rename;  /* output number of each group */
} unique_scratch;

static unique_scratch scratch_of(const sb_kernel *k, int64_t n)
{
    int64_t *p = k->scratch;

    return (unique_scratch){p, p + n, p + 2 * n, p + 3 * n};
}

static sb_status unique_prepare(sb_kernel *k)
{
    item_view v = items_of(k);

    if (!v.compare)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    if (!sb_mul_size((size_t)v.n, 4 * sizeof(int64_t), &k->scratch_size))
        return sb_kernel_fail(k, SB_NO_MEMORY, "too many elements");
    return SB_OK;
}

/* Groups equal items; returns how many groups.  Then order[g] is the first
 * item of output g and tmp[g] its count. */
static int64_t find_groups(const item_view *v, bool sorted, unique_scratch s)
{
    int64_t n_group = 0;

    sort_items(v, s.order, s.tmp);
    for (int64_t i = 0; i < v->n; i++) {
        if (i > 0 && compare_items(v, s.order[i - 1], s.order[i]) != 0)
            n_group++;
        s.inverse[s.order[i]] = n_group;
    }
    n_group += v->n > 0;
    for (int64_t g = 0; g < n_group; g++) {
        s.rename[g] = sorted ? g : -1;
        s.order[g] = -1;
        s.tmp[g] = 0;
    }
    int64_t next = 0;
    for (int64_t i = 0; i < v->n; i++) {
        int64_t g = s.inverse[i];
        if (s.rename[g] < 0)
            s.rename[g] = next++;
        g = s.rename[g];
        s.inverse[i] = g;
        if (s.order[g] < 0)
            s.order[g] = i;
        s.tmp[g]++;
    }
    return n_group;
}

static sb_status put_list(sb_kernel *k, uint32_t i, const int64_t *list,
                          int64_t n)
{
    if (i >= k->n_out || !k->out[i])
        return SB_OK;
    SB_TRY(k->host->resize_out(k, i, SB_DTYPE_I64, 1, &n));
    if (n)
        memcpy(k->out[i]->data, list, (size_t)n * sizeof *list);
    return SB_OK;
}

static sb_status unique_forward(sb_kernel *k)
{
    const unique_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    item_view v = items_of(k);
    unique_scratch s = scratch_of(k, v.n);
    int64_t n = find_groups(&v, a->sorted != 0, s);
    int64_t dims[SB_MAX_RANK] = {n};
    bool flat = a->axis == INT64_MIN;

    SB_TRY(put_list(k, 1, s.order, n));
    SB_TRY(put_list(k, 2, s.inverse, v.n));
    SB_TRY(put_list(k, 3, s.tmp, n));
    if (!k->out[0])
        return SB_OK;
    if (!flat) {
        memcpy(dims, x->dims, sizeof dims);
        dims[sb_axis_norm(a->axis, x->rank)] = n;
    }
    SB_TRY(k->host->resize_out(k, 0, x->dtype, flat ? 1 : x->rank, dims));
    size_t run = (size_t)v.inner * v.elem;
    for (int64_t o = 0; o < v.outer && run; o++)
        for (int64_t g = 0; g < n; g++)
            memcpy((char *)k->out[0]->data + (size_t)(o * n + g) * run,
                   v.data + (size_t)(o * v.n + s.order[g]) * run, run);
    return SB_OK;
}

const sb_op_def sb_op_unique = {
    .name = "Unique",
    .since = 11,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 4,
    .flags = SB_OP_DATA_SHAPE,
    .attrs_size = sizeof(unique_attrs),
    .attrs = attrs,
    .infer = unique_infer,
    .prepare = unique_prepare,
    .forward = unique_forward,
};
