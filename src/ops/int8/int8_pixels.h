/* int8_pixels.h - sums of products of bytes whose pixels lie channel beside
 * channel: the inner loops of int8_conv_last.c.
 *
 * Pixels are unsigned, weights signed (int8_tile.h says why) and without zero
 * points, so that of the pixels is a constant of the output channel and part of
 * the number that its sum begins with.  What is read lies in the image as it
 * is; only weights are packed.  Results are rounded while they are in registers
 * and written where they belong. */
#ifndef SB_OPS_INT8_INT8_PIXELS_H
#define SB_OPS_INT8_INT8_PIXELS_H

#include "ops/int8/int8_conv.h"

enum {
    SB_PIXEL_COLS = 64, /* output channels of a panel, at most */
    SB_PIXEL_LANE = 16, /* panels are padded to a multiple of it */
    SB_PIXEL_BLOCK = 48 /* pixels of one call, at most */
};

/* Products with one panel of weights:
 *
 *     sum[p][j] = init[j] + sum over r < n_run, q < n_quad, i < 4 of
 *                 at[r * SB_PIXEL_BLOCK + p][4 q + i] * w[r][q][j][i]
 *
 * for j < cols, rounded as `end` says and written to element
 * p * y_step + j of `y`.  init and multiplier are as long as the panel. */
typedef struct sb_int8_pixels {
    const uint8_t *const *at;
    int64_t n_run, n_quad;
    const uint8_t *w;
    const int32_t *init;
    const float *multiplier, *add; /* add may be NULL */
    int64_t cols;
    const sb_int8_conv_end *end;
    void *y;
    int64_t y_step;
} sb_int8_pixels;

typedef void (*sb_int8_pixels_fn)(const sb_int8_pixels *p, int64_t n_pixel);

/* One pixel of a depthwise convolution:
 *
 *     sum[c] = init[c] + sum over t < n_tap of tap[t][c] * w[t][c]
 *
 * Weights, init and multiplier stand in the order of the implementation and are
 * padded to a multiple of SB_DEPTH_LANE channels. */
typedef struct sb_int8_depth {
    const uint8_t *const *tap;
    int64_t n_tap, n_channel;
    const uint8_t *w;
    const int32_t *init;
    const float *multiplier;
    const sb_int8_conv_end *end;
    void *y;
} sb_int8_depth;

enum { SB_DEPTH_LANE = 32 };

typedef void (*sb_int8_depth_fn)(const sb_int8_depth *d);

/* An implementation of both. */
typedef struct sb_int8_pixel_kind {
    sb_int8_pixels_fn pixels;
    sb_int8_depth_fn depth;
    bool quads; /* depthwise weights stand in quads of taps */
} sb_int8_pixel_kind;

/* The i-th one, the fastest first; NULL past the end, or if this processor
 * cannot run it (the last one always runs). */
const sb_int8_pixel_kind *sb_int8_pixel_kind_at(int i);
enum { SB_PIXEL_KINDS = 3 };

const sb_int8_pixel_kind *sb_int8_pixel_choose(void);

/* ---- where depthwise weights stand -------------------------------------- */

/* Of init and multiplier of channel c. */
static inline int64_t sb_int8_depth_slot(bool quads, int64_t c)
{
    /* As bytes are interleaved within 16 channels: four of either half, the
     * next four of either half. */
    return quads ? c / 32 * 32 + c % 16 / 4 * 8 + c / 16 % 2 * 4 + c % 4 : c;
}

/* Of the weight of tap t of channel c; a line holds `line` channels. */
static inline int64_t sb_int8_depth_weight(bool quads, int64_t n_tap,
                                           int64_t line, int64_t t, int64_t c)
{
    if (!quads)
        return t * line + c;
    return (c / 32 * ((n_tap + 3) / 4) + t / 4) * 128 +
           sb_int8_depth_slot(true, c % 32) * 4 + t % 4;
}

#endif
