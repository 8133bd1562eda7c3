/* Reading Q/DQ nodes back: small graphs, the graph without those nodes, and
 * what is remembered of them; all worked out by hand. */
#include "quanttest.h"

#include "graph/text.h"

#define VECTOR "graph g(x: f32[N,4]) -> (y) {\n"
#define MATRIX "graph g(x: f32[N,2]) -> (y) {\n"
#define HALF   "s: f32[] = 0.5\n"
#define PAIR                        \
    "q = QuantizeLinear(x, s, z)\n" \
    "d = DequantizeLinear(q, s, z)\ny = Relu(d) \"relu\"\n}"

/* "value: bits scheme least..most axis [block] | scale:zero ... | readers",
 * `all` if it has no other consumer, `output` if a graph output is it. */
static const struct {
    const char *what, *graph, *known, *after;
} cases[] = {
    {"nothing quantized", VECTOR "y = Relu(x)\n}", "", "Relu(x)"},

    /* ---- activations ---- */
    {"uint8", VECTOR HALF "z: u8[] = 3\n" PAIR,
     "x: 8 affine 0..255 axis -1 | 0.5:3 | y all\n", "Relu(x)"},
    {"int8 around zero is symmetric", VECTOR HALF "z: i8[] = 0\n" PAIR,
     "x: 8 symmetric -128..127 axis -1 | 0.5:0 | y all\n", "Relu(x)"},
    {"int8 elsewhere is affine, counted from the lowest number",
     VECTOR HALF "z: i8[] = 5\n" PAIR,
     "x: 8 affine 0..255 axis -1 | 0.5:133 | y all\n", "Relu(x)"},
    {"uint16", VECTOR HALF "z: u16[] = 700\n" PAIR,
     "x: 16 affine 0..65535 axis -1 | 0.5:700 | y all\n", "Relu(x)"},
    {"int4", VECTOR HALF "z: i4[] = 0\n" PAIR,
     "x: 4 symmetric -8..7 axis -1 | 0.5:0 | y all\n", "Relu(x)"},
    {"no zero point: uint8 from 0",
     VECTOR HALF "q = QuantizeLinear(x, s)\nd = DequantizeLinear(q, s)\n"
                 "y = Relu(d)\n}",
     "x: 8 affine 0..255 axis -1 | 0.5:0 | y all\n", "Relu(x)"},
    {"per-channel scales",
     MATRIX "s: f32[2] = [0.5, 0.25]\nz: u8[2] = [1, 2]\n"
            "q = QuantizeLinear(x, s, z) {axis=-1}\n"
            "d = DequantizeLinear(q, s, z) {axis=1}\ny = Relu(d)\n}",
     "x: 8 affine 0..255 axis 1 | 0.5:1 0.25:2 | y all\n", "Relu(x)"},
    {"two DQ, two readers",
     VECTOR HALF "z: u8[] = 3\nq = QuantizeLinear(x, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\n"
                 "e = DequantizeLinear(q, s, z)\n"
                 "a = Relu(d)\nb = Sigmoid(e)\ny = Add(a, b)\n}",
     "x: 8 affine 0..255 axis -1 | 0.5:3 | a b all\n", "Relu(x)"},
    {"the float has another consumer",
     VECTOR HALF "z: u8[] = 3\nq = QuantizeLinear(x, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\n"
                 "a = Relu(d)\nb = Sigmoid(x)\ny = Add(a, b)\n}",
     "x: 8 affine 0..255 axis -1 | 0.5:3 | a\n", "Relu(x)"},
    {"at an output, whose name stays",
     VECTOR HALF "z: u8[] = 3\na = Relu(x)\nq = QuantizeLinear(a, s, z)\n"
                 "y = DequantizeLinear(q, s, z)\n}",
     "y: 8 affine 0..255 axis -1 | 0.5:3 | all output\n", "y = Relu(x)"},
    {"the integers are an output: nothing is taken away",
     "graph g(x: f32[N,4]) -> (y, q) {\n" HALF "z: u8[] = 3\n" PAIR, "",
     "QuantizeLinear(x, s, z)"},

    {"a Relu that the lowest zero point made needless, put back",
     MATRIX HALF "z: u8[] = 0\nw: f32[2,2] = 1\na = MatMul(x, w)\n"
                 "q = QuantizeLinear(a, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\ny = Sigmoid(d)\n}",
     "a_0: 8 affine 0..255 axis -1 | 0.5:0 | y all\n", "a_0 = Relu(a)"},

    /* ---- widths ---- */
    {"a Clip to 16 levels",
     VECTOR HALF "z: u8[] = 0\nl: f32[] = 0\nh: f32[] = 7.5\n"
                 "c = Clip(x, l, h)\nq = QuantizeLinear(c, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\ny = Relu(d)\n}",
     "x: 4 affine 0..15 axis -1 | 0.5:0 | y all\n", "Relu(x)"},
    {"a Clip to -2..1, symmetric",
     VECTOR HALF "z: i8[] = 0\nl: f32[] = -1\nh: f32[] = 0.5\n"
                 "c = Clip(x, l, h)\nq = QuantizeLinear(c, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\ny = Relu(d)\n}",
     "x: 2 symmetric -2..1 axis -1 | 0.5:0 | y all\n", "Relu(x)"},
    {"a Clip between levels is the network's own",
     VECTOR HALF "z: u8[] = 0\nl: f32[] = 0\nh: f32[] = 7.3\n"
                 "c = Clip(x, l, h)\nq = QuantizeLinear(c, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\ny = Relu(d)\n}",
     "c: 8 affine 0..255 axis -1 | 0.5:0 | y all\n", "Relu(c)"},
    {"a Clip to nothing, too",
     VECTOR HALF "z: u8[] = 0\nl: f32[] = 0\nh: f32[] = 0\n"
                 "c = Clip(x, l, h)\nq = QuantizeLinear(c, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\ny = Relu(d)\n}",
     "c: 8 affine 0..255 axis -1 | 0.5:0 | y all\n", "Relu(c)"},
    {"the attribute bits",
     VECTOR HALF "z: u8[] = 3\nq = QuantizeLinear(x, s, z) {bits=5}\n"
                 "d = DequantizeLinear(q, s, z) {bits=5}\ny = Relu(d)\n}",
     "x: 5 affine 0..255 axis -1 | 0.5:3 | y all\n", "Relu(x)"},
    {"bits that no type has are not believed",
     VECTOR HALF "z: u8[] = 3\n"
                 "q = QuantizeLinear(x, s, z) {bits=4294967300}\n"
                 "d = DequantizeLinear(q, s, z)\ny = Relu(d)\n}",
     "x: 8 affine 0..255 axis -1 | 0.5:3 | y all\n", "Relu(x)"},

    /* ---- constants ---- */
    {"int8 without -128",
     MATRIX HALF "z: i8[] = 0\nw: i8[2,2] = [-127, 100, 1, 0]\n"
                 "d = DequantizeLinear(w, s, z)\ny = MatMul(x, d)\n}",
     "d: 8 symmetric -127..127 axis -1 | 0.5:0 | y all\n",
     "d: f32[2,2] = [-63.5, 50, 0.5, 0]"},
    {"int8 with -128",
     MATRIX HALF "w: i8[2,2] = [-128, 100, 1, 0]\n"
                 "d = DequantizeLinear(w, s)\ny = MatMul(x, d)\n}",
     "d: 8 symmetric -128..127 axis -1 | 0.5:0 | y all\n",
     "d: f32[2,2] = [-64, 50, 0.5, 0]"},
    {"int8 that has few numbers is int8",
     MATRIX HALF "z: i8[] = 0\nw: i8[2,2] = [-5, 7, 1, 0]\n"
                 "d = DequantizeLinear(w, s, z)\ny = MatMul(x, d)\n}",
     "d: 8 symmetric -127..127 axis -1 | 0.5:0 | y all\n",
     "d: f32[2,2] = [-2.5, 3.5, 0.5, 0]"},
    {"uint8",
     MATRIX HALF "z: u8[] = 128\nw: u8[2,2] = [0, 255, 128, 1]\n"
                 "d = DequantizeLinear(w, s, z)\ny = MatMul(x, d)\n}",
     "d: 8 affine 0..255 axis -1 | 0.5:128 | y all\n",
     "d: f32[2,2] = [-64, 63.5, 0, -63.5]"},
    {"per-column scales, named after its integers",
     MATRIX "s: f32[2] = [0.5, 2]\nz: i8[2] = 0\n"
            "w_quantized: i8[2,2] = [-127, 100, 1, 0]\n"
            "d = DequantizeLinear(w_quantized, s, z) {axis=1}\n"
            "y = MatMul(x, d)\n}",
     "w: 8 symmetric -127..127 axis 1 | 0.5:0 2:0 | y all\n",
     "w: f32[2,2] = [-63.5, 200, 0.5, 0]"},
    {"per-row scales of blocks",
     "graph g(x: f32[N,4]) -> (y) {\ns: f32[2,1] = [0.5, 2]\n"
     "z: i8[2,1] = 0\nw: i8[4,1] = [-127, 100, 1, 3]\n"
     "d = DequantizeLinear(w, s, z) {axis=0, block_size=2}\n"
     "y = MatMul(x, d)\n}",
     "d: 8 symmetric -127..127 axis 0 block 2 | 0.5:0 2:0 | y all\n",
     "d: f32[4,1] = [-63.5, 50, 2, 6]"},
    {"one weight, two DQ alike: one constant",
     MATRIX HALF "z: i8[] = 0\nw: i8[2,2] = [-127, 100, 1, 0]\n"
                 "d = DequantizeLinear(w, s, z)\n"
                 "e = DequantizeLinear(w, s, z)\n"
                 "a = MatMul(x, d)\ny = MatMul(a, e)\n}",
     "d: 8 symmetric -127..127 axis -1 | 0.5:0 | a y all\n", "MatMul(a, d)"},
    {"int32 biases become floats and are not remembered",
     "graph g(x: f32[N,1]) -> (y) {\ns: f32[2] = [0.5, 0.25]\n"
     "z: i32[2] = 0\nw: f32[1,2] = [1, 2]\nb: i32[2] = [4, -100000]\n"
     "d = DequantizeLinear(b, s, z) {axis=0}\ny = Gemm(x, w, d)\n}",
     "", "d: f32[2] = [2, -25000]"},
    {"float weights stay as they are",
     MATRIX HALF "z: i8[] = 0\nw: f32[2,2] = [-63.6, 50, 0.4, 0]\n"
                 "q = QuantizeLinear(w, s, z)\n"
                 "d = DequantizeLinear(q, s, z)\ny = MatMul(x, d)\n}",
     "w: 8 symmetric -127..127 axis -1 | 0.5:0 | y\n", "MatMul(x, w)"},
    {"a scale of 0: zeros, which any other has as well",
     MATRIX "s: f32[2] = [0.5, 0]\nz: i8[2] = 0\n"
            "w: i8[2,2] = [-127, 0, 1, 0]\n"
            "d = DequantizeLinear(w, s, z) {axis=1}\ny = MatMul(x, d)\n}",
     "d: 8 symmetric -127..127 axis 1 | 0.5:0 1:0 | y all\n",
     "d: f32[2,2] = [-63.5, 0, 0.5, 0]"},
    {"a scale below 0, so as to have 128 above it",
     MATRIX "s: f32[2] = [-0.5, 1]\nz: i8[2] = 0\n"
            "w: i8[2,2] = [-128, 0, 1, 0]\n"
            "d = DequantizeLinear(w, s, z) {axis=1}\ny = MatMul(x, d)\n}",
     "d: 8 symmetric -128..127 axis 1 | -0.5:0 1:0 | y all\n",
     "d: f32[2,2] = [64, 0, -0.5, 0]"},

    /* ---- scales of each run ---- */
    {"one reader",
     VECTOR "q, s, z = DynamicQuantizeLinear(x)\n"
            "d = DequantizeLinear(q, s, z)\ny = Relu(d)\n}",
     "x: dynamic | | y all\n", "Relu(x)"},
    {"two readers, and one of the float",
     VECTOR "q, s, z = DynamicQuantizeLinear(x)\n"
            "d = DequantizeLinear(q, s, z)\ne = DequantizeLinear(q, s, z)\n"
            "a = Relu(d)\nb = Sigmoid(e)\nc = Add(a, b)\ny = Add(c, x)\n}",
     "x: dynamic | | a b\n", "Relu(x)"},
    {"beside a scale of the file, which is kept",
     VECTOR HALF "t: u8[] = 3\np = QuantizeLinear(x, s, t)\n"
                 "d = DequantizeLinear(p, s, t)\n"
                 "q, r, z = DynamicQuantizeLinear(x)\n"
                 "e = DequantizeLinear(q, r, z)\n"
                 "a = Relu(d)\nb = Sigmoid(e)\ny = Add(a, b)\n}",
     "x: 8 affine 0..255 axis -1 | 0.5:3 | a\n", "Sigmoid(x)"},
    {"the scale has another consumer: nothing is taken away",
     VECTOR "q, s, z = DynamicQuantizeLinear(x)\n"
            "d = DequantizeLinear(q, s, z)\na = Relu(d)\ny = Mul(a, s)\n}",
     "", "DynamicQuantizeLinear(x)"},
    {"dequantized with other numbers, too",
     VECTOR HALF "q, t, z = DynamicQuantizeLinear(x)\n"
                 "d = DequantizeLinear(q, s, z)\ny = Relu(d)\n}",
     "", "DynamicQuantizeLinear(x)"},
};

