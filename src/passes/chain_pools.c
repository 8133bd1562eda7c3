/* Pass "chain_pools": maxima over windows of several sizes, each from the one
 * before.
 *
 *     before:  a = MaxPool(x) 5x5    b = MaxPool(x) 9x9     c = MaxPool(x)
 * 13x13 after:   a = MaxPool(x) 5x5    b = MaxPool(a) 5x5     c = MaxPool(b)
 * 5x5
 *
 * Spatial pyramids (YOLOv3-SPP, YOLOX) have such pools, all of stride 1.  The
 * windows of size k' - k + 1 over maxima of windows of size k see the same
 * elements as windows of size k', so the results are the same to the bit, for a
 * fraction of the comparisons.  At the border too: a window that reaches out
 * by more than the one before sees nothing there that the window at the border
 * does not. */
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { MAX_READERS = 32 };

typedef struct pool {
    int64_t kernel[2], pads[4];
} pool;

static int64_t area(const pool *p)
{
    return p->kernel[0] * p->kernel[1];
}

static bool read_ints(const sb_node *node, const char *name, size_t n,
                      int64_t *out)
{
    const sb_attr *a = sb_node_attr(node, name);

    if (!a || a->type != SB_ATTR_INTS || a->n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        out[i] = a->ints[i];
    return true;
}

/* Is the attribute absent, or all ones? */
static bool ones(const sb_node *node, const char *name)
{
    const sb_attr *a = sb_node_attr(node, name);

    for (size_t i = 0; a && i < a->n; i++)
        if (a->type != SB_ATTR_INTS || a->ints[i] != 1)
            return false;
    return true;
}

/* A two-dimensional MaxPool that moves by one. */
static bool read_pool(const sb_node *node, pool *p)
{
    const sb_attr *pads = sb_node_attr(node, "pads");

    *p = (pool){{0}, {0}};
    return !node->dead && sb_node_is(node, "MaxPool") && node->n_out == 1 &&
           sb_node_string_is(node, "auto_pad", "NOTSET", true) &&
           sb_node_int(node, "ceil_mode", 0) == 0 && ones(node, "strides") &&
           ones(node, "dilations") &&
           read_ints(node, "kernel_shape", 2, p->kernel) &&
           (!pads || read_ints(node, "pads", 4, p->pads));
}

/* The pool that makes `large` of the result of `small`; false if none does, or
 * if it saves nothing. */
static bool between(const pool *small, const pool *large, pool *out)
{
    for (int i = 0; i < 2; i++) {
        out->kernel[i] = large->kernel[i] - small->kernel[i] + 1;
        if (small->kernel[i] < 2 || out->kernel[i] < 2 ||
            large->kernel[i] > INT16_MAX)
            return false;
    }
    for (int i = 0; i < 4; i++) {
        out->pads[i] = large->pads[i] - small->pads[i];
        if (small->pads[i] < 0 || out->pads[i] < 0 ||
            out->pads[i] >= out->kernel[i % 2])
            return false;
    }
    return true;
}

/* Of those that read the value, the largest pool that can be built on another,
 * on which it leaves least to do, and what is left; SB_NONE if there is none.
 * The largest first: what it could build on still reads the same value. */
static sb_node_id choose(const sb_graph *g, const sb_value *x,
                         sb_node_id *before, pool *step)
{
    sb_node_id found = SB_NONE;
    int64_t most = 0;

    for (uint32_t i = 0; i < x->n_uses; i++)
        for (uint32_t k = 0; k < x->n_uses; k++) {
            sb_node_id id = x->uses[i].node, other = x->uses[k].node;
            pool large, small, left;
            if (!read_pool(sb_graph_node(g, id), &large) ||
                !read_pool(sb_graph_node(g, other), &small) ||
                !between(&small, &large, &left) || area(&large) < most ||
                (id == found && area(&left) >= area(step)))
                continue;
            most = area(&large);
            found = id;
            *before = other;
            *step = left;
        }
    return found;
}

static sb_status chain_pools_run(sb_graph *g, size_t *changes)
{
    sb_node_id id, before = SB_NONE;
    pool step = {{0}, {0}};

    for (size_t v = 0; v < g->n_values; v++) {
        if (g->values[v].n_uses < 2 || g->values[v].n_uses > MAX_READERS)
            continue;
        while ((id = choose(g, &g->values[v], &before, &step)) != SB_NONE) {
            SB_TRY(
                sb_graph_set_attr_ints(g, id, "kernel_shape", step.kernel, 2));
            SB_TRY(sb_graph_set_attr_ints(g, id, "pads", step.pads, 4));
            SB_TRY(sb_graph_set_input(g, id, 0,
                                      sb_graph_node(g, before)->outputs[0]));
            ++*changes;
        }
    }
    return SB_OK;
}

const sb_pass_def sb_pass_chain_pools = {
    .name = "chain_pools",
    .summary = "maxima over large windows from those over smaller ones",
    .run = chain_pools_run,
};
