/* Unary mathematics: Abs, Exp, Sin, ... one expression each.
 *
 * To add one, write its strips and its row.  Integer strips run on int64 (and
 * serve all narrower types); negation and absolute value wrap at the least
 * integer, as NumPy's do. */
#include <math.h>

#include "dnn/vec_math.h"
#include "ops/elementwise/elementwise.h"

/* A float and a double strip from a function pair such as expf and exp, and
 * the table that holds them. */
#define STEPS(id, f, d)                       \
    SB_STRIP1(id##_f32, float, float, f(x))   \
    SB_STRIP1(id##_f64, double, double, d(x)) \
    static const sb_ew_def id##_def = {.f32 = id##_f32, .f64 = id##_f64};

STEPS(ceil, ceilf, ceil)
STEPS(floor, floorf, floor)
STEPS(round, rintf, rint) /* half to even: the mode that C starts in */

/* The same with the gradient, an expression of dy and v: the input, or where
 * `of_y` the result. */
#define REAL(id, f, d, of_y, gradient)                    \
    SB_STRIP1(id##_f32, float, float, f(x))               \
    SB_STRIP1(id##_f64, double, double, d(x))             \
    SB_STRIP_GRAD(id##_grad, gradient)                    \
    static const sb_ew_def id##_def = {.f32 = id##_f32,   \
                                       .f64 = id##_f64,   \
                                       .grad = id##_grad, \
                                       .grad_of_y = of_y};

#define OF_X           false
#define OF_Y           true
#define TWO_BY_ROOT_PI 1.12837917f

REAL(sqrt, sqrtf, sqrt, OF_Y, dy * 0.5f / v)
REAL(exp, sb_vec_expf, exp, OF_Y, dy *v)
REAL(log, sb_vec_logf, log, OF_X, dy / v)
REAL(sin, sinf, sin, OF_X, dy *cosf(v))
REAL(cos, cosf, cos, OF_X, -dy *sinf(v))
REAL(tan, tanf, tan, OF_Y, dy *(1.0f + v * v))
REAL(asin, asinf, asin, OF_X, dy / sqrtf(1.0f - v * v))
REAL(acos, acosf, acos, OF_X, -dy / sqrtf(1.0f - v * v))
REAL(atan, atanf, atan, OF_X, dy / (1.0f + v * v))
REAL(sinh, sinhf, sinh, OF_X, dy *coshf(v))
REAL(cosh, coshf, cosh, OF_X, dy *sinhf(v))
REAL(tanh, sb_vec_tanhf, tanh, OF_Y, dy *(1.0f - v * v))
REAL(asinh, asinhf, asinh, OF_X, dy / sqrtf(v * v + 1.0f))
REAL(acosh, acoshf, acosh, OF_X, dy / sqrtf(v * v - 1.0f))
REAL(atanh, atanhf, atanh, OF_X, dy / (1.0f - v * v))
REAL(erf, sb_vec_erff, erf, OF_X, dy *TWO_BY_ROOT_PI *sb_vec_expf(-v *v))
REAL(reciprocal, 1.0f /, 1.0 /, OF_Y, -dy *v *v)

/* ---- those that know integers ------------------------------------------- */

SB_STRIP1(abs_f32, float, float, fabsf(x))
SB_STRIP1(abs_f64, double, double, fabs(x))
SB_STRIP1(abs_i64, int64_t, int64_t, x < 0 ? sb_wrap_sub(0, x) : x)
SB_STRIP1(abs_u64, uint64_t, uint64_t, x)
SB_STRIP_GRAD(abs_grad, v > 0 ? dy : v < 0 ? -dy : 0)
static const sb_ew_def abs_def = {.f32 = abs_f32,
                                  .f64 = abs_f64,
                                  .i64 = abs_i64,
                                  .u64 = abs_u64,
                                  .grad = abs_grad};

SB_STRIP1(neg_f32, float, float, -x)
SB_STRIP1(neg_f64, double, double, -x)
SB_STRIP1(neg_i64, int64_t, int64_t, sb_wrap_sub(0, x))
static const sb_ew_def neg_def = {
    .f32 = neg_f32, .f64 = neg_f64, .i64 = neg_i64};

/* NaN stays NaN. */
SB_STRIP1(sign_f32, float, float, x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? 0 : x)
SB_STRIP1(sign_f64, double, double, x > 0 ? 1.0 : x < 0 ? -1.0 : x == 0 ? 0 : x)
SB_STRIP1(sign_i64, int64_t, int64_t, (x > 0) - (x < 0))
SB_STRIP1(sign_u64, uint64_t, uint64_t, x > 0)
static const sb_ew_def sign_def = {
    .f32 = sign_f32, .f64 = sign_f64, .i64 = sign_i64, .u64 = sign_u64};

SB_STRIP1(bitwise_not_i64, uint64_t, uint64_t, ~x)
static const sb_ew_def bitwise_not_def = {.i64 = bitwise_not_i64,
                                          .u64 = bitwise_not_i64};

SB_STRIP1(not_b8, uint8_t, uint8_t, x == 0)
static const sb_ew_def not_def = {.b8 = not_b8};

/* ---- predicates --------------------------------------------------------- */

SB_STRIP1(is_nan_f32, float, uint8_t, x != x)
SB_STRIP1(is_nan_f64, double, uint8_t, x != x)
static const sb_ew_def is_nan_def = {
    .f32 = is_nan_f32, .f64 = is_nan_f64, .predicate = true};

typedef struct {
    int64_t negative, positive;
} is_inf_attrs;

static const sb_attr_def is_inf_table[] = {
    {"detect_negative", SB_ATTR_INT, offsetof(is_inf_attrs, negative), .i = 1,
     .flag = true},
    {"detect_positive", SB_ATTR_INT, offsetof(is_inf_attrs, positive), .i = 1,
     .flag = true},
    {0},
};

#define IS_INF_SETUP                  \
    const is_inf_attrs *a = s->param; \
    const bool neg = a->negative != 0, pos = a->positive != 0
SB_STRIP1_SETUP(is_inf_f32, float, uint8_t, IS_INF_SETUP,
                (neg && x == -INFINITY) || (pos && x == INFINITY))
SB_STRIP1_SETUP(is_inf_f64, double, uint8_t, IS_INF_SETUP,
                (neg && x == -(double)INFINITY) ||
                    (pos && x == (double)INFINITY))
static const sb_ew_def is_inf_def = {
    .f32 = is_inf_f32, .f64 = is_inf_f64, .predicate = true};

/* ---- rows --------------------------------------------------------------- */
/* clang-format off */
const sb_op_def sb_op_abs = SB_EW_UNARY("Abs", 6, &abs_def);
const sb_op_def sb_op_acos = SB_EW_UNARY("Acos", 7, &acos_def);
const sb_op_def sb_op_acosh = SB_EW_UNARY("Acosh", 9, &acosh_def);
const sb_op_def sb_op_asin = SB_EW_UNARY("Asin", 7, &asin_def);
const sb_op_def sb_op_asinh = SB_EW_UNARY("Asinh", 9, &asinh_def);
const sb_op_def sb_op_atan = SB_EW_UNARY("Atan", 7, &atan_def);
const sb_op_def sb_op_atanh = SB_EW_UNARY("Atanh", 9, &atanh_def);
const sb_op_def sb_op_bitwise_not = SB_EW_FLAT("BitwiseNot", 18, &bitwise_not_def);
const sb_op_def sb_op_ceil = SB_EW_FLAT("Ceil", 6, &ceil_def);
const sb_op_def sb_op_cos = SB_EW_UNARY("Cos", 7, &cos_def);
const sb_op_def sb_op_cosh = SB_EW_UNARY("Cosh", 9, &cosh_def);
const sb_op_def sb_op_erf = SB_EW_UNARY("Erf", 9, &erf_def);
const sb_op_def sb_op_exp = SB_EW_UNARY_G("Exp", 6, &exp_def, SB_OP_EXP, sb_grad_unary);
const sb_op_def sb_op_floor = SB_EW_FLAT("Floor", 6, &floor_def);
const sb_op_def sb_op_log = SB_EW_UNARY_G("Log", 6, &log_def, SB_OP_LOG, sb_grad_unary);
const sb_op_def sb_op_neg = SB_EW_UNARY_G("Neg", 6, &neg_def, 0, sb_grad_neg);
const sb_op_def sb_op_not = SB_EW_FLAT("Not", 1, &not_def);
const sb_op_def sb_op_reciprocal = SB_EW_UNARY("Reciprocal", 6, &reciprocal_def);
const sb_op_def sb_op_round = SB_EW_FLAT("Round", 11, &round_def);
const sb_op_def sb_op_sign = SB_EW_FLAT("Sign", 9, &sign_def);
const sb_op_def sb_op_sin = SB_EW_UNARY("Sin", 7, &sin_def);
const sb_op_def sb_op_sinh = SB_EW_UNARY("Sinh", 9, &sinh_def);
const sb_op_def sb_op_sqrt = SB_EW_UNARY("Sqrt", 6, &sqrt_def);
const sb_op_def sb_op_tan = SB_EW_UNARY("Tan", 7, &tan_def);
const sb_op_def sb_op_tanh = SB_EW_UNARY_Q("Tanh", 6, &tanh_def, SB_ROLE_SINGLE);
/* clang-format on */

const sb_op_def sb_op_is_nan = {
    .name = "IsNaN",
    .since = 9,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_ELEMENTWISE | SB_OP_FLAT,
    .aux = &is_nan_def,
    .infer = sb_infer_predicate,
    .prepare = sb_ew_prepare,
    .forward = sb_ew_forward,
};

const sb_op_def sb_op_is_inf = {
    .name = "IsInf",
    .since = 10,
    .in_min = 1,
    .in_max = 1,
    .out_min = 1,
    .out_max = 1,
    .flags = SB_OP_ELEMENTWISE | SB_OP_FLAT,
    .attrs_size = sizeof(is_inf_attrs),
    .attrs = is_inf_table,
    .aux = &is_inf_def,
    .infer = sb_infer_predicate,
    .prepare = sb_ew_prepare,
    .forward = sb_ew_forward,
};
