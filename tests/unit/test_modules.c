/* Module paths from names that real exporters wrote, and glob patterns. */
#include "base/glob.h"
#include "sbtest.h"

#include <string.h>

#include "graph/modules.h"
#include "graph/text.h"

/* One node `y = OP(x, w)` with these traces. */
static const struct {
    const char *what, *op, *name, *weight, *scopes, *classes, *want;
} cases[] = {
    {"older PyTorch exporter", "Conv", "/layer1/layer1.0/conv1/Conv",
     "onnx::Conv_202", NULL, NULL, "layer1.0.conv1"},
    {"the parent is repeated", "Conv",
     "/layer4/layer4.0/downsample/downsample.0/Conv", "w", NULL, NULL,
     "layer4.0.downsample.0"},
    {"list in a list", "Conv", "/model.22/cv2.0/cv2.0.0/conv/Conv", "w", NULL,
     NULL, "model.22.cv2.0.0.conv"},
    {"Hugging Face", "MatMul", "/encoder/layer.0/attention/self/query/MatMul",
     "onnx::MatMul_1", NULL, NULL, "encoder.layer.0.attention.self.query"},
    {"top level", "Reshape", "/Reshape_1", "shape", NULL, NULL, ""},
    {"a name beats a weight", "Add", "/blocks/blocks.5/attn/qkv/Add",
     "blocks.0.attn.qkv.bias", NULL, NULL, "blocks.5.attn.qkv"},
    {"similar is not the parent", "Conv", "/conv/conv1.0/Conv", "w", NULL, NULL,
     "conv.conv1.0"},
    {"newer PyTorch exporter", "Relu", "node_relu_1", NULL,
     "['', 'layer1', 'layer1.0', 'layer1.0.relu', 'relu_1']",
     "['ResNet', 'Sequential', 'BasicBlock', "
     "'torch.nn.modules.activation.ReLU', 'aten.relu.default']",
     "layer1.0.relu"},
    {"scopes beat shared weights", "Add", "node_linear_4",
     "blocks.0.attn.qkv.bias",
     "['', 'blocks', 'blocks.1', 'blocks.1.attn', 'blocks.1.attn.qkv', "
     "'linear_4']",
     NULL, "blocks.1.attn.qkv"},
    {"scope of the whole network", "Add", "node_add", "pos_embed.weight",
     "['', 'add']", NULL, ""},
    {"batch norm folded into a convolution", "Conv", "node_Conv_301",
     "layer1.1.conv1.weight",
     "['', 'layer1', 'layer1.1', 'layer1.1.bn1', 'norm_3']",
     "['ResNet', 'Sequential', 'BasicBlock', "
     "'torch.nn.modules.batchnorm.BatchNorm2d', 'aten.norm.default']",
     "layer1.1.conv1"},
    {"batch norm on its own", "BatchNormalization", "node_bn",
     "layer1.1.bn1.weight",
     "['', 'layer1', 'layer1.1', 'layer1.1.bn1', 'norm_3']",
     "['ResNet', 'Sequential', 'BasicBlock', "
     "'torch.nn.modules.batchnorm.BatchNorm2d', 'aten.norm.default']",
     "layer1.1.bn1"},
    {"broken metadata", "Relu", "/a/Relu", NULL, "['', 'oops", NULL, "a"},
    {"weight only", "Gemm", "Gemm_77", "fc.weight", NULL, NULL, "fc"},
    {"weight of a deep module", "MatMul", "MatMul_43",
     "encoder.layer.0.output.dense.weight", NULL, NULL,
     "encoder.layer.0.output.dense"},
    {"weight renamed by an optimizer", "Conv", "",
     "ConvBnFusion_W_base_net.0.0.weight", NULL, NULL, "base_net.0.0"},
    {"Paddle", "Conv", "p2o.Conv.0", "conv2d_0.w_0", NULL, NULL, "conv2d_0"},
    {"weight with slashes", "Conv", "fire3/expand1x1", "fire3/expand1x1.w",
     NULL, NULL, "fire3.expand1x1"},
    {"numbered values are no modules", "Conv", "Conv_0", "input.3", NULL, NULL,
     ""},
    {"neither are numbers", "Conv", "Conv_0", "841", NULL, NULL, ""},
    {"TensorFlow", "Conv", "model/block1/conv/Conv2D",
     "model/block1/conv/Conv2D/ReadVariableOp", NULL, NULL,
     "model.block1.conv"},
    {"TensorFlow, saved model", "Conv",
     "StatefulPartitionedCall/model/conv/Conv2D", "const_1", NULL, NULL,
     "model.conv"},
    {"nothing at all", "Mul", "", NULL, NULL, NULL, ""},
};

