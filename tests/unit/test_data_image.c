/* Images: decoding, resizing, cropping.  Files are made here with libpng and
 * libjpeg; resized values are computed by hand.  tests/ort/test_data.py
 * compares with Pillow. */
#include "sbtest.h"

#include <stdlib.h>

#include <jpeglib.h>
#include <png.h>

#include "data/image/transform.h"

static void make_png(const uint8_t *pixels, int w, int h, bool gray,
                     uint8_t *out, size_t *size)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)w,
                       .height = (png_uint_32)h,
                       .format = gray ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    png_alloc_size_t n = *size;

    assert_true(png_image_write_to_memory(&image, out, &n, 0, pixels, 0, NULL));
    *size = n;
}

static void make_jpeg(const uint8_t *pixels, int w, int h, uint8_t **out,
                      unsigned long *size)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;

    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, out, size);
    c.image_width = (JDIMENSION)w;
    c.image_height = (JDIMENSION)h;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        uint8_t row[3 * 64];
        JSAMPROW rows = row;

        memcpy(row, pixels + c.next_scanline * 3 * c.image_width,
               3 * c.image_width);
        (void)jpeg_write_scanlines(&c, &rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
}

static void fill(uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(i * 7 + i / 13);
}

static void test_png_gives_its_pixels(void **state)
{
    uint8_t pixels[5 * 4 * 3], file[1024];
    sb_image image;

    (void)state;
    fill(pixels, sizeof pixels);
    for (int gray = 0; gray < 2; gray++) {
        size_t size = sizeof file, n = gray ? 20 : 60;

        make_png(pixels, 5, 4, gray, file, &size);
        assert_ok(sb_image_decode(test_ctx(), "x.png", file, size, &image));
        assert_int_equal(image.width, 5);
        assert_int_equal(image.height, 4);
        assert_int_equal(image.channels, gray ? 1 : 3);
        assert_memory_equal(image.data, pixels, n);
        sb_image_free(test_ctx(), &image);
        /* Cut off anywhere it is broken, or whole but for its last bytes. */
        for (size_t k = 0; k < size; k++)
            if (sb_image_decode(test_ctx(), "x.png", file, k, &image) == SB_OK)
                sb_image_free(test_ctx(), &image);
            else
                assert_error_has("x.png");
    }
}

static void test_jpeg_gives_its_pixels_nearly(void **state)
{
    uint8_t pixels[32 * 24 * 3], *file = NULL;
    unsigned long size = 0;
    sb_image image;

    (void)state;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(100 + i % 96 / 3);
    make_jpeg(pixels, 32, 24, &file, &size);
    assert_ok(sb_image_decode(test_ctx(), "x.jpg", file, size, &image));
    assert_int_equal(image.width, 32);
    assert_int_equal(image.height, 24);
    for (size_t i = 0; i < sizeof pixels; i++)
        assert_true(abs(image.data[i] - pixels[i]) <= 3);
    sb_image_free(test_ctx(), &image);
    for (unsigned long k = 4; k + 2 < size; k++) {
        assert_status(sb_image_decode(test_ctx(), "x.jpg", file, k, &image),
                      SB_BAD_DATA);
        assert_error_has("x.jpg: broken JPEG");
    }
    free(file);
}

static void test_other_files_are_refused(void **state)
{
    sb_image image;

    (void)state;
    assert_status(sb_image_decode(test_ctx(), "x", "", 0, &image), SB_BAD_DATA);
    assert_error_has("empty");
    assert_status(sb_image_decode(test_ctx(), "x", "GIF89a....", 10, &image),
                  SB_BAD_DATA);
    assert_error_has("neither");
    assert_status(sb_image_check(test_ctx(), "x", 40000, 40000), SB_BAD_DATA);
    assert_status(sb_image_check(test_ctx(), "x", 0, 1), SB_BAD_DATA);
    assert_status(sb_image_check(test_ctx(), "x", 70000, 1), SB_BAD_DATA);
}

