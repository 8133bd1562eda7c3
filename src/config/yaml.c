/* YAML documents by libyaml's stream of events.
 *
 * The event parser and not libyaml's own documents: those resolve aliases,
 * which lets a small file stand for an enormous tree, and they do not say when
 * a key comes twice.  Elements of open collections wait on one stack and move
 * to the arena when their collection ends. */
#include "config/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/map.h"

typedef struct builder {
    sb_yaml_doc *doc;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool has_event;
    const sb_yaml **stack; /* finished children of open collections */
    size_t n_stack, cap;
    const char *data;
    size_t size;
} builder;

static sb_status fail_at(const sb_yaml_doc *doc, size_t line, const char *fmt,
                         ...) SB_PRINTF(3, 4);

static sb_status fail_at(const sb_yaml_doc *doc, size_t line, const char *fmt,
                         ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return sb_fail(doc->ctx, SB_BAD_CONFIG, "%s:%zu: %s", doc->file, line,
                   text);
}

/* The line of a byte; libyaml gives no line for bytes that are no text. */
static size_t line_of(const builder *b, size_t offset)
{
    size_t line = 1;

    for (size_t i = 0; i < offset && i < b->size; i++)
        line += b->data[i] == '\n';
    return line;
}

static sb_status parser_failed(const builder *b)
{
    const yaml_parser_t *p = &b->parser;
    const char *problem = p->problem ? p->problem : "not readable";
    size_t line = p->problem_mark.line + 1;

    if (p->error == YAML_MEMORY_ERROR)
        return sb_fail(b->doc->ctx, SB_NO_MEMORY, "out of memory");
    if (p->error == YAML_READER_ERROR)
        return fail_at(b->doc, line_of(b, p->problem_offset),
                       "not a text in UTF-8: %s", problem);
    if (strstr(problem, "cannot start any token"))
        return fail_at(b->doc, line,
                       "not YAML: %s (a tab, or a special character without "
                       "quotes?)",
                       problem);
    return fail_at(b->doc, line, "not YAML: %s%s%s", problem,
                   p->context ? " " : "", p->context ? p->context : "");
}

static sb_status next_event(builder *b)
{
    if (b->has_event)
        yaml_event_delete(&b->event);
    b->has_event = false;
    if (!yaml_parser_parse(&b->parser, &b->event))
        return parser_failed(b);
    b->has_event = true;
    return SB_OK;
}

static size_t event_line(const builder *b)
{
    return b->event.start_mark.line + 1;
}

/* ---- nodes -------------------------------------------------------------- */

static sb_status refuse_extras(const builder *b, const yaml_char_t *anchor,
                               const yaml_char_t *tag)
{
    if (anchor)
        return fail_at(b->doc, event_line(b),
                       "anchor '&%.40s': anchors are not supported, write the "
                       "value out",
                       (const char *)anchor);
    if (tag)
        return fail_at(b->doc, event_line(b),
                       "tag '%.40s': tags are not supported",
                       (const char *)tag);
    return SB_OK;
}

static sb_status scalar_text(const builder *b, sb_yaml *node)
{
    const char *text = (const char *)b->event.data.scalar.value;
    size_t len = b->event.data.scalar.length;

    if (memchr(text, '\0', len))
        return fail_at(b->doc, event_line(b), "a text with a zero byte");
    node->quoted = b->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->text = sb_arena_strn(&b->doc->arena, text, len);
    return node->text ? SB_OK : SB_NO_MEMORY;
}

static sb_status yaml_push(builder *b, const sb_yaml *node)
{
    SB_TRY(sb_grow(b->doc->ctx, &b->stack, &b->cap, b->n_stack + 1,
                   sizeof *b->stack));
    b->stack[b->n_stack++] = node;
    return SB_OK;
}

static sb_status read_node(builder *b, int depth, const sb_yaml **out);

static sb_status read_key(builder *b, int depth, sb_map *seen)
{
    const sb_yaml *key = NULL;

    if (b->event.type != YAML_SCALAR_EVENT && b->event.type != YAML_ALIAS_EVENT)
        return fail_at(b->doc, event_line(b),
                       "a key that is a list or a map, want a name");
    SB_TRY(read_node(b, depth, &key));
    uint32_t first = sb_map_get(seen, key->text);
    if (first != SB_MAP_NONE)
        return fail_at(b->doc, (size_t)key->line,
                       "key '%.60s' is given twice, first in line %lu",
                       key->text, (unsigned long)first);
    SB_TRY(sb_map_put(seen, key->text, (uint32_t)key->line));
    return yaml_push(b, key);
}

