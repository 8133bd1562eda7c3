/* Convolution of 8-bit images with channels last; see int8_conv_last.h.
 *
 * Items (48 pixels, group, 64 output channels) are independent.  Where the
 * weights are small, all channels of some pixels come one after another; else
 * all pixels of some channels, so that weights stay in the cache. */
#include "ops/int8/int8_conv_last.h"

#include <string.h>

#include "base/threads.h"

enum {
    BLOCK = SB_PIXEL_BLOCK,
    COLS = SB_PIXEL_COLS,
    MOST_RUNS = 64, /* of a table on the stack */
    MOST_TAPS = 128,
    SHORT_RUN = 32, /* bytes: worth a copy that makes it longer */
    SMALL_WEIGHTS = 256 << 10,
    ITEM_WORK = 400000, /* multiplications worth a thread's while */
    SLACK = 64          /* read beyond the end, times zero */
};

/* ---- preparing ---------------------------------------------------------- */

/* How many groups are put together: the least divisor that fills a vector. */
static int64_t groups_joined(int64_t group, int64_t c_out)
{
    for (int64_t join = 1; join <= group && join <= SB_PIXEL_LANE; join++)
        if (group % join == 0 &&
            (join * c_out >= SB_PIXEL_LANE || join == group))
            return join;
    return 0;
}

/* Weights that are known, and zero where they say nothing? */
static bool known_weights(const sb_kernel *k, const sb_int8_conv_inputs *which)
{
    const sb_tensor *w = k->in[which->w], *z = sb_kernel_in(k, which->w_zero);
    int32_t none = w->dtype == SB_DTYPE_I8 ? 0 : SB_INT_FLIP;

    if (!w->data || !sb_is_byte(w->dtype) || (z && !z->data) ||
        (z && z->dtype != w->dtype) || (!z && none != 0))
        return false;
    for (int64_t i = 0; z && i < sb_tensor_count(z); i++)
        if (sb_byte_at(z, i) != none)
            return false;
    return true;
}

void sb_int8_last_layout(const sb_kernel *k, const sb_int8_conv_inputs *which,
                         sb_layout *in, sb_layout *out)
{
    const sb_int8_conv_attrs *a = k->attrs;
    const sb_tensor *x = k->in[which->x], *w = k->in[which->w];

    if (x->rank != 4 || w->rank != 4 || a->group < 1 ||
        sb_tensor_count(k->out[0]) == 0 || sb_tensor_count(w) == 0 ||
        !known_weights(k, which))
        return;
    int64_t taps = w->dims[2] * w->dims[3], c_out = w->dims[0] / a->group;
    bool depthwise = w->dims[1] == 1 && c_out == 1 && a->group > 1;
    if (depthwise ? taps > MOST_TAPS
                  : taps > MOST_RUNS || !groups_joined(a->group, c_out))
        return;
    in[which->x] = out[0] = SB_LAYOUT_CHANNELS_LAST;
}

static void set_runs(const sb_int8_conv *c, sb_int8_last *l)
{
    bool in_row = l->group == 1 && c->dilation[2] == 1 && c->kernel[2] > 1;

    l->run = l->c_in;
    l->n_run = c->kernel[1] * c->kernel[2];
    l->copied = c->x_signed || (!l->depthwise && l->run % 4 != 0) ||
                (in_row && !l->depthwise && l->run < SHORT_RUN);
    l->x[0] = c->x[1];
    l->x[1] = c->x[2];
    l->pad[0] = c->pad[1];
    l->pad[1] = c->pad[2];
    if (!l->copied || l->depthwise)
        return;
    /* All that windows read, which may be less than there is. */
    for (int i = 0; i < 2; i++) {
        l->x[i] = (c->y[i + 1] - 1) * c->stride[i + 1] +
                  (c->kernel[i + 1] - 1) * c->dilation[i + 1] + 1;
        l->pad[i] = 0;
    }
    if (in_row) {
        l->run *= c->kernel[2];
        l->n_run = c->kernel[1];
    }
}

sb_status sb_int8_last_create(sb_ctx *ctx, sb_int8_conv *c)
{
    sb_int8_last *l = sb_alloc(ctx, 1, sizeof *l);

    if (!l)
        return SB_NO_MEMORY;
    l->kind = sb_int8_pixel_choose();
    l->depthwise = c->c_in == 1 && c->c_out == 1 && c->group > 1;
    l->channels = c->group * c->c_in;
    l->join = l->depthwise ? c->group : groups_joined(c->group, c->c_out);
    l->group = c->group / l->join;
    l->c_in = c->c_in * l->join;
    l->c_out = c->c_out * l->join;
    int64_t lane = l->depthwise ? SB_DEPTH_LANE : SB_PIXEL_LANE;
    l->width = (l->c_out + lane - 1) / lane * lane;
    set_runs(c, l);
    c->last = l;
    return SB_OK;
}

