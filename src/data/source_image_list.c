/* image_list: a text file with lines `path` or `path label`; paths are relative
 * to the list. */
#include "base/file.h"
#include "data/source.h"

static sb_status take_lines(sb_source *s, const char *path,
                            const sb_label_list *list)
{
    sb_image_files *f = sb_arena_alloc(s->arena, 1, sizeof *f);
    int64_t *labels = sb_arena_alloc(s->arena, list->n, sizeof *labels);
    bool labeled = list->n > 0 && list->v[0].label >= 0;

    if (list->n == 0)
        return sb_fail(s->ctx, SB_BAD_DATA, "%s: the list is empty", path);
    if (!f || !labels)
        return SB_NO_MEMORY;
    f->names = sb_arena_alloc(s->arena, list->n, sizeof *f->names);
    f->paths = sb_arena_alloc(s->arena, list->n, sizeof *f->paths);
    if (!f->names || !f->paths)
        return SB_NO_MEMORY;
    s->state = f;
    for (size_t i = 0; i < list->n; i++) {
        const sb_label_line *row = &list->v[i];

        if ((row->label >= 0) != labeled || !*row->file)
            return sb_fail(s->ctx, SB_BAD_DATA,
                           "%s:%d: found '%s', want lines that all are PATH, "
                           "or all PATH LABEL",
                           path, row->line, row->file);
        char *full = row->file[0] == '/'
                         ? NULL
                         : sb_path_beside(s->ctx, path, row->file);
        f->names[i] = row->file;
        f->paths[i] = row->file[0] == '/' ? row->file
                      : full              ? sb_arena_str(s->arena, full)
                                          : NULL;
        sb_free(s->ctx, full);
        if (!f->paths[i])
            return SB_NO_MEMORY;
        labels[i] = row->label;
    }
    s->count = list->n;
    s->labels = labeled ? labels : NULL;
    return SB_OK;
}

static sb_status list_open(sb_source *s)
{
    sb_label_list list = {0};
    const char *path = NULL;

    s->native = SB_RGB;
    SB_TRY(sb_source_one_path(s, &path));
    const char *masks =
        s->keys->labels ? sb_source_path(s, s->keys->labels) : NULL;
    if (s->keys->labels && !masks)
        return SB_NO_MEMORY;
    if (masks && !sb_is_folder(masks))
        return sb_source_fail(s, "LABELS",
                              "image_list has labels in the list itself: "
                              "'path label'; or want a folder of masks");
    sb_status status = sb_label_lines(s->ctx, s->arena, path, true, &list);
    if (status == SB_OK)
        status = take_lines(s, path, &list);
    sb_free(s->ctx, list.v);
    return status == SB_OK && masks ? sb_source_find_masks(s, masks) : status;
}

const sb_source_def sb_source_image_list = {
    .name = "image_list",
    .summary =
        "images named by a text file, one per line, with or without label",
    .open = list_open,
    .name_of = sb_image_files_name,
    .image = sb_image_files_image,
};
