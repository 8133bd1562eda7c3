/* Gather, Scatter and their relatives: NumPy's values, and every index that
 * comes from data refused when it is outside. */
#include <stdio.h>

#include "sbtest.h"

#define INPUTS(...) ((const sb_tensor *[]){__VA_ARGS__})
#define ONE_NODE(node) \
    "graph g(x: f32[*], i: i64[*], u: f32[*]) -> (y) {\n  y = " node "\n}\n"

static sb_tensor *x34(void)
{
    return test_f32("3x4", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
}

static sb_tensor *none(void)
{
    return test_f32("1", 0);
}

static void test_gather_picks_as_numpy(void **state)
{
    (void)state;
    sb_tensor *i = test_i64("1x2", 2, -3);

    assert_tensor("rows",
                  test_run1(ONE_NODE("Gather(x, i)"), INPUTS(x34(), i, none())),
                  test_f32("1x2x4", 8, 9, 10, 11, 0, 1, 2, 3), 0);
    assert_tensor(
        "columns",
        test_run1(ONE_NODE("Gather(x, i) {axis=-1}"), INPUTS(x34(), i, none())),
        test_f32("3x1x2", 2, 1, 6, 5, 10, 9), 0);
    assert_tensor("a scalar index drops the axis",
                  test_run1(ONE_NODE("Gather(x, i)"),
                            INPUTS(x34(), test_i64("", -1), none())),
                  test_f32("4", 8, 9, 10, 11), 0);
}

static void test_gather_elements(void **state)
{
    (void)state;
    sb_tensor *i = test_i64("2x2", 1, -1, 0, 2);

    assert_tensor(
        "axis 0",
        test_run1(ONE_NODE("GatherElements(x, i)"), INPUTS(x34(), i, none())),
        test_f32("2x2", 4, 9, 0, 9), 0);
    assert_tensor("axis 1",
                  test_run1(ONE_NODE("GatherElements(x, i) {axis=1}"),
                            INPUTS(x34(), i, none())),
                  test_f32("2x2", 1, 3, 4, 6), 0);
}

static void test_gather_nd(void **state)
{
    (void)state;
    assert_tensor(
        "elements",
        test_run1(ONE_NODE("GatherND(x, i)"),
                  INPUTS(x34(), test_i64("2x2", 0, 3, -1, 1), none())),
        test_f32("2", 3, 9), 0);
    assert_tensor("slices",
                  test_run1(ONE_NODE("GatherND(x, i)"),
                            INPUTS(x34(), test_i64("1x1", 1), none())),
                  test_f32("1x4", 4, 5, 6, 7), 0);
    assert_tensor("batch_dims",
                  test_run1(ONE_NODE("GatherND(x, i) {batch_dims=1}"),
                            INPUTS(x34(), test_i64("3x1", 0, 1, 2), none())),
                  test_f32("3", 0, 5, 10), 0);
}

static void test_scatter_reduces_as_numpy(void **state)
{
    (void)state;
    sb_tensor *x = test_f32("4", 1, 2, 3, 4);
    sb_tensor *i = test_i64("3", 1, -1, 1), *u = test_f32("3", 10, 20, 30);
    static const struct {
        const char *reduction;
        double want[4];
    } cases[] = {{"none", {1, 30, 3, 20}},
                 {"add", {1, 42, 3, 24}},
                 {"mul", {1, 600, 3, 80}},
                 {"max", {1, 30, 3, 20}},
                 {"min", {1, 2, 3, 4}}};

    for (size_t c = 0; c < SB_COUNT(cases); c++) {
        char text[256];
        sb_tensor *want = test_tensor(SB_DTYPE_F32, "4", cases[c].want);
        (void)snprintf(text, sizeof text,
                       ONE_NODE("ScatterElements(x, i, u) "
                                "{reduction=\"%s\"}"),
                       cases[c].reduction);
        assert_tensor(cases[c].reduction, test_run1(text, INPUTS(x, i, u)),
                      want, 0);
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[*], i: i64[*], u: f32[*]) -> (y) {\n"
                       "  s: i64[2] = [3, 1]\n  j = Reshape(i, s)\n"
                       "  y = ScatterND(x, j, u) {reduction=\"%s\"}\n}\n",
                       cases[c].reduction);
        assert_tensor(cases[c].reduction, test_run1(text, INPUTS(x, i, u)),
                      want, 0);
    }
}

