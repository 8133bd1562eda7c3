/* Graphs: every name that a graph defines becomes a value first, then the
 * nodes follow in file order.  So a name may be used before the node that
 * makes it; sb_graph_verify() finds cycles later.
 *
 * A name that a sub-graph does not define is looked up in the enclosing one
 * and captured, level by level. */
#include "onnx/onnx_load.h"
#include "onnx/onnx_tensor.h"

#include <string.h>

/* ---- scopes ------------------------------------------------------------- */

void sb_onnx_scope_init(sb_onnx_scope *scope, sb_onnx_loader *loader,
                        sb_onnx_scope *parent, sb_graph *graph)
{
    *scope = (sb_onnx_scope){.loader = loader, .parent = parent};
    scope->graph = graph;
    sb_map_init(&scope->names, loader->ctx);
    if (parent) {
        scope->opsets = parent->opsets;
        scope->n_opsets = parent->n_opsets;
        scope->function = parent->function;
        scope->caller = parent->caller;
        scope->call = parent->call;
        scope->prefix = parent->prefix;
        scope->n_calls = parent->n_calls;
    }
}

void sb_onnx_scope_free(sb_onnx_scope *scope)
{
    sb_free(scope->loader->ctx, scope->outer);
    sb_map_free(&scope->names);
}

sb_status sb_onnx_prefixed(sb_onnx_scope *scope, const char *name,
                           const char **out)
{
    sb_onnx_loader *loader = scope->loader;

    *out = name;
    if (!scope->prefix)
        return SB_OK;
    loader->n_names += strlen(scope->prefix) + strlen(name) + 2;
    if (loader->n_names > SB_ONNX_MAX_NAMES)
        return sb_fail(loader->ctx, SB_UNSUPPORTED,
                       "%s: inlining functions makes names of more than %d MB",
                       loader->source.what, SB_ONNX_MAX_NAMES >> 20);
    *out = sb_arena_printf(&loader->scratch, "%s/%s", scope->prefix, name);
    return *out ? SB_OK : SB_NO_MEMORY;
}

static bool name_taken(const sb_graph *g, const char *name)
{
    for (; g; g = g->parent)
        if (sb_graph_find_value(g, name) != SB_NONE)
            return true;
    return false;
}

/* A value named as the file names it.  Inlined ones get a prefix; one that
 * would hide a name of an enclosing graph, which ONNX forbids, a number. */
static sb_status add_value(sb_onnx_scope *scope, const char *name,
                           sb_value_id *out)
{
    sb_graph *g = scope->graph;

    SB_TRY(sb_onnx_prefixed(scope, name, &name));
    if (name_taken(g, name))
        return sb_graph_add_value_like(g, name, out);
    return sb_graph_add_value(g, name, out);
}

sb_status sb_onnx_declare(sb_onnx_scope *scope, const char *name,
                          sb_value_id *out)
{
    if (sb_map_get(&scope->names, name) != SB_MAP_NONE)
        return sb_fail(scope->loader->ctx, SB_BAD_MODEL,
                       "%s: the name '%s' is defined twice",
                       scope->loader->source.what, name);
    SB_TRY(add_value(scope, name, out));
    return sb_map_put(&scope->names, name, *out);
}

static sb_status graph_capture(sb_onnx_scope *scope, const char *name,
                               sb_value_id outer, sb_value_id *out)
{
    const sb_value *from = sb_graph_value(scope->parent->graph, outer);
    sb_graph *g = scope->graph;

    /* No value of an inner graph has an outer one's name, see add_value(), and
     * adding to the inner graph does not move the outer one's values. */
    SB_TRY(sb_graph_add_value(g, from->name, out));
    sb_graph_value(g, *out)->type = from->type;
    SB_TRY(sb_grow(g->ctx, &scope->outer, &scope->cap_outer, scope->n_outer + 1,
                   sizeof *scope->outer));
    SB_TRY(sb_graph_add_capture(g, *out));
    scope->outer[scope->n_outer++] = outer;
    return sb_map_put(&scope->names, name, *out);
}

