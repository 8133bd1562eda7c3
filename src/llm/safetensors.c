/* safetensors: eight bytes with the length of a JSON header, the header, and
 * the elements.
 *
 *     {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
 *      ...}
 *
 * Everything in the header is checked against the file: a name may come once,
 * a tensor has just the bytes that its shape needs, and lies inside.  As the
 * format wants it, tensors fill the file one behind the other. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "llm/llm_checkpoint.h"
#include "tensor/mapped.h"

enum { HEADER_MOST = 100 << 20, SHARDS_MOST = 4096 };

static const struct {
    const char *name;
    sb_dtype dtype;
} dtypes[] = {{"F32", SB_DTYPE_F32},
              {"F16", SB_DTYPE_F16},
              {"BF16", SB_DTYPE_BF16},
              {"I32", SB_DTYPE_I32}};

/* A whole number below 2^53, which a double holds exactly. */
static bool json_whole(const sb_json *node, size_t *out)
{
    if (!sb_json_is(node, SB_JSON_NUMBER) || node->number < 0 ||
        node->number > 9007199254740992.0)
        return false;
    *out = (size_t)node->number;
    return !((double)*out < node->number || (double)*out > node->number);
}

/* The bytes of one tensor, from the first of all. */
typedef struct extent {
    size_t begin, end;
    const sb_json *item;
} extent;

typedef struct header {
    sb_checkpoint *c;
    const char *path;
    sb_json_doc *doc;
    sb_buf *file;
    size_t data; /* where elements begin */
    extent *extents;
    size_t n;
} header;

static sb_status read_shape(const header *h, const sb_json *shape,
                            const char *name, sb_weight *w)
{
    if (!sb_json_is(shape, SB_JSON_LIST) || shape->n > SB_WEIGHT_RANK)
        return sb_json_fail(h->doc, shape,
                            "tensor '%s': want a shape of at most %d numbers",
                            name, SB_WEIGHT_RANK);
    for (const sb_json *d = shape->child; d; d = d->next) {
        size_t n = 0;

        if (!json_whole(d, &n))
            return sb_json_fail(
                h->doc, d, "tensor '%s': a dimension is no whole number", name);
        w->dims[w->rank++] = (int64_t)n;
    }
    return SB_OK;
}

static sb_status read_offsets(header *h, const sb_json *item, sb_weight *w)
{
    const sb_json *offsets = sb_json_get(item, "data_offsets");
    size_t begin = 0, end = 0;

    if (!sb_json_is(offsets, SB_JSON_LIST) || offsets->n != 2 ||
        !json_whole(offsets->child, &begin) ||
        !json_whole(offsets->child->next, &end) || begin > end ||
        end > sb_buf_size(h->file) - h->data)
        return sb_json_fail(h->doc, offsets,
                            "tensor '%s': want two data_offsets inside the "
                            "file of %zu bytes",
                            item->key, sb_buf_size(h->file));
    h->extents[h->n++] = (extent){begin, end, item};
    w->at = h->data + begin;
    w->bytes = end - begin;
    return SB_OK;
}

/* Weights of other types are left out, as no architecture asks for them; should
 * one be missing later, the message says what it was. */
static sb_status leave_out(const header *h, const char *name, const char *dtype)
{
    sb_str why;

    sb_str_init(&why, h->c->ctx);
    sb_str_addf(&why, "is %.32s; known are ", dtype);
    for (size_t i = 0; i < SB_COUNT(dtypes); i++)
        sb_str_addf(&why, "%s%s", i ? ", " : "", dtypes[i].name);
    sb_status status = sb_str_status(&why);
    if (status == SB_OK)
        status = sb_checkpoint_leave_out(h->c, name, sb_str_text(&why));
    sb_str_free(&why);
    return status;
}

static sb_status read_tensor(header *h, const sb_json *item)
{
    const char *dtype = sb_json_text(sb_json_get(item, "dtype"));
    sb_weight w = {.buf = h->file};

    if (strcmp(item->key, "__metadata__") == 0)
        return SB_OK;
    if (!dtype)
        return sb_json_fail(h->doc, item, "tensor '%s' has no dtype",
                            item->key);
    SB_TRY(read_shape(h, sb_json_get(item, "shape"), item->key, &w));
    SB_TRY(read_offsets(h, item, &w));
    for (size_t i = 0; i < SB_COUNT(dtypes); i++)
        if (strcmp(dtype, dtypes[i].name) == 0) {
            w.format = sb_weight_format_plain(dtypes[i].dtype);
            return sb_checkpoint_add(h->c, h->path, item->key, &w);
        }
    return leave_out(h, item->key, dtype);
}

