/* pool.h - what the pooling operators share. */
#ifndef SB_OPS_POOL_H
#define SB_OPS_POOL_H

#include "dnn/dnn.h"
#include "ops/window.h"

/* State of a pool kernel: geometry, and oneDNN's object if it does the work. */
typedef struct sb_pool_state {
    sb_window w;
    int64_t planes; /* N * C */
    sb_dnn_pool *dnn;
} sb_pool_state;

/* Infers output `i` as [N, C, windows...] with dtype `dtype`. */
SB_MUST_USE sb_status sb_pool_infer(sb_infer *in, const sb_window_attrs *a,
                                    uint32_t i, sb_dtype dtype);
/* Makes k->state; if `kind` is not NULL, tries oneDNN, but not for windows
 * along one dimension, which sb_pool_line() does many times faster. */
SB_MUST_USE sb_status sb_pool_prepare(sb_kernel *k, const sb_window_attrs *a,
                                      const sb_dnn_pool_kind *kind);
void sb_pool_release(sb_kernel *k);

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

/* ---- signals (pool_line.c) ----------------------------------------------- */

/* What to divide a window's sum by. */
typedef int64_t (*sb_pool_divisor_fn)(const sb_kernel *k,
                                      const sb_pool_walk *walk);
/* f32 windows along one dimension, in plain order; no divisor: maximum. */
void sb_pool_line(sb_kernel *k, sb_pool_divisor_fn divisor);

/* ---- channels last (pool_last.c) ---------------------------------------- */

/* f32 windows with input and output channels last; no divisor: maximum. */
void sb_pool_last(sb_kernel *k, sb_pool_divisor_fn divisor);
/* The layout hook of pools: channels last if the input lies so. */
void sb_pool_layout(const sb_kernel *k, sb_layout *in, sb_layout *out);
/* GlobalAveragePool or GlobalMaxPool with the input channels last. */
void sb_global_pool_last(sb_kernel *k, bool mean);
/* Bytes of scratch memory that it needs. */
size_t sb_global_pool_scratch(const sb_tensor *x);

#endif
