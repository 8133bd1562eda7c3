/* Reading GGUF (ggml's docs/gguf.md): magic, version, counts, keys with values,
 * tensor infos, padding, data.  All numbers are little-endian. */
#include "llm/gguf.h"

#include <string.h>

#include "tensor/mapped.h"

static const uint8_t type_bytes[SB_GGUF_COUNT] = {1, 1, 2, 2, 4, 4, 4,
                                                  1, 0, 0, 8, 8, 8};

enum { NAME_MOST = 1024, ALIGNMENT_MOST = 1 << 20 };

/* ---- bytes -------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *data;
    size_t at, size;
    bool bad; /* went beyond the end */
} cursor;

static const uint8_t *cursor_take(cursor *c, uint64_t n)
{
    const uint8_t *p = c->data + c->at;

    if (c->bad || n > c->size - c->at) {
        c->bad = true;
        return NULL;
    }
    c->at += (size_t)n;
    return p;
}

static uint64_t little_endian(const uint8_t *p, int bytes)
{
    uint64_t x = 0;

    for (int i = bytes; i-- > 0;)
        x = x << 8 | p[i];
    return x;
}

/* 0 beyond the end. */
static uint64_t cursor_number(cursor *c, int bytes)
{
    const uint8_t *p = cursor_take(c, (uint64_t)bytes);

    return p ? little_endian(p, bytes) : 0;
}

static sb_gguf_text cursor_text(cursor *c)
{
    uint64_t n = cursor_number(c, 8);
    const uint8_t *p = cursor_take(c, n);

    return p ? (sb_gguf_text){(const char *)p, (size_t)n}
             : (sb_gguf_text){"", 0};
}

static cursor cursor_at(const sb_gguf *g, size_t at)
{
    return (cursor){sb_buf_data(g->file), at, sb_buf_size(g->file), false};
}

static sb_status gguf_truncated(const sb_gguf *g, const char *where)
{
    return sb_fail(g->ctx, SB_BAD_DATA,
                   "%s: the file of %zu bytes ends inside %s", g->path,
                   sb_buf_size(g->file), where);
}

/* A name as a C string. */
static sb_status copy_name(sb_gguf *g, sb_gguf_text text, const char *what,
                           const char **out)
{
    if (text.len == 0 || text.len > NAME_MOST ||
        memchr(text.data, '\0', text.len))
        return sb_fail(g->ctx, SB_BAD_DATA,
                       "%s: the name of a %s has %zu bytes, want 1 to %d "
                       "without zeros",
                       g->path, what, text.len, NAME_MOST);
    *out = sb_arena_strn(&g->arena, text.data, text.len);
    return *out ? SB_OK : SB_NO_MEMORY;
}

/* ---- keys with values --------------------------------------------------- */

static void skip_elements(cursor *c, uint32_t type, uint64_t n)
{
    if (type != SB_GGUF_STRING) {
        if (type_bytes[type] && n > UINT64_MAX / type_bytes[type])
            c->bad = true;
        (void)cursor_take(c, n * type_bytes[type]);
        return;
    }
    for (uint64_t i = 0; i < n && !c->bad; i++)
        (void)cursor_text(c);
}

static sb_status read_value(sb_gguf *g, cursor *c, sb_gguf_value *v)
{
    sb_gguf_text key = cursor_text(c);

    v->type = (uint32_t)cursor_number(c, 4);
    v->n = 1;
    if (c->bad)
        return gguf_truncated(g, "a key");
    SB_TRY(copy_name(g, key, "key", &v->key));
    v->is_array = v->type == SB_GGUF_ARRAY;
    if (v->is_array) {
        v->type = (uint32_t)cursor_number(c, 4);
        v->n = cursor_number(c, 8);
    }
    if (v->type >= SB_GGUF_COUNT || v->type == SB_GGUF_ARRAY)
        return sb_fail(g->ctx, SB_BAD_DATA,
                       "%s: key '%s' has a value of type %u", g->path, v->key,
                       v->type);
    v->at = c->data + c->at;
    skip_elements(c, v->type, v->n);
    v->bytes = (size_t)(c->data + c->at - v->at);
    return c->bad ? gguf_truncated(g, v->key) : SB_OK;
}

