/* yaml.h - a YAML document as a small tree that knows its lines.
 *
 * Scalars keep their text and whether they were quoted; what a text means
 * (number, truth value, name) is decided by the reader, see param.h.
 * Maps keep the order of the file.  Refused, with `file:line: ...`: keys that
 * are given twice or are no scalars, tags, anchors and aliases, several
 * documents, more than SB_YAML_DEPTH levels or SB_YAML_SIZE bytes. */
#ifndef SB_CONFIG_YAML_H
#define SB_CONFIG_YAML_H

#include "base/arena.h"

enum { SB_YAML_DEPTH = 32, SB_YAML_SIZE = 1 << 20 };

typedef enum sb_yaml_kind {
    SB_YAML_SCALAR,
    SB_YAML_LIST,
    SB_YAML_MAP,
} sb_yaml_kind;

typedef struct sb_yaml {
    sb_yaml_kind kind;
    int line, column; /* from 1; line 0: not in the document */
    const char *text; /* of a scalar */
    bool quoted;      /* of a scalar: 'x', "x" or a block */
    size_t n;         /* elements of a list, pairs of a map */
    const struct sb_yaml *const *items; /* elements, or values of a map */
    const struct sb_yaml *const *keys;  /* of a map: scalars */
} sb_yaml;

typedef struct sb_yaml_doc {
    sb_ctx *ctx;
    const char *file; /* as messages name it */
    const sb_yaml *root;
    sb_arena arena; /* holds all of it; readers may put their results here */
} sb_yaml_doc;

/* SB_IO or SB_BAD_CONFIG on failure; then there is nothing to free.  The
 * arena inside must not move: free with sb_yaml_free(). */
SB_MUST_USE sb_status sb_yaml_load(sb_ctx *ctx, const char *path,
                                   sb_yaml_doc **out);
/* The same from memory, which is copied; `file` is what messages say. */
SB_MUST_USE sb_status sb_yaml_load_memory(sb_ctx *ctx, const char *file,
                                          const void *data, size_t size,
                                          sb_yaml_doc **out);
void sb_yaml_free(sb_yaml_doc *doc); /* NULL is allowed */
/* The keys of the map `other` stand instead of those of the document's map, or
 * behind them.  `other` must live as long; messages about its values have no
 * line. */
SB_MUST_USE sb_status sb_yaml_override(sb_yaml_doc *doc, const sb_yaml *other);

/* Value of a key of a map; NULL if absent or if `map` is none. */
const sb_yaml *sb_yaml_get(const sb_yaml *map, const char *key);
/* Nothing, `~` or `null`, not quoted. */
bool sb_yaml_is_null(const sb_yaml *node);
/* What was found, for messages: `text` as written, `a list`, `a map`,
 * `nothing`. Written to `out`, cut to fit; returns it. */
const char *sb_yaml_describe(const sb_yaml *node, char *out, size_t size);

/* Records `file:line: message` as SB_BAD_CONFIG and returns that.  `node` may
 * be NULL: then without line. */
sb_status sb_yaml_fail(const sb_yaml_doc *doc, const sb_yaml *node,
                       const char *fmt, ...) SB_PRINTF(3, 4);

#endif
