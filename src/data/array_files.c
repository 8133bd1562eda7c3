/* Samples that are rows of arrays in files. */
#include "data/array_files.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

#include "data/array_keys.h"
#include "tensor/mapped.h"

enum { FORGET_BYTES = 1 << 20 };

static void drop_loaded(sb_source *s, sb_array_files *f)
{
    for (size_t k = 0; f->loaded && k < s->n_inputs; k++)
        sb_tensor_drop(&f->loaded[k]);
    f->at = SIZE_MAX;
}

static bool feeds_files(const sb_source *s)
{
    return s->array_keys->feed == SB_FEED_FILES;
}

/* Scalars hold for all samples, whatever their file says of the others. */
static void find_scalars(sb_source *s, const sb_tensor *t)
{
    for (size_t k = 0; k < s->n_inputs; k++)
        if (t[k].rank == 0)
            s->axes[k] = -1;
}

/* An array has an axis of rows, at least one, and as many as the first. */
static sb_status check_rows(sb_source *s, const sb_array_part *part,
                            const sb_tensor *t, size_t k, size_t *counted)
{
    const char *name = s->input_names ? s->input_names[k] : "data";
    char found[128], other[128];
    int axis = s->axes[k];

    if (axis < 0)
        return SB_OK;
    if (t[k].rank <= axis || t[k].dims[axis] < 1)
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "%s: '%s' is %s, want axis %d to count samples (AXIS, "
                       "or FEED: files if the file is one run)",
                       part->paths[0], name,
                       sb_tensor_describe(&t[k], found, sizeof found), axis);
    if (*counted == SIZE_MAX)
        *counted = k;
    if (t[k].dims[axis] == t[*counted].dims[s->axes[*counted]])
        return SB_OK;
    return sb_fail(s->ctx, SB_BAD_DATA,
                   "%s: '%s' is %s but '%s' is %s, want as many samples (AXIS, "
                   "or FEED: files if the file is one run)",
                   part->paths[0], name,
                   sb_tensor_describe(&t[k], found, sizeof found),
                   s->input_names[*counted],
                   sb_tensor_describe(&t[*counted], other, sizeof other));
}

/* How many samples the arrays of a part hold. */
static sb_status count_rows(sb_source *s, const sb_array_part *part,
                            const sb_tensor *t, size_t *out)
{
    size_t counted = SIZE_MAX;

    for (size_t k = 0; k < s->n_inputs; k++) {
        if (sb_dtype_size(t[k].dtype) == 0)
            return sb_fail(s->ctx, SB_BAD_DATA, "%s: '%s' holds no numbers",
                           part->paths[0],
                           s->input_names ? s->input_names[k] : "data");
        if (!feeds_files(s))
            SB_TRY(check_rows(s, part, t, k, &counted));
    }
    *out = counted == SIZE_MAX ? 1 : (size_t)t[counted].dims[s->axes[counted]];
    return SB_OK;
}

static sb_status load_part(sb_source *s, size_t p, sb_tensor *labels)
{
    sb_array_files *f = s->state;
    size_t count = 0;

    if (f->at == p && !labels)
        return SB_OK;
    drop_loaded(s, f);
    SB_TRY(f->load(s, &f->parts[p], f->loaded, labels));
    if (labels && p == 0)
        find_scalars(s, f->loaded);
    SB_TRY(count_rows(s, &f->parts[p], f->loaded, &count));
    /* The file may have changed since it was counted. */
    if (!labels && count != f->parts[p].count)
        return sb_fail(s->ctx, SB_IO, "%s: changed while it was read",
                       f->parts[p].paths[0]);
    f->parts[p].count = count;
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
                           "%s: label %zu is %lld, want 0 to %d",
                           part->paths[0], i, (long long)label, INT32_MAX);
        f->labels[f->n_labels++] = label;
    }
    return SB_OK;
}

