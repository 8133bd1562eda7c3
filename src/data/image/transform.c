/* Images to numbers.
 *
 * A byte has 256 values, so scale, mean and deviation are a table of 256
 * floats a channel, computed in the order and precision of torchvision:
 * (x / SCALE - MEAN) / STD, each step rounded to float. */
#include "data/image/transform.h"

#include <math.h>
#include <string.h>

#define KEY(field) offsetof(sb_transform_keys, field)

static const char *const interpolations[] = {"nearest", "bilinear", "bicubic",
                                             NULL};
static const char *const colors[] = {"RGB",  "BGR",  "GRAY",
                                     "RGBA", "BGRA", NULL};
static const char *const positions[] = {"center", "top_left", NULL};
static const char *const layouts[] = {"NCHW", "NHWC", NULL};

/* clang-format off */
const sb_param_def sb_transform_table[] = {
    {.name = "RESIZE", .type = SB_PARAM_INTS, .offset = KEY(resize),
     .min = 1, .max = 65536, .n_min = 1, .n_max = 2,
     .help = "new length of the short side, or [height, width]",
     .values = "a length, or [height, width], of 1..65536"},
    {.name = "LETTERBOX", .type = SB_PARAM_INTS, .offset = KEY(letterbox),
     .min = 1, .max = 65536, .n_min = 1, .n_max = 2,
     .help = "instead of RESIZE: to fit into this size, or [height, width], keeping the ratio; the rest is PAD_VALUE",
     .values = "a length, or [height, width], of 1..65536"},
    {.name = "INTERPOLATION", .type = SB_PARAM_ENUM, .offset = KEY(interpolation),
     .preset = "bilinear", .names = interpolations,
     .help = "how RESIZE computes pixels; all but nearest with antialias"},
    {.name = "CROP", .type = SB_PARAM_INTS, .offset = KEY(crop),
     .min = 1, .max = 65536, .n_min = 1, .n_max = 2,
     .help = "the middle of that size, or of [height, width], is kept",
     .values = "a length, or [height, width], of 1..65536"},
    {.name = "PAD", .type = SB_PARAM_INTS, .offset = KEY(pad),
     .min = 1, .max = 65536, .n_min = 1, .n_max = 2,
     .help = "smaller images are filled up to this size, or [height, width], with PAD_VALUE",
     .values = "a length, or [height, width], of 1..65536"},
    {.name = "PAD_VALUE", .type = SB_PARAM_INT, .offset = KEY(pad_value),
     .preset = "114", .min = 0, .max = 255,
     .help = "the pixels that LETTERBOX and PAD add, before SCALE, MEAN and STD"},
    {.name = "PAD_POSITION", .type = SB_PARAM_ENUM, .offset = KEY(pad_position),
     .preset = "center", .names = positions,
     .help = "where the image is among them"},
    {.name = "COLOR", .type = SB_PARAM_ENUM, .offset = KEY(color), .names = colors,
     .help = "order of the channels (default: RGB, or GRAY if the source has one channel); RGBA and BGRA have a fourth one that is ALPHA"},
    {.name = "ALPHA", .type = SB_PARAM_INT, .offset = KEY(alpha),
     .preset = "255", .min = 0, .max = 255,
     .help = "the fourth channel everywhere, before SCALE, MEAN and STD; what files have there is not read"},
    {.name = "SCALE", .type = SB_PARAM_FLOAT, .offset = KEY(scale), .preset = "1",
     .min = 1e-6, .max = 1e6,
     .help = "pixels 0..255 are divided by this first"},
    {.name = "MEAN", .type = SB_PARAM_FLOATS, .offset = KEY(mean), .n_min = 1, .n_max = 4,
     .help = "then this is subtracted: one number, or one per channel in the order of COLOR"},
    {.name = "STD", .type = SB_PARAM_FLOATS, .offset = KEY(deviation), .n_min = 1, .n_max = 4,
     .help = "then they are divided by this"},
    {.name = "LAYOUT", .type = SB_PARAM_ENUM, .offset = KEY(layout),
     .preset = "NCHW", .names = layouts,
     .help = "order of the axes that the model wants"},
    {.name = "AUGMENT", .type = SB_PARAM_MAP, .offset = KEY(augment),
     .fields = sb_augment_table,
     .help = "random changes of the images, in training and by `quantize --augment`; no other command makes them"},
    {0},
};
/* clang-format on */

static const sb_yaml *key_node(const sb_yaml_doc *doc, const char *key)
{
    return sb_yaml_get(doc->root, key);
}