/* The name of the value that entry `at` belongs to. */
static const char *value_of(const sb_graph *g, size_t at)
{
    for (size_t i = 0; i < g->n_values; i++)
        if (g->values[i].origin == at + 1)
            return g->values[i].name;
    return "nothing";
}

/* The name of the first result of a node. */
static const char *consumer_of(const sb_graph *g, uint32_t origin)
{
    for (size_t i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && g->nodes[i].origin == origin)
            return g->values[g->nodes[i].outputs[0]].name;
    return "nothing";
}

static void describe(const sb_graph *g, const sb_imported_list *known,
                     size_t at, sb_str *out)
{
    const sb_imported_qparams *k = &known->v[at];
    const sb_qparams *p = &k->qparams;

    sb_str_addf(out, "%s: ", value_of(g, at));
    if (k->dynamic)
        sb_str_add(out, "dynamic");
    else
        sb_str_addf(out, "%d %s %d..%d axis %d", p->bits,
                    p->symmetric ? "symmetric" : "affine", p->qmin, p->qmax,
                    p->axis);
    if (k->block > 0)
        sb_str_addf(out, " block %d", (int)k->block);
    sb_str_add(out, " |");
    for (int64_t i = 0; i < p->n; i++)
        sb_str_addf(out, " %g:%g", (double)p->scale[i],
                    (double)p->zero_point[i]);
    sb_str_add(out, " |");
    for (size_t i = 0; i < k->n_consumers; i++)
        sb_str_addf(out, " %s", consumer_of(g, k->consumers[i]));
    sb_str_addf(out, "%s%s\n", k->all ? " all" : "",
                k->at_output ? " output" : "");
}

