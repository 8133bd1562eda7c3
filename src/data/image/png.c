/* PNG files by libpng.  As Pillow does it: alpha and transparency are dropped,
 * palettes are looked up, 16 bits lose the lower 8, gray stays gray. */
#include <setjmp.h>
#include <string.h>

#include <png.h>

#include "data/image/image.h"

typedef struct {
    sb_ctx *ctx;
    const char *what;
    png_structp png;
    png_infop info;
    const unsigned char *data; /* not yet read */
    size_t left;
    bool starved; /* a request for memory was refused */
    bool mask;    /* indices and gray values as they are */
    jmp_buf back;
    char text[160];
    png_bytep *rows;
    sb_image image;
} decoder;

static void on_error(png_structp png, png_const_charp message)
{
    decoder *d = png_get_error_ptr(png);

    strncpy(d->text, message, sizeof d->text - 1);
    longjmp(d->back, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    decoder *d = png_get_io_ptr(png);

    if (n > d->left)
        png_error(png, "the file ends early");
    memcpy(to, d->data, n);
    d->data += n;
    d->left -= n;
}

static png_voidp take_memory(png_structp png, png_alloc_size_t size)
{
    decoder *d = png_get_mem_ptr(png);
    void *p = sb_alloc_raw(d->ctx, size, 1);

    d->starved = d->starved || !p;
    return p;
}

static void give_memory(png_structp png, png_voidp ptr)
{
    decoder *d = png_get_mem_ptr(png);

    sb_free(d->ctx, ptr);
}

/* Numbers of a palette, or gray of up to 8 bits, as they are in the file. */
static sb_status keep_indices(decoder *d)
{
    int type = png_get_color_type(d->png, d->info);

    if (png_get_bit_depth(d->png, d->info) == 16 ||
        (type != PNG_COLOR_TYPE_PALETTE && type != PNG_COLOR_TYPE_GRAY &&
         type != PNG_COLOR_TYPE_GRAY_ALPHA))
        return sb_fail(d->ctx, SB_BAD_DATA,
                       "%s: a PNG in colors or of 16 bits, want a palette or "
                       "gray values, which are the classes",
                       d->what);
    png_set_packing(d->png);
    png_set_strip_alpha(d->png);
    return SB_OK;
}

static void make_colors(decoder *d)
{
    if (png_get_color_type(d->png, d->info) == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(d->png);
    else if (png_get_bit_depth(d->png, d->info) < 8)
        png_set_expand_gray_1_2_4_to_8(d->png);
    png_set_strip_16(d->png);
    png_set_strip_alpha(d->png);
}

static sb_status read_header(decoder *d)
{
    png_set_read_fn(d->png, d, read_bytes);
    png_read_info(d->png, d->info);
    SB_TRY(sb_image_check(d->ctx, d->what, png_get_image_width(d->png, d->info),
                          png_get_image_height(d->png, d->info)));
    if (d->mask)
        SB_TRY(keep_indices(d));
    else
        make_colors(d);
    (void)png_set_interlace_handling(d->png);
    png_read_update_info(d->png, d->info);
    d->image.width = (int)png_get_image_width(d->png, d->info);
    d->image.height = (int)png_get_image_height(d->png, d->info);
    d->image.channels = png_get_channels(d->png, d->info);
    if ((d->image.channels == 1 || d->image.channels == 3) &&
        png_get_rowbytes(d->png, d->info) ==
            (size_t)d->image.width * (size_t)d->image.channels)
        return SB_OK;
    return sb_fail(d->ctx, SB_BAD_DATA, "%s: a PNG with %d channels, want 1-4",
                   d->what, d->image.channels);
}

/* Everything that may jump back.  No variable of this frame lives across. */
static sb_status png_decode(decoder *d)
{
    if (setjmp(d->back))
        return d->starved ? SB_NO_MEMORY
                          : sb_fail(d->ctx, SB_BAD_DATA, "%s: broken PNG: %s",
                                    d->what, d->text);
    d->info = png_create_info_struct(d->png);
    if (!d->info)
        return SB_NO_MEMORY;
    SB_TRY(read_header(d));
    SB_TRY(sb_image_alloc(d->ctx, &d->image));
    d->rows = sb_alloc(d->ctx, (size_t)d->image.height, sizeof *d->rows);
    if (!d->rows)
        return SB_NO_MEMORY;
    for (int y = 0; y < d->image.height; y++)
        d->rows[y] = d->image.data + (size_t)y * (size_t)d->image.width *
                                         (size_t)d->image.channels;
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL);
    return SB_OK;
}

sb_status sb_png_decode(sb_ctx *ctx, const char *what, const void *data,
                        size_t size, bool mask, sb_image *out)
{
    decoder *d = sb_alloc(ctx, 1, sizeof *d);

    if (!d)
        return SB_NO_MEMORY;
    d->ctx = ctx;
    d->what = what;
    d->data = data;
    d->left = size;
    d->mask = mask;
    d->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, d, on_error,
                                      on_warning, d, take_memory, give_memory);
    sb_status status = d->png ? png_decode(d) : SB_NO_MEMORY;
    if (d->png)
        png_destroy_read_struct(&d->png, &d->info, NULL);
    sb_free(ctx, d->rows);
    if (status == SB_OK)
        *out = d->image;
    else
        sb_image_free(ctx, &d->image);
    sb_free(ctx, d);
    return status;
}
