/* Labels: lines of text, or arrays of integers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/data.h"
#include "tensor/npy.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* A whole number from 0 to 2^31 - 1 that fills [text, text + len). */
static bool read_label(const char *text, size_t len, int64_t *out)
{
    int64_t v = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        v = 10 * v + (text[i] - '0');
        if (v > INT32_MAX)
            return false;
    }
    *out = v;
    return len > 0;
}

/* One line without its spaces at both ends. */
static sb_status parse_line(sb_ctx *ctx, sb_arena *arena, const char *path,
                            const char *text, size_t len, bool optional,
                            sb_label_line *out)
{
    size_t word = len;

    while (word > 0 && !is_space(text[word - 1]))
        word--;
    size_t file = len;
    if (read_label(text + word, len - word, &out->label)) {
        file = word;
        while (file > 0 && is_space(text[file - 1]))
            file--;
    } else if (optional) {
        out->label = -1;
    } else {
        return sb_fail(ctx, SB_BAD_DATA,
                       "%s:%d: found '%.*s', want a label from 0 at the end",
                       path, out->line, (int)(len > 80 ? 80 : len), text);
    }
    out->file = sb_arena_strn(arena, text, file);
    return out->file ? SB_OK : SB_NO_MEMORY;
}

static sb_status parse_lines(sb_ctx *ctx, sb_arena *arena, const char *path,
                             const char *text, size_t size, bool optional,
                             sb_label_list *out)
{
    const char *end = text + size;

    for (int line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *next = stop ? stop + 1 : end, *last = stop ? stop : end;

        while (text < last && is_space(*text))
            text++;
        while (last > text && is_space(last[-1]))
            last--;
        if (last > text) {
            sb_label_line row = {.line = line};

            SB_TRY(parse_line(ctx, arena, path, text, (size_t)(last - text),
                              optional, &row));
            SB_TRY(
                sb_grow(ctx, &out->v, &out->cap, out->n + 1, sizeof *out->v));
            out->v[out->n++] = row;
        }
        text = next;
    }
    return SB_OK;
}

sb_status sb_label_lines(sb_ctx *ctx, sb_arena *arena, const char *path,
                         bool optional, sb_label_list *out)
{
    sb_mapping map;

    SB_TRY(sb_file_map(ctx, path, &map));
    sb_status status = SB_OK;
    if (map.size && memchr(map.data, '\0', map.size))
        status = sb_fail(ctx, SB_BAD_DATA, "%s: not a text file", path);
    else if (map.size)
        status =
            parse_lines(ctx, arena, path, map.data, map.size, optional, out);
    sb_file_unmap(&map);
    return status;
}

static int64_t *room_for_labels(sb_source *s)
{
    return sb_arena_alloc(s->arena, s->count, sizeof(int64_t));
}

bool sb_labels_are_classes(const sb_tensor *t, size_t n)
{
    return sb_dtype_is_integral(t->dtype) && (uint64_t)sb_tensor_count(t) == n;
}

/* Several numbers a sample, or such that are no classes. */
static sb_status take_rows(sb_source *s, const char *what, const sb_tensor *t)
{
    char found[128];

    if (t->rank < 1 || (uint64_t)t->dims[0] != s->count ||
        !(sb_dtype_is_integral(t->dtype) || sb_dtype_is_float(t->dtype)))
        return sb_fail(s->ctx, SB_BAD_DATA,
                       "%s: labels are %s, want numbers for %zu samples", what,
                       sb_tensor_describe(t, found, sizeof found), s->count);
    s->rows = sb_tensor_share(t);
    return SB_OK;
}

static sb_status take_labels(sb_source *s, const char *what, const sb_tensor *t)
{
    if (!sb_labels_are_classes(t, s->count))
        return take_rows(s, what, t);
    int64_t *labels = room_for_labels(s);
    if (!labels)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        labels[i] = sb_tensor_get_i64(t, (int64_t)i);
        if (labels[i] < 0 || labels[i] > INT32_MAX)
            return sb_fail(s->ctx, SB_BAD_DATA,
                           "%s: label %zu is %lld, want 0 to %d", what, i,
                           (long long)labels[i], INT32_MAX);
    }
    s->labels = labels;
    return SB_OK;
}

static sb_status labels_from_text(sb_source *s, const char *path)
{
    sb_label_list list = {0};
    sb_status status = sb_label_lines(s->ctx, s->arena, path, false, &list);

    if (status == SB_OK && list.n != s->count)
        status = sb_fail(s->ctx, SB_BAD_DATA, "%s: %zu labels for %zu samples",
                         path, list.n, s->count);
    int64_t *labels = status == SB_OK ? room_for_labels(s) : NULL;
    if (status == SB_OK && !labels)
        status = SB_NO_MEMORY;
    for (size_t i = 0; i < list.n && status == SB_OK; i++)
        labels[i] = list.v[i].label;
    sb_free(s->ctx, list.v);
    if (status == SB_OK)
        s->labels = labels;
    return status;
}

sb_status sb_source_read_labels(sb_source *s)
{
    sb_tensor t = {0};

    if (!s->keys->labels)
        return SB_OK;
    const char *path = sb_source_path(s, s->keys->labels);
    if (!path)
        return SB_NO_MEMORY;
    if (!sb_ends_with(path, ".npy"))
        return labels_from_text(s, path);
    SB_TRY(sb_npy_load_const(s->ctx, path, &t));
    sb_status status = take_labels(s, path, &t);
    sb_tensor_drop(&t);
    return status;
}

sb_status sb_source_find_masks(sb_source *s, const char *dir)
{
    const sb_image_files *f = s->state;

    s->masks = sb_arena_alloc(s->arena, s->count, sizeof *s->masks);
    if (!s->masks)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < s->count; i++) {
        const char *dot = strrchr(f->names[i], '.');
        bool ends = dot && !strchr(dot, '/');
        int n = (int)(ends ? (size_t)(dot - f->names[i]) : strlen(f->names[i]));
        static const char *const endings[] = {".png", ".npy"};

        for (size_t e = 0; e < SB_COUNT(endings) && !s->masks[i]; e++) {
            const char *path = sb_arena_printf(s->arena, "%s/%.*s%s", dir, n,
                                               f->names[i], endings[e]);
            if (!path)
                return SB_NO_MEMORY;
            s->masks[i] = sb_path_exists(path) ? path : NULL;
        }
        if (!s->masks[i])
            return sb_fail(s->ctx, SB_BAD_DATA,
                           "%s: no mask for '%s', want %.*s.png or .npy", dir,
                           f->names[i], n, f->names[i]);
    }
    return SB_OK;
}

/* ---- targets of batches -------------------------------------------------- */

void sb_data_fetch_target(sb_data *data, size_t row)
{
    size_t k = data->n_inputs - 1;
    const sb_tensor *rows = &data->source.rows;
    sb_tensor *t = &data->sample[k];

    if (rows->data) {
        *t = sb_tensor_make(rows->dtype, rows->rank - 1, rows->dims + 1);
        t->data = (char *)rows->data + row * sb_tensor_bytes(t);
    }
    data->wanted[k] =
        sb_dtype_is_integral(t->dtype) ? SB_DTYPE_I64 : SB_DTYPE_F32;
}

void sb_data_settle_target(const sb_data *data, int64_t *v, size_t n)
{
    int64_t ignored = data->keys.ignore_label;

    for (size_t i = 0; i < n; i++)
        if (ignored >= 0 && v[i] == ignored)
            v[i] = SB_LABEL_IGNORED;
        else /* what is too large to be moved is no class anyway */
            (void)sb_add_i64(v[i], data->keys.label_offset, &v[i]);
}
