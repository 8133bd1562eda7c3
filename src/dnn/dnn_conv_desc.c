/* A convolution as oneDNN describes it, and the kernel for it. */
#include <string.h>

#include "dnn/dnn_conv.h"

enum { KERNELS_MOST = 64 };

/* Weights as ONNX stores them, under the logical order that oneDNN wants:
 * (groups,) out, in, kernel. */
static dnnl_status_t weights_plain(const sb_dnn_conv_desc *d,
                                   dnnl_memory_desc_t *md)
{
    int64_t out = d->out_channels / d->groups;
    int64_t in = d->in_channels / d->groups;
    int64_t taps = 1;
    dnnl_dims_t dims = {0}, strides = {0};
    int rank = 0;

    for (int i = 0; i < d->n_spatial; i++)
        taps *= d->kernel[i];
    if (d->groups > 1) {
        dims[rank] = d->groups;
        strides[rank++] = out * in * taps;
    }
    dims[rank] = out;
    strides[rank++] = d->transposed ? taps : in * taps;
    dims[rank] = in;
    strides[rank++] = d->transposed ? out * taps : taps;
    for (int i = 0; i < d->n_spatial; i++) {
        taps /= d->kernel[i];
        dims[rank] = d->kernel[i];
        strides[rank++] = taps;
    }
    return dnnl_memory_desc_init_by_strides(md, rank, dims, dnnl_f32, strides);
}

dnnl_status_t sb_dnn_conv_describe(const sb_dnn_conv_desc *d, sb_dnn_layout src,
                                   sb_dnn_layout dst, bool pack,
                                   sb_dnn_conv_mds *out)
{
    int64_t dims[2 + SB_DNN_MAX_SPATIAL] = {d->n_batch, d->in_channels};
    int rank = 2 + d->n_spatial;
    dnnl_status_t status;

    memcpy(dims + 2, d->in, (size_t)d->n_spatial * sizeof *dims);
    status = sb_dnn_md(&out->src, rank, dims, src);
    dims[1] = d->out_channels;
    memcpy(dims + 2, d->out, (size_t)d->n_spatial * sizeof *dims);
    if (status == dnnl_success)
        status = sb_dnn_md(&out->dst, rank, dims, dst);
    if (status == dnnl_success)
        status = sb_dnn_md(&out->bias, 1, &d->out_channels, SB_DNN_PLAIN);
    if (status == dnnl_success)
        status = weights_plain(d, &out->weights_plain);
    out->weights = out->weights_plain;
    if (status == dnnl_success && pack)
        status = dnnl_memory_desc_init_by_tag(
            &out->weights, out->weights_plain.ndims, out->weights_plain.dims,
            dnnl_f32, dnnl_format_tag_any);
    return status;
}

/* True if the kernel's sums do not depend on the number of threads.  Not so
 * GEMM, which divides sums among threads, and BRGEMM, whose blocking (hence
 * the order of additions at the borders) follows the number of threads.  The
 * direct kernels are as fast, and share one blocked layout. */
static bool kernel_is_steady(const_dnnl_primitive_desc_t pd)
{
    const char *name = sb_dnn_kernel_name(pd);

    return name[0] && !strstr(name, "gemm:") && !strstr(name, "brg") &&
           !strstr(name, "brdgmm") && !strstr(name, "ref");
}

/* The first kernel for the operation; if `steady`, the first steady one. */
static dnnl_status_t find_kernel(const_dnnl_op_desc_t op,
                                 dnnl_primitive_attr_t attr,
                                 dnnl_engine_t engine,
                                 const_dnnl_primitive_desc_t hint, bool steady,
                                 dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_iterator_t it = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_iterator_create(&it, op, attr, engine, hint);

    /* oneDNN's cache of primitives makes the iterator stand still on a kernel
     * that was made before; so do not rely on its end. */
    for (int i = 0; i < KERNELS_MOST && status == dnnl_success; i++) {
        dnnl_primitive_desc_t pd = dnnl_primitive_desc_iterator_fetch(it);
        if (!pd) {
            status = dnnl_out_of_memory;
        } else if (!steady || kernel_is_steady(pd)) {
            *out = pd;
            (void)dnnl_primitive_desc_iterator_destroy(it);
            return dnnl_success;
        } else {
            (void)dnnl_primitive_desc_destroy(pd);
            status = dnnl_primitive_desc_iterator_next(it);
        }
    }
    if (it)
        (void)dnnl_primitive_desc_iterator_destroy(it);
    return status == dnnl_success || status == dnnl_iterator_ends
               ? dnnl_unimplemented
               : status;
}