/* The children behind `mark`, into the arena; keys and values alternate. */
static sb_status take_children(builder *b, size_t mark, sb_yaml *node)
{
    size_t step = node->kind == SB_YAML_MAP ? 2 : 1;
    size_t n = (b->n_stack - mark) / step;
    const sb_yaml **items = sb_arena_alloc(&b->doc->arena, n, sizeof *items);
    const sb_yaml **keys = NULL;

    if (!items)
        return SB_NO_MEMORY;
    if (step == 2) {
        keys = sb_arena_alloc(&b->doc->arena, n, sizeof *keys);
        if (!keys)
            return SB_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        items[i] = b->stack[mark + i * step + step - 1];
        if (keys)
            keys[i] = b->stack[mark + i * step];
    }
    b->n_stack = mark;
    node->n = n;
    node->items = items;
    node->keys = keys;
    return SB_OK;
}

static sb_status read_children(builder *b, int depth, sb_map *seen,
                               sb_yaml *node)
{
    size_t mark = b->n_stack;
    bool is_map = node->kind == SB_YAML_MAP;
    yaml_event_type_t end =
        is_map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;

    if (depth >= SB_YAML_DEPTH)
        return fail_at(b->doc, event_line(b), "more than %d levels deep",
                       SB_YAML_DEPTH);
    SB_TRY(next_event(b));
    while (b->event.type != end) {
        const sb_yaml *child = NULL;

        if (is_map) {
            SB_TRY(read_key(b, depth + 1, seen));
            SB_TRY(next_event(b));
        }
        SB_TRY(read_node(b, depth + 1, &child));
        SB_TRY(yaml_push(b, child));
        SB_TRY(next_event(b));
    }
    return take_children(b, mark, node);
}

/* From the node's first event to its last. */
static sb_status read_node(builder *b, int depth, const sb_yaml **out)
{
    const yaml_event_t *e = &b->event;
    sb_yaml *node = sb_arena_alloc(&b->doc->arena, 1, sizeof *node);
    sb_status status = SB_OK;
    sb_map seen;

    if (!node)
        return SB_NO_MEMORY;
    node->line = (int)e->start_mark.line + 1;
    node->column = (int)e->start_mark.column + 1;
    *out = node;
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        SB_TRY(refuse_extras(b, e->data.scalar.anchor, e->data.scalar.tag));
        return scalar_text(b, node);
    case YAML_SEQUENCE_START_EVENT:
        SB_TRY(refuse_extras(b, e->data.sequence_start.anchor,
                             e->data.sequence_start.tag));
        node->kind = SB_YAML_LIST;
        return read_children(b, depth, NULL, node);
    case YAML_MAPPING_START_EVENT:
        SB_TRY(refuse_extras(b, e->data.mapping_start.anchor,
                             e->data.mapping_start.tag));
        node->kind = SB_YAML_MAP;
        sb_map_init(&seen, b->doc->ctx);
        status = read_children(b, depth, &seen, node);
        sb_map_free(&seen);
        return status;
    case YAML_ALIAS_EVENT:
        return fail_at(b->doc, event_line(b),
                       "alias '*%.40s': aliases are not supported, write the "
                       "value out",
                       (const char *)e->data.alias.anchor);
    default:
        return fail_at(b->doc, event_line(b), "not YAML");
    }
}

/* ---- documents ---------------------------------------------------------- */

static sb_status read_document(builder *b)
{
    SB_TRY(next_event(b)); /* start of the stream */
    SB_TRY(next_event(b));
    if (b->event.type == YAML_STREAM_END_EVENT)
        return sb_yaml_fail(b->doc, NULL, "the file is empty");
    SB_TRY(next_event(b));
    SB_TRY(read_node(b, 0, &b->doc->root));
    SB_TRY(next_event(b)); /* end of the document */
    SB_TRY(next_event(b));
    if (b->event.type != YAML_STREAM_END_EVENT)
        return fail_at(b->doc, event_line(b), "a second document, want one");
    return SB_OK;
}

static sb_status yaml_build(sb_yaml_doc *doc, const void *data, size_t size)
{
    builder b = {.doc = doc, .data = data, .size = size};

    if (size > SB_YAML_SIZE)
        return sb_yaml_fail(doc, NULL, "%zu bytes, want at most %d", size,
                            SB_YAML_SIZE);
    if (!yaml_parser_initialize(&b.parser))
        return sb_fail(doc->ctx, SB_NO_MEMORY, "out of memory");
    /* No input is not the same as NULL to libyaml. */
    yaml_parser_set_input_string(
        &b.parser, (const unsigned char *)(size ? data : ""), size);
    sb_status status = read_document(&b);
    if (b.has_event)
        yaml_event_delete(&b.event);
    yaml_parser_delete(&b.parser);
    sb_free(doc->ctx, b.stack);
    return status;
}

