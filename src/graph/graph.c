/* Building graphs: values, inputs, outputs, constants, captures, nodes.
 *
 * Small things live in the arena; arrays that grow as a whole (values, nodes)
 * come from the heap so that growing leaves no holes.  Every function that can
 * fail does all that may fail before it changes anything. */
#include "graph/graph.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph_internal.h"
#include "graph/op.h"

enum { OPSETS_MOST = 1000 };

/* ---- life --------------------------------------------------------------- */

static void init_empty(sb_graph *g, sb_ctx *ctx)
{
    g->ctx = ctx;
    sb_map_init(&g->names, ctx);
    sb_map_init(&g->sub_names, ctx);
    sb_map_init(&g->symbol_ids, ctx);
    g->name = "";
    g->producer_name = g->producer_version = "";
    g->model_domain = g->model_doc = "";
}

/* Everything of one graph that is not in the arena. */
static void free_arrays(sb_graph *g)
{
    for (size_t i = 0; i < g->n_values; i++)
        sb_tensor_drop(&g->values[i].constant);
    sb_map_free(&g->names);
    sb_map_free(&g->sub_names);
    sb_map_free(&g->symbol_ids);
    sb_free(g->ctx, g->values);
    sb_free(g->ctx, g->nodes);
    sb_free(g->ctx, g->inputs);
    sb_free(g->ctx, g->outputs);
    sb_free(g->ctx, g->captures);
    sb_free(g->ctx, g->symbols);
}

void sb_graph_free(sb_graph *graph)
{
    if (!graph)
        return;
    assert(!graph->parent);
    for (size_t i = 0; i < graph->n_subs; i++)
        free_arrays(graph->subs[i]);
    for (size_t i = 0; i < graph->n_kept; i++)
        sb_buf_unref(graph->kept[i]);
    sb_free(graph->ctx, graph->subs);
    sb_free(graph->ctx, graph->kept);
    free_arrays(graph);
    if (graph->arena)
        sb_arena_free(graph->arena);
    sb_free(graph->ctx, graph->arena);
    sb_free(graph->ctx, graph);
}

sb_status sb_graph_create(sb_ctx *ctx, const char *name, sb_graph **out)
{
    sb_graph *g = sb_alloc(ctx, 1, sizeof *g);

    if (!g)
        return SB_NO_MEMORY;
    init_empty(g, ctx);
    g->arena = sb_alloc(ctx, 1, sizeof *g->arena);
    if (g->arena) {
        sb_arena_init(g->arena, ctx);
        g->name = sb_arena_str(g->arena, name ? name : "");
    }
    if (!g->arena || !g->name) {
        sb_graph_free(g);
        return SB_NO_MEMORY;
    }
    *out = g;
    return SB_OK;
}

sb_graph *sb_graph_root(const sb_graph *g)
{
    /* The tree is walked upward only, so the cast away of const below cannot
     * reach an object that was const to begin with. */
    union {
        const sb_graph *in;
        sb_graph *out;
    } up = {g};

    while (up.in->parent)
        up.in = up.in->parent;
    return up.out;
}

sb_status sb_graph_create_sub(sb_graph *parent, const char *name,
                              sb_graph **out)
{
    sb_graph *root = sb_graph_root(parent);
    int depth = 1;

    for (const sb_graph *g = parent; g->parent; g = g->parent)
        depth++;
    if (depth > SB_MAX_NESTING)
        return sb_fail(parent->ctx, SB_BAD_MODEL,
                       "graph '%s': sub-graphs nested %d deep, want at most %d",
                       name ? name : "", depth, SB_MAX_NESTING);
    SB_TRY(sb_grow(root->ctx, &root->subs, &root->cap_subs, root->n_subs + 1,
                   sizeof *root->subs));
    sb_graph *g = sb_arena_alloc(parent->arena, 1, sizeof *g);
    if (!g)
        return SB_NO_MEMORY;
    init_empty(g, parent->ctx);
    g->arena = parent->arena;
    g->parent = parent;
    g->name = sb_arena_str(g->arena, name ? name : "");
    if (!g->name)
        return SB_NO_MEMORY;
    root->subs[root->n_subs++] = g;
    *out = g;
    return SB_OK;
}

/* ---- values ------------------------------------------------------------- */

