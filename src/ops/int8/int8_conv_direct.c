/* Convolution of 8-bit tensors without gathering; see int8_conv_direct.h.
 *
 * Items (image, some groups, band of rows) are independent; each thread packs
 * into memory of its own, small enough for the second-level cache. */
#include "ops/int8/int8_conv_direct.h"

#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

enum {
    COLS = SB_INT_TILE_COLS,
    BAND_BYTES = 128 << 10, /* aimed at */
    BAND_MOST = 512 << 10,  /* where not even one row is smaller */
    ITEM_WORK = 400000,     /* multiplications worth a thread's while */
};

static int64_t int8_conv_direct_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- preparing ---------------------------------------------------------- */

/* How the taps of one axis lie: `n` of them, `step` apart. */
typedef struct tap_axis {
    int64_t n, step, stride;
} tap_axis;

static tap_axis taps_of(const sb_int8_conv *c, int axis, bool in_quads)
{
    tap_axis t = {c->kernel[axis], c->dilation[axis], c->stride[axis]};

    if (in_quads) {
        t.n = (t.n + 3) / 4;
        t.step = t.n > 1 ? 4 * t.step : t.step;
    }
    return t;
}

/* What a line has more than results. */
static int64_t reach_of(tap_axis t)
{
    return (t.n - 1) * t.step / t.stride;
}

/* Phases that are packed: those before the last one that some tap reads. */
static int64_t phases_of(tap_axis t)
{
    int64_t last = (t.n - 1) * t.step;

    return t.step % t.stride == 0 || last == 0 ? 1
           : last < t.stride - 1               ? last + 1
                                               : t.stride;
}

/* Sets rows and columns of a band, each pixel of `pixel` bytes; false if a band
 * would be too large. */
static bool choose_band(const sb_int8_conv *c, sb_int8_direct *d, int64_t pixel,
                        int64_t reach_h, int64_t reach_w)
{
    if (reach_h >= BAND_MOST || reach_w >= BAND_MOST ||
        pixel * (reach_h + 1) > BAND_BYTES / COLS)
        return false;
    int64_t column = pixel * (reach_h + 1); /* of a band of one row */
    d->cols = c->y[2];
    if (d->cols > BAND_MOST / column - reach_w) {
        d->cols = BAND_BYTES / column - reach_w;
        if (d->cols < COLS)
            return false;
    }
    d->n_strip = (c->y[2] + d->cols - 1) / d->cols;
    d->line = d->cols + reach_w;
    d->rows = BAND_BYTES / (pixel * d->line) - reach_h;
    d->rows = d->rows < 1 ? 1 : d->rows > c->y[1] ? c->y[1] : d->rows;
    d->n_band = (c->y[1] + d->rows - 1) / d->rows;
    d->rows = (c->y[1] + d->n_band - 1) / d->n_band;
    d->plane_h = d->rows + reach_h;
    return true;
}

/* Everything but the offsets; false if it is not for this convolution. */
static bool int8_conv_direct_plan(const sb_int8_conv *c, sb_int8_direct *d)
{
    bool pointwise = c->k == c->c_in;

    if (c->n_pixel == 0 || c->c_in == 0 || c->c_out == 0 ||
        (pointwise && c->group == 1))
        return false;
    d->by_rows = c->c_in == 1;
    d->block = c->c_out == 1 ? 1 : SB_INT_TILE_ROWS;
    d->n_quad = (c->c_in + 3) / 4;
    tap_axis h = taps_of(c, 1, d->by_rows), w = taps_of(c, 2, false);
    d->phase_h = phases_of(h);
    d->phase_w = phases_of(w);
    d->n_unit = d->n_quad * c->kernel[0] * h.n * w.n;

    const size_t sizes[] = {(size_t)d->n_quad, (size_t)c->kernel[0],
                            (size_t)d->phase_h, (size_t)d->phase_w};
    size_t pixel = sizeof(uint32_t);
    for (size_t i = 0; i < SB_COUNT(sizes); i++)
        if (!sb_mul_size(pixel, sizes[i], &pixel) || pixel > BAND_MOST)
            return false;
    if (!choose_band(c, d, (int64_t)pixel, reach_of(h), reach_of(w)))
        return false;
    d->size = (int64_t)(pixel / sizeof(uint32_t)) * d->plane_h * d->line;
    return true;
}

