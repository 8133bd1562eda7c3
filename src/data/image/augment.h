/* augment.h - images varied at random, for training and calibration.
 *
 * What becomes of a sample depends on (seed, epoch, number of the sample) and
 * nothing else, so that training gives the same result for any number of
 * threads and can be resumed at any place. */
#ifndef SB_DATA_IMAGE_AUGMENT_H
#define SB_DATA_IMAGE_AUGMENT_H

#include "base/rng.h"
#include "config/param.h"
#include "data/image/image.h"

/* The keys under AUGMENT, as the file gives them. */
typedef struct sb_augment_keys {
    bool flip;
    int64_t pad_crop;
    sb_param_ints random_crop;
    sb_param_floats crop_area;
    int64_t cutout;
    double color;
} sb_augment_keys;

extern const sb_param_def sb_augment_table[];
/* Is anything changed? */
bool sb_augment_is_on(const sb_augment_keys *keys);

/* Random numbers of one sample in one epoch. */
void sb_augment_seed(sb_rng *rng, uint64_t seed, uint64_t epoch,
                     uint64_t sample);

/* The part of a width x height image that RANDOM_CROP resizes. */
sb_window sb_augment_window(const sb_augment_keys *keys, sb_rng *rng, int width,
                            int height);
/* COLOR_JITTER, PAD_CROP and FLIP, in place; what moves in is `fill`.  A mask
 * keeps its numbers and takes the same way as its image. */
SB_MUST_USE sb_status sb_augment_pixels(const sb_augment_keys *keys,
                                        sb_rng *rng, sb_ctx *ctx, bool mask,
                                        uint8_t fill, sb_image *image);
/* CUTOUT: where the square is in an image of this size; of no size if there is
 * none. */
sb_window sb_augment_hole(const sb_augment_keys *keys, sb_rng *rng, int width,
                          int height);

#endif
