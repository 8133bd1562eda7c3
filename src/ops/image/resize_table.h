/* resize_table.h - where each output position of a resized axis comes from.
 *
 * An axis is resized on its own: every output position is a weighted sum of a
 * few input positions (`taps` of them).  All modes of Resize differ only in
 * these tables. */
#ifndef SB_OPS_IMAGE_RESIZE_TABLE_H
#define SB_OPS_IMAGE_RESIZE_TABLE_H

#include "ops/infer_util.h"

typedef enum sb_resize_mode {
    SB_RESIZE_NEAREST,
    SB_RESIZE_LINEAR,
    SB_RESIZE_CUBIC,
} sb_resize_mode;

typedef enum sb_resize_coord {
    SB_COORD_HALF_PIXEL,
    SB_COORD_HALF_PIXEL_SYMMETRIC,
    SB_COORD_PYTORCH_HALF_PIXEL,
    SB_COORD_ALIGN_CORNERS,
    SB_COORD_ASYMMETRIC,
    SB_COORD_TF_HALF_PIXEL_FOR_NN,
    SB_COORD_TF_CROP_AND_RESIZE,
} sb_resize_coord;

typedef enum sb_resize_round {
    SB_ROUND_PREFER_FLOOR,
    SB_ROUND_PREFER_CEIL,
    SB_ROUND_FLOOR,
    SB_ROUND_CEIL,
} sb_resize_round;

typedef struct sb_resize_config {
    sb_resize_mode mode;
    sb_resize_coord coord;
    sb_resize_round round;
    float cubic_a;
    bool exclude_outside;
    bool antialias;
} sb_resize_config;

typedef struct sb_resize_axis {
    int64_t n_in, n_out;
    float scale;          /* n_out / n_in, or as the model gives it */
    float roi_lo, roi_hi; /* of tf_crop_and_resize, in [0, 1] of the axis */
    int taps;
    int64_t *index;   /* [n_out, taps], always inside the input */
    float *weight;    /* [n_out, taps]; not used by nearest */
    uint8_t *outside; /* [n_out]: beyond the input, extrapolate */
    bool identity;    /* output equals input along this axis */
    bool doubled;     /* output o is input o / 2 (nearest) */
    bool any_outside;
} sb_resize_axis;

/* Names as ONNX writes them; false if there is none such. */
bool sb_resize_mode_find(const char *name, sb_resize_mode *out);
bool sb_resize_coord_find(const char *name, sb_resize_coord *out);
bool sb_resize_round_find(const char *name, sb_resize_round *out);

/* Inputs that each output of the axis needs; -1 if absurdly many. */
int64_t sb_resize_taps(const sb_resize_config *c, const sb_resize_axis *axis);
/* Fills index, weight, outside, identity of an axis whose other members are
 * set.  Coordinates are computed in float, in ONNX Runtime's order of
 * operations, so that ties fall the same way. */
void sb_resize_fill(const sb_resize_config *c, sb_resize_axis *axis);

#endif
