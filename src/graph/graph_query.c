/* Questions about whole graphs: order, dead code, symbols, labels. */
#include <string.h>

#include "graph/graph_internal.h"

bool sb_node_is(const sb_node *node, const char *op)
{
    return node->domain[0] == '\0' && strcmp(node->op, op) == 0;
}

const char *sb_node_label(const sb_graph *g, const sb_node *node)
{
    if (node->name[0])
        return node->name;
    for (uint32_t i = 0; i < node->n_out; i++)
        if (node->outputs[i] != SB_NONE)
            return g->values[node->outputs[i]].name;
    return node->op;
}

/* ---- symbols ------------------------------------------------------------ */

sb_status sb_graph_symbol(sb_graph *g, const char *name, sb_dim *out)
{
    sb_graph *root = sb_graph_root(g);
    uint32_t at = sb_map_get(&root->symbol_ids, name);

    if (at == SB_MAP_NONE) {
        at = (uint32_t)root->n_symbols;
        SB_TRY(sb_grow(root->ctx, &root->symbols, &root->cap_symbols,
                       root->n_symbols + 1, sizeof *root->symbols));
        char *copy = sb_arena_str(root->arena, name);
        if (!copy)
            return SB_NO_MEMORY;
        SB_TRY(sb_map_put(&root->symbol_ids, copy, at));
        root->symbols[root->n_symbols++] = copy;
    }
    *out = sb_dim_symbol(at);
    return SB_OK;
}

const char *sb_graph_symbol_name(const sb_graph *g, sb_dim d)
{
    const sb_graph *root = sb_graph_root(g);
    int64_t at = sb_dim_symbol_index(d);

    if (at < 0 || (uint64_t)at >= root->n_symbols)
        return NULL;
    return root->symbols[at];
}

/* ---- order -------------------------------------------------------------- */

/* Kahn's algorithm with a heap, so that of all nodes that could come next the
 * one with the lowest (position, ID) does. */
typedef struct {
    const sb_graph *g;
    sb_node_id *heap;
    size_t n_heap;
    uint32_t *waiting; /* inputs of a node that are not there yet */
    sb_node_id *order;
    size_t n_order;
} sorter;

static bool comes_before(const sb_graph *g, sb_node_id a, sb_node_id b)
{
    uint64_t pa = g->nodes[a].position, pb = g->nodes[b].position;

    return pa != pb ? pa < pb : a < b;
}

