/* SgdStep, AdamStep, EmaStep: parameters and their moments after one more
 * gradient; SumSquares: for clipping by the norm of all gradients.
 *
 *     SgdStep (w, m, g, lr, scale)           m <- momentum m + g
 *                                            w <- w - lr m
 *     AdamStep(w, m, v, g, lr, step, scale)  m <- b1 m + (1 - b1) g
 *                                            v <- b2 v + (1 - b2) g^2
 *                                            w <- w - lr m' / (sqrt(v') + eps)
 *     EmaStep (a, w, decay)                  a <- decay a + (1 - decay) w
 *
 * where g is multiplied by `scale` (clipping; 1 if absent) and decay w is added
 * to it, or with `decoupled` w is multiplied by 1 - lr decay; m' and v' are m
 * and v divided by 1 - b^step; Nesterov's momentum goes by g + momentum m. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/infer_util.h"

enum { STEP_GRAIN = 16 * 1024 }; /* elements that are worth a thread */

/* ---- shared ------------------------------------------------------------- */

/* Outputs are like the inputs of the same number. */
static sb_status step_infer(sb_infer *in)
{
    for (uint32_t i = 0; i < in->n_out; i++)
        if (sb_infer_in(in, i))
            in->out[i].type = in->in[i]->type;
    return SB_OK;
}

static bool step_same_dims(const sb_tensor *a, const sb_tensor *b)
{
    return a->rank == b->rank &&
           memcmp(a->dims, b->dims, sizeof *a->dims * (size_t)a->rank) == 0;
}

/* The first `n` inputs have one shape, all others one element. */
static sb_status step_check(const sb_kernel *k, uint32_t n)
{
    for (uint32_t i = 0; i < k->n_in; i++) {
        const sb_tensor *t = sb_kernel_in(k, i);
        if (t &&
            !(i < n ? step_same_dims(t, k->in[0]) : sb_tensor_count(t) == 1))
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  i < n ? "input %u differs in shape from the "
                                          "first"
                                        : "input %u is not one element",
                                  i);
        if (t && t->dtype != SB_DTYPE_F32)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %u of type %s", i,
                                  sb_dtype_name(t->dtype));
    }
    for (uint32_t i = 0; i < k->n_out; i++)
        if (sb_kernel_out(k, i) && !sb_kernel_in(k, i))
            return sb_kernel_fail(k, SB_BAD_MODEL, "output %u, but no input %u",
                                  i, i);
    return SB_OK;
}

/* The one element of input i. */
static float step_number(const sb_kernel *k, uint32_t i, float absent)
{
    const sb_tensor *t = sb_kernel_in(k, i);

    return t ? *(const float *)t->data : absent;
}

/* The elements of an input or output; NULL if it is absent. */
static const float *step_in(const sb_kernel *k, uint32_t i)
{
    const sb_tensor *t = sb_kernel_in(k, i);

    return t ? t->data : NULL;
}

static float *step_out(const sb_kernel *k, uint32_t i)
{
    sb_tensor *t = sb_kernel_out(k, i);

    return t ? t->data : NULL;
}

/* ---- SgdStep ------------------------------------------------------------ */

typedef struct {
    float momentum, decay;
    int64_t nesterov;
} sgd_attrs;

static const sb_attr_def sgd_table[] = {
    {"decay", SB_ATTR_FLOAT, offsetof(sgd_attrs, decay), .f = 0},
    {"momentum", SB_ATTR_FLOAT, offsetof(sgd_attrs, momentum), .f = 0},
    {"nesterov", SB_ATTR_INT, offsetof(sgd_attrs, nesterov), .i = 0,
     .flag = true},
    {0},
};

typedef struct {
    const float *w, *m, *g;
    float *w_out, *m_out;
    float lr, scale, momentum, decay;
    bool nesterov;
} sgd_job;

static sb_status sgd_prepare(sb_kernel *k)
{
    const sgd_attrs *a = k->attrs;

    if (!sb_kernel_in(k, 2) || !sb_kernel_in(k, 3))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "gradient or learning rate is absent");
    if (!sb_kernel_in(k, 1) && (a->momentum > 0 || a->momentum < 0))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "momentum is %g, but input 1 is absent",
                              (double)a->momentum);
    return step_check(k, 3);
}

