/* int8_conv_last.h - convolution of 8-bit images with channels last; see
 * int8_conv.h.
 *
 * A pixel's channels are neighbors, so the image is read as it lies: a table
 * says where each tap of 48 output pixels begins, and taps outside the image
 * begin in a line of zero points.  Only images whose bytes are signed, or whose
 * taps are not whole quads, are copied first, with their padding; taps of a row
 * are one run then.
 *
 * Groups with few output channels are joined until they fill a vector, with
 * zeros for what they do not read of one another: that many products cost less
 * than moving pixels.  Depthwise layers are vectors of channels. */
#ifndef SB_OPS_INT8_INT8_CONV_LAST_H
#define SB_OPS_INT8_INT8_CONV_LAST_H

#include "ops/int8/int8_conv_direct.h"
#include "ops/int8/int8_pixels.h"

struct sb_int8_last {
    const sb_int8_pixel_kind *kind;
    bool depthwise;
    bool copied;
    int64_t join, group, c_in, c_out; /* groups joined, and then */
    int64_t channels;                 /* of a pixel of x */
    int64_t pad[2], x[2];             /* of what is read: H, W */
    int64_t n_run, run;               /* runs of a sum; bytes of one */
    int64_t width;                    /* output channels of a group, padded */
};

/* For the layout hook: both sides channels last, if this convolution can be
 * computed so. */
void sb_int8_last_layout(const sb_kernel *k, const sb_int8_conv_inputs *which,
                         sb_layout *in, sb_layout *out);
/* Makes c->last; x must lie with channels last.  The geometry must be there. */
SB_MUST_USE sb_status sb_int8_last_create(sb_ctx *ctx, sb_int8_conv *c);
/* Bytes of packed weights and of memory to work in. */
bool sb_int8_last_sizes(const sb_int8_conv *c, size_t *weights,
                        size_t *scratch);
/* Packs all weights. */
void sb_int8_last_pack(const sb_int8_conv *c, const void *w, uint8_t *out);
void sb_int8_last_run(sb_ctx *ctx, const sb_int8_direct_args *args);

#endif
