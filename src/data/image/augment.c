/* Random crops, shifts, mirror images, colors and holes.
 *
 * RANDOM_CROP is "random resized crop" of the Inception papers as torchvision
 * draws it: an area and a ratio of sides, ten tries, else the largest part in
 * the middle.  PAD_CROP is the padding by 4 black pixels and crop of the CIFAR
 * papers.  CUTOUT is arXiv 1708.04552: a square that may reach over the border
 * is set to the mean color. */
#include "data/image/augment.h"

#include <math.h>
#include <string.h>

#define KEY(field) offsetof(sb_augment_keys, field)

/* clang-format off */
const sb_param_def sb_augment_table[] = {
    {.name = "FLIP", .type = SB_PARAM_BOOL, .offset = KEY(flip), .preset = "false",
     .help = "half of the images are mirrored left to right"},
    {.name = "PAD_CROP", .type = SB_PARAM_INT, .offset = KEY(pad_crop),
     .preset = "0", .min = 0, .max = 4096,
     .help = "images are moved by up to this many pixels, black ones move in"},
    {.name = "RANDOM_CROP", .type = SB_PARAM_INTS, .offset = KEY(random_crop),
     .min = 1, .max = 65536, .n_min = 1, .n_max = 2,
     .help = "instead of RESIZE and CROP: a random part, resized to this length, or [height, width]",
     .values = "a length, or [height, width], of 1..65536"},
    {.name = "CROP_AREA", .type = SB_PARAM_FLOATS, .offset = KEY(crop_area),
     .preset = "[0.08, 1]", .min = 0.001, .max = 1, .n_min = 2, .n_max = 2,
     .help = "least and largest share of the image that RANDOM_CROP takes"},
    {.name = "CUTOUT", .type = SB_PARAM_INT, .offset = KEY(cutout),
     .preset = "0", .min = 0, .max = 4096,
     .help = "side of a square that is set to the mean color"},
    {.name = "COLOR_JITTER", .type = SB_PARAM_FLOAT, .offset = KEY(color),
     .preset = "0", .min = 0, .max = 1,
     .help = "brightness, contrast and saturation change by up to this share"},
    {0},
};
/* clang-format on */

bool sb_augment_is_on(const sb_augment_keys *keys)
{
    return keys->flip || keys->pad_crop > 0 || keys->random_crop.n > 0 ||
           keys->cutout > 0 || keys->color > 0;
}

/* The last step of splitmix64: every bit of the result depends on all of x. */
static uint64_t augment_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void sb_augment_seed(sb_rng *rng, uint64_t seed, uint64_t epoch,
                     uint64_t sample)
{
    const uint64_t odd = 0x9e3779b97f4a7c15u;
    uint64_t x = augment_mix(seed + odd);

    x = augment_mix(x + odd * (epoch + 1));
    sb_rng_init(rng, augment_mix(x + odd * (sample + 1)));
}

/* Uniform in [a, b). */
static double draw_between(sb_rng *rng, double a, double b)
{
    return a + (b - a) * sb_rng_uniform(rng);
}

/* A whole number in [0, n]. */
static int draw_up_to(sb_rng *rng, int n)
{
    return (int)sb_rng_below(rng, (uint64_t)n + 1);
}

sb_window sb_augment_window(const sb_augment_keys *keys, sb_rng *rng, int width,
                            int height)
{
    const double least = 3.0 / 4, most = 4.0 / 3;
    double area = (double)width * height;

    for (int i = 0; i < 10; i++) {
        double part = area * draw_between(rng, keys->crop_area.v[0],
                                          keys->crop_area.v[1]);
        double ratio = exp(draw_between(rng, log(least), log(most)));
        int w = (int)lround(sqrt(part * ratio));
        int h = (int)lround(sqrt(part / ratio));

        if (w > 0 && w <= width && h > 0 && h <= height) {
            int y = draw_up_to(rng, height - h);

            return (sb_window){draw_up_to(rng, width - w), y, w, h};
        }
    }
    double ratio = (double)width / height;
    int w = ratio > most ? (int)lround(height * most) : width;
    int h = ratio < least ? (int)lround(width / least) : height;
    return (sb_window){(width - w) / 2, (height - h) / 2, w, h};
}

