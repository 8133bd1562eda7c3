/* Pass fold_columns. */
#include <string.h>

#include "graph/text.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "passtest.h"

typedef struct fold_case {
    const char *what;
    const char *graph;
    /* The convolution's weight after it, and how many nodes there are; NULL:
     * the graph stays as it is. */
    const char *weight;
    size_t n_nodes;
} fold_case;

static const fold_case cases[] = {
    {"3x3 of stride 2, Relu behind",
     TEST_GRAPH("x: f32[N,3,6,8]", "y: f32[N,8,3,4]",
                "w: f32[8,3,3,3] = random(1)\n"
                "b: f32[8] = random(2)\n"
                "c = Conv(x, w, b) {strides=[2,2], pads=[1,1,1,1]}\n"
                "y = Relu(c)\n"),
     "[16,12,3,2]", 8},
    {"the same without Relu, the result read twice",
     TEST_GRAPH("x: f32[2,3,6,8]", "y: f32[2,8,3,4]",
                "w: f32[8,3,3,3] = random(1)\n"
                "c = Conv(x, w) {strides=[2,2], pads=[0,0,1,1]}\n"
                "s = Sigmoid(c)\n"
                "y = Mul(c, s)\n"),
     "[16,12,3,2]", 9},
    {"the result is an output",
     TEST_GRAPH("x: f32[1,3,6,8]", "c: f32[1,8,3,4], y: f32[1,8,3,4]",
                "w: f32[8,3,3,3] = random(1)\n"
                "c = Conv(x, w) {strides=[2,2], pads=[1,1,1,1]}\n"
                "y = Relu(c)\n"),
     "[16,12,3,2]", 8},
    {"a width that is no multiple: padded and cut",
     TEST_GRAPH("x: f32[1,3,7,11]", "y: f32[1,8,3,5]",
                "w: f32[8,3,3,3] = random(1)\n"
                "b: f32[8] = random(2)\n"
                "c = Conv(x, w, b) {strides=[2,2]}\n"
                "y = Clip(c, lo)\n"
                "lo: f32[] = [-0.5]\n"),
     "[16,12,3,2]", 10},
    {"7x7 of stride 2",
     TEST_GRAPH("x: f32[N,3,12,16]", "y: f32[N,16,6,8]",
                "w: f32[16,3,7,7] = random(1)\n"
                "y = Conv(x, w) {strides=[2,2], pads=[3,3,3,3]}\n"),
     "[32,12,7,3]", 7},
    {"one channel, 5x5 of stride 1, padded on one side",
     TEST_GRAPH("x: f32[1,1,6,8]", "y: f32[1,4,4,8]",
                "w: f32[4,1,5,5] = random(1)\n"
                "y = Conv(x, w) {pads=[2,4,0,0]}\n"),
     "[16,4,5,2]", 7},
    {"patches: nothing overlaps",
     TEST_GRAPH("x: f32[1,3,8,8]", "y: f32[1,16,2,2]",
                "w: f32[16,3,4,4] = random(1)\n"
                "y = Conv(x, w) {strides=[4,4]}\n"),
     "[16,12,4,1]", 7},
    {"columns at the end that nothing reads",
     TEST_GRAPH("x: f32[1,3,4,9]", "y: f32[1,8,1,2]",
                "w: f32[8,3,3,3] = random(1)\n"
                "y = Conv(x, w) {strides=[4,4]}\n"),
     NULL, 0},
    {"four channels need no help",
     TEST_GRAPH("x: f32[1,4,6,8]", "y: f32[1,8,3,4]",
                "w: f32[8,4,3,3] = random(1)\n"
                "y = Conv(x, w) {strides=[2,2], pads=[1,1,1,1]}\n"),
     NULL, 0},
    {"1x1",
     TEST_GRAPH("x: f32[1,3,6,8]", "y: f32[1,16,6,8]",
                "w: f32[16,3,1,1] = random(1)\n"
                "y = Conv(x, w)\n"),
     NULL, 0},
    {"groups",
     TEST_GRAPH("x: f32[1,3,6,8]", "y: f32[1,9,6,8]",
                "w: f32[9,1,3,3] = random(1)\n"
                "y = Conv(x, w) {group=3, pads=[1,1,1,1]}\n"),
     NULL, 0},
    {"dilated",
     TEST_GRAPH("x: f32[1,3,6,8]", "y: f32[1,16,6,8]",
                "w: f32[16,3,3,3] = random(1)\n"
                "y = Conv(x, w) {dilations=[2,2], pads=[2,2,2,2]}\n"),
     NULL, 0},
    {"a width that is not known",
     TEST_GRAPH("x: f32[1,3,6,W]", "y: f32[1,16,6,W]",
                "w: f32[16,3,3,3] = random(1)\n"
                "y = Conv(x, w) {pads=[1,1,1,1]}\n"),
     NULL, 0},
    {"weights that are computed",
     TEST_GRAPH("x: f32[1,3,6,8], w: f32[16,3,3,3]", "y: f32[1,16,6,8]",
                "y = Conv(x, w) {pads=[1,1,1,1]}\n"),
     NULL, 0},
};

static void check(const fold_case *c)
{
    sb_graph *g = NULL;
    sb_pass_result *results = NULL;
    size_t n = 0;
    char text[64] = "";

    test_pass_removes("fold_columns", c->what, c->graph, "NoSuchOperator");
    assert_ok(sb_graph_parse(test_ctx(), c->graph, &g));
    assert_ok(sb_graph_infer(g));
    size_t before = sb_graph_live_nodes(g);
    assert_ok(sb_passes_run(g, "fold_columns", NULL, &results, &n));
    sb_free(test_ctx(), results);
    for (sb_node_id id = 0; id < g->n_nodes; id++) {
        const sb_node *node = sb_graph_node(g, id);
        if (!node->dead && sb_node_is(node, "Conv"))
            (void)sb_tensor_describe(
                &sb_graph_value(g, node->inputs[1])->constant, text,
                sizeof text);
    }
    if (sb_graph_live_nodes(g) != (c->weight ? c->n_nodes : before) ||
        (c->weight && !strstr(text, c->weight)))
        fail_msg("%s: %zu nodes, weight %s; want %zu, %s", c->what,
                 sb_graph_live_nodes(g), text, c->weight ? c->n_nodes : before,
                 c->weight ? c->weight : "the old one");
    sb_graph_free(g);
}

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++)
        check(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
    };
    return cmocka_run_group_tests_name("fold_columns", tests, NULL, NULL);
}
