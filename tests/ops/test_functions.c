/* Functions of one element: every unary operator and activation over a sweep
 * of arguments, against its formula in double; casts; and odd types. */
#include "sbtest.h"

#include <math.h>
#include <string.h>

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

enum { SWEEP = 2001 };

/* ---- formulas ----------------------------------------------------------- */

static double f_neg(double x)
{
    return -x;
}
static double f_sign(double x)
{
    return (x > 0) - (x < 0);
}
static double f_recip(double x)
{
    return 1 / x;
}
static double f_relu(double x)
{
    return x > 0 ? x : 0;
}
static double f_leaky(double x)
{
    return x > 0 ? x : (double)0.25f * x;
}
static double f_elu(double x)
{
    return x > 0 ? x : 0.5 * (exp(x) - 1);
}
static double f_celu(double x)
{
    return x > 0 ? x : 2 * (exp(x / 2) - 1);
}
static double f_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double f_softplus(double x)
{
    return log1p(exp(x));
}
static double f_softsign(double x)
{
    return x / (1 + fabs(x));
}
static double f_mish(double x)
{
    return x * tanh(log1p(exp(x)));
}
static double f_gelu(double x)
{
    return x * 0.5 * erfc(-x / sqrt(2));
}
static double f_swish(double x)
{
    return x / (1 + exp(-1.5 * x));
}
static double f_thresholded(double x)
{
    return x > 1 ? x : 0;
}
static double f_shrink(double x)
{
    return x < -1.5 ? x + 0.5 : x > 1.5 ? x - 0.5 : 0;
}
static double f_hard_sigmoid(double x)
{
    return fmax(0, fmin(1, 0.25 * x + 0.5));
}
static double f_hard_swish(double x)
{
    return x * fmax(0, fmin(1, x / 6 + 0.5));
}
static double f_gelu_tanh(double x)
{
    const double c = 0.79788456080286535588;

    return 0.5 * x * (1 + tanh(c * (x + 0.044715 * x * x * x)));
}
static double f_selu(double x)
{
    const double a = 1.67326319217681884765625, g = 1.05070102214813232421875;

    return x > 0 ? g * x : g * a * (exp(x) - 1);
}

static const struct {
    const char *op;
    double (*f)(double x);
    double lo, hi;
} cases[] = {
    {"Abs(x)", fabs, -9, 9},
    {"Neg(x)", f_neg, -9, 9},
    {"Sign(x)", f_sign, -9, 9},
    {"Ceil(x)", ceil, -9, 9},
    {"Floor(x)", floor, -9, 9},
    {"Round(x)", rint, -9, 9},
    {"Sqrt(x)", sqrt, 0, 90},
    {"Reciprocal(x)", f_recip, 0.1, 90},
    {"Exp(x)", exp, -20, 11},
    {"Log(x)", log, 1e-3, 90},
    {"Sin(x)", sin, -20, 20},
    {"Cos(x)", cos, -20, 20},
    {"Tan(x)", tan, -1.5, 1.5},
    {"Asin(x)", asin, -1, 1},
    {"Acos(x)", acos, -1, 1},
    {"Atan(x)", atan, -20, 20},
    {"Sinh(x)", sinh, -9, 9},
    {"Cosh(x)", cosh, -9, 9},
    {"Tanh(x)", tanh, -12, 12},
    {"Asinh(x)", asinh, -20, 20},
    {"Acosh(x)", acosh, 1, 20},
    {"Atanh(x)", atanh, -0.99, 0.99},
    {"Erf(x)", erf, -6, 6},
    {"Relu(x)", f_relu, -9, 9},
    {"LeakyRelu(x) {alpha=0.25}", f_leaky, -9, 9},
    {"Elu(x) {alpha=0.5}", f_elu, -9, 9},
    {"Celu(x) {alpha=2.0}", f_celu, -9, 9},
    {"Selu(x)", f_selu, -9, 9},
    {"Sigmoid(x)", f_sigmoid, -30, 30},
    {"HardSigmoid(x) {alpha=0.25}", f_hard_sigmoid, -9, 9},
    {"HardSwish(x)", f_hard_swish, -9, 9},
    {"Softplus(x)", f_softplus, -30, 30},
    {"Softsign(x)", f_softsign, -30, 30},
    {"ThresholdedRelu(x)", f_thresholded, -9, 9},
    {"Shrink(x) {lambd=1.5, bias=0.5}", f_shrink, -9, 9},
    {"Mish(x)", f_mish, -20, 20},
    {"Gelu(x)", f_gelu, -8, 8},
    {"Gelu(x) {approximate=\"tanh\"}", f_gelu_tanh, -8, 8},
    {"Swish(x) {alpha=1.5}", f_swish, -20, 20},
    {"com.microsoft::Gelu(x)", f_gelu, -8, 8},
    {"com.microsoft::FastGelu(x)", f_gelu_tanh, -8, 8},
    {"com.microsoft::QuickGelu(x) {alpha=1.5}", f_swish, -20, 20},
};

