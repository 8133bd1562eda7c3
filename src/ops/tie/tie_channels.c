/* Rules of convolutions, pools, and what rearranges channels. */
#include "ops/tie/tie.h"
#include "ops/tie/tie_rules.h"

enum { X = 0, W = 1, Y = SB_OUT_BASE };

/* ---- convolutions -------------------------------------------------------- */

/* Channels of x are [groups, per group], those of y [groups, made by each].
 * Whole groups go, or the same channels of each group. */
static void conv_groups(sb_ties *t, int64_t group)
{
    int64_t c = sb_tie_dim(t, X, 1), m = sb_tie_dim(t, W, 0);
    int64_t per = sb_tie_dim(t, W, 1);

    if (c < group || m < group || per * group != c || m % group != 0)
        return;
    int g = sb_tie_part(t, group), in = sb_tie_part(t, per);
    int out = sb_tie_part(t, m / group);
    sb_tie_digits(t, X, 1, (const int[]){g, in}, 2);
    if (per > 1)
        sb_tie_sum(t, in, 0, W, 1);
    sb_tie_digits(t, W, 0, (const int[]){g, out}, 2);
    if (per == 1 && m == group) /* depthwise: passes channels on */
        sb_tie_same(t, W, 0, Y, 1);
    else
        sb_tie_make(t, W, 0, Y, 1);
}

sb_status sb_tie_conv(sb_ties *t)
{
    int64_t group = sb_tie_attr(t, "group");

    sb_tie_same(t, X, 0, Y, 0);
    if (group == 1) {
        sb_tie_sum(t, X, 1, W, 1);
        sb_tie_make(t, W, 0, Y, 1);
    } else {
        conv_groups(t, group);
    }
    if (sb_tie_has(t, 2))
        sb_tie_same(t, 2, 0, Y, 1);
    if (sb_tie_has(t, 3)) /* of FusedConv: what is added */
        sb_tie_same_all(t, 3, Y);
    return SB_OK;
}

sb_status sb_tie_conv_transpose(sb_ties *t)
{
    int64_t group = sb_tie_attr(t, "group");
    int64_t c = sb_tie_dim(t, X, 1), per = sb_tie_dim(t, W, 1);

    sb_tie_same(t, X, 0, Y, 0);
    sb_tie_sum(t, X, 1, W, 0);
    if (group == 1) {
        sb_tie_make(t, W, 1, Y, 1);
    } else if (group > 1 && c >= group && c % group == 0 && per >= 1) {
        int g = sb_tie_part(t, group), in = sb_tie_part(t, c / group);
        int out = sb_tie_part(t, per);
        sb_tie_digits(t, X, 1, (const int[]){g, in}, 2);
        sb_tie_digits(t, Y, 1, (const int[]){g, out}, 2);
        sb_tie_make(t, W, 1, out, 0);
    }
    if (sb_tie_has(t, 2))
        sb_tie_same(t, 2, 0, Y, 1);
    return SB_OK;
}

sb_status sb_tie_deform_conv(sb_ties *t)
{
    enum { OFFSET = 2, BIAS = 3 };

    if (sb_tie_attr(t, "group") != 1 || sb_tie_attr(t, "offset_group") != 1)
        return SB_OK;
    sb_tie_same(t, X, 0, Y, 0);
    sb_tie_same(t, X, 0, OFFSET, 0);
    sb_tie_sum(t, X, 1, W, 1);
    sb_tie_make(t, W, 0, Y, 1);
    if (sb_tie_has(t, BIAS))
        sb_tie_same(t, BIAS, 0, Y, 1);
    return SB_OK;
}

/* ---- channel by channel -------------------------------------------------- */

/* A second result are places in the flattened input, which a cut moves. */
sb_status sb_tie_pool(sb_ties *t)
{
    if (sb_tie_has(t, SB_OUT(1)) || sb_tie_rank(t, X) < 2)
        return SB_OK;
    if (sb_tie_dim(t, X, 0) == sb_tie_dim(t, Y, 0))
        sb_tie_same(t, X, 0, Y, 0);
    sb_tie_same(t, X, 1, Y, 1);
    return SB_OK;
}

/* Axes that keep their size are copied, unless a region is cut out. */
sb_status sb_tie_resize(sb_ties *t)
{
    enum { SIZES = 3 };

    bool shown = sb_tie_has(t, SIZES) && !sb_tie_is_const(t, SIZES);

    if (sb_node_string_is(t->node, "coordinate_transformation_mode",
                          "tf_crop_and_resize", false) ||
        (shown && sb_node_attr(t->node, "axes")))
        return SB_OK;
    for (int a = 0; a < sb_tie_rank(t, X); a++)
        if (sb_tie_dim(t, X, a) == sb_tie_dim(t, Y, a) &&
            (!shown || sb_target_shows(t->graph, sb_tie_value(t, SIZES),
                                       sb_tie_value(t, X), a)))
            sb_tie_same(t, X, a, Y, a);
    return SB_OK;
}

/* The deep side is [block x block, channels], or the other way round. */
static void tie_blocks(sb_ties *t, int deep, int flat, bool channels_first)
{
    int64_t b = sb_tie_attr(t, "blocksize"), c = sb_tie_dim(t, flat, 1);

    if (b < 1 || b > 1024 || c < 1)
        return;
    int block = sb_tie_part(t, b * b), channel = sb_tie_part(t, c);
    const int parts[] = {channels_first ? channel : block,
                         channels_first ? block : channel};
    sb_tie_same(t, X, 0, Y, 0);
    sb_tie_same(t, channel, 0, flat, 1);
    sb_tie_fixed(t, block, 0, "pixels of a block");
    sb_tie_digits(t, deep, 1, parts, 2);
}

sb_status sb_tie_depth_to_space(sb_ties *t)
{
    tie_blocks(t, X, Y, sb_node_string_is(t->node, "mode", "CRD", false));
    return SB_OK;
}

sb_status sb_tie_space_to_depth(sb_ties *t)
{
    tie_blocks(t, Y, X, false);
    return SB_OK;
}
