/* Changing graphs: inputs, names, attributes, removal.
 *
 * Two lists must stay true through every change: the uses of each value, and
 * the captures of each sub-graph, whose names follow the outer values. */
#include <assert.h>
#include <string.h>

#include "graph/graph_internal.h"

/* ---- uses --------------------------------------------------------------- */

static bool use_is(const sb_use *use, sb_node_id node, uint32_t input)
{
    return use->node == node && use->input == input;
}

/* Nodes are mostly added in order, so that most lists are sorted: half by half
 * at first.  Otherwise from both ends, where most changes are. */
static uint32_t find_use(const sb_value *v, sb_node_id node, uint32_t input)
{
    uint32_t lo = 0, hi = v->n_uses;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const sb_use *use = &v->uses[mid];
        if (use->node < node || (use->node == node && use->input < input))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < v->n_uses && use_is(&v->uses[lo], node, input))
        return lo;
    for (uint32_t i = 0; i < v->n_uses; i++) {
        uint32_t back = v->n_uses - 1 - i;
        if (use_is(&v->uses[back], node, input))
            return back;
        if (use_is(&v->uses[i], node, input))
            return i;
    }
    assert(false && "every input is in the use list of its value");
    return 0;
}

static void remove_use(sb_graph *g, sb_value_id value, sb_node_id node,
                       uint32_t input)
{
    if (value == SB_NONE)
        return;
    sb_value *v = sb_graph_value(g, value);
    uint32_t at = find_use(v, node, input);
    v->n_uses--;
    if (at >= v->n_uses / 2) {
        memmove(v->uses + at, v->uses + at + 1,
                (v->n_uses - at) * sizeof *v->uses);
        return;
    }
    /* The shorter side moves; the arena does not want the place back. */
    memmove(v->uses + 1, v->uses, at * sizeof *v->uses);
    v->uses++;
    v->cap_uses--;
}

/* Takes inputs [begin, end) out of a node, moving the later ones down. */
static void cut_inputs(sb_graph *g, sb_node_id id, uint32_t begin, uint32_t end)
{
    sb_node *node = sb_graph_node(g, id);
    uint32_t n = node->n_in + node->n_implicit;

    for (uint32_t i = begin; i < end; i++)
        remove_use(g, node->inputs[i], id, i);
    for (uint32_t i = end; i < n; i++) {
        sb_value_id v = node->inputs[i];
        if (v != SB_NONE) {
            uint32_t at = find_use(sb_graph_value(g, v), id, i);
            g->values[v].uses[at].input = i - (end - begin);
        }
        node->inputs[i - (end - begin)] = v;
    }
}

/* Everything that reads `from` reads `to`; room for the uses is there. */
static void move_uses(sb_graph *g, sb_value_id from, sb_value_id to)
{
    sb_value *a = sb_graph_value(g, from);
    sb_value *b = sb_graph_value(g, to);

    for (uint32_t i = 0; i < a->n_uses; i++) {
        sb_use use = a->uses[i];
        g->nodes[use.node].inputs[use.input] = to;
        b->uses[b->n_uses++] = use;
    }
    a->n_uses = 0;
}

static void take_origin(sb_graph *g, sb_value_id from, sb_value_id to)
{
    if (g->values[from].origin != 0)
        g->values[to].origin = g->values[from].origin;
    g->values[from].origin = 0;
}

static void replace_output(sb_graph *g, sb_value_id from, sb_value_id to)
{
    if (!g->values[from].is_output)
        return;
    for (size_t i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == from)
            g->outputs[i] = to;
    g->values[from].is_output = false;
    g->values[to].is_output = true;
}

/* ---- sub-graphs and captures -------------------------------------------- */

sb_graph *sb_node_body(const sb_node *node, size_t i)
{
    for (uint32_t a = 0; a < node->n_attrs; a++) {
        const sb_attr *attr = &node->attrs[a];
        size_t n = attr->type == SB_ATTR_GRAPH    ? 1
                   : attr->type == SB_ATTR_GRAPHS ? attr->n
                                                  : 0;
        if (i < n)
            return attr->graphs[i];
        i -= n;
    }
    return NULL;
}

