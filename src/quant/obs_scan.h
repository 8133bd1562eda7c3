/* obs_scan.h - least and greatest values, found on the bits of floats.
 *
 * A float's bits, those of negative ones turned over, order like integers: so
 * least and greatest are integer minima and maxima, which every instruction
 * set does many at a time and in any order with one result; and infinities and
 * NaNs, whatever their sign, come out beyond all finite values. */
#ifndef SB_QUANT_OBS_SCAN_H
#define SB_QUANT_OBS_SCAN_H

#include <string.h>

#include "quant/observer.h"

typedef struct sb_obs_keys {
    int32_t lo, hi; /* keys; lo > hi while empty */
} sb_obs_keys;

#define SB_OBS_KEYS_EMPTY ((sb_obs_keys){INT32_MAX, INT32_MIN})

/* Bits to key, and back: the same operation. */
static inline int32_t sb_obs_key_turn(int32_t bits)
{
    return bits ^ ((bits >> 31) & INT32_MAX);
}

static inline int32_t sb_obs_key(float x)
{
    int32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return sb_obs_key_turn(bits);
}

/* The float of a key; -0 comes out as 0. */
static inline float sb_obs_key_float(int32_t key)
{
    int32_t bits = sb_obs_key_turn(key);
    float x;

    memcpy(&x, &bits, sizeof x);
    return x + 0.0F;
}

static inline sb_obs_keys sb_obs_keys_join(sb_obs_keys a, sb_obs_keys b)
{
    return (sb_obs_keys){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

static inline bool sb_obs_keys_empty(sb_obs_keys k)
{
    return k.lo > k.hi;
}

/* Are all values finite?  True if there are none. */
static inline bool sb_obs_keys_finite(sb_obs_keys k)
{
    return sb_obs_keys_empty(k) ||
           (k.hi < 0x7f800000 && k.lo >= -(int32_t)0x7f800000);
}

static inline sb_range sb_obs_keys_range(sb_obs_keys k)
{
    return (sb_range){sb_obs_key_float(k.lo), sb_obs_key_float(k.hi)};
}

/* Of n values in a row, joined to `keys`. */
sb_obs_keys sb_obs_scan(const float *x, size_t n, sb_obs_keys keys);
/* The same, from the greatest of their bits as integers with a sign, and of
 * their bits as numbers without. */
sb_obs_keys sb_obs_scan_rest(const float *x, size_t n, int32_t most,
                             uint32_t most_low, sb_obs_keys keys);

/* Of n_channel (at most SB_OBS_BLOCK) neighbouring channels in each of n_row
 * rows, `stride` apart; joined to keys[]. */
enum { SB_OBS_BLOCK = 16 };
void sb_obs_scan_block(const float *x, size_t n_row, size_t stride,
                       size_t n_channel, sb_obs_keys *keys);

/* Keys of every sample and channel, [samples, channels]. */
void sb_obs_scan_channels(sb_ctx *ctx, const sb_obs_view *view,
                          sb_obs_keys *keys);

#endif
