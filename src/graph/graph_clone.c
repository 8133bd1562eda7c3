/* Deep copies.  Everything is copied into the new graph's arena except the
 * elements of tensors, which are shared by reference. */
#include <assert.h>
#include <string.h>

#include "graph/graph_internal.h"
#include "graph/part.h"

typedef struct {
    const sb_graph *from;
    sb_graph *to;
    sb_value_id *value_of; /* old ID -> new ID */
} cloner;

static sb_status clone_graph(const sb_graph *from, sb_graph *to);

/* ---- plain data --------------------------------------------------------- */

static sb_status copy_text(sb_graph *to, const char *text, const char **out)
{
    if (!text || !*text) {
        *out = text ? "" : NULL;
        return SB_OK;
    }
    *out = sb_arena_str(to->arena, text);
    return *out ? SB_OK : SB_NO_MEMORY;
}

static sb_status copy_bytes(sb_graph *to, sb_bytes bytes, sb_bytes *out)
{
    *out = bytes;
    if (!bytes.data)
        return SB_OK;
    out->data = sb_arena_strn(to->arena, bytes.data, bytes.len);
    return out->data ? SB_OK : SB_NO_MEMORY;
}

static sb_status copy_props(sb_graph *to, const sb_prop *props, size_t n,
                            const sb_prop **out)
{
    *out = NULL;
    if (n == 0)
        return SB_OK;
    sb_prop *copy = sb_arena_alloc(to->arena, n, sizeof *copy);
    if (!copy)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        SB_TRY(copy_text(to, props[i].key, &copy[i].key));
        SB_TRY(copy_text(to, props[i].value, &copy[i].value));
    }
    *out = copy;
    return SB_OK;
}

static sb_status copy_extra(sb_graph *to, const sb_extra *from, sb_extra *out)
{
    out->n_props = from->n_props;
    SB_TRY(copy_text(to, from->doc, &out->doc));
    SB_TRY(copy_props(to, from->props, from->n_props, &out->props));
    return copy_bytes(to, from->unknown, &out->unknown);
}

/* ---- attributes --------------------------------------------------------- */

static sb_status copy_graphs(sb_graph *to, sb_graph *const *graphs, size_t n,
                             sb_graph ***out)
{
    sb_graph **copy = sb_arena_alloc(to->arena, n, sizeof(sb_graph *));

    if (!copy)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        SB_TRY(sb_graph_create_sub(to, graphs[i]->name, &copy[i]));
        SB_TRY(clone_graph(graphs[i], copy[i]));
    }
    *out = copy;
    return SB_OK;
}

static sb_status copy_strings(sb_graph *to, const sb_attr *from, sb_attr *out)
{
    sb_bytes *copy = sb_arena_alloc(to->arena, from->n, sizeof *copy);

    if (!copy)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < from->n; i++)
        SB_TRY(copy_bytes(to, from->strings[i], &copy[i]));
    out->strings = copy;
    return SB_OK;
}

static sb_status copy_attr(sb_graph *to, const sb_attr *from, sb_attr *out)
{
    *out = *from;
    SB_TRY(copy_text(to, from->name, &out->name));
    SB_TRY(copy_text(to, from->doc, &out->doc));
    switch (from->type) {
    case SB_ATTR_STRING:
        return copy_bytes(to, from->s, &out->s);
    case SB_ATTR_OPAQUE:
        return copy_bytes(to, from->opaque, &out->opaque);
    case SB_ATTR_TENSOR:
        return sb_graph_keep_tensors(to, from->t, 1, &out->t);
    case SB_ATTR_TENSORS:
        return sb_graph_keep_tensors(to, from->t, from->n, &out->t);
    case SB_ATTR_GRAPH:
        return copy_graphs(to, from->graphs, 1, &out->graphs);
    case SB_ATTR_GRAPHS:
        return copy_graphs(to, from->graphs, from->n, &out->graphs);
    case SB_ATTR_STRINGS:
        return copy_strings(to, from, out);
    case SB_ATTR_FLOATS:
        out->floats = sb_arena_copy(to->arena, from->floats,
                                    from->n * sizeof *from->floats);
        return out->floats ? SB_OK : SB_NO_MEMORY;
    case SB_ATTR_INTS:
        out->ints =
            sb_arena_copy(to->arena, from->ints, from->n * sizeof *from->ints);
        return out->ints ? SB_OK : SB_NO_MEMORY;
    case SB_ATTR_NONE:
    case SB_ATTR_FLOAT:
    case SB_ATTR_INT:
        break;
    }
    return SB_OK;
}

/* ---- values and nodes --------------------------------------------------- */

static bool value_wanted(const sb_value *v)
{
    return v->producer != SB_NONE || v->n_uses > 0 || v->is_input ||
           v->is_output || v->is_constant || v->is_capture;
}