sb_status sb_onnx_resolve(sb_onnx_scope *scope, const char *name,
                          sb_value_id *out)
{
    *out = sb_map_get(&scope->names, name);
    if (*out != SB_MAP_NONE || !scope->parent)
        return SB_OK;
    SB_TRY(sb_onnx_resolve(scope->parent, name, out));
    if (*out == SB_NONE || *out == SB_ONNX_ABSENT)
        return SB_OK;
    return graph_capture(scope, name, *out, out);
}

/* ---- what only has to survive ------------------------------------------- */

sb_status sb_onnx_read_props(sb_graph *graph, Pb__Prop *const *props, size_t n,
                             const sb_prop **out)
{
    sb_prop *copy = sb_arena_alloc(graph->arena, n, sizeof *copy);

    if (!copy)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        const char *key = props[i]->key ? props[i]->key : "";
        const char *value = props[i]->value ? props[i]->value : "";
        copy[i].key = sb_arena_str(graph->arena, key);
        copy[i].value = sb_arena_str(graph->arena, value);
        if (!copy[i].key || !copy[i].value)
            return SB_NO_MEMORY;
    }
    *out = copy;
    return SB_OK;
}

sb_status sb_onnx_read_extra(sb_graph *graph, const char *doc,
                             Pb__Prop *const *props, size_t n,
                             const ProtobufCMessage *msg, sb_extra *out)
{
    sb_extra extra = {0};

    if (doc && !(extra.doc = sb_arena_str(graph->arena, doc)))
        return SB_NO_MEMORY;
    if (n > 0)
        SB_TRY(sb_onnx_read_props(graph, props, n, &extra.props));
    extra.n_props = n;
    SB_TRY(sb_wire_unknown(graph->arena, msg, &extra.unknown));
    *out = extra;
    return SB_OK;
}

/* ---- types -------------------------------------------------------------- */

static sb_status read_dim(sb_onnx_scope *scope, const char *value,
                          const Pb__Dim *d, sb_dim *out)
{
    sb_ctx *ctx = scope->loader->ctx;

    *out = SB_DIM_UNKNOWN;
    if (d->value_case == PB__DIM__VALUE_DIM_PARAM && d->dim_param[0])
        return sb_graph_symbol(scope->graph, d->dim_param, out);
    if (d->value_case != PB__DIM__VALUE_DIM_VALUE)
        return SB_OK;
    /* Some exporters write -1 where they mean unknown. */
    if (d->dim_value < -1)
        return sb_fail(
            ctx, SB_BAD_MODEL, "%s: value '%s': dimension %lld is negative",
            scope->loader->source.what, value, (long long)d->dim_value);
    if (d->dim_value >= 0)
        *out = d->dim_value;
    return SB_OK;
}

static bool has_denotation(const Pb__Type *type)
{
    const Pb__Shape *shape = type->tensor_type->shape;

    if (type->denotation)
        return true;
    for (size_t i = 0; shape && i < shape->n_dim; i++)
        if (shape->dim[i]->denotation)
            return true;
    return false;
}

/* Of TypeProto: field numbers that we do not read. */
enum { TAG_SEQUENCE_TYPE = 4 };

/* Sets the type of a value; one that is not a tensor is kept as bytes. */
static sb_status read_type(sb_onnx_scope *scope, const char *name,
                           const Pb__Type *type, sb_value *value)
{
    const Pb__TensorType *tensor = type->tensor_type;
    sb_type read = {.shape.rank = -1};

    for (unsigned i = 0; i < type->base.n_unknown_fields; i++)
        if (type->base.unknown_fields[i].tag == TAG_SEQUENCE_TYPE)
            value->type.dtype = SB_DTYPE_SEQUENCE;
    if (!tensor || !sb_dtype_valid(tensor->elem_type))
        return sb_wire_pack(scope->graph->arena, &type->base,
                            &value->opaque_type);
    read.dtype = (sb_dtype)tensor->elem_type;
    if (tensor->shape) {
        if (tensor->shape->n_dim > SB_MAX_RANK)
            return sb_fail(scope->loader->ctx, SB_UNSUPPORTED,
                           "%s: value '%s' has rank %zu, at most %d",
                           scope->loader->source.what, name,
                           tensor->shape->n_dim, SB_MAX_RANK);
        read.shape.rank = (int)tensor->shape->n_dim;
        for (int i = 0; i < read.shape.rank; i++)
            SB_TRY(read_dim(scope, name, tensor->shape->dim[i],
                            &read.shape.dim[i]));
    }
    value->type = read;
    if (has_denotation(type))
        return sb_wire_pack(scope->graph->arena, &type->base,
                            &value->denoted_type);
    return SB_OK;
}

