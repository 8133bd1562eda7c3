/* npy: NumPy arrays whose first axis counts samples.
 *
 * One input comes from PATH: a file, a list of files, or a folder of them.
 * Several come from INPUTS, a map from the names of the model's inputs to
 * files or folders. */
#include "data/array_files.h"
#include "tensor/npy.h"

typedef struct {
    const sb_yaml *inputs;
} npy_keys;

static const sb_param_def table[] = {
    {.name = "INPUTS",
     .type = SB_PARAM_NODE,
     .offset = offsetof(npy_keys, inputs),
     .values = "a map from names of inputs to paths",
     .help = "instead of PATH: a map from model inputs to files or folders"},
    {0},
};

static sb_status npy_load(sb_source *s, const sb_array_part *part,
                          sb_tensor *out, sb_tensor *labels)
{
    (void)labels;
    for (size_t k = 0; k < s->n_inputs; k++)
        SB_TRY(sb_npy_load_const(s->ctx, part->paths[k], &out[k]));
    return SB_OK;
}

static sb_status make_parts(sb_source *s, size_t n)
{
    sb_array_files *f = s->state;

    if (n == 0)
        return sb_source_fail(s, "PATH", "found nothing, want a file");
    f->parts = sb_arena_alloc(s->arena, n, sizeof *f->parts);
    if (!f->parts)
        return SB_NO_MEMORY;
    f->n_parts = n;
    for (size_t p = 0; p < n; p++) {
        f->parts[p].paths =
            sb_arena_alloc(s->arena, s->n_inputs, sizeof(const char *));
        if (!f->parts[p].paths)
            return SB_NO_MEMORY;
    }
    return SB_OK;
}

/* The files of input `k`: the k-th path of each part. */
static sb_status add_input(sb_source *s, size_t k, const char *const *path,
                           size_t n)
{
    sb_array_files *f = s->state;
    sb_name_list list = {0};
    sb_status status = sb_array_files_list(s, path, n, ".npy", &list);

    if (status == SB_OK && k == 0)
        status = make_parts(s, list.n);
    if (status == SB_OK && list.n != f->n_parts)
        status = sb_source_fail(
            s, "INPUTS", "'%s' has %zu files, '%s' has %zu, want as many",
            s->input_names[k], list.n, s->input_names[0], f->n_parts);
    for (size_t p = 0; p < list.n && status == SB_OK; p++)
        f->parts[p].paths[k] = list.v[p];
    sb_free(s->ctx, list.v);
    return status;
}

static sb_status add_named_inputs(sb_source *s, const sb_yaml *map)
{
    if (map->kind != SB_YAML_MAP || map->n == 0)
        return sb_source_fail(s, "INPUTS", "want a map 'input: file.npy'");
    if (s->keys->path.n)
        return sb_source_fail(s, "PATH", "want either PATH or INPUTS");
    s->n_inputs = map->n;
    s->input_names = sb_arena_alloc(s->arena, map->n, sizeof *s->input_names);
    if (!s->input_names)
        return SB_NO_MEMORY;
    for (size_t k = 0; k < map->n; k++)
        s->input_names[k] = map->keys[k]->text;
    for (size_t k = 0; k < map->n; k++) {
        if (map->items[k]->kind != SB_YAML_SCALAR)
            return sb_source_fail(s, "INPUTS", "'%s': want a path",
                                  s->input_names[k]);
        SB_TRY(add_input(s, k, &map->items[k]->text, 1));
    }
    return SB_OK;
}

static sb_status npy_open(sb_source *s)
{
    const npy_keys *keys = s->own_keys;
    sb_array_files *f = sb_arena_alloc(s->arena, 1, sizeof *f);

    if (!f)
        return SB_NO_MEMORY;
    s->state = f;
    f->load = npy_load;
    if (keys->inputs) {
        SB_TRY(add_named_inputs(s, keys->inputs));
    } else {
        s->n_inputs = 1;
        SB_TRY(add_input(s, 0, s->keys->path.v, s->keys->path.n));
    }
    SB_TRY(sb_array_files_scan(s));
    return sb_source_read_labels(s);
}

const sb_source_def sb_source_npy = {
    .name = "npy",
    .summary = "NumPy arrays whose first axis counts samples",
    .table = table,
    .keys_size = sizeof(npy_keys),
    .open = npy_open,
    .close = sb_array_files_close,
    .name_of = sb_array_files_name,
    .arrays = sb_array_files_arrays,
    .begins = sb_array_files_begins,
};
