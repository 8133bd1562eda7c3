/* Symbolic shapes through the operators that compute shapes: what exporters
 * write around attention, and what must be refused. */
#include <stdio.h>
#include <string.h>

#include "graph/text.h"
#include "ops/op_registry.h"
#include "sbtest.h"

/* "[batch,?,4]" for the value named y. */
static void inferred(const char *text, char *out, size_t size)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_graph_infer(g));
    sb_value_id id = sb_graph_find_value(g, "y");
    assert_true(id != SB_NONE);
    const sb_shape *s = &sb_graph_value(g, id)->type.shape;
    size_t at = (size_t)snprintf(out, size, s->rank < 0 ? "[*" : "[");
    for (int i = 0; i < s->rank; i++) {
        const char *name = sb_graph_symbol_name(g, s->dim[i]);
        if (sb_dim_known(s->dim[i]))
            at += (size_t)snprintf(out + at, size - at, "%s%lld", i ? "," : "",
                                   (long long)s->dim[i]);
        else
            at += (size_t)snprintf(out + at, size - at, "%s%s", i ? "," : "",
                                   name ? name : "?");
    }
    (void)snprintf(out + at, size - at, "]");
    sb_graph_free(g);
}

static const struct {
    const char *what, *text, *want;
} cases[] = {
    {"heads by zeros",
     "graph g(x: f32[batch,seq,384]) -> (y) {\n"
     "  s: i64[4] = [0, 0, 12, 32]\n  y = Reshape(x, s)\n}\n",
     "[batch,seq,12,32]"},
    {"heads by Shape, Gather, Unsqueeze, Concat",
     "graph g(x: f32[batch,seq,384]) -> (y) {\n"
     "  i0: i64[] = 0\n  i1: i64[] = 1\n  ax: i64[1] = [0]\n"
     "  h: i64[1] = [12]\n  d: i64[1] = [-1]\n"
     "  s = Shape(x)\n  b = Gather(s, i0)\n  n = Gather(s, i1)\n"
     "  bu = Unsqueeze(b, ax)\n  nu = Unsqueeze(n, ax)\n"
     "  t = Concat(bu, nu, h, d) {axis=0}\n  y = Reshape(x, t)\n}\n",
     "[batch,seq,12,32]"},
    {"the open dimension is a symbol",
     "graph g(x: f32[batch,seq,12,32]) -> (y) {\n"
     "  i0: i64[1] = [0]\n  w: i64[2] = [-1, 384]\n"
     "  s = Shape(x)\n  b = Gather(s, i0)\n"
     "  t = Concat(b, w) {axis=0}\n  y = Reshape(x, t)\n}\n",
     "[batch,seq,384]"},
    {"a product of symbols has no name",
     "graph g(x: f32[batch,seq,8]) -> (y) {\n"
     "  t: i64[2] = [-1, 8]\n  y = Reshape(x, t)\n}\n",
     "[?,8]"},
    {"start and end of Shape",
     "graph g(x: f32[a,b,c,4]) -> (y) {\n"
     "  s = Shape(x) {start=1, end=-1}\n  y = ConstantOfShape(s)\n}\n",
     "[b,c]"},
    {"Slice and Squeeze of a shape",
     "graph g(x: f32[a,b,c]) -> (y) {\n"
     "  st: i64[1] = [1]\n  en: i64[1] = [9223372036854775807]\n"
     "  s = Shape(x)\n  t = Slice(s, st, en)\n  y = ConstantOfShape(t)\n}\n",
     "[b,c]"},
    {"Split of a shape",
     "graph g(x: f32[a,b,c]) -> (y) {\n"
     "  s = Shape(x)\n  p, q, r = Split(s) {num_outputs=3}\n"
     "  t = Concat(r, p) {axis=0}\n  y = ConstantOfShape(t)\n}\n",
     "[c,a]"},
    {"expand as torch writes it",
     "graph g(x: f32[1,1,8], z: f32[batch,seq,8]) -> (y) {\n"
     "  one: i64[1] = [1]\n  minus: i64[1] = [-1]\n  i0: i64[1] = [0]\n"
     "  s = Shape(z)\n  b = Gather(s, i0)\n"
     "  t = Concat(b, minus, minus) {axis=0}\n  e = Equal(t, minus)\n"
     "  w = Where(e, one, t)\n  y = Expand(x, w)\n}\n",
     "[batch,1,8]"},
    {"positions of a table",
     "graph g(ids: i64[batch,seq]) -> (y) {\n"
     "  table: f32[512,8] = zeros()\n  i1: i64[1] = [1]\n"
     "  st: i64[1] = [0]\n  ax: i64[1] = [0]\n"
     "  s = Shape(ids)\n  n = Gather(s, i1)\n"
     "  y = Slice(table, st, n, ax)\n}\n",
     "[seq,8]"},
    {"Gather puts the indices' shape in",
     "graph g(x: f32[30,8], i: i64[batch,seq]) -> (y) {\n"
     "  y = Gather(x, i)\n}\n",
     "[batch,seq,8]"},
    {"Transpose",
     "graph g(x: f32[a,b,3]) -> (y) {\n"
     "  y = Transpose(x) {perm=[2,0,1]}\n}\n",
     "[3,a,b]"},
    {"Concat adds what it knows",
     "graph g(x: f32[n,3], z: f32[n,4]) -> (y) {\n"
     "  y = Concat(x, z) {axis=-1}\n}\n",
     "[n,7]"},
    {"Resize by scales",
     "graph g(x: f32[n,3,10,h]) -> (y) {\n"
     "  k: f32[4] = [1, 1, 2.5, 2]\n  y = Resize(x, _, k)\n}\n",
     "[n,3,25,?]"},
    {"Resize to another tensor's size",
     "graph g(x: f32[n,3,8,8], z: f32[n,5,h,w]) -> (y) {\n"
     "  s = Shape(z) {start=2}\n"
     "  y = Resize(x, _, _, s) {axes=[2,3]}\n}\n",
     "[n,3,h,w]"},
    {"Pad",
     "graph g(x: f32[n,4]) -> (y) {\n"
     "  p: i64[4] = [0, 1, 0, 2]\n  y = Pad(x, p)\n}\n",
     "[n,7]"},
    {"Flatten", "graph g(x: f32[n,2,3]) -> (y) {\n  y = Flatten(x)\n}\n",
     "[n,6]"},
    {"NonZero", "graph g(x: f32[n,2,3]) -> (y) {\n  y = NonZero(x)\n}\n",
     "[3,?]"},
    {"OneHot",
     "graph g(x: i64[n]) -> (y) {\n  d: i64[] = 5\n  v: f32[2] = [0, 1]\n"
     "  y = OneHot(x, d, v) {axis=0}\n}\n",
     "[5,n]"},
};

