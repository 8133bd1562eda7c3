/* MaxPool: the largest element of each window, and where it lies.
 *
 * Floats without indices go to oneDNN.  Indices count elements of the whole
 * input; storage_order 1 counts a plane column by column. */
#include "ops/pool.h"

#include <math.h>
#include <string.h>

#include "base/simd.h"

typedef struct {
    sb_window_attrs window;
    int64_t storage_order;
} max_pool_attrs;

static const sb_attr_def attrs[] = {
    SB_WINDOW_ATTRS,
    {"storage_order", SB_ATTR_INT, offsetof(max_pool_attrs, storage_order),
     .i = 0},
    {0},
};

static sb_status max_pool_infer(sb_infer *in)
{
    const max_pool_attrs *a = in->attrs;

    SB_TRY(sb_pool_infer(in, &a->window, 0, in->in[0]->type.dtype));
    return sb_pool_infer(in, &a->window, 1, SB_DTYPE_I64);
}

static sb_status max_pool_prepare(sb_kernel *k)
{
    const max_pool_attrs *a = k->attrs;
    sb_dtype dtype = k->in[0]->dtype;
    sb_dnn_pool_kind kind = SB_DNN_POOL_MAX;

    if (dtype != SB_DTYPE_F32 && dtype != SB_DTYPE_I8 && dtype != SB_DTYPE_U8)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input of type %s",
                              sb_dtype_name(dtype));
    bool by_dnn = dtype == SB_DTYPE_F32 && !sb_kernel_out(k, 1);
    return sb_pool_prepare(k, &a->window, by_dnn ? &kind : NULL);
}

/* The index that the model wants for element `at` of a plane. */
static int64_t index_of(const max_pool_attrs *a, const sb_window *w, int64_t at)
{
    int64_t index = 0, step = 1, rest = w->in_count;

    if (!a->storage_order)
        return at;
    /* The first spatial dimension runs fastest. */
    for (int i = 0; i < w->n; i++) {
        rest /= w->in[i];
        index += at / rest * step;
        at %= rest;
        step *= w->in[i];
    }
    return index;
}

/* One plane of elements read by `get`; a window without elements gives the
 * least value and index 0. */
#define MAX_PLANE(name, type, least)                                          \
    static void name(const sb_kernel *k, const sb_pool_state *s,              \
                     int64_t plane)                                           \
    {                                                                         \
        const type *x = (const type *)k->in[0]->data + plane * s->w.in_count; \
        type *y = (type *)k->out[0]->data + plane * s->w.out_count;           \
        sb_tensor *where = sb_kernel_out(k, 1);                               \
        int64_t *at =                                                         \
            where ? (int64_t *)where->data + plane * s->w.out_count : NULL;   \
        sb_pool_walk walk;                                                    \
                                                                              \
        sb_pool_walk_begin(&walk, &s->w);                                     \
        do {                                                                  \
            type best = least;                                                \
            int64_t best_at = -1;                                             \
            for (int64_t t = sb_pool_tap_first(&walk); t >= 0;                \
                 t = sb_pool_tap_next(&walk))                                 \
                if (x[t] > best || best_at < 0) {                             \
                    best = x[t];                                              \
                    best_at = t;                                              \
                }                                                             \
            *y++ = best;                                                      \
            if (at)                                                           \
                *at++ =                                                       \
                    plane * s->w.in_count +                                   \
                    (best_at < 0 ? 0 : index_of(k->attrs, &s->w, best_at));   \
        } while (sb_pool_walk_next(&walk));                                   \
    }

MAX_PLANE(max_plane_f32, float, -INFINITY)
MAX_PLANE(max_plane_i8, int8_t, INT8_MIN)
MAX_PLANE(max_plane_u8, uint8_t, 0)

/* ---- bytes, row by row ---------------------------------------------------
 * First the largest element of each column of a row of windows, then that of
 * each window along the row.  `flip` is 0x80 for int8, whose order is that of
 * uint8 with the highest bit turned over. */

enum { MAX_WIDTH = 4096 };

SB_HOT static void max_into(uint8_t *best, const uint8_t *x, int64_t n,
                            int64_t step, uint8_t flip)
{
    if (step == 1) {
        SB_SIMD
        for (int64_t j = 0; j < n; j++) {
            uint8_t v = (uint8_t)(x[j] ^ flip);
            best[j] = v > best[j] ? v : best[j];
        }
        return;
    }
    for (int64_t j = 0; j < n; j++) {
        uint8_t v = (uint8_t)(x[j * step] ^ flip);
        best[j] = v > best[j] ? v : best[j];
    }
}

