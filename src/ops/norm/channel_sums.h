/* channel_sums.h - two sums for each channel of a batch, for batch
 * normalization while learning. */
#ifndef SB_OPS_NORM_CHANNEL_SUMS_H
#define SB_OPS_NORM_CHANNEL_SUMS_H

#include "graph/op.h"

/* [N, C, size], or [N, size, C] with the channels last. */
typedef struct sb_channel_view {
    int64_t n, c, size;
    bool last;
} sb_channel_view;

/* `u` and `v` lie as the view says; the shifts are [C]. */
typedef struct sb_channel_sums {
    sb_channel_view view;
    const float *u, *u_shift; /* shift NULL: 0 */
    const float *v, *v_shift;
    double *sum;     /* [C] of u - u_shift */
    double *product; /* [C] of (u - u_shift) (v - v_shift) */
    double *scratch; /* of sb_channel_sums_scratch() doubles */
} sb_channel_sums;

sb_channel_view sb_channel_view_of(const sb_tensor *x);
/* Elements of a channel. */
int64_t sb_channel_count(const sb_channel_view *view);
size_t sb_channel_sums_scratch(const sb_channel_view *view);
/* The same sums for any number of threads. */
void sb_channel_sums_run(sb_ctx *ctx, const sb_channel_sums *sums);

/* y = u fu + v fv + shift for each channel, the factors [C]; y may be u or v.
 * fv NULL: without v. */
typedef struct sb_channel_map {
    sb_channel_view view;
    const float *u, *fu;
    const float *v, *fv;
    const float *shift;
    float *y;
} sb_channel_map;

void sb_channel_map_run(sb_ctx *ctx, const sb_channel_map *map);

#endif
