/* Pass "chain_pools": maxima over windows of several sizes, each from the one
 * before.
 *
 *     before:  a = MaxPool(x) 5x5  b = MaxPool(x) 9x9  c = MaxPool(x) 13x13
 *     after:   a = MaxPool(x) 5x5  b = MaxPool(a) 5x5  c = MaxPool(b) 5x5
 *
 * Spatial pyramids (YOLOv3-SPP, YOLOX) have such pools, all of stride 1.  The
 * windows of size k' - k + 1 over maxima of windows of size k see the same
 * elements as windows of size k', so the results are the same to the bit, for a
 * fraction of the comparisons.  At the border too: a window that reaches out
 * by more than the one before sees nothing there that the window at the border
 * does not. */
#include "passes/deploy/deploy.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { MAX_READERS = 32 };

typedef struct pool {
    int64_t kernel[2], pads[4];
} pool;

static int64_t chain_pools_area(const pool *p)
{
    return p->kernel[0] * p->kernel[1];
}

/* Is the attribute absent, or all ones? */
static bool chain_pools_ones(const sb_node *node, const char *name)
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
    *p = (pool){{0}, {0}};
    return !node->dead && sb_node_is(node, "MaxPool") && node->n_out == 1 &&
           sb_node_string_is(node, "auto_pad", "NOTSET", true) &&
           sb_node_int(node, "ceil_mode", 0) == 0 &&
           chain_pools_ones(node, "strides") &&
           chain_pools_ones(node, "dilations") &&
           sb_node_ints(node, "kernel_shape", 2, 0, p->kernel) &&
           p->kernel[0] > 0 && sb_node_ints(node, "pads", 4, 0, p->pads);
}

/* The pool that makes `large` of the result of `small`; false if none does, or
 * if it saves nothing. */
static bool chain_pools_between(const pool *small, const pool *large, pool *out)
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
static sb_node_id chain_pools_choose(const sb_graph *g, const sb_value *x,
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
                !chain_pools_between(&small, &large, &left) ||
                chain_pools_area(&large) < most ||
                (id == found &&
                 chain_pools_area(&left) >= chain_pools_area(step)))
                continue;
            most = chain_pools_area(&large);
            found = id;
            *before = other;
            *step = left;
        }
    return found;
}

static sb_status chain_pools_rewrite(sb_graph *g, const sb_deploy *how,
                                     size_t *changes)
{
    sb_node_id id, before = SB_NONE;
    pool step = {{0}, {0}};

    for (size_t v = 0; v < g->n_values; v++) {
        if (g->values[v].n_uses < 2 || g->values[v].n_uses > MAX_READERS)
            continue;
        while ((id = chain_pools_choose(g, &g->values[v], &before, &step)) !=
                   SB_NONE &&
               sb_deploy_may(how, g, sb_graph_node(g, id))) {
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

static sb_status chain_pools_run(sb_graph *g, size_t *changes)
{
    return chain_pools_rewrite(g, NULL, changes);
}

const sb_rewrite_def sb_rewrite_chain_pools = {
    .name = "chain_pools",
    .run = chain_pools_rewrite,
};

const sb_pass_def sb_pass_chain_pools = {
    .name = "chain_pools",
    .summary = "maxima over large windows from those over smaller ones",
    .run = chain_pools_run,
};
