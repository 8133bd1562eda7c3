/* Reading and checking the table SPARSER. */
#include "prune/prune_config.h"

#include <stdio.h>
#include <string.h>

#include "graph/modules.h"

/* Even indices are the original's spelling. */
static const char *const types[] = {"structed", "structured", "unstructed",
                                    "unstructured", NULL};
static const char *const type_meanings[] = {
    "whole channels are removed, the network gets smaller and faster",
    "the same, spelled right", "single weights become zero",
    "the same, spelled right", NULL};
static const char *const scopes[] = {"layer", "global", NULL};
static const char *const scope_meanings[] = {
    "RATIO of the channels, or weights, of every layer",
    "RATIO of those of the whole network, the lowest scores first", NULL};

static const char *const schedules[] = {"one_shot", "linear", "cubic", NULL};
static const char *const schedule_meanings[] = {
    "all at once", "in equal steps", "much at first, little in the end", NULL};

#define AT(field) offsetof(sb_prune_file, field)

static const sb_param_def sparser_table[] = {
    {.name = "TYPE",
     .type = SB_PARAM_ENUM,
     .offset = AT(type),
     .preset = "structured",
     .names = types,
     .meanings = type_meanings,
     .help = "what is removed"},
    {.name = "STRATEGY",
     .type = SB_PARAM_STRING,
     .offset = AT(strategy),
     .preset = "l1norm",
     .help = "the criterion; `sparsebit list criteria` prints them"},
    {.name = "RATIO",
     .type = SB_PARAM_FLOAT,
     .offset = AT(ratio),
     .preset = "0.0",
     .values = "a number, 0 or more and less than 1",
     .help = "share of the channels, or weights, to remove",
     .sample = "0.3"},
    {.name = "SPECIFIC",
     .type = SB_PARAM_NODE,
     .offset = AT(specific),
     .values = "a map from patterns to ratios",
     .help = "other ratios for the nodes or modules that a pattern matches, "
             "the first that does; 0 leaves them alone"},
    {.name = "SCOPE",
     .type = SB_PARAM_ENUM,
     .offset = AT(scope),
     .preset = "layer",
     .names = scopes,
     .meanings = scope_meanings,
     .help = "what the ratio is a share of"},
    {.name = "ROUND_TO",
     .type = SB_PARAM_INT,
     .offset = AT(round_to),
     .preset = "1",
     .min = 1,
     .max = 1024,
     .help = "a layer keeps a multiple of so many channels"},
    {.name = "ITERATIONS",
     .type = SB_PARAM_INT,
     .offset = AT(iterations),
     .preset = "1",
     .min = 1,
     .max = 100,
     .help = "remove in so many steps, scores computed anew for each"},
    {.name = "SCHEDULE",
     .type = SB_PARAM_ENUM,
     .offset = AT(schedule),
     .preset = "one_shot",
     .names = schedules,
     .meanings = schedule_meanings,
     .help = "how much each of the ITERATIONS takes; in training they are "
             "spread from BEGIN to END"},
    {.name = "BEGIN",
     .type = SB_PARAM_FLOAT,
     .offset = AT(begin),
     .preset = "0",
     .min = 0,
     .max = 100000,
     .help = "in training: the epoch at which pruning begins"},
    {.name = "END",
     .type = SB_PARAM_FLOAT,
     .offset = AT(end),
     .preset = "-1",
     .min = -1,
     .max = 100000,
     .help = "in training: the epoch of the last step; -1: half of them"},
    {.name = "NM",
     .type = SB_PARAM_STRING,
     .offset = AT(nm),
     .values = "two numbers, such as \"2:4\"",
     .help = "unstructured: of M consecutive weights along the input axis at "
             "most N stay, as GPUs want it; instead of RATIO"},
    {.name = "BLOCK",
     .type = SB_PARAM_INTS,
     .offset = AT(block),
     .preset = "[1, 1]",
     .min = 1,
     .max = 256,
     .n_min = 2,
     .n_max = 2,
     .help = "unstructured: weights go in blocks of [outputs, inputs]"},
    {.name = "EXCLUDE",
     .type = SB_PARAM_STRINGS,
     .offset = AT(exclude),
     .help = "patterns of nodes or modules that stay as they are"},
    {.name = "STATISTICS",
     .type = SB_PARAM_BOOL,
     .offset = AT(statistics),
     .preset = "false",
     .help = "also remove channels over which a layer computes statistics "
             "(LayerNormalization, a mean), or sums up products of "
             "activations, which change then"},
    {.name = "REFIT",
     .type = SB_PARAM_BOOL,
     .offset = AT(refit),
     .preset = "true",
     .help = "with data: the weights that read removed channels are fitted "
             "anew by least squares"},
    {0},
};

