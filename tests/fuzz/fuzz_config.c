/* Any bytes as a YAML file: the tree, and the config if it is one.
 *
 * What must never happen: a crash, a hang, a leak, a message of more than one
 * line, and a config that was accepted but says something that no quantizer can
 * be. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/config/quant_config.h"
#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void look_at(const sb_yaml *node)
{
    char text[80];

    must(node->line > 0 && node->column > 0, "a node without a place");
    must(strlen(sb_yaml_describe(node, text, sizeof text)) < sizeof text,
         "a description that does not fit");
    for (size_t i = 0; i < node->n; i++) {
        if (node->keys)
            look_at(node->keys[i]);
        look_at(node->items[i]);
    }
}

static void check_params(const sb_param_def *defs, const void *params)
{
    for (; defs && defs->name; defs++) {
        const char *field = (const char *)params + defs->offset;

        if (defs->type == SB_PARAM_FLOAT)
            must(*(const double *)field >= defs->min &&
                     *(const double *)field <= defs->max,
                 defs->name);
    }
}

static void check_spec(const sb_quant_spec *s)
{
    if (s->disabled)
        return;
    must(s->bits >= 1 && s->bits <= 16, "a width");
    must(s->group_size == -1 || s->granularity != SB_QUANT_PER_GROUP ||
             (s->group_size >= 16 && s->group_size <= 256),
         "group");
    must(s->kind == SB_QUANT_WEIGHT || s->granularity != SB_QUANT_PER_GROUP,
         "groups of activations");
    must(s->quantizer && s->observer, "rows");
    check_params(s->quantizer->params, s->quantizer_params);
    check_params(s->observer->params, s->observer_params);
}

static void use(const sb_quant_config *cfg)
{
    static const sb_node nodes[] = {
        {.op = "Conv", .domain = "", .name = "/a/Conv", .module = "a.B"},
        {.op = "Softmax", .domain = "", .name = "", .module = ""},
    };

    for (int k = 0; k < 2; k++) {
        sb_param_strings p = sb_quant_config_patterns(cfg, (sb_quant_kind)k);
        sb_quant_spec spec;

        sb_quant_config_spec(cfg, (sb_quant_kind)k, NULL, &spec);
        if (sb_quant_config_has_quant(cfg))
            check_spec(&spec);
        for (size_t i = 0; i < 2; i++)
            sb_quant_config_spec(cfg, (sb_quant_kind)k, &nodes[i], &spec);
        for (size_t i = 0; i < p.n; i++) {
            sb_quant_config_pattern_spec(cfg, (sb_quant_kind)k, i, &spec);
            check_spec(&spec);
        }
    }
    for (size_t i = 0; i < 2; i++)
        (void)sb_quant_config_skips(cfg, &nodes[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sb_ctx *ctx = NULL;
    sb_yaml_doc *doc = NULL;
    sb_quant_config *cfg = NULL;

    if (sb_ctx_create(NULL, &ctx) != SB_OK)
        return 0;
    if (sb_yaml_load_memory(ctx, "input", data, size, &doc) == SB_OK)
        look_at(doc->root);
    else
        must(!strchr(sb_ctx_error(ctx), '\n'), "a message of two lines");
    sb_yaml_free(doc);
    if (sb_quant_config_load_memory(ctx, "input", (const char *)data, size,
                                    SB_QUANT_CONFIG_ANY, &cfg) == SB_OK)
        use(cfg);
    else
        must(!strchr(sb_ctx_error(ctx), '\n'), "a message of two lines");
    sb_quant_config_free(cfg);
    sb_ctx_free(ctx);
    return 0;
}
