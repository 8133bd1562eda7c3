/* The pass manager: the table of passes, the pipelines, and the loop.
 *
 * A round runs every pass of the list once on the graph and on all of its
 * sub-graphs.  Passes make work for each other (a folded constant shows that a
 * Reshape does nothing), so rounds repeat until one changes nothing.  Shapes
 * are inferred anew after each pass that changed something, so every pass may
 * trust the types it sees.  While passes run, dimensions that are not known
 * have nameless symbols, so that "the same as over there" can be seen even
 * where nothing else is known. */
#include <assert.h>
#include <string.h>

#include "base/str.h"
#include "graph/text.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { MAX_ROUNDS = 16, MAX_PASSES = 64, MAX_NAME = 64 };

#define SB_PASS(id) extern const sb_pass_def sb_pass_##id;
#include "passes/passes.def"
#undef SB_PASS

static const sb_pass_def *const table[] = {
#define SB_PASS(id) &sb_pass_##id,
#include "passes/passes.def"
#undef SB_PASS
};

/* Cheap and enabling passes first; what is recognized has by then lost its
 * casts and identities, and equal parts are one. */
static const char *const simplify_passes[] = {
    "remove_identity",
    "fold_if",
    "fold_shapes",
    "fold_constants",
    "remove_expand",
    "split_to_slice",
    "merge_reshape",
    "merge_transpose",
    "cse",
    "recognize_layernorm",
    "recognize_rmsnorm",
    "recognize_gelu",
    "recognize_silu",
    "recognize_mish",
    "recognize_hardsigmoid",
    "recognize_hardswish",
    "recognize_softmax",
    "recognize_clip",
    "recognize_global_pool",
    "fold_pad",
    "remove_dead",
    "flush_subnormals",
    NULL,
};

/* What makes a graph faster to run but unreadable for other programs.  The
 * executor's threads take subnormals for zero in any case. */
static const char *const lower_passes[] = {
    "simplify",      "-flush_subnormals", "focus_to_conv",    "chain_pools",
    "fuse_bn",       "merge_convs",       "fuse_attention",   "pad_pointwise",
    "fuse_conv",     "fuse_linear",       "fuse_groupnorm",   "fuse_shuffle",
    "channels_last", "remove_dead",       "fuse_elementwise", NULL,
};

/* The same for a graph with gradients, after those were added.  Weights that
 * are learned are no constants, so that only frozen ones are folded. */
static const char *const learn_passes[] = {
    "simplify",         "-flush_subnormals",
    "fuse_bn",          "fuse_conv",
    "fuse_linear",      "fuse_rounded",
    "channels_last",    "remove_dead",
    "fuse_elementwise", NULL,
};

static const char *const no_passes[] = {NULL};

static const sb_pipeline pipelines[] = {
    {"learn", "what the executor runs to learn: gradients included",
     learn_passes},
    {"lower", "what the executor runs: simplified and fused", lower_passes},
    {"none", "leave the graph as it is", no_passes},
    {"simplify", "fewer nodes, same function", simplify_passes},
};

const sb_pass_def *const *sb_pass_all(size_t *n)
{
    *n = SB_COUNT(table);
    return table;
}

const sb_pass_def *sb_pass_find(const sb_ctx *ctx, const char *name)
{
    const sb_pass_def *row;

    for (size_t i = 0; i < SB_COUNT(table); i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    for (size_t i = 0; ctx && (row = sb_ctx_row(ctx, SB_ROW_PASS, i)); i++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}

const sb_pipeline *sb_pipeline_find(const char *name)
{
    for (size_t i = 0; i < SB_COUNT(pipelines); i++)
        if (strcmp(pipelines[i].name, name) == 0)
            return &pipelines[i];
    return NULL;
}

/* ---- the list of passes to run ------------------------------------------ */

typedef struct pass_list {
    const sb_pass_def *pass[MAX_PASSES];
    size_t n;
} pass_list;

static sb_status list_add_pass(sb_ctx *ctx, pass_list *list,
                               const sb_pass_def *pass)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->pass[i] == pass)
            return SB_OK;
    if (list->n == MAX_PASSES)
        return sb_fail(ctx, SB_BAD_ARG, "more than %d passes", MAX_PASSES);
    list->pass[list->n++] = pass;
    return SB_OK;
}

static void list_remove_pass(pass_list *list, const sb_pass_def *pass)
{
    size_t n = 0;

    for (size_t i = 0; i < list->n; i++)
        if (list->pass[i] != pass)
            list->pass[n++] = list->pass[i];
    list->n = n;
}

static sb_status list_add(sb_ctx *ctx, pass_list *list, const char *name)
{
    bool out = name[0] == '-';
    const sb_pipeline *pipeline = sb_pipeline_find(name);
    const sb_pass_def *pass = sb_pass_find(ctx, name + out);

    if (pipeline) {
        for (const char *const *p = pipeline->passes; *p; p++)
            SB_TRY(list_add(ctx, list, *p));
        return SB_OK;
    }
    if (!pass)
        return sb_fail(ctx, SB_BAD_ARG,
                       "there is no pass or pipeline '%s'; see `sparsebit list "
                       "passes`",
                       name);
    if (out) {
        list_remove_pass(list, pass);
        return SB_OK;
    }
    return list_add_pass(ctx, list, pass);
}

