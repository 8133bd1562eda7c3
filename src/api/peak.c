/* The peak is measured, not looked up: clock rates under vector load, shared
 * cores and virtual machines make tables wrong.
 *
 * Each thread runs chains of multiply-adds that do not depend on each other,
 * enough of them to hide the latency of one (two units, five cycles deep at
 * most), and touches no memory.  The best of some short rounds of each thread
 * counts. */
#include "api/peak.h"

#include "base/alloc.h"
#include "base/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

enum { CHAINS = 12, STEPS = 100000, ROUNDS = 40 };

/* One way of computing: what it is called, floats in a vector. */
typedef struct variant {
    const char *name;
    int lanes;
    float (*chains)(float seed);
} variant;

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static float chains_avx512(float seed)
{
    __m512 acc[CHAINS], f = _mm512_set1_ps(0.999f), c = _mm512_set1_ps(seed);
    __m512 sum = _mm512_setzero_ps();

    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], f, c);
    }
    for (int i = 0; i < CHAINS; i++)
        sum = _mm512_add_ps(sum, acc[i]);
    return _mm512_reduce_add_ps(sum);
}

__attribute__((target("avx2,fma"))) static float chains_avx2(float seed)
{
    __m256 acc[CHAINS], f = _mm256_set1_ps(0.999f), c = _mm256_set1_ps(seed);
    __m256 sum = _mm256_setzero_ps();

    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm256_fmadd_ps(acc[i], f, c);
    }
    for (int i = 0; i < CHAINS; i++)
        sum = _mm256_add_ps(sum, acc[i]);
    return _mm256_cvtss_f32(sum);
}

static float chains_base(float seed)
{
    __m128 acc[CHAINS], f = _mm_set1_ps(0.999f), c = _mm_set1_ps(seed);
    __m128 sum = _mm_setzero_ps();

    for (int i = 0; i < CHAINS; i++)
        acc[i] = _mm_set1_ps((float)i);
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            acc[i] = _mm_add_ps(_mm_mul_ps(acc[i], f), c);
    }
    for (int i = 0; i < CHAINS; i++)
        sum = _mm_add_ps(sum, acc[i]);
    return _mm_cvtss_f32(sum);
}
#elif defined(__ARM_NEON)
static float chains_base(float seed)
{
    float32x4_t acc[CHAINS], f = vdupq_n_f32(0.999f), c = vdupq_n_f32(seed);
    float32x4_t sum = vdupq_n_f32(0);

    for (int i = 0; i < CHAINS; i++)
        acc[i] = vdupq_n_f32((float)i);
    for (int s = 0; s < STEPS; s++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++)
            acc[i] = vfmaq_f32(c, acc[i], f);
    }
    for (int i = 0; i < CHAINS; i++)
        sum = vaddq_f32(sum, acc[i]);
    return vgetq_lane_f32(sum, 0);
}
#else
static float chains_base(float seed)
{
    float acc[CHAINS], sum = 0;

    for (int i = 0; i < CHAINS; i++)
        acc[i] = (float)i;
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < CHAINS; i++)
            acc[i] = acc[i] * 0.999f + seed;
    for (int i = 0; i < CHAINS; i++)
        sum += acc[i];
    return sum;
}
#endif

#if defined(__x86_64__)
static variant peak_choose(void)
{
    if (__builtin_cpu_supports("avx512f"))
        return (variant){"AVX-512 FMA", 16, chains_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (variant){"AVX2 FMA", 8, chains_avx2};
    return (variant){"SSE", 4, chains_base};
}
#elif defined(__ARM_NEON)
static variant peak_choose(void)
{
    return (variant){"NEON FMA", 4, chains_base};
}
#else
static variant peak_choose(void)
{
    return (variant){"scalar", 1, chains_base};
}
#endif

typedef struct peak_job {
    variant how;
    double *best;       /* operations a second of each thread */
    _Atomic float sink; /* keeps the compiler from leaving it all out */
} peak_job;

/* Threads take their own time: one that has to wait for its core spoils a
 * round of its own and no other. */
static void run_parts(void *arg, size_t begin, size_t end)
{
    peak_job *job = arg;

    for (size_t i = begin; i < end; i++) {
        for (int round = 0; round < ROUNDS; round++) {
            double at = sb_seconds_now();
            /* Not 0: numbers that fade away are slow to compute with. */
            job->sink = job->how.chains((float)i + 1);
            double seconds = sb_seconds_now() - at;
            double rate = 2.0 * CHAINS * STEPS * job->how.lanes;
            rate = seconds > 0 ? rate / seconds : 0;
            job->best[i] = rate > job->best[i] ? rate : job->best[i];
        }
    }
}

double sb_peak_gflops(sb_ctx *ctx, const char **how)
{
    size_t n = (size_t)ctx->n_threads;
    peak_job job = {.how = peak_choose()};
    double sum = 0;

    *how = job.how.name;
    job.best = sb_alloc(ctx, n, sizeof *job.best);
    if (!job.best)
        return 0;
    sb_parallel_for(ctx, n, 1, run_parts, &job);
    for (size_t i = 0; i < n; i++)
        sum += job.best[i];
    sb_free(ctx, job.best);
    return sum * 1e-9;
}
