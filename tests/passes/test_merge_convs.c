/* Pass merge_convs: what comes out is checked by running both graphs; the texts
 * show what is gone. */
#include <string.h>

#include "graph/text.h"
#include "passes/pass.h"
#include "passtest.h"

#define NORM                                                                \
    "g: f32[4] = random(5)\nh: f32[4] = random(6)\nm: f32[4] = random(7)\n" \
    "s: f32[4] = [1, 2, 0.5, 3]\n"
#define SUM(out, weights, first, second)        \
    TEST_GRAPH("x: f32[2,4,7,6]", "y: f32" out, \
               weights "c = " first "\nd = " second "\ny = Add(c, d)\n")
#define W3 "w: f32[4,4,3,3] = random(1)\nb: f32[4] = random(2)\n"
#define C3 "Conv(x, w, b) {pads=[1,1,1,1]}"

static const struct {
    const char *what, *text, *gone;
} merged[] = {
    {"one tap, without a bias",
     SUM("[2,4,7,6]", W3 "v: f32[4,4,1,1] = random(3)\n", C3, "Conv(x, v)"),
     "Add"},
    {"the smaller kernel comes first",
     SUM("[2,4,7,6]", W3 "v: f32[4,4,1,1] = random(3)\n", "Conv(x, v)", C3),
     "Add"},
    {"kernels of one size, with strides",
     SUM("[2,4,4,3]", W3 "v: f32[4,4,3,3] = random(3)\n",
         "Conv(x, w, b) {pads=[1,1,1,1], strides=[2,2]}",
         "Conv(x, v, b) {pads=[1,1,1,1], strides=[2,2]}"),
     "Add"},
    {"rows beside columns, at a corner",
     SUM("[2,4,7,6]", W3 "v: f32[4,4,1,2] = random(3)\n",
         "Conv(x, w, b) {pads=[2,1,0,1]}", "Conv(x, v, b) {pads=[0,1,0,0]}"),
     "Add"},
    {"taps that lie on dilated ones",
     SUM("[2,4,7,6]",
         "w: f32[4,4,5,3] = random(1)\nv: f32[4,4,3,1] = "
         "random(3)\nb: f32[4] = random(2)\n",
         "Conv(x, w, b) {pads=[4,2,4,2], dilations=[2,2]}",
         "Conv(x, v) {pads=[4,0,4,0], dilations=[4,3]}"),
     "Add"},
    {"groups in a layer without groups",
     SUM("[2,4,7,6]", W3 "v: f32[4,2,1,1] = random(3)\n", C3,
         "Conv(x, v) {group=2}"),
     "Add"},
    {"a normalization beside a depthwise layer",
     SUM("[2,4,7,6]",
         "w: f32[4,1,3,3] = random(1)\nb: f32[4] = random(2)\n" NORM,
         "BatchNormalization(x, g, h, m, s)",
         "Conv(x, w, b) {pads=[1,1,1,1], group=4}"),
     "BatchNormalization"},
    {"three branches",
     TEST_GRAPH("x: f32[2,4,7,6]", "y: f32[2,4,7,6]",
                "w: f32[4,1,3,3] = random(1)\nb: f32[4] = random(2)\n"
                "v: f32[4,1,1,1] = random(3)\n" NORM
                "c = Conv(x, w, b) {pads=[1,1,1,1], group=4}\n"
                "d = Conv(x, v) {group=4}\ne = Add(c, d)\n"
                "f = BatchNormalization(x, g, h, m, s)\ny = Add(e, f)\n"),
     "Add"},
    {"of any size",
     TEST_GRAPH("x: f32[2,4,H,W]", "y: f32[2,4,H,W]",
                W3 "v: f32[4,4,1,1] = random(3)\nc = " C3
                   "\nd = Conv(x, v)\ny = Add(c, d)\n"),
     "Add"},
};

static const pass_case kept[] = {
    {"taps between those of the other",
     SUM("[2,4,7,6]", W3 "v: f32[4,4,3,3] = random(3)\n",
         "Conv(x, w, b) {pads=[2,2,2,2], dilations=[2,2]}",
         "Conv(x, v, b) {pads=[1,1,1,1]}"),
     NULL, false},
    {"taps beside those of the other",
     SUM("[2,4,7,6]",
         "w: f32[4,4,1,3] = random(1)\nv: f32[4,4,3,1] = random(3)\n",
         "Conv(x, w) {pads=[0,1,0,1]}", "Conv(x, v) {pads=[1,0,1,0]}"),
     NULL, false},
    {"one has groups, the other more taps",
     SUM("[2,4,7,6]",
         "w: f32[4,1,3,3] = random(1)\nv: f32[4,4,1,1] = "
         "random(3)\n",
         "Conv(x, w) {pads=[1,1,1,1], group=4}", "Conv(x, v)"),
     NULL, false},
    {"of two values",
     TEST_GRAPH("x: f32[2,4,7,6], z: f32[2,4,7,6]", "y: f32[2,4,7,6]",
                W3 "v: f32[4,4,1,1] = random(3)\nc = " C3
                   "\nd = Conv(z, v)\ny = Add(c, d)\n"),
     NULL, false},
    {"one of them is read elsewhere, too",
     TEST_GRAPH("x: f32[2,4,7,6]", "y: f32[2,4,7,6], z: f32[2,4,7,6]",
                W3 "v: f32[4,4,1,1] = random(3)\nc = " C3
                   "\nd = Conv(x, v)\ny = Add(c, d)\nz = Neg(d)\n"),
     NULL, false},
    {"a normalization beside many channels",
     SUM("[2,4,7,6]", W3 NORM, C3, "BatchNormalization(x, g, h, m, s)"), NULL,
     false},
    {"one row of results for all of the other",
     TEST_GRAPH("x: f32[2,4,7,6]", "y: f32[2,4,7,6]",
                W3 "v: f32[4,4,7,1] = random(3)\nc = " C3
                   "\nd = Conv(x, v)\ny = Add(c, d)\n"),
     NULL, false},
};

static void test_what_is_merged_computes_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(merged); i++)
        test_pass_removes("merge_convs", merged[i].what, merged[i].text,
                          merged[i].gone);
}

static void test_what_is_kept(void **state)
{
    (void)state;
    test_passes("merge_convs", kept, SB_COUNT(kept));
}

static bool is_called(const void *name, const sb_node *node)
{
    return strcmp(node->name, name) == 0;
}

/* How many convolutions are left of two, if a configuration names one. */
static size_t left_if_named(const char *name)
{
    static const char text[] =
        TEST_GRAPH("x: f32[2,4,7,6]", "y: f32[2,4,7,6]",
                   W3 "v: f32[4,4,1,1] = random(3)\nc = " C3 " \"large\"\n"
                      "d = Conv(x, v) \"small\"\ny = Add(c, d)\n");
    sb_graph *g = NULL;
    size_t n = 0;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    g->is_named = is_called;
    g->is_named_user = name;
    assert_ok(sb_passes_run(g, "merge_convs", NULL, NULL, NULL));
    for (sb_node_id id = 0; id < g->n_nodes; id++)
        n += !sb_graph_node(g, id)->dead &&
             sb_node_is(sb_graph_node(g, id), "Conv");
    sb_graph_free(g);
    return n;
}

static void test_names_are_not_lost(void **state)
{
    (void)state;
    assert_int_equal(left_if_named("large"), 1);
    assert_int_equal(left_if_named("small"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_merged_computes_the_same),
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_names_are_not_lost),
    };
    return cmocka_run_group_tests_name("merge_convs", tests, NULL, NULL);
}
