/* Safetensors files of a folder. */
#define _POSIX_C_SOURCE 200809L
#include "llm/write/shards.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files of an earlier model that say something else than ours would: what is
 * not written is removed. */
static const char *const stale[] = {"model.safetensors",
                                    "model.safetensors.index.json",
                                    "quantize_config.json"};

sb_status sb_shards_open(sb_shards *s, sb_ctx *ctx, const char *folder,
                         uint64_t most)
{
    *s = (sb_shards){
        .ctx = ctx, .folder = folder, .most = most ? most : UINT64_C(4) << 30};
    sb_arena_init(&s->arena, ctx);
    if (sb_is_folder(folder))
        return SB_OK;
    if (mkdir(folder, 0777) != 0)
        return sb_fail(ctx, SB_IO, "%s: the folder cannot be made: %s", folder,
                       strerror(errno));
    s->made = true;
    return SB_OK;
}

void sb_shards_free(sb_shards *s)
{
    if (!s->ctx)
        return;
    for (size_t i = 0; i < s->n_files; i++)
        sb_writer_abort(s->files[i]);
    if (s->made)
        (void)rmdir(s->folder); /* fails if there is something in it */
    sb_free(s->ctx, s->files);
    sb_free(s->ctx, s->v);
    sb_arena_free(&s->arena);
    *s = (sb_shards){0};
}

sb_status sb_shards_add(sb_shards *s, const sb_shard_tensor *t)
{
    if (!t->name)
        return SB_NO_MEMORY;
    SB_TRY(sb_grow(s->ctx, &s->v, &s->cap, s->n + 1, sizeof *s->v));
    s->v[s->n++] = *t;
    return SB_OK;
}

static sb_status shards_open_file(sb_shards *s, const char *name,
                                  sb_writer **out)
{
    char *path = sb_path_join(s->ctx, s->folder, name);

    if (!path)
        return SB_NO_MEMORY;
    sb_status status = sb_writer_open(s->ctx, path, out);
    sb_free(s->ctx, path);
    for (unsigned i = 0; i < SB_COUNT(stale); i++)
        if (strcmp(name, stale[i]) == 0)
            s->written |= 1u << i;
    return status;
}

/* Takes the writer, also on failure. */
static sb_status shards_keep(sb_shards *s, sb_writer *w)
{
    sb_status status = sb_writer_finish(w);

    if (status == SB_OK)
        status = sb_grow(s->ctx, &s->files, &s->cap_files, s->n_files + 1,
                         sizeof(*s->files));
    if (status == SB_OK)
        s->files[s->n_files++] = w;
    else
        sb_writer_abort(w);
    return status;
}

sb_status sb_shards_file(sb_shards *s, const char *name, const void *data,
                         size_t size)
{
    sb_writer *w = NULL;

    SB_TRY(shards_open_file(s, name, &w));
    sb_writer_put(w, data, size);
    return shards_keep(s, w);
}

/* ---- safetensors -------------------------------------------------------- */

/* Tensors from `first` on that one file holds; at least one. */
static size_t shard_end(const sb_shards *s, size_t first)
{
    uint64_t bytes = 0;
    size_t end = first;

    while (end < s->n && (end == first || bytes + s->v[end].bytes <= s->most))
        bytes += s->v[end++].bytes;
    return end;
}

static size_t shard_count(const sb_shards *s)
{
    size_t n = 0;

    for (size_t at = 0; at < s->n; at = shard_end(s, at))
        n++;
    return n;
}

static const char *shard_name(sb_shards *s, size_t i, size_t n)
{
    return n == 1
               ? "model.safetensors"
               : sb_arena_printf(&s->arena, "model-%05zu-of-%05zu.safetensors",
                                 i + 1, n);
}

/* The header ends with spaces, so that tensors begin at a multiple of 8. */
static void put_shard_header(const sb_shards *s, size_t first, size_t end,
                             sb_writer *w, sb_str *text)
{
    uint64_t at = 0;
    unsigned char size[8];

    sb_str_add(text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = first; i < end; i++) {
        const sb_shard_tensor *t = &s->v[i];

        sb_str_add(text, ",");
        sb_str_add_json(text, t->name);
        sb_str_addf(text, ":{\"dtype\":\"%s\",\"shape\":[%lld", t->dtype,
                    (long long)t->dims[0]);
        if (t->rank > 1)
            sb_str_addf(text, ",%lld", (long long)t->dims[1]);
        sb_str_addf(text, "],\"data_offsets\":[%llu,%llu]}",
                    (unsigned long long)at,
                    (unsigned long long)(at + t->bytes));
        at += t->bytes;
    }
    sb_str_add(text, "}");
    while (text->len % 8 && !text->failed)
        sb_str_add(text, " ");
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)(text->len >> (8 * i) & 255);
    sb_writer_put(w, size, sizeof size);
    sb_writer_put(w, sb_str_text(text), text->len);
}

