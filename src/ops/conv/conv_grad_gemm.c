/* Gradients of dense weights as matrix products: dw = dy' x', where a row of x'
 * is what the window at one place of dy covers.
 *
 * Where a window is one pixel, x is that matrix; else it is made for some
 * images at a time.  Long sums over places are cut into parts, which threads
 * share and which are added in order; sizes alone say how many. */
#include "ops/conv/conv_grad.h"

#include <string.h>

#include "base/threads.h"

enum {
    PATCH_BYTES = 4 << 20, /* of x', unless an image has more */
    PARTS_MOST = 32,
    PLACES_LEAST = 1024, /* of a part */
    GRAIN = 1 << 14,
};

struct sb_conv_grad_gemm {
    sb_ctx *ctx;
    sb_conv conv;
    bool whole;     /* x is x' */
    bool turned;    /* the product is dw', so that its rows are long */
    int64_t cols;   /* of x': taps times channels */
    int64_t images; /* at a time */
    int64_t parts;  /* of their places */
    sb_dnn_gemm *gemm;
    int64_t a_at[PARTS_MOST], b_at[PARTS_MOST], c_at[PARTS_MOST];
    size_t at_patches, at_gemm, scratch; /* sums come first */
};

bool sb_conv_grad_gemm_suits(const sb_conv *conv)
{
    const sb_window *w = &conv->w;
    bool suits = conv->groups == 1;

    for (int i = 0; i < w->n; i++)
        suits = suits && w->kernel[i] == 1 && w->stride[i] == 1 &&
                w->in[i] == w->out[i];
    return suits;
}

/* ---- making ------------------------------------------------------------- */

/* The greatest divisor of n that is at most `most`. */
static int64_t divisor_below(int64_t n, int64_t most)
{
    int64_t d = most < n ? most : n;

    while (d > 1 && n % d != 0)
        d--;
    return d < 1 ? 1 : d;
}

static void grad_gemm_cut(sb_conv_grad_gemm *g)
{
    const sb_conv *c = &g->conv;
    int64_t image = c->w.out_count * g->cols * (int64_t)sizeof(float);

    if (g->whole) {
        int64_t places = c->n_batch * c->w.out_count;
        int64_t most = places / PLACES_LEAST;
        g->images = c->n_batch;
        g->parts =
            divisor_below(c->n_batch, most < PARTS_MOST ? most : PARTS_MOST);
    } else {
        g->images = divisor_below(c->n_batch, PATCH_BYTES / (image + 1));
        g->parts = 1;
    }
}

