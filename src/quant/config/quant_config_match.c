/* Which nodes a pattern means, by the names that ONNX files keep and by those
 * that PyTorch's tracer gives, which are in the configs that people have. */
#include <string.h>

#include "base/glob.h"
#include "graph/modules.h"
#include "ops/op_registry.h"
#include "quant/config/quant_config_file.h"

enum { NAME_MOST = 512 };

/* ---- names --------------------------------------------------------------- */

/* As torch.fx names modules: `_` for `.`, and between a small and a capital
 * letter, all of it in small letters. */
static void fx_name(const char *path, char *out)
{
    size_t n = 0;

    for (char before = '\0'; *path && n < NAME_MOST - 2; before = *path++) {
        bool capital = *path >= 'A' && *path <= 'Z';

        if (capital && before >= 'a' && before <= 'z')
            out[n++] = '_';
        out[n++] = *path == '.' ? '_'
                   : capital    ? (char)(*path - 'A' + 'a')
                                : *path;
    }
    out[n] = '\0';
}

/* As PyTorch names the function: `softmax`, `matmul`, `layer_norm`.  Some are
 * modules there: a first layer that is called `conv` must not stand for all
 * convolutions. */
static void function_name(const char *op, char *out)
{
    static const char *const modules[] = {"Conv", "ConvTranspose", "Gemm"};
    const char *norm = strstr(op, "Normalization");
    size_t n = 0;

    for (size_t i = 0; i < SB_COUNT(modules); i++)
        if (strcmp(op, modules[i]) == 0)
            op = "";
    if (norm) {
        fx_name(op, out);
        out[strlen(out) - strlen("alization")] = '\0';
        return;
    }
    for (; *op && n < NAME_MOST - 1; op++)
        out[n++] = *op >= 'A' && *op <= 'Z' ? (char)(*op - 'A' + 'a') : *op;
    out[n] = '\0';
}

bool sb_quant_node_matches(const sb_node *node, const char *pattern)
{
    char name[NAME_MOST];

    if (sb_node_matches(node, pattern))
        return true;
    if (node->module[0]) {
        fx_name(node->module, name);
        if (sb_glob_match(pattern, name))
            return true;
    }
    function_name(node->op, name);
    return name[0] && sb_glob_match(pattern, name);
}

/* A pattern that means a module means all that is inside. */
static bool config_match_inside(const char *module, const char *pattern)
{
    char path[NAME_MOST], name[NAME_MOST];
    size_t n = 0;

    for (;; n++) {
        if (module[n] != '.' && module[n] != '\0') {
            if (n == NAME_MOST - 1)
                return false;
            path[n] = module[n];
            continue;
        }
        path[n] = '\0';
        fx_name(path, name);
        if (sb_glob_match(pattern, path) || sb_glob_match(pattern, name))
            return true;
        if (!module[n])
            return false;
        path[n] = '.';
    }
}

static bool pattern_skips(const sb_node *node, const char *pattern)
{
    return sb_node_matches(node, pattern) ||
           (node->module[0] && config_match_inside(node->module, pattern));
}

static bool config_match_any(const sb_node *node, sb_param_strings patterns)
{
    for (size_t i = 0; i < patterns.n; i++)
        if (pattern_skips(node, patterns.v[i]))
            return true;
    return false;
}

bool sb_quant_config_skips(const sb_quant_config *cfg, const sb_node *node)
{
    return config_match_any(node, cfg->file.skip) ||
           config_match_any(node, cfg->excluded);
}

static bool config_match_specific(const sb_node *node,
                                  sb_param_strings patterns)
{
    for (size_t i = 0; i < patterns.n; i++)
        if (sb_quant_node_matches(node, patterns.v[i]))
            return true;
    return false;
}

bool sb_quant_config_means(const sb_quant_config *cfg, const sb_node *node)
{
    return sb_quant_config_skips(cfg, node) ||
           config_match_specific(node, cfg->sides[SB_QUANT_WEIGHT].patterns) ||
           config_match_specific(node,
                                 cfg->sides[SB_QUANT_ACTIVATION].patterns);
}

static bool config_match_name(const sb_node *node, sb_param_strings patterns)
{
    for (size_t i = 0; i < patterns.n; i++)
        if (sb_node_matches(node, patterns.v[i]))
            return true;
    return false;
}

