/* Pass "fold_pad": a Pad with zeros goes into the pads of what reads it.
 *
 *     p = Pad(x, [0,0,1,1,0,0,1,1])
 *     y = Conv(p, w)                   =>  y = Conv(x, w) {pads=[1,1,1,1]}
 *
 * Keras writes the padding of strided layers that way.  A convolution takes the
 * zeros as they are.  An average counts them, so its own pads, if it has any,
 * must be counted too.  A maximum leaves pads out: there the numbers around x
 * must never win against one inside, which each window has; that is so for
 * -infinity, and for zeros around what is never negative. */
#include <math.h>
#include <string.h>

#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { MAX_SPATIAL = SB_MAX_RANK - 2 };

/* What a Pad puts around the axes behind batch and channels. */
typedef struct fold_pad_frame {
    int n;                         /* axes */
    int64_t pads[2 * MAX_SPATIAL]; /* as the attribute `pads` has them */
    double number;
} fold_pad_frame;

static bool fold_pad_axes(const sb_graph *g, const sb_node *pad, int rank,
                          int n_given, int *axes)
{
    int64_t given[SB_MAX_RANK];
    bool seen[SB_MAX_RANK] = {false};
    sb_value_id input = sb_node_in(pad, 3);

    for (int i = 0; i < rank; i++)
        given[i] = i;
    int n =
        input == SB_NONE ? rank : sb_const_ints(g, input, given, SB_MAX_RANK);
    if (n < 1 || n != n_given)
        return false;
    for (int i = 0; i < n; i++) {
        int64_t axis = given[i] < 0 ? given[i] + rank : given[i];
        if (axis < 0 || axis >= rank || seen[axis])
            return false;
        seen[axis] = true;
        axes[i] = (int)axis;
    }
    return true;
}

/* Reads a Pad that puts one number around the spatial axes only. */
static bool fold_pad_read(const sb_graph *g, const sb_node *pad,
                          fold_pad_frame *f)
{
    int rank = sb_graph_value(g, pad->inputs[0])->type.shape.rank;
    int64_t pads[2 * SB_MAX_RANK];
    int axes[SB_MAX_RANK];

    *f = (fold_pad_frame){.n = rank - 2};
    if (rank < 3 || !sb_node_string_is(pad, "mode", "constant", true))
        return false;
    int n = sb_const_ints(g, sb_node_in(pad, 1), pads, 2 * SB_MAX_RANK);
    if (n < 2 || n % 2 || !fold_pad_axes(g, pad, rank, n / 2, axes))
        return false;
    if (sb_node_in(pad, 2) != SB_NONE &&
        !sb_const_scalar(g, sb_node_in(pad, 2), &f->number))
        return false;
    for (int i = 0; i < n; i++) {
        int axis = axes[i % (n / 2)];
        if (pads[i] < 0 || pads[i] > INT16_MAX || (axis < 2 && pads[i] > 0))
            return false;
        if (axis >= 2)
            f->pads[axis - 2 + (i < n / 2 ? 0 : f->n)] = pads[i];
    }
    return true;
}

/* How far a window of the node reaches along each axis, with dilation. */
static bool fold_pad_reach(const sb_graph *g, const sb_node *node, int n,
                           int64_t *reach)
{
    const sb_attr *kernel = sb_node_attr(node, "kernel_shape");
    int64_t dilations[MAX_SPATIAL];

    if (!sb_node_ints(node, "dilations", (size_t)n, 1, dilations))
        return false;
    if (kernel && !sb_node_ints(node, "kernel_shape", (size_t)n, 0, reach))
        return false;
    const sb_tensor *w = kernel ? NULL : sb_const_of(g, sb_node_in(node, 1));
    if (!kernel && (!w || w->rank != n + 2))
        return false;
    for (int i = 0; i < n; i++) {
        int64_t k = w ? w->dims[2 + i] : reach[i];
        if (k < 1 || k > INT16_MAX || dilations[i] < 1 ||
            dilations[i] > INT16_MAX)
            return false;
        reach[i] = (k - 1) * dilations[i] + 1;
    }
    return true;
}

static bool fold_pad_any(const int64_t *pads, int n)
{
    for (int i = 0; i < n; i++)
        if (pads[i] != 0)
            return true;
    return false;
}

