/* Convolution where oneDNN has no direct kernel (processors other than x86):
 * what each output meets is laid out as a row of a matrix, and the matrix
 * multiplied with the weights:
 *
 *     y[place, m] = sum over (tap, c) of patch[place, (tap, c)] w[(tap, c), m]
 *
 * A "line" is all outputs along the last dimension; patches are made for as
 * many lines at once as stay in the cache.  1x1 convolutions read x as it is.
 * Depthwise ones have nothing to multiply with a matrix: they go along the
 * channels, which the compiler makes vectors of. */
#include "ops/conv/conv_im2col.h"

#include <assert.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

enum {
    BLOCK = 1 << 19,      /* elements of patches that are made at once */
    LINE_MOST = 1 << 26,  /* of a single line */
    LINE_GRAIN = 1 << 14, /* elements worth a thread */
};

struct sb_im2col {
    sb_ctx *ctx;
    sb_conv conv;
    int64_t in, out;     /* channels of a group */
    int64_t width;       /* places of a line */
    int64_t lines;       /* of all images */
    int64_t at_once;     /* lines of a block; divides `lines` */
    int64_t line_values; /* elements of the patches of a line, all groups */
    bool direct;         /* x itself is the patches */
    bool depthwise;
    int64_t *at; /* starts of each group in patches, weights, y */
    sb_dnn_gemm *gemm;
    size_t at_patches; /* in the scratch memory */
    size_t weights;    /* bytes of [group][tap][c][m], or [tap][channel] */
    char *form;        /* of packed weights: ours, then the product's */
    sb_dnn_packing packing;
};

typedef struct patches_job {
    const sb_im2col *p;
    const float *x, *w, *bias;
    float *y, *patches;
    int64_t first; /* line of the block */
} patches_job;

/* ---- places ------------------------------------------------------------- */

/* Where the first place of a line is: its image, and its position in every
 * dimension but the last. */
static int64_t line_start(const sb_im2col *p, int64_t line, int64_t *at)
{
    const sb_window *w = &p->conv.w;

    for (int i = w->n - 2; i >= 0; i--) {
        at[i] = line % w->out[i];
        line /= w->out[i];
    }
    at[w->n - 1] = 0;
    return line;
}

/* ---- patches ------------------------------------------------------------ */

/* A row of taps: those of [lo, hi) are copied, the others 0.  `x` is what tap
 * lo meets, `step` the elements between neighbors. */
static void gather_row(const sb_im2col *p, const float *x, int64_t step,
                       int64_t lo, int64_t hi, float *to)
{
    int64_t n = p->in, row = p->conv.w.kernel[p->conv.w.n - 1];

    memset(to, 0, (size_t)(lo * n) * sizeof *to);
    if (step == n)
        memcpy(to + lo * n, x, (size_t)((hi - lo) * n) * sizeof *to);
    else
        for (int64_t t = lo; t < hi; t++, x += step)
            memcpy(to + t * n, x, (size_t)n * sizeof *to);
    memset(to + hi * n, 0, (size_t)((row - hi) * n) * sizeof *to);
}

/* `to` is where the place's patch of the first group begins. */
static void gather_place(const sb_im2col *p, const float *image,
                         const int64_t *at, float *to)
{
    const sb_window *w = &p->conv.w;
    int last = w->n - 1;
    int64_t group_step = p->at_once * p->width * w->taps * p->in;
    int64_t step = w->dilation[last] * p->conv.in_channels;
    int64_t row = w->kernel[last], lo, hi;

    (void)sb_window_clip(w, last, at[last], &lo, &hi);
    for (int64_t tap = 0; tap < w->taps; tap += row, to += row * p->in) {
        int64_t from = lo < hi ? sb_window_pixel(w, at, tap + lo) : -1;
        const float *x = image + (from < 0 ? 0 : from * p->conv.in_channels);
        for (int64_t g = 0; g < p->conv.groups; g++)
            gather_row(p, x + g * p->in, step, from < 0 ? 0 : lo,
                       from < 0 ? 0 : hi, to + g * group_step);
    }
}

