/* xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
 * generators"), seeded by splitmix64 as its authors advise; normals by
 * Box-Muller, so that a fixed count of bits makes each number. */
#include "base/rng.h"

#include <math.h>

static uint64_t rng_rotated(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

static uint64_t rng_splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void sb_rng_init(sb_rng *rng, uint64_t seed)
{
    *rng = (sb_rng){{0}, false, 0};
    for (int i = 0; i < 4; i++)
        rng->s[i] = rng_splitmix(&seed);
}

uint64_t sb_rng_next(sb_rng *rng)
{
    uint64_t *s = rng->s;
    uint64_t result = rng_rotated(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rng_rotated(s[3], 45);
    return result;
}

double sb_rng_uniform(sb_rng *rng)
{
    return (double)(sb_rng_next(rng) >> 11) * 0x1p-53;
}

uint64_t sb_rng_below(sb_rng *rng, uint64_t n)
{
    /* The rest of the last incomplete run of n is thrown away. */
    uint64_t limit = UINT64_MAX - UINT64_MAX % n;
    uint64_t x = sb_rng_next(rng);

    while (x >= limit)
        x = sb_rng_next(rng);
    return x % n;
}

double sb_rng_normal(sb_rng *rng)
{
    const double two_pi = 6.283185307179586476925;

    if (rng->has_spare) {
        rng->has_spare = false;
        return rng->spare;
    }
    double radius = sqrt(-2 * log(1 - sb_rng_uniform(rng)));
    double angle = two_pi * sb_rng_uniform(rng);
    rng->spare = radius * sin(angle);
    rng->has_spare = true;
    return radius * cos(angle);
}
