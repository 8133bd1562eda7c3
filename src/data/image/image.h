/* image.h - images as rows of bytes: decoding, resizing, colors.
 *
 * Everything here may run in any thread: the context is the thread's own.  The
 * results are those of Pillow, byte for byte where the decoders agree, because
 * networks were trained on what Pillow makes of a file. */
#ifndef SB_DATA_IMAGE_IMAGE_H
#define SB_DATA_IMAGE_IMAGE_H

#include "base/alloc.h"

/* More pixels than this, or a longer side, are taken for an attack (or a
 * mistake). */
enum { SB_IMAGE_PIXELS = 178956970, SB_IMAGE_SIDE = 1 << 16 };

typedef struct sb_image {
    int width, height;
    int channels;  /* 1: gray, 3: red green blue */
    uint8_t *data; /* height x width x channels; sb_image_free() it */
} sb_image;

/* Allocates data for the given sizes, not zeroed. */
SB_MUST_USE sb_status sb_image_alloc(sb_ctx *ctx, sb_image *image);
void sb_image_free(sb_ctx *ctx, sb_image *image);

/* A JPEG or PNG file, told apart by its first bytes; `what` names it.  Alpha
 * is dropped, 16 bits are cut to 8, palettes and CMYK become RGB.  What is
 * broken or cut off is SB_BAD_DATA. */
SB_MUST_USE sb_status sb_image_decode(sb_ctx *ctx, const char *what,
                                      const void *data, size_t size,
                                      sb_image *out);
SB_MUST_USE sb_status sb_image_load(sb_ctx *ctx, const char *path,
                                    sb_image *out);
/* The decoders behind it. */
SB_MUST_USE sb_status sb_jpeg_decode(sb_ctx *ctx, const char *what,
                                     const void *data, size_t size,
                                     sb_image *out);
SB_MUST_USE sb_status sb_png_decode(sb_ctx *ctx, const char *what,
                                    const void *data, size_t size, bool mask,
                                    sb_image *out);
/* A class for each pixel, as an image of one channel: a PNG file with a palette
 * or gray values, of which these numbers are the classes, or an .npy file of
 * integers [height, width] from 0 to 255. */
SB_MUST_USE sb_status sb_mask_load(sb_ctx *ctx, const char *path,
                                   sb_image *out);
/* SB_BAD_DATA if an image cannot have these sizes. */
SB_MUST_USE sb_status sb_image_check(sb_ctx *ctx, const char *what,
                                     uint64_t width, uint64_t height);

/* In place: 3 channels to gray (as Pillow's convert('L')), or gray to 3. */
SB_MUST_USE sb_status sb_image_set_channels(sb_ctx *ctx, sb_image *image,
                                            int channels);

typedef enum sb_interpolation {
    SB_NEAREST,
    SB_BILINEAR,
    SB_BICUBIC,
} sb_interpolation;

/* A part of an image: what a crop leaves. */
typedef struct sb_window {
    int x, y, width, height;
} sb_window;

/* Resizes to `width` x `height` with antialias and keeps only `window` of it;
 * the rest is never computed.  `out` gets memory of its own. */
SB_MUST_USE sb_status sb_image_resize(sb_ctx *ctx, const sb_image *image,
                                      int width, int height,
                                      sb_interpolation how,
                                      const sb_window *window, sb_image *out);

#endif
