/* Parameter tables: the values in a struct, compared, printed and held against
 * a file.  For tables of single values and lists, without maps inside. */
#include <assert.h>
#include <string.h>

#include "config/param.h"

/* A single value, or an element of a list. */
typedef struct param_value {
    sb_json_kind kind; /* NULL, BOOL, NUMBER or TEXT */
    double number;
    const char *text;
} param_value;

static size_t param_count(const sb_param_def *def, const void *field)
{
    switch (def->type) {
    case SB_PARAM_INTS:
        return ((const sb_param_ints *)field)->n;
    case SB_PARAM_FLOATS:
        return ((const sb_param_floats *)field)->n;
    case SB_PARAM_STRINGS:
        return ((const sb_param_strings *)field)->n;
    default:
        return 1;
    }
}

static bool param_is_list(const sb_param_def *def)
{
    return def->type == SB_PARAM_INTS || def->type == SB_PARAM_FLOATS ||
           def->type == SB_PARAM_STRINGS;
}

static param_value param_number(double x)
{
    return (param_value){SB_JSON_NUMBER, x, NULL};
}

static param_value param_text(const char *text)
{
    return (param_value){text ? SB_JSON_TEXT : SB_JSON_NULL, 0.0, text};
}

static param_value param_at(const sb_param_def *def, const void *field,
                            size_t i)
{
    switch (def->type) {
    case SB_PARAM_BOOL:
        return (param_value){SB_JSON_BOOL, *(const bool *)field, NULL};
    case SB_PARAM_INT:
        return param_number((double)*(const int64_t *)field);
    case SB_PARAM_FLOAT:
        return param_number(*(const double *)field);
    case SB_PARAM_INTS:
        return param_number((double)((const sb_param_ints *)field)->v[i]);
    case SB_PARAM_FLOATS:
        return param_number(((const sb_param_floats *)field)->v[i]);
    case SB_PARAM_STRING:
        return param_text(*(const char *const *)field);
    case SB_PARAM_STRINGS:
        return param_text(((const sb_param_strings *)field)->v[i]);
    default: {
        int name = *(const int *)field;

        assert(def->type == SB_PARAM_ENUM);
        return param_text(name < 0 ? NULL : def->names[name]);
    }
    }
}

static bool param_same(param_value a, param_value b)
{
    return a.kind == b.kind && a.number == b.number &&
           (a.kind != SB_JSON_TEXT || strcmp(a.text, b.text) == 0);
}

static const void *param_field(const sb_param_def *def, const void *params)
{
    return (const char *)params + def->offset;
}

bool sb_params_equal(const sb_param_def *defs, const void *a, const void *b)
{
    for (; defs && defs->name; defs++) {
        const void *x = param_field(defs, a), *y = param_field(defs, b);
        size_t n = param_count(defs, x);

        if (n != param_count(defs, y))
            return false;
        for (size_t i = 0; i < n; i++)
            if (!param_same(param_at(defs, x, i), param_at(defs, y, i)))
                return false;
    }
    return true;
}

/* ---- printing ----------------------------------------------------------- */

static void param_add_lower(sb_str *out, const char *text)
{
    for (; *text; text++) {
        char c =
            *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
        sb_str_addn(out, &c, 1);
    }
}

static void param_add_words(sb_str *out, const sb_param_def *def, param_value v)
{
    if (v.kind == SB_JSON_NUMBER)
        sb_str_addf(out, "%.6g", v.number);
    else if (v.kind == SB_JSON_BOOL)
        sb_str_add(out, v.number != 0.0 ? "true" : "false");
    else if (v.kind == SB_JSON_NULL)
        sb_str_add(out, "none");
    else if (def->type == SB_PARAM_ENUM)
        param_add_lower(out, v.text);
    else
        sb_str_add(out, v.text);
}

void sb_params_words(const sb_param_def *defs, const void *params, sb_str *out)
{
    bool several = defs && defs->name && defs[1].name;

    for (; defs && defs->name; defs++) {
        const void *field = param_field(defs, params);
        size_t n = param_count(defs, field);

        if (several) {
            sb_str_add(out, " ");
            param_add_lower(out, defs->name);
        }
        for (size_t i = 0; i < n; i++) {
            sb_str_add(out, i ? "," : " ");
            param_add_words(out, defs, param_at(defs, field, i));
        }
    }
}