/* Along a row: tap `t` of the windows for which it lies inside. */
static void max_along(const sb_window *w, const uint8_t *x, int64_t t,
                      uint8_t flip, uint8_t *y)
{
    int last = w->n - 1;
    int64_t step = w->stride[last];
    int64_t at = t * w->dilation[last] - w->pad_lo[last]; /* of window 0 */
    int64_t begin = at < 0 ? (-at + step - 1) / step : 0;
    int64_t end = at < w->in[last] ? (w->in[last] - at + step - 1) / step : 0;

    end = end < w->out[last] ? end : w->out[last];
    if (begin < end)
        max_into(y + begin, x + at + begin * step, end - begin, step, flip);
}

/* A plane that is a single row. */
static void max_line_bytes(const sb_kernel *k, const sb_pool_state *s,
                           int64_t plane)
{
    const sb_window *w = &s->w;
    const uint8_t *x = (const uint8_t *)k->in[0]->data + plane * w->in_count;
    uint8_t *y = (uint8_t *)k->out[0]->data + plane * w->out_count;
    uint8_t flip = k->in[0]->dtype == SB_DTYPE_I8 ? 0x80 : 0;

    memset(y, 0, (size_t)w->out[0]);
    for (int64_t t = 0; t < w->kernel[0]; t++)
        max_along(w, x, t, flip, y);
    for (int64_t j = 0; flip && j < w->out[0]; j++)
        y[j] ^= flip;
}

static void max_plane_bytes(const sb_kernel *k, const sb_pool_state *s,
                            int64_t plane)
{
    const sb_window *w = &s->w;
    const uint8_t *x = (const uint8_t *)k->in[0]->data + plane * w->in_count;
    uint8_t *y = (uint8_t *)k->out[0]->data + plane * w->out_count;
    uint8_t flip = k->in[0]->dtype == SB_DTYPE_I8 ? 0x80 : 0;
    uint8_t column[MAX_WIDTH];

    for (int64_t i = 0; i < w->out[0]; i++, y += w->out[1]) {
        int64_t begin, end, start = sb_window_clip(w, 0, i, &begin, &end);

        memset(column, 0, (size_t)w->in[1]);
        for (int64_t t = begin; t < end; t++)
            max_into(column, x + (start + t * w->dilation[0]) * w->in[1],
                     w->in[1], 1, flip);
        memset(y, 0, (size_t)w->out[1]);
        for (int64_t t = 0; t < w->kernel[1]; t++)
            max_along(w, column, t, 0, y);
        for (int64_t j = 0; flip && j < w->out[1]; j++)
            y[j] ^= flip;
    }
}

static sb_plane_fn choose_plane(const sb_kernel *k, const sb_pool_state *s)
{
    sb_dtype dtype = k->in[0]->dtype;

    if (dtype == SB_DTYPE_F32)
        return max_plane_f32;
    if (s->w.n == 1 && !sb_kernel_out(k, 1))
        return max_line_bytes;
    if (s->w.n == 2 && s->w.in[1] <= MAX_WIDTH && !sb_kernel_out(k, 1))
        return max_plane_bytes;
    return dtype == SB_DTYPE_I8 ? max_plane_i8 : max_plane_u8;
}

static sb_status max_pool_forward(sb_kernel *k)
{
    sb_pool_state *s = k->state;

    if (s->dnn)
        return sb_dnn_pool_run(s->dnn, k->in[0]->data, k->out[0]->data,
                               k->scratch);
    if (k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST) {
        sb_pool_last(k, NULL);
        return SB_OK;
    }
    if (s->w.n == 1 && k->in[0]->dtype == SB_DTYPE_F32 && !sb_kernel_out(k, 1))
        sb_pool_line(k, NULL);
    else
        sb_pool_planes(k, choose_plane(k, s));
    return SB_OK;
}

const sb_op_def sb_op_max_pool = {
    .name = "MaxPool",
    .since = 8,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_F32,
    .any_type = 1u << 0,
    .attrs_size = sizeof(max_pool_attrs),
    .attrs = attrs,
    .infer = max_pool_infer,
    .layout = sb_pool_layout,
    .prepare = max_pool_prepare,
    .forward = max_pool_forward,
    .release = sb_pool_release,
};
