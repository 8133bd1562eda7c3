/* Reorder between plain and blocked layouts. */
#include "dnn/dnn_prim.h"

struct sb_dnn_reorder {
    sb_ctx *ctx;
    dnnl_engine_t engine;
    int width;
    sb_dnn_prim prim;
    size_t scratch;
};

sb_status sb_dnn_reorder_create(sb_ctx *ctx, int rank, const int64_t *dims,
                                sb_dnn_layout from, sb_dnn_layout to,
                                sb_dnn_reorder **out)
{
    dnnl_memory_desc_t from_md, to_md;
    sb_dnn_reorder *r = sb_alloc(ctx, 1, sizeof *r);

    if (!r)
        return SB_NO_MEMORY;
    r->ctx = ctx;
    r->width = ctx->n_threads;
    int width = sb_dnn_set_width(r->width);
    dnnl_status_t made = dnnl_engine_create(&r->engine, dnnl_cpu, 0);
    if (made == dnnl_success)
        made = sb_dnn_md(&from_md, rank, dims, from);
    if (made == dnnl_success)
        made = sb_dnn_md(&to_md, rank, dims, to);
    sb_status status = sb_dnn_check(ctx, made, "reorder", "layout");
    if (status == SB_OK)
        status = sb_dnn_prim_reorder(ctx, "reorder", r->engine, &from_md,
                                     &to_md, &r->prim, &r->scratch);
    (void)sb_dnn_set_width(width);
    if (status != SB_OK) {
        sb_dnn_reorder_free(r);
        return status;
    }
    *out = r;
    return SB_OK;
}

size_t sb_dnn_reorder_scratch(const sb_dnn_reorder *reorder)
{
    return reorder->scratch;
}

sb_status sb_dnn_reorder_run(sb_dnn_reorder *reorder, const float *src,
                             float *dst, void *scratch)
{
    int width = sb_dnn_set_width(reorder->width);
    dnnl_status_t status = sb_dnn_prim_run(
        &reorder->prim, (void *[]){sb_dnn_mutable(src), dst, scratch});

    (void)sb_dnn_set_width(width);
    return sb_dnn_check(reorder->ctx, status, "reorder", "execution");
}

void sb_dnn_reorder_free(sb_dnn_reorder *reorder)
{
    if (!reorder)
        return;
    sb_dnn_prim_free(&reorder->prim);
    if (reorder->engine)
        (void)dnnl_engine_destroy(reorder->engine);
    sb_free(reorder->ctx, reorder);
}
