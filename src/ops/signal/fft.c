/* Discrete Fourier transform of any length; see fft.h. */
#include "ops/signal/fft.h"

#include <math.h>
#include <string.h>

#include "base/threads.h"

enum { SHORT = 16, LONGEST = 1 << 28 };

static const double TWO_PI = 6.283185307179586476925286766559;

/* out[j] = exp(-2 pi i j / n); j is reduced to an octant-free angle below
 * 2 pi, so that long tables stay accurate. */
static void fill_roots(double *out, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double angle = TWO_PI * (double)j / (double)n;

        out[2 * j] = cos(angle);
        out[2 * j + 1] = -sin(angle);
    }
}

/* Radix-2 transform of x[size] in place. */
static void fft_radix2(const double *roots, int64_t size, double *x)
{
    for (int64_t i = 1, j = 0; i < size; i++) { /* bit reversal */
        int64_t bit = size >> 1;

        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            double re = x[2 * i], im = x[2 * i + 1];

            x[2 * i] = x[2 * j];
            x[2 * i + 1] = x[2 * j + 1];
            x[2 * j] = re;
            x[2 * j + 1] = im;
        }
    }
    for (int64_t half = 1; half < size; half *= 2) {
        int64_t step = size / (2 * half);

        for (int64_t start = 0; start < size; start += 2 * half) {
            double *lo = x + 2 * start, *hi = lo + 2 * half;

            for (int64_t k = 0; k < half; k++) {
                double wr = roots[2 * k * step], wi = roots[2 * k * step + 1];
                double re = hi[2 * k] * wr - hi[2 * k + 1] * wi;
                double im = hi[2 * k] * wi + hi[2 * k + 1] * wr;

                hi[2 * k] = lo[2 * k] - re;
                hi[2 * k + 1] = lo[2 * k + 1] - im;
                lo[2 * k] += re;
                lo[2 * k + 1] += im;
            }
        }
    }
}

static void plain_sum(const sb_fft *f, double *x, double *work)
{
    for (int64_t k = 0; k < f->n; k++) {
        double re = 0, im = 0;

        for (int64_t j = 0; j < f->n; j++) {
            const double *w = f->roots + 2 * (j * k % f->n);

            re += x[2 * j] * w[0] - x[2 * j + 1] * w[1];
            im += x[2 * j] * w[1] + x[2 * j + 1] * w[0];
        }
        work[2 * k] = re;
        work[2 * k + 1] = im;
    }
    memcpy(x, work, (size_t)f->n * 2 * sizeof *x);
}

/* out = a * b, elementwise complex; out may be a. */
static void fft_multiply(const double *a, const double *b, int64_t n,
                         double *out)
{
    for (int64_t j = 0; j < n; j++) {
        double re = a[2 * j] * b[2 * j] - a[2 * j + 1] * b[2 * j + 1];
        double im = a[2 * j] * b[2 * j + 1] + a[2 * j + 1] * b[2 * j];

        out[2 * j] = re;
        out[2 * j + 1] = im;
    }
}

static void fft_conjugate(double *x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        x[2 * j + 1] = -x[2 * j + 1];
}

/* With jk = (j^2 + k^2 - (k - j)^2) / 2 the transform is a convolution with
 * the conjugate chirp. */
static void fft_bluestein(const sb_fft *f, double *x, double *work)
{
    memset(work, 0, (size_t)f->size * 2 * sizeof *work);
    fft_multiply(x, f->chirp, f->n, work);
    fft_radix2(f->roots, f->size, work);
    fft_multiply(work, f->filter, f->size, work);
    fft_conjugate(work, f->size); /* inverse transform by conjugation */
    fft_radix2(f->roots, f->size, work);
    fft_conjugate(work, f->size);
    fft_multiply(work, f->chirp, f->n, x);
    for (int64_t j = 0; j < 2 * f->n; j++)
        x[j] /= (double)f->size;
}

