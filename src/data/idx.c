/* IDX files: two zero bytes, the type of the elements, the number of
 * dimensions, each dimension as 32 bits big-endian, then the elements.
 *
 * A packed file is unpacked in two steps, the header first: it says how large
 * the rest must be, and the packed size says how large it can be at most. */
#include "data/idx.h"

#include <limits.h>
#include <string.h>

#include <zlib.h>

enum {
    TYPE_U8 = 8,
    HEADER_MOST = 4 + 4 * SB_IDX_RANK,
    GZIP = 16 + MAX_WBITS,
    /* Deflate makes at most 1032 bytes of one. */
    UNPACK_MOST = 1032,
};

static size_t header_size(const sb_idx *idx)
{
    return 4 + 4 * (size_t)idx->rank;
}

/* Reads the header from `n` bytes; *total receives the size of the file. */
static sb_status read_header(sb_ctx *ctx, const char *path, const uint8_t *p,
                             size_t n, sb_idx *out, size_t *total)
{
    if (n < 4 || p[0] != 0 || p[1] != 0)
        return sb_fail(ctx, SB_BAD_DATA, "%s: not an IDX file", path);
    if (p[2] != TYPE_U8)
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: elements of IDX type 0x%02x, want 0x08 (bytes)",
                       path, p[2]);
    out->rank = p[3];
    if (out->rank < 1 || out->rank > SB_IDX_RANK || n < header_size(out))
        return sb_fail(ctx, SB_BAD_DATA, "%s: %d dimensions, want 1 to %d",
                       path, out->rank, SB_IDX_RANK);
    *total = 1;
    for (int i = 0; i < out->rank; i++) {
        const uint8_t *d = p + 4 + 4 * (size_t)i;

        out->dims[i] = (size_t)d[0] << 24 | (size_t)d[1] << 16 |
                       (size_t)d[2] << 8 | (size_t)d[3];
        if (!sb_mul_size(*total, out->dims[i], total))
            return sb_fail(ctx, SB_BAD_DATA,
                           "%s: the dimensions in the header overflow", path);
    }
    if (!sb_add_size(*total, header_size(out), total))
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s: the dimensions in the header overflow", path);
    return SB_OK;
}

static sb_status wrong_size(sb_ctx *ctx, const char *path, size_t found,
                            size_t want)
{
    return sb_fail(ctx, SB_BAD_DATA,
                   "%s: %zu bytes%s, the header announces %zu", path, found,
                   found > want ? " or more" : "", want);
}

/* ---- gzip ---------------------------------------------------------------- */

static void *zlib_take(void *user, unsigned n, unsigned size)
{
    return sb_alloc_raw(user, n, size);
}

static void zlib_give(void *user, void *ptr)
{
    sb_free(user, ptr);
}

/* Unpacks up to `want` bytes; *got says how many there were.  zlib counts in
 * 32 bits, so it goes in pieces. */
static int idx_unpack(z_stream *z, size_t *left_in, uint8_t *to, size_t want,
                      size_t *got)
{
    int rc = Z_OK;

    *got = 0;
    while (rc == Z_OK && *got < want) {
        size_t room = want - *got;

        if (z->avail_in == 0) {
            z->avail_in = *left_in > INT_MAX ? INT_MAX : (unsigned)*left_in;
            *left_in -= z->avail_in;
        }
        z->next_out = to + *got;
        z->avail_out = room > INT_MAX ? INT_MAX : (unsigned)room;
        unsigned before = z->avail_out;
        rc = inflate(z, Z_NO_FLUSH);
        *got += before - z->avail_out;
        if (rc == Z_OK && before == z->avail_out && z->avail_in == 0 &&
            *left_in == 0)
            rc = Z_BUF_ERROR;
    }
    return rc;
}

/* zlib takes its window only when it first needs it. */
static sb_status idx_broken(sb_ctx *ctx, const char *path, int rc)
{
    return rc == Z_MEM_ERROR
               ? SB_NO_MEMORY
               : sb_fail(ctx, SB_BAD_DATA, "%s: broken gzip file", path);
}

static sb_status unpack_all(sb_ctx *ctx, const char *path, z_stream *z,
                            sb_idx *out)
{
    uint8_t head[HEADER_MOST];
    size_t left = out->map.size, got, total, rest, more;

    z->next_in = out->map.data;
    int rc = idx_unpack(z, &left, head, 4, &got);
    if ((rc == Z_OK || rc == Z_STREAM_END) && got == 4 && head[3] >= 1 &&
        head[3] <= SB_IDX_RANK) {
        rc = idx_unpack(z, &left, head + 4, 4 * (size_t)head[3], &more);
        got += more;
    }
    if (rc != Z_OK && rc != Z_STREAM_END)
        return idx_broken(ctx, path, rc);
    SB_TRY(read_header(ctx, path, head, got, out, &total));
    rest = total - header_size(out);
    if (rest / UNPACK_MOST > out->map.size)
        return wrong_size(ctx, path, out->map.size, total);
    /* One more byte, to see that nothing follows. */
    out->unpacked = sb_alloc_raw(ctx, rest + 1, 1);
    if (!out->unpacked)
        return SB_NO_MEMORY;
    got = 0;
    if (rc == Z_OK)
        rc = idx_unpack(z, &left, out->unpacked, rest + 1, &got);
    if (rc != Z_STREAM_END && rc != Z_OK && rc != Z_BUF_ERROR)
        return idx_broken(ctx, path, rc);
    if (got != rest)
        return wrong_size(ctx, path, header_size(out) + got, total);
    if (rc != Z_STREAM_END)
        return idx_broken(ctx, path, rc);
    out->data = out->unpacked;
    return SB_OK;
}

static sb_status open_packed(sb_ctx *ctx, const char *path, sb_idx *out)
{
    z_stream z = {.zalloc = zlib_take, .zfree = zlib_give, .opaque = ctx};

    if (inflateInit2(&z, GZIP) != Z_OK)
        return sb_fail(ctx, SB_NO_MEMORY, "%s: out of memory", path);
    sb_status status = unpack_all(ctx, path, &z, out);
    (void)inflateEnd(&z);
    sb_file_unmap(&out->map);
    return status;
}

sb_status sb_idx_open(sb_ctx *ctx, const char *path, sb_idx *out)
{
    static const uint8_t gzip[] = {0x1f, 0x8b};
    sb_idx idx = {0};
    size_t total;

    SB_TRY(sb_file_map(ctx, path, &idx.map));
    const uint8_t *p = idx.map.data;
    sb_status status = SB_OK;
    if (idx.map.size > 2 && memcmp(p, gzip, 2) == 0) {
        status = open_packed(ctx, path, &idx);
    } else {
        status = read_header(ctx, path, p, idx.map.size, &idx, &total);
        if (status == SB_OK && total != idx.map.size)
            status = wrong_size(ctx, path, idx.map.size, total);
        if (status == SB_OK)
            idx.data = p + header_size(&idx);
    }
    if (status == SB_OK)
        *out = idx;
    else
        sb_idx_close(ctx, &idx);
    return status;
}

void sb_idx_close(sb_ctx *ctx, sb_idx *idx)
{
    sb_file_unmap(&idx->map);
    sb_free(ctx, idx->unpacked);
    *idx = (sb_idx){0};
}