const sb_param_def sb_prune_table[] = {
    {.name = "SPARSER",
     .type = SB_PARAM_MAP,
     .required = true,
     .fields = sparser_table,
     .help = "what is removed from the network, and how much of it"},
    {0},
};

/* ---- reading --------------------------------------------------------------- */

/* A share that leaves something. */
static sb_status check_ratio(const sb_yaml_doc *doc, const sb_yaml *at,
                             const char *key, double ratio)
{
    if (ratio >= 0 && ratio < 1)
        return SB_OK;
    return sb_yaml_fail(doc, at,
                        "%s: found %g, allowed is 0 or more and less than 1: "
                        "a layer must keep something",
                        key, ratio);
}

static sb_status read_specific(sb_prune_config *cfg)
{
    const sb_yaml *map = cfg->file.specific;
    char found[64];

    if (!map || sb_yaml_is_null(map))
        return SB_OK;
    if (map->kind != SB_YAML_MAP)
        return sb_yaml_fail(
            cfg->doc, map,
            "SPARSER.SPECIFIC: found %s, allowed is a map from patterns to "
            "ratios",
            sb_yaml_describe(map, found, sizeof found));
    cfg->specific =
        sb_arena_alloc(&cfg->doc->arena, map->n, sizeof *cfg->specific);
    if (!cfg->specific)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < map->n; i++) {
        static const char outer[] = "SPARSER";
        char name[96];
        double ratio = 0;

        snprintf(name, sizeof name, "%s.SPECIFIC of '%.60s'", outer,
                 map->keys[i]->text);
        /* A map of its own, whose key is what messages call it. */
        sb_yaml key = *map->keys[i], one = *map;
        key.text = name + sizeof outer;
        one.keys = (const sb_yaml *const[]){&key};
        one.items = &map->items[i];
        one.n = 1;
        const sb_param_def number[] = {
            {.name = key.text,
             .type = SB_PARAM_FLOAT,
             .values = "a number, 0 or more and less than 1",
             .help = "a ratio"},
            {0}};
        SB_TRY(sb_params_read(cfg->doc, &one, outer, number, &ratio));
        SB_TRY(check_ratio(cfg->doc, map->items[i], name, ratio));
        cfg->specific[cfg->n_specific++] =
            (sb_prune_specific){map->keys[i]->text, ratio, map->keys[i]};
    }
    return SB_OK;
}

static sb_status read_nm(sb_prune_config *cfg, const sb_yaml *at)
{
    int n = 0, m = 0, end = 0;

    if (!cfg->file.nm)
        return SB_OK;
    if (sscanf(cfg->file.nm, "%3d:%3d%n", &n, &m, &end) != 2 ||
        cfg->file.nm[end] || n < 1 || m <= n || m > 64)
        return sb_yaml_fail(cfg->doc, at,
                            "SPARSER.NM: found '%.40s', allowed is N:M, with "
                            "N at least 1, less than M, and M at most 64",
                            cfg->file.nm);
    cfg->n_of = n;
    cfg->m_of = m;
    return SB_OK;
}

/* Does a criterion judge what is removed? */
static bool is_for_type(const sb_prune_config *cfg, const sb_criterion_def *row)
{
    return cfg->type == SB_PRUNE_STRUCTURED ? row->score != NULL
                                            : row->weigh != NULL;
}

/* The criteria for what is removed. */
static void list_criteria(const sb_prune_config *cfg, sb_str *out)
{
    const sb_criterion_def *row;

    for (size_t i = 0; (row = sb_criterion_at(cfg->ctx, i)); i++)
        if (is_for_type(cfg, row))
            sb_str_addf(out, "%s%s", out->len ? ", " : "", row->name);
}