static sb_status bluestein_tables(sb_ctx *ctx, sb_fft *f)
{
    f->chirp = sb_alloc(ctx, (size_t)f->n, 2 * sizeof *f->chirp);
    f->filter = sb_alloc(ctx, (size_t)f->size, 2 * sizeof *f->filter);
    if (!f->chirp || !f->filter)
        return SB_NO_MEMORY;
    for (int64_t j = 0; j < f->n; j++) {
        /* j^2 modulo 2n keeps the angle small: n is below 2^28. */
        double angle = TWO_PI / 2 * (double)(j * j % (2 * f->n)) / (double)f->n;

        f->chirp[2 * j] = cos(angle);
        f->chirp[2 * j + 1] = -sin(angle);
        for (int side = 0; side < 2; side++) {
            int64_t at = side == 0 ? j : (f->size - j) % f->size;

            f->filter[2 * at] = cos(angle);
            f->filter[2 * at + 1] = sin(angle);
        }
    }
    fft_radix2(f->roots, f->size, f->filter);
    return SB_OK;
}

static sb_status fft_fill(sb_ctx *ctx, sb_fft *f)
{
    bool power = (f->n & (f->n - 1)) == 0;

    if (power)
        f->size = f->n;
    else if (f->n > SHORT)
        for (f->size = 1; f->size < 2 * f->n - 1;)
            f->size *= 2;
    int64_t n_root = f->size ? f->size : f->n;
    f->roots = sb_alloc(ctx, (size_t)n_root, 2 * sizeof *f->roots);
    if (!f->roots)
        return SB_NO_MEMORY;
    fill_roots(f->roots, n_root);
    return power || f->size == 0 ? SB_OK : bluestein_tables(ctx, f);
}

static sb_status fft_create(sb_ctx *ctx, int64_t n, sb_fft **out)
{
    if (n < 1 || n > LONGEST)
        return sb_fail(ctx, SB_UNSUPPORTED,
                       "a Fourier transform of length %lld, want 1 to %d",
                       (long long)n, LONGEST);
    sb_fft *f = sb_alloc(ctx, 1, sizeof *f);
    if (!f)
        return SB_NO_MEMORY;
    f->n = n;
    sb_status status = fft_fill(ctx, f);
    if (status != SB_OK) {
        sb_fft_free(ctx, f);
        return status;
    }
    *out = f;
    return SB_OK;
}

void sb_fft_free(sb_ctx *ctx, sb_fft *f)
{
    if (!f)
        return;
    sb_free(ctx, f->roots);
    sb_free(ctx, f->chirp);
    sb_free(ctx, f->filter);
    sb_free(ctx, f);
}

/* Doubles of workspace that sb_fft_run() needs. */
static size_t work_of(const sb_fft *f)
{
    return 2 * (size_t)(f->size > f->n ? f->size : f->n);
}

void sb_fft_run(const sb_fft *f, bool inverse, double *x, double *work)
{
    if (inverse)
        fft_conjugate(x, f->n);
    if (f->chirp)
        fft_bluestein(f, x, work);
    else if (f->size)
        fft_radix2(f->roots, f->size, x);
    else
        plain_sum(f, x, work);
    if (!inverse)
        return;
    fft_conjugate(x, f->n);
    for (int64_t j = 0; j < 2 * f->n; j++)
        x[j] /= (double)f->n;
}

sb_status sb_fft_slots_make(sb_ctx *ctx, int64_t n, sb_fft_slots *out,
                            size_t *bytes)
{
    SB_TRY(fft_create(ctx, n, &out->fft));
    out->size = 2 * (size_t)n + work_of(out->fft);
    out->n = (int64_t)((size_t)1 << 23) / (int64_t)out->size;
    out->n = out->n < 1 ? 1 : out->n;
    out->n = out->n > SB_REDUCE_PARTS ? SB_REDUCE_PARTS : out->n;
    *bytes = (size_t)out->n * out->size * sizeof(double);
    return SB_OK;
}
