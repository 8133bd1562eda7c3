/* dnn_conv.h - what the ways of computing a convolution share; private to
 * src/dnn. */
#ifndef SB_DNN_DNN_CONV_H
#define SB_DNN_DNN_CONV_H

#include "dnn/dnn_prim.h"

/* The four descriptions of a problem. */
typedef struct sb_dnn_conv_mds {
    dnnl_memory_desc_t src, weights, bias, dst;
    dnnl_memory_desc_t weights_plain; /* as ONNX stores them */
} sb_dnn_conv_mds;

/* With `pack` the kernel may choose how weights lie. */
dnnl_status_t sb_dnn_conv_describe(const sb_dnn_conv_desc *d, sb_dnn_layout src,
                                   sb_dnn_layout dst, bool pack,
                                   sb_dnn_conv_mds *out);
/* The first kernel for the problem; if `steady`, the first whose sums do not
 * depend on the number of threads. */
dnnl_status_t sb_dnn_conv_pd(dnnl_engine_t engine, const sb_dnn_conv_desc *d,
                             const sb_dnn_conv_mds *mds,
                             dnnl_primitive_attr_t attr, bool steady,
                             dnnl_primitive_desc_t *out);
/* The same for the gradient of the weights. */
dnnl_status_t sb_dnn_conv_dw_pd(dnnl_engine_t engine, const sb_dnn_conv_desc *d,
                                const sb_dnn_conv_mds *mds,
                                dnnl_primitive_attr_t attr,
                                dnnl_primitive_desc_t *out);
/* Makes the primitive and its arguments: src, weights, dst, bias if there is
 * one, scratchpad of *pad bytes if it wants one. */
SB_MUST_USE sb_status sb_dnn_conv_prim(sb_ctx *ctx, const char *what,
                                       dnnl_engine_t engine,
                                       const_dnnl_primitive_desc_t pd,
                                       bool has_bias, sb_dnn_prim *out,
                                       size_t *pad);
bool sb_dnn_conv_has_sum(const sb_dnn_conv_desc *d);

/* ---- a convolution in parts (dnn_parts.c) ------------------------------- */
typedef struct sb_dnn_parts sb_dnn_parts;

/* Channels last only; else SB_UNSUPPORTED. */
SB_MUST_USE sb_status sb_dnn_parts_create(sb_ctx *ctx,
                                          const sb_dnn_conv_desc *desc,
                                          dnnl_engine_t engine,
                                          dnnl_primitive_attr_t attr,
                                          sb_dnn_parts **out);
size_t sb_dnn_parts_scratch(const sb_dnn_parts *parts);
const sb_dnn_packing *sb_dnn_parts_packing(const sb_dnn_parts *parts);
dnnl_status_t sb_dnn_parts_pack(sb_dnn_parts *parts, const float *weights,
                                void *packed, void *scratch);
dnnl_status_t sb_dnn_parts_run(sb_dnn_parts *parts, const float *src,
                               const float *packed, const float *bias,
                               float *dst, void *scratch, const sb_tap *tap);
void sb_dnn_parts_free(sb_dnn_parts *parts);

#endif
