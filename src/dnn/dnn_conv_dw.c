/* The gradient of a convolution's weights.
 *
 * It is a sum over images, which oneDNN divides among threads as it likes.  So
 * it is cut here: a part is a run of images, computed by one thread into
 * weights of its own, and the parts are added in order.  How many there are
 * depends on the sizes alone, hence so do the results. */
#include <string.h>

#include "base/threads.h"
#include "dnn/dnn_conv.h"

enum {
    PARTS_BYTES = 16 << 20, /* of all parts' weights, if they are more than */
    PARTS_LEAST = 4,
    SUM_GRAIN = 1 << 14, /* weights worth a thread */
};

typedef struct dw_lane {
    sb_dnn_prim prim[2]; /* of a whole part, and of the last if it is shorter */
} dw_lane;

struct sb_dnn_conv_dw {
    sb_ctx *ctx;
    char what[SB_DNN_WHAT_MAX];
    sb_dnn_conv_desc desc;
    dnnl_engine_t engine;
    int64_t images; /* of a part */
    int64_t n_parts;
    int64_t src_image, dst_image; /* elements */
    dw_lane *lanes;
    size_t n_lanes;
    sb_dnn_prim reorder; /* to plain weights */
    size_t weight_bytes; /* of a part, as the kernel has them */
    size_t pad_bytes;    /* of a lane */
    size_t at_pads, at_reorder, scratch;
};

static int64_t dw_product(const int64_t *v, int n)
{
    int64_t p = 1;

    for (int i = 0; i < n; i++)
        p *= v[i];
    return p;
}

static void dw_cut(sb_dnn_conv_dw *c)
{
    const sb_dnn_conv_desc *d = &c->desc;
    int64_t bytes = (int64_t)sizeof(float) * d->out_channels * d->in_channels /
                    d->groups * dw_product(d->kernel, d->n_spatial);
    int64_t most = PARTS_BYTES / (bytes > 0 ? bytes : 1);

    most = most > SB_REDUCE_PARTS ? SB_REDUCE_PARTS : most;
    most = most < PARTS_LEAST ? PARTS_LEAST : most;
    c->images = (d->n_batch + most - 1) / most;
    c->n_parts = (d->n_batch + c->images - 1) / c->images;
    c->src_image = d->in_channels * dw_product(d->in, d->n_spatial);
    c->dst_image = d->out_channels * dw_product(d->out, d->n_spatial);
}

static int64_t dw_images(const sb_dnn_conv_dw *c, int64_t part)
{
    int64_t left = c->desc.n_batch - part * c->images;

    return left < c->images ? left : c->images;
}

static sb_status dw_prim(sb_dnn_conv_dw *c, const_dnnl_primitive_desc_t pd,
                         sb_dnn_prim *out)
{
    size_t pad = 0;
    static const struct {
        int arg;
        dnnl_query_t query;
    } args[] = {
        {DNNL_ARG_SRC, dnnl_query_src_md},
        {DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md},
        {DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md},
    };

    SB_TRY(sb_dnn_prim_make(c->ctx, c->what, c->engine, pd, out));
    for (size_t i = 0; i < SB_COUNT(args); i++)
        SB_TRY(sb_dnn_prim_arg(
            c->ctx, c->what, c->engine, out, args[i].arg,
            dnnl_primitive_desc_query_md(pd, args[i].query, 0)));
    SB_TRY(sb_dnn_prim_scratch(c->ctx, c->what, c->engine, out, pd, &pad));
    c->pad_bytes = pad > c->pad_bytes ? pad : c->pad_bytes;
    return SB_OK;
}

/* The primitives for parts of `images` images; all write weights as the first
 * has them, described by *weights. */
