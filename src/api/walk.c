/* Nodes with their attributes, weights and metadata, as the caller of the
 * library sees and sets them. */
#include <string.h>

#include "api/model.h"
#include "ops/op_registry.h"

/* ---- attributes --------------------------------------------------------- */

static sb_status walk_strings(sb_arena *arena, const sb_bytes *from, size_t n,
                              const char *const **out)
{
    const char **list = sb_arena_alloc(arena, n, sizeof(*list));

    for (size_t i = 0; list && i < n; i++) {
        list[i] =
            sb_arena_strn(arena, from[i].len ? from[i].data : "", from[i].len);
        if (!list[i])
            return SB_NO_MEMORY;
    }
    *out = list;
    return list ? SB_OK : SB_NO_MEMORY;
}

static sb_status walk_tensors(sb_arena *arena, const sb_tensor *from, size_t n,
                              const sb_tensor *const **out)
{
    const sb_tensor **list = sb_arena_alloc(arena, n, sizeof(*list));

    for (size_t i = 0; list && i < n; i++)
        list[i] = &from[i];
    *out = list;
    return list ? SB_OK : SB_NO_MEMORY;
}

static sb_status walk_attr(sb_arena *arena, const sb_attr *a, sb_attr_info *out)
{
    *out = (sb_attr_info){.name = a->name, .type = a->type, .n = a->n};
    switch (a->type) {
    case SB_ATTR_FLOATS:
        out->floats = a->floats;
        return SB_OK;
    case SB_ATTR_INTS:
        out->ints = a->ints;
        return SB_OK;
    case SB_ATTR_STRINGS:
        return walk_strings(arena, a->strings, a->n, &out->strings);
    case SB_ATTR_TENSORS:
        return walk_tensors(arena, a->t, a->n, &out->tensors);
    default:
        break;
    }
    out->n = a->type == SB_ATTR_GRAPHS ? a->n : 1;
    switch (a->type) {
    case SB_ATTR_FLOAT:
        out->floats = &a->f;
        return SB_OK;
    case SB_ATTR_INT:
        out->ints = &a->i;
        return SB_OK;
    case SB_ATTR_STRING:
        return walk_strings(arena, &a->s, 1, &out->strings);
    case SB_ATTR_TENSOR:
        return walk_tensors(arena, a->t, 1, &out->tensors);
    default:
        return SB_OK;
    }
}

static sb_status walk_attrs(sb_arena *arena, const sb_node *node,
                            sb_node_info *out)
{
    sb_attr_info *rows = sb_arena_alloc(arena, node->n_attrs, sizeof *rows);
    const sb_attr_info **list =
        sb_arena_alloc(arena, node->n_attrs, sizeof(*list));

    if (!rows || !list)
        return SB_NO_MEMORY;
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        SB_TRY(walk_attr(arena, &node->attrs[i], &rows[i]));
        list[i] = &rows[i];
    }
    out->n_attrs = node->n_attrs;
    out->attrs = list;
    return SB_OK;
}

/* ---- nodes -------------------------------------------------------------- */

static sb_status walk_names(const sb_graph *g, sb_arena *arena,
                            const sb_value_id *ids, size_t n,
                            const char *const **out)
{
    const char **list = sb_arena_alloc(arena, n, sizeof(*list));

    for (size_t i = 0; list && i < n; i++)
        list[i] = ids[i] == SB_NONE ? "" : sb_graph_value(g, ids[i])->name;
    *out = list;
    return list ? SB_OK : SB_NO_MEMORY;
}

static sb_status walk_node(const sb_graph *g, sb_arena *arena,
                           const sb_node *node, sb_node_info *out)
{
    *out = (sb_node_info){.name = node->name,
                          .op = node->op,
                          .domain = node->domain,
                          .module = node->module,
                          .n_inputs = node->n_in,
                          .n_outputs = node->n_out};
    SB_TRY(walk_names(g, arena, node->inputs, node->n_in, &out->inputs));
    SB_TRY(walk_names(g, arena, node->outputs, node->n_out, &out->outputs));
    return walk_attrs(arena, node, out);
}

