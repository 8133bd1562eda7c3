/* FakeQuantGrad(dy, x, scale, zero_point) -> dx, dscale, dzero: the gradients
 * of FakeQuant, rounding taken for the identity.  With v = x / scale, lo = qmin
 * - zero and hi = qmax - zero, by what round(v) is:
 *
 *                 dx    dscale             dzero
 *     inside      dy    dy (round(v) - v)  0
 *     below lo    0     dy lo              -dy scale
 *     above hi    0     dy hi              -dy scale
 *
 * which is LSQ's (arXiv 1902.08153), with zero points as in LSQ+ (2004.09576).
 * The gradients of scales and zero points are multiplied by `grad_factor`, and
 * with `grad_by_count` by 1 / sqrt(n qmax), n the elements that share a scale:
 * those of the whole batch if x has `samples` and several ranks share it.
 * With `through` all of dy goes to x.  Sums are made in parts that depend on
 * sizes alone. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/quantized/quant_util.h"

enum { DY, X, SCALE, ZERO };
enum { CHUNK = 1024, LANES = 16, PER_PARAM = 8 };

typedef struct fake_quant_grad_attrs {
    int64_t qmin, qmax, axis, block_size, by_count, samples;
    float factor;
} fake_quant_grad_attrs;

#define ATTR(field) offsetof(fake_quant_grad_attrs, field)

static const sb_attr_def attrs[] = {
    {"qmin", SB_ATTR_INT, ATTR(qmin), .required = true},
    {"qmax", SB_ATTR_INT, ATTR(qmax), .required = true},
    {"axis", SB_ATTR_INT, ATTR(axis), .i = 1},
    {"block_size", SB_ATTR_INT, ATTR(block_size), .i = 0},
    {"grad_factor", SB_ATTR_FLOAT, ATTR(factor), .f = 1},
    {"grad_by_count", SB_ATTR_INT, ATTR(by_count), .i = 0, .flag = true},
    {"samples", SB_ATTR_INT, ATTR(samples), .i = 0, .flag = true},
    {0},
};

/* ---- the rule ----------------------------------------------------------- */

sb_status sb_grad_fake_quant(sb_grad *g)
{
    bool params = sb_grad_wants(g, 1) || sb_grad_wants(g, 2);
    sb_value_id out[3] = {SB_NONE, SB_NONE, SB_NONE};

    if (sb_node_int(g->node, "through", 0)) {
        g->dx[0] = g->dy[0];
        return SB_OK;
    }
    sb_emit(g, &(sb_emit_spec){.op = "FakeQuantGrad",
                               .in = {g->dy[0], sb_grad_in(g, 0),
                                      sb_grad_in(g, 1), sb_grad_in(g, 2)},
                               .n_in = 4,
                               .attrs = g->node->attrs,
                               .n_attrs = g->node->n_attrs,
                               .n_out = params ? 3 : 1,
                               .more_out = out});
    for (uint32_t i = 0; i < 3 && g->status == SB_OK; i++)
        if (g->wanted[i])
            g->dx[i] = out[i];
    return SB_OK;
}

/* ---- kernel ------------------------------------------------------------- */

typedef struct fake_quant_grad_job {
    sb_qlayout layout;
    const float *dy, *x, *scale, *zero;
    float *dx;    /* NULL: not wanted */
    double *sums; /* [parts, 2, n_param]; NULL: not wanted */
    int64_t n, parts;
    float qmin, qmax;
} fake_quant_grad_job;

static sb_status fake_quant_grad_infer(sb_infer *in)
{
    sb_infer_set(in, 0, in->in[X]->type.dtype, &in->in[X]->type.shape);
    for (uint32_t i = 1; i < 3 && i < in->n_out; i++)
        sb_infer_set(in, i, in->in[i + 1]->type.dtype,
                     &in->in[i + 1]->type.shape);
    return SB_OK;
}

