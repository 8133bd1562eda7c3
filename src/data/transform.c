/* Pictures to numbers.
 *
 * A byte has 256 values, so scale, mean and deviation are a table of 256
 * floats a channel, computed in the order and precision of torchvision:
 * (x / SCALE - MEAN) / STD, each step rounded to float. */
#include "data/transform.h"

#include <math.h>

#define KEY(field) offsetof(sb_transform_keys, field)

static const char *const interpolations[] = {"nearest", "bilinear", "bicubic",
                                             NULL};
static const char *const colours[] = {"RGB", "BGR", "GRAY", NULL};
static const char *const layouts[] = {"NCHW", "NHWC", NULL};

/* clang-format off */
const sb_param_def sb_transform_table[] = {
    {.name = "RESIZE", .type = SB_PARAM_INTS, .offset = KEY(resize),
     .min = 1, .max = 65536, .n_min = 1, .n_max = 2,
     .help = "new length of the short side, or [height, width]",
     .values = "a length, or [height, width], of 1..65536"},
    {.name = "INTERPOLATION", .type = SB_PARAM_ENUM, .offset = KEY(interpolation),
     .preset = "bilinear", .names = interpolations,
     .help = "how RESIZE computes pixels; all but nearest with antialias"},
    {.name = "CROP", .type = SB_PARAM_INTS, .offset = KEY(crop),
     .min = 1, .max = 65536, .n_min = 1, .n_max = 2,
     .help = "the middle of that size, or of [height, width], is kept",
     .values = "a length, or [height, width], of 1..65536"},
    {.name = "COLOR", .type = SB_PARAM_ENUM, .offset = KEY(colour), .names = colours,
     .help = "order of the channels (default: RGB, or GRAY if the source has one channel)"},
    {.name = "SCALE", .type = SB_PARAM_FLOAT, .offset = KEY(scale), .preset = "1",
     .min = 1e-6, .max = 1e6,
     .help = "pixels 0..255 are divided by this first"},
    {.name = "MEAN", .type = SB_PARAM_FLOATS, .offset = KEY(mean), .n_min = 1, .n_max = 3,
     .help = "then this is subtracted: one number, or one a channel in the order of COLOR"},
    {.name = "STD", .type = SB_PARAM_FLOATS, .offset = KEY(deviation), .n_min = 1, .n_max = 3,
     .help = "then they are divided by this"},
    {.name = "LAYOUT", .type = SB_PARAM_ENUM, .offset = KEY(layout),
     .preset = "NCHW", .names = layouts,
     .help = "order of the axes that the model wants"},
    {0},
};
/* clang-format on */

static const sb_yaml *key_node(const sb_yaml_doc *doc, const char *key)
{
    return sb_yaml_get(doc->root, key);
}

/* One number a channel from one for all, or from as many as there are. */
static sb_status spread(const sb_yaml_doc *doc, const char *key,
                        const sb_param_floats *from, int channels,
                        double preset, float out[3])
{
    if (from->n > 1 && from->n != (size_t)channels)
        return sb_yaml_fail(doc, key_node(doc, key),
                            "%s: found %zu numbers, want 1%s for COLOR %s", key,
                            from->n, channels == 3 ? " or 3" : "",
                            channels == 3 ? "RGB or BGR" : "GRAY");
    for (int c = 0; c < 3; c++) {
        size_t i = from->n > 1 && c < channels ? (size_t)c : 0;

        out[c] = (float)(from->n ? from->v[i] : preset);
        if (!isfinite(out[c]))
            return sb_yaml_fail(doc, key_node(doc, key),
                                "%s: found a number beyond the range of float",
                                key);
    }
    return SB_OK;
}

static sb_status fill_tables(const sb_yaml_doc *doc,
                             const sb_transform_keys *keys, sb_transform *t)
{
    float mean[3], deviation[3], scale = (float)keys->scale;

    SB_TRY(spread(doc, "MEAN", &keys->mean, t->channels, 0, mean));
    SB_TRY(spread(doc, "STD", &keys->deviation, t->channels, 1, deviation));
    for (int c = 0; c < 3; c++) {
        if (deviation[c] == 0)
            return sb_yaml_fail(doc, key_node(doc, "STD"),
                                "STD: found 0, want another number");
        for (int v = 0; v < 256; v++) {
            float x = (float)v / scale;

            x -= mean[c];
            t->table[c][v] = x / deviation[c];
        }
    }
    return SB_OK;
}

