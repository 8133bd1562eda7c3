/* conv_patches.h - convolution without oneDNN, channels last. */
#ifndef SB_OPS_CONV_PATCHES_H
#define SB_OPS_CONV_PATCHES_H

#include "ops/conv_attrs.h"

typedef struct sb_conv_patches sb_conv_patches;

/* `what` is for messages; `weights` as ONNX has them, copied.  SB_UNSUPPORTED
 * for what only the loops of conv_loops.c can do. */
SB_MUST_USE sb_status sb_conv_patches_create(sb_ctx *ctx, const char *what,
                                             const sb_conv *conv,
                                             const float *weights,
                                             sb_conv_patches **out);
size_t sb_conv_patches_scratch(const sb_conv_patches *p);
/* x and y have their channels last; `bias` may be NULL. */
SB_MUST_USE sb_status sb_conv_patches_run(sb_conv_patches *p, const float *x,
                                          const float *bias, float *y,
                                          void *scratch);
void sb_conv_patches_free(sb_conv_patches *p); /* NULL is allowed */

#endif
