/* The list of data sources, and how their files are found. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/source.h"

#define SB_SOURCE(id) extern const sb_source_def sb_source_##id;
#include "data/sources.def"
#undef SB_SOURCE

static const sb_source_def *const rows[] = {
#define SB_SOURCE(id) &sb_source_##id,
#include "data/sources.def"
#undef SB_SOURCE
};

const sb_source_def *sb_source_find(const sb_ctx *ctx, const char *name)
{
    const sb_source_def *row;

    for (size_t i = 0; i < SB_COUNT(rows); i++)
        if (strcmp(rows[i]->name, name) == 0)
            return rows[i];
    for (size_t i = 0; ctx && (row = sb_ctx_row(ctx, SB_ROW_SOURCE, i)); i++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

const sb_source_def *const *sb_source_all(size_t *n)
{
    *n = SB_COUNT(rows);
    return rows;
}

void sb_source_names(sb_str *out)
{
    const sb_source_def *row;

    for (size_t i = 0; (row = sb_ctx_row(out->ctx, SB_ROW_SOURCE, i)); i++)
        sb_str_addf(out, "%s, ", row->name);
    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        if (i)
            sb_str_add(out, i + 1 < SB_COUNT(rows) ? ", " : " or ");
        sb_str_add(out, rows[i]->name);
    }
}

const char *sb_source_path(const sb_source *s, const char *name)
{
    if (name[0] == '/')
        return sb_arena_str(s->arena, name);
    char *path = sb_path_beside(s->ctx, s->doc->file, name);
    if (!path)
        return NULL;
    const char *kept = sb_arena_str(s->arena, path);
    sb_free(s->ctx, path);
    return kept;
}

sb_status sb_source_one_path(const sb_source *s, const char **out)
{
    if (s->keys->path.n != 1)
        return sb_source_fail(s, "PATH", "found %zu paths, want one",
                              s->keys->path.n);
    *out = sb_source_path(s, s->keys->path.v[0]);
    return *out ? SB_OK : SB_NO_MEMORY;
}

sb_status sb_source_fail(const sb_source *s, const char *key, const char *fmt,
                         ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_yaml_fail(s->doc, sb_yaml_get(s->doc->root, key), "%s: %s", key,
                        text);
}

void sb_source_set_text(sb_source *s, int64_t window, const uint32_t *ids,
                        size_t n)
{
    s->text_window = (size_t)window;
    s->text_tokens = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= s->text_tokens)
            s->text_tokens = (size_t)ids[i] + 1;
}
