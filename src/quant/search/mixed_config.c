/* Writes a YAML tree again, with other values for the bit widths of W, or with
 * more layers in float. */
#include "quant/search/mixed_config.h"

#include <string.h>

#include "config/yaml.h"

static void mixed_indent(sb_str *out, int depth)
{
    for (int i = 0; i < depth; i++)
        sb_str_add(out, "  ");
}

/* JSON's escapes are YAML's. */
static void mixed_scalar(sb_str *out, const sb_yaml *node)
{
    if (node->quoted)
        sb_str_add_json(out, node->text);
    else
        sb_str_add(out, node->text);
}

/* On one line. */
static void mixed_flow(sb_str *out, const sb_yaml *node)
{
    if (node->kind == SB_YAML_SCALAR) {
        mixed_scalar(out, node);
        return;
    }
    sb_str_add(out, node->kind == SB_YAML_LIST ? "[" : "{");
    for (size_t i = 0; i < node->n; i++) {
        sb_str_add(out, i ? ", " : "");
        if (node->kind == SB_YAML_MAP) {
            mixed_scalar(out, node->keys[i]);
            sb_str_add(out, ": ");
        }
        mixed_flow(out, node->items[i]);
    }
    sb_str_add(out, node->kind == SB_YAML_LIST ? "]" : "}");
}

static void mixed_pair(sb_str *out, int depth, const sb_yaml *map, size_t i)
{
    const sb_yaml *value = map->items[i];

    mixed_indent(out, depth);
    mixed_scalar(out, map->keys[i]);
    sb_str_add(out, ":");
    if (value->kind != SB_YAML_MAP || value->n == 0) {
        sb_str_add(out, " ");
        mixed_flow(out, value);
        sb_str_add(out, "\n");
        return;
    }
    sb_str_add(out, "\n");
    for (size_t k = 0; k < value->n; k++)
        mixed_pair(out, depth + 1, value, k);
}

/* A pattern that means this very name; `?` for what YAML has no letter for. */
static void mixed_pattern(sb_str *out, const char *name)
{
    sb_str text;

    sb_str_init(&text, out->ctx);
    for (; *name; name++)
        if (strchr("*?[", *name))
            sb_str_addf(&text, "[%c]", *name);
        else
            sb_str_addn(&text, name, 1);
    if (text.data)
        sb_text_make_printable(text.data);
    sb_str_add_json(out, sb_str_text(&text));
    out->failed = out->failed || text.failed;
    sb_str_free(&text);
}

static void mixed_quantizer(sb_str *out, const sb_yaml *map, int bits)
{
    sb_str_add(out, "  QUANTIZER:\n");
    for (size_t i = 0; map && map->kind == SB_YAML_MAP && i < map->n; i++)
        if (strcmp(map->keys[i]->text, "BIT") != 0)
            mixed_pair(out, 2, map, i);
    sb_str_addf(out, "    BIT: %d\n", bits);
}

static void mixed_weights(sb_str *out, const sb_yaml *w, int bits,
                          const sb_mixed_width *own, size_t n_own)
{
    sb_str_add(out, "W:\n");
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->keys[i]->text, "QUANTIZER") != 0 &&
            strcmp(w->keys[i]->text, "SPECIFIC") != 0)
            mixed_pair(out, 1, w, i);
    mixed_quantizer(out, sb_yaml_get(w, "QUANTIZER"), bits);
    if (n_own > 0)
        sb_str_add(out, "  SPECIFIC:\n");
    for (size_t i = 0; i < n_own; i++) {
        sb_str_add(out, i ? "    " : "  - ");
        mixed_pattern(out, own[i].name);
        sb_str_addf(out, ": [QUANTIZER.BIT, %d]\n", own[i].bits);
    }
}

/* ---- layers in float ---------------------------------------------------- */

static const char SKIPPED[] = "SKIP_TRACE_MODULES";

/* The patterns that are there, a list or one alone, and n more. */
static void floats_list(sb_str *out, const sb_yaml *there,
                        const char *const *more, size_t n)
{
    const bool is_list = there && there->kind == SB_YAML_LIST;
    const size_t one = there && !sb_yaml_is_null(there);
    const size_t had = is_list ? there->n : one;

    if (had + n == 0)
        return;
    sb_str_addf(out, "%s:\n", SKIPPED);
    for (size_t i = 0; i < had + n; i++) {
        sb_str_add(out, "  - ");
        if (i < had)
            mixed_flow(out, is_list ? there->items[i] : there);
        else
            sb_str_add_json(out, more[i - had]);
        sb_str_add(out, "\n");
    }
}

sb_status sb_floats_config(sb_ctx *ctx, const char *file, const char *text,
                           const char *const *patterns, size_t n, sb_str *out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load_memory(ctx, file, text, strlen(text), &doc));
    const sb_yaml *root = doc->root;
    char found[64];
    sb_status status =
        root->kind == SB_YAML_MAP
            ? SB_OK
            : sb_yaml_fail(doc, root, "found %s, want a map of keys",
                           sb_yaml_describe(root, found, sizeof found));
    for (size_t i = 0; status == SB_OK && i < root->n; i++)
        if (strcmp(root->keys[i]->text, SKIPPED) != 0)
            mixed_pair(out, 0, root, i);
    floats_list(out, sb_yaml_get(root, SKIPPED), patterns, n);
    sb_yaml_free(doc);
    return status == SB_OK ? sb_str_status(out) : status;
}

/* ---- widths ------------------------------------------------------------- */

sb_status sb_mixed_config(sb_ctx *ctx, const char *file, const char *text,
                          int bits, const sb_mixed_width *own, size_t n_own,
                          sb_str *out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load_memory(ctx, file, text, strlen(text), &doc));
    const sb_yaml *root = doc->root, *w = sb_yaml_get(root, "W");
    const sb_yaml *specific = sb_yaml_get(w, "SPECIFIC");
    sb_status status = SB_OK;
    if (!w || w->kind != SB_YAML_MAP)
        status = sb_yaml_fail(doc, root,
                              "W: found none, want settings of "
                              "weights to search bit widths for");
    else if (specific && specific->n > 0)
        status = sb_yaml_fail(doc, specific,
                              "W.SPECIFIC: the search writes this key itself, "
                              "want a configuration without it");
    for (size_t i = 0; status == SB_OK && i < root->n; i++) {
        if (root->items[i] == w)
            mixed_weights(out, w, bits, own, n_own);
        else
            mixed_pair(out, 0, root, i);
    }
    sb_yaml_free(doc);
    return status == SB_OK ? sb_str_status(out) : status;
}
