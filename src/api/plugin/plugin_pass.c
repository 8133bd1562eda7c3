/* Passes of plug-ins, and changes to a graph by the names of its values. */
#include <string.h>

#include "api/model.h"
#include "api/plugin/plugin.h"
#include "base/options.h"
#include "graph/text.h"
#include "passes/pass.h"

typedef struct added_pass {
    sb_pass_def def; /* def.added is the plug-in */
    sb_pass_plugin plugin;
} added_pass;

/* The graph as a model, for the time of the call. */
static sb_status pass_run_added(const sb_pass_def *def, sb_graph *g,
                                size_t *changes)
{
    const sb_pass_plugin *p = def->added;
    sb_model model = {.ctx = g->ctx, .graph = g};

    if (g->parent)
        return SB_OK;
    for (size_t i = 0; i < SB_QUESTIONS; i++)
        sb_arena_init(&model.answers[i], g->ctx);
    sb_status status = sb_model_io_fill(&model.io, g);
    if (status == SB_OK)
        status = p->run(p->user, &model, changes);
    for (size_t i = 0; i < SB_QUESTIONS; i++)
        sb_arena_free(&model.answers[i]);
    sb_model_io_free(&model.io);
    return status == SB_OK ? sb_graph_verify(g) : status;
}

sb_status sb_ctx_add_pass(sb_ctx *ctx, const sb_pass_plugin *plugin)
{
    const sb_pass_plugin defaults = SB_PASS_PLUGIN_INIT;
    sb_pass_plugin p;

    SB_TRY(sb_options_read(ctx, "sb_pass_plugin", plugin, &defaults, sizeof p,
                           &p));
    SB_TRY(sb_plugin_check_name(ctx, "pass", p.name, false));
    SB_TRY(sb_plugin_check_name(ctx, "pass", p.name,
                                sb_pass_find(ctx, p.name) ||
                                    sb_pipeline_find(p.name)));
    if (!p.run)
        return sb_fail(ctx, SB_BAD_ARG, "pass '%s': run must be set", p.name);
    added_pass *pass = sb_alloc(ctx, 1, sizeof *pass);
    if (!pass)
        return SB_NO_MEMORY;
    pass->plugin = p;
    pass->def = (sb_pass_def){.name = p.name,
                              .summary = p.summary ? p.summary : "",
                              .run_added = pass_run_added,
                              .added = &pass->plugin};
    return sb_ctx_add_row(ctx, SB_ROW_PASS, pass);
}

/* ---- changes ------------------------------------------------------------ */

static sb_status find_value(const sb_model *model, const char *name,
                            sb_value_id *out)
{
    *out = sb_graph_find_value(model->graph, name);
    if (*out == SB_NONE)
        return sb_fail(model->ctx, SB_BAD_ARG, "no value '%s'", name);
    return SB_OK;
}

static sb_status find_producer(const sb_model *model, const char *output,
                               sb_node_id *out)
{
    sb_value_id value;

    SB_TRY(find_value(model, output, &value));
    *out = sb_graph_value(model->graph, value)->producer;
    if (*out == SB_NONE)
        return sb_fail(model->ctx, SB_BAD_ARG, "no node computes '%s'", output);
    return SB_OK;
}

sb_status sb_model_replace_value(sb_model *model, const char *from,
                                 const char *to, int *done)
{
    sb_value_id old, new;
    bool replaced = false;

    SB_TRY(find_value(model, from, &old));
    SB_TRY(find_value(model, to, &new));
    SB_TRY(sb_graph_replace_value(model->graph, old, new, &replaced));
    *done = replaced;
    return SB_OK;
}

sb_status sb_model_remove_node(sb_model *model, const char *output)
{
    const sb_graph *g = model->graph;
    sb_node_id id;

    SB_TRY(find_producer(model, output, &id));
    const sb_node *node = sb_graph_node(g, id);
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (node->outputs[i] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(g, node->outputs[i]);
        if (v->n_uses > 0 || v->is_output)
            return sb_fail(model->ctx, SB_BAD_ARG,
                           "the node cannot go: '%s' is still read", v->name);
    }
    sb_graph_remove_node(model->graph, id);
    return SB_OK;
}

sb_status sb_model_set_attrs(sb_model *model, const char *output,
                             const char *attrs)
{
    sb_attr *list = NULL;
    sb_node_id id;
    size_t n = 0;

    SB_TRY(find_producer(model, output, &id));
    SB_TRY(sb_graph_parse_attrs(model->graph, attrs, &list, &n));
    for (size_t i = 0; i < n; i++)
        SB_TRY(sb_graph_set_attr(model->graph, id, &list[i]));
    return SB_OK;
}
