/* A convolution in parts, each computed by one thread with one primitive.
 *
 * Channels last, an image's rows follow each other in memory, so a band of
 * output rows is a convolution of its own on a band of input rows, with less
 * padding where it does not touch the border.  Threads take bands.  A 1x1
 * convolution knows no rows: all pixels of all images are one long column.
 *
 * Where weights outweigh what they are applied to (late layers), every thread
 * would read all of them for its band.  There the output channels are divided
 * instead: each part has weights of its own and leaves its channels in the
 * scratch memory, from where they are copied between the others'.
 *
 * Transposed convolutions are cut into bands, too, whole strides high, so that
 * inner ones look alike.
 *
 * The cut depends on the sizes alone, hence so do the results. */
#include "dnn/dnn_conv.h"

#include <string.h>

#include "base/threads.h"

/* The numbers below, and the factors in parts_cut(), were found on the machine
 * of docs/performance.md: two cores of a Xeon (Sapphire Rapids, AVX-512, 2 MB
 * of second-level cache each).  To tune them elsewhere, run `sparsebit bench
 * --profile` on networks with heavy late layers (resnet50, squeezenet1_1) and
 * with many small ones (mobilenet_v1, nanodet_m), change one number at a time
 * and compare the rows of the layers that it concerns. */
enum {
    KINDS = 4,         /* different parts: first, inner, last, only */
    PARTS_MOST = 16,   /* of one image */
    HEAVY = 512 << 10, /* bytes of weights */
    VERY_HEAVY = 3 << 19,
    CHANNELS_UNIT = 16,
    CHANNELS_LEAST = 64, /* of a part */
    COLUMN_MOST = 512,
    PIXELS_LEAST = 96, /* of a part, to make something of weights once read */
    PART_BYTES = 512 << 10, /* of its result, which is looked at once more */
};
/* Multiplications, and what else an output element costs in them; a part of
 * PART_WORK takes about ten microseconds.  Two halves pay earlier than that,
 * also because each thread then finds in its cache what it wrote the step
 * before. */
#define PART_WORK    1e6
#define HALF_WORK    4e4
#define ELEMENT_WORK 16.0

/* One way that a part can look. */
typedef struct kind {
    int64_t pad, in, out; /* rows */
    int64_t channels;     /* of the output */
} kind;

typedef struct part_lane {
    sb_dnn_prim prim[KINDS];
} part_lane;

struct sb_dnn_parts {
    sb_ctx *ctx;
    sb_dnn_conv_desc desc; /* flattened, if 1x1 */
    size_t n_inside;       /* of the posts, that oneDNN computes */
    dnnl_engine_t engine;  /* borrowed */
    bool by_channels;
    int64_t band;      /* rows of the output in a part, or channels */
    int64_t n_bands;   /* of an image */
    int64_t n_parts;   /* in all */
    int64_t src_row;   /* elements */
    int64_t dst_row;   /* elements */
    int64_t src_image; /* elements */
    int64_t dst_image; /* elements */
    kind kinds[KINDS];
    size_t n_kinds;
    part_lane *lanes;
    size_t n_lanes;
    size_t lane_bytes; /* of scratch memory: scratchpad, then results */
    size_t at_dst;
    sb_dnn_prim reorder[2]; /* of weights; [1] of the last part by channels, if
                               it has fewer */
    size_t packed_step;     /* between the weights of parts, if by channels */
    sb_dnn_form form;
    sb_dnn_packing packing;
};

/* ---- the cut ------------------------------------------------------------ */

static int64_t parts_product(const int64_t *v, int n)
{
    int64_t p = 1;

    for (int i = 0; i < n; i++)
        p *= v[i];
    return p;
}

static bool is_pointwise(const sb_dnn_conv_desc *d)
{
    bool is = d->groups == 1;

    for (int i = 0; i < d->n_spatial; i++)
        is = is && d->kernel[i] == 1 && d->stride[i] == 1 &&
             d->pad_lo[i] == 0 && d->in[i] == d->out[i];
    return is;
}

/* [N, C, D...] becomes one image: of one column, or, if that would be long, as
 * wide as before (oneDNN's search for a kernel takes its time over long
 * columns). */
static void parts_flatten(sb_dnn_conv_desc *d)
{
    int64_t pixels = d->n_batch * parts_product(d->in, d->n_spatial);
    int last = d->n_spatial - 1;
    int64_t width = last > 0 && pixels > COLUMN_MOST ? d->in[last] : 1;

    for (int i = 0; i < d->n_spatial; i++)
        d->in[i] = d->out[i] = 1;
    if (last > 0)
        d->in[last] = d->out[last] = width;
    d->in[0] = d->out[0] = pixels / width;
    d->n_batch = 1;
}

