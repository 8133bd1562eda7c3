/* Pass "fuse_rounded": products of two results of FakeQuant learn with which
 * scales these were made, so that integers can be multiplied instead.
 *
 *     before:  y = MatMul(FakeQuant(x, s, z), FakeQuant(w, t, u))
 *     after:   y = FusedMatMul(.., .., , , s, z, t, u)
 *
 * The rounded floats stay: gradients read them.  Behind fuse_linear, whose
 * nodes are changed as well.  For running only. */
#include <string.h>

#include "graph/op.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { ATTRS_MOST = 8, CODES_MOST = 255 };

static bool rounded_is_one(const sb_node *node, const char *factor)
{
    float f = sb_node_float(node, factor, 1);

    return f >= 1 && f <= 1;
}

/* Has the bias of a Gemm one element a column? */
static bool rounded_bias_fits(const sb_graph *g, const sb_node *node)
{
    const sb_shape *bias = &sb_graph_value(g, node->inputs[2])->type.shape;
    const sb_shape *b = &sb_graph_value(g, node->inputs[1])->type.shape;

    return bias->rank == 1 && b->rank == 2 && sb_dim_known(bias->dim[0]) &&
           bias->dim[0] == b->dim[sb_node_int(node, "transB", 0) ? 0 : 1];
}

/* Is it a product that FusedMatMul can be? */
static bool rounded_is_product(const sb_graph *g, const sb_node *node)
{
    if (node->dead)
        return false;
    if (strcmp(node->op, "FusedMatMul") == 0)
        return strcmp(node->domain, SB_FUSED_DOMAIN) == 0 && node->n_in <= 4 &&
               !sb_node_int(node, "sum_last", 0);
    if (sb_node_is(node, "MatMul"))
        return true;
    return sb_node_is(node, "Gemm") && !sb_node_int(node, "transA", 0) &&
           rounded_is_one(node, "alpha") && rounded_is_one(node, "beta") &&
           (sb_node_in(node, 2) == SB_NONE || rounded_bias_fits(g, node));
}

/* The FakeQuant that makes operand `i`, of 8 bits or less, with one scale or
 * with one for each index of `axis`. */
static const sb_node *rounded_by(const sb_graph *g, const sb_node *node,
                                 uint32_t i, int axis)
{
    const sb_node *by = sb_graph_producer(g, node->inputs[i]);

    if (!by || strcmp(by->op, "FakeQuant") != 0 ||
        strcmp(by->domain, SB_FUSED_DOMAIN) != 0 ||
        sb_node_int(by, "block_size", 0) != 0 ||
        sb_node_int(by, "qmax", 0) - sb_node_int(by, "qmin", 0) > CODES_MOST)
        return NULL;
    const sb_shape *scale = &sb_graph_value(g, by->inputs[1])->type.shape;
    const sb_shape *x = &sb_graph_value(g, node->inputs[i])->type.shape;
    if (!sb_shape_known(scale))
        return NULL;
    if (scale->rank == 0 || (scale->rank == 1 && scale->dim[0] == 1))
        return by;
    int64_t at = sb_node_int(by, "axis", 1);
    return axis >= 0 && x->rank == 2 && scale->rank == 1 &&
                   (at < 0 ? at + 2 : at) == axis
               ? by
               : NULL;
}

static sb_status rounded_fuse(sb_graph *g, sb_node_id id, const sb_node *a,
                              const sb_node *b)
{
    const sb_node old = *sb_graph_node(g, id);
    const sb_value_id in[] = {
        old.inputs[0], old.inputs[1], sb_node_in(&old, 2), sb_node_in(&old, 3),
        a->inputs[1],  a->inputs[2],  b->inputs[1],        b->inputs[2]};
    const sb_attr ranges[] = {
        {.name = "a_qmin", .type = SB_ATTR_INT, .i = sb_node_int(a, "qmin", 0)},
        {.name = "a_qmax", .type = SB_ATTR_INT, .i = sb_node_int(a, "qmax", 0)},
        {.name = "b_qmin", .type = SB_ATTR_INT, .i = sb_node_int(b, "qmin", 0)},
        {.name = "b_qmax", .type = SB_ATTR_INT, .i = sb_node_int(b, "qmax", 0)},
    };
    static const char *const kept[] = {"transB", "activation",
                                       "activation_params"};
    sb_attr attrs[ATTRS_MOST];
    size_t n = 0;

    for (size_t i = 0; i < SB_COUNT(kept); i++) {
        const sb_attr *has = sb_node_attr(&old, kept[i]);
        if (has)
            attrs[n++] = *has;
    }
    for (size_t i = 0; i < SB_COUNT(ranges); i++)
        attrs[n++] = ranges[i];
    sb_value_id y = old.outputs[0];
    sb_graph_remove_node(g, id);
    return sb_graph_add_node(g,
                             &(sb_node_spec){.op = "FusedMatMul",
                                             .domain = SB_FUSED_DOMAIN,
                                             .name = old.name,
                                             .module = old.module,
                                             .inputs = in,
                                             .n_in = SB_COUNT(in),
                                             .outputs = &y,
                                             .n_out = 1,
                                             .attrs = attrs,
                                             .n_attrs = n,
                                             .position = old.position},
                             &(sb_node_id){0});
}

static sb_status fuse_rounded_run(sb_graph *g, size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        const sb_node *node = sb_graph_node(g, id);
        if (!rounded_is_product(g, node) ||
            sb_graph_value(g, node->inputs[1])->type.shape.rank != 2 ||
            sb_graph_value(g, node->inputs[0])->type.shape.rank < 2)
            continue;
        int columns = sb_node_int(node, "transB", 0) ? 0 : 1;
        const sb_node *a = rounded_by(g, node, 0, -1);
        const sb_node *b = rounded_by(g, node, 1, columns);
        if (!a || !b)
            continue;
        SB_TRY(rounded_fuse(g, id, a, b));
        ++*changes;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fuse_rounded = {
    .name = "fuse_rounded",
    .summary = "products of rounded values by integers (for running)",
    .run = fuse_rounded_run,
};
