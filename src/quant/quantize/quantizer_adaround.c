/* Quantizer "adaround": decides for each weight whether to round up or down, so
 * that the layer's output changes least (M. Nagel et al., Up or down? Adaptive
 * rounding for post-training quantization, arXiv 2004.10568).
 *
 * A weight is scale * (floor(w / scale) + h(v)), h(v) = clip(1.2 sigmoid(v) -
 * 0.1, 0, 1), and v is learned by Adam, from where h is the fraction, until h
 * is 0 or 1:
 *
 *     |y' - y|^2, summed over channels, mean over the rest
 *         + lambda * sum of 1 - |2h - 1|^beta
 *
 * where beta falls from 20 to 2 after a warm-up without the second term.  With
 * the Gram matrix G of the inputs the first is tr(D G D^T) for the error D of
 * the weight: a step costs one product of [rows, cols] and [cols, cols] for any
 * number of samples, and has no noise. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "dnn/dnn.h"
#include "ops/elementwise/vec_math.h"
#include "quant/quantize/quantizer.h"

enum { ADAROUND_GRAIN = 2048, ADAROUND_POLL = 16 };

typedef struct adaround_params {
    int64_t steps;
    double rate, lambda;
} adaround_params;

static const sb_param_def adaround_table[] = {
    {.name = "STEPS",
     .type = SB_PARAM_INT,
     .offset = offsetof(adaround_params, steps),
     .preset = "20000",
     .min = 1,
     .max = 1e7,
     .help = "steps of learning, for each layer"},
    {.name = "LEARNING_RATE",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(adaround_params, rate),
     .preset = "0.001",
     .min = 1e-9,
     .max = 1,
     .help = "of Adam"},
    {.name = "LAMBDA",
     .type = SB_PARAM_FLOAT,
     .offset = offsetof(adaround_params, lambda),
     .preset = "0.001",
     .min = 0,
     .max = 1e6,
     .help = "weight of the term that drives weights to one side"},
    {0},
};

typedef struct adaround_job {
    const sb_rounding *r;
    float *scale;             /* of each element */
    float *base;              /* its floor, as a number of steps */
    float *lo, *hi;           /* bounds of the same */
    float *v, *m, *u;         /* learned, and Adam's moments */
    float *error, *grad;      /* D, and D G */
    float rate, lambda, beta; /* of this step; beta 0: warm-up */
    float fix_m, fix_u;       /* 1 / (1 - decay^step) */
    float two_over_count;
} adaround_job;

/* ---- elements ----------------------------------------------------------- */

static const float stretch_hi = 1.1F, stretch_lo = -0.1F;

static void adaround_start(void *arg, size_t begin, size_t end)
{
    const adaround_job *j = arg;
    const sb_rounding *r = j->r;
    int64_t n = sb_rounding_groups(r);

    for (size_t i = begin; i < end; i++) {
        int64_t row = (int64_t)i / r->cols, col = (int64_t)i % r->cols;
        int64_t at = row * n + col / r->group;
        /* Zero points of blocks are no whole numbers: the grid is shifted. */
        float shift = r->zero_point[at] - floorf(r->zero_point[at]);
        float steps = r->w[i] / r->scale[at] + shift;
        float share = steps - floorf(steps);

        j->scale[i] = r->scale[at];
        j->base[i] = floorf(steps) - shift;
        j->lo[i] = (float)r->qmin - r->zero_point[at];
        j->hi[i] = (float)r->qmax - r->zero_point[at];
        j->v[i] = -logf((stretch_hi - stretch_lo) / (share - stretch_lo) - 1);
    }
}

static inline float adaround_clip(float x, float lo, float hi)
{
    x = x < lo ? lo : x;
    return x > hi ? hi : x;
}

/* The error of each weight as it is now. */
SB_HOT static void adaround_errors(void *arg, size_t begin, size_t end)
{
    const adaround_job *j = arg;
    const float *w = j->r->w;

    SB_SIMD
    for (size_t i = begin; i < end; i++) {
        float h =
            sb_vec_sigmoidf(j->v[i]) * (stretch_hi - stretch_lo) + stretch_lo;
        float q = adaround_clip(j->base[i] + adaround_clip(h, 0, 1), j->lo[i],
                                j->hi[i]);
        j->error[i] = q * j->scale[i] - w[i];
    }
}

/* t^b for t in [0, 1]: between the powers beside it, which needs no logarithm
 * and is as good a way to zero. */
SB_VEC_INLINE float adaround_power(float t, int whole, float part)
{
    float p = 1;

    for (int i = 0; i < whole; i++)
        p *= t;
    return p * (1 - part) + p * t * part;
}

SB_HOT static void adaround_step(void *arg, size_t begin, size_t end)
{
    const adaround_job *j = arg;
    float b = j->beta > 1 ? j->beta - 1 : 0;
    int whole = (int)b;
    float part = b - (float)whole, lambda = j->beta > 0 ? j->lambda : 0;

    SB_SIMD
    for (size_t i = begin; i < end; i++) {
        float s = sb_vec_sigmoidf(j->v[i]);
        float h = s * (stretch_hi - stretch_lo) + stretch_lo;
        float q = j->base[i] + adaround_clip(h, 0, 1);
        float t = 2 * adaround_clip(h, 0, 1) - 1;
        float g = j->grad[i] * j->two_over_count * j->scale[i];
        float slope = (stretch_hi - stretch_lo) * s * (1 - s);

        g = q < j->lo[i] || q > j->hi[i] ? 0 : g;
        g -= lambda * j->beta * 2 *
             copysignf(adaround_power(fabsf(t), whole, part), t);
        g = h <= 0 || h >= 1 ? 0 : g * slope;
        j->m[i] = 0.9F * j->m[i] + 0.1F * g;
        j->u[i] = 0.999F * j->u[i] + 0.001F * g * g;
        j->v[i] -=
            j->rate * j->m[i] * j->fix_m / (sqrtf(j->u[i] * j->fix_u) + 1e-8F);
    }
}