static double parts_elements(const sb_dnn_conv_desc *d, bool out)
{
    return (double)d->n_batch *
           (double)(out ? d->out_channels : d->in_channels) *
           (double)parts_product(out ? d->out : d->in, d->n_spatial);
}

static double weight_bytes(const sb_dnn_conv_desc *d)
{
    return 4.0 * (double)d->out_channels * (double)d->in_channels /
           (double)d->groups * (double)parts_product(d->kernel, d->n_spatial);
}

/* Of a transposed convolution, whose input row i goes to the output rows from
 * i * stride - pad on.  With strides beyond the kernel the pad may be below
 * zero, which oneDNN does not know. */
static kind turned_kind_of(const sb_dnn_conv_desc *d, int64_t first, int64_t n,
                           int64_t *begin)
{
    int64_t reach = (d->kernel[0] - 1) * d->dilation[0] + 1;
    int64_t at = first + d->pad_lo[0], from = at - reach + 1;
    int64_t to = (at + n - 1) / d->stride[0] + 1;

    *begin = from > 0 ? (from + d->stride[0] - 1) / d->stride[0] : 0;
    to = to > d->in[0] ? d->in[0] : to;
    return (kind){.pad = at - *begin * d->stride[0],
                  .in = to - *begin,
                  .out = n,
                  .channels = d->out_channels};
}

/* Rows of input that output rows [first, first + n) read. */
static kind kind_of(const sb_dnn_conv_desc *d, int64_t first, int64_t n,
                    int64_t *begin)
{
    if (d->transposed)
        return turned_kind_of(d, first, n, begin);
    int64_t reach = (d->kernel[0] - 1) * d->dilation[0] + 1;
    int64_t from = first * d->stride[0] - d->pad_lo[0];
    int64_t to = (first + n - 1) * d->stride[0] - d->pad_lo[0] + reach;

    *begin = from < 0 ? 0 : from;
    to = to > d->in[0] ? d->in[0] : to;
    return (kind){.pad = *begin - from,
                  .in = to - *begin,
                  .out = n,
                  .channels = d->out_channels};
}

static size_t find_kind(const sb_dnn_parts *p, const kind *k)
{
    size_t i = 0;

    while (i < p->n_kinds &&
           (p->kinds[i].pad != k->pad || p->kinds[i].in != k->in ||
            p->kinds[i].out != k->out || p->kinds[i].channels != k->channels))
        i++;
    return i;
}

/* False if a part would read nothing but padding, or they all differ. */
static bool add_kind(sb_dnn_parts *p, const kind *k)
{
    size_t i = find_kind(p, k);

    if (k->in < 1 || k->out < 1 || i == KINDS)
        return false;
    if (i == p->n_kinds)
        p->kinds[p->n_kinds++] = *k;
    return true;
}

/* Where part i begins, and how it looks. */
typedef struct place {
    kind kind;
    int64_t src, dst, channel;
} place;

static place place_of(const sb_dnn_parts *p, int64_t i)
{
    const sb_dnn_conv_desc *d = &p->desc;
    place at = {.channel = 0};
    int64_t begin = 0;

    if (p->by_channels) {
        at.channel = i * p->band;
        at.kind = (kind){.pad = d->pad_lo[0], .in = d->in[0], .out = d->out[0]};
        at.kind.channels = d->out_channels - at.channel < p->band
                               ? d->out_channels - at.channel
                               : p->band;
        return at;
    }
    int64_t image = i / p->n_bands, first = i % p->n_bands * p->band;
    int64_t n = d->out[0] - first < p->band ? d->out[0] - first : p->band;
    at.kind = kind_of(d, first, n, &begin);
    at.src = image * p->src_image + begin * p->src_row;
    at.dst = image * p->dst_image + first * p->dst_row;
    return at;
}

/* How many parts: a power of two, so that threads get equally many. */
static int64_t count_parts(const sb_dnn_conv_desc *d, bool by_channels)
{
    double out = parts_elements(d, true);
    double work =
        out * (weight_bytes(d) / 4 / (double)d->out_channels + ELEMENT_WORK);
    double room = by_channels ? (double)d->out_channels / CHANNELS_LEAST
                  : d->groups > 1
                      ? PARTS_MOST
                      : out / (double)d->out_channels / PIXELS_LEAST;
    int64_t parts = work > 2 * HALF_WORK ? 2 : 1;
    int64_t most = PARTS_MOST > d->n_batch ? PARTS_MOST : d->n_batch;

    while (2 * parts <= most && work > 2.0 * PART_WORK * (double)parts &&
           room >= 2.0 * (double)parts)
        parts *= 2;
    while (!by_channels && 4 * out > (double)parts * PART_BYTES)
        parts *= 2;
    return parts;
}

