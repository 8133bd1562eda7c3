/* Functions that a model defines are inlined: the body's nodes go where the
 * call was, its names behind the name of the call.  Torch's exporter writes
 * such functions, and they may call each other, but not themselves. */
#include "onnx/onnx_load.h"

#include <string.h>

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

static char *function_key(sb_onnx_loader *loader, const char *domain,
                          const char *name, const char *overload)
{
    return sb_arena_printf(&loader->scratch, "%s\n%s\n%s",
                           sb_onnx_domain(domain), text_or_empty(name),
                           text_or_empty(overload));
}

sb_status sb_onnx_list_functions(sb_onnx_loader *loader)
{
    const Pb__Model *m = loader->model;

    loader->expanded = sb_arena_alloc(&loader->scratch, m->n_functions,
                                      sizeof *loader->expanded);
    if (!loader->expanded)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < m->n_functions; i++) {
        const Pb__Function *f = m->functions[i];
        char *key = function_key(loader, f->domain, f->name, f->overload);
        if (!key)
            return SB_NO_MEMORY;
        if (sb_map_get(&loader->functions, key) != SB_MAP_NONE)
            return sb_fail(loader->ctx, SB_BAD_MODEL,
                           "%s: the function '%s' is defined twice",
                           loader->source.what, text_or_empty(f->name));
        SB_TRY(sb_map_put(&loader->functions, key, (uint32_t)i));
    }
    return SB_OK;
}

/* The number of the function that a node calls, or SB_MAP_NONE. */
static sb_status function_called(sb_onnx_loader *loader, const Pb__Node *node,
                                 uint32_t *out)
{
    *out = SB_MAP_NONE;
    if (loader->model->n_functions == 0)
        return SB_OK;
    char *key =
        function_key(loader, node->domain, node->op_type, node->overload);
    if (!key)
        return SB_NO_MEMORY;
    *out = sb_map_get(&loader->functions, key);
    return SB_OK;
}

sb_status sb_onnx_find_function(sb_onnx_loader *loader, const Pb__Node *node,
                                const Pb__Function **out)
{
    uint32_t i = SB_MAP_NONE;

    SB_TRY(function_called(loader, node, &i));
    *out = i == SB_MAP_NONE ? NULL : loader->model->functions[i];
    return SB_OK;
}

/* ---- how much a call becomes -------------------------------------------- */

static sb_status count_function(sb_onnx_loader *loader, uint32_t i, int depth,
                                size_t *total);

static sb_status too_many(const sb_onnx_loader *loader)
{
    return sb_fail(loader->ctx, SB_UNSUPPORTED,
                   "%s: calls of functions expand to more than %d nodes or %d "
                   "levels",
                   loader->source.what, SB_ONNX_MAX_INLINED, SB_ONNX_MAX_CALLS);
}

static sb_status count_node(sb_onnx_loader *loader, const Pb__Node *node,
                            int depth, size_t *total)
{
    uint32_t callee = SB_MAP_NONE;

    SB_TRY(function_called(loader, node, &callee));
    if (callee != SB_MAP_NONE)
        SB_TRY(count_function(loader, callee, depth + 1, total));
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Pb__Graph *g = node->attribute[i]->g;
        for (size_t k = 0; g && k < g->n_node; k++)
            SB_TRY(count_node(loader, g->node[k], depth + 1, total));
    }
    return ++*total > SB_ONNX_MAX_INLINED ? too_many(loader) : SB_OK;
}

/* Adds the nodes that a call of a function becomes.  Each function is counted
 * once, so that a small file that would become a large graph is refused before
 * the first node is made.  One that calls itself is found when it is inlined.
 */
static sb_status count_function(sb_onnx_loader *loader, uint32_t i, int depth,
                                size_t *total)
{
    const Pb__Function *f = loader->model->functions[i];
    size_t own = 0;

    if (depth > SB_ONNX_MAX_CALLS)
        return too_many(loader);
    if (loader->expanded[i] == 0) {
        loader->expanded[i] = 1;
        for (size_t k = 0; k < f->n_node; k++)
            SB_TRY(count_node(loader, f->node[k], depth, &own));
        loader->expanded[i] = own + 1;
    }
    *total += loader->expanded[i] - 1;
    return *total > SB_ONNX_MAX_INLINED ? too_many(loader) : SB_OK;
}

/* ---- inlining ----------------------------------------------------------- */

