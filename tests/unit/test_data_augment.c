/* Images varied at random: each change by itself, on numbers that can be
 * followed by hand, and that seed, epoch and sample decide everything. */
#define _POSIX_C_SOURCE 200809L
#include "sbtest.h"

#include <stdlib.h>
#include <unistd.h>

#include <sparsebit/run.h>

#include "data/image/augment.h"

static const double all_of_it[] = {0.08, 1};
static const sb_augment_keys none = {.crop_area = {all_of_it, 2}};

/* 3 x 2 pixels of one channel: 1 2 3 / 4 5 6, or with more channels 10 more
 * for each. */
static sb_image image_of(int channels)
{
    sb_image image = {.width = 3, .height = 2, .channels = channels};

    assert_ok(sb_image_alloc(test_ctx(), &image));
    for (int i = 0; i < 6; i++)
        for (int c = 0; c < channels; c++)
            image.data[i * channels + c] = (uint8_t)(i + 1 + 10 * c);
    return image;
}

static sb_image augmented(const sb_augment_keys *keys, uint64_t seed,
                          int channels)
{
    sb_image image = image_of(channels);
    sb_rng rng;

    sb_rng_init(&rng, seed);
    assert_ok(sb_augment_pixels(keys, &rng, test_ctx(), false, 0, &image));
    return image;
}

static void test_half_of_the_images_are_mirrored(void **state)
{
    static const uint8_t as_it_is[] = {1, 2, 3, 4, 5, 6};
    static const uint8_t mirrored[] = {3, 2, 1, 6, 5, 4};
    sb_augment_keys keys = none;
    int n = 0;

    (void)state;
    keys.flip = true;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        sb_image image = augmented(&keys, seed, 1);

        if (memcmp(image.data, mirrored, 6) == 0)
            n++;
        else
            assert_memory_equal(image.data, as_it_is, 6);
        sb_image_free(test_ctx(), &image);
    }
    assert_in_range(n, 450, 550); /* 3 deviations: 47 */
}

/* Whatever is drawn, a mask goes the way of its image, and 255 moves in. */
static void test_masks_move_with_images(void **state)
{
    sb_augment_keys keys = none;
    int filled = 0, mirrored = 0;

    (void)state;
    keys.flip = true;
    keys.pad_crop = 1;
    keys.color = 1e-6; /* draws numbers, and hardly changes any */
    for (uint64_t seed = 0; seed < 200; seed++) {
        sb_image pair[2];

        for (int k = 0; k < 2; k++) {
            sb_rng rng;

            pair[k] = image_of(1);
            for (int i = 0; i < 6; i++)
                pair[k].data[i] = (uint8_t)(20 * pair[k].data[i]);
            sb_rng_init(&rng, seed);
            assert_ok(sb_augment_pixels(&keys, &rng, test_ctx(), k == 1,
                                        k == 1 ? 255 : 0, &pair[k]));
        }
        for (int i = 0; i < 6; i++) {
            int pixel = pair[0].data[i], label = pair[1].data[i];

            filled += label == 255;
            if (label == 255)
                assert_int_equal(pixel, 0);
            else if (label % 20 != 0 || abs(label - pixel) > 3)
                fail_msg("seed %d: pixel %d, label %d", (int)seed, pixel,
                         label);
        }
        mirrored += pair[1].data[0] == 60 && pair[1].data[2] == 20;
        sb_image_free(test_ctx(), &pair[0]);
        sb_image_free(test_ctx(), &pair[1]);
    }
    assert_true(filled > 100 && mirrored > 3);
}

/* A window of 3 x 2 of the image with one black pixel all around. */
static void test_pad_crop_takes_every_place_of_the_padded_image(void **state)
{
    static const uint8_t padded[4][5] = {
        {0, 0, 0, 0, 0}, {0, 1, 2, 3, 0}, {0, 4, 5, 6, 0}, {0, 0, 0, 0, 0}};
    int seen[3][3] = {{0}};
    sb_augment_keys keys = none;

    (void)state;
    keys.pad_crop = 1;
    for (uint64_t seed = 0; seed < 400; seed++) {
        sb_image image = augmented(&keys, seed, 1);
        int found = 0;

        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 3; x++)
                if (memcmp(image.data, &padded[y][x], 3) == 0 &&
                    memcmp(image.data + 3, &padded[y + 1][x], 3) == 0) {
                    seen[y][x] = 1;
                    found++;
                }
        assert_int_equal(found, 1);
        sb_image_free(test_ctx(), &image);
    }
    for (int i = 0; i < 9; i++)
        assert_true(seen[i / 3][i % 3]);
}

