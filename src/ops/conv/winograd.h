/* winograd.h - the tiles of F(4x4, 3x3), shared by convolutions and by the
 * gradients of their weights. */
#ifndef SB_OPS_CONV_WINOGRAD_H
#define SB_OPS_CONV_WINOGRAD_H

#include "base/simd.h"
#include "ops/conv/conv.h"

enum {
    SB_WINOGRAD_OUT = 4,    /* tile of the output */
    SB_WINOGRAD_IN = 6,     /* tile of the input */
    SB_WINOGRAD_SPOTS = 36, /* matrix products */
    SB_WINOGRAD_WIDTH = 16, /* channels transformed at once */
};

/* How the input is cut into tiles that overlap. */
typedef struct sb_winograd_tiles {
    int64_t in[2], out[2]; /* sizes of an image */
    int64_t pad[2];        /* in front */
    int64_t rows, cols;    /* of tiles in one image */
    int64_t count;         /* in all images */
} sb_winograd_tiles;

sb_winograd_tiles sb_winograd_cut(const sb_conv *conv);

/* Where a tile lies. */
typedef struct sb_winograd_tile {
    int64_t image, row, col; /* of the output's first element */
} sb_winograd_tile;

static inline sb_winograd_tile sb_winograd_at(const sb_winograd_tiles *t,
                                              int64_t index)
{
    int64_t in_image = index % (t->rows * t->cols);

    return (sb_winograd_tile){index / (t->rows * t->cols),
                              in_image / t->cols * SB_WINOGRAD_OUT,
                              in_image % t->cols * SB_WINOGRAD_OUT};
}

/* A dense 3x3 kernel of stride 1, with channels in multiples of the width and
 * tiles enough to pay for the transforms. */
bool sb_winograd_pays(const sb_conv *conv);

/* B' x B of one tile of x [N, H, W, channels], into v[spot][tile][channel] with
 * n tiles; what lies outside the image is zero. */
void sb_winograd_input(const sb_winograd_tiles *t, const float *x,
                       int64_t channels, int64_t index, int64_t n, float *v);

/* G of the kernel's transform, G w G'. */
extern const double sb_winograd_g[SB_WINOGRAD_IN][3];

#endif
