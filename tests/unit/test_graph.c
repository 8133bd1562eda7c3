/* The graph: building, changing, captures, order, clone. */
#include "sbtest.h"

#include <stdio.h>
#include <string.h>

#include "graph/part.h"
#include "graph/text.h"

static sb_graph *parsed(const char *text)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    return g;
}

static sb_value_id named(const sb_graph *g, const char *name)
{
    sb_value_id id = sb_graph_find_value(g, name);

    if (id == SB_NONE)
        fail_msg("no value '%s'", name);
    return id;
}

static sb_node_id maker(const sb_graph *g, const char *name)
{
    return sb_graph_value(g, named(g, name))->producer;
}

/* Compares with the text form, and checks the graph on the way. */
static void assert_text(const sb_graph *g, const char *want)
{
    sb_str text;

    assert_ok(sb_graph_verify(g));
    sb_str_init(&text, test_ctx());
    assert_ok(sb_graph_print(g, &text));
    assert_string_equal(sb_str_text(&text), want);
    sb_str_free(&text);
}

static void add_op(sb_graph *g, const char *op, sb_value_id in, sb_value_id out)
{
    sb_node_spec spec = {
        .op = op, .inputs = &in, .n_in = 1, .outputs = &out, .n_out = 1};

    assert_ok(sb_graph_add_node(g, &spec, NULL));
}

/* ---- building ----------------------------------------------------------- */

static void test_graphs_are_built_node_by_node(void **state)
{
    (void)state;
    sb_graph *g = NULL;
    sb_value_id x = 0, y = 0, k = 0, same = 0;
    const float ones[] = {1, 2};
    const int64_t dims[] = {2};

    assert_ok(sb_graph_create(test_ctx(), "built", &g));
    assert_ok(sb_graph_add_value(g, "x", &x));
    assert_ok(sb_graph_add_input(g, x));
    assert_ok(sb_graph_add_value(g, "y", &y));
    assert_ok(sb_graph_add_constant(g, "k", SB_DTYPE_F32, 1, dims, ones, &k));
    const sb_value_id inputs[] = {x, k, SB_NONE, k};
    sb_node_spec spec = {.op = "Foo",
                         .domain = "d.e",
                         .name = "n",
                         .module = "m.n",
                         .inputs = inputs,
                         .n_in = 4,
                         .outputs = &y,
                         .n_out = 1};
    assert_ok(sb_graph_add_node(g, &spec, NULL));
    assert_ok(sb_graph_add_output(g, y));
    assert_text(g, "graph built(x) -> (y) {\n"
                   "    k_0: f32[2] = [1, 2]\n"
                   "    y = d.e::Foo(x, k_0, _, k_0) \"n\" @ m.n\n"
                   "}\n");
    assert_int_equal(sb_graph_value(g, k)->n_uses, 2);
    assert_ptr_equal(sb_graph_producer(g, y), sb_graph_node(g, 0));
    assert_null(sb_graph_producer(g, x));
    assert_null(sb_graph_producer(g, SB_NONE));
    assert_string_equal(sb_node_label(g, sb_graph_node(g, 0)), "n");

    assert_status(sb_graph_add_value(g, "x", &same), SB_BAD_MODEL);
    assert_error_has("'x'");
    assert_status(sb_graph_add_input(g, x), SB_BAD_MODEL);
    assert_status(sb_graph_add_input(g, y), SB_BAD_MODEL);
    assert_status(sb_graph_add_node(g, &spec, NULL), SB_BAD_MODEL);
    assert_error_has("another node");
    spec.outputs = &x;
    assert_status(sb_graph_add_node(g, &spec, NULL), SB_BAD_MODEL);
    spec.outputs = &k;
    assert_status(sb_graph_add_node(g, &spec, NULL), SB_BAD_MODEL);
    assert_ok(sb_graph_verify(g));
    sb_graph_free(g);
    sb_graph_free(NULL);
}

/* The same result twice in one node: nothing of it may stay. */
static void test_output_twice(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(x) -> (y) {\n y = Relu(x)\n}\n");
    sb_value_id v = 0;

    assert_ok(sb_graph_add_value(g, "v", &v));
    const sb_value_id outputs[] = {v, v}, x = named(g, "x");
    sb_node_spec spec = {
        .op = "Split", .inputs = &x, .n_in = 1, .outputs = outputs, .n_out = 2};
    assert_status(sb_graph_add_node(g, &spec, NULL), SB_BAD_MODEL);
    assert_int_equal(sb_graph_value(g, v)->producer, SB_NONE);
    assert_ok(sb_graph_verify(g));
    sb_graph_free(g);
}