/* Every step by the definition: brightness against black, contrast against the
 * mean gray, saturation against the gray of the pixel (ITU-R 601). */
static void test_color_jitter_follows_its_definition(void **state)
{
    sb_augment_keys keys = none;

    (void)state;
    keys.color = 0.4;
    for (uint64_t seed = 0; seed < 20; seed++) {
        sb_image want = image_of(3), got = augmented(&keys, seed, 3);
        sb_rng rng;

        sb_rng_init(&rng, seed);
        for (int step = 0; step < 3; step++) {
            double share = 0.6 + 0.8 * sb_rng_uniform(&rng), mean = 0;
            int gray[6];

            for (int i = 0; i < 6; i++) {
                const uint8_t *p = want.data + 3 * i;

                gray[i] =
                    (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) / 65536;
                mean += gray[i] / 6.0;
            }
            for (int i = 0; i < 18; i++) {
                double other = step == 0   ? 0
                               : step == 1 ? (int)(mean + 0.5)
                                           : gray[i / 3];
                double v = other + share * (want.data[i] - other);

                want.data[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
            }
        }
        assert_memory_equal(got.data, want.data, 18);
        sb_image_free(test_ctx(), &want);
        sb_image_free(test_ctx(), &got);
    }
}

static void test_random_crops_have_the_areas_and_ratios_asked_for(void **state)
{
    sb_augment_keys keys = none;
    const double area[] = {0.25, 0.5};
    sb_rng rng;

    (void)state;
    keys.crop_area = (sb_param_floats){area, 2};
    sb_rng_init(&rng, 3);
    for (int i = 0; i < 1000; i++) {
        sb_window w = sb_augment_window(&keys, &rng, 400, 300);
        double share = (double)w.width * w.height / (400 * 300);
        double ratio = (double)w.width / w.height;

        assert_true(w.x >= 0 && w.x + w.width <= 400);
        assert_true(w.y >= 0 && w.y + w.height <= 300);
        assert_true(share > 0.24 && share < 0.51);
        assert_true(ratio > 0.74 && ratio < 1.35);
    }
    /* Nothing fits a line: its middle. */
    sb_window w = sb_augment_window(&none, &rng, 1000, 3);
    assert_true(w.height == 3 && w.width == 4 && w.x == 498 && w.y == 0);
}

static void test_holes_have_their_middle_in_the_image(void **state)
{
    sb_augment_keys keys = none;
    int whole = 0;
    sb_rng rng;

    (void)state;
    keys.cutout = 4;
    sb_rng_init(&rng, 3);
    for (int i = 0; i < 1000; i++) {
        sb_window w = sb_augment_hole(&keys, &rng, 8, 6);

        assert_true(w.x >= 0 && w.width > 0 && w.x + w.width <= 8);
        assert_true(w.y >= 0 && w.height > 0 && w.y + w.height <= 6);
        assert_true(w.width >= 2 && w.width <= 4 && w.height >= 2);
        whole += w.width == 4 && w.height == 4;
    }
    assert_in_range(whole, 250, 370); /* 5/8 * 3/6 = 312 */
}

/* ---- whole data sets ---------------------------------------------------- */

static char path[] = "/tmp/sbtest-augment-XXXXXX";

/* 100 images of 8 x 8 in the format of MNIST; the first pixel is black. */
static int write_images(void **state)
{
    static const uint8_t head[] = {0, 0, 8, 3, 0, 0, 0, 100,
                                   0, 0, 0, 8, 0, 0, 0, 8};
    int file = mkstemp(path);
    FILE *f = fdopen(file, "wb");

    (void)state;
    assert_non_null(f);
    assert_int_equal(fwrite(head, 1, sizeof head, f), sizeof head);
    for (int i = 0; i < 100 * 64; i++)
        fputc(i % 64 == 0 ? 0 : (i * 7 + i / 64 * 13) % 256, f);
    assert_int_equal(fclose(f), 0);
    return 0;
}

static int remove_images(void **state)
{
    (void)state;
    return unlink(path);
}

static sb_status open_text(const char *augment, const sb_data_options *opt,
                           sb_data **out)
{
    char text[512];

    (void)snprintf(text, sizeof text,
                   "SOURCE: idx\nPATH: %s\nSCALE: 255\nMEAN: 0.5\n"
                   "SHUFFLE: true\nBATCH: 32\nAUGMENT: %s\n",
                   path, augment);
    return sb_data_parse(test_ctx(), text, "t.yaml", opt, out);
}

/* Sum of all pixels of an epoch, each times its place. */
static double epoch_sum(sb_data *data, uint64_t epoch)
{
    const sb_batch *batch = NULL;
    double sum = 0;
    size_t at = 0;

    sb_data_start_epoch(data, epoch);
    for (;;) {
        assert_ok(sb_data_next(data, &batch));
        if (batch->count == 0)
            return sum;
        const float *v = sb_tensor_data(batch->inputs[0]);
        int64_t n = sb_tensor_elements(batch->inputs[0]);
        for (int64_t i = 0; i < n; i++)
            sum += (double)v[i] * (double)(++at % 1009);
    }
}

static sb_data *open_data(int threads, uint64_t seed)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_data *data = NULL;

    opt.samples = 90;
    opt.threads = threads;
    opt.seed = seed;
    assert_ok(
        open_text("{FLIP: true, PAD_CROP: 2, CUTOUT: 3, COLOR_JITTER: 0.2}",
                  &opt, &data));
    return data;
}

