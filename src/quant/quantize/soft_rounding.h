/* soft_rounding.h - weights that are learned to be rounded up or down.
 *
 * A weight is scale * (floor(w / scale) + h(v)), h(v) = clip(1.2 sigmoid(v) -
 * 0.1, 0, 1) (M. Nagel et al., Up or down? Adaptive rounding for post-training
 * quantization, arXiv 2004.10568).  v is learned by Adam, from where h is the
 * fraction, until h is 0 or 1: to the loss comes
 *
 *     lambda * sum of 1 - |2h - 1|^beta
 *
 * where beta falls from 20 to 2 after a warm-up without it.  At 2 that term has
 * a curvature of -8 lambda along each h: where the loss has less than that, h
 * ends at 0 or 1. */
#ifndef SB_QUANT_QUANTIZE_SOFT_ROUNDING_H
#define SB_QUANT_QUANTIZE_SOFT_ROUNDING_H

#include "base/ctx.h"

enum { SB_SOFT_ARRAYS = 8 }; /* of floats, by element */

typedef struct sb_soft_rounding {
    sb_ctx *ctx;
    size_t n;
    float *scale;     /* of each element */
    float *base;      /* its floor, as a number of steps */
    float *lo, *hi;   /* bounds of the same */
    float *slope;     /* of the loss along h, for a gradient of 1 */
    float *v, *m, *u; /* learned, and Adam's moments */
    double decay_m, decay_u;
} sb_soft_rounding;

/* For n elements, each to be set; sb_soft_free() in any case. */
SB_MUST_USE sb_status sb_soft_init(sb_ctx *ctx, size_t n, sb_soft_rounding *s);
void sb_soft_free(sb_soft_rounding *s);
/* Element i, a number of scale and zero point; its slope is the scale, as for a
 * gradient along the weight. */
void sb_soft_set(sb_soft_rounding *s, size_t i, float w, float scale,
                 float zero_point, int32_t qmin, int32_t qmax);
/* All elements as they are now, less those of `minus`, unless NULL. */
void sb_soft_values(const sb_soft_rounding *s, const float *minus, float *out);
/* As they will be: up where h is more than a half. */
void sb_soft_rounded(const sb_soft_rounding *s, float *out);

/* The rate of Adam: as given, or if that is 0 one with which v can go as far as
 * `way` in all steps, but at most 0.1 in one. */
double sb_soft_rate(double given, double way, int64_t steps);

/* One step of `steps`, from 0 on. */
typedef struct sb_soft_step {
    int64_t step, steps;
    double rate, lambda;
    const float *gradient; /* of the loss, by element, ... */
    double factor;         /* ... times this */
} sb_soft_step;

void sb_soft_learn(sb_soft_rounding *s, const sb_soft_step *how);

#endif