static size_t grad_gemm_round(size_t n)
{
    return (n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

static void grad_gemm_plan(sb_conv_grad_gemm *g)
{
    int64_t places = g->images * g->conv.w.out_count;
    int64_t sums = g->conv.out_channels * g->cols;

    int64_t m = g->conv.out_channels, n = g->cols;

    for (int64_t p = 0; p < g->parts; p++) {
        g->a_at[p] = places / g->parts * p * (g->turned ? n : m);
        g->b_at[p] = places / g->parts * p * (g->turned ? m : n);
        g->c_at[p] = sums * p;
    }
    g->at_patches = grad_gemm_round((size_t)(g->parts * sums) * sizeof(float));
    g->at_gemm =
        g->at_patches + (g->whole ? 0
                                  : grad_gemm_round((size_t)(places * g->cols) *
                                                    sizeof(float)));
    g->scratch = g->at_gemm + sb_dnn_gemm_scratch(g->gemm);
}

sb_status sb_conv_grad_gemm_create(const sb_kernel *k, const sb_conv *conv,
                                   sb_conv_grad_gemm **out)
{
    if (conv->groups != 1 || conv->n_batch < 1 || conv->w.out_count < 1 ||
        conv->w.n != 2)
        return SB_UNSUPPORTED;
    sb_conv_grad_gemm *g = sb_alloc(k->ctx, 1, sizeof *g);
    if (!g)
        return SB_NO_MEMORY;
    g->ctx = k->ctx;
    g->conv = *conv;
    g->whole = sb_conv_grad_gemm_suits(conv);
    g->cols = conv->w.taps * conv->in_channels;
    grad_gemm_cut(g);
    int64_t m = conv->out_channels, n = g->cols;
    g->turned = m > n;
    sb_dnn_gemm_desc d = {.what = sb_node_label(k->graph, k->node),
                          .m = g->turned ? n : m,
                          .n = g->turned ? m : n,
                          .k = g->images * conv->w.out_count / g->parts,
                          .a_row = 1,
                          .a_col = g->turned ? n : m,
                          .b_row = g->turned ? m : n,
                          .b_col = 1,
                          .c_row = g->turned ? m : n,
                          .alone = g->parts == 1,
                          .n_posts = g->whole ? 0 : 1,
                          .posts = {{.kind = SB_DNN_SUM, .alpha = 1}}};
    sb_status status = sb_dnn_gemm_create(k->ctx, &d, &g->gemm);
    if (status != SB_OK) {
        sb_conv_grad_gemm_free(g);
        return status;
    }
    grad_gemm_plan(g);
    *out = g;
    return SB_OK;
}

size_t sb_conv_grad_gemm_scratch(const sb_conv_grad_gemm *gemm)
{
    return gemm->scratch;
}

void sb_conv_grad_gemm_free(sb_conv_grad_gemm *gemm)
{
    if (!gemm)
        return;
    sb_dnn_gemm_free(gemm->gemm);
    sb_free(gemm->ctx, gemm);
}

/* ---- running ------------------------------------------------------------ */

typedef struct grad_gemm_job {
    const sb_conv_grad_gemm *g;
    const float *x; /* of the first image */
    float *to;      /* patches, or weights */
    const float *sums;
} grad_gemm_job;

/* One row of x'. */
static void grad_gemm_patch(const sb_conv_grad_gemm *g, const float *image,
                            int64_t place, float *to)
{
    const sb_window *w = &g->conv.w;
    int64_t channels = g->conv.in_channels;
    int64_t top = place / w->out[1] * w->stride[0] - w->pad_lo[0];
    int64_t left = place % w->out[1] * w->stride[1] - w->pad_lo[1];
    size_t bytes = (size_t)channels * sizeof *to;

    for (int64_t i = 0; i < w->kernel[0]; i++)
        for (int64_t j = 0; j < w->kernel[1]; j++, to += channels) {
            int64_t row = top + i * w->dilation[0];
            int64_t col = left + j * w->dilation[1];
            if (row < 0 || row >= w->in[0] || col < 0 || col >= w->in[1])
                memset(to, 0, bytes);
            else
                memcpy(to, image + (row * w->in[1] + col) * channels, bytes);
        }
}

static void grad_gemm_patches(void *arg, size_t begin, size_t end)
{
    const grad_gemm_job *job = arg;
    const sb_conv_grad_gemm *g = job->g;
    int64_t places = g->conv.w.out_count;
    int64_t image = g->conv.w.in_count * g->conv.in_channels;

    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++)
        grad_gemm_patch(g, job->x + i / places * image, i % places,
                        job->to + i * g->cols);
}

/* Adds the parts, and turns [M, taps, C] or [taps, C, M] into [M, C, taps]. */
static void grad_gemm_finish(void *arg, size_t begin, size_t end)
{
    const grad_gemm_job *job = arg;
    const sb_conv_grad_gemm *g = job->g;
    int64_t channels = g->conv.in_channels, taps = g->conv.w.taps;
    int64_t all = g->conv.out_channels * g->cols;
    int64_t row = g->turned ? 1 : g->cols;
    int64_t step = g->turned ? g->conv.out_channels : 1;

    for (int64_t m = (int64_t)begin; m < (int64_t)end; m++)
        for (int64_t i = 0; i < g->cols; i++) {
            const float *from = job->sums + m * row + i * step;
            float sum = from[0];

            for (int64_t p = 1; p < g->parts; p++)
                sum += from[p * all];
            job->to[m * g->cols + i % channels * taps + i / channels] = sum;
        }
}

sb_status sb_conv_grad_gemm_run(const sb_conv_grad_gemm *g, const float *x,
                                const float *dy, float *dw, void *scratch)
{
    const sb_conv *c = &g->conv;
    float *sums = scratch;
    float *patches = (float *)(void *)((char *)scratch + g->at_patches);
    size_t places = (size_t)(g->images * c->w.out_count);
    size_t grain = (size_t)(GRAIN / (g->cols + 1) + 1);

    if (!g->whole)
        memset(sums, 0, g->at_patches);
    for (int64_t i = 0; i < c->n_batch; i += g->images) {
        const float *from = x + i * c->w.in_count * c->in_channels;
        grad_gemm_job job = {.g = g, .x = from, .to = patches};
        if (!g->whole)
            sb_parallel_for(g->ctx, places, grain, grad_gemm_patches, &job);
        const float *rows = g->whole ? from : patches;
        const float *ddst = dy + i * c->w.out_count * c->out_channels;
        SB_TRY(sb_dnn_gemm_run(
            g->gemm,
            &(sb_dnn_gemm_args){.a = g->turned ? rows : ddst,
                                .b = g->turned ? ddst : rows,
                                .c = sums,
                                .n_batch = g->parts,
                                .a_at = g->a_at,
                                .b_at = g->b_at,
                                .c_at = g->c_at,
                                .scratch = (char *)scratch + g->at_gemm}));
    }
    grad_gemm_job job = {.g = g, .to = dw, .sums = sums};
    sb_parallel_for(g->ctx, (size_t)c->out_channels, grain, grad_gemm_finish,
                    &job);
    return SB_OK;
}
