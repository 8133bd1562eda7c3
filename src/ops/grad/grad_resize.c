/* The gradient of Resize, which is linear and works on each axis by itself:
 * resizing the unit matrix gives the matrix M [in, out] of an axis, and the
 * gradient is a product with its transpose, axis by axis.
 *
 * Where every element was repeated a whole number of times the gradient is the
 * sum over each block, which AveragePool computes. */
#include <math.h>
#include <string.h>

#include "ops/grad/grad.h"
#include "ops/grad/grad_rules.h"
#include "ops/move/move_util.h"

enum { IN_X, IN_ROI, IN_SCALES, IN_SIZES };

/* Where axis `axis` is in `scales` or `sizes`; -1: not there, not resized. */
static int resize_place(const sb_grad *g, int axis, int rank)
{
    const sb_attr *axes = sb_node_attr(g->node, "axes");

    if (!axes || axes->n == 0)
        return axis;
    for (size_t i = 0; i < axes->n; i++)
        if (sb_axis_norm(axes->ints[i], rank) == axis)
            return (int)i;
    return -1;
}

static bool resize_given(const sb_grad *g, uint32_t i)
{
    sb_value_id v = sb_grad_in(g, i);

    if (v == SB_NONE)
        return false;
    const sb_shape *s = &sb_grad_type(g, v)->shape;
    return !(s->rank == 1 && s->dim[0] == 0);
}

/* ---- blocks ------------------------------------------------------------- */

/* Is an element of the image repeated in blocks of n[] elements? */
static bool resize_repeats(const sb_grad *g, int rank, int64_t *n)
{
    const sb_tensor *scales = resize_given(g, IN_SCALES)
                                  ? sb_const_of(g->graph, sb_grad_in(g, 2))
                                  : NULL;
    const sb_node *node = g->node;
    bool low = sb_node_string_is(node, "coordinate_transformation_mode",
                                 "asymmetric", false) &&
               sb_node_string_is(node, "nearest_mode", "floor", false);
    bool half =
        sb_node_string_is(node, "coordinate_transformation_mode", "half_pixel",
                          true) &&
        sb_node_string_is(node, "nearest_mode", "round_prefer_floor", true);

    if (!scales || !(low || half) || rank < 3 ||
        !sb_node_string_is(node, "mode", "nearest", true) ||
        sb_tensor_count(scales) != rank)
        return false;
    for (int i = 0; i < rank; i++) {
        double s = sb_tensor_get_f64(scales, i);
        if (s < 1 || s > 64 || floor(s) < s || (i < 2 && s > 1))
            return false;
        if (i >= 2)
            n[i - 2] = (int64_t)s;
    }
    return true;
}

static sb_value_id resize_blocks(sb_grad *g, int rank, const int64_t *n)
{
    const sb_attr attrs[] = {SB_EMIT_INTS("kernel_shape", n, rank - 2),
                             SB_EMIT_INTS("strides", n, rank - 2)};
    double count = 1;

    for (int i = 0; i < rank - 2; i++)
        count *= (double)n[i];
    sb_value_id mean = sb_emit(g, &(sb_emit_spec){.op = "AveragePool",
                                                  .in = {g->dy[0]},
                                                  .n_in = 1,
                                                  .attrs = attrs,
                                                  .n_attrs = 2});
    return sb_emit2(g, "Mul", mean, sb_grad_scalar(g, g->dy[0], count));
}

/* ---- matrices ----------------------------------------------------------- */

static sb_value_id resize_pair(sb_grad *g, sb_value_id a, sb_value_id b)
{
    return sb_emit_with(g, "Concat", a, b, SB_EMIT_INT("axis", 0));
}

/* Element `place` of a vector, as a vector. */
static sb_value_id resize_element(sb_grad *g, sb_value_id v, int64_t place)
{
    return sb_emit_with(g, "Gather", v, sb_grad_ints(g, &place, 1),
                        SB_EMIT_INT("axis", 0));
}