/* Applies a ValueInfo to a value that exists. */
static sb_status read_info(sb_onnx_scope *scope, const Pb__ValueInfo *info,
                           sb_value_id id)
{
    sb_value *value = sb_graph_value(scope->graph, id);

    /* The elements of a constant say more than its declaration. */
    if (info->type && !value->is_constant)
        SB_TRY(read_type(scope, info->name, info->type, value));
    return sb_onnx_read_extra(scope->graph, info->doc_string,
                              info->metadata_props, info->n_metadata_props,
                              &info->base, &value->extra);
}

static const char *text_or_empty(const char *text)
{
    return text ? text : "";
}

/* ---- the parts of a graph, in order ------------------------------------- */

/* Below IR version 4 every initializer had to be listed as an input too, and
 * was a constant all the same.  Since then the listing makes it the default of
 * an input; but exporters wrote it out of habit, and runtimes fold nothing that
 * a caller might override, so it is a constant unless the caller wants it
 * otherwise.  Inputs of a body are told apart by their place and all stay. */
static sb_status read_inputs(sb_onnx_scope *scope, const Pb__Graph *g,
                             const sb_map *constants)
{
    size_t dropped = 0;

    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = text_or_empty(g->input[i]->name);
        sb_value_id id = SB_NONE;
        if (name[0] == '\0')
            return sb_fail(scope->loader->ctx, SB_BAD_MODEL,
                           "%s: graph input %zu has no name",
                           scope->loader->source.what, i);
        SB_TRY(sb_onnx_declare(scope, name, &id));
        SB_TRY(read_info(scope, g->input[i], id));
        if (sb_map_get(constants, name) == SB_MAP_NONE)
            SB_TRY(sb_graph_add_input(scope->graph, id));
        else
            dropped++;
    }
    if (dropped > 0 && scope->loader->model->ir_version >= 4)
        sb_warn(scope->loader->ctx,
                "%s: %zu of %zu inputs have an initializer and are taken as "
                "constants (keep-inputs keeps them)",
                scope->loader->source.what, dropped, g->n_input);
    return SB_OK;
}

/* The names that are no inputs of this graph though it may list them. */
static sb_status constant_names(sb_onnx_scope *scope, const Pb__Graph *g,
                                sb_map *out)
{
    const sb_onnx_loader *l = scope->loader;

    if (l->model->ir_version >= 4 && (l->keep_inputs || scope->graph->parent))
        return SB_OK;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (g->initializer[i]->name)
            SB_TRY(sb_map_put(out, g->initializer[i]->name, 0));
    for (size_t i = 0; i < g->n_sparse_initializer; i++) {
        const Pb__Tensor *values = g->sparse_initializer[i]->values;
        if (values && values->name)
            SB_TRY(sb_map_put(out, values->name, 0));
    }
    return SB_OK;
}

/* The value that an initializer named `name` gives its elements to. */
static sb_status constant_value(sb_onnx_scope *scope, const char *name,
                                sb_value_id *out)
{
    if (!name || !name[0])
        return sb_fail(scope->loader->ctx, SB_BAD_MODEL,
                       "%s: an initializer has no name",
                       scope->loader->source.what);
    *out = sb_map_get(&scope->names, name);
    if (*out == SB_MAP_NONE)
        return sb_onnx_declare(scope, name, out);
    if (sb_graph_value(scope->graph, *out)->is_constant)
        return sb_fail(scope->loader->ctx, SB_BAD_MODEL,
                       "%s: the initializer '%s' is defined twice",
                       scope->loader->source.what, name);
    return SB_OK;
}

