/* Clip: y = min(max(x, lo), hi); both limits optional scalars.  Where lo > hi
 * the result is hi, as ONNX Runtime and NumPy have it.  NaN stays NaN. */
#include <float.h>
#include <math.h>

#include "ops/elementwise/elementwise.h"

typedef union {
    float f32[2];
    double f64[2];
    int64_t i64[2];
    uint64_t u64[2];
} clip_limits;

#define CLIP(id, T)                                                        \
    SB_STRIP1_SETUP(clip_##id, T, T, const clip_limits *limits = s->param; \
                    const T lo = limits->id[0];                            \
                    const T hi = limits->id[1],                            \
                    (x < lo ? lo : x) > hi ? hi : (x < lo ? lo : x))

CLIP(f32, float)
CLIP(f64, double)
CLIP(i64, int64_t)
CLIP(u64, uint64_t)
static const sb_ew_def clip_def = {
    .f32 = clip_f32, .f64 = clip_f64, .i64 = clip_i64, .u64 = clip_u64};

/* The same with the limits as further inputs, for chains. */
static void clip_inputs_f32(const sb_strip *s)
{
    const float *lo = s->x[1], *hi = s->x[2];
    const clip_limits limits = {
        .f32 = {lo ? *lo : -INFINITY, hi ? *hi : INFINITY}};
    sb_strip inner = *s;

    inner.param = &limits;
    clip_f32(&inner);
}

static const sb_ew_def clip_inputs_def = {.f32 = clip_inputs_f32};

/* Limits that are no limits are found where the file is loaded, before they
 * are fused into something. */
static sb_status clip_infer(sb_infer *in)
{
    sb_dtype as, dtype = in->in[0]->type.dtype;

    if (dtype != SB_DTYPE_NONE && !sb_ew_pick(&clip_def, dtype, &as))
        return sb_infer_fail(in, "not for elements of type %s",
                             sb_dtype_name(dtype));
    SB_TRY(sb_infer_want_one(in, 1, dtype));
    SB_TRY(sb_infer_want_one(in, 2, dtype));
    return sb_infer_same(in);
}

static sb_status clip_prepare(sb_kernel *k)
{
    sb_dtype as, dtype = k->in[0]->dtype;

    if (!sb_ew_pick(&clip_def, dtype, &as))
        return sb_kernel_fail(k, SB_UNSUPPORTED, "not for elements of type %s",
                              sb_dtype_name(dtype));
    for (uint32_t i = 1; i < 3; i++) {
        const sb_tensor *limit = sb_kernel_in(k, i);

        if (limit && (sb_tensor_count(limit) != 1 || limit->dtype != dtype))
            return sb_kernel_fail(k, SB_BAD_MODEL,
                                  "input %u is not one element of type %s", i,
                                  sb_dtype_name(dtype));
    }
    return SB_OK;
}

/* Limits that change nothing. */
static void clip_defaults(sb_dtype as, clip_limits *limits)
{
    if (as == SB_DTYPE_F32) {
        limits->f32[0] = -INFINITY;
        limits->f32[1] = INFINITY;
    } else if (as == SB_DTYPE_F64) {
        limits->f64[0] = -(double)INFINITY;
        limits->f64[1] = (double)INFINITY;
    } else if (as == SB_DTYPE_I64) {
        limits->i64[0] = INT64_MIN;
        limits->i64[1] = INT64_MAX;
    } else {
        limits->u64[0] = 0;
        limits->u64[1] = UINT64_MAX;
    }
}

static sb_status clip_forward(sb_kernel *k)
{
    sb_dtype as = SB_DTYPE_NONE;
    clip_limits limits = {.u64 = {0}};
    sb_ew_call call = {.fn = sb_ew_pick(&clip_def, k->in[0]->dtype, &as),
                       .param = &limits,
                       .n_in = 1,
                       .in = {k->in[0]},
                       .in_as = {as},
                       .out = k->out[0],
                       .out_as = as};

    clip_defaults(as, &limits);
    for (uint32_t i = 1; i < 3; i++) {
        const sb_tensor *t = sb_kernel_in(k, i);
        void *to = as == SB_DTYPE_F32 ? (void *)&limits.f32[i - 1]
                                      : (void *)&limits.u64[i - 1];
        if (t)
            sb_convert(t->dtype, t->data, as, to, 1);
    }
    return sb_ew_run(k, &call);
}

static const sb_result_range clip_range = {
    .lo = -HUGE_VAL, .hi = HUGE_VAL, .lo_in = 1, .hi_in = 2, .clips = true};

const sb_op_def sb_op_clip = {
    .name = "Clip",
    .range = &clip_range,
    .since = 11,
    .quant = SB_ROLE_RELU,
    .in_min = 1,
    .in_max = 3,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS,
    .aux = &clip_inputs_def,
    .infer = clip_infer,
    .prepare = clip_prepare,
    .forward = clip_forward,
    .grad = sb_grad_clip,
};
