/* The configuration of quantization: loading, and what it says of a node.
 *
 * All patterns of SPECIFIC are resolved and checked when the file is loaded;
 * asking for a node's settings then only looks for the first that matches. */
#include "quant/config/quant_config.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "quant/config/quant_config_file.h"
#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"

/* ---- one side ----------------------------------------------------------- */

/* The parameters of a row; NULL if it has none. */
static const void *side_params(const sb_quant_side *side, size_t at)
{
    return at ? (const char *)side + at : NULL;
}

void sb_quant_side_resolve(const sb_quant_tables *tables,
                           const sb_quant_side *side, sb_quant_kind kind,
                           sb_quant_spec *out)
{
    int scheme = side->scheme < 0 ? 0 : side->scheme;
    size_t quantizer = (size_t)side->quantizer;
    size_t observer = (size_t)side->observer;

    *out = (sb_quant_spec){
        .kind = kind,
        .disabled = side->disable || side->bit == 0,
        .granularity = (sb_quant_granularity)(scheme / 2),
        .symmetric = scheme % 2 == 0,
        .bits = side->bit < 0 ? 0 : (int)side->bit,
        .group_size = side->group_size,
        .quantizer = sb_quantizer_at(tables->ctx, quantizer),
        .quantizer_params = side_params(side, tables->quantizer_at[quantizer]),
        .observer = sb_observer_at(tables->ctx, observer),
        .observer_params = side_params(side, tables->observer_at[observer]),
        .channel_axis = kind == SB_QUANT_WEIGHT ? -1 : side->layout + 1,
        .qadd = side->qadd,
    };
}

/* Fields that only the other side's table has get defaults too. */
static sb_status side_make(sb_quant_config *cfg, sb_quant_side **out)
{
    sb_arena *arena = &cfg->doc->arena;
    sb_quant_side *side = sb_arena_alloc(arena, 1, cfg->tables.side_size);

    if (!side)
        return SB_NO_MEMORY;
    for (int k = 0; k < 2; k++)
        SB_TRY(sb_params_defaults(arena, cfg->tables.sides[k], side));
    *out = side;
    return SB_OK;
}

static sb_quant_check check_of(const sb_quant_config *cfg, sb_quant_kind kind)
{
    return (sb_quant_check){
        .doc = cfg->doc,
        .tables = &cfg->tables,
        .target = sb_quant_config_target(cfg),
        .mode = cfg->mode,
        .kind = kind,
        .path = kind == SB_QUANT_WEIGHT ? "W" : "A",
    };
}

/* ---- SPECIFIC ----------------------------------------------------------- */

/* The original takes these keys in any case of letters. */
static sb_status upper_key(sb_quant_config *cfg, const sb_yaml *key,
                           sb_yaml *out)
{
    *out = *key;
    if (key->kind != SB_YAML_SCALAR)
        return SB_OK;
    char *text = sb_arena_str(&cfg->doc->arena, key->text);
    if (!text)
        return SB_NO_MEMORY;
    for (char *p = text; *p; p++)
        if (*p >= 'a' && *p <= 'z')
            *p = (char)(*p - 'a' + 'A');
    out->text = text;
    return SB_OK;
}

static sb_status set_one(sb_quant_config *cfg, const sb_quant_check *check,
                         const sb_yaml *key, const sb_yaml *value,
                         sb_quant_side *side)
{
    sb_yaml upper;

    SB_TRY(upper_key(cfg, key, &upper));
    if (upper.kind == SB_YAML_SCALAR && strcmp(upper.text, "SPECIFIC") == 0)
        return sb_yaml_fail(cfg->doc, key, "%s: SPECIFIC inside SPECIFIC",
                            check->path);
    return sb_params_set(cfg->doc, check->path, &upper, value,
                         cfg->tables.sides[check->kind], side);
}