sb_status sb_transform_init(const sb_yaml_doc *doc,
                            const sb_transform_keys *keys, sb_colour native,
                            sb_transform *out)
{
    *out = (sb_transform){.how = (sb_interpolation)keys->interpolation,
                          .colour = keys->colour < 0 ? native
                                                     : (sb_colour)keys->colour,
                          .channels_last = keys->layout == 1};
    out->channels = out->colour == SB_GRAY ? 1 : 3;
    if (keys->resize.n) {
        out->resize[0] = keys->resize.v[0];
        out->resize[1] = keys->resize.n > 1 ? keys->resize.v[1] : 0;
    }
    if (keys->crop.n) {
        out->crop[0] = keys->crop.v[0];
        out->crop[1] = keys->crop.v[keys->crop.n - 1];
    }
    return fill_tables(doc, keys, out);
}

/* ---- one picture --------------------------------------------------------- */

/* Half of an odd number goes to the even neighbour, as in Python's round. */
static int half(int n)
{
    return n % 2 == 0 ? n / 2 : n / 2 + (n / 2) % 2;
}

/* The size after RESIZE, and the part of it that CROP leaves. */
static sb_status measure(const sb_transform *t, sb_ctx *ctx, const char *what,
                         const sb_image *image, int64_t *width, int64_t *height,
                         sb_window *win)
{
    int64_t w = image->width, h = image->height;

    if (t->resize[1] > 0) {
        *height = t->resize[0];
        *width = t->resize[1];
    } else if (t->resize[0] > 0) {
        *width = w <= h ? t->resize[0] : t->resize[0] * w / h;
        *height = w <= h ? t->resize[0] * h / w : t->resize[0];
    } else {
        *width = w;
        *height = h;
    }
    *win = (sb_window){0, 0, (int)*width, (int)*height};
    if (t->crop[0] > 0) {
        if (*width < t->crop[1] || *height < t->crop[0])
            return sb_fail(ctx, SB_BAD_DATA,
                           "%s: %lld x %lld pixels%s, CROP wants %lld x %lld",
                           what, (long long)*width, (long long)*height,
                           t->resize[0] > 0 ? " after RESIZE" : "",
                           (long long)t->crop[1], (long long)t->crop[0]);
        *win = (sb_window){half((int)(*width - t->crop[1])),
                           half((int)(*height - t->crop[0])), (int)t->crop[1],
                           (int)t->crop[0]};
    }
    return sb_image_check(ctx, what, (uint64_t)win->width,
                          (uint64_t)win->height);
}

static sb_status room_for(const sb_transform *t, sb_ctx *ctx,
                          const sb_window *win, sb_pixels *out)
{
    size_t n = (size_t)win->width * (size_t)win->height * (size_t)t->channels;

    if (t->channels_last) {
        out->dims[0] = win->height;
        out->dims[1] = win->width;
        out->dims[2] = t->channels;
    } else {
        out->dims[0] = t->channels;
        out->dims[1] = win->height;
        out->dims[2] = win->width;
    }
    if (n <= out->cap)
        return SB_OK;
    sb_free(ctx, out->data);
    out->cap = 0;
    out->data = sb_alloc_raw(ctx, n, sizeof *out->data);
    if (!out->data)
        return SB_NO_MEMORY;
    out->cap = n;
    return SB_OK;
}

/* The window at (x, y) of the picture through the tables. */
static void look_up(const sb_transform *t, const sb_image *image,
                    const sb_window *win, float *out)
{
    size_t c = (size_t)t->channels;
    size_t plane = (size_t)win->width * (size_t)win->height;
    size_t step = t->channels_last ? c : 1;

    for (size_t k = 0; k < c; k++) {
        size_t from = t->colour == SB_BGR ? 2 - k : k;
        const float *table = t->table[k];
        float *to = out + (t->channels_last ? k : k * plane);

        for (int y = 0; y < win->height; y++) {
            const uint8_t *row =
                image->data +
                ((size_t)(win->y + y) * (size_t)image->width + (size_t)win->x) *
                    c +
                from;

            for (int x = 0; x < win->width; x++, row += c, to += step)
                *to = table[*row];
        }
    }
}

static sb_status apply(const sb_transform *t, sb_ctx *ctx, const char *what,
                       sb_image *image, sb_pixels *out)
{
    int64_t width, height;
    sb_window win;

    SB_TRY(measure(t, ctx, what, image, &width, &height, &win));
    SB_TRY(sb_image_set_channels(ctx, image, t->channels));
    if (width != image->width || height != image->height) {
        sb_image small = {0};

        SB_TRY(sb_image_resize(ctx, image, (int)width, (int)height, t->how,
                               &win, &small));
        sb_image_free(ctx, image);
        *image = small;
        win.x = win.y = 0;
    }
    SB_TRY(room_for(t, ctx, &win, out));
    look_up(t, image, &win, out->data);
    return SB_OK;
}

sb_status sb_transform_apply(const sb_transform *t, sb_ctx *ctx,
                             const char *what, sb_image *image, sb_pixels *out)
{
    sb_status status = apply(t, ctx, what, image, out);

    sb_image_free(ctx, image);
    return status;
}