/* M [in, out] of one axis. */
static sb_value_id resize_matrix(sb_grad *g, int axis, int place)
{
    sb_value_id x = sb_grad_in(g, IN_X);
    sb_value_id n = sb_grad_dim(g, x, axis);
    sb_value_id zeros =
        sb_emit2(g, "Expand", sb_grad_scalar(g, x, 0), resize_pair(g, n, n));
    sb_attr attrs[16];
    size_t n_attrs = 0;
    sb_emit_spec spec = {.op = "Resize", .n_in = 4, .attrs = attrs};

    for (size_t i = 0; i < g->node->n_attrs && n_attrs < SB_COUNT(attrs); i++)
        if (strcmp(g->node->attrs[i].name, "axes") != 0)
            attrs[n_attrs++] = g->node->attrs[i];
    spec.n_attrs = n_attrs;
    spec.in[IN_X] = sb_emit1(g, "EyeLike", zeros);
    spec.in[IN_ROI] = spec.in[IN_SCALES] = spec.in[IN_SIZES] = SB_NONE;
    if (resize_given(g, IN_SCALES)) {
        sb_value_id scales = sb_grad_in(g, IN_SCALES);
        const sb_value_id one = sb_grad_scalar(g, scales, 1);
        const int64_t first = 0;
        spec.in[IN_SCALES] = resize_pair(
            g, sb_emit2(g, "Unsqueeze", one, sb_grad_ints(g, &first, 1)),
            resize_element(g, scales, place));
        spec.n_in = 3;
    } else {
        spec.in[IN_SIZES] = resize_pair(
            g, n, resize_element(g, sb_grad_in(g, IN_SIZES), place));
    }
    return sb_emit(g, &spec);
}

/* dy with `axis` of its dimensions taken back through M. */
static sb_value_id resize_back(sb_grad *g, sb_value_id dy, int axis, int rank,
                               sb_value_id m)
{
    int64_t perm[SB_MAX_RANK];

    if (axis == rank - 2)
        return sb_emit2(g, "MatMul", m, dy);
    for (int i = 0; i < rank; i++)
        perm[i] = i;
    perm[axis] = rank - 1;
    perm[rank - 1] = axis;
    const sb_attr turn = SB_EMIT_INTS("perm", perm, rank);
    if (axis != rank - 1)
        dy = sb_emit_with(g, "Transpose", dy, SB_NONE, turn);
    dy = sb_emit2(g, "MatMul", dy, sb_emit1(g, "Transpose", m));
    return axis == rank - 1 ? dy
                            : sb_emit_with(g, "Transpose", dy, SB_NONE, turn);
}

sb_status sb_grad_resize(sb_grad *g)
{
    sb_value_id x = sb_grad_in(g, IN_X), dy = g->dy[0];
    const sb_shape in = sb_grad_type(g, x)->shape;
    const sb_shape out = sb_grad_type(g, g->node->outputs[0])->shape;
    int64_t blocks[SB_MAX_RANK];

    if (in.rank < 2 || out.rank != in.rank)
        return sb_grad_refuse(g, "the rank is not known");
    if (sb_node_string_is(g->node, "coordinate_transformation_mode",
                          "tf_crop_and_resize", false))
        return sb_grad_refuse(g, "of a region");
    if (!sb_node_string_is(g->node, "keep_aspect_ratio_policy", "stretch",
                           true))
        return sb_grad_refuse(g, "keep_aspect_ratio_policy");
    if (resize_repeats(g, in.rank, blocks)) {
        g->dx[0] = resize_blocks(g, in.rank, blocks);
        return SB_OK;
    }
    for (int i = 0; i < in.rank; i++) {
        int place = resize_place(g, i, in.rank);
        if (place >= 0 && !sb_dim_same(in.dim[i], out.dim[i]))
            dy = resize_back(g, dy, i, in.rank, resize_matrix(g, i, place));
    }
    g->dx[0] = dy;
    return SB_OK;
}
