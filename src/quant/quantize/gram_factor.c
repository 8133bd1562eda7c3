/* Factors of damped Gram matrices. */
#include "quant/quantize/gram_factor.h"

#include <string.h>

#include "base/simd.h"
#include "quant/quantize/cholesky.h"

static double gram_mean_diagonal(const float *gram, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)gram[i * n + i];
    return sum / (double)n;
}

static void gram_arrange(const float *gram, int64_t n, const int64_t *order,
                         double damp, float *h)
{
    for (int64_t i = 0; i < n; i++) {
        const float *from = gram + order[i] * n;
        float *to = h + i * n;

        for (int64_t j = i; j < n; j++)
            to[j] = from[order[j]];
        if (to[i] <= 0) {
            memset(to + i, 0, (size_t)(n - i) * sizeof *to);
            to[i] = 1;
        } else {
            to[i] = (float)((double)to[i] + damp);
        }
    }
}

sb_status sb_gram_factor(sb_ctx *ctx, const float *gram, int64_t n,
                         const int64_t *order, double damping, float *h,
                         double *added, bool *done)
{
    double mean = gram_mean_diagonal(gram, n), share = damping;

    *added = 0;
    *done = false;
    while (!*done && share <= 1) {
        *added = share * mean;
        gram_arrange(gram, n, order, *added, h);
        SB_TRY(sb_cholesky_upper(ctx, h, n, done));
        share = share > 0 ? share * 10 : 1e-4;
    }
    for (int64_t j = 0; *done && j < n; j++)
        for (int64_t i = j + 1; i < n; i++)
            h[j * n + i] /= h[i * n + i];
    return SB_OK;
}

SB_HOT void sb_gram_pass_on(const float *factor, float error, int64_t n,
                            float *sums)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        sums[i] += error * factor[i];
}

SB_HOT float sb_gram_gather(const float *factor, const float *x, int64_t n)
{
    enum { LANES = 16 };
    float sums[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        SB_SIMD
        for (int k = 0; k < LANES; k++)
            sums[k] += factor[i + k] * x[i + k];
    }
    for (; i < n; i++)
        sum += factor[i] * x[i];
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    return sum;
}
