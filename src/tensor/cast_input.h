/* cast_input.h - elements of data as a model's inputs want them. */
#ifndef SB_TENSOR_CAST_INPUT_H
#define SB_TENSOR_CAST_INPUT_H

#include "tensor/tensor.h"

/* The type in which elements of type `from` go into an input of type `want`
 * (none: unknown); `from` if they cannot. */
sb_dtype sb_cast_input_dtype(sb_dtype from, sb_dtype want);
/* Copies the elements of `from` to `to`, as elements of `dtype`, which
 * sb_cast_input_dtype() gave.  SB_BAD_DATA if an integer does not fit. */
SB_MUST_USE sb_status sb_cast_input_copy(sb_ctx *ctx, const sb_tensor *from,
                                         sb_dtype dtype, void *to);

#endif