/* Up where h is more than a half. */
static void adaround_finish(void *arg, size_t begin, size_t end)
{
    const adaround_job *j = arg;

    for (size_t i = begin; i < end; i++)
        j->r->w[i] = adaround_clip(j->base[i] + (j->v[i] > 0 ? 1 : 0), j->lo[i],
                                   j->hi[i]) *
                     j->scale[i];
}

/* ---- steps -------------------------------------------------------------- */

/* The factor of the second term at a step; 0 while it warms up. */
static float adaround_beta(int64_t step, int64_t steps)
{
    double warm = 0.2 * (double)steps, at = (double)step;

    return at < warm
               ? 0
               : (float)(2 + 18 * (1 - (at - warm) / ((double)steps - warm)));
}

static sb_status adaround_learn(adaround_job *j, sb_dnn_gemm *gemm,
                                const sb_dnn_gemm_args *args)
{
    const adaround_params *p = j->r->params;
    sb_ctx *ctx = j->r->ctx;
    size_t n = (size_t)(j->r->rows * j->r->cols);
    double m = 1, u = 1;

    for (int64_t step = 0; step < p->steps; step++) {
        if (step % ADAROUND_POLL == 0)
            SB_TRY(sb_ctx_poll(ctx));
        m *= 0.9;
        u *= 0.999;
        j->fix_m = (float)(1 / (1 - m));
        j->fix_u = (float)(1 / (1 - u));
        j->beta = adaround_beta(step, p->steps);
        sb_parallel_for(ctx, n, ADAROUND_GRAIN, adaround_errors, j);
        SB_TRY(sb_dnn_gemm_run(gemm, args));
        sb_parallel_for(ctx, n, ADAROUND_GRAIN, adaround_step, j);
    }
    return SB_OK;
}

/* The product D G, with G packed once. */
static sb_status adaround_run(adaround_job *j)
{
    const sb_rounding *r = j->r;
    const sb_dnn_gemm_desc desc = {.what = "adaround",
                                   .m = r->rows,
                                   .n = r->cols,
                                   .k = r->cols,
                                   .a_row = r->cols,
                                   .a_col = 1,
                                   .b_row = r->cols,
                                   .b_col = 1,
                                   .c_row = r->cols,
                                   .pack = true};
    sb_dnn_gemm *gemm = NULL;
    void *packed = NULL, *scratch = NULL, *once = NULL;

    SB_TRY(sb_dnn_gemm_create(r->ctx, &desc, &gemm));
    const sb_dnn_packing *packing = sb_dnn_gemm_packing(gemm);
    packed = sb_alloc(r->ctx, packing->bytes + 1, 1);
    once = sb_alloc(r->ctx, packing->scratch + 1, 1);
    scratch = sb_alloc(r->ctx, sb_dnn_gemm_scratch(gemm) + 1, 1);
    sb_status status = packed && once && scratch ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK && packing->bytes > 0)
        status = sb_dnn_gemm_pack(gemm, r->gram, packed, once);
    const sb_dnn_gemm_args args = {.a = j->error,
                                   .b = packing->bytes ? packed : r->gram,
                                   .c = j->grad,
                                   .scratch = scratch};
    if (status == SB_OK)
        status = adaround_learn(j, gemm, &args);
    sb_free(r->ctx, packed);
    sb_free(r->ctx, once);
    sb_free(r->ctx, scratch);
    sb_dnn_gemm_free(gemm);
    return status;
}

static sb_status adaround_round(sb_rounding *r)
{
    enum { ARRAYS = 9 };
    const adaround_params *p = r->params;
    size_t n = (size_t)(r->rows * r->cols);
    float *all = sb_alloc(r->ctx, n, ARRAYS * sizeof *all);

    if (!all)
        return SB_NO_MEMORY;
    adaround_job job = {.r = r,
                        .scale = all,
                        .base = all + n,
                        .lo = all + 2 * n,
                        .hi = all + 3 * n,
                        .v = all + 4 * n,
                        .m = all + 5 * n,
                        .u = all + 6 * n,
                        .error = all + 7 * n,
                        .grad = all + 8 * n,
                        .rate = (float)p->rate,
                        .lambda = (float)p->lambda,
                        .two_over_count = (float)(2 / fmax(r->count, 1))};

    sb_parallel_for(r->ctx, n, ADAROUND_GRAIN, adaround_start, &job);
    sb_status status = adaround_run(&job);
    if (status == SB_OK)
        sb_parallel_for(r->ctx, n, ADAROUND_GRAIN, adaround_finish, &job);
    sb_free(r->ctx, all);
    return status;
}

const sb_quantizer_def sb_quantizer_adaround = {
    .name = "adaround",
    .summary = "decides for each weight whether to round up or down, by "
               "learning; needs samples",
    .uses = {[SB_QUANT_WEIGHT] = {.schemes = SB_SCHEMES_ALL},
             [SB_QUANT_ACTIVATION] = {0, "adaround decides for each weight "
                                         "which way to round"}},
    .params = adaround_table,
    .params_size = sizeof(adaround_params),
    .round = adaround_round,
};