static int by_place(const void *a, const void *b)
{
    const extent *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static sb_status check_extents(const header *h)
{
    size_t end = 0, size = sb_buf_size(h->file) - h->data;

    if (h->n)
        qsort(h->extents, h->n, sizeof *h->extents, by_place);
    for (size_t i = 0; i < h->n; i++) {
        const extent *e = &h->extents[i];

        if (e->begin != end)
            return sb_json_fail(h->doc, e->item,
                                "tensor '%s' begins at byte %zu, want %zu, "
                                "where the one before it ends",
                                e->item->key, e->begin, end);
        end = e->end;
    }
    if (end != size)
        return sb_fail(h->c->ctx, SB_BAD_DATA,
                       "%s: tensors of %zu bytes, but %zu are there", h->path,
                       end, size);
    return SB_OK;
}

static sb_status read_header(header *h)
{
    const unsigned char *p = sb_buf_data(h->file);
    size_t size = sb_buf_size(h->file);
    uint64_t n = 0;

    for (int i = 8; size >= 8 && i-- > 0;)
        n = n << 8 | p[i];
    if (size < 8 || n > size - 8 || n > HEADER_MOST)
        return sb_fail(h->c->ctx, SB_BAD_DATA,
                       "%s: no safetensors file: a header of %llu bytes in a "
                       "file of %zu",
                       h->path, (unsigned long long)n, size);
    h->data = 8 + (size_t)n;
    SB_TRY(sb_json_read(h->c->ctx, h->path, (const char *)p + 8, (size_t)n,
                        &h->doc));
    if (!sb_json_is(h->doc->root, SB_JSON_OBJECT))
        return sb_json_fail(h->doc, h->doc->root, "the header is no object");
    h->extents = sb_alloc_raw(h->c->ctx, h->doc->root->n, sizeof *h->extents);
    if (!h->extents)
        return SB_NO_MEMORY;
    for (const sb_json *i = h->doc->root->child; i; i = i->next)
        SB_TRY(read_tensor(h, i));
    return check_extents(h);
}

sb_status sb_safetensors_load(sb_checkpoint *c, const char *path)
{
    header h = {.c = c, .path = path};

    SB_TRY(sb_buf_map_file(c->ctx, path, false, &h.file));
    SB_TRY(sb_checkpoint_keep(c, h.file));
    sb_status status = read_header(&h);
    sb_free(c->ctx, h.extents);
    sb_json_free(h.doc);
    return status;
}

/* ---- shards ------------------------------------------------------------- */

static sb_status load_beside(sb_checkpoint *c, const char *index,
                             const char *name)
{
    if (strchr(name, '/') || strcmp(name, "..") == 0 || name[0] == '\0')
        return sb_fail(c->ctx, SB_BAD_DATA,
                       "%s: the shard '%s' is not in the folder", index, name);
    char *path = sb_path_beside(c->ctx, index, name);
    if (!path)
        return SB_NO_MEMORY;
    sb_status status = sb_safetensors_load(c, path);
    sb_free(c->ctx, path);
    return status;
}

/* Each shard once, in the order in which they are named first. */
static sb_status load_shards(sb_checkpoint *c, const char *index,
                             const sb_json_doc *doc)
{
    const sb_json *map = sb_json_get(doc->root, "weight_map");
    sb_map seen;
    sb_status status = SB_OK;

    if (!sb_json_is(map, SB_JSON_OBJECT))
        return sb_json_fail(doc, doc->root, "there is no weight_map");
    sb_map_init(&seen, c->ctx);
    for (const sb_json *w = map->child; w && status == SB_OK; w = w->next) {
        const char *name = sb_json_text(w);

        if (!name || seen.count >= SHARDS_MOST)
            status = sb_json_fail(doc, w,
                                  "want the name of one of at most %d "
                                  "shards",
                                  SHARDS_MOST);
        else if (sb_map_get(&seen, name) == SB_MAP_NONE)
            status = sb_map_put(&seen, name, 0);
        else
            continue;
        if (status == SB_OK)
            status = load_beside(c, index, name);
    }
    for (const sb_json *w = map->child; w && status == SB_OK; w = w->next)
        if (!sb_checkpoint_find(c, w->key))
            status = sb_json_fail(doc, w, "tensor '%s' is not in '%s'", w->key,
                                  w->text);
    sb_map_free(&seen);
    return status;
}

static sb_status load_index(sb_checkpoint *c, const char *path)
{
    sb_mapping map = {0};
    sb_json_doc *doc = NULL;

    SB_TRY(sb_file_map(c->ctx, path, &map));
    sb_status status = sb_json_read(c->ctx, path, map.data, map.size, &doc);
    if (status == SB_OK)
        status = load_shards(c, path, doc);
    sb_json_free(doc);
    sb_file_unmap(&map);
    return status;
}

sb_status sb_safetensors_load_folder(sb_checkpoint *c, const char *folder)
{
    char *index = sb_path_join(c->ctx, folder, "model.safetensors.index.json");
    char *whole = sb_path_join(c->ctx, folder, "model.safetensors");
    sb_status status = index && whole ? SB_OK : SB_NO_MEMORY;

    if (status == SB_OK && sb_path_exists(index))
        status = load_index(c, index);
    else if (status == SB_OK && sb_path_exists(whole))
        status = sb_safetensors_load(c, whole);
    else if (status == SB_OK)
        status = sb_fail(c->ctx, SB_IO,
                         "%s: neither model.safetensors nor its index is "
                         "there, want one: weights of other files, such as "
                         "pytorch_model.bin, are not read",
                         folder);
    sb_free(c->ctx, index);
    sb_free(c->ctx, whole);
    return status;
}