static void param_add_json(sb_str *out, param_value v)
{
    if (v.kind == SB_JSON_NUMBER)
        sb_json_add_number(out, v.number);
    else if (v.kind == SB_JSON_TEXT)
        sb_str_add_json(out, v.text);
    else if (v.kind == SB_JSON_BOOL)
        sb_str_add(out, v.number != 0.0 ? "true" : "false");
    else
        sb_str_add(out, "null");
}

static void param_add_field(sb_str *out, const sb_param_def *def,
                            const void *params)
{
    const void *field = param_field(def, params);
    bool list = param_is_list(def);
    size_t n = param_count(def, field);

    sb_str_add(out, list ? "[" : "");
    for (size_t i = 0; i < n; i++) {
        sb_str_add(out, i ? "," : "");
        param_add_json(out, param_at(def, field, i));
    }
    sb_str_add(out, list ? "]" : "");
}

void sb_params_json(const sb_param_def *defs, const void *params, sb_str *out)
{
    const char *comma = "";

    sb_str_add(out, "{");
    for (; defs && defs->name; defs++, comma = ",") {
        sb_str_addf(out, "%s\"%s\":", comma, defs->name);
        param_add_field(out, defs, params);
    }
    sb_str_add(out, "}");
}

/* ---- held against a file ------------------------------------------------ */

static bool param_is_json(param_value v, const sb_json *item)
{
    return sb_json_is(item, v.kind) &&
           param_same(v, (param_value){item->kind, item->number, item->text});
}

static bool param_matches(const sb_param_def *def, const void *field,
                          const sb_json *item)
{
    size_t n = param_count(def, field);

    if (!param_is_list(def))
        return param_is_json(param_at(def, field, 0), item);
    if (!sb_json_is(item, SB_JSON_LIST) || item->n != n)
        return false;
    item = item->child;
    for (size_t i = 0; i < n; i++, item = item->next)
        if (!param_is_json(param_at(def, field, i), item))
            return false;
    return true;
}

/* The values of an item as it is in a file. */
static void param_add_item(sb_str *out, const sb_json *item)
{
    const sb_json *child = item->child;

    if (!sb_json_is(item, SB_JSON_LIST)) {
        param_add_json(out,
                       (param_value){item->kind, item->number, item->text});
        return;
    }
    sb_str_add(out, "[");
    for (size_t i = 0; i < item->n && child; i++, child = child->next) {
        sb_str_add(out, i ? "," : "");
        param_add_json(out,
                       (param_value){child->kind, child->number, child->text});
    }
    sb_str_add(out, "]");
}

static sb_status param_fail_json(const sb_json_doc *doc, const sb_json *item,
                                 const sb_param_def *def, const void *params)
{
    sb_str found, want;

    sb_str_init(&found, doc->ctx);
    sb_str_init(&want, doc->ctx);
    param_add_item(&found, item);
    param_add_field(&want, def, params);
    sb_status status = sb_json_fail(
        doc, item, "%s: another value, %s; want that of the configuration, %s",
        def->name, sb_str_text(&found), sb_str_text(&want));
    sb_str_free(&found);
    sb_str_free(&want);
    return status;
}

sb_status sb_params_check_json(const sb_json_doc *doc, const sb_json *object,
                               const sb_param_def *defs, const void *params)
{
    size_t n = 0;

    for (; defs && defs->name; defs++, n++) {
        const sb_json *item = sb_json_get(object, defs->name);

        if (!item)
            return sb_json_fail(doc, object,
                                "%s: missing; another version of sparsebit "
                                "wrote this file: use that one, or make the "
                                "file anew",
                                defs->name);
        if (!param_matches(defs, param_field(defs, params), item))
            return param_fail_json(doc, item, defs, params);
    }
    if (object && object->n != n)
        return sb_json_fail(doc, object,
                            "%zu parameters, want %zu; another version of "
                            "sparsebit wrote this file: use that one, or make "
                            "the file anew",
                            object->n, n);
    return SB_OK;
}