/* `[key, value, ...]` or `{key: value, ...}` over W or A. */
static sb_status read_override(sb_quant_config *cfg,
                               const sb_quant_check *check, const sb_yaml *list,
                               sb_quant_side *side)
{
    char found[80];

    if (list->kind == SB_YAML_MAP) {
        for (size_t i = 0; i < list->n; i++)
            SB_TRY(set_one(cfg, check, list->keys[i], list->items[i], side));
        return SB_OK;
    }
    if (list->kind != SB_YAML_LIST)
        return sb_yaml_fail(
            cfg->doc, list, "%s: found %s, allowed [key, value, ...]",
            check->path, sb_yaml_describe(list, found, sizeof found));
    if (list->n % 2 != 0)
        return sb_yaml_fail(cfg->doc, list,
                            "%s: found a list of %zu, allowed pairs of key and "
                            "value",
                            check->path, list->n);
    for (size_t i = 0; i < list->n; i += 2)
        SB_TRY(set_one(cfg, check, list->items[i], list->items[i + 1], side));
    return SB_OK;
}

static sb_status read_pattern(sb_quant_config *cfg, sb_quant_kind kind,
                              const sb_yaml *pattern, const sb_yaml *value,
                              sb_quant_spec *out)
{
    const sb_quant_config_side *t = &cfg->sides[kind];
    sb_quant_check check = check_of(cfg, kind);
    sb_quant_side *side =
        sb_arena_copy(&cfg->doc->arena, t->side, cfg->tables.side_size);
    char path[160];

    if (!side)
        return SB_NO_MEMORY;
    (void)snprintf(path, sizeof path, "%s.SPECIFIC['%.100s']", check.path,
                   pattern->text);
    check.path = path;
    check.place = pattern;
    SB_TRY(read_override(cfg, &check, value, side));
    SB_TRY(sb_quant_check_side(&check, side));
    sb_quant_side_resolve(&cfg->tables, side, kind, out);
    out->pattern = pattern->text;
    return SB_OK;
}

/* The maps of SPECIFIC: itself, or the elements of a list. */
static const sb_yaml *specific_map(const sb_yaml *specific, size_t i)
{
    if (specific->kind == SB_YAML_LIST)
        return i < specific->n ? specific->items[i] : NULL;
    return i == 0 ? specific : NULL;
}

static sb_status read_specific(sb_quant_config *cfg, sb_quant_kind kind)
{
    sb_quant_config_side *t = &cfg->sides[kind];
    const sb_yaml *specific = t->side->specific, *map;
    size_t n = 0;
    char found[80];

    if (!specific)
        return SB_OK;
    for (size_t i = 0; (map = specific_map(specific, i)) != NULL; i++) {
        if (map->kind != SB_YAML_MAP)
            return sb_yaml_fail(
                cfg->doc, map,
                "%s.SPECIFIC: found %s, allowed a map from pattern to [key, "
                "value, ...]",
                check_of(cfg, kind).path,
                sb_yaml_describe(map, found, sizeof found));
        n += map->n;
    }
    const char **patterns =
        sb_arena_alloc(&cfg->doc->arena, n, sizeof *patterns);
    t->specs = sb_arena_alloc(&cfg->doc->arena, n, sizeof *t->specs);
    t->places = sb_arena_alloc(&cfg->doc->arena, n, sizeof *t->places);
    t->uses = sb_arena_alloc(&cfg->doc->arena, n, 1);
    if (!patterns || !t->specs || !t->places || !t->uses)
        return SB_NO_MEMORY;
    t->patterns = (sb_param_strings){patterns, n};
    n = 0;
    for (size_t i = 0; (map = specific_map(specific, i)) != NULL; i++)
        for (size_t k = 0; k < map->n; k++) {
            patterns[n] = map->keys[k]->text;
            t->places[n] = map->keys[k];
            SB_TRY(read_pattern(cfg, kind, map->keys[k], map->items[k],
                                &t->specs[n]));
            n++;
        }
    return SB_OK;
}

/* ---- the file ----------------------------------------------------------- */

