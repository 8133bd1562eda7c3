/* Pass "focus_to_conv": a convolution of every second row and column, each of
 * the four in its own channels, as one of the image itself.
 *
 *     before:  y = Conv(Concat(x[0::2, 0::2], x[1::2, 0::2], ...), w)
 *     after:   y = Conv(x, w')     kernel, strides and pads twice as large
 *
 * YOLOX and early versions of YOLOv5 begin so ("Focus"), since it was fast on
 * graphics processors once.  Position (2 y + i, 2 x + j) of the new kernel is
 * (y, x) of the old one in the channels of part (i, j), so the products are the
 * same and nothing has to be copied about. */
#include "passes/deploy/deploy.h"
#include "passes/pass.h"
#include "passes/rewrite.h"

enum { N_PARTS = 4 };

typedef struct focus {
    sb_value_id x;
    int64_t row[N_PARTS], column[N_PARTS]; /* where each part starts */
} focus;

/* Takes one Slice into account: of `start` and `step` of axes 2 and 3. */
static bool read_slice(const sb_graph *g, const sb_node *node, int64_t start[4],
                       int64_t step[4])
{
    int64_t from[4], to[4], axes[4], by[4];
    const sb_shape *s = &sb_graph_value(g, node->inputs[0])->type.shape;
    int n = sb_const_ints(g, sb_node_in(node, 1), from, 4);

    if (n < 1 || s->rank != 4 ||
        sb_const_ints(g, sb_node_in(node, 2), to, 4) != n ||
        sb_const_ints(g, sb_node_in(node, 3), axes, 4) != n ||
        sb_const_ints(g, sb_node_in(node, 4), by, 4) != n)
        return false;
    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + 4 : axes[i];
        if (axis < 2 || axis > 3 || step[axis] != 1 || by[i] != 2 ||
            from[i] < 0 || from[i] > 1 || !sb_dim_known(s->dim[axis]) ||
            s->dim[axis] % 2 != 0 || to[i] < s->dim[axis])
            return false;
        start[axis] = from[i];
        step[axis] = 2;
    }
    return true;
}

/* Is the value every second row and column of something? */
static bool read_part(const sb_graph *g, sb_value_id v, sb_value_id *x,
                      int64_t *row, int64_t *column)
{
    int64_t start[4] = {0}, step[4] = {1, 1, 1, 1};

    for (int i = 0; i < 2 && (step[2] == 1 || step[3] == 1); i++) {
        const sb_node *node = sb_graph_producer(g, v);
        if (!node || !sb_node_is(node, "Slice") ||
            !read_slice(g, node, start, step))
            return false;
        v = node->inputs[0];
    }
    *x = v;
    *row = start[2];
    *column = start[3];
    return step[2] == 2 && step[3] == 2;
}

/* All four parts of one image, in any order? */
static bool read_focus(const sb_graph *g, const sb_node *concat, focus *p)
{
    unsigned seen = 0;

    if (!sb_node_is(concat, "Concat") || concat->n_in != N_PARTS ||
        sb_node_int(concat, "axis", 0) != 1)
        return false;
    for (uint32_t i = 0; i < N_PARTS; i++) {
        sb_value_id x = SB_NONE;
        if (concat->inputs[i] == SB_NONE ||
            !read_part(g, concat->inputs[i], &x, &p->row[i], &p->column[i]) ||
            (i > 0 && x != p->x))
            return false;
        p->x = x;
        seen |= 1u << (2 * p->row[i] + p->column[i]);
    }
    return seen == 15;
}

/* Integers of an attribute times two, or `absent` times two. */
static bool focus_to_conv_twice(const sb_node *node, const char *name, size_t n,
                                int64_t absent, int64_t *out)
{
    const sb_attr *a = sb_node_attr(node, name);

    if (a && (a->type != SB_ATTR_INTS || a->n != n))
        return false;
    for (size_t i = 0; i < n; i++) {
        int64_t v = a ? a->ints[i] : absent;
        if (v < 0 || v > INT16_MAX)
            return false;
        out[i] = 2 * v;
    }
    return true;
}

