/* sparsebit.MixTrain(counter, share, x, q) -> y: each element is that of q with
 * probability `share`, else that of x.
 *
 * Of values before and behind a quantizer it makes such that are rounded only
 * here and there (X. Wei et al., QDrop: randomly dropping quantization for
 * extremely low-bit post-training quantization, arXiv 2203.05740).
 *
 * As in DropoutTrain the choice is a function of the counter, the stream
 * (another one for each node) and the place of the element alone, so that
 * gradients are the same operator with dy for one of the two, and nothing for
 * the other, which stands for zeros.  Places are those in row-major order,
 * whatever the layout: forward and backward nodes need not have the same. */
#include "ops/learn/mix_train.h"

#include <math.h>

#include "base/simd.h"
#include "base/threads.h"
#include "dnn/vec_math.h"
#include "ops/grad/grad.h"
#include "ops/infer_util.h"

enum { COUNTER, SHARE, X, Q };
enum { CHUNK = 1024 };

typedef struct mix_attrs {
    int64_t stream;
} mix_attrs;

static const sb_attr_def attrs[] = {
    {"stream", SB_ATTR_INT, offsetof(mix_attrs, stream), .i = 0},
    {0},
};

typedef struct mix_job {
    const float *x, *q; /* NULL: zeros */
    float *y;
    int64_t n;              /* elements in all, */
    int64_t channels, step; /* neighbors in memory, and how far they are from
                               each other in row-major order */
    uint32_t key, below;    /* q if the random bits are below */
} mix_job;

/* 24 random bits of a place: a product with an odd number, well mixed. */
SB_VEC_INLINE uint32_t mix_bits(uint32_t key, uint32_t place)
{
    uint32_t h = place * UINT32_C(0x9e3779b1) ^ key;

    h = (h ^ h >> 16) * UINT32_C(0x7feb352d);
    h = (h ^ h >> 15) * UINT32_C(0x846ca68b);
    return (h ^ h >> 16) >> 8;
}

/* `n` neighbors from `at` on; the first is at `place` in row-major order. */
SB_HOT static void mix_run(const mix_job *j, int64_t at, int64_t n,
                           int64_t place)
{
    const float *x = j->x ? j->x + at : NULL, *q = j->q ? j->q + at : NULL;
    float *y = j->y + at;
    uint32_t first = (uint32_t)place, step = (uint32_t)j->step;

    if (x && q) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = mix_bits(j->key, first + (uint32_t)i * step) < j->below
                       ? q[i]
                       : x[i];
    } else if (q) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = mix_bits(j->key, first + (uint32_t)i * step) < j->below
                       ? q[i]
                       : 0;
    } else {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] = mix_bits(j->key, first + (uint32_t)i * step) < j->below
                       ? 0
                       : x[i];
    }
}

static void mix_chunks(void *arg, size_t begin, size_t end)
{
    const mix_job *j = arg;
    int64_t last = (int64_t)end * CHUNK;

    last = last < j->n ? last : j->n;
    for (int64_t at = (int64_t)begin * CHUNK, n; at < last; at += n) {
        int64_t row = at / j->channels, c = at % j->channels, place = at;

        n = last - at;
        if (j->step > 1) { /* channels last */
            n = n < j->channels - c ? n : j->channels - c;
            place = (row / j->step * j->channels + c) * j->step + row % j->step;
        }
        mix_run(j, at, n, place);
    }
}

static void mix_all(sb_ctx *ctx, mix_job *j, const sb_mix_choice *choice)
{
    uint64_t key = (choice->counter + 1) * UINT64_C(0x9e3779b97f4a7c15) +
                   choice->stream * UINT64_C(0xbf58476d1ce4e5b9);

    j->key = (uint32_t)(key ^ key >> 32);
    j->below =
        choice->share > 0 ? (uint32_t)(fmin(choice->share, 1) * 0x1p24) : 0;
    sb_parallel_for(ctx, (size_t)(j->n / CHUNK + (j->n % CHUNK != 0)), 4,
                    mix_chunks, j);
}

