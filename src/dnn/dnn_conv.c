/* Convolution and transposed convolution.
 *
 * What comes channels last with constant weights, as nearly all does, is
 * computed in parts (dnn_parts.c) on our own threads. Else
 * one primitive does the whole problem, in the layouts it likes; where the
 * caller wants others, reorders before and after go through the scratch memory.
 * Kernels built on GEMM are passed over, since their results depend on the
 * number of threads.  If no other kernel exists the problem is cut into images
 * x groups, and each slice runs on one thread with any kernel. */
#include "dnn/dnn_conv.h"

#include <string.h>

#include "base/threads.h"

struct sb_dnn_conv {
    sb_ctx *ctx;
    char what[SB_DNN_WHAT_MAX];
    sb_dnn_conv_desc desc;
    dnnl_engine_t engine;
    int width;        /* threads that the primitives were made for */
    sb_dnn_prim conv; /* whole problem */
    sb_dnn_prim src_in, weights_in, dst_out; /* reorders, empty if not needed */
    size_t at_src, at_weights, at_dst, at_pad, at_reorder; /* in the scratch */
    size_t reorder_pad; /* the largest scratchpad of the reorders */
    size_t scratch;
    sb_buf *packed;      /* constant weights, or NULL */
    sb_dnn_parts *parts; /* instead of all above, if not NULL */
    sb_dnn_prim *lanes;  /* for slices: one for each thread; NULL otherwise */
    size_t n_lanes;
    size_t lane_bytes; /* scratch of each */
};

/* ---- the whole problem as one primitive --------------------------------- */