static sb_status put_shard_tensors(const sb_shards *s, size_t first, size_t end,
                                   sb_writer *w)
{
    for (size_t i = first; i < end; i++) {
        const sb_shard_tensor *t = &s->v[i];
        void *data = sb_alloc_raw(s->ctx, t->bytes, 1);

        if (!data)
            return SB_NO_MEMORY;
        sb_status status = sb_progress(s->ctx, "save", i, s->n);
        if (status == SB_OK)
            status = t->fill(s->ctx, t->arg, t->what, data);
        if (status == SB_OK)
            sb_writer_put(w, data, t->bytes);
        sb_free(s->ctx, data);
        SB_TRY(status);
    }
    return SB_OK;
}

static sb_status write_shard(sb_shards *s, const char *name, size_t first,
                             size_t end)
{
    sb_writer *w = NULL;
    sb_str text;

    if (!name)
        return SB_NO_MEMORY;
    SB_TRY(shards_open_file(s, name, &w));
    sb_str_init(&text, s->ctx);
    put_shard_header(s, first, end, w, &text);
    sb_status status = sb_str_status(&text);
    sb_str_free(&text);
    if (status == SB_OK)
        status = put_shard_tensors(s, first, end, w);
    if (status == SB_OK)
        return shards_keep(s, w);
    sb_writer_abort(w);
    return status;
}

static sb_status write_index(sb_shards *s, size_t n)
{
    sb_str text;
    uint64_t bytes = 0;
    size_t shard = 0;

    for (size_t i = 0; i < s->n; i++)
        bytes += s->v[i].bytes;
    sb_str_init(&text, s->ctx);
    sb_str_addf(&text,
                "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {",
                (unsigned long long)bytes);
    for (size_t at = 0, end; at < s->n; at = end, shard++) {
        end = shard_end(s, at);
        for (size_t i = at; i < end; i++) {
            sb_str_add(&text, i ? ",\n" : "\n");
            sb_str_add_json(&text, s->v[i].name);
            sb_str_addf(&text, ": \"model-%05zu-of-%05zu.safetensors\"",
                        shard + 1, n);
        }
    }
    sb_str_add(&text, "}}\n");
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status = sb_shards_file(s, "model.safetensors.index.json",
                                sb_str_text(&text), text.len);
    sb_str_free(&text);
    return status;
}

sb_status sb_shards_write(sb_shards *s)
{
    size_t n = shard_count(s), k = 0;

    s->count = n;
    for (size_t at = 0, end; at < s->n; at = end) {
        end = shard_end(s, at);
        SB_TRY(write_shard(s, shard_name(s, k++, n), at, end));
    }
    return n > 1 ? write_index(s, n) : SB_OK;
}

static sb_status remove_one(const sb_shards *s, const char *name)
{
    char *path = sb_path_join(s->ctx, s->folder, name);
    sb_status status = SB_OK;

    if (!path)
        return SB_NO_MEMORY;
    if (unlink(path) != 0 && errno != ENOENT)
        status = sb_fail(s->ctx, SB_IO,
                         "%s: this file of an earlier model cannot be "
                         "removed: %s",
                         path, strerror(errno));
    sb_free(s->ctx, path);
    return status;
}

/* One of another number of files than were written?  No other name will do: a
 * folder may hold what is not ours. */
static bool is_stale_shard(const sb_shards *s, const char *name)
{
    char same[64];
    unsigned i = 0, n = 0;

    if (sscanf(name, "model-%5u-of-%5u.safetensors", &i, &n) != 2)
        return false;
    (void)snprintf(same, sizeof same, "model-%05u-of-%05u.safetensors", i, n);
    return strcmp(name, same) == 0 && (s->count < 2 || n != s->count);
}

static sb_status remove_shards(const sb_shards *s)
{
    DIR *d = opendir(s->folder);
    struct dirent *entry;
    sb_status status = SB_OK;

    if (!d)
        return sb_fail(s->ctx, SB_IO, "%s: the folder cannot be read: %s",
                       s->folder, strerror(errno));
    while (status == SB_OK && (entry = readdir(d)))
        if (is_stale_shard(s, entry->d_name))
            status = remove_one(s, entry->d_name);
    (void)closedir(d);
    return status;
}

static sb_status remove_stale(const sb_shards *s)
{
    for (unsigned i = 0; i < SB_COUNT(stale); i++)
        if (!(s->written >> i & 1))
            SB_TRY(remove_one(s, stale[i]));
    return remove_shards(s);
}

sb_status sb_shards_commit(sb_shards *s)
{
    sb_status status = SB_OK;

    for (size_t i = 0; i < s->n_files; i++)
        if (status == SB_OK)
            status = sb_writer_commit(s->files[i]);
        else
            sb_writer_abort(s->files[i]);
    s->n_files = 0;
    if (status == SB_OK)
        status = remove_stale(s);
    s->made = s->made && status != SB_OK;
    return status;
}
