/* The elementwise engine against naive loops: random shapes that broadcast,
 * all element types, in place, any number of threads. */
#include "sbtest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/text.h"
#include "ops/op_registry.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

static uint64_t rng_state = 1;

static uint32_t rng(uint32_t n)
{
    rng_state =
        rng_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

/* ---- the naive reference ------------------------------------------------ */

/* Offset of the element of `t` that belongs to element `i` of `out`. */
static int64_t broadcast_index(const sb_tensor *out, int64_t i,
                               const sb_tensor *t)
{
    int64_t at = 0, stride = 1;

    for (int d = out->rank - 1; d >= 0; d--) {
        int own = d - (out->rank - t->rank);
        int64_t index = i % out->dims[d];

        i /= out->dims[d];
        if (own < 0)
            continue;
        at += (t->dims[own] == 1 ? 0 : index) * stride;
        stride *= t->dims[own];
    }
    return at;
}

static double ref_binary(char op, double a, double b, bool real)
{
    switch (op) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        return a * b;
    case '/':
        return real ? a / b : b == 0 ? 0 : trunc(a / b);
    case '<':
        return a < b;
    case '=':
        return a == b;
    case 'M':
        return a > b ? a : b;
    default:
        return NAN;
    }
}

/* ---- random shapes ------------------------------------------------------ */

typedef struct shape_pair {
    char a[64], b[64], a_list[64], b_list[64];
} shape_pair;

static void append(char *text, const char *separator, int dim)
{
    size_t used = strlen(text);

    (void)snprintf(text + used, 64 - used, "%s%d", used ? separator : "", dim);
}

/* Two shapes that broadcast; each may miss leading dimensions. */
static shape_pair random_shapes(void)
{
    static const int sizes[] = {1, 2, 3, 5, 17, 70};
    shape_pair p = {0};
    uint32_t rank = rng(6), skip_a = rng(rank + 1), skip_b = rng(rank + 1);

    if (rng(2))
        skip_a = 0;
    else
        skip_b = 0;
    for (uint32_t d = 0; d < rank; d++) {
        int n = sizes[rng(rank > 3 ? 4 : 6)];
        int a = rng(3) == 0 ? 1 : n, b = rng(3) == 0 ? 1 : n;

        if (d >= skip_a) {
            append(p.a, "x", a);
            append(p.a_list, ",", a);
        }
        if (d >= skip_b) {
            append(p.b, "x", b);
            append(p.b_list, ",", b);
        }
    }
    return p;
}

static void check_binary(const char *name, char op, sb_dtype t, bool predicate)
{
    shape_pair p = random_shapes();
    const char *type = sb_dtype_get(t)->name;
    sb_tensor *a = test_random(t, p.a, rng(1000));
    sb_tensor *b = test_random(t, p.b, rng(1000));
    char text[512];

    (void)snprintf(text, sizeof text,
                   "graph g(a: %s[%s], b: %s[%s]) -> (y: %s[*]) {\n"
                   "  y = %s(a, b)\n}\n",
                   type, p.a_list, type, p.b_list, predicate ? "bool" : type,
                   name);
    sb_tensor *y = test_run1(text, INPUTS(a, b));
    assert_int_equal(y->dtype, predicate ? SB_DTYPE_BOOL : t);
    double tol = t == SB_DTYPE_F64 ? 1e-14 : 2e-3;
    if (t == SB_DTYPE_F32)
        tol = 1e-6;
    if (t == SB_DTYPE_BF16)
        tol = 1e-2;
    for (int64_t i = 0; i < sb_tensor_count(y); i++) {
        double va = sb_tensor_get_f64(a, broadcast_index(y, i, a));
        double vb = sb_tensor_get_f64(b, broadcast_index(y, i, b));
        double want = ref_binary(op, va, vb, sb_dtype_is_float(t));
        double got = sb_tensor_get_f64(y, i);

        if (sb_dtype_get(t)->cls == SB_CLASS_UINT && want < 0)
            want += ldexp(1, sb_dtype_get(t)->bits);
        if (fabs(want) > 60000 && t == SB_DTYPE_F16)
            continue;
        assert_close(text, got, want, tol + tol * fabs(want));
    }
}

