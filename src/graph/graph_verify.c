/* sb_graph_verify: every invariant of graph.h, checked from both sides.
 *
 * Called after loading (where it guards against hostile files) and after each
 * pass in builds with assertions (where it guards against us). */
#include <string.h>

#include "graph/graph_internal.h"

typedef struct {
    const sb_graph *g;
    sb_ctx *ctx;
    size_t *first_input; /* node -> index of its first input in `seen` */
    uint8_t *seen;       /* one per input of a live node: is in a use list */
} verifier;

static sb_status verify_ids(const verifier *v, const char *what,
                            const sb_value_id *ids, size_t n, bool optional)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= v->g->n_values && !(optional && ids[i] == SB_NONE))
            return sb_fail(v->ctx, SB_BAD_MODEL,
                           "graph '%s': %s %zu is value %u of %zu", v->g->name,
                           what, i, (unsigned)ids[i], v->g->n_values);
    return SB_OK;
}

static sb_status verify_flag(const verifier *v, const char *what,
                             const sb_value_id *ids, size_t n, size_t offset)
{
    size_t flagged = 0, distinct = 0;

    for (size_t i = 0; i < v->g->n_values; i++) {
        bool flag = false;
        memcpy(&flag, (const char *)&v->g->values[i] + offset, sizeof flag);
        flagged += flag;
    }
    uint8_t *listed = sb_alloc(v->ctx, v->g->n_values, 1);
    if (!listed)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        distinct += !listed[ids[i]];
        listed[ids[i]] = 1;
    }
    sb_free(v->ctx, listed);
    if (flagged == distinct)
        return SB_OK;
    return sb_fail(v->ctx, SB_BAD_MODEL,
                   "graph '%s': %zu values are marked as %s, the list has %zu",
                   v->g->name, flagged, what, distinct);
}

static sb_status verify_lists(const verifier *v)
{
    const sb_graph *g = v->g;

    SB_TRY(verify_ids(v, "input", g->inputs, g->n_inputs, false));
    SB_TRY(verify_ids(v, "output", g->outputs, g->n_outputs, false));
    SB_TRY(verify_ids(v, "capture", g->captures, g->n_captures, false));
    SB_TRY(verify_flag(v, "inputs", g->inputs, g->n_inputs,
                       offsetof(sb_value, is_input)));
    SB_TRY(verify_flag(v, "outputs", g->outputs, g->n_outputs,
                       offsetof(sb_value, is_output)));
    return verify_flag(v, "captures", g->captures, g->n_captures,
                       offsetof(sb_value, is_capture));
}

/* Ids in range, each output's producer is this node. */
static sb_status verify_node(const verifier *v, sb_node_id id)
{
    const sb_graph *g = v->g;
    const sb_node *node = sb_graph_node(g, id);

    if (!node->op || !node->domain || !node->name || !node->module)
        return sb_fail(v->ctx, SB_BAD_MODEL,
                       "graph '%s': node %u lacks its op, domain, name or "
                       "module",
                       g->name, (unsigned)id);
    SB_TRY(verify_ids(v, "a node's input", node->inputs, node->n_in, true));
    SB_TRY(verify_ids(v, "a node's implicit input", node->inputs + node->n_in,
                      node->n_implicit, false));
    SB_TRY(verify_ids(v, "a node's output", node->outputs, node->n_out, true));
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (node->outputs[i] == SB_NONE)
            continue;
        const sb_value *out = sb_graph_value(g, node->outputs[i]);
        if (out->producer != id || out->output != i)
            return sb_fail(v->ctx, SB_BAD_MODEL,
                           "node '%s' (%s): output '%s' has another producer",
                           sb_node_label(g, node), node->op, out->name);
    }
    return SB_OK;
}

static sb_status verify_uses(const verifier *v, sb_value_id id)
{
    const sb_graph *g = v->g;
    const sb_value *value = sb_graph_value(g, id);

    for (uint32_t i = 0; i < value->n_uses; i++) {
        sb_use use = value->uses[i];
        const sb_node *node =
            use.node < g->n_nodes ? sb_graph_node(g, use.node) : NULL;
        if (!node || node->dead || use.input >= node->n_in + node->n_implicit ||
            node->inputs[use.input] != id ||
            v->seen[v->first_input[use.node] + use.input]++)
            return sb_fail(v->ctx, SB_BAD_MODEL,
                           "value '%s': use %u (input %u of node %u) is wrong",
                           value->name, (unsigned)i, (unsigned)use.input,
                           (unsigned)use.node);
    }
    return SB_OK;
}

