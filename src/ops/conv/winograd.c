/* 3x3 convolutions with a quarter of the multiplications: Winograd's minimal
 * filtering F(4x4, 3x3) (Lavin & Gray, arXiv 1509.09308).
 *
 *     Y = A' [ (G w G') * (B' x B) ] A
 *
 * for each 6x6 tile x of the input and 4x4 tile Y of the output; the products
 * in the middle are, over all channels, 36 independent matrix products.  Tiles
 * are taken in blocks small enough for the second-level cache: transform the
 * block, multiply, transform back with bias and activation, next block.  Blocks
 * do not depend on the number of threads, so neither does the result.  Where
 * weights outweigh the tiles, all of these are one block, and threads share the
 * products instead, so that weights are read once, and as they are.
 *
 * For dense kernels of stride 1 in channels-last order.  Transposed, such a
 * convolution is one with turned kernels and the rest of the padding.  Sums are
 * formed in another order than the definition has them, which adds an error of
 * about 1e-6 of the largest element; --exact does without. */
#include "ops/conv/winograd.h"

#include <stdatomic.h>
#include <string.h>

#include "base/threads.h"

enum {
    OUT = SB_WINOGRAD_OUT,
    IN = SB_WINOGRAD_IN,
    SPOTS = SB_WINOGRAD_SPOTS,
    WIDTH = SB_WINOGRAD_WIDTH,
    BLOCK_BYTES = 1 << 20, /* of transformed input, and of products */
    /* Transformed weights are four times as large; fewer tiles than this do
     * not pay for reading them. */
    TILES_LEAST = 48,
    WEIGHT_BYTES = 8 << 20, /* transformed, that no cache of a core holds */
    CHANNELS_LEAST = 32,
    GRAIN = 4,        /* tiles worth a thread */
    BLOCKS_LEAST = 4, /* so that threads have something to share */
};

typedef struct winograd {
    sb_ctx *ctx;
    sb_conv conv;
    sb_epilogue posts;
    sb_winograd_tiles tiles;
    int64_t block; /* tiles in a block */
    sb_dnn_stack *stack;
    sb_dnn_gemm *gemm; /* of few tiles, instead of the stack */
    int64_t a_at[SPOTS], b_at[SPOTS], c_at[SPOTS];
    size_t lane_bytes, at_products, at_stack;
    size_t transformed; /* bytes of weights between transforming and packing */
    char *form;         /* of packed weights: ours, then the stack's */
    sb_dnn_packing packing;
} winograd;

/* ---- choice ------------------------------------------------------------- */

sb_winograd_tiles sb_winograd_cut(const sb_conv *c)
{
    sb_winograd_tiles t = {.rows = (c->w.out[0] + OUT - 1) / OUT,
                           .cols = (c->w.out[1] + OUT - 1) / OUT};

    for (int i = 0; i < 2; i++) {
        t.in[i] = c->w.in[i];
        t.out[i] = c->w.out[i];
        t.pad[i] = c->transposed ? 2 - c->w.pad_lo[i] : c->w.pad_lo[i];
    }
    t.count = c->n_batch * t.rows * t.cols;
    return t;
}

/* Would reading the weights for each block take longer than multiplying? */
static bool tiles_are_few(const sb_conv *c, int64_t tiles)
{
    int64_t narrow =
        c->in_channels < c->out_channels ? c->in_channels : c->out_channels;
    double weights = (double)c->in_channels * (double)c->out_channels;

    return 2 * tiles < narrow && weights * SPOTS * sizeof(float) > WEIGHT_BYTES;
}

/* Blocks of about equal size that fit the cache, an even number of them. */
static int64_t block_size(const sb_conv *c)
{
    int64_t wide =
        c->in_channels > c->out_channels ? c->in_channels : c->out_channels;
    int64_t most = BLOCK_BYTES / (SPOTS * (int64_t)sizeof(float) * wide) + 1;
    int64_t tiles = sb_winograd_cut(c).count,
            blocks = (tiles + most - 1) / most;

    if (tiles_are_few(c, tiles))
        return tiles;
    blocks = blocks < BLOCKS_LEAST ? BLOCKS_LEAST : blocks + blocks % 2;
    return (tiles + blocks - 1) / blocks;
}

bool sb_winograd_pays(const sb_conv *c)
{
    const sb_window *w = &c->w;
    bool shape = w->n == 2 && c->groups == 1;

    for (int i = 0; shape && i < 2; i++)
        shape = w->kernel[i] == 3 && w->stride[i] == 1 && w->dilation[i] == 1;
    return shape && c->in_channels >= CHANNELS_LEAST &&
           c->out_channels >= CHANNELS_LEAST && c->in_channels % WIDTH == 0 &&
           c->out_channels % WIDTH == 0 &&
           sb_winograd_cut(c).count >= TILES_LEAST;
}