/* Rows of a band, when there are to be about `n` of `length` rows in all: as
 * many bands as possible of which the last is not much shorter, or threads
 * would wait for each other. */
static int64_t band_size(int64_t length, int64_t n)
{
    for (; n > 1; n /= 2) {
        int64_t size = (length + n - 1) / n, last = length - (n - 1) * size;
        if (4 * last >= 3 * size)
            return size;
    }
    return length;
}

static bool parts_cut(sb_dnn_parts *p)
{
    sb_dnn_conv_desc *d = &p->desc;

    if (is_pointwise(d))
        parts_flatten(d);
    double weights = weight_bytes(d), out = parts_elements(d, true);
    double moved = 4 * (parts_elements(d, false) + out);
    p->by_channels = !d->transposed && d->groups == 1 &&
                     d->out_channels >= 2 * CHANNELS_LEAST && weights > HEAVY &&
                     weights > (weights > VERY_HEAVY ? 1.0 : 2.5) * moved;
    int64_t parts = count_parts(d, p->by_channels);

    p->src_row = d->in_channels * parts_product(d->in + 1, d->n_spatial - 1);
    p->dst_row = d->out_channels * parts_product(d->out + 1, d->n_spatial - 1);
    p->src_image = p->src_row * d->in[0];
    p->dst_image = p->dst_row * d->out[0];
    int64_t length = p->by_channels ? d->out_channels : d->out[0];
    if (!p->by_channels)
        parts = (parts + d->n_batch - 1) / d->n_batch;
    p->band = band_size(length, parts);
    if (p->by_channels)
        p->band = (p->band + CHANNELS_UNIT - 1) / CHANNELS_UNIT * CHANNELS_UNIT;
    else if (d->transposed)
        p->band = (p->band + d->stride[0] - 1) / d->stride[0] * d->stride[0];
    p->band = p->band < length ? p->band : length;
    p->n_bands = (length + p->band - 1) / p->band;
    p->n_parts = p->by_channels ? p->n_bands : p->n_bands * d->n_batch;
    for (int64_t i = 0; i < p->n_bands; i++) {
        kind k = place_of(p, i).kind;
        if (!add_kind(p, &k))
            return false;
    }
    return true;
}

/* ---- primitives and weights --------------------------------------------- */

static sb_dnn_conv_desc desc_of(const sb_dnn_parts *p, const kind *k)
{
    sb_dnn_conv_desc d = p->desc;

    if (!p->by_channels)
        d.n_batch = 1;
    d.in[0] = k->in;
    d.out[0] = k->out;
    d.pad_lo[0] = k->pad;
    d.out_channels = k->channels;
    d.dst_layout = k->channels;
    return d;
}

/* All kinds with as many channels read weights packed in the same way: the
 * first of them chooses. */
static sb_status make_kind(sb_dnn_parts *p, size_t i,
                           dnnl_primitive_attr_t attr, sb_dnn_conv_mds *mds,
                           size_t *pad)
{
    sb_dnn_conv_desc d = desc_of(p, &p->kinds[i]);
    bool same = i > 0 && p->kinds[i].channels == p->kinds[0].channels;
    dnnl_primitive_desc_t pd = NULL;
    size_t bytes = 0;
    dnnl_status_t found =
        sb_dnn_conv_describe(&d, d.src_layout, d.dst_layout, true, &mds[i]);

    if (found == dnnl_success && same)
        mds[i].weights = mds[0].weights;
    if (found == dnnl_success)
        found = sb_dnn_conv_pd(p->engine, &d, &mds[i], attr, true, &pd);
    sb_status status = sb_dnn_check(p->ctx, found, d.what, "convolution");
    for (size_t l = 0; l < p->n_lanes && status == SB_OK; l++) {
        status = sb_dnn_conv_prim(p->ctx, d.what, p->engine, pd, d.has_bias,
                                  &p->lanes[l].prim[i], &bytes);
        *pad = bytes > *pad ? bytes : *pad;
    }
    if (status == SB_OK)
        mds[i].weights =
            *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    if (pd)
        (void)dnnl_primitive_desc_destroy(pd);
    return status;
}

