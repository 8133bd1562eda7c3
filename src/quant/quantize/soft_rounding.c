/* Rounding that is learned; see soft_rounding.h. */
#include "quant/quantize/soft_rounding.h"

#include <math.h>

#include "base/alloc.h"
#include "base/simd.h"
#include "base/threads.h"
#include "dnn/vec_math.h"

enum { SOFT_GRAIN = 2048 };

static const float stretch_hi = 1.1F, stretch_lo = -0.1F;

sb_status sb_soft_init(sb_ctx *ctx, size_t n, sb_soft_rounding *s)
{
    float *all = sb_alloc(ctx, n + 1, SB_SOFT_ARRAYS * sizeof *all);

    *s = (sb_soft_rounding){.ctx = ctx, .n = n, .decay_m = 1, .decay_u = 1};
    if (!all)
        return SB_NO_MEMORY;
    s->scale = all;
    s->base = all + n;
    s->lo = all + 2 * n;
    s->hi = all + 3 * n;
    s->v = all + 4 * n;
    s->m = all + 5 * n;
    s->u = all + 6 * n;
    s->slope = all + 7 * n;
    return SB_OK;
}

void sb_soft_free(sb_soft_rounding *s)
{
    if (s->ctx)
        sb_free(s->ctx, s->scale);
    *s = (sb_soft_rounding){0};
}

void sb_soft_set(sb_soft_rounding *s, size_t i, float w, float scale,
                 float zero_point, int32_t qmin, int32_t qmax)
{
    /* Zero points of blocks are no whole numbers: the grid is shifted. */
    float shift = zero_point - floorf(zero_point);
    float steps = w / scale + shift;
    float share = steps - floorf(steps);

    s->scale[i] = scale;
    s->slope[i] = scale;
    s->base[i] = floorf(steps) - shift;
    s->lo[i] = (float)qmin - zero_point;
    s->hi[i] = (float)qmax - zero_point;
    s->v[i] = -logf((stretch_hi - stretch_lo) / (share - stretch_lo) - 1);
}

static inline float soft_clip(float x, float lo, float hi)
{
    x = x < lo ? lo : x;
    return x > hi ? hi : x;
}

/* ---- values ------------------------------------------------------------- */

typedef struct soft_values_job {
    const sb_soft_rounding *s;
    const float *minus;
    float *out;
} soft_values_job;

SB_VEC_INLINE float soft_value(const sb_soft_rounding *s, size_t i)
{
    float h = sb_vec_sigmoidf(s->v[i]) * (stretch_hi - stretch_lo) + stretch_lo;

    return soft_clip(s->base[i] + soft_clip(h, 0, 1), s->lo[i], s->hi[i]) *
           s->scale[i];
}

SB_HOT static void soft_values(void *arg, size_t begin, size_t end)
{
    const soft_values_job *j = arg;

    if (j->minus) {
        SB_SIMD
        for (size_t i = begin; i < end; i++)
            j->out[i] = soft_value(j->s, i) - j->minus[i];
    } else {
        SB_SIMD
        for (size_t i = begin; i < end; i++)
            j->out[i] = soft_value(j->s, i);
    }
}

void sb_soft_values(const sb_soft_rounding *s, const float *minus, float *out)
{
    soft_values_job job = {s, minus, out};

    sb_parallel_for(s->ctx, s->n, SOFT_GRAIN, soft_values, &job);
}

void sb_soft_rounded(const sb_soft_rounding *s, float *out)
{
    for (size_t i = 0; i < s->n; i++)
        out[i] =
            soft_clip(s->base[i] + (s->v[i] > 0 ? 1 : 0), s->lo[i], s->hi[i]) *
            s->scale[i];
}

/* ---- a step ------------------------------------------------------------- */

typedef struct soft_step_job {
    const sb_soft_rounding *s;
    const float *gradient;
    float factor, rate, lambda, beta; /* beta 0: warm-up */
    float fix_m, fix_u;               /* 1 / (1 - decay^step) */
} soft_step_job;

/* t^b for t in [0, 1]: between the powers beside it, which needs no logarithm
 * and is as good a way to zero. */
SB_VEC_INLINE float soft_power(float t, int whole, float part)
{
    float p = 1;

    for (int i = 0; i < whole; i++)
        p *= t;
    return p * (1 - part) + p * t * part;
}

SB_HOT static void soft_step(void *arg, size_t begin, size_t end)
{
    const soft_step_job *j = arg;
    const sb_soft_rounding *s = j->s;
    float b = j->beta > 1 ? j->beta - 1 : 0;
    int whole = (int)b;
    float part = b - (float)whole, lambda = j->beta > 0 ? j->lambda : 0;

    SB_SIMD
    for (size_t i = begin; i < end; i++) {
        float x = sb_vec_sigmoidf(s->v[i]);
        float h = x * (stretch_hi - stretch_lo) + stretch_lo;
        float q = s->base[i] + soft_clip(h, 0, 1);
        float t = 2 * soft_clip(h, 0, 1) - 1;
        float g = j->gradient[i] * j->factor * s->slope[i];
        float along = (stretch_hi - stretch_lo) * x * (1 - x);

        g = q < s->lo[i] || q > s->hi[i] ? 0 : g;
        g -= lambda * j->beta * 2 *
             copysignf(soft_power(fabsf(t), whole, part), t);
        g = h <= 0 || h >= 1 ? 0 : g * along;
        s->m[i] = 0.9F * s->m[i] + 0.1F * g;
        s->u[i] = 0.999F * s->u[i] + 0.001F * g * g;
        s->v[i] -=
            j->rate * s->m[i] * j->fix_m / (sqrtf(s->u[i] * j->fix_u) + 1e-8F);
    }
}

/* The exponent of the second term at a step; 0 while it warms up. */
static float soft_beta(int64_t step, int64_t steps)
{
    double warm = 0.2 * (double)steps, at = (double)step;

    return at < warm
               ? 0
               : (float)(2 + 18 * (1 - (at - warm) / ((double)steps - warm)));
}

double sb_soft_rate(double given, double way, int64_t steps)
{
    const double most = 0.1;

    return given > 0 ? given : fmin(way / (double)steps, most);
}

void sb_soft_learn(sb_soft_rounding *s, const sb_soft_step *how)
{
    s->decay_m *= 0.9;
    s->decay_u *= 0.999;
    soft_step_job job = {.s = s,
                         .gradient = how->gradient,
                         .factor = (float)how->factor,
                         .rate = (float)how->rate,
                         .lambda = (float)how->lambda,
                         .beta = soft_beta(how->step, how->steps),
                         .fix_m = (float)(1 / (1 - s->decay_m)),
                         .fix_u = (float)(1 / (1 - s->decay_u))};

    sb_parallel_for(s->ctx, s->n, SOFT_GRAIN, soft_step, &job);
}