static bool is_plain(const sb_graph *g, const sb_node *node, const focus *p)
{
    sb_value_id w = sb_node_in(node, 1);
    int64_t dilations[2];

    if (sb_node_int(node, "group", 1) != 1 || !sb_is_const(g, w) ||
        !sb_node_string_is(node, "auto_pad", "NOTSET", true) ||
        !focus_to_conv_twice(node, "dilations", 2, 1, dilations) ||
        dilations[0] != 2 || dilations[1] != 2)
        return false;
    const sb_tensor *t = &sb_graph_value(g, w)->constant;
    sb_dim c = sb_graph_value(g, p->x)->type.shape.dim[1];
    return t->dtype == SB_DTYPE_F32 && t->rank == 4 && sb_dim_known(c) &&
           c <= INT32_MAX && t->dims[1] == N_PARTS * c &&
           t->dims[2] <= INT16_MAX && t->dims[3] <= INT16_MAX;
}

/* Element by element of [M, C, 2 kh, 2 kw], that of w [M, 4 C, kh, kw]. */
static void focus_to_conv_interleave(const focus *p, const sb_tensor *w,
                                     int32_t *gather)
{
    int64_t c = w->dims[1] / N_PARTS, kh = w->dims[2], kw = w->dims[3];
    int32_t from = 0;

    for (int64_t i = 0; i < w->dims[0]; i++)
        for (int64_t part = 0; part < N_PARTS; part++)
            for (int64_t k = 0; k < c; k++)
                for (int64_t y = 0; y < kh; y++)
                    for (int64_t x = 0; x < kw; x++)
                        gather[((i * c + k) * 2 * kh + 2 * y + p->row[part]) *
                                   2 * kw +
                               2 * x + p->column[part]] = from++;
}

static sb_status set_weight(sb_graph *g, const sb_deploy *how, sb_node_id conv,
                            const focus *p)
{
    const sb_tensor *w =
        &sb_graph_value(g, sb_graph_node(g, conv)->inputs[1])->constant;
    int64_t dims[4] = {w->dims[0], w->dims[1] / N_PARTS, 2 * w->dims[2],
                       2 * w->dims[3]};
    int32_t *gather = NULL;

    SB_TRY(sb_deploy_gather(g, sb_tensor_count(w), &gather));
    focus_to_conv_interleave(p, w, gather);
    SB_TRY(sb_deploy_constant(g, how, conv, 1, 4, dims, gather));
    return sb_graph_set_attr_ints(g, conv, "kernel_shape", dims + 2, 2);
}

static sb_status focus_to_conv_apply(sb_graph *g, const sb_deploy *how,
                                     sb_node_id conv, bool *done)
{
    const sb_node *node = sb_graph_node(g, conv);
    int64_t strides[2], pads[4];
    focus p = {.x = SB_NONE};

    if (node->dead || !sb_node_is(node, "Conv") || !sb_deploy_may(how, g, node))
        return SB_OK;
    sb_value_id read = node->inputs[0];
    const sb_value *in = sb_graph_value(g, read);
    sb_node_id concat = in->producer;
    if (concat == SB_NONE || in->n_uses != 1 || in->is_output ||
        !read_focus(g, sb_graph_node(g, concat), &p) ||
        !is_plain(g, node, &p) ||
        !focus_to_conv_twice(node, "strides", 2, 1, strides) ||
        !focus_to_conv_twice(node, "pads", 4, 0, pads))
        return SB_OK;
    *done = true;
    SB_TRY(set_weight(g, how, conv, &p));
    SB_TRY(sb_graph_set_attr_ints(g, conv, "strides", strides, 2));
    SB_TRY(sb_graph_set_attr_ints(g, conv, "pads", pads, 4));
    SB_TRY(sb_deploy_origin(g, how, p.x, read, NULL));
    SB_TRY(sb_graph_set_input(g, conv, 0, p.x));
    return sb_rewrite_prune(g, concat);
}

static sb_status focus_to_conv_rewrite(sb_graph *g, const sb_deploy *how,
                                       size_t *changes)
{
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        bool done = false;
        SB_TRY(focus_to_conv_apply(g, how, id, &done));
        *changes += done;
    }
    return SB_OK;
}

static sb_status focus_to_conv_run(sb_graph *g, size_t *changes)
{
    return focus_to_conv_rewrite(g, NULL, changes);
}

const sb_rewrite_def sb_rewrite_focus_to_conv = {
    .name = "focus_to_conv",
    .run = focus_to_conv_rewrite,
};

const sb_pass_def sb_pass_focus_to_conv = {
    .name = "focus_to_conv",
    .summary = "every second row and column and a convolution as one",
    .run = focus_to_conv_run,
};
