/* quant_util.h - what the operators on quantized tensors share.
 *
 * A quantized element q stands for (q - zero_point) * scale.  Going back,
 *
 *     q = saturate(round_half_even(x / scale) + zero_point)
 *
 * in float32.  We clamp x / scale to [min - zero_point, max - zero_point]
 * before rounding: the bounds are whole numbers, so the result is the same,
 * NaN becomes the minimum as in ONNX Runtime, and the clamped value is small
 * enough to be rounded by adding and subtracting a constant, which compilers
 * turn into plain vector code. */
#ifndef SB_OPS_QUANTIZED_QUANT_UTIL_H
#define SB_OPS_QUANTIZED_QUANT_UTIL_H

#include "ops/infer_util.h"

/* ---- rounding ----------------------------------------------------------- */

/* To the nearest whole number, ties to even, for |x| < 2^22. */
static inline float sb_round_even(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: its last bit is worth 1 */

    return (x + magic) - magic;
}

/* Whole number nearest to `x`, not below lo nor above hi; NaN gives lo. */
static inline int32_t sb_round_clamp(float x, float lo, float hi)
{
    float v = x > lo ? x : lo;

    v = v < hi ? v : hi;
    return (int32_t)sb_round_even(v);
}

/* Least and greatest value of an integer type of at most 16 bits. */
int32_t sb_quant_min(sb_dtype dtype);
int32_t sb_quant_max(sb_dtype dtype);
/* uint8 or int8 */
static inline bool sb_is_byte(sb_dtype dtype)
{
    return dtype == SB_DTYPE_U8 || dtype == SB_DTYPE_I8;
}

/* ---- the parameters of one tensor --------------------------------------- */

typedef struct sb_qparam {
    float scale;
    int32_t zero;
} sb_qparam;

/* Element i of a byte tensor. */
static inline int32_t sb_byte_at(const sb_tensor *t, int64_t i)
{
    return t->dtype == SB_DTYPE_I8 ? ((const int8_t *)t->data)[i]
                                   : ((const uint8_t *)t->data)[i];
}

/* Reads a scalar scale (input `scale`) and zero point (input `zero`; absent
 * means 0) of an operator whose tensors have one of each. */
sb_qparam sb_qparam_read(const sb_kernel *k, uint32_t scale, uint32_t zero);
/* Refuses, in prepare(), a scale that is not one float, or a zero point that
 * is not one element of type `dtype`. */
SB_MUST_USE sb_status sb_qparam_check(const sb_kernel *k, uint32_t scale,
                                      uint32_t zero, sb_dtype dtype);
/* Refuses inputs that are not uint8 or int8. */
SB_MUST_USE sb_status sb_byte_check(const sb_kernel *k, uint32_t input);

/* Fills table[256], indexed by the bits of a byte of type `from`, with the
 * bits of fn(dequantized) quantized to `to`; fn may be NULL (identity). */
void sb_byte_table(sb_dtype from, sb_qparam q_from, sb_dtype to, sb_qparam q_to,
                   float (*fn)(float x, float arg), float arg,
                   uint8_t table[256]);
/* y[i] = table[x[i]], on all threads. */
void sb_byte_lookup(sb_ctx *ctx, const uint8_t table[256], const uint8_t *x,
                    uint8_t *y, int64_t n);

/* ---- which parameter belongs to an element ------------------------------ */

/* Per tensor, per index of an axis, or per block of an axis.  The tensor is
 * seen as [outer, axis, inner], as it lies. */
typedef struct sb_qlayout {
    int64_t n_axis, n_inner;
    int64_t n_param; /* parameters in all */
    int64_t n_block; /* blocks along the axis; 0 unless blocked */
    int64_t block;   /* indices per block */
    bool per_tensor;
} sb_qlayout;

/* Finds the layout from the shapes of the data and of the scale.  `block` 0
 * means not blocked.  SB_BAD_MODEL if they do not fit. */
SB_MUST_USE sb_status sb_qlayout_make(const sb_kernel *k, const sb_tensor *x,
                                      const sb_tensor *scale, int64_t axis,
                                      int64_t block, sb_qlayout *out);

/* For layout hooks: both sides as input 0 lies, unless blocked. */
void sb_qlayout_layout(const sb_kernel *k, int64_t block, sb_layout *in,
                       sb_layout *out);

/* A run of elements with one parameter (step 0) or consecutive ones (1). */
typedef struct sb_qrun {
    int64_t count, param, step;
} sb_qrun;

/* The longest run that starts at element `i` and ends before `end`. */
sb_qrun sb_qlayout_run(const sb_qlayout *l, int64_t i, int64_t end);

#endif
