/* Pass "split_to_slice": taking one part out of a split.
 *
 *     Split of which one output is used            -> Slice
 *     Split into ones, each squeezed (unbind)      -> a Gather each
 *     SequenceAt(SplitToSequence(x), constant)     -> Slice or Gather
 *     SequenceAt(SequenceConstruct(a, b), 1)       -> b
 *
 * PyTorch's chunk, split and unbind come out in these forms. */
#include "passes/matcher.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { MAX_PARTS = 256 };

/* ---- the parts of a split ----------------------------------------------- */

static const sb_value *data_in(const sb_graph *g, const sb_node *node)
{
    return sb_graph_value(g, node->inputs[0]);
}

/* The axis counted from the front, or -1 if the rank is not known. */
static int split_axis(const sb_graph *g, const sb_node *node)
{
    int rank = data_in(g, node)->type.shape.rank;
    int64_t axis = sb_node_int(node, "axis", 0);

    if (rank < 0 || axis < -rank || axis >= rank)
        return -1;
    return (int)(axis < 0 ? axis + rank : axis);
}

/* Sizes along the axis of each output of a Split; false if not known. */
static bool split_sizes(const sb_graph *g, const sb_node *node, int64_t *sizes)
{
    int axis = split_axis(g, node);
    int64_t n = node->n_out;

    if (axis < 0 || n < 1 || n > MAX_PARTS)
        return false;
    if (sb_node_in(node, 1) != SB_NONE)
        return sb_const_ints(g, node->inputs[1], sizes, MAX_PARTS) == n;
    sb_dim dim = data_in(g, node)->type.shape.dim[axis];
    if (!sb_dim_known(dim) || dim < 0)
        return false;
    int64_t chunk = dim / n + (dim % n != 0);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = dim - i * chunk;
        sizes[i] = left < 0 ? 0 : left < chunk ? left : chunk;
    }
    return true;
}

static bool split_to_slice_wanted(const sb_graph *g, sb_value_id id)
{
    return id != SB_NONE && (sb_graph_value(g, id)->n_uses > 0 ||
                             sb_graph_value(g, id)->is_output);
}

/* ---- what replaces them ------------------------------------------------- */

/* Output `k` of the node becomes x[begin:end] along the axis. */
static sb_status make_slice(sb_graph *g, sb_node_id id, uint32_t k,
                            const int64_t range[2], int64_t axis)
{
    sb_value_id in[4] = {SB_NONE, SB_NONE, SB_NONE, SB_NONE};
    sb_node_id node;

    SB_TRY(sb_rewrite_ints(g, "starts", &range[0], 1, &in[1]));
    SB_TRY(sb_rewrite_ints(g, "ends", &range[1], 1, &in[2]));
    SB_TRY(sb_rewrite_ints(g, "axes", &axis, 1, &in[3]));
    in[0] = sb_graph_node(g, id)->inputs[0];
    return sb_rewrite_output(g, id, k, "Slice", in, 4, &node);
}

/* The node (Squeeze or SequenceAt) becomes x[index] along the axis. */
static sb_status make_gather(sb_graph *g, sb_node_id id, sb_value_id x,
                             int64_t index, int64_t axis)
{
    sb_value_id in[2] = {x, SB_NONE};
    sb_node_id node;

    SB_TRY(sb_graph_add_constant(g, "index", SB_DTYPE_I64, 0, NULL, &index,
                                 &in[1]));
    SB_TRY(sb_rewrite_node(g, id, "Gather", in, 2, &node));
    return sb_graph_set_attr_int(g, node, "axis", axis);
}

/* ---- Split -------------------------------------------------------------- */

static sb_status one_output(sb_graph *g, sb_node_id id, size_t *changes)
{
    const sb_node *node = sb_graph_node(g, id);
    int64_t sizes[MAX_PARTS], range[2] = {0, 0};
    uint32_t n_wanted = 0, k = 0;

    for (uint32_t i = 0; i < node->n_out; i++) {
        if (split_to_slice_wanted(g, node->outputs[i])) {
            n_wanted++;
            k = i;
        }
    }
    if (n_wanted != 1 || node->n_out < 2 || !split_sizes(g, node, sizes))
        return SB_OK;
    for (uint32_t i = 0; i < k; i++)
        range[0] += sizes[i];
    range[1] = range[0] + sizes[k];
    ++*changes;
    return make_slice(g, id, k, range, split_axis(g, node));
}

static bool split_to_slice_squeezes(const sb_graph *g, const sb_node *user,
                                    int axis)
{
    int64_t axes[2];
    int rank = data_in(g, user)->type.shape.rank;

    return sb_node_is(user, "Squeeze") &&
           sb_const_ints(g, sb_node_in(user, 1), axes, 2) == 1 &&
           (axes[0] == axis || (rank > 0 && axes[0] + rank == axis));
}

/* Each output is one slice thick and only squeezed. */
static bool is_unbind(const sb_graph *g, const sb_node *node, int axis)
{
    int64_t sizes[MAX_PARTS];

    if (!split_sizes(g, node, sizes))
        return false;
    for (uint32_t i = 0; i < node->n_out; i++) {
        if (!split_to_slice_wanted(g, node->outputs[i]))
            continue;
        const sb_value *v = sb_graph_value(g, node->outputs[i]);
        if (sizes[i] != 1 || v->is_output)
            return false;
        for (uint32_t u = 0; u < v->n_uses; u++)
            if (v->uses[u].input != 0 ||
                !split_to_slice_squeezes(g, sb_graph_node(g, v->uses[u].node),
                                         axis))
                return false;
    }
    return node->n_out > 1;
}