sb_status sb_yaml_load_memory(sb_ctx *ctx, const char *file, const void *data,
                              size_t size, sb_yaml_doc **out)
{
    sb_yaml_doc *doc = sb_alloc(ctx, 1, sizeof *doc);

    if (!doc)
        return SB_NO_MEMORY;
    doc->ctx = ctx;
    sb_arena_init(&doc->arena, ctx);
    doc->file = sb_arena_str(&doc->arena, file);
    sb_status status = doc->file ? yaml_build(doc, data, size) : SB_NO_MEMORY;
    if (status != SB_OK) {
        sb_yaml_free(doc);
        return status;
    }
    *out = doc;
    return SB_OK;
}

sb_status sb_yaml_load(sb_ctx *ctx, const char *path, sb_yaml_doc **out)
{
    sb_mapping map;

    SB_TRY(sb_file_map_input(ctx, path, &map));
    sb_status status = sb_yaml_load_memory(ctx, path, map.data, map.size, out);
    sb_file_unmap(&map);
    return status;
}

void sb_yaml_free(sb_yaml_doc *doc)
{
    if (!doc)
        return;
    sb_arena_free(&doc->arena);
    sb_free(doc->ctx, doc);
}

/* ---- questions ---------------------------------------------------------- */

const sb_yaml *sb_yaml_get(const sb_yaml *map, const char *key)
{
    if (!map || map->kind != SB_YAML_MAP)
        return NULL;
    for (size_t i = 0; i < map->n; i++)
        if (strcmp(map->keys[i]->text, key) == 0)
            return map->items[i];
    return NULL;
}

/* A copy that messages name without line. */
static const sb_yaml *foreign_node(sb_yaml_doc *doc, const sb_yaml *node)
{
    sb_yaml *copy = sb_arena_copy(&doc->arena, node, sizeof *node);

    if (copy)
        copy->line = 0;
    return copy;
}

sb_status sb_yaml_override(sb_yaml_doc *doc, const sb_yaml *other)
{
    const sb_yaml *map = doc->root;

    if (map->kind != SB_YAML_MAP || other->kind != SB_YAML_MAP)
        return sb_fail(doc->ctx, SB_BAD_CONFIG, "%s: want a map of keys",
                       doc->file);
    sb_yaml *root = sb_arena_copy(&doc->arena, map, sizeof *map);
    const sb_yaml **keys =
        sb_arena_alloc(&doc->arena, map->n + other->n, sizeof(*keys));
    const sb_yaml **items =
        sb_arena_alloc(&doc->arena, map->n + other->n, sizeof(*items));
    if (!root || !keys || !items)
        return SB_NO_MEMORY;
    root->n = 0;
    for (size_t i = 0; i < map->n + other->n; i++) {
        bool own = i < map->n;
        const sb_yaml *key = own ? map->keys[i] : other->keys[i - map->n];
        const sb_yaml *item = own ? map->items[i] : other->items[i - map->n];

        if (own && sb_yaml_get(other, key->text))
            continue;
        keys[root->n] = own ? key : foreign_node(doc, key);
        items[root->n] = own ? item : foreign_node(doc, item);
        if (!keys[root->n] || !items[root->n])
            return SB_NO_MEMORY;
        root->n++;
    }
    root->keys = keys;
    root->items = items;
    doc->root = root;
    return SB_OK;
}

bool sb_yaml_is_null(const sb_yaml *node)
{
    static const char *const names[] = {"", "~", "null", "Null", "NULL"};

    if (node->kind != SB_YAML_SCALAR || node->quoted)
        return false;
    for (size_t i = 0; i < SB_COUNT(names); i++)
        if (strcmp(node->text, names[i]) == 0)
            return true;
    return false;
}

const char *sb_yaml_describe(const sb_yaml *node, char *out, size_t size)
{
    if (node->kind == SB_YAML_LIST)
        (void)snprintf(out, size, "a list");
    else if (node->kind == SB_YAML_MAP)
        (void)snprintf(out, size, "a map");
    else if (sb_yaml_is_null(node))
        (void)snprintf(out, size, "nothing");
    else if (node->quoted)
        (void)snprintf(out, size, "\"%.60s\"", node->text);
    else
        (void)snprintf(out, size, "%.60s", node->text);
    return out;
}

sb_status sb_yaml_fail(const sb_yaml_doc *doc, const sb_yaml *node,
                       const char *fmt, ...)
{
    char text[SB_ERROR_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!node || node->line == 0)
        return sb_fail(doc->ctx, SB_BAD_CONFIG, "%s: %s", doc->file, text);
    return sb_fail(doc->ctx, SB_BAD_CONFIG, "%s:%d: %s", doc->file, node->line,
                   text);
}
