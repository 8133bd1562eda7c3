/* Observer "hqq": scale and zero point that suit most weights, outliers apart.
 *
 * Half-quadratic quantization (HQQ, Badri and Shaji, 2023) minimizes
 *
 *     sum |x - (c - z) s|^p,   p = 3/4,   c the code of x,
 *
 * which forgives a few large errors for the sake of many small ones.  With an
 * auxiliary e that takes the large errors it becomes two easy steps, repeated
 * while beta grows:
 *
 *     e = shrink(x - (c - z) s)       sign(u) max(|u| - |u|^(p-1) / beta, 0)
 *     s, z = argmin sum (x - e - (c - z) s)^2            a straight line
 *
 * Errors are measured in steps, so that beta means the same everywhere.  We
 * differ from the paper: the line gives the scale too, not only the zero
 * point; the zero point is a whole number, since files hold integers; we start
 * from the range of "mse" instead of the whole one; and p is 3/4 instead of
 * 0.7, because roots are faster than powers.
 * Of all rounds the one with the least sum is kept, so the result is never
 * worse, in that sum, than where it started. */
#include <math.h>

#include "base/simd.h"
#include "quant/observe/observer_def.h"

enum {
    ROUNDS = 20,
    PATIENCE = 3, /* rounds without gain before it gives up */
    LANES = 16,   /* sums that are kept apart, the same on any machine */
};

static const double first = 10.0;  /* beta */
static const double growth = 1.01; /* of beta, a round */
/* Adding and subtracting this rounds a float below 2^22 to even. */
static const float rounder = 12582912.0F;

/* Codes are c = d + zero with d in [lo, hi]. */
typedef struct line {
    float scale, zero;
} line;

typedef struct sums {
    double error;        /* of |x - d s|^p */
    double d, t, dd, dt; /* t = x - e */
} sums;

typedef struct lanes {
    double error[LANES], d[LANES], t[LANES], dd[LANES], dt[LANES];
} lanes;

/* Adds LANES values, in steps of the scale. */
static inline void hqq_add(const float *x, float scale, float lo, float hi,
                           float by, lanes *s)
{
    SB_SIMD
    for (int k = 0; k < LANES; k++) {
        float v = x[k] / scale;
        float c = v < lo ? lo : v;

        c = c > hi ? hi : c;
        float d = (c + rounder) - rounder;
        float u = fabsf(v - d);
        float root = sqrtf(sqrtf(u)); /* u^(p-1) = 1 / root */
        float e = u - (root > 0.0F ? by / root : 0.0F);

        e = copysignf(e > 0.0F ? e : 0.0F, v - d);
        double t = (double)(v - e);
        s->error[k] += (double)(root * root * root);
        s->d[k] += (double)d;
        s->t[k] += t;
        s->dd[k] += (double)d * (double)d;
        s->dt[k] += (double)d * t;
    }
}

SB_HOT static void hqq_all(const float *x, int64_t n, const float *args,
                           lanes *s)
{
    float scale = args[0], lo = args[1], hi = args[2], by = args[3];

    for (int64_t i = 0; i + LANES <= n; i += LANES)
        hqq_add(x + i, scale, lo, hi, by, s);
}

static sums hqq_pass(const sb_obs_values *v, line at, double beta)
{
    const sb_quant_spec *spec = v->spec;
    const float args[] = {
        at.scale,
        (float)sb_qmin(spec->bits, spec->symmetric) - at.zero,
        (float)sb_qmax(spec->bits, spec->symmetric) - at.zero,
        (float)(1.0 / beta),
    };
    double scale = (double)at.scale;
    lanes l = {0};
    sums s = {0};

    hqq_all(v->x, v->n, args, &l);
    if (v->n % LANES != 0) { /* zeros have no error and no code */
        float rest[LANES] = {0};
        for (int64_t i = v->n - v->n % LANES; i < v->n; i++)
            rest[i % LANES] = v->x[i];
        hqq_all(rest, LANES, args, &l);
    }
    for (int k = 0; k < LANES; k++) {
        s.error += l.error[k];
        s.d += l.d[k];
        s.t += l.t[k];
        s.dd += l.dd[k];
        s.dt += l.dt[k];
    }
    /* Steps back into units of x. */
    s.error *= pow(scale, 0.75);
    s.t *= scale;
    s.dt *= scale;
    return s;
}

/* The best line through the codes; `at` where there is none. */
static line hqq_fit(const sb_obs_values *v, line at, const sums *s)
{
    const sb_quant_spec *spec = v->spec;
    double n = (double)v->n, move = 0.0;

    if (!spec->symmetric) {
        double var = s->dd - s->d * s->d / n;
        double slope = var > 0.0 ? (s->dt - s->d * s->t / n) / var : 0.0;

        if (!(slope > 0.0))
            slope = (double)at.scale;
        double zero = (double)at.zero + s->d / n - s->t / n / slope;
        zero = fmin(fmax(rint(zero), (double)sb_qmin(spec->bits, false)),
                    (double)sb_qmax(spec->bits, false));
        move = zero - (double)at.zero;
    }
    /* With z moved, d becomes d - move. */
    double dd = s->dd - 2.0 * move * s->d + n * move * move;
    double dt = s->dt - move * s->t;
    float scale = dd > 0.0 ? (float)(dt / dd) : at.scale;
    return (line){.scale = scale > 1e-6F ? scale : at.scale,
                  .zero = at.zero + (float)move};
}

static sb_range hqq_range(const sb_obs_values *v)
{
    const sb_quant_spec *spec = v->spec;
    float qmin = (float)sb_qmin(spec->bits, spec->symmetric);
    float qmax = (float)sb_qmax(spec->bits, spec->symmetric);
    sb_range start = sb_observer_find(NULL, "mse")->range(v);
    double beta = first, least = (double)INFINITY;
    line at, best;
    int idle = 0;

    sb_qparams_from_range(start, spec->bits, spec->symmetric, &at.scale,
                          &at.zero);
    best = at;
    for (int round = 0; round <= ROUNDS && idle < PATIENCE; round++) {
        sums s = hqq_pass(v, at, beta);

        idle++;
        if (s.error < least) {
            least = s.error;
            best = at;
            idle = 0;
        }
        at = hqq_fit(v, at, &s);
        beta *= growth;
    }
    if (spec->symmetric) {
        float most = best.scale * (qmax - qmin) * 0.5F;
        return (sb_range){-most, most};
    }
    return (sb_range){(qmin - best.zero) * best.scale,
                      (qmax - best.zero) * best.scale};
}

const sb_observer_def sb_observer_hqq = {
    .name = "hqq",
    .summary = "scale and zero point by half-quadratic steps (weights)",
    .bound = "exact",
    .flags = SB_OBS_WEIGHT | SB_OBS_HISTOGRAM,
    .why_one = "it watches weights only",
    .range = hqq_range,
};