static void test_fresh_names(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(v_0, v_1) -> (y) {\n y = If(v_0) "
                         "{then_branch=graph t() -> (v_2) {\n v_2 = "
                         "Relu(v_1)\n}, else_branch=graph e() -> (v_3) {\n "
                         "v_3 = Neg(v_1)\n}}\n}\n");
    sb_value_id id = 0;

    /* Unlike all names in the whole tree. */
    assert_ok(sb_graph_add_value(g, NULL, &id));
    assert_string_equal(sb_graph_value(g, id)->name, "v_4");
    assert_ok(sb_graph_add_value_like(g, "y", &id));
    assert_string_equal(sb_graph_value(g, id)->name, "y_5");
    sb_graph_free(g);
}

static void test_constants_and_buffers(void **state)
{
    (void)state;
    sb_graph *g = NULL, *copy = NULL;
    sb_value_id v = 0;
    sb_tensor *t = test_f32("2", 1, 2);

    assert_ok(sb_graph_create(test_ctx(), "g", &g));
    assert_ok(sb_graph_add_value(g, "w", &v));
    assert_ok(sb_graph_set_constant(g, v, t));
    assert_ok(sb_graph_set_constant(g, v, t)); /* the old one is given up */
    assert_ok(sb_graph_clone(g, &copy));
    /* Elements are shared, and outlive the graph they came from. */
    assert_ptr_equal(sb_graph_value(copy, 0)->constant.data, t->data);
    sb_graph_free(g);
    assert_ok(sb_graph_verify(copy));
    sb_graph_free(copy);
}

/* ---- changing ----------------------------------------------------------- */

static void test_set_inputs(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(a, b) -> (y) {\n"
                         " y = Foo(a, a, b, a)\n"
                         "}\n");
    sb_node_id n = maker(g, "y");

    assert_ok(sb_graph_set_input(g, n, 1, named(g, "b")));
    assert_ok(sb_graph_set_input(g, n, 0, SB_NONE));
    assert_text(g, "graph g(a, b) -> (y) {\n"
                   "    y = Foo(_, b, b, a)\n"
                   "}\n");
    assert_int_equal(sb_graph_value(g, named(g, "a"))->n_uses, 1);
    sb_graph_free(g);
}

static void test_replace_value(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(x: f32[N]) -> (y: f32[N], z) {\n"
                         " a = Relu(x)\n"
                         " y = Identity(a)\n"
                         " z = Add(a, y)\n"
                         "}\n");
    bool done = false;

    /* A graph output keeps its name, readers follow. */
    assert_ok(sb_graph_replace_value(g, named(g, "y"), named(g, "a"), &done));
    assert_true(done);
    assert_int_equal(sb_graph_remove_dead(g), 1);
    assert_text(g, "graph g(x: f32[N]) -> (y: f32[N], z) {\n"
                   "    y = Relu(x)\n"
                   "    z = Add(y, y)\n"
                   "}\n");
    assert_int_equal(sb_graph_find_value(g, "a"), SB_NONE);
    /* An input cannot take the name of an output. */
    assert_ok(sb_graph_replace_value(g, named(g, "z"), named(g, "x"), &done));
    assert_false(done);
    assert_ok(sb_graph_replace_value(g, named(g, "z"), named(g, "y"), &done));
    assert_false(done);
    assert_ok(sb_graph_verify(g));
    sb_graph_free(g);
}

static void test_replace_into_sub_graphs(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(c, x) -> (y) {\n"
                         " a = Identity(x)\n"
                         " y = If(c) {then_branch=graph t() -> (o) {\n"
                         "   o = Add(a, x)\n"
                         " }, else_branch=graph e() -> (p) {\n"
                         "   p = If(c) {then_branch=graph tt() -> (a) {\n"
                         "   }, else_branch=graph uu() -> (q) {\n"
                         "     q = Neg(a)\n"
                         "   }}\n"
                         " }}\n"
                         "}\n");
    bool done = false;

    assert_ok(sb_graph_replace_value(g, named(g, "a"), named(g, "x"), &done));
    assert_true(done);
    (void)sb_graph_remove_dead(g);
    assert_text(g, "graph g(c, x) -> (y) {\n"
                   "    y = If(c) {then_branch=graph t() -> (o) {\n"
                   "        o = Add(x, x)\n"
                   "    }, else_branch=graph e() -> (p) {\n"
                   "        p = If(c) {then_branch=graph tt() -> (x) {\n"
                   "        }, else_branch=graph uu() -> (q) {\n"
                   "            q = Neg(x)\n"
                   "        }}\n"
                   "    }}\n"
                   "}\n");
    /* Renaming carries inward; a local value of that name makes way. */
    assert_ok(sb_graph_rename_value(g, named(g, "x"), "q"));
    assert_ok(sb_graph_verify(g));
    assert_status(sb_graph_rename_value(g, named(g, "q"), "c"), SB_BAD_MODEL);
    sb_graph_free(g);
}

