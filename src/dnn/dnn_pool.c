/* Pooling: averages over windows. */
#include "dnn/dnn_prim.h"

#include <string.h>

struct sb_dnn_pool {
    sb_ctx *ctx;
    char what[SB_DNN_WHAT_MAX];
    dnnl_engine_t engine;
    int width;
    sb_dnn_prim prim;
    size_t scratch;
};

static dnnl_status_t pool_pd(const sb_dnn_pool *p, const sb_dnn_pool_desc *d,
                             dnnl_primitive_attr_t attr,
                             dnnl_primitive_desc_t *out)
{
    static const dnnl_alg_kind_t kinds[] = {
        [SB_DNN_POOL_AVG] = dnnl_pooling_avg_exclude_padding,
        [SB_DNN_POOL_AVG_PADDED] = dnnl_pooling_avg_include_padding,
    };
    int rank = 2 + d->n_spatial;
    int64_t dims[2 + SB_DNN_MAX_SPATIAL] = {d->n_batch, d->channels};
    dnnl_dims_t stride = {0}, kernel = {0}, dilation = {0}, lo = {0}, hi = {0};
    dnnl_memory_desc_t src, dst;
    dnnl_pooling_v2_desc_t op;
    dnnl_status_t status;

    for (int i = 0; i < d->n_spatial; i++) {
        int64_t reach = (d->kernel[i] - 1) * d->dilation[i] + 1;
        stride[i] = d->stride[i];
        kernel[i] = d->kernel[i];
        dilation[i] = d->dilation[i] - 1;
        lo[i] = d->pad_lo[i];
        hi[i] = (d->out[i] - 1) * d->stride[i] + reach - d->in[i] - lo[i];
        /* A window must touch the input, and oneDNN wants no cut input. */
        if (lo[i] < 0 || hi[i] < 0 || lo[i] >= reach || hi[i] >= reach)
            return dnnl_unimplemented;
    }
    memcpy(dims + 2, d->in, (size_t)d->n_spatial * sizeof *dims);
    status = sb_dnn_md(&src, rank, dims, d->layout);
    memcpy(dims + 2, d->out, (size_t)d->n_spatial * sizeof *dims);
    if (status == dnnl_success)
        status = sb_dnn_md(&dst, rank, dims, d->layout);
    if (status == dnnl_success)
        status = dnnl_pooling_v2_forward_desc_init(
            &op, dnnl_forward_inference, kinds[d->kind], &src, &dst, stride,
            kernel, dilation, lo, hi);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &op, attr, p->engine, NULL);
    return status;
}

static sb_status make_prim(sb_dnn_pool *p, const sb_dnn_pool_desc *desc)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    sb_status status = sb_dnn_attr(p->ctx, p->what, NULL, 0, &attr);

    if (status == SB_OK)
        status = sb_dnn_check(p->ctx, pool_pd(p, desc, attr, &pd), p->what,
                              "pooling");
    if (status == SB_OK)
        status = sb_dnn_prim_make(p->ctx, p->what, p->engine, pd, &p->prim);
    if (status == SB_OK)
        status = sb_dnn_prim_arg(
            p->ctx, p->what, p->engine, &p->prim, DNNL_ARG_SRC,
            dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0));
    if (status == SB_OK)
        status = sb_dnn_prim_arg(
            p->ctx, p->what, p->engine, &p->prim, DNNL_ARG_DST,
            dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0));
    if (status == SB_OK)
        status = sb_dnn_prim_scratch(p->ctx, p->what, p->engine, &p->prim, pd,
                                     &p->scratch);
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    return status;
}

sb_status sb_dnn_pool_create(sb_ctx *ctx, const sb_dnn_pool_desc *desc,
                             sb_dnn_pool **out)
{
    sb_dnn_pool *p = sb_alloc(ctx, 1, sizeof *p);

    if (!p)
        return SB_NO_MEMORY;
    p->ctx = ctx;
    p->width = ctx->n_threads;
    strncpy(p->what, desc->what, sizeof p->what - 1);
    int width = sb_dnn_set_width(p->width);
    sb_status status = sb_dnn_check(
        ctx, dnnl_engine_create(&p->engine, dnnl_cpu, 0), p->what, "engine");
    if (status == SB_OK)
        status = make_prim(p, desc);
    (void)sb_dnn_set_width(width);
    if (status != SB_OK) {
        sb_dnn_pool_free(p);
        return status;
    }
    *out = p;
    return SB_OK;
}

size_t sb_dnn_pool_scratch(const sb_dnn_pool *pool)
{
    return pool->scratch;
}

sb_status sb_dnn_pool_run(sb_dnn_pool *pool, const float *src, float *dst,
                          void *scratch)
{
    int width = sb_dnn_set_width(pool->width);
    dnnl_status_t status = sb_dnn_prim_run(
        &pool->prim, (void *[]){sb_dnn_mutable(src), dst, scratch});

    (void)sb_dnn_set_width(width);
    return sb_dnn_check(pool->ctx, status, pool->what, "execution");
}

void sb_dnn_pool_free(sb_dnn_pool *pool)
{
    if (!pool)
        return;
    sb_dnn_prim_free(&pool->prim);
    if (pool->engine)
        (void)dnnl_engine_destroy(pool->engine);
    sb_free(pool->ctx, pool);
}
