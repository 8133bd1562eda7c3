/* A tensor as [outer, n, inner], in blocks of columns. */
#include "ops/reduce/axis_walk.h"

#include "ops/move/move_util.h"

enum { AXIS_GRAIN = 8192 };

sb_axis_walk sb_axis_walk_make(const sb_tensor *t, int64_t axis)
{
    sb_axis_walk w = {1, 1, 1, 1};

    if (t->rank > 0) {
        sb_tensor lies = sb_tensor_as_lies(t);
        int d = sb_tensor_place(t, sb_axis_norm(axis, t->rank));

        w.outer = (size_t)sb_dims_product(lies.dims, 0, d);
        w.n = (size_t)lies.dims[d];
        w.inner = (size_t)sb_dims_product(lies.dims, d + 1, t->rank);
    }
    w.blocks = (w.inner + SB_AXIS_BLOCK - 1) / SB_AXIS_BLOCK;
    return w;
}

sb_axis_block sb_axis_walk_block(const sb_axis_walk *w, size_t item)
{
    sb_axis_block b = {.row = item / w->blocks,
                       .col = item % w->blocks * SB_AXIS_BLOCK};

    b.width = w->inner - b.col;
    if (b.width > SB_AXIS_BLOCK)
        b.width = SB_AXIS_BLOCK;
    b.at = b.row * w->n * w->inner + b.col;
    return b;
}

void sb_axis_walk_run(sb_ctx *ctx, const sb_axis_walk *w, sb_range_fn fn,
                      void *arg)
{
    size_t width = w->inner < SB_AXIS_BLOCK ? w->inner : SB_AXIS_BLOCK;
    size_t each = w->n * width;

    sb_parallel_for(ctx, w->outer * w->blocks,
                    each ? (AXIS_GRAIN + each - 1) / each : 1, fn, arg);
}