sb_graph *sb_node_capture(const sb_node *node, uint32_t k, sb_value_id *inner)
{
    size_t left = k;
    sb_graph *body = NULL;

    for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++) {
        if (left < body->n_captures) {
            *inner = body->captures[left];
            return body;
        }
        left -= body->n_captures;
    }
    *inner = SB_NONE;
    return NULL;
}

sb_status sb_graph_implicit_inputs(sb_graph *g, const sb_attr *attrs, size_t n,
                                   sb_value_id **out, size_t *n_out)
{
    sb_attr *list = sb_arena_copy(g->arena, attrs, n * sizeof *attrs);
    sb_node node = {.attrs = list, .n_attrs = (uint32_t)n};
    const sb_graph *body = NULL;
    size_t count = 0;

    if (!list)
        return SB_NO_MEMORY;
    for (size_t i = 0; (body = sb_node_body(&node, i)) != NULL; i++)
        count += body->n_captures;
    sb_value_id *ids = sb_arena_alloc(g->arena, count, sizeof *ids);
    if (!ids)
        return SB_NO_MEMORY;
    for (uint32_t k = 0; k < count; k++) {
        sb_value_id inner = SB_NONE;
        body = sb_node_capture(&node, k, &inner);
        ids[k] = sb_graph_find_value(g, body->values[inner].name);
        if (ids[k] == SB_NONE)
            return sb_fail(g->ctx, SB_BAD_MODEL,
                           "graph '%s': a sub-graph reads '%s', which is not "
                           "there",
                           g->name, body->values[inner].name);
    }
    *out = ids;
    *n_out = count;
    return SB_OK;
}

static sb_status rename_free(sb_graph *g, sb_value_id id, const char *name);

/* The value that `id` of sub-graph `g` stands for is now called `name`. */
static sb_status rename_capture(sb_graph *g, sb_value_id id, const char *name)
{
    sb_value_id holder = sb_graph_find_value(g, name);

    if (holder == id)
        return SB_OK;
    if (holder == SB_NONE)
        return rename_free(g, id, name);
    if (g->values[holder].is_capture) {
        /* Two captures of one outer value: the second takes over, the first
         * stays without consumers. */
        SB_TRY(sb_graph_reserve_uses(g, holder, g->values[id].n_uses));
        move_uses(g, id, holder);
        replace_output(g, id, holder);
        return SB_OK;
    }
    char *other = sb_graph_fresh_name(g, name);
    if (!other)
        return SB_NO_MEMORY;
    SB_TRY(rename_free(g, holder, other));
    return rename_free(g, id, name);
}

/* Carries the name of a value into the sub-graphs that capture it, from its
 * use number `first` on. */
static sb_status spread_name(sb_graph *g, sb_value_id id, uint32_t first)
{
    /* The list may change when captures are merged further in, but only in
     * sub-graphs: `g` itself is not touched. */
    for (uint32_t i = first; i < g->values[id].n_uses; i++) {
        sb_use use = g->values[id].uses[i];
        const sb_node *node = sb_graph_node(g, use.node);
        sb_value_id inner = SB_NONE;
        if (use.input < node->n_in)
            continue;
        sb_graph *body = sb_node_capture(node, use.input - node->n_in, &inner);
        if (body)
            SB_TRY(rename_capture(body, inner, g->values[id].name));
    }
    return SB_OK;
}

/* `name` is in the arena and free in `g`. */
static sb_status rename_free(sb_graph *g, sb_value_id id, const char *name)
{
    SB_TRY(sb_graph_put_name(g, name, id));
    g->values[id].name = name;
    return spread_name(g, id, 0);
}

sb_status sb_graph_rename_value(sb_graph *g, sb_value_id value,
                                const char *name)
{
    sb_value_id holder = sb_graph_find_value(g, name);

    assert(!g->values[value].is_capture);
    if (holder == value)
        return SB_OK;
    if (holder != SB_NONE)
        return sb_fail(g->ctx, SB_BAD_MODEL,
                       "graph '%s': two values would be named '%s'", g->name,
                       name);
    char *copy = sb_arena_str(g->arena, name);
    return copy ? rename_free(g, value, copy) : SB_NO_MEMORY;
}

