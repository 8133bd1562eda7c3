/* Breaks of a graph that only a bug of ours can make, and that verification
 * must find. */
#include "sbtest.h"

#include "graph/graph.h"
#include "graph/text.h"

static const char whole[] = "graph g(x, c) -> (y) {\n"
                            " a = Add(x, x)\n"
                            " y = If(c) {then_branch=graph t() -> (a) {\n"
                            " }, else_branch=graph e(i) -> (z) {\n"
                            "   z = Add(i, a)\n"
                            " }}\n"
                            "}\n";

typedef void (*breaker)(sb_graph *g);

static void break_use(sb_graph *g)
{
    g->values[g->inputs[0]].uses[0].input = 1;
}

static void break_use_count(sb_graph *g)
{
    g->values[g->inputs[0]].n_uses--;
}

static void break_producer(sb_graph *g)
{
    g->values[g->outputs[0]].producer = 0;
}

static void break_no_producer(sb_graph *g)
{
    g->values[g->outputs[0]].producer = SB_NONE;
}

static void break_id(sb_graph *g)
{
    g->nodes[0].inputs[0] = 1000;
}

static void break_output_list(sb_graph *g)
{
    g->outputs[0] = 12345;
}

static void break_output_flag(sb_graph *g)
{
    g->values[0].is_output = !g->values[0].is_output;
}

static void break_name(sb_graph *g)
{
    g->values[0].name = g->values[1].name;
}

static void break_dead(sb_graph *g)
{
    g->nodes[0].dead = true;
}

static void break_capture(sb_graph *g)
{
    sb_node_body(&g->nodes[1], 0)->n_captures = 0;
}

static void break_inside(sb_graph *g)
{
    break_use_count(sb_node_body(&g->nodes[1], 1));
}

static void test_verify_finds(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        breaker fn;
    } rows[] = {
        {"wrong use", break_use},
        {"missing use", break_use_count},
        {"wrong producer", break_producer},
        {"missing producer", break_no_producer},
        {"input out of range", break_id},
        {"output out of range", break_output_list},
        {"output flag", break_output_flag},
        {"name twice", break_name},
        {"dead but used", break_dead},
        {"captures", break_capture},
        {"sub-graph", break_inside},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++) {
        sb_graph *g = NULL;

        assert_ok(sb_graph_parse(test_ctx(), whole, &g));
        assert_ok(sb_graph_verify(g));
        rows[i].fn(g);
        if (sb_graph_verify(g) != SB_BAD_MODEL)
            fail_msg("%s: not found", rows[i].what);
        sb_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify_finds),
    };
    return cmocka_run_group_tests_name("graph verify", tests, NULL, NULL);
}
