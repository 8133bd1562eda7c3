/* Weights by name. */
#include <string.h>

#include "llm/llm_checkpoint.h"

void sb_checkpoint_init(sb_checkpoint *c, sb_ctx *ctx, const char *path)
{
    *c = (sb_checkpoint){.ctx = ctx, .path = path};
    sb_arena_init(&c->arena, ctx);
    sb_map_init(&c->names, ctx);
}

void sb_checkpoint_free(sb_checkpoint *c)
{
    if (!c->ctx)
        return;
    for (size_t i = 0; i < c->n_files; i++)
        sb_buf_unref(c->files[i]);
    sb_free(c->ctx, c->files);
    sb_free(c->ctx, c->weights);
    sb_map_free(&c->names);
    sb_arena_free(&c->arena);
    *c = (sb_checkpoint){0};
}

sb_status sb_checkpoint_keep(sb_checkpoint *c, sb_buf *file)
{
    sb_status status = sb_grow(c->ctx, &c->files, &c->cap_files, c->n_files + 1,
                               sizeof(*c->files));

    if (status != SB_OK) {
        sb_buf_unref(file);
        return status;
    }
    c->files[c->n_files++] = file;
    c->file_bytes += sb_buf_size(file);
    return SB_OK;
}

/* Bytes that the weight needs; false if no memory could hold them. */
static bool weight_bytes(const sb_weight *w, size_t *out)
{
    size_t count = 1;

    for (int i = 0; i < w->rank; i++)
        if (w->dims[i] < 0 || !sb_mul_size(count, (size_t)w->dims[i], &count) ||
            count > INT64_MAX / 8)
            return false;
    return sb_mul_size(count / w->format->block, w->format->bytes, out);
}

sb_status sb_checkpoint_add(sb_checkpoint *c, const char *file,
                            const char *name, const sb_weight *w)
{
    const sb_weight_format *f = w->format;
    size_t bytes = 0, end = 0;

    if (w->rank > 0 && w->dims[w->rank - 1] % f->block)
        return sb_fail(c->ctx, SB_BAD_DATA,
                       "%s: tensor '%s': rows of %lld elements, want a "
                       "multiple of %d for %s",
                       file, name, (long long)w->dims[w->rank - 1], f->block,
                       f->name);
    if (!weight_bytes(w, &bytes) || !sb_add_size(w->at, bytes, &end) ||
        end > sb_buf_size(w->buf))
        return sb_fail(c->ctx, SB_BAD_DATA,
                       "%s: tensor '%s' ends beyond the file of %zu bytes",
                       file, name, sb_buf_size(w->buf));
    if (bytes != w->bytes)
        return sb_fail(c->ctx, SB_BAD_DATA,
                       "%s: tensor '%s' has %zu bytes, want %zu", file, name,
                       w->bytes, bytes);
    if (sb_checkpoint_find(c, name))
        return sb_fail(c->ctx, SB_BAD_DATA, "%s: tensor '%s' is there twice",
                       file, name);
    SB_TRY(sb_grow(c->ctx, &c->weights, &c->cap, c->n + 1, sizeof *c->weights));
    sb_weight *to = &c->weights[c->n];
    *to = *w;
    to->name = sb_arena_str(&c->arena, name);
    if (!to->name)
        return SB_NO_MEMORY;
    SB_TRY(sb_map_put(&c->names, to->name, (uint32_t)c->n));
    c->n++;
    return SB_OK;
}

const sb_weight *sb_checkpoint_find(const sb_checkpoint *c, const char *name)
{
    uint32_t i = sb_map_get(&c->names, name);

    return i == SB_MAP_NONE ? NULL : &c->weights[i];
}

sb_status sb_checkpoint_leave_out(sb_checkpoint *c, const char *name,
                                  const char *why)
{
    sb_left_out *left = sb_arena_alloc(&c->arena, 1, sizeof *left);

    if (!left)
        return SB_NO_MEMORY;
    *left = (sb_left_out){sb_arena_str(&c->arena, name),
                          sb_arena_str(&c->arena, why), c->left_out};
    if (!left->name || !left->why)
        return SB_NO_MEMORY;
    c->left_out = left;
    return SB_OK;
}

const char *sb_checkpoint_why_not(const sb_checkpoint *c, const char *name)
{
    const sb_left_out *left = c->left_out;

    while (left && strcmp(left->name, name) != 0)
        left = left->next;
    return left ? left->why : NULL;
}

const void *sb_weight_data(const sb_weight *w)
{
    return (const char *)sb_buf_data(w->buf) + w->at;
}

int64_t sb_weight_count(const sb_weight *w)
{
    return sb_dims_product(w->dims, 0, w->rank);
}

sb_tensor sb_weight_tensor(const sb_weight *w)
{
    sb_tensor t = sb_tensor_make(w->format->dtype, w->rank, w->dims);

    t.data = (char *)sb_buf_data(w->buf) + w->at;
    t.buf = w->buf;
    return t;
}
