/* Parameter tables: reading.
 *
 * Defaults are texts in the table and go through the same functions as values
 * from a file, so that both mean the same. */
#include "config/param.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { PATH_MOST = 256 };

/* Where values come from; `doc` is NULL for defaults, which are ours and thus
 * right. */
typedef struct reader {
    sb_ctx *ctx;
    sb_arena *arena;
    const sb_yaml_doc *doc;
} reader;

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        int x = *a >= 'A' && *a <= 'Z' ? *a - 'A' + 'a' : *a;
        int y = *b >= 'A' && *b <= 'Z' ? *b - 'A' + 'a' : *b;

        if (x != y)
            return false;
    }
    return *a == *b;
}

static void join_path(char *out, const char *path, const char *key)
{
    (void)snprintf(out, PATH_MOST, "%s%s%.80s", path, *path ? "." : "", key);
}

/* ---- failures ----------------------------------------------------------- */

static sb_status fail_allowed(const reader *r, const sb_yaml *node,
                              const char *path, const sb_param_def *def)
{
    char found[80];
    sb_str text;
    const char *near = NULL;

    assert(r->doc); /* a default that its own row does not allow */
    if (node->kind == SB_YAML_SCALAR && def->names)
        near = sb_nearest(node->text, def->names);
    sb_str_init(&text, r->ctx);
    sb_param_allowed(def, &text);
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status = sb_yaml_fail(r->doc, node, "%s: found %s, allowed %s%s%s%s",
                              path, sb_yaml_describe(node, found, sizeof found),
                              sb_str_text(&text), near ? "; did you mean " : "",
                              near ? near : "", near ? "?" : "");
    sb_str_free(&text);
    return status;
}

/* The dotted path of a key that stands somewhere below; false if nowhere. */
static bool find_below(const sb_param_def *defs, const char *name, char *out)
{
    for (; defs->name; defs++) {
        char below[PATH_MOST];

        if (same_name(defs->name, name)) {
            (void)snprintf(out, PATH_MOST, "%s", defs->name);
            return true;
        }
        if (defs->fields && find_below(defs->fields, name, below)) {
            join_path(out, defs->name, below);
            return true;
        }
    }
    return false;
}

/* `n` tables share the map. */
static sb_status fail_unknown(const reader *r, const sb_yaml *key,
                              const char *path, const sb_param_set *sets,
                              size_t n)
{
    const char *near = NULL;
    char below[PATH_MOST];
    sb_str text;

    sb_str_init(&text, r->ctx);
    for (size_t i = 0; i < n; i++) {
        const char *names[256];
        size_t count = 0;

        for (const sb_param_def *d = sets[i].defs; d->name && count < 255; d++)
            names[count++] = d->name;
        names[count] = NULL;
        if (!near)
            near = sb_nearest(key->text, names);
        if (!near && find_below(sets[i].defs, key->text, below))
            near = below;
        sb_str_add(&text, i && count ? ", " : "");
        sb_params_names(sets[i].defs, &text);
    }
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status =
            sb_yaml_fail(r->doc, key, "%s: unknown key, allowed %s%s%s%s", path,
                         sb_str_text(&text), near ? "; did you mean " : "",
                         near ? near : "", near ? "?" : "");
    sb_str_free(&text);
    return status;
}

static sb_status fail_missing(const reader *r, const sb_yaml *map,
                              const char *path, const sb_param_def *def)
{
    sb_str text;

    sb_str_init(&text, r->ctx);
    sb_param_allowed(def, &text);
    sb_status status = sb_str_status(&text);
    if (status == SB_OK)
        status = sb_yaml_fail(r->doc, map, "%s: missing, allowed %s", path,
                              sb_str_text(&text));
    sb_str_free(&text);
    return status;
}

/* ---- scalars ------------------------------------------------------------ */

static bool param_within(const sb_param_def *def, double x)
{
    bool limited = def->min != 0 || def->max != 0;

    return !limited || (x >= def->min && x <= def->max);
}

