/* image_folder: JPEG and PNG files of a folder, sorted by name.
 *
 * Labels come from a file of lines `file label`, or from the folders in which
 * the images lie: the classes are the folders right under PATH, numbered in
 * the order of their names, as torchvision does it. */
#include <string.h>

#include "base/file.h"
#include "base/map.h"
#include "data/source.h"

static const char *const endings[] = {".jpg", ".jpeg", ".jpe", ".png", NULL};

const char *sb_image_files_name(const sb_source *s, size_t i, char *out,
                                size_t size)
{
    const sb_image_files *f = s->state;

    (void)out;
    (void)size;
    return f->names[i];
}

sb_status sb_image_files_image(const sb_source *s, sb_ctx *ctx, size_t i,
                               sb_image *out)
{
    const sb_image_files *f = s->state;

    return sb_image_load(ctx, f->paths[i], out);
}

static sb_status map_lines(sb_source *s, const char *path,
                           const sb_label_list *list, sb_map *map,
                           int64_t *labels)
{
    const sb_image_files *f = s->state;

    for (size_t i = 0; i < list->n; i++)
        SB_TRY(sb_map_put(map, list->v[i].file, (uint32_t)list->v[i].label));
    for (size_t i = 0; i < s->count; i++) {
        uint32_t label = sb_map_get(map, f->names[i]);

        if (label == SB_MAP_NONE)
            return sb_fail(s->ctx, SB_BAD_DATA, "%s: no label for '%s'", path,
                           f->names[i]);
        labels[i] = label;
    }
    return SB_OK;
}

static sb_status labels_from_file(sb_source *s, const char *path,
                                  int64_t *labels)
{
    sb_label_list list = {0};
    sb_map map;

    sb_map_init(&map, s->ctx);
    sb_status status = sb_label_lines(s->ctx, s->arena, path, false, &list);
    if (status == SB_OK)
        status = map_lines(s, path, &list, &map, labels);
    sb_map_free(&map);
    sb_free(s->ctx, list.v);
    if (status == SB_OK)
        s->labels = labels;
    return status;
}

static sb_status labels_from_path(sb_source *s, int64_t *labels)
{
    const char *path = sb_source_path(s, s->keys->labels);

    if (!path)
        return SB_NO_MEMORY;
    if (sb_is_folder(path))
        return sb_source_find_masks(s, path);
    return sb_ends_with(path, ".npy") ? sb_source_read_labels(s)
                                      : labels_from_file(s, path, labels);
}

/* The class folder of each image; nothing if one lies outside of all. */
static sb_status labels_from_folders(sb_source *s, const char *dir,
                                     int64_t *labels)
{
    const sb_image_files *f = s->state;
    sb_name_list classes = {0};
    sb_status status = sb_folders_find(s->ctx, s->arena, dir, &classes);
    bool all = true;

    for (size_t i = 0, c = 0; i < s->count && status == SB_OK && all; i++) {
        const char *slash = strchr(f->names[i], '/');
        size_t len = slash ? (size_t)(slash - f->names[i]) : 0;

        /* Both lists are in the same order. */
        while (c < classes.n && (strncmp(classes.v[c], f->names[i], len) != 0 ||
                                 classes.v[c][len]))
            c++;
        all = slash && c < classes.n;
        labels[i] = (int64_t)c;
    }
    sb_free(s->ctx, classes.v);
    if (status == SB_OK && all)
        s->labels = labels;
    return status;
}

static sb_status take_files(sb_source *s, const char *dir,
                            const sb_name_list *list)
{
    sb_image_files *f = sb_arena_alloc(s->arena, 1, sizeof *f);
    int64_t *labels = sb_arena_alloc(s->arena, list->n, sizeof *labels);

    if (list->n == 0)
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "%s: no images (.jpg, .jpeg, .jpe, .png)", dir);
    if (!f || !labels)
        return SB_NO_MEMORY;
    s->state = f;
    s->count = list->n;
    f->names = sb_arena_copy(s->arena, list->v, list->n * sizeof(const char *));
    f->paths = sb_arena_alloc(s->arena, list->n, sizeof *f->paths);
    if (!f->names || !f->paths)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < list->n; i++) {
        f->paths[i] = sb_arena_printf(s->arena, "%s/%s", dir, list->v[i]);
        if (!f->paths[i])
            return SB_NO_MEMORY;
    }
    return s->keys->labels ? labels_from_path(s, labels)
                           : labels_from_folders(s, dir, labels);
}

/* PATH is one image: the folder it is in, and that image alone. */
static sb_status split_path(sb_source *s, const char **path, sb_name_list *list)
{
    const char *slash = strrchr(*path, '/');
    const char *name = slash ? slash + 1 : *path;

    SB_TRY(sb_name_list_add(s->ctx, list, name));
    *path =
        slash ? sb_arena_strn(s->arena, *path, (size_t)(slash - *path)) : ".";
    return *path ? SB_OK : SB_NO_MEMORY;
}

static bool is_image_name(const char *name)
{
    for (const char *const *e = endings; *e; e++)
        if (sb_ends_with(name, *e))
            return true;
    return false;
}

static sb_status folder_open(sb_source *s)
{
    sb_name_list list = {0};
    const char *dir = NULL;

    SB_TRY(sb_source_one_path(s, &dir));
    sb_status status =
        is_image_name(dir) && !sb_is_folder(dir)
            ? split_path(s, &dir, &list)
            : sb_files_find(s->ctx, s->arena, dir, endings, true, &list);
    if (status == SB_OK)
        status = take_files(s, dir, &list);
    sb_free(s->ctx, list.v);
    s->native = SB_RGB;
    return status;
}

const sb_source_def sb_source_image_folder = {
    .name = "image_folder",
    .summary = "JPEG and PNG files in a folder, by name; or one file",
    .open = folder_open,
    .name_of = sb_image_files_name,
    .image = sb_image_files_image,
};
