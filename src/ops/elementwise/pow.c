/* Pow: y = a ^ b, where the exponent may have another type than the base,
 * whose type the result has.
 *
 * Integer to the power of integer is exact and wraps; a negative exponent
 * truncates 1/a^|b|.  Everything else is computed in float, or in double if
 * the base is double or integer.  The usual exponents 2, 3, 0.5, ... skip the
 * general function. */
#include <math.h>

#include "ops/elementwise/elementwise.h"

static int64_t pow_int(int64_t base, int64_t exponent)
{
    uint64_t result = 1, b = (uint64_t)base;

    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    for (uint64_t e = (uint64_t)exponent; e; e >>= 1) {
        if (e & 1)
            result *= b;
        b *= b;
    }
    return (int64_t)result;
}

SB_STRIP2(pow_i64, int64_t, int64_t, pow_int(a, b))
SB_STRIP2(pow_f64, double, double, pow(a, b))
SB_STRIP2(pow_any_f32, float, float, powf(a, b))
SB_STRIP1(pow_2, float, float, x *x)
SB_STRIP1(pow_3, float, float, x *x *x)

static void pow_f32(const sb_strip *s)
{
    float exponent = s->one[1] ? *(const float *)s->x[1] : 0;

    if (exponent == 2)
        pow_2(s);
    else if (exponent == 3)
        pow_3(s);
    else
        pow_any_f32(s);
}

/* For chains. */
static const sb_ew_def pow_def = {.f32 = pow_f32};

static sb_status pow_prepare(sb_kernel *k)
{
    for (uint32_t i = 0; i < 2; i++) {
        sb_dtype_class cls = sb_dtype_get(k->in[i]->dtype)->cls;

        if (cls != SB_CLASS_FLOAT && cls != SB_CLASS_INT &&
            cls != SB_CLASS_UINT)
            return sb_kernel_fail(k, SB_UNSUPPORTED, "input %u of type %s", i,
                                  sb_dtype_name(k->in[i]->dtype));
    }
    return SB_OK;
}

static sb_status pow_forward(sb_kernel *k)
{
    sb_dtype base = k->in[0]->dtype, exponent = k->in[1]->dtype;
    sb_dtype as = SB_DTYPE_F32;
    sb_strip_fn fn = pow_f32;

    if (sb_dtype_is_integral(base) && sb_dtype_is_integral(exponent)) {
        as = SB_DTYPE_I64;
        fn = pow_i64;
    } else if (base == SB_DTYPE_F64 || sb_dtype_is_integral(base)) {
        as = SB_DTYPE_F64;
        fn = pow_f64;
    }
    sb_ew_call call = {.fn = fn,
                       .n_in = 2,
                       .in = {k->in[0], k->in[1]},
                       .in_as = {as, as},
                       .out = k->out[0],
                       .out_as = as};
    return sb_ew_run(k, &call);
}

const sb_op_def sb_op_pow = {
    .name = "Pow",
    .since = 12,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS,
    .aux = &pow_def,
    .infer = sb_infer_broadcast,
    .prepare = pow_prepare,
    .forward = pow_forward,
    .grad = sb_grad_pow,
};
