/* json.h - a JSON text as a small tree that knows its places.
 *
 * Strict: what the standard does not allow is refused, and so are keys given
 * twice, more than SB_JSON_DEPTH levels, numbers that no double holds, zero
 * bytes and bad UTF-8 in texts.
 * Messages begin with `file:line:column:`.
 *
 * Names may come from files whose texts are not UTF-8: sb_str_add_json() writes
 * such a byte as \udc80 to \udcff (as Python does), and it is read back here.
 */
#ifndef SB_BASE_JSON_H
#define SB_BASE_JSON_H

#include "base/arena.h"
#include "base/str.h"

enum { SB_JSON_DEPTH = 32 };

typedef enum sb_json_kind {
    SB_JSON_NULL,
    SB_JSON_BOOL,
    SB_JSON_NUMBER,
    SB_JSON_TEXT,
    SB_JSON_LIST,
    SB_JSON_OBJECT,
} sb_json_kind;

typedef struct sb_json {
    sb_json_kind kind;
    size_t at;                   /* offset in the file */
    const char *key;             /* of a member of an object */
    double number;               /* of a number; 0 or 1 of a truth value */
    const char *text;            /* of a text */
    size_t n;                    /* elements or members */
    const struct sb_json *child; /* the first of them */
    const struct sb_json *next;  /* after this one, in the same list */
} sb_json;

typedef struct sb_json_doc {
    sb_ctx *ctx;
    const char *file; /* as messages name it */
    const char *data;
    size_t size;
    const sb_json *root;
    sb_arena arena; /* holds the tree */
} sb_json_doc;

/* Reads a text; `file` and `data` are borrowed until sb_json_free().
 * SB_BAD_DATA if it is no JSON; then there is nothing to free. */
SB_MUST_USE sb_status sb_json_read(sb_ctx *ctx, const char *file,
                                   const char *data, size_t size,
                                   sb_json_doc **out);
/* The same of the bytes [begin, end) of a file, of which messages count lines
 * from its first. */
SB_MUST_USE sb_status sb_json_read_part(sb_ctx *ctx, const char *file,
                                        const char *data, size_t begin,
                                        size_t end, sb_json_doc **out);
void sb_json_free(sb_json_doc *doc); /* NULL is allowed */

/* Member of an object; NULL if absent or if `object` is NULL or no object. */
const sb_json *sb_json_get(const sb_json *object, const char *key);
/* Is it there, and of this kind? */
bool sb_json_is(const sb_json *node, sb_json_kind kind);
/* The text; NULL if it is none. */
const char *sb_json_text(const sb_json *node);

/* Records `file:line:column: message` as SB_BAD_DATA and returns that.  `node`
 * may be NULL: then only the file is named. */
sb_status sb_json_fail(const sb_json_doc *doc, const sb_json *node,
                       const char *fmt, ...) SB_PRINTF(3, 4);

/* Writing is appending to a string: sb_str_add_json() for texts, and a finite
 * number so that the same double is read back. */
void sb_json_add_number(sb_str *out, double x);

#endif
