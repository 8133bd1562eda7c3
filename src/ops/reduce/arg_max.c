/* ArgMax, ArgMin: where along an axis the largest or least element is; the
 * first such place, or the last with select_last_index.
 *
 * All types are compared exactly: floats as double, integers as 64 bits. */
#include "ops/batch_rules.h"
#include "ops/elementwise/elementwise.h"
#include "ops/move/move_util.h"
#include "ops/reduce/axis_walk.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis, keepdims, last;
} arg_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(arg_attrs, axis), .i = 0},
    {"keepdims", SB_ATTR_INT, offsetof(arg_attrs, keepdims), .i = 1,
     .flag = true},
    {"select_last_index", SB_ATTR_INT, offsetof(arg_attrs, last), .i = 0,
     .flag = true},
    {0},
};

typedef struct arg_job {
    sb_axis_walk walk;
    const sb_tensor *x;
    int64_t *y;
    sb_dtype as;
    size_t size; /* bytes of an element of x */
    bool least, last;
} arg_job;

/* Is b, which comes later, to be preferred to a? */
static inline bool arg_max_prefer(bool more, bool less, const arg_job *job)
{
    bool better = job->least ? less : more;
    bool equal = !more && !less;

    return better || (job->last && equal);
}

/* One block: compares row i with the best of the rows before. */
#define ARG_BLOCK(id, T)                                                      \
    static void id(const arg_job *job, const sb_axis_block *b)                \
    {                                                                         \
        T best[SB_AXIS_BLOCK], row[SB_AXIS_BLOCK];                            \
        int64_t *y = job->y + b->row * job->walk.inner + b->col;              \
        for (size_t i = 0; i < job->walk.n; i++) {                            \
            size_t at = b->at + i * job->walk.inner;                          \
            sb_convert(job->x->dtype,                                         \
                       (const char *)job->x->data + at * job->size, job->as,  \
                       row, b->width);                                        \
            for (size_t j = 0; j < b->width; j++) {                           \
                if (i > 0 &&                                                  \
                    !arg_max_prefer(row[j] > best[j], row[j] < best[j], job)) \
                    continue;                                                 \
                best[j] = row[j];                                             \
                y[j] = (int64_t)i;                                            \
            }                                                                 \
        }                                                                     \
    }

ARG_BLOCK(arg_block_f64, double)
ARG_BLOCK(arg_block_i64, int64_t)
ARG_BLOCK(arg_block_u64, uint64_t)

/* The usual case without conversions: a contiguous row of floats. */
static void arg_row_f32(const arg_job *job, const sb_axis_block *b)
{
    const float *x = (const float *)job->x->data + b->at;
    size_t best = 0;

    for (size_t i = 1; i < job->walk.n; i++)
        if (arg_max_prefer(x[i] > x[best], x[i] < x[best], job))
            best = i;
    job->y[b->row] = (int64_t)best;
}

static void arg_items(void *arg, size_t begin, size_t end)
{
    const arg_job *job = arg;

    for (size_t item = begin; item < end; item++) {
        sb_axis_block b = sb_axis_walk_block(&job->walk, item);

        if (job->x->dtype == SB_DTYPE_F32 && job->walk.inner == 1)
            arg_row_f32(job, &b);
        else if (job->as == SB_DTYPE_F64)
            arg_block_f64(job, &b);
        else if (job->as == SB_DTYPE_U64)
            arg_block_u64(job, &b);
        else
            arg_block_i64(job, &b);
    }
}

static sb_status arg_infer(sb_infer *in)
{
    const arg_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    sb_shape out = {.rank = 0};
    int axis = 0;

    if (x->rank < 0) {
        out = sb_shape_unknown();
        sb_infer_set(in, 0, SB_DTYPE_I64, &out);
        return SB_OK;
    }
    if (x->rank > 0)
        SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    for (int d = 0; d < x->rank; d++) {
        if (d != axis)
            out.dim[out.rank++] = x->dim[d];
        else if (a->keepdims)
            out.dim[out.rank++] = 1;
    }
    sb_infer_set(in, 0, SB_DTYPE_I64, &out);
    return SB_OK;
}

static sb_status arg_prepare(sb_kernel *k)
{
    sb_dtype_class cls = sb_dtype_get(k->in[0]->dtype)->cls;

    if (cls == SB_CLASS_OTHER || sb_dtype_size(k->in[0]->dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

static sb_status arg_run(sb_kernel *k, bool least)
{
    const arg_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    arg_job job = {.walk = sb_axis_walk_make(x, a->axis),
                   .x = x,
                   .y = k->out[0]->data,
                   .as = sb_dtype_is_float(x->dtype) ? SB_DTYPE_F64
                         : x->dtype == SB_DTYPE_U64  ? SB_DTYPE_U64
                                                     : SB_DTYPE_I64,
                   .size = sb_dtype_size(x->dtype),
                   .least = least,
                   .last = a->last != 0};

    if (sb_tensor_count(k->out[0]) == 0)
        return SB_OK;
    if (job.walk.n == 0)
        return sb_kernel_fail(k, SB_BAD_DATA, "the axis has no elements");
    sb_axis_walk_run(k->ctx, &job.walk, arg_items, &job);
    return SB_OK;
}

static sb_status arg_max_forward(sb_kernel *k)
{
    return arg_run(k, false);
}

static sb_status arg_min_forward(sb_kernel *k)
{
    return arg_run(k, true);
}

/* Without its channels a tensor in channels-last order is a plain one. */
static void arg_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const arg_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int axis = sb_axis_norm(a->axis, x->rank);

    if (axis == 0)
        return;
    sb_move_layout(k, in, out);
    if (axis == 1 || k->out[0]->rank < 3)
        out[0] = SB_LAYOUT_PLAIN;
}

#define ARG_ROW(name_, forward_)                                            \
    {                                                                       \
        .name = name_, .since = 12, .in_min = 1, .in_max = 1, .out_min = 1, \
        .out_max = 1, .attrs_size = sizeof(arg_attrs), .attrs = attrs,      \
        .tie = sb_tie_but_axis, .batch = sb_batch_arg, .infer = arg_infer,  \
        .layout = arg_layout, .prepare = arg_prepare, .forward = forward_,  \
        .flags = SB_OP_FLAT,                                                \
    }

const sb_op_def sb_op_arg_max = ARG_ROW("ArgMax", arg_max_forward);
const sb_op_def sb_op_arg_min = ARG_ROW("ArgMin", arg_min_forward);
