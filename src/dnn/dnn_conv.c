/* Convolution and transposed convolution.
 *
 * What comes channels last, as nearly all does, is computed in parts
 * (dnn_parts.c) on our own threads.  Else one primitive does the whole problem,
 * in the layouts it likes; where the caller wants others, reorders before and
 * after go through the scratch memory.
 * Kernels built on GEMM are passed over, since their results depend on the
 * number of threads.  If no other kernel exists the problem is cut into images
 * x groups, and each slice runs on one thread with any kernel.  Transposed
 * convolutions of batches are cut into images from the start. */
#include "dnn/dnn_conv.h"

#include <string.h>

#include "base/threads.h"

enum {
    REST_GRAIN = 8192, /* elements worth a thread */
    IMAGES_LEAST = 4,
};

struct sb_dnn_conv {
    sb_ctx *ctx;
    char what[SB_DNN_WHAT_MAX];
    sb_dnn_conv_desc desc;
    dnnl_engine_t engine;
    int width;        /* threads that the primitives were made for */
    sb_dnn_prim conv; /* whole problem */
    sb_dnn_prim src_in, weights_in, dst_out; /* reorders, empty if not needed */
    size_t at_src, at_dst, at_pad, at_reorder; /* in the scratch */
    size_t reorder_pad; /* the largest scratchpad of the reorders */
    size_t scratch;
    sb_dnn_form form;
    sb_dnn_packing packing;
    sb_dnn_parts *parts; /* instead of all above, if not NULL */
    sb_dnn_prim *lanes;  /* for slices: one for each thread; NULL otherwise */
    size_t n_lanes;
    int64_t cut;       /* slices of an image: its groups, or 1 */
    size_t lane_bytes; /* scratch of each */
};

/* ---- the whole problem as one primitive --------------------------------- */

static const dnnl_memory_desc_t *conv_query(const_dnnl_primitive_desc_t pd,
                                            dnnl_query_t what)
{
    return dnnl_primitive_desc_query_md(pd, what, 0);
}

/* If the kernel has another layout than the caller, a reorder with room for
 * the kernel's copy. */
