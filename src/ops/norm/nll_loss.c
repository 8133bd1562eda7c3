/* NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
 *
 *     loss[n, d] = -weight[t] * p[n, t, d],  t = target[n, d]
 *
 * where p is the input, or the logarithm of its softmax over axis 1.  Targets
 * equal to ignore_index give 0 and do not count.  The mean divides by the sum
 * of the weights that were used.  Sums are in double, in order of elements. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "ops/grad/grad_rules.h"
#include "ops/infer_util.h"

enum { X, TARGET, WEIGHT };

typedef struct loss_attrs {
    int64_t ignore_index; /* INT64_MIN: none */
    const char *reduction;
} loss_attrs;

static const sb_attr_def loss_attr_defs[] = {
    {.name = "ignore_index",
     SB_ATTR_INT,
     offsetof(loss_attrs, ignore_index),
     .i = INT64_MIN},
    {.name = "reduction",
     SB_ATTR_STRING,
     offsetof(loss_attrs, reduction),
     .s = "mean"},
    {0},
};

static bool known_reduction(const char *r)
{
    return strcmp(r, "none") == 0 || strcmp(r, "sum") == 0 ||
           strcmp(r, "mean") == 0;
}

static sb_status loss_infer(sb_infer *in)
{
    const loss_attrs *a = in->attrs;
    sb_shape out = {.rank = 0};

    if (!known_reduction(a->reduction))
        return sb_infer_fail(in, "reduction is '%s', want none, sum or mean",
                             a->reduction);
    if (strcmp(a->reduction, "none") == 0)
        out = in->in[TARGET]->type.shape;
    sb_infer_set(in, 0, in->in[X]->type.dtype, &out);
    sb_infer_set(in, 1, in->in[X]->type.dtype, &in->in[X]->type.shape);
    return SB_OK;
}

static bool takes_softmax(const sb_kernel *k)
{
    return k->op->aux != NULL;
}

static sb_status loss_prepare(sb_kernel *k)
{
    const sb_tensor *x = k->in[X], *t = k->in[TARGET];
    const sb_tensor *w = sb_kernel_in(k, WEIGHT);

    if (x->rank < 2 || t->rank != x->rank - 1 || t->dims[0] != x->dims[0])
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "input of rank %d and target of rank %d do not "
                              "fit",
                              x->rank, t->rank);
    for (int d = 1; d < t->rank; d++)
        if (t->dims[d] != x->dims[d + 1])
            return sb_kernel_fail(
                k, SB_BAD_MODEL, "target has dimension %lld at %d, want %lld",
                (long long)t->dims[d], d, (long long)x->dims[d + 1]);
    if (t->dtype != SB_DTYPE_I32 && t->dtype != SB_DTYPE_I64)
        return sb_kernel_fail(k, SB_BAD_MODEL, "target has type %s",
                              sb_dtype_name(t->dtype));
    if (w && sb_tensor_count(w) != x->dims[1])
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "weight has %lld elements, want %lld",
            (long long)sb_tensor_count(w), (long long)x->dims[1]);
    if (takes_softmax(k) && !sb_kernel_out(k, 1))
        k->scratch_size = sb_tensor_bytes(x);
    return SB_OK;
}

typedef struct softmax_job {
    const float *x;
    float *y;
    int64_t n_class, inner;
} softmax_job;

static void log_softmax_range(void *arg, size_t begin, size_t end)
{
    const softmax_job *j = arg;

    for (size_t i = begin; i < end; i++) {
        int64_t at = (int64_t)i / j->inner * j->n_class * j->inner +
                     (int64_t)i % j->inner;
        float top = -INFINITY;
        double sum = 0;

        for (int64_t c = 0; c < j->n_class; c++)
            top = j->x[at + c * j->inner] > top ? j->x[at + c * j->inner] : top;
        for (int64_t c = 0; c < j->n_class; c++)
            sum += exp((double)(j->x[at + c * j->inner] - top));
        double log_sum = log(sum);
        for (int64_t c = 0; c < j->n_class; c++)
            j->y[at + c * j->inner] =
                (float)((double)(j->x[at + c * j->inner] - top) - log_sum);
    }
}

/* Losses of all elements into `each` (unless NULL), their sum and weights. */
static sb_status gather_loss(const sb_kernel *k, const float *p, float *each,
                             double *sum, double *weights)
{
    const loss_attrs *a = k->attrs;
    const sb_tensor *x = k->in[X], *target = k->in[TARGET];
    const sb_tensor *w = sb_kernel_in(k, WEIGHT);
    int64_t n_class = x->dims[1];
    int64_t inner = sb_dims_product(x->dims, 2, x->rank);
    int64_t n = sb_tensor_count(target);

    for (int64_t i = 0; i < n; i++) {
        int64_t t = sb_tensor_get_i64(target, i);
        double loss = 0, weight = 0;

        if (t != a->ignore_index) {
            if (t < 0 || t >= n_class)
                return sb_kernel_fail(k, SB_BAD_DATA,
                                      "target %lld is outside %lld classes",
                                      (long long)t, (long long)n_class);
            int64_t at = (i / inner * n_class + t) * inner + i % inner;

            weight = w ? (double)((const float *)w->data)[t] : 1;
            loss = -(double)p[at] * weight;
        }
        if (each)
            each[i] = (float)loss;
        *sum += loss;
        *weights += weight;
    }
    return SB_OK;
}

static sb_status loss_forward(sb_kernel *k)
{
    const loss_attrs *a = k->attrs;
    const sb_tensor *x = k->in[X];
    sb_tensor *log_prob = sb_kernel_out(k, 1), *out = sb_kernel_out(k, 0);
    const float *p = x->data;
    bool each = strcmp(a->reduction, "none") == 0;
    double sum = 0, weights = 0;

    if (takes_softmax(k)) {
        softmax_job job = {
            .x = x->data,
            .y = log_prob ? log_prob->data : k->scratch,
            .n_class = x->dims[1],
            .inner = sb_dims_product(x->dims, 2, x->rank),
        };

        sb_parallel_for(k->ctx, (size_t)(x->dims[0] * job.inner), 16,
                        log_softmax_range, &job);
        p = job.y;
    }
    if (!out)
        return SB_OK;
    SB_TRY(gather_loss(k, p, each ? out->data : NULL, &sum, &weights));
    if (!each)
        *(float *)out->data =
            (float)(strcmp(a->reduction, "sum") == 0 ? sum : sum / weights);
    return SB_OK;
}

const sb_op_def sb_op_negative_log_likelihood_loss = {
    .name = "NegativeLogLikelihoodLoss",
    .since = 13,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << 1,
    .attrs_size = sizeof(loss_attrs),
    .attrs = loss_attr_defs,
    .infer = loss_infer,
    .prepare = loss_prepare,
    .forward = loss_forward,
    .grad = sb_grad_nll_loss,
};

/* aux says that the input goes through a softmax first. */
const sb_op_def sb_op_softmax_cross_entropy_loss = {
    .name = "SoftmaxCrossEntropyLoss",
    .since = 13,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_F32,
    .any_type = 1u << 1,
    .attrs_size = sizeof(loss_attrs),
    .attrs = loss_attr_defs,
    .aux = "softmax",
    .infer = loss_infer,
    .prepare = loss_prepare,
    .forward = loss_forward,
    .grad = sb_grad_nll_loss,
};
