/* Gradients of 3x3 weights with a quarter of the multiplications: the transpose
 * of Winograd's F(4x4, 3x3) (winograd.c),
 *
 *     dw = G' [ sum over tiles of (A dy A') * (B' x B) ] G
 *
 * The sums in the middle are, over all channels, 36 independent matrix products
 * in which the tiles are summed over.  Tiles are taken in blocks, all of which
 * add to the same sums, in order. */
#include <string.h>

#include "base/threads.h"
#include "ops/conv/conv_grad.h"
#include "ops/conv/winograd.h"

enum {
    OUT = SB_WINOGRAD_OUT,
    IN = SB_WINOGRAD_IN,
    SPOTS = SB_WINOGRAD_SPOTS,
    WIDTH = SB_WINOGRAD_WIDTH,
    BLOCK_BYTES = 4 << 20, /* of transformed tiles */
    BLOCK_LEAST = 128,     /* tiles: each block adds to all sums */
    GRAIN = 4,             /* tiles worth a thread */
    /* Sums are four times as large as weights; fewer tiles than this do not
     * pay for writing and reading them. */
    TILES_LEAST = 48,
};

struct sb_conv_grad_winograd {
    sb_ctx *ctx;
    sb_conv conv;
    sb_winograd_tiles tiles;
    int64_t block;        /* tiles in a block */
    sb_dnn_gemm *gemm[2]; /* of the first block, of those that add to it */
    int64_t a_at[SPOTS], b_at[SPOTS], c_at[SPOTS];
    size_t at_x, at_dy, at_gemm, scratch; /* sums come first */
};

/* ---- making ------------------------------------------------------------- */

static int64_t grad_block(const sb_conv *c, int64_t tiles)
{
    int64_t one =
        SPOTS * (c->in_channels + c->out_channels) * (int64_t)sizeof(float);
    int64_t most = BLOCK_BYTES / one;

    most = most < BLOCK_LEAST ? BLOCK_LEAST : most;
    int64_t blocks = (tiles + most - 1) / most;
    return (tiles + blocks - 1) / blocks;
}

static size_t grad_round(size_t n)
{
    return (n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

static sb_status grad_products(const sb_kernel *k, sb_conv_grad_winograd *g)
{
    const sb_conv *c = &g->conv;
    sb_dnn_gemm_desc d = {.what = sb_node_label(k->graph, k->node),
                          .m = c->out_channels,
                          .n = c->in_channels,
                          .k = g->block,
                          .a_row = 1,
                          .a_col = c->out_channels,
                          .b_row = c->in_channels,
                          .b_col = 1,
                          .c_row = c->in_channels,
                          .posts = {{.kind = SB_DNN_SUM, .alpha = 1}}};

    SB_TRY(sb_dnn_gemm_create(g->ctx, &d, &g->gemm[0]));
    d.n_posts = 1;
    return g->block < g->tiles.count
               ? sb_dnn_gemm_create(g->ctx, &d, &g->gemm[1])
               : SB_OK;
}

static void grad_plan(sb_conv_grad_winograd *g)
{
    const sb_conv *c = &g->conv;
    size_t products = 0;

    for (int64_t s = 0; s < SPOTS; s++) {
        g->a_at[s] = s * g->block * c->out_channels;
        g->b_at[s] = s * g->block * c->in_channels;
        g->c_at[s] = s * c->out_channels * c->in_channels;
    }
    for (int i = 0; i < 2; i++) {
        size_t n = g->gemm[i] ? sb_dnn_gemm_scratch(g->gemm[i]) : 0;
        products = n > products ? n : products;
    }
    g->at_x = grad_round(sizeof(float) *
                         (size_t)(SPOTS * c->out_channels * c->in_channels));
    g->at_dy =
        g->at_x +
        grad_round(sizeof(float) * (size_t)(SPOTS * g->block * c->in_channels));
    g->at_gemm =
        g->at_dy + grad_round(sizeof(float) *
                              (size_t)(SPOTS * g->block * c->out_channels));
    g->scratch = g->at_gemm + products;
}

sb_status sb_conv_grad_winograd_create(const sb_kernel *k, const sb_conv *conv,
                                       sb_conv_grad_winograd **out)
{
    if (k->exact || !sb_winograd_pays(conv) ||
        sb_winograd_cut(conv).count < TILES_LEAST)
        return SB_UNSUPPORTED;
    sb_conv_grad_winograd *g = sb_alloc(k->ctx, 1, sizeof *g);
    if (!g)
        return SB_NO_MEMORY;
    g->ctx = k->ctx;
    g->conv = *conv;
    g->tiles = sb_winograd_cut(conv);
    g->block = grad_block(conv, g->tiles.count);
    sb_status status = grad_products(k, g);
    if (status != SB_OK) {
        sb_conv_grad_winograd_free(g);
        return status;
    }
    grad_plan(g);
    *out = g;
    return SB_OK;
}

size_t sb_conv_grad_winograd_scratch(const sb_conv_grad_winograd *grad)
{
    return grad->scratch;
}

void sb_conv_grad_winograd_free(sb_conv_grad_winograd *grad)
{
    if (!grad)
        return;
    sb_dnn_gemm_free(grad->gemm[0]);
    sb_dnn_gemm_free(grad->gemm[1]);
    sb_free(grad->ctx, grad);
}

/* ---- transforms --------------------------------------------------------- */

/* Six vectors of WIDTH channels from four. */
static inline void gradient_row(const float *x, int64_t step, float *y,
                                int64_t y_step)
{
    SB_SIMD
    for (int c = 0; c < WIDTH; c++) {
        float x0 = x[c], x1 = x[step + c];
        float x2 = x[2 * step + c], x3 = x[3 * step + c];
        float even = x0 + x2, odd = x1 + x3;
        float far = x0 + 4 * x2, side = 2 * x1 + 8 * x3;
        y[c] = x0;
        y[y_step + c] = even + odd;
        y[2 * y_step + c] = even - odd;
        y[3 * y_step + c] = far + side;
        y[4 * y_step + c] = far - side;
        y[5 * y_step + c] = x3;
    }
}

/* A dy A' of one tile into d[spot][tile][channel]. */
SB_HOT static void transform_gradient(const sb_conv_grad_winograd *g,
                                      const float *dy, int64_t index, float *d)
{
    const sb_winograd_tiles *t = &g->tiles;
    int64_t channels = g->conv.out_channels, n = g->block;
    sb_winograd_tile at = sb_winograd_at(t, index);
    const float *image = dy + at.image * t->out[0] * t->out[1] * channels;
    _Alignas(64) float patch[OUT * OUT][WIDTH], half[IN * OUT][WIDTH];

    for (int64_t c = 0; c < channels; c += WIDTH) {
        for (int64_t i = 0; i < OUT * OUT; i++) {
            int64_t row = at.row + i / OUT, col = at.col + i % OUT;
            if (row >= t->out[0] || col >= t->out[1])
                memset(patch[i], 0, sizeof patch[i]);
            else
                memcpy(patch[i], image + (row * t->out[1] + col) * channels + c,
                       sizeof patch[i]);
        }
        for (int i = 0; i < OUT; i++) /* columns */
            gradient_row(patch[i], OUT * WIDTH, half[i], OUT * WIDTH);
        for (int i = 0; i < IN; i++) /* rows */
            gradient_row(half[i * OUT], WIDTH, d + i * IN * n * channels + c,
                         n * channels);
    }
}

/* G' m G of WIDTH kernels side by side; `step` is between spots. */
SB_HOT static void transform_sums(const float *m, int64_t step, float *dw)
{
    const double(*g)[3] = sb_winograd_g;
    double half[3][IN][WIDTH];
    float w[9][WIDTH];

    memset(half, 0, sizeof half);
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < IN; j++)
            for (int a = 0; a < 3; a++) {
                SB_SIMD
                for (int c = 0; c < WIDTH; c++)
                    half[a][j][c] +=
                        g[i][a] * (double)m[(i * IN + j) * step + c];
            }
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            double sum[WIDTH] = {0};
            for (int j = 0; j < IN; j++) {
                SB_SIMD
                for (int c = 0; c < WIDTH; c++)
                    sum[c] += half[a][j][c] * g[j][b];
            }
            for (int c = 0; c < WIDTH; c++)
                w[a * 3 + b][c] = (float)sum[c];
        }
    for (int c = 0; c < WIDTH; c++)
        for (int t = 0; t < 9; t++)
            dw[c * 9 + t] = w[t][c];
}