static sb_status read_values(sb_gguf *g, cursor *c, uint64_t n)
{
    size_t cap = 0;

    for (uint64_t i = 0; i < n; i++) {
        if (i % 1024 == 0)
            SB_TRY(sb_ctx_poll(g->ctx));
        SB_TRY(sb_grow(g->ctx, &g->values, &cap, g->n_values + 1,
                       sizeof *g->values));
        sb_gguf_value *v = &g->values[g->n_values];
        *v = (sb_gguf_value){0};
        SB_TRY(read_value(g, c, v));
        if (sb_map_get(&g->keys, v->key) != SB_MAP_NONE)
            return sb_fail(g->ctx, SB_BAD_DATA, "%s: key '%s' is there twice",
                           g->path, v->key);
        SB_TRY(sb_map_put(&g->keys, v->key, (uint32_t)g->n_values));
        g->n_values++;
    }
    return SB_OK;
}

const sb_gguf_value *sb_gguf_find(const sb_gguf *g, const char *key)
{
    uint32_t i = sb_map_get(&g->keys, key);

    return i == SB_MAP_NONE ? NULL : &g->values[i];
}

bool sb_gguf_is_numeric(const sb_gguf_value *v)
{
    return v && v->type != SB_GGUF_STRING;
}

double sb_gguf_number_at(const sb_gguf_value *v, uint64_t i)
{
    int bytes = type_bytes[v->type];
    uint64_t u = little_endian(v->at + i * (uint64_t)bytes, bytes);
    uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    uint32_t u32 = (uint32_t)u;
    float f;
    double d;

    switch (v->type) {
    case SB_GGUF_F32:
        memcpy(&f, &u32, sizeof f);
        return (double)f;
    case SB_GGUF_F64:
        memcpy(&d, &u, sizeof d);
        return d;
    case SB_GGUF_I8:
    case SB_GGUF_I16:
    case SB_GGUF_I32:
    case SB_GGUF_I64:
        return u & sign ? -(double)((~u & (sign - 1)) + 1) : (double)u;
    default:
        return (double)u;
    }
}

bool sb_gguf_number(const sb_gguf *g, const char *key, double *out)
{
    const sb_gguf_value *v = sb_gguf_find(g, key);

    if (!sb_gguf_is_numeric(v) || v->is_array)
        return false;
    *out = sb_gguf_number_at(v, 0);
    return true;
}

static sb_gguf_text text_at(const sb_gguf *g, const uint8_t **at)
{
    const uint8_t *data = sb_buf_data(g->file);
    cursor c = cursor_at(g, (size_t)(*at - data));
    sb_gguf_text text = cursor_text(&c);

    *at = data + c.at;
    return text;
}

bool sb_gguf_string(const sb_gguf *g, const char *key, sb_gguf_text *out)
{
    const sb_gguf_value *v = sb_gguf_find(g, key);
    const uint8_t *at = v ? v->at : NULL;

    if (!v || v->type != SB_GGUF_STRING || v->is_array)
        return false;
    *out = text_at(g, &at);
    return true;
}

sb_status sb_gguf_strings(sb_gguf *g, const sb_gguf_value *v,
                          sb_gguf_text **out)
{
    if (!v->is_array || v->type != SB_GGUF_STRING)
        return sb_fail(g->ctx, SB_BAD_DATA, "%s: key '%s' is no list of texts",
                       g->path, v->key);
    sb_gguf_text *list = sb_arena_alloc(&g->arena, (size_t)v->n, sizeof *list);
    if (!list)
        return SB_NO_MEMORY;
    const uint8_t *at = v->at;
    for (uint64_t i = 0; i < v->n; i++)
        list[i] = text_at(g, &at);
    *out = list;
    return SB_OK;
}

/* ---- tensors ------------------------------------------------------------ */

typedef struct tensor_info {
    sb_gguf_text name;
    uint32_t rank, type;
    uint64_t dims[SB_WEIGHT_RANK]; /* fastest first */
    uint64_t at;                   /* from the start of the data */
} tensor_info;

static sb_status read_info(const sb_gguf *g, cursor *c, tensor_info *t)
{
    t->name = cursor_text(c);
    t->rank = (uint32_t)cursor_number(c, 4);
    if (!c->bad && t->rank > SB_WEIGHT_RANK)
        return sb_fail(g->ctx, SB_BAD_DATA,
                       "%s: a tensor of %u dimensions, want at most %d",
                       g->path, t->rank, SB_WEIGHT_RANK);
    for (uint32_t i = 0; i < t->rank && !c->bad; i++)
        t->dims[i] = cursor_number(c, 8);
    t->type = (uint32_t)cursor_number(c, 4);
    t->at = cursor_number(c, 8);
    return c->bad ? gguf_truncated(g, "the list of tensors") : SB_OK;
}