static bool to_bool(const char *text, bool *out)
{
    static const char *const words[] = {"false", "true", "no",
                                        "yes",   "off",  "on"};

    for (size_t i = 0; i < SB_COUNT(words); i++)
        if (same_name(text, words[i])) {
            *out = i % 2 == 1;
            return true;
        }
    return false;
}

/* Decimal.  A leading zero is octal to some readers of YAML: not here. */
static bool to_int(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    size_t n = strspn(digits, "0123456789");
    char *end = NULL;

    if (n == 0 || digits[n] || (digits[0] == '0' && n > 1))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0;
}

static bool to_double(const char *text, double *out)
{
    return strpbrk(text, "0123456789") &&
           text[strspn(text, "+-.0123456789eE")] == '\0' &&
           sb_number_read(text, out) && isfinite(*out);
}

static bool find_name(const char *text, const char *const *names, int *out)
{
    for (int i = 0; names[i]; i++)
        if (same_name(text, names[i])) {
            *out = i;
            return true;
        }
    return false;
}

/* Where `true` and `false` are names, so are the other words for them. */
static bool to_enum(const char *text, const char *const *names, int *out)
{
    bool truth = false;

    return find_name(text, names, out) ||
           (to_bool(text, &truth) &&
            find_name(truth ? "true" : "false", names, out));
}

/* One scalar into one element of the row's type; false if it is not allowed.
 * Quoted numbers, and quoted `True` and `False`, mean the same as without: that
 * is how yacs, which read these files before us, takes them. */
static bool read_scalar(const sb_param_def *def, const sb_yaml *node,
                        void *field)
{
    double x = 0;

    if (node->kind != SB_YAML_SCALAR || sb_yaml_is_null(node))
        return false;
    switch (def->type) {
    case SB_PARAM_BOOL:
        if (node->quoted && strcmp(node->text, "True") != 0 &&
            strcmp(node->text, "False") != 0)
            return false;
        return to_bool(node->text, field);
    case SB_PARAM_INT:
    case SB_PARAM_INTS:
        return to_int(node->text, field) &&
               param_within(def, (double)*(int64_t *)field);
    case SB_PARAM_FLOAT:
    case SB_PARAM_FLOATS:
        if (!to_double(node->text, &x) || !param_within(def, x))
            return false;
        *(double *)field = x;
        return true;
    case SB_PARAM_ENUM:
        return to_enum(node->text, def->names, field);
    case SB_PARAM_STRING:
    case SB_PARAM_STRINGS:
        *(const char **)field = node->text;
        return true;
    default:
        return false;
    }
}

/* ---- lists -------------------------------------------------------------- */

static size_t element_size(sb_param_type type)
{
    return type == SB_PARAM_INTS     ? sizeof(int64_t)
           : type == SB_PARAM_FLOATS ? sizeof(double)
                                     : sizeof(const char *);
}

static void put_list(sb_param_type type, void *field, void *v, size_t n)
{
    if (type == SB_PARAM_INTS)
        *(sb_param_ints *)field = (sb_param_ints){v, n};
    else if (type == SB_PARAM_FLOATS)
        *(sb_param_floats *)field = (sb_param_floats){v, n};
    else
        *(sb_param_strings *)field = (sb_param_strings){v, n};
}

static sb_status read_list(const reader *r, const sb_param_def *def,
                           const char *path, const sb_yaml *node, void *field)
{
    bool is_list = node->kind == SB_YAML_LIST;
    size_t n = is_list ? node->n : 1;
    size_t size = element_size(def->type);
    char *v = sb_arena_alloc(r->arena, n, size);

    if (!v)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const sb_yaml *element = is_list ? node->items[i] : node;

        if (!read_scalar(def, element, v + i * size))
            return fail_allowed(r, element, path, def);
    }
    if (n < def->n_min || (def->n_max && n > def->n_max)) {
        char most[32] = "";

        assert(r->doc);
        if (def->n_max != def->n_min)
            (void)snprintf(most, sizeof most, " to %zu", def->n_max);
        return sb_yaml_fail(r->doc, node,
                            "%s: found %zu element%s, allowed %zu%s", path, n,
                            n == 1 ? "" : "s", def->n_min, most);
    }
    put_list(def->type, field, v, n);
    return SB_OK;
}

