/* Operators that move elements: values from NumPy or worked out by hand. */
#include <stdio.h>

#include "sbtest.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})

/* A table row: text, one input, the output. */
static void check(const char *what, const char *text, const sb_tensor *x,
                  const sb_tensor *want)
{
    assert_tensor(what, test_run1(text, INPUTS(x)), want, 1e-6);
}

static void test_slice_cuts_as_numpy(void **state)
{
    (void)state;
    static const struct {
        const char *start, *end, *step, *shape;
        double want[6];
    } cases[] = {
        {"1", "4", "1", "3", {1, 2, 3}},
        {"-2", "9223372036854775807", "1", "2", {4, 5}},
        {"0", "6", "4", "2", {0, 4}},
        {"-1", "-9223372036854775808", "-1", "6", {5, 4, 3, 2, 1, 0}},
        {"4", "0", "-2", "2", {4, 2}},
        {"9", "2", "-1", "3", {5, 4, 3}},
        {"3", "3", "1", "0", {0}},
        {"-99", "2", "1", "2", {0, 1}},
    };

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[6]) -> (y) {\n  a: i64[1] = [0]\n"
                       "  s: i64[1] = [%s]\n  e: i64[1] = [%s]\n"
                       "  t: i64[1] = [%s]\n  y = Slice(x, s, e, a, t)\n}\n",
                       cases[i].start, cases[i].end, cases[i].step);
        check(text, text, test_f32("6", 0, 1, 2, 3, 4, 5),
              test_tensor(SB_DTYPE_F32, cases[i].shape, cases[i].want));
    }
}

/* numpy.pad, also with pads longer than the axis. */
static void test_pad_fills_as_numpy(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        double want[12];
    } cases[] = {
        {"constant", {0, 0, 0, 0, 1, 2, 3, 0, 0, 0, 0, 0}},
        {"edge", {1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 3}},
        {"reflect", {1, 2, 3, 2, 1, 2, 3, 2, 1, 2, 3, 2}},
        {"wrap", {3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2}},
    };

    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char text[256];
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[3]) -> (y) {\n  p: i64[2] = [4, 5]\n"
                       "  y = Pad(x, p) {mode=\"%s\"}\n}\n",
                       cases[i].mode);
        check(cases[i].mode, text, test_f32("3", 1, 2, 3),
              test_tensor(SB_DTYPE_F32, "12", cases[i].want));
    }
    check("one axis, a value, a cut",
          "graph g(x: f32[2,3]) -> (y) {\n  p: i64[2] = [-1, 1]\n"
          "  v: f32[] = 9\n  a: i64[1] = [-1]\n  y = Pad(x, p, v, a)\n}\n",
          test_f32("2x3", 1, 2, 3, 4, 5, 6), test_f32("2x3", 2, 3, 9, 5, 6, 9));
}

static void test_concat_and_split(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6), *parts[2];

    assert_tensor("concat",
                  test_run1("graph g(x: f32[2,3]) -> (y) {\n"
                            "  e: f32[2,0] = zeros()\n"
                            "  y = Concat(x, e, x) {axis=1}\n}\n",
                            INPUTS(x)),
                  test_f32("2x6", 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6), 0);
    test_run("graph g(x: f32[2,3]) -> (y, z) {\n"
             "  y, z = Split(x) {axis=1, num_outputs=2}\n}\n",
             INPUTS(x), parts, 2);
    assert_tensor("first part", parts[0], test_f32("2x2", 1, 2, 4, 5), 0);
    assert_tensor("smaller rest", parts[1], test_f32("2x1", 3, 6), 0);
    check("a part without a consumer",
          "graph g(x: f32[2,3]) -> (z) {\n  s: i64[2] = [1, 2]\n"
          "  _, z = Split(x, s) {axis=1}\n}\n",
          x, test_f32("2x2", 2, 3, 5, 6));
}

