/* Gradients of operators that move elements: each is linear, so the gradient
 * is the transpose, another mover. */
#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"

static int move_rank(const sb_grad *g, uint32_t i)
{
    return sb_grad_type(g, sb_grad_in(g, i))->shape.rank;
}

/* The attribute `axis` of the node, in [0, rank) of input 0. */
static int move_axis(const sb_grad *g, int64_t absent)
{
    return sb_axis_norm(sb_node_int(g->node, "axis", absent), move_rank(g, 0));
}

sb_status sb_grad_view(sb_grad *g)
{
    if (g->wanted[0])
        g->dx[0] = sb_grad_reshape(g, g->dy[0], sb_grad_in(g, 0));
    return SB_OK;
}

sb_status sb_grad_broadcast(sb_grad *g)
{
    g->dx[0] = sb_grad_sum_to(g, g->dy[0], sb_grad_in(g, 0));
    return SB_OK;
}

sb_status sb_grad_itself(sb_grad *g)
{
    sb_emit_spec spec = {.op = g->node->op,
                         .domain = g->node->domain,
                         .n_in = g->node->n_in,
                         .attrs = g->node->attrs,
                         .n_attrs = g->node->n_attrs};

    for (uint32_t i = 0; i < g->node->n_in; i++)
        spec.in[i] = i ? sb_grad_in(g, i) : g->dy[0];
    g->dx[0] = sb_emit(g, &spec);
    return SB_OK;
}

sb_status sb_grad_transpose(sb_grad *g)
{
    int rank = move_rank(g, 0);
    const sb_attr *perm = sb_node_attr(g->node, "perm");
    int64_t back[SB_MAX_RANK];

    if (rank < 0)
        return sb_grad_refuse(g, "the rank is not known");
    for (int i = 0; i < rank; i++)
        back[perm ? perm->ints[i] : rank - 1 - i] = i;
    g->dx[0] = sb_emit_with(g, "Transpose", g->dy[0], SB_NONE,
                            SB_EMIT_INTS("perm", back, rank));
    return SB_OK;
}

sb_status sb_grad_concat(sb_grad *g)
{
    uint32_t n = g->node->n_in;
    int rank = move_rank(g, 0);
    sb_value_id sizes[256], parts[256];

    if (rank < 0 || n > SB_COUNT(sizes))
        return sb_grad_refuse(g, "the rank is not known, or %u inputs", n);
    int axis = move_axis(g, 0);
    for (uint32_t i = 0; i < n; i++)
        sizes[i] = sb_grad_dim(g, sb_grad_in(g, i), axis);
    const sb_attr at = SB_EMIT_INT("axis", axis),
                  first = SB_EMIT_INT("axis", 0);
    sb_value_id split = sb_emit(g, &(sb_emit_spec){.op = "Concat",
                                                   .more_in = sizes,
                                                   .n_in = n,
                                                   .attrs = &first,
                                                   .n_attrs = 1});
    sb_emit(g, &(sb_emit_spec){.op = "Split",
                               .in = {g->dy[0], split},
                               .n_in = 2,
                               .attrs = &at,
                               .n_attrs = 1,
                               .n_out = n,
                               .more_out = parts});
    for (uint32_t i = 0; g->status == SB_OK && i < n; i++) {
        sb_graph_value(g->graph, parts[i])->type =
            *sb_grad_type(g, sb_grad_in(g, i));
        g->dx[i] = parts[i];
    }
    return SB_OK;
}

sb_status sb_grad_split(sb_grad *g)
{
    sb_value_id parts[256];
    uint32_t n = g->node->n_out;
    const sb_attr axis = SB_EMIT_INT("axis", sb_node_int(g->node, "axis", 0));

    if (n > SB_COUNT(parts))
        return sb_grad_refuse(g, "%u outputs", n);
    for (uint32_t i = 0; i < n; i++) {
        if (g->node->outputs[i] == SB_NONE)
            return sb_grad_refuse(g, "output %u has no name", i);
        parts[i] = g->dy[i] != SB_NONE ? g->dy[i]
                                       : sb_grad_zeros(g, g->node->outputs[i]);
    }
    const sb_type *type = sb_grad_type(g, sb_grad_in(g, 0));
    g->dx[0] = sb_emit(
        g, &(sb_emit_spec){.op = "Concat",
                           .more_in = parts,
                           .n_in = n,
                           .attrs = &axis,
                           .n_attrs = 1,
                           .type = &(sb_type){type->dtype, type->shape}});
    return SB_OK;
}

