/* Rewriting by rules until nothing matches, by a work list of nodes.
 *
 * A rewrite can only make new matches whose root is a new node or lies
 * downstream, so those are put on the list again; a last look over the whole
 * graph catches what a rule did elsewhere. */
#include "passes/matcher.h"
#include "passes/rewrite.h"

/* How far downstream of a change another match may have its root. */
enum { RIPPLE = 3 };

typedef struct work {
    sb_graph *g;
    sb_matcher **matchers;
    const sb_rule *rules;
    size_t n_rules;
    sb_node_id *list; /* a stack */
    size_t n, cap;
    uint8_t *listed; /* by node ID */
    size_t cap_listed, n_listed;
} work;

static sb_status work_push(work *w, sb_node_id node)
{
    sb_ctx *ctx = w->g->ctx;

    if (node >= w->n_listed) {
        SB_TRY(sb_grow(ctx, &w->listed, &w->cap_listed, w->g->n_nodes, 1));
        for (; w->n_listed < w->g->n_nodes; w->n_listed++)
            w->listed[w->n_listed] = 0;
    }
    if (w->listed[node] || sb_graph_node(w->g, node)->dead)
        return SB_OK;
    SB_TRY(sb_grow(ctx, &w->list, &w->cap, w->n + 1, sizeof *w->list));
    w->list[w->n++] = node;
    w->listed[node] = 1;
    return SB_OK;
}

static sb_status work_push_users(work *w, sb_value_id value, int depth)
{
    const sb_value *v = sb_graph_value(w->g, value);

    for (uint32_t i = 0; i < v->n_uses; i++) {
        const sb_node *user = sb_graph_node(w->g, v->uses[i].node);
        bool was = v->uses[i].node < w->n_listed && w->listed[v->uses[i].node];
        SB_TRY(work_push(w, v->uses[i].node));
        if (depth > 1 && !was && user->n_out > 0 && user->outputs[0] != SB_NONE)
            SB_TRY(work_push_users(w, user->outputs[0], depth - 1));
    }
    return SB_OK;
}

/* Nodes of the match that have no consumer any more go away. */
static sb_status drop_matched(sb_graph *g, const sb_match *m)
{
    for (size_t i = 0; i < m->n_nodes; i++)
        SB_TRY(sb_rewrite_prune(g, m->nodes[i]));
    return SB_OK;
}

static sb_status try_rules(work *w, sb_node_id node, size_t *changes)
{
    sb_graph *g = w->g;

    for (size_t r = 0; r < w->n_rules; r++) {
        sb_match m;
        bool done = false;
        if (!sb_matcher_try(w->matchers[r], g, node, &m))
            continue;
        size_t n_before = g->n_nodes;
        sb_value_id result = sb_graph_node(g, node)->outputs[0];
        SB_TRY(w->rules[r].rewrite(&m, &done));
        SB_TRY(drop_matched(g, &m));
        for (size_t i = n_before; i < g->n_nodes; i++) {
            SB_TRY(sb_rewrite_prune(g, (sb_node_id)i));
            SB_TRY(work_push(w, (sb_node_id)i));
        }
        if (!done)
            continue;
        ++*changes;
        SB_TRY(work_push_users(w, result, RIPPLE));
        return SB_OK;
    }
    return SB_OK;
}

static sb_status run_list(work *w, size_t *changes)
{
    while (w->n > 0) {
        sb_node_id node = w->list[--w->n];
        w->listed[node] = 0;
        if (sb_graph_node(w->g, node)->dead)
            continue;
        SB_TRY(try_rules(w, node, changes));
    }
    return sb_ctx_poll(w->g->ctx);
}

static sb_status run_rounds(work *w, size_t *changes)
{
    /* A rule that undid another one would never end: stop after as many
     * rewrites as a graph of this size can reasonably want. */
    size_t limit = 4 * w->g->n_nodes + 64;

    for (size_t before = SIZE_MAX, total = 0; before != total;) {
        before = total;
        /* The first node ends on top of the stack. */
        for (size_t i = w->g->n_nodes; i-- > 0;)
            SB_TRY(work_push(w, (sb_node_id)i));
        size_t n = 0;
        SB_TRY(run_list(w, &n));
        total += n;
        *changes += n;
        if (total > limit)
            break;
    }
    return SB_OK;
}

sb_status sb_rules_run(sb_graph *g, const sb_rule *rules, size_t n_rules,
                       size_t *changes)
{
    work w = {.g = g, .rules = rules, .n_rules = n_rules};
    sb_status status = SB_OK;

    w.matchers = sb_alloc(g->ctx, n_rules, sizeof(sb_matcher *));
    if (!w.matchers)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < n_rules && status == SB_OK; i++)
        status = sb_matcher_create(g->ctx, &rules[i], &w.matchers[i]);
    if (status == SB_OK)
        status = run_rounds(&w, changes);
    for (size_t i = 0; i < n_rules; i++)
        sb_matcher_free(g->ctx, w.matchers[i]);
    sb_free(g->ctx, w.matchers);
    sb_free(g->ctx, w.list);
    sb_free(g->ctx, w.listed);
    return status;
}
