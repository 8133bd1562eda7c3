/* ReduceSum, Mean, Prod, Max, Min, L1, L2, LogSum, LogSumExp, SumSquare: how
 * each folds elements, for the engine in reduce.c.
 *
 * Rows fold in 8 lanes, which the compiler turns into vectors. */
#include <math.h>

#include "base/simd.h"
#include "dnn/vec_math.h"
#include "ops/batch_rules.h"
#include "ops/elementwise/elementwise.h"
#include "ops/grad/grad_rules.h"
#include "ops/reduce/reduce.h"
#include "ops/tie/tie_rules.h"

enum { LANES = 8 };

/* Row and column functions that fold `map` of elements of type T, held in
 * member `m` of a cell (type A), with `join` of cells a and b. */
#define FOLD(id, T, A, m, first, map, join)                               \
    SB_VEC_INLINE A id##_map(T x)                                         \
    {                                                                     \
        return map;                                                       \
    }                                                                     \
    SB_VEC_INLINE A id##_join(A a, A b)                                   \
    {                                                                     \
        return join;                                                      \
    }                                                                     \
    SB_HOT static void id##_row(const void *data, size_t n, sb_cell *acc, \
                                sb_cell *acc2)                            \
    {                                                                     \
        const T *x = data;                                                \
        A lane[LANES];                                                    \
        size_t i = 0;                                                     \
        (void)acc2;                                                       \
        for (size_t l = 0; l < LANES; l++)                                \
            lane[l] = first;                                              \
        for (; i + LANES <= n; i += LANES) {                              \
            SB_SIMD                                                       \
            for (size_t l = 0; l < LANES; l++)                            \
                lane[l] = id##_join(lane[l], id##_map(x[i + l]));         \
        }                                                                 \
        for (size_t l = 0; i < n; i++, l++)                               \
            lane[l] = id##_join(lane[l], id##_map(x[i]));                 \
        for (size_t half = LANES / 2; half; half /= 2)                    \
            for (size_t l = 0; l < half; l++)                             \
                lane[l] = id##_join(lane[l], lane[l + half]);             \
        acc->m = id##_join(acc->m, lane[0]);                              \
    }                                                                     \
    SB_HOT static void id##_col(const void *data, size_t n, sb_cell *acc, \
                                sb_cell *acc2)                            \
    {                                                                     \
        const T *x = data;                                                \
        (void)acc2;                                                       \
        SB_SIMD                                                           \
        for (size_t j = 0; j < n; j++)                                    \
            acc[j].m = id##_join(acc[j].m, id##_map(x[j]));               \
    }

