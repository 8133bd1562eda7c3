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

/* ---- rows side by side -------------------------------------------------- */

SB_HOT void sb_tile_pass_on(const float *factor, int64_t n, const float *error,
                            float *sums)
{
    for (int64_t i = 0; i < n; i++) {
        SB_SIMD
        for (int k = 0; k < SB_TILE; k++)
            sums[i * SB_TILE + k] += error[k] * factor[i];
    }
}

/* Four columns at a time, whose sums stay in registers. */
SB_HOT void sb_tile_pass_all(const float *factor, int64_t stride, int64_t rows,
                             int64_t n, const float *error, float *sums)
{
    enum { SOME = 4 };
    int64_t i = 0;

    for (; i + SOME <= n; i += SOME) {
        float s[SOME * SB_TILE];

        memcpy(s, sums + i * SB_TILE, sizeof s);
        for (int64_t j = 0; j < rows; j++) {
            const float *f = factor + j * stride + i, *e = error + j * SB_TILE;

            SB_SIMD
            for (int k = 0; k < SB_TILE; k++) {
                s[k] += e[k] * f[0];
                s[SB_TILE + k] += e[k] * f[1];
                s[2 * SB_TILE + k] += e[k] * f[2];
                s[3 * SB_TILE + k] += e[k] * f[3];
            }
        }
        memcpy(sums + i * SB_TILE, s, sizeof s);
    }
    for (int64_t j = 0; j < rows && i < n; j++)
        for (int64_t c = i; c < n; c++) {
            SB_SIMD
            for (int k = 0; k < SB_TILE; k++)
                sums[c * SB_TILE + k] +=
                    error[j * SB_TILE + k] * factor[j * stride + c];
        }
}

SB_HOT void sb_tile_gather(const float *factor, const float *x, int64_t n,
                           float *out)
{
    enum { LANES = 16 };
    float lanes[LANES][SB_TILE] = {0}, sum[SB_TILE] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            SB_SIMD
            for (int k = 0; k < SB_TILE; k++)
                lanes[j][k] += factor[i + j] * x[(i + j) * SB_TILE + k];
        }
    for (; i < n; i++) {
        SB_SIMD
        for (int k = 0; k < SB_TILE; k++)
            sum[k] += factor[i] * x[i * SB_TILE + k];
    }
    for (int j = 0; j < LANES; j++) {
        SB_SIMD
        for (int k = 0; k < SB_TILE; k++)
            sum[k] += lanes[j][k];
    }
    memcpy(out, sum, sizeof sum);
}
