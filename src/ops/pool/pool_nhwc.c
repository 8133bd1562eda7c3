/* Pooling in channels-last order: every tap of a window is a row of C
 * neighboring elements, so the inner loop runs over channels and vectorizes
 * whatever the window looks like. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/pool/pool.h"

SB_HOT static void row_max(const float *x, float *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = sb_pool_larger(x[i], y[i]);
}

SB_HOT static void row_add(const float *x, float *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

SB_HOT static void row_scale(float *y, float by, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] *= by;
}

static void row_fill(float *y, float v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = v;
}

/* ---- windows ------------------------------------------------------------ */

typedef struct last_job {
    const sb_kernel *k;
    const sb_pool_state *s;
    sb_pool_divisor_fn divisor; /* NULL: maximum */
    int64_t rows;               /* of windows: those of one image */
} last_job;

/* Places the walk at the first window of a row (all but the last dimension). */
static void walk_to_row(sb_pool_walk *walk, const sb_window *w, int64_t row)
{
    sb_pool_walk_begin(walk, w);
    for (int i = w->n - 2; i >= 0; i--) {
        walk->at[i] = row % w->out[i];
        row /= w->out[i];
    }
    sb_pool_walk_enter(walk);
}

static void last_rows(void *arg, size_t begin, size_t end)
{
    const last_job *job = arg;
    const sb_window *w = &job->s->w;
    int64_t c = job->k->in[0]->dims[1], width = w->out[w->n - 1];

    for (size_t item = begin; item < end; item++) {
        int64_t image = (int64_t)item / job->rows;
        const float *x =
            (const float *)job->k->in[0]->data + image * w->in_count * c;
        float *y = (float *)job->k->out[0]->data + (int64_t)item * width * c;
        sb_pool_walk walk;

        walk_to_row(&walk, w, (int64_t)item % job->rows);
        for (int64_t i = 0; i < width; i++, y += c) {
            row_fill(y, job->divisor ? 0.0f : -INFINITY, c);
            for (int64_t t = sb_pool_tap_first(&walk); t >= 0;
                 t = sb_pool_tap_next(&walk))
                (job->divisor ? row_add : row_max)(x + t * c, y, c);
            if (job->divisor) {
                int64_t by = job->divisor(job->k, &walk);
                row_scale(y, by > 0 ? 1.0f / (float)by : 0.0f, c);
            }
            (void)sb_pool_walk_next(&walk);
        }
    }
}

/* ---- windows of bytes --------------------------------------------------- */

SB_HOT static void row_max_u8(const uint8_t *x, uint8_t *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] ? x[i] : y[i];
}

SB_HOT static void row_max_i8(const int8_t *x, int8_t *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] ? x[i] : y[i];
}

static void last_byte_rows(void *arg, size_t begin, size_t end)
{
    const last_job *job = arg;
    const sb_window *w = &job->s->w;
    const sb_tensor *in = job->k->in[0];
    int64_t c = in->dims[1], width = w->out[w->n - 1];
    bool is_signed = in->dtype == SB_DTYPE_I8;

    for (size_t item = begin; item < end; item++) {
        int64_t image = (int64_t)item / job->rows;
        const uint8_t *x = (const uint8_t *)in->data + image * w->in_count * c;
        uint8_t *y =
            (uint8_t *)job->k->out[0]->data + (int64_t)item * width * c;
        sb_pool_walk walk;

        walk_to_row(&walk, w, (int64_t)item % job->rows);
        for (int64_t i = 0; i < width; i++, y += c) {
            memset(y, is_signed ? 0x80 : 0, (size_t)c); /* the least */
            for (int64_t t = sb_pool_tap_first(&walk); t >= 0;
                 t = sb_pool_tap_next(&walk)) {
                if (is_signed)
                    row_max_i8((const int8_t *)(x + t * c), (int8_t *)y, c);
                else
                    row_max_u8(x + t * c, y, c);
            }
            (void)sb_pool_walk_next(&walk);
        }
    }
}