static void test_unused_captures_go(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(c, x) -> (y) {\n"
                         " a = Exp(x)\n"
                         " y = If(c) {then_branch=graph t() -> (o) {\n"
                         "   dead = Neg(a)\n"
                         "   o = Relu(x)\n"
                         " }, else_branch=graph e() -> (x) {\n"
                         " }}\n"
                         "}\n");

    assert_int_equal(sb_graph_node(g, maker(g, "y"))->n_implicit, 3);
    assert_int_equal(sb_graph_remove_dead(g), 2);
    assert_int_equal(sb_graph_node(g, maker(g, "y"))->n_implicit, 2);
    assert_text(g, "graph g(c, x) -> (y) {\n"
                   "    y = If(c) {then_branch=graph t() -> (o) {\n"
                   "        o = Relu(x)\n"
                   "    }, else_branch=graph e() -> (x) {\n"
                   "    }}\n"
                   "}\n");
    sb_graph_free(g);
}

static void test_attributes_are_set_and_replaced(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(x) -> (y) {\n y = Foo(x) {a=1, b=2}\n}\n");
    sb_node_id n = maker(g, "y");
    const int64_t ints[] = {3, 4};

    assert_ok(sb_graph_set_attr_int(g, n, "a", 7));
    assert_ok(sb_graph_set_attr_ints(g, n, "c", ints, 2));
    sb_graph_remove_attr(g, n, "b");
    sb_graph_remove_attr(g, n, "nothing");
    assert_int_equal(sb_node_attr(sb_graph_node(g, n), "a")->i, 7);
    assert_null(sb_node_attr(sb_graph_node(g, n), "b"));
    assert_text(g, "graph g(x) -> (y) {\n    y = Foo(x) {a=7, c=[3,4]}\n}\n");
    sb_graph_free(g);
}

static void test_remove_dead(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(x) -> (y) {\n"
                         " a, b = Split(x)\n"
                         " c = Add(a, a)\n"
                         " d = Add(c, b)\n"
                         " e = Add(d, d)\n"
                         " y = Relu(b)\n"
                         "}\n");

    assert_int_equal(sb_graph_remove_dead(g), 3);
    assert_int_equal(sb_graph_live_nodes(g), 2);
    assert_int_equal(sb_graph_remove_dead(g), 0);
    assert_text(g, "graph g(x) -> (y) {\n"
                   "    a, b = Split(x)\n"
                   "    y = Relu(b)\n"
                   "}\n");
    sb_graph_free(g);
}

/* ---- order -------------------------------------------------------------- */

static void test_dependencies_come_first(void **state)
{
    (void)state;
    /* Written backwards: dependencies come first, then the order of writing. */
    sb_graph *g = parsed("graph g(x) -> (d, e) {\n"
                         " e = E(x)\n"
                         " d = D(c)\n"
                         " c = C(b)\n"
                         " b = B(x)\n"
                         "}\n");

    assert_text(g, "graph g(x) -> (d, e) {\n"
                   "    e = E(x)\n"
                   "    b = B(x)\n"
                   "    c = C(b)\n"
                   "    d = D(c)\n"
                   "}\n");
    sb_graph_free(g);
}

static void test_long_chain(void **state)
{
    (void)state;
    enum { N = 10000 };
    sb_graph *g = NULL, *copy = NULL;
    sb_value_id at = 0, next = 0;
    sb_node_id *order = NULL;
    size_t n = 0;

    assert_ok(sb_graph_create(test_ctx(), "chain", &g));
    assert_ok(sb_graph_add_value(g, "x", &at));
    assert_ok(sb_graph_add_input(g, at));
    for (int i = 0; i < N; i++) {
        assert_ok(sb_graph_add_value(g, NULL, &next));
        add_op(g, "Relu", at, next);
        at = next;
    }
    assert_ok(sb_graph_add_output(g, at));
    assert_ok(sb_graph_verify(g));
    assert_ok(sb_graph_order(g, &order, &n));
    assert_int_equal(n, N);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(order[i], i);
    sb_free(test_ctx(), order);
    assert_ok(sb_graph_clone(g, &copy));
    /* Without its use, the whole chain but the first node is dead. */
    bool done = false;
    assert_ok(sb_graph_replace_value(
        copy, copy->outputs[0], sb_graph_node(copy, 0)->outputs[0], &done));
    assert_true(done);
    assert_int_equal(sb_graph_remove_dead(copy), N - 1);
    assert_ok(sb_graph_verify(copy));
    sb_graph_free(copy);
    sb_graph_free(g);
}

