/* Samples that are rows of arrays in files. */
#include "data/array_files.h"

#include <stdio.h>
#include <string.h>

#include "tensor/align.h"

enum { FORGET_BYTES = 1 << 20 };

static void drop_loaded(sb_source *s, sb_array_files *f)
{
    for (size_t k = 0; f->loaded && k < s->n_inputs; k++)
        sb_tensor_drop(&f->loaded[k]);
    f->at = SIZE_MAX;
}

/* Every array has the same number of rows, and at least one. */
static sb_status check_rows(sb_source *s, const sb_array_part *part,
                            const sb_tensor *t)
{
    char first[128], other[128];

    for (size_t k = 0; k < s->n_inputs; k++) {
        const char *name = s->input_names ? s->input_names[k] : "data";

        if (sb_dtype_size(t[k].dtype) == 0)
            return sb_fail(s->ctx, SB_BAD_DATA, "%s: '%s' holds no numbers",
                           part->paths[0], name);
        if (t[k].rank < 1 || t[k].dims[0] < 1)
            return sb_fail(s->ctx, SB_BAD_DATA,
                           "%s: '%s' is %s, want a first axis that counts "
                           "samples",
                           part->paths[0], name,
                           sb_tensor_describe(&t[k], first, sizeof first));
        if (t[k].dims[0] != t[0].dims[0])
            return sb_fail(
                s->ctx, SB_BAD_DATA,
                "%s: '%s' is %s but '%s' is %s, want as many samples",
                part->paths[0], name,
                sb_tensor_describe(&t[k], first, sizeof first),
                s->input_names[0],
                sb_tensor_describe(&t[0], other, sizeof other));
    }
    return SB_OK;
}

static sb_status load_part(sb_source *s, size_t p, sb_tensor *labels)
{
    sb_array_files *f = s->state;

    if (f->at == p && !labels)
        return SB_OK;
    drop_loaded(s, f);
    SB_TRY(f->load(s, &f->parts[p], f->loaded, labels));
    SB_TRY(check_rows(s, &f->parts[p], f->loaded));
    f->at = p;
    return SB_OK;
}

static sb_status add_labels(sb_source *s, const sb_array_part *part,
                            const sb_tensor *t)
{
    sb_array_files *f = s->state;
    char found[128];

    if (!sb_dtype_is_integral(t->dtype) ||
        (uint64_t)sb_tensor_count(t) != part->count)
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "%s: labels are %s, want %zu integers", part->paths[0],
                       sb_tensor_describe(t, found, sizeof found), part->count);
    SB_TRY(sb_grow(s->ctx, &f->labels, &f->cap_labels,
                   f->n_labels + part->count, sizeof *f->labels));
    for (size_t i = 0; i < part->count; i++) {
        int64_t label = sb_tensor_get_i64(t, (int64_t)i);

        if (label < 0 || label > INT32_MAX)
            return sb_fail(s->ctx, SB_BAD_DATA,
                           "%s: label %zu is %lld, want 0 or more",
                           part->paths[0], i, (long long)label);
        f->labels[f->n_labels++] = label;
    }
    return SB_OK;
}

sb_status sb_array_files_scan(sb_source *s)
{
    sb_array_files *f = s->state;

    f->at = SIZE_MAX;
    f->loaded = sb_arena_alloc(s->arena, s->n_inputs, sizeof *f->loaded);
    if (!f->loaded)
        return SB_NO_MEMORY;
    for (size_t p = 0; p < f->n_parts; p++) {
        sb_array_part *part = &f->parts[p];
        sb_tensor labels = {0};

        SB_TRY(sb_ctx_poll(s->ctx));
        sb_status status = load_part(s, p, &labels);
        if (status == SB_OK) {
            part->first = s->count;
            part->count = (size_t)f->loaded[0].dims[0];
            s->count += part->count;
            if (labels.data)
                status = add_labels(s, part, &labels);
        }
        sb_tensor_drop(&labels);
        SB_TRY(status);
    }
    if (f->n_labels)
        s->labels = f->labels;
    return SB_OK;
}

void sb_array_files_close(sb_source *s)
{
    sb_array_files *f = s->state;

    if (!f)
        return;
    drop_loaded(s, f);
    sb_free(s->ctx, f->labels);
}

/* The part that holds sample `i`. */
static size_t part_of(const sb_array_files *f, size_t i)
{
    size_t low = 0, high = f->n_parts;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (f->parts[middle].first <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

const char *sb_array_files_name(const sb_source *s, size_t i, char *out,
                                size_t size)
{
    const sb_array_files *f = s->state;
    const sb_array_part *part = &f->parts[part_of(f, i)];
    const char *slash = strrchr(part->paths[0], '/');

    (void)snprintf(out, size, "%s[%zu]", slash ? slash + 1 : part->paths[0],
                   i - part->first);
    return out;
}

/* Mapped files count as memory of ours as far as they were read, although the
 * system could take it back at any time: so that memory does not seem to grow
 * with the number of samples, it is given back now and then. */
static void forget_read(const sb_source *s, sb_array_files *f)
{
    if (f->touched < FORGET_BYTES)
        return;
    for (size_t k = 0; k < s->n_inputs; k++)
        sb_tensor_forget(&f->loaded[k]);
    f->touched = 0;
}

sb_status sb_array_files_arrays(sb_source *s, size_t i, sb_tensor *out)
{
    sb_array_files *f = s->state;
    size_t p = part_of(f, i), row = i - f->parts[p].first;

    SB_TRY(load_part(s, p, NULL));
    forget_read(s, f);
    for (size_t k = 0; k < s->n_inputs; k++) {
        const sb_tensor *t = &f->loaded[k];

        /* The file may have changed since it was counted. */
        if ((size_t)t->dims[0] != f->parts[p].count)
            return sb_fail(s->ctx, SB_IO, "%s: changed while it was read",
                           f->parts[p].paths[0]);
        out[k] = sb_tensor_make(t->dtype, t->rank - 1, t->dims + 1);
        out[k].data = (char *)t->data + row * sb_tensor_bytes(&out[k]);
        f->touched += sb_tensor_bytes(&out[k]);
    }
    return SB_OK;
}

static sb_status add_folder(sb_source *s, const char *dir, const char *ending,
                            sb_name_list *list)
{
    const char *const endings[] = {ending, NULL};
    sb_name_list names = {0};
    sb_status status =
        sb_files_find(s->ctx, s->arena, dir, endings, false, &names);

    if (status == SB_OK && names.n == 0)
        status = sb_fail(s->ctx, SB_BAD_DATA, "%s: no %s files", dir, ending);
    for (size_t i = 0; i < names.n && status == SB_OK; i++)
        status = sb_name_list_add(
            s->ctx, list, sb_arena_printf(s->arena, "%s/%s", dir, names.v[i]));
    sb_free(s->ctx, names.v);
    return status;
}

sb_status sb_array_files_list(sb_source *s, const char *const *path, size_t n,
                              const char *ending, sb_name_list *list)
{
    for (size_t i = 0; i < n; i++) {
        const char *full = sb_source_path(s, path[i]);

        if (!full)
            return SB_NO_MEMORY;
        if (sb_is_folder(full))
            SB_TRY(add_folder(s, full, ending, list));
        else
            SB_TRY(sb_name_list_add(s->ctx, list, full));
    }
    return SB_OK;
}
