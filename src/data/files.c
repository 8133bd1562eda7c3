/* Finding files: folders in a fixed order, whatever the file system says. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "data/source.h"

enum { DEEPEST = 16 }; /* links may lead in circles */

bool sb_ends_with(const char *text, const char *ending)
{
    size_t a = strlen(text), b = strlen(ending);

    return a > b && strcasecmp(text + a - b, ending) == 0;
}

sb_status sb_name_list_add(sb_ctx *ctx, sb_name_list *list, const char *name)
{
    if (!name)
        return SB_NO_MEMORY;
    SB_TRY(sb_grow(ctx, &list->v, &list->cap, list->n + 1, sizeof *list->v));
    list->v[list->n++] = name;
    return SB_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* All names in a folder but the hidden ones, sorted. */
static sb_status list_folder(sb_ctx *ctx, sb_arena *arena, const char *dir,
                             sb_name_list *list)
{
    DIR *d = opendir(dir);
    sb_status status = SB_OK;

    if (!d)
        return sb_fail(ctx, SB_IO, "%s: cannot open the folder: %s", dir,
                       strerror(errno));
    while (status == SB_OK) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                status = sb_fail(ctx, SB_IO, "%s: %s", dir, strerror(errno));
            break;
        }
        if (e->d_name[0] != '.')
            status =
                sb_name_list_add(ctx, list, sb_arena_str(arena, e->d_name));
    }
    (void)closedir(d);
    if (status == SB_OK && list->n > 1)
        qsort(list->v, list->n, sizeof *list->v, by_name);
    return status;
}

typedef struct {
    sb_ctx *ctx;
    sb_arena *arena;
    const char *top;
    const char *const *endings; /* NULL: folders are wanted, not files */
    bool deep;
    sb_name_list *list;
} walk;

static bool files_wanted(const walk *w, const char *name)
{
    for (const char *const *e = w->endings; e && *e; e++)
        if (sb_ends_with(name, *e))
            return true;
    return false;
}

static sb_status walk_folder(const walk *w, const char *below, int depth);

/* One name in the folder `below` (relative to the top, "" for itself). */
static sb_status walk_entry(const walk *w, const char *below, const char *name,
                            int depth)
{
    const char *relative = *below
                               ? sb_arena_printf(w->arena, "%s/%s", below, name)
                               : sb_arena_str(w->arena, name);
    const char *path =
        relative ? sb_arena_printf(w->arena, "%s/%s", w->top, relative) : NULL;

    if (!path)
        return SB_NO_MEMORY;
    if (sb_is_folder(path)) {
        if (!w->endings)
            return sb_name_list_add(w->ctx, w->list, relative);
        return w->deep && depth < DEEPEST ? walk_folder(w, relative, depth + 1)
                                          : SB_OK;
    }
    return files_wanted(w, name) ? sb_name_list_add(w->ctx, w->list, relative)
                                 : SB_OK;
}

static sb_status walk_folder(const walk *w, const char *below, int depth)
{
    sb_name_list names = {0};
    const char *dir =
        *below ? sb_arena_printf(w->arena, "%s/%s", w->top, below) : w->top;
    sb_status status =
        dir ? list_folder(w->ctx, w->arena, dir, &names) : SB_NO_MEMORY;

    for (size_t i = 0; i < names.n && status == SB_OK; i++)
        status = walk_entry(w, below, names.v[i], depth);
    sb_free(w->ctx, names.v);
    return status;
}

sb_status sb_files_find(sb_ctx *ctx, sb_arena *arena, const char *dir,
                        const char *const *endings, bool deep,
                        sb_name_list *list)
{
    const walk w = {ctx, arena, dir, endings, deep, list};

    return walk_folder(&w, "", 0);
}

sb_status sb_folders_find(sb_ctx *ctx, sb_arena *arena, const char *dir,
                          sb_name_list *list)
{
    const walk w = {ctx, arena, dir, NULL, false, list};

    return walk_folder(&w, "", 0);
}
