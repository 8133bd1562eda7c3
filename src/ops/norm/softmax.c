/* Softmax, LogSoftmax and Hardmax along one axis, in float32.
 *
 *     Softmax     y = exp(x - max) / sum(exp(x - max))
 *     LogSoftmax  y = x - max - log(sum(exp(x - max)))
 *     Hardmax     y = 1 at the first maximum, 0 elsewhere
 *
 * Opset 13 meaning only; the importer rewrites older nodes.  The axis splits
 * the tensor into [outer, n, inner].  For inner = 1 a row is contiguous;
 * otherwise columns are worked on in blocks that are contiguous in memory. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "dnn/vec_math.h"
#include "ops/batch_rules.h"
#include "ops/elementwise/elementwise.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"
#include "ops/norm/softmax.h"
#include "ops/reduce/axis_walk.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis;
} softmax_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(softmax_attrs, axis), .i = -1},
    {0},
};

typedef struct softmax_job {
    sb_axis_walk walk;
    const float *x;
    float *y;
    const struct softmax_family *family;
} softmax_job;

/* ---- one block of columns ----------------------------------------------- */

/* max[j] over the axis of `width` columns; NaN wins. */
SB_VEC_INLINE void block_max(const softmax_job *job, const float *x,
                             size_t width, float *max)
{
    memcpy(max, x, width * sizeof *max);
    for (size_t i = 1; i < job->walk.n; i++) {
        const float *row = x + i * job->walk.inner;
        SB_SIMD
        for (size_t j = 0; j < width; j++)
            max[j] = row[j] > max[j] ? row[j] : max[j];
    }
}

/* Adds up exp(x - max), and writes it to y if `store`, which is a constant
 * wherever this is inlined. */
SB_VEC_INLINE void block_exp(const softmax_job *job, const float *x, float *y,
                             size_t width, const float *max, float *sum,
                             bool store)
{
    memset(sum, 0, width * sizeof *sum);
    for (size_t i = 0; i < job->walk.n; i++) {
        const float *row = x + i * job->walk.inner;
        SB_SIMD
        for (size_t j = 0; j < width; j++) {
            float e = sb_vec_expf(row[j] - max[j]);

            sum[j] += e;
            if (store)
                y[i * job->walk.inner + j] = e;
        }
    }
}

SB_HOT static void softmax_block(const softmax_job *job, const float *x,
                                 float *y, size_t width)
{
    float max[SB_AXIS_BLOCK], sum[SB_AXIS_BLOCK];

    block_max(job, x, width, max);
    block_exp(job, x, y, width, max, sum, true);
    for (size_t j = 0; j < width; j++)
        sum[j] = 1.0f / sum[j];
    for (size_t i = 0; i < job->walk.n; i++) {
        float *row = y + i * job->walk.inner;
        SB_SIMD
        for (size_t j = 0; j < width; j++)
            row[j] *= sum[j];
    }
}

SB_HOT static void log_softmax_block(const softmax_job *job, const float *x,
                                     float *y, size_t width)
{
    float max[SB_AXIS_BLOCK], sum[SB_AXIS_BLOCK];

    block_max(job, x, width, max);
    block_exp(job, x, y, width, max, sum, false);
    for (size_t j = 0; j < width; j++)
        sum[j] = logf(sum[j]);
    for (size_t i = 0; i < job->walk.n; i++) {
        const float *from = x + i * job->walk.inner;
        float *to = y + i * job->walk.inner;
        SB_SIMD
        for (size_t j = 0; j < width; j++)
            to[j] = from[j] - max[j] - sum[j];
    }
}

static void hardmax_block(const softmax_job *job, const float *x, float *y,
                          size_t width)
{
    for (size_t j = 0; j < width; j++) {
        size_t best = 0;

        for (size_t i = 1; i < job->walk.n; i++)
            if (x[i * job->walk.inner + j] > x[best * job->walk.inner + j])
                best = i;
        /* NaN is no maximum: then there is none, as in ONNX Runtime. */
        if (isnan(x[best * job->walk.inner + j]))
            best = job->walk.n;
        for (size_t i = 0; i < job->walk.n; i++)
            y[i * job->walk.inner + j] = i == best;
    }
}

/* ---- one contiguous row ------------------------------------------------- */
/* Sums run in 8 lanes, for speed and because long sums of floats are more
 * exact that way. */
enum { LANES = 8 };

SB_VEC_INLINE float row_max(const float *x, size_t n)
{
    float lane[LANES], max;
    size_t i = 0;

    for (size_t l = 0; l < LANES; l++)
        lane[l] = x[0];
    for (; i + LANES <= n; i += LANES) {
        SB_SIMD
        for (size_t l = 0; l < LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    }
    max = lane[0];
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t l = 1; l < LANES; l++)
        max = lane[l] > max ? lane[l] : max;
    return max;
}

