/* The file of external data.
 *
 * Two files cannot be replaced at once.  So the data has a hash of its bytes in
 * its name: the new file does not replace the old one, and the model that is
 * there keeps its own data until the new model takes its place.  After that the
 * the old data has no model any more and goes. */
#include "onnx/onnx_save.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HASH_DIGITS = 16 };

static const char data_end[] = ".data";

/* ---- writing ------------------------------------------------------------ */

sb_status sb_onnx_data_open(sb_onnx_saver *s, const char *path)
{
    s->data_path = sb_arena_printf(&s->arena, "%s.%016x%s", path, 0u, data_end);
    if (!s->data_path)
        return SB_NO_MEMORY;
    return sb_writer_open(s->ctx, s->data_path, &s->data);
}

static uint64_t hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

void sb_onnx_data_put(sb_onnx_saver *s, const void *data, size_t size)
{
    const unsigned char *p = data;
    uint64_t hash = hash_word(s->data_hash, size), word = 0;
    size_t i = 0;

    for (; size - i >= sizeof word; i += sizeof word) {
        memcpy(&word, p + i, sizeof word);
        hash = hash_word(hash, word);
    }
    word = 0;
    if (i < size)
        memcpy(&word, p + i, size - i);
    s->data_hash = hash_word(hash, word);
    sb_writer_put(s->data, data, size);
}

const char *sb_onnx_data_name(const sb_onnx_saver *s)
{
    const char *slash = strrchr(s->data_path, '/');

    return slash ? slash + 1 : s->data_path;
}

sb_status sb_onnx_data_finish(sb_onnx_saver *s)
{
    char digits[HASH_DIGITS + 1];
    size_t end = strlen(s->data_path) - strlen(data_end);

    (void)snprintf(digits, sizeof digits, "%016llx",
                   (unsigned long long)s->data_hash);
    memcpy(s->data_path + end - HASH_DIGITS, digits, HASH_DIGITS);
    SB_TRY(sb_writer_set_path(s->data, s->data_path));
    return sb_writer_finish(s->data);
}

/* ---- what was there before ---------------------------------------------- */

/* `<model>.data`, or `<model>.<hash>.data`. */
static bool is_data_of(const char *model, const char *name)
{
    size_t n = strlen(model);

    if (strncmp(name, model, n) != 0)
        return false;
    name += n;
    if (*name == '.' && strspn(name + 1, "0123456789abcdef") == HASH_DIGITS)
        name += 1 + HASH_DIGITS;
    return strcmp(name, data_end) == 0;
}

static bool file_mentions(const sb_mapping *map, const char *name)
{
    const char *p = map->data;
    size_t left = map->size, n = strlen(name);

    while (left >= n) {
        const char *at = memchr(p, name[0], left - n + 1);
        if (!at)
            return false;
        if (memcmp(at, name, n) == 0)
            return true;
        left -= (size_t)(at + 1 - p);
        p = at + 1;
    }
    return false;
}

static void list_mentioned(DIR *folder, const char *model,
                           const sb_mapping *map, sb_str *out)
{
    for (struct dirent *e; (e = readdir(folder));)
        if (is_data_of(model, e->d_name) && file_mentions(map, e->d_name))
            sb_str_addn(out, e->d_name, strlen(e->d_name) + 1);
}

sb_status sb_onnx_data_old(sb_onnx_saver *s, const char *path, sb_str *out)
{
    const char *slash = strrchr(path, '/');
    const char *model = slash ? slash + 1 : path;
    sb_mapping map;

    if (access(path, R_OK) != 0 || sb_file_map(s->ctx, path, &map) != SB_OK)
        return SB_OK; /* nothing is replaced */
    char *name = sb_path_beside(s->ctx, path, ".");
    DIR *folder = name ? opendir(name) : NULL;
    if (folder) {
        list_mentioned(folder, model, &map, out);
        (void)closedir(folder);
    }
    sb_status status = name ? sb_str_status(out) : SB_NO_MEMORY;
    sb_free(s->ctx, name);
    sb_file_unmap(&map);
    return status;
}

void sb_onnx_data_remove(const sb_onnx_saver *s, const char *path,
                         const sb_str *old)
{
    const char *name = sb_str_text(old);

    for (const char *end = name + old->len; name < end;
         name += strlen(name) + 1) {
        if (s->data_path && strcmp(name, sb_onnx_data_name(s)) == 0)
            continue;
        char *file = sb_path_beside(s->ctx, path, name);
        if (file)
            (void)unlink(file);
        sb_free(s->ctx, file);
    }
}
