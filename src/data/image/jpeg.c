/* JPEG files by libjpeg-turbo, with the settings of Pillow: the accurate
 * integer transform, smooth upsampling of colors, full size (a decoder can
 * deliver half the size for less work, but those are other pixels).
 *
 * The library reports through two hooks.  Errors jump back out of it.  Of its
 * warnings those that mean lost data are errors as well: a file that was cut
 * off would otherwise go on as a half gray image. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "data/image/image.h"

enum { MOST_SCANS = 500 }; /* of a progressive file; cameras write about 10 */

typedef struct {
    struct jpeg_error_mgr base; /* first: the library hands out its address */
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
} reporter;

typedef struct {
    struct jpeg_decompress_struct lib;
    struct jpeg_progress_mgr progress;
    reporter report;
    sb_ctx *ctx;
    const char *what;
    uint8_t *line; /* one CMYK row */
    sb_image image;
} decoder;

static void on_error(j_common_ptr lib)
{
    reporter *r = (reporter *)(void *)lib->err;

    lib->err->format_message(lib, r->text);
    longjmp(r->back, 1);
}

/* Level -1 is a warning: bytes too many are harmless, the others are not. */
static void on_message(j_common_ptr lib, int level)
{
    if (level < 0 && lib->err->msg_code != JWRN_EXTRANEOUS_DATA &&
        lib->err->msg_code != JWRN_ADOBE_XFORM &&
        lib->err->msg_code != JWRN_JFIF_MAJOR)
        on_error(lib);
}

static void on_output(j_common_ptr lib)
{
    (void)lib;
}

/* A small file can ask for thousands of passes over a large image. */
static void on_progress(j_common_ptr lib)
{
    const struct jpeg_decompress_struct *d =
        (const struct jpeg_decompress_struct *)(const void *)lib;

    if (d->input_scan_number > MOST_SCANS) {
        reporter *r = (reporter *)(void *)lib->err;

        (void)snprintf(r->text, sizeof r->text, "more than %d scans",
                       MOST_SCANS);
        longjmp(r->back, 1);
    }
}

static void start_library(decoder *d, const void *data, size_t size)
{
    d->lib.err = jpeg_std_error(&d->report.base);
    d->report.base.error_exit = on_error;
    d->report.base.emit_message = on_message;
    d->report.base.output_message = on_output;
    jpeg_create_decompress(&d->lib);
    d->progress.progress_monitor = on_progress;
    d->lib.progress = &d->progress;
    jpeg_mem_src(&d->lib, data, (unsigned long)size);
    (void)jpeg_read_header(&d->lib, TRUE);
}

/* Ink to light.  Adobe writes ink inverted, and so do all other programs that
 * write such files. */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++) {
            uint32_t black = cmyk[4 * i + 3];
            uint32_t t = (255u - cmyk[4 * i + c]) * black + 128u;
            uint32_t ink = (t + (t >> 8)) >> 8;

            rgb[3 * i + c] = (uint8_t)(black - ink);
        }
}

static sb_status read_rows(decoder *d)
{
    size_t row = (size_t)d->image.width * (size_t)d->image.channels;
    bool cmyk = d->lib.out_color_space == JCS_CMYK;

    while (d->lib.output_scanline < d->lib.output_height) {
        uint8_t *to = d->image.data + d->lib.output_scanline * row;
        JSAMPROW line = cmyk ? d->line : to;

        if (jpeg_read_scanlines(&d->lib, &line, 1) == 1 && cmyk)
            cmyk_to_rgb(line, to, (size_t)d->image.width);
    }
    (void)jpeg_finish_decompress(&d->lib);
    return SB_OK;
}

static sb_status choose_colors(decoder *d)
{
    switch (d->lib.num_components) {
    case 1:
        d->lib.out_color_space = JCS_GRAYSCALE;
        return SB_OK;
    case 3:
        d->lib.out_color_space = JCS_RGB;
        return SB_OK;
    case 4:
        d->lib.out_color_space = JCS_CMYK;
        return SB_OK;
    default:
        return sb_fail(d->ctx, SB_BAD_DATA,
                       "%s: a JPEG with %d colors, want 1, 3 or 4", d->what,
                       d->lib.num_components);
    }
}

/* Everything that may jump back.  No variable of this frame lives across. */
static sb_status jpeg_decode(decoder *d, const void *data, size_t size)
{
    if (setjmp(d->report.back))
        return sb_fail(d->ctx, SB_BAD_DATA, "%s: broken JPEG: %s", d->what,
                       d->report.text);
    start_library(d, data, size);
    SB_TRY(sb_image_check(d->ctx, d->what, d->lib.image_width,
                          d->lib.image_height));
    SB_TRY(choose_colors(d));
    d->lib.dct_method = JDCT_ISLOW;
    (void)jpeg_start_decompress(&d->lib);
    d->image.width = (int)d->lib.output_width;
    d->image.height = (int)d->lib.output_height;
    d->image.channels = d->lib.out_color_space == JCS_GRAYSCALE ? 1 : 3;
    SB_TRY(sb_image_alloc(d->ctx, &d->image));
    d->line = sb_alloc_raw(d->ctx, d->lib.output_width, 4);
    if (!d->line)
        return SB_NO_MEMORY;
    return read_rows(d);
}

sb_status sb_jpeg_decode(sb_ctx *ctx, const char *what, const void *data,
                         size_t size, sb_image *out)
{
    decoder *d = sb_alloc(ctx, 1, sizeof *d);

    if (!d)
        return SB_NO_MEMORY;
    d->ctx = ctx;
    d->what = what;
    sb_status status = jpeg_decode(d, data, size);
    jpeg_destroy_decompress(&d->lib);
    sb_free(ctx, d->line);
    if (status == SB_OK)
        *out = d->image;
    else
        sb_image_free(ctx, &d->image);
    sb_free(ctx, d);
    return status;
}