static void test_tile_and_expand_repeat(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("1x2", 1, 2);

    check("tile",
          "graph g(x: f32[1,2]) -> (y) {\n  r: i64[2] = [2, 2]\n"
          "  y = Tile(x, r)\n}\n",
          x, test_f32("2x4", 1, 2, 1, 2, 1, 2, 1, 2));
    check("expand",
          "graph g(x: f32[1,2]) -> (y) {\n  s: i64[3] = [2, 2, 1]\n"
          "  y = Expand(x, s)\n}\n",
          x, test_f32("2x2x2", 1, 2, 1, 2, 1, 2, 1, 2));
    check("tile by nothing",
          "graph g(x: f32[1,2]) -> (y) {\n  r: i64[2] = [0, 2]\n"
          "  y = Tile(x, r)\n}\n",
          x, test_tensor(SB_DTYPE_F32, "0x4", NULL));
}

static void test_depth_and_space_change_places(void **state)
{
    (void)state;
    const char *const to_space = "graph g(x: f32[1,8,1,1]) -> (y) {\n"
                                 "  y = DepthToSpace(x) {blocksize=2, "
                                 "mode=\"%s\"}\n}\n";
    sb_tensor *x = test_f32("1x8x1x1", 0, 1, 2, 3, 4, 5, 6, 7);
    char text[256];

    (void)snprintf(text, sizeof text, to_space, "DCR");
    check("DCR", text, x, test_f32("1x2x2x2", 0, 2, 4, 6, 1, 3, 5, 7));
    (void)snprintf(text, sizeof text, to_space, "CRD");
    check("CRD", text, x, test_f32("1x2x2x2", 0, 1, 2, 3, 4, 5, 6, 7));
    check("and back",
          "graph g(x: f32[1,2,2,2]) -> (y) {\n"
          "  y = SpaceToDepth(x) {blocksize=2}\n}\n",
          test_f32("1x2x2x2", 0, 2, 4, 6, 1, 3, 5, 7), x);
}

static void test_trilu_keeps_a_triangle(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 1, 2, 3, 4, 5, 6);

    check("upper", "graph g(x: f32[2,3]) -> (y) {\n  y = Trilu(x)\n}\n", x,
          test_f32("2x3", 1, 2, 3, 0, 5, 6));
    check("lower, moved",
          "graph g(x: f32[2,3]) -> (y) {\n  k: i64[] = -1\n"
          "  y = Trilu(x, k) {upper=0}\n}\n",
          x, test_f32("2x3", 0, 0, 0, 4, 0, 0));
    check("eye", "graph g(x: f32[2,3]) -> (y) {\n  y = EyeLike(x) {k=1}\n}\n",
          x, test_f32("2x3", 0, 1, 0, 0, 0, 1));
}

static void test_reverse_sequence_keeps_the_rest(void **state)
{
    (void)state;
    check("reverse",
          "graph g(x: f32[3,2]) -> (y) {\n  n: i64[2] = [3, 2]\n"
          "  y = ReverseSequence(x, n)\n}\n",
          test_f32("3x2", 1, 2, 3, 4, 5, 6), test_f32("3x2", 5, 4, 3, 2, 1, 6));
    assert_status(test_try_run("graph g(x: f32[3,2]) -> (y) {\n"
                               "  n: i64[2] = [4, 2]\n"
                               "  y = ReverseSequence(x, n)\n}\n",
                               INPUTS(test_f32("3x2", 1, 2, 3, 4, 5, 6))),
                  SB_BAD_DATA);
    assert_error_has("sequence_lens[0] is 4");
    check("center",
          "graph g(x: f32[1,4]) -> (y) {\n  s: i64[2] = [3, 2]\n"
          "  y = CenterCropPad(x, s)\n}\n",
          test_f32("1x4", 1, 2, 3, 4), test_f32("3x2", 0, 0, 2, 3, 0, 0));
}