static sb_graph *graph_of(size_t i)
{
    sb_graph *g = NULL;
    sb_value_id x = SB_NONE, w = SB_NONE, y = SB_NONE;
    sb_node_id id = SB_NONE;
    const int64_t dims[] = {1};
    sb_tensor t = sb_tensor_make(SB_DTYPE_F32, 1, dims);

    assert_ok(sb_graph_create(test_ctx(), "g", &g));
    assert_ok(sb_graph_add_value(g, "x", &x));
    assert_ok(sb_graph_add_input(g, x));
    if (cases[i].weight) {
        assert_ok(sb_graph_add_value(g, cases[i].weight, &w));
        assert_ok(sb_tensor_alloc(test_ctx(), &t));
        assert_ok(sb_graph_set_constant(g, w, &t));
        sb_tensor_drop(&t);
    }
    assert_ok(sb_graph_add_value(g, "y", &y));
    const sb_value_id inputs[] = {x, w};
    sb_node_spec spec = {.op = cases[i].op,
                         .name = cases[i].name,
                         .inputs = inputs,
                         .n_in = 2,
                         .outputs = &y,
                         .n_out = 1};
    assert_ok(sb_graph_add_node(g, &spec, &id));
    sb_prop props[2] = {{"pkg.torch.onnx.name_scopes", cases[i].scopes},
                        {"pkg.torch.onnx.class_hierarchy", cases[i].classes}};
    sb_extra *extra = &sb_graph_node(g, id)->extra;
    extra->n_props = cases[i].classes ? 2 : cases[i].scopes ? 1 : 0;
    extra->props = sb_arena_copy(g->arena, props, sizeof props);
    assert_non_null(extra->props);
    return g;
}

static void test_modules_are_read_off_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_graph *g = graph_of(i);
        assert_ok(sb_graph_assign_modules(g));
        const char *got = sb_graph_node(g, 0)->module;
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: '%s', want '%s'", cases[i].what, got, cases[i].want);
        sb_graph_free(g);
    }
}

static void test_sub_graphs_and_given_paths(void **state)
{
    (void)state;
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(),
                             "graph g(c: bool[], x: f32[2]) -> (y) {\n"
                             "  a = Relu(x) \"/a/b/Relu\" @ given.path\n"
                             "  y = If(c) {then_branch=graph t() -> (z) {\n"
                             "      z = Neg(a) \"/m/Neg\"\n"
                             "  }, else_branch=graph e() -> (z2) {\n"
                             "      z2 = Abs(a)\n"
                             "  }}\n"
                             "}\n",
                             &g));
    assert_ok(sb_graph_assign_modules(g));
    assert_string_equal(sb_graph_node(g, 0)->module, "given.path");
    const sb_graph *body = sb_node_body(sb_graph_node(g, 1), 0);
    assert_string_equal(sb_graph_node(body, 0)->module, "m");
    sb_graph_free(g);
}

/* Answers of Python's fnmatch.fnmatchcase. */
static void test_globs_match_as_fnmatch(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool want;
    } rows[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "layer1.0", true},
        {"layer1*", "layer1.0.conv1", true},
        {"*conv?", "layer1.0.conv1", true},
        {"*conv?", "layer1.0.conv", false},
        {"*.conv1.*", "a.conv1.conv1.b", true},
        {"a*b*c", "aXbXbXc", true},
        {"a*b*c", "aXbXbX", false},
        {"layer[1-3].?", "layer2.0", true},
        {"layer[1-3].?", "layer4.0", false},
        {"layer[!1-3].?", "layer4.0", true},
        {"[^a]", "^", true},
        {"[^a]", "b", false},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[a-]", "-", true},
        {"[a", "[a", true},
        {"x[a", "xa", false},
        {"[z-a]", "m", false},
        {"Conv", "conv", false},
        {"*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };

    for (size_t i = 0; i < SB_COUNT(rows); i++)
        if (sb_glob_match(rows[i].pattern, rows[i].text) != rows[i].want)
            fail_msg("'%s' on '%s'", rows[i].pattern, rows[i].text);
}

static void test_node_matches(void **state)
{
    (void)state;
    const sb_node node = {.name = "/layer1/layer1.0/conv1/Conv",
                          .module = "layer1.0.conv1"};
    const sb_node bare = {.name = "", .module = ""};

    assert_true(sb_node_matches(&node, "layer1.0.*"));
    assert_true(sb_node_matches(&node, "layer1_0_conv1"));
    assert_true(sb_node_matches(&node, "/layer1/*/Conv"));
    assert_false(sb_node_matches(&node, "layer1.1.*"));
    assert_false(sb_node_matches(&bare, "*"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modules_are_read_off_names),
        cmocka_unit_test(test_sub_graphs_and_given_paths),
        cmocka_unit_test(test_globs_match_as_fnmatch),
        cmocka_unit_test(test_node_matches),
    };
    return cmocka_run_group_tests_name("modules", tests, NULL, NULL);
}