static void test_cycle_is_named(void **state)
{
    (void)state;
    sb_graph *g = NULL;

    assert_status(sb_graph_parse(test_ctx(),
                                 "graph g(x) -> (y) {\n"
                                 " a = Add(x, c)\n"
                                 " b = Neg(a)\n"
                                 " c = Abs(b)\n"
                                 " y = Relu(c) \"after\"\n"
                                 "}\n",
                                 &g),
                  SB_BAD_MODEL);
    assert_error_has("cycle");
    assert_null(strstr(sb_ctx_error(test_ctx()), "after"));
}

/* ---- sub-graphs, symbols, clone ----------------------------------------- */

static void test_nesting_has_an_end(void **state)
{
    (void)state;
    sb_graph *root = NULL, *g = NULL, *sub = NULL;
    sb_status status = SB_OK;
    int depth = 0;

    assert_ok(sb_graph_create(test_ctx(), "g", &root));
    for (g = root; status == SB_OK && depth < 1000; depth++, g = sub)
        status = sb_graph_create_sub(g, "sub", &sub);
    assert_int_equal(status, SB_BAD_MODEL);
    assert_true(depth <= SB_MAX_NESTING + 1);
    sb_graph_free(root);
}

static void test_symbols_are_shared_with_bodies(void **state)
{
    (void)state;
    sb_graph *g = NULL, *sub = NULL;
    sb_dim a = 0, b = 0, again = 0;

    assert_ok(sb_graph_create(test_ctx(), "g", &g));
    assert_ok(sb_graph_create_sub(g, "s", &sub));
    assert_ok(sb_graph_symbol(g, "batch", &a));
    assert_ok(sb_graph_symbol(sub, "length", &b));
    assert_ok(sb_graph_symbol(sub, "batch", &again));
    assert_true(a == again && a != b);
    assert_string_equal(sb_graph_symbol_name(g, b), "length");
    assert_null(sb_graph_symbol_name(g, 5));
    assert_null(sb_graph_symbol_name(g, SB_DIM_UNKNOWN));
    assert_null(sb_graph_symbol_name(g, sb_dim_symbol(2)));
    sb_graph_free(g);
}

static const char everything[] =
    "graph main(x: f32[N,3,8,8], c: bool[]) -> (y: f32[N,4,8,8], k: i4[3]) {\n"
    "    b: f32[4] = [0, 1, -2.5, 4]\n"
    "    k: i4[3] = [-8, 7, 1]\n"
    "    s: str[2] = [\"a\\\"\", \"b\\x00c\"]\n"
    "    q = Conv(x, b) {pads=[1,1], f=1.0, g=[0.5,1.0], e=floats [], "
    "t=tensor i64[2] = [1, 2], u=[tensor f32[] = 3], n=[\"p\",\"q\"]} \"conv\" "
    "@ a.b\n"
    "    r, _, `a b` = com.example::Foo(q, _, c) {mode=\"half\", o=opaque "
    "\"\\x01\"}\n"
    "    y = If(c) {then_branch=graph t() -> (o) {\n"
    "        o = Add(r, x)\n"
    "    }, else_branch=graph e() -> (x: f32[N,3,8,8]) {\n"
    "    }}\n"
    "}\n";

static void test_a_clone_prints_the_same(void **state)
{
    (void)state;
    sb_graph *g = parsed(everything), *copy = NULL;
    sb_value_id unused = 0;

    assert_ok(sb_graph_add_value(g, "unused", &unused));
    g->producer_name = "someone";
    assert_ok(sb_graph_clone(g, &copy));
    assert_text(g, everything);
    sb_graph_free(g);
    assert_text(copy, everything);
    assert_int_equal(sb_graph_find_value(copy, "unused"), SB_NONE);
    assert_string_equal(copy->producer_name, "someone");
    sb_graph_free(copy);
}

