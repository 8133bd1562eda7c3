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
    char *name;
} entry;

typedef struct {
    sb_writer *w;
    unsigned char bytes[128];
    size_t used;
} record;

static bool leads_outside(const char *name)
{
    if (*name == '/' || strpbrk(name, "\\:"))
        return true;
    for (const char *p = name; *p; p += strspn(p, "/")) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.')
            return true;
        p += len;
    }
    return false;
}

char *sb_npz_member_name(sb_ctx *ctx, const char *name)
{
    bool outside = leads_outside(name);
    size_t len = strlen(name);
    char *out = sb_alloc(ctx, len + 1, 1);

    for (size_t i = 0; out && i < len; i++)
        out[i] = (char)(outside && strchr("/\\:", name[i]) ? '_' : name[i]);
    return out;
}

static void npz_save_put(record *r, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        r->bytes[r->used++] = (unsigned char)(v >> (8 * i));
}

static void npz_save_flush(record *r)
{
    sb_writer_put(r->w, r->bytes, r->used);
    r->used = 0;
}

static void put_name(record *r, const char *name)
{
    npz_save_flush(r);
    sb_writer_put(r->w, name, strlen(name));
    sb_writer_put(r->w, ".npy", 4);
}

/* What local and central headers have in common. */
static void put_facts(record *r, const entry *e, int extra)
{
    npz_save_put(r, ZIP64, 2);
    npz_save_put(r, 0x0800, 2); /* names are UTF-8 */
    npz_save_put(r, 0, 2);      /* stored */
    npz_save_put(r, 0, 2);      /* midnight */
    npz_save_put(r, DOS_DATE, 2);
    npz_save_put(r, e->crc, 4);
    npz_save_put(r, UINT32_MAX, 4); /* see the zip64 field */
    npz_save_put(r, UINT32_MAX, 4);
    npz_save_put(r, strlen(e->name) + 4, 2);
    npz_save_put(r, (uint64_t)extra, 2);
}

static void write_local(sb_writer *w, const entry *e)
{
    record r = {.w = w};

    npz_save_put(&r, 0x04034b50, 4);
    put_facts(&r, e, 20);
    put_name(&r, e->name);
    npz_save_put(&r, 1, 2);
    npz_save_put(&r, 16, 2);
    npz_save_put(&r, e->size, 8);
    npz_save_put(&r, e->size, 8);
    npz_save_flush(&r);
}

static void write_central(sb_writer *w, const entry *e)
{
    record r = {.w = w};

    npz_save_put(&r, 0x02014b50, 4);
    npz_save_put(&r, ZIP64, 2);
    put_facts(&r, e, 28);
    npz_save_put(&r, 0, 2); /* comment */
    npz_save_put(&r, 0, 2); /* disk */
    npz_save_put(&r, 0, 2);
    npz_save_put(&r, 0, 4);
    npz_save_put(&r, UINT32_MAX, 4);
    put_name(&r, e->name);
    npz_save_put(&r, 1, 2);
    npz_save_put(&r, 24, 2);
    npz_save_put(&r, e->size, 8);
    npz_save_put(&r, e->size, 8);
    npz_save_put(&r, e->offset, 8);
    npz_save_flush(&r);
}

static void write_end(sb_writer *w, uint64_t start, uint64_t count)
{
    record r = {.w = w};
    uint64_t end = sb_writer_size(w);

    npz_save_put(&r, 0x06064b50, 4);
    npz_save_put(&r, 44, 8);
    npz_save_put(&r, ZIP64, 2);
    npz_save_put(&r, ZIP64, 2);
    npz_save_put(&r, 0, 8);
    npz_save_put(&r, count, 8);
    npz_save_put(&r, count, 8);
    npz_save_put(&r, end - start, 8);
    npz_save_put(&r, start, 8);
    npz_save_flush(&r);
    npz_save_put(&r, 0x07064b50, 4);
    npz_save_put(&r, 0, 4);
    npz_save_put(&r, end, 8);
    npz_save_put(&r, 1, 4);
    npz_save_put(&r, 0x06054b50, 4);
    npz_save_put(&r, 0, 4);
    npz_save_put(&r, count < 0xffff ? count : 0xffff, 2);
    npz_save_put(&r, count < 0xffff ? count : 0xffff, 2);
    npz_save_put(&r, UINT32_MAX, 4);
    npz_save_put(&r, UINT32_MAX, 4);
    npz_save_put(&r, 0, 2);
    npz_save_flush(&r);
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
    e->offset = sb_writer_size(w);
    e->size = image.header_size + bytes;
    e->crc = (uint32_t)crc;
    write_local(w, e);
    sb_writer_put(w, image.header, image.header_size);
    sb_writer_put(w, image.tensor.data, bytes);
    sb_tensor_drop(&image.tensor);
    return SB_OK;
}

/* Names that differ may not when they are members. */
static sb_status check_unique(sb_ctx *ctx, const char *name,
                              const entry *entries, size_t i)
{
    for (size_t k = 0; k < i && strcmp(name, entries[i].name) != 0; k++)
        if (strcmp(entries[k].name, entries[i].name) == 0)
            return sb_fail(ctx, SB_BAD_ARG,
                           "array '%s': the archive already has '%s'", name,
                           entries[k].name);
    return SB_OK;
}

static sb_status write_all(sb_ctx *ctx, sb_writer *w, const sb_npz_item *items,
                           size_t count, entry *entries)
{
    for (size_t i = 0; i < count; i++) {
        entries[i].name = sb_npz_member_name(ctx, items[i].name);
        if (!entries[i].name)
            return SB_NO_MEMORY;
        SB_TRY(check_unique(ctx, items[i].name, entries, i));
        SB_TRY(write_member(ctx, w, &items[i], &entries[i]));
    }
    uint64_t start = sb_writer_size(w);
    for (size_t i = 0; i < count; i++)
        write_central(w, &entries[i]);
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
    for (size_t i = 0; i < count; i++)
        sb_free(ctx, entries[i].name);
    sb_free(ctx, entries);
    return status;
}
