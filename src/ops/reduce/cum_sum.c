/* CumSum, CumProd: running sums and products along an axis.
 *
 * `exclusive` leaves out the element itself, `reverse` runs from the end.
 * Floats run in double, integers in 64 bits that wrap. */
#include "ops/batch_rules.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/axis_walk.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t exclusive, reverse;
} cum_attrs;

static const sb_attr_def attrs[] = {
    {"exclusive", SB_ATTR_INT, offsetof(cum_attrs, exclusive), .i = 0,
     .flag = true},
    {"reverse", SB_ATTR_INT, offsetof(cum_attrs, reverse), .i = 0,
     .flag = true},
    {0},
};

typedef struct cum_job {
    sb_axis_walk walk;
    const sb_tensor *x;
    sb_tensor *y;
    sb_dtype as;
    size_t size;
    bool exclusive, reverse, product;
} cum_job;

#define CUM_BLOCK(id, T)                                                   \
    static void id(const cum_job *job, const sb_axis_block *b)             \
    {                                                                      \
        T acc[SB_AXIS_BLOCK], row[SB_AXIS_BLOCK];                          \
        for (size_t j = 0; j < b->width; j++)                              \
            acc[j] = job->product;                                         \
        for (size_t step = 0; step < job->walk.n; step++) {                \
            size_t i = job->reverse ? job->walk.n - 1 - step : step;       \
            size_t at = (b->at + i * job->walk.inner) * job->size;         \
            char *y = (char *)job->y->data + at;                           \
            sb_convert(job->x->dtype, (const char *)job->x->data + at,     \
                       job->as, row, b->width);                            \
            if (job->exclusive)                                            \
                sb_convert(job->as, acc, job->y->dtype, y, b->width);      \
            for (size_t j = 0; j < b->width; j++)                          \
                acc[j] = job->product ? acc[j] * row[j] : acc[j] + row[j]; \
            if (!job->exclusive)                                           \
                sb_convert(job->as, acc, job->y->dtype, y, b->width);      \
        }                                                                  \
    }

CUM_BLOCK(cum_block_f64, double)
CUM_BLOCK(cum_block_u64, uint64_t)

static void cum_items(void *arg, size_t begin, size_t end)
{
    const cum_job *job = arg;

    for (size_t item = begin; item < end; item++) {
        sb_axis_block b = sb_axis_walk_block(&job->walk, item);

        if (job->as == SB_DTYPE_F64)
            cum_block_f64(job, &b);
        else
            cum_block_u64(job, &b);
    }
}

static sb_status cum_prepare(sb_kernel *k)
{
    sb_dtype_class cls = sb_dtype_get(k->in[0]->dtype)->cls;

    if (cls == SB_CLASS_OTHER || cls == SB_CLASS_BOOL ||
        sb_dtype_size(k->in[0]->dtype) == 0)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    if (k->in[0]->rank == 0)
        return sb_kernel_fail(k, SB_BAD_MODEL, "a scalar has no axis");
    return SB_OK;
}

static sb_status cum_run(sb_kernel *k, bool product)
{
    const cum_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int64_t axis = 0;

    if (sb_kernel_ints(k, 1, &axis, 1) != 1 || axis < -x->rank ||
        axis >= x->rank)
        return sb_kernel_fail(k, SB_BAD_DATA,
                              "axis must be one integer that fits rank %d",
                              x->rank);
    /* Integers travel as bits: int64 and uint64 wrap alike. */
    cum_job job = {.walk = sb_axis_walk_make(x, axis),
                   .x = x,
                   .y = k->out[0],
                   .as = sb_dtype_is_float(x->dtype) ? SB_DTYPE_F64
                                                     : SB_DTYPE_U64,
                   .size = sb_dtype_size(x->dtype),
                   .exclusive = a->exclusive != 0,
                   .reverse = a->reverse != 0,
                   .product = product};
    if (sb_tensor_count(x) > 0)
        sb_axis_walk_run(k->ctx, &job.walk, cum_items, &job);
    return SB_OK;
}

static sb_status cum_sum_forward(sb_kernel *k)
{
    return cum_run(k, false);
}

static sb_status cum_prod_forward(sb_kernel *k)
{
    return cum_run(k, true);
}

#define CUM_ROW(name_, since_, forward_, grad_)                              \
    {                                                                        \
        .name = name_, .since = since_, .in_min = 2, .in_max = 2,            \
        .out_min = 1, .out_max = 1, .flags = SB_OP_INPLACE,                  \
        .attrs_size = sizeof(cum_attrs), .attrs = attrs,                     \
        .tie = sb_tie_cumulate, .batch = sb_batch_cumulate,                  \
        .infer = sb_infer_same, .prepare = cum_prepare, .forward = forward_, \
        .grad = grad_,                                                       \
    }

const sb_op_def sb_op_cum_prod = CUM_ROW("CumProd", 26, cum_prod_forward, NULL);
const sb_op_def sb_op_cum_sum =
    CUM_ROW("CumSum", 11, cum_sum_forward, sb_grad_cum_sum);