static int64_t quads_of(const sb_int8_last *l)
{
    return (l->run + 3) / 4;
}

/* Bytes of the weights of a group. */
static int64_t group_bytes(const sb_int8_last *l)
{
    return l->depthwise ? (l->n_run + 3) / 4 * 4 * l->width
                        : l->n_run * quads_of(l) * 4 * l->width;
}

/* Numbers of which there is one for each output channel, padded. */
static int64_t line_length(const sb_int8_last *l)
{
    return l->group * l->width;
}

/* Pixels of x that are written again. */
static bool copied_bytes(const sb_int8_conv *c, size_t *bytes)
{
    const sb_int8_last *l = c->last;
    const int64_t dims[] = {l->x[0], l->x[1], l->channels};

    *bytes = (size_t)c->n_batch;
    for (size_t i = 0; i < SB_COUNT(dims); i++)
        if (!sb_mul_size(*bytes, (size_t)dims[i], bytes))
            return false;
    return sb_add_size(*bytes, SLACK, bytes);
}

/* Of the scratch memory: first, multiplier, the line of zero points, pixels. */
typedef struct last_scratch {
    size_t zeros, pixels;
} last_scratch;

static last_scratch scratch_parts(const sb_int8_last *l)
{
    size_t line = (size_t)line_length(l) * sizeof(int32_t);
    size_t zeros = 2 * line;
    size_t end = zeros + (size_t)l->channels + SLACK;

    return (last_scratch){zeros, (end + SB_ALIGN - 1) / SB_ALIGN * SB_ALIGN};
}

bool sb_int8_last_sizes(const sb_int8_conv *c, size_t *weights, size_t *scratch)
{
    const sb_int8_last *l = c->last;
    size_t copied = 0;

    /* Joined groups are at most sixteen times as large as the file's. */
    *weights = (size_t)(l->group * group_bytes(l) + 4 * line_length(l));
    return (!l->copied || copied_bytes(c, &copied)) &&
           sb_add_size(scratch_parts(l).pixels, copied, scratch);
}

/* Weight p of output channel m. */
static int64_t weight_index(const sb_int8_conv *c, int64_t m, int64_t p)
{
    return c->w_across ? p * c->c_out + m : m * c->k + p;
}

/* Where weight p of the `sub`-th of joined groups stands in a sum: 4 * unit +
 * place in it. */
static int64_t place_of(const sb_int8_conv *c, int64_t sub, int64_t p)
{
    const sb_int8_last *l = c->last;
    int64_t taps = c->kernel[1] * c->kernel[2], run = p % taps;
    int64_t byte = sub * c->c_in + p / taps;

    if (l->n_run < taps) { /* taps of a row are one run */
        byte += run % c->kernel[2] * l->c_in;
        run /= c->kernel[2];
    }
    return run * quads_of(l) * 4 + byte;
}

/* The weights of group g of the file. */
static void pack_group(const sb_int8_conv *c, const uint8_t *w, uint8_t flip,
                       int64_t g, uint8_t *out)
{
    const sb_int8_last *l = c->last;
    int64_t sub = g % l->join, unit_bytes = l->n_run * quads_of(l) * 4;
    int64_t step = weight_index(c, 1, 0);

    out += g / l->join * group_bytes(l);
    for (int64_t p = 0; p < c->k; p++) {
        int64_t place = place_of(c, sub, p);

        for (int64_t i = 0, run; i < c->c_out; i += run) {
            int64_t m = sub * c->c_out + i, at = m / COLS * COLS;
            int64_t cols = l->width - at < COLS ? l->width - at : COLS;
            const uint8_t *from = w + weight_index(c, g * c->c_out + i, p);
            uint8_t *to = out + at * unit_bytes +
                          (place / 4 * cols + m - at) * 4 + place % 4;

            run = at + COLS - m < c->c_out - i ? at + COLS - m : c->c_out - i;
            for (int64_t j = 0; j < run; j++)
                to[4 * j] = from[j * step] ^ flip;
        }
    }
}

/* The sum of the weights of each output channel.  Some channels at a time, so
 * that weights are read in their order whichever it is. */