/* Strides, dilations and pads as oneDNN has them. */
typedef struct conv_geometry {
    dnnl_dims_t stride, dilation, lo, hi;
} conv_geometry;

static dnnl_status_t conv_geometry_of(const sb_dnn_conv_desc *d,
                                      conv_geometry *g)
{
    *g = (conv_geometry){0};
    for (int i = 0; i < d->n_spatial; i++) {
        int64_t reach = (d->kernel[i] - 1) * d->dilation[i] + 1;
        int64_t in = d->transposed ? d->out[i] : d->in[i];
        int64_t out_size = d->transposed ? d->in[i] : d->out[i];

        g->stride[i] = d->stride[i];
        g->dilation[i] = d->dilation[i] - 1;
        g->lo[i] = d->pad_lo[i];
        g->hi[i] = (out_size - 1) * d->stride[i] + reach - in - d->pad_lo[i];
        if (g->lo[i] < 0)
            return dnnl_unimplemented;
    }
    return dnnl_success;
}

dnnl_status_t sb_dnn_conv_pd(dnnl_engine_t engine, const sb_dnn_conv_desc *d,
                             const sb_dnn_conv_mds *mds,
                             dnnl_primitive_attr_t attr, bool steady,
                             dnnl_primitive_desc_t *out)
{
    const dnnl_memory_desc_t *bias = d->has_bias ? &mds->bias : NULL;
    conv_geometry g;
    dnnl_status_t status = conv_geometry_of(d, &g);

    if (status != dnnl_success)
        return status;
    if (d->transposed) {
        dnnl_deconvolution_desc_t op;
        status = dnnl_dilated_deconvolution_forward_desc_init(
            &op, dnnl_forward_inference, dnnl_deconvolution_direct, &mds->src,
            &mds->weights, bias, &mds->dst, g.stride, g.dilation, g.lo, g.hi);
        return status != dnnl_success
                   ? status
                   : find_kernel(&op, attr, engine, NULL, steady, out);
    }
    dnnl_convolution_desc_t op;
    status = dnnl_dilated_convolution_forward_desc_init(
        &op, dnnl_forward_inference, dnnl_convolution_direct, &mds->src,
        &mds->weights, bias, &mds->dst, g.stride, g.dilation, g.lo, g.hi);
    return status != dnnl_success
               ? status
               : find_kernel(&op, attr, engine, NULL, steady, out);
}

/* oneDNN wants to see a forward kernel beside. */
dnnl_status_t sb_dnn_conv_dw_pd(dnnl_engine_t engine, const sb_dnn_conv_desc *d,
                                const sb_dnn_conv_mds *mds,
                                dnnl_primitive_attr_t attr,
                                dnnl_primitive_desc_t *out)
{
    dnnl_primitive_desc_t forward = NULL;
    dnnl_convolution_desc_t op;
    conv_geometry g;
    dnnl_status_t status = conv_geometry_of(d, &g);

    if (status == dnnl_success)
        status = sb_dnn_conv_pd(engine, d, mds, attr, false, &forward);
    if (status != dnnl_success)
        return status;
    status = dnnl_dilated_convolution_backward_weights_desc_init(
        &op, dnnl_convolution_direct, &mds->src, &mds->weights, NULL, &mds->dst,
        g.stride, g.dilation, g.lo, g.hi);
    if (status == dnnl_success)
        status = find_kernel(&op, attr, engine, forward, true, out);
    (void)dnnl_primitive_desc_destroy(forward);
    return status;
}

sb_status sb_dnn_conv_prim(sb_ctx *ctx, const char *what, dnnl_engine_t engine,
                           const_dnnl_primitive_desc_t pd, bool has_bias,
                           sb_dnn_prim *out, size_t *pad)
{
    SB_TRY(sb_dnn_prim_make(ctx, what, engine, pd, out));
    SB_TRY(sb_dnn_prim_arg(
        ctx, what, engine, out, DNNL_ARG_SRC,
        dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0)));
    SB_TRY(sb_dnn_prim_arg(
        ctx, what, engine, out, DNNL_ARG_WEIGHTS,
        dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0)));
    SB_TRY(sb_dnn_prim_arg(
        ctx, what, engine, out, DNNL_ARG_DST,
        dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0)));
    if (has_bias)
        SB_TRY(sb_dnn_prim_arg(
            ctx, what, engine, out, DNNL_ARG_BIAS,
            dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 1)));
    return sb_dnn_prim_scratch(ctx, what, engine, out, pd, pad);
}

bool sb_dnn_conv_has_sum(const sb_dnn_conv_desc *d)
{
    for (size_t i = 0; i < d->n_posts; i++)
        if (d->posts[i].kind == SB_DNN_SUM)
            return true;
    return false;
}
