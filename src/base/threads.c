/* sb_parallel_for on OpenMP; serial when built without it. */
#include "base/threads.h"

#ifdef _OPENMP
#include <omp.h>
#endif

enum { THREADS_MOST = 1024 };

void sb_ctx_set_threads(sb_ctx *ctx, int n_threads)
{
#ifdef _OPENMP
    if (n_threads <= 0)
        n_threads = omp_get_num_procs();
    if (n_threads > THREADS_MOST)
        n_threads = THREADS_MOST;
    /* oneDNN asks OpenMP for its width at the call. */
    omp_set_num_threads(n_threads);
#else
    n_threads = 1;
#endif
    ctx->n_threads = n_threads;
}

int sb_ctx_threads(const sb_ctx *ctx)
{
    return ctx->n_threads;
}

void sb_parallel_for(sb_ctx *ctx, size_t n, size_t grain, sb_range_fn fn,
                     void *arg)
{
    size_t parts = (size_t)ctx->n_threads;

    if (grain == 0)
        grain = 1;
    if (parts > n / grain)
        parts = n / grain;
    if (parts <= 1) {
        if (n)
            fn(arg, 0, n);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads((int)parts) schedule(static, 1)
    for (size_t p = 0; p < parts; p++) {
        size_t each = n / parts, rest = n % parts;
        size_t begin = p * each + (p < rest ? p : rest);
        fn(arg, begin, begin + each + (p < rest ? 1 : 0));
    }
#endif
}
