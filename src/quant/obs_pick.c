/* Least and greatest value and the values above bars, in one pass
 * (obs_tails.h).
 *
 * On the bits of floats: those without a sign order like the values; those with
 * one like the magnitudes, and above all others if it counts as a digit.  Hence
 * a signed comparison finds what is above the upper bar, an unsigned one what
 * is below the lower.  With AVX-512 either gives a mask, and what it marks is
 * put behind the list by one instruction; elsewhere the two are loops. */
#include "quant/obs_tails.h"

enum { FOUR = 64 };

#if defined(__x86_64__) && defined(__GNUC__)
#define PICK_X86 1
#include <immintrin.h>

/* Four lines of 16 at a time; the lists have room for one more than they can
 * get. */
__attribute__((target("avx512f,popcnt"))) static sb_obs_keys
pick_lines(sb_obs_tails *t, const float *x, size_t n, sb_obs_keys keys)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    __m512i high = _mm512_set1_epi32(t->high.bar);
    __m512i low = _mm512_or_epi32(sign, _mm512_set1_epi32(t->low.bar));
    __m512i most = sign, most_low = _mm512_setzero_si512();
    uint32_t *to_high = t->high.v + t->high.n, *to_low = t->low.v + t->low.n;

    for (size_t i = 0; i < n; i += FOUR) {
        __m512i v = _mm512_loadu_si512(x + i), up = v, down = v;
        for (int k = 16; k < FOUR; k += 16) {
            v = _mm512_loadu_si512(x + i + k);
            up = _mm512_max_epi32(up, v);
            down = _mm512_max_epu32(down, v);
        }
        most = _mm512_max_epi32(most, up);
        most_low = _mm512_max_epu32(most_low, down);
        if (_mm512_cmpgt_epi32_mask(up, high))
            for (int k = 0; k < FOUR; k += 16) {
                v = _mm512_loadu_si512(x + i + k);
                __mmask16 above = _mm512_cmpgt_epi32_mask(v, high);
                v = _mm512_maskz_compress_epi32(above, v);
                _mm512_storeu_si512(to_high, v);
                to_high += __builtin_popcount(above);
            }
        if (_mm512_cmpgt_epu32_mask(down, low))
            for (int k = 0; k < FOUR; k += 16) {
                v = _mm512_loadu_si512(x + i + k);
                __mmask16 below = _mm512_cmpgt_epu32_mask(v, low);
                v = _mm512_maskz_compress_epi32(below, v);
                _mm512_storeu_si512(to_low, _mm512_andnot_epi32(sign, v));
                to_low += __builtin_popcount(below);
            }
    }
    t->high.n = (size_t)(to_high - t->high.v);
    t->low.n = (size_t)(to_low - t->low.v);
    return sb_obs_scan_rest(x, n, _mm512_reduce_max_epi32(most),
                            _mm512_reduce_max_epu32(most_low), keys);
}

static bool can_pick(void)
{
    return __builtin_cpu_supports("avx512f");
}
#else
static sb_obs_keys pick_lines(sb_obs_tails *t, const float *x, size_t n,
                              sb_obs_keys keys)
{
    (void)t;
    (void)x;
    (void)n;
    return keys;
}

static bool can_pick(void)
{
    return false;
}
#endif

sb_obs_keys sb_obs_tails_look(sb_obs_tails *t, const float *x, size_t n,
                              sb_obs_keys keys)
{
    size_t lines = n / FOUR * FOUR;

    if (lines > 0 && can_pick() && sb_obs_tails_room(t, lines)) {
        keys = pick_lines(t, x, lines, keys);
        x += lines;
        n -= lines;
    }
    if (n == 0)
        return keys;
    keys = sb_obs_scan(x, n, keys);
    if (sb_obs_tails_want(t, keys))
        sb_obs_tails_take(t, x, n);
    return keys;
}
