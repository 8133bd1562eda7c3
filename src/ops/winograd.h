/* winograd.h - 3x3 convolutions with a quarter of the multiplications.
 *
 * For dense 3x3 kernels of stride 1 in channels-last order.  Sums are formed in
 * another order than the definition has them, which adds an error of about
 * 1e-6 of the largest element; --exact does without. */
#ifndef SB_OPS_WINOGRAD_H
#define SB_OPS_WINOGRAD_H

#include "ops/conv_attrs.h"

typedef struct sb_winograd sb_winograd;

/* Is it possible, and likely to be faster? */
bool sb_winograd_suits(const sb_kernel *k, const sb_conv *conv);
/* Transforms and packs the weights (input 1, constant). */
SB_MUST_USE sb_status sb_winograd_create(const sb_kernel *k,
                                         const sb_conv *conv,
                                         const sb_posts *posts,
                                         sb_winograd **out);
size_t sb_winograd_scratch(const sb_winograd *w);
/* `bias` may be NULL; `z` is what a sum adds and may be y itself. */
SB_MUST_USE sb_status sb_winograd_run(sb_winograd *w, const float *x,
                                      const float *bias, const float *z,
                                      float *y, void *scratch);
void sb_winograd_free(sb_winograd *w);

#endif
