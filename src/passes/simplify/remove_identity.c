/* Pass "remove_identity": operators that hand an input through unchanged.
 *
 * Identity and Dropout always do; others when their parameters or the shapes
 * say so: a Cast to the type at hand, a Reshape or Expand to the same shape,
 * an addition of 0, a Resize by 1.  Consumers of the result read the input
 * instead.  An Identity stays where a graph output would lose its name. */
#include <string.h>

#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

/* The input that equals output 0, or -1. */
typedef int (*passes_through_fn)(const sb_graph *g, const sb_node *node);

static const sb_value *value_in(const sb_graph *g, const sb_node *node,
                                uint32_t i)
{
    return sb_graph_value(g, node->inputs[i]);
}

/* If something computes a target, axes or sizes, the shape of the output may be
 * what the file declares, which need not be true. */
static bool shape_kept(const sb_graph *g, const sb_node *node, uint32_t i)
{
    for (uint32_t k = 0; k < node->n_in; k++)
        if (k != i && node->inputs[k] != SB_NONE &&
            !sb_is_const(g, node->inputs[k]))
            return false;
    return sb_node_in(node, i) != SB_NONE &&
           sb_value_same_shape(g, node->inputs[i], node->outputs[0]);
}

static int remove_identity_always(const sb_graph *g, const sb_node *node)
{
    (void)g;
    (void)node;
    return 0;
}

/* The mask, if it has a consumer, is another matter (the caller checks). */
static int remove_identity_dropout(const sb_graph *g, const sb_node *node)
{
    sb_value_id training = sb_node_in(node, 2);

    return training == SB_NONE || sb_const_all(g, training, 0) ? 0 : -1;
}

static int remove_identity_cast(const sb_graph *g, const sb_node *node)
{
    sb_dtype dtype = value_in(g, node, 0)->type.dtype;

    return dtype != SB_DTYPE_NONE && sb_node_int(node, "to", 0) == (int)dtype
               ? 0
               : -1;
}

static int cast_like(const sb_graph *g, const sb_node *node)
{
    sb_dtype dtype = value_in(g, node, 0)->type.dtype;

    return node->n_in == 2 && dtype != SB_DTYPE_NONE &&
                   dtype == value_in(g, node, 1)->type.dtype
               ? 0
               : -1;
}

/* Reshape, Expand and similar; also reductions over dimensions of 1, which
 * are all that keep the shape. */
static int same_shape(const sb_graph *g, const sb_node *node)
{
    return shape_kept(g, node, 0) ? 0 : -1;
}

static int one_input(const sb_graph *g, const sb_node *node)
{
    (void)g;
    return node->n_in == 1 ? 0 : -1;
}

/* Behind a DequantizeLinear, also over what moves elements, a Sum of one input
 * keeps ONNX Runtime from making integers of a layer (export_float.c). */
static int remove_identity_sum(const sb_graph *g, const sb_node *node)
{
    const sb_node *before = sb_graph_producer(g, node->inputs[0]);

    while (before && sb_node_role(before) == SB_ROLE_PASS &&
           sb_node_in(before, 0) != SB_NONE)
        before = sb_graph_producer(g, before->inputs[0]);
    return before && sb_node_role(before) == SB_ROLE_DEQUANTIZE
               ? -1
               : one_input(g, node);
}

static int remove_identity_transpose(const sb_graph *g, const sb_node *node)
{
    const sb_attr *perm = sb_node_attr(node, "perm");
    int rank = value_in(g, node, 0)->type.shape.rank;

    if (!perm || perm->type != SB_ATTR_INTS)
        return rank == 0 || rank == 1 ? 0 : -1;
    for (size_t i = 0; i < perm->n; i++)
        if (perm->ints[i] != (int64_t)i)
            return -1;
    return 0;
}

static int remove_identity_pad(const sb_graph *g, const sb_node *node)
{
    return sb_const_all(g, sb_node_in(node, 1), 0) ? 0 : -1;
}

/* The whole of every axis, forwards. */
static int remove_identity_slice(const sb_graph *g, const sb_node *node)
{
    sb_value_id steps = sb_node_in(node, 4);

    return shape_kept(g, node, 0) &&
                   (steps == SB_NONE || sb_const_all(g, steps, 1))
               ? 0
               : -1;
}

static int remove_identity_tile(const sb_graph *g, const sb_node *node)
{
    return sb_const_all(g, sb_node_in(node, 1), 1) ? 0 : -1;
}

/* By scales that are exactly 1 (1.01 may keep the size yet move the samples),
 * or to the size it has. */
static int remove_identity_resize(const sb_graph *g, const sb_node *node)
{
    sb_value_id scales = sb_node_in(node, 2), sizes = sb_node_in(node, 3);
    bool empty = scales == SB_NONE ||
                 (sb_graph_value(g, scales)->is_constant &&
                  sb_tensor_count(&sb_graph_value(g, scales)->constant) == 0);

    if (sb_node_string_is(node, "coordinate_transformation_mode",
                          "tf_crop_and_resize", false) ||
        !shape_kept(g, node, 0))
        return -1;
    if (!empty)
        return sb_const_all(g, scales, 1) ? 0 : -1;
    return sizes != SB_NONE ? 0 : -1;
}