static sb_status read_side(sb_quant_config *cfg, sb_quant_kind kind,
                           const sb_yaml *node)
{
    sb_quant_config_side *t = &cfg->sides[kind];
    const sb_quant_check check = check_of(cfg, kind);

    SB_TRY(sb_params_read(cfg->doc, node, check.path, cfg->tables.sides[kind],
                          t->side));
    SB_TRY(sb_quant_check_side(&check, t->side));
    sb_quant_side_resolve(&cfg->tables, t->side, kind, &t->spec);
    return read_specific(cfg, kind);
}

/* `A: none`, `A: dynamic`; false for anything else. */
static bool read_mode(const sb_yaml *a, sb_quant_mode *out)
{
    if (a->kind != SB_YAML_SCALAR)
        return false;
    if (strcmp(a->text, "none") == 0 || strcmp(a->text, "None") == 0)
        *out = SB_QUANT_WEIGHTS_ONLY;
    else if (strcmp(a->text, "dynamic") == 0)
        *out = SB_QUANT_DYNAMIC;
    else
        return false;
    return true;
}

static sb_status read_activations(sb_quant_config *cfg)
{
    const sb_yaml *a = cfg->file.a;
    sb_quant_spec *spec = &cfg->sides[SB_QUANT_ACTIVATION].spec;
    char found[80];

    if (cfg->mode == SB_QUANT_STATIC) {
        if (a->kind == SB_YAML_MAP)
            return read_side(cfg, SB_QUANT_ACTIVATION, a);
        return sb_yaml_fail(cfg->doc, a,
                            "A: found %s, allowed a map, none or dynamic",
                            sb_yaml_describe(a, found, sizeof found));
    }
    sb_quant_side_resolve(&cfg->tables, cfg->sides[SB_QUANT_ACTIVATION].side,
                          SB_QUANT_ACTIVATION, spec);
    spec->disabled = cfg->mode == SB_QUANT_WEIGHTS_ONLY;
    spec->dynamic = cfg->mode == SB_QUANT_DYNAMIC;
    spec->symmetric = false;
    spec->bits = 8;
    return SB_OK;
}

/* Norms are tuned with the weights and scales of calibration as they are. */
static sb_status check_bn_tuning(const sb_quant_config *cfg)
{
    const sb_quant_file *f = &cfg->file;
    const sb_quant_spec *w = &cfg->sides[SB_QUANT_WEIGHT].spec;
    const sb_yaml *at =
        sb_yaml_get(sb_yaml_get(cfg->doc->root, "SCHEDULE"), "BN_TUNING");

    if (!f->bn_tuning || w->disabled)
        return SB_OK;
    if (cfg->mode != SB_QUANT_STATIC)
        return sb_yaml_fail(cfg->doc, at,
                            "SCHEDULE.BN_TUNING: found true, allowed false: "
                            "activations have no calibrated scales");
    if (w->granularity != SB_QUANT_PER_CHANNEL)
        return sb_yaml_fail(cfg->doc, at,
                            "SCHEDULE.BN_TUNING: found true, allowed false: "
                            "W.QSCHEME is %s, and only scales per channel take "
                            "in the factors of batch normalization",
                            sb_quant_scheme_name(w->granularity, w->symmetric));
    if (f->equalization || f->bias_correction ||
        f->layerwise == SB_LAYERWISE_ON)
        return sb_yaml_fail(cfg->doc, at,
                            "SCHEDULE.BN_TUNING: found true, allowed false "
                            "beside %s: it settles means and sizes of "
                            "channels by itself",
                            f->equalization      ? "EQUALIZATION"
                            : f->bias_correction ? "BIAS_CORRECTION"
                                                 : "LAYERWISE");
    return SB_OK;
}

