/* plugin_pass - a pass of one's own over the graph of a model.
 *
 * A Relu behind a Relu changes nothing: the second one is removed. */
#include <stdio.h>
#include <string.h>

#include <sparsebit/plugin.h>

/* The Relu that computes `value`, or NULL. */
static const sb_node_info *relu_of(const sb_node_info *const *nodes, size_t n,
                                   const char *value)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(nodes[i]->op, "Relu") == 0 && !*nodes[i]->domain &&
            strcmp(nodes[i]->outputs[0], value) == 0)
            return nodes[i];
    return NULL;
}

/* One at a time: what was listed is out of date after a change. */
static sb_status remove_double_relu(void *user, sb_model *model,
                                    size_t *changes)
{
    const sb_node_info *const *nodes = NULL;
    size_t n = 0;
    sb_status s = sb_model_nodes(model, &nodes, &n);

    (void)user;
    for (size_t i = 0; s == SB_OK && i < n; i++) {
        const char *from = nodes[i]->n_outputs ? nodes[i]->outputs[0] : "";
        const char *to = nodes[i]->n_inputs ? nodes[i]->inputs[0] : "";
        int done = 0;

        if (!relu_of(nodes, n, from) || !relu_of(nodes, n, to))
            continue;
        s = sb_model_replace_value(model, from, to, &done);
        *changes += done != 0;
        if (done)
            break;
    }
    return s;
}

static const char text[] = "graph relus(x: f32[N,2]) -> (y) {\n"
                           "  a = Relu(x)\n"
                           "  b = Relu(a)\n"
                           "  c = Relu(b)\n"
                           "  y = Neg(c)\n"
                           "}\n";

int main(void)
{
    sb_pass_plugin pass = SB_PASS_PLUGIN_INIT;
    sb_simplify_options opt = SB_SIMPLIFY_OPTIONS_INIT;
    const sb_pass_result *const *results = NULL;
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;
    char *graph = NULL;
    size_t n = 0;

    pass.name = "remove_double_relu";
    pass.summary = "a Relu behind a Relu changes nothing";
    pass.run = remove_double_relu;
    opt.passes = "remove_double_relu,remove_dead";
    sb_status s = sb_ctx_create(NULL, &ctx);
    if (s == SB_OK)
        s = sb_ctx_add_pass(ctx, &pass);
    if (s == SB_OK)
        s = sb_model_parse(ctx, text, &model);
    if (s == SB_OK)
        s = sb_model_simplify(model, &opt, &results, &n);
    for (size_t i = 0; s == SB_OK && i < n; i++)
        if (results[i]->changes > 0)
            printf("%s: %zu changes\n", results[i]->name, results[i]->changes);
    if (s == SB_OK)
        s = sb_model_print(model, SB_GRAPH_FORMAT_TEXT, &graph);
    printf("%s", s == SB_OK ? graph : sb_ctx_error(ctx));
    sb_memory_free(graph);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return s != SB_OK;
}
