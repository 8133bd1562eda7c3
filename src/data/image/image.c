/* Images: memory, choice of decoder, colors. */
#include "data/image/image.h"

#include <string.h>

#include "base/file.h"

sb_status sb_image_alloc(sb_ctx *ctx, sb_image *image)
{
    size_t row = (size_t)image->width * (size_t)image->channels;

    image->data = sb_alloc_raw(ctx, (size_t)image->height, row);
    return image->data ? SB_OK : SB_NO_MEMORY;
}

void sb_image_free(sb_ctx *ctx, sb_image *image)
{
    sb_free(ctx, image->data);
    *image = (sb_image){0};
}

sb_status sb_image_check(sb_ctx *ctx, const char *what, uint64_t width,
                         uint64_t height)
{
    if (width > 0 && height > 0 && width <= SB_IMAGE_SIDE &&
        height <= SB_IMAGE_SIDE && width * height <= SB_IMAGE_PIXELS)
        return SB_OK;
    return sb_fail(ctx, SB_BAD_DATA,
                   "%s: an image of %llu x %llu pixels, want at most %d a side "
                   "and %d in all",
                   what, (unsigned long long)width, (unsigned long long)height,
                   SB_IMAGE_SIDE, SB_IMAGE_PIXELS);
}

sb_status sb_image_decode(sb_ctx *ctx, const char *what, const void *data,
                          size_t size, sb_image *out)
{
    static const unsigned char jpeg[] = {0xff, 0xd8, 0xff};
    static const unsigned char png[] = {0x89, 'P', 'N', 'G', '\r', '\n'};

    if (size == 0)
        return sb_fail(ctx, SB_BAD_DATA, "%s: the file is empty", what);
    if (size > sizeof jpeg && memcmp(data, jpeg, sizeof jpeg) == 0)
        return sb_jpeg_decode(ctx, what, data, size, out);
    if (size > sizeof png && memcmp(data, png, sizeof png) == 0)
        return sb_png_decode(ctx, what, data, size, false, out);
    return sb_fail(ctx, SB_BAD_DATA, "%s: neither a JPEG nor a PNG file", what);
}

sb_status sb_image_load(sb_ctx *ctx, const char *path, sb_image *out)
{
    sb_mapping map;

    SB_TRY(sb_file_map(ctx, path, &map));
    sb_status status = sb_image_decode(ctx, path, map.data, map.size, out);
    sb_file_unmap(&map);
    return status;
}

/* The weights of ITU-R 601 in 16 bits, rounded, as Pillow has them. */
static uint8_t gray_of(const uint8_t *rgb)
{
    uint32_t sum = rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u;

    return (uint8_t)((sum + 0x8000u) >> 16);
}

sb_status sb_image_set_channels(sb_ctx *ctx, sb_image *image, int channels)
{
    size_t n = (size_t)image->width * (size_t)image->height;
    sb_image wide = *image;

    if (image->channels == channels)
        return SB_OK;
    if (channels == 1) {
        for (size_t i = 0; i < n; i++)
            image->data[i] = gray_of(image->data + 3 * i);
        image->channels = 1;
        return SB_OK;
    }
    wide.channels = channels;
    SB_TRY(sb_image_alloc(ctx, &wide));
    for (size_t i = 0; i < n; i++)
        memset(wide.data + 3 * i, image->data[i], 3);
    sb_image_free(ctx, image);
    *image = wide;
    return SB_OK;
}
