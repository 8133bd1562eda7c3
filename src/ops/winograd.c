/* Winograd's minimal filtering F(4x4, 3x3) (Lavin & Gray, arXiv 1509.09308).
 *
 *     Y = A' [ (G w G') * (B' x B) ] A
 *
 * for each 6x6 tile x of the input and 4x4 tile Y of the output; the products
 * in the middle are, over all channels, 36 independent matrix products.  Tiles
 * are taken in blocks small enough for the second-level cache: transform the
 * block, multiply, transform back with bias and activation, next block.  Blocks
 * do not depend on the number of threads, so neither does the result. */
#include "ops/winograd.h"

#include <stdatomic.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

enum {
    OUT = 4,               /* tile of the output */
    IN = 6,                /* tile of the input */
    SPOTS = IN * IN,       /* matrix products */
    WIDTH = 16,            /* channels transformed at once */
    BLOCK_BYTES = 1 << 20, /* of transformed input, and of products */
    /* Transformed weights are four times as large; fewer tiles than this do
     * not pay for reading them. */
    TILES_LEAST = 48,
    BLOCKS_LEAST = 4, /* so that threads have something to share */
};

struct sb_winograd {
    sb_ctx *ctx;
    sb_conv conv;
    sb_posts posts;
    int64_t rows, cols; /* of tiles in one image */
    int64_t tiles;      /* in all images */
    int64_t block;      /* tiles in a block */
    sb_dnn_stack *stack;
    size_t lane_bytes, at_products, at_stack;
};

/* ---- choice
 * ------------------------------------------------------------------ */

static int64_t tile_count(const sb_conv *c)
{
    return c->n_batch * ((c->w.out[0] + OUT - 1) / OUT) *
           ((c->w.out[1] + OUT - 1) / OUT);
}

/* Blocks of about equal size that fit the cache, an even number of them. */
static int64_t block_size(const sb_conv *c)
{
    int64_t wide =
        c->in_channels > c->out_channels ? c->in_channels : c->out_channels;
    int64_t most = BLOCK_BYTES / (SPOTS * (int64_t)sizeof(float) * wide) + 1;
    int64_t tiles = tile_count(c), blocks = (tiles + most - 1) / most;

    blocks = blocks < BLOCKS_LEAST ? BLOCKS_LEAST : blocks + blocks % 2;
    return (tiles + blocks - 1) / blocks;
}

bool sb_winograd_suits(const sb_kernel *k, const sb_conv *c)
{
    const sb_window *w = &c->w;
    bool shape = w->n == 2 && !c->transposed && c->groups == 1;

    for (int i = 0; shape && i < 2; i++)
        shape = w->kernel[i] == 3 && w->stride[i] == 1 && w->dilation[i] == 1;
    /* Fewer channels do not pay for the transforms; WIDTH divides them. */
    return shape && !k->exact && k->in[1]->data &&
           k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST &&
           k->out[0]->layout == SB_LAYOUT_CHANNELS_LAST &&
           c->in_channels >= 32 && c->out_channels >= 32 &&
           c->in_channels % WIDTH == 0 && c->out_channels % WIDTH == 0 &&
           tile_count(c) >= TILES_LEAST;
}

/* ---- weights
 * ----------------------------------------------------------------- */

/* u = G w G' of one 3x3 kernel, in double. */
static void transform_kernel(const float *w, double u[SPOTS])
{
    static const double g[IN][3] = {
        {1.0 / 4, 0, 0},
        {-1.0 / 6, -1.0 / 6, -1.0 / 6},
        {-1.0 / 6, 1.0 / 6, -1.0 / 6},
        {1.0 / 24, 1.0 / 12, 1.0 / 6},
        {1.0 / 24, -1.0 / 12, 1.0 / 6},
        {0, 0, 1},
    };
    double half[IN][3];

    for (int i = 0; i < IN; i++)
        for (int j = 0; j < 3; j++)
            half[i][j] = g[i][0] * (double)w[j] + g[i][1] * (double)w[3 + j] +
                         g[i][2] * (double)w[6 + j];
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < IN; j++)
            u[i * IN + j] = half[i][0] * g[j][0] + half[i][1] * g[j][1] +
                            half[i][2] * g[j][2];
}

typedef struct weights_job {
    const sb_conv *conv;
    const float *w;
    float *out;
} weights_job;

/* [M, C, 3, 3] to [36, C, M] for some of the C. */
static void transform_weights(void *arg, size_t begin, size_t end)
{
    const weights_job *job = arg;
    int64_t n_in = job->conv->in_channels, n_out = job->conv->out_channels;

    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++)
        for (int64_t m = 0; m < n_out; m++) {
            double u[SPOTS];
            transform_kernel(job->w + (m * n_in + i) * 9, u);
            for (int s = 0; s < SPOTS; s++)
                job->out[(s * n_in + i) * n_out + m] = (float)u[s];
        }
}