static void pack_sums(const sb_int8_conv *c, const uint8_t *w, uint8_t flip,
                      int32_t *sum)
{
    const sb_int8_last *l = c->last;
    int64_t channels = c->group * c->c_out, step = weight_index(c, 1, 0);

    for (int64_t m = 0; m < channels; m += COLS) {
        int64_t n = channels - m < COLS ? channels - m : COLS;
        uint32_t total[COLS] = {0};

        for (int64_t p = 0; p < c->k; p++) {
            const uint8_t *from = w + weight_index(c, m, p);

            for (int64_t i = 0; i < n; i++) {
                int32_t value = (int8_t)(from[i * step] ^ flip);

                total[i] += (uint32_t)value;
            }
        }
        for (int64_t i = 0; i < n; i++)
            sum[(m + i) / l->c_out * l->width + (m + i) % l->c_out] =
                (int32_t)total[i];
    }
}

void sb_int8_last_pack(const sb_int8_conv *c, const void *w, uint8_t *out)
{
    const sb_int8_last *l = c->last;
    const uint8_t *from = w, flip = c->w_signed ? 0 : SB_INT_FLIP;
    uint8_t *end = out + l->group * group_bytes(l);

    memset(out, 0, (size_t)(l->group * group_bytes(l) + 4 * line_length(l)));
    pack_sums(c, from, flip, (int32_t *)(void *)end);
    for (int64_t g = 0; g < c->group; g++) {
        if (!l->depthwise) {
            pack_group(c, from, flip, g, out);
            continue;
        }
        for (int64_t p = 0; p < c->k; p++)
            out[sb_int8_depth_weight(l->kind->quads, l->n_run, l->width, p,
                                     g)] = from[weight_index(c, g, p)] ^ flip;
    }
}

/* ---- running ------------------------------------------------------------ */

typedef struct last_run {
    const sb_int8_conv *c;
    const sb_int8_last *l;
    const sb_int8_direct_args *args;
    const uint8_t *x; /* pixels, as unsigned elements */
    const uint8_t *zeros;
    const int32_t *first; /* what sums begin with */
    const float *multiplier;
    uint8_t *copy;
    int64_t n_pixel, n_block, n_panel; /* of all images; of all groups */
    bool by_pixels;
} last_run;