static sb_status check_call(const sb_onnx_scope *scope, const Pb__Node *node,
                            const Pb__Function *f, const sb_draft *call)
{
    sb_onnx_loader *loader = scope->loader;
    const char *label = sb_onnx_node_label(node);

    for (const sb_onnx_scope *s = scope; s; s = s->caller)
        if (s->function == f)
            return sb_fail(loader->ctx, SB_BAD_MODEL,
                           "%s: the function '%s' calls itself",
                           loader->source.what, node->op_type);
    if (call->n_in > f->n_input || call->n_out > f->n_output)
        return sb_fail(loader->ctx, SB_BAD_MODEL,
                       "%s: node '%s' (%s): %zu inputs and %zu outputs, the "
                       "function has %zu and %zu",
                       loader->source.what, label, node->op_type, call->n_in,
                       call->n_out, f->n_input, f->n_output);
    if (scope->n_calls >= SB_ONNX_MAX_CALLS)
        return too_many(loader);
    if (scope->function)
        return SB_OK; /* counted with the call outside of it */
    uint32_t i = SB_MAP_NONE;
    SB_TRY(function_called(loader, node, &i));
    return count_function(loader, i, 0, &loader->n_inlined);
}

static sb_status bind_inputs(sb_onnx_scope *body, const Pb__Function *f,
                             const sb_draft *call)
{
    for (size_t i = 0; i < f->n_input; i++) {
        sb_value_id id = i < call->n_in ? call->in[i] : SB_NONE;
        if (sb_map_get(&body->names, f->input[i]) != SB_MAP_NONE)
            return sb_fail(body->loader->ctx, SB_BAD_MODEL,
                           "%s: function '%s': the input '%s' is listed twice",
                           body->loader->source.what, text_or_empty(f->name),
                           f->input[i]);
        SB_TRY(sb_map_put(&body->names, f->input[i],
                          id == SB_NONE ? SB_ONNX_ABSENT : id));
    }
    return SB_OK;
}

/* A result of the body: the value that the call already has for it. */
static sb_status declare_result(sb_onnx_scope *body, const sb_map *results,
                                const sb_draft *call, const char *name)
{
    uint32_t i = sb_map_get(results, name);
    sb_value_id id = SB_NONE;

    if (i == SB_MAP_NONE || i >= call->n_out || call->out[i] == SB_NONE ||
        sb_map_get(&body->names, name) != SB_MAP_NONE)
        return sb_onnx_declare(body, name, &id);
    return sb_map_put(&body->names, name, call->out[i]);
}

static sb_status declare_body(sb_onnx_scope *body, const Pb__Function *f,
                              const sb_draft *call)
{
    sb_map results; /* name -> index of the output */
    sb_status status = SB_OK;

    sb_map_init(&results, body->loader->ctx);
    for (size_t i = f->n_output; status == SB_OK && i-- > 0;)
        status = sb_map_put(&results, f->output[i], (uint32_t)i);
    for (size_t i = 0; status == SB_OK && i < f->n_node; i++)
        for (size_t k = 0; status == SB_OK && k < f->node[i]->n_output; k++)
            if (f->node[i]->output[k][0])
                status =
                    declare_result(body, &results, call, f->node[i]->output[k]);
    sb_map_free(&results);
    return status;
}

/* Outputs that are an input, or an output listed before, need a node. */
static sb_status finish_outputs(sb_onnx_scope *body, const Pb__Function *f,
                                const sb_draft *call)
{
    for (size_t i = 0; i < call->n_out; i++) {
        sb_value_id id = sb_map_get(&body->names, f->output[i]);
        if (call->out[i] == SB_NONE || id == call->out[i])
            continue;
        if (id == SB_MAP_NONE || id == SB_ONNX_ABSENT)
            return sb_fail(body->loader->ctx, SB_BAD_MODEL,
                           "%s: function '%s': its output '%s' is made by no "
                           "node",
                           body->loader->source.what, text_or_empty(f->name),
                           f->output[i]);
        sb_node_spec spec = {.op = "Identity", .inputs = &id, .n_in = 1};
        spec.outputs = &call->out[i];
        spec.n_out = 1;
        SB_TRY(sb_graph_add_node(body->graph, &spec, NULL));
    }
    return SB_OK;
}

sb_status sb_onnx_inline(sb_onnx_scope *scope, const Pb__Node *node,
                         const Pb__Function *f, const sb_draft *call)
{
    sb_onnx_scope body;

    SB_TRY(check_call(scope, node, f, call));
    sb_onnx_scope_init(&body, scope->loader, NULL, scope->graph);
    body.function = f;
    body.caller = scope;
    body.call = call;
    body.opsets = f->opset_import;
    body.n_opsets = f->n_opset_import;
    body.n_calls = scope->n_calls + 1;
    body.prefix = sb_arena_str(&scope->loader->scratch, sb_draft_label(call));
    sb_status status = body.prefix ? SB_OK : SB_NO_MEMORY;
    if (status == SB_OK)
        status = bind_inputs(&body, f, call);
    if (status == SB_OK)
        status = declare_body(&body, f, call);
    for (size_t i = 0; status == SB_OK && i < f->n_node; i++)
        status = sb_onnx_read_node(&body, f->node[i]);
    if (status == SB_OK)
        status = finish_outputs(&body, f, call);
    sb_onnx_scope_free(&body);
    return status;
}
