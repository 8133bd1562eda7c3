/* npz: archives of NumPy arrays, one array a model input, by its name.
 *
 * PATH is an archive, a list of them, or a folder.  The inputs are those of
 * INPUTS, or every array of the first archive.  LABELS may name an array of the
 * archives, else it is a file. */
#include <string.h>

#include "data/array_files.h"
#include "tensor/npy.h"

typedef struct {
    sb_param_strings inputs;
} npz_keys;

static const sb_param_def table[] = {
    {.name = "INPUTS",
     .type = SB_PARAM_STRINGS,
     .offset = offsetof(npz_keys, inputs),
     .help = "the arrays to use (default: all)"},
    {0},
};

static sb_npz_item *item_of(sb_npz_item *items, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(items[i].name, name) == 0)
            return &items[i];
    return NULL;
}

static sb_status pick_items(sb_source *s, const char *path, sb_npz_item *items,
                            size_t n, sb_tensor *out, sb_tensor *labels)
{
    const char *label = s->keys->labels;

    for (size_t k = 0; k < s->n_inputs; k++) {
        sb_npz_item *item = item_of(items, n, s->input_names[k]);

        if (!item)
            return sb_fail(s->ctx, SB_BAD_DATA, "%s: no array '%s'", path,
                           s->input_names[k]);
        out[k] = sb_tensor_share(&item->tensor);
    }
    if (labels && label && !s->own_targets) {
        sb_npz_item *item = item_of(items, n, label);

        if (item)
            *labels = sb_tensor_share(&item->tensor);
    }
    return SB_OK;
}

static sb_status npz_load(sb_source *s, const sb_array_part *part,
                          sb_tensor *out, sb_tensor *labels)
{
    sb_npz_item *items = NULL;
    size_t n = 0;

    SB_TRY(sb_npz_load(s->ctx, part->paths[0], &items, &n));
    sb_status status = pick_items(s, part->paths[0], items, n, out, labels);
    sb_npz_free(s->ctx, items, n);
    return status;
}

/* Labels that are no class for each sample are one more array. */
static void find_targets(sb_source *s, const sb_npz_item *items, size_t n)
{
    for (size_t i = 0; s->keys->labels && i < n; i++) {
        const sb_tensor *t = &items[i].tensor;

        if (strcmp(items[i].name, s->keys->labels) == 0 && t->rank > 0 &&
            !sb_labels_are_classes(t, (size_t)t->dims[0])) {
            s->input_names[s->n_inputs++] = s->keys->labels;
            s->own_targets = true;
        }
    }
}

/* INPUTS, or all arrays of the first archive but the labels. */
static sb_status names_from_archive(sb_source *s, const char *path)
{
    const npz_keys *keys = s->own_keys;
    sb_npz_item *items = NULL;
    size_t n = 0;

    SB_TRY(sb_npz_load(s->ctx, path, &items, &n));
    sb_status status = SB_OK;
    s->input_names =
        sb_arena_alloc(s->arena, n + keys->inputs.n, sizeof *s->input_names);
    if (!s->input_names)
        status = SB_NO_MEMORY;
    for (size_t i = 0; i < keys->inputs.n && status == SB_OK; i++)
        s->input_names[s->n_inputs++] = keys->inputs.v[i];
    for (size_t i = 0; keys->inputs.n == 0 && i < n && status == SB_OK; i++) {
        if (s->keys->labels && strcmp(items[i].name, s->keys->labels) == 0)
            continue;
        const char *name = sb_arena_str(s->arena, items[i].name);
        if (!name)
            status = SB_NO_MEMORY;
        s->input_names[s->n_inputs++] = name;
    }
    if (status == SB_OK && s->n_inputs == 0)
        status = sb_fail(s->ctx, SB_BAD_DATA, "%s: no arrays", path);
    if (status == SB_OK)
        find_targets(s, items, n);
    sb_npz_free(s->ctx, items, n);
    return status;
}

static sb_status take_archives(sb_source *s, const sb_name_list *list)
{
    sb_array_files *f = s->state;

    if (list->n == 0)
        return sb_source_fail(s, "PATH", "found nothing, want a file");
    f->parts = sb_arena_alloc(s->arena, list->n, sizeof *f->parts);
    const char **paths =
        sb_arena_copy(s->arena, list->v, list->n * sizeof(const char *));
    if (!f->parts || !paths)
        return SB_NO_MEMORY;
    f->n_parts = list->n;
    for (size_t p = 0; p < list->n; p++)
        f->parts[p].paths = &paths[p];
    return names_from_archive(s, paths[0]);
}

static sb_status npz_open(sb_source *s)
{
    sb_array_files *f = sb_arena_alloc(s->arena, 1, sizeof *f);
    sb_name_list list = {0};

    if (!f)
        return SB_NO_MEMORY;
    s->state = f;
    f->load = npz_load;
    sb_status status =
        sb_array_files_list(s, s->keys->path.v, s->keys->path.n, ".npz", &list);
    if (status == SB_OK)
        status = take_archives(s, &list);
    sb_free(s->ctx, list.v);
    SB_TRY(status);
    SB_TRY(sb_array_files_scan(s));
    if (s->labels && f->n_labels != s->count)
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "%s: not every archive has an array '%s'",
                       f->parts[0].paths[0], s->keys->labels);
    return s->labels || s->own_targets ? SB_OK : sb_source_read_labels(s);
}

const sb_source_def sb_source_npz = {
    .name = "npz",
    .summary = "archives of NumPy arrays named as the model's inputs",
    .table = table,
    .keys_size = sizeof(npz_keys),
    .open = npz_open,
    .close = sb_array_files_close,
    .name_of = sb_array_files_name,
    .arrays = sb_array_files_arrays,
    .begins = sb_array_files_begins,
};