static sb_status read_initializers(sb_onnx_scope *scope, const Pb__Graph *g)
{
    sb_onnx_source *src = &scope->loader->source;
    sb_value_id id = SB_NONE;
    sb_tensor t = {0};

    for (size_t i = 0; i < g->n_initializer; i++) {
        const Pb__Tensor *from = g->initializer[i];
        SB_TRY(constant_value(scope, from->name, &id));
        SB_TRY(sb_onnx_tensor(src, from, &t));
        sb_status status = sb_graph_set_constant(scope->graph, id, &t);
        sb_tensor_drop(&t);
        SB_TRY(status);
        SB_TRY(sb_onnx_read_extra(
            scope->graph, from->doc_string, from->metadata_props,
            from->n_metadata_props, &from->base,
            &sb_graph_value(scope->graph, id)->const_extra));
    }
    for (size_t i = 0; i < g->n_sparse_initializer; i++) {
        const Pb__SparseTensor *from = g->sparse_initializer[i];
        const char *name = from->values ? from->values->name : NULL;
        SB_TRY(constant_value(scope, name, &id));
        SB_TRY(sb_onnx_sparse(src, from, &t));
        sb_status status = sb_graph_set_constant(scope->graph, id, &t);
        sb_tensor_drop(&t);
        SB_TRY(status);
        SB_TRY(sb_onnx_read_extra(
            scope->graph, from->values->doc_string,
            from->values->metadata_props, from->values->n_metadata_props,
            &from->values->base,
            &sb_graph_value(scope->graph, id)->const_extra));
    }
    return SB_OK;
}

static sb_status declare_outputs(sb_onnx_scope *scope, const Pb__Graph *g)
{
    sb_value_id id = SB_NONE;

    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            if (g->node[i]->output[k][0])
                SB_TRY(sb_onnx_declare(scope, g->node[i]->output[k], &id));
    return SB_OK;
}

static sb_status read_value_infos(sb_onnx_scope *scope, const Pb__Graph *g)
{
    for (size_t i = 0; i < g->n_value_info; i++) {
        const char *name = text_or_empty(g->value_info[i]->name);
        sb_value_id id = sb_map_get(&scope->names, name);
        if (id != SB_MAP_NONE)
            SB_TRY(read_info(scope, g->value_info[i], id));
    }
    return SB_OK;
}

/* Outputs have their types before the nodes, which may ask for them. */
static sb_status read_output_infos(sb_onnx_scope *scope, const Pb__Graph *g)
{
    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = text_or_empty(g->output[i]->name);
        sb_value_id id = sb_map_get(&scope->names, name);
        if (id != SB_MAP_NONE && !sb_graph_value(scope->graph, id)->is_input)
            SB_TRY(read_info(scope, g->output[i], id));
    }
    return SB_OK;
}

static sb_status read_outputs(sb_onnx_scope *scope, const Pb__Graph *g)
{
    sb_ctx *ctx = scope->loader->ctx;
    const char *what = scope->loader->source.what;

    for (size_t i = 0; i < g->n_output; i++) {
        const char *name = text_or_empty(g->output[i]->name);
        sb_value_id id = SB_NONE;
        SB_TRY(sb_onnx_resolve(scope, name, &id));
        if (id == SB_NONE || id == SB_ONNX_ABSENT)
            return sb_fail(ctx, SB_BAD_MODEL,
                           "%s: graph output '%s' is made by no node", what,
                           name);
        if (sb_graph_value(scope->graph, id)->is_output)
            return sb_fail(ctx, SB_BAD_MODEL,
                           "%s: graph output '%s' is listed twice", what, name);
        SB_TRY(sb_graph_add_output(scope->graph, id));
    }
    return SB_OK;
}

sb_status sb_onnx_read_graph(sb_onnx_scope *scope, const Pb__Graph *g)
{
    sb_map constants;

    sb_map_init(&constants, scope->loader->ctx);
    sb_status status = constant_names(scope, g, &constants);
    if (status == SB_OK)
        status = read_inputs(scope, g, &constants);
    sb_map_free(&constants);
    SB_TRY(status);
    SB_TRY(sb_onnx_read_extra(scope->graph, g->doc_string, g->metadata_props,
                              g->n_metadata_props, &g->base,
                              &scope->graph->extra));
    SB_TRY(read_initializers(scope, g));
    SB_TRY(declare_outputs(scope, g));
    SB_TRY(read_value_infos(scope, g));
    SB_TRY(read_output_infos(scope, g));
    for (size_t i = 0; i < g->n_node; i++)
        SB_TRY(sb_onnx_read_node(scope, g->node[i]));
    return read_outputs(scope, g);
}