static sb_status verify_value(const verifier *v, sb_value_id id)
{
    const sb_graph *g = v->g;
    const sb_value *value = sb_graph_value(g, id);
    bool given = value->is_input || value->is_constant || value->is_capture;

    if (!value->name || sb_graph_find_value(g, value->name) != id)
        return sb_fail(v->ctx, SB_BAD_MODEL,
                       "graph '%s': value %u ('%s') cannot be found by name",
                       g->name, (unsigned)id, value->name ? value->name : "");
    SB_TRY(verify_uses(v, id));
    if (value->producer == SB_NONE) {
        if (given || (value->n_uses == 0 && !value->is_output))
            return SB_OK;
        if (value->is_output)
            return sb_fail(v->ctx, SB_BAD_MODEL,
                           "graph '%s': output '%s' is made by no node",
                           g->name, value->name);
        const sb_node *consumer = sb_graph_node(g, value->uses[0].node);
        return sb_fail(v->ctx, SB_BAD_MODEL,
                       "node '%s' (%s): its input '%s' is made by no node",
                       sb_node_label(g, consumer), consumer->op, value->name);
    }
    if (value->producer >= g->n_nodes || g->nodes[value->producer].dead ||
        value->output >= g->nodes[value->producer].n_out ||
        g->nodes[value->producer].outputs[value->output] != id || given)
        return sb_fail(v->ctx, SB_BAD_MODEL,
                       "value '%s': its producer does not make it, or it is "
                       "given as well",
                       value->name);
    return SB_OK;
}

static sb_status verify_constant(const verifier *v, const sb_value *value)
{
    const sb_tensor *t = &value->constant;

    if (!value->is_constant)
        return SB_OK;
    if (!t->buf || !sb_tensor_size_ok(t) ||
        (!t->data && sb_tensor_count(t) > 0))
        return sb_fail(v->ctx, SB_BAD_MODEL, "constant '%s' has no elements",
                       value->name);
    return SB_OK;
}

static sb_status verify_captures(const verifier *v, const sb_node *node)
{
    const sb_graph *g = v->g;
    const sb_graph *body = NULL;
    size_t n = 0;

    for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++) {
        if (body->parent != g)
            return sb_fail(v->ctx, SB_BAD_MODEL,
                           "node '%s' (%s): a sub-graph belongs elsewhere",
                           sb_node_label(g, node), node->op);
        n += body->n_captures;
    }
    if (n != node->n_implicit)
        return sb_fail(v->ctx, SB_BAD_MODEL,
                       "node '%s' (%s): sub-graphs capture %zu values, the "
                       "node has %u",
                       sb_node_label(g, node), node->op, n,
                       (unsigned)node->n_implicit);
    for (uint32_t k = 0; k < node->n_implicit; k++) {
        sb_value_id id = SB_NONE;
        body = sb_node_capture(node, k, &id);
        if (id >= body->n_values)
            continue; /* reported when the body is verified */
        const sb_value *inner = sb_graph_value(body, id);
        const sb_value *outer = sb_graph_value(g, node->inputs[node->n_in + k]);
        if ((inner->n_uses || inner->is_output) &&
            strcmp(inner->name, outer->name) != 0)
            return sb_fail(v->ctx, SB_BAD_MODEL,
                           "node '%s' (%s): a sub-graph captures '%s' as '%s'",
                           sb_node_label(g, node), node->op, outer->name,
                           inner->name);
    }
    return SB_OK;
}

static sb_status verify_all(verifier *v)
{
    const sb_graph *g = v->g;
    size_t n_inputs = 0;

    for (size_t id = 0; id < g->n_nodes; id++) {
        const sb_node *node = &g->nodes[id];
        v->first_input[id] = n_inputs;
        if (node->dead)
            continue;
        SB_TRY(verify_node(v, (sb_node_id)id));
        n_inputs += node->n_in + node->n_implicit;
    }
    v->seen = sb_alloc(v->ctx, n_inputs, 1);
    if (!v->seen)
        return SB_NO_MEMORY;
    for (size_t id = 0; id < g->n_values; id++) {
        SB_TRY(verify_value(v, (sb_value_id)id));
        SB_TRY(verify_constant(v, &g->values[id]));
    }
    for (size_t id = 0; id < g->n_nodes; id++) {
        const sb_node *node = &g->nodes[id];
        if (node->dead)
            continue;
        for (uint32_t i = 0; i < node->n_in + node->n_implicit; i++)
            if (node->inputs[i] != SB_NONE && !v->seen[v->first_input[id] + i])
                return sb_fail(v->ctx, SB_BAD_MODEL,
                               "node '%s' (%s): input %u is not among the uses "
                               "of its value",
                               sb_node_label(g, node), node->op, (unsigned)i);
        SB_TRY(verify_captures(v, node));
    }
    return SB_OK;
}

sb_status sb_graph_verify(const sb_graph *g)
{
    verifier v = {.g = g, .ctx = g->ctx};
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(verify_lists(&v));
    v.first_input = sb_alloc(g->ctx, g->n_nodes, sizeof *v.first_input);
    sb_status status = v.first_input ? verify_all(&v) : SB_NO_MEMORY;
    sb_free(g->ctx, v.first_input);
    sb_free(g->ctx, v.seen);
    SB_TRY(status);
    SB_TRY(sb_graph_order(g, &order, &n));
    sb_free(g->ctx, order);
    for (size_t id = 0; id < g->n_nodes; id++) {
        const sb_node *node = &g->nodes[id];
        const sb_graph *body = NULL;
        for (size_t i = 0; !node->dead && (body = sb_node_body(node, i)); i++)
            SB_TRY(sb_graph_verify(body));
    }
    return SB_OK;
}
