/* param.h - parameter tables: YAML maps into plain structs.
 *
 * A table is an array of rows that ends with {0}; each row names a key, its
 * type, where it goes, its default (written as in the file), what is allowed,
 * and one line of help.  The same table reads files, explains keys and makes
 * the reference in docs/.
 *
 *     typedef struct { int64_t batch; sb_param_floats mean; } options;
 *     static const sb_param_def table[] = {
 *         {.name = "BATCH", .type = SB_PARAM_INT, .offset = offsetof(...),
 *          .preset = "1", .min = 1, .max = 65536, .help = "..."},
 *         {0},
 *     };
 *     options o;
 *     SB_TRY(sb_params_read(doc, doc->root, "", table, &o));
 *
 * Keys are case-sensitive; names of an ENUM are not.  Failures are
 * SB_BAD_CONFIG with `file:line: KEY.PATH: found X, allowed Y`. */
#ifndef SB_CONFIG_PARAM_H
#define SB_CONFIG_PARAM_H

#include "base/json.h"
#include "base/str.h"
#include "config/yaml.h"

/* The field that a row's offset points to. */
typedef enum sb_param_type {
    SB_PARAM_END,
    SB_PARAM_BOOL,    /* bool */
    SB_PARAM_INT,     /* int64_t */
    SB_PARAM_FLOAT,   /* double */
    SB_PARAM_STRING,  /* const char *; NULL without preset */
    SB_PARAM_ENUM,    /* int: index into `names`; -1 without preset */
    SB_PARAM_INTS,    /* sb_param_ints; one number counts as a list */
    SB_PARAM_FLOATS,  /* sb_param_floats; the same */
    SB_PARAM_STRINGS, /* sb_param_strings; the same */
    SB_PARAM_MAP,     /* a struct with a table of its own, `fields` */
    SB_PARAM_NODE,    /* const sb_yaml *, for the caller to read; or NULL.
                         `fields`, if any, explain it */
} sb_param_type;

/* Lists live in the document's arena. */
typedef struct sb_param_ints {
    const int64_t *v;
    size_t n;
} sb_param_ints;

typedef struct sb_param_floats {
    const double *v;
    size_t n;
} sb_param_floats;

typedef struct sb_param_strings {
    const char *const *v;
    size_t n;
} sb_param_strings;

typedef struct sb_param_def sb_param_def;
struct sb_param_def {
    const char *name; /* NULL ends the table */
    sb_param_type type;
    size_t offset; /* a MAP's fields are relative to it */
    /* Default, as one would write it: "8", "true", "[0, 1]".  NULL: none (zero,
     * NULL, empty, -1 for an ENUM). */
    const char *preset;
    bool required; /* an absent key is an error */
    /* Least and largest number, also of list elements; both 0: no limit. */
    double min, max;
    size_t n_min, n_max;        /* length of a list; n_max 0: no limit */
    const char *const *names;   /* ENUM: allowed, ends with NULL */
    const sb_param_def *fields; /* MAP, NODE */
    const char *help;           /* one line */
    const char *values; /* (optional) what is allowed, instead of our words */
    const char *more;   /* (optional) lines for those who ask for this key */
    /* (optional) ENUM: what each name stands for, instead of `more`; NULL: a
     * name that is known, but not offered here (and refused later, with
     * reasons). */
    const char *const *meanings;
    /* (optional) What a sample file says instead of the preset; "#" puts a
     * whole map into comments. */
    const char *sample;
};

/* Sets every field to its default, nested ones too.  `arena` gets lists and
 * copies nothing else.  A required key's field is set as if absent. */
SB_MUST_USE sb_status sb_params_defaults(sb_arena *arena,
                                         const sb_param_def *defs, void *out);

/* Defaults, then the keys of `map`.  `path` is the dotted path of `map`
 * itself, "" at the top. */
SB_MUST_USE sb_status sb_params_read(sb_yaml_doc *doc, const sb_yaml *map,
                                     const char *path, const sb_param_def *defs,
                                     void *out);

/* Several tables over one map, e.g. what all sources share and what one adds;
 * a key may stand in one of them only. */
typedef struct sb_param_set {
    const sb_param_def *defs;
    void *out;
} sb_param_set;

SB_MUST_USE sb_status sb_params_read_sets(sb_yaml_doc *doc, const sb_yaml *map,
                                          const char *path,
                                          const sb_param_set *sets,
                                          size_t n_sets);

/* Sets one field by its dotted key, relative to the table: `QUANTIZER.BIT`.
 * `key` says where for messages, `path` stands before the dotted key there. */
SB_MUST_USE sb_status sb_params_set(sb_yaml_doc *doc, const char *path,
                                    const sb_yaml *key, const sb_yaml *value,
                                    const sb_param_def *defs, void *out);

/* The row of a dotted key, NULL if there is none; adds its place in the outer
 * struct to *offset (may be NULL). */
const sb_param_def *sb_params_find(const sb_param_def *defs, const char *key,
                                   size_t *offset);

/* ---- values, see param_values.c ---------------------------------------- */

/* These are about tables of single values and lists, without MAP and NODE.  No
 * table (NULL) is one without rows; then the structs may be NULL too. */

/* Do both structs hold the same? */
bool sb_params_equal(const sb_param_def *defs, const void *a, const void *b);
/* For people: " 0.001"; with several rows " alpha 0.001 mode fast". */
void sb_params_words(const sb_param_def *defs, const void *params, sb_str *out);
/* {"ALPHA":0.001,"DISTRIBUTION":"GAUS"} */
void sb_params_json(const sb_param_def *defs, const void *params, sb_str *out);
/* Does such an object hold these values?  SB_BAD_DATA with its place if not. */
SB_MUST_USE sb_status sb_params_check_json(const sb_json_doc *doc,
                                           const sb_json *object,
                                           const sb_param_def *defs,
                                           const void *params);

/* ---- words, see param_text.c ------------------------------------------- */

/* What a row allows: "a whole number 1..16", "minmax, mse or percentile". */
void sb_param_allowed(const sb_param_def *def, sb_str *out);
/* What there is to say beyond `help`: lines, or nothing. */
void sb_param_more(const sb_param_def *def, sb_str *out);
/* The names of a table: "QSCHEME, QUANTIZER, OBSERVER". */
void sb_params_names(const sb_param_def *defs, sb_str *out);
/* A sample file with every key, its help as comments. */
void sb_params_sample(const sb_param_def *defs, sb_str *out);

/* The name most like `word`, NULL if none is close.  `names` ends with NULL.
 * Letter case costs nothing. */
const char *sb_nearest(const char *word, const char *const *names);

#endif
