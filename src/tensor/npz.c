/* NumPy's .npz format: a zip archive of .npy members, stored or deflated.
 *
 * Only the central directory counts, as the zip specification (APPNOTE) says;
 * local headers are read for nothing but their length.  Archives come from
 * strangers: every offset is checked, sizes must be ones that deflate can
 * reach (a factor of 1032), and members may not add up to more than the
 * file, which rules out overlapping ones. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "tensor/npy.h"
#include "tensor/npy_internal.h"

enum {
    SIG_LOCAL = 0x04034b50,
    SIG_CENTRAL = 0x02014b50,
    SIG_END = 0x06054b50,
    SIG_END64 = 0x06064b50,
    SIG_LOCATOR64 = 0x07064b50,
    LOCAL_SIZE = 30,
    CENTRAL_SIZE = 46,
    END_SIZE = 22,
    END64_SIZE = 56,
    LOCATOR64_SIZE = 20,
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,
    DEFLATE_MOST = 1032,
};

/* ---- little-endian numbers ---------------------------------------------- */

static uint64_t npz_get(const unsigned char *p, int bytes)
{
    uint64_t v = 0;

    for (int i = bytes - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* ---- the directory ------------------------------------------------------ */

typedef struct {
    sb_ctx *ctx;
    const char *path;
    const unsigned char *data;
    size_t size;
    uint64_t at, end; /* what is left of the central directory */
    uint64_t members; /* left */
    uint64_t packed;  /* bytes of all members so far */
} archive;

typedef struct {
    const unsigned char *name;
    size_t name_len; /* without .npy */
    bool is_npy;
    unsigned method, flags;
    uint32_t crc;
    uint64_t packed, unpacked, local;
} member;

static sb_status npz_bad(const archive *a, const char *why)
{
    return sb_fail(a->ctx, SB_BAD_DATA, "%s: bad archive: %s", a->path, why);
}

/* Are there `len` bytes at `offset`? */
static bool npz_inside(const archive *a, uint64_t offset, uint64_t len)
{
    return offset <= a->size && len <= a->size - offset;
}

/* The end record stands last but for a comment of up to 65535 bytes. */
static bool find_end(const archive *a, size_t *out)
{
    if (a->size < END_SIZE)
        return false;
    size_t at = a->size - END_SIZE;
    size_t stop = at > 0xffff ? at - 0xffff : 0;
    for (;; at--) {
        if (npz_get(a->data + at, 4) == SIG_END &&
            npz_get(a->data + at + 20, 2) == a->size - at - END_SIZE) {
            *out = at;
            return true;
        }
        if (at == stop)
            return false;
    }
}

static sb_status open_directory(archive *a)
{
    size_t end = 0;

    if (!find_end(a, &end))
        return npz_bad(a, "no end record");
    const unsigned char *p = a->data + end;
    uint64_t size = npz_get(p + 12, 4);
    a->members = npz_get(p + 10, 2);
    a->at = npz_get(p + 16, 4);
    if (end >= LOCATOR64_SIZE &&
        npz_get(p - LOCATOR64_SIZE, 4) == SIG_LOCATOR64) {
        uint64_t at = npz_get(p - LOCATOR64_SIZE + 8, 8);
        if (!npz_inside(a, at, END64_SIZE) ||
            npz_get(a->data + at, 4) != SIG_END64)
            return npz_bad(a, "the zip64 end record is missing");
        p = a->data + at;
        a->members = npz_get(p + 32, 8);
        size = npz_get(p + 40, 8);
        a->at = npz_get(p + 48, 8);
    }
    if (!npz_inside(a, a->at, size))
        return npz_bad(a, "the directory lies outside the file");
    a->end = a->at + size;
    /* Each entry takes room, so this bounds what we allocate. */
    if (a->members > size / CENTRAL_SIZE)
        return npz_bad(a, "fewer entries than announced");
    return SB_OK;
}

/* Sizes that do not fit 32 bits stand in extra field 1, in this order. */
static sb_status read_zip64(const archive *a, const unsigned char *p,
                            size_t len, member *m)
{
    uint64_t *wide[] = {&m->unpacked, &m->packed, &m->local};

    if (m->unpacked != UINT32_MAX && m->packed != UINT32_MAX &&
        m->local != UINT32_MAX)
        return SB_OK;
    while (len >= 4) {
        size_t field = (size_t)npz_get(p + 2, 2);
        if (field > len - 4)
            break;
        if (npz_get(p, 2) == 1) {
            const unsigned char *q = p + 4, *end = q + field;
            for (size_t i = 0; i < SB_COUNT(wide); i++) {
                if (*wide[i] != UINT32_MAX)
                    continue;
                if (end - q < 8)
                    return npz_bad(a, "a short zip64 field");
                *wide[i] = npz_get(q, 8);
                q += 8;
            }
            return SB_OK;
        }
        p += 4 + field;
        len -= 4 + field;
    }
    return SB_OK; /* then it really is 2^32 - 1 */
}

static sb_status next_member(archive *a, member *m)
{
    const unsigned char *p = a->data + a->at;
    uint64_t left = a->end - a->at;

    if (left < CENTRAL_SIZE || npz_get(p, 4) != SIG_CENTRAL)
        return npz_bad(a, "a directory entry is missing");
    size_t name = (size_t)npz_get(p + 28, 2),
           extra = (size_t)npz_get(p + 30, 2);
    size_t total = CENTRAL_SIZE + name + extra + (size_t)npz_get(p + 32, 2);
    if (total > left)
        return npz_bad(a, "a directory entry is cut off");
    *m = (member){
        .name = p + CENTRAL_SIZE,
        .name_len = name,
        .flags = (unsigned)npz_get(p + 8, 2),
        .method = (unsigned)npz_get(p + 10, 2),
        .crc = (uint32_t)npz_get(p + 16, 4),
        .packed = npz_get(p + 20, 4),
        .unpacked = npz_get(p + 24, 4),
        .local = npz_get(p + 42, 4),
    };
    SB_TRY(read_zip64(a, p + CENTRAL_SIZE + name, extra, m));
    if (name > 4 && memcmp(m->name + name - 4, ".npy", 4) == 0) {
        m->is_npy = true;
        m->name_len -= 4;
    }
    if (m->packed > a->size - a->packed)
        return npz_bad(a, "members that overlap");
    a->packed += m->packed;
    a->at += total;
    a->members--;
    return SB_OK;
}

/* ---- members ------------------------------------------------------------ */

static sb_status find_bytes(const archive *a, const member *m,
                            const unsigned char **out)
{
    if (!npz_inside(a, m->local, LOCAL_SIZE) ||
        npz_get(a->data + m->local, 4) != SIG_LOCAL)
        return npz_bad(a, "a member is not where the directory says");
    const unsigned char *p = a->data + m->local;
    uint64_t start =
        m->local + LOCAL_SIZE + npz_get(p + 26, 2) + npz_get(p + 28, 2);
    if (!npz_inside(a, start, m->packed))
        return npz_bad(a, "a member reaches beyond the file");
    *out = a->data + start;
    return SB_OK;
}

static void *zlib_alloc(void *ctx, unsigned count, unsigned size)
{
    return sb_alloc(ctx, count, size);
}

static void zlib_free(void *ctx, void *ptr)
{
    sb_free(ctx, ptr);
}

/* zlib counts in 32 bits, so both sides are handed over in pieces. */
static sb_status inflate_all(const archive *a, const member *m,
                             const unsigned char *src, unsigned char *dst)
{
    enum { PIECE = 1 << 30 };
    z_stream z = {.zalloc = zlib_alloc, .zfree = zlib_free, .opaque = a->ctx};
    uint64_t in = m->packed, out = m->unpacked;
    int rc = inflateInit2(&z, -MAX_WBITS);

    if (rc != Z_OK)
        return rc == Z_MEM_ERROR ? SB_NO_MEMORY : npz_bad(a, "zlib fails");
    /* zlib's field is not const, but it only reads. */
    memcpy(&z.next_in, &src, sizeof src);
    z.next_out = dst;
    do {
        uInt give = in < PIECE ? (uInt)in : PIECE;
        uInt room = out < PIECE ? (uInt)out : PIECE;
        z.avail_in = give;
        z.avail_out = room;
        rc = inflate(&z, Z_NO_FLUSH);
        in -= give - z.avail_in;
        out -= room - z.avail_out;
        if (give == z.avail_in && room == z.avail_out)
            break;
    } while (rc == Z_OK);
    (void)inflateEnd(&z);
    if (rc == Z_MEM_ERROR)
        return SB_NO_MEMORY;
    if (rc != Z_STREAM_END || out != 0)
        return npz_bad(a, "a member cannot be unpacked");
    return SB_OK;
}

static sb_status check_crc(const archive *a, const member *m,
                           const unsigned char *data)
{
    uLong crc = crc32_z(0, NULL, 0);

    crc = crc32_z(crc, data, (size_t)m->unpacked);
    return (uint32_t)crc == m->crc ? SB_OK : npz_bad(a, "a checksum is wrong");
}

static sb_status read_member(const archive *a, const member *m,
                             const char *what, sb_tensor *out)
{
    const unsigned char *src = NULL;

    SB_TRY(find_bytes(a, m, &src));
    if (m->flags & 1)
        return sb_fail(a->ctx, SB_UNSUPPORTED, "%s: encrypted archive",
                       a->path);
    if (m->method == METHOD_STORED) {
        if (m->packed != m->unpacked)
            return npz_bad(a, "a stored member of two sizes");
        SB_TRY(check_crc(a, m, src));
        return sb_npy_parse(a->ctx, what, src, (size_t)m->packed, out);
    }
    if (m->method != METHOD_DEFLATED)
        return sb_fail(a->ctx, SB_UNSUPPORTED,
                       "%s: compression method %u, want stored or deflated",
                       a->path, m->method);
    if (m->unpacked / DEFLATE_MOST > m->packed)
        return npz_bad(a, "a member grows more than deflate can make it");
    unsigned char *dst = sb_alloc(a->ctx, (size_t)m->unpacked, 1);
    if (!dst)
        return SB_NO_MEMORY;
    sb_status status = inflate_all(a, m, src, dst);
    if (status == SB_OK)
        status = check_crc(a, m, dst);
    if (status == SB_OK)
        status = sb_npy_parse(a->ctx, what, dst, (size_t)m->unpacked, out);
    sb_free(a->ctx, dst);
    return status;
}

/* `name` is NULL for all members. */
static sb_status load_item(const archive *a, const member *m, const char *name,
                           sb_npz_item *item, bool *taken)
{
    char what[256];

    *taken = false;
    if (!m->is_npy || (name && (strlen(name) != m->name_len ||
                                memcmp(name, m->name, m->name_len) != 0)))
        return SB_OK;
    if (memchr(m->name, '\0', m->name_len))
        return npz_bad(a, "a name with a zero byte");
    item->name = sb_alloc(a->ctx, m->name_len + 1, 1);
    if (!item->name)
        return SB_NO_MEMORY;
    memcpy(item->name, m->name, m->name_len);
    (void)snprintf(what, sizeof what, "%.120s:%.120s", a->path, item->name);
    sb_status status = read_member(a, m, what, &item->tensor);
    *taken = status == SB_OK;
    if (status != SB_OK) {
        sb_free(a->ctx, item->name);
        item->name = NULL;
    }
    return status;
}

static sb_status load_items(archive *a, const char *name, sb_npz_item **items,
                            size_t *count)
{
    size_t n = 0;

    SB_TRY(open_directory(a));
    sb_npz_item *list = sb_alloc(a->ctx, (size_t)a->members, sizeof *list);
    if (!list)
        return SB_NO_MEMORY;
    while (a->members > 0) {
        member m;
        bool taken = false;
        sb_status status = next_member(a, &m);
        if (status == SB_OK)
            status = load_item(a, &m, name, &list[n], &taken);
        if (status != SB_OK) {
            sb_npz_free(a->ctx, list, n);
            return status;
        }
        n += taken;
    }
    *items = list;
    *count = n;
    return SB_OK;
}

static sb_status load_named(sb_ctx *ctx, const char *path,
                            const sb_mapping *map, const char *name,
                            sb_npz_item **items, size_t *count)
{
    archive a = {.ctx = ctx, .path = path};

    a.data = map->data;
    a.size = map->size;
    return load_items(&a, name, items, count);
}

/* By the name as it is, or else as sb_npz_save() writes it. */
static sb_status load_either(sb_ctx *ctx, const char *path,
                             const sb_mapping *map, const char *name,
                             sb_npz_item **items, size_t *count)
{
    SB_TRY(load_named(ctx, path, map, name, items, count));
    if (*count > 0 || !name)
        return SB_OK;
    sb_npz_free(ctx, *items, 0);
    char *stored = sb_npz_member_name(ctx, name);
    if (!stored)
        return SB_NO_MEMORY;
    sb_status status = load_named(ctx, path, map, stored, items, count);
    sb_free(ctx, stored);
    return status;
}

sb_status sb_npz_load(sb_ctx *ctx, const char *path, sb_npz_item **items,
                      size_t *count)
{
    sb_mapping map = {0};

    SB_TRY(sb_file_map(ctx, path, &map));
    sb_status status = load_named(ctx, path, &map, NULL, items, count);
    sb_file_unmap(&map);
    return status;
}

sb_status sb_npz_load_one(sb_ctx *ctx, const char *path, const char *name,
                          sb_tensor *out)
{
    sb_npz_item *items = NULL;
    sb_mapping map = {0};
    size_t n = 0;

    SB_TRY(sb_file_map_input(ctx, path, &map));
    sb_status status = load_either(ctx, path, &map, name, &items, &n);
    sb_file_unmap(&map);
    SB_TRY(status);
    if (n == 1)
        *out = sb_tensor_share(&items[0].tensor);
    else if (name)
        status = sb_fail(ctx, SB_BAD_DATA, "%s: %zu arrays named '%s', want 1",
                         path, n, name);
    else
        status = sb_fail(ctx, SB_BAD_DATA,
                         "%s: %zu arrays, want 1 or a name (FILE.npz:NAME)",
                         path, n);
    sb_npz_free(ctx, items, n);
    return status;
}

void sb_npz_free(sb_ctx *ctx, sb_npz_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sb_tensor_drop(&items[i].tensor);
        sb_free(ctx, items[i].name);
    }
    sb_free(ctx, items);
}