SB_VEC_INLINE float add_lanes(const float lane[LANES])
{
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/* Adds up exp(x - max), and writes it to y unless that is NULL. */
SB_VEC_INLINE float row_exp(const float *x, float *y, size_t n, float max)
{
    float lane[LANES] = {0}, e[SB_AXIS_BLOCK] = {0};

    for (size_t i = 0; i < n; i += SB_AXIS_BLOCK) {
        size_t some = n - i < SB_AXIS_BLOCK ? n - i : SB_AXIS_BLOCK;

        SB_SIMD
        for (size_t j = 0; j < some; j++)
            e[j] = sb_vec_expf(x[i + j] - max);
        for (size_t j = some; j % LANES; j++)
            e[j] = 0;
        for (size_t j = 0; j < some; j += LANES) {
            SB_SIMD
            for (size_t l = 0; l < LANES; l++)
                lane[l] += e[j + l];
        }
        if (y)
            memcpy(y + i, e, some * sizeof *e);
    }
    return add_lanes(lane);
}

SB_HOT static void softmax_row(const float *x, float *y, size_t n)
{
    float scale = 1.0f / row_exp(x, y, n, row_max(x, n));

    SB_SIMD
    for (size_t i = 0; i < n; i++)
        y[i] *= scale;
}

void sb_softmax_f32(const float *x, float *y, size_t n)
{
    softmax_row(x, y, n);
}

SB_HOT static float log_sum_exp_row(const float *x, size_t n)
{
    float max = row_max(x, n);

    return max + logf(row_exp(x, NULL, n, max));
}

float sb_log_sum_exp_f32(const float *x, size_t n)
{
    return log_sum_exp_row(x, n);
}

SB_HOT static void log_softmax_row(const float *x, float *y, size_t n)
{
    float max = row_max(x, n);
    float shift = logf(row_exp(x, NULL, n, max));

    SB_SIMD
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] - max - shift;
}

/* ---- many short rows ---------------------------------------------------- */
/* Scores of two classes, of some anchors: rows too short for vectors.  A block
 * of them is turned on its side, so that a vector holds one element of each. */
enum { SHORT = 16 };

/* Columns of a block `width` apart from each other. */
typedef struct sides {
    float v[SHORT * SB_AXIS_BLOCK];
} sides;

SB_HOT static void turn(const float *x, size_t rows, size_t n, float *v)
{
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            v[i * SB_AXIS_BLOCK + r] = x[r * n + i];
}

SB_HOT static void turn_back(const float *v, size_t rows, size_t n, float *y)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++)
            y[r * n + i] = v[i * SB_AXIS_BLOCK + r];
}

/* ---- the three operators ------------------------------------------------ */

typedef struct softmax_family {
    void (*block)(const softmax_job *job, const float *x, float *y,
                  size_t width);
    void (*row)(const float *x, float *y, size_t n); /* (optional) */
} softmax_family;

static void short_rows(const softmax_job *job, size_t begin, size_t end)
{
    softmax_job turned = *job;
    size_t n = job->walk.n;
    sides s;

    turned.walk.inner = SB_AXIS_BLOCK;
    for (size_t row = begin; row < end; row += SB_AXIS_BLOCK) {
        size_t rows = end - row < SB_AXIS_BLOCK ? end - row : SB_AXIS_BLOCK;

        turn(job->x + row * n, rows, n, s.v);
        job->family->block(&turned, s.v, s.v, rows);
        turn_back(s.v, rows, n, job->y + row * n);
    }
}

static void softmax_items(void *arg, size_t begin, size_t end)
{
    const softmax_job *job = arg;

    if (job->walk.inner == 1 && job->walk.n <= SHORT) {
        short_rows(job, begin, end);
        return;
    }
    for (size_t item = begin; item < end; item++) {
        sb_axis_block b = sb_axis_walk_block(&job->walk, item);

        if (job->walk.inner == 1 && job->family->row)
            job->family->row(job->x + b.at, job->y + b.at, job->walk.n);
        else
            job->family->block(job, job->x + b.at, job->y + b.at, b.width);
    }
}

static sb_status softmax_infer(sb_infer *in)
{
    const softmax_attrs *a = in->attrs;
    int rank = in->in[0]->type.shape.rank, axis = 0;

    /* A scalar is its own row. */
    if (rank > 0)
        SB_TRY(sb_infer_axis(in, a->axis, rank, &axis));
    return sb_infer_same(in);
}

static sb_status softmax_prepare(sb_kernel *k)
{
    if (k->in[0]->dtype != SB_DTYPE_F32)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(k->in[0]->dtype));
    return SB_OK;
}

static sb_status softmax_forward(sb_kernel *k)
{
    const softmax_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    softmax_job job = {.walk = sb_axis_walk_make(x, a->axis),
                       .x = x->data,
                       .y = k->out[0]->data,
                       .family = k->op->aux};

    if (sb_tensor_count(x) > 0)
        sb_axis_walk_run(k->ctx, &job.walk, softmax_items, &job);
    return SB_OK;
}

static const softmax_family softmax = {softmax_block, softmax_row};
static const softmax_family log_softmax = {log_softmax_block, log_softmax_row};
static const softmax_family hardmax = {hardmax_block, NULL};

#define SOFTMAX_ROW(name_, family_, quant_, flags_, grad_)                     \
    {                                                                          \
        .quant = quant_, .name = name_, .since = 13, .in_min = 1, .in_max = 1, \
        .out_min = 1, .out_max = 1,                                            \
        .flags = SB_OP_F32 | SB_OP_INPLACE | (flags_), .grad = grad_,          \
        .attrs_size = sizeof(softmax_attrs), .attrs = attrs, .aux = family_,   \
        .tie = sb_tie_but_axis, .batch = sb_batch_but_axis,                    \
        .infer = softmax_infer, .layout = sb_move_layout,                      \
        .prepare = softmax_prepare, .forward = softmax_forward,                \
    }

const sb_op_def sb_op_hardmax =
    SOFTMAX_ROW("Hardmax", &hardmax, SB_ROLE_UNKNOWN, SB_OP_FLAT, NULL);
const sb_op_def sb_op_log_softmax =
    SOFTMAX_ROW("LogSoftmax", &log_softmax, SB_ROLE_SINGLE, 0, sb_grad_softmax);
const sb_op_def sb_op_softmax =
    SOFTMAX_ROW("Softmax", &softmax, SB_ROLE_SINGLE, 0, sb_grad_softmax);