/* ---- rows --------------------------------------------------------------- */

static sb_status read_map(const reader *r, const sb_yaml *map, const char *path,
                          const sb_param_set *sets, size_t n);

static sb_status read_value(const reader *r, const sb_param_def *def,
                            const char *path, const sb_yaml *node, void *field)
{
    switch (def->type) {
    case SB_PARAM_MAP:
        return read_map(r, node, path,
                        &(const sb_param_set){def->fields, field}, 1);
    case SB_PARAM_NODE:
        *(const sb_yaml **)field = node;
        return SB_OK;
    case SB_PARAM_INTS:
    case SB_PARAM_FLOATS:
    case SB_PARAM_STRINGS:
        return read_list(r, def, path, node, field);
    default:
        if (!read_scalar(def, node, field))
            return fail_allowed(r, node, path, def);
        return SB_OK;
    }
}

static const sb_param_def *find_row(const sb_param_def *defs, const char *name,
                                    size_t len)
{
    for (; defs->name; defs++)
        if (strlen(defs->name) == len && memcmp(defs->name, name, len) == 0)
            return defs;
    return NULL;
}

/* Keys over the defaults that are there already. */
static sb_status read_map(const reader *r, const sb_yaml *map, const char *path,
                          const sb_param_set *sets, size_t n)
{
    char found[80], full[PATH_MOST];

    if (map->kind != SB_YAML_MAP)
        return sb_yaml_fail(r->doc, map, "%s%sfound %s, allowed a map", path,
                            *path ? ": " : "",
                            sb_yaml_describe(map, found, sizeof found));
    for (size_t i = 0; i < map->n; i++) {
        const sb_yaml *key = map->keys[i];
        const sb_param_def *def = NULL;
        size_t s = 0;

        join_path(full, path, key->text);
        for (; s < n && !def; s++)
            def = find_row(sets[s].defs, key->text, strlen(key->text));
        if (!def)
            return fail_unknown(r, key, full, sets, n);
        SB_TRY(read_value(r, def, full, map->items[i],
                          (char *)sets[s - 1].out + def->offset));
    }
    for (size_t s = 0; s < n; s++)
        for (const sb_param_def *d = sets[s].defs; d->name; d++)
            if (d->required && !sb_yaml_get(map, d->name)) {
                join_path(full, path, d->name);
                return fail_missing(r, map, full, d);
            }
    return SB_OK;
}

/* ---- defaults ----------------------------------------------------------- */

/* "[a, b]" as a list of scalars. */
static sb_status preset_list(sb_arena *arena, const char *text, sb_yaml *out)
{
    size_t n = strlen(text);
    char *copy = sb_arena_strn(arena, text + 1, n - 2);
    const sb_yaml **items = sb_arena_alloc(arena, n, sizeof *items);
    sb_yaml *nodes = sb_arena_alloc(arena, n, sizeof *nodes);

    assert(text[0] == '[' && text[n - 1] == ']');
    if (!copy || !items || !nodes)
        return SB_NO_MEMORY;
    *out = (sb_yaml){.kind = SB_YAML_LIST, .items = items};
    for (char *at = copy + strspn(copy, " "); *at;) {
        char *end = at + strcspn(at, ",");
        char *next = *end ? end + 1 + strspn(end + 1, " ") : end;

        *end = '\0';
        nodes[out->n].text = at;
        items[out->n] = &nodes[out->n];
        out->n++;
        at = next;
    }
    return SB_OK;
}