sb_status sb_graph_claim_name(sb_graph *g, sb_value_id value, const char *name)
{
    sb_value_id holder = sb_graph_find_value(g, name);

    if (holder != SB_NONE) {
        const sb_value *v = sb_graph_value(g, holder);
        if (holder == value || v->n_uses > 0 || v->producer != SB_NONE ||
            v->is_input || v->is_output || v->is_capture)
            return SB_OK;
        char *other = sb_graph_fresh_name(g, name);
        if (!other)
            return SB_NO_MEMORY;
        SB_TRY(rename_free(g, holder, other));
        take_origin(g, holder, value);
    }
    return sb_graph_rename_value(g, value, name);
}

/* Implicit input `k` goes, and the capture that it feeds. */
static void drop_capture(sb_graph *g, sb_node_id id, uint32_t k)
{
    sb_node *node = sb_graph_node(g, id);
    sb_value_id inner = SB_NONE;
    sb_graph *body = sb_node_capture(node, k, &inner);
    size_t at = 0;

    while (body->captures[at] != inner)
        at++;
    body->n_captures--;
    memmove(body->captures + at, body->captures + at + 1,
            (body->n_captures - at) * sizeof *body->captures);
    body->values[inner].is_capture = false;
    cut_inputs(g, id, node->n_in + k, node->n_in + k + 1);
    node->n_implicit--;
}

void sb_graph_drop_unused_captures(sb_graph *g, sb_node_id id)
{
    const sb_node *node = sb_graph_node(g, id);

    for (uint32_t k = node->n_implicit; k-- > 0;) {
        sb_value_id inner = SB_NONE;
        const sb_graph *body = sb_node_capture(node, k, &inner);
        if (body->values[inner].n_uses == 0 && !body->values[inner].is_output)
            drop_capture(g, id, k);
    }
}

/* ---- inputs and values -------------------------------------------------- */

sb_status sb_graph_set_input(sb_graph *g, sb_node_id node, uint32_t input,
                             sb_value_id value)
{
    sb_node *p = sb_graph_node(g, node);
    sb_value_id old = p->inputs[input];

    assert(input < p->n_in + p->n_implicit);
    assert(input < p->n_in || value != SB_NONE);
    if (old == value)
        return SB_OK;
    if (value != SB_NONE)
        SB_TRY(sb_graph_reserve_uses(g, value, 1));
    if (input >= p->n_in) {
        sb_value_id inner = SB_NONE;
        sb_graph *body = sb_node_capture(p, input - p->n_in, &inner);
        SB_TRY(rename_capture(body, inner, g->values[value].name));
    }
    remove_use(g, old, node, input);
    p->inputs[input] = value;
    if (value != SB_NONE) {
        sb_value *v = sb_graph_value(g, value);
        v->uses[v->n_uses++] = (sb_use){node, input};
    }
    return SB_OK;
}

/* What is known of `from` and not of `to`. */
static void merge_type(sb_type *to, const sb_type *from)
{
    if (to->dtype == SB_DTYPE_NONE)
        to->dtype = from->dtype;
    if (to->shape.rank < 0)
        to->shape = from->shape;
    if (to->shape.rank != from->shape.rank)
        return;
    for (int i = 0; i < to->shape.rank; i++)
        if (to->shape.dim[i] == SB_DIM_UNKNOWN)
            to->shape.dim[i] = from->shape.dim[i];
}

/* `to` takes the name and place of the graph output `from`. */
static sb_status take_output(sb_graph *g, sb_value_id from, sb_value_id to)
{
    const char *name = g->values[from].name;
    char *fresh = sb_graph_fresh_name(g, name);

    if (!fresh)
        return SB_NO_MEMORY;
    SB_TRY(sb_graph_put_name(g, fresh, from));
    g->values[from].name = fresh;
    SB_TRY(sb_graph_put_name(g, name, to));
    g->values[to].name = name;
    replace_output(g, from, to);
    merge_type(&g->values[to].type, &g->values[from].type);
    g->values[to].extra = g->values[from].extra;
    take_origin(g, from, to);
    return SB_OK;
}