/* Parts of the sums: fewer where they are many. */
static int64_t grad_parts(const sb_qlayout *l, int64_t n)
{
    int64_t parts = n / (PER_PARAM * l->n_param + CHUNK) + 1;

    return parts < SB_REDUCE_PARTS ? parts : SB_REDUCE_PARTS;
}

static sb_status fake_quant_grad_prepare(sb_kernel *k)
{
    const fake_quant_grad_attrs *a = k->attrs;
    int64_t n = sb_tensor_count(k->in[X]);
    sb_qlayout l;

    SB_TRY(
        sb_qlayout_make(k, k->in[X], k->in[SCALE], a->axis, a->block_size, &l));
    if (sb_tensor_count(k->in[ZERO]) != l.n_param ||
        sb_tensor_count(k->in[DY]) != n)
        return sb_kernel_fail(
            k, SB_BAD_MODEL, "%lld zero points for %lld scales",
            (long long)sb_tensor_count(k->in[ZERO]), (long long)l.n_param);
    if (sb_kernel_out(k, 1) || sb_kernel_out(k, 2))
        k->scratch_size =
            (size_t)(2 * grad_parts(&l, n) * l.n_param) * sizeof(double);
    return SB_OK;
}

/* What one element adds to the sums; returns dx. */
static inline float grad_element(float dy, float x, float scale, float lo,
                                 float hi, float *ds, float *dz)
{
    float v = x / scale;
    float c = v > lo - 1 ? v : lo - 1; /* small enough to be rounded */

    c = sb_round_even(c < hi + 1 ? c : hi + 1);
    bool inside = c >= lo && c <= hi;
    *ds += dy * (inside ? c - v : c < lo ? lo : hi);
    *dz -= inside ? 0 : dy * scale;
    return inside ? dy : 0;
}

/* Up to CHUNK elements of one parameter; dx may be dy. */
SB_HOT static void grad_one(const float *dy, const float *x, float *dx,
                            int64_t n, float scale, float lo, float hi,
                            double *ds, double *dz)
{
    float sum_s[LANES] = {0}, sum_z[LANES] = {0}, s = 0, z = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        SB_SIMD
        for (int j = 0; j < LANES; j++)
            dx[i + j] = grad_element(dy[i + j], x[i + j], scale, lo, hi,
                                     &sum_s[j], &sum_z[j]);
    }
    for (; i < n; i++)
        dx[i] = grad_element(dy[i], x[i], scale, lo, hi, &s, &z);
    for (int j = 0; j < LANES; j++) {
        s += sum_s[j];
        z += sum_z[j];
    }
    *ds += (double)s;
    *dz += (double)z;
}

/* Elements of one parameter each. */
SB_HOT static void grad_each(const fake_quant_grad_job *job, sb_qrun run,
                             int64_t first, float *dx, double *ds, double *dz)
{
    const float *scale = job->scale + run.param, *zero = job->zero + run.param;

    SB_SIMD
    for (int64_t i = 0; i < run.count; i++) {
        float s = 0, z = 0;
        dx[i] = grad_element(job->dy[first + i], job->x[first + i], scale[i],
                             job->qmin - zero[i], job->qmax - zero[i], &s, &z);
        ds[run.param + i] += (double)s;
        dz[run.param + i] += (double)z;
    }
}