sb_value_id sb_graph_find_value(const sb_graph *g, const char *name)
{
    uint32_t id = sb_map_get(&g->names, name);

    /* The map also holds names of values that gave them up, or are gone. */
    if (id == SB_MAP_NONE || id >= g->n_values ||
        strcmp(g->values[id].name, name) != 0)
        return SB_NONE;
    return id;
}

sb_node *sb_graph_producer(const sb_graph *g, sb_value_id value)
{
    sb_node_id id = value == SB_NONE ? SB_NONE : g->values[value].producer;

    return id == SB_NONE ? NULL : &g->nodes[id];
}

static bool taken_anywhere(const sb_graph *root, const char *name)
{
    return sb_graph_find_value(root, name) != SB_NONE ||
           sb_map_get(&root->sub_names, name) != SB_MAP_NONE;
}

sb_status sb_graph_put_name(sb_graph *g, const char *name, sb_value_id id)
{
    if (g->parent)
        SB_TRY(sb_map_put(&sb_graph_root(g)->sub_names, name, 0));
    return sb_map_put(&g->names, name, id);
}

/* Fresh names are unique over all sub-graphs, since ONNX forbids a sub-graph
 * to hide a name of the enclosing one. */
char *sb_graph_fresh_name(sb_graph *g, const char *stem)
{
    sb_graph *root = sb_graph_root(g);
    char digits[32];
    sb_str text;
    char *name = NULL;

    sb_str_init(&text, g->ctx);
    do {
        sb_str_clear(&text);
        sb_str_add(&text, stem);
        (void)snprintf(digits, sizeof digits, "_%llu",
                       (unsigned long long)root->next_name++);
        sb_str_add(&text, digits);
    } while (!text.failed && taken_anywhere(root, sb_str_text(&text)));
    if (!text.failed)
        name = sb_arena_str(g->arena, sb_str_text(&text));
    sb_str_free(&text);
    return name;
}

/* `name` is in the arena and free. */
static sb_status add_named(sb_graph *g, const char *name, sb_value_id *out)
{
    if (g->n_values >= SB_NONE - 1)
        return sb_fail(g->ctx, SB_UNSUPPORTED, "graph '%s': too many values",
                       g->name);
    SB_TRY(sb_grow(g->ctx, &g->values, &g->cap_values, g->n_values + 1,
                   sizeof *g->values));
    SB_TRY(sb_graph_put_name(g, name, (uint32_t)g->n_values));
    sb_value *v = &g->values[g->n_values];
    *v = (sb_value){.name = name, .producer = SB_NONE};
    v->type.shape.rank = -1;
    *out = (sb_value_id)g->n_values++;
    return SB_OK;
}

sb_status sb_graph_add_value(sb_graph *g, const char *name, sb_value_id *out)
{
    if (!name)
        return sb_graph_add_value_like(g, "v", out);
    if (sb_graph_find_value(g, name) != SB_NONE)
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "graph '%s': two values are named '%s'", g->name, name);
    char *copy = sb_arena_str(g->arena, name);
    return copy ? add_named(g, copy, out) : SB_NO_MEMORY;
}

sb_status sb_graph_add_value_like(sb_graph *g, const char *stem,
                                  sb_value_id *out)
{
    char *name = sb_graph_fresh_name(g, stem);

    return name ? add_named(g, name, out) : SB_NO_MEMORY;
}

/* Writes `name`, with a number behind it from 2 on; is that taken? */
static bool numbered_taken(const sb_graph *root, const char *name, unsigned k,
                           sb_str *text)
{
    sb_str_clear(text);
    if (k < 2)
        sb_str_add(text, name);
    else
        sb_str_addf(text, "%s_%u", name, k);
    return !text->failed && taken_anywhere(root, sb_str_text(text));
}

/* The first number that is free, among few; among many, one that is free behind
 * one that is taken, since looking at all for each new name takes quadratic
 * time. */
static void write_free_name(const sb_graph *root, const char *name,
                            sb_str *text)
{
    enum { FEW = 64 };
    unsigned k = 1, taken = FEW, free_one = 2 * FEW;

    while (k <= FEW && numbered_taken(root, name, k, text))
        k++;
    if (k <= FEW)
        return;
    while (numbered_taken(root, name, free_one, text)) {
        taken = free_one;
        free_one *= 2;
    }
    while (free_one - taken > 1) {
        unsigned middle = taken + (free_one - taken) / 2;
        if (numbered_taken(root, name, middle, text))
            taken = middle;
        else
            free_one = middle;
    }
    (void)numbered_taken(root, name, free_one, text);
}

