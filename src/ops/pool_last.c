/* Pooling in channels-last order: every tap of a window is a row of C
 * neighbouring elements, so the inner loop runs over channels and vectorises
 * whatever the window looks like. */
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/pool.h"

SB_HOT static void row_max(const float *x, float *y, int64_t n)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] > y[i] ? x[i] : y[i];
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

void sb_pool_last(sb_kernel *k, sb_pool_divisor_fn divisor)
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

enum { GLOBAL_BLOCK = 64, GLOBAL_CHUNK = 64 };

typedef struct global_job {
    const sb_kernel *k;
    int64_t channels, spots, blocks;
    bool mean;
} global_job;

/* One block of channels of one image.  Sums go in chunks of rows, so that the
 * error grows with the number of chunks, not of rows. */
static void global_blocks(void *arg, size_t begin, size_t end)
{
    const global_job *job = arg;

    for (size_t item = begin; item < end; item++) {
        int64_t image = (int64_t)item / job->blocks;
        int64_t c = (int64_t)item % job->blocks * GLOBAL_BLOCK;
        int64_t n =
            job->channels - c < GLOBAL_BLOCK ? job->channels - c : GLOBAL_BLOCK;
        const float *x = (const float *)job->k->in[0]->data +
                         image * job->spots * job->channels + c;
        float *y = (float *)job->k->out[0]->data + image * job->channels + c;
        float part[GLOBAL_BLOCK];

        row_fill(y, job->mean ? 0.0f : -INFINITY, n);
        for (int64_t s = 0; s < job->spots; s += GLOBAL_CHUNK) {
            int64_t stop =
                s + GLOBAL_CHUNK < job->spots ? s + GLOBAL_CHUNK : job->spots;
            row_fill(part, job->mean ? 0.0f : -INFINITY, n);
            for (int64_t i = s; i < stop; i++)
                (job->mean ? row_add : row_max)(x + i * job->channels, part, n);
            (job->mean ? row_add : row_max)(part, y, n);
        }
        if (job->mean)
            row_scale(y, 1.0f / (float)job->spots, n);
    }
}

void sb_global_pool_last(sb_kernel *k, bool mean)
{
    const sb_tensor *x = k->in[0];
    global_job job = {k, x->dims[1], sb_dims_product(x->dims, 2, x->rank), 0,
                      mean};

    job.blocks = (job.channels + GLOBAL_BLOCK - 1) / GLOBAL_BLOCK;
    sb_parallel_for(k->ctx, (size_t)(x->dims[0] * job.blocks),
                    (size_t)(20000 / (GLOBAL_BLOCK * job.spots + 1) + 1),
                    global_blocks, &job);
}