static void sweep(size_t c, sb_dtype type, double tol)
{
    double v[SWEEP];
    char text[256];

    for (int i = 0; i < SWEEP; i++)
        v[i] = cases[c].lo + (cases[c].hi - cases[c].lo) * i / (SWEEP - 1);
    sb_tensor *x = test_tensor(type, "2001", v);
    (void)snprintf(text, sizeof text,
                   "graph g(x: %s[2001]) -> (y: %s[2001]) {\n  y = %s\n}\n",
                   sb_dtype_get(type)->name, sb_dtype_get(type)->name,
                   cases[c].op);
    sb_tensor *y = test_run1(text, INPUTS(x));
    for (int i = 0; i < SWEEP; i++) {
        double want = cases[c].f(sb_tensor_get_f64(x, i));

        assert_close(cases[c].op, sb_tensor_get_f64(y, i), want,
                     tol * fmax(1e-2, fabs(want)) + tol);
    }
}

static void test_functions_follow_their_formulas(void **state)
{
    (void)state;
    for (size_t c = 0; c < SB_COUNT(cases); c++) {
        sweep(c, SB_DTYPE_F32, 1e-6);
        sweep(c, SB_DTYPE_F64, 1e-6);
        sweep(c, SB_DTYPE_F16, 2e-3);
    }
}

/* ---- the ends of the number line ---------------------------------------- */

static void test_infinities_and_nan_come_out_right(void **state)
{
    static const struct {
        const char *op;
        double x, want;
    } rows[] = {
        {"Exp", INFINITY, INFINITY},
        {"Exp", -INFINITY, 0},
        {"Exp", NAN, NAN},
        {"Exp", 89, INFINITY},
        {"Exp", -104, 0},
        {"Tanh", INFINITY, 1},
        {"Tanh", -INFINITY, -1},
        {"Tanh", NAN, NAN},
        {"Tanh", 1e-20, 1e-20},
        {"Sigmoid", INFINITY, 1},
        {"Sigmoid", -INFINITY, 0},
        {"Sigmoid", NAN, NAN},
        {"Erf", INFINITY, 1},
        {"Erf", -INFINITY, -1},
        {"Erf", NAN, NAN},
        {"Log", 0, -INFINITY},
        {"Log", -1, NAN},
        {"Log", INFINITY, INFINITY},
        {"Log", 1e-40, -INFINITY}, /* subnormals count as zero */
        {"Log", 1.2e-38, -87.315912},
        {"Softplus", 1000, 1000},
        {"Softplus", -1000, 0},
        {"Mish", 1000, 1000},
        {"Relu", NAN, NAN},
        {"Sign", NAN, NAN},
        {"Gelu", INFINITY, INFINITY},
        {"Sqrt", -1, NAN},
        {"Round", 2.5, 2},
        {"Round", -3.5, -4},
        {"Elu", -INFINITY, -1},
        {"HardSwish", 1000, 1000},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        char text[128];

        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[1]) -> (y: f32[1]) {\n  y = %s(x)\n}\n",
                       rows[i].op);
        sb_tensor *y = test_run1(text, INPUTS(test_f32("1", rows[i].x)));
        assert_close(rows[i].op, *(float *)y->data, (double)(float)rows[i].want,
                     1e-5 * fabs(rows[i].want));
    }
}