/* The graph of a text, without its Q and DQ nodes. */
static sb_status import(const char *text, sb_imported_list *known,
                        sb_graph **out)
{
    assert_ok(sb_graph_parse(test_ctx(), text, out));
    assert_ok(sb_graph_infer(*out));
    return sb_quant_import(*out, known);
}

static void test_pairs_are_removed_and_remembered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sb_imported_list known = {0};
        sb_graph *g = NULL;
        sb_str got, after;

        sb_str_init(&got, test_ctx());
        sb_str_init(&after, test_ctx());
        assert_ok(import(cases[i].graph, &known, &g));
        for (size_t k = 0; k < known.n; k++)
            describe(g, &known, k, &got);
        assert_ok(sb_graph_print(g, &after));
        if (strcmp(sb_str_text(&got), cases[i].known) != 0)
            fail_msg("%s: got\n%swant\n%s", cases[i].what, sb_str_text(&got),
                     cases[i].known);
        if (!strstr(sb_str_text(&after), cases[i].after))
            fail_msg("%s: no '%s' in\n%s", cases[i].what, cases[i].after,
                     sb_str_text(&after));
        if (known.n > 0 && strstr(sb_str_text(&after), "QuantizeLinear"))
            fail_msg("%s: left in\n%s", cases[i].what, sb_str_text(&after));
        sb_str_free(&got);
        sb_str_free(&after);
        sb_graph_free(g);
        sb_imported_free(test_ctx(), &known);
    }
}