static void gather_places(void *arg, size_t begin, size_t end)
{
    const patches_job *job = arg;
    const sb_im2col *p = job->p;
    const sb_window *w = &p->conv.w;
    int64_t patch = w->taps * p->in, at[SB_MAX_SPATIAL];
    int64_t i = (int64_t)begin;

    while (i < (int64_t)end) {
        int64_t image = line_start(p, job->first + i / p->width, at);
        const float *x = job->x + image * w->in_count * p->conv.in_channels;
        int64_t *place = &at[w->n - 1];
        for (*place = i % p->width; *place < p->width && i < (int64_t)end;
             ++*place, i++)
            gather_place(p, x, at, job->patches + i * patch);
    }
}

/* To the places of the block. */
static void add_bias(void *arg, size_t begin, size_t end)
{
    const patches_job *job = arg;
    int64_t n = job->p->conv.out_channels;
    float *y = job->y + (job->first * job->p->width + (int64_t)begin) * n;

    for (size_t i = begin; i < end; i++, y += n)
        for (int64_t m = 0; m < n; m++)
            y[m] += job->bias[m];
}

static sb_status run_blocks(sb_im2col *p, patches_job *job, void *scratch)
{
    const sb_conv *c = &p->conv;
    int64_t places = p->at_once * p->width;
    size_t grain = (size_t)(LINE_GRAIN / (c->w.taps * c->in_channels) + 1);

    for (; job->first < p->lines; job->first += p->at_once) {
        sb_dnn_gemm_args args = {.b = job->w,
                                 .c = job->y +
                                      job->first * p->width * c->out_channels,
                                 .n_batch = c->groups,
                                 .a_at = p->at,
                                 .b_at = p->at + c->groups,
                                 .c_at = p->at + 2 * c->groups,
                                 .scratch = scratch};
        if (p->direct) {
            args.a = job->x + job->first * p->width * c->in_channels;
        } else {
            sb_parallel_for(p->ctx, (size_t)places, grain, gather_places, job);
            args.a = job->patches;
        }
        SB_TRY(sb_dnn_gemm_run(p->gemm, &args));
        if (job->bias)
            sb_parallel_for(p->ctx, (size_t)places,
                            (size_t)(LINE_GRAIN / c->out_channels + 1),
                            add_bias, job);
    }
    return SB_OK;
}

/* ---- depthwise ---------------------------------------------------------- */

SB_HOT static void add_products(float *y, const float *x, const float *w,
                                int64_t n)
{
    SB_SIMD
    for (int64_t c = 0; c < n; c++)
        y[c] += x[c] * w[c];
}

static void depthwise_lines(void *arg, size_t begin, size_t end)
{
    const patches_job *job = arg;
    const sb_im2col *p = job->p;
    const sb_window *w = &p->conv.w;
    int64_t n = p->conv.out_channels, at[SB_MAX_SPATIAL];

    for (size_t i = begin; i < end; i++) {
        int64_t image = line_start(p, (int64_t)i, at);
        const float *x = job->x + image * w->in_count * n;
        float *y = job->y + (int64_t)i * p->width * n;
        for (; at[w->n - 1] < p->width; at[w->n - 1]++, y += n) {
            if (job->bias)
                memcpy(y, job->bias, (size_t)n * sizeof *y);
            else
                memset(y, 0, (size_t)n * sizeof *y);
            for (int64_t tap = 0; tap < w->taps; tap++) {
                int64_t from = sb_window_pixel(w, at, tap);
                if (from >= 0)
                    add_products(y, x + from * n, job->w + tap * n, n);
            }
        }
    }
}

/* ---- the object --------------------------------------------------------- */

/* [m][c][tap] becomes [group][tap][c][m]: for a depthwise convolution, in which
 * a group is a channel, [tap][group]. */
