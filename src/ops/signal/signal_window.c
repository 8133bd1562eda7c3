/* HannWindow, HammingWindow, BlackmanWindow: sums of up to three cosines,
 *
 *     y[i] = a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n),
 *
 * n being the size if periodic, size - 1 if symmetric. */
#include <math.h>

#include "ops/infer_util.h"

typedef struct window_attrs {
    int64_t output_datatype, periodic;
} window_attrs;

static const sb_attr_def window_attr_defs[] = {
    {.name = "output_datatype",
     SB_ATTR_INT,
     offsetof(window_attrs, output_datatype),
     .i = SB_DTYPE_F32},
    {.name = "periodic",
     SB_ATTR_INT,
     offsetof(window_attrs, periodic),
     .i = 1,
     .flag = true},
    {0},
};

typedef struct window_terms {
    double a0, a1, a2;
} window_terms;

static sb_status window_infer(sb_infer *in)
{
    const window_attrs *a = in->attrs;
    sb_shape out = sb_shape_of_rank(1);
    int64_t size = 0;

    if (!sb_dtype_valid((int)a->output_datatype) ||
        sb_dtype_size((sb_dtype)a->output_datatype) == 0)
        return sb_infer_fail(in, "output_datatype is %lld",
                             (long long)a->output_datatype);
    if (sb_infer_ints(in, 0, &size, 1) == 1) {
        if (size < 0)
            return sb_infer_fail(in, "size is %lld", (long long)size);
        out.dim[0] = size;
    }
    sb_infer_set(in, 0, (sb_dtype)a->output_datatype, &out);
    return SB_OK;
}

static sb_status window_prepare(sb_kernel *k)
{
    sb_dtype_class cls = sb_dtype_get(k->out[0]->dtype)->cls;

    if (cls == SB_CLASS_OTHER || cls == SB_CLASS_BOOL)
        return sb_kernel_fail(k, SB_UNSUPPORTED, "output has type %s",
                              sb_dtype_name(k->out[0]->dtype));
    return SB_OK;
}

static sb_status window_forward(sb_kernel *k)
{
    const double two_pi = 6.283185307179586476925286766559;
    const window_attrs *a = k->attrs;
    const window_terms *t = k->op->aux;
    sb_tensor *y = k->out[0];
    int64_t size = y->dims[0], n = a->periodic ? size : size - 1;
    size_t bytes = sb_dtype_size(y->dtype);

    for (int64_t i = 0; i < size; i++) {
        double angle = n > 0 ? two_pi * (double)i / (double)n : 0;
        double v = t->a0 - t->a1 * cos(angle) + t->a2 * cos(2 * angle);

        sb_convert(SB_DTYPE_F64, &v, y->dtype,
                   (char *)y->data + (size_t)i * bytes, 1);
    }
    return SB_OK;
}

static const window_terms hann = {0.5, 0.5, 0};
static const window_terms hamming = {25.0 / 46, 21.0 / 46, 0};
static const window_terms blackman = {0.42, 0.5, 0.08};

const sb_op_def sb_op_hann_window = {
    .name = "HannWindow",
    .since = 17,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(window_attrs),
    .attrs = window_attr_defs,
    .aux = &hann,
    .infer = window_infer,
    .prepare = window_prepare,
    .forward = window_forward,
};

const sb_op_def sb_op_hamming_window = {
    .name = "HammingWindow",
    .since = 17,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(window_attrs),
    .attrs = window_attr_defs,
    .aux = &hamming,
    .infer = window_infer,
    .prepare = window_prepare,
    .forward = window_forward,
};

const sb_op_def sb_op_blackman_window = {
    .name = "BlackmanWindow",
    .since = 17,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .attrs_size = sizeof(window_attrs),
    .attrs = window_attr_defs,
    .aux = &blackman,
    .infer = window_infer,
    .prepare = window_prepare,
    .forward = window_forward,
};
