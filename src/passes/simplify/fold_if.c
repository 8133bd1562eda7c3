/* Pass "fold_if": an If whose condition is known is replaced by the nodes of
 * the branch that it would take. */
#include "passes/pass.h"
#include "passes/rewrite.h"

typedef struct inlining {
    sb_graph *g;            /* where the nodes go */
    sb_node_id node;        /* the If */
    const sb_graph *branch; /* where they come from */
    sb_value_id *map;       /* value of the branch -> value of g */
} inlining;

/* The branch, and the index of its first capture among the implicit inputs. */
static sb_graph *chosen_branch(const sb_node *node, bool condition,
                               uint32_t *first)
{
    const sb_attr *want =
        sb_node_attr(node, condition ? "then_branch" : "else_branch");

    *first = node->n_in;
    if (!want || want->type != SB_ATTR_GRAPH)
        return NULL;
    for (size_t i = 0; sb_node_body(node, i) != want->graphs[0]; i++)
        *first += (uint32_t)sb_node_body(node, i)->n_captures;
    return want->graphs[0];
}

/* Bodies inside the branch capture by name, so its names must stay; that fails
 * only where another branch with the same names was inlined before. */
static bool names_free(const sb_graph *g, const sb_graph *branch)
{
    bool nested = false;

    for (size_t i = 0; i < branch->n_nodes; i++)
        nested = nested ||
                 (!branch->nodes[i].dead && sb_node_body(&branch->nodes[i], 0));
    if (!nested)
        return true;
    for (size_t i = 0; i < branch->n_values; i++)
        if (!branch->values[i].is_capture &&
            sb_graph_find_value(g, branch->values[i].name) != SB_NONE)
            return false;
    return true;
}

/* The value of `g` for one of the branch, made at its first use. */
static sb_status map_value(inlining *in, sb_value_id inner, sb_value_id *out)
{
    sb_graph *g = in->g;

    *out = SB_NONE;
    if (inner == SB_NONE)
        return SB_OK;
    if (in->map[inner] == SB_NONE) {
        const sb_value *v = sb_graph_value(in->branch, inner);
        sb_value_id fresh;
        if (sb_graph_find_value(g, v->name) == SB_NONE)
            SB_TRY(sb_graph_add_value(g, v->name, &fresh));
        else
            SB_TRY(sb_graph_add_value_like(g, v->name, &fresh));
        sb_value *w = sb_graph_value(g, fresh);
        w->type = v->type;
        w->extra = v->extra;
        w->const_extra = v->const_extra;
        w->opaque_type = v->opaque_type;
        if (v->is_constant)
            SB_TRY(sb_graph_set_constant(g, fresh, &v->constant));
        in->map[inner] = fresh;
    }
    *out = in->map[inner];
    return SB_OK;
}

static sb_status inline_node(inlining *in, const sb_node *old)
{
    sb_ctx *ctx = in->g->ctx;
    uint32_t n_in = old->n_in + old->n_implicit;
    sb_value_id *ids = sb_alloc(ctx, (size_t)n_in + old->n_out, sizeof *ids);
    sb_status status = ids ? SB_OK : SB_NO_MEMORY;
    sb_node_id id;

    for (uint32_t i = 0; i < n_in && status == SB_OK; i++)
        status = map_value(in, old->inputs[i], &ids[i]);
    for (uint32_t i = 0; i < old->n_out && status == SB_OK; i++)
        status = map_value(in, old->outputs[i], &ids[n_in + i]);
    if (status == SB_OK) {
        sb_node_spec spec = {
            .op = old->op,
            .domain = old->domain,
            .name = old->name,
            .module = old->module,
            .inputs = ids,
            .n_in = old->n_in,
            .implicit = ids + old->n_in,
            .n_implicit = old->n_implicit,
            .outputs = ids + n_in,
            .n_out = old->n_out,
            .attrs = old->attrs,
            .n_attrs = old->n_attrs,
            .position = sb_graph_node(in->g, in->node)->position,
        };
        status = sb_graph_add_node(in->g, &spec, &id);
    }
    sb_free(ctx, ids);
    if (status != SB_OK)
        return status;
    sb_node *node = sb_graph_node(in->g, id);
    node->extra = old->extra;
    node->overload = old->overload;
    sb_graph *body;
    for (size_t i = 0; (body = sb_node_body(node, i)) != NULL; i++)
        body->parent = in->g;
    return SB_OK;
}

/* The results of the If are those of the branch; an Identity stands between
 * where a graph output must keep its name. */
static sb_status connect_outputs(inlining *in)
{
    sb_graph *g = in->g;
    const sb_node old = *sb_graph_node(g, in->node);
    sb_value_id inner;

    sb_graph_remove_node(g, in->node);
    for (uint32_t i = 0; i < old.n_out; i++) {
        bool done = false;
        sb_node_id id;
        if (old.outputs[i] == SB_NONE)
            continue;
        SB_TRY(map_value(in, in->branch->outputs[i], &inner));
        SB_TRY(sb_graph_replace_value(g, old.outputs[i], inner, &done));
        if (done)
            continue;
        sb_node_spec spec = {.op = "Identity",
                             .module = old.module,
                             .inputs = &inner,
                             .n_in = 1,
                             .outputs = &old.outputs[i],
                             .n_out = 1,
                             .position = old.position};
        SB_TRY(sb_graph_add_node(g, &spec, &id));
    }
    return SB_OK;
}

static sb_status inline_branch(inlining *in)
{
    sb_node_id *order = NULL;
    size_t n = 0;

    SB_TRY(sb_graph_order(in->branch, &order, &n));
    sb_status status = SB_OK;
    for (size_t i = 0; i < n && status == SB_OK; i++)
        status = inline_node(in, sb_graph_node(in->branch, order[i]));
    sb_free(in->g->ctx, order);
    return status == SB_OK ? connect_outputs(in) : status;
}

static sb_status fold_one(sb_graph *g, sb_node_id id, size_t *changes)
{
    const sb_node *node = sb_graph_node(g, id);
    double condition;
    uint32_t first;

    if (!sb_const_scalar(g, sb_node_in(node, 0), &condition))
        return SB_OK;
    sb_graph *branch = chosen_branch(node, condition != 0, &first);
    if (!branch || branch->n_outputs != node->n_out || branch->n_inputs > 0 ||
        !names_free(g, branch))
        return SB_OK;
    inlining in = {.g = g, .node = id, .branch = branch};
    in.map = sb_alloc(g->ctx, branch->n_values, sizeof *in.map);
    if (!in.map)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < branch->n_values; i++)
        in.map[i] = SB_NONE;
    for (size_t i = 0; i < branch->n_captures; i++)
        in.map[branch->captures[i]] = node->inputs[first + i];
    sb_status status = inline_branch(&in);
    sb_free(g->ctx, in.map);
    *changes += status == SB_OK;
    return status;
}

static sb_status fold_if_run(sb_graph *g, size_t *changes)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        if (!node->dead && sb_node_is(node, "If"))
            SB_TRY(fold_one(g, (sb_node_id)i, changes));
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fold_if = {
    .name = "fold_if",
    .summary = "replace an If with a known condition by its branch",
    .run = fold_if_run,
};