static sb_status read_quant(sb_quant_config *cfg)
{
    const sb_quant_file *f = &cfg->file;

    if (!f->w)
        return sb_yaml_fail(cfg->doc, f->a, "W: missing, beside A");
    if (!f->a)
        return sb_yaml_fail(cfg->doc, f->w,
                            "A: missing, allowed a map, none or dynamic");
    (void)read_mode(f->a, &cfg->mode);
    cfg->has_quant = true;
    const sb_quant_check check = check_of(cfg, SB_QUANT_ACTIVATION);
    SB_TRY(sb_quant_check_mode(&check, f->a));
    SB_TRY(read_side(cfg, SB_QUANT_WEIGHT, f->w));
    SB_TRY(read_activations(cfg));
    return check_bn_tuning(cfg);
}

static sb_status read_file(sb_quant_config *cfg, unsigned need)
{
    sb_yaml_doc *doc = cfg->doc;

    SB_TRY(sb_quant_tables_make(&doc->arena, &cfg->tables));
    for (int k = 0; k < 2; k++) {
        sb_quant_config_side *t = &cfg->sides[k];

        SB_TRY(side_make(cfg, &t->side));
        sb_quant_side_resolve(&cfg->tables, t->side, (sb_quant_kind)k,
                              &t->spec);
        t->spec.disabled = true;
    }
    SB_TRY(sb_params_read(doc, doc->root, "", cfg->tables.file, &cfg->file));
    cfg->has_sparse = sb_yaml_get(doc->root, "SPARSER") != NULL;
    if (cfg->file.w || cfg->file.a)
        SB_TRY(read_quant(cfg));
    if ((need & SB_QUANT_CONFIG_QUANT) && !cfg->has_quant)
        return sb_yaml_fail(doc, NULL,
                            "W and A are missing: nothing says how "
                            "to quantize");
    if ((need & SB_QUANT_CONFIG_SPARSE) && !cfg->has_sparse)
        return sb_yaml_fail(doc, NULL,
                            "SPARSER is missing: nothing says how to prune");
    if (!cfg->has_quant && !cfg->has_sparse)
        return sb_yaml_fail(doc, NULL, "W and A, or SPARSER, are missing");
    return SB_OK;
}

/* Takes the document in any case. */
static sb_status config_create(sb_ctx *ctx, sb_yaml_doc *doc, unsigned need,
                               sb_quant_config **out)
{
    sb_quant_config *cfg = sb_alloc(ctx, 1, sizeof *cfg);

    if (!cfg) {
        sb_yaml_free(doc);
        return SB_NO_MEMORY;
    }
    cfg->ctx = ctx;
    cfg->doc = doc;
    sb_status status = read_file(cfg, need);
    if (status != SB_OK) {
        sb_quant_config_free(cfg);
        return status;
    }
    *out = cfg;
    return SB_OK;
}

sb_status sb_quant_config_load(sb_ctx *ctx, const char *path, unsigned need,
                               sb_quant_config **out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load(ctx, path, &doc));
    return config_create(ctx, doc, need, out);
}

sb_status sb_quant_config_load_memory(sb_ctx *ctx, const char *file,
                                      const char *text, size_t size,
                                      unsigned need, sb_quant_config **out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load_memory(ctx, file, text, size, &doc));
    return config_create(ctx, doc, need, out);
}

sb_status sb_quant_config_default_text(sb_str *out)
{
    const sb_param_def *table;
    sb_arena arena;

    sb_str_add(out, "# How to quantize: every key with its default, or with "
                    "what suits most networks.\n"
                    "# `sparsebit config explain KEY` says more; keys can be "
                    "left out.\n");
    sb_arena_init(&arena, out->ctx);
    sb_status status = sb_quant_config_table(&arena, &table);
    if (status == SB_OK)
        sb_params_sample(table, out);
    sb_arena_free(&arena);
    return status == SB_OK ? sb_str_status(out) : status;
}

void sb_quant_config_free(sb_quant_config *cfg)
{
    if (!cfg)
        return;
    sb_yaml_free(cfg->doc);
    sb_free(cfg->ctx, cfg);
}