static void test_seed_and_epoch_decide_everything(void **state)
{
    sb_data *data = open_data(0, 5), *other = open_data(3, 5);
    sb_data *unlike = open_data(0, 6);
    double first = epoch_sum(data, 0), second = epoch_sum(data, 1);

    (void)state;
    assert_true(first != second);
    assert_true(epoch_sum(data, 0) == first);
    assert_true(epoch_sum(other, 1) == second); /* without the one before */
    assert_true(epoch_sum(other, 0) == first);
    assert_true(epoch_sum(unlike, 0) != first);
    sb_data_free(data);
    sb_data_free(other);
    sb_data_free(unlike);
}

static void test_other_commands_see_images_as_they_are(void **state)
{
    sb_data *data = open_data(0, 5);
    const sb_batch *batch = NULL;
    float least = 0;

    (void)state;
    (void)epoch_sum(data, 0);
    sb_data_rewind(data);
    assert_ok(sb_data_next(data, &batch));
    const float *v = sb_tensor_data(batch->inputs[0]);
    for (int i = 0; i < 64; i++)
        least = v[i] < least ? v[i] : least;
    assert_close("black", least, -0.5, 0); /* brightness did not change it */
    sb_data_free(data);
}

static void test_settings_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *augment, *message;
    } cases[] = {
        {"{FLIPS: true}", "FLIPS"},
        {"{PAD_CROP: -1}", "AUGMENT.PAD_CROP: found -1"},
        {"{CROP_AREA: [1, 0.5]}", "want the smaller share first"},
        {"{RANDOM_CROP: 0}", "AUGMENT.RANDOM_CROP"},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_data *data = NULL;

        assert_status(open_text(cases[i].augment, NULL, &data), SB_BAD_CONFIG);
        assert_error_has(cases[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_of_the_images_are_mirrored),
        cmocka_unit_test(test_masks_move_with_images),
        cmocka_unit_test(test_pad_crop_takes_every_place_of_the_padded_image),
        cmocka_unit_test(test_color_jitter_follows_its_definition),
        cmocka_unit_test(test_random_crops_have_the_areas_and_ratios_asked_for),
        cmocka_unit_test(test_holes_have_their_middle_in_the_image),
        cmocka_unit_test(test_seed_and_epoch_decide_everything),
        cmocka_unit_test(test_other_commands_see_images_as_they_are),
        cmocka_unit_test(test_settings_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("data_augment", tests, write_images,
                                       remove_images);
}
