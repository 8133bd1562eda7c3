/* LayerNormalization, RMSNormalization, and SimplifiedLayerNormalization (the
 * name that ONNX Runtime's tools give to the second).
 *
 * The dimensions from `axis` on are one row.  Scale and bias usually have just
 * these dimensions; any others that broadcast are applied element by element
 * in a second pass. */
#include "ops/batch_rules.h"
#include "ops/grad/grad_rules.h"
#include "ops/norm/norm_util.h"
#include "ops/tie/tie_rules.h"

typedef struct {
    int64_t axis, stash_type;
    float epsilon;
} layer_norm_attrs;

static const sb_attr_def attrs[] = {
    {"axis", SB_ATTR_INT, offsetof(layer_norm_attrs, axis), .i = -1},
    {"epsilon", SB_ATTR_FLOAT, offsetof(layer_norm_attrs, epsilon), .f = 1e-5f},
    {"stash_type", SB_ATTR_INT, offsetof(layer_norm_attrs, stash_type), .i = 1},
    {0},
};

/* Output 0 like x; `stats` more outputs from 1 on, with the row dimensions 1.
 */
static sb_status norm_infer(sb_infer *in, uint32_t stats)
{
    const layer_norm_attrs *a = in->attrs;
    const sb_shape *x = &in->in[0]->type.shape;
    sb_dtype stash =
        a->stash_type == SB_DTYPE_BF16 ? SB_DTYPE_BF16 : SB_DTYPE_F32;
    sb_shape reduced = *x;
    int axis = 0;

    in->out[0].type = in->in[0]->type;
    if (x->rank < 0)
        return SB_OK;
    SB_TRY(sb_infer_axis(in, a->axis, x->rank, &axis));
    for (int i = axis; i < x->rank; i++)
        reduced.dim[i] = 1;
    for (uint32_t i = 1; i <= stats; i++)
        sb_infer_set(in, i, stash, &reduced);
    for (uint32_t i = 1; i < in->n_in; i++) {
        const sb_fact *f = in->in[i];
        sb_shape both = *x;
        if (f && (f->type.shape.rank > x->rank ||
                  !sb_shape_broadcast(&both, &f->type.shape)))
            return sb_infer_fail(in, "input %u does not broadcast to the first",
                                 i);
    }
    return SB_OK;
}

static sb_status layer_infer(sb_infer *in)
{
    return norm_infer(in, 2);
}

static sb_status rms_infer(sb_infer *in)
{
    return norm_infer(in, 0);
}

static sb_status simplified_infer(sb_infer *in)
{
    return norm_infer(in, 1);
}

typedef struct {
    int axis;
    int64_t rows, size;
} layer_norm_sizes;

static layer_norm_sizes sizes_of(const sb_kernel *k)
{
    const layer_norm_attrs *a = k->attrs;
    const sb_tensor *x = k->in[0];
    int axis = (int)(a->axis < 0 ? a->axis + x->rank : a->axis);

    return (layer_norm_sizes){axis, sb_dims_product(x->dims, 0, axis),
                              sb_dims_product(x->dims, axis, x->rank)};
}

/* True if the elements of `t` can be used as one row as they are. */
static bool is_row(const sb_tensor *t, const layer_norm_sizes *s)
{
    return sb_tensor_count(t) == s->size;
}

static sb_status norm_prepare(sb_kernel *k)
{
    for (uint32_t i = 0; i < k->n_in; i++)
        if (k->in[i] && k->in[i]->dtype != SB_DTYPE_F32)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %u of type %s", i,
                                  sb_dtype_name(k->in[i]->dtype));
    return SB_OK;
}

/* Element of `t` that meets element i of x, by broadcasting. */
static float spread_at(const sb_tensor *t, const sb_tensor *x, int64_t i)
{
    int64_t at = 0, step = 1;

    for (int d = x->rank - 1, o = t->rank - 1; o >= 0; d--, o--) {
        at += t->dims[o] == 1 ? 0 : i % x->dims[d] * step;
        i /= x->dims[d];
        step *= t->dims[o];
    }
    return ((const float *)t->data)[at];
}

/* y = y * scale + bias, element by element, for unusual shapes. */
static void apply_spread(sb_kernel *k, const sb_tensor *scale,
                         const sb_tensor *bias)
{
    float *y = k->out[0]->data;
    int64_t n = sb_tensor_count(k->out[0]);

    for (int64_t i = 0; i < n; i++) {
        y[i] *= scale ? spread_at(scale, k->in[0], i) : 1;
        y[i] += bias ? spread_at(bias, k->in[0], i) : 0;
    }
}

static sb_status norm_forward(sb_kernel *k, bool centered, sb_tensor *mean,
                              sb_tensor *inv_std)
{
    const layer_norm_attrs *a = k->attrs;
    const sb_tensor *scale = sb_kernel_in(k, 1), *bias = sb_kernel_in(k, 2);
    layer_norm_sizes s = sizes_of(k);
    bool simple = (!scale || is_row(scale, &s)) && (!bias || is_row(bias, &s));
    sb_row_norm norm = {
        .rows = s.rows,
        .size = s.size,
        .centered = centered,
        .epsilon = a->epsilon,
        .x = k->in[0]->data,
        .scale = simple && scale ? scale->data : NULL,
        .bias = simple && bias ? bias->data : NULL,
        .y = k->out[0]->data,
        .mean = mean ? mean->data : NULL,
        .inv_std = inv_std ? inv_std->data : NULL,
    };

    sb_row_norm_run(k->ctx, &norm);
    if (!simple)
        apply_spread(k, scale, bias);
    return SB_OK;
}

static sb_status layer_forward(sb_kernel *k)
{
    return norm_forward(k, true, sb_kernel_out(k, 1), sb_kernel_out(k, 2));
}

static sb_status rms_forward(sb_kernel *k)
{
    return norm_forward(k, false, NULL, NULL);
}

static sb_status simplified_forward(sb_kernel *k)
{
    return norm_forward(k, false, NULL, sb_kernel_out(k, 1));
}

const sb_op_def sb_op_layer_normalization = {
    .name = "LayerNormalization",
    .since = 17,
    .quant = SB_ROLE_SINGLE,
    .parameters = 1u << 1 | 1u << 2,
    .in_min = 2,
    .in_max = 3,
    .out_min = 1,
    .out_max = 3,
    .flags = SB_OP_GAINS | SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(layer_norm_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_tail,
    .infer = layer_infer,
    .prepare = norm_prepare,
    .forward = layer_forward,
    .grad = sb_grad_layer_norm,
    .tie = sb_tie_layer_norm,
};

const sb_op_def sb_op_rms_normalization = {
    .name = "RMSNormalization",
    .since = 23,
    .quant = SB_ROLE_SINGLE,
    .parameters = 1u << 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_GAINS | SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(layer_norm_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_tail,
    .infer = rms_infer,
    .prepare = norm_prepare,
    .forward = rms_forward,
    .grad = sb_grad_layer_norm,
    .tie = sb_tie_layer_norm,
};

const sb_op_def sb_op_simplified_layer_normalization = {
    .name = "SimplifiedLayerNormalization",
    .since = 1,
    .parameters = 1u << 1,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 2,
    .flags = SB_OP_GAINS | SB_OP_F32 | SB_OP_INPLACE,
    .attrs_size = sizeof(layer_norm_attrs),
    .attrs = attrs,
    .batch = sb_batch_but_tail,
    .infer = simplified_infer,
    .prepare = norm_prepare,
    .forward = simplified_forward,
    .grad = sb_grad_layer_norm,
    .tie = sb_tie_layer_norm,
};
