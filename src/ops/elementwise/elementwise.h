/* elementwise.h - the engine behind operators that compute element by element.
 *
 * An operator gives a strip function for each class of element types it
 * knows; the engine broadcasts as NumPy does, collapses dimensions so that
 * strips are long, spreads them over threads, and converts strips of other
 * types through small buffers on the stack.  So an operator is one expression:
 *
 *     SB_STRIP1(neg_f32, float, float, -x)
 *     SB_STRIP1(neg_i64, int64_t, int64_t, sb_wrap_sub(0, x))
 *     static const sb_ew_def neg = {.f32 = neg_f32, .i64 = neg_i64};
 *     const sb_op_def sb_op_neg = SB_EW_UNARY("Neg", 6, &neg);
 */
#ifndef SB_OPS_ELEMENTWISE_ELEMENTWISE_H
#define SB_OPS_ELEMENTWISE_ELEMENTWISE_H

#include "base/simd.h"
#include "ops/grad/grad_rules.h"
#include "ops/infer_util.h"

enum { SB_EW_INPUTS = 3 };

/* One run of n elements. */
typedef struct sb_strip {
    size_t n;
    const void *x[SB_EW_INPUTS];
    bool one[SB_EW_INPUTS]; /* a single element that serves the whole run */
    void *y;                /* may be x[0] itself */
    const void *param;      /* the operator's attributes, or what it likes */
} sb_strip;

typedef void (*sb_strip_fn)(const sb_strip *s);

/* ---- the table of one operator ------------------------------------------
 * Which class computes which element type:
 *
 *     f32  float, float16, bfloat16, float8; double too if f64 is absent
 *     f64  (optional) double
 *     i64  (optional) int8..int64, uint8..uint32; results wrap
 *     u64  (optional) uint64
 *     b8   (optional) bool, as bytes 0 and 1
 *
 * A type without function is refused. */
typedef struct sb_ew_def {
    sb_strip_fn f32, f64, i64, u64, b8;
    bool predicate; /* strips write bool bytes whatever they read */
    /* (optional) Of functions of one input: its gradient, from that of the
     * result (x[0]) and the input (x[1]), or from the result if `grad_of_y`:
     * then the input need not be kept. */
    sb_strip_fn grad;
    bool grad_of_y;
} sb_ew_def;

/* The prepare and forward of rows whose `aux` is an sb_ew_def: all inputs (at
 * most SB_EW_INPUTS) have one type, and param is the attribute struct. */
sb_status sb_ew_prepare(sb_kernel *k);
sb_status sb_ew_forward(sb_kernel *k);

/* The function for elements of type `dtype` and the type it reads; NULL if
 * the table has none. */
sb_strip_fn sb_ew_pick(const sb_ew_def *def, sb_dtype dtype, sb_dtype *as);

/* ---- chains -------------------------------------------------------------
 * What the operator ElementwiseChain and the pass that makes it agree on. */
enum {
    SB_CHAIN_STEPS = 16, /* at most */
    SB_CHAIN_PARAM = 16, /* bytes of the attributes of one step, at most */
};

/* The function for a step of `n_in` float32 inputs, all attributes of which
 * are floats; NULL if the row cannot be one.  Absent inputs are NULL. */
sb_strip_fn sb_ew_chain_fn(const sb_op_def *op, uint32_t n_in);
/* Is input `i` of such a step one element, whatever the others are? */
bool sb_ew_chain_single(const sb_op_def *op, uint32_t i);

/* ---- one call of the engine ----------------------------------------------
 * For operators with mixed types or more inputs. */
typedef struct sb_ew_call {
    sb_strip_fn fn;
    const void *param;
    size_t n_in;
    const sb_tensor *in[SB_EW_INPUTS];
    sb_dtype in_as[SB_EW_INPUTS]; /* what fn reads */
    sb_tensor *out;
    sb_dtype out_as; /* what fn writes */
} sb_ew_call;

/* Fails if an input does not broadcast to the output, or has a type whose
 * elements are not whole bytes. */
sb_status sb_ew_run(const sb_kernel *k, const sb_ew_call *call);

/* Infers IsNaN and the like: the shape of input 0, with dtype bool. */
sb_status sb_infer_predicate(sb_infer *in);