static sb_status fail_criterion(const sb_prune_config *cfg, const sb_yaml *at)
{
    const char *name = cfg->file.strategy, *names[64] = {NULL};
    const char *near = NULL;
    const sb_criterion_def *row;
    sb_str allowed;

    for (size_t i = 0; (row = sb_criterion_at(cfg->ctx, i)) && i < 63; i++)
        names[i] = row->name;
    if (!cfg->criterion)
        near = sb_nearest(name, names);
    sb_str_init(&allowed, cfg->ctx);
    list_criteria(cfg, &allowed);
    sb_status status = sb_yaml_fail(
        cfg->doc, at, "SPARSER.STRATEGY: '%.60s' is %s%s%s%s%s; allowed %s",
        name, cfg->criterion ? "not for TYPE " : "no criterion",
        !cfg->criterion                    ? ""
        : cfg->type == SB_PRUNE_STRUCTURED ? "structured"
                                           : "unstructured",
        near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
        sb_str_text(&allowed));
    sb_str_free(&allowed);
    return status;
}

static sb_status read_criterion(sb_prune_config *cfg, const sb_yaml *at)
{
    cfg->criterion = sb_criterion_find(cfg->ctx, cfg->file.strategy);
    return cfg->criterion && is_for_type(cfg, cfg->criterion)
               ? SB_OK
               : fail_criterion(cfg, at);
}

/* Settings that would have no effect beside others are no slip of the pen that
 * should stay unnoticed. */
static sb_status check_unused(const sb_prune_config *cfg, const sb_yaml *map)
{
    const sb_prune_file *f = &cfg->file;
    bool structured = cfg->type == SB_PRUNE_STRUCTURED, nm = f->nm != NULL;
    bool block = cfg->block_rows * cfg->block_cols > 1, specific = false;
    for (size_t i = 0; i < cfg->n_specific; i++)
        specific |= cfg->specific[i].ratio > 0;
    const struct {
        bool wrong;
        const char *key, *why;
    } rules[] = {
        {structured && nm, "NM", "is for TYPE unstructured"},
        {structured && block, "BLOCK", "is for TYPE unstructured"},
        {!structured && f->round_to > 1, "ROUND_TO", "is for TYPE structured"},
        {!structured && f->statistics, "STATISTICS", "is for TYPE structured"},
        {nm && f->ratio > 0, "RATIO", "NM says already how much goes"},
        {nm && specific, "SPECIFIC",
         "NM says already how much goes; only a ratio of 0, which leaves "
         "layers alone, goes with it"},
        {nm && block, "BLOCK", "does not go with NM"},
        {nm && cfg->scope == SB_SCOPE_GLOBAL, "SCOPE",
         "'global' does not go with NM, which takes the same of every layer"},
    };

    for (size_t i = 0; i < SB_COUNT(rules); i++)
        if (rules[i].wrong)
            return sb_yaml_fail(cfg->doc, sb_yaml_get(map, rules[i].key),
                                "SPARSER.%s: %s", rules[i].key, rules[i].why);
    return SB_OK;
}

static sb_status check_schedule(const sb_prune_config *cfg, const sb_yaml *map)
{
    const sb_prune_file *f = &cfg->file;

    if (f->schedule != SB_SCHEDULE_ONE_SHOT && f->iterations < 2)
        return sb_yaml_fail(cfg->doc, sb_yaml_get(map, "SCHEDULE"),
                            "SPARSER.SCHEDULE: '%s' wants ITERATIONS of 2 or "
                            "more, found %lld",
                            schedules[f->schedule], (long long)f->iterations);
    if (f->end >= 0 && f->end < f->begin)
        return sb_yaml_fail(cfg->doc, sb_yaml_get(map, "END"),
                            "SPARSER.END: %g is before BEGIN, %g", f->end,
                            f->begin);
    return SB_OK;
}

/* A criterion that changes weights takes a layer as a whole, once. */
static sb_status check_thin(const sb_prune_config *cfg, const sb_yaml *at)
{
    const char *other = cfg->scope == SB_SCOPE_GLOBAL           ? "SCOPE global"
                        : cfg->block_rows * cfg->block_cols > 1 ? "BLOCK"
                        : cfg->file.iterations > 1              ? "ITERATIONS"
                                                                : NULL;

    if (!cfg->criterion->thin || !other)
        return SB_OK;
    return sb_yaml_fail(cfg->doc, at,
                        "SPARSER.STRATEGY: '%s' does not go with %s: it takes "
                        "each layer by itself, once",
                        cfg->criterion->name, other);
}

