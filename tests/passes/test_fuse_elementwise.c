/* Pass fuse_elementwise. */
#include "passtest.h"

#include "exec/exec.h"
#include "graph/text.h"
#include "passes/pass.h"

#define CHAIN "sparsebit::ElementwiseChain"
#define X     "x: f32[2,3,4]"
#define Y     "y: f32[2,3,4]"
#define S     "s: f32[] = 2\n"

static const pass_case cases[] = {
    {"two", TEST_GRAPH(X, Y, S "a = Mul(x, s)\ny = Sigmoid(a)\n"),
     S "y = " CHAIN
       "(x, s) {ops=[\"Mul\",\"Sigmoid\"], operands=[0,1,-1,2,-1,-1]}\n",
     false},
    {"a tree, and a value read twice inside",
     TEST_GRAPH(X ", z: f32[2,3,4]", Y,
                "a = Add(x, z)\nb = Sigmoid(a)\nc = Exp(z)\nd = Mul(a, b)\n"
                "y = Sub(d, c)\n"),
     "y = " CHAIN "(x, z) {ops=[\"Add\",\"Sigmoid\",\"Exp\",\"Mul\",\"Sub\"], "
     "operands=[0,1,-1,2,-1,-1,1,-1,-1,2,3,-1,5,4,-1]}\n",
     false},
    {"a single element in front, any batch",
     TEST_GRAPH("x: f32[N,3]", "y: f32[N,3]",
                "s: f32[1,1] = [1]\na = Sub(s, x)\ny = Mul(a, a)\n"),
     "s: f32[1,1] = [1]\ny = " CHAIN
     "(x, s) {ops=[\"Sub\",\"Mul\"], operands=[1,0,-1,2,2,-1]}\n",
     false},
    {"attributes",
     TEST_GRAPH(X, Y,
                "a = LeakyRelu(x) {alpha=0.5}\nb = Neg(a)\n"
                "y = HardSigmoid(b)\n"),
     "y = " CHAIN "(x) {ops=[\"LeakyRelu\",\"Neg\",\"HardSigmoid\"], "
     "operands=[0,-1,-1,1,-1,-1,2,-1,-1], params=[0.5,0.2,0.5]}\n",
     false},
    {"limits", TEST_GRAPH(X, Y, S "a = Div(x, s)\ny = Clip(a, _, s)\n"),
     S "y = " CHAIN
       "(x, s) {ops=[\"Div\",\"Clip\"], operands=[0,1,-1,2,-1,1]}\n",
     false},
    {"Max and Sum of two",
     TEST_GRAPH(X ", z: f32[2,3,4]", Y, "a = Max(x, z)\ny = Sum(a, z)\n"),
     "y = " CHAIN "(x, z) {ops=[\"Max\",\"Sum\"], operands=[0,1,-1,2,1,-1]}\n",
     false},
    {"Max of three stays alone",
     TEST_GRAPH(X ", z: f32[2,3,4]", Y, "a = Max(x, z, x)\ny = Neg(a)\n"), NULL,
     false},
    {"one operator", TEST_GRAPH(X, Y, "y = Exp(x)\n"), NULL, false},
    {"the result between is a result of the graph",
     TEST_GRAPH(X, "a: f32[2,3,4], " Y, "a = Exp(x)\ny = Neg(a)\n"), NULL,
     false},
    {"the result between has another consumer",
     TEST_GRAPH(X, Y ", z: f32[2,4,3]",
                "a = Exp(x)\ny = Neg(a)\nz = Transpose(a) {perm=[0,2,1]}\n"),
     NULL, false},
    {"another type",
     TEST_GRAPH("x: f64[2,3]", "y: f64[2,3]", "a = Exp(x)\ny = Neg(a)\n"), NULL,
     false},
    {"conditions have another type",
     TEST_GRAPH(X, "y: bool[2,3,4]", S "a = Exp(x)\ny = Less(a, s)\n"), NULL,
     false},
    {"an operand of another shape",
     TEST_GRAPH(X, Y, "s: f32[4] = [1,2,3,4]\na = Mul(x, s)\ny = Neg(a)\n"),
     NULL, false},
    {"the result grows",
     TEST_GRAPH("x: f32[1,4], z: f32[3,4]", "y: f32[3,4]",
                "a = Exp(x)\ny = Add(a, z)\n"),
     NULL, false},
    {"quantizers between",
     TEST_GRAPH(X, Y,
                "s: f32[] = 0.5\nz: u8[] = 7\na = Exp(x)\n"
                "q = QuantizeLinear(a, s, z)\nd = DequantizeLinear(q, s, z)\n"
                "y = Neg(d)\n"),
     NULL, false},
};

