/* simd.h - one source, several instruction sets.
 *
 * A function marked SB_HOT is compiled for AVX-512, AVX2 and the baseline, and
 * the loader picks one for the machine at hand, by the features it has (an
 * `arch=` would ask for that very model).  Floating-point contraction is
 * off, so all of them give the same result.  Elsewhere (ARM, where the baseline
 * has vectors already) the mark means nothing. */
#ifndef SB_BASE_SIMD_H
#define SB_BASE_SIMD_H

#include <stdint.h>

/* The resolvers run before ThreadSanitizer is ready; and clang 14 names them so
 * that other files do not find the function. */
#if defined(__SANITIZE_THREAD__) || defined(__clang__)
#define SB_NO_CLONES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SB_NO_CLONES 1
#endif
#endif

#if defined(__x86_64__) && defined(__GNUC__) && defined(__linux__) && \
    !defined(SB_NO_CLONES)
#define SB_HOT __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SB_HOT
#endif

/* The elements of the loop that follows are independent of each other. */
#ifdef _OPENMP
#define SB_SIMD _Pragma("omp simd")
/* The same, sixteen at a time: for loops over bytes whose length is a multiple
 * of that and often no more, which else are done one by one. */
#define SB_SIMD_16 _Pragma("omp simd simdlen(16)")
/* But for what the loop asks: which is the largest, is any so?  In variables
 * of these names. */
#define SB_SIMD_LARGEST _Pragma("omp simd reduction(max : largest)")
#define SB_SIMD_ANY     _Pragma("omp simd reduction(| : any)")
#else
#define SB_SIMD
#define SB_SIMD_16
#define SB_SIMD_LARGEST
#define SB_SIMD_ANY
#endif

/* ---- subnormal numbers ----------------------------------------------------
 * A processor takes a hundred times longer over a float below 2^-126 than over
 * another, and there are networks with such weights by the ten thousand.  So
 * every thread that computes takes them for zero, as inputs and as results.
 * The caller's thread does so between the two calls; what it had is put back.
 */
#if defined(__x86_64__)
#include <xmmintrin.h>

static inline uint64_t sb_subnormals_off(void)
{
    unsigned before = _mm_getcsr();

    _mm_setcsr(before | 0x8040); /* FTZ and DAZ */
    return before;
}

static inline void sb_subnormals_restore(uint64_t before)
{
    _mm_setcsr((unsigned)before);
}
#elif defined(__aarch64__)
static inline uint64_t sb_subnormals_off(void)
{
    uint64_t before;

    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | UINT64_C(1) << 24));
    return before;
}

static inline void sb_subnormals_restore(uint64_t before)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
}
#else
static inline uint64_t sb_subnormals_off(void)
{
    return 0;
}

static inline void sb_subnormals_restore(uint64_t before)
{
    (void)before;
}
#endif

#endif
