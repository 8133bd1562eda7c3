/* cifar10: the binary files of CIFAR-10.
 *
 * A record is one byte of label and 3 x 32 x 32 bytes of red, green and blue
 * planes; a file is nothing but records.  PATH may be a list of files. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/source.h"

enum { SIDE = 32, PLANE = SIDE * SIDE, RECORD = 1 + 3 * PLANE, CLASSES = 10 };

typedef struct {
    const char *path;
    sb_mapping map;
    size_t first; /* number of its first sample */
} part;

typedef struct {
    part *parts;
    size_t n;
} cifar;

static const part *part_of(const cifar *c, size_t i)
{
    size_t p = c->n - 1;

    while (c->parts[p].first > i)
        p--;
    return &c->parts[p];
}

static sb_status open_part(sb_source *s, cifar *c, const char *path)
{
    part *p = &c->parts[c->n];

    p->path = path;
    p->first = s->count;
    SB_TRY(sb_file_map(s->ctx, path, &p->map));
    c->n++;
    if (p->map.size == 0 || p->map.size % RECORD != 0)
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "%s: %zu bytes, want records of %d bytes", path,
                       p->map.size, RECORD);
    s->count += p->map.size / RECORD;
    return SB_OK;
}

static const uint8_t *record_of(const sb_source *s, size_t i)
{
    const part *p = part_of(s->state, i);

    return (const uint8_t *)p->map.data + (i - p->first) * RECORD;
}

static sb_status read_labels(sb_source *s)
{
    int64_t *labels = sb_arena_alloc(s->arena, s->count, sizeof *labels);

    if (!labels)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        labels[i] = record_of(s, i)[0];
        if (labels[i] >= CLASSES)
            return sb_fail(s->ctx, SB_BAD_DATA,
                           "%s: record %zu has label %lld, want 0..%d",
                           part_of(s->state, i)->path,
                           i - part_of(s->state, i)->first,
                           (long long)labels[i], CLASSES - 1);
    }
    s->labels = labels;
    return SB_OK;
}

static sb_status cifar_open(sb_source *s)
{
    cifar *c = sb_arena_alloc(s->arena, 1, sizeof *c);
    size_t n = s->keys->path.n;

    s->native = SB_RGB;
    if (s->keys->labels)
        return sb_source_fail(s, "LABELS", "cifar10 has labels in its files");
    if (!c)
        return SB_NO_MEMORY;
    s->state = c;
    c->parts = sb_arena_alloc(s->arena, n, sizeof *c->parts);
    if (!c->parts)
        return SB_NO_MEMORY;
    if (n == 0)
        return sb_source_fail(s, "PATH", "found nothing, want files");
    for (size_t i = 0; i < n; i++) {
        const char *path = sb_source_path(s, s->keys->path.v[i]);

        if (!path)
            return SB_NO_MEMORY;
        SB_TRY(open_part(s, c, path));
    }
    return read_labels(s);
}

static void cifar_close(sb_source *s)
{
    cifar *c = s->state;

    for (size_t i = 0; c && i < c->n; i++)
        sb_file_unmap(&c->parts[i].map);
}

static const char *cifar_name(const sb_source *s, size_t i, char *out,
                              size_t size)
{
    const part *p = part_of(s->state, i);
    const char *slash = strrchr(p->path, '/');

    (void)snprintf(out, size, "%s[%zu]", slash ? slash + 1 : p->path,
                   i - p->first);
    return out;
}

static sb_status cifar_image(const sb_source *s, sb_ctx *ctx, size_t i,
                             sb_image *out)
{
    const uint8_t *plane = record_of(s, i) + 1;

    *out = (sb_image){SIDE, SIDE, 3, NULL};
    SB_TRY(sb_image_alloc(ctx, out));
    for (size_t p = 0; p < PLANE; p++)
        for (size_t c = 0; c < 3; c++)
            out->data[3 * p + c] = plane[c * PLANE + p];
    return SB_OK;
}

const sb_source_def sb_source_cifar10 = {
    .name = "cifar10",
    .summary = "the binary files of CIFAR-10",
    .open = cifar_open,
    .close = cifar_close,
    .name_of = cifar_name,
    .image = cifar_image,
};