static void order_weights(const sb_im2col *p, const float *w, float *to)
{
    int64_t taps = p->conv.w.taps, in = p->in, out = p->out;

    for (int64_t i = 0; i < p->conv.out_channels; i++)
        for (int64_t c = 0; c < in; c++)
            for (int64_t tap = 0; tap < taps; tap++, w++) {
                if (p->depthwise)
                    to[tap * p->conv.out_channels + i] = *w;
                else
                    to[((i / out * taps + tap) * in + c) * out + i % out] = *w;
            }
}

/* Does the product pack the ordered weights once more? */
static const sb_dnn_packing *product_packing(const sb_im2col *p)
{
    const sb_dnn_packing *how = p->gemm ? sb_dnn_gemm_packing(p->gemm) : NULL;

    return how && how->bytes ? how : NULL;
}

sb_status sb_im2col_pack(sb_im2col *p, const float *weights, void *packed,
                         void *scratch)
{
    float *ordered = product_packing(p) ? scratch : packed;

    order_weights(p, weights, ordered);
    if (!product_packing(p))
        return SB_OK;
    return sb_dnn_gemm_pack(p->gemm, ordered, packed,
                            (char *)scratch + p->weights);
}

static bool reads_x_as_it_is(const sb_conv *c)
{
    bool direct = c->groups == 1;

    for (int i = 0; i < c->w.n; i++)
        direct = direct && c->w.kernel[i] == 1 && c->w.stride[i] == 1 &&
                 c->w.pad_lo[i] == 0 && c->w.out[i] == c->w.in[i];
    return direct;
}

/* As many lines as fit the block, in blocks of one size. */
static bool choose_lines(sb_im2col *p)
{
    size_t values = 0;

    if (!sb_mul_size((size_t)p->width, (size_t)p->conv.w.taps, &values) ||
        !sb_mul_size(values, (size_t)p->conv.in_channels, &values) ||
        values > LINE_MOST)
        return false;
    p->line_values = (int64_t)values;
    p->at_once = p->direct ? p->lines : BLOCK / p->line_values;
    p->at_once = p->at_once < 1          ? 1
                 : p->at_once > p->lines ? p->lines
                                         : p->at_once;
    while (p->lines % p->at_once)
        p->at_once--;
    return true;
}

static sb_status make_product(sb_im2col *p, const char *what)
{
    const sb_conv *c = &p->conv;
    int64_t places = p->at_once * p->width, k = c->w.taps * p->in;
    sb_dnn_gemm_desc desc = {.what = what,
                             .m = places,
                             .n = p->out,
                             .k = k,
                             .a_row = k,
                             .a_col = 1,
                             .b_row = p->out,
                             .b_col = 1,
                             .c_row = c->out_channels,
                             .pack = c->groups == 1};

    p->at = sb_alloc(p->ctx, (size_t)c->groups, 3 * sizeof *p->at);
    if (!p->at)
        return SB_NO_MEMORY;
    for (int64_t g = 0; g < c->groups; g++) {
        p->at[g] = g * places * k;
        p->at[c->groups + g] = g * k * p->out;
        p->at[2 * c->groups + g] = g * p->out;
    }
    return sb_dnn_gemm_create(p->ctx, &desc, &p->gemm);
}

