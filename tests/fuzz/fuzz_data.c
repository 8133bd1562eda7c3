/* Any bytes as a image, an IDX file, records, arrays or a list of labels.
 *
 * The first byte says what; the others are the file.  What must never happen:
 * a crash, a hang, a read outside, a leak. */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

#include "data/image/image.h"

static const char *const texts[] = {
    "SOURCE: idx\nPATH: %s\nRESIZE: 8\n",
    "SOURCE: idx\nPATH: %s\nLABELS: %s\n",
    "SOURCE: cifar10\nPATH: %s\nCROP: 20\n",
    "SOURCE: npy\nPATH: %s\n",
    "SOURCE: npz\nPATH: %s\n",
    "SOURCE: image_list\nPATH: %s\n",
};

static void decode(sb_ctx *ctx, const uint8_t *data, size_t size)
{
    sb_image image = {0}, small = {0};
    const sb_window win = {1, 0, 7, 5};

    if (sb_image_decode(ctx, "input", data, size, &image) != SB_OK)
        return;
    if ((int64_t)image.width * image.height < 1 << 22 &&
        sb_image_resize(ctx, &image, 9, 5, SB_BICUBIC, &win, &small) == SB_OK)
        sb_image_free(ctx, &small);
    sb_image_free(ctx, &image);
}

static void read_all(sb_ctx *ctx, const char *format, const char *path)
{
    sb_data_options opt = SB_DATA_OPTIONS_INIT;
    sb_data *set = NULL;
    char text[1024];
    const sb_batch *b = NULL;

    (void)snprintf(text, sizeof text, format, path, path);
    opt.samples = 20;
    opt.batch = 3;
    opt.threads = 0;
    if (sb_data_parse(ctx, text, "fuzz.yaml", &opt, &set) != SB_OK)
        return;
    while (sb_data_next(set, &b) == SB_OK && b->count > 0)
        continue;
    sb_data_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t n = sizeof texts / sizeof *texts;
    const char *folder = getenv("TMPDIR");
    char path[400];
    sb_ctx *ctx = NULL;

    if (size < 1 || sb_ctx_create(NULL, &ctx) != SB_OK)
        return 0;
    size_t what = data[0] % (n + 2);
    if (what >= n) {
        decode(ctx, data + 1, size - 1);
    } else {
        (void)snprintf(path, sizeof path, "%s/fuzz-data-%ld",
                       folder ? folder : "/tmp", (long)getpid());
        FILE *f = fopen(path, "wb");
        if (f) {
            (void)fwrite(data + 1, 1, size - 1, f);
            (void)fclose(f);
            read_all(ctx, texts[what], path);
            (void)unlink(path);
        }
    }
    sb_ctx_free(ctx);
    return 0;
}
