/* The public calls that read and write tensors. */
#include <string.h>

#include "base/str.h"
#include "tensor/npy.h"

/* `ARCHIVE.npz:NAME`, `ARCHIVE.npz`, or a .npy file of any name. */
static sb_status tensor_file_load(sb_ctx *ctx, const char *path, sb_tensor *out)
{
    const char *colon = strstr(path, ".npz:");

    if (sb_text_ends_with(path, ".npz"))
        return sb_npz_load_one(ctx, path, NULL, out);
    if (!colon)
        return sb_npy_load(ctx, path, out);
    size_t len = (size_t)(colon - path) + 4;
    char *archive = sb_alloc(ctx, len + 1, 1);
    if (!archive)
        return SB_NO_MEMORY;
    memcpy(archive, path, len);
    sb_status status = sb_npz_load_one(ctx, archive, colon + 5, out);
    sb_free(ctx, archive);
    return status;
}

sb_status sb_tensor_load(sb_ctx *ctx, const char *path, sb_tensor **out)
{
    sb_tensor *t = sb_alloc(ctx, 1, sizeof *t);

    if (!t)
        return SB_NO_MEMORY;
    sb_status status = tensor_file_load(ctx, path, t);
    if (status != SB_OK) {
        sb_free(ctx, t);
        return status;
    }
    *out = t;
    return SB_OK;
}

sb_status sb_tensor_save(sb_ctx *ctx, const char *path, const sb_tensor *tensor)
{
    return sb_npy_save(ctx, path, tensor);
}

sb_status sb_tensors_save_npz(sb_ctx *ctx, const char *path,
                              const char *const *names,
                              const sb_tensor *const *tensors, size_t n)
{
    sb_npz_item *items = sb_alloc(ctx, n, sizeof *items);

    if (!items)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        /* Borrowed: the items are only read. */
        memcpy(&items[i].name, &names[i], sizeof names[i]);
        items[i].tensor = *tensors[i];
    }
    sb_status status = sb_npz_save(ctx, path, items, n);
    sb_free(ctx, items);
    return status;
}
