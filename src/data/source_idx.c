/* idx: images of an IDX file (MNIST, Fashion-MNIST), labels of a second one. */
#include <stdio.h>
#include <string.h>

#include "data/idx.h"
#include "data/source.h"

typedef struct {
    const char *path;
    sb_idx images;
    int width, height, channels;
} idx_state;

static sb_status read_labels(sb_source *s)
{
    sb_idx idx;
    int64_t *labels = sb_arena_alloc(s->arena, s->count, sizeof *labels);
    const char *path = sb_source_path(s, s->keys->labels);

    if (!labels || !path)
        return SB_NO_MEMORY;
    SB_TRY(sb_idx_open(s->ctx, path, &idx));
    sb_status status = SB_OK;
    if (idx.rank != 1 || idx.dims[0] != s->count)
        status = sb_fail(s->ctx, SB_BAD_DATA,
                         "%s: %zu labels in %d dimensions, want %zu in one",
                         path, idx.dims[0], idx.rank, s->count);
    for (size_t i = 0; i < s->count && status == SB_OK; i++)
        labels[i] = idx.data[i];
    sb_idx_close(s->ctx, &idx);
    if (status == SB_OK)
        s->labels = labels;
    return status;
}

static sb_status idx_open(sb_source *s)
{
    idx_state *st = sb_arena_alloc(s->arena, 1, sizeof *st);

    if (!st)
        return SB_NO_MEMORY;
    s->state = st;
    SB_TRY(sb_source_one_path(s, &st->path));
    SB_TRY(sb_idx_open(s->ctx, st->path, &st->images));
    const size_t *d = st->images.dims;
    int rank = st->images.rank;
    if (rank < 3 || (rank == 4 && d[3] != 1 && d[3] != 3))
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "%s: %d dimensions, want images as [count, height, "
                       "width] or [count, height, width, 1 or 3]",
                       st->path, rank);
    SB_TRY(sb_image_check(s->ctx, st->path, d[2], d[1]));
    st->height = (int)d[1];
    st->width = (int)d[2];
    st->channels = rank == 4 ? (int)d[3] : 1;
    s->count = d[0];
    s->native = st->channels == 1 ? SB_GRAY : SB_RGB;
    if (s->count == 0)
        return sb_fail(s->ctx, SB_BAD_DATA, "%s: no images", st->path);
    return s->keys->labels ? read_labels(s) : SB_OK;
}

static void idx_close(sb_source *s)
{
    idx_state *st = s->state;

    if (st)
        sb_idx_close(s->ctx, &st->images);
}

static const char *idx_name(const sb_source *s, size_t i, char *out,
                            size_t size)
{
    const idx_state *st = s->state;
    const char *slash = strrchr(st->path, '/');

    (void)snprintf(out, size, "%s[%zu]", slash ? slash + 1 : st->path, i);
    return out;
}

static sb_status idx_image(const sb_source *s, sb_ctx *ctx, size_t i,
                           sb_image *out)
{
    const idx_state *st = s->state;
    size_t bytes =
        (size_t)st->width * (size_t)st->height * (size_t)st->channels;

    *out = (sb_image){st->width, st->height, st->channels, NULL};
    SB_TRY(sb_image_alloc(ctx, out));
    memcpy(out->data, st->images.data + i * bytes, bytes);
    return SB_OK;
}

const sb_source_def sb_source_idx = {
    .name = "idx",
    .summary = "IDX files as of MNIST and Fashion-MNIST, also .gz",
    .open = idx_open,
    .close = idx_close,
    .name_of = idx_name,
    .image = idx_image,
};
