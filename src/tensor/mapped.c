/* Where the elements of mapped tensors lie. */
#define _DEFAULT_SOURCE
#include "tensor/mapped.h"

#include <errno.h>
#include <fcntl.h>
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
    if (!t->buf || !t->data || !sb_buf_is_mapped(t->buf))
        return;
    long page = sysconf(_SC_PAGESIZE);
    if (page <= 0)
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

/* ---- copies ------------------------------------------------------------- */

enum { MAPPED_LEAST = 64 << 10 }; /* below it, memory */

typedef struct mapped_pages {
    sb_ctx *ctx;
    void *data;
    size_t size;
} mapped_pages;

static void mapped_free_pages(void *user)
{
    mapped_pages *p = user;

    (void)munmap(p->data, p->size);
    sb_free(p->ctx, p);
}

static sb_status mapped_create(sb_ctx *ctx, size_t bytes, void **data)
{
    const char *folder = NULL;
    int fd = -1;

    SB_TRY(sb_temp_open(ctx, &fd, &folder));
    /* All of it: what is missing when a page is written would end us. */
    int error = posix_fallocate(fd, 0, (off_t)bytes);
    *data = error
                ? MAP_FAILED
                : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    sb_status status = SB_OK;
    if (error)
        status = sb_temp_fail(ctx, folder, "write to", error);
    else if (*data == MAP_FAILED)
        status = sb_temp_fail(ctx, folder, "map", errno);
    (void)close(fd);
    return status;
}

/* Is it to lie in a temporary file? */
static bool mapped_is_for(const sb_ctx *ctx, const sb_tensor *t)
{
    return sb_tensor_size_ok(t) && sb_tensor_bytes(t) >= MAPPED_LEAST &&
           sb_memory_share(ctx, 1, SIZE_MAX) != SIZE_MAX;
}

/* Zeroed. */
static sb_status mapped_alloc(sb_ctx *ctx, sb_tensor *t)
{
    size_t bytes = sb_tensor_bytes(t);
    mapped_pages *p = sb_alloc(ctx, 1, sizeof *p);
    if (!p)
        return SB_NO_MEMORY;
    *p = (mapped_pages){.ctx = ctx, .size = bytes};
    sb_status status = mapped_create(ctx, bytes, &p->data);
    if (status != SB_OK) {
        sb_free(ctx, p);
        return status;
    }
    status = sb_buf_wrap(ctx, p->data, bytes, mapped_free_pages, p, &t->buf);
    if (status != SB_OK) {
        mapped_free_pages(p);
        return status;
    }
    sb_buf_set_mapped(t->buf);
    t->data = p->data;
    return SB_OK;
}

sb_status sb_tensor_alloc_weight(sb_ctx *ctx, sb_tensor *t)
{
    return mapped_is_for(ctx, t) ? mapped_alloc(ctx, t)
                                 : sb_tensor_alloc(ctx, t);
}

sb_status sb_tensor_alloc_weight_raw(sb_ctx *ctx, sb_tensor *t)
{
    return mapped_is_for(ctx, t) ? mapped_alloc(ctx, t)
                                 : sb_tensor_alloc_raw(ctx, t);
}

sb_status sb_tensor_settle_weight(sb_ctx *ctx, sb_tensor *t)
{
    sb_tensor to = *t;

    if (!t->buf || sb_buf_is_mapped(t->buf) || sb_buf_is_shared(t->buf) ||
        t->dtype == SB_DTYPE_STRING || t->dtype == SB_DTYPE_SEQUENCE ||
        !mapped_is_for(ctx, t))
        return SB_OK;
    SB_TRY(mapped_alloc(ctx, &to));
    memcpy(to.data, t->data, sb_tensor_bytes(t));
    sb_tensor_release_pages(&to);
    sb_tensor_drop(t);
    *t = to;
    return SB_OK;
}

/* ---- files -------------------------------------------------------------- */

static void mapped_release(void *user)
{
    sb_mapping *map = user;
    sb_ctx *ctx = map->ctx;

    sb_file_unmap(map);
    sb_free(ctx, map);
}

static sb_status buf_map(sb_ctx *ctx, const char *path, bool pipes,
                         bool read_only, sb_buf **out)
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
    else if (map->is_file && read_only)
        sb_buf_set_mapped(*out);
    return status;
}

sb_status sb_buf_map_file(sb_ctx *ctx, const char *path, bool pipes,
                          sb_buf **out)
{
    return buf_map(ctx, path, pipes, true, out);
}

sb_status sb_buf_map_input(sb_ctx *ctx, const char *path, sb_buf **out)
{
    return buf_map(ctx, path, true, false, out);
}