sb_status sb_graph_add_value_as(sb_graph *g, const char *name, sb_value_id *out)
{
    sb_str text;
    char *copy = NULL;

    sb_str_init(&text, g->ctx);
    write_free_name(sb_graph_root(g), name, &text);
    if (!text.failed)
        copy = sb_arena_str(g->arena, sb_str_text(&text));
    sb_str_free(&text);
    return copy ? add_named(g, copy, out) : SB_NO_MEMORY;
}

static sb_status push_id(sb_graph *g, sb_value_id **list, size_t *n,
                         size_t *cap, sb_value_id id)
{
    SB_TRY(sb_grow(g->ctx, list, cap, *n + 1, sizeof **list));
    (*list)[(*n)++] = id;
    return SB_OK;
}

sb_status sb_graph_add_input(sb_graph *g, sb_value_id value)
{
    sb_value *v = sb_graph_value(g, value);

    if (v->is_input)
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "graph '%s': input '%s' is listed twice", g->name,
                       v->name);
    if (v->producer != SB_NONE || v->is_capture)
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "graph '%s': input '%s' is also made by %s", g->name,
                       v->name, v->is_capture ? "a capture" : "a node");
    SB_TRY(push_id(g, &g->inputs, &g->n_inputs, &g->cap_inputs, value));
    v->is_input = true;
    return SB_OK;
}

void sb_graph_remove_input(sb_graph *g, size_t input)
{
    assert(input < g->n_inputs);
    sb_graph_value(g, g->inputs[input])->is_input = false;
    g->n_inputs--;
    memmove(g->inputs + input, g->inputs + input + 1,
            (g->n_inputs - input) * sizeof *g->inputs);
}

sb_status sb_graph_add_output(sb_graph *g, sb_value_id value)
{
    SB_TRY(push_id(g, &g->outputs, &g->n_outputs, &g->cap_outputs, value));
    sb_graph_value(g, value)->is_output = true;
    return SB_OK;
}

void sb_graph_clear_outputs(sb_graph *g)
{
    for (size_t i = 0; i < g->n_outputs; i++)
        sb_graph_value(g, g->outputs[i])->is_output = false;
    g->n_outputs = 0;
}

sb_status sb_graph_set_constant(sb_graph *g, sb_value_id value,
                                const sb_tensor *t)
{
    sb_value *v = sb_graph_value(g, value);

    assert(t->buf && t->layout == SB_LAYOUT_PLAIN);
    if (v->producer != SB_NONE || v->is_capture)
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "graph '%s': constant '%s' is also made by %s", g->name,
                       v->name, v->is_capture ? "a capture" : "a node");
    sb_tensor old = v->constant;
    v->constant = sb_tensor_share(t);
    v->is_constant = true;
    v->type.dtype = t->dtype;
    v->type.shape.rank = t->rank;
    for (int i = 0; i < t->rank; i++)
        v->type.shape.dim[i] = t->dims[i];
    sb_tensor_drop(&old);
    return SB_OK;
}

sb_status sb_graph_add_constant(sb_graph *g, const char *stem, sb_dtype dtype,
                                int rank, const int64_t *dims,
                                const void *elements, sb_value_id *out)
{
    sb_tensor t = sb_tensor_make(dtype, rank, dims);
    sb_value_id id = SB_NONE;

    SB_TRY(sb_tensor_alloc(g->ctx, &t));
    if (sb_buf_size(t.buf))
        memcpy(t.data, elements, sb_buf_size(t.buf));
    sb_status status = sb_graph_add_value_like(g, stem, &id);
    if (status == SB_OK)
        status = sb_graph_set_constant(g, id, &t);
    sb_tensor_drop(&t);
    if (status == SB_OK)
        *out = id;
    return status;
}

sb_status sb_graph_add_capture(sb_graph *g, sb_value_id inner)
{
    sb_value *v = sb_graph_value(g, inner);

    assert(g->parent && v->producer == SB_NONE);
    assert(!v->is_input && !v->is_constant && !v->is_capture);
    SB_TRY(push_id(g, &g->captures, &g->n_captures, &g->cap_captures, inner));
    v->is_capture = true;
    return SB_OK;
}

