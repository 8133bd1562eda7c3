/* Transposed convolutions to few channels, as the gradient of a network's first
 * layer for its input is one: a matrix product makes what every place of x
 * gives to its whole window, and the windows are added where they lie.
 *
 *     y[place * stride - pad + tap] += x[place] w[tap]
 *
 * oneDNN's kernels fill vectors with output channels, most of which there are
 * not.  Channels last, the taps of one row of a window are neighbors in y, so
 * that vectors are filled with them.  An image is the work of one thread, some
 * rows at a time, in order. */
#include <stdatomic.h>
#include <string.h>

#include "base/simd.h"
#include "base/threads.h"
#include "ops/conv/conv.h"

enum {
    CHANNELS_MOST = 4,
    CHANNELS_LEAST = 16,   /* of x */
    IMAGES_LEAST = 4,      /* so that threads have something to share */
    COLUMN_BYTES = 1 << 19 /* of windows at a time */
};

typedef struct columns {
    sb_ctx *ctx;
    sb_conv conv;
    int64_t cols; /* taps times channels */
    int64_t rows; /* of x at a time */
    sb_dnn_stack *stack;
    size_t lane_bytes, at_stack; /* windows come first */
    size_t ordered;              /* bytes of weights before packing */
    char *form;
    sb_dnn_packing packing;
} columns;

/* ---- making ------------------------------------------------------------- */

static bool columns_suits(const sb_kernel *k, const sb_conv *c)
{
    return c->transposed && c->groups == 1 && c->w.n == 2 &&
           c->w.dilation[0] == 1 && c->w.dilation[1] == 1 &&
           c->out_channels <= CHANNELS_MOST &&
           c->in_channels >= CHANNELS_LEAST && c->n_batch >= IMAGES_LEAST &&
           c->w.taps > 1 && k->in[0]->layout == SB_LAYOUT_CHANNELS_LAST &&
           k->out[0]->layout == SB_LAYOUT_CHANNELS_LAST;
}