static sb_status read_all(sb_prune_config *cfg)
{
    const sb_yaml *map = sb_yaml_get(cfg->doc->root, "SPARSER");

    SB_TRY(sb_params_read(cfg->doc, cfg->doc->root, "", sb_prune_table,
                          &cfg->file));
    cfg->type = (sb_prune_type)(cfg->file.type / 2);
    cfg->scope = (sb_prune_scope)cfg->file.scope;
    cfg->block_rows = cfg->file.block.v[0];
    cfg->block_cols = cfg->file.block.v[1];
    SB_TRY(check_ratio(cfg->doc, sb_yaml_get(map, "RATIO"), "SPARSER.RATIO",
                       cfg->file.ratio));
    SB_TRY(read_specific(cfg));
    SB_TRY(read_nm(cfg, sb_yaml_get(map, "NM")));
    SB_TRY(check_unused(cfg, map));
    SB_TRY(check_schedule(cfg, map));
    SB_TRY(read_criterion(cfg, sb_yaml_get(map, "STRATEGY")));
    return check_thin(cfg, sb_yaml_get(map, "STRATEGY"));
}

static sb_status take_doc(sb_ctx *ctx, sb_yaml_doc *doc, sb_prune_config **out)
{
    sb_prune_config *cfg = sb_alloc(ctx, 1, sizeof *cfg);

    if (!cfg) {
        sb_yaml_free(doc);
        return SB_NO_MEMORY;
    }
    *cfg = (sb_prune_config){.ctx = ctx, .doc = doc};
    sb_status status = read_all(cfg);
    if (status == SB_OK)
        *out = cfg;
    else
        sb_prune_config_free(cfg);
    return status;
}

sb_status sb_prune_config_load(sb_ctx *ctx, const char *path,
                               sb_prune_config **out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load(ctx, path, &doc));
    return take_doc(ctx, doc, out);
}

sb_status sb_prune_config_load_memory(sb_ctx *ctx, const char *name,
                                      const void *data, size_t size,
                                      sb_prune_config **out)
{
    sb_yaml_doc *doc = NULL;

    SB_TRY(sb_yaml_load_memory(ctx, name, data, size, &doc));
    return take_doc(ctx, doc, out);
}

void sb_prune_config_free(sb_prune_config *cfg)
{
    if (!cfg)
        return;
    sb_yaml_free(cfg->doc);
    sb_free(cfg->ctx, cfg);
}

sb_status sb_prune_config_exclude(sb_prune_config *cfg,
                                  const char *const *patterns, size_t n)
{
    const char **v = sb_arena_alloc(&cfg->doc->arena, n, sizeof *v);

    if (!v)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        v[i] = sb_arena_str(&cfg->doc->arena, patterns[i]);
        if (!v[i])
            return SB_NO_MEMORY;
    }
    cfg->excluded = (sb_param_strings){v, n};
    return SB_OK;
}

/* ---- patterns -------------------------------------------------------------- */

/* A pattern means a node, or the module that it is in. */
static bool pattern_means(const sb_node *node, const char *pattern)
{
    char path[256];

    if (sb_node_matches(node, pattern))
        return true;
    size_t n = strlen(node->module);
    if (n >= sizeof path)
        return false;
    memcpy(path, node->module, n + 1);
    for (char *dot; (dot = strrchr(path, '.')) != NULL;) {
        *dot = '\0';
        const sb_node outer = {.module = path, .name = ""};
        if (sb_node_matches(&outer, pattern))
            return true;
    }
    return false;
}

static bool any_means(const sb_node *node, sb_param_strings patterns)
{
    for (size_t i = 0; i < patterns.n; i++)
        if (pattern_means(node, patterns.v[i]))
            return true;
    return false;
}

enum { NAME_MOST = 256 };

/* Keeps the name if it is more like the word than the one before. */
static void keep_nearer(const char *word, const char *name, char *near)
{
    const char *pair[] = {name, near[0] ? near : NULL, NULL};

    if (name[0] && strlen(name) < NAME_MOST && sb_nearest(word, pair) == name)
        memcpy(near, name, strlen(name) + 1);
}

/* Does it match a node?  If not, the name of a node or module most like its
 * part before any wildcard. */
