/* Writing .npz archives: members are stored, so that others can map them.
 *
 * Sizes and offsets always go to zip64 fields as well, as numpy.savez does;
 * one form for all sizes is simpler than two. */
#include <string.h>
#include <zlib.h>

#include "tensor/npy.h"
#include "tensor/npy_internal.h"

enum { NAME_MOST = 60000, DOS_DATE = 0x21 /* 1980-01-01 */, ZIP64 = 45 };

typedef struct {
    uint64_t offset, size;
    uint32_t crc;
} entry;

typedef struct {
    sb_writer *w;
    unsigned char bytes[128];
    size_t used;
} record;

static void put(record *r, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        r->bytes[r->used++] = (unsigned char)(v >> (8 * i));
}

static void flush(record *r)
{
    sb_writer_put(r->w, r->bytes, r->used);
    r->used = 0;
}

static void put_name(record *r, const char *name)
{
    flush(r);
    sb_writer_put(r->w, name, strlen(name));
    sb_writer_put(r->w, ".npy", 4);
}

/* What local and central headers have in common. */
static void put_facts(record *r, const entry *e, const char *name, int extra)
{
    put(r, ZIP64, 2);
    put(r, 0x0800, 2); /* names are UTF-8 */
    put(r, 0, 2);      /* stored */
    put(r, 0, 2);      /* midnight */
    put(r, DOS_DATE, 2);
    put(r, e->crc, 4);
    put(r, UINT32_MAX, 4); /* see the zip64 field */
    put(r, UINT32_MAX, 4);
    put(r, strlen(name) + 4, 2);
    put(r, (uint64_t)extra, 2);
}

static void write_local(sb_writer *w, const entry *e, const char *name)
{
    record r = {.w = w};

    put(&r, 0x04034b50, 4);
    put_facts(&r, e, name, 20);
    put_name(&r, name);
    put(&r, 1, 2);
    put(&r, 16, 2);
    put(&r, e->size, 8);
    put(&r, e->size, 8);
    flush(&r);
}

static void write_central(sb_writer *w, const entry *e, const char *name)
{
    record r = {.w = w};

    put(&r, 0x02014b50, 4);
    put(&r, ZIP64, 2);
    put_facts(&r, e, name, 28);
    put(&r, 0, 2); /* comment */
    put(&r, 0, 2); /* disk */
    put(&r, 0, 2);
    put(&r, 0, 4);
    put(&r, UINT32_MAX, 4);
    put_name(&r, name);
    put(&r, 1, 2);
    put(&r, 24, 2);
    put(&r, e->size, 8);
    put(&r, e->size, 8);
    put(&r, e->offset, 8);
    flush(&r);
}

static void write_end(sb_writer *w, uint64_t start, uint64_t count)
{
    record r = {.w = w};
    uint64_t end = sb_writer_size(w);

    put(&r, 0x06064b50, 4);
    put(&r, 44, 8);
    put(&r, ZIP64, 2);
    put(&r, ZIP64, 2);
    put(&r, 0, 8);
    put(&r, count, 8);
    put(&r, count, 8);
    put(&r, end - start, 8);
    put(&r, start, 8);
    flush(&r);
    put(&r, 0x07064b50, 4);
    put(&r, 0, 4);
    put(&r, end, 8);
    put(&r, 1, 4);
    put(&r, 0x06054b50, 4);
    put(&r, 0, 4);
    put(&r, count < 0xffff ? count : 0xffff, 2);
    put(&r, count < 0xffff ? count : 0xffff, 2);
    put(&r, UINT32_MAX, 4);
    put(&r, UINT32_MAX, 4);
    put(&r, 0, 2);
    flush(&r);
}

static sb_status write_member(sb_ctx *ctx, sb_writer *w,
                              const sb_npz_item *item, entry *e)
{
    sb_npy_image image;

    if (strlen(item->name) > NAME_MOST)
        return sb_fail(ctx, SB_BAD_ARG, "array name of %zu bytes, want %d",
                       strlen(item->name), NAME_MOST);
    SB_TRY(sb_npy_encode(ctx, item->name, &item->tensor, &image));
    size_t bytes = sb_tensor_bytes(&image.tensor);
    uLong crc = crc32_z(0, image.header, image.header_size);
    if (bytes)
        crc = crc32_z(crc, image.tensor.data, bytes);
    *e = (entry){sb_writer_size(w), image.header_size + bytes, (uint32_t)crc};
    write_local(w, e, item->name);
    sb_writer_put(w, image.header, image.header_size);
    sb_writer_put(w, image.tensor.data, bytes);
    sb_tensor_drop(&image.tensor);
    return SB_OK;
}

static sb_status write_all(sb_ctx *ctx, sb_writer *w, const sb_npz_item *items,
                           size_t count, entry *entries)
{
    for (size_t i = 0; i < count; i++)
        SB_TRY(write_member(ctx, w, &items[i], &entries[i]));
    uint64_t start = sb_writer_size(w);
    for (size_t i = 0; i < count; i++)
        write_central(w, &entries[i], items[i].name);
    write_end(w, start, count);
    return SB_OK;
}

sb_status sb_npz_save(sb_ctx *ctx, const char *path, const sb_npz_item *items,
                      size_t count)
{
    sb_writer *w = NULL;
    entry *entries = sb_alloc(ctx, count, sizeof *entries);

    if (!entries)
        return SB_NO_MEMORY;
    sb_status status = sb_writer_open(ctx, path, &w);
    if (status == SB_OK)
        status = write_all(ctx, w, items, count, entries);
    if (status == SB_OK)
        status = sb_writer_commit(w);
    else
        sb_writer_abort(w);
    sb_free(ctx, entries);
    return status;
}
