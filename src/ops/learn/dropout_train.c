/* sparsebit.DropoutTrain(x, counter) -> y: each element is 0 with probability
 * `ratio`, else divided by 1 - ratio.
 *
 * Which ones are dropped is a function of the counter, the stream (another one
 * for each node) and the place of the element alone, so that the gradient is
 * the same operator on dy: no mask is kept, and none depends on threads.  Where
 * several ranks share a batch, places are those in the whole batch. */
#include "base/threads.h"
#include "ops/grad/grad.h"
#include "ops/infer_util.h"

typedef struct {
    float ratio;
    int64_t stream;
} dropout_attrs;

static const sb_attr_def attrs[] = {
    {"ratio", SB_ATTR_FLOAT, offsetof(dropout_attrs, ratio), .f = 0.5f},
    {"stream", SB_ATTR_INT, offsetof(dropout_attrs, stream), .i = 0},
    {0},
};

typedef struct dropout_job {
    const float *x;
    float *y, scale;
    size_t first;        /* place of the first element */
    uint64_t key, below; /* dropped if the random bits are below */
} dropout_job;

/* SplitMix64: a counter, well mixed. */
static inline uint64_t dropout_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void dropout_range(void *arg, size_t begin, size_t end)
{
    const dropout_job *j = arg;

    for (size_t i = begin; i < end; i++)
        j->y[i] =
            dropout_mix(j->key ^ dropout_mix(j->first + i)) >> 11 < j->below
                ? 0
                : j->x[i] * j->scale;
}

static sb_status dropout_prepare(sb_kernel *k)
{
    const dropout_attrs *a = k->attrs;

    if (!(a->ratio >= 0 && a->ratio < 1))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "ratio is %g, want 0 to less than 1",
                              (double)a->ratio);
    if (k->in[1]->dtype != SB_DTYPE_I64 || sb_tensor_count(k->in[1]) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL, "the counter is not one int64");
    return SB_OK;
}

static sb_status dropout_forward(sb_kernel *k)
{
    const dropout_attrs *a = k->attrs;
    uint64_t counter = (uint64_t)sb_tensor_get_i64(k->in[1], 0);
    size_t n = (size_t)sb_tensor_count(k->in[0]);
    int rank = 0;

    (void)k->host->ranks(k, &rank);
    dropout_job job = {
        .first = (size_t)rank * n,
        .x = k->in[0]->data,
        .y = k->out[0]->data,
        .scale = 1.0f / (1.0f - a->ratio),
        .key = dropout_mix(dropout_mix((uint64_t)a->stream) ^ counter),
        .below = (uint64_t)((double)a->ratio * 0x1p53)};

    sb_parallel_for(k->ctx, n, 4096, dropout_range, &job);
    return SB_OK;
}

static sb_status dropout_grad(sb_grad *g)
{
    g->dx[0] = sb_emit(g, &(sb_emit_spec){.op = "DropoutTrain",
                                          .in = {g->dy[0], sb_grad_in(g, 1)},
                                          .n_in = 2,
                                          .attrs = g->node->attrs,
                                          .n_attrs = g->node->n_attrs});
    return SB_OK;
}

const sb_op_def sb_op_dropout_train = {
    .name = "DropoutTrain",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .any_type = 1u << 1,
    .attrs_size = sizeof(dropout_attrs),
    .attrs = attrs,
    .infer = sb_infer_same,
    .prepare = dropout_prepare,
    .forward = dropout_forward,
    .grad = dropout_grad,
};