sb_window sb_augment_hole(const sb_augment_keys *keys, sb_rng *rng, int width,
                          int height)
{
    int side = (int)keys->cutout;

    if (side == 0)
        return (sb_window){0};
    /* The middle is within the image. */
    int x = draw_up_to(rng, width - 1) - side / 2;
    int y = draw_up_to(rng, height - 1) - side / 2;
    int right = x + side < width ? x + side : width;
    int bottom = y + side < height ? y + side : height;
    x = x > 0 ? x : 0;
    y = y > 0 ? y : 0;
    return (sb_window){x, y, right - x, bottom - y};
}

/* ---- pixels ------------------------------------------------------------- */

static uint8_t to_byte(double v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* As in ITU-R 601, which is what Pillow computes. */
static int gray_of(const uint8_t *p, int channels)
{
    if (channels == 1)
        return p[0];
    return (int)((19595u * p[0] + 38470u * p[1] + 7471u * p[2] + 0x8000u) >>
                 16);
}

/* other + share * (pixel - other), where `other` is black, the mean gray or the
 * gray of the pixel. */
enum { TO_BLACK, TO_MEAN, TO_GRAY, COLOR_STEPS };

static void change_color(sb_image *image, int what, double share)
{
    size_t n = (size_t)image->width * (size_t)image->height;
    size_t c = (size_t)image->channels;
    double other = 0;

    if (what == TO_MEAN) {
        double sum = 0;

        for (size_t i = 0; i < n; i++)
            sum += gray_of(image->data + i * c, image->channels);
        other = floor(sum / (double)n + 0.5);
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t *p = image->data + i * c;

        if (what == TO_GRAY)
            other = gray_of(p, image->channels);
        for (size_t k = 0; k < c; k++)
            p[k] = to_byte(other + share * (p[k] - other));
    }
}

/* Mirrors the image and moves it by (dx, dy). */
static sb_status move_pixels(sb_ctx *ctx, sb_image *image, int dx, int dy,
                             bool flip, uint8_t fill)
{
    sb_image moved = *image;
    size_t c = (size_t)image->channels, row = (size_t)image->width * c;

    SB_TRY(sb_image_alloc(ctx, &moved));
    memset(moved.data, fill, row * (size_t)image->height);
    for (int y = 0; y < image->height; y++) {
        if (y - dy < 0 || y - dy >= image->height)
            continue;
        const uint8_t *from = image->data + (size_t)(y - dy) * row;
        uint8_t *to = moved.data + (size_t)y * row;

        for (int x = 0; x < image->width; x++) {
            int at = (flip ? image->width - 1 - x : x) - dx;

            if (at >= 0 && at < image->width)
                memcpy(to + (size_t)x * c, from + (size_t)at * c, c);
        }
    }
    sb_image_free(ctx, image);
    *image = moved;
    return SB_OK;
}

sb_status sb_augment_pixels(const sb_augment_keys *keys, sb_rng *rng,
                            sb_ctx *ctx, bool mask, uint8_t fill,
                            sb_image *image)
{
    int reach = (int)keys->pad_crop;
    double share = keys->color;

    for (int what = 0; share > 0 && what < COLOR_STEPS; what++) {
        double drawn = draw_between(rng, 1 - share, 1 + share);

        if (!mask)
            change_color(image, what, drawn);
    }
    int dx = draw_up_to(rng, 2 * reach) - reach;
    int dy = draw_up_to(rng, 2 * reach) - reach;
    bool flip = keys->flip && sb_rng_below(rng, 2) == 1;
    if (dx == 0 && dy == 0 && !flip)
        return SB_OK;
    return move_pixels(ctx, image, dx, dy, flip, fill);
}
