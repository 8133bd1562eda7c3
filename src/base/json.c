/* Reading JSON: recursive descent over bytes, with all memory from one arena.
 *
 * A node keeps its offset; lines and columns are counted when there is
 * something to complain about. */
#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/number.h"

typedef struct reader {
    sb_json_doc *doc;
    size_t at;
    int depth;
} reader;

/* ---- messages ------------------------------------------------------------ */

static sb_status fail_at(const sb_json_doc *doc, size_t at, const char *text)
{
    size_t line = 1, start = 0;

    for (size_t i = 0; i < at && i < doc->size; i++)
        if (doc->data[i] == '\n') {
            line++;
            start = i + 1;
        }
    return sb_fail(doc->ctx, SB_BAD_DATA, "%s:%zu:%zu: %s", doc->file, line,
                   at - start + 1, text);
}

sb_status sb_json_fail(const sb_json_doc *doc, const sb_json *node,
                       const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (node)
        return fail_at(doc, node->at, text);
    return sb_fail(doc->ctx, SB_BAD_DATA, "%s: %s", doc->file, text);
}

static sb_status json_fail(const reader *r, const char *text)
{
    return fail_at(r->doc, r->at, text);
}

/* The byte at hand; 0 at the end. */
static char json_peek(const reader *r)
{
    return r->at < r->doc->size ? r->doc->data[r->at] : '\0';
}

static sb_status json_unexpected(const reader *r, const char *want)
{
    unsigned char c = (unsigned char)json_peek(r);
    char text[128];

    if (r->at >= r->doc->size)
        (void)snprintf(text, sizeof text, "the file ends, want %s", want);
    else if (c > 0x20 && c < 0x7f)
        (void)snprintf(text, sizeof text, "found '%c', want %s", c, want);
    else
        (void)snprintf(text, sizeof text, "found a byte 0x%02x, want %s", c,
                       want);
    return json_fail(r, text);
}

/* ---- pieces -------------------------------------------------------------- */

static void skip_space(reader *r)
{
    for (;; r->at++) {
        char c = json_peek(r);

        if (c != ' ' && c != '\t' && c != '\r' && c != '\n')
            return;
    }
}

static bool json_take(reader *r, char c)
{
    skip_space(r);
    if (r->at >= r->doc->size || json_peek(r) != c)
        return false;
    r->at++;
    return true;
}

static sb_status read_word(reader *r, const char *word)
{
    size_t n = strlen(word);

    if (r->doc->size - r->at < n || memcmp(r->doc->data + r->at, word, n) != 0)
        return json_unexpected(r, "a value");
    r->at += n;
    return SB_OK;
}

