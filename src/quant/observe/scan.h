/* scan.h - least and greatest values, found on the bits of floats.
 *
 * A float's bits, those of negative ones inverted, order like integers ("keys"
 * here): so least and greatest are integer minima and maxima, which every
 * instruction set does many at a time and in any order with one result; and
 * infinities and NaNs, whatever their sign, come out beyond all finite values.
 */
#ifndef SB_QUANT_OBSERVE_SCAN_H
#define SB_QUANT_OBSERVE_SCAN_H

#include <string.h>

#include "quant/observe/observer.h"

typedef struct sb_minmax {
    int32_t lo, hi; /* keys; lo > hi while empty */
} sb_minmax;

#define SB_MINMAX_EMPTY ((sb_minmax){INT32_MAX, INT32_MIN})

/* Bits to key, and back: the same operation. */
static inline int32_t sb_key_turn(int32_t bits)
{
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static inline int32_t sb_float_key(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return sb_key_turn(bits);
}

/* The float of a key; -0 comes out as 0. */
static inline float sb_key_float(int32_t key)
{
    int32_t bits = sb_key_turn(key);
    float x;

    memcpy(&x, &bits, sizeof x);
    return x + 0.0F;
}

static inline sb_minmax sb_minmax_join(sb_minmax a, sb_minmax b)
{
    return (sb_minmax){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

static inline bool sb_minmax_empty(sb_minmax m)
{
    return m.lo > m.hi;
}

/* Are all values finite?  True if there are none. */
static inline bool sb_minmax_finite(sb_minmax m)
{
    return sb_minmax_empty(m) ||
           (m.hi < 0x7f800000 && m.lo >= -(int32_t)0x7f800000);
}

static inline sb_range sb_minmax_range(sb_minmax m)
{
    return (sb_range){sb_key_float(m.lo), sb_key_float(m.hi)};
}

/* Of n values in a row, joined to `m`. */
sb_minmax sb_scan(const float *x, size_t n, sb_minmax m);

/* Neighboring channels that are scanned and counted at a time. */
enum { SB_SCAN_BLOCK = 16 };

/* Of every sample and channel, [samples, channels]. */
void sb_scan_channels(sb_ctx *ctx, const sb_obs_view *view, sb_minmax *m);

#endif
