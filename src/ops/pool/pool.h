/* pool.h - what the pooling operators share. */
#ifndef SB_OPS_POOL_POOL_H
#define SB_OPS_POOL_POOL_H

#include "dnn/dnn.h"
#include "ops/conv/window.h"

typedef struct sb_pool_state sb_pool_state;

/* One way to compute a pool.  Each operator lists its own, the most wanted
 * first; the last takes everything. */
typedef struct sb_pool_impl {
    const char *name;
    /* (optional) Without it: always. */
    bool (*suits)(const sb_kernel *k, const sb_pool_state *s);
    sb_status (*run)(sb_kernel *k);
} sb_pool_impl;

/* State of a pool kernel. */
struct sb_pool_state {
    sb_window w;
    int64_t planes; /* N * C */
    const sb_pool_impl *impl;
};

/* Infers output `i` as [N, C, windows...] with dtype `dtype`. */
SB_MUST_USE sb_status sb_pool_infer(sb_infer *in, const sb_window_attrs *a,
                                    uint32_t i, sb_dtype dtype);
/* Makes k->state with the first of `n` implementations that can do it. */
SB_MUST_USE sb_status sb_pool_prepare(sb_kernel *k, const sb_window_attrs *a,
                                      const sb_pool_impl *impls, size_t n);
SB_MUST_USE sb_status sb_pool_forward(sb_kernel *k);
void sb_pool_release(sb_kernel *k);

/* For `suits`: channels last; f32 windows in NCHW order, without indices. */
bool sb_pool_suits_last(const sb_kernel *k, const sb_pool_state *s);
bool sb_pool_suits_line(const sb_kernel *k, const sb_pool_state *s);

/* The larger one; NaN is larger than anything. */
static inline float sb_pool_larger(float x, float best)
{
    return x > best || x != x ? x : best;
}

/* Calls fn(plane) for every plane on the context's threads. */
typedef void (*sb_plane_fn)(const sb_kernel *k, const sb_pool_state *s,
                            int64_t plane);
void sb_pool_planes(sb_kernel *k, sb_plane_fn fn);

/* Walks the windows of one plane: at each call `at` is the window's place and
 * [lo, hi) its taps that lie inside the input. */
typedef struct sb_pool_walk {
    const sb_window *w;
    int64_t at[SB_MAX_SPATIAL];
    int64_t start[SB_MAX_SPATIAL]; /* input place of tap 0, maybe outside */
    int64_t lo[SB_MAX_SPATIAL], hi[SB_MAX_SPATIAL];
    int64_t inside; /* taps inside */
    int64_t tap[SB_MAX_SPATIAL];
} sb_pool_walk;

void sb_pool_walk_begin(sb_pool_walk *walk, const sb_window *w);
/* To the next window; false after the last. */
bool sb_pool_walk_next(sb_pool_walk *walk);
/* The first tap's element offset in the plane, -1 if the window is empty; then
 * the next ones', -1 after the last. */
int64_t sb_pool_tap_first(sb_pool_walk *walk);
int64_t sb_pool_tap_next(sb_pool_walk *walk);

/* Sets the walk up anew after `at` was changed by hand. */
void sb_pool_walk_enter(sb_pool_walk *walk);

/* What AveragePool divides the sum of a window by. */
int64_t sb_average_pool_divisor(const sb_pool_walk *walk, bool with_pad);

/* ---- lines (pool_lines.c) ----------------------------------------------- */

/* What to divide a window's sum by. */
typedef int64_t (*sb_pool_divisor_fn)(const sb_kernel *k,
                                      const sb_pool_walk *walk);
/* f32 windows in NCHW order; no divisor: maximum. */
void sb_pool_lines(sb_kernel *k, sb_pool_divisor_fn divisor);

/* ---- channels last (pool_nhwc.c) ---------------------------------------- */

/* f32 windows with input and output channels last; no divisor: maximum. */
void sb_pool_nhwc(sb_kernel *k, sb_pool_divisor_fn divisor);
/* The layout hook of pools: channels last if the input lies so. */
void sb_pool_layout(const sb_kernel *k, sb_layout *in, sb_layout *out);
/* GlobalAveragePool or GlobalMaxPool with the input channels last. */
void sb_global_pool_nhwc(sb_kernel *k, bool mean);
/* Bytes of scratch memory that it needs. */
size_t sb_global_pool_scratch(const sb_tensor *x);

#endif