static bool winograd_suits(const sb_kernel *k, const sb_conv *c)
{
    return !k->exact && k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST &&
           k->out[0]->layout == SB_LAYOUT_CHANNELS_LAST && sb_winograd_pays(c);
}

/* ---- weights ------------------------------------------------------------ */

const double sb_winograd_g[IN][3] = {
    {1.0 / 4, 0, 0},
    {-1.0 / 6, -1.0 / 6, -1.0 / 6},
    {-1.0 / 6, 1.0 / 6, -1.0 / 6},
    {1.0 / 24, 1.0 / 12, 1.0 / 6},
    {1.0 / 24, -1.0 / 12, 1.0 / 6},
    {0, 0, 1},
};

/* u = G w G' of the 3x3 kernels of WIDTH output channels, in double; `step` is
 * between the kernels of neighbors, `u_step` between spots.  `turned` by half a
 * turn: first the last tap. */
SB_HOT static void transform_kernels(const float *w, int64_t step, bool turned,
                                     float *u, int64_t u_step)
{
    const double(*g)[3] = sb_winograd_g;
    double x[9][WIDTH], half[IN][3][WIDTH];

    for (int t = 0; t < 9; t++)
        for (int c = 0; c < WIDTH; c++)
            x[t][c] = (double)w[c * step + (turned ? 8 - t : t)];
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < 3; j++) {
            SB_SIMD
            for (int c = 0; c < WIDTH; c++)
                half[i][j][c] = g[i][0] * x[j][c] + g[i][1] * x[3 + j][c] +
                                g[i][2] * x[6 + j][c];
        }
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < IN; j++, u += u_step) {
            SB_SIMD
            for (int c = 0; c < WIDTH; c++)
                u[c] =
                    (float)(half[i][0][c] * g[j][0] + half[i][1][c] * g[j][1] +
                            half[i][2][c] * g[j][2]);
        }
}

typedef struct weights_job {
    const sb_conv *conv;
    const float *w;
    float *out;
} weights_job;

/* [M, C, 3, 3], or [C, M, 3, 3] transposed, to [36, C, M] for some of the C. */
static void transform_weights(void *arg, size_t begin, size_t end)
{
    const weights_job *job = arg;
    int64_t n_in = job->conv->in_channels, n_out = job->conv->out_channels;
    bool turned = job->conv->transposed;
    int64_t i_step = turned ? n_out * 9 : 9, m_step = turned ? 9 : n_in * 9;

    for (int64_t i = (int64_t)begin; i < (int64_t)end; i++)
        for (int64_t m = 0; m < n_out; m += WIDTH)
            transform_kernels(job->w + m * m_step + i * i_step, m_step, turned,
                              job->out + i * n_out + m, n_in * n_out);
}