static void test_binary_random(void **state)
{
    static const struct {
        const char *name;
        char op;
        bool predicate;
    } ops[] = {{"Add", '+', false}, {"Sub", '-', false}, {"Mul", '*', false},
               {"Div", '/', false}, {"Less", '<', true}, {"Equal", '=', true},
               {"Max", 'M', false}};
    static const sb_dtype types[] = {SB_DTYPE_F32, SB_DTYPE_F64, SB_DTYPE_I64,
                                     SB_DTYPE_I32, SB_DTYPE_U8,  SB_DTYPE_I8,
                                     SB_DTYPE_U64, SB_DTYPE_F16, SB_DTYPE_BF16,
                                     SB_DTYPE_I16, SB_DTYPE_U32};

    (void)state;
    for (int round = 0; round < 400; round++) {
        size_t o = rng(SB_COUNT(ops));

        check_binary(ops[o].name, ops[o].op, types[rng(SB_COUNT(types))],
                     ops[o].predicate);
    }
}

static void test_where_random(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        shape_pair p = random_shapes();
        sb_tensor *c = test_random(SB_DTYPE_BOOL, p.b, rng(1000));
        sb_tensor *a = test_random(SB_DTYPE_F32, p.a, rng(1000));
        sb_tensor *b = test_random(SB_DTYPE_F32, p.b, rng(1000));
        char text[512];

        (void)snprintf(text, sizeof text,
                       "graph g(c: bool[%s], a: f32[%s], b: f32[%s]) -> "
                       "(y: f32[*]) {\n  y = Where(c, a, b)\n}\n",
                       p.b_list, p.a_list, p.b_list);
        sb_tensor *y = test_run1(text, INPUTS(c, a, b));
        for (int64_t i = 0; i < sb_tensor_count(y); i++) {
            const sb_tensor *from =
                sb_tensor_get_i64(c, broadcast_index(y, i, c)) ? a : b;
            assert_close(text, sb_tensor_get_f64(y, i),
                         sb_tensor_get_f64(from, broadcast_index(y, i, from)),
                         0);
        }
    }
}

/* ---- edges -------------------------------------------------------------- */

static void test_integer_division_never_traps(void **state)
{
    (void)state;
    const char *text = "graph g(a: i32[4], b: i32[4]) -> (y: i32[4], z: i32[4])"
                       " {\n  y = Div(a, b)\n  z = Mod(a, b)\n}\n";
    sb_tensor *out[2];

    test_run(text,
             INPUTS(test_tensor(SB_DTYPE_I32, "4",
                                (double[]){7, -7, -2147483648.0, 5}),
                    test_tensor(SB_DTYPE_I32, "4", (double[]){2, 2, -1, 0})),
             out, 2);
    assert_tensor(
        "div", out[0],
        test_tensor(SB_DTYPE_I32, "4", (double[]){3, -3, -2147483648.0, 0}), 0);
    assert_tensor("mod", out[1],
                  test_tensor(SB_DTYPE_I32, "4", (double[]){1, 1, 0, 0}), 0);
}

static void test_least_int64_by_minus_one(void **state)
{
    (void)state;
    sb_tensor *a = test_i64("1", 0);
    *(int64_t *)a->data = INT64_MIN;
    sb_tensor *y = test_run1(
        "graph g(a: i64[1], b: i64[1]) -> (y: i64[1]) {\n  y = Div(a, b)\n}\n",
        INPUTS(a, test_i64("1", -1)));
    assert_true(*(int64_t *)y->data == INT64_MIN);
}

static void test_empty_and_scalar(void **state)
{
    (void)state;
    sb_tensor *y = test_run1(
        "graph g(a: f32[0,3], b: f32[3]) -> (y: f32[0,3])"
        " {\n  y = Add(a, b)\n}\n",
        INPUTS(test_tensor(SB_DTYPE_F32, "0x3", NULL), test_f32("3", 1, 2, 3)));
    assert_int_equal(sb_tensor_count(y), 0);
    y = test_run1("graph g(a: f32[], b: f32[]) -> (y: f32[]) {\n"
                  "  y = Mul(a, b)\n}\n",
                  INPUTS(test_f32("", 3), test_f32("", 4)));
    assert_tensor("scalar", y, test_f32("", 12), 0);
}