static void set_offsets(const sb_int8_conv *c, sb_int8_direct *d)
{
    tap_axis h = taps_of(c, 1, d->by_rows), w = taps_of(c, 2, false);
    int64_t plane = d->plane_h * d->line, *to = d->offset;

    for (int64_t at = 0; at < d->n_quad * c->kernel[0]; at++)
        for (int64_t y = 0; y < h.n * h.step; y += h.step)
            for (int64_t x = 0; x < w.n * w.step; x += w.step) {
                int64_t phase = at * d->phase_h + y % h.stride;

                phase = phase * d->phase_w + x % w.stride;
                *to++ = phase * plane + y / h.stride * d->line + x / w.stride;
            }
}

static int64_t int8_conv_direct_blocks(const sb_int8_conv *c,
                                       const sb_int8_direct *d)
{
    return (c->c_out + d->block - 1) / d->block;
}

/* Small groups are put together; a band that is alone is shared by threads,
 * which pack it once more each, and compute some of the channels. */
static void choose_items(const sb_int8_conv *c, sb_int8_direct *d)
{
    double work =
        ((double)c->c_out * (double)c->k + 32 * (double)(c->c_in + c->c_out)) *
        (double)c->n_pixel;
    int64_t want = 2 * (int64_t)d->lanes;
    int64_t bands = c->n_batch * c->y[0] * d->n_band * d->n_strip;

    d->groups = d->parts = 1;
    if (d->n_band * d->n_strip == 1 && c->y[0] == 1)
        d->groups = (int64_t)(ITEM_WORK / work) + 1;
    d->groups = d->groups < c->group ? d->groups : c->group;
    bands *= (c->group + d->groups - 1) / d->groups;
    if (bands > 0 && bands < want && work > ITEM_WORK)
        d->parts = (want + bands - 1) / bands;
    d->parts = d->parts < int8_conv_direct_blocks(c, d)
                   ? d->parts
                   : int8_conv_direct_blocks(c, d);
}

sb_status sb_int8_direct_create(sb_ctx *ctx, sb_int8_conv *c)
{
    sb_int8_direct wanted = {.lanes = (size_t)sb_ctx_threads(ctx)};

    if (!int8_conv_direct_plan(c, &wanted))
        return SB_OK;
    choose_items(c, &wanted);
    /* Far from overflow: there are not more units than weights in the file. */
    sb_int8_direct *d = sb_alloc(
        ctx, 1, sizeof *d + (size_t)wanted.n_unit * sizeof wanted.offset[0]);
    if (!d)
        return SB_NO_MEMORY;
    *d = wanted;
    set_offsets(c, d);
    c->direct = d;
    return SB_OK;
}

/* Bytes of the weights of a block of output channels. */
static int64_t block_size(const sb_int8_direct *d)
{
    return d->n_unit * d->block * 4;
}

/* Blocks [block][unit][channel][4]; ones in the place of all weights, as if of
 * one channel; sums of weights less zero points; zero points. */
typedef struct group_weights {
    uint8_t *blocks, *ones;
    int32_t *sum, *zero;
} group_weights;

static group_weights weights_at(const sb_int8_conv *c, const uint8_t *packed)
{
    const sb_int8_direct *d = c->direct;
    uint8_t *blocks = (uint8_t *)(uintptr_t)packed;
    uint8_t *ones = blocks + int8_conv_direct_blocks(c, d) * block_size(d);
    int32_t *sum = (int32_t *)(void *)(ones + 4 * d->n_unit);

    return (group_weights){blocks, ones, sum, sum + c->c_out};
}