static size_t round_up(size_t n)
{
    return (n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

static sb_status winograd_pack(void *object, const float *weights, void *packed,
                               void *scratch)
{
    winograd *w = object;
    float *u = scratch;
    weights_job job = {&w->conv, weights, u};

    if (w->gemm)
        job.out = packed;
    sb_parallel_for(w->ctx, (size_t)w->conv.in_channels, 4, transform_weights,
                    &job);
    if (w->gemm)
        return SB_OK;
    return sb_dnn_stack_pack(w->stack, u, packed,
                             (char *)scratch + w->transformed);
}

static void winograd_free(void *object)
{
    winograd *w = object;

    if (!w)
        return;
    sb_dnn_stack_free(w->stack);
    sb_dnn_gemm_free(w->gemm);
    sb_free(w->ctx, w->form);
    sb_free(w->ctx, w);
}

static sb_status plan_packing(winograd *w)
{
    const sb_conv *c = &w->conv;
    const char kind[8] = {'3', 'x', '3', 'F', '4', c->transposed ? 't' : 'x'};
    size_t transformed =
        sizeof(float) * (size_t)(SPOTS * c->in_channels * c->out_channels);

    if (w->stack)
        w->packing = *sb_dnn_stack_packing(w->stack);
    else
        w->packing.bytes = transformed;
    w->form = sb_alloc(w->ctx, sizeof kind + w->packing.form_size, 1);
    if (!w->form)
        return SB_NO_MEMORY;
    memcpy(w->form, kind, sizeof kind);
    if (w->stack)
        memcpy(w->form + sizeof kind, w->packing.form, w->packing.form_size);
    w->packing.form = w->form;
    w->packing.form_size += sizeof kind;
    w->transformed = round_up(transformed);
    if (w->stack)
        w->packing.scratch += w->transformed;
    return SB_OK;
}

/* The products: of blocks, or of all tiles at once. */
static sb_status plan_products(const sb_kernel *k, winograd *w)
{
    const sb_conv *c = &w->conv;
    const sb_dnn_stack_desc stack = {.what = sb_node_label(k->graph, k->node),
                                     .depth = SPOTS,
                                     .rows = w->block,
                                     .k = c->in_channels,
                                     .n = c->out_channels};
    const sb_dnn_gemm_desc gemm = {.what = stack.what,
                                   .m = w->block,
                                   .n = stack.n,
                                   .k = stack.k,
                                   .a_row = stack.k,
                                   .a_col = 1,
                                   .b_row = stack.n,
                                   .b_col = 1,
                                   .c_row = stack.n};

    if (w->block < w->tiles.count)
        return sb_dnn_stack_create(w->ctx, &stack, &w->stack);
    for (int64_t s = 0; s < SPOTS; s++) {
        w->a_at[s] = s * w->block * stack.k;
        w->b_at[s] = s * stack.k * stack.n;
        w->c_at[s] = s * w->block * stack.n;
    }
    return sb_dnn_gemm_create(w->ctx, &gemm, &w->gemm);
}

static sb_status winograd_create(const sb_kernel *k, sb_conv_state *s)
{
    const sb_conv *conv = &s->conv;
    winograd *w = sb_alloc(k->ctx, 1, sizeof *w);

    if (!w)
        return SB_NO_MEMORY;
    w->ctx = k->ctx;
    w->conv = *conv;
    w->posts = s->posts;
    w->tiles = sb_winograd_cut(conv);
    w->block = block_size(conv);
    sb_status status = plan_products(k, w);
    if (status == SB_OK)
        status = plan_packing(w);
    if (status != SB_OK) {
        winograd_free(w);
        return status;
    }
    size_t in = (size_t)(SPOTS * w->block * conv->in_channels) * sizeof(float);
    size_t mid =
        (size_t)(SPOTS * w->block * conv->out_channels) * sizeof(float);
    w->at_products = round_up(in);
    w->at_stack = w->at_products + round_up(mid);
    w->lane_bytes =
        w->at_stack + round_up(w->stack ? sb_dnn_stack_scratch(w->stack)
                                        : sb_dnn_gemm_scratch(w->gemm));
    s->object = w;
    return SB_OK;
}

static const sb_dnn_packing *winograd_packing(const void *object)
{
    return &((const winograd *)object)->packing;
}

static size_t winograd_scratch(const void *object)
{
    const winograd *w = object;

    return w->lane_bytes * (w->stack ? sb_dnn_stack_lanes(w->stack) : 1);
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

SB_HOT void sb_winograd_input(const sb_winograd_tiles *t, const float *x,
                              int64_t channels, int64_t index, int64_t n,
                              float *v)
{
    sb_winograd_tile at = sb_winograd_at(t, index);
    int64_t top = at.row - t->pad[0], left = at.col - t->pad[1];
    const float *image = x + at.image * t->in[0] * t->in[1] * channels;
    _Alignas(64) float patch[SPOTS][WIDTH], half[SPOTS][WIDTH];

    for (int64_t c = 0; c < channels; c += WIDTH) {
        for (int64_t i = 0; i < SPOTS; i++) {
            int64_t row = top + i / IN, col = left + i % IN;
            if (row < 0 || row >= t->in[0] || col < 0 || col >= t->in[1])
                memset(patch[i], 0, sizeof patch[i]);
            else
                memcpy(patch[i], image + (row * t->in[1] + col) * channels + c,
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
static inline void winograd_finish(const sb_epilogue *posts, const float *bias,
                                   const float *z, float *y)
{
    SB_SIMD
    for (int c = 0; c < WIDTH; c++)
        y[c] += bias ? bias[c] : 0;
    for (size_t p = 0; p < posts->n; p++)
        sb_epilogue_op_row(&posts->post[p], y, z, WIDTH);
}

/* The products of one tile back into the output. */
SB_HOT static void transform_output(const winograd *w, const float *m,
                                    int64_t index, int64_t n, const float *bias,
                                    const float *z, float *y)
{
    const sb_window *win = &w->conv.w;
    int64_t channels = w->conv.out_channels;
    sb_winograd_tile t = sb_winograd_at(&w->tiles, index);
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
                winograd_finish(&w->posts, bias ? bias + c : NULL,
                                z ? z + at : NULL, done[i * OUT + j]);
                memcpy(y + at, done[i * OUT + j], sizeof done[0]);
            }
    }
}

/* ---- running ------------------------------------------------------------ */

typedef struct winograd_job {
    const winograd *w;
    const sb_conv_args *a;
    char *scratch;
    atomic_bool failed;
} winograd_job;

/* Zeros for tiles that are not there: what lies there otherwise may be slow to
 * compute with. */
static void fill_up(const winograd *w, int64_t n, float *v)
{
    int64_t channels = w->conv.in_channels;

    for (int64_t s = 0; s < SPOTS; s++)
        memset(v + (s * w->block + n) * channels, 0,
               (size_t)((w->block - n) * channels) * sizeof *v);
}

static void run_block(void *arg, size_t lane, size_t block)
{
    winograd_job *job = arg;
    const winograd *w = job->w;
    const sb_conv_args *a = job->a;
    int64_t first = (int64_t)block * w->block;
    int64_t n =
        w->tiles.count - first < w->block ? w->tiles.count - first : w->block;
    char *mine = job->scratch + lane * w->lane_bytes;
    float *v = (float *)(void *)mine;
    float *m = (float *)(void *)(mine + w->at_products);

    for (int64_t t = 0; t < n; t++)
        sb_winograd_input(&w->tiles, a->x, w->conv.in_channels, first + t,
                          w->block, v + t * w->conv.in_channels);
    /* The last block is multiplied whole, too: a second set of kernels for its
     * size would take longer to make than it saves. */
    if (n < w->block)
        fill_up(w, n, v);
    if (!sb_dnn_stack_run(w->stack, lane, v, a->w, m, mine + w->at_stack))
        atomic_store(&job->failed, true);
    for (int64_t t = 0; t < n; t++)
        transform_output(w, m + t * w->conv.out_channels, first + t, w->block,
                         a->b, a->z, a->y);
}

static void few_inputs(void *arg, size_t begin, size_t end)
{
    const winograd_job *job = arg;
    const winograd *w = job->w;
    float *v = (float *)(void *)job->scratch;

    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++)
        sb_winograd_input(&w->tiles, job->a->x, w->conv.in_channels, t,
                          w->block, v + t * w->conv.in_channels);
}

static void few_outputs(void *arg, size_t begin, size_t end)
{
    const winograd_job *job = arg;
    const winograd *w = job->w;
    const float *m = (const float *)(void *)(job->scratch + w->at_products);

    for (int64_t t = (int64_t)begin; t < (int64_t)end; t++)
        transform_output(w, m + t * w->conv.out_channels, t, w->block,
                         job->a->b, job->a->z, job->a->y);
}

static sb_status winograd_run_few(const winograd *w, winograd_job *job)
{
    char *base = job->scratch;

    sb_parallel_for(w->ctx, (size_t)w->block, GRAIN, few_inputs, job);
    SB_TRY(sb_dnn_gemm_run(
        w->gemm,
        &(sb_dnn_gemm_args){.a = (const float *)(void *)base,
                            .b = job->a->w,
                            .c = (float *)(void *)(base + w->at_products),
                            .n_batch = SPOTS,
                            .a_at = w->a_at,
                            .b_at = w->b_at,
                            .c_at = w->c_at,
                            .scratch = base + w->at_stack}));
    sb_parallel_for(w->ctx, (size_t)w->block, GRAIN, few_outputs, job);
    return SB_OK;
}

static sb_status winograd_run(const sb_conv_state *s, const sb_conv_args *a)
{
    const winograd *w = s->object;
    winograd_job job = {.w = w, .a = a, .scratch = a->scratch};

    if (w->gemm)
        return winograd_run_few(w, &job);
    sb_parallel_lanes(w->ctx,
                      (size_t)((w->tiles.count + w->block - 1) / w->block),
                      sb_dnn_stack_lanes(w->stack), run_block, &job);
    if (atomic_load(&job.failed))
        return sb_fail(w->ctx, SB_BACKEND, "a matrix product failed");
    return SB_OK;
}

const sb_conv_impl sb_conv_winograd = {
    .name = "winograd",
    .suits = winograd_suits,
    .create = winograd_create,
    .packing = winograd_packing,
    .pack = winograd_pack,
    .scratch = winograd_scratch,
    .run = winograd_run,
    .free = winograd_free,
};
