/* Convolution of 8-bit tensors; see int8_conv.h.
 *
 * The image is gathered (im2col) into panels of 64 output pixels, and each
 * panel is multiplied with all weights of its group at once.  Only a wave of
 * panels exists at a time, so memory does not grow with the image.  Items
 * (image, group, panel) are independent.  That is for dense 1x1 windows, and
 * for what int8_conv_direct.c has no room for, in NCHW order; images with
 * channels last are for int8_conv_last.c. */
#include "ops/int8/int8_conv_direct.h"
#include "ops/int8/int8_conv_last.h"

#include <string.h>

#include "base/simd.h"
#include "base/threads.h"

/* ---- preparing ---------------------------------------------------------- */

static void set_axis(sb_int8_conv *c, int at, int64_t x,
                     const sb_axis_window *w)
{
    c->x[at] = x;
    c->kernel[at] = w->kernel;
    c->stride[at] = w->stride;
    c->dilation[at] = w->dilation;
    c->pad[at] = w->pad;
    c->y[at] = w->out;
}

/* A dense 1x1 convolution without stride or padding sees one long row. */
static void flatten_pointwise(sb_int8_conv *c)
{
    if (c->group > 1)
        return;
    for (int d = 0; d < 3; d++)
        if (c->kernel[d] != 1 || c->stride[d] != 1 || c->x[d] != c->y[d])
            return;
    c->x[2] = c->y[2] = c->x[0] * c->x[1] * c->x[2];
    c->x[0] = c->x[1] = c->y[0] = c->y[1] = 1;
}

static sb_status set_geometry(sb_kernel *k, sb_int8_conv *c)
{
    const sb_int8_conv_attrs *a = k->attrs;
    const sb_tensor *x = k->in[c->in.x], *w = k->in[c->in.w];
    int n = x->rank - 2;

    if (n < 1 || n > 3)
        return sb_kernel_fail(k, SB_UNSUPPORTED,
                              "input has rank %d, want 3 "
                              "to 5",
                              x->rank);
    if (a->group < 1 || w->dims[0] % a->group != 0 ||
        w->dims[1] > INT64_MAX / a->group ||
        x->dims[1] != w->dims[1] * a->group)
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "%lld input and %lld output channels do not fit "
                              "weight with %lld channels in %lld groups",
                              (long long)x->dims[1], (long long)w->dims[0],
                              (long long)w->dims[1], (long long)a->group);
    c->n_batch = x->dims[0];
    c->group = a->group;
    c->c_in = w->dims[1];
    c->c_out = w->dims[0] / a->group;
    c->k = c->c_in;
    for (int d = 0; d < 3 - n; d++)
        set_axis(c, d, 1, &(sb_axis_window){1, 1, 1, 0, 1, false});
    for (int d = 0; d < n; d++) {
        sb_axis_window win = {.kernel = w->dims[d + 2]};
        const char *wrong =
            sb_int8_axis_window(a, (size_t)n, (size_t)d, x->dims[d + 2], &win);

        if (wrong)
            return sb_kernel_fail(k, SB_BAD_MODEL, "%s", wrong);
        set_axis(c, d + 3 - n, x->dims[d + 2], &win);
        c->k *= win.kernel;
    }
    flatten_pointwise(c);
    c->n_pixel = c->y[0] * c->y[1] * c->y[2];
    return SB_OK;
}

/* The zero point of x is one; that of w is one or one per output channel. */
static sb_status check_zeros(const sb_kernel *k, sb_int8_conv *c)
{
    const sb_tensor *xz = sb_kernel_in(k, c->in.x_zero);
    const sb_tensor *wz = sb_kernel_in(k, c->in.w_zero);

    c->n_w_zero = wz ? sb_tensor_count(wz) : 1;
    if (xz && (xz->dtype != k->in[c->in.x]->dtype || sb_tensor_count(xz) != 1))
        return sb_kernel_fail(k, SB_BAD_MODEL, "zero point of x must be one %s",
                              sb_dtype_name(k->in[c->in.x]->dtype));
    if (wz && (wz->dtype != k->in[c->in.w]->dtype ||
               (c->n_w_zero != 1 && c->n_w_zero != c->group * c->c_out)))
        return sb_kernel_fail(k, SB_BAD_MODEL,
                              "zero point of w must be one %s or %lld",
                              sb_dtype_name(k->in[c->in.w]->dtype),
                              (long long)(c->group * c->c_out));
    return SB_OK;
}

