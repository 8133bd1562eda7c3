/* com.microsoft QLinearSoftmax.
 *
 * exp() has 256 possible arguments once the greatest element of the row is
 * moved to the top of the byte range, so it is a table.  ONNX Runtime scales
 * the table up so that the sum just fits a float; numbers, types and rounding
 * here follow it:
 *
 *     t(i) = float(exp((i - 255 + shift) * x_scale)),
 *     shift = max(0, ln(FLT_MAX / n) - 5) / x_scale
 *     y = saturate(round_half_even(t * floor(1 / y_scale) / sum) + y_zero)
 *
 * `opset` below 13 means that all dimensions from `axis` on are one row. */
#include <float.h>
#include <math.h>

#include "base/threads.h"
#include "ops/quantized/quant_util.h"

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };

typedef struct qsoftmax_attrs {
    int64_t axis, opset;
} qsoftmax_attrs;

enum { AXIS_ABSENT = INT32_MIN };

static const sb_attr_def qsoftmax_attr_defs[] = {
    {.name = "axis",
     SB_ATTR_INT,
     offsetof(qsoftmax_attrs, axis),
     .i = AXIS_ABSENT},
    {.name = "opset", SB_ATTR_INT, offsetof(qsoftmax_attrs, opset), .i = 13},
    {0},
};

static int64_t axis_of(const qsoftmax_attrs *a)
{
    if (a->axis != AXIS_ABSENT)
        return a->axis;
    return a->opset < 13 ? 1 : -1;
}

static sb_status qsoftmax_prepare(sb_kernel *k)
{
    int64_t axis = axis_of(k->attrs);
    int rank = k->in[X]->rank;

    SB_TRY(sb_byte_check(k, X));
    if (axis < -rank || axis >= rank)
        return sb_kernel_fail(k, SB_BAD_MODEL, "axis %lld is outside rank %d",
                              (long long)axis, rank);
    SB_TRY(sb_qparam_check(k, X_SCALE, X_ZERO, k->in[X]->dtype));
    return sb_qparam_check(k, Y_SCALE, Y_ZERO, k->in[X]->dtype);
}

typedef struct qsoftmax_job {
    const sb_tensor *x;
    uint8_t *y;
    int64_t n, inner; /* elements of a row and the step between them */
    float table[256]; /* by distance to the greatest value: [255] is 0 away */
    float inverse;    /* floor(1 / y_scale) */
    int32_t zero;
} qsoftmax_job;

static void fill_table(qsoftmax_job *job, float x_scale)
{
    double shift = log((double)(FLT_MAX / (float)job->n)) - 5;

    shift = (shift > 0 ? shift : 0) / (double)x_scale;
    for (int i = 0; i < 256; i++)
        job->table[i] = (float)exp((i - 255 + shift) * (double)x_scale);
}

static void qsoftmax_rows(void *arg, size_t begin, size_t end)
{
    const qsoftmax_job *job = arg;
    float lo = (float)(sb_quant_min(job->x->dtype) - job->zero);
    float hi = (float)(sb_quant_max(job->x->dtype) - job->zero);

    for (size_t row = begin; row < end; row++) {
        int64_t outer = (int64_t)row / job->inner,
                in = (int64_t)row % job->inner;
        int64_t at = outer * job->n * job->inner + in;
        int32_t top = INT32_MIN;
        float sum = 0;

        for (int64_t i = 0; i < job->n; i++) {
            int32_t q = sb_byte_at(job->x, at + i * job->inner);
            top = q > top ? q : top;
        }
        int32_t up = 255 - top;
        for (int64_t i = 0; i < job->n; i++)
            sum += job->table[up + sb_byte_at(job->x, at + i * job->inner)];
        for (int64_t i = 0; i < job->n; i++) {
            float t = job->table[up + sb_byte_at(job->x, at + i * job->inner)];

            job->y[at + i * job->inner] =
                (uint8_t)(sb_round_clamp(t * job->inverse / sum, lo, hi) +
                          job->zero);
        }
    }
}

static sb_status qsoftmax_forward(sb_kernel *k)
{
    const qsoftmax_attrs *a = k->attrs;
    const sb_tensor *x = k->in[X];
    int axis = (int)(axis_of(a) < 0 ? axis_of(a) + x->rank : axis_of(a));
    sb_qparam y = sb_qparam_read(k, Y_SCALE, Y_ZERO);
    int64_t total = sb_tensor_count(x);
    qsoftmax_job job = {
        .x = x,
        .y = k->out[0]->data,
        .n = sb_dims_product(x->dims, axis, a->opset < 13 ? x->rank : axis + 1),
        .inner =
            a->opset < 13 ? 1 : sb_dims_product(x->dims, axis + 1, x->rank),
        .inverse = floorf(1 / y.scale),
        .zero = y.zero,
    };

    if (total == 0)
        return SB_OK;
    fill_table(&job, *(const float *)k->in[X_SCALE]->data);
    sb_parallel_for(k->ctx, (size_t)(total / job.n), 4, qsoftmax_rows, &job);
    return SB_OK;
}

const sb_op_def sb_op_ms_qlinear_softmax = {
    .name = "QLinearSoftmax",
    .domain = "com.microsoft",
    .since = 1,
    .in_min = 5,
    .in_max = 5,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INTEGER,
    .attrs_size = sizeof(qsoftmax_attrs),
    .attrs = qsoftmax_attr_defs,
    .infer = sb_infer_same,
    .prepare = qsoftmax_prepare,
    .forward = qsoftmax_forward,
};
