/* rng.h - random numbers that depend on the seed alone, on any machine. */
#ifndef SB_BASE_RNG_H
#define SB_BASE_RNG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sb_rng {
    uint64_t s[4];
    bool has_spare; /* normals come in pairs */
    double spare;
} sb_rng;

void sb_rng_init(sb_rng *rng, uint64_t seed);
/* 64 random bits. */
uint64_t sb_rng_next(sb_rng *rng);
/* Uniform in [0, 1). */
double sb_rng_uniform(sb_rng *rng);
/* Uniform in [0, n); n must not be 0. */
uint64_t sb_rng_below(sb_rng *rng, uint64_t n);
/* Normal with mean 0 and deviation 1. */
double sb_rng_normal(sb_rng *rng);

#endif