/* Parts by channels have weights of their own, bands share one set. */
static int64_t weight_sets(const sb_dnn_parts *p)
{
    return p->by_channels ? p->n_parts : 1;
}

/* Weights of one output channel. */
static int64_t channel_weights(const sb_dnn_parts *p)
{
    const sb_dnn_conv_desc *d = &p->desc;

    return d->in_channels / d->groups * parts_product(d->kernel, d->n_spatial);
}

static size_t reorder_of(const sb_dnn_parts *p, const kind *k)
{
    return k->channels == p->kinds[0].channels ? 0 : 1;
}

static sb_status plan_packing(sb_dnn_parts *p, const sb_dnn_conv_mds *mds)
{
    const char *what = p->desc.what;
    sb_dnn_packing *how = &p->packing;
    const dnnl_memory_desc_t *to[2] = {0};
    dnnl_memory_desc_t from = mds[0].weights_plain;

    for (size_t i = 0; i < p->n_kinds; i++) {
        size_t r = reorder_of(p, &p->kinds[i]), pad = 0;
        if (to[r])
            continue;
        to[r] = &mds[i].weights;
        SB_TRY(sb_dnn_prim_reorder(p->ctx, what, p->engine,
                                   &mds[i].weights_plain, to[r], &p->reorder[r],
                                   &pad));
        size_t bytes = sb_dnn_md_bytes(to[r]);
        how->scratch = pad > how->scratch ? pad : how->scratch;
        p->packed_step = bytes > p->packed_step ? bytes : p->packed_step;
    }
    if (!sb_mul_size(p->packed_step, (size_t)weight_sets(p), &how->bytes))
        return sb_fail(p->ctx, SB_NO_MEMORY, "%s: weights too large", what);
    (void)strcpy(p->form.kind, "parts");
    p->form.sizes[0] = weight_sets(p);
    return sb_dnn_form_seal(p->ctx, what, &p->form, &from, to[0], to[1], how);
}

static sb_status parts_make(sb_dnn_parts *p, dnnl_primitive_attr_t attr)
{
    const sb_dnn_conv_desc *d = &p->desc;
    sb_dnn_conv_mds mds[KINDS];
    size_t pad = 0;

    p->n_lanes = (size_t)p->ctx->n_threads;
    if (p->n_lanes > (size_t)p->n_parts)
        p->n_lanes = (size_t)p->n_parts;
    p->lanes = sb_alloc(p->ctx, p->n_lanes, sizeof *p->lanes);
    if (!p->lanes)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < p->n_kinds; i++)
        SB_TRY(make_kind(p, i, attr, mds, &pad));
    (void)sb_dnn_reserve(&p->lane_bytes, pad);
    if (p->by_channels)
        p->at_dst = sb_dnn_reserve(
            &p->lane_bytes,
            sizeof(float) * (size_t)(p->band * d->n_batch *
                                     parts_product(d->out, d->n_spatial)));
    return plan_packing(p, mds);
}

/* ---- the object --------------------------------------------------------- */

sb_status sb_dnn_parts_create(sb_ctx *ctx, const sb_dnn_conv_desc *desc,
                              dnnl_engine_t engine, dnnl_primitive_attr_t attr,
                              sb_dnn_parts **out)
{
    if (desc->n_spatial < 1 || desc->src_layout != desc->in_channels ||
        desc->dst_layout != desc->out_channels ||
        parts_elements(desc, true) == 0 || parts_elements(desc, false) == 0)
        return sb_fail(ctx, SB_UNSUPPORTED, "%s: not in parts", desc->what);
    sb_dnn_parts *p = sb_alloc(ctx, 1, sizeof *p);
    if (!p)
        return SB_NO_MEMORY;
    p->ctx = ctx;
    p->desc = *desc;
    p->engine = engine;
    p->n_inside = sb_dnn_posts_inside(desc->posts, desc->n_posts);
    sb_status status = parts_cut(p) ? parts_make(p, attr)
                                    : sb_fail(ctx, SB_UNSUPPORTED,
                                              "%s: not in parts", desc->what);
    if (status != SB_OK) {
        sb_dnn_parts_free(p);
        return status;
    }
    *out = p;
    return SB_OK;
}

