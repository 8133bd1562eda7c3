/* Losses over classes, along the last axis of the logits x:
 *
 *     CrossEntropy(x, labels)   -sum_c t_c log p_c, where t is 1 - smoothing at
 *                               the label plus smoothing / C everywhere
 *     KlDivergence(x, teacher)  T^2 sum_c q_c (log q_c - log p_c), where
 *                               p = softmax(x / T), q = softmax(teacher / T)
 *
 * averaged over all rows but those whose label is ignore_index; 0 if there are
 * none.  Where ranks share a batch the mean of their losses is that of all
 * rows, wherever those that do not count may be.  Softmax and loss are one
 * pass; the gradients compute the softmax again instead of keeping it:
 *
 *     dx = dloss / rows (p - t),   dx = dloss T / rows (p - q)
 */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/grad/grad.h"
#include "ops/move/move_util.h"
#include "ops/norm/softmax.h"

typedef struct {
    float smoothing, temperature;
    int64_t ignore_index;
} class_loss_attrs;

static const sb_attr_def entropy_table[] = {
    {"ignore_index", SB_ATTR_INT, offsetof(class_loss_attrs, ignore_index),
     .i = -100},
    {"smoothing", SB_ATTR_FLOAT, offsetof(class_loss_attrs, smoothing), .f = 0},
    {0},
};

static const sb_attr_def kl_table[] = {
    {"temperature", SB_ATTR_FLOAT, offsetof(class_loss_attrs, temperature),
     .f = 1},
    {0},
};

typedef struct class_loss_job {
    const class_loss_attrs *attrs;
    const float *x, *teacher; /* [rows, n] */
    const sb_tensor *labels;
    size_t rows, n;
    double *loss; /* by row */
    float *dx;    /* [rows, n] */
    float factor; /* of the gradient */
} class_loss_job;

/* ---- the rule: dx from x, the other input, and the gradient of the loss --- */

static sb_status class_loss_grad(sb_grad *g)
{
    if (g->wanted[1])
        return sb_grad_refuse(g, "the target");
    g->dx[0] = sb_emit(
        g, &(sb_emit_spec){.op = g->op->aux ? "CrossEntropyGrad"
                                            : "KlDivergenceGrad",
                           .in = {sb_grad_in(g, 0), sb_grad_in(g, 1), g->dy[0]},
                           .n_in = 3,
                           .attrs = g->node->attrs,
                           .n_attrs = g->node->n_attrs});
    return SB_OK;
}

/* ---- types and shapes --------------------------------------------------- */

static sb_status class_loss_infer(sb_infer *in)
{
    sb_infer_set(in, 0, in->in[0]->type.dtype, &(sb_shape){.rank = 0});
    return SB_OK;
}

static bool class_loss_fits(const sb_kernel *k)
{
    const sb_tensor *x = k->in[0], *t = k->in[1];
    bool labels = k->op->aux != NULL;
    int rank = x->rank - labels;
    bool fits = x->rank >= 1 && t->rank == rank && x->dims[x->rank - 1] > 0;

    for (int i = 0; fits && i < rank; i++)
        fits = x->dims[i] == t->dims[i];
    return fits;
}

static sb_status class_loss_prepare(sb_kernel *k)
{
    const class_loss_attrs *a = k->attrs;
    const sb_tensor *t = k->in[1];
    char logits[128], target[128];
    size_t rows =
        (size_t)sb_dims_product(k->in[0]->dims, 0, k->in[0]->rank - 1);

    if (!class_loss_fits(k))
        return sb_kernel_fail(
            k, SB_BAD_MODEL,
            "logits %s (classes last) and target %s do not fit together",
            sb_tensor_describe(k->in[0], logits, sizeof logits),
            sb_tensor_describe(t, target, sizeof target));
    if (k->op->aux && t->dtype != SB_DTYPE_I32 && t->dtype != SB_DTYPE_I64)
        return sb_kernel_fail(k, SB_BAD_MODEL, "labels of type %s",
                              sb_dtype_name(t->dtype));
    if (k->op->aux && !(a->smoothing >= 0 && a->smoothing <= 1))
        return sb_kernel_fail(k, SB_BAD_MODEL, "smoothing is %g, want 0 to 1",
                              (double)a->smoothing);
    if (!k->op->aux && !(a->temperature > 0))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "temperature is %g, want more than 0",
                              (double)a->temperature);
    k->scratch_size = rows * sizeof(double) + 1;
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */

