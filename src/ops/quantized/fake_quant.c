/* FakeQuant (ours): rounds to the values that an integer could hold,
 *
 *     y = (clamp(round_half_even(x / scale) + zero, qmin, qmax) - zero) * scale
 *
 * Inputs x, scale, zero_point, both float: per tensor, per index of `axis`, or
 * per block of `block_size` indices of it.  We clamp x / scale to [qmin - zero,
 * qmax - zero] before rounding, which gives the same and keeps the number small
 * enough to be rounded by an addition; then zero drops out.  A scale divides
 * rather than multiplying by its inverse: runtimes divide. */
#include "base/simd.h"
#include "base/threads.h"
#include "ops/grad/grad_rules.h"
#include "ops/quantized/quant_util.h"

typedef struct fake_quant_attrs {
    int64_t qmin, qmax, axis, block_size;
    float grad_factor; /* read by its gradient, as are those below */
    int64_t grad_by_count, samples, through;
} fake_quant_attrs;

#define ATTR(field) offsetof(fake_quant_attrs, field)

static const sb_attr_def attrs[] = {
    {"qmin", SB_ATTR_INT, ATTR(qmin), .required = true},
    {"qmax", SB_ATTR_INT, ATTR(qmax), .required = true},
    {"axis", SB_ATTR_INT, ATTR(axis), .i = 1},
    {"block_size", SB_ATTR_INT, ATTR(block_size), .i = 0},
    {"grad_factor", SB_ATTR_FLOAT, ATTR(grad_factor), .f = 1},
    {"grad_by_count", SB_ATTR_INT, ATTR(grad_by_count), .i = 0, .flag = true},
    {"samples", SB_ATTR_INT, ATTR(samples), .i = 0, .flag = true},
    {"through", SB_ATTR_INT, ATTR(through), .i = 0, .flag = true},
    {0},
};

static sb_status fake_quant_prepare(sb_kernel *k)
{
    const fake_quant_attrs *a = k->attrs;
    sb_qlayout layout;

    SB_TRY(sb_qlayout_make(k, k->in[0], k->in[1], a->axis, a->block_size,
                           &layout));
    if (sb_tensor_count(k->in[2]) != layout.n_param)
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "%lld zero points for %lld scales",
            (long long)sb_tensor_count(k->in[2]), (long long)layout.n_param);
    return SB_OK;
}

typedef struct fake_quant_job {
    sb_qlayout layout;
    const float *x, *scale, *zero;
    float *y;
    int64_t n;
    float qmin, qmax;
} fake_quant_job;

static inline float fake_quant(float x, float scale, float lo, float hi)
{
    float v = x / scale;

    v = v > lo ? v : lo;
    v = v < hi ? v : hi;
    return sb_round_even(v) * scale;
}

SB_HOT static void fake_quant_run(const fake_quant_job *job, sb_qrun run,
                                  int64_t first)
{
    const float *x = job->x + first;
    const float *scale = job->scale + run.param, *zero = job->zero + run.param;
    float *y = job->y + first;
    float qmin = job->qmin, qmax = job->qmax;

    if (run.step == 0) {
        float s = scale[0], lo = qmin - zero[0], hi = qmax - zero[0];
        SB_SIMD
        for (int64_t i = 0; i < run.count; i++)
            y[i] = fake_quant(x[i], s, lo, hi);
    } else {
        SB_SIMD
        for (int64_t i = 0; i < run.count; i++)
            y[i] = fake_quant(x[i], scale[i], qmin - zero[i], qmax - zero[i]);
    }
}

enum { CHUNK = 4096 };

static void fake_quant_chunks(void *arg, size_t begin, size_t end)
{
    const fake_quant_job *job = arg;
    int64_t last = (int64_t)end * CHUNK;

    last = last < job->n ? last : job->n;
    for (int64_t i = (int64_t)begin * CHUNK; i < last;) {
        sb_qrun run = sb_qlayout_run(&job->layout, i, last);

        fake_quant_run(job, run, i);
        i += run.count;
    }
}

static sb_status fake_quant_forward(sb_kernel *k)
{
    const fake_quant_attrs *a = k->attrs;
    fake_quant_job job = {
        .x = k->in[0]->data,
        .scale = k->in[1]->data,
        .zero = k->in[2]->data,
        .y = k->out[0]->data,
        .n = sb_tensor_count(k->in[0]),
        .qmin = (float)a->qmin,
        .qmax = (float)a->qmax,
    };

    SB_TRY(sb_qlayout_make(k, k->in[0], k->in[1], a->axis, a->block_size,
                           &job.layout));
    size_t n_chunk = (size_t)(job.n / CHUNK + (job.n % CHUNK != 0));
    sb_parallel_for(k->ctx, n_chunk, 8, fake_quant_chunks, &job);
    return SB_OK;
}

static void fake_quant_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    const fake_quant_attrs *a = k->attrs;

    sb_qlayout_layout(k, a->block_size, in, out);
}

const sb_op_def sb_op_fake_quant = {
    .name = "FakeQuant",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .scales = 1u << 1 | 1u << 2,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(fake_quant_attrs),
    .attrs = attrs,
    .infer = sb_infer_same,
    .layout = fake_quant_layout,
    .prepare = fake_quant_prepare,
    .forward = fake_quant_forward,
    .grad = sb_grad_fake_quant,
};
