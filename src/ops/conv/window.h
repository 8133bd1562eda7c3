/* window.h - the geometry of sliding windows: convolutions and pools.
 *
 * For each spatial dimension with input size i, kernel k, stride s, dilation d
 * and pads (lo, hi), the window reaches r = (k - 1) d + 1 and there are
 *
 *     (i + lo + hi - r) / s + 1
 *
 * windows, rounded down, or up with ceil_mode unless the last window would
 * start beyond the input and its low pad. */
#ifndef SB_OPS_CONV_WINDOW_H
#define SB_OPS_CONV_WINDOW_H

#include "ops/infer_util.h"

enum { SB_MAX_SPATIAL = SB_MAX_RANK - 2 };

/* Attributes that the family shares; put it first in an operator's struct and
 * start its table with SB_WINDOW_ATTRS. */
typedef struct sb_window_attrs {
    const char *auto_pad;
    sb_ints kernel_shape, strides, dilations, pads;
    int64_t ceil_mode;
} sb_window_attrs;

/* clang-format off */
#define SB_WINDOW_ATTRS                                                        \
    {"auto_pad", SB_ATTR_STRING, offsetof(sb_window_attrs, auto_pad),          \
     .s = "NOTSET"},                                                           \
    {"kernel_shape", SB_ATTR_INTS, offsetof(sb_window_attrs, kernel_shape),    \
     .i = 0},                                                                  \
    {"strides", SB_ATTR_INTS, offsetof(sb_window_attrs, strides), .i = 0},     \
    {"dilations", SB_ATTR_INTS, offsetof(sb_window_attrs, dilations), .i = 0}, \
    {"pads", SB_ATTR_INTS, offsetof(sb_window_attrs, pads), .i = 0},           \
    {"ceil_mode", SB_ATTR_INT, offsetof(sb_window_attrs, ceil_mode), .i = 0, .flag = true}
/* clang-format on */

typedef struct sb_window {
    int n; /* spatial dimensions */
    sb_dim in[SB_MAX_SPATIAL], out[SB_MAX_SPATIAL];
    int64_t kernel[SB_MAX_SPATIAL];
    int64_t stride[SB_MAX_SPATIAL];
    int64_t dilation[SB_MAX_SPATIAL];
    int64_t pad_lo[SB_MAX_SPATIAL], pad_hi[SB_MAX_SPATIAL];
    int64_t in_count, out_count, taps; /* products, if all are known */
} sb_window;

/* Whom to name in messages. */
typedef struct sb_window_who {
    sb_ctx *ctx;
    const sb_graph *graph;
    const sb_node *node;
} sb_window_who;

static inline sb_window_who sb_window_who_infer(const sb_infer *in)
{
    return (sb_window_who){in->ctx, in->graph, in->node};
}

static inline sb_window_who sb_window_who_kernel(const sb_kernel *k)
{
    return (sb_window_who){k->ctx, k->graph, k->node};
}

/* Fills everything from the attributes, the shape [N, C, D...] of the input,
 * and, where the kernel_shape attribute is absent, the last dimensions of
 * `weights` (NULL: the attribute is required).  Outputs are unknown where
 * inputs are.  If the kernel is not known, *n is 0 and the rest unset. */
SB_MUST_USE sb_status sb_window_set(const sb_window_who *who,
                                    const sb_window_attrs *a, const sb_shape *x,
                                    const sb_shape *weights, sb_window *out);

/* The parts of it, for transposed convolutions: everything but pads from
 * auto_pad and the output size. */
SB_MUST_USE sb_status sb_window_read(const sb_window_who *who,
                                     const sb_window_attrs *a,
                                     const sb_shape *x, const sb_shape *weights,
                                     sb_window *out);
/* Sets the products, which must not overflow; all sizes must be known. */
SB_MUST_USE sb_status sb_window_count(const sb_window_who *who, sb_window *w);

typedef enum sb_auto_pad {
    SB_PAD_NOTSET,
    SB_PAD_VALID,
    SB_PAD_SAME_UPPER,
    SB_PAD_SAME_LOWER,
} sb_auto_pad;

SB_MUST_USE sb_status sb_window_auto_pad(const sb_window_who *who,
                                         const sb_window_attrs *a,
                                         sb_auto_pad *out);

/* Output shape [N, channels, windows...] of dtype `dtype` as output i. */
void sb_window_infer_out(sb_infer *in, uint32_t i, sb_dtype dtype,
                         const sb_window *w, sb_dim n, sb_dim channels);

/* The taps of the window at one place that lie inside the input: for spatial
 * dimension `i` and window `at`, taps [*begin, *end) and the input position of
 * tap 0. */
static inline int64_t sb_window_clip(const sb_window *w, int i, int64_t at,
                                     int64_t *begin, int64_t *end)
{
    int64_t d = w->dilation[i], start = at * w->stride[i] - w->pad_lo[i];
    int64_t first = start < 0 ? (-start + d - 1) / d : 0;
    int64_t last = start >= w->in[i] ? 0 : (w->in[i] - start + d - 1) / d;

    *begin = first < w->kernel[i] ? first : w->kernel[i];
    *end = last < w->kernel[i] ? last : w->kernel[i];
    if (*end < *begin)
        *end = *begin;
    return start;
}

/* The pixel of an image that `tap` of the place `at` meets; -1 is padding. */
static inline int64_t sb_window_pixel(const sb_window *w, const int64_t *at,
                                      int64_t tap)
{
    int64_t from = 0, step = 1;

    for (int i = w->n - 1; i >= 0; i--) {
        int64_t k = tap % w->kernel[i];
        int64_t x = at[i] * w->stride[i] - w->pad_lo[i] + k * w->dilation[i];
        if (x < 0 || x >= w->in[i])
            return -1;
        from += x * step;
        step *= w->in[i];
        tap /= w->kernel[i];
    }
    return from;
}

#endif