/* The float and double versions of one fold. */
#define FOLD_REAL(id, first, map, join)                \
    FOLD(id##_f32, float, double, f, first, map, join) \
    FOLD(id##_f64, double, double, f, first, map, join)

#define FNS(id, start_, finish_)                                               \
    {                                                                          \
        .start = {start_}, .row = id##_row, .col = id##_col, .finish = finish_ \
    }
#define FNS_INT(id, start_, finish_)                              \
    {                                                             \
        .start = {.i = start_}, .row = id##_row, .col = id##_col, \
        .finish = finish_                                         \
    }

#define REAL    (double)x
#define BITS    (uint64_t) x
#define LARGEST (a > b || a != a ? a : b) /* NaN wins */
#define LEAST   (a < b || a != a ? a : b)

FOLD_REAL(sum, 0, REAL, a + b)
FOLD_REAL(prod, 1, REAL, a *b)
FOLD_REAL(max, -(double)INFINITY, REAL, LARGEST)
FOLD_REAL(min, (double)INFINITY, REAL, LEAST)
FOLD_REAL(l1, 0, fabs(REAL), a + b)
FOLD_REAL(square, 0, REAL *REAL, a + b)
FOLD(sum_i64, int64_t, uint64_t, u, 0, BITS, a + b)
FOLD(prod_i64, int64_t, uint64_t, u, 1, BITS, a *b)
FOLD(max_i64, int64_t, int64_t, i, INT64_MIN, x, a > b ? a : b)
FOLD(min_i64, int64_t, int64_t, i, INT64_MAX, x, a < b ? a : b)
FOLD(max_u64, uint64_t, uint64_t, u, 0, x, a > b ? a : b)
FOLD(min_u64, uint64_t, uint64_t, u, UINT64_MAX, x, a < b ? a : b)
FOLD(l1_i64, int64_t, uint64_t, u, 0, x < 0 ? 0 - BITS : BITS, a + b)
FOLD(square_i64, int64_t, uint64_t, u, 0, BITS *BITS, a + b)

/* ---- LogSumExp ---------------------------------------------------------- */
/* The cells hold m, the largest so far, and s with sum = e^m * s, so nothing
 * overflows.  An infinite or NaN m decides the result alone. */

static void lse_add(double m, double s, double *acc_m, double *acc_s)
{
    if (m != m || m > *acc_m) {
        *acc_s = isinf(*acc_m) ? s : s + *acc_s * exp(*acc_m - m);
        *acc_m = m;
    } else if (!isinf(m) && *acc_m == *acc_m) {
        *acc_s += s * exp(m - *acc_m);
    }
}

#define LSE(id, T)                                                        \
    SB_HOT static void id##_row(const void *data, size_t n, sb_cell *acc, \
                                sb_cell *acc2)                            \
    {                                                                     \
        const T *x = data;                                                \
        double m = -(double)INFINITY, s = 0;                              \
        for (size_t i = 0; i < n; i++)                                    \
            m = (double)x[i] > m || x[i] != x[i] ? (double)x[i] : m;      \
        for (size_t i = 0; i < n && !isinf(m); i++)                       \
            s += exp((double)x[i] - m);                                   \
        lse_add(m, s, &acc->f, &acc2->f);                                 \
    }                                                                     \
    SB_HOT static void id##_col(const void *data, size_t n, sb_cell *acc, \
                                sb_cell *acc2)                            \
    {                                                                     \
        const T *x = data;                                                \
        for (size_t j = 0; j < n; j++)                                    \
            lse_add((double)x[j], 1, &acc[j].f, &acc2[j].f);              \
    }

LSE(lse_f32, float)
LSE(lse_f64, double)

static sb_cell lse_finish(sb_cell m, sb_cell s, int64_t count)
{
    (void)count;
    return (sb_cell){isinf(m.f) ? m.f : m.f + log(s.f)};
}

/* ---- finishing ---------------------------------------------------------- */

static sb_cell mean_finish(sb_cell acc, sb_cell acc2, int64_t count)
{
    (void)acc2;
    return (sb_cell){acc.f / (double)count};
}

static sb_cell mean_finish_i64(sb_cell acc, sb_cell acc2, int64_t count)
{
    (void)acc2;
    return (sb_cell){.i = count ? acc.i / count : 0};
}

static sb_cell mean_finish_u64(sb_cell acc, sb_cell acc2, int64_t count)
{
    (void)acc2;
    return (sb_cell){.u = count ? acc.u / (uint64_t)count : 0};
}

static sb_cell sqrt_finish(sb_cell acc, sb_cell acc2, int64_t count)
{
    (void)acc2;
    (void)count;
    return (sb_cell){sqrt(acc.f)};
}

static sb_cell log_finish(sb_cell acc, sb_cell acc2, int64_t count)
{
    (void)acc2;
    (void)count;
    return (sb_cell){log(acc.f)};
}

/* ---- tables ------------------------------------------------------------- */

#define INF (double)INFINITY

static const sb_reduce_fns sum_fns[] = {
    FNS(sum_f32, 0, NULL), FNS(sum_f64, 0, NULL), FNS_INT(sum_i64, 0, NULL)};
static const sb_reduce_fns mean_fns[] = {
    FNS(sum_f32, 0, mean_finish), FNS(sum_f64, 0, mean_finish),
    FNS_INT(sum_i64, 0, mean_finish_i64), FNS_INT(sum_i64, 0, mean_finish_u64)};
static const sb_reduce_fns prod_fns[] = {
    FNS(prod_f32, 1, NULL), FNS(prod_f64, 1, NULL), FNS_INT(prod_i64, 1, NULL)};
static const sb_reduce_fns max_fns[] = {
    FNS(max_f32, -INF, NULL), FNS(max_f64, -INF, NULL),
    FNS_INT(max_i64, INT64_MIN, NULL), FNS_INT(max_u64, 0, NULL)};
static const sb_reduce_fns min_fns[] = {
    FNS(min_f32, INF, NULL), FNS(min_f64, INF, NULL),
    FNS_INT(min_i64, INT64_MAX, NULL), FNS_INT(min_u64, -1, NULL)};