SB_HOT static void sgd_range(void *arg, size_t begin, size_t end)
{
    const sgd_job *j = arg;
    const float lr = j->lr, scale = j->scale, decay = j->decay;
    const float momentum = j->momentum;
    const float ahead = j->nesterov ? momentum : 0;
    const float own = j->nesterov ? 1 : 0, sum = j->nesterov ? 0 : 1;

    if (!j->m) {
        SB_SIMD
        for (size_t i = begin; i < end; i++)
            j->w_out[i] = j->w[i] - lr * (j->g[i] * scale + decay * j->w[i]);
        return;
    }
    SB_SIMD
    for (size_t i = begin; i < end; i++) {
        float g = j->g[i] * scale + decay * j->w[i];
        float m = momentum * j->m[i] + g;

        if (j->m_out)
            j->m_out[i] = m;
        j->w_out[i] = j->w[i] - lr * (own * g + (ahead + sum) * m);
    }
}

static sb_status sgd_forward(sb_kernel *k)
{
    const sgd_attrs *a = k->attrs;
    sgd_job job = {.w = step_in(k, 0),
                   .m = step_in(k, 1),
                   .g = step_in(k, 2),
                   .w_out = step_out(k, 0),
                   .m_out = step_out(k, 1),
                   .lr = step_number(k, 3, 0),
                   .scale = step_number(k, 4, 1),
                   .momentum = a->momentum,
                   .decay = a->decay,
                   .nesterov = a->nesterov != 0};

    sb_parallel_for(k->ctx, (size_t)sb_tensor_count(k->in[0]), STEP_GRAIN,
                    sgd_range, &job);
    return SB_OK;
}

/* ---- AdamStep ----------------------------------------------------------- */

typedef struct {
    float beta1, beta2, epsilon, decay;
    int64_t decoupled;
} adam_attrs;

static const sb_attr_def adam_table[] = {
    {"beta1", SB_ATTR_FLOAT, offsetof(adam_attrs, beta1), .f = 0.9f},
    {"beta2", SB_ATTR_FLOAT, offsetof(adam_attrs, beta2), .f = 0.999f},
    {"decay", SB_ATTR_FLOAT, offsetof(adam_attrs, decay), .f = 0},
    {"decoupled", SB_ATTR_INT, offsetof(adam_attrs, decoupled), .i = 1,
     .flag = true},
    {"epsilon", SB_ATTR_FLOAT, offsetof(adam_attrs, epsilon), .f = 1e-8f},
    {0},
};

typedef struct {
    const float *w, *m, *v, *g;
    float *w_out, *m_out, *v_out;
    float beta1, beta2, epsilon;
    float scale;      /* of g */
    float keep;       /* of w */
    float add;        /* of w to g */
    float rate, root; /* lr / (1 - b1^t), 1 / sqrt(1 - b2^t) */
} adam_job;

SB_HOT static void adam_range(void *arg, size_t begin, size_t end)
{
    const adam_job job = *(const adam_job *)arg;

    SB_SIMD
    for (size_t i = begin; i < end; i++) {
        float g = job.g[i] * job.scale + job.add * job.w[i];
        float m = job.beta1 * job.m[i] + (1.0f - job.beta1) * g;
        float v = job.beta2 * job.v[i] + (1.0f - job.beta2) * g * g;

        job.m_out[i] = m;
        job.v_out[i] = v;
        job.w_out[i] = job.w[i] * job.keep -
                       job.rate * m / (sqrtf(v) * job.root + job.epsilon);
    }
}

static sb_status adam_prepare(sb_kernel *k)
{
    for (uint32_t i = 0; i < 3; i++)
        if (!sb_kernel_out(k, i))
            return sb_kernel_fail(k, SB_BAD_MODEL, "output %u is absent", i);
    return step_check(k, 4);
}

static sb_status adam_forward(sb_kernel *k)
{
    const adam_attrs *a = k->attrs;
    float lr = step_number(k, 4, 0);
    double step = (double)step_number(k, 5, 1);
    adam_job job = {.w = step_in(k, 0),
                    .m = step_in(k, 1),
                    .v = step_in(k, 2),
                    .g = step_in(k, 3),
                    .w_out = step_out(k, 0),
                    .m_out = step_out(k, 1),
                    .v_out = step_out(k, 2),
                    .beta1 = a->beta1,
                    .beta2 = a->beta2,
                    .epsilon = a->epsilon,
                    .scale = step_number(k, 6, 1),
                    .keep = a->decoupled ? 1.0f - lr * a->decay : 1.0f,
                    .add = a->decoupled ? 0 : a->decay,
                    .rate =
                        (float)((double)lr / (1 - pow((double)a->beta1, step))),
                    .root = (float)(1 / sqrt(1 - pow((double)a->beta2, step)))};

    if (!(step >= 1))
        return sb_kernel_fail(k, SB_BAD_DATA, "step is %g, want 1 or more",
                              step);
    sb_parallel_for(k->ctx, (size_t)sb_tensor_count(k->in[0]), STEP_GRAIN,
                    adam_range, &job);
    return SB_OK;
}

