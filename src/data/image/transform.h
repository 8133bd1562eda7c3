/* transform.h - from a decoded image to the numbers that a network wants:
 * resize, crop, pad, order of colors, scale, mean, deviation, layout. */
#ifndef SB_DATA_IMAGE_TRANSFORM_H
#define SB_DATA_IMAGE_TRANSFORM_H

#include "config/param.h"
#include "data/image/augment.h"
#include "data/image/image.h"

/* The keys, as the file gives them. */
typedef struct sb_transform_keys {
    sb_param_ints resize, letterbox, crop, pad;
    int64_t pad_value, alpha;
    int pad_position;
    int interpolation;
    int color; /* -1: as the source has it */
    int layout;
    double scale;
    sb_param_floats mean, deviation;
    sb_augment_keys augment;
} sb_transform_keys;

extern const sb_param_def sb_transform_table[];

typedef enum sb_color {
    SB_RGB,
    SB_BGR,
    SB_GRAY,
    SB_RGBA, /* a fourth channel, the same everywhere */
    SB_BGRA,
} sb_color;

enum { SB_CHANNELS_MAX = 4 };

/* Ready to be applied, by any thread. */
typedef struct sb_transform {
    int64_t resize[2]; /* height, width; width 0: the short side; 0, 0: none */
    int64_t letterbox[2]; /* to fit into, and filled up to; 0, 0: none */
    int64_t crop[2];      /* 0, 0: none */
    int64_t pad[2];       /* filled up to at least; 0, 0: none */
    int pad_value, alpha; /* bytes, before scale and mean */
    bool top_left;        /* where a padded image is, else in the middle */
    sb_interpolation how;
    sb_color color;
    int channels;
    bool channels_last;
    /* What becomes of a byte, by channel of the result. */
    float table[SB_CHANNELS_MAX][256];
    bool bytes; /* samples are uint8: every table is 0..255 */
    bool mask;  /* samples are classes of pixels, and padding is pad_value */
    sb_augment_keys augment;
} sb_transform;

/* Checks the keys (errors name file and line) and prepares the tables. */
SB_MUST_USE sb_status sb_transform_init(const sb_yaml_doc *doc,
                                        const sb_transform_keys *keys,
                                        sb_color native, sb_transform *out);

/* What is done to a mask beside the image: [1, height, width] of bytes, which
 * are `outside` where there is no image. */
void sb_transform_mask(const sb_transform *t, uint8_t outside,
                       sb_transform *out);

/* Does every byte stay what it is? */
bool sb_transform_keeps_bytes(const sb_transform *t);

/* One sample: grow-only memory that is used again and again. */
typedef struct sb_pixels {
    float *data; /* or bytes in it, if the transform says so */
    size_t cap;  /* floats */
    int64_t dims[3];
} sb_pixels;

/* Takes the image, also on failure.  With random numbers (NULL: without) the
 * image is augmented. */
SB_MUST_USE sb_status sb_transform_apply(const sb_transform *t, sb_ctx *ctx,
                                         const char *what, sb_rng *rng,
                                         sb_image *image, sb_pixels *out);

#endif