static sb_status conv_adapt(sb_dnn_conv *c, sb_dnn_layout layout,
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

/* A reorder of weights, unless the kernel reads them as ONNX has them. */
static sb_status plan_packing(sb_dnn_conv *c, const sb_dnn_conv_mds *mds,
                              const dnnl_memory_desc_t *want)
{
    if (dnnl_memory_desc_equal(&mds->weights_plain, want))
        return SB_OK;
    SB_TRY(sb_dnn_prim_reorder(c->ctx, c->what, c->engine, &mds->weights_plain,
                               want, &c->weights_in, &c->packing.scratch));
    c->packing.bytes = sb_dnn_md_bytes(want);
    (void)strcpy(c->form.kind, "conv");
    return sb_dnn_form_seal(c->ctx, c->what, &c->form, &mds->weights_plain,
                            want, NULL, &c->packing);
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
        status = conv_adapt(c, d->src_layout, conv_query(pd, dnnl_query_src_md),
                            true);
    if (status == SB_OK)
        status = conv_adapt(c, d->dst_layout, conv_query(pd, dnnl_query_dst_md),
                            false);
    if (status == SB_OK)
        status = plan_packing(c, &mds, conv_query(pd, dnnl_query_weights_md));
    c->at_pad = sb_dnn_reserve(&c->scratch, pad);
    c->at_reorder = sb_dnn_reserve(&c->scratch, c->reorder_pad);
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

/* ---- slices ------------------------------------------------------------- */

/* One image, or one of `cut` groups of it. */
static sb_dnn_conv_desc slice_of(const sb_dnn_conv_desc *d, int64_t cut)
{
    sb_dnn_conv_desc s = *d;

    s.n_batch = 1;
    s.groups /= cut;
    s.in_channels /= cut;
    s.out_channels /= cut;
    return s;
}

/* A primitive of the slice for each thread. */
static sb_status make_lanes(sb_dnn_conv *c, const_dnnl_primitive_desc_t pd,
                            int64_t cut)
{
    size_t slices = (size_t)(c->desc.n_batch * cut);
    sb_status status = SB_OK;

    c->cut = cut;
    c->n_lanes = (size_t)c->ctx->n_threads;
    if (c->n_lanes > slices)
        c->n_lanes = slices;
    c->lanes = sb_alloc(c->ctx, c->n_lanes, sizeof *c->lanes);
    if (!c->lanes)
        status = SB_NO_MEMORY;
    for (size_t i = 0; i < c->n_lanes && status == SB_OK; i++)
        status =
            sb_dnn_conv_prim(c->ctx, c->what, c->engine, pd, c->desc.has_bias,
                             &c->lanes[i], &c->lane_bytes);
    c->scratch = 0;
    for (size_t i = 0; i < c->n_lanes; i++)
        (void)sb_dnn_reserve(&c->scratch, c->lane_bytes);
    return status;
}

/* Whole images, channels last, for transposed convolutions of batches: other
 * ones are cut into smaller parts. */
static sb_status make_images(sb_dnn_conv *c, dnnl_primitive_attr_t attr)
{
    const sb_dnn_conv_desc *d = &c->desc;
    sb_dnn_conv_desc slice = slice_of(d, 1);
    dnnl_primitive_desc_t pd = NULL;
    sb_dnn_conv_mds mds;

    if (!d->transposed || d->n_batch < IMAGES_LEAST || d->src_layout <= 0 ||
        d->dst_layout <= 0)
        return SB_UNSUPPORTED;
    dnnl_status_t found =
        sb_dnn_conv_describe(&slice, d->src_layout, d->dst_layout, true, &mds);
    if (found == dnnl_success)
        found = sb_dnn_conv_pd(c->engine, &slice, &mds, attr, false, &pd);
    SB_TRY(sb_dnn_check(c->ctx, found, c->what, "convolution"));
    sb_status status = make_lanes(c, pd, 1);
    if (status == SB_OK)
        status = plan_packing(c, &mds, conv_query(pd, dnnl_query_weights_md));
    (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

static sb_status make_slices(sb_dnn_conv *c, dnnl_primitive_attr_t attr)
{
    sb_dnn_conv_desc slice = slice_of(&c->desc, c->desc.groups);
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

    sb_status status = make_lanes(c, pd, c->desc.groups);
    (void)dnnl_primitive_desc_destroy(pd);
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
    int64_t in = d->in_channels / c->cut, out = d->out_channels / c->cut;
    int64_t s = (int64_t)index, g = s % c->cut, taps = 1;
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
    c->packing = (sb_dnn_packing){0};
}

/* ---- the object --------------------------------------------------------- */

/* The ways to compute it, best first. */
static sb_status conv_make(sb_dnn_conv *c, dnnl_primitive_attr_t attr)
{
    int width = sb_dnn_set_width(1);
    sb_status status = make_images(c, attr);

    if (status == SB_UNSUPPORTED) {
        status =
            sb_dnn_parts_create(c->ctx, &c->desc, c->engine, attr, &c->parts);
        if (status == SB_OK) {
            c->scratch = sb_dnn_parts_scratch(c->parts);
            c->packing = *sb_dnn_parts_packing(c->parts);
        }
    }
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
        status = conv_make(c, attr);
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

const sb_dnn_packing *sb_dnn_conv_packing(const sb_dnn_conv *conv)
{
    return &conv->packing;
}

sb_status sb_dnn_conv_pack(sb_dnn_conv *conv, const float *weights,
                           void *packed, void *scratch)
{
    void *args[] = {sb_dnn_mutable(weights), packed, scratch};
    int width = sb_dnn_set_width(conv->parts || conv->lanes ? 1 : conv->width);
    dnnl_status_t status =
        conv->parts ? sb_dnn_parts_pack(conv->parts, weights, packed, scratch)
                    : sb_dnn_prim_run(&conv->weights_in, args);

    (void)sb_dnn_set_width(width);
    return sb_dnn_check(conv->ctx, status, conv->what, "weight reorder");
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

typedef struct rest_job {
    const sb_dnn_post *posts;
    size_t n;
    float *dst;
} rest_job;

static void run_rest(void *arg, size_t begin, size_t end)
{
    const rest_job *job = arg;

    sb_dnn_posts_row(job->posts, job->n, job->dst + begin, end - begin);
}

/* The posts that oneDNN was not given, to a result that was not made in
 * parts. */
static void conv_apply_rest(const sb_dnn_conv *c, float *dst)
{
    const sb_dnn_conv_desc *d = &c->desc;
    size_t inside = sb_dnn_posts_inside(d->posts, d->n_posts);
    size_t count = (size_t)(d->n_batch * d->out_channels);
    rest_job job = {d->posts + inside, d->n_posts - inside, dst};

    for (int i = 0; i < d->n_spatial; i++)
        count *= (size_t)d->out[i];
    if (job.n)
        sb_parallel_for(c->ctx, count, REST_GRAIN, run_rest, &job);
}

sb_status sb_dnn_conv_run(sb_dnn_conv *conv, const float *src,
                          const float *weights, const float *bias, float *dst,
                          void *scratch, const sb_tap *tap)
{
    dnnl_status_t status;

    if (conv->parts) {
        status = sb_dnn_parts_run(conv->parts, src, weights, bias, dst, scratch,
                                  tap);
    } else if (conv->lanes) {
        slice_job job = {.conv = conv,
                         .src = src,
                         .bias = bias,
                         .dst = dst,
                         .scratch = scratch,
                         .weights = weights};
        sb_parallel_lanes(conv->ctx, (size_t)(conv->desc.n_batch * conv->cut),
                          conv->n_lanes, run_slice, &job);
        status = (dnnl_status_t)atomic_load(&job.status);
    } else {
        int width = sb_dnn_set_width(conv->width);
        status = run_whole(conv, src, weights, bias, dst, scratch);
        (void)sb_dnn_set_width(width);
    }
    if (!conv->parts && status == dnnl_success)
        conv_apply_rest(conv, dst);
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