void sb_dnn_parts_free(sb_dnn_parts *parts)
{
    if (!parts)
        return;
    for (size_t i = 0; parts->lanes && i < parts->n_lanes; i++)
        for (size_t k = 0; k < KINDS; k++)
            sb_dnn_prim_free(&parts->lanes[i].prim[k]);
    sb_free(parts->ctx, parts->lanes);
    sb_dnn_prim_free(&parts->reorder[0]);
    sb_dnn_prim_free(&parts->reorder[1]);
    sb_free(parts->ctx, parts);
}

size_t sb_dnn_parts_scratch(const sb_dnn_parts *parts)
{
    return parts->n_lanes * parts->lane_bytes;
}

const sb_dnn_packing *sb_dnn_parts_packing(const sb_dnn_parts *parts)
{
    return &parts->packing;
}

dnnl_status_t sb_dnn_parts_pack(sb_dnn_parts *parts, const float *weights,
                                void *packed, void *scratch)
{
    dnnl_status_t status = dnnl_success;

    for (int64_t i = 0; i < weight_sets(parts) && status == dnnl_success; i++) {
        place at = place_of(parts, i);
        void *args[] = {
            sb_dnn_mutable(weights + at.channel * channel_weights(parts)),
            (char *)packed + (size_t)i * parts->packed_step, scratch};
        status =
            sb_dnn_prim_run(&parts->reorder[reorder_of(parts, &at.kind)], args);
    }
    return status;
}

/* ---- running ------------------------------------------------------------ */

typedef struct parts_job {
    sb_dnn_parts *parts;
    const float *src, *packed, *bias;
    float *dst;
    char *scratch;
    const sb_tap *tap;
    atomic_int status;
} parts_job;

/* `n` channels of all pixels, from `step` apart to `to_step` apart. */
static void copy_channels(const sb_dnn_parts *p, const float *from,
                          int64_t step, float *to, int64_t to_step, int64_t n)
{
    int64_t pixels =
        p->desc.n_batch * parts_product(p->desc.out, p->desc.n_spatial);

    for (int64_t i = 0; i < pixels; i++)
        memcpy(to + i * to_step, from + i * step, (size_t)n * sizeof *to);
}

static size_t part_elements(const sb_dnn_parts *p, const kind *k)
{
    const sb_dnn_conv_desc *d = &p->desc;

    return (size_t)(p->by_channels ? k->channels * d->n_batch *
                                         parts_product(d->out, d->n_spatial)
                                   : k->out * p->dst_row);
}

static void run_part(void *arg, size_t lane, size_t i)
{
    parts_job *job = arg;
    sb_dnn_parts *p = job->parts;
    const sb_dnn_conv_desc *d = &p->desc;
    place at = place_of(p, (int64_t)i);
    char *pad = sb_dnn_at(job->scratch, lane * p->lane_bytes);
    float *dst = job->dst + at.dst, *own = dst;
    char *weights = sb_dnn_mutable(job->packed);

    if (p->by_channels) {
        weights += i * p->packed_step;
        own = (float *)(void *)(pad + p->at_dst);
        dst = job->dst + at.channel;
        if (sb_dnn_conv_has_sum(d))
            copy_channels(p, dst, d->out_channels, own, at.kind.channels,
                          at.kind.channels);
    }
    void *args[] = {sb_dnn_mutable(job->src + at.src), weights, own, pad, pad};
    if (d->has_bias)
        args[3] = sb_dnn_mutable(job->bias + at.channel);
    int width = sb_dnn_set_width(1);
    dnnl_status_t status =
        sb_dnn_prim_run(&p->lanes[lane].prim[find_kind(p, &at.kind)], args);
    (void)sb_dnn_set_width(width);
    if (status != dnnl_success)
        atomic_store(&job->status, (int)status);
    sb_dnn_posts_row(d->posts + p->n_inside, d->n_posts - p->n_inside, own,
                     part_elements(p, &at.kind));
    if (p->by_channels)
        copy_channels(p, own, at.kind.channels, dst, d->out_channels,
                      at.kind.channels);
    else if (job->tap)
        job->tap->look(job->tap->arg, lane, dst, part_elements(p, &at.kind));
}

dnnl_status_t sb_dnn_parts_run(sb_dnn_parts *parts, const float *src,
                               const float *packed, const float *bias,
                               float *dst, void *scratch, const sb_tap *tap)
{
    parts_job job = {.parts = parts,
                     .src = src,
                     .packed = packed,
                     .bias = bias,
                     .dst = dst,
                     .scratch = scratch,
                     .tap = tap};

    sb_parallel_lanes(parts->ctx, (size_t)parts->n_parts, parts->n_lanes,
                      run_part, &job);
    return (dnnl_status_t)atomic_load(&job.status);
}