int64_t sb_int8_direct_group_size(const sb_int8_conv *c)
{
    const sb_int8_direct *d = c->direct;

    return int8_conv_direct_blocks(c, d) * block_size(d) + 4 * d->n_unit +
           8 * c->c_out;
}

/* Where weight `p` of k stands among units: 4 * unit + place in it. */
static int64_t place_of(const sb_int8_conv *c, int64_t p)
{
    const sb_int8_direct *d = c->direct;
    int64_t n_tap = c->k / c->c_in, kh = c->kernel[1], kw = c->kernel[2];

    if (!d->by_rows)
        return (p / n_tap / 4 * n_tap + p % n_tap) * 4 + p / n_tap % 4;
    int64_t y = p / kw % kh, plane = p / kw / kh;
    return ((plane * ((kh + 3) / 4) + y / 4) * kw + p % kw) * 4 + y % 4;
}

void sb_int8_direct_pack(const sb_int8_conv *c, const void *w,
                         const int32_t *zero, uint8_t *out)
{
    const sb_int8_direct *d = c->direct;
    const uint8_t flip = c->w_signed ? 0 : SB_INT_FLIP;
    group_weights to = weights_at(c, out);

    memset(out, 0, (size_t)sb_int8_direct_group_size(c));
    for (int64_t m = 0; m < c->c_out; m++)
        to.zero[m] = zero[m] - flip;
    for (int64_t p = 0; p < c->k; p++) {
        int64_t place = place_of(c, p);

        to.ones[place] = 1;
        for (int64_t m = 0; m < c->c_out; m++) {
            uint8_t v = ((const uint8_t *)w)[m * c->k + p] ^ flip;

            to.blocks[m / d->block * block_size(d) +
                      (place / 4 * d->block + m % d->block) * 4 + place % 4] =
                v;
            to.sum[m] = (int32_t)((uint32_t)to.sum[m] +
                                  (uint32_t)((int8_t)v - to.zero[m]));
        }
    }
}

/* Bytes of one thread's band; tiles may read beyond its end. */
static size_t lane_bytes(const sb_int8_direct *d)
{
    return ((size_t)d->size + COLS + SB_ALIGN) * sizeof(uint32_t) / SB_ALIGN *
           SB_ALIGN;
}

bool sb_int8_direct_scratch(const sb_int8_conv *c, size_t *bytes)
{
    return sb_mul_size(lane_bytes(c->direct), c->direct->lanes, bytes);
}

/* ---- packing the image -------------------------------------------------- */

/* Results that are computed from one packed band. */
typedef struct direct_band {
    const sb_int8_direct_args *args;
    sb_int8_tile_fn tile;
    int64_t depth, row, col; /* of the first result */
    int64_t rows, cols;
    int64_t channel;    /* first one of the group */
    int64_t begin, end; /* of the group's */
    char *y;            /* the first result of the group's first channel */
} direct_band;

/* Where a line of quads comes from.  Rows that are not there are outside the
 * mask, and have the address of others. */
typedef struct quad_line {
    const uint8_t *from[4]; /* none is behind the last */
    const uint8_t *stop;    /* the end of the tensor */
    uint32_t mask;
    uint32_t flip; /* makes all four unsigned */
    uint32_t pad;  /* four times what is outside the image */
    int64_t stride;
    int64_t begin, end, n; /* quads that are pixels; of a line */
} quad_line;

static inline uint32_t quad_of(const quad_line *l, int64_t at)
{
    uint32_t quad = 0;

    for (int i = 0; i < 4; i++)
        quad |= (uint32_t)l->from[i][at] << 8 * i;
    return ((quad ^ l->flip) & l->mask) | (l->pad & ~l->mask);
}

/* Four times the bytes of `v`. */
static inline sb_bytes16 four_times(uint32_t v)
{
    typedef uint32_t words __attribute__((vector_size(16)));

    return (sb_bytes16)(words){v, v, v, v};
}

