/* strided_copy.h - copying N-d blocks of elements between two layouts.
 *
 * The workhorse of Transpose, Slice, Expand, Tile, Pad, Concat, Split ... :
 *
 *     dst[sum_i x_i * dst_stride_i] = src[sum_i x_i * src_stride_i]
 *
 * for all 0 <= x_i < dims_i.  Strides count elements; those of the source may
 * be zero (repeat) or negative (reverse), those of the destination must not
 * make two elements meet. */
#ifndef SB_OPS_MOVE_STRIDED_COPY_H
#define SB_OPS_MOVE_STRIDED_COPY_H

#include "tensor/tensor.h"

typedef struct sb_strided {
    int rank;
    size_t elem; /* bytes of an element: 1, 2, 4, 8 or 16 */
    int64_t dims[SB_MAX_RANK];
    int64_t dst_stride[SB_MAX_RANK];
    int64_t src_stride[SB_MAX_RANK];
} sb_strided;

/* A copy of a block `dims` into row-major memory of the same shape; the caller
 * fills in src_stride. */
sb_strided sb_strided_to(size_t elem, int rank, const int64_t *dims);

/* A copy between two tensors of the same rank, each in its own layout, of a
 * block `dims` of both; dimensions come in the order in which `dst` lies. */
sb_strided sb_strided_between(const sb_tensor *dst, const sb_tensor *src,
                              const int64_t *dims);

/* Copies, on the context's threads where it pays. */
void sb_strided_copy(sb_ctx *ctx, const sb_strided *c, void *dst,
                     const void *src);

/* Writes `count` copies of one element of `elem` bytes. */
void sb_fill(void *dst, size_t elem, const void *value, int64_t count);

#endif