bool sb_quant_spec_same_rows(const sb_quant_spec *a, const sb_quant_spec *b)
{
    return a->quantizer == b->quantizer && a->observer == b->observer &&
           sb_params_equal(a->quantizer->params, a->quantizer_params,
                           b->quantizer_params) &&
           sb_params_equal(a->observer->params, a->observer_params,
                           b->observer_params);
}

/* ---- questions ---------------------------------------------------------- */

void sb_quant_config_spec(const sb_quant_config *cfg, sb_quant_kind kind,
                          const sb_node *node, sb_quant_spec *out)
{
    const sb_quant_config_side *t = &cfg->sides[kind];

    *out = t->spec;
    for (size_t i = 0; node && i < t->patterns.n; i++)
        if (sb_quant_node_matches(node, t->patterns.v[i])) {
            *out = t->specs[i];
            return;
        }
}

sb_param_strings sb_quant_config_patterns(const sb_quant_config *cfg,
                                          sb_quant_kind kind)
{
    return cfg->sides[kind].patterns;
}

void sb_quant_config_pattern_spec(const sb_quant_config *cfg,
                                  sb_quant_kind kind, size_t i,
                                  sb_quant_spec *out)
{
    assert(i < cfg->sides[kind].patterns.n);
    *out = cfg->sides[kind].specs[i];
}

sb_param_strings sb_quant_config_skip_patterns(const sb_quant_config *cfg)
{
    return cfg->file.skip;
}

bool sb_quant_config_has_quant(const sb_quant_config *cfg)
{
    return cfg->has_quant;
}

bool sb_quant_config_has_sparse(const sb_quant_config *cfg)
{
    return cfg->has_sparse;
}

sb_sparse_config sb_quant_config_sparse(const sb_quant_config *cfg)
{
    int strategy = cfg->file.strategy;

    return (sb_sparse_config){
        .structured = cfg->file.sparser == 0 || cfg->file.sparser == 2,
        .strategy = strategy < 0 ? NULL : sb_quant_strategy_names[strategy],
        .ratio = cfg->file.ratio,
    };
}

const sb_target_def *sb_quant_config_target(const sb_quant_config *cfg)
{
    return sb_target_find(sb_target_names[cfg->file.backend]);
}

sb_quant_mode sb_quant_config_mode(const sb_quant_config *cfg)
{
    return cfg->mode;
}

sb_quant_schedule sb_quant_config_schedule(const sb_quant_config *cfg)
{
    return (sb_quant_schedule){
        .fuse_bn = cfg->file.fuse_bn,
        .bn_tuning = cfg->file.bn_tuning,
        .disable_unnecessary_quant = cfg->file.disable_unnecessary,
        .bias_correction = cfg->file.bias_correction,
        .equalization = cfg->file.equalization && cfg->mode == SB_QUANT_STATIC,
        .equalization_idle =
            cfg->file.equalization && cfg->mode != SB_QUANT_STATIC,
        .layerwise = cfg->file.layerwise == SB_LAYERWISE_ON ||
                     (cfg->file.layerwise == SB_LAYERWISE_AUTO &&
                      cfg->mode == SB_QUANT_WEIGHTS_ONLY),
        .refine_samples = cfg->file.refine_samples,
        .blockwise = cfg->file.blockwise,
    };
}

void sb_quant_config_set_layerwise(sb_quant_config *cfg, bool on)
{
    cfg->file.layerwise = on ? SB_LAYERWISE_ON : SB_LAYERWISE_OFF;
}

bool sb_quant_config_qadd(const sb_quant_config *cfg)
{
    return cfg->sides[SB_QUANT_ACTIVATION].side->qadd;
}

const char *sb_quant_config_file(const sb_quant_config *cfg)
{
    return cfg->doc->file;
}

const char *sb_quant_scheme_name(sb_quant_granularity granularity,
                                 bool symmetric)
{
    return sb_quant_scheme_names[(int)granularity * 2 + !symmetric];
}