/* The label of a row; -1: ignored. */
static int64_t class_loss_label(const class_loss_job *job, size_t row)
{
    int64_t label = sb_index_at(job->labels, (int64_t)row);

    return label == job->attrs->ignore_index ? -1 : label;
}

static void entropy_rows(void *arg, size_t begin, size_t end)
{
    const class_loss_job *job = arg;
    double smooth = (double)job->attrs->smoothing;

    for (size_t row = begin; row < end; row++) {
        const float *x = job->x + row * job->n;
        int64_t label = class_loss_label(job, row);
        double sum = 0;

        job->loss[row] = 0;
        if (label < 0)
            continue;
        double log_sum = (double)sb_log_sum_exp_f32(x, job->n);
        for (size_t i = 0; smooth > 0 && i < job->n; i++)
            sum += (double)x[i];
        job->loss[row] = log_sum - (1 - smooth) * (double)x[label] -
                         smooth * sum / (double)job->n;
    }
}

static void entropy_grad_rows(void *arg, size_t begin, size_t end)
{
    const class_loss_job *job = arg;
    const float each = job->attrs->smoothing / (float)job->n;

    for (size_t row = begin; row < end; row++) {
        float *dx = job->dx + row * job->n;
        int64_t label = class_loss_label(job, row);

        if (label < 0) {
            memset(dx, 0, job->n * sizeof *dx);
            continue;
        }
        sb_softmax_f32(job->x + row * job->n, dx, job->n);
        dx[label] -= 1.0f - job->attrs->smoothing;
        SB_SIMD
        for (size_t i = 0; i < job->n; i++)
            dx[i] = (dx[i] - each) * job->factor;
    }
}

/* log(sum(exp(x / T))), without memory for x / T. */
static double kl_log_sum(const float *x, size_t n, double inverse)
{
    double top = (double)x[0], sum = 0;

    for (size_t i = 1; i < n; i++)
        top = (double)x[i] > top ? (double)x[i] : top;
    for (size_t i = 0; i < n; i++)
        sum += exp(((double)x[i] - top) * inverse);
    return log(sum) + top * inverse;
}

static void kl_rows(void *arg, size_t begin, size_t end)
{
    const class_loss_job *job = arg;
    double t = (double)job->attrs->temperature, inverse = 1 / t;

    for (size_t row = begin; row < end; row++) {
        const float *x = job->x + row * job->n;
        const float *y = job->teacher + row * job->n;
        double log_x = kl_log_sum(x, job->n, inverse);
        double log_y = kl_log_sum(y, job->n, inverse), sum = 0;

        for (size_t i = 0; i < job->n; i++) {
            double log_q = (double)y[i] * inverse - log_y;
            sum += exp(log_q) * (log_q - ((double)x[i] * inverse - log_x));
        }
        job->loss[row] = t * t * sum;
    }
}

static void kl_grad_rows(void *arg, size_t begin, size_t end)
{
    const class_loss_job *job = arg;
    double t = (double)job->attrs->temperature, inverse = 1 / t;

    for (size_t row = begin; row < end; row++) {
        const float *x = job->x + row * job->n;
        const float *y = job->teacher + row * job->n;
        float *dx = job->dx + row * job->n;
        double log_x = kl_log_sum(x, job->n, inverse);
        double log_y = kl_log_sum(y, job->n, inverse);

        for (size_t i = 0; i < job->n; i++)
            dx[i] = (float)((exp((double)x[i] * inverse - log_x) -
                             exp((double)y[i] * inverse - log_y)) *
                            t) *
                    job->factor;
    }
}

/* ---- running ------------------------------------------------------------ */