/* A constant that cannot widen a tensor of this shape: no more dimensions, and
 * each one 1 or the tensor's own. */
static bool remove_identity_narrow(const sb_tensor *t, const sb_shape *s)
{
    for (int i = 0; i < t->rank && t->rank <= s->rank; i++)
        if (t->dims[i] != 1 && t->dims[i] != s->dim[i + s->rank - t->rank])
            return false;
    return t->rank <= s->rank;
}

/* Does input i do nothing, being `number` everywhere, without widening the
 * other one? */
static bool remove_identity_neutral(const sb_graph *g, const sb_node *node,
                                    uint32_t i, double number)
{
    return node->n_in == 2 && node->inputs[1 - i] != SB_NONE &&
           sb_is_const(g, node->inputs[i]) &&
           remove_identity_narrow(&value_in(g, node, i)->constant,
                                  &value_in(g, node, 1 - i)->type.shape) &&
           sb_const_all(g, node->inputs[i], number);
}

static int remove_identity_add(const sb_graph *g, const sb_node *node)
{
    return remove_identity_neutral(g, node, 1, 0)   ? 0
           : remove_identity_neutral(g, node, 0, 0) ? 1
                                                    : -1;
}

static int remove_identity_sub(const sb_graph *g, const sb_node *node)
{
    return remove_identity_neutral(g, node, 1, 0) ? 0 : -1;
}

static int remove_identity_mul(const sb_graph *g, const sb_node *node)
{
    return remove_identity_neutral(g, node, 1, 1)   ? 0
           : remove_identity_neutral(g, node, 0, 1) ? 1
                                                    : -1;
}

static int remove_identity_divide(const sb_graph *g, const sb_node *node)
{
    return remove_identity_neutral(g, node, 1, 1) ? 0 : -1;
}

static int remove_identity_clip(const sb_graph *g, const sb_node *node)
{
    (void)g;
    return sb_node_in(node, 1) == SB_NONE && sb_node_in(node, 2) == SB_NONE
               ? 0
               : -1;
}

/* clang-format off */
static const struct {
    const char *op;
    passes_through_fn through;
} table[] = {
    {"Add", remove_identity_add},
    {"And", remove_identity_mul},
    {"Cast", remove_identity_cast},
    {"CastLike", cast_like},
    {"Clip", remove_identity_clip},
    {"Concat", one_input},
    {"Div", remove_identity_divide},
    {"Dropout", remove_identity_dropout},
    {"Expand", same_shape},
    {"Flatten", same_shape},
    {"Identity", remove_identity_always},
    {"Max", one_input},
    {"Mean", one_input},
    {"Min", one_input},
    {"Mul", remove_identity_mul},
    {"Or", remove_identity_add},
    {"Pad", remove_identity_pad},
    {"Pow", remove_identity_divide},
    {"ReduceMax", same_shape},
    {"ReduceMean", same_shape},
    {"ReduceMin", same_shape},
    {"ReduceProd", same_shape},
    {"ReduceSum", same_shape},
    {"Reshape", same_shape},
    {"Resize", remove_identity_resize},
    {"Slice", remove_identity_slice},
    {"Split", same_shape},
    {"Squeeze", same_shape},
    {"Sub", remove_identity_sub},
    {"Sum", remove_identity_sum},
    {"Tile", remove_identity_tile},
    {"Transpose", remove_identity_transpose},
    {"Unsqueeze", same_shape},
};
/* clang-format on */

static passes_through_fn find_row(const char *op)
{
    size_t lo = 0, hi = SB_COUNT(table);

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int cmp = strcmp(op, table[mid].op);
        if (cmp == 0)
            return table[mid].through;
        if (cmp < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* Only output 0 is wanted. */
static bool others_unused(const sb_graph *g, const sb_node *node)
{
    for (uint32_t i = 1; i < node->n_out; i++) {
        if (node->outputs[i] == SB_NONE)
            continue;
        const sb_value *v = sb_graph_value(g, node->outputs[i]);
        if (v->n_uses > 0 || v->is_output)
            return false;
    }
    return node->n_out > 0 && node->outputs[0] != SB_NONE;
}

static sb_status remove_identity_run(sb_graph *g, size_t *changes)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        bool done = false;
        if (node->dead || node->domain[0] || node->n_in == 0 ||
            node->inputs[0] == SB_NONE || !others_unused(g, node))
            continue;
        passes_through_fn through = find_row(node->op);
        int from = through ? through(g, node) : -1;
        if (from < 0)
            continue;
        SB_TRY(sb_rewrite_forward(g, (sb_node_id)i, node->inputs[from], &done));
        *changes += done;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_remove_identity = {
    .name = "remove_identity",
    .summary = "remove operators that hand their input through unchanged",
    .run = remove_identity_run,
};