sb_status sb_graph_keep_tensors(sb_graph *g, const sb_tensor *t, size_t n,
                                const sb_tensor **out)
{
    sb_graph *root = sb_graph_root(g);
    sb_tensor *copy = sb_arena_copy(g->arena, t, n * sizeof *t);

    if (!copy)
        return SB_NO_MEMORY;
    SB_TRY(sb_grow(root->ctx, &root->kept, &root->cap_kept, root->n_kept + n,
                   sizeof *root->kept));
    for (size_t i = 0; i < n; i++)
        if (t[i].buf)
            root->kept[root->n_kept++] = sb_buf_ref(t[i].buf);
    *out = copy;
    return SB_OK;
}

const char *sb_graph_prop(const sb_graph *graph, const char *key)
{
    for (size_t i = 0; i < graph->n_model_props; i++)
        if (strcmp(graph->model_props[i].key, key) == 0)
            return graph->model_props[i].value;
    return NULL;
}

sb_status sb_graph_add_opset(sb_graph *g, const char *domain, int64_t version)
{
    sb_graph *root = sb_graph_root(g);

    for (size_t i = 0; i < root->n_opsets; i++)
        if (strcmp(root->opsets[i].domain, domain) == 0)
            return SB_OK;
    if (root->n_opsets >= OPSETS_MOST)
        return sb_fail(root->ctx, SB_UNSUPPORTED,
                       "more than %d operator domains", OPSETS_MOST);
    sb_opset *list =
        sb_arena_alloc(root->arena, root->n_opsets + 1, sizeof *list);
    char *copy = sb_arena_str(root->arena, domain);
    if (!list || !copy)
        return SB_NO_MEMORY;
    if (root->n_opsets)
        memcpy(list, root->opsets, root->n_opsets * sizeof *list);
    list[root->n_opsets] = (sb_opset){copy, version};
    root->opsets = list;
    root->n_opsets++;
    return SB_OK;
}

/* ---- nodes -------------------------------------------------------------- */

sb_status sb_graph_reserve_uses(sb_graph *g, sb_value_id value, uint32_t more)
{
    sb_value *v = sb_graph_value(g, value);
    uint64_t want = (uint64_t)v->n_uses + more;
    uint64_t cap = v->cap_uses ? v->cap_uses : 2;

    if (want <= v->cap_uses)
        return SB_OK;
    while (cap < want)
        cap *= 2;
    if (cap > UINT32_MAX)
        return sb_fail(g->ctx, SB_NO_MEMORY, "value '%s' has too many uses",
                       v->name);
    sb_use *uses = sb_arena_alloc(g->arena, (size_t)cap, sizeof *uses);
    if (!uses)
        return SB_NO_MEMORY;
    if (v->n_uses)
        memcpy(uses, v->uses, v->n_uses * sizeof *uses);
    v->uses = uses;
    v->cap_uses = (uint32_t)cap;
    return SB_OK;
}

static sb_status check_output(sb_graph *g, const sb_node_spec *spec,
                              sb_value_id id)
{
    const sb_value *v = sb_graph_value(g, id);
    const char *also = v->is_input      ? "a graph input"
                       : v->is_constant ? "a constant"
                       : v->is_capture  ? "a value of the enclosing graph"
                       : v->producer != SB_NONE ? "made by another node"
                                                : NULL;

    if (!also)
        return SB_OK;
    return sb_fail(g->ctx, SB_BAD_MODEL,
                   "node '%s' (%s): its output '%s' is also %s",
                   spec->name ? spec->name : "", spec->op, v->name, also);
}

/* Links the outputs to node `id`; on failure none is linked. */
static sb_status link_outputs(sb_graph *g, const sb_node_spec *spec,
                              sb_node_id id)
{
    for (size_t i = 0; i < spec->n_out; i++) {
        if (spec->outputs[i] == SB_NONE)
            continue;
        sb_status status = check_output(g, spec, spec->outputs[i]);
        if (status != SB_OK) {
            while (i-- > 0)
                if (spec->outputs[i] != SB_NONE)
                    g->values[spec->outputs[i]].producer = SB_NONE;
            return status;
        }
        g->values[spec->outputs[i]].producer = id;
        g->values[spec->outputs[i]].output = (uint32_t)i;
    }
    return SB_OK;
}

/* Room for one more use of each input; the same value may come many times, so
 * uses are added as we go and taken back on failure. */