sb_status sb_grad_slice(sb_grad *g)
{
    const sb_type type = *sb_grad_type(g, sb_grad_in(g, 0));
    sb_value_id shape = sb_grad_shape(g, sb_grad_in(g, 0));

    g->dx[0] =
        sb_emit(g, &(sb_emit_spec){.op = "SliceGrad",
                                   .in = {g->dy[0], shape, sb_grad_in(g, 1),
                                          sb_grad_in(g, 2), sb_grad_in(g, 3),
                                          sb_grad_in(g, 4)},
                                   .n_in = 6,
                                   .type = &type});
    return SB_OK;
}

/* Copies of other elements of the axis (reflect, edge, wrap): those of the
 * padded numbers 0, 1, 2 ... say which, and get their gradients. */
static sb_value_id pad_axis(sb_grad *g, sb_value_id dy, int axis, int place,
                            int n_axes)
{
    sb_value_id x = sb_grad_in(g, 0), pads = sb_grad_in(g, 1);
    const int64_t at[] = {place, place + n_axes}, zero = 0, one = 1;
    const sb_attr *mode = sb_node_attr(g->node, "mode");
    const sb_attr drop = SB_EMIT_INT("axis", 0);
    sb_value_id none = sb_grad_ints(g, NULL, 0);
    sb_value_id n = sb_grad_dim(g, x, axis);
    sb_value_id start = sb_emit2(g, "Reshape", sb_grad_ints(g, &zero, 1), none);
    sb_value_id step = sb_emit2(g, "Reshape", sb_grad_ints(g, &one, 1), none);
    sb_value_id numbers =
        sb_emit3(g, "Range", start, sb_emit2(g, "Reshape", n, none), step);
    sb_value_id both =
        sb_emit_with(g, "Gather", pads, sb_grad_ints(g, at, 2), drop);
    sb_value_id from = sb_emit_with(g, "Pad", numbers, both, *mode);
    const sb_attr along = SB_EMIT_INT("axis", axis);
    sb_value_id shape;
    const sb_attr join = SB_EMIT_INT("axis", 0);
    sb_value_id dims[SB_MAX_RANK];
    int rank = move_rank(g, 0);

    for (int i = 0; i < rank; i++)
        dims[i] = sb_grad_dim(g, i <= axis ? x : g->dy[0], i);
    shape = sb_emit(g, &(sb_emit_spec){.op = "Concat",
                                       .more_in = dims,
                                       .n_in = (size_t)rank,
                                       .attrs = &join,
                                       .n_attrs = 1});
    return sb_emit(g, &(sb_emit_spec){.op = "GatherGrad",
                                      .in = {dy, from, shape},
                                      .n_in = 3,
                                      .attrs = &along,
                                      .n_attrs = 1});
}

static sb_status pad_copies(sb_grad *g)
{
    const sb_tensor *axes = sb_grad_in(g, 3) == SB_NONE
                                ? NULL
                                : sb_const_of(g->graph, sb_grad_in(g, 3));
    int rank = move_rank(g, 0);
    sb_value_id dy = g->dy[0];

    if (rank < 0 || (!axes && sb_grad_in(g, 3) != SB_NONE))
        return sb_grad_refuse(g, "its rank or axes are not known");
    int n_axes = axes ? (int)sb_tensor_count(axes) : rank;
    for (int i = 0; i < rank; i++)
        for (int k = 0; k < n_axes; k++)
            if ((axes ? sb_axis_norm(sb_index_at(axes, k), rank) : k) == i)
                dy = pad_axis(g, dy, i, k, n_axes);
    g->dx[0] = dy;
    return SB_OK;
}

/* What was added is cut off, what was cut off is zero. */
sb_status sb_grad_pad(sb_grad *g)
{
    const sb_type type = *sb_grad_type(g, sb_grad_in(g, 0));

    if (!sb_node_string_is(g->node, "mode", "constant", true))
        return pad_copies(g);
    if (sb_grad_wants(g, 2))
        return sb_grad_refuse(g, "the number that is filled in");
    if (g->wanted[0])
        g->dx[0] = sb_emit(
            g, &(sb_emit_spec){.op = "Pad",
                               .in = {g->dy[0],
                                      sb_emit1(g, "Neg", sb_grad_in(g, 1)),
                                      SB_NONE, sb_grad_in(g, 3)},
                               .n_in = 4,
                               .type = &type});
    return SB_OK;
}