void sb_mix(sb_ctx *ctx, const sb_mix_choice *choice, const float *x,
            const float *q, float *y, int64_t n)
{
    mix_job job = {.x = x, .q = q, .y = y, .n = n, .channels = 1, .step = 1};

    mix_all(ctx, &job, choice);
}

static const sb_tensor *mix_given(const sb_kernel *k)
{
    const sb_tensor *x = sb_kernel_in(k, X);

    return x ? x : sb_kernel_in(k, Q);
}

static sb_status mix_infer(sb_infer *in)
{
    for (uint32_t i = X; i <= Q; i++)
        if (sb_infer_in(in, i))
            in->out[0].type = in->in[i]->type;
    return SB_OK;
}

static void mix_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    bool plain = true;

    for (uint32_t i = X; i <= Q; i++) {
        const sb_tensor *t = sb_kernel_in(k, i);

        plain = plain && (!t || t->rank < 3 || t->layout == SB_LAYOUT_PLAIN);
    }
    for (uint32_t i = X; i <= Q && !plain; i++)
        if (sb_kernel_in(k, i))
            in[i] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static sb_status mix_prepare(sb_kernel *k)
{
    const sb_tensor *x = sb_kernel_in(k, X), *q = sb_kernel_in(k, Q);

    if (!mix_given(k) || (x && q && sb_tensor_count(x) != sb_tensor_count(q)))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "want two inputs of the same size");
    if (k->in[COUNTER]->dtype != SB_DTYPE_I64 ||
        sb_tensor_count(k->in[COUNTER]) != 1 ||
        sb_tensor_count(k->in[SHARE]) != 1)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "the counter is not one int64, or the share not "
                              "one float");
    return SB_OK;
}

static sb_status mix_forward(sb_kernel *k)
{
    const mix_attrs *a = k->attrs;
    const sb_tensor *t = mix_given(k);
    const sb_mix_choice choice = {
        .counter = (uint64_t)sb_tensor_get_i64(k->in[COUNTER], 0),
        .stream = (uint64_t)a->stream,
        .share = sb_tensor_get_f64(k->in[SHARE], 0)};
    const sb_tensor *x = sb_kernel_in(k, X), *q = sb_kernel_in(k, Q);
    mix_job job = {.x = x ? x->data : NULL,
                   .q = q ? q->data : NULL,
                   .y = k->out[0]->data,
                   .n = sb_tensor_count(t),
                   .channels = 1,
                   .step = 1};

    if (t->layout == SB_LAYOUT_CHANNELS_LAST && job.n > 0) {
        job.channels = t->dims[1];
        job.step = sb_dims_product(t->dims, 2, t->rank);
    }
    mix_all(k->ctx, &job, &choice);
    return SB_OK;
}

static sb_status mix_grad(sb_grad *g)
{
    for (uint32_t i = X; i <= Q; i++) {
        sb_emit_spec spec = {.op = "MixTrain",
                             .in = {sb_grad_in(g, COUNTER),
                                    sb_grad_in(g, SHARE), SB_NONE, SB_NONE},
                             .n_in = 4,
                             .attrs = g->node->attrs,
                             .n_attrs = g->node->n_attrs};

        spec.in[i] = g->dy[0];
        if (g->wanted[i])
            g->dx[i] = sb_emit(g, &spec);
    }
    return SB_OK;
}

const sb_op_def sb_op_mix_train = {
    .name = "MixTrain",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 2,
    .in_max = 4,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .any_type = 1u << COUNTER,
    .attrs_size = sizeof(mix_attrs),
    .attrs = attrs,
    .infer = mix_infer,
    .layout = mix_layout,
    .prepare = mix_prepare,
    .forward = mix_forward,
    .grad = mix_grad,
};
