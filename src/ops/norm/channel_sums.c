/* Sums for each channel of a batch.
 *
 * Blocks of BLOCK products are added in float, blocks in double.  Channels
 * last, the places are cut into a fixed number of parts, whose sums are added
 * in order; else each channel is the work of one thread.  So sums do not depend
 * on the number of threads. */
#include "ops/norm/channel_sums.h"

#include "base/simd.h"
#include "base/threads.h"

enum {
    BLOCK = 64,      /* elements that are added in float */
    LANES = 32,      /* channels that are added at a time */
    GRAIN = 1 << 15, /* elements worth a thread */
};

sb_channel_view sb_channel_view_of(const sb_tensor *x)
{
    return (sb_channel_view){
        .n = x->dims[0],
        .c = x->rank > 1 ? x->dims[1] : 1,
        .size = x->rank > 2 ? sb_dims_product(x->dims, 2, x->rank) : 1,
        .last = x->rank < 3 || x->layout == SB_LAYOUT_CHANNELS_LAST};
}

int64_t sb_channel_count(const sb_channel_view *view)
{
    return view->n * view->size;
}

size_t sb_channel_sums_scratch(const sb_channel_view *view)
{
    return view->last ? 2 * SB_REDUCE_PARTS * (size_t)view->c : 0;
}

/* Both sums of `rows` rows of n channels, `stride` apart. */
SB_HOT static void sums_block(const float *u, const float *u_shift,
                              const float *v, const float *v_shift,
                              int64_t rows, int64_t stride, size_t n,
                              float *sum, float *product)
{
    for (size_t j = 0; j < n; j++)
        sum[j] = product[j] = 0;
    for (int64_t r = 0; r < rows; r++) {
        const float *a = u + r * stride, *b = v + r * stride;
        SB_SIMD
        for (size_t j = 0; j < n; j++) {
            float d = a[j] - u_shift[j];
            sum[j] += d;
            product[j] += d * (b[j] - v_shift[j]);
        }
    }
}

static const float no_shift[LANES];

/* Channels [c, c + n) of the places [begin, end). */
static void sums_lanes(const sb_channel_sums *s, int64_t begin, int64_t end,
                       int64_t c, size_t n, double *out)
{
    int64_t channels = s->view.c;
    float sum[LANES], product[LANES];

    for (int64_t at = begin; at < end; at += BLOCK) {
        int64_t rows = end - at < BLOCK ? end - at : BLOCK;
        sums_block(
            s->u + at * channels + c, s->u_shift ? s->u_shift + c : no_shift,
            s->v + at * channels + c, s->v_shift ? s->v_shift + c : no_shift,
            rows, channels, n, sum, product);
        for (size_t j = 0; j < n; j++) {
            out[c + (int64_t)j] += (double)sum[j];
            out[channels + c + (int64_t)j] += (double)product[j];
        }
    }
}

/* Items are parts of the places. */
static void sums_parts(void *arg, size_t begin, size_t end)
{
    const sb_channel_sums *s = arg;
    int64_t channels = s->view.c, places = sb_channel_count(&s->view);

    for (size_t part = begin; part < end; part++) {
        double *out = s->scratch + 2 * part * (size_t)channels;
        int64_t from = places * (int64_t)part / SB_REDUCE_PARTS;
        int64_t to = places * ((int64_t)part + 1) / SB_REDUCE_PARTS;

        for (int64_t c = 0; c < 2 * channels; c++)
            out[c] = 0;
        for (int64_t c = 0; c < channels; c += LANES)
            sums_lanes(s, from, to, c,
                       (size_t)(channels - c < LANES ? channels - c : LANES),
                       out);
    }
}

/* Items are channels in NCHW order. */
static void sums_channels(void *arg, size_t begin, size_t end)
{
    const sb_channel_sums *s = arg;
    const sb_channel_view *w = &s->view;

    for (size_t c = begin; c < end; c++) {
        float us = s->u_shift ? s->u_shift[c] : 0;
        float vs = s->v_shift ? s->v_shift[c] : 0;
        double sum = 0, product = 0;

        for (int64_t n = 0; n < w->n; n++) {
            int64_t first = (n * w->c + (int64_t)c) * w->size;
            for (int64_t i = 0; i < w->size; i++) {
                double d = (double)(s->u[first + i] - us);
                sum += d;
                product += d * (double)(s->v[first + i] - vs);
            }
        }
        s->sum[c] = sum;
        s->product[c] = product;
    }
}

void sb_channel_sums_run(sb_ctx *ctx, const sb_channel_sums *sums)
{
    const sb_channel_view *w = &sums->view;
    size_t channels = (size_t)w->c;
    int64_t places = sb_channel_count(w);
    sb_channel_sums copy = *sums;

    if (!w->last) {
        sb_parallel_for(ctx, channels, (size_t)(GRAIN / (places + 1) + 1),
                        sums_channels, &copy);
        return;
    }
    int64_t part = places * w->c / SB_REDUCE_PARTS;
    sb_parallel_for(ctx, SB_REDUCE_PARTS, (size_t)(GRAIN / (part + 1) + 1),
                    sums_parts, &copy);
    for (size_t c = 0; c < channels; c++) {
        sums->sum[c] = sums->product[c] = 0;
        for (size_t p = 0; p < SB_REDUCE_PARTS; p++) {
            sums->sum[c] += sums->scratch[2 * p * channels + c];
            sums->product[c] += sums->scratch[(2 * p + 1) * channels + c];
        }
    }
}

/* ---- mapping ------------------------------------------------------------ */

SB_HOT static void map_row(const sb_channel_map *m, int64_t at)
{
    const float *u = m->u + at, *fu = m->fu, *fv = m->fv, *shift = m->shift;
    const float *v = fv ? m->v + at : NULL;
    float *y = m->y + at;

    if (fv) {
        SB_SIMD
        for (int64_t c = 0; c < m->view.c; c++)
            y[c] = u[c] * fu[c] + v[c] * fv[c] + shift[c];
    } else {
        SB_SIMD
        for (int64_t c = 0; c < m->view.c; c++)
            y[c] = u[c] * fu[c] + shift[c];
    }
}

static void map_rows(void *arg, size_t begin, size_t end)
{
    const sb_channel_map *m = arg;

    for (size_t i = begin; i < end; i++)
        map_row(m, (int64_t)i * m->view.c);
}

SB_HOT static void map_plane(const sb_channel_map *m, int64_t plane)
{
    int64_t c = plane % m->view.c, at = plane * m->view.size;
    const float *u = m->u + at, *v = m->fv ? m->v + at : u;
    float fu = m->fu[c], fv = m->fv ? m->fv[c] : 0, shift = m->shift[c];
    float *y = m->y + at;

    SB_SIMD
    for (int64_t i = 0; i < m->view.size; i++)
        y[i] = m->fv ? u[i] * fu + v[i] * fv + shift : u[i] * fu + shift;
}

static void map_planes(void *arg, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        map_plane(arg, (int64_t)i);
}

void sb_channel_map_run(sb_ctx *ctx, const sb_channel_map *map)
{
    const sb_channel_view *w = &map->view;
    sb_channel_map copy = *map;
    int64_t run = w->last ? w->c : w->size;

    sb_parallel_for(ctx, (size_t)(w->last ? sb_channel_count(w) : w->n * w->c),
                    (size_t)(GRAIN / (run + 1) + 1),
                    w->last ? map_rows : map_planes, &copy);
}
