/* The k lowest of many scores, in linear time. */
#include "prune/lowest.h"

#include <math.h>
#include <string.h>

/* The k-th smallest of n, which it reorders (Hoare's selection). */
static float kth_smallest(float *v, size_t n, size_t k)
{
    size_t lo = 0, hi = n - 1;

    while (lo < hi) {
        float pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i >= j)
                break;
            float swap = v[i];
            v[i++] = v[j];
            v[j--] = swap;
        }
        if (k <= j)
            hi = j;
        else
            lo = j + 1;
    }
    return v[k];
}

sb_status sb_mark_lowest(sb_ctx *ctx, const float *scores, size_t n, size_t k,
                         uint8_t *gone)
{
    if (k == 0)
        return SB_OK;
    float *copy = sb_alloc_raw(ctx, n, sizeof *copy);
    if (!copy)
        return SB_NO_MEMORY;
    memcpy(copy, scores, n * sizeof *copy);
    float limit = kth_smallest(copy, n, k - 1);
    sb_free(ctx, copy);
    size_t below = 0;
    for (size_t i = 0; i < n; i++)
        below += scores[i] < limit;
    if (limit == HUGE_VALF)
        k = below; /* what has no score stays */
    for (size_t i = 0, ties = k - below; i < n; i++) {
        gone[i] = scores[i] < limit || (scores[i] == limit && ties > 0);
        ties -= scores[i] == limit && ties > 0;
    }
    return SB_OK;
}
