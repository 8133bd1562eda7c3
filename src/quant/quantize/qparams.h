/* qparams.h - ranges, and the scales and zero points that they give.
 *
 *     x_q  = clamp(round_half_even(x / scale) + zero_point, qmin, qmax)
 *     x_dq = (x_q - zero_point) * scale
 *
 * The arithmetic is in float, operation by operation that of the original in
 * PyTorch, so that its results come out to the last bit. */
#ifndef SB_QUANT_QUANTIZE_QPARAMS_H
#define SB_QUANT_QUANTIZE_QPARAMS_H

#include "base/alloc.h"

/* The least and the greatest value to be represented. */
typedef struct sb_range {
    float lo, hi;
} sb_range;

/* Scale and zero point for each of `n` channels (1: the whole tensor). */
typedef struct sb_qparams {
    int64_t n;
    float *scale;      /* [n] */
    float *zero_point; /* [n] whole numbers, until a quantizer trains them */
    int axis;          /* channel axis of the tensor; -1 if n is 1 by choice */
    int32_t qmin, qmax;
    int bits;
    bool symmetric;
} sb_qparams;

/* Integer bounds: -2^(b-1) .. 2^(b-1)-1 if symmetric, else 0 .. 2^b-1.
 * `bits` is 1..16. */
int32_t sb_qmin(int bits, bool symmetric);
int32_t sb_qmax(int bits, bool symmetric);

/* Scale (at least 1e-6) and zero point of a range, which is first extended to
 * hold zero.  Symmetric: zero point 0. */
void sb_qparams_from_range(sb_range range, int bits, bool symmetric,
                           float *scale, float *zero_point);

/* Makes room for n scales: scale 1, zero point 0.  Frees nothing that was
 * there before. */
SB_MUST_USE sb_status sb_qparams_init(sb_ctx *ctx, sb_qparams *q, int64_t n,
                                      int axis, int bits, bool symmetric);
/* Sets all scales from n ranges. */
void sb_qparams_set(sb_qparams *q, const sb_range *ranges);
/* Frees what sb_qparams_init() made; a zeroed one is fine. */
void sb_qparams_free(sb_ctx *ctx, sb_qparams *q);

#endif
