/* The matcher: order of inputs, constants, alternatives, outside uses, checks,
 * and that no graph makes it run away. */
#include "passtest.h"

#include <string.h>

#include "base/str.h"
#include "graph/text.h"
#include "passes/matcher.h"
#include "passes/rewrite.h"

static sb_graph *parse(const char *text)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    return g;
}

/* Does the pattern match with the node that makes `root` as its root? */
static bool tries(const sb_rule *rule, sb_graph *g, const char *root,
                  sb_match *out)
{
    static sb_matcher *matcher; /* kept: the match refers to it */
    sb_value_id v = sb_graph_find_value(g, root);

    sb_matcher_free(test_ctx(), matcher);
    matcher = NULL;
    if (!rule)
        return false;
    assert_ok(sb_matcher_create(test_ctx(), rule, &matcher));
    return sb_matcher_try(matcher, g, sb_graph_value(g, v)->producer, out);
}

static const char *bound(const sb_match *m, const char *name)
{
    sb_value_id v = sb_match_value(m, name);

    return v == SB_NONE ? "" : sb_graph_value(m->graph, v)->name;
}

static bool joint(const sb_match *m)
{
    return strcmp(bound(m, "a"), "p") == 0;
}

static bool has_axis_1(const sb_graph *g, const sb_node *node)
{
    (void)g;
    return sb_node_int(node, "axis", 0) == 1;
}

/* clang-format off */
static const sb_pat exact[] = {
    {"y", "Sub", .in = {"e", "x"}},
    {"e", "Exp", .in = {"x"}},
    {0}};
static const sb_pat any[] = {
    {"y", "Add|Mul", .in = {"e", "x"}, .order = SB_PAT_ANY},
    {"e", "Exp", .in = {"x"}},
    {0}};
static const sb_pat subset[] = {
    {"y", "Concat", .in = {"e", "n"}, .order = SB_PAT_SUBSET},
    {"e", "Exp", .in = {"a"}},
    {"n", "Neg", .in = {"a"}},
    {0}};
static const sb_pat number[] = {
    {"y", "Mul", .in = {"x", "=0.7071067811865476"}, .order = SB_PAT_ANY},
    {0}};
static const sb_pat constant[] = {
    {"y", "Mul", .in = {"x", "$c"}, .order = SB_PAT_ANY},
    {0}};
static const sb_pat absent[] = {
    {"y", "Clip", .in = {"x", "_", "*"}},
    {0}};
static const sb_pat shared[] = {
    {"y", "Sub", .in = {"e", "x"}},
    {"e", "Exp", .in = {"x"}, .shared = true},
    {0}};
static const sb_pat checked[] = {
    {"y", "Neg", .in = {"s"}},
    {"s", "Softmax", .in = {"x"}, .check = has_axis_1},
    {0}};
static const sb_pat alternatives[] = {
    {"y", "Neg", .in = {"q"}},
    {"q", "Pow", .in = {"a", "=2"}},
    {"q", "Mul", .in = {"a", "a"}},
    {0}};
static const sb_pat crossed[] = {
    {"y", "Add", .in = {"l", "r"}, .order = SB_PAT_ANY},
    {"l", "Mul", .in = {"a", "b"}, .order = SB_PAT_ANY},
    {"r", "Sub", .in = {"a", "b"}},
    {0}};

static const struct {
    const char *what;
    const sb_pat *pattern;
    bool (*check)(const sb_match *m);
    const char *lines; /* of a graph from p, q to y */
    bool want;
} cases[] = {
    {"exact order", exact, NULL, "e = Exp(p)\ny = Sub(e, p)\n", true},
    {"exact order, swapped", exact, NULL, "e = Exp(p)\ny = Sub(p, e)\n", false},
    {"the same name is the same value", exact, NULL,
     "e = Exp(p)\ny = Sub(e, q)\n", false},
    {"another operator", exact, NULL, "e = Exp(p)\ny = Add(e, p)\n", false},
    {"another domain", exact, NULL, "e = Exp(p)\ny = my::Sub(e, p)\n", false},
    {"any order", any, NULL, "e = Exp(p)\ny = Add(p, e)\n", true},
    {"any order, second operator", any, NULL, "e = Exp(p)\ny = Mul(e, p)\n",
     true},
    {"subset in any position", subset, NULL,
     "e = Exp(p)\nn = Neg(p)\ny = Concat(n, q, p, e) {axis=0}\n", true},
    {"subset finds the pair that fits", subset, NULL,
     "f = Exp(q)\ne = Exp(p)\nn = Neg(p)\ny = Concat(f, e, q, n) {axis=0}\n",
     true},
    {"subset with one missing", subset, NULL,
     "e = Exp(p)\ny = Concat(q, e) {axis=0}\n", false},
    {"subset of unequal arguments", subset, NULL,
     "e = Exp(p)\nn = Neg(q)\ny = Concat(n, e) {axis=0}\n", false},
    {"a number with few digits", number, NULL,
     "c: f32[] = 0.707107\ny = Mul(p, c)\n", true},
    {"in half precision", number, NULL,
     "c: f16[1,1] = [0.70710678]\ny = Mul(c, p)\n", true},
    {"in double precision", number, NULL,
     "c: f64[1] = [0.70710678]\ny = Mul(c, p)\n", true},
    {"another number", number, NULL, "c: f32[] = 0.7\ny = Mul(p, c)\n", false},
    {"two elements", number, NULL,
     "c: f32[2] = [0.70710678, 0.70710678]\ny = Mul(p, c)\n", false},
    {"a constant", constant, NULL, "c: f32[2] = [1, 2]\ny = Mul(c, p)\n",
     true},
    {"not a constant", constant, NULL, "y = Mul(p, q)\n", false},
    {"absent", absent, NULL, "c: f32[] = 1\ny = Clip(p, _, c)\n", true},
    {"not absent", absent, NULL, "c: f32[] = 1\ny = Clip(p, c, c)\n", false},
    {"used outside", exact, NULL, "e = Exp(p)\ny = Sub(e, p)\nz = Neg(e)\n",
     false},
    {"used outside, allowed", shared, NULL,
     "e = Exp(p)\ny = Sub(e, p)\nz = Neg(e)\n", true},
    {"check of a node", checked, NULL,
     "s = Softmax(p) {axis=1}\ny = Neg(s)\n", true},
    {"check of a node fails", checked, NULL,
     "s = Softmax(p) {axis=0}\ny = Neg(s)\n", false},
    {"first alternative", alternatives, NULL,
     "c: f32[] = 2\ns = Pow(p, c)\ny = Neg(s)\n", true},
    {"second alternative", alternatives, NULL, "s = Mul(p, p)\ny = Neg(s)\n",
     true},
    {"no alternative", alternatives, NULL, "s = Mul(p, q)\ny = Neg(s)\n",
     false},
    {"the second choice of an inner node", crossed, NULL,
     "l = Mul(q, p)\nr = Sub(p, q)\ny = Add(r, l)\n", true},
    {"joint check", alternatives, joint, "s = Mul(p, p)\ny = Neg(s)\n", true},
    {"joint check fails", alternatives, joint, "s = Mul(q, q)\ny = Neg(s)\n",
     false},
};
/* clang-format on */

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const sb_rule rule = {cases[i].pattern, cases[i].check, NULL};
        bool has_z = strstr(cases[i].lines, "z = ") != NULL;
        sb_match m;
        sb_str text;

        sb_str_init(&text, test_ctx());
        sb_str_addf(&text,
                    "graph main(p: f32[2,2], q: f32[2,2]) -> (y%s) {\n%s}\n",
                    has_z ? ", z" : "", cases[i].lines);
        sb_graph *g = parse(sb_str_text(&text));
        if (tries(&rule, g, "y", &m) != cases[i].want) {
            print_error("case '%s'\n", cases[i].what);
            fail();
        }
        (void)tries(NULL, g, "y", &m);
        sb_graph_free(g);
        sb_str_free(&text);
    }
}