static size_t columns_round(size_t n)
{
    return (n + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN;
}

/* The most rows that fit, in equal blocks. */
static int64_t columns_rows(const columns *p)
{
    const sb_window *w = &p->conv.w;
    int64_t one = w->in[1] * p->cols * (int64_t)sizeof(float);
    int64_t rows = one < COLUMN_BYTES ? COLUMN_BYTES / one : 1;

    rows = rows < w->in[0] ? rows : w->in[0];
    while (w->in[0] % rows)
        rows--;
    return rows;
}

static sb_status columns_packing_plan(columns *p)
{
    static const char kind[8] = "columns";

    p->packing = *sb_dnn_stack_packing(p->stack);
    p->form = sb_alloc(p->ctx, sizeof kind + p->packing.form_size, 1);
    if (!p->form)
        return SB_NO_MEMORY;
    memcpy(p->form, kind, sizeof kind);
    memcpy(p->form + sizeof kind, p->packing.form, p->packing.form_size);
    p->packing.form = p->form;
    p->packing.form_size += sizeof kind;
    p->ordered =
        columns_round((size_t)(p->conv.in_channels * p->cols) * sizeof(float));
    p->packing.scratch += p->ordered;
    return SB_OK;
}

static void columns_free(void *object)
{
    columns *p = object;

    if (!p)
        return;
    sb_dnn_stack_free(p->stack);
    sb_free(p->ctx, p->form);
    sb_free(p->ctx, p);
}

static sb_status columns_create(const sb_kernel *k, sb_conv_state *s)
{
    const sb_conv *c = &s->conv;
    columns *p = sb_alloc(k->ctx, 1, sizeof *p);

    if (!p)
        return SB_NO_MEMORY;
    p->ctx = k->ctx;
    p->conv = *c;
    p->cols = c->w.taps * c->out_channels;
    p->rows = columns_rows(p);
    const sb_dnn_stack_desc d = {.what = sb_node_label(k->graph, k->node),
                                 .depth = 1,
                                 .rows = p->rows * c->w.in[1],
                                 .k = c->in_channels,
                                 .n = p->cols};
    sb_status status = sb_dnn_stack_create(k->ctx, &d, &p->stack);
    if (status == SB_OK)
        status = columns_packing_plan(p);
    if (status != SB_OK) {
        columns_free(p);
        return status;
    }
    p->at_stack = columns_round((size_t)(d.rows * d.n) * sizeof(float));
    p->lane_bytes = p->at_stack + columns_round(sb_dnn_stack_scratch(p->stack));
    s->object = p;
    return SB_OK;
}

static const sb_dnn_packing *columns_packing(const void *object)
{
    return &((const columns *)object)->packing;
}

static size_t columns_scratch(const void *object)
{
    const columns *p = object;

    return p->lane_bytes * sb_dnn_stack_lanes(p->stack);
}

/* [C, M, taps] to [C, taps, M]. */
static sb_status columns_pack(void *object, const float *weights, void *packed,
                              void *scratch)
{
    columns *p = object;
    int64_t taps = p->conv.w.taps, m = p->conv.out_channels;
    float *u = scratch;

    for (int64_t i = 0; i < p->conv.in_channels; i++)
        for (int64_t j = 0; j < p->cols; j++)
            u[i * p->cols + j] = weights[(i * m + j % m) * taps + j / m];
    return sb_dnn_stack_pack(p->stack, u, packed, (char *)scratch + p->ordered);
}

/* ---- running ------------------------------------------------------------ */

SB_HOT static void add_run(const float *from, int64_t n, float *to)
{
    SB_SIMD
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* The windows of one row of x, from `from`, into an image of y. */
static void add_windows(const columns *p, int64_t row, const float *from,
                        float *y)
{
    const sb_window *w = &p->conv.w;
    int64_t m = p->conv.out_channels, high = w->kernel[0], wide = w->kernel[1];
    int64_t top = row * w->stride[0] - w->pad_lo[0];

    for (int64_t i = 0; i < high; i++) {
        if (top + i < 0 || top + i >= w->out[0])
            continue;
        float *line = y + (top + i) * w->out[1] * m;
        for (int64_t col = 0; col < w->in[1]; col++) {
            int64_t left = col * w->stride[1] - w->pad_lo[1];
            int64_t begin = left < 0 ? -left : 0;
            int64_t end = w->out[1] - left < wide ? w->out[1] - left : wide;
            if (begin < end)
                add_run(from + col * p->cols + (i * wide + begin) * m,
                        (end - begin) * m, line + (left + begin) * m);
        }
    }
}

typedef struct columns_job {
    const columns *p;
    const sb_conv_args *a;
    atomic_bool failed;
} columns_job;

static void columns_image(void *arg, size_t lane, size_t image)
{
    columns_job *job = arg;
    const columns *p = job->p;
    const sb_conv_args *a = job->a;
    const sb_window *w = &p->conv.w;
    int64_t m = p->conv.out_channels, line = w->in[1] * p->conv.in_channels;
    char *mine = (char *)a->scratch + lane * p->lane_bytes;
    float *windows = (float *)(void *)mine;
    const float *x = a->x + (int64_t)image * w->in[0] * line;
    float *y = a->y + (int64_t)image * w->out_count * m;

    for (int64_t i = 0; i < w->out_count * m; i++)
        y[i] = a->b ? a->b[i % m] : 0;
    for (int64_t row = 0; row < w->in[0]; row += p->rows) {
        if (!sb_dnn_stack_run(p->stack, lane, x + row * line, a->w, windows,
                              mine + p->at_stack))
            atomic_store(&job->failed, true);
        for (int64_t i = 0; i < p->rows; i++)
            add_windows(p, row + i, windows + i * w->in[1] * p->cols, y);
    }
}

static sb_status columns_run(const sb_conv_state *s, const sb_conv_args *a)
{
    const columns *p = s->object;
    columns_job job = {.p = p, .a = a};

    sb_parallel_lanes(p->ctx, (size_t)p->conv.n_batch,
                      sb_dnn_stack_lanes(p->stack), columns_image, &job);
    if (atomic_load(&job.failed))
        return sb_fail(p->ctx, SB_BACKEND, "a matrix product failed");
    sb_epilogue_apply(a->ctx, &s->posts, a->y, a->z, a->n_out);
    return SB_OK;
}

const sb_conv_impl sb_conv_columns = {
    .name = "columns",
    .order = SB_CONV_CHANNELS_LAST,
    .overwrites = true,
    .suits = columns_suits,
    .create = columns_create,
    .packing = columns_packing,
    .pack = columns_pack,
    .scratch = columns_scratch,
    .run = columns_run,
    .free = columns_free,
};