static const dnnl_memory_desc_t *query(const_dnnl_primitive_desc_t pd,
                                       dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* If the kernel has another layout than the caller, a reorder with room for
 * the kernel's copy. */
static sb_status adapt(sb_dnn_conv *c, sb_dnn_layout layout,
                       const dnnl_memory_desc_t *kernel_md, bool inward)
{
    dnnl_memory_desc_t user;
    sb_dnn_prim *reorder = inward ? &c->src_in : &c->dst_out;
    size_t *at = inward ? &c->at_src : &c->at_dst;
    size_t pad = 0;

    SB_TRY(sb_dnn_check(
        c->ctx, sb_dnn_md(&user, kernel_md->ndims, kernel_md->dims, layout),
        c->what, "layout"));
    if (dnnl_memory_desc_equal(&user, kernel_md))
        return SB_OK;
    SB_TRY(sb_dnn_prim_reorder(c->ctx, c->what, c->engine,
                               inward ? &user : kernel_md,
                               inward ? kernel_md : &user, reorder, &pad));
    *at = sb_dnn_reserve(&c->scratch, sb_dnn_md_bytes(kernel_md));
    c->reorder_pad = pad > c->reorder_pad ? pad : c->reorder_pad;
    return SB_OK;
}

/* Packs constant weights now, or makes room to do it at each run. */
static sb_status pack_weights(sb_dnn_conv *c, const sb_dnn_conv_mds *mds,
                              const dnnl_memory_desc_t *want)
{
    const float *weights = c->desc.weights;
    sb_buf *pad_buf = NULL;
    size_t pad = 0;

    if (dnnl_memory_desc_equal(&mds->weights_plain, want))
        return SB_OK;
    SB_TRY(sb_dnn_prim_reorder(c->ctx, c->what, c->engine, &mds->weights_plain,
                               want, &c->weights_in, &pad));
    if (!weights) {
        c->at_weights = sb_dnn_reserve(&c->scratch, sb_dnn_md_bytes(want));
        c->reorder_pad = pad > c->reorder_pad ? pad : c->reorder_pad;
        return SB_OK;
    }
    SB_TRY(sb_buf_create_raw(c->ctx, sb_dnn_md_bytes(want), &c->packed));
    if (pad)
        SB_TRY(sb_buf_create_raw(c->ctx, pad, &pad_buf));
    dnnl_status_t status = sb_dnn_prim_run(
        &c->weights_in,
        (void *[]){sb_dnn_mutable(weights), sb_buf_data(c->packed),
                   pad_buf ? sb_buf_data(pad_buf) : NULL});
    sb_buf_unref(pad_buf);
    sb_dnn_prim_free(&c->weights_in);
    return sb_dnn_check(c->ctx, status, c->what, "weight reorder");
}

/* Layouts that the kernel is asked for: its own choice, unless the caller has
 * channels last, or dst holds an addend that must be where the caller left it.
 */
static sb_dnn_layout kernel_layout(sb_dnn_layout wish, bool fixed)
{
    return wish == SB_DNN_PLAIN && !fixed ? SB_DNN_ANY : wish;
}

static sb_status make_whole(sb_dnn_conv *c, dnnl_primitive_attr_t attr)
{
    const sb_dnn_conv_desc *d = &c->desc;
    dnnl_primitive_desc_t pd = NULL;
    sb_dnn_conv_mds mds;
    size_t pad = 0;
    dnnl_status_t found = sb_dnn_conv_describe(
        d, kernel_layout(d->src_layout, false),
        kernel_layout(d->dst_layout, sb_dnn_conv_has_sum(d)), true, &mds);

    if (found == dnnl_success)
        found = sb_dnn_conv_pd(c->engine, d, &mds, attr, true, &pd);
    sb_status status = sb_dnn_check(c->ctx, found, c->what, "convolution");
    if (status == SB_OK)
        status = sb_dnn_conv_prim(c->ctx, c->what, c->engine, pd, d->has_bias,
                                  &c->conv, &pad);
    if (status == SB_OK)
        status = adapt(c, d->src_layout, query(pd, dnnl_query_src_md), true);
    if (status == SB_OK)
        status = adapt(c, d->dst_layout, query(pd, dnnl_query_dst_md), false);
    if (status == SB_OK)
        status = pack_weights(c, &mds, query(pd, dnnl_query_weights_md));
    c->at_pad = sb_dnn_reserve(&c->scratch, pad);
    c->at_reorder = sb_dnn_reserve(&c->scratch, c->reorder_pad);
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

/* ---- slices ------------------------------------------------------------- */

/* One image, one group, plain. */
static sb_dnn_conv_desc slice_of(const sb_dnn_conv_desc *d)
{
    sb_dnn_conv_desc s = *d;

    s.n_batch = 1;
    s.groups = 1;
    s.in_channels /= d->groups;
    s.out_channels /= d->groups;
    return s;
}

static sb_status make_slices(sb_dnn_conv *c, dnnl_primitive_attr_t attr)
{
    sb_dnn_conv_desc slice = slice_of(&c->desc);
    size_t slices = (size_t)(c->desc.n_batch * c->desc.groups);
    dnnl_primitive_desc_t pd = NULL;
    sb_dnn_conv_mds mds;
    dnnl_status_t found =
        sb_dnn_conv_describe(&slice, SB_DNN_PLAIN, SB_DNN_PLAIN, false, &mds);

    if (c->desc.src_layout > 0 || c->desc.dst_layout > 0)
        found = dnnl_unimplemented;
    if (found == dnnl_success)
        found = sb_dnn_conv_pd(c->engine, &slice, &mds, attr, false, &pd);
    /* Few kernels add after an activation.  The reference one does, a hundred
     * times slower than the caller can. */
    if (found == dnnl_success && c->desc.n_posts > 1 &&
        sb_dnn_conv_has_sum(&c->desc) &&
        strstr(sb_dnn_kernel_name(pd), "ref")) {
        (void)dnnl_primitive_desc_destroy(pd);
        found = dnnl_unimplemented;
    }
    SB_TRY(sb_dnn_check(c->ctx, found, c->what, "convolution"));

    sb_status status = SB_OK;
    c->n_lanes = (size_t)c->ctx->n_threads;
    if (c->n_lanes > slices)
        c->n_lanes = slices;
    c->lanes = sb_alloc(c->ctx, c->n_lanes, sizeof *c->lanes);
    if (!c->lanes)
        status = SB_NO_MEMORY;
    for (size_t i = 0; i < c->n_lanes && status == SB_OK; i++)
        status = sb_dnn_conv_prim(c->ctx, c->what, c->engine, pd,
                                  slice.has_bias, &c->lanes[i], &c->lane_bytes);
    (void)dnnl_primitive_desc_destroy(pd);
    c->scratch = 0;
    for (size_t i = 0; i < c->n_lanes; i++)
        (void)sb_dnn_reserve(&c->scratch, c->lane_bytes);
    return status;
}

typedef struct slice_job {
    sb_dnn_conv *conv;
    const float *src, *weights, *bias;
    float *dst;
    char *scratch;
    atomic_int status; /* of the first lane that failed */
} slice_job;

static void run_slice(void *arg, size_t lane, size_t index)
{
    slice_job *job = arg;
    sb_dnn_conv *c = job->conv;
    const sb_dnn_conv_desc *d = &c->desc;
    int64_t in = d->in_channels / d->groups, out = d->out_channels / d->groups;
    int64_t s = (int64_t)index, g = s % d->groups, taps = 1;
    int64_t src_step = in, dst_step = out;

    for (int i = 0; i < d->n_spatial; i++) {
        src_step *= d->in[i];
        dst_step *= d->out[i];
        taps *= d->kernel[i];
    }
    void *pad = sb_dnn_at(job->scratch, lane * (c->scratch / c->n_lanes));
    void *args[] = {sb_dnn_mutable(job->src + s * src_step),
                    sb_dnn_mutable(job->weights + g * in * out * taps),
                    job->dst + s * dst_step,
                    d->has_bias ? sb_dnn_mutable(job->bias + g * out) : pad,
                    pad};
    int width = sb_dnn_set_width(1);
    dnnl_status_t status = sb_dnn_prim_run(&c->lanes[lane], args);

    (void)sb_dnn_set_width(width);
    if (status != dnnl_success)
        atomic_store(&job->status, (int)status);
}

static void free_whole(sb_dnn_conv *c)
{
    sb_dnn_prim_free(&c->conv);
    sb_dnn_prim_free(&c->src_in);
    sb_dnn_prim_free(&c->weights_in);
    sb_dnn_prim_free(&c->dst_out);
    sb_buf_unref(c->packed);
    c->packed = NULL;
}

/* ---- the object --------------------------------------------------------- */

/* The ways to compute it, best first. */
static sb_status make(sb_dnn_conv *c, dnnl_primitive_attr_t attr)
{
    int width = sb_dnn_set_width(1);
    sb_status status =
        sb_dnn_parts_create(c->ctx, &c->desc, c->engine, attr, &c->parts);

    if (status == SB_OK)
        c->scratch = sb_dnn_parts_scratch(c->parts);
    if (status == SB_UNSUPPORTED) {
        (void)sb_dnn_set_width(c->width);
        status = make_whole(c, attr);
    }
    if (status == SB_UNSUPPORTED && !c->desc.direct) {
        free_whole(c);
        (void)sb_dnn_set_width(1);
        status = make_slices(c, attr);
    }
    (void)sb_dnn_set_width(width);
    return status;
}

sb_status sb_dnn_conv_create(sb_ctx *ctx, const sb_dnn_conv_desc *desc,
                             sb_dnn_conv **out)
{
    dnnl_primitive_attr_t attr = NULL;
    sb_dnn_conv *c = sb_alloc(ctx, 1, sizeof *c);

    if (!c)
        return SB_NO_MEMORY;
    c->ctx = ctx;
    c->desc = *desc;
    c->width = ctx->n_threads;
    strncpy(c->what, desc->what, sizeof c->what - 1);
    c->desc.what = c->what;
    sb_status status = sb_dnn_check(
        ctx, dnnl_engine_create(&c->engine, dnnl_cpu, 0), c->what, "engine");
    if (status == SB_OK)
        status = sb_dnn_attr(ctx, c->what, desc->posts, desc->n_posts, &attr);
    if (status == SB_OK)
        status = make(c, attr);
    if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    if (status != SB_OK) {
        sb_dnn_conv_free(c);
        return status;
    }
    *out = c;
    return SB_OK;
}

size_t sb_dnn_conv_scratch(const sb_dnn_conv *conv)
{
    return conv->scratch;
}

bool sb_dnn_conv_packed(const sb_dnn_conv *conv)
{
    return conv->packed || conv->parts;
}

static dnnl_status_t run_whole(sb_dnn_conv *c, const float *src,
                               const float *weights, const float *bias,
                               float *dst, char *scratch)
{
    void *x = sb_dnn_mutable(src), *w = sb_dnn_mutable(weights), *y = dst;
    void *pad = sb_dnn_at(scratch, c->at_reorder);
    dnnl_status_t status = dnnl_success;

    if (c->src_in.prim) {
        x = sb_dnn_at(scratch, c->at_src);
        status = sb_dnn_prim_run(&c->src_in,
                                 (void *[]){sb_dnn_mutable(src), x, pad});
    }
    if (c->packed) {
        w = sb_buf_data(c->packed);
    } else if (c->weights_in.prim && status == dnnl_success) {
        w = sb_dnn_at(scratch, c->at_weights);
        status = sb_dnn_prim_run(&c->weights_in,
                                 (void *[]){sb_dnn_mutable(weights), w, pad});
    }
    if (c->dst_out.prim)
        y = sb_dnn_at(scratch, c->at_dst);
    void *args[] = {x, w, y, c->desc.has_bias ? sb_dnn_mutable(bias) : NULL,
                    NULL};
    args[c->desc.has_bias ? 4 : 3] = sb_dnn_at(scratch, c->at_pad);
    if (status == dnnl_success)
        status = sb_dnn_prim_run(&c->conv, args);
    if (c->dst_out.prim && status == dnnl_success)
        status = sb_dnn_prim_run(&c->dst_out, (void *[]){y, dst, pad});
    return status;
}

sb_status sb_dnn_conv_run(sb_dnn_conv *conv, const float *src,
                          const float *weights, const float *bias, float *dst,
                          void *scratch, const sb_tap *tap)
{
    dnnl_status_t status;

    if (conv->parts) {
        status = sb_dnn_parts_run(conv->parts, src, bias, dst, scratch, tap);
    } else if (conv->lanes) {
        slice_job job = {.conv = conv,
                         .src = src,
                         .bias = bias,
                         .dst = dst,
                         .scratch = scratch,
                         .weights = weights};
        sb_parallel_lanes(conv->ctx,
                          (size_t)(conv->desc.n_batch * conv->desc.groups),
                          conv->n_lanes, run_slice, &job);
        status = (dnnl_status_t)atomic_load(&job.status);
    } else {
        int width = sb_dnn_set_width(conv->width);
        status = run_whole(conv, src, weights, bias, dst, scratch);
        (void)sb_dnn_set_width(width);
    }
    return sb_dnn_check(conv->ctx, status, conv->what, "execution");
}

void sb_dnn_conv_free(sb_dnn_conv *conv)
{
    if (!conv)
        return;
    for (size_t i = 0; conv->lanes && i < conv->n_lanes; i++)
        sb_dnn_prim_free(&conv->lanes[i]);
    sb_free(conv->ctx, conv->lanes);
    free_whole(conv);
    sb_dnn_parts_free(conv->parts);
    if (conv->engine)
        (void)dnnl_engine_destroy(conv->engine);
    sb_free(conv->ctx, conv);
}