static sb_status split_to_slice_unbind(sb_graph *g, sb_node_id id,
                                       size_t *changes)
{
    const sb_value_id x = sb_graph_node(g, id)->inputs[0];
    int axis = split_axis(g, sb_graph_node(g, id));

    if (axis < 0 || !is_unbind(g, sb_graph_node(g, id), axis))
        return SB_OK;
    ++*changes;
    for (uint32_t i = 0; i < sb_graph_node(g, id)->n_out; i++) {
        sb_value_id out = sb_graph_node(g, id)->outputs[i];
        /* Each turn takes one use away. */
        while (out != SB_NONE && sb_graph_value(g, out)->n_uses > 0)
            SB_TRY(make_gather(g, sb_graph_value(g, out)->uses[0].node, x, i,
                               axis));
    }
    return sb_rewrite_prune(g, id);
}

/* ---- sequences ---------------------------------------------------------- */

/* Where part `index` of a SplitToSequence lies; false if that is not known. */
static bool part_range(const sb_graph *g, const sb_node *split, int64_t index,
                       int64_t range[2])
{
    int64_t sizes[MAX_PARTS];
    sb_value_id given = sb_node_in(split, 1);
    int n = sb_const_ints(g, given, sizes, MAX_PARTS);
    int axis = split_axis(g, split);
    sb_dim dim =
        axis < 0 ? SB_DIM_UNKNOWN : data_in(g, split)->type.shape.dim[axis];

    if (given == SB_NONE || index > INT32_MAX || index < INT32_MIN) {
        range[0] = index;
        range[1] = index == -1 ? INT64_MAX : index + 1;
        return given == SB_NONE;
    }
    if (n == 1 && sb_graph_value(g, given)->constant.rank == 0) {
        int64_t size = sizes[0];
        if (size < 1 || size > INT32_MAX)
            return false;
        if (index < 0 && !sb_dim_known(dim))
            return false;
        if (index < 0)
            index += (dim + size - 1) / size;
        range[0] = index * size;
        range[1] = range[0] + size;
        return index >= 0;
    }
    index += index < 0 ? n : 0;
    if (index < 0 || index >= n)
        return false;
    range[0] = 0;
    for (int64_t i = 0; i < index; i++)
        range[0] += sizes[i];
    range[1] = range[0] + sizes[index];
    return true;
}

/* A Slice beyond the end is empty, where the sequence has no such part. */
static bool part_exists(const sb_graph *g, const sb_node *split,
                        const int64_t range[2])
{
    int axis = split_axis(g, split);
    sb_dim dim =
        axis < 0 ? SB_DIM_UNKNOWN : data_in(g, split)->type.shape.dim[axis];

    return !sb_dim_known(dim) || (range[0] >= -dim && range[0] < dim);
}

static sb_status part_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node split = *sb_graph_node(g, sb_match_node(m, "split"));
    int64_t index, range[2], axis = sb_node_int(&split, "axis", 0);

    if (sb_const_ints(g, sb_match_value(m, "index"), &index, 1) != 1 ||
        !part_range(g, &split, index, range) || !part_exists(g, &split, range))
        return SB_OK;
    *done = true;
    if (sb_node_in(&split, 1) == SB_NONE &&
        sb_node_int(&split, "keepdims", 1) == 0)
        return make_gather(g, m->root, split.inputs[0], index, axis);
    SB_TRY(sb_graph_set_input(g, m->root, 0, split.inputs[0]));
    return make_slice(g, m->root, 0, range, axis);
}

static sb_status element_rewrite(sb_match *m, bool *done)
{
    sb_graph *g = m->graph;
    const sb_node *seq = sb_graph_node(g, sb_match_node(m, "seq"));
    int64_t index;

    if (sb_const_ints(g, sb_match_value(m, "index"), &index, 1) != 1)
        return SB_OK;
    if (index < 0)
        index += seq->n_in;
    if (index < 0 || index >= seq->n_in || seq->inputs[index] == SB_NONE)
        return SB_OK;
    return sb_rewrite_forward(g, m->root, seq->inputs[index], done);
}

static const sb_pat part_pattern[] = {
    {"y", "SequenceAt", .in = {"split", "$index"}},
    {"split", "SplitToSequence", .order = SB_PAT_SUBSET, .shared = true},
    {0},
};

static const sb_pat element_pattern[] = {
    {"y", "SequenceAt", .in = {"seq", "$index"}},
    {"seq", "SequenceConstruct", .order = SB_PAT_SUBSET, .shared = true},
    {0},
};

static const sb_rule rules[] = {
    {.rows = part_pattern, .rewrite = part_rewrite},
    {.rows = element_pattern, .rewrite = element_rewrite},
};

static sb_status split_to_slice_run(sb_graph *g, size_t *changes)
{
    SB_TRY(sb_rules_run(g, rules, SB_COUNT(rules), changes));
    for (size_t i = 0, n = g->n_nodes; i < n; i++) {
        const sb_node *node = sb_graph_node(g, (sb_node_id)i);
        if (node->dead || !sb_node_is(node, "Split") ||
            sb_node_in(node, 0) == SB_NONE)
            continue;
        SB_TRY(split_to_slice_unbind(g, (sb_node_id)i, changes));
        if (!sb_graph_node(g, (sb_node_id)i)->dead)
            SB_TRY(one_output(g, (sb_node_id)i, changes));
    }
    return SB_OK;
}

const sb_pass_def sb_pass_split_to_slice = {
    .name = "split_to_slice",
    .summary = "Slice or Gather where parts of a split are picked",
    .run = split_to_slice_run,
};