static sb_status make_stack(sb_winograd *w, const char *what,
                            const float *weights)
{
    const sb_conv *c = &w->conv;
    size_t n = (size_t)(SPOTS * c->in_channels * c->out_channels);
    float *u = sb_alloc_raw(w->ctx, n, sizeof *u);
    sb_dnn_stack_desc d = {.what = what,
                           .depth = SPOTS,
                           .rows = w->block,
                           .k = c->in_channels,
                           .n = c->out_channels};

    if (!u)
        return SB_NO_MEMORY;
    weights_job job = {c, weights, u};
    sb_parallel_for(w->ctx, (size_t)c->in_channels, 4, transform_weights, &job);
    sb_status status = sb_dnn_stack_create(w->ctx, &d, u, &w->stack);
    sb_free(w->ctx, u);
    return status;
}

static size_t round_up(size_t n)
{
    return (n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

sb_status sb_winograd_create(const sb_kernel *k, const sb_conv *conv,
                             const sb_posts *posts, sb_winograd **out)
{
    sb_winograd *w = sb_alloc(k->ctx, 1, sizeof *w);

    if (!w)
        return SB_NO_MEMORY;
    w->ctx = k->ctx;
    w->conv = *conv;
    w->posts = *posts;
    w->rows = (conv->w.out[0] + OUT - 1) / OUT;
    w->cols = (conv->w.out[1] + OUT - 1) / OUT;
    w->tiles = tile_count(conv);
    w->block = block_size(conv);
    sb_status status =
        make_stack(w, sb_node_label(k->graph, k->node), k->in[1]->data);
    if (status != SB_OK) {
        sb_winograd_free(w);
        return status;
    }
    size_t in = (size_t)(SPOTS * w->block * conv->in_channels) * sizeof(float);
    size_t mid =
        (size_t)(SPOTS * w->block * conv->out_channels) * sizeof(float);
    w->at_products = round_up(in);
    w->at_stack = w->at_products + round_up(mid);
    w->lane_bytes = w->at_stack + round_up(sb_dnn_stack_scratch(w->stack));
    *out = w;
    return SB_OK;
}

size_t sb_winograd_scratch(const sb_winograd *w)
{
    return w->lane_bytes * sb_dnn_stack_lanes(w->stack);
}

void sb_winograd_free(sb_winograd *w)
{
    if (!w)
        return;
    sb_dnn_stack_free(w->stack);
    sb_free(w->ctx, w);
}

/* ---- transforms --------------------------------------------------------- */

/* Each works on WIDTH channels; a row of six or four vectors at a time. */

static inline void input_row(const float *x, int64_t step, float *y,
                             int64_t y_step)
{
    SB_SIMD
    for (int c = 0; c < WIDTH; c++) {
        float x0 = x[c], x1 = x[step + c], x2 = x[2 * step + c];
        float x3 = x[3 * step + c], x4 = x[4 * step + c], x5 = x[5 * step + c];
        float even = x4 - 4 * x2, odd = x3 - 4 * x1;
        float near = x4 - x2, far = 2 * (x3 - x1);
        y[c] = 4 * x0 - 5 * x2 + x4;
        y[y_step + c] = even + odd;
        y[2 * y_step + c] = even - odd;
        y[3 * y_step + c] = near + far;
        y[4 * y_step + c] = near - far;
        y[5 * y_step + c] = 4 * x1 - 5 * x3 + x5;
    }
}

static inline void output_row(const float *x, int64_t step, float *y,
                              int64_t y_step)
{
    SB_SIMD
    for (int c = 0; c < WIDTH; c++) {
        float x0 = x[c], x1 = x[step + c], x2 = x[2 * step + c];
        float x3 = x[3 * step + c], x4 = x[4 * step + c], x5 = x[5 * step + c];
        float sum = x1 + x2, gap = x1 - x2, sum2 = x3 + x4, gap2 = x3 - x4;
        y[c] = x0 + sum + sum2;
        y[y_step + c] = gap + 2 * gap2;
        y[2 * y_step + c] = sum + 4 * sum2;
        y[3 * y_step + c] = gap + 8 * gap2 + x5;
    }
}

/* Where a tile lies. */
typedef struct tile {
    int64_t image, row, col; /* of the output's first element */
} tile;

static tile tile_at(const sb_winograd *w, int64_t index)
{
    int64_t in_image = index % (w->rows * w->cols);

    return (tile){index / (w->rows * w->cols), in_image / w->cols * OUT,
                  in_image % w->cols * OUT};
}

/* One tile of the input into v[spot][tile][channel]; what lies outside the
 * image is zero. */
SB_HOT static void transform_input(const sb_winograd *w, const float *x,
                                   int64_t index, int64_t n, float *v)
{
    const sb_window *win = &w->conv.w;
    int64_t channels = w->conv.in_channels;
    tile t = tile_at(w, index);
    int64_t top = t.row - win->pad_lo[0], left = t.col - win->pad_lo[1];
    const float *image = x + t.image * win->in_count * channels;
    _Alignas(64) float patch[SPOTS][WIDTH], half[SPOTS][WIDTH];

    for (int64_t c = 0; c < channels; c += WIDTH) {
        for (int64_t i = 0; i < SPOTS; i++) {
            int64_t row = top + i / IN, col = left + i % IN;
            if (row < 0 || row >= win->in[0] || col < 0 || col >= win->in[1])
                memset(patch[i], 0, sizeof patch[i]);
            else
                memcpy(patch[i],
                       image + (row * win->in[1] + col) * channels + c,
                       sizeof patch[i]);
        }
        for (int i = 0; i < IN; i++) /* columns */
            input_row(patch[i], IN * WIDTH, half[i], IN * WIDTH);
        for (int i = 0; i < IN; i++) /* rows */
            input_row(half[i * IN], WIDTH, v + i * IN * n * channels + c,
                      n * channels);
    }
}

/* Bias, activation and sum for a row of WIDTH elements. */
static inline void finish(const sb_posts *posts, const float *bias,
                          const float *z, float *y)
{
    SB_SIMD
    for (int c = 0; c < WIDTH; c++)
        y[c] += bias ? bias[c] : 0;
    for (size_t p = 0; p < posts->n; p++)
        sb_post_row(&posts->post[p], y, z, WIDTH);
}

/* The products of one tile back into the output. */
SB_HOT static void transform_output(const sb_winograd *w, const float *m,
                                    int64_t index, int64_t n, const float *bias,
                                    const float *z, float *y)
{
    const sb_window *win = &w->conv.w;
    int64_t channels = w->conv.out_channels;
    tile t = tile_at(w, index);
    int64_t high = win->out[0] - t.row < OUT ? win->out[0] - t.row : OUT;
    int64_t wide = win->out[1] - t.col < OUT ? win->out[1] - t.col : OUT;
    int64_t start = t.image * win->out_count + t.row * win->out[1] + t.col;
    _Alignas(64) float half[OUT * IN][WIDTH], done[OUT * OUT][WIDTH];

    for (int64_t c = 0; c < channels; c += WIDTH) {
        for (int i = 0; i < IN; i++) /* columns */
            output_row(m + i * n * channels + c, IN * n * channels, half[i],
                       IN * WIDTH);
        for (int i = 0; i < OUT; i++) /* rows */
            output_row(half[i * IN], WIDTH, done[i * OUT], WIDTH);
        for (int64_t i = 0; i < high; i++)
            for (int64_t j = 0; j < wide; j++) {
                int64_t at = (start + i * win->out[1] + j) * channels + c;
                finish(&w->posts, bias ? bias + c : NULL, z ? z + at : NULL,
                       done[i * OUT + j]);
                memcpy(y + at, done[i * OUT + j], sizeof done[0]);
            }
    }
}

/* ---- running ------------------------------------------------------------ */

typedef struct winograd_job {
    sb_winograd *w;
    const float *x, *bias, *z;
    float *y;
    char *scratch;
    atomic_bool failed;
} winograd_job;

/* Zeros for tiles that are not there: what lies there otherwise may be slow to
 * compute with. */
static void fill_up(const sb_winograd *w, int64_t n, float *v)
{
    int64_t channels = w->conv.in_channels;

    for (int64_t s = 0; s < SPOTS; s++)
        memset(v + (s * w->block + n) * channels, 0,
               (size_t)((w->block - n) * channels) * sizeof *v);
}

static void run_block(void *arg, size_t lane, size_t block)
{
    winograd_job *job = arg;
    sb_winograd *w = job->w;
    int64_t first = (int64_t)block * w->block;
    int64_t n = w->tiles - first < w->block ? w->tiles - first : w->block;
    char *mine = job->scratch + lane * w->lane_bytes;
    float *v = (float *)(void *)mine;
    float *m = (float *)(void *)(mine + w->at_products);

    for (int64_t t = 0; t < n; t++)
        transform_input(w, job->x, first + t, w->block,
                        v + t * w->conv.in_channels);
    /* The last block is multiplied whole, too: a second set of kernels for its
     * size would take longer to make than it saves. */
    if (n < w->block)
        fill_up(w, n, v);
    if (!sb_dnn_stack_run(w->stack, lane, v, m, mine + w->at_stack))
        atomic_store(&job->failed, true);
    for (int64_t t = 0; t < n; t++)
        transform_output(w, m + t * w->conv.out_channels, first + t, w->block,
                         job->bias, job->z, job->y);
}

sb_status sb_winograd_run(sb_winograd *w, const float *x, const float *bias,
                          const float *z, float *y, void *scratch)
{
    winograd_job job = {
        .w = w, .x = x, .bias = bias, .z = z, .y = y, .scratch = scratch};

    sb_parallel_lanes(w->ctx, (size_t)((w->tiles + w->block - 1) / w->block),
                      sb_dnn_stack_lanes(w->stack), run_block, &job);
    if (atomic_load(&job.failed))
        return sb_fail(w->ctx, SB_BACKEND, "a matrix product failed");
    return SB_OK;
}
