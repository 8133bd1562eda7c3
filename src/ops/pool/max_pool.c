/* MaxPool: the largest element of each window, and where it lies.
 *
 * oneDNN has one as well, which passes over NaN and takes -FLT_MAX for the
 * least number.  Indices count elements of the whole input; storage_order 1
 * counts a plane column by column. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/pool/pool.h"
#include "ops/tie/tie_rules.h"

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
     .i = 0, .flag = true},
    {0},
};

static sb_status max_pool_infer(sb_infer *in)
{
    const max_pool_attrs *a = in->attrs;

    SB_TRY(sb_pool_infer(in, &a->window, 0, in->in[0]->type.dtype));
    return sb_pool_infer(in, &a->window, 1, SB_DTYPE_I64);
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

#define MORE(x, best)      ((x) > (best))
#define MORE_REAL(x, best) ((x) > (best) || ((x) != (x) && (best) == (best)))

/* One plane; a window without elements gives the least value and index 0. */
#define MAX_PLANE(name, type, least, more)                                    \
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
                if (more(x[t], best) || best_at < 0) {                        \
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

MAX_PLANE(max_plane_f32, float, -INFINITY, MORE_REAL)
MAX_PLANE(max_plane_i8, int8_t, INT8_MIN, MORE)
MAX_PLANE(max_plane_u8, uint8_t, 0, MORE)

/* ---- row by row ----------------------------------------------------------
 * First the largest element of each column of a row of windows, then that of
 * each window along the row. */

enum { MAX_WIDTH = 4096 };

/* Tap `t` along a row: the windows [begin, end) for which it lies inside, and
 * where it is for the first of them. */
typedef struct row_tap {
    int64_t begin, end, at;
} row_tap;

static row_tap row_tap_of(const sb_window *w, int64_t t)
{
    int last = w->n - 1;
    int64_t step = w->stride[last];
    int64_t at = t * w->dilation[last] - w->pad_lo[last]; /* of window 0 */
    int64_t begin = at < 0 ? (-at + step - 1) / step : 0;
    int64_t end = at < w->in[last] ? (w->in[last] - at + step - 1) / step : 0;

    end = end < w->out[last] ? end : w->out[last];
    return (row_tap){begin, end, at + begin * step};
}

SB_HOT static void max_into_f32(float *best, const float *x, int64_t n,
                                int64_t step)
{
    if (step == 1) {
        SB_SIMD
        for (int64_t j = 0; j < n; j++)
            best[j] = sb_pool_larger(x[j], best[j]);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        best[j] = sb_pool_larger(x[j * step], best[j]);
}

static void max_rows_f32(const sb_kernel *k, const sb_pool_state *s,
                         int64_t plane)
{
    const sb_window *w = &s->w;
    const float *x = (const float *)k->in[0]->data + plane * w->in_count;
    float *y = (float *)k->out[0]->data + plane * w->out_count;
    float column[MAX_WIDTH];

    for (int64_t i = 0; i < w->out[0]; i++, y += w->out[1]) {
        int64_t begin, end, start = sb_window_clip(w, 0, i, &begin, &end);

        for (int64_t j = 0; j < w->in[1]; j++)
            column[j] = -INFINITY;
        for (int64_t t = begin; t < end; t++)
            max_into_f32(column, x + (start + t * w->dilation[0]) * w->in[1],
                         w->in[1], 1);
        for (int64_t j = 0; j < w->out[1]; j++)
            y[j] = -INFINITY;
        for (int64_t t = 0; t < w->kernel[1]; t++) {
            row_tap tap = row_tap_of(w, t);
            if (tap.begin < tap.end)
                max_into_f32(y + tap.begin, column + tap.at,
                             tap.end - tap.begin, w->stride[1]);
        }
    }
}

/* ---- the same of bytes ---------------------------------------------------
 * `flip` is 0x80 for int8, whose order is that of uint8 with the highest bit
 * turned over. */

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
    row_tap tap = row_tap_of(w, t);

    if (tap.begin < tap.end)
        max_into(y + tap.begin, x + tap.at, tap.end - tap.begin,
                 w->stride[w->n - 1], flip);
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

/* ---- implementations ---------------------------------------------------- */

static sb_status max_last(sb_kernel *k)
{
    sb_pool_nhwc(k, NULL);
    return SB_OK;
}

static sb_status max_line(sb_kernel *k)
{
    sb_pool_lines(k, NULL);
    return SB_OK;
}

/* Rows of floats, in two dimensions. */
static bool max_suits_rows(const sb_kernel *k, const sb_pool_state *s)
{
    return k->in[0]->dtype == SB_DTYPE_F32 && !sb_kernel_out(k, 1) &&
           s->w.n == 2 && s->w.in[1] <= MAX_WIDTH;
}

static sb_status max_rows(sb_kernel *k)
{
    sb_pool_planes(k, max_rows_f32);
    return SB_OK;
}

/* Rows of bytes, of one or two dimensions. */
static bool max_suits_bytes(const sb_kernel *k, const sb_pool_state *s)
{
    return k->in[0]->dtype != SB_DTYPE_F32 && !sb_kernel_out(k, 1) &&
           (s->w.n == 1 || (s->w.n == 2 && s->w.in[1] <= MAX_WIDTH));
}

static sb_status max_bytes(sb_kernel *k)
{
    const sb_pool_state *s = k->state;

    sb_pool_planes(k, s->w.n == 1 ? max_line_bytes : max_plane_bytes);
    return SB_OK;
}

static sb_status max_planes(sb_kernel *k)
{
    sb_dtype dtype = k->in[0]->dtype;

    sb_pool_planes(k, dtype == SB_DTYPE_F32  ? max_plane_f32
                      : dtype == SB_DTYPE_I8 ? max_plane_i8
                                             : max_plane_u8);
    return SB_OK;
}

static const sb_pool_impl impls[] = {
    {"nhwc", sb_pool_suits_last, max_last},
    {"rows", max_suits_rows, max_rows},
    {"line", sb_pool_suits_line, max_line},
    {"bytes", max_suits_bytes, max_bytes},
    {"naive", NULL, max_planes},
};

static sb_status max_pool_prepare(sb_kernel *k)
{
    const max_pool_attrs *a = k->attrs;
    sb_dtype dtype = k->in[0]->dtype;

    if (dtype != SB_DTYPE_F32 && dtype != SB_DTYPE_I8 && dtype != SB_DTYPE_U8)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "input of type %s",
                              sb_dtype_name(dtype));
    return sb_pool_prepare(k, &a->window, impls, SB_COUNT(impls));
}

const sb_op_def sb_op_max_pool = {
    .name = "MaxPool",
    .since = 8,
    .quant = SB_ROLE_PASS,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_F32 | SB_OP_HOMOGENEOUS,
    .any_type = 1u << 0,
    .attrs_size = sizeof(max_pool_attrs),
    .attrs = attrs,
    .batch = sb_batch_first,
    .infer = max_pool_infer,
    .layout = sb_pool_layout,
    .prepare = max_pool_prepare,
    .forward = sb_pool_forward,
    .grad = sb_grad_max_pool,
    .release = sb_pool_release,
    .tie = sb_tie_pool,
};
