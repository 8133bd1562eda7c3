/* Mapped files as shared buffers, and the rules for external data: a file
 * name comes from the model, so it may not reach outside the model's folder. */
#define _XOPEN_SOURCE 700
#include "onnx/onnx_source.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/mapped.h"

sb_status sb_source_open(sb_onnx_source *src, sb_ctx *ctx, const char *path)
{
    *src = (sb_onnx_source){.ctx = ctx, .what = path, .path = path};
    return sb_buf_map_file(ctx, path, true, &src->buf);
}

sb_status sb_source_copy(sb_onnx_source *src, sb_ctx *ctx, const char *what,
                         const void *data, size_t size)
{
    *src = (sb_onnx_source){.ctx = ctx, .what = what};
    SB_TRY(sb_buf_create(ctx, size, &src->buf));
    if (size)
        memcpy(sb_buf_data(src->buf), data, size);
    return SB_OK;
}

void sb_source_close(sb_onnx_source *src)
{
    for (size_t i = 0; i < src->n_files; i++) {
        sb_free(src->ctx, src->files[i].path);
        sb_buf_unref(src->files[i].buf);
    }
    sb_free(src->ctx, src->files);
    sb_free(src->ctx, src->folder);
    sb_buf_unref(src->buf);
    src->buf = NULL;
    src->folder = NULL;
    src->files = NULL;
    src->n_files = 0;
}

/* True if the path climbs above the folder that it starts in. */
static bool source_climbs(const char *path)
{
    int depth = 0;

    while (*path) {
        size_t len = strcspn(path, "/");
        if (len == 2 && path[0] == '.' && path[1] == '.')
            depth--;
        else if (len > 0 && !(len == 1 && path[0] == '.'))
            depth++;
        if (depth < 0)
            return true;
        path += len;
        path += strspn(path, "/");
    }
    return false;
}

/* realpath() into memory of the context. */
static sb_status source_resolve(sb_ctx *ctx, const char *path, char **out)
{
    char real[PATH_MAX];

    if (!realpath(path, real))
        return sb_fail(ctx, SB_IO, "%s: cannot open: %s", path,
                       strerror(errno));
    size_t len = strlen(real);
    *out = sb_alloc(ctx, len + 1, 1);
    if (!*out)
        return SB_NO_MEMORY;
    memcpy(*out, real, len);
    return SB_OK;
}

static sb_status resolve_beside(sb_onnx_source *src, const char *name,
                                char **out)
{
    char *path = sb_path_beside(src->ctx, src->path, name);

    if (!path)
        return SB_NO_MEMORY;
    sb_status status = source_resolve(src->ctx, path, out);
    sb_free(src->ctx, path);
    return status;
}

static bool lies_in(const char *folder, const char *path)
{
    size_t len = strlen(folder);

    if (len == 1) /* the root folder */
        return true;
    return strncmp(folder, path, len) == 0 && path[len] == '/';
}

/* Takes over `path` in any case. */
static sb_status add_file(sb_onnx_source *src, char *path, sb_buf **out)
{
    sb_status status = sb_grow(src->ctx, &src->files, &src->cap_files,
                               src->n_files + 1, sizeof *src->files);

    if (status == SB_OK)
        status = sb_buf_map_file(src->ctx, path, false, out);
    if (status != SB_OK) {
        sb_free(src->ctx, path);
        return status;
    }
    src->files[src->n_files++] = (sb_source_file){path, *out};
    return SB_OK;
}

sb_status sb_source_external(sb_onnx_source *src, const char *tensor,
                             const char *location, sb_buf **out)
{
    char *path = NULL;

    if (!src->path)
        return sb_fail(src->ctx, SB_BAD_ARG,
                       "%s: tensor '%s' lies in the file '%s': say in which "
                       "folder that is",
                       src->what, tensor, location);
    if (location[0] == '\0' || location[0] == '/' || source_climbs(location))
        return sb_fail(src->ctx, SB_BAD_MODEL,
                       "%s: tensor '%s': the path '%s' leaves the folder of "
                       "the model",
                       src->what, tensor, location);
    if (!src->folder)
        SB_TRY(resolve_beside(src, ".", &src->folder));
    sb_status status = resolve_beside(src, location, &path);
    if (status != SB_OK)
        return sb_note(src->ctx, status, "data of tensor '%s' of %s", tensor,
                       src->what);
    if (!lies_in(src->folder, path)) {
        sb_free(src->ctx, path);
        return sb_fail(src->ctx, SB_BAD_MODEL,
                       "%s: tensor '%s': the link '%s' leaves the folder of "
                       "the model",
                       src->what, tensor, location);
    }
    for (size_t i = 0; i < src->n_files; i++) {
        if (strcmp(src->files[i].path, path) == 0) {
            sb_free(src->ctx, path);
            *out = src->files[i].buf;
            return SB_OK;
        }
    }
    return add_file(src, path, out);
}