static sb_status plan_packing(sb_im2col *p)
{
    const sb_dnn_packing *product = product_packing(p);
    struct {
        char kind[8];
        int64_t in, out, taps, groups;
    } mine = {"im2col", p->in, p->out, p->conv.w.taps, p->conv.groups};
    size_t extra = product ? product->form_size : 0;
    size_t n = (size_t)(p->conv.out_channels * p->in * p->conv.w.taps);

    p->weights = (n * sizeof(float) + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    p->packing = (sb_dnn_packing){.bytes = p->weights};
    if (product) {
        p->packing.bytes = product->bytes;
        p->packing.scratch = p->weights + product->scratch;
    }
    p->form = sb_alloc(p->ctx, sizeof mine + extra, 1);
    if (!p->form)
        return SB_NO_MEMORY;
    memcpy(p->form, &mine, sizeof mine);
    if (product)
        memcpy(p->form + sizeof mine, product->form, extra);
    p->packing.form = p->form;
    p->packing.form_size = sizeof mine + extra;
    return SB_OK;
}

static sb_status im2col_make(sb_im2col *p, const char *what)
{
    if (!p->depthwise) {
        SB_TRY(make_product(p, what));
        size_t bytes = sb_dnn_gemm_scratch(p->gemm);
        p->at_patches = (bytes + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
    }
    return plan_packing(p);
}

sb_status sb_im2col_create(sb_ctx *ctx, const char *what, const sb_conv *conv,
                           sb_im2col **out)
{
    sb_im2col *p = NULL;

    if (conv->transposed || conv->w.n < 1)
        return SB_UNSUPPORTED;
    p = sb_alloc(ctx, 1, sizeof *p);
    if (!p)
        return SB_NO_MEMORY;
    p->ctx = ctx;
    p->conv = *conv;
    p->in = conv->in_channels / conv->groups;
    p->out = conv->out_channels / conv->groups;
    p->width = conv->w.out[conv->w.n - 1];
    p->lines = conv->n_batch * conv->w.out_count / p->width;
    p->direct = reads_x_as_it_is(conv);
    p->depthwise = p->in == 1 && p->out == 1;
    sb_status status = choose_lines(p) ? im2col_make(p, what) : SB_UNSUPPORTED;
    if (status != SB_OK) {
        sb_im2col_free(p);
        return status;
    }
    *out = p;
    return SB_OK;
}

const sb_dnn_packing *sb_im2col_packing(const sb_im2col *p)
{
    return &p->packing;
}

size_t sb_im2col_scratch(const sb_im2col *p)
{
    bool patches = !p->direct && !p->depthwise;

    return p->at_patches +
           (patches ? (size_t)(p->at_once * p->line_values) * sizeof(float)
                    : 0);
}

sb_status sb_im2col_run(sb_im2col *p, const float *x, const float *packed,
                        const float *bias, float *y, void *scratch)
{
    patches_job job = {.p = p, .x = x, .w = packed, .bias = bias, .y = y};

    if (p->depthwise) {
        sb_parallel_for(p->ctx, (size_t)p->lines,
                        (size_t)(LINE_GRAIN / p->line_values + 1),
                        depthwise_lines, &job);
        return SB_OK;
    }
    job.patches = (float *)(void *)((char *)scratch + p->at_patches);
    return run_blocks(p, &job, scratch);
}

void sb_im2col_free(sb_im2col *p)
{
    if (!p)
        return;
    sb_dnn_gemm_free(p->gemm);
    sb_free(p->ctx, p->form);
    sb_free(p->ctx, p->at);
    sb_free(p->ctx, p);
}

/* ---- the implementation ------------------------------------------------- */

static sb_status im2col_create(const sb_kernel *k, sb_conv_state *s)
{
    sb_im2col *p = NULL;

    SB_TRY(sb_im2col_create(k->ctx, sb_node_label(k->graph, k->node), &s->conv,
                            &p));
    s->object = p;
    return SB_OK;
}

static const sb_dnn_packing *im2col_packing(const void *object)
{
    return sb_im2col_packing(object);
}

static sb_status im2col_pack(void *object, const float *weights, void *packed,
                             void *scratch)
{
    return sb_im2col_pack(object, weights, packed, scratch);
}

static size_t im2col_scratch(const void *object)
{
    return sb_im2col_scratch(object);
}

static sb_status im2col_run(const sb_conv_state *s, const sb_conv_args *a)
{
    assert(!a->z || a->z != a->y);
    SB_TRY(sb_im2col_run(s->object, a->x, a->w, a->b, a->y, a->scratch));
    sb_epilogue_apply(a->ctx, &s->posts, a->y, a->z, a->n_out);
    return SB_OK;
}

static void im2col_free(void *object)
{
    sb_im2col_free(object);
}

const sb_conv_impl sb_conv_im2col = {
    .name = "im2col",
    .order = SB_CONV_CHANNELS_LAST,
    .overwrites = true,
    .create = im2col_create,
    .packing = im2col_packing,
    .pack = im2col_pack,
    .scratch = im2col_scratch,
    .run = im2col_run,
    .free = im2col_free,
};