static size_t skip_digits(reader *r)
{
    size_t from = r->at;

    while (json_peek(r) >= '0' && json_peek(r) <= '9')
        r->at++;
    return r->at - from;
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static sb_status read_number(reader *r, double *out)
{
    size_t from = r->at;
    char text[SB_NUMBER_MOST];

    r->at += json_peek(r) == '-';
    bool zero = json_peek(r) == '0';
    size_t whole = skip_digits(r);
    if (whole == 0)
        return json_unexpected(r, "a value");
    if (zero && whole > 1)
        return json_fail(r, "a number with leading zeros");
    if (json_peek(r) == '.') {
        r->at++;
        if (skip_digits(r) == 0)
            return json_unexpected(r, "a digit");
    }
    if (json_peek(r) == 'e' || json_peek(r) == 'E') {
        r->at++;
        r->at += json_peek(r) == '+' || json_peek(r) == '-';
        if (skip_digits(r) == 0)
            return json_unexpected(r, "a digit");
    }
    size_t n = r->at - from;
    if (n < sizeof text) {
        memcpy(text, r->doc->data + from, n);
        text[n] = '\0';
    }
    if (n >= sizeof text || !sb_number_read(text, out) || !isfinite(*out)) {
        r->at = from;
        return json_fail(r, "a number that is too long or too large");
    }
    return SB_OK;
}

/* ---- texts --------------------------------------------------------------- */

static bool read_hex4(reader *r, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = json_peek(r);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static size_t put_utf8(uint32_t c, char *out)
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char mark[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(mark[n] | c);
    return n;
}

/* After the `u`: four digits, and four more if they are half of a pair. */
static sb_status read_unicode(reader *r, char *out, size_t *n)
{
    uint32_t c, low;

    if (!read_hex4(r, &c))
        return json_unexpected(r, "four hexadecimal digits");
    if (c == 0)
        return json_fail(r, "a text with a zero byte");
    if (c >= 0xdc80 && c <= 0xdcff) {
        out[0] = (char)(c & 0xff);
        *n = 1;
        return SB_OK;
    }
    if (c >= 0xd800 && c < 0xe000) {
        bool pair = c < 0xdc00 && json_peek(r) == '\\';
        r->at += pair;
        pair = pair && json_peek(r) == 'u';
        r->at += pair;
        if (!pair || !read_hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
            return json_fail(r, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    *n = put_utf8(c, out);
    return SB_OK;
}

static sb_status read_escape(reader *r, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = json_peek(r) ? strchr(from, json_peek(r)) : NULL;

    if (found) {
        r->at++;
        out[0] = to[found - from];
        *n = 1;
        return SB_OK;
    }
    if (json_peek(r) != 'u')
        return json_unexpected(r, "one of \"\\/bfnrtu after a backslash");
    r->at++;
    return read_unicode(r, out, n);
}

/* A text is never longer than its source. */
static sb_status read_text(reader *r, const char **out)
{
    const char *data = r->doc->data;
    size_t end = r->at + 1, n = 0;

    while (end < r->doc->size && data[end] != '"')
        end += data[end] == '\\' ? 2 : 1;
    if (end >= r->doc->size)
        return json_fail(r, "a text without end");
    char *text = sb_arena_alloc(&r->doc->arena, end - r->at, 1);
    if (!text)
        return SB_NO_MEMORY;
    for (r->at++; r->at < end;) {
        unsigned char c = (unsigned char)data[r->at];
        size_t bytes = 1;
        if (c == '\\') {
            r->at++;
            SB_TRY(read_escape(r, text + n, &bytes));
            n += bytes;
            continue;
        }
        if (c < 0x20)
            return json_fail(r, "a control character in a text");
        if (c < 0x80) { /* most are */
            text[n++] = (char)c;
            r->at++;
            continue;
        }
        bytes = sb_utf8_size(data + r->at, end - r->at);
        if (bytes == 0)
            return json_fail(r, "a text that is not UTF-8");
        memcpy(text + n, data + r->at, bytes);
        r->at += bytes;
        n += bytes;
    }
    r->at++;
    *out = text;
    return SB_OK;
}

/* ---- values -------------------------------------------------------------- */

static sb_status read_value(reader *r, const char *key, sb_json **out);

static sb_status read_key(reader *r, sb_map *keys, const char **out)
{
    skip_space(r);
    size_t at = r->at;
    if (json_peek(r) != '"')
        return json_unexpected(r, "a key in quotes");
    SB_TRY(read_text(r, out));
    if (sb_map_get(keys, *out) != SB_MAP_NONE) {
        r->at = at;
        return json_fail(r, "a key that is given twice");
    }
    SB_TRY(sb_map_put(keys, *out, 0));
    return json_take(r, ':') ? SB_OK : json_unexpected(r, "':'");
}

/* `keys` holds those of an object: a vocabulary has 100,000 of them. */
static sb_status read_children(reader *r, sb_json *parent, sb_map *keys)
{
    bool object = parent->kind == SB_JSON_OBJECT;
    const sb_json **last = &parent->child;

    if (json_take(r, object ? '}' : ']'))
        return SB_OK;
    do {
        const char *key = NULL;
        sb_json *item = NULL;
        if (object)
            SB_TRY(read_key(r, keys, &key));
        SB_TRY(read_value(r, key, &item));
        *last = item;
        last = &item->next;
        parent->n++;
    } while (json_take(r, ','));
    if (json_take(r, object ? '}' : ']'))
        return SB_OK;
    return json_unexpected(r, object ? "',' or '}'" : "',' or ']'");
}

static sb_status read_inside(reader *r, sb_json *node)
{
    sb_map keys;

    node->kind = json_peek(r) == '{' ? SB_JSON_OBJECT : SB_JSON_LIST;
    if (r->depth >= SB_JSON_DEPTH)
        return json_fail(r, "too many levels");
    r->at++;
    r->depth++;
    sb_map_init(&keys, r->doc->ctx);
    sb_status status = read_children(r, node, &keys);
    sb_map_free(&keys);
    r->depth--;
    return status;
}

static sb_status read_value(reader *r, const char *key, sb_json **out)
{
    sb_json *node = sb_arena_alloc(&r->doc->arena, 1, sizeof *node);

    if (!node)
        return SB_NO_MEMORY;
    skip_space(r);
    node->at = r->at;
    node->key = key;
    *out = node;
    switch (json_peek(r)) {
    case '{':
    case '[':
        return read_inside(r, node);
    case '"':
        node->kind = SB_JSON_TEXT;
        return read_text(r, &node->text);
    case 't':
    case 'f':
        node->kind = SB_JSON_BOOL;
        node->number = json_peek(r) == 't';
        return read_word(r, json_peek(r) == 't' ? "true" : "false");
    case 'n':
        return read_word(r, "null");
    default:
        node->kind = SB_JSON_NUMBER;
        return read_number(r, &node->number);
    }
}

/* ---- interface ----------------------------------------------------------- */

sb_status sb_json_read(sb_ctx *ctx, const char *file, const char *data,
                       size_t size, sb_json_doc **out)
{
    return sb_json_read_part(ctx, file, data, 0, size, out);
}

sb_status sb_json_read_part(sb_ctx *ctx, const char *file, const char *data,
                            size_t begin, size_t end, sb_json_doc **out)
{
    sb_json_doc *doc = sb_alloc(ctx, 1, sizeof *doc);
    sb_json *root = NULL;

    if (!doc)
        return SB_NO_MEMORY;
    *doc = (sb_json_doc){.ctx = ctx, .file = file, .data = data, .size = end};
    sb_arena_init(&doc->arena, ctx);
    reader r = {.doc = doc, .at = begin};
    sb_status status = read_value(&r, NULL, &root);
    skip_space(&r);
    if (status == SB_OK && r.at < end)
        status = json_unexpected(&r, "the end of the file");
    doc->root = root;
    if (status == SB_OK)
        *out = doc;
    else
        sb_json_free(doc);
    return status;
}

void sb_json_free(sb_json_doc *doc)
{
    if (!doc)
        return;
    sb_arena_free(&doc->arena);
    sb_free(doc->ctx, doc);
}

const sb_json *sb_json_get(const sb_json *object, const char *key)
{
    if (!sb_json_is(object, SB_JSON_OBJECT))
        return NULL;
    const sb_json *o = object->child;
    while (o && strcmp(o->key, key) != 0)
        o = o->next;
    return o;
}

bool sb_json_is(const sb_json *node, sb_json_kind kind)
{
    return node && node->kind == kind;
}

const char *sb_json_text(const sb_json *node)
{
    return sb_json_is(node, SB_JSON_TEXT) ? node->text : NULL;
}

void sb_json_add_number(sb_str *out, double x)
{
    char text[SB_NUMBER_MOST];

    sb_number_write(text, x, 15, 17);
    sb_str_add(out, text);
}