/* ---- running ------------------------------------------------------------ */

typedef struct grad_job {
    const sb_conv_grad_winograd *g;
    const float *x, *dy;
    float *v, *d; /* transformed tiles */
    int64_t first;
    float *sums, *dw;
} grad_job;

static void grad_tiles(void *arg, size_t begin, size_t end)
{
    const grad_job *job = arg;
    const sb_conv_grad_winograd *g = job->g;
    int64_t n_in = g->conv.in_channels, n_out = g->conv.out_channels;

    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++) {
        if (job->first + t < g->tiles.count) {
            sb_winograd_input(&g->tiles, job->x, n_in, job->first + t, g->block,
                              job->v + t * n_in);
            transform_gradient(g, job->dy, job->first + t, job->d + t * n_out);
            continue;
        }
        for (int64_t s = 0; s < SPOTS; s++) { /* of no tile */
            memset(job->v + (s * g->block + t) * n_in, 0,
                   (size_t)n_in * sizeof(float));
            memset(job->d + (s * g->block + t) * n_out, 0,
                   (size_t)n_out * sizeof(float));
        }
    }
}

static void grad_kernels(void *arg, size_t begin, size_t end)
{
    const grad_job *job = arg;
    int64_t n_in = job->g->conv.in_channels, n_out = job->g->conv.out_channels;

    for (int64_t m = (int64_t)begin; m < (int64_t)end; m++)
        for (int64_t c = 0; c < n_in; c += WIDTH)
            transform_sums(job->sums + m * n_in + c, n_in * n_out,
                           job->dw + (m * n_in + c) * 9);
}

sb_status sb_conv_grad_winograd_run(const sb_conv_grad_winograd *g,
                                    const float *x, const float *dy, float *dw,
                                    void *scratch)
{
    char *base = scratch;
    grad_job job = {.g = g,
                    .x = x,
                    .dy = dy,
                    .v = (float *)(void *)(base + g->at_x),
                    .d = (float *)(void *)(base + g->at_dy),
                    .sums = scratch,
                    .dw = dw};

    for (job.first = 0; job.first < g->tiles.count; job.first += g->block) {
        sb_parallel_for(g->ctx, (size_t)g->block, GRAIN, grad_tiles, &job);
        SB_TRY(
            sb_dnn_gemm_run(g->gemm[job.first > 0],
                            &(sb_dnn_gemm_args){.a = job.d,
                                                .b = job.v,
                                                .c = job.sums,
                                                .n_batch = SPOTS,
                                                .a_at = g->a_at,
                                                .b_at = g->b_at,
                                                .c_at = g->c_at,
                                                .scratch = base + g->at_gemm}));
    }
    sb_parallel_for(g->ctx, (size_t)g->conv.out_channels, 1, grad_kernels,
                    &job);
    return SB_OK;
}
