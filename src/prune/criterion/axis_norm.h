/* axis_norm.h - sizes of the slices of a weight. */
#ifndef SB_PRUNE_AXIS_NORM_H
#define SB_PRUNE_AXIS_NORM_H

#include "prune/criterion/criterion.h"

/* The sum of magnitudes (or of squares) of each index of an axis. */
void sb_axis_sums(const sb_tensor *t, int axis, bool squares, double *out);

#endif