/* Halving: the triangle over 4 old pixels has weights 1 3 3 1 of 8, and 3 3 1
 * of 7 at the border. */
static void test_halving_by_hand(void **state)
{
    uint8_t line[8] = {0, 80, 160, 240, 40, 200, 120, 10};
    const sb_image in = {8, 1, 1, line};
    const sb_window all = {0, 0, 4, 1};
    sb_image out;
    const double want[4] = {
        (3 * 0 + 3 * 80 + 160) / 7.0, (80 + 3 * 160 + 3 * 240 + 40) / 8.0,
        (240 + 3 * 40 + 3 * 200 + 120) / 8.0, (200 + 3 * 120 + 3 * 10) / 7.0};

    (void)state;
    assert_ok(sb_image_resize(test_ctx(), &in, 4, 1, SB_BILINEAR, &all, &out));
    for (int i = 0; i < 4; i++)
        assert_close("pixel", out.data[i], want[i], 0.5);
    sb_image_free(test_ctx(), &out);
}

/* Doubling: weights 1 3 and 3 1 of 4; outside there is nothing. */
static void test_doubling_by_hand(void **state)
{
    uint8_t column[3] = {0, 100, 40};
    const sb_image in = {1, 3, 1, column};
    const sb_window middle = {0, 1, 1, 4};
    sb_image out;
    const int want[4] = {25, 75, 85, 55};

    (void)state;
    assert_ok(
        sb_image_resize(test_ctx(), &in, 1, 6, SB_BILINEAR, &middle, &out));
    for (int i = 0; i < 4; i++)
        assert_int_equal(out.data[i], want[i]);
    sb_image_free(test_ctx(), &out);
}

/* A window of the result is the result's window, for every filter. */
static void test_a_window_is_part_of_the_whole(void **state)
{
    enum { W = 23, H = 17 };
    uint8_t pixels[W * H * 3];
    const sb_image in = {W, H, 3, pixels};
    const sb_window all = {0, 0, 31, 9}, part = {7, 2, 11, 5};

    (void)state;
    fill(pixels, sizeof pixels);
    for (int how = SB_NEAREST; how <= SB_BICUBIC; how++) {
        sb_image whole, window;

        assert_ok(sb_image_resize(test_ctx(), &in, 31, 9, (sb_interpolation)how,
                                  &all, &whole));
        assert_ok(sb_image_resize(test_ctx(), &in, 31, 9, (sb_interpolation)how,
                                  &part, &window));
        for (int y = 0; y < 5; y++)
            assert_memory_equal(window.data + y * 33,
                                whole.data + ((y + 2) * 31 + 7) * 3, 33);
        sb_image_free(test_ctx(), &whole);
        sb_image_free(test_ctx(), &window);
    }
}

/* The weights of gray add up to 65536, so gray stays what it is. */
static void test_gray_and_color_become_each_other(void **state)
{
    sb_image image = {.width = 2, .height = 1, .channels = 3};

    (void)state;
    assert_ok(sb_image_alloc(test_ctx(), &image));
    memcpy(image.data, "\xff\x00\x00\x80\x80\x80", 6);
    assert_ok(sb_image_set_channels(test_ctx(), &image, 1));
    assert_int_equal(image.data[0], 76); /* 0.299 * 255 */
    assert_int_equal(image.data[1], 128);
    assert_ok(sb_image_set_channels(test_ctx(), &image, 3));
    assert_memory_equal(image.data, "\x4c\x4c\x4c\x80\x80\x80", 6);
    sb_image_free(test_ctx(), &image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png_gives_its_pixels),
        cmocka_unit_test(test_jpeg_gives_its_pixels_nearly),
        cmocka_unit_test(test_other_files_are_refused),
        cmocka_unit_test(test_halving_by_hand),
        cmocka_unit_test(test_doubling_by_hand),
        cmocka_unit_test(test_a_window_is_part_of_the_whole),
        cmocka_unit_test(test_gray_and_color_become_each_other),
    };
    return cmocka_run_group_tests_name("data_image", tests, NULL, NULL);
}