/* Bytes of all packed weights of one group. */
static int64_t group_size(const sb_int8_conv *c)
{
    if (c->direct)
        return sb_int8_direct_group_size(c);
    return sb_int8_blocks(c->c_out) * sb_int8_block_size(c->k);
}

static void load_zeros(const sb_kernel *k, const sb_int8_conv *c, int32_t *zero)
{
    const sb_tensor *z = sb_kernel_in(k, c->in.w_zero);

    for (int64_t m = 0; m < c->group * c->c_out; m++)
        zero[m] = z ? sb_byte_at(z, c->n_w_zero > 1 ? m : 0) : 0;
}

/* Have signed weights zero points, or unsigned ones any but 128? */
static bool has_w_zeros(const sb_kernel *k, const sb_int8_conv *c)
{
    const sb_tensor *z = sb_kernel_in(k, c->in.w_zero);
    const int32_t none = c->w_signed ? 0 : SB_INT_FLIP;

    for (int64_t i = 0; z && i < c->n_w_zero; i++)
        if (sb_byte_at(z, i) != none)
            return true;
    return !z && !c->w_signed;
}

static void pack_weights(const sb_int8_conv *c, const void *w,
                         const int32_t *zero, uint8_t *out)
{
    int64_t n_block = sb_int8_blocks(c->c_out);

    if (c->last) {
        sb_int8_last_pack(c, w, out);
        return;
    }
    for (int64_t g = 0; g < c->group; g++) {
        const sb_bytes_view view = {
            .data = (const char *)w + g * c->c_out * c->k,
            .row = c->k,
            .col = 1,
            .is_signed = c->w_signed,
        };

        if (c->direct)
            sb_int8_direct_pack(c, view.data, zero + g * c->c_out,
                                out + g * group_size(c));
        for (int64_t b = 0; b < n_block && !c->direct; b++)
            sb_int8_pack_block(view, c->c_out, c->k, b, zero + g * c->c_out, 1,
                               out + g * group_size(c) +
                                   b * sb_int8_block_size(c->k));
    }
}

/* What packed weights depend on; zero points follow. */
typedef struct packed_form {
    char kind[8];
    int64_t group, c_in, c_out, kernel[3], group_size, block;
    int64_t is_signed, by_rows, last, n_run;
    int32_t zero[];
} packed_form;

static sb_status pack_constant(sb_kernel *k, sb_int8_conv *c, size_t w_bytes)
{
    const sb_tensor *w = k->in[c->in.w], *z = sb_kernel_in(k, c->in.w_zero);
    size_t zeros = (size_t)(c->group * c->c_out) * sizeof(int32_t);

    if (!w->data || (z && !z->data))
        return SB_OK;
    packed_form *form = sb_alloc(k->ctx, sizeof *form + zeros, 1);
    if (!form)
        return SB_NO_MEMORY;
    *form = (packed_form){"int8",
                          c->group,
                          c->c_in,
                          c->c_out,
                          {c->kernel[0], c->kernel[1], c->kernel[2]},
                          c->last ? 0 : group_size(c),
                          c->direct ? c->direct->block : 0,
                          c->w_signed,
                          c->direct && c->direct->by_rows,
                          c->last != NULL,
                          c->last ? c->last->n_run : 0};
    load_zeros(k, c, form->zero);
    sb_pack_form want = {
        .bytes = w_bytes, .form = form, .form_size = sizeof *form + zeros};
    sb_pack *pack = NULL;
    sb_status status = k->host->pack(k, c->in.w, &want, &pack);
    if (status == SB_OK) {
        if (!pack->current || pack->version != *pack->current)
            pack_weights(c, w->data, form->zero, pack->data);
        pack->version = pack->current ? *pack->current : 0;
        c->packed = pack->data;
        k->packed |= 1u << c->in.w;
    }
    sb_free(k->ctx, form);
    return status;
}

static bool int8_conv_reserve(sb_int8_conv *c, size_t bytes, size_t *at)
{
    size_t end = 0;

    *at = c->scratch;
    if (!sb_add_size(c->scratch, bytes, &end) ||
        !sb_add_size(end, SB_ALIGN - 1, &end))
        return false;
    c->scratch = end / SB_ALIGN * SB_ALIGN;
    return true;
}