static void heap_push(sorter *s, sb_node_id id)
{
    size_t i = s->n_heap++;

    while (i > 0 && comes_before(s->g, id, s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = id;
}

static sb_node_id heap_pop(sorter *s)
{
    sb_node_id top = s->heap[0];
    sb_node_id last = s->heap[--s->n_heap];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n_heap)
            break;
        if (child + 1 < s->n_heap &&
            comes_before(s->g, s->heap[child + 1], s->heap[child]))
            child++;
        if (!comes_before(s->g, s->heap[child], last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static void count_waiting(sorter *s)
{
    for (size_t id = 0; id < s->g->n_nodes; id++) {
        const sb_node *node = &s->g->nodes[id];
        if (node->dead)
            continue;
        for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++)
            if (sb_graph_producer(s->g, node->inputs[i]))
                s->waiting[id]++;
        if (s->waiting[id] == 0)
            heap_push(s, (sb_node_id)id);
    }
}

static void run_sorter(sorter *s)
{
    count_waiting(s);
    while (s->n_heap > 0) {
        sb_node_id id = heap_pop(s);
        const sb_node *node = sb_graph_node(s->g, id);
        s->order[s->n_order++] = id;
        for (uint32_t o = 0; o < node->n_out; o++) {
            if (node->outputs[o] == SB_NONE)
                continue;
            const sb_value *v = sb_graph_value(s->g, node->outputs[o]);
            for (uint32_t u = 0; u < v->n_uses; u++)
                if (--s->waiting[v->uses[u].node] == 0)
                    heap_push(s, v->uses[u].node);
        }
    }
}

/* From any node that waits, going back along inputs that wait must end on a
 * cycle; after as many steps as there are nodes we are on it. */
static sb_status report_cycle(const sorter *s)
{
    const sb_graph *g = s->g;
    sb_node_id at = 0;

    while (g->nodes[at].dead || s->waiting[at] == 0)
        at++;
    for (size_t step = 0; step < g->n_nodes; step++) {
        const sb_node *node = sb_graph_node(g, at);
        for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++) {
            if (!sb_graph_producer(g, node->inputs[i]))
                continue;
            sb_node_id from = g->values[node->inputs[i]].producer;
            if (s->waiting[from] > 0) {
                at = from;
                break;
            }
        }
    }
    const sb_node *node = sb_graph_node(g, at);
    return sb_fail(g->ctx, SB_BAD_MODEL,
                   "graph '%s': node '%s' (%s) needs its own result, the nodes "
                   "form a cycle",
                   g->name, sb_node_label(g, node), node->op);
}

sb_status sb_graph_order(const sb_graph *g, sb_node_id **out, size_t *n)
{
    sorter s = {.g = g};
    size_t live = sb_graph_live_nodes(g);
    sb_status status = SB_NO_MEMORY;

    s.heap = sb_alloc(g->ctx, live, sizeof *s.heap);
    s.order = sb_alloc(g->ctx, live, sizeof *s.order);
    s.waiting = sb_alloc(g->ctx, g->n_nodes, sizeof *s.waiting);
    if (s.heap && s.order && s.waiting) {
        run_sorter(&s);
        status = s.n_order == live ? SB_OK : report_cycle(&s);
    }
    sb_free(g->ctx, s.heap);
    sb_free(g->ctx, s.waiting);
    if (status != SB_OK) {
        sb_free(g->ctx, s.order);
        return status;
    }
    *out = s.order;
    *n = live;
    return SB_OK;
}

size_t sb_graph_live_nodes(const sb_graph *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead;
    return n;
}

/* ---- dead code ---------------------------------------------------------- */

bool sb_graph_node_needed(const sb_graph *g, const sb_node *node)
{
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (node->outputs[i] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(g, node->outputs[i]);
        if (v->n_uses > 0 || v->is_output)
            return true;
    }
    return false;
}

/* Removes `id` and what only it needed, following inputs with a stack of `cap`
 * nodes.  What finds no room there is left to the next round. */
static size_t remove_chain(sb_graph *g, sb_node_id id, sb_node_id *stack,
                           size_t cap)
{
    size_t depth = 0, removed = 0;

    stack[depth++] = id;
    while (depth > 0) {
        const sb_node *node = sb_graph_node(g, stack[--depth]);
        const sb_value_id *inputs = node->inputs;
        uint32_t n = node->n_in + node->n_implicit;
        if (node->dead || sb_graph_node_needed(g, node))
            continue;
        sb_graph_remove_node(g, stack[depth]);
        removed++;
        for (uint32_t i = 0; i < n && depth < cap; i++) {
            const sb_node *from = sb_graph_producer(g, inputs[i]);
            if (from && !sb_graph_node_needed(g, from))
                stack[depth++] = g->values[inputs[i]].producer;
        }
    }
    return removed;
}

size_t sb_graph_remove_dead(sb_graph *g)
{
    size_t removed = 0, round = 1;

    for (size_t id = 0; id < g->n_nodes; id++) {
        const sb_node *node = &g->nodes[id];
        if (node->dead)
            continue;
        for (size_t i = 0; sb_node_body(node, i); i++)
            removed += sb_graph_remove_dead(sb_node_body(node, i));
        sb_graph_drop_unused_captures(g, (sb_node_id)id);
    }
    sb_node_id few[8];
    sb_node_id *many = sb_alloc(g->ctx, g->n_nodes, sizeof *many);
    while (round > 0) {
        round = 0;
        for (size_t id = g->n_nodes; id-- > 0;)
            if (!g->nodes[id].dead && !sb_graph_node_needed(g, &g->nodes[id]))
                round += remove_chain(g, (sb_node_id)id, many ? many : few,
                                      many ? g->n_nodes : SB_COUNT(few));
        removed += round;
    }
    sb_free(g->ctx, many);
    return removed;
}

/* ---- what a model is ----------------------------------------------------- */

sb_status sb_graph_check_whole(const sb_graph *g)
{
    if (g->parts == 0)
        return SB_OK;
    return sb_fail(g->ctx, SB_UNSUPPORTED,
                   "the model was read in part, for rank %zu of a pipeline of "
                   "%zu ranks: nothing else can be done with it",
                   g->part, g->parts);
}

bool sb_name_is_adapter(const char *name)
{
    return strstr(name, ".lora_") != NULL;
}