/* May a maximum leave out the number around x?  Only if none of its windows
 * has nothing else: the caller sees to that, for windows without gaps. */
static bool fold_pad_never_wins(const sb_graph *g, const sb_node *pad,
                                const sb_node *pool, double number)
{
    const sb_node *producer = sb_graph_producer(g, pad->inputs[0]);
    const sb_attr *dilations = sb_node_attr(pool, "dilations");
    double lo = -HUGE_VAL, hi = HUGE_VAL;

    for (size_t i = 0; dilations && i < dilations->n; i++)
        if (dilations->type != SB_ATTR_INTS || dilations->ints[i] != 1)
            return false;
    if (producer)
        (void)sb_node_range(g, producer, &lo, &hi);
    return pool->n_out == 1 && ((isinf(number) && number < 0) ||
                                (number == 0 && lo >= 0 && hi >= lo));
}

/* The pads that the node gets; false if it cannot take them. */
static bool fold_pad_takes(const sb_graph *g, const sb_node *pad,
                           const sb_node *node, int64_t *pads)
{
    bool conv = sb_node_is(node, "Conv"), max = sb_node_is(node, "MaxPool");
    bool average = sb_node_is(node, "AveragePool");
    int64_t reach[MAX_SPATIAL];
    fold_pad_frame f;

    if ((!conv && !max && !average) || !fold_pad_read(g, pad, &f) ||
        !(sb_node_string_is(node, "auto_pad", "NOTSET", true) ||
          sb_node_string_is(node, "auto_pad", "VALID", false)) ||
        sb_node_int(node, "ceil_mode", 0) != 0 ||
        !sb_node_ints(node, "pads", 2 * (size_t)f.n, 0, pads) ||
        !fold_pad_reach(g, node, f.n, reach))
        return false;
    if (average && fold_pad_any(pads, 2 * f.n) &&
        !sb_node_int(node, "count_include_pad", 0))
        return false;
    /* Zeros around own pads of -infinity would be another network. */
    if (max && (fold_pad_any(pads, 2 * f.n) ||
                !fold_pad_never_wins(g, pad, node, f.number)))
        return false;
    if (!max && f.number != 0)
        return false;
    for (int i = 0; i < 2 * f.n; i++) {
        if (pads[i] < 0 || pads[i] > INT16_MAX)
            return false;
        pads[i] += f.pads[i];
        /* Beyond it runtimes refuse pools, and are slow with convolutions. */
        if (pads[i] >= reach[i % f.n])
            return false;
    }
    return true;
}

static sb_status fold_pad_apply(sb_graph *g, sb_node_id id, const sb_node *pad,
                                const int64_t *pads)
{
    const sb_node *node = sb_graph_node(g, id);
    int rank = sb_graph_value(g, pad->inputs[0])->type.shape.rank;
    sb_node_id old = sb_graph_value(g, node->inputs[0])->producer;

    SB_TRY(sb_graph_set_attr_ints(g, id, "pads", pads, 2 * ((size_t)rank - 2)));
    if (sb_node_is(node, "AveragePool"))
        SB_TRY(sb_graph_set_attr_int(g, id, "count_include_pad", 1));
    sb_graph_remove_attr(g, id, "auto_pad");
    SB_TRY(sb_graph_set_input(g, id, 0, pad->inputs[0]));
    return sb_rewrite_prune(g, old);
}

static sb_status fold_pad_run(sb_graph *g, size_t *changes)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        int64_t pads[2 * MAX_SPATIAL];

        if (node->dead || node->n_in == 0 || node->inputs[0] == SB_NONE)
            continue;
        const sb_node *pad = sb_graph_producer(g, node->inputs[0]);
        if (!pad || !sb_node_is(pad, "Pad") ||
            !fold_pad_takes(g, pad, node, pads))
            continue;
        SB_TRY(fold_pad_apply(g, id, pad, pads));
        (*changes)++;
    }
    return SB_OK;
}

const sb_pass_def sb_pass_fold_pad = {
    .name = "fold_pad",
    .summary = "Pad with zeros into the pads of convolutions and pools",
    .run = fold_pad_run,
};