static sb_status int8_conv_fill_last(sb_kernel *k, sb_int8_conv *c)
{
    size_t weights = 0, scratch = 0;

    SB_TRY(sb_int8_last_create(k->ctx, c));
    if (!sb_int8_last_sizes(c, &weights, &scratch) ||
        !int8_conv_reserve(c, scratch, &c->at_panel))
        return sb_kernel_fail(k, SB_BAD_MODEL, "image is too large");
    return pack_constant(k, c, weights);
}

static sb_status int8_conv_fill(sb_kernel *k, sb_int8_conv *c)
{
    SB_TRY(sb_byte_check(k, c->in.x));
    SB_TRY(sb_byte_check(k, c->in.w));
    c->x_signed = k->in[c->in.x]->dtype == SB_DTYPE_I8;
    c->w_signed = k->in[c->in.w]->dtype == SB_DTYPE_I8;
    SB_TRY(set_geometry(k, c));
    SB_TRY(check_zeros(k, c));
    if (k->in[c->in.x]->layout == SB_LAYOUT_CHANNELS_LAST)
        return int8_conv_fill_last(k, c);
    SB_TRY(sb_int8_direct_create(k->ctx, c));

    /* The weights exist as bytes, so these sizes are far from overflow. */
    size_t panel = (size_t)sb_int8_panel_size(c->k);
    size_t w_bytes = 0, panels = 0;
    int64_t items = c->n_batch * c->group * sb_int8_panels(c->n_pixel);
    enum { WAVE_BYTES = 4 << 20, WAVE_MIN = 8, WAVE_MAX = 64 };
    c->wave = WAVE_BYTES / (int64_t)(panel + 1);
    c->wave = c->wave < WAVE_MIN ? WAVE_MIN : c->wave;
    c->wave = c->wave > WAVE_MAX ? WAVE_MAX : c->wave;
    c->wave = c->wave < items ? c->wave : items;
    if (!sb_mul_size((size_t)group_size(c), (size_t)c->group, &w_bytes) ||
        !(c->direct ? sb_int8_direct_scratch(c, &panels)
                    : sb_mul_size(panel, (size_t)c->wave, &panels)))
        return sb_kernel_fail(k, SB_BAD_MODEL, "weights are too large");
    SB_TRY(pack_constant(k, c, w_bytes));
    if (!int8_conv_reserve(c, (size_t)(c->group * c->c_out) * sizeof(int32_t),
                           &c->at_zero) ||
        !int8_conv_reserve(c, c->packed ? 0 : w_bytes, &c->at_w) ||
        !int8_conv_reserve(c, panels, &c->at_panel))
        return sb_kernel_fail(k, SB_BAD_MODEL, "weights are too large");
    return SB_OK;
}

sb_status sb_int8_conv_create(sb_kernel *k, const sb_int8_conv_inputs *which,
                              sb_int8_conv **out)
{
    sb_int8_conv *c = sb_alloc(k->ctx, 1, sizeof *c);

    if (!c)
        return SB_NO_MEMORY;
    c->in = *which;
    sb_status status = int8_conv_fill(k, c);
    if (status != SB_OK) {
        sb_free(k->ctx, c->direct);
        sb_free(k->ctx, c->last);
        sb_free(k->ctx, c);
        return status;
    }
    *out = c;
    return SB_OK;
}

void sb_int8_conv_release(sb_kernel *k)
{
    sb_int8_conv *c = k->state;

    if (c) {
        sb_free(k->ctx, c->direct);
        sb_free(k->ctx, c->last);
    }
    sb_free(k->ctx, c);
    k->state = NULL;
}

double sb_int8_conv_macs(const sb_kernel *k, const sb_int8_conv_inputs *which)
{
    const sb_tensor *w = k->in[which->w];

    return (double)sb_tensor_count(k->out[0]) *
           (double)sb_dims_product(w->dims, 1, w->rank);
}

/* ---- gathering ---------------------------------------------------------- */

typedef struct conv_run {
    const sb_int8_conv *c;
    const sb_int8_conv_end *end;
    const void *x;
    int32_t x_zero; /* of pixels as unsigned elements; also outside */
    uint8_t flip;   /* what makes them so */
    bool w_zeros;   /* weights, as signed elements, have zero points */
    const uint8_t *w;
    uint8_t *panels;
    int64_t first; /* item in slot 0 of the wave */
} conv_run;

/* Up to 64 neighboring pixels of one output row. */
typedef struct pixel_row {
    int64_t at; /* place in the panel */
    int64_t count;
    int64_t d, h, w; /* output coordinates of the first one */
} pixel_row;