static void test_integers_stay_integers(void **state)
{
    (void)state;
    sb_tensor *x = test_tensor(SB_DTYPE_I8, "4", (double[]){-128, -5, 0, 7});

    assert_tensor("relu",
                  test_run1("graph g(x: i8[4]) -> (y: i8[4]) {\n"
                            "  y = Relu(x)\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I8, "4", (double[]){0, 0, 0, 7}), 0);
    assert_tensor("abs wraps",
                  test_run1("graph g(x: i8[4]) -> (y: i8[4]) {\n"
                            "  y = Abs(x)\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I8, "4", (double[]){-128, 5, 0, 7}), 0);
    assert_tensor("clip",
                  test_run1("graph g(x: i8[4]) -> (y: i8[4]) {\n"
                            "  lo: i8[] = -3\n  y = Clip(x, lo)\n}\n",
                            INPUTS(x)),
                  test_tensor(SB_DTYPE_I8, "4", (double[]){-3, -3, 0, 7}), 0);
    assert_tensor(
        "not",
        test_run1("graph g(x: u8[2]) -> (y: u8[2]) {\n"
                  "  y = BitwiseNot(x)\n}\n",
                  INPUTS(test_tensor(SB_DTYPE_U8, "2", (double[]){0, 200}))),
        test_tensor(SB_DTYPE_U8, "2", (double[]){255, 55}), 0);
    assert_tensor(
        "shift",
        test_run1("graph g(a: u8[3], b: u8[3]) -> (y: u8[3])"
                  " {\n  y = BitShift(a, b) "
                  "{direction=\"LEFT\"}\n}\n",
                  INPUTS(test_tensor(SB_DTYPE_U8, "3", (double[]){3, 129, 1}),
                         test_tensor(SB_DTYPE_U8, "3", (double[]){2, 1, 200}))),
        test_tensor(SB_DTYPE_U8, "3", (double[]){12, 2, 0}), 0);
}

static void test_pow_mixes_types(void **state)
{
    (void)state;
    assert_tensor("int, int",
                  test_run1("graph g(a: i32[4], b: i64[4]) -> (y: i32[4]) {\n"
                            "  y = Pow(a, b)\n}\n",
                            INPUTS(test_tensor(SB_DTYPE_I32, "4",
                                               (double[]){3, -2, 5, -1}),
                                   test_i64("4", 4, 3, 0, -3))),
                  test_tensor(SB_DTYPE_I32, "4", (double[]){81, -8, 1, -1}), 0);
    assert_tensor(
        "int, float",
        test_run1("graph g(a: i32[2], b: f32[1]) -> (y: i32[2]) {\n"
                  "  y = Pow(a, b)\n}\n",
                  INPUTS(test_tensor(SB_DTYPE_I32, "2", (double[]){4, 9}),
                         test_f32("1", 0.5))),
        test_tensor(SB_DTYPE_I32, "2", (double[]){2, 3}), 0);
    assert_tensor("square",
                  test_run1("graph g(a: f32[3]) -> (y: f32[3]) {\n"
                            "  b: f32[] = 2\n  y = Pow(a, b)\n}\n",
                            INPUTS(test_f32("3", -3, 0, 1.5))),
                  test_f32("3", 9, 0, 2.25), 0);
}

/* ---- casts -------------------------------------------------------------- */

static void check_cast(const char *what, sb_dtype from, sb_dtype to,
                       const double *v, const double *want)
{
    char text[256];

    (void)snprintf(text, sizeof text,
                   "graph g(x: %s[4]) -> (y: %s[4]) {\n"
                   "  y = Cast(x) {to=%d}\n}\n",
                   sb_dtype_get(from)->name, sb_dtype_get(to)->name, (int)to);
    sb_tensor *y = test_run1(text, INPUTS(test_tensor(from, "4", v)));
    assert_int_equal(y->dtype, to);
    for (int64_t i = 0; i < 4; i++)
        assert_close(what, sb_tensor_get_f64(y, i), want[i], 0);
}

#define V (double[])

static void test_casts_truncate_wrap_and_saturate(void **state)
{
    (void)state;
    check_cast("truncates", SB_DTYPE_F32, SB_DTYPE_I32, V{1.9, -1.9, 0.5, -7},
               V{1, -1, 0, -7});
    check_cast("to bool", SB_DTYPE_F32, SB_DTYPE_BOOL, V{0, 0.1, -3, NAN},
               V{0, 1, 1, 1});
    check_cast("wraps", SB_DTYPE_I32, SB_DTYPE_U8, V{256, -1, 255, 511},
               V{0, 255, 255, 255});
    check_cast("rounds to half", SB_DTYPE_F32, SB_DTYPE_F16,
               V{1.0 / 3, 65504, 1e6, -2},
               V{0.333251953125, 65504, INFINITY, -2});
    check_cast("rounds to bfloat16", SB_DTYPE_F32, SB_DTYPE_BF16,
               V{1.00390625, 1.01171875, 3, -2}, V{1, 1.015625, 3, -2});
    check_cast("float8 saturates", SB_DTYPE_F32, SB_DTYPE_F8E4M3FN,
               V{1000, -1000, 0.4, 17}, V{448, -448, 0.40625, 16});
    check_cast("uint4", SB_DTYPE_U8, SB_DTYPE_U4, V{1, 15, 7, 0},
               V{1, 15, 7, 0});
    check_cast("int4 back", SB_DTYPE_I4, SB_DTYPE_F32, V{-8, 7, -1, 0},
               V{-8, 7, -1, 0});
    check_cast("powers of two, rounded up", SB_DTYPE_F32, SB_DTYPE_F8E8M0,
               V{1, 3, 0.3, 2}, V{1, 4, 0.5, 2});
}

static void test_cast_without_saturation(void **state)
{
    (void)state;
    sb_tensor *y = test_run1("graph g(x: f32[2]) -> (y: f8e4m3fn[2]) {\n"
                             "  y = Cast(x) {to=17, saturate=0}\n}\n",
                             INPUTS(test_f32("2", 1000, 1)));
    assert_true(isnan(sb_tensor_get_f64(y, 0)));
    assert_status(test_try_run("graph g(x: f32[2]) -> (y: string[2]) {\n"
                               "  y = Cast(x) {to=8}\n}\n",
                               INPUTS(test_f32("2", 1, 1))),
                  SB_UNSUPPORTED);
}

static void test_dropout_keeps_everything(void **state)
{
    (void)state;
    sb_tensor *out[2], *x = test_f32("3", 1, 2, 3);

    test_run("graph g(x: f32[3]) -> (y: f32[3], m: bool[3]) {\n"
             "  y, m = Dropout(x)\n}\n",
             INPUTS(x), out, 2);
    assert_tensor("y", out[0], x, 0);
    assert_tensor("mask", out[1],
                  test_tensor(SB_DTYPE_BOOL, "3", (double[]){1, 1, 1}), 0);
}

/* The mean and spread of many numbers; the same numbers for the same seed. */
static void test_random_numbers(void **state)
{
    (void)state;
    const char *text = "graph g(x: f32[1]) -> (y: f32[4000]) {\n"
                       "  y = RandomNormal() {shape=[4000], mean=3.0, "
                       "scale=2.0, seed=5.0}\n}\n";
    sb_tensor *x = test_f32("1", 0);
    sb_tensor *y = test_run1(text, INPUTS(x)), *z = test_run1(text, INPUTS(x));
    double sum = 0, square = 0;

    assert_memory_equal(y->data, z->data, 16000);
    for (int64_t i = 0; i < 4000; i++) {
        double v = sb_tensor_get_f64(y, i);
        sum += v;
        square += (v - 3) * (v - 3);
    }
    assert_close("mean", sum / 4000, 3, 0.15);
    assert_close("deviation", sqrt(square / 4000), 2, 0.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_follow_their_formulas),
        cmocka_unit_test(test_infinities_and_nan_come_out_right),
        cmocka_unit_test(test_integers_stay_integers),
        cmocka_unit_test(test_pow_mixes_types),
        cmocka_unit_test(test_casts_truncate_wrap_and_saturate),
        cmocka_unit_test(test_cast_without_saturation),
        cmocka_unit_test(test_dropout_keeps_everything),
        cmocka_unit_test(test_random_numbers),
    };
    return cmocka_run_group_tests_name("functions", tests, NULL, NULL);
}