static sb_status walk_all(const sb_graph *g, sb_arena *arena,
                          const sb_node_id *order, size_t n,
                          const sb_node_info *const **out)
{
    sb_node_info *rows = sb_arena_alloc(arena, n, sizeof *rows);
    const sb_node_info **list = sb_arena_alloc(arena, n, sizeof(*list));

    if (!rows || !list)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        SB_TRY(walk_node(g, arena, sb_graph_node(g, order[i]), &rows[i]));
        list[i] = &rows[i];
    }
    *out = list;
    return SB_OK;
}

sb_status sb_model_nodes(sb_model *model, const sb_node_info *const **out,
                         size_t *n)
{
    sb_arena *arena = sb_model_answer(model, SB_QUESTION_NODES);
    sb_node_id *order = NULL;
    size_t count = 0;

    SB_TRY(sb_graph_order(model->graph, &order, &count));
    sb_status status = walk_all(model->graph, arena, order, count, out);
    sb_free(model->ctx, order);
    if (status == SB_OK)
        *n = count;
    return status;
}

/* ---- weights ------------------------------------------------------------ */

static sb_value *find_weight(const sb_model *model, const char *name)
{
    sb_value_id id = sb_graph_find_value(model->graph, name);
    sb_value *v = id == SB_NONE ? NULL : sb_graph_value(model->graph, id);

    return v && v->is_constant ? v : NULL;
}

const sb_tensor *sb_model_weight(const sb_model *model, const char *name)
{
    const sb_value *v = find_weight(model, name);

    return v ? &v->constant : NULL;
}

sb_status sb_model_set_weight(sb_model *model, const char *name,
                              const sb_tensor *tensor)
{
    sb_value *v = find_weight(model, name);
    char got[128], want[128];
    sb_tensor copy;

    if (!v)
        return sb_fail(model->ctx, SB_BAD_ARG, "the model has no weight '%s'",
                       name);
    const sb_tensor *old = &v->constant;
    if (old->dtype != tensor->dtype || old->rank != tensor->rank ||
        memcmp(old->dims, tensor->dims,
               (size_t)old->rank * sizeof old->dims[0]) != 0)
        return sb_fail(model->ctx, SB_BAD_ARG, "weight '%s': got %s, want %s",
                       name, sb_tensor_describe(tensor, got, sizeof got),
                       sb_tensor_describe(old, want, sizeof want));
    SB_TRY(sb_tensor_clone(model->ctx, tensor, &copy));
    sb_tensor before = v->constant;
    v->constant = copy;
    sb_status status = SB_OK;
    if (sb_dtype_is_integral(copy.dtype)) { /* shapes may depend on it */
        status = sb_graph_infer(model->graph);
        if (status == SB_OK)
            status = sb_model_refresh(model);
    }
    if (status != SB_OK)
        v->constant = before;
    sb_tensor_drop(status == SB_OK ? &before : &copy);
    return status;
}

/* ---- metadata ----------------------------------------------------------- */

size_t sb_model_metadata_count(const sb_model *model)
{
    return model->graph->n_model_props;
}

const char *sb_model_metadata_key(const sb_model *model, size_t i)
{
    const sb_graph *g = model->graph;

    return i < g->n_model_props ? g->model_props[i].key : NULL;
}

const char *sb_model_metadata(const sb_model *model, const char *key)
{
    return sb_graph_prop(model->graph, key);
}

sb_status sb_model_set_metadata(sb_model *model, const char *key,
                                const char *value)
{
    sb_graph *g = model->graph;
    sb_prop *props =
        sb_arena_alloc(g->arena, g->n_model_props + 1, sizeof *props);
    sb_prop added = {sb_arena_str(g->arena, key),
                     value ? sb_arena_str(g->arena, value) : NULL};
    size_t n = 0;

    if (!props || !added.key || (value && !added.value))
        return SB_NO_MEMORY;
    for (size_t i = 0; i < g->n_model_props; i++) {
        bool same = strcmp(g->model_props[i].key, key) == 0;

        if (!same)
            props[n++] = g->model_props[i];
        else if (added.value) {
            props[n++] = added;
            added.value = NULL;
        }
    }
    if (added.value)
        props[n++] = added;
    g->model_props = props;
    g->n_model_props = n;
    return SB_OK;
}
