/* Resizing with antialias, in the arithmetic of Pillow.
 *
 * Each new pixel is a weighted mean of old ones.  The weights are those of a
 * filter (a triangle for bilinear, Keys' cubic with a = -1/2 for bicubic) laid
 * over the old pixels around the new one's center; when the image shrinks the
 * filter is stretched by the same factor, so that every old pixel counts.
 *
 *     new[x] = sum over i of w(i + 1/2 - (x + 1/2) s) old[i],   s = old / new
 *
 * Rows first, then columns.  Between the passes pixels are bytes, weights are
 * whole multiples of 2^-22, sums are rounded to nearest: so the result is
 * Pillow's to the bit, on any machine.  (Since version 13 Pillow takes columns
 * first where they shrink much more than rows; networks saw the old order.) */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "data/image/image.h"

enum { WEIGHT_BITS = 22, WEIGHT_HALF = 1 << (WEIGHT_BITS - 1) };

/* For each new pixel: the first old one, how many, and their weights. */
typedef struct {
    int n;           /* new pixels */
    int *first;      /* n */
    int *count;      /* n */
    int stride;      /* weights a pixel */
    int32_t *weight; /* n x stride */
} taps;

static double image_resize_triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double image_resize_cubic(double x)
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (x < 2.0)
        return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    return 0.0;
}

static void taps_free(sb_ctx *ctx, taps *t)
{
    sb_free(ctx, t->first);
    sb_free(ctx, t->count);
    sb_free(ctx, t->weight);
}

/* Weights of one new pixel, normalized and rounded. */
static void fill_weights(double center, double shrink, double (*filter)(double),
                         int first, int count, double *w, int32_t *out)
{
    double sum = 0.0;

    for (int i = 0; i < count; i++) {
        w[i] = filter((i + first - center + 0.5) * (1.0 / shrink));
        sum += w[i];
    }
    for (int i = 0; i < count; i++) {
        double v = (sum != 0.0 ? w[i] / sum : w[i]) * (1 << WEIGHT_BITS);

        out[i] = (int32_t)(v < 0.0 ? v - 0.5 : v + 0.5);
    }
}

/* The taps of new pixels [at, at + n) of `to`, from `from` old ones. */
static sb_status taps_make(sb_ctx *ctx, int from, int to, int at, int n,
                           sb_interpolation how, taps *t)
{
    double scale = (double)from / to, shrink = scale < 1.0 ? 1.0 : scale;
    double support = (how == SB_BICUBIC ? 2.0 : 1.0) * shrink;

    t->n = n;
    t->stride = (int)ceil(support) * 2 + 1;
    t->first = sb_alloc(ctx, (size_t)n, sizeof *t->first);
    t->count = sb_alloc(ctx, (size_t)n, sizeof *t->count);
    t->weight = sb_alloc(ctx, (size_t)n * (size_t)t->stride, sizeof *t->weight);
    double *w = sb_alloc(ctx, (size_t)t->stride, sizeof *w);
    if (!t->first || !t->count || !t->weight || !w) {
        sb_free(ctx, w);
        return SB_NO_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        double center = (at + i + 0.5) * scale;
        int first = (int)(center - support + 0.5);
        int end = (int)(center + support + 0.5);

        first = first < 0 ? 0 : first;
        end = end > from ? from : end;
        t->first[i] = first;
        t->count[i] = end - first;
        fill_weights(
            center, shrink,
            how == SB_BICUBIC ? image_resize_cubic : image_resize_triangle,
            first, end - first, w, t->weight + (size_t)i * (size_t)t->stride);
    }
    sb_free(ctx, w);
    return SB_OK;
}