bool sb_quant_config_names(const sb_quant_config *cfg, const char *name)
{
    const sb_node node = {.name = name, .module = ""};

    return config_match_name(&node, cfg->file.skip) ||
           config_match_name(&node, cfg->excluded) ||
           config_match_name(&node, cfg->sides[SB_QUANT_WEIGHT].patterns) ||
           config_match_name(&node, cfg->sides[SB_QUANT_ACTIVATION].patterns);
}

sb_status sb_quant_config_exclude(sb_quant_config *cfg,
                                  const char *const *patterns, size_t n)
{
    sb_arena *arena = &cfg->doc->arena;

    if (n > 0 && !patterns)
        return sb_fail(cfg->ctx, SB_BAD_ARG, "exclude: %zu patterns at NULL",
                       n);
    const char **v = sb_arena_alloc(arena, n, sizeof *v);
    if (!v)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        if (!patterns[i] || !*patterns[i])
            return sb_fail(cfg->ctx, SB_BAD_ARG,
                           "exclude: pattern %zu is empty", i);
        v[i] = sb_arena_copy(arena, patterns[i], strlen(patterns[i]) + 1);
        if (!v[i])
            return SB_NO_MEMORY;
    }
    cfg->excluded = (sb_param_strings){v, n};
    return SB_OK;
}

/* ---- what has no effect -------------------------------------------------- */

enum { UNUSED, SHADOWED, USED };

/* Notes for each pattern whether it means some node, and whether it is the
 * first to do so. */
static void note_uses(const sb_quant_config_side *side, const sb_graph *g)
{
    for (size_t n = 0; n < g->n_nodes; n++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)n);
        unsigned char use = USED;

        for (size_t i = 0; !node->dead && i < side->patterns.n; i++) {
            if (!sb_quant_node_matches(node, side->patterns.v[i]))
                continue;
            if (side->uses[i] < use)
                side->uses[i] = use;
            use = SHADOWED;
        }
    }
}

static void warn_side(const sb_quant_config *cfg, sb_quant_kind kind,
                      const sb_graph *before, const sb_graph *after)
{
    const sb_quant_config_side *side = &cfg->sides[kind];

    if (side->patterns.n == 0)
        return;
    memset(side->uses, UNUSED, side->patterns.n);
    note_uses(side, before);
    note_uses(side, after);
    for (size_t i = 0; i < side->patterns.n; i++)
        if (side->uses[i] != USED)
            sb_warn(cfg->ctx, "%s:%d: %s.SPECIFIC['%.100s']: %s",
                    cfg->doc->file, side->places[i]->line,
                    kind == SB_QUANT_WEIGHT ? "W" : "A", side->patterns.v[i],
                    side->uses[i] == UNUSED
                        ? "matches no node"
                        : "has no effect, patterns before it take its nodes");
}

static bool skips_any(const sb_graph *g, const char *pattern)
{
    for (size_t n = 0; n < g->n_nodes; n++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)n);

        if (!node->dead && pattern_skips(node, pattern))
            return true;
    }
    return false;
}

sb_status sb_quant_config_check_excluded(const sb_quant_config *cfg,
                                         const sb_graph *before,
                                         const sb_graph *after)
{
    for (size_t i = 0; i < cfg->excluded.n; i++)
        if (!skips_any(before, cfg->excluded.v[i]) &&
            !skips_any(after, cfg->excluded.v[i]))
            return sb_fail(cfg->ctx, SB_BAD_ARG,
                           "exclude '%.100s': matches no node and no module; "
                           "`sparsebit graph` prints their names",
                           cfg->excluded.v[i]);
    return SB_OK;
}

void sb_quant_config_warn_unused(const sb_quant_config *cfg,
                                 const sb_graph *before, const sb_graph *after)
{
    sb_param_strings skip = cfg->file.skip;

    if (!sb_log_wanted(cfg->ctx))
        return;
    warn_side(cfg, SB_QUANT_WEIGHT, before, after);
    warn_side(cfg, SB_QUANT_ACTIVATION, before, after);
    for (size_t i = 0; i < skip.n; i++)
        if (!skips_any(before, skip.v[i]) && !skips_any(after, skip.v[i]))
            sb_warn(cfg->ctx,
                    "%s: SKIP_TRACE_MODULES '%.100s': matches no "
                    "module",
                    cfg->doc->file, skip.v[i]);
}