/* Checks labels; how many rows count, of a rank on average. */
static sb_status class_loss_count(sb_kernel *k, const class_loss_job *job,
                                  double *count)
{
    int rank;

    *count = (double)job->rows;
    for (size_t row = 0; job->labels && row < job->rows; row++) {
        int64_t label = sb_index_at(job->labels, (int64_t)row);
        if (label == job->attrs->ignore_index)
            --*count;
        else if (label < 0 || label >= (int64_t)job->n)
            return sb_kernel_fail(k, SB_BAD_DATA,
                                  "label %lld of row %zu is outside %zu "
                                  "classes",
                                  (long long)label, row, job->n);
    }
    SB_TRY(k->host->sum(k, count, 1));
    *count /= (double)k->host->ranks(k, &rank);
    return SB_OK;
}

static sb_status class_loss_job_of(sb_kernel *k, class_loss_job *job,
                                   double *count)
{
    const sb_tensor *x = k->in[0];

    *job = (class_loss_job){
        .attrs = k->attrs,
        .x = x->data,
        .n = (size_t)x->dims[x->rank - 1],
        .rows = (size_t)sb_dims_product(x->dims, 0, x->rank - 1),
        .labels = k->op->aux ? k->in[1] : NULL,
        .teacher = k->op->aux ? NULL : k->in[1]->data,
        .loss = k->scratch};
    return class_loss_count(k, job, count);
}

static void class_loss_run(const sb_kernel *k, class_loss_job *job,
                           sb_range_fn fn)
{
    sb_parallel_for(k->ctx, job->rows, 4096 / job->n + 1, fn, job);
}

static sb_status class_loss_forward(sb_kernel *k)
{
    class_loss_job job;
    double count = 0, sum = 0;

    SB_TRY(class_loss_job_of(k, &job, &count));
    class_loss_run(k, &job, job.labels ? entropy_rows : kl_rows);
    for (size_t row = 0; row < job.rows; row++)
        sum += job.loss[row];
    *(float *)k->out[0]->data = count > 0 ? (float)(sum / count) : 0;
    return SB_OK;
}

static sb_status class_loss_grad_prepare(sb_kernel *k)
{
    if (sb_tensor_count(k->in[2]) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the loss has %lld elements, want 1",
                              (long long)sb_tensor_count(k->in[2]));
    SB_TRY(class_loss_prepare(k));
    k->scratch_size = 0;
    return SB_OK;
}

static sb_status class_loss_grad_forward(sb_kernel *k)
{
    class_loss_job job;
    double count = 0;

    SB_TRY(class_loss_job_of(k, &job, &count));
    job.dx = k->out[0]->data;
    job.factor = count > 0 ? *(const float *)k->in[2]->data / (float)count : 0;
    class_loss_run(k, &job, job.labels ? entropy_grad_rows : kl_grad_rows);
    return SB_OK;
}

/* aux says that the target is labels. */
#define CLASS_LOSS(domain_, name_, n_in_, table_, any_, aux_, infer_,       \
                   prepare_, forward_, grad_)                               \
    {                                                                       \
        .name = name_, .domain = domain_, .since = 1, .in_min = n_in_,      \
        .in_max = n_in_, .out_min = 1, .out_max = 1, .flags = SB_OP_F32,    \
        .any_type = any_, .attrs_size = sizeof(class_loss_attrs),           \
        .attrs = table_, .aux = aux_, .infer = infer_, .prepare = prepare_, \
        .forward = forward_, .grad = grad_,                                 \
    }

/* clang-format off */
const sb_op_def sb_op_cross_entropy = CLASS_LOSS(SB_FUSED_DOMAIN, "CrossEntropy", 2, entropy_table, 2, "labels", class_loss_infer, class_loss_prepare, class_loss_forward, class_loss_grad);
const sb_op_def sb_op_cross_entropy_grad = CLASS_LOSS(SB_FUSED_DOMAIN, "CrossEntropyGrad", 3, entropy_table, 2, "labels", sb_infer_same, class_loss_grad_prepare, class_loss_grad_forward, NULL);
const sb_op_def sb_op_kl_divergence = CLASS_LOSS(SB_FUSED_DOMAIN, "KlDivergence", 2, kl_table, 0, NULL, class_loss_infer, class_loss_prepare, class_loss_forward, class_loss_grad);
const sb_op_def sb_op_kl_divergence_grad = CLASS_LOSS(SB_FUSED_DOMAIN, "KlDivergenceGrad", 3, kl_table, 0, NULL, sb_infer_same, class_loss_grad_prepare, class_loss_grad_forward, NULL);
/* clang-format on */