static void test_each_graph_becomes_the_expected_one(void **state)
{
    (void)state;
    test_passes("fuse_elementwise", cases, SB_COUNT(cases));
}

/* 40 links are two whole chains and the rest. */
static void test_long_chains_are_cut(void **state)
{
    (void)state;
    assert_int_equal(test_pass_chain("fuse_elementwise", "f32[5]", "",
                                     "v%o = Neg(v%i)\n", 40),
                     3);
}

/* What a convolution takes is left to it, also where it is seen only after
 * something else was removed. */
static void test_what_a_convolution_takes_is_left_to_it(void **state)
{
    static const char text[] =
        TEST_GRAPH("x: f32[1,2,5,5]", "y: f32[1,2,5,5]",
                   "w: f32[2,2,1,1] = [1,2,3,4]\n"
                   "s: f32[] = 3\nf: i64[4] = [1,2,5,5]\n"
                   "c = Conv(x, w)\ni = Reshape(c, f)\nr = Relu(i)\n"
                   "m = Mul(r, s)\ny = Exp(m)\n");
    sb_pass_result *results = NULL;
    sb_graph *g = NULL;
    size_t n = 0;

    (void)state;
    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    assert_ok(sb_passes_run(g, "lower", NULL, &results, &n));
    sb_free(test_ctx(), results);
    assert_int_equal(sb_graph_live_nodes(g), 2);
    const sb_node *last = sb_graph_producer(g, sb_graph_find_value(g, "y"));
    assert_string_equal(last->op, "ElementwiseChain");
    assert_int_equal(sb_node_attr(last, "ops")->n, 2);
    assert_string_equal(sb_graph_producer(g, last->inputs[0])->op, "FusedConv");
    sb_graph_free(g);
}

/* ---- the same bits ------------------------------------------------------- */

static const char many[] =
    "graph g(x: f32[3,70,91], z: f32[3,70,91]) -> (y: f32[3,70,91], "
    "u: f32[3,70,91]) {\n"
    "  s: f32[] = 0.37\n"
    "  t: f32[1] = [2]\n"
    "  w: f32[3,70,91] = random(5)\n"
    "  a = Mul(x, s)\n"
    "  b = Add(a, w)\n"
    "  c = Sigmoid(b)\n"
    "  d = Mul(c, b)\n"
    "  e = Div(d, z)\n"
    "  f = Clip(e, s, t)\n"
    "  y = Elu(f) {alpha=0.3}\n"
    "  k = Pow(z, t)\n"
    "  l = Exp(x)\n"
    "  m = Max(k, l)\n"
    "  u = Sub(s, m)\n"
    "}\n";

static void run(const char *passes, int threads, sb_tensor *out)
{
    const sb_tensor *in[2], *got[2];
    const sb_exec_options opt = {0};
    sb_pass_result *results = NULL;
    sb_graph *g = NULL;
    sb_exec *exec = NULL;
    size_t n = 0;

    in[0] = test_random(SB_DTYPE_F32, "3x70x91", 1);
    in[1] = test_random(SB_DTYPE_F32, "3x70x91", 2);
    assert_ok(sb_graph_parse(test_ctx(), many, &g));
    assert_ok(sb_passes_run(g, passes, NULL, &results, &n));
    sb_free(test_ctx(), results);
    assert_int_equal(sb_graph_live_nodes(g), passes[0] == 'n' ? 11 : 2);
    sb_ctx_set_threads(test_ctx(), threads);
    assert_ok(sb_exec_create(test_ctx(), g, &opt, &exec));
    assert_ok(sb_exec_run(exec, in, NULL, got));
    for (int i = 0; i < 2; i++) {
        out[i] = sb_tensor_make(got[i]->dtype, got[i]->rank, got[i]->dims);
        assert_ok(sb_tensor_alloc(test_ctx(), &out[i]));
        memcpy(out[i].data, got[i]->data, sb_tensor_bytes(got[i]));
    }
    sb_exec_free(exec);
    sb_graph_free(g);
}

static void test_same_bits(void **state)
{
    sb_tensor want[2], got[2];

    (void)state;
    run("none", 1, want);
    for (int threads = 1; threads <= 4; threads++) {
        run("fuse_elementwise", threads, got);
        for (int i = 0; i < 2; i++) {
            assert_memory_equal(got[i].data, want[i].data,
                                sb_tensor_bytes(&want[i]));
            sb_tensor_drop(&got[i]);
        }
    }
    for (int i = 0; i < 2; i++)
        sb_tensor_drop(&want[i]);
    sb_ctx_set_threads(test_ctx(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_graph_becomes_the_expected_one),
        cmocka_unit_test(test_long_chains_are_cut),
        cmocka_unit_test(test_what_a_convolution_takes_is_left_to_it),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests_name("fuse_elementwise", tests, NULL, NULL);
}