/* Names separated by commas; spaces around them do not count. */
static sb_status list_parse(sb_ctx *ctx, pass_list *list, const char *spec)
{
    for (const char *p = spec; *p;) {
        char name[MAX_NAME];
        size_t n = strcspn(p, ",");
        const char *begin = p, *end = p + n;
        p = *end ? end + 1 : end;
        while (begin < end && *begin == ' ')
            begin++;
        while (end > begin && end[-1] == ' ')
            end--;
        if (begin == end)
            continue;
        n = (size_t)(end - begin);
        if (n >= sizeof name)
            return sb_fail(ctx, SB_BAD_ARG,
                           "there is no pass or pipeline '%.*s'", (int)n,
                           begin);
        memcpy(name, begin, n);
        name[n] = '\0';
        SB_TRY(list_add(ctx, list, name));
    }
    return SB_OK;
}

/* ---- unknown dimensions ------------------------------------------------- */

typedef sb_dim (*dim_fn)(sb_dim d, uint32_t *count);

static sb_dim give_symbol(sb_dim d, uint32_t *count)
{
    if (d != SB_DIM_UNKNOWN || *count == SB_SYMBOL_NAMELESS - 1)
        return d;
    return sb_dim_symbol((uint32_t)SB_SYMBOL_NAMELESS + (*count)++);
}

static sb_dim take_symbol(sb_dim d, uint32_t *count)
{
    (void)count;
    return sb_dim_symbol_index(d) >= SB_SYMBOL_NAMELESS ? SB_DIM_UNKNOWN : d;
}

static void change_dims(sb_graph *g, dim_fn change, uint32_t *count)
{
    sb_graph *body;

    for (size_t i = 0; i < g->n_values; i++) {
        sb_shape *s = &sb_graph_value(g, (sb_value_id)i)->type.shape;
        for (int k = 0; k < s->rank; k++)
            s->dim[k] = change(s->dim[k], count);
    }
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        if (node->dead)
            continue;
        for (size_t k = 0; (body = sb_node_body(node, k)) != NULL; k++)
            change_dims(body, change, count);
    }
}

/* Infers; if that leaves unknown dimensions, names them and infers what
 * follows from the names. */
static sb_status pass_manager_infer(sb_graph *g, uint32_t *count)
{
    uint32_t before = *count;

    SB_TRY(sb_graph_infer(g));
    change_dims(g, give_symbol, count);
    return *count == before ? SB_OK : sb_graph_infer(g);
}

/* ---- running ------------------------------------------------------------ */

/* The graph, then the bodies of its nodes, from the outside in. */
static sb_status run_everywhere(sb_graph *g, const sb_pass_def *pass,
                                size_t *changes)
{
    sb_graph *body;

    SB_TRY(sb_ctx_poll(g->ctx));
    SB_TRY(pass->run ? pass->run(g, changes)
                     : pass->run_added(pass, g, changes));
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        if (node->dead)
            continue;
        for (size_t k = 0; (body = sb_node_body(node, k)) != NULL; k++)
            SB_TRY(run_everywhere(body, pass, changes));
    }
    return SB_OK;
}

/* What a run carries along. */
typedef struct pass_run {
    sb_graph *g;
    const char *dump_after; /* or NULL */
    uint32_t n_symbols;     /* nameless ones given out */
} pass_run;

static sb_status run_pass(pass_run *run, const sb_pass_def *pass,
                          sb_pass_result *result)
{
    sb_graph *g = run->g;
    double start = sb_seconds_now();
    size_t changes = 0;
    sb_status status = run_everywhere(g, pass, &changes);

    if (status == SB_OK && changes > 0) {
#ifndef NDEBUG
        status = sb_graph_verify(g);
#endif
        if (status == SB_OK)
            status = pass_manager_infer(g, &run->n_symbols);
    }
    if (status != SB_OK)
        return sb_note(g->ctx, status, "while running the pass '%s'",
                       pass->name);
    result->changes += changes;
    result->seconds += sb_seconds_now() - start;
    bool wanted = run->dump_after && strcmp(run->dump_after, pass->name) == 0;
    return changes > 0 && wanted ? sb_graph_log(g) : SB_OK;
}

static sb_status run_list(pass_run *run, const pass_list *list,
                          sb_pass_result *results)
{
    SB_TRY(pass_manager_infer(run->g, &run->n_symbols));
    for (int round = 0; round < MAX_ROUNDS; round++) {
        bool changed = false;
        for (size_t i = 0; i < list->n; i++) {
            size_t before = results[i].changes;

            SB_TRY(sb_progress(run->g->ctx, "passes", i, list->n));
            if ((round > 0 && list->pass[i]->once) || list->pass[i]->last)
                continue;
            SB_TRY(run_pass(run, list->pass[i], &results[i]));
            changed = changed || results[i].changes != before;
        }
        if (!changed)
            break;
    }
    for (size_t i = 0; i < list->n; i++)
        if (list->pass[i]->last)
            SB_TRY(run_pass(run, list->pass[i], &results[i]));
    return SB_OK;
}

sb_status sb_passes_run(sb_graph *graph, const char *spec,
                        const char *dump_after, sb_pass_result **results,
                        size_t *n_results)
{
    sb_ctx *ctx = graph->ctx;
    pass_list list = {.n = 0};

    SB_TRY(list_parse(ctx, &list, spec));
    if (dump_after && !sb_pass_find(ctx, dump_after))
        return sb_fail(ctx, SB_BAD_ARG, "there is no pass '%s'", dump_after);
    sb_pass_result *rows = sb_alloc(ctx, list.n, sizeof *rows);
    if (!rows)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < list.n; i++)
        rows[i].name = list.pass[i]->name;
    pass_run run = {.g = graph, .dump_after = dump_after};
    sb_status status = list.n ? run_list(&run, &list, rows) : SB_OK;
    change_dims(graph, take_symbol, &run.n_symbols);
    if (status != SB_OK || !results) {
        sb_free(ctx, rows);
        return status;
    }
    *results = rows;
    *n_results = list.n;
    return SB_OK;
}