static void test_symbolic_shapes_are_inferred(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        char got[256];
        inferred(cases[i].text, got, sizeof got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: %s, want %s", cases[i].what, got, cases[i].want);
    }
}

static const struct {
    const char *text, *message;
} bad[] = {
    {"s: i64[2] = [5, -1]\n  y = Reshape(x, s)", "do not divide"},
    {"s: i64[2] = [-1, -1]\n  y = Reshape(x, s)", "more than one -1"},
    {"s: i64[2] = [7, 1]\n  y = Reshape(x, s)", "do not fit"},
    {"s: i64[3] = [2, 3, 0]\n  y = Reshape(x, s)", "rank 2"},
    {"s: i64[1] = [-2]\n  y = Reshape(x, s)", "is -2"},
    {"y = Transpose(x) {perm=[0,0]}", "perm[1] is 0"},
    {"y = Transpose(x) {perm=[0]}", "1 entries"},
    {"s: i64[1] = [0]\n  y = Squeeze(x, s)", "2 elements, want 1"},
    {"s: i64[2] = [0, 0]\n  y = Unsqueeze(x, s)", "twice"},
    {"y = Flatten(x) {axis=3}", "axis 3"},
    {"s: i64[1] = [5]\n  y = Unsqueeze(x, s)", "axis 5"},
    {"s: i64[2] = [1, 2]\n  y, z = Split(x, s) {axis=0}", "3 together"},
    {"s: i64[1] = [0]\n  e: i64[1] = [1]\n  y = Slice(x, s, e, s, s)",
     "step of axis 0 is 0"},
    {"s: i64[2] = [4, 5]\n  y = Expand(x, s)", "broadcast"},
    {"s: i64[2] = [1, -1]\n  y = Tile(x, s)", "is -1"},
    {"s: i64[4] = [-2, 0, -1, 0]\n  y = Pad(x, s)", "cannot be padded"},
    {"s: i64[3] = [1, 0, 0]\n  y = Pad(x, s)", "3 pads"},
    {"y = Pad(x, x) {mode=\"no\"}", "mode 'no'"},
    {"k: f32[2] = [1, -1]\n  y = Resize(x, _, k)", "scales[1] is -1"},
    {"y = Resize(x)", "either scales or sizes"},
    {"k: f32[2] = [1, 1]\n  y = Resize(x, _, k) {mode=\"bad\"}", "'bad'"},
    {"y = DepthToSpace(x) {blocksize=2}", "rank 2, want 4"},
    {"s: i64[1] = [-4]\n  y = ConstantOfShape(s)", "is -4"},
    {"y = Concat(x, x) {axis=2}", "axis 2"},
};

static void test_what_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(bad); i++) {
        char text[512];
        sb_graph *g = NULL;
        (void)snprintf(text, sizeof text,
                       "graph g(x: f32[2,3]) -> (y) {\n  %s\n}\n", bad[i].text);
        assert_ok(sb_graph_parse(test_ctx(), text, &g));
        assert_status(sb_graph_infer(g), SB_BAD_MODEL);
        assert_error_has(bad[i].message);
        sb_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_symbolic_shapes_are_inferred),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests_name("reshape_infer", tests, NULL, NULL);
}
