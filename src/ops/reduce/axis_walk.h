/* axis_walk.h - a tensor seen as [outer, n, inner] around one axis, as it lies
 * in memory, and cut into blocks of neighboring columns: what CumSum, ArgMax,
 * LpNormalization and the like share. */
#ifndef SB_OPS_REDUCE_AXIS_WALK_H
#define SB_OPS_REDUCE_AXIS_WALK_H

#include "base/threads.h"
#include "ops/infer_util.h"

enum { SB_AXIS_BLOCK = 64 }; /* columns in a block at most */

typedef struct sb_axis_walk {
    size_t outer, n, inner;
    size_t blocks; /* per outer index */
} sb_axis_walk;

/* One block: column `col` of outer index `row`, `width` columns wide, whose
 * first element is element `at` of the tensor. */
typedef struct sb_axis_block {
    size_t row, col, width, at;
} sb_axis_block;

/* `axis` may be negative; infer() has checked it.  A scalar counts as one row
 * of one element. */
sb_axis_walk sb_axis_walk_make(const sb_tensor *t, int64_t axis);
sb_axis_block sb_axis_walk_block(const sb_axis_walk *w, size_t item);
/* Runs `fn` over all blocks; `arg` must let it find the walk. */
void sb_axis_walk_run(sb_ctx *ctx, const sb_axis_walk *w, sb_range_fn fn,
                      void *arg);

#endif