/* [r0 d0, r1 d1, ...] seen as [r0, d0, r1, d1, ...], summed over the r. */
sb_status sb_grad_tile(sb_grad *g)
{
    int rank = move_rank(g, 0);
    int64_t axes[SB_MAX_RANK];
    const sb_attr second = SB_EMIT_INT("axis", 1);
    const sb_attr drop = SB_EMIT_INT("keepdims", 0);

    if (rank < 1 || 2 * rank > SB_MAX_RANK)
        return sb_grad_refuse(g, "rank %d", rank);
    for (int i = 0; i < rank; i++)
        axes[i] = 2 * i;
    sb_value_id column = sb_grad_ints(g, (const int64_t[]){rank, 1}, 2);
    sb_value_id pairs = sb_emit(
        g, &(sb_emit_spec){
               .op = "Concat",
               .in = {sb_emit2(g, "Reshape", sb_grad_in(g, 1), column),
                      sb_emit2(g, "Reshape", sb_grad_shape(g, sb_grad_in(g, 0)),
                               column)},
               .n_in = 2,
               .attrs = &second,
               .n_attrs = 1});
    sb_value_id target =
        sb_emit2(g, "Reshape", pairs, sb_grad_ints(g, &(int64_t){-1}, 1));
    const sb_attr zero = SB_EMIT_INT("allowzero", 1);
    sb_value_id apart = sb_emit_with(g, "Reshape", g->dy[0], target, zero);
    if (g->status != SB_OK)
        return SB_OK;
    const sb_type type = *sb_grad_type(g, sb_grad_in(g, 0));
    g->dx[0] =
        sb_emit(g, &(sb_emit_spec){.op = "ReduceSum",
                                   .in = {apart, sb_grad_ints(g, axes, rank)},
                                   .n_in = 2,
                                   .attrs = &drop,
                                   .n_attrs = 1,
                                   .type = &type});
    return SB_OK;
}

/* ---- indices ------------------------------------------------------------ */

sb_status sb_grad_gather(sb_grad *g)
{
    const sb_type type = *sb_grad_type(g, sb_grad_in(g, 0));
    const sb_attr axis = SB_EMIT_INT("axis", sb_node_int(g->node, "axis", 0));

    g->dx[0] =
        sb_emit(g, &(sb_emit_spec){.op = "GatherGrad",
                                   .in = {g->dy[0], sb_grad_in(g, 1),
                                          sb_grad_shape(g, sb_grad_in(g, 0))},
                                   .n_in = 3,
                                   .attrs = &axis,
                                   .n_attrs = 1,
                                   .type = &type});
    return SB_OK;
}

/* Zeros like input 0, to which `dy` is added at the indices. */
static void move_scatter(sb_grad *g, const char *op, sb_value_id indices,
                         int64_t axis)
{
    const sb_attr attrs[] = {SB_EMIT_STRING("reduction", "add"),
                             SB_EMIT_INT("axis", axis)};

    g->dx[0] =
        sb_emit(g, &(sb_emit_spec){.op = op,
                                   .in = {sb_grad_zeros(g, sb_grad_in(g, 0)),
                                          indices, g->dy[0]},
                                   .n_in = 3,
                                   .attrs = attrs,
                                   .n_attrs = axis == INT64_MIN ? 1 : 2});
}

sb_status sb_grad_gather_elements(sb_grad *g)
{
    move_scatter(g, "ScatterElements", sb_grad_in(g, 1),
                 sb_node_int(g->node, "axis", 0));
    return SB_OK;
}

sb_status sb_grad_gather_nd(sb_grad *g)
{
    if (sb_node_int(g->node, "batch_dims", 0) != 0)
        return sb_grad_refuse(g, "batch_dims");
    move_scatter(g, "ScatterND", sb_grad_in(g, 1), INT64_MIN);
    return SB_OK;
}

sb_status sb_grad_top_k(sb_grad *g)
{
    if (g->node->n_out < 2 || g->node->outputs[1] == SB_NONE)
        return sb_grad_refuse(g, "without indices");
    move_scatter(g, "ScatterElements", g->node->outputs[1],
                 sb_node_int(g->node, "axis", -1));
    return SB_OK;
}

/* ScatterElements and ScatterND: data lose what is written over them, updates
 * are where their indices say. */