static void test_data_decides_the_shape(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("2x3", 0, 5, -0.0, 7, 5, 0), *u[4];

    assert_tensor("positions",
                  test_run1("graph g(x: f32[2,3]) -> (y) {\n"
                            "  y = NonZero(x)\n}\n",
                            INPUTS(x)),
                  test_i64("2x3", 0, 1, 1, 1, 0, 1), 0);
    check("compress",
          "graph g(x: f32[2,3]) -> (y) {\n  c: bool[2] = [0, 1]\n"
          "  y = Compress(x, c) {axis=1}\n}\n",
          x, test_f32("2x1", 5, 5));
    test_run("graph g(x: f32[2,3]) -> (y, i, j, n) {\n"
             "  y, i, j, n = Unique(x) {sorted=0}\n}\n",
             INPUTS(x), u, 4);
    assert_tensor("unique", u[0], test_f32("3", 0, 5, 7), 0);
    assert_tensor("first", u[1], test_i64("3", 0, 1, 3), 0);
    assert_tensor("inverse", u[2], test_i64("6", 0, 1, 0, 2, 1, 0), 0);
    assert_tensor("counts", u[3], test_i64("3", 3, 2, 1), 0);
}

static void test_one_hot(void **state)
{
    (void)state;
    assert_tensor("inside, from the end, outside",
                  test_run1("graph g(x: i64[3]) -> (y) {\n  d: i64[] = 3\n"
                            "  v: f32[2] = [-1, 2]\n"
                            "  y = OneHot(x, d, v)\n}\n",
                            INPUTS(test_i64("3", 1, -1, 3))),
                  test_f32("3x3", -1, 2, -1, -1, -1, 2, -1, -1, -1), 0);
}

static void test_if_takes_the_branch(void **state)
{
    (void)state;
    const char *text = "graph g(c: bool[], x: f32[2]) -> (y) {\n"
                       "  y = If(c) {then_branch=graph a() -> (p) {\n"
                       "    p = Neg(x)\n"
                       "  }, else_branch=graph b() -> (q) {\n"
                       "    q = Concat(x, x) {axis=0}\n  }}\n}\n";
    const double yes = 1, no = 0;
    sb_tensor *x = test_f32("2", 1, 2);

    assert_tensor(
        "then",
        test_run1(text, INPUTS(test_tensor(SB_DTYPE_BOOL, "", &yes), x)),
        test_f32("2", -1, -2), 0);
    assert_tensor(
        "else", test_run1(text, INPUTS(test_tensor(SB_DTYPE_BOOL, "", &no), x)),
        test_f32("4", 1, 2, 1, 2), 0);
}

/* No permutation at all reverses the axes; an empty one is that of a scalar. */
static void test_transpose_wants_every_axis(void **state)
{
    const sb_tensor *x = test_f32("1x2", 1, 2);

    (void)state;
    assert_ok(test_try_run("graph g(x: f32[1,2]) -> (y) {\n"
                           "  y = Transpose(x)\n}\n",
                           &x));
    assert_status(test_try_run("graph g(x: f32[1,2]) -> (y) {\n"
                               "  y = Transpose(x) {perm=[]}\n}\n",
                               &x),
                  SB_BAD_MODEL);
    assert_error_has("perm has 0 entries");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slice_cuts_as_numpy),
        cmocka_unit_test(test_transpose_wants_every_axis),
        cmocka_unit_test(test_pad_fills_as_numpy),
        cmocka_unit_test(test_concat_and_split),
        cmocka_unit_test(test_tile_and_expand_repeat),
        cmocka_unit_test(test_depth_and_space_change_places),
        cmocka_unit_test(test_trilu_keeps_a_triangle),
        cmocka_unit_test(test_reverse_sequence_keeps_the_rest),
        cmocka_unit_test(test_data_decides_the_shape),
        cmocka_unit_test(test_one_hot),
        cmocka_unit_test(test_if_takes_the_branch),
    };
    return cmocka_run_group_tests_name("movement", tests, NULL, NULL);
}
