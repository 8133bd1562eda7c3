/* Upgrades of operators that move elements: mostly attributes that became
 * inputs. */
#include "onnx/upgrade_util.h"

#include <math.h>
#include <string.h>

/* Reductions, Squeeze, Unsqueeze.  No axes means all of them, then as now. */
sb_status sb_up_axes_to_input(sb_draft *d)
{
    return sb_draft_attr_to_in(d, "axes", 1);
}

sb_status sb_up_concat_4(sb_draft *d)
{
    return sb_draft_set_int(d, "axis", sb_draft_int(d, "axis", 1));
}

sb_status sb_up_grid_sample_20(sb_draft *d)
{
    if (sb_draft_is(d, "mode", "bilinear"))
        return sb_draft_set_text(d, "mode", "linear");
    if (sb_draft_is(d, "mode", "bicubic"))
        return sb_draft_set_text(d, "mode", "cubic");
    return SB_OK;
}

sb_status sb_up_pad_2(sb_draft *d)
{
    const sb_attr *a = sb_draft_attr(d, "paddings");

    if (!a)
        return SB_OK;
    sb_attr pads = *a;
    pads.name = "pads";
    sb_draft_remove(d, "paddings");
    return sb_draft_set(d, &pads);
}

sb_status sb_up_pad_11(sb_draft *d)
{
    float value = sb_draft_float(d, "value", 0.0f);
    sb_value_id id = SB_NONE;

    if (d->n_in != 1 || !sb_draft_attr(d, "pads"))
        return sb_draft_fail(d, SB_BAD_MODEL, "it has no attribute 'pads'");
    sb_draft_remove(d, "value");
    SB_TRY(sb_draft_attr_to_in(d, "pads", 1));
    if (value == 0.0f)
        return SB_OK;
    SB_TRY(
        sb_draft_scalar(d, "value", sb_draft_dtype(d, d->in[0]), value, &id));
    return sb_draft_set_in(d, 2, id);
}

sb_status sb_up_reshape_5(sb_draft *d)
{
    return sb_draft_attr_to_in(d, "shape", 1);
}

sb_status sb_up_slice_10(sb_draft *d)
{
    SB_TRY(sb_draft_attr_to_in(d, "starts", 1));
    SB_TRY(sb_draft_attr_to_in(d, "ends", 2));
    return sb_draft_attr_to_in(d, "axes", 3);
}

/* Opset 1 had the sizes as an attribute or as an input. */
sb_status sb_up_split_2(sb_draft *d)
{
    const sb_tensor *t = sb_draft_constant(d, sb_draft_in(d, 1));
    int64_t sizes[256];

    if (d->n_in < 2)
        return SB_OK;
    if (!t || !sb_dtype_is_integral(t->dtype) || t->rank != 1 ||
        t->dims[0] > (int64_t)SB_COUNT(sizes))
        return sb_draft_fail(d, SB_UNSUPPORTED,
                             "sizes that are not a short constant");
    for (int64_t i = 0; i < t->dims[0]; i++)
        sizes[i] = sb_tensor_get_i64(t, i);
    sb_attr a = {.name = "split", .type = SB_ATTR_INTS};
    a.n = (size_t)t->dims[0];
    a.ints = sb_arena_copy(d->graph->arena, sizes, a.n * sizeof *sizes);
    if (!a.ints)
        return SB_NO_MEMORY;
    d->n_in = 1;
    return sb_draft_set(d, &a);
}

sb_status sb_up_split_13(sb_draft *d)
{
    return sb_draft_attr_to_in(d, "split", 1);
}

/* Equal parts are now asked for by their number. */
sb_status sb_up_split_18(sb_draft *d)
{
    if (sb_draft_in(d, 1) != SB_NONE || sb_draft_attr(d, "num_outputs"))
        return SB_OK;
    return sb_draft_set_int(d, "num_outputs", (int64_t)d->n_out);
}

/* Tile took one axis and one number. */
sb_status sb_up_tile_6(sb_draft *d)
{
    const sb_tensor *tiles = sb_draft_constant(d, sb_draft_in(d, 1));
    const sb_tensor *axis = sb_draft_constant(d, sb_draft_in(d, 2));
    int64_t repeats[SB_MAX_RANK];

    if (d->n_in != 3)
        return SB_OK;
    int rank = sb_draft_rank(d, d->in[0]);
    if (!tiles || !axis || rank < 1 || sb_tensor_count(tiles) != 1 ||
        sb_tensor_count(axis) != 1)
        return sb_draft_fail(d, SB_UNSUPPORTED,
                             "tiles or axis that are not constant, or an "
                             "input of unknown rank");
    double at = sb_tensor_get_f64(axis, 0);
    double n = sb_tensor_get_f64(tiles, 0);
    if (!(at >= 0 && at < rank && n >= 0 && n < 1e9))
        return sb_draft_fail(d, SB_BAD_MODEL, "%g tiles on axis %g of %d", n,
                             at, rank);
    for (int i = 0; i < rank; i++)
        repeats[i] = i == (int)at ? (int64_t)n : 1;
    d->n_in = 1;
    return sb_draft_ints_to_in(d, 1, "repeats", repeats, (size_t)rank);
}