/* Cuts pixels [first, first + n) into rows; returns how many. */
static int cut_rows(const sb_int8_conv *c, int64_t first, int64_t n,
                    pixel_row *rows)
{
    int n_row = 0;

    for (int64_t at = 0; at < n;) {
        int64_t p = first + at;
        pixel_row *r = &rows[n_row++];

        r->at = at;
        r->w = p % c->y[2];
        r->h = p / c->y[2] % c->y[1];
        r->d = p / c->y[2] / c->y[1];
        r->count = c->y[2] - r->w < n - at ? c->y[2] - r->w : n - at;
        at += r->count;
    }
    return n_row;
}

/* How many steps reach `x` > 0; division is slow. */
static int64_t steps_to(int64_t x, int64_t step)
{
    return step == 1 ? x : step == 2 ? (x + 1) >> 1 : (x + step - 1) / step;
}

/* One kernel tap over one row of pixels, as unsigned elements. */
SB_HOT static void gather_row(const conv_run *run, const uint8_t *row,
                              int64_t ix, int64_t count, uint8_t *to)
{
    const uint8_t flip = run->flip;
    int64_t stride = run->c->stride[2], width = run->c->x[2];
    /* Pixels whose input column ix + j * stride lies in [0, width). */
    int64_t begin = ix < 0 ? steps_to(-ix, stride) : 0;
    int64_t end = ix < width ? steps_to(width - ix, stride) : 0;

    begin = begin < count ? begin : count;
    end = end < count ? end : count;
    end = end > begin ? end : begin;
    for (int64_t j = 0; j < begin; j++)
        to[j] = (uint8_t)run->x_zero;
    if (stride == 1) {
        SB_SIMD
        for (int64_t j = begin; j < end; j++)
            to[j] = row[ix + j] ^ flip;
    } else {
        for (int64_t j = begin; j < end; j++)
            to[j] = row[ix + j * stride] ^ flip;
    }
    for (int64_t j = end; j < count; j++)
        to[j] = (uint8_t)run->x_zero;
}

/* One tap (kd, kh, kw) of channel image `x` over all rows of a panel. */
static void gather_tap(const conv_run *run, const uint8_t *x,
                       const int64_t tap[3], const pixel_row *rows, int n_row,
                       uint8_t *to)
{
    const sb_int8_conv *c = run->c;

    for (int i = 0; i < n_row; i++) {
        const pixel_row *r = &rows[i];
        int64_t d = r->d * c->stride[0] - c->pad[0] + tap[0] * c->dilation[0];
        int64_t h = r->h * c->stride[1] - c->pad[1] + tap[1] * c->dilation[1];
        int64_t w = r->w * c->stride[2] - c->pad[2] + tap[2] * c->dilation[2];

        if (d < 0 || d >= c->x[0] || h < 0 || h >= c->x[1])
            memset(to + r->at, run->x_zero, (size_t)r->count);
        else
            gather_row(run, x + (d * c->x[1] + h) * c->x[2], w, r->count,
                       to + r->at);
    }
}

/* Moves to the next tap; false after the last one of a channel. */
static bool next_tap(const sb_int8_conv *c, int64_t tap[3])
{
    for (int d = 2; d >= 0; d--) {
        if (++tap[d] < c->kernel[d])
            return true;
        tap[d] = 0;
    }
    return false;
}

/* The panel of `n` pixels from `first` on, of channels `x` of one group. */
static void gather_panel(const conv_run *run, const uint8_t *x, int64_t first,
                         int64_t n, uint8_t *panel)
{
    const sb_int8_conv *c = run->c;
    int64_t image = c->x[0] * c->x[1] * c->x[2], tap[3] = {0};
    pixel_row rows[SB_INT_NR];
    int n_row = cut_rows(c, first, n, rows);
    uint8_t quad[4][SB_INT_NR] = {{0}};

    for (int64_t p = 0; p < c->k; p++) {
        gather_tap(run, x, tap, rows, n_row, quad[p % 4]);
        if (p == c->k - 1) /* what stands behind counts in sums */
            for (int64_t i = p % 4 + 1; i < 4; i++)
                memset(quad[i], 0, sizeof quad[i]);
        if (p % 4 == 3 || p == c->k - 1)
            sb_int8_pack_rows((const uint8_t(*)[SB_INT_NR])quad,
                              panel + p / 4 * 4 * SB_INT_NR);
        if (!next_tap(c, tap))
            x += image;
    }
    sb_int8_end_panel(panel, c->k, run->x_zero, run->w_zeros);
}