static void test_tensor_scatter(void **state)
{
    (void)state;
    sb_tensor *cache = test_f32("2x3x1", 0, 0, 0, 0, 0, 0);
    sb_tensor *u = test_f32("2x2x1", 1, 2, 3, 4);

    assert_tensor("linear",
                  test_run1(ONE_NODE("TensorScatter(x, u, i)"),
                            INPUTS(cache, test_i64("2", 0, 1), u)),
                  test_f32("2x3x1", 1, 2, 0, 0, 3, 4), 0);
    assert_tensor("circular",
                  test_run1(ONE_NODE("TensorScatter(x, u, i) "
                                     "{mode=\"circular\"}"),
                            INPUTS(cache, test_i64("2", 2, 4), u)),
                  test_f32("2x3x1", 2, 0, 1, 0, 3, 4), 0);
    assert_status(test_try_run(ONE_NODE("TensorScatter(x, u, i)"),
                               INPUTS(cache, test_i64("2", 0, 2), u)),
                  SB_BAD_DATA);
}

/* Each with the index 5, or -9, that x does not have. */
static void test_bad_indices(void **state)
{
    (void)state;
    static const struct {
        const char *text, *shape;
        double index;
        const char *message;
    } cases[] = {
        {ONE_NODE("Gather(x, i)"), "1", 5, "index 5 is outside [-3, 3)"},
        {ONE_NODE("Gather(x, i) {axis=1}"), "1", -9, "index -9"},
        {ONE_NODE("GatherElements(x, i)"), "1x1", 5, "index 5"},
        {ONE_NODE("GatherND(x, i)"), "1", 5, "index 5"},
        {ONE_NODE("ScatterElements(x, i, u)"), "1x1", -9, "index -9"},
        {"graph g(x: f32[*], i: i64[*], u: f32[*]) -> (y) {\n"
         "  s: i64[1] = [4]\n  v = Expand(u, s)\n"
         "  t: i64[2] = [1, 4]\n  w = Reshape(v, t)\n"
         "  y = ScatterND(x, i, w)\n}\n",
         "1x1", 5, "index 5"},
    };

    for (size_t c = 0; c < SB_COUNT(cases); c++) {
        sb_tensor *i =
            test_tensor(SB_DTYPE_I64, cases[c].shape, &cases[c].index);
        sb_tensor *u = c == 4 ? test_f32("1x1", 0) : none();
        assert_status(test_try_run(cases[c].text, INPUTS(x34(), i, u)),
                      SB_BAD_DATA);
        assert_error_has(cases[c].message);
        assert_error_has("node 'y'");
    }
}

static void test_other_types(void **state)
{
    (void)state;
    static const sb_dtype dtypes[] = {SB_DTYPE_U8, SB_DTYPE_I16, SB_DTYPE_F16,
                                      SB_DTYPE_I32, SB_DTYPE_F64};
    const double v[] = {1, 2, 3}, want[] = {3, 1};

    for (size_t d = 0; d < SB_COUNT(dtypes); d++) {
        char text[128];
        (void)snprintf(text, sizeof text,
                       "graph g(x: %s[3]) -> (y) {\n"
                       "  i: i32[2] = [2, 0]\n  y = Gather(x, i)\n}\n",
                       sb_dtype_get(dtypes[d])->name);
        assert_tensor(sb_dtype_name(dtypes[d]),
                      test_run1(text, INPUTS(test_tensor(dtypes[d], "3", v))),
                      test_tensor(dtypes[d], "2", want), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_picks_as_numpy),
        cmocka_unit_test(test_gather_elements),
        cmocka_unit_test(test_gather_nd),
        cmocka_unit_test(test_scatter_reduces_as_numpy),
        cmocka_unit_test(test_tensor_scatter),
        cmocka_unit_test(test_bad_indices),
        cmocka_unit_test(test_other_types),
    };
    return cmocka_run_group_tests_name("indexing", tests, NULL, NULL);
}