sb_status sb_up_top_k_10(sb_draft *d)
{
    int64_t k = sb_draft_int(d, "k", -1);

    if (k < 0)
        return sb_draft_fail(d, SB_BAD_MODEL, "k is missing or negative");
    sb_draft_remove(d, "k");
    return sb_draft_ints_to_in(d, 1, "k", &k, 1);
}

/* Opset 8 had lengths of sequences as the first input, and a batch axis. */
sb_status sb_up_scan_9(sb_draft *d)
{
    return sb_draft_fail(d, SB_UNSUPPORTED,
                         "Scan of opset 8 is not known; export the model with "
                         "opset 9 or later");
}

sb_status sb_up_scatter_11(sb_draft *d)
{
    d->op = "ScatterElements";
    return SB_OK;
}

sb_status sb_up_roi_align_16(sb_draft *d)
{
    return sb_draft_set_text(d, "coordinate_transformation_mode",
                             "output_half_pixel");
}

/* ---- Upsample and Resize ------------------------------------------------ */

static sb_status set_scales(sb_draft *d, const float *scales, size_t n)
{
    const sb_attr a = {
        .name = "scales", .type = SB_ATTR_FLOATS, .n = n, .floats = scales};

    return sb_draft_set(d, &a);
}

sb_status sb_up_upsample_7(sb_draft *d)
{
    float *scales = sb_arena_alloc(d->graph->arena, 4, sizeof *scales);

    if (!scales)
        return SB_NO_MEMORY;
    scales[0] = scales[1] = 1.0f;
    scales[2] = sb_draft_float(d, "height_scale", 1.0f);
    scales[3] = sb_draft_float(d, "width_scale", 1.0f);
    sb_draft_remove(d, "height_scale");
    sb_draft_remove(d, "width_scale");
    if (sb_draft_is(d, "mode", "bilinear"))
        SB_TRY(sb_draft_set_text(d, "mode", "linear"));
    return set_scales(d, scales, 4);
}

sb_status sb_up_upsample_9(sb_draft *d)
{
    const sb_attr *a = sb_draft_attr(d, "scales");
    sb_value_id id = SB_NONE;

    if (!a || a->type != SB_ATTR_FLOATS)
        return sb_draft_fail(d, SB_BAD_MODEL, "it has no attribute 'scales'");
    int64_t n = (int64_t)a->n;
    SB_TRY(sb_graph_add_constant(d->graph, "scales", SB_DTYPE_F32, 1, &n,
                                 a->floats, &id));
    sb_draft_remove(d, "scales");
    return sb_draft_set_in(d, 1, id);
}

sb_status sb_up_upsample_10(sb_draft *d)
{
    d->op = "Resize";
    if (sb_draft_is(d, "mode", "bilinear"))
        return sb_draft_set_text(d, "mode", "linear");
    return SB_OK;
}

static bool move_shrinks(const sb_draft *d, sb_value_id scales)
{
    const sb_tensor *t = sb_draft_constant(d, scales);

    if (!t || t->dtype != SB_DTYPE_F32)
        return false;
    for (int64_t i = 0; i < sb_tensor_count(t); i++)
        if (sb_tensor_get_f64(t, i) < 1.0)
            return true;
    return false;
}

/* Resize-10 left the mapping of coordinates open; implementations divide by
 * the scale, and round down, or up where they shrink, as ONNX Runtime does. */
sb_status sb_up_resize_11(sb_draft *d)
{
    sb_value_id scales = sb_draft_in(d, 1);

    SB_TRY(sb_draft_set_in(d, 1, SB_NONE));
    SB_TRY(sb_draft_set_in(d, 2, scales));
    SB_TRY(sb_draft_set_text(d, "nearest_mode",
                             move_shrinks(d, scales) ? "ceil" : "floor"));
    return sb_draft_set_text(d, "coordinate_transformation_mode", "asymmetric");
}

/* Inputs that had to be there were given without elements, and often still
 * are, so the rewrite serves opset 18 too.  In opset 13 one mapping
 * went; with rounding down it equals half_pixel with rounding to nearest:
 * floor((x + 0.5) / s) = floor(((x + 0.5) / s - 0.5) + 0.5). */
sb_status sb_up_resize_13(sb_draft *d)
{
    static const char mode[] = "coordinate_transformation_mode";

    for (size_t i = 1; i < d->n_in; i++) {
        const sb_tensor *t = sb_draft_constant(d, d->in[i]);
        if (t && sb_tensor_count(t) == 0)
            d->in[i] = SB_NONE;
    }
    while (d->n_in > 0 && d->in[d->n_in - 1] == SB_NONE)
        d->n_in--;
    if (sb_draft_is(d, mode, "tf_half_pixel_for_nn") &&
        sb_draft_is(d, "nearest_mode", "floor")) {
        SB_TRY(sb_draft_set_text(d, mode, "half_pixel"));
        return sb_draft_set_text(d, "nearest_mode", "round_prefer_ceil");
    }
    return SB_OK;
}
