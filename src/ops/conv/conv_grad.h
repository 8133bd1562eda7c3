/* conv_grad.h - ways to compute the gradients of a convolution's weights, all
 * for channels-last tensors.  sb_dnn_conv_dw (dnn.h) is another. */
#ifndef SB_OPS_CONV_CONV_GRAD_H
#define SB_OPS_CONV_CONV_GRAD_H

#include "ops/conv/conv.h"

/* ---- depthwise ----------------------------------------------------------
 * Two spatial dimensions, one weight for each channel, and a window that
 * oneDNN has no fast kernel for. */
bool sb_conv_grad_depthwise_suits(const sb_conv *conv);
size_t sb_conv_grad_depthwise_scratch(const sb_conv *conv);
void sb_conv_grad_depthwise(sb_ctx *ctx, const sb_conv *conv, const float *x,
                            const float *dy, float *dw, void *scratch);

/* ---- matrix products ----------------------------------------------------
 * Dense weights, two spatial dimensions; else SB_UNSUPPORTED.  It `suits`
 * windows of one pixel that miss none, better than oneDNN's own kernels. */
typedef struct sb_conv_grad_gemm sb_conv_grad_gemm;

bool sb_conv_grad_gemm_suits(const sb_conv *conv);
SB_MUST_USE sb_status sb_conv_grad_gemm_create(const sb_kernel *k,
                                               const sb_conv *conv,
                                               sb_conv_grad_gemm **out);
size_t sb_conv_grad_gemm_scratch(const sb_conv_grad_gemm *grad);
SB_MUST_USE sb_status sb_conv_grad_gemm_run(const sb_conv_grad_gemm *grad,
                                            const float *x, const float *dy,
                                            float *dw, void *scratch);
void sb_conv_grad_gemm_free(sb_conv_grad_gemm *grad);

/* ---- Winograd -----------------------------------------------------------
 * SB_UNSUPPORTED where it does not pay, or rounds too freely. */
typedef struct sb_conv_grad_winograd sb_conv_grad_winograd;

SB_MUST_USE sb_status sb_conv_grad_winograd_create(const sb_kernel *k,
                                                   const sb_conv *conv,
                                                   sb_conv_grad_winograd **out);
size_t sb_conv_grad_winograd_scratch(const sb_conv_grad_winograd *grad);
SB_MUST_USE sb_status
sb_conv_grad_winograd_run(const sb_conv_grad_winograd *grad, const float *x,
                          const float *dy, float *dw, void *scratch);
void sb_conv_grad_winograd_free(sb_conv_grad_winograd *grad);

#endif