sb_status sb_array_files_scan(sb_source *s)
{
    sb_array_files *f = s->state;

    f->at = SIZE_MAX;
    f->loaded = sb_arena_alloc(s->arena, s->n_inputs, sizeof *f->loaded);
    f->rows = sb_arena_alloc(s->arena, s->n_inputs, sizeof *f->rows);
    if (!f->loaded || !f->rows)
        return SB_NO_MEMORY;
    SB_TRY(sb_source_read_axes(s));
    for (size_t p = 0; p < f->n_parts; p++) {
        sb_array_part *part = &f->parts[p];
        sb_tensor labels = {0};

        SB_TRY(sb_ctx_poll(s->ctx));
        sb_status status = load_part(s, p, &labels);
        if (status == SB_OK) {
            part->first = s->count;
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
    for (size_t k = 0; f->rows && k < s->n_inputs; k++)
        sb_tensor_drop(&f->rows[k]);
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

    slash = slash ? slash + 1 : part->paths[0];
    if (feeds_files(s))
        (void)snprintf(out, size, "%s", slash);
    else
        (void)snprintf(out, size, "%s[%zu]", slash, i - part->first);
    return out;
}

bool sb_array_files_begins(const sb_source *s, size_t i)
{
    const sb_array_files *f = s->state;

    return f->parts[part_of(f, i)].first == i;
}

/* Mapped files count as memory of ours as far as they were read, although the
 * system could take it back at any time: so that memory does not seem to grow
 * with the number of samples, it is given back now and then. */
static void forget_read(const sb_source *s, sb_array_files *f)
{
    if (f->touched < FORGET_BYTES)
        return;
    for (size_t k = 0; k < s->n_inputs; k++)
        sb_tensor_release_pages(&f->loaded[k]);
    f->touched = 0;
}

/* Row `row` along an axis that is not the first: its pieces side by side. */
static sb_status gather_row(sb_source *s, size_t k, size_t row, sb_tensor *out)
{
    sb_array_files *f = s->state;
    const sb_tensor *t = &f->loaded[k];
    int axis = s->axes[k];
    sb_tensor want = sb_tensor_make(t->dtype, t->rank - 1, t->dims);

    for (int i = axis; i < want.rank; i++)
        want.dims[i] = t->dims[i + 1];
    if (!f->rows[k].buf ||
        sb_tensor_bytes(&want) > sb_buf_size(f->rows[k].buf)) {
        sb_tensor_drop(&f->rows[k]);
        f->rows[k] = want;
        SB_TRY(sb_tensor_alloc(s->ctx, &f->rows[k]));
    }
    want.data = f->rows[k].data;
    size_t outer = (size_t)sb_dims_product(t->dims, 0, axis);
    size_t piece = outer ? sb_tensor_bytes(&want) / outer : 0;
    for (size_t o = 0; o < outer && piece; o++)
        memcpy((char *)want.data + o * piece,
               (const char *)t->data +
                   (o * (size_t)t->dims[axis] + row) * piece,
               piece);
    *out = want;
    return SB_OK;
}

sb_status sb_array_files_arrays(sb_source *s, size_t i, sb_tensor *out)
{
    sb_array_files *f = s->state;
    size_t p = part_of(f, i), row = i - f->parts[p].first;

    SB_TRY(load_part(s, p, NULL));
    forget_read(s, f);
    for (size_t k = 0; k < s->n_inputs; k++) {
        const sb_tensor *t = &f->loaded[k];

        if (feeds_files(s) || s->axes[k] < 0) {
            out[k] = sb_tensor_make(t->dtype, t->rank, t->dims);
            out[k].data = t->data;
        } else if (s->axes[k] > 0) {
            SB_TRY(gather_row(s, k, row, &out[k]));
        } else {
            out[k] = sb_tensor_make(t->dtype, t->rank - 1, t->dims + 1);
            out[k].data = (char *)t->data + row * sb_tensor_bytes(&out[k]);
        }
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
