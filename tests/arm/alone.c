/* The few functions of the library that the packed products call, without
 * threads and without contexts; and which of them this processor runs. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/threads.h"
#include "ops/int8/nbits_int8.h"

void sb_parallel_for(sb_ctx *ctx, size_t n, size_t grain, sb_range_fn fn,
                     void *arg)
{
    (void)ctx;
    (void)grain;
    fn(arg, 0, n);
}

void sb_parallel_lanes(sb_ctx *ctx, size_t n, size_t lanes, sb_lane_fn fn,
                       void *arg)
{
    (void)ctx;
    (void)lanes;
    for (size_t i = 0; i < n; i++)
        fn(arg, 0, i);
}

int sb_ctx_threads(const sb_ctx *ctx)
{
    (void)ctx;
    return 3;
}

void *sb_alloc(sb_ctx *ctx, size_t n, size_t size)
{
    (void)ctx;
    return calloc(n, size);
}

void sb_free(sb_ctx *ctx, void *p)
{
    (void)ctx;
    free(p);
}

__attribute__((constructor)) static void say_kernels(void)
{
    const sb_nbits_kernel *kernel;

    for (size_t i = 0; (kernel = sb_nbits_kernel_at(i)) != NULL; i++)
        printf("%s: %s\n", kernel->name,
               kernel->suits() ? "tested" : "not on this processor");
}
