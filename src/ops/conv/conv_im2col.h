/* conv_im2col.h - convolution without oneDNN's direct kernels, channels last.
 */
#ifndef SB_OPS_CONV_CONV_IM2COL_H
#define SB_OPS_CONV_CONV_IM2COL_H

#include "ops/conv/conv.h"

typedef struct sb_im2col sb_im2col;

/* `what` is for messages.  SB_UNSUPPORTED for what only the loops of
 * conv_naive.c can do. */
SB_MUST_USE sb_status sb_im2col_create(sb_ctx *ctx, const char *what,
                                       const sb_conv *conv, sb_im2col **out);
const sb_dnn_packing *sb_im2col_packing(const sb_im2col *p);
/* `weights` as ONNX has them. */
SB_MUST_USE sb_status sb_im2col_pack(sb_im2col *p, const float *weights,
                                     void *packed, void *scratch);
size_t sb_im2col_scratch(const sb_im2col *p);
/* x and y have their channels last; `bias` may be NULL. */
SB_MUST_USE sb_status sb_im2col_run(sb_im2col *p, const float *x,
                                    const float *packed, const float *bias,
                                    float *y, void *scratch);
void sb_im2col_free(sb_im2col *p); /* NULL is allowed */

#endif
