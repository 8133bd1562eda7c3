/* index_util.h - what GatherElements and the Scatter operators share. */
#ifndef SB_OPS_INDEX_INDEX_UTIL_H
#define SB_OPS_INDEX_INDEX_UTIL_H

#include "ops/move/move_util.h"

/* Walks the elements of `indices` in order together with the element of `data`
 * that each one names along `axis`. */
typedef struct sb_index_walk {
    const sb_tensor *indices;
    int axis, rank;
    int64_t n_axis; /* size of data along the axis */
    int64_t n_last; /* elements of indices in one row */
    int64_t n_rows; /* rows of indices */
    int64_t step;   /* of data between neighbors in a row of indices */
    int64_t stride[SB_MAX_RANK]; /* of data; 0 for the axis */
    int64_t axis_stride;
} sb_index_walk;

/* Ranks equal, indices nowhere larger than data except along the axis, every
 * index inside: otherwise SB_BAD_DATA. */
SB_MUST_USE sb_status sb_index_walk_init(const sb_kernel *k,
                                         const sb_tensor *data,
                                         const sb_tensor *indices, int axis,
                                         sb_index_walk *out);
/* Offset in `data` of the first element of a row, index not yet added. */
int64_t sb_index_walk_row(const sb_index_walk *w, int64_t row);
/* Offset that index number i adds. */
static inline int64_t sb_index_walk_add(const sb_index_walk *w, int64_t i)
{
    int64_t at = sb_index_at(w->indices, i);

    return (at < 0 ? at + w->n_axis : at) * w->axis_stride;
}

/* Offset in `data` (elements) named by the `depth` indices at `at` that apply
 * to its dimensions [first, first + depth); SB_BAD_DATA if one is outside. */
SB_MUST_USE sb_status sb_index_tuple(const sb_kernel *k, const sb_tensor *data,
                                     int first, const sb_tensor *indices,
                                     int64_t at, int depth, int64_t *out);

/* dst[i] = dst[i] (op) src[i] for i < n. */
typedef void (*sb_combine_fn)(void *dst, const void *src, int64_t n);
/* The function for "add", "mul", "max", "min" of a dtype; *out is NULL for
 * "none".  SB_BAD_MODEL or SB_UNSUPPORTED otherwise. */
SB_MUST_USE sb_status sb_combine_find(const sb_kernel *k, const char *reduction,
                                      sb_dtype dtype, sb_combine_fn *out);
/* What ScatterElements and ScatterND check before they run: updates of the
 * data's type, and a reduction that there is. */
SB_MUST_USE sb_status sb_scatter_prepare(sb_kernel *k, const char *reduction);

#endif