static const sb_reduce_fns l1_fns[] = {
    FNS(l1_f32, 0, NULL), FNS(l1_f64, 0, NULL), FNS_INT(l1_i64, 0, NULL)};
static const sb_reduce_fns square_fns[] = {FNS(square_f32, 0, NULL),
                                           FNS(square_f64, 0, NULL),
                                           FNS_INT(square_i64, 0, NULL)};
static const sb_reduce_fns l2_fns[] = {FNS(square_f32, 0, sqrt_finish),
                                       FNS(square_f64, 0, sqrt_finish)};
static const sb_reduce_fns log_sum_fns[] = {FNS(sum_f32, 0, log_finish),
                                            FNS(sum_f64, 0, log_finish)};
static const sb_reduce_fns lse_fns[] = {FNS(lse_f32, -INF, lse_finish),
                                        FNS(lse_f64, -INF, lse_finish)};

static sb_dim dim_mul(sb_dim a, sb_dim b)
{
    return a == 0 || b == 0 ? 0 : sb_dim_mul(a, b);
}

#define TABLE(fns)     .f32 = &fns[0], .f64 = &fns[1]
#define TABLE_INT(fns) TABLE(fns), .i64 = &fns[2]

const sb_reduce_def sb_reduce_sum_def = {TABLE_INT(sum_fns),
                                         .content = sb_dim_add};
static const sb_reduce_def mean_def = {TABLE_INT(mean_fns),
                                       .u64 = &mean_fns[3]};
static const sb_reduce_def prod_def = {TABLE_INT(prod_fns), .content = dim_mul};
static const sb_reduce_def max_def = {TABLE_INT(max_fns), .u64 = &max_fns[3],
                                      .bools = true, .empty_limit = -1};
static const sb_reduce_def min_def = {TABLE_INT(min_fns), .u64 = &min_fns[3],
                                      .bools = true, .empty_limit = 1};
static const sb_reduce_def l1_def = {TABLE_INT(l1_fns)};
static const sb_reduce_def square_def = {TABLE_INT(square_fns)};
static const sb_reduce_def l2_def = {TABLE(l2_fns)};
static const sb_reduce_def log_sum_def = {TABLE(log_sum_fns)};
static const sb_reduce_def lse_def = {TABLE(lse_fns)};

/* ---- rows --------------------------------------------------------------- */

#define REDUCE(name_, since_, def_) \
    REDUCE_G(name_, since_, def_, SB_ROLE_UNKNOWN, sb_grad_reduce)

#define REDUCE_G(name_, since_, def_, quant_, grad_)                     \
    {                                                                    \
        .quant = quant_, .name = name_, .since = since_, .in_min = 1,    \
        .in_max = 2, .out_min = 1, .out_max = 1,                         \
        .attrs_size = sizeof(sb_reduce_attrs), .attrs = sb_reduce_table, \
        .aux = def_, .tie = sb_tie_reduce, .batch = sb_batch_reduce,     \
        .infer = sb_reduce_infer, .layout = sb_reduce_layout,            \
        .prepare = sb_reduce_prepare, .forward = sb_reduce_forward,      \
        .grad = grad_,                                                   \
    }

/* clang-format off */
const sb_op_def sb_op_reduce_l1 = REDUCE("ReduceL1", 18, &l1_def);
const sb_op_def sb_op_reduce_l2 = REDUCE("ReduceL2", 18, &l2_def);
const sb_op_def sb_op_reduce_log_sum = REDUCE("ReduceLogSum", 18, &log_sum_def);
const sb_op_def sb_op_reduce_log_sum_exp = REDUCE("ReduceLogSumExp", 18, &lse_def);
const sb_op_def sb_op_reduce_max = REDUCE("ReduceMax", 18, &max_def);
const sb_op_def sb_op_reduce_mean = REDUCE_G("ReduceMean", 18, &mean_def, SB_ROLE_SINGLE, sb_grad_reduce);
const sb_op_def sb_op_reduce_min = REDUCE("ReduceMin", 18, &min_def);
const sb_op_def sb_op_reduce_prod = REDUCE("ReduceProd", 18, &prod_def);
const sb_op_def sb_op_reduce_sum = REDUCE("ReduceSum", 13, &sb_reduce_sum_def);
const sb_op_def sb_op_reduce_sum_square = REDUCE("ReduceSumSquare", 18, &square_def);
/* clang-format on */