/* ---- what contradicts itself -------------------------------------------- */

#define WEIGHT(params, attrs)                                          \
    MATRIX params "w: i8[2,2] = [1, 2, 3, 4]\n"                        \
                  "d = DequantizeLinear(w, s, z) {" attrs "} \"dq\"\n" \
                  "y = MatMul(x, d)\n}"

static const struct {
    const char *graph, *message;
} errors[] = {
    {WEIGHT("s: f32[0] = zeros()\nz: i8[0] = zeros()\n", "axis=0"),
     "node 'dq': scale has no elements"},
    {WEIGHT("s: f32[2] = 1\nz: i8[1] = 0\n", "axis=0"),
     "node 'dq': zero point has 1 elements, scale 2"},
    {WEIGHT("s: f32[3] = 1\nz: i8[3] = 0\n", "axis=0"),
     "node 'dq': scale has rank 1 and 3 elements, want a vector, one for each "
     "index of axis 0"},
    {WEIGHT("s: f32[2,2] = 1\nz: i8[2,2] = 0\n", "axis=0"),
     "node 'dq': scale has rank 2 and 4 elements"},
    {WEIGHT("s: f32[2] = 1\nz: i8[2] = 0\n", "axis=2"),
     "node 'dq': axis is 2, but the value has rank 2"},
    {WEIGHT("s: f32[2] = 1\nz: i8[2] = 0\n", "axis=-9223372036854775808"),
     "node 'dq': axis is -9223372036854775808"},
    {WEIGHT("s: f32[] = 1\nz: i8[] = 0\n", "block_size=-1"),
     "node 'dq': block_size is -1, want 0 to 2147483647"},
    {WEIGHT("s: f32[2] = 1\nz: i8[2] = 0\n", "axis=0, block_size=1"),
     "node 'dq': scale of blocks has rank 1, want 2"},
    {WEIGHT("s: f32[2,1] = 1\nz: i8[2,1] = 0\n", "axis=0, block_size=2"),
     "node 'dq': scale has 2 elements along dimension 0, want 1"},
    {WEIGHT("s: f32[] = 1\nz: u8[] = 0\n", "axis=0"),
     "node 'dq': zero point has type uint8, the integers int8"},
    {WEIGHT("s: i32[] = 1\nz: i8[] = 0\n", "axis=0"),
     "node 'dq': scale has type int32, want a float type"},
    {VECTOR "s: f32[3] = 1\nz: u8[3] = 0\n" PAIR,
     "scale has rank 1 and 3 elements"},
};

static void test_wrong_pairs_get_a_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        sb_imported_list known = {0};
        sb_graph *g = NULL;

        assert_status(import(errors[i].graph, &known, &g), SB_BAD_MODEL);
        assert_error_has(errors[i].message);
        sb_graph_free(g);
        sb_imported_free(test_ctx(), &known);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs_are_removed_and_remembered),
        cmocka_unit_test(test_wrong_pairs_get_a_line),
    };

    return cmocka_run_group_tests_name("quant_import", tests, NULL, NULL);
}