void sb_pool_nhwc(sb_kernel *k, sb_pool_divisor_fn divisor)
{
    const sb_pool_state *s = k->state;
    int64_t width = s->w.out[s->w.n - 1];
    last_job job = {k, s, divisor, width ? s->w.out_count / width : 0};
    int64_t work = width * s->w.taps * k->in[0]->dims[1] + 1;

    sb_parallel_for(
        k->ctx, (size_t)(k->in[0]->dims[0] * job.rows),
        (size_t)(20000 / work + 1),
        k->in[0]->dtype == SB_DTYPE_F32 ? last_rows : last_byte_rows, &job);
}

void sb_pool_layout(const sb_kernel *k, sb_layout *in, sb_layout *out)
{
    if (k->in[0]->rank < 3 || k->in[0]->layout != SB_LAYOUT_CHANNELS_LAST ||
        sb_kernel_out(k, 1))
        return;
    in[0] = SB_LAYOUT_CHANNELS_LAST;
    out[0] = SB_LAYOUT_CHANNELS_LAST;
}

/* ---- whole planes ------------------------------------------------------- */

enum { GLOBAL_PARTS = 16, GLOBAL_CHUNK = 64 };

typedef struct global_job {
    const sb_kernel *k;
    float *parts; /* [images, parts, channels] */
    int64_t channels, spots, n_parts;
    bool mean;
} global_job;

/* Four rows at a time: fewer passes over y, and sums that round less. */
SB_HOT static void rows_add(const float *x, int64_t rows, int64_t n, float *y)
{
    int64_t r = 0;

    for (; r + 4 <= rows; r += 4, x += 4 * n) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] += (x[i] + x[n + i]) + (x[2 * n + i] + x[3 * n + i]);
    }
    for (; r < rows; r++, x += n) {
        SB_SIMD
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
    }
}

static void rows_max(const float *x, int64_t rows, int64_t n, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        row_max(x + r * n, y, n);
}

/* Some of the places of an image, all channels.  Where the parts begin depends
 * on the size alone. */
static void global_part(void *arg, size_t begin, size_t end)
{
    const global_job *job = arg;
    int64_t n = job->channels;

    for (size_t item = begin; item < end; item++) {
        int64_t image = (int64_t)item / job->n_parts;
        int64_t part = (int64_t)item % job->n_parts;
        int64_t from = job->spots * part / job->n_parts;
        int64_t to = job->spots * (part + 1) / job->n_parts;
        const float *x = (const float *)job->k->in[0]->data +
                         (image * job->spots + from) * n;
        float *y = job->parts + (int64_t)item * n;

        row_fill(y, job->mean ? 0.0f : -INFINITY, n);
        (job->mean ? rows_add : rows_max)(x, to - from, n, y);
    }
}

static int64_t global_parts(const sb_tensor *x)
{
    int64_t spots = sb_dims_product(x->dims, 2, x->rank);
    int64_t parts = (spots + GLOBAL_CHUNK - 1) / GLOBAL_CHUNK;

    return parts < 1 ? 1 : parts < GLOBAL_PARTS ? parts : GLOBAL_PARTS;
}

size_t sb_global_pool_scratch(const sb_tensor *x)
{
    return sizeof(float) * (size_t)(x->dims[0] * global_parts(x) * x->dims[1]);
}

void sb_global_pool_nhwc(sb_kernel *k, bool mean)
{
    const sb_tensor *x = k->in[0];
    global_job job = {.k = k,
                      .parts = k->scratch,
                      .channels = x->dims[1],
                      .spots = sb_dims_product(x->dims, 2, x->rank),
                      .n_parts = global_parts(x),
                      .mean = mean};
    int64_t each = job.channels * (job.spots / job.n_parts + 1);

    sb_parallel_for(k->ctx, (size_t)(x->dims[0] * job.n_parts),
                    (size_t)(4096 / (each + 1) + 1), global_part, &job);
    for (int64_t image = 0; image < x->dims[0]; image++) {
        float *y = (float *)k->out[0]->data + image * job.channels;
        const float *parts = job.parts + image * job.n_parts * job.channels;

        row_fill(y, mean ? 0.0f : -INFINITY, job.channels);
        (mean ? rows_add : rows_max)(parts, job.n_parts, job.channels, y);
        if (mean)
            row_scale(y, 1.0f / (float)job.spots, job.channels);
    }
}