/* Sixteen bytes, one or two apart; none behind the last is read. */
static inline sb_bytes16 load_apart(const uint8_t *from, int64_t stride)
{
    if (stride == 1)
        return sb_int8_load16(from);
    return SB_INT_MIX(sb_int8_load16(from), sb_int8_load16(from + 15), 0, 2, 4,
                      6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
}

static inline void pack_pixels(const quad_line *l, int64_t at, int64_t n,
                               uint32_t *to)
{
    const sb_bytes16 flip = four_times(l->flip), mask = four_times(l->mask);
    const sb_bytes16 pad = four_times(l->pad & ~l->mask);
    int64_t j = 0, stride = l->stride;

    for (; stride <= 2 && j + 16 <= n; j += 16) {
        int64_t first = at + j * stride;
        sb_bytes16 quads[4];

        sb_int8_interleave(load_apart(l->from[0] + first, stride),
                           load_apart(l->from[1] + first, stride),
                           load_apart(l->from[2] + first, stride),
                           load_apart(l->from[3] + first, stride), quads);
        for (int i = 0; i < 4; i++)
            quads[i] = ((quads[i] ^ flip) & mask) | pad;
        memcpy(to + j, quads, sizeof quads);
    }
    for (; j < n; j++)
        to[j] = quad_of(l, at + j * stride);
}

static void fill_quads(uint32_t *to, int64_t begin, int64_t end, uint32_t with)
{
    for (int64_t j = begin; j < end; j++)
        to[j] = with;
}

/* to[j] = pixels at + j * stride, or what is outside.  Goes on behind the last
 * pixel for the sake of whole vectors, if the image does, too: what is written
 * there is the end of this line or the beginning of the next. */
static inline void pack_line(const quad_line *l, int64_t at, uint32_t *to)
{
    enum { LANE = 16 };
    int64_t n = l->end - l->begin, whole = (n + LANE - 1) / LANE * LANE;

    fill_quads(to, 0, l->begin, l->pad);
    at += l->begin * l->stride;
    if (whole * l->stride <= l->stop - l->from[3] - at)
        n = whole;
    pack_pixels(l, at, n, to + l->begin);
    fill_quads(to, l->end, l->n, l->pad);
}

/* Which j of a line have 0 <= at + j * stride < width. */
static void set_span(quad_line *l, int64_t at, int64_t width)
{
    int64_t begin = at < 0 ? (-at + l->stride - 1) / l->stride : 0;
    int64_t end = at < width ? (width - at + l->stride - 1) / l->stride : 0;

    l->begin = begin < l->n ? begin : l->n;
    l->end = end < l->n ? end : l->n;
    l->end = l->end > l->begin ? l->end : l->begin;
}

/* Row h of four planes, or four rows of one; false if there are none. */
static inline bool set_rows(const sb_int8_conv *c, const quad_line *planes,
                            int64_t h, quad_line *l)
{
    int64_t apart = c->direct->by_rows ? c->dilation[1] : 0, last = -1;

    l->mask = 0;
    for (int i = 0; i < 4; i++)
        if (h + i * apart >= 0 && h + i * apart < c->x[1]) {
            last = h + i * apart;
            l->mask |= 0xFFu << 8 * i;
        }
    for (int i = 0; i < 4; i++)
        l->from[i] = planes->from[i] +
                     (l->mask >> 8 * i & 1 ? h + i * apart : last) * c->x[2];
    return last >= 0;
}

/* All phases of one plane of the image, or four. */
SB_HOT static void pack_plane(const direct_band *b, const quad_line *planes,
                              uint32_t *to)
{
    const sb_int8_conv *c = b->args->c;
    const sb_int8_direct *d = c->direct;
    quad_line l = *planes;

    for (int64_t ph = 0; ph < d->phase_h; ph++)
        for (int64_t pw = 0; pw < d->phase_w; pw++) {
            int64_t at = b->col * c->stride[2] + pw - c->pad[2];

            set_span(&l, at, c->x[2]);
            for (int64_t i = 0; i < d->plane_h; i++, to += d->line) {
                int64_t h = (b->row + i) * c->stride[1] + ph - c->pad[1];

                if (set_rows(c, planes, h, &l))
                    pack_line(&l, at, to);
                else
                    fill_quads(to, 0, d->line, l.pad);
            }
        }
}

/* The band of one group's channels at `x`. */
static void pack_band(const direct_band *b, const uint8_t *x, uint32_t *to)
{
    const sb_int8_conv *c = b->args->c;
    const sb_int8_direct *d = c->direct;
    int64_t plane = c->x[1] * c->x[2], image = c->x[0] * plane;
    int64_t size = d->phase_h * d->phase_w * d->plane_h * d->line;
    const uint32_t four = 0x01010101;
    quad_line planes = {.stop = (const uint8_t *)b->args->x +
                                c->n_batch * c->group * c->c_in * image,
                        .flip = c->x_signed ? SB_INT_FLIP * four : 0,
                        .pad = (uint32_t)b->args->x_zero * four,
                        .stride = c->stride[2],
                        .n = d->line};

    for (int64_t i = 0; i < c->c_in; i += 4)
        for (int64_t kd = 0; kd < c->kernel[0]; kd++, to += size) {
            int64_t z =
                b->depth * c->stride[0] - c->pad[0] + kd * c->dilation[0];

            if (z < 0 || z >= c->x[0]) {
                fill_quads(to, 0, size, planes.pad);
                continue;
            }
            /* Channels that are not there have no weights either. */
            for (int64_t q = 0; q < 4; q++)
                planes.from[q] =
                    x + int8_conv_direct_least(i + q, c->c_in - 1) * image +
                    z * plane;
            pack_plane(b, &planes, to);
        }
    memset(to, 0, COLS * sizeof *to);
}

/* ---- running ------------------------------------------------------------ */

/* Positions [first, first + COLS) of output channel `m` of the group: those
 * that are pixels go to y, row by row. */
SB_HOT static void store(const direct_band *b, int64_t m, int64_t first,
                         const int32_t *acc)
{
    const sb_int8_conv *c = b->args->c;
    const sb_int8_conv_end *e = b->args->end;
    int64_t line = c->direct->line;
    size_t size = e->dtype == SB_DTYPE_I32 ? sizeof *acc : 1;
    uint8_t bytes[COLS];
    const char *from = (const char *)acc;
    char *y = b->y + (size_t)(m * c->n_pixel) * size;

    if (e->dtype != SB_DTYPE_I32) {
        sb_int8_conv_requantize(e, b->channel + m, acc, COLS, bytes);
        from = (const char *)bytes;
    }
    for (int64_t row = first / line; row < b->rows; row++) {
        int64_t begin = row * line, end = begin + b->cols;

        if (begin >= first + COLS)
            break;
        begin = begin > first ? begin : first;
        end = end < first + COLS ? end : first + COLS;
        if (begin < end)
            memcpy(y + (size_t)(row * c->y[2] + begin - row * line) * size,
                   from + (size_t)(begin - first) * size,
                   (size_t)(end - begin) * size);
    }
}

/* acc[j] -= zero * sum[j] */
SB_HOT static void subtract(int32_t *acc, uint32_t zero, const int32_t *sum)
{
    SB_SIMD
    for (int64_t j = 0; j < COLS; j++)
        acc[j] = (int32_t)((uint32_t)acc[j] - zero * (uint32_t)sum[j]);
}

static void run_band(const direct_band *b, const uint8_t *packed,
                     const uint8_t *x)
{
    const sb_int8_conv *c = b->args->c;
    const sb_int8_direct *d = c->direct;
    const group_weights w = weights_at(c, packed);
    const int32_t none = 0;
    int64_t n_position = (b->rows - 1) * d->line + b->cols;
    int32_t acc[SB_INT_TILE_ROWS * COLS], sum[COLS];

    for (int64_t first = 0; first < n_position; first += COLS) {
        int64_t cols = n_position - first < COLS ? n_position - first : COLS;

        if (b->args->w_zeros)
            sb_int8_tile_choose(1)(w.ones, x + 4 * first, d->offset, d->n_unit,
                                   &none, cols, sum);
        for (int64_t m = b->begin; m < b->end; m += d->block) {
            int64_t n = b->end - m < d->block ? b->end - m : d->block;
            int32_t init[SB_INT_TILE_ROWS] = {0};

            for (int64_t r = 0; r < n; r++)
                init[r] = (int32_t) -
                          ((uint32_t)b->args->x_zero * (uint32_t)w.sum[m + r]);
            b->tile(w.blocks + m / d->block * block_size(d), x + 4 * first,
                    d->offset, d->n_unit, init, cols, acc);
            for (int64_t r = 0; r < n; r++) {
                if (b->args->w_zeros)
                    subtract(acc + r * COLS, (uint32_t)w.zero[m + r], sum);
                store(b, m + r, first, acc + r * COLS);
            }
        }
    }
}

/* The next digit of a number in mixed bases. */
static int64_t int8_conv_direct_take(int64_t *rest, int64_t base)
{
    int64_t digit = *rest % base;

    *rest /= base;
    return digit;
}

static void run_item(void *arg, size_t lane, size_t item)
{
    const sb_int8_direct_args *a = arg;
    const sb_int8_conv *c = a->c;
    const sb_int8_direct *d = c->direct;
    int64_t rest = (int64_t)item, first,
            n_block = int8_conv_direct_blocks(c, d);
    size_t size = a->end->dtype == SB_DTYPE_I32 ? sizeof(int32_t) : 1;
    uint8_t *packed = (uint8_t *)a->scratch + lane * lane_bytes(d);
    direct_band b = {.args = a, .tile = sb_int8_tile_choose(d->block)};

    b.col = int8_conv_direct_take(&rest, d->n_strip) * d->cols;
    b.cols = int8_conv_direct_least(c->y[2] - b.col, d->cols);
    b.row = int8_conv_direct_take(&rest, d->n_band) * d->rows;
    b.rows = int8_conv_direct_least(c->y[1] - b.row, d->rows);
    first = int8_conv_direct_take(&rest, d->parts);
    b.begin = first * n_block / d->parts * d->block;
    b.end = int8_conv_direct_least((first + 1) * n_block / d->parts * d->block,
                                   c->c_out);
    b.depth = int8_conv_direct_take(&rest, c->y[0]);
    first =
        int8_conv_direct_take(&rest, (c->group + d->groups - 1) / d->groups) *
        d->groups;
    for (int64_t g = first;
         g < int8_conv_direct_least(first + d->groups, c->group); g++) {
        int64_t group = rest * c->group + g; /* rest: the image */
        int64_t at = (b.depth * c->y[1] + b.row) * c->y[2] + b.col;

        b.channel = g * c->c_out;
        b.y = (char *)a->end->y +
              (size_t)(group * c->c_out * c->n_pixel + at) * size;
        pack_band(&b,
                  (const uint8_t *)a->x +
                      group * c->c_in * c->x[0] * c->x[1] * c->x[2],
                  (uint32_t *)(void *)packed);
        run_band(&b, a->w + g * sb_int8_direct_group_size(c), packed);
    }
}

void sb_int8_direct_run(sb_ctx *ctx, const sb_int8_direct_args *args)
{
    const sb_int8_conv *c = args->c;
    const sb_int8_direct *d = c->direct;
    int64_t chunks = (c->group + d->groups - 1) / d->groups;
    sb_int8_direct_args a = *args;

    sb_parallel_lanes(ctx,
                      (size_t)(c->n_batch * chunks * c->y[0] * d->parts *
                               d->n_band * d->n_strip),
                      d->lanes, run_item, &a);
}