sb_status sb_graph_replace_value(sb_graph *g, sb_value_id from, sb_value_id to,
                                 bool *done)
{
    const sb_value *a = sb_graph_value(g, from);
    const sb_value *b = sb_graph_value(g, to);

    *done = false;
    if (a->is_output && from != to &&
        (b->is_input || b->is_constant || b->is_capture || b->is_output))
        return SB_OK;
    *done = true;
    if (from == to)
        return SB_OK;
    SB_TRY(sb_graph_reserve_uses(g, to, a->n_uses));
    /* With a new name for all that read it, else for those that now do. */
    uint32_t first = a->is_output ? 0 : b->n_uses;
    if (a->is_output)
        SB_TRY(take_output(g, from, to));
    move_uses(g, from, to);
    return spread_name(g, to, first);
}

void sb_graph_remove_node(sb_graph *g, sb_node_id node)
{
    sb_node *p = sb_graph_node(g, node);

    if (p->dead)
        return;
    for (uint32_t i = 0; i < p->n_in + p->n_implicit; i++)
        remove_use(g, p->inputs[i], node, i);
    for (uint32_t i = 0; i < p->n_out; i++)
        if (p->outputs[i] != SB_NONE)
            g->values[p->outputs[i]].producer = SB_NONE;
    p->n_in = p->n_implicit = p->n_out = 0;
    p->dead = true;
}

static bool value_is_unused(const sb_value *v)
{
    return v->producer == SB_NONE && v->n_uses == 0 && !v->is_input &&
           !v->is_output && !v->is_capture;
}

void sb_graph_trim(sb_graph *g)
{
    while (g->n_nodes > 0 && g->nodes[g->n_nodes - 1].dead)
        g->n_nodes--;
    while (g->n_values > 0 && value_is_unused(&g->values[g->n_values - 1]))
        sb_tensor_drop(&g->values[--g->n_values].constant);
}

/* ---- attributes --------------------------------------------------------- */

const sb_attr *sb_node_attr(const sb_node *node, const char *name)
{
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) == 0)
            return &node->attrs[i];
    return NULL;
}

sb_status sb_graph_set_attr(sb_graph *g, sb_node_id node, const sb_attr *attr)
{
    sb_node *p = sb_graph_node(g, node);

    for (uint32_t i = 0; i < p->n_attrs; i++) {
        if (strcmp(p->attrs[i].name, attr->name) == 0) {
            const char *name = p->attrs[i].name;
            p->attrs[i] = *attr;
            p->attrs[i].name = name;
            return SB_OK;
        }
    }
    sb_attr *attrs = sb_arena_alloc(g->arena, p->n_attrs + 1u, sizeof *attrs);
    char *name = sb_arena_str(g->arena, attr->name);
    if (!attrs || !name)
        return SB_NO_MEMORY;
    if (p->n_attrs)
        memcpy(attrs, p->attrs, p->n_attrs * sizeof *attrs);
    attrs[p->n_attrs] = *attr;
    attrs[p->n_attrs].name = name;
    p->attrs = attrs;
    p->n_attrs++;
    return SB_OK;
}

sb_status sb_graph_set_attr_int(sb_graph *g, sb_node_id node, const char *name,
                                int64_t value)
{
    sb_attr attr = {.name = name, .type = SB_ATTR_INT, .i = value};

    return sb_graph_set_attr(g, node, &attr);
}

sb_status sb_graph_set_attr_ints(sb_graph *g, sb_node_id node, const char *name,
                                 const int64_t *v, size_t n)
{
    sb_attr attr = {.name = name, .type = SB_ATTR_INTS, .n = n};

    attr.ints = sb_arena_copy(g->arena, v, n * sizeof *v);
    if (!attr.ints)
        return SB_NO_MEMORY;
    return sb_graph_set_attr(g, node, &attr);
}

void sb_graph_remove_attr(sb_graph *g, sb_node_id node, const char *name)
{
    sb_node *p = sb_graph_node(g, node);

    for (uint32_t i = 0; i < p->n_attrs; i++) {
        if (strcmp(p->attrs[i].name, name) == 0) {
            p->n_attrs--;
            memmove(p->attrs + i, p->attrs + i + 1,
                    (p->n_attrs - i) * sizeof *p->attrs);
            return;
        }
    }
}
