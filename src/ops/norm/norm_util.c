/* Statistics of a run of floats, and layer normalization row by row. */
#include "ops/norm/norm_util.h"

#include <math.h>

#include "base/simd.h"
#include "base/threads.h"

enum { PARTS = 8, ROW_GRAIN = 16384 };

static double add_parts(const double *p)
{
    return ((p[0] + p[4]) + (p[1] + p[5])) + ((p[2] + p[6]) + (p[3] + p[7]));
}

SB_HOT static sb_moments moments(const float *x, int64_t n)
{
    double part[PARTS] = {0}, square[PARTS] = {0};
    int64_t i = 0;

    if (n == 0)
        return (sb_moments){0};
    for (; i + PARTS <= n; i += PARTS) {
        SB_SIMD
        for (int j = 0; j < PARTS; j++)
            part[j] += (double)x[i + j];
    }
    for (; i < n; i++)
        part[0] += (double)x[i];
    double mean = add_parts(part) / (double)n;
    for (i = 0; i + PARTS <= n; i += PARTS)
        for (int j = 0; j < PARTS; j++) {
            double d = (double)x[i + j] - mean;
            square[j] += d * d;
        }
    for (; i < n; i++)
        square[0] += ((double)x[i] - mean) * ((double)x[i] - mean);
    return (sb_moments){mean, add_parts(square) / (double)n};
}

SB_HOT static double mean_square(const float *x, int64_t n)
{
    double part[PARTS] = {0};
    int64_t i = 0;

    for (; i + PARTS <= n; i += PARTS) {
        SB_SIMD
        for (int j = 0; j < PARTS; j++)
            part[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (; i < n; i++)
        part[0] += (double)x[i] * (double)x[i];
    return n ? add_parts(part) / (double)n : 0;
}

SB_HOT static void scale_shift(const float *x, float *y, int64_t n,
                               float factor, float shift)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor + shift;
}

/* Only static functions may be hot: callers elsewhere cannot see the choice. */
sb_moments sb_moments_of(const float *x, int64_t n)
{
    return moments(x, n);
}

void sb_scale_shift(const float *x, float *y, int64_t n, float factor,
                    float shift)
{
    scale_shift(x, y, n, factor, shift);
}

/* x + skip + skip_bias of one row into `to`. */
static void add_skip(const sb_row_norm *m, int64_t row, float *to)
{
    const float *x = m->x + row * m->size;
    const float *skip = m->skip ? m->skip + row % m->skip_rows * m->size : NULL;

    for (int64_t i = 0; i < m->size; i++)
        to[i] =
            x[i] + (skip ? skip[i] : 0) + (m->skip_bias ? m->skip_bias[i] : 0);
}

/* y = (x - mean) inv scale + bias; scale and bias may be NULL. */
SB_HOT static void apply_row(const float *x, float *y, int64_t n, float mean,
                             float inv, const float *scale, const float *bias)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = (x[i] - mean) * inv;
    if (scale) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] *= scale[i];
    }
    if (bias) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] += bias[i];
    }
}

static void norm_row(const sb_row_norm *m, int64_t row)
{
    const float *x = m->x + row * m->size;
    float *y = m->y + row * m->size;
    sb_moments s = {0};

    if (m->skip || m->skip_bias || m->sum) {
        float *sum = m->sum ? m->sum + row * m->size : y;
        add_skip(m, row, sum);
        x = sum;
    }
    if (m->centered)
        s = sb_moments_of(x, m->size);
    else
        s.var = mean_square(x, m->size);
    float mean = (float)s.mean;
    float inv = (float)(1 / sqrt(s.var + (double)m->epsilon));
    apply_row(x, y, m->size, mean, inv, m->scale, m->bias);
    if (m->mean)
        m->mean[row] = mean;
    if (m->inv_std)
        m->inv_std[row] = inv;
}

static void norm_rows(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        norm_row(arg, (int64_t)i);
}

void sb_row_norm_run(sb_ctx *ctx, const sb_row_norm *norm)
{
    sb_row_norm copy = *norm; /* the pool's argument is not const */

    sb_parallel_for(ctx, (size_t)norm->rows,
                    (size_t)(ROW_GRAIN / (norm->size + 1) + 1), norm_rows,
                    &copy);
}

sb_status sb_infer_per_channel(const sb_infer *in, uint32_t i, sb_dim c)
{
    if (!in->in[i])
        return sb_infer_fail(in, "input %u is absent", i);
    const sb_shape *s = &in->in[i]->type.shape;
    if (s->rank >= 0 && (s->rank != 1 || (sb_dim_known(s->dim[0]) &&
                                          sb_dim_known(c) && s->dim[0] != c)))
        return sb_infer_fail(in, "input %u does not have %lld elements", i,
                             (long long)c);
    return SB_OK;
}
