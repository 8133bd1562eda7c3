/* Mod: the remainder of a / b.  With fmod = 0 it has the sign of the divisor
 * (Python's %), with fmod = 1 that of the dividend (C's fmod).  Integers modulo
 * zero give 0. */
#include <math.h>

#include "ops/elementwise/elementwise.h"
#include "ops/grad/grad_rules.h"

typedef struct {
    int64_t fmod;
} mod_attrs;

static const sb_attr_def mod_table[] = {
    {"fmod", SB_ATTR_INT, offsetof(mod_attrs, fmod), .i = 0, .flag = true},
    {0},
};

static inline int64_t rem_i64(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

static inline int64_t mod_int(int64_t a, int64_t b)
{
    int64_t r = rem_i64(a, b);

    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* ONNX does not allow floats with fmod = 0; this is what ONNX Runtime makes of
 * them: the sign is that of the divisor, as with integers. */
static inline double mod_real(double a, double b)
{
    double r = fmod(a, b);

    if (r == 0)
        return copysign(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

SB_STRIP2(mod_f32, float, float, mod_real((double)a, (double)b))
SB_STRIP2(mod_f64, double, double, mod_real(a, b))
SB_STRIP2(mod_i64, int64_t, int64_t, mod_int(a, b))
SB_STRIP2(mod_u64, uint64_t, uint64_t, b == 0 ? 0 : a % b)
SB_STRIP2(rem_f32, float, float, fmodf(a, b))
SB_STRIP2(rem_f64, double, double, fmod(a, b))
SB_STRIP2(rem_i64s, int64_t, int64_t, rem_i64(a, b))

static const sb_ew_def defs[2] = {
    {.f32 = mod_f32, .f64 = mod_f64, .i64 = mod_i64, .u64 = mod_u64},
    {.f32 = rem_f32, .f64 = rem_f64, .i64 = rem_i64s, .u64 = mod_u64},
};

static sb_status mod_forward(sb_kernel *k)
{
    const mod_attrs *a = k->attrs;
    sb_dtype as = SB_DTYPE_NONE;
    sb_ew_call call = {
        .fn = sb_ew_pick(&defs[a->fmod != 0], k->in[0]->dtype, &as),
        .n_in = 2,
        .in = {k->in[0], k->in[1]},
        .in_as = {as, as},
        .out = k->out[0],
        .out_as = as};

    return sb_ew_run(k, &call);
}

const sb_op_def sb_op_mod = {
    .name = "Mod",
    .since = 10,
    .in_min = 2,
    .in_max = 2,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE,
    .attrs_size = sizeof(mod_attrs),
    .attrs = mod_table,
    .aux = &defs[0], /* for the type check of prepare */
    .infer = sb_infer_broadcast,
    .prepare = sb_ew_prepare,
    .forward = mod_forward,
    .grad = sb_grad_mod,
};