/* ---- arithmetic that wraps instead of being undefined ------------------- */
static inline int64_t sb_wrap_sub(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t sb_wrap_mul(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* ---- strips from expressions ---------------------------------------------
 * The pragma tells the compiler that elements are independent, which it
 * cannot see because y may be x[0]. */

/* y = expr of x; `setup` are declarations in front of the loop, from
 * s->param. */
#define SB_STRIP1_SETUP(name, T, R, setup, expr) \
    SB_HOT static void name(const sb_strip *s)   \
    {                                            \
        const T *px = s->x[0];                   \
        R *py = s->y;                            \
        const size_t n = s->n;                   \
        setup;                                   \
        SB_SIMD                                  \
        for (size_t i = 0; i < n; i++) {         \
            const T x = px[i];                   \
            py[i] = (R)(expr);                   \
        }                                        \
    }

#define SB_STRIP1(name, T, R, expr) SB_STRIP1_SETUP(name, T, R, (void)0, expr)

/* y = expr of a and b.  The engine never passes two single elements. */
#define SB_STRIP2_SETUP(name, T, R, setup, expr) \
    SB_HOT static void name(const sb_strip *s)   \
    {                                            \
        const T *pa = s->x[0], *pb = s->x[1];    \
        R *py = s->y;                            \
        const size_t n = s->n;                   \
        setup;                                   \
        if (s->one[0]) {                         \
            const T a = pa[0];                   \
            SB_SIMD                              \
            for (size_t i = 0; i < n; i++) {     \
                const T b = pb[i];               \
                py[i] = (R)(expr);               \
            }                                    \
        } else if (s->one[1]) {                  \
            const T b = pb[0];                   \
            SB_SIMD                              \
            for (size_t i = 0; i < n; i++) {     \
                const T a = pa[i];               \
                py[i] = (R)(expr);               \
            }                                    \
        } else {                                 \
            SB_SIMD                              \
            for (size_t i = 0; i < n; i++) {     \
                const T a = pa[i], b = pb[i];    \
                py[i] = (R)(expr);               \
            }                                    \
        }                                        \
    }

#define SB_STRIP2(name, T, R, expr) SB_STRIP2_SETUP(name, T, R, (void)0, expr)

/* The gradient of a function of one input: expr of dy and v, its input or its
 * result. */
#define SB_STRIP_GRAD_SETUP(name, setup, expr)    \
    SB_HOT static void name(const sb_strip *s)    \
    {                                             \
        const float *pd = s->x[0], *pv = s->x[1]; \
        float *py = s->y;                         \
        const size_t n = s->n;                    \
        setup;                                    \
        SB_SIMD                                   \
        for (size_t i = 0; i < n; i++) {          \
            const float dy = pd[i], v = pv[i];    \
            py[i] = (expr);                       \
        }                                         \
    }

#define SB_STRIP_GRAD(name, expr) SB_STRIP_GRAD_SETUP(name, (void)0, expr)

/* ---- rows --------------------------------------------------------------- */
/* Its def has a gradient. */
#define SB_EW_UNARY(name_, since_, def_) \
    SB_EW_UNARY_Q(name_, since_, def_, SB_ROLE_UNKNOWN)

/* The same with what quantization has to know. */
#define SB_EW_UNARY_Q(name_, since_, def_, quant_) \
    SB_EW_UNARY_R(name_, since_, def_, quant_, NULL)

/* And with what is known of its results. */
#define SB_EW_UNARY_R(name_, since_, def_, quant_, range_)             \
    {                                                                  \
        .name = name_, .since = since_, .in_min = 1, .in_max = 1,      \
        .out_min = 1, .out_max = 1, .quant = quant_, .range = range_,  \
        .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS,     \
        .aux = def_, .infer = sb_infer_same, .prepare = sb_ew_prepare, \
        .forward = sb_ew_forward, .grad = sb_grad_unary,               \
    }

/* With a gradient of its own, or none and more flags. */
#define SB_EW_UNARY_G(name_, since_, def_, flags_, grad_)                     \
    {                                                                         \
        .name = name_, .since = since_, .in_min = 1, .in_max = 1,             \
        .out_min = 1, .out_max = 1,                                           \
        .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS | (flags_), \
        .aux = def_, .infer = sb_infer_same, .prepare = sb_ew_prepare,        \
        .forward = sb_ew_forward, .grad = grad_,                              \
    }

/* Changes in steps: its gradient is zero. */
#define SB_EW_FLAT(name_, since_, def_) \
    SB_EW_UNARY_G(name_, since_, def_, SB_OP_FLAT, NULL)

#define SB_EW_UNARY_ATTRS_Q(name_, since_, def_, type_, table_, quant_) \
    SB_EW_UNARY_ATTRS_R(name_, since_, def_, type_, table_, quant_, NULL)

#define SB_EW_UNARY_ATTRS_R(name_, since_, def_, type_, table_, quant_, \
                            range_)                                     \
    {                                                                   \
        .name = name_, .since = since_, .in_min = 1, .in_max = 1,       \
        .out_min = 1, .out_max = 1, .quant = quant_, .range = range_,   \
        .flags = SB_OP_INPLACE | SB_OP_ELEMENTWISE | SB_OP_STRIPS,      \
        .attrs_size = sizeof(type_), .attrs = table_, .aux = def_,      \
        .infer = sb_infer_same, .prepare = sb_ew_prepare,               \
        .forward = sb_ew_forward, .grad = sb_grad_unary,                \
    }

#define SB_EW_BINARY(name_, since_, def_, flags_, infer_) \
    SB_EW_BINARY_G(name_, since_, def_, flags_, infer_, SB_ROLE_UNKNOWN, NULL)

#define SB_EW_BINARY_G(name_, since_, def_, flags_, infer_, quant_, grad_)   \
    {                                                                        \
        .name = name_, .since = since_, .in_min = 2, .in_max = 2,            \
        .quant = quant_, .out_min = 1, .out_max = 1,                         \
        .flags = SB_OP_ELEMENTWISE | SB_OP_STRIPS | (flags_), .aux = def_,   \
        .infer = infer_, .prepare = sb_ew_prepare, .forward = sb_ew_forward, \
        .grad = grad_,                                                       \
    }

#endif