static void clear_field(const sb_param_def *def, void *field)
{
    switch (def->type) {
    case SB_PARAM_BOOL:
        *(bool *)field = false;
        break;
    case SB_PARAM_INT:
        *(int64_t *)field = 0;
        break;
    case SB_PARAM_FLOAT:
        *(double *)field = 0;
        break;
    case SB_PARAM_STRING:
        *(const char **)field = NULL;
        break;
    case SB_PARAM_ENUM:
        *(int *)field = -1;
        break;
    case SB_PARAM_NODE:
        *(const sb_yaml **)field = NULL;
        break;
    default:
        put_list(def->type, field, NULL, 0);
    }
}

sb_status sb_params_defaults(sb_arena *arena, const sb_param_def *defs,
                             void *out)
{
    const reader r = {.ctx = arena->ctx, .arena = arena};

    for (; defs->name; defs++) {
        void *field = (char *)out + defs->offset;
        sb_yaml node = {.kind = SB_YAML_SCALAR, .text = defs->preset};

        if (defs->type == SB_PARAM_MAP) {
            SB_TRY(sb_params_defaults(arena, defs->fields, field));
            continue;
        }
        clear_field(defs, field);
        if (!defs->preset || defs->type == SB_PARAM_NODE)
            continue;
        if (defs->preset[0] == '[')
            SB_TRY(preset_list(arena, defs->preset, &node));
        SB_TRY(read_value(&r, defs, defs->name, &node, field));
    }
    return SB_OK;
}

/* ---- interface ---------------------------------------------------------- */

static reader reader_of(sb_yaml_doc *doc)
{
    return (reader){.ctx = doc->ctx, .arena = &doc->arena, .doc = doc};
}

sb_status sb_params_read_sets(sb_yaml_doc *doc, const sb_yaml *map,
                              const char *path, const sb_param_set *sets,
                              size_t n_sets)
{
    const reader r = reader_of(doc);

    for (size_t i = 0; i < n_sets; i++)
        SB_TRY(sb_params_defaults(&doc->arena, sets[i].defs, sets[i].out));
    return read_map(&r, map, path, sets, n_sets);
}

sb_status sb_params_read(sb_yaml_doc *doc, const sb_yaml *map, const char *path,
                         const sb_param_def *defs, void *out)
{
    return sb_params_read_sets(doc, map, path, &(const sb_param_set){defs, out},
                               1);
}

const sb_param_def *sb_params_find(const sb_param_def *defs, const char *key,
                                   size_t *offset)
{
    for (;;) {
        size_t len = strcspn(key, ".");
        const sb_param_def *def = find_row(defs, key, len);

        if (!def)
            return NULL;
        if (offset)
            *offset += def->offset;
        if (!key[len])
            return def;
        if (!def->fields)
            return NULL;
        defs = def->fields;
        key += len + 1;
    }
}

/* The table in which the search for a dotted key ends, and the key's last part
 * there: for suggestions. */
static const sb_param_def *last_table(const sb_param_def *defs,
                                      const char **key)
{
    for (;;) {
        size_t len = strcspn(*key, ".");
        const sb_param_def *def = find_row(defs, *key, len);

        if (!def || !(*key)[len] || !def->fields)
            return defs;
        defs = def->fields;
        *key += len + 1;
    }
}

sb_status sb_params_set(sb_yaml_doc *doc, const char *path, const sb_yaml *key,
                        const sb_yaml *value, const sb_param_def *defs,
                        void *out)
{
    const reader r = reader_of(doc);
    char full[PATH_MOST], found[80];
    size_t offset = 0;

    if (key->kind != SB_YAML_SCALAR)
        return sb_yaml_fail(doc, key, "%s: found %s, allowed a key", path,
                            sb_yaml_describe(key, found, sizeof found));
    const sb_param_def *def = sb_params_find(defs, key->text, &offset);
    join_path(full, path, key->text);
    if (!def) {
        sb_yaml rest = *key;
        const sb_param_def *table = last_table(defs, &rest.text);

        return fail_unknown(&r, &rest, full, &(const sb_param_set){table, NULL},
                            1);
    }
    return read_value(&r, def, full, value, (char *)out + offset);
}
