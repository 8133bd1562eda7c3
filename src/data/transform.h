/* transform.h - from a decoded picture to the numbers that a network wants:
 * resize, crop, order of colours, scale, mean, deviation, layout. */
#ifndef SB_DATA_TRANSFORM_H
#define SB_DATA_TRANSFORM_H

#include "config/param.h"
#include "data/image.h"

/* The keys, as the file gives them. */
typedef struct sb_transform_keys {
    sb_param_ints resize, crop;
    int interpolation;
    int colour; /* -1: as the source has it */
    int layout;
    double scale;
    sb_param_floats mean, deviation;
} sb_transform_keys;

extern const sb_param_def sb_transform_table[];

typedef enum sb_colour { SB_RGB, SB_BGR, SB_GRAY } sb_colour;

/* Ready to be applied, by any thread. */
typedef struct sb_transform {
    int64_t resize[2]; /* height, width; width 0: the short side; 0, 0: none */
    int64_t crop[2];   /* 0, 0: none */
    sb_interpolation how;
    sb_colour colour;
    int channels;
    bool channels_last;
    float table[3][256]; /* what becomes of a byte, by channel of the result */
} sb_transform;

/* Checks the keys (errors name file and line) and prepares the tables. */
SB_MUST_USE sb_status sb_transform_init(const sb_yaml_doc *doc,
                                        const sb_transform_keys *keys,
                                        sb_colour native, sb_transform *out);

/* One sample: grow-only memory that is used again and again. */
typedef struct sb_pixels {
    float *data;
    size_t cap; /* floats */
    int64_t dims[3];
} sb_pixels;

/* Takes the picture, also on failure. */
SB_MUST_USE sb_status sb_transform_apply(const sb_transform *t, sb_ctx *ctx,
                                         const char *what, sb_image *image,
                                         sb_pixels *out);

#endif