static sb_status dw_kind(sb_dnn_conv_dw *c, size_t kind, int64_t images,
                         dnnl_primitive_attr_t attr,
                         dnnl_memory_desc_t *weights, dnnl_memory_desc_t *plain)
{
    sb_dnn_conv_desc d = c->desc;
    dnnl_primitive_desc_t pd = NULL;
    sb_dnn_conv_mds mds;

    d.n_batch = images;
    dnnl_status_t found =
        sb_dnn_conv_describe(&d, d.src_layout, d.dst_layout, true, &mds);
    if (found == dnnl_success && kind > 0)
        mds.weights = *weights;
    if (found == dnnl_success)
        found = sb_dnn_conv_dw_pd(c->engine, &d, &mds, attr, &pd);
    sb_status status = sb_dnn_check(c->ctx, found, c->what, "gradient");
    for (size_t l = 0; l < c->n_lanes && status == SB_OK; l++)
        status = dw_prim(c, pd, &c->lanes[l].prim[kind]);
    if (status == SB_OK) {
        *weights =
            *dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
        *plain = mds.weights_plain;
    }
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

static sb_status dw_make(sb_dnn_conv_dw *c, dnnl_primitive_attr_t attr)
{
    dnnl_memory_desc_t weights, plain;
    int64_t last = dw_images(c, c->n_parts - 1);
    size_t pad = 0;

    c->n_lanes = (size_t)c->ctx->n_threads;
    if (c->n_lanes > (size_t)c->n_parts)
        c->n_lanes = (size_t)c->n_parts;
    c->lanes = sb_alloc(c->ctx, c->n_lanes, sizeof *c->lanes);
    if (!c->lanes)
        return SB_NO_MEMORY;
    SB_TRY(dw_kind(c, 0, c->images, attr, &weights, &plain));
    if (last != c->images)
        SB_TRY(dw_kind(c, 1, last, attr, &weights, &plain));
    SB_TRY(sb_dnn_prim_reorder(c->ctx, c->what, c->engine, &weights, &plain,
                               &c->reorder, &pad));
    c->weight_bytes = sb_dnn_md_bytes(&weights);
    for (int64_t i = 0; i < c->n_parts; i++)
        (void)sb_dnn_reserve(&c->scratch, c->weight_bytes);
    c->at_pads = c->scratch;
    (void)sb_dnn_reserve(&c->pad_bytes, 0);
    for (size_t i = 0; i < c->n_lanes; i++)
        (void)sb_dnn_reserve(&c->scratch, c->pad_bytes);
    c->at_reorder = sb_dnn_reserve(&c->scratch, pad);
    return SB_OK;
}

sb_status sb_dnn_conv_dw_create(sb_ctx *ctx, const sb_dnn_conv_desc *desc,
                                sb_dnn_conv_dw **out)
{
    dnnl_primitive_attr_t attr = NULL;

    if (desc->transposed || desc->n_posts > 0 || desc->n_batch < 1 ||
        desc->src_layout != desc->in_channels ||
        desc->dst_layout != desc->out_channels)
        return sb_fail(ctx, SB_UNSUPPORTED, "%s: no gradient in parts",
                       desc->what);
    sb_dnn_conv_dw *c = sb_alloc(ctx, 1, sizeof *c);
    if (!c)
        return SB_NO_MEMORY;
    c->ctx = ctx;
    c->desc = *desc;
    c->desc.has_bias = false;
    strncpy(c->what, desc->what, sizeof c->what - 1);
    c->desc.what = c->what;
    dw_cut(c);
    int width = sb_dnn_set_width(1);
    sb_status status = sb_dnn_check(
        ctx, dnnl_engine_create(&c->engine, dnnl_cpu, 0), c->what, "engine");
    if (status == SB_OK)
        status = sb_dnn_attr(ctx, c->what, NULL, 0, &attr);
    if (status == SB_OK)
        status = dw_make(c, attr);
    (void)sb_dnn_set_width(width);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    if (status != SB_OK) {
        sb_dnn_conv_dw_free(c);
        return status;
    }
    *out = c;
    return SB_OK;
}

void sb_dnn_conv_dw_free(sb_dnn_conv_dw *conv)
{
    if (!conv)
        return;
    for (size_t i = 0; conv->lanes && i < conv->n_lanes; i++)
        for (size_t k = 0; k < SB_COUNT(conv->lanes[i].prim); k++)
            sb_dnn_prim_free(&conv->lanes[i].prim[k]);
    sb_free(conv->ctx, conv->lanes);
    sb_dnn_prim_free(&conv->reorder);
    if (conv->engine)
        (void)dnnl_engine_destroy(conv->engine);
    sb_free(conv->ctx, conv);
}

size_t sb_dnn_conv_dw_scratch(const sb_dnn_conv_dw *conv)
{
    return conv->scratch;
}

/* ---- running ------------------------------------------------------------ */

typedef struct dw_job {
    sb_dnn_conv_dw *conv;
    const float *src, *ddst;
    char *scratch;
    atomic_int status;
} dw_job;

static float *dw_part(const dw_job *job, int64_t part)
{
    return (float *)(void *)(job->scratch +
                             (size_t)part * job->conv->weight_bytes);
}

static void dw_run_part(void *arg, size_t lane, size_t i)
{
    dw_job *job = arg;
    sb_dnn_conv_dw *c = job->conv;
    int64_t part = (int64_t)i, first = part * c->images;
    bool is_short = dw_images(c, part) != c->images;
    void *args[] = {sb_dnn_mutable(job->src + first * c->src_image),
                    sb_dnn_mutable(job->ddst + first * c->dst_image),
                    dw_part(job, part),
                    job->scratch + c->at_pads + lane * c->pad_bytes};
    int width = sb_dnn_set_width(1);
    dnnl_status_t status =
        sb_dnn_prim_run(&c->lanes[lane].prim[is_short], args);

    (void)sb_dnn_set_width(width);
    if (status != dnnl_success)
        atomic_store(&job->status, (int)status);
}

/* Adds all parts to the first, in order. */
static void dw_sum(void *arg, size_t begin, size_t end)
{
    const dw_job *job = arg;
    float *sum = dw_part(job, 0);

    for (int64_t p = 1; p < job->conv->n_parts; p++) {
        const float *part = dw_part(job, p);
        for (size_t i = begin; i < end; i++)
            sum[i] += part[i];
    }
}

sb_status sb_dnn_conv_dw_run(sb_dnn_conv_dw *conv, const float *src,
                             const float *ddst, float *dw, void *scratch)
{
    dw_job job = {.conv = conv, .src = src, .ddst = ddst, .scratch = scratch};

    sb_parallel_lanes(conv->ctx, (size_t)conv->n_parts, conv->n_lanes,
                      dw_run_part, &job);
    dnnl_status_t status = (dnnl_status_t)atomic_load(&job.status);
    if (status == dnnl_success) {
        sb_parallel_for(conv->ctx, conv->weight_bytes / sizeof(float),
                        SUM_GRAIN, dw_sum, &job);
        int width = sb_dnn_set_width(1);
        status = sb_dnn_prim_run(
            &conv->reorder,
            (void *[]){dw_part(&job, 0), dw, job.scratch + conv->at_reorder});
        (void)sb_dnn_set_width(width);
    }
    return sb_dnn_check(conv->ctx, status, conv->what, "gradient");
}
