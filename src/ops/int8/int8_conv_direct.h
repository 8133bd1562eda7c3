/* int8_conv_direct.h - convolution of 8-bit tensors without gathering; see
 * int8_conv.h.
 *
 * For windows larger than a pixel, and for groups.  Gathering writes each pixel
 * once for every tap that sees it, which pays if many output channels read the
 * result and not if a group has four of them.  Here a band of the image is
 * written once, as quads of bytes, and a tap is an address:
 *
 *     packed [quad][kd][h % sh][w % sw][h / sh][w / sw][4]
 *
 * A quad is four channels; where a group has only one, the pixels of four taps,
 * one below the other.  Zero points are as in int8_gemm.h.  Pixels that a
 * strided window reads one after another are neighbors, so neighboring results
 * make one line: result (h, w) of the band stands at h * line + w, and what
 * unit u of its sum reads at offset[u] from there.  Positions between the rows
 * are computed too, and left out when results are stored. */
#ifndef SB_OPS_INT8_INT8_CONV_DIRECT_H
#define SB_OPS_INT8_INT8_CONV_DIRECT_H

#include "ops/int8/int8_conv.h"

struct sb_int8_direct {
    int64_t rows, n_band;  /* of the result; rows of one band */
    int64_t cols, n_strip; /* of rows that are too long for one */
    int64_t groups;        /* computed one after another by one thread */
    int64_t parts;         /* of a group's output channels */
    int64_t block;         /* output channels of a tile */
    bool by_rows;          /* quads are taps */
    int64_t n_quad, n_unit;
    int64_t phase_h, phase_w;
    int64_t plane_h, line; /* of one phase */
    int64_t size;          /* quads in all */
    size_t lanes;
    int64_t offset[]; /* [n_unit] */
};

/* Makes c->direct if this convolution is faster that way; else it stays NULL.
 * The geometry must be there. */
SB_MUST_USE sb_status sb_int8_direct_create(sb_ctx *ctx, sb_int8_conv *c);
/* Bytes of the packed weights of one group: a multiple of 4. */
int64_t sb_int8_direct_group_size(const sb_int8_conv *c);
/* Packs the weights of one group, at `w` [c_out, k]; `zero` is one per row. */
void sb_int8_direct_pack(const sb_int8_conv *c, const void *w,
                         const int32_t *zero, uint8_t *out);
/* Bytes of memory that sb_int8_direct_run needs. */
bool sb_int8_direct_scratch(const sb_int8_conv *c, size_t *bytes);

typedef struct sb_int8_direct_args {
    const sb_int8_conv *c;
    const sb_int8_conv_end *end;
    const void *x;
    int32_t x_zero; /* of unsigned elements */
    bool w_zeros;   /* some weights, as signed elements, have zero points */
    const uint8_t *w;
    void *scratch;
} sb_int8_direct_args;

void sb_int8_direct_run(sb_ctx *ctx, const sb_int8_direct_args *args);

#endif