static sb_status clone_value(cloner *c, sb_value_id id)
{
    const sb_value *from = sb_graph_value(c->from, id);
    sb_value_id copy = SB_NONE;

    c->value_of[id] = SB_NONE;
    if (!value_wanted(from))
        return SB_OK;
    SB_TRY(sb_graph_add_value(c->to, from->name, &copy));
    sb_value *v = sb_graph_value(c->to, copy);
    c->value_of[id] = copy;
    v->type = from->type;
    v->origin = from->origin;
    if (from->is_constant) {
        v->constant = sb_tensor_share(&from->constant);
        v->is_constant = true;
    }
    SB_TRY(copy_extra(c->to, &from->extra, &v->extra));
    SB_TRY(copy_extra(c->to, &from->const_extra, &v->const_extra));
    SB_TRY(copy_bytes(c->to, from->denoted_type, &v->denoted_type));
    return copy_bytes(c->to, from->opaque_type, &v->opaque_type);
}

static sb_status map_ids(const cloner *c, const sb_value_id *ids, size_t n,
                         sb_value_id **out)
{
    sb_value_id *copy = sb_arena_alloc(c->to->arena, n, sizeof *copy);

    if (!copy)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++)
        copy[i] = ids[i] == SB_NONE ? SB_NONE : c->value_of[ids[i]];
    *out = copy;
    return SB_OK;
}

static sb_status clone_node(cloner *c, const sb_node *from)
{
    sb_value_id *inputs = NULL, *outputs = NULL;
    sb_node_id id = SB_NONE;
    sb_attr *attrs = sb_arena_alloc(c->to->arena, from->n_attrs, sizeof *attrs);

    if (!attrs)
        return SB_NO_MEMORY;
    SB_TRY(map_ids(c, from->inputs, from->n_in + from->n_implicit, &inputs));
    SB_TRY(map_ids(c, from->outputs, from->n_out, &outputs));
    for (uint32_t i = 0; i < from->n_attrs; i++)
        SB_TRY(copy_attr(c->to, &from->attrs[i], &attrs[i]));
    sb_node_spec spec = {
        .op = from->op,
        .domain = from->domain,
        .name = from->name,
        .module = from->module,
        .inputs = inputs,
        .n_in = from->n_in,
        .implicit = inputs + from->n_in,
        .n_implicit = from->n_implicit,
        .outputs = outputs,
        .n_out = from->n_out,
        .attrs = attrs,
        .n_attrs = from->n_attrs,
        .position = from->position,
    };
    SB_TRY(sb_graph_add_node(c->to, &spec, &id));
    sb_node *node = sb_graph_node(c->to, id);
    node->origin = from->origin;
    SB_TRY(copy_text(c->to, from->overload, &node->overload));
    return copy_extra(c->to, &from->extra, &node->extra);
}

static sb_status clone_contents(cloner *c)
{
    const sb_graph *from = c->from;
    sb_graph *to = c->to;

    for (size_t i = 0; i < from->n_values; i++)
        SB_TRY(clone_value(c, (sb_value_id)i));
    for (size_t i = 0; i < from->n_captures; i++)
        SB_TRY(sb_graph_add_capture(to, c->value_of[from->captures[i]]));
    for (size_t i = 0; i < from->n_inputs; i++)
        SB_TRY(sb_graph_add_input(to, c->value_of[from->inputs[i]]));
    for (size_t i = 0; i < from->n_nodes; i++)
        if (!from->nodes[i].dead)
            SB_TRY(clone_node(c, &from->nodes[i]));
    for (size_t i = 0; i < from->n_outputs; i++)
        SB_TRY(sb_graph_add_output(to, c->value_of[from->outputs[i]]));
    to->last_position = from->last_position;
    return copy_extra(to, &from->extra, &to->extra);
}

/* ---- sorted ------------------------------------------------------------- */

static sb_status clone_once(cloner *c, sb_value_id id)
{
    return id == SB_NONE || c->value_of[id] != SB_NONE ? SB_OK
                                                       : clone_value(c, id);
}

/* A node behind its values, which others may have brought already. */
static sb_status clone_with_values(cloner *c, const sb_node *node)
{
    for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++)
        SB_TRY(clone_once(c, node->inputs[i]));
    for (uint32_t i = 0; i < node->n_out; i++)
        SB_TRY(clone_once(c, node->outputs[i]));
    return clone_node(c, node);
}

static sb_status clone_in_order(cloner *c, const sb_node_id *order, size_t n)
{
    const sb_graph *from = c->from;
    sb_graph *to = c->to;

    for (size_t i = 0; i < from->n_values; i++)
        c->value_of[i] = SB_NONE;
    for (size_t i = 0; i < from->n_inputs; i++) {
        SB_TRY(clone_once(c, from->inputs[i]));
        SB_TRY(sb_graph_add_input(to, c->value_of[from->inputs[i]]));
    }
    for (size_t k = 0; k < n; k++) {
        SB_TRY(clone_with_values(c, &from->nodes[order[k]]));
        to->nodes[to->n_nodes - 1].position = k + 1;
    }
    for (size_t i = 0; i < from->n_outputs; i++) {
        SB_TRY(clone_once(c, from->outputs[i]));
        SB_TRY(sb_graph_add_output(to, c->value_of[from->outputs[i]]));
    }
    to->last_position = n + 1;
    return copy_extra(to, &from->extra, &to->extra);
}

