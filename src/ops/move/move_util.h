/* move_util.h - what the operators that move elements share. */
#ifndef SB_OPS_MOVE_MOVE_UTIL_H
#define SB_OPS_MOVE_MOVE_UTIL_H

#include "ops/infer_util.h"
#include "ops/move/strided_copy.h"

/* ---- inference ---------------------------------------------------------- */

/* The elements of a small integer tensor of rank 0 or 1 as dimensions (some
 * may be symbols or unknown); false if not even their number is known. */
bool sb_fact_content(const sb_fact *f, sb_shape *out);
/* The same for input i; false if it is absent. */
bool sb_infer_content(const sb_infer *in, uint32_t i, sb_shape *out);
/* Output i takes these elements, if it is an int32, int64 or bool of rank 0 or
 * 1. */
void sb_infer_set_content(sb_infer *in, uint32_t i, const sb_shape *content);
/* Rank and dtype of the output as input 0 has them, dimensions unknown. */
void sb_infer_set_rank(sb_infer *in, uint32_t i, int rank);
/* How many elements a 1-d input has, -1 if unknown. */
int64_t sb_infer_length(const sb_infer *in, uint32_t i);

/* ---- kernels ------------------------------------------------------------ */

/* Forward of operators that only change the shape. */
sb_status sb_view_forward(sb_kernel *k);
/* Prepare of operators that move whole elements: refuses types whose elements
 * are not whole bytes in place (packed ones, strings). */
sb_status sb_move_prepare(sb_kernel *k);
/* An axis already checked by infer(), in [0, rank). */
int sb_axis_norm(int64_t axis, int rank);
/* Element i of an int32 or int64 tensor. */
static inline int64_t sb_index_at(const sb_tensor *t, int64_t i)
{
    return t->dtype == SB_DTYPE_I64   ? ((const int64_t *)t->data)[i]
           : t->dtype == SB_DTYPE_I32 ? ((const int32_t *)t->data)[i]
                                      : sb_tensor_get_i64(t, i);
}
/* `index`, counted from the end if negative; SB_BAD_DATA names it unless it is
 * in [-n, n). */
SB_MUST_USE sb_status sb_index_check(const sb_kernel *k, int64_t index,
                                     int64_t n, int64_t *out);
/* Checks all elements of an index tensor so. */
SB_MUST_USE sb_status sb_index_check_all(const sb_kernel *k,
                                         const sb_tensor *indices, int64_t n);
/* Strides in elements of a row-major tensor. */
void sb_strides_of(int rank, const int64_t *dims, int64_t *strides);

/* The layout hook of views: both sides channels last if the input lies so and
 * the output has the same images and channels. */
void sb_view_layout(const sb_kernel *k, sb_layout *in, sb_layout *out);
/* The layout hook of operators that move elements of input 0 by strides: both
 * sides channels last if the input lies so. */
void sb_move_layout(const sb_kernel *k, sb_layout *in, sb_layout *out);

#endif
