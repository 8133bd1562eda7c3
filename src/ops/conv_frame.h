/* conv_frame.h - 1x1 convolutions with padding. */
#ifndef SB_OPS_CONV_FRAME_H
#define SB_OPS_CONV_FRAME_H

#include "ops/conv_attrs.h"

typedef struct sb_conv_frame sb_conv_frame;

/* Two dimensions, kernel and stride 1, some padding, channels last. */
bool sb_conv_frame_suits(const sb_kernel *k, const sb_conv *conv);
/* `desc` describes the convolution as it is, without what follows it. */
SB_MUST_USE sb_status sb_conv_frame_create(sb_ctx *ctx, const sb_conv *conv,
                                           const sb_dnn_conv_desc *desc,
                                           const sb_posts *posts,
                                           sb_conv_frame **out);
size_t sb_conv_frame_scratch(const sb_conv_frame *f);
/* `z` is an addend, or NULL; it may lie in y. */
SB_MUST_USE sb_status sb_conv_frame_run(sb_conv_frame *f, const float *x,
                                        const float *weights, const float *bias,
                                        const float *z, float *y,
                                        void *scratch);
void sb_conv_frame_free(sb_conv_frame *f);

#endif