/* One number a channel from one for all, or from as many as there are. */
static sb_status transform_spread(const sb_yaml_doc *doc, const char *key,
                                  const sb_param_floats *from,
                                  const sb_transform *t, double preset,
                                  float out[SB_CHANNELS_MAX])
{
    if (from->n > 1 && from->n != (size_t)t->channels)
        return t->channels == 1
                   ? sb_yaml_fail(doc, key_node(doc, key),
                                  "%s: found %zu numbers, want 1 for COLOR %s",
                                  key, from->n, colors[t->color])
                   : sb_yaml_fail(
                         doc, key_node(doc, key),
                         "%s: found %zu numbers, want 1 or %d for COLOR %s",
                         key, from->n, t->channels, colors[t->color]);
    for (int c = 0; c < SB_CHANNELS_MAX; c++) {
        size_t i = from->n > 1 && c < t->channels ? (size_t)c : 0;

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
    float mean[SB_CHANNELS_MAX], deviation[SB_CHANNELS_MAX];
    float scale = (float)keys->scale;

    SB_TRY(transform_spread(doc, "MEAN", &keys->mean, t, 0, mean));
    SB_TRY(transform_spread(doc, "STD", &keys->deviation, t, 1, deviation));
    for (int c = 0; c < SB_CHANNELS_MAX; c++) {
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

void sb_transform_mask(const sb_transform *t, uint8_t outside,
                       sb_transform *out)
{
    *out = *t;
    out->mask = out->bytes = true;
    out->how = SB_NEAREST;
    out->color = SB_GRAY;
    out->channels = 1;
    out->channels_last = false;
    out->pad_value = outside;
    for (int v = 0; v < 256; v++)
        out->table[0][v] = (float)v;
}

bool sb_transform_keeps_bytes(const sb_transform *t)
{
    for (int c = 0; c < t->channels; c++)
        for (int v = 0; v < 256; v++)
            if (t->table[c][v] != (float)v)
                return false;
    return true;
}

/* Height and width from one length or two. */
static void take_size(const sb_param_ints *from, int64_t out[2])
{
    if (from->n) {
        out[0] = from->v[0];
        out[1] = from->v[from->n - 1];
    }
}

sb_status sb_transform_init(const sb_yaml_doc *doc,
                            const sb_transform_keys *keys, sb_color native,
                            sb_transform *out)
{
    *out = (sb_transform){.how = (sb_interpolation)keys->interpolation,
                          .color =
                              keys->color < 0 ? native : (sb_color)keys->color,
                          .channels_last = keys->layout == 1};
    out->channels = out->color == SB_GRAY ? 1 : out->color >= SB_RGBA ? 4 : 3;
    out->pad_value = (int)keys->pad_value;
    out->alpha = (int)keys->alpha;
    out->top_left = keys->pad_position == 1;
    if (keys->resize.n) {
        out->resize[0] = keys->resize.v[0];
        out->resize[1] = keys->resize.n > 1 ? keys->resize.v[1] : 0;
    }
    take_size(&keys->letterbox, out->letterbox);
    take_size(&keys->crop, out->crop);
    take_size(&keys->pad, out->pad);
    if (keys->letterbox.n && (keys->resize.n || keys->crop.n || keys->pad.n))
        return sb_yaml_fail(doc, key_node(doc, "LETTERBOX"),
                            "LETTERBOX: want neither RESIZE, CROP nor PAD "
                            "beside it");
    out->augment = keys->augment;
    if (keys->augment.random_crop.n && keys->letterbox.n)
        return sb_yaml_fail(doc, key_node(doc, "AUGMENT"),
                            "AUGMENT.RANDOM_CROP: want no LETTERBOX beside it");
    if (keys->augment.crop_area.v[0] > keys->augment.crop_area.v[1])
        return sb_yaml_fail(doc, key_node(doc, "AUGMENT"),
                            "AUGMENT.CROP_AREA: want the smaller share first");
    return fill_tables(doc, keys, out);
}

/* ---- one image --------------------------------------------------------- */

/* Half of an odd number goes to the even neighbor, as in Python's round. */
static int transform_half(int n)
{
    return n % 2 == 0 ? n / 2 : n / 2 + (n / 2) % 2;
}

/* What an image becomes: its size, the part of that which is kept, and where
 * this stands in the sample. */
typedef struct transform_plan {
    int64_t width, height;         /* after resizing */
    sb_window kept;                /* of that */
    int64_t out_width, out_height; /* of the sample */
    size_t x, y;                   /* of `kept` in it */
} transform_plan;

/* YOLOv5 and its successors round the size and put the image in the middle;
 * YOLOX cuts fractions off and puts it into the corner. */
static void plan_letterbox(const sb_transform *t, const sb_image *image,
                           transform_plan *p)
{
    double h = (double)t->letterbox[0] / image->height;
    double w = (double)t->letterbox[1] / image->width;
    double ratio = h < w ? h : w;

    p->height = (int64_t)(t->top_left ? image->height * ratio
                                      : rint(image->height * ratio));
    p->width = (int64_t)(t->top_left ? image->width * ratio
                                     : rint(image->width * ratio));
    p->height = p->height < 1 ? 1 : p->height;
    p->width = p->width < 1 ? 1 : p->width;
}

static void plan_resize(const sb_transform *t, const sb_image *image,
                        transform_plan *p)
{
    int64_t w = image->width, h = image->height;

    if (t->letterbox[0] > 0) {
        plan_letterbox(t, image, p);
    } else if (t->resize[1] > 0) {
        p->height = t->resize[0];
        p->width = t->resize[1];
    } else if (t->resize[0] > 0) {
        p->width = w <= h ? t->resize[0] : t->resize[0] * w / h;
        p->height = w <= h ? t->resize[0] * h / w : t->resize[0];
    } else {
        p->width = w;
        p->height = h;
    }
}

static sb_status transform_measure(const sb_transform *t, sb_ctx *ctx,
                                   const char *what, const sb_image *image,
                                   transform_plan *p)
{
    const int64_t *frame = t->letterbox[0] > 0 ? t->letterbox : t->pad;

    *p = (transform_plan){0};
    plan_resize(t, image, p);
    SB_TRY(sb_image_check(ctx, what, (uint64_t)p->width, (uint64_t)p->height));
    p->kept = (sb_window){0, 0, (int)p->width, (int)p->height};
    if (t->crop[0] > 0) {
        if (p->width < t->crop[1] || p->height < t->crop[0])
            return sb_fail(ctx, SB_BAD_DATA,
                           "%s: %lld x %lld pixels%s, CROP wants %lld x %lld",
                           what, (long long)p->width, (long long)p->height,
                           t->resize[0] > 0 ? " after RESIZE" : "",
                           (long long)t->crop[1], (long long)t->crop[0]);
        p->kept = (sb_window){transform_half((int)(p->width - t->crop[1])),
                              transform_half((int)(p->height - t->crop[0])),
                              (int)t->crop[1], (int)t->crop[0]};
    }
    p->out_height = frame[0] > p->kept.height ? frame[0] : p->kept.height;
    p->out_width = frame[1] > p->kept.width ? frame[1] : p->kept.width;
    if (!t->top_left) {
        p->y = (size_t)(p->out_height - p->kept.height) / 2;
        p->x = (size_t)(p->out_width - p->kept.width) / 2;
    }
    return sb_image_check(ctx, what, (uint64_t)p->out_width,
                          (uint64_t)p->out_height);
}

static sb_status room_for(const sb_transform *t, sb_ctx *ctx,
                          const transform_plan *p, sb_pixels *out)
{
    size_t n =
        (size_t)p->out_width * (size_t)p->out_height * (size_t)t->channels;

    if (t->channels_last) {
        out->dims[0] = p->out_height;
        out->dims[1] = p->out_width;
        out->dims[2] = t->channels;
    } else {
        out->dims[0] = t->channels;
        out->dims[1] = p->out_height;
        out->dims[2] = p->out_width;
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

/* One channel of the sample, `step` floats apart: the same number everywhere.
 */
static void fill_channel(float *to, size_t step, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        to[i * step] = value;
}

/* The kept part of the image through the tables, to its place. */
static void look_up(const sb_transform *t, const sb_image *image,
                    const transform_plan *p, float *out)
{
    const sb_window *win = &p->kept;
    size_t c = (size_t)t->channels, colors_in = (size_t)image->channels;
    size_t width = (size_t)p->out_width;
    size_t plane = width * (size_t)p->out_height;
    size_t step = t->channels_last ? c : 1;
    bool reversed = t->color == SB_BGR || t->color == SB_BGRA;
    bool padded = (size_t)win->width * (size_t)win->height < plane;

    for (size_t k = 0; k < c; k++) {
        size_t from = reversed ? 2 - k : k;
        const float *table = t->table[k];
        float *to = out + (t->channels_last ? k : k * plane);

        if (k == 3) {
            fill_channel(to, step, plane, table[t->alpha]);
            continue;
        }
        if (padded)
            fill_channel(to, step, plane, table[t->pad_value]);
        for (int y = 0; y < win->height; y++) {
            const uint8_t *row =
                image->data +
                ((size_t)(win->y + y) * (size_t)image->width + (size_t)win->x) *
                    colors_in +
                from;
            float *line = to + (((size_t)y + p->y) * width + p->x) * step;

            for (int x = 0; x < win->width; x++, row += colors_in, line += step)
                *line = table[*row];
        }
    }
}

/* Floats that are bytes, as bytes in the same memory. */
static void to_bytes(sb_pixels *pixels)
{
    size_t n = (size_t)(pixels->dims[0] * pixels->dims[1] * pixels->dims[2]);
    uint8_t *to = (uint8_t *)pixels->data;

    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)pixels->data[i];
}

/* Resizes to the planned size; of the result only the kept part is there. */
static sb_status transform_resize(const sb_transform *t, sb_ctx *ctx,
                                  transform_plan *p, sb_image *image)
{
    sb_image small = {0};

    SB_TRY(sb_image_resize(ctx, image, (int)p->width, (int)p->height, t->how,
                           &p->kept, &small));
    sb_image_free(ctx, image);
    *image = small;
    p->kept.x = p->kept.y = 0;
    return SB_OK;
}

/* A random part of the image takes its place; the plan is to resize it. */
static sb_status transform_random_crop(const sb_transform *t, sb_ctx *ctx,
                                       sb_rng *rng, transform_plan *p,
                                       sb_image *image)
{
    const sb_param_ints *size = &t->augment.random_crop;
    sb_window part =
        sb_augment_window(&t->augment, rng, image->width, image->height);

    *p = (transform_plan){
        .width = image->width, .height = image->height, .kept = part};
    SB_TRY(transform_resize(t, ctx, p, image));
    p->height = p->out_height = size->v[0];
    p->width = p->out_width = size->v[size->n - 1];
    p->kept = (sb_window){0, 0, (int)p->width, (int)p->height};
    return SB_OK;
}

/* The mean color, which the tables make 0. */
static void transform_cut_out(const sb_transform *t, sb_rng *rng,
                              const transform_plan *p, float *out)
{
    sb_window hole = sb_augment_hole(&t->augment, rng, (int)p->out_width,
                                     (int)p->out_height);
    size_t c = (size_t)t->channels, width = (size_t)p->out_width;
    size_t planes = t->channels_last ? 1 : c;
    size_t step = t->channels_last ? c : 1;

    for (size_t k = 0; k < planes; k++)
        for (int y = hole.y; y < hole.y + hole.height; y++)
            memset(out + (k * (size_t)p->out_height * width +
                          (size_t)y * width + (size_t)hole.x) *
                             step,
                   0, (size_t)hole.width * step * sizeof *out);
}

static sb_status transform_apply(const sb_transform *t, sb_ctx *ctx,
                                 const char *what, sb_rng *rng, sb_image *image,
                                 sb_pixels *out)
{
    transform_plan p;

    SB_TRY(sb_image_set_channels(ctx, image, t->channels == 1 ? 1 : 3));
    if (rng && t->augment.random_crop.n)
        SB_TRY(transform_random_crop(t, ctx, rng, &p, image));
    else
        SB_TRY(transform_measure(t, ctx, what, image, &p));
    if (p.width != image->width || p.height != image->height)
        SB_TRY(transform_resize(t, ctx, &p, image));
    if (rng) {
        /* Only what is kept moves and counts. */
        if (p.kept.width != image->width || p.kept.height != image->height) {
            p.width = image->width;
            p.height = image->height;
            SB_TRY(transform_resize(t, ctx, &p, image));
        }
        SB_TRY(sb_augment_pixels(&t->augment, rng, ctx, t->mask,
                                 t->mask ? (uint8_t)t->pad_value : 0, image));
    }
    SB_TRY(room_for(t, ctx, &p, out));
    look_up(t, image, &p, out->data);
    if (rng && !t->mask)
        transform_cut_out(t, rng, &p, out->data);
    if (t->bytes)
        to_bytes(out);
    return SB_OK;
}

sb_status sb_transform_apply(const sb_transform *t, sb_ctx *ctx,
                             const char *what, sb_rng *rng, sb_image *image,
                             sb_pixels *out)
{
    sb_status status = transform_apply(t, ctx, what, rng, image, out);

    sb_image_free(ctx, image);
    return status;
}