/* Nodes 1 and 2 of four: inputs and outputs are the caller's. */
static void test_a_part_is_a_graph(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(x: f32[2]) -> (y: f32[2]) {\n"
                         "  a: f32[2] = Relu(x)\n"
                         "  b: f32[2] = Exp(a)\n"
                         "  c: f32[2] = Add(a, b)\n"
                         "  y = Neg(c)\n"
                         "}\n");
    sb_graph *copy = NULL;
    sb_node_id nodes[] = {1, 2};
    sb_value_id value_of[8];
    const sb_graph_part part = {nodes, 2, value_of};

    assert_true(g->n_values <= SB_COUNT(value_of));
    assert_ok(sb_graph_clone_part(g, &part, &copy));
    assert_int_equal(value_of[named(g, "x")], SB_NONE);
    assert_int_equal(value_of[named(g, "y")], SB_NONE);
    assert_int_equal(sb_graph_part_node(&part, 0), SB_NONE);
    assert_int_equal(sb_graph_part_node(&part, 2), 1);
    assert_int_equal(sb_graph_part_node(&part, 3), SB_NONE);
    assert_int_equal(sb_graph_part_node(NULL, 3), 3);
    assert_ok(sb_graph_add_input(copy, value_of[named(g, "a")]));
    assert_ok(sb_graph_add_output(copy, value_of[named(g, "c")]));
    sb_graph_free(g);
    assert_text(copy, "graph g(a: f32[2]) -> (c: f32[2]) {\n"
                      "    b = Exp(a)\n"
                      "    c = Add(a, b)\n"
                      "}\n");
    sb_graph_free(copy);
}

static sb_status parse_clone_change(sb_ctx *ctx)
{
    sb_graph *g = NULL, *copy = NULL;
    bool done = false;
    sb_status status = sb_graph_parse(ctx, everything, &g);

    if (status == SB_OK)
        status = sb_graph_clone(g, &copy);
    if (status == SB_OK)
        status = sb_graph_replace_value(copy, sb_graph_find_value(copy, "r"),
                                        sb_graph_find_value(copy, "x"), &done);
    if (status == SB_OK)
        status = sb_graph_replace_value(copy, sb_graph_find_value(copy, "y"),
                                        sb_graph_find_value(copy, "q"), &done);
    if (status == SB_OK)
        status = sb_graph_verify(copy);
    if (copy)
        (void)sb_graph_remove_dead(copy);
    sb_graph_free(copy);
    sb_graph_free(g);
    return status;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    test_every_allocation("graph", parse_clone_change);
}

/* Uses come off at the front, in the middle, at the end, and from a list that
 * is not sorted any more; the order of the rest stays. */
static void test_uses_are_removed_anywhere(void **state)
{
    (void)state;
    sb_graph *g = parsed("graph g(x: f32[2], w: f32[2]) -> (y: f32[2]) {\n"
                         "  a = Neg(x)\n  b = Relu(x)\n  c = Abs(w)\n"
                         "  d = Exp(x)\n  e = Tanh(x)\n  f = Sqrt(x)\n"
                         "  y = Sum(a, b, c, d, e, f)\n}\n");
    sb_value_id x = named(g, "x");
    sb_node_id sum = maker(g, "y");
    const char *const gone[] = {"a", "d", "f", "c", "b", "e"};

    /* The use of c's node comes last. */
    assert_ok(sb_graph_set_input(g, maker(g, "c"), 0, x));
    for (uint32_t i = 0; i < SB_COUNT(gone); i++) {
        sb_node_id node = maker(g, gone[i]);
        const sb_node *p = sb_graph_node(g, sum);
        for (uint32_t k = 0; k < p->n_in; k++)
            if (p->inputs[k] == named(g, gone[i]))
                assert_ok(sb_graph_set_input(g, sum, k, x));
        sb_graph_remove_node(g, node);
        assert_int_equal(sb_graph_value(g, x)->n_uses, 6);
        assert_ok(sb_graph_verify(g));
    }
    const sb_value *v = sb_graph_value(g, x);
    static const uint32_t want[] = {0, 3, 5, 2, 1, 4};
    for (uint32_t i = 0; i < v->n_uses; i++)
        assert_int_equal(v->uses[i].input, want[i]);
    sb_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs_are_built_node_by_node),
        cmocka_unit_test(test_output_twice),
        cmocka_unit_test(test_fresh_names),
        cmocka_unit_test(test_constants_and_buffers),
        cmocka_unit_test(test_set_inputs),
        cmocka_unit_test(test_replace_value),
        cmocka_unit_test(test_replace_into_sub_graphs),
        cmocka_unit_test(test_unused_captures_go),
        cmocka_unit_test(test_attributes_are_set_and_replaced),
        cmocka_unit_test(test_remove_dead),
        cmocka_unit_test(test_dependencies_come_first),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_cycle_is_named),
        cmocka_unit_test(test_nesting_has_an_end),
        cmocka_unit_test(test_symbols_are_shared_with_bodies),
        cmocka_unit_test(test_a_clone_prints_the_same),
        cmocka_unit_test(test_a_part_is_a_graph),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_uses_are_removed_anywhere),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