static bool pattern_used(const sb_graph *g, const char *pattern, char *near)
{
    char word[NAME_MOST], path[NAME_MOST];
    size_t plain = strcspn(pattern, "*?[");

    near[0] = '\0';
    snprintf(word, sizeof word, "%.*s", plain ? (int)plain : -1, pattern);
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *n = sb_graph_node(g, (sb_node_id)i);
        if (n->dead)
            continue;
        if (pattern_means(n, pattern))
            return true;
        keep_nearer(word, n->name, near);
        snprintf(path, sizeof path, "%s", n->module);
        for (char *dot = path; dot;) { /* and outer modules */
            keep_nearer(word, path, near);
            dot = strrchr(path, '.');
            if (dot)
                *dot = '\0';
        }
    }
    return false;
}

static sb_status check_pattern(const sb_prune_config *cfg, const sb_graph *g,
                               const sb_yaml *at, const char *key,
                               const char *pattern)
{
    char near[NAME_MOST], text[SB_ERROR_MAX];

    if (pattern_used(g, pattern, near))
        return SB_OK;
    snprintf(text, sizeof text,
             "%s: '%.100s' matches no node and no module%s%s%s; `sparsebit "
             "graph` prints their names",
             key, pattern, near[0] ? " (did you mean '" : "", near,
             near[0] ? "'?)" : "");
    return at ? sb_yaml_fail(cfg->doc, at, "%s", text)
              : sb_fail(cfg->ctx, SB_BAD_ARG, "%s", text);
}

sb_status sb_prune_config_check(const sb_prune_config *cfg,
                                const sb_graph *graph)
{
    const sb_yaml *map = sb_yaml_get(cfg->doc->root, "SPARSER");

    for (size_t i = 0; i < cfg->n_specific; i++)
        SB_TRY(check_pattern(cfg, graph, cfg->specific[i].key,
                             "SPARSER.SPECIFIC", cfg->specific[i].pattern));
    for (size_t i = 0; i < cfg->file.exclude.n; i++)
        SB_TRY(check_pattern(cfg, graph, sb_yaml_get(map, "EXCLUDE"),
                             "SPARSER.EXCLUDE", cfg->file.exclude.v[i]));
    for (size_t i = 0; i < cfg->excluded.n; i++)
        SB_TRY(check_pattern(cfg, graph, NULL, "exclude", cfg->excluded.v[i]));
    return SB_OK;
}

double sb_prune_config_share(const sb_prune_config *cfg, double x)
{
    if (!(x < 1))
        return 1;
    return cfg->file.schedule == SB_SCHEDULE_CUBIC
               ? 1 - (1 - x) * (1 - x) * (1 - x)
               : x;
}

int sb_prune_args_n_of(const sb_prune_args *args)
{
    const sb_prune_config *cfg = args->cfg;

    return cfg->m_of - (int)((cfg->m_of - cfg->n_of) * args->share + 1e-9);
}

double sb_prune_config_ratio(const sb_prune_config *cfg, const sb_node *node,
                             bool *stated)
{
    *stated = true;
    if (any_means(node, cfg->file.exclude) || any_means(node, cfg->excluded))
        return 0;
    for (size_t i = 0; i < cfg->n_specific; i++)
        if (pattern_means(node, cfg->specific[i].pattern))
            return cfg->specific[i].ratio;
    *stated = false;
    return cfg->file.ratio;
}

/* ---- telling --------------------------------------------------------------- */

/* One more line of a list. */
static sb_status add_line(sb_str *list, sb_str *line)
{
    sb_status status = sb_str_status(line);

    sb_str_add(list, list->len ? ", " : "[");
    sb_str_add_json(list, sb_str_text(line));
    sb_str_free(line);
    return status;
}

sb_status sb_prune_config_describe(const sb_prune_config *cfg, sb_str *out)
{
    sb_prune_file file = cfg->file;
    sb_str line;

    file.type |= 1; /* of the two spellings the right one */
    for (const sb_param_def *def = sparser_table; def->name; def++) {
        const sb_param_def one[] = {*def, {0}};

        if (def->type == SB_PARAM_NODE) /* SPECIFIC, below */
            continue;
        sb_str_init(&line, cfg->ctx);
        sb_str_addf(&line, "%s:", def->name);
        sb_params_words(one, &file, &line);
        SB_TRY(add_line(out, &line));
    }
    for (size_t i = 0; i < cfg->n_specific; i++) {
        sb_str_init(&line, cfg->ctx);
        sb_str_addf(&line, "SPECIFIC: %s: %.6g", cfg->specific[i].pattern,
                    cfg->specific[i].ratio);
        SB_TRY(add_line(out, &line));
    }
    sb_str_add(out, "]");
    return sb_str_status(out);
}