static sb_status link_inputs(sb_graph *g, const sb_node *node, sb_node_id id)
{
    uint32_t n = node->n_in + node->n_implicit;

    for (uint32_t i = 0; i < n; i++) {
        if (node->inputs[i] == SB_NONE)
            continue;
        sb_status status = sb_graph_reserve_uses(g, node->inputs[i], 1);
        if (status != SB_OK) {
            while (i-- > 0)
                if (node->inputs[i] != SB_NONE)
                    g->values[node->inputs[i]].n_uses--;
            return status;
        }
        sb_value *v = sb_graph_value(g, node->inputs[i]);
        v->uses[v->n_uses++] = (sb_use){id, i};
    }
    return SB_OK;
}

static const char *copy_or_empty(sb_graph *g, const char *text)
{
    return text && *text ? sb_arena_str(g->arena, text) : "";
}

/* A node in the arena that nothing points at yet. */
static sb_status make_node(sb_graph *g, const sb_node_spec *spec, sb_node *node)
{
    size_t n_in = spec->n_in + spec->n_implicit;

    *node = (sb_node){0};
    node->op = copy_or_empty(g, spec->op);
    node->domain = copy_or_empty(g, spec->domain);
    node->name = copy_or_empty(g, spec->name);
    node->module = copy_or_empty(g, spec->module);
    node->overload = "";
    node->inputs = sb_arena_alloc(g->arena, n_in, sizeof *node->inputs);
    node->outputs =
        sb_arena_alloc(g->arena, spec->n_out, sizeof *node->outputs);
    node->attrs = sb_arena_alloc(g->arena, spec->n_attrs, sizeof *node->attrs);
    if (!node->op || !node->domain || !node->name || !node->module ||
        !node->inputs || !node->outputs || !node->attrs)
        return SB_NO_MEMORY;
    if (spec->n_in)
        memcpy(node->inputs, spec->inputs, spec->n_in * sizeof *node->inputs);
    if (spec->n_implicit)
        memcpy(node->inputs + spec->n_in, spec->implicit,
               spec->n_implicit * sizeof *node->inputs);
    if (spec->n_out)
        memcpy(node->outputs, spec->outputs,
               spec->n_out * sizeof *node->outputs);
    if (spec->n_attrs)
        memcpy(node->attrs, spec->attrs, spec->n_attrs * sizeof *node->attrs);
    node->n_in = (uint32_t)spec->n_in;
    node->n_implicit = (uint32_t)spec->n_implicit;
    node->n_out = (uint32_t)spec->n_out;
    node->n_attrs = (uint32_t)spec->n_attrs;
    return SB_OK;
}

/* Looked up here and not by the ID of a node: rows stay as long as the
 * context. */
static const sb_op_def *added_op(const sb_graph *g, const sb_node *node)
{
    const sb_op_def *row;

    for (size_t i = 0; (row = sb_ctx_row(g->ctx, SB_ROW_OP, i)) != NULL; i++)
        if (strcmp(row->name, node->op) == 0 &&
            strcmp(row->domain, node->domain) == 0)
            return row;
    return NULL;
}

sb_status sb_graph_add_node(sb_graph *g, const sb_node_spec *spec,
                            sb_node_id *out)
{
    sb_node node;
    sb_node_id id = (sb_node_id)g->n_nodes;

    if (g->n_nodes >= SB_NONE - 1 || spec->n_in >= INT32_MAX ||
        spec->n_implicit >= INT32_MAX || spec->n_out >= INT32_MAX ||
        spec->n_attrs >= INT32_MAX)
        return sb_fail(g->ctx, SB_UNSUPPORTED,
                       "node '%s': too many nodes, inputs, outputs or "
                       "attributes",
                       spec->name ? spec->name : "");
    SB_TRY(sb_grow(g->ctx, &g->nodes, &g->cap_nodes, g->n_nodes + 1,
                   sizeof *g->nodes));
    SB_TRY(make_node(g, spec, &node));
    node.added = added_op(g, &node);
    node.position = spec->position;
    if (node.position == 0)
        node.position = g->last_position + 1;
    SB_TRY(link_outputs(g, spec, id));
    sb_status status = link_inputs(g, &node, id);
    if (status != SB_OK) {
        for (size_t i = 0; i < spec->n_out; i++)
            if (spec->outputs[i] != SB_NONE)
                g->values[spec->outputs[i]].producer = SB_NONE;
        return status;
    }
    if (g->last_position < node.position)
        g->last_position = node.position;
    g->nodes[g->n_nodes++] = node;
    if (out)
        *out = id;
    return SB_OK;
}
