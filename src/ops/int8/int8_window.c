/* The windows of integer convolutions and pools: attributes, sizes, shape
 * inference; see int8_conv.h. */
#include <string.h>

#include "ops/int8/int8_conv.h"

#define ATTR(field) offsetof(sb_int8_conv_attrs, field)

const sb_attr_def sb_int8_conv_attr_defs[] = {
    {.name = "auto_pad", SB_ATTR_STRING, ATTR(auto_pad), .s = "NOTSET"},
    {.name = "dilations", SB_ATTR_INTS, ATTR(dilations)},
    {.name = "group", SB_ATTR_INT, ATTR(group), .i = 1},
    {.name = "kernel_shape", SB_ATTR_INTS, ATTR(kernel_shape)},
    {.name = "pads", SB_ATTR_INTS, ATTR(pads)},
    {.name = "strides", SB_ATTR_INTS, ATTR(strides)},
    {0},
};

/* ---- geometry ----------------------------------------------------------- */

enum { SANE = 1 << 30 }; /* bound on strides, pads, dilations and kernels */

static bool int8_window_sane(int64_t v, int64_t least)
{
    return v >= least && v <= SANE;
}

const char *sb_int8_axis_window(const sb_int8_conv_attrs *a, size_t n, size_t d,
                                int64_t x, sb_axis_window *w)
{
    int64_t end = 0;

    w->stride = d < a->strides.n ? a->strides.v[d] : 1;
    w->dilation = d < a->dilations.n ? a->dilations.v[d] : 1;
    if (a->pads.n == 2 * n) {
        w->pad = a->pads.v[d];
        end = a->pads.v[d + n];
    }
    if (!int8_window_sane(w->stride, 1) || !int8_window_sane(w->dilation, 1) ||
        !int8_window_sane(w->kernel, 1))
        return "a stride, dilation or kernel size is out of range";
    if (!int8_window_sane(w->pad, 0) || !int8_window_sane(end, 0) || x < 0 ||
        x > INT64_MAX / 4)
        return "a padding or input size is out of range";

    int64_t reach = (w->kernel - 1) * w->dilation + 1;
    bool upper = strcmp(a->auto_pad, "SAME_UPPER") == 0;
    if (upper || strcmp(a->auto_pad, "SAME_LOWER") == 0) {
        w->out = x / w->stride + (x % w->stride != 0);
        int64_t total = (w->out - 1) * w->stride + reach - x;
        total = total > 0 ? total : 0;
        w->pad = upper ? total / 2 : total - total / 2;
        return NULL;
    }
    if (strcmp(a->auto_pad, "VALID") == 0)
        w->pad = end = 0;
    int64_t room = x + w->pad + end - reach;
    if (room < 0)
        return "the kernel is larger than the padded input";
    w->out = room / w->stride + 1;
    if (w->ceil && room % w->stride != 0 && w->out * w->stride < x + w->pad)
        w->out++; /* unless the window would start behind the input */
    return NULL;
}

/* Attribute lengths against the number of spatial dimensions. */
bool sb_int8_conv_lengths_fit(const sb_int8_conv_attrs *a, size_t n)
{
    return (a->strides.n == 0 || a->strides.n == n) &&
           (a->dilations.n == 0 || a->dilations.n == n) &&
           (a->kernel_shape.n == 0 || a->kernel_shape.n == n) &&
           (a->pads.n == 0 || a->pads.n == 2 * n);
}

sb_status sb_int8_conv_infer(sb_infer *in, const sb_int8_conv_inputs *which,
                             sb_dtype dtype)
{
    const sb_int8_conv_attrs *a = in->attrs;
    const sb_shape *x = &in->in[which->x]->type.shape;
    const sb_shape *w = &in->in[which->w]->type.shape;
    sb_shape out = sb_shape_unknown();

    if (x->rank >= 0) {
        if (x->rank < 3)
            return sb_infer_fail(in, "input has rank %d, want 3 to 5", x->rank);
        if (w->rank >= 0 && w->rank != x->rank)
            return sb_infer_fail(in, "weight has rank %d, want %d", w->rank,
                                 x->rank);
        size_t n = (size_t)x->rank - 2;
        if (!sb_int8_conv_lengths_fit(a, n))
            return sb_infer_fail(in,
                                 "an attribute does not fit %zu spatial "
                                 "dimensions",
                                 n);
        out = sb_shape_of_rank(x->rank);
        out.dim[0] = x->dim[0];
        out.dim[1] = w->rank > 0 ? w->dim[0] : SB_DIM_UNKNOWN;
        for (size_t d = 0; d < n; d++) {
            sb_axis_window win = {.kernel = w->rank > 0 ? w->dim[d + 2]
                                            : a->kernel_shape.n
                                                ? a->kernel_shape.v[d]
                                                : SB_DIM_UNKNOWN};

            if (!sb_dim_known(win.kernel) || !sb_dim_known(x->dim[d + 2]))
                continue;
            const char *wrong =
                sb_int8_axis_window(a, n, d, x->dim[d + 2], &win);
            if (wrong)
                return sb_infer_fail(in, "%s", wrong);
            out.dim[d + 2] = win.out;
        }
    }
    sb_infer_set(in, 0, dtype, &out);
    return SB_OK;
}