static void test_captures_have_names(void **state)
{
    sb_graph *g = parse("graph main(p: f32[2], q: f32[2]) -> (y) {\n"
                        "l = Mul(q, p)\nr = Sub(p, q)\ny = Add(r, l)\n}\n");
    const sb_rule rule = {crossed, NULL, NULL};
    sb_match m;

    (void)state;
    assert_true(tries(&rule, g, "y", &m));
    assert_string_equal(bound(&m, "a"), "p");
    assert_string_equal(bound(&m, "b"), "q");
    assert_string_equal(bound(&m, "l"), "l");
    assert_string_equal(bound(&m, "nothing"), "");
    assert_string_equal(sb_graph_node(g, sb_match_node(&m, "r"))->op, "Sub");
    assert_int_equal(sb_match_node(&m, "a"), SB_NONE);
    assert_int_equal(m.n_nodes, 3);
    (void)tries(NULL, g, "y", &m);
    sb_graph_free(g);
}

static void test_patterns_that_are_wrong(void **state)
{
    static const sb_pat no_number[] = {{"y", "Mul", .in = {"x", "=half"}}, {0}};
    static const sb_pat no_rows[] = {{0}};
    static const sb_pat no_ops[] = {{"y", NULL, .in = {"x"}}, {0}};
    const sb_pat *const wrong[] = {no_number, no_rows, no_ops};

    (void)state;
    for (size_t i = 0; i < SB_COUNT(wrong); i++) {
        const sb_rule rule = {wrong[i], NULL, NULL};
        sb_matcher *matcher = NULL;
        assert_status(sb_matcher_create(test_ctx(), &rule, &matcher),
                      SB_BAD_ARG);
    }
}

/* Sixty inputs that all fit each of four entries but never all four: without
 * a limit this takes 60^4 steps at each of many levels. */
static void test_a_search_that_could_explode(void **state)
{
    static const sb_pat four[] = {
        {"y", "Concat", .in = {"e", "f", "g", "h"}, .order = SB_PAT_SUBSET},
        {"e", "Exp", .in = {"*"}},
        {"f", "Exp", .in = {"*"}},
        {"g", "Exp", .in = {"*"}},
        {"h", "Exp", .in = {"n"}},
        {"n", "Neg", .in = {"*"}},
        {0}};
    const sb_rule rule = {four, NULL, NULL};
    sb_match m;
    sb_str text;

    (void)state;
    sb_str_init(&text, test_ctx());
    sb_str_add(&text, "graph main(p: f32[2]) -> (y) {\n");
    for (int i = 0; i < 60; i++)
        sb_str_addf(&text, "e%d = Exp(p)\n", i);
    sb_str_add(&text, "y = Concat(e0");
    for (int i = 1; i < 60; i++)
        sb_str_addf(&text, ", e%d", i);
    sb_str_add(&text, ") {axis=0}\n}\n");
    sb_graph *g = parse(sb_str_text(&text));
    assert_false(tries(&rule, g, "y", &m));
    (void)tries(NULL, g, "y", &m);
    sb_graph_free(g);
    sb_str_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_captures_have_names),
        cmocka_unit_test(test_patterns_that_are_wrong),
        cmocka_unit_test(test_a_search_that_could_explode),
    };
    return cmocka_run_group_tests_name("matcher", tests, NULL, NULL);
}
