/* resize_run.h - the loops of Resize, given tables for each axis. */
#ifndef SB_OPS_IMAGE_RESIZE_RUN_H
#define SB_OPS_IMAGE_RESIZE_RUN_H

#include "ops/image/resize_table.h"

typedef struct sb_resize_state sb_resize_state;

/* Makes k->state (one allocation) and sets k->scratch_size. */
SB_MUST_USE sb_status sb_resize_create(sb_kernel *k, const sb_resize_config *c,
                                       const float *scale, float extrapolation);
/* Fills the tables; for tf_crop_and_resize with these parts of each axis. */
void sb_resize_set_region(sb_resize_state *s, const float *lo, const float *hi);
/* Computes k->out[0]; it has elements. */
void sb_resize_run(sb_kernel *k);

#endif