static sb_status add_weight(sb_gguf *g, sb_checkpoint *c, const tensor_info *t)
{
    sb_weight w = {.format = sb_weight_format_gguf(t->type),
                   .rank = (int)t->rank,
                   .buf = g->file};
    const char *name = NULL;
    size_t count = 1;

    SB_TRY(copy_name(g, t->name, "tensor", &name));
    if (!w.format)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "%s: tensor '%s' is of GGUF type %u; known are %s",
                       g->path, name, t->type, sb_weight_format_names());
    for (uint32_t i = 0; i < t->rank; i++) {
        uint64_t n = t->dims[t->rank - 1 - i];

        if (n > INT64_MAX || !sb_mul_size(count, (size_t)n, &count))
            return sb_fail(g->ctx, SB_BAD_DATA, "%s: tensor '%s' is too large",
                           g->path, name);
        w.dims[i] = (int64_t)n;
    }
    if (!sb_mul_size(count / w.format->block, w.format->bytes, &w.bytes) ||
        !sb_add_size(g->data_at, (size_t)t->at, &w.at))
        return sb_fail(g->ctx, SB_BAD_DATA, "%s: tensor '%s' is too large",
                       g->path, name);
    SB_TRY(sb_gguf_rename(&g->arena, name, &name));
    return sb_checkpoint_add(c, g->path, name, &w);
}

sb_status sb_gguf_weights(sb_gguf *g, sb_checkpoint *c)
{
    cursor at = cursor_at(g, g->tensors_at);

    SB_TRY(sb_checkpoint_keep(c, sb_buf_ref(g->file)));
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        tensor_info t = {.rank = 0};

        SB_TRY(read_info(g, &at, &t));
        SB_TRY(add_weight(g, c, &t));
    }
    return SB_OK;
}

/* ---- the file ----------------------------------------------------------- */

bool sb_gguf_is(const void *head, size_t size)
{
    return size >= 4 && memcmp(head, "GGUF", 4) == 0;
}

/* Walks over the infos to find where the data begins. */
static sb_status find_data(sb_gguf *g, cursor *c)
{
    double alignment = SB_GGUF_ALIGNMENT;

    (void)sb_gguf_number(g, "general.alignment", &alignment);
    if (!(alignment >= 1 && alignment <= ALIGNMENT_MOST))
        return sb_fail(g->ctx, SB_BAD_DATA, "%s: general.alignment is %g",
                       g->path, alignment);
    g->tensors_at = c->at;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        tensor_info t = {.rank = 0};

        SB_TRY(read_info(g, c, &t));
    }
    size_t step = (size_t)alignment, rest = c->at % step;
    g->data_at = c->at + (rest ? step - rest : 0);
    return SB_OK;
}

sb_status sb_gguf_open(sb_gguf *g, sb_ctx *ctx, const char *path)
{
    *g = (sb_gguf){.ctx = ctx, .path = path};
    sb_arena_init(&g->arena, ctx);
    sb_map_init(&g->keys, ctx);
    SB_TRY(sb_buf_map_file(ctx, path, true, &g->file));
    cursor c = cursor_at(g, 0);
    if (!sb_gguf_is(c.data, c.size))
        return sb_fail(ctx, SB_BAD_DATA, "%s: no GGUF file", path);
    (void)cursor_take(&c, 4);
    uint64_t version = cursor_number(&c, 4);
    g->n_tensors = cursor_number(&c, 8);
    uint64_t n_values = cursor_number(&c, 8);
    if (c.bad)
        return gguf_truncated(g, "the header");
    if (version != 2 && version != 3)
        return sb_fail(ctx, SB_UNSUPPORTED,
                       "%s: GGUF version %llu, want 2 or 3", path,
                       (unsigned long long)version);
    SB_TRY(read_values(g, &c, n_values));
    return find_data(g, &c);
}

void sb_gguf_free(sb_gguf *g)
{
    if (!g->ctx)
        return;
    sb_free(g->ctx, g->values);
    sb_map_free(&g->keys);
    sb_buf_unref(g->file);
    sb_arena_free(&g->arena);
    *g = (sb_gguf){0};
}