static uint8_t to_byte(int32_t sum)
{
    int32_t v = sum >> WEIGHT_BITS;

    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

SB_HOT static void narrow_row3(const taps *t, const uint8_t *in, uint8_t *out)
{
    for (int x = 0; x < t->n; x++) {
        const uint8_t *p = in + 3 * t->first[x];
        const int32_t *w = t->weight + (size_t)x * (size_t)t->stride;
        int32_t a = WEIGHT_HALF, b = WEIGHT_HALF, c = WEIGHT_HALF;

        for (int i = 0; i < t->count[x]; i++) {
            a += w[i] * p[3 * i];
            b += w[i] * p[3 * i + 1];
            c += w[i] * p[3 * i + 2];
        }
        out[3 * x] = to_byte(a);
        out[3 * x + 1] = to_byte(b);
        out[3 * x + 2] = to_byte(c);
    }
}

static void narrow_row1(const taps *t, const uint8_t *in, uint8_t *out)
{
    for (int x = 0; x < t->n; x++) {
        const int32_t *w = t->weight + (size_t)x * (size_t)t->stride;
        int32_t a = WEIGHT_HALF;

        for (int i = 0; i < t->count[x]; i++)
            a += w[i] * in[t->first[x] + i];
        out[x] = to_byte(a);
    }
}

/* One new row from `count` old ones of `n` bytes each. */
SB_HOT static void mix_rows(const int32_t *w, int count, const uint8_t *in,
                            size_t n, int32_t *sum, uint8_t *out)
{
    for (size_t x = 0; x < n; x++)
        sum[x] = WEIGHT_HALF;
    for (int i = 0; i < count; i++, in += n) {
        int32_t k = w[i];

        SB_SIMD
        for (size_t x = 0; x < n; x++)
            sum[x] += k * in[x];
    }
    for (size_t x = 0; x < n; x++)
        out[x] = to_byte(sum[x]);
}

/* Both passes; `out` has its memory. */
static sb_status image_resize_resample(sb_ctx *ctx, const sb_image *in,
                                       const taps *h, const taps *v,
                                       sb_image *out)
{
    int top = v->first[0], last = v->n - 1;
    int rows = v->first[last] + v->count[last] - top;
    size_t in_row = (size_t)in->width * (size_t)in->channels;
    size_t row = (size_t)out->width * (size_t)out->channels;
    uint8_t *narrow = sb_alloc_raw(ctx, (size_t)rows, row);
    int32_t *sum = sb_alloc_raw(ctx, row, sizeof *sum);
    sb_status status = narrow && sum ? SB_OK : SB_NO_MEMORY;

    for (int y = 0; y < rows && status == SB_OK; y++) {
        const uint8_t *from = in->data + (size_t)(top + y) * in_row;
        uint8_t *to = narrow + (size_t)y * row;

        if (in->channels == 3)
            narrow_row3(h, from, to);
        else
            narrow_row1(h, from, to);
    }
    for (int y = 0; y < v->n && status == SB_OK; y++)
        mix_rows(v->weight + (size_t)y * (size_t)v->stride, v->count[y],
                 narrow + (size_t)(v->first[y] - top) * row, row, sum,
                 out->data + (size_t)y * row);
    sb_free(ctx, narrow);
    sb_free(ctx, sum);
    return status;
}

/* The old pixel under the center of each new one in [at, at + n).  Pillow adds
 * step to step, and so do we: where a center falls between two pixels, what was
 * lost in rounding decides. */
static int *image_resize_centers(sb_ctx *ctx, int from, int to, int at, int n)
{
    int *out = sb_alloc(ctx, (size_t)n, sizeof *out);
    double step = (double)from / to, x = step * 0.5;

    for (int i = 0; out && i < at + n; i++) {
        if (i >= at)
            out[i - at] = (int)x < from ? (int)x : from - 1;
        x += step;
    }
    return out;
}

static sb_status image_resize_pick(sb_ctx *ctx, const sb_image *in, int width,
                                   int height, const sb_window *win,
                                   sb_image *out)
{
    int *xs = image_resize_centers(ctx, in->width, width, win->x, win->width);
    int *ys =
        image_resize_centers(ctx, in->height, height, win->y, win->height);
    size_t c = (size_t)in->channels;
    bool there = xs && ys;

    for (int y = 0; there && y < win->height; y++) {
        const uint8_t *row = in->data + (size_t)ys[y] * (size_t)in->width * c;
        uint8_t *to = out->data + (size_t)y * (size_t)out->width * c;

        for (int x = 0; x < win->width; x++)
            memcpy(to + (size_t)x * c, row + (size_t)xs[x] * c, c);
    }
    sb_free(ctx, xs);
    sb_free(ctx, ys);
    return there ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_image_resize(sb_ctx *ctx, const sb_image *image, int width,
                          int height, sb_interpolation how,
                          const sb_window *window, sb_image *out)
{
    sb_image r = {.width = window->width,
                  .height = window->height,
                  .channels = image->channels};
    taps h = {0}, v = {0};
    sb_status status = sb_image_alloc(ctx, &r);

    if (status == SB_OK && how == SB_NEAREST) {
        status = image_resize_pick(ctx, image, width, height, window, &r);
    } else if (status == SB_OK) {
        status = taps_make(ctx, image->width, width, window->x, window->width,
                           how, &h);
        if (status == SB_OK)
            status = taps_make(ctx, image->height, height, window->y,
                               window->height, how, &v);
        if (status == SB_OK)
            status = image_resize_resample(ctx, image, &h, &v, &r);
    }
    taps_free(ctx, &h);
    taps_free(ctx, &v);
    if (status == SB_OK)
        *out = r;
    else
        sb_image_free(ctx, &r);
    return status;
}
