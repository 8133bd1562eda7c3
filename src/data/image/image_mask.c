/* Masks: a class for each pixel.
 *
 * They are images of one channel, so that whatever is done to an image (crops,
 * flips) is done to its mask by the same code; of resizing only the nearest
 * pixel makes sense. */
#include <string.h>

#include "base/file.h"
#include "data/image/image.h"
#include "tensor/npy.h"

static sb_status mask_of_array(sb_ctx *ctx, const char *path,
                               const sb_tensor *t, sb_image *out)
{
    char found[128];

    if (!sb_dtype_is_integral(t->dtype) || t->rank != 2)
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: %s, want integers [height, width]", path,
                       sb_tensor_describe(t, found, sizeof found));
    SB_TRY(
        sb_image_check(ctx, path, (uint64_t)t->dims[1], (uint64_t)t->dims[0]));
    sb_image image = {(int)t->dims[1], (int)t->dims[0], 1, NULL};
    SB_TRY(sb_image_alloc(ctx, &image));
    for (int64_t i = 0; i < sb_tensor_count(t); i++) {
        int64_t label = sb_tensor_get_i64(t, i);

        if (label < 0 || label > UINT8_MAX) {
            sb_image_free(ctx, &image);
            return sb_fail(ctx, SB_BAD_DATA,
                           "%s: element %lld is %lld, want 0 to 255", path,
                           (long long)i, (long long)label);
        }
        image.data[i] = (uint8_t)label;
    }
    *out = image;
    return SB_OK;
}

static sb_status mask_of_png(sb_ctx *ctx, const char *path, sb_image *out)
{
    sb_mapping map;

    SB_TRY(sb_file_map(ctx, path, &map));
    sb_status status = sb_png_decode(ctx, path, map.data, map.size, true, out);
    sb_file_unmap(&map);
    return status;
}

sb_status sb_mask_load(sb_ctx *ctx, const char *path, sb_image *out)
{
    size_t n = strlen(path);
    sb_tensor t = {0};

    if (n < 4 || strcmp(path + n - 4, ".npy") != 0)
        return mask_of_png(ctx, path, out);
    SB_TRY(sb_npy_load(ctx, path, &t));
    sb_status status = mask_of_array(ctx, path, &t, out);
    sb_tensor_drop(&t);
    return status;
}
