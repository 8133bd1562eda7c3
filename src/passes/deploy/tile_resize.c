/* Pass "tile_resize": an image enlarged by whole numbers, as repetition.
 *
 *     before:  y = Resize(x, scales [1, 1, 2, 2]) nearest
 *     after:   x as [N, H, 1, W, 1, C], channels last, tiled by [1, 1, 2, 1, 2,
 *              1], y = that as [N, C, 2 H, 2 W]
 *
 * ONNX Runtime runs what lies between integer convolutions channels last, and
 * its Resize then computes every element's place; Tile copies whole pixels, in
 * a fifth of the time.  The Transposes meet those of the convolutions and are
 * not executed.  Not by itself in any pipeline: elsewhere Resize is as fast. */
#include "passes/deploy/deploy.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

/* Does nearest mean that every element is repeated?  Where the places are
 * counted from the middle of elements any rounding does that, where from their
 * edges only rounding down. */
static bool tile_resize_repeats(const sb_node *node)
{
    const char *mode = "coordinate_transformation_mode";
    bool round =
        sb_node_string_is(node, "nearest_mode", "round_prefer_floor", true) ||
        sb_node_string_is(node, "nearest_mode", "round_prefer_ceil", false);

    if (!sb_node_string_is(node, "mode", "nearest", true))
        return false;
    if (sb_node_string_is(node, mode, "half_pixel", true) ||
        sb_node_string_is(node, mode, "pytorch_half_pixel", false))
        return round;
    return sb_node_string_is(node, mode, "asymmetric", false) &&
           sb_node_string_is(node, "nearest_mode", "floor", false);
}

/* Are the scales, if there are any, these whole numbers? */
static bool scales_are(const sb_graph *g, const sb_node *node, int64_t rows,
                       int64_t columns)
{
    sb_value_id v = sb_node_in(node, 2);

    if (v == SB_NONE || (sb_is_const(g, v) &&
                         sb_tensor_count(&sb_graph_value(g, v)->constant) == 0))
        return sb_is_const(g, sb_node_in(node, 3));
    if (!sb_is_const(g, v) ||
        sb_graph_value(g, v)->constant.dtype != SB_DTYPE_F32 ||
        sb_tensor_count(&sb_graph_value(g, v)->constant) != 4)
        return false;
    const float *s = sb_graph_value(g, v)->constant.data;
    return s[0] == 1 && s[1] == 1 && s[2] == (float)rows &&
           s[3] == (float)columns;
}

/* Shapes [N, C, H, W] before and after, all but N known and multiples. */
static bool read_resize(const sb_graph *g, const sb_node *node, int64_t *rows,
                        int64_t *columns)
{
    if (node->dead || !sb_node_is(node, "Resize") || node->n_out != 1 ||
        sb_node_attr(node, "axes") || !tile_resize_repeats(node) ||
        sb_is_const(g, node->inputs[0]))
        return false;
    const sb_type *x = &sb_graph_value(g, node->inputs[0])->type;
    const sb_type *y = &sb_graph_value(g, node->outputs[0])->type;
    if (x->dtype != SB_DTYPE_F32 || x->shape.rank != 4 || y->shape.rank != 4 ||
        !sb_dim_same(x->shape.dim[0], y->shape.dim[0]))
        return false;
    for (int i = 1; i < 4; i++)
        if (!sb_dim_known(x->shape.dim[i]) || !sb_dim_known(y->shape.dim[i]) ||
            x->shape.dim[i] < 1 || y->shape.dim[i] > INT16_MAX ||
            y->shape.dim[i] % x->shape.dim[i] != 0)
            return false;
    *rows = y->shape.dim[2] / x->shape.dim[2];
    *columns = y->shape.dim[3] / x->shape.dim[3];
    return x->shape.dim[1] == y->shape.dim[1] && *rows * *columns > 1 &&
           scales_are(g, node, *rows, *columns);
}

/* Adds a node with a constant second input (n numbers) before `like`. */
static sb_status tile_resize_add(sb_graph *g, sb_node_id like, const char *op,
                                 const int64_t *v, int n, const sb_type *type,
                                 sb_value_id *value)
{
    sb_value_id in[2] = {*value, SB_NONE};
    sb_node_id node = SB_NONE;

    SB_TRY(sb_rewrite_ints(g, "shape", v, n, &in[1]));
    SB_TRY(sb_rewrite_add(g, like, op, in, 2, type, &node));
    *value = sb_graph_node(g, node)->outputs[0];
    return SB_OK;
}

static sb_status tile_resize_apply(sb_graph *g, const sb_deploy *how,
                                   sb_node_id id, bool *done)
{
    static const int64_t last[4] = {0, 2, 3, 1}, first[4] = {0, 3, 1, 2};
    int64_t a = 0, b = 0;
    sb_node_id node = SB_NONE;

    *done = read_resize(g, sb_graph_node(g, id), &a, &b) &&
            sb_deploy_may(how, g, sb_graph_node(g, id));
    if (!*done)
        return SB_OK;
    sb_value_id v = sb_graph_node(g, id)->inputs[0];
    sb_type t = sb_graph_value(g, v)->type;
    const sb_dim n = t.shape.dim[0], c = t.shape.dim[1], h = t.shape.dim[2],
                 w = t.shape.dim[3];
    const int64_t apart[6] = {0, h, 1, w, 1, c};
    const int64_t times[6] = {1, 1, a, 1, b, 1};
    const int64_t joined[4] = {0, a * h, b * w, c};

    t.shape = (sb_shape){4, {n, h, w, c}};
    SB_TRY(sb_rewrite_add(g, id, "Transpose", &v, 1, &t, &node));
    SB_TRY(sb_graph_set_attr_ints(g, node, "perm", last, 4));
    v = sb_graph_node(g, node)->outputs[0];
    t.shape = (sb_shape){6, {n, h, 1, w, 1, c}};
    SB_TRY(tile_resize_add(g, id, "Reshape", apart, 6, &t, &v));
    t.shape = (sb_shape){6, {n, h, a, w, b, c}};
    SB_TRY(tile_resize_add(g, id, "Tile", times, 6, &t, &v));
    t.shape = (sb_shape){4, {n, a * h, b * w, c}};
    SB_TRY(tile_resize_add(g, id, "Reshape", joined, 4, &t, &v));
    SB_TRY(sb_rewrite_node(g, id, "Transpose", &v, 1, &node));
    return sb_graph_set_attr_ints(g, node, "perm", first, 4);
}

static sb_status tile_resize_rewrite(sb_graph *g, const sb_deploy *how,
                                     size_t *changes)
{
    size_t n = g->n_nodes;

    for (sb_node_id id = 0; id < n; id++) {
        bool done = false;
        SB_TRY(tile_resize_apply(g, how, id, &done));
        *changes += done;
    }
    return SB_OK;
}

static sb_status tile_resize_run(sb_graph *g, size_t *changes)
{
    return tile_resize_rewrite(g, NULL, changes);
}

const sb_rewrite_def sb_rewrite_tile_resize = {
    .name = "tile_resize",
    .between_kernels = true,
    .run = tile_resize_rewrite,
};

const sb_pass_def sb_pass_tile_resize = {
    .name = "tile_resize",
    .summary = "whole-number Resize as repeated pixels, channels last",
    .run = tile_resize_run,
};
