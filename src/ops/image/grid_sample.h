/* grid_sample.h - what GridSample and its gradient share: where each point of
 * the grid reads, and with which weights. */
#ifndef SB_OPS_IMAGE_GRID_SAMPLE_H
#define SB_OPS_IMAGE_GRID_SAMPLE_H

#include "ops/infer_util.h"

enum { SB_GRID_TAPS = 4, SB_GRID_AXES = 3 };

typedef struct sb_grid_attrs {
    const char *mode, *padding;
    int64_t align_corners;
} sb_grid_attrs;

typedef enum { SB_GRID_ZEROS, SB_GRID_BORDER, SB_GRID_REFLECT } sb_grid_padding;

typedef struct sb_grid_config {
    int taps; /* 1 nearest, 2 linear, 4 cubic */
    sb_grid_padding padding;
    bool align;
} sb_grid_config;

/* The attributes of a row that names them as GridSample does; false if they
 * make no sense. */
bool sb_grid_config_of(const sb_grid_attrs *a, sb_grid_config *c);

typedef struct sb_grid_axis {
    int64_t index[SB_GRID_TAPS]; /* -1: outside, reads as 0 */
    float weight[SB_GRID_TAPS];
} sb_grid_axis;

/* The taps of coordinate g on an axis of n elements; `slope`, if not NULL: how
 * their weights change with g. */
void sb_grid_taps(const sb_grid_config *c, float g, int64_t n,
                  sb_grid_axis *out, float *slope);

typedef struct sb_grid_points {
    sb_grid_config c;
    int n_axis;
    int n_mix;           /* combinations of taps: taps ^ n_axis */
    int64_t n_points;    /* of one batch item */
    int64_t plane;       /* elements of one input channel */
    const int64_t *dims; /* of the image */
    const float *grid;
    int64_t *offset; /* [N, points, n_mix] in a channel */
    float *weight;   /* the same; 0 where the tap is outside */
} sb_grid_points;

/* Bytes of scratch for the two lists; they are its beginning. */
sb_status sb_grid_scratch(const sb_kernel *k, const sb_tensor *x,
                          const sb_tensor *grid, size_t *bytes);
sb_status sb_grid_open(const sb_kernel *k, const sb_tensor *x,
                       const sb_tensor *grid, sb_grid_points *out);
/* Multiplies the taps of all axes out, for points [begin, end) of all items;
 * `arg` is the sb_grid_points. */
void sb_grid_table(void *arg, size_t begin, size_t end);

#endif
