/* Where the elements of mapped tensors lie. */
#define _DEFAULT_SOURCE
#include "tensor/mapped.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

/* What the widest load of one element needs; complex numbers are pairs. */
static size_t alignment_of(sb_dtype dtype)
{
    size_t size = sb_dtype_size(dtype);

    if (dtype == SB_DTYPE_STRING)
        return sizeof(void *);
    if (dtype == SB_DTYPE_SEQUENCE) /* of elements of any type */
        return SB_ALIGN;
    if (dtype == SB_DTYPE_C64 || dtype == SB_DTYPE_C128)
        size /= 2;
    return size ? size : 1;
}

bool sb_tensor_is_aligned(const sb_tensor *t)
{
    return (uintptr_t)t->data % alignment_of(t->dtype) == 0;
}

void sb_tensor_release_pages(const sb_tensor *t)
{
    long page = sysconf(_SC_PAGESIZE);

    if (!t->buf || !t->data || !sb_buf_is_mapped(t->buf) || page <= 0)
        return;
    /* Only pages that hold nothing else. */
    size_t bytes = sb_tensor_bytes(t);
    size_t skip = (size_t)(-(uintptr_t)t->data % (uintptr_t)page);
    if (bytes < skip + (size_t)page)
        return;
    size_t len = bytes - skip;
    (void)madvise((unsigned char *)t->data + skip, len - len % (size_t)page,
                  MADV_DONTNEED);
}

static void mapped_release(void *user)
{
    sb_mapping *map = user;
    sb_ctx *ctx = map->ctx;

    sb_file_unmap(map);
    sb_free(ctx, map);
}

sb_status sb_buf_map_file(sb_ctx *ctx, const char *path, bool pipes,
                          sb_buf **out)
{
    sb_mapping *map = sb_alloc(ctx, 1, sizeof *map);

    if (!map)
        return SB_NO_MEMORY;
    sb_status status =
        pipes ? sb_file_map_input(ctx, path, map) : sb_file_map(ctx, path, map);
    map->ctx = ctx; /* nothing is set for an empty file */
    if (status == SB_OK)
        status =
            sb_buf_wrap(ctx, map->data, map->size, mapped_release, map, out);
    if (status != SB_OK)
        mapped_release(map);
    else if (map->is_file)
        sb_buf_set_mapped(*out);
    return status;
}