static void grad_part(const fake_quant_grad_job *job, int64_t part)
{
    int64_t chunks = job->n / CHUNK + (job->n % CHUNK != 0);
    int64_t first = chunks * part / job->parts * CHUNK;
    int64_t last = chunks * (part + 1) / job->parts * CHUNK;
    int64_t n_param = job->layout.n_param;
    double none[2] = {0}, *ds = none, *dz = none + 1;
    float thrown[CHUNK];

    last = last < job->n ? last : job->n;
    if (job->sums) {
        ds = job->sums + 2 * part * n_param;
        dz = ds + n_param;
        memset(ds, 0, (size_t)(2 * n_param) * sizeof *ds);
    }
    for (int64_t i = first; i < last;) {
        int64_t end = i + CHUNK < last ? i + CHUNK : last;
        sb_qrun run = sb_qlayout_run(&job->layout, i, end);
        float *dx = job->dx ? job->dx + i : thrown;

        if (run.step == 0) {
            int64_t at = job->sums ? run.param : 0;
            float zero = job->zero[run.param];
            grad_one(job->dy + i, job->x + i, dx, run.count,
                     job->scale[run.param], job->qmin - zero, job->qmax - zero,
                     ds + at, dz + at);
        } else if (job->sums) {
            grad_each(job, run, i, dx, ds, dz);
        } else {
            for (int64_t j = 0; j < run.count; j++) {
                float zero = job->zero[run.param + j];
                grad_one(job->dy + i + j, job->x + i + j, dx + j, 1,
                         job->scale[run.param + j], job->qmin - zero,
                         job->qmax - zero, ds, dz);
            }
        }
        i += run.count;
    }
}

static void grad_part_range(void *arg, size_t begin, size_t end)
{
    for (size_t part = begin; part < end; part++)
        grad_part(arg, (int64_t)part);
}

static void grad_add_up(const fake_quant_grad_job *job, int64_t at,
                        float factor, sb_tensor *out)
{
    float *to = out ? out->data : NULL;

    for (int64_t i = 0; to && i < job->layout.n_param; i++) {
        double sum = 0;
        for (int64_t part = 0; part < job->parts; part++)
            sum += job->sums[(2 * part + at) * job->layout.n_param + i];
        to[i] = (float)(sum * (double)factor);
    }
}

static float grad_factor_of(const sb_kernel *k, const fake_quant_grad_job *job)
{
    const fake_quant_grad_attrs *a = k->attrs;
    int rank, ranks = k->host->ranks(k, &rank);
    double n = (double)job->n / (double)(job->layout.n_param + !job->n) *
               (a->samples ? ranks : 1);
    double qmax = a->qmax > 1 ? (double)a->qmax : 1;

    return a->by_count && n > 0 ? (float)((double)a->factor / sqrt(n * qmax))
                                : a->factor;
}

static sb_status fake_quant_grad_forward(sb_kernel *k)
{
    const fake_quant_grad_attrs *a = k->attrs;
    sb_tensor *ds = sb_kernel_out(k, 1), *dz = sb_kernel_out(k, 2);
    fake_quant_grad_job job = {
        .dy = k->in[DY]->data,
        .x = k->in[X]->data,
        .scale = k->in[SCALE]->data,
        .zero = k->in[ZERO]->data,
        .dx = sb_kernel_out(k, 0) ? k->out[0]->data : NULL,
        .sums = ds || dz ? k->scratch : NULL,
        .n = sb_tensor_count(k->in[X]),
        .qmin = (float)a->qmin,
        .qmax = (float)a->qmax,
    };

    SB_TRY(sb_qlayout_make(k, k->in[X], k->in[SCALE], a->axis, a->block_size,
                           &job.layout));
    job.parts = grad_parts(&job.layout, job.n);
    sb_parallel_for(k->ctx, (size_t)job.parts, 1, grad_part_range, &job);
    grad_add_up(&job, 0, grad_factor_of(k, &job), ds);
    grad_add_up(&job, 1, grad_factor_of(k, &job), dz);
    return SB_OK;
}

static void fake_quant_grad_layout(const sb_kernel *k, sb_layout *in,
                                   sb_layout *out)
{
    const fake_quant_grad_attrs *a = k->attrs;

    sb_qlayout_layout(k, a->block_size, in, out);
    in[X] = in[DY];
}

const sb_op_def sb_op_fake_quant_grad = {
    .name = "FakeQuantGrad",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 4,
    .in_max = 4,
    .out_min = 1,
    .out_max = 3,
    .flags = SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(fake_quant_grad_attrs),
    .attrs = attrs,
    .infer = fake_quant_grad_infer,
    .layout = fake_quant_grad_layout,
    .prepare = fake_quant_grad_prepare,
    .forward = fake_quant_grad_forward,
};