/* ---- EmaStep ------------------------------------------------------------ */

typedef struct {
    const float *a, *w;
    float *out, decay;
} ema_job;

SB_HOT static void ema_range(void *arg, size_t begin, size_t end)
{
    const ema_job *j = arg;
    const float decay = j->decay;

    SB_SIMD
    for (size_t i = begin; i < end; i++)
        j->out[i] = decay * j->a[i] + (1.0f - decay) * j->w[i];
}

static sb_status ema_prepare(sb_kernel *k)
{
    return step_check(k, 2);
}

static sb_status ema_forward(sb_kernel *k)
{
    ema_job job = {step_in(k, 0), step_in(k, 1), step_out(k, 0),
                   step_number(k, 2, 0)};

    sb_parallel_for(k->ctx, (size_t)sb_tensor_count(k->in[0]), STEP_GRAIN,
                    ema_range, &job);
    return SB_OK;
}

/* ---- SumSquares: of all elements of all inputs -------------------------- */

typedef struct {
    const float *x;
    size_t n;
    double part[SB_REDUCE_PARTS];
} square_job;

/* Parts depend on the number of elements only. */
SB_HOT static void square_parts(void *arg, size_t begin, size_t end)
{
    enum { LANES = 8 };
    square_job *j = arg;

    for (size_t part = begin; part < end; part++) {
        size_t i = part * j->n / SB_REDUCE_PARTS;
        size_t last = (part + 1) * j->n / SB_REDUCE_PARTS;
        double lane[LANES] = {0}, sum = 0;

        for (; i + LANES <= last; i += LANES) {
            SB_SIMD
            for (size_t l = 0; l < LANES; l++)
                lane[l] += (double)j->x[i + l] * (double)j->x[i + l];
        }
        for (; i < last; i++)
            sum += (double)j->x[i] * (double)j->x[i];
        for (size_t l = 0; l < LANES; l++)
            sum += lane[l];
        j->part[part] = sum;
    }
}

static sb_status square_infer(sb_infer *in)
{
    sb_infer_set(in, 0, in->in[0]->type.dtype, &(sb_shape){.rank = 0});
    return SB_OK;
}

static sb_status square_forward(sb_kernel *k)
{
    double sum = 0;

    for (uint32_t i = 0; i < k->n_in; i++) {
        const sb_tensor *t = sb_kernel_in(k, i);
        if (!t)
            continue;
        square_job job = {.x = t->data, .n = (size_t)sb_tensor_count(t)};
        size_t grain = 1 + SB_REDUCE_PARTS * STEP_GRAIN / (job.n + 1);
        sb_parallel_for(k->ctx, SB_REDUCE_PARTS, grain, square_parts, &job);
        for (size_t p = 0; p < SB_REDUCE_PARTS; p++)
            sum += job.part[p];
    }
    *(float *)k->out[0]->data = (float)sum;
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */

const sb_op_def sb_op_adam_step = {
    .name = "AdamStep",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 6,
    .in_max = 7,
    .out_min = 3,
    .out_max = 3,
    .flags = SB_OP_INPLACE_EACH,
    .attrs_size = sizeof(adam_attrs),
    .attrs = adam_table,
    .infer = step_infer,
    .prepare = adam_prepare,
    .forward = adam_forward,
};

const sb_op_def sb_op_ema_step = {
    .name = "EmaStep",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 3,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE_EACH,
    .infer = step_infer,
    .prepare = ema_prepare,
    .forward = ema_forward,
};

const sb_op_def sb_op_sgd_step = {
    .name = "SgdStep",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 1, /* the second may be absent */
    .in_max = 5,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_INPLACE_EACH,
    .attrs_size = sizeof(sgd_attrs),
    .attrs = sgd_table,
    .infer = step_infer,
    .prepare = sgd_prepare,
    .forward = sgd_forward,
};

const sb_op_def sb_op_sum_squares = {
    .name = "SumSquares",
    .domain = SB_FUSED_DOMAIN,
    .since = 1,
    .in_min = 1,
    .in_max = SB_ARITY_ANY,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_F32,
    .infer = square_infer,
    .forward = square_forward,
};
