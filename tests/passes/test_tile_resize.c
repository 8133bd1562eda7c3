/* Pass tile_resize. */
#include "passtest.h"

#define TILED(shape, tile, joined)          \
    "shape_1: i64[6] = " shape "\n"         \
    "shape_3: i64[6] = " tile "\n"          \
    "shape_5: i64[4] = " joined "\n"        \
    "y_0 = Transpose(x) {perm=[0,2,3,1]}\n" \
    "y_2 = Reshape(y_0, shape_1)\n"         \
    "y_4 = Tile(y_2, shape_3)\n"            \
    "y_6 = Reshape(y_4, shape_5)\n"         \
    "y = Transpose(y_6) {perm=[0,3,1,2]}\n"

static const pass_case cases[] = {
    {"as PyTorch writes it",
     TEST_GRAPH("x: f32[N,3,2,4]", "y: f32[N,3,4,8]",
                "s: f32[4] = [1, 1, 2, 2]\n"
                "y = Resize(x, _, s) {mode=\"nearest\", "
                "nearest_mode=\"floor\", "
                "coordinate_transformation_mode=\"asymmetric\"}\n"),
     TILED("[0, 2, 1, 4, 1, 3]", "[1, 1, 2, 1, 2, 1]", "[0, 4, 8, 3]"), false},
    {"rounded, by sizes, three times the columns",
     TEST_GRAPH("x: f32[1,3,2,4]", "y: f32[1,3,2,12]",
                "s: i64[4] = [1, 3, 2, 12]\n"
                "y = Resize(x, _, _, s)\n"),
     TILED("[0, 2, 1, 4, 1, 3]", "[1, 1, 1, 1, 3, 1]", "[0, 2, 12, 3]"), false},
    {"counted from the edge and rounded: other elements",
     TEST_GRAPH("x: f32[1,3,2,4]", "y: f32[1,3,6,12]",
                "s: f32[4] = [1, 1, 3, 3]\n"
                "y = Resize(x, _, s) {"
                "coordinate_transformation_mode=\"asymmetric\"}\n"),
     NULL, false},
    {"linear",
     TEST_GRAPH("x: f32[1,3,2,4]", "y: f32[1,3,4,8]",
                "s: f32[4] = [1, 1, 2, 2]\n"
                "y = Resize(x, _, s) {mode=\"linear\"}\n"),
     NULL, false},
    {"smaller",
     TEST_GRAPH("x: f32[1,3,2,4]", "y: f32[1,3,1,2]",
                "s: f32[4] = [1, 1, 0.5, 0.5]\n"
                "y = Resize(x, _, s)\n"),
     NULL, false},
    {"scales that only come near",
     TEST_GRAPH("x: f32[1,3,2,4]", "y: f32[1,3,4,8]",
                "s: f32[4] = [1, 1, 2.1, 2.1]\n"
                "y = Resize(x, _, s)\n"),
     NULL, false},
    {"a size that is not known",
     TEST_GRAPH("x: f32[1,3,H,4]", "y: f32[1,3,M,8]",
                "s: f32[4] = [1, 1, 2, 2]\n"
                "y = Resize(x, _, s)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("tile_resize", cases, SB_COUNT(cases));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("tile_resize", tests, NULL, NULL);
}