static void test_bad_shapes_and_types_are_refused(void **state)
{
    (void)state;
    assert_status(
        test_try_run("graph g(a: f32[2], b: f32[3]) -> (y: f32[*])"
                     " {\n  y = Add(a, b)\n}\n",
                     INPUTS(test_f32("2", 1, 2), test_f32("3", 1, 2, 3))),
        SB_BAD_MODEL);
    assert_error_has("broadcast");
    assert_status(
        test_try_run("graph g(a: f32[2], b: i64[2]) -> (y: f32[*])"
                     " {\n  y = Add(a, b)\n}\n",
                     INPUTS(test_f32("2", 1, 2), test_i64("2", 1, 2))),
        SB_BAD_MODEL);
    assert_status(test_try_run("graph g(a: bool[2]) -> (y: bool[2])"
                               " {\n  y = Exp(a)\n}\n",
                               INPUTS(test_tensor(SB_DTYPE_BOOL, "2", NULL))),
                  SB_UNSUPPORTED);
    assert_error_has("bool");
}

/* The same graph, many nodes in place, on 1 and on 4 threads. */
static void test_threads_change_nothing(void **state)
{
    const char *text = "graph g(x: f32[9,40,333], c: f32[40,1]) -> "
                       "(y: f32[9,40,333]) {\n"
                       "  a = Mul(x, c)\n  b = Tanh(a)\n  d = Add(b, x)\n"
                       "  e = Softmax(d) {axis=1}\n  y = Sub(e, c)\n}\n";
    sb_tensor *x = test_random(SB_DTYPE_F32, "9x40x333", 3);
    sb_tensor *c = test_random(SB_DTYPE_F32, "40x1", 4);

    (void)state;
    sb_ctx_set_threads(test_ctx(), 1);
    sb_tensor *one = test_run1(text, INPUTS(x, c));
    sb_ctx_set_threads(test_ctx(), 4);
    sb_tensor *four = test_run1(text, INPUTS(x, c));
    assert_memory_equal(one->data, four->data, sb_tensor_bytes(one));
}

/* ---- symbolic contents -------------------------------------------------- */

/* Shape arithmetic reaches the shape of y. */
static void check_inferred(const char *text, int rank, sb_dim first)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_graph_infer(g));
    const sb_shape *s = &sb_graph_value(g, g->outputs[0])->type.shape;
    assert_int_equal(s->rank, rank);
    if (first == SB_DIM_UNKNOWN) /* means: a symbol is wanted */
        assert_true(sb_dim_symbol_index(s->dim[0]) >= 0);
    else
        assert_true(s->dim[0] == first);
    sb_graph_free(g);
}

static void test_shape_arithmetic(void **state)
{
    (void)state;
    check_inferred("graph g(x: f32[N,6]) -> (y: f32[*]) {\n"
                   "  s = Shape(x)\n  o: i64[2] = [1, 2]\n"
                   "  m: i64[2] = [0, 3]\n  a = Mul(s, o)\n  b = Sub(a, m)\n"
                   "  y = Expand(x2, b)\n  q: f32[1] = [1]\n"
                   "  x2 = Identity(q)\n}\n",
                   2, SB_DIM_UNKNOWN);
    check_inferred("graph g(x: f32[2,6]) -> (y: f32[*]) {\n"
                   "  s = Shape(x)\n  p = ReduceProd(s) {keepdims=1}\n"
                   "  y = Reshape(x, p)\n}\n",
                   1, 12);
    check_inferred("graph g(x: f32[N,6]) -> (y: i64[*]) {\n"
                   "  s = Shape(x)\n  i: i64[] = 0\n  n = Gather(s, i)\n"
                   "  z: i64[] = 0\n  o: i64[] = 1\n  y = Range(z, n, o)\n}\n",
                   1, SB_DIM_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_binary_random),
        cmocka_unit_test(test_where_random),
        cmocka_unit_test(test_integer_division_never_traps),
        cmocka_unit_test(test_least_int64_by_minus_one),
        cmocka_unit_test(test_empty_and_scalar),
        cmocka_unit_test(test_bad_shapes_and_types_are_refused),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_shape_arithmetic),
    };
    return cmocka_run_group_tests_name("elementwise", tests, NULL, NULL);
}