static sb_status clone_sorted(cloner *c)
{
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(c->from, &order, &n));
    sb_status status = clone_in_order(c, order, n);
    sb_free(c->to->ctx, order);
    return status;
}

static sb_status clone_graph(const sb_graph *from, sb_graph *to)
{
    cloner c = {.from = from, .to = to};

    c.value_of = sb_alloc(to->ctx, from->n_values, sizeof *c.value_of);
    if (!c.value_of)
        return SB_NO_MEMORY;
    sb_status status = clone_contents(&c);
    sb_free(to->ctx, c.value_of);
    return status;
}

static sb_status clone_model_facts(const sb_graph *from, sb_graph *to)
{
    to->next_name = from->next_name;
    to->ir_version = from->ir_version;
    to->model_version = from->model_version;
    to->file_opset = from->file_opset;
    to->file_sparse = from->file_sparse;
    to->part = from->part;
    to->parts = from->parts;
    to->n_model_props = from->n_model_props;
    SB_TRY(copy_text(to, from->producer_name, &to->producer_name));
    SB_TRY(copy_text(to, from->producer_version, &to->producer_version));
    SB_TRY(copy_text(to, from->model_domain, &to->model_domain));
    SB_TRY(copy_text(to, from->model_doc, &to->model_doc));
    SB_TRY(copy_props(to, from->model_props, from->n_model_props,
                      &to->model_props));
    SB_TRY(copy_bytes(to, from->unknown_model, &to->unknown_model));
    to->opsets = sb_arena_alloc(to->arena, from->n_opsets, sizeof *to->opsets);
    if (!to->opsets)
        return SB_NO_MEMORY;
    to->n_opsets = from->n_opsets;
    for (size_t i = 0; i < from->n_opsets; i++) {
        to->opsets[i].version = from->opsets[i].version;
        SB_TRY(copy_text(to, from->opsets[i].domain, &to->opsets[i].domain));
    }
    /* Symbols keep their numbers, so that shapes can be copied as they are. */
    for (size_t i = 0; i < from->n_symbols; i++) {
        sb_dim d = 0;
        SB_TRY(sb_graph_symbol(to, from->symbols[i], &d));
        assert(sb_dim_symbol_index(d) == (int64_t)i);
    }
    return SB_OK;
}

/* `value_of`: NULL, or gets the ID of each value in the copy, SB_NONE if it was
 * left out. */
static sb_status clone_root(sb_ctx *ctx, const sb_graph *graph, bool sorted,
                            sb_graph **out, sb_value_id **value_of)
{
    cloner c = {.from = graph};
    sb_graph *to = NULL;

    assert(!graph->parent);
    SB_TRY(sb_graph_create(ctx, graph->name, &to));
    c.to = to;
    sb_status status = clone_model_facts(graph, to);
    if (status == SB_OK && !sorted)
        status = clone_graph(graph, to);
    if (status == SB_OK && sorted) {
        c.value_of = sb_alloc(to->ctx, graph->n_values, sizeof *c.value_of);
        status = c.value_of ? clone_sorted(&c) : SB_NO_MEMORY;
        if (status == SB_OK && value_of)
            *value_of = c.value_of;
        else
            sb_free(to->ctx, c.value_of);
    }
    if (status != SB_OK) {
        sb_graph_free(to);
        return status;
    }
    *out = to;
    return SB_OK;
}

sb_status sb_graph_clone(const sb_graph *graph, sb_graph **out)
{
    return clone_root(graph->ctx, graph, false, out, NULL);
}

sb_status sb_graph_clone_into(sb_ctx *ctx, const sb_graph *graph,
                              sb_graph **out)
{
    return clone_root(ctx, graph, false, out, NULL);
}

sb_status sb_graph_clone_sorted(const sb_graph *graph, sb_graph **out)
{
    return clone_root(graph->ctx, graph, true, out, NULL);
}

sb_status sb_graph_clone_sorted_ids(const sb_graph *graph, sb_graph **out,
                                    sb_value_id **value_of)
{
    return clone_root(graph->ctx, graph, true, out, value_of);
}

/* ---- a part ------------------------------------------------------------- */

sb_status sb_graph_clone_part(const sb_graph *graph, const sb_graph_part *part,
                              sb_graph **out)
{
    cloner c = {.from = graph, .value_of = part->value_of};

    assert(!graph->parent);
    for (size_t i = 0; i < graph->n_values; i++)
        part->value_of[i] = SB_NONE;
    SB_TRY(sb_graph_create(graph->ctx, graph->name, &c.to));
    sb_status status = clone_model_facts(graph, c.to);
    for (size_t i = 0; i < part->n && status == SB_OK; i++)
        status = clone_with_values(&c, &graph->nodes[part->nodes[i]]);
    c.to->last_position = graph->last_position;
    if (status == SB_OK)
        *out = c.to;
    else
        sb_graph_free(c.to);
    return status;
}

sb_node_id sb_graph_part_node(const sb_graph_part *part, sb_node_id id)
{
    size_t lo = 0, hi = part ? part->n : 0;

    if (!part)
        return id;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (part->nodes[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < part->n && part->nodes[lo] == id ? (sb_node_id)lo : SB_NONE;
}