static int64_t clamp_between(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* Pixels [begin, end) of one row of the copy: padding, pixels, padding. */
static void copy_piece(const last_run *run, int64_t row, int64_t begin,
                       int64_t end)
{
    const sb_int8_conv *c = run->c;
    const sb_int8_last *l = run->l;
    const uint8_t flip = c->x_signed ? SB_INT_FLIP : 0;
    int64_t top = l->pad[0] == c->pad[1] ? 0 : c->pad[1];
    int64_t left = l->pad[1] == c->pad[2] ? 0 : c->pad[2];
    int64_t image = row / l->x[0], h = row % l->x[0] - top, cn = l->channels;
    bool inside = h >= 0 && h < c->x[1];
    int64_t first = inside ? clamp_between(left, begin, end) : end;
    int64_t last = clamp_between(left + c->x[2], first, end);
    uint8_t *to = run->copy + row * l->x[1] * cn;

    memset(to + begin * cn, run->args->x_zero, (size_t)((first - begin) * cn));
    memset(to + last * cn, run->args->x_zero, (size_t)((end - last) * cn));
    if (first == last)
        return;
    const uint8_t *from = (const uint8_t *)run->args->x +
                          ((image * c->x[1] + h) * c->x[2] + first - left) * cn;
    to += first * cn;
    for (int64_t j = 0; j < (last - first) * cn; j++)
        to[j] = from[j] ^ flip;
}

/* Pixels [begin, end) of the copies of all images; products, and windows of
 * one pixel, have a single row. */
static void copy_pixels(void *arg, size_t begin, size_t end)
{
    const last_run *run = arg;
    const int64_t width = run->l->x[1];
    int64_t at = (int64_t)begin, left = (int64_t)(end - begin);

    while (left > 0) {
        int64_t w = at % width, n = left < width - w ? left : width - w;

        copy_piece(run, at / width, w, w + n);
        at += n;
        left -= n;
    }
}

/* Coordinates of an output pixel. */
typedef struct last_pixel {
    int64_t image, h, w;
} last_pixel;

static last_pixel pixel_of(const sb_int8_conv *c, int64_t at)
{
    return (last_pixel){at / c->n_pixel, at % c->n_pixel / c->y[2],
                        at % c->y[2]};
}

static void next_pixel(const sb_int8_conv *c, last_pixel *p)
{
    if (++p->w < c->y[2])
        return;
    p->w = 0;
    if (++p->h < c->y[1])
        return;
    p->h = 0;
    p->image++;
}

/* Where the runs of one output pixel begin, `step` apart in the table. */
static inline void find_runs(const last_run *run, const last_pixel *p,
                             int64_t step, const uint8_t **at)
{
    const sb_int8_conv *c = run->c;
    const sb_int8_last *l = run->l;
    int64_t per_row = l->n_run / c->kernel[1];
    int64_t w0 = p->w * c->stride[2] - l->pad[1];
    int64_t h = p->h * c->stride[1] - l->pad[0];

    for (int64_t i = 0; i < c->kernel[1]; i++, h += c->dilation[1]) {
        bool inside = (uint64_t)h < (uint64_t)l->x[0];
        int64_t line = p->image * l->x[0] + (inside ? h : 0), w = w0;
        const uint8_t *row = run->x + line * l->x[1] * l->channels;

        for (int64_t j = 0; j < per_row; j++, w += c->dilation[2], at += step)
            *at = inside && (uint64_t)w < (uint64_t)l->x[1]
                      ? row + w * l->channels
                      : run->zeros;
    }
}

/* Are all taps of this pixel, and of the one before it in its row, inside the
 * image?  Then they are a pixel's stride further on. */
static inline bool goes_on(const last_run *run, const last_pixel *p)
{
    const sb_int8_conv *c = run->c;
    const sb_int8_last *l = run->l;
    int64_t h = p->h * c->stride[1] - l->pad[0];
    int64_t w = p->w * c->stride[2] - l->pad[1];

    return p->w > 0 && h >= 0 && w >= c->stride[2] &&
           h + (c->kernel[1] - 1) * c->dilation[1] < l->x[0] &&
           w + (c->kernel[2] - 1) * c->dilation[2] < l->x[1];
}

/* The table of a block; the last pixel fills up four. */
static void find_block(const last_run *run, int64_t first, int64_t n,
                       const uint8_t **at)
{
    const sb_int8_conv *c = run->c;
    const int64_t step = c->stride[2] * run->l->channels;
    last_pixel p = pixel_of(c, first);

    for (int64_t i = 0; i < n; i++, next_pixel(c, &p)) {
        if (i == 0 || !goes_on(run, &p))
            find_runs(run, &p, BLOCK, at + i);
        else
            for (int64_t r = 0; r < run->l->n_run; r++)
                at[r * BLOCK + i] = at[r * BLOCK + i - 1] + step;
    }
    for (int64_t i = n; i % 4 != 0; i++)
        for (int64_t r = 0; r < run->l->n_run; r++)
            at[r * BLOCK + i] = at[r * BLOCK + n - 1];
}

static void multiply_items(void *arg, size_t begin, size_t end)
{
    const last_run *run = arg;
    const sb_int8_last *l = run->l;
    const uint8_t *at[MOST_RUNS * BLOCK], *moved[MOST_RUNS * BLOCK];
    int64_t filled = -1, moved_to = -1, per_group = run->n_panel / l->group;
    size_t size = sb_dtype_size(run->args->end->dtype);

    for (size_t item = begin; item < end; item++) {
        int64_t i = (int64_t)item;
        int64_t block = run->by_pixels ? i / run->n_panel : i % run->n_block;
        int64_t panel = run->by_pixels ? i % run->n_panel : i / run->n_block;
        int64_t g = panel / per_group, col = panel % per_group * COLS;
        int64_t n = run->n_pixel - block * BLOCK;
        int64_t channel = g * l->c_out + col;

        n = n < BLOCK ? n : BLOCK;
        if (filled != block) {
            find_block(run, block * BLOCK, n, at);
            filled = block;
            moved_to = -1; /* of another block */
        }
        if (g > 0 && moved_to != g) {
            for (int64_t r = 0; r < l->n_run * BLOCK; r++)
                moved[r] = r % BLOCK < (n + 3) / 4 * 4 && at[r] != run->zeros
                               ? at[r] + g * l->c_in
                               : run->zeros;
            moved_to = g;
        }
        const sb_int8_pixels p = {
            .at = g > 0 ? moved : at,
            .n_run = l->n_run,
            .n_quad = quads_of(l),
            .w = run->args->w + g * group_bytes(l) +
                 col * l->n_run * quads_of(l) * 4,
            .init = run->first + g * l->width + col,
            .multiplier = run->multiplier + g * l->width + col,
            .add = run->args->end->add ? run->args->end->add + channel : NULL,
            .cols = l->c_out - col < COLS ? l->c_out - col : COLS,
            .end = run->args->end,
            .y = (char *)run->args->end->y +
                 (size_t)(block * BLOCK * l->group * l->c_out + channel) * size,
            .y_step = l->group * l->c_out,
        };

        l->kind->pixels(&p, n);
    }
}

/* Pixels [begin, end) of a depthwise layer. */
static void depth_pixels(void *arg, size_t begin, size_t end)
{
    const last_run *run = arg;
    const sb_int8_conv *c = run->c;
    const sb_int8_last *l = run->l;
    const uint8_t *tap[MOST_TAPS];
    const int64_t step = c->stride[2] * l->channels;
    size_t size = sb_dtype_size(run->args->end->dtype);
    last_pixel p = pixel_of(c, (int64_t)begin);
    sb_int8_depth d = {
        .tap = tap,
        .n_tap = l->n_run,
        .n_channel = l->channels,
        .w = run->args->w,
        .init = run->first,
        .multiplier = run->multiplier,
        .end = run->args->end,
        .y = (char *)run->args->end->y + begin * (size_t)l->channels * size,
    };

    for (size_t i = begin; i < end; i++, next_pixel(c, &p)) {
        if (i == begin || !goes_on(run, &p))
            find_runs(run, &p, 1, tap);
        else
            for (int64_t t = 0; t < l->n_run; t++)
                tap[t] += step;
        l->kind->depth(&d);
        d.y = (char *)d.y + (size_t)l->channels * size;
    }
}

/* What sums of each channel begin with, and what they are multiplied with. */
static void set_lines(const last_run *run, int32_t *first, float *multiplier)
{
    const sb_int8_last *l = run->l;
    const sb_int8_conv_end *e = run->args->end;
    const uint8_t *w_end = run->args->w + l->group * group_bytes(l);
    const int32_t *sum = (const int32_t *)(const void *)w_end;
    bool quads = l->depthwise && l->kind->quads;

    memset(first, 0, (size_t)line_length(l) * sizeof *first);
    memset(multiplier, 0, (size_t)line_length(l) * sizeof *multiplier);
    for (int64_t m = 0; m < l->group * l->c_out; m++) {
        int64_t from = m / l->c_out * l->width + m % l->c_out;
        int64_t to = sb_int8_depth_slot(quads, from);
        uint32_t bias = e->bias ? (uint32_t)e->bias[m] : 0;

        first[to] =
            (int32_t)(bias - (uint32_t)run->args->x_zero * (uint32_t)sum[from]);
        if (e->multiplier)
            multiplier[to] = e->multiplier[m];
    }
}

void sb_int8_last_run(sb_ctx *ctx, const sb_int8_direct_args *args)
{
    const sb_int8_conv *c = args->c;
    const sb_int8_last *l = c->last;
    char *scratch = args->scratch;
    last_scratch parts = scratch_parts(l);
    int32_t *first = (int32_t *)(void *)scratch;
    float *multiplier = (float *)(void *)(first + line_length(l));
    int64_t n_pixel = c->n_batch * c->n_pixel;
    last_run run = {
        .c = c,
        .l = l,
        .args = args,
        .x = args->x,
        .zeros = (uint8_t *)scratch + parts.zeros,
        .first = first,
        .multiplier = multiplier,
        .copy = (uint8_t *)scratch + parts.pixels,
        .n_pixel = n_pixel,
        .n_block = (n_pixel + BLOCK - 1) / BLOCK,
        .n_panel = l->group * ((l->width + COLS - 1) / COLS),
        .by_pixels = l->group * group_bytes(l) <= SMALL_WEIGHTS,
    };

    set_lines(&run, first, multiplier);
    memset(scratch + parts.zeros, args->x_zero, (size_t)l->channels + SLACK);
    if (l->copied) {
        int64_t pixels = c->n_batch * l->x[0] * l->x[1];

        /* Whatever stood there would do, as weights are zero there; but a
         * checker of memory cannot know. */
        memset(run.copy + pixels * l->channels, 0, SLACK);
        sb_parallel_for(ctx, (size_t)pixels,
                        (size_t)(ITEM_WORK / 8 / l->channels + 1), copy_pixels,
                        &run);
        run.x = run.copy;
    }
    int64_t work = l->depthwise ? 16 * l->channels
                                : BLOCK * COLS * l->n_run * quads_of(l) * 4;
    size_t grain = (size_t)(ITEM_WORK / work + 1);
    if (l->depthwise)
        sb_parallel_for(ctx, (size_t)n_pixel, grain, depth_pixels, &run);
    else
        sb_parallel_for(ctx, (size_t)(run.n_block * run.n_panel), grain,
                        multiply_items, &run);
}