sb_status sb_grad_scatter(sb_grad *g)
{
    bool elements = sb_node_is(g->node, "ScatterElements");
    sb_value_id indices = sb_grad_in(g, 1), updates = sb_grad_in(g, 2);
    const sb_attr axis = SB_EMIT_INT("axis", sb_node_int(g->node, "axis", 0));
    bool add = sb_node_string_is(g->node, "reduction", "add", false);

    if (!add && !sb_node_string_is(g->node, "reduction", "none", true))
        return sb_grad_refuse(g, "only without reduction, or with add");
    if (g->wanted[0])
        g->dx[0] =
            add ? g->dy[0]
                : sb_emit(g, &(sb_emit_spec){.op = g->node->op,
                                             .in = {g->dy[0], indices,
                                                    sb_grad_zeros(g, updates)},
                                             .n_in = 3,
                                             .attrs = &axis,
                                             .n_attrs = elements});
    if (g->wanted[2])
        g->dx[2] = elements ? sb_emit_with(g, "GatherElements", g->dy[0],
                                           indices, axis)
                            : sb_emit2(g, "GatherND", g->dy[0], indices);
    return SB_OK;
}

/* ---- the rest ----------------------------------------------------------- */

/* Each of the two is the way back of the other, also with a mode. */
sb_status sb_grad_block(sb_grad *g)
{
    bool deep = sb_node_is(g->node, "DepthToSpace");

    g->dx[0] =
        sb_emit(g, &(sb_emit_spec){.op = deep ? "SpaceToDepth" : "DepthToSpace",
                                   .in = {g->dy[0]},
                                   .n_in = 1,
                                   .attrs = g->node->attrs,
                                   .n_attrs = g->node->n_attrs});
    return SB_OK;
}

/* Sums of those before become sums of those behind. */
sb_status sb_grad_cum_sum(sb_grad *g)
{
    const sb_attr attrs[] = {
        SB_EMIT_INT("exclusive", sb_node_int(g->node, "exclusive", 0)),
        SB_EMIT_INT("reverse", !sb_node_int(g->node, "reverse", 0))};

    g->dx[0] = sb_emit(g, &(sb_emit_spec){.op = "CumSum",
                                          .in = {g->dy[0], sb_grad_in(g, 1)},
                                          .n_in = 2,
                                          .attrs = attrs,
                                          .n_attrs = 2});
    return SB_OK;
}

/* What was cut comes back as zeros, around the same center. */
sb_status sb_grad_center_crop_pad(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0);
    const sb_type type = *sb_grad_type(g, x);

    g->dx[0] = sb_emit(g, &(sb_emit_spec){.op = "CenterCropPad",
                                          .in = {g->dy[0], sb_grad_shape(g, x)},
                                          .n_in = 2,
                                          .type = &type});
    return SB_OK;
}

/* A Gather of the places where the condition is true. */
sb_status sb_grad_compress(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, 0), shape;
    const int64_t first = 0;
    int64_t axis = sb_node_int(g->node, "axis", INT64_MIN);
    sb_value_id front = sb_grad_ints(g, &first, 1);
    sb_value_id places =
        sb_emit2(g, "Squeeze", sb_emit1(g, "NonZero", sb_grad_in(g, 1)), front);

    if (axis == INT64_MIN)
        shape = sb_emit2(g, "Unsqueeze", sb_emit1(g, "Size", x), front);
    else
        shape = sb_grad_shape(g, x);
    g->dx[0] = sb_grad_reshape(
        g,
        sb_emit(g, &(sb_emit_spec){.op = "GatherGrad",
                                   .in = {g->dy[0], places, shape},
                                   .n_in = 3,
                                   .attrs = &SB_EMIT_INT(
                                       "axis", axis == INT64_MIN ? 0 : axis),
                                   .n_attrs = 1}),
        x);
    return SB_OK;
}

/* Each element is somewhere in the result, where nothing else is. */
sb_status sb_grad_max_unpool(sb_grad *g)
{
    const int64_t all = -1;

    if (sb_grad_in(g, 2) != SB_NONE)
        return sb_grad_refuse(g, "output_shape");
    g->dx[0] = sb_grad_reshape(
        g,
        sb_emit_with(g, "Gather",
                     sb_emit2(g, "Reshape", g->dy[0], sb_grad_ints(g, &all, 1)),
                     sb_grad_in(g, 1), SB_EMIT_INT("axis", 0)),
        sb_grad_in(g, 0));
    return SB_OK;
}