/* ---- running ------------------------------------------------------------ */

typedef struct conv_tile {
    const sb_int8_conv_end *end;
    int64_t channel; /* first output channel of the group */
    int64_t at;      /* where channel 0 of the group starts in y */
    int64_t n_pixel;
} conv_tile;

SB_HOT static void end_tile(const void *arg, const sb_int8_tile *t)
{
    const conv_tile *ct = arg;
    const sb_int8_conv_end *e = ct->end;

    for (int64_t i = 0; i < t->n_row; i++) {
        const int32_t *acc = t->acc + i * SB_INT_NR;
        int64_t m = ct->channel + t->row + i;
        int64_t at = ct->at + (t->row + i) * ct->n_pixel + t->col;

        if (e->dtype == SB_DTYPE_I32) {
            memcpy((int32_t *)e->y + at, acc, (size_t)t->n_col * sizeof *acc);
            continue;
        }
        if (t->n_col == SB_INT_NR) /* known length: plain vectors */
            sb_int8_conv_requantize(e, m, acc, SB_INT_NR, (uint8_t *)e->y + at);
        else
            sb_int8_conv_requantize(e, m, acc, t->n_col, (uint8_t *)e->y + at);
    }
}

static void conv_items(void *arg, size_t begin, size_t end)
{
    const conv_run *run = arg;
    const sb_int8_conv *c = run->c;
    int64_t n_panel = sb_int8_panels(c->n_pixel);
    int64_t x_image = c->c_in * c->x[0] * c->x[1] * c->x[2];

    for (size_t slot = begin; slot < end; slot++) {
        int64_t item = run->first + (int64_t)slot;
        int64_t first = item % n_panel * SB_INT_NR;
        int64_t n = c->n_pixel - first, group = item / n_panel; /* and image */
        int64_t g = group % c->group;
        uint8_t *panel = run->panels + (int64_t)slot * sb_int8_panel_size(c->k);
        const conv_tile tile = {
            .end = run->end,
            .channel = g * c->c_out,
            .at = group * c->c_out * c->n_pixel,
            .n_pixel = c->n_pixel,
        };

        n = n < SB_INT_NR ? n : SB_INT_NR;
        gather_panel(run, (const uint8_t *)run->x + group * x_image, first, n,
                     panel);
        sb_int8_gemm_panel(run->w + g * group_size(c), c->c_out, c->k, panel,
                           first, n, end_tile, &tile);
    }
}

void sb_int8_conv_run(const sb_kernel *k, const sb_int8_conv *c,
                      const sb_int8_conv_end *end)
{
    char *scratch = k->scratch;
    const sb_tensor *xz = sb_kernel_in(k, c->in.x_zero);
    int64_t n_item = c->n_batch * c->group * sb_int8_panels(c->n_pixel);
    conv_run run = {
        .c = c,
        .end = end,
        .x = k->in[c->in.x]->data,
        .flip = c->x_signed ? SB_INT_FLIP : 0,
        .w_zeros = has_w_zeros(k, c),
        .w = c->packed,
        .panels = (uint8_t *)scratch + c->at_panel,
    };

    run.x_zero = (xz ? sb_byte_at(xz, 0) : 0) + run.flip;

    if (!c->packed) {
        int32_t *zero = (int32_t *)(void *)(scratch + c->at_zero);
        uint8_t *w = (uint8_t *)scratch + c->at_w;

        load_zeros(k, c, zero);
        pack_weights(c, k->in[c->in.w]->data, zero, w);
        run.w = w;
    }
    if (c->direct || c->last) {
        const sb_int8_direct_args args = {
            .c = c,
            .end = end,
            .x = run.x,
            .x_zero = run.x_zero,
            .w_zeros = run.w_zeros,
            .w = run.w,
            .scratch = scratch + c->at_panel,
        };

        (c->last ? sb_int8_last_run : sb_int8_direct_run)(k->ctx, &args);
        return;
    }
    for (; run.first < n_item; run.first += c->wave) {
        int64_t left = n_item - run.first;

        sb_parallel_for(k->ctx, (size_t)(left < c->wave ? left : c->wave), 1,
                        conv_items, &run);
    }
}
