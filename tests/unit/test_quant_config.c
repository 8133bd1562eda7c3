/* The quantization config: files of every shape that users of Sparsebit have,
 * what they say about nodes, and the messages for wrong ones. */
#include "sbtest.h"

#include "graph/text.h"
#include "quant/config/quant_config.h"
#include "quant/observe/observer_def.h"
#include "quant/quantize/quantizer.h"
#include "runtime/target.h"

static sb_status load(const char *text, sb_quant_config **out)
{
    return sb_quant_config_load_memory(test_ctx(), "q.yaml", text, strlen(text),
                                       SB_QUANT_CONFIG_ANY, out);
}

static sb_quant_config *must_load(const char *text)
{
    sb_quant_config *cfg = NULL;

    assert_ok(load(text, &cfg));
    return cfg;
}

static sb_quant_spec spec_of(const sb_quant_config *cfg, sb_quant_kind kind,
                             const char *op, const char *module,
                             const char *name)
{
    const sb_node node = {
        .op = op, .domain = "", .module = module, .name = name};
    sb_quant_spec spec;

    sb_quant_config_spec(cfg, kind, &node, &spec);
    return spec;
}

/* The observer's parameters, as `config check` prints them. */
static void assert_params(const sb_quant_spec *spec, const char *want)
{
    sb_str text;

    sb_str_init(&text, test_ctx());
    sb_params_words(spec->observer->params, spec->observer_params, &text);
    assert_string_equal(sb_str_text(&text), want);
    sb_str_free(&text);
}

/* ---- files -------------------------------------------------------------- */

#define W8 "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}}\n"
#define A8 "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8}}\n"

static const char ptq[] = "BACKEND: tensorrt\n"
                          "SCHEDULE:\n"
                          "  FUSE_BN: True\n"
                          "  BN_TUNING: True\n"
                          "W:\n"
                          "  QSCHEME: per-channel-symmetric\n"
                          "  QUANTIZER:\n"
                          "    TYPE: uniform\n"
                          "    BIT: 8\n"
                          "  OBSERVER:\n"
                          "    TYPE: MINMAX\n"
                          "A:\n"
                          "  QSCHEME: per-tensor-symmetric\n"
                          "  QUANTIZER:\n"
                          "    TYPE: uniform\n"
                          "    BIT: 8\n"
                          "  OBSERVER:\n"
                          "    TYPE: MSE\n"
                          "    LAYOUT: NLC\n"
                          "  SPECIFIC: [{ # bit=0 is disable_quant\n"
                          "    \"*ln*\": [\"QUANTIZER.DISABLE\", True],\n"
                          "    \"softmax*\": [\"QUANTIZER.DISABLE\", True],\n"
                          "    \"head\": [\"OBSERVER.TYPE\", \"ACIQ\", "
                          "\"OBSERVER.ACIQ.DISTRIBUTION\", \"laplace\"],\n"
                          "  }]\n";

static void test_post_training(void **state)
{
    sb_quant_config *cfg = must_load(ptq);
    sb_quant_spec s = spec_of(cfg, SB_QUANT_WEIGHT, "Conv", "a.b", "n");

    (void)state;
    assert_ptr_equal(sb_quant_config_target(cfg), sb_target_find("tensorrt"));
    assert_true(sb_quant_config_schedule(cfg).fuse_bn);
    assert_true(sb_quant_config_schedule(cfg).bn_tuning);
    assert_true(sb_quant_config_schedule(cfg).disable_unnecessary_quant);
    assert_true(sb_quant_config_has_quant(cfg));
    assert_false(sb_quant_config_has_sparse(cfg));
    assert_int_equal(sb_quant_config_mode(cfg), SB_QUANT_STATIC);
    assert_false(sb_quant_config_qadd(cfg));
    assert_int_equal(s.kind, SB_QUANT_WEIGHT);
    assert_int_equal(s.granularity, SB_QUANT_PER_CHANNEL);
    assert_true(s.symmetric);
    assert_int_equal(s.bits, 8);
    assert_ptr_equal(s.quantizer, sb_quantizer_find(NULL, "uniform"));
    assert_null(s.quantizer_params);
    assert_ptr_equal(s.observer, sb_observer_find(NULL, "minmax"));
    assert_int_equal(s.channel_axis, -1);
    assert_null(s.pattern);
    s = spec_of(cfg, SB_QUANT_ACTIVATION, "Conv", "a.b", "n");
    assert_int_equal(s.kind, SB_QUANT_ACTIVATION);
    assert_int_equal(s.granularity, SB_QUANT_PER_TENSOR);
    assert_ptr_equal(s.observer, sb_observer_find(NULL, "mse"));
    assert_int_equal(s.channel_axis, 2);
    assert_false(s.disabled);
    assert_null(s.observer_params);
    s = spec_of(cfg, SB_QUANT_ACTIVATION, "MatMul", "head", "");
    assert_ptr_equal(s.observer, sb_observer_find(NULL, "aciq"));
    assert_params(&s, " laplace");
    assert_string_equal(s.pattern, "head");
    assert_true(
        spec_of(cfg, SB_QUANT_ACTIVATION, "LayerNormalization", "h.ln_1", "")
            .disabled);
    assert_false(
        spec_of(cfg, SB_QUANT_WEIGHT, "LayerNormalization", "h.ln_1", "")
            .disabled);
    sb_quant_config_free(cfg);
}

/* Shapes of the published files: training, backbones with other first layers,
 * detectors, pruning. */
static const char *const published[] = {
    "BACKEND: virtual\nW:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER: \n"
    "    TYPE: dorefa\n    BIT: 4\nA:\n  QSCHEME: per-tensor-affine\n"
    "  QUANTIZER:\n    TYPE: pact\n    BIT: 4\n",
    "BACKEND: virtual\nW:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER: \n"
    "    TYPE: lsq\n    BIT: 4\nA:\n  QSCHEME: per-tensor-affine\n"
    "  QUANTIZER:\n    TYPE: lsq+\n    BIT: 4\n  OBSERVER:\n    TYPE: MSE\n"
    "    LAYOUT: NCHW\n",
    "BACKEND: virtual\nSKIP_TRACE_MODULES: [\n  \"view_transformer\",\n"
    "  \"shift_feature\"\n]\nW:\n  QSCHEME: per-channel-symmetric\n"
    "  QUANTIZER: \n    TYPE: lsq\n    BIT: 4\n  SPECIFIC: [{\n"
    "    \"backbone_conv1\": [\"QUANTIZER.BIT\", 8],\n"
    "    \"heads_*_1\": [\"QUANTIZER.BIT\", 8],\n\n  }]\n"
    "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER:\n    TYPE: lsq\n"
    "    BIT: 4\n  SPECIFIC: [{\n"
    "    \"backbone_conv1\": [\"QUANTIZER.BIT\", 8],\n"
    "    \"heads_*_1\": [\"QUANTIZER.BIT\", 8],\n  }]\n",
    "BACKEND: virtual\nSKIP_TRACE_MODULES: [\n  \"blocks.*.drop_path\",\n]\n"
    "W:\n  QSCHEME: per-channel-symmetric\n  QUANTIZER: \n    TYPE: lsq\n"
    "    BIT: 4\nA:\n  QSCHEME: per-tensor-affine\n  QUANTIZER:\n"
    "    TYPE: lsq\n    BIT: 4\n  SPECIFIC: [{ # bit=0 is disable_quant\n"
    "    \"*mlp_fc2\": [\"QUANTIZER.TYPE\", \"lsq+\"],\n"
    "    \"norm\": [\"QUANTIZER.DISABLE\", True],\n"
    "    \"*softmax*\": [\"QUANTIZER.DISABLE\", True],\n  }]\n\n\n\n",
    "SPARSER:\n  TYPE: structed\n  STRATEGY: l1norm\n  RATIO: 0.5\n",
    "SPARSER:\n  TYPE: unstructed\n  STRATEGY: l1norm\n  RATIO: 1.0\n",
    /* and what we add */
    "BACKEND: onnxruntime\n" W8 "A: none\n",
    "BACKEND: onnxruntime-arm\n" W8 "A: dynamic\n",
    "BACKEND: OpenVINO\n" W8 A8,
    "BACKEND: qnn\n" W8
    "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 16}}\n",
    "W: {QSCHEME: per-group-affine, QUANTIZER: {BIT: 4, GROUP_SIZE: 32}}\n"
    "A: none\n",
    "BACKEND: tensorrt\nA: none\n"
    "W: {QSCHEME: per-group-symmetric, QUANTIZER: {BIT: 4}}\n",
    W8 "A: {QUANTIZER: {DISABLE: true}}\n",
    W8 "A: {QUANTIZER: {BIT: 0}}\n",
    W8 A8 "SPARSER: {TYPE: unstructured, STRATEGY: random, RATIO: 0.25}\n",
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 4, TYPE: "
    "AdaRound}}\n" A8,
    W8
    "A: {QSCHEME: per-channel-affine, QUANTIZER: {BIT: 1, TYPE: DoReFa},\n"
    "    OBSERVER: {TYPE: Moving_Average, MOVING_AVERAGE: {EMA_RATIO: 0.5}},\n"
    "    QADD: {ENABLE_QUANT: yes}, SPECIFIC: {}}\n",
};

static void test_published_files_load(void **state)
{
    (void)state;
    for (size_t i = 0; i < SB_COUNT(published); i++)
        sb_quant_config_free(must_load(published[i]));
}

/* ---- what it says ------------------------------------------------------- */

static void test_specific_settings_go_by_pattern(void **state)
{
    sb_quant_config *cfg = must_load(
        "W:\n"
        "  QSCHEME: per-channel-symmetric\n"
        "  QUANTIZER: {BIT: 4}\n"
        "  SPECIFIC:\n" /* a plain map, a map inside, small letters */
        "    layer1.*: [quantizer.bit, 8]\n"
        "    layer1.0.conv1: [QUANTIZER.BIT, 2]\n"
        "    layer2_0_conv1: {QSCHEME: per-tensor-affine}\n"
        "    encoder_layer_norm: [QUANTIZER.BIT, 0]\n"
        "    /head/Gemm: [QUANTIZER.DISABLE, true, QUANTIZER.BIT, 3]\n"
        "    softmax: [QUANTIZER.BIT, 5]\n"
        "A: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: 8},\n"
        "    SPECIFIC: [{a*: [QUANTIZER.BIT, 7]}, {ab: [QUANTIZER.BIT, 6],\n"
        "      add: [QADD.ENABLE_QUANT, true]}]}\n");
    const struct {
        const char *op, *module, *name;
        int bits;
        bool disabled;
    } nodes[] = {
        {"Conv", "layer1.0.conv1", "", 8, false}, /* the first one wins */
        {"Conv", "layer2.0.conv1", "", 4, false},
        {"Conv", "layer3", "", 4, false},
        {"LayerNormalization", "encoder.LayerNorm", "", 0, true},
        {"Gemm", "", "/head/Gemm", 3, true},
        {"Softmax", "layer3.attn", "/layer3/attn/Softmax", 5, false},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(nodes); i++) {
        sb_quant_spec s = spec_of(cfg, SB_QUANT_WEIGHT, nodes[i].op,
                                  nodes[i].module, nodes[i].name);

        assert_int_equal(s.bits, nodes[i].bits);
        assert_int_equal(s.disabled, nodes[i].disabled);
    }
    sb_quant_spec s =
        spec_of(cfg, SB_QUANT_WEIGHT, "Conv", "layer2.0.conv1", "");
    assert_int_equal(s.granularity, SB_QUANT_PER_TENSOR);
    assert_false(s.symmetric);
    assert_int_equal(spec_of(cfg, SB_QUANT_ACTIVATION, "Conv", "ab", "").bits,
                     7);
    assert_int_equal(spec_of(cfg, SB_QUANT_ACTIVATION, "Conv", "b", "").bits,
                     8);
    assert_true(
        spec_of(cfg, SB_QUANT_ACTIVATION, "LayerNormalization", "", "").bits ==
        8);
    assert_int_equal(sb_quant_config_patterns(cfg, SB_QUANT_WEIGHT).n, 6);
    assert_string_equal(sb_quant_config_patterns(cfg, SB_QUANT_ACTIVATION).v[1],
                        "ab");
    sb_quant_config_spec(cfg, SB_QUANT_WEIGHT, NULL, &s);
    assert_int_equal(s.bits, 4);
    sb_quant_config_free(cfg);
}

static void test_skipped_modules_stay_float(void **state)
{
    sb_quant_config *cfg = must_load(
        W8 A8 "SKIP_TRACE_MODULES: [view, blocks.*.drop, '/head/*', a_b]\n");
    const struct {
        const char *module, *name;
        bool want;
    } nodes[] = {
        {"view", "", true},          {"view.net.conv", "", true},
        {"viewer", "", false},       {"net.view", "", false},
        {"blocks.0.drop", "", true}, {"blocks.0.drop.x", "", true},
        {"blocks.0.mlp", "", false}, {"", "/head/Gemm", true},
        {"a.b.c", "", true},         {"", "", false},
    };

    (void)state;
    assert_int_equal(sb_quant_config_skip_patterns(cfg).n, 4);
    for (size_t i = 0; i < SB_COUNT(nodes); i++) {
        const sb_node node = {.op = "Conv",
                              .domain = "",
                              .module = nodes[i].module,
                              .name = nodes[i].name};

        assert_int_equal(sb_quant_config_skips(cfg, &node), nodes[i].want);
    }
    sb_quant_config_free(cfg);
}

static void test_function_names(void **state)
{
    const struct {
        const char *op, *module, *pattern;
        bool want;
    } cases[] = {
        {"Softmax", "blocks.0.attn", "softmax*", true},
        {"Softmax", "blocks.0.attn", "*softmax*", true},
        {"MatMul", "", "matmul", true},
        {"LayerNormalization", "", "*norm", true},
        {"LayerNormalization", "", "layer_norm", true},
        {"LayerNormalization", "bert.LayerNorm", "bert_layer_norm", true},
        {"Add", "", "softmax*", false},
        {"Conv", "convLayer", "conv_layer", true},
        {"Conv", "ABc", "abc", true},
        {"Conv", "conv", "conv", true},
        {"Conv", "layer1.conv1", "conv", false},
        {"Gemm", "head", "gemm", false},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        const sb_node node = {.op = cases[i].op,
                              .domain = "",
                              .module = cases[i].module,
                              .name = ""};

        assert_int_equal(sb_quant_node_matches(&node, cases[i].pattern),
                         cases[i].want);
    }
}

typedef struct lines {
    char text[8][160];
    size_t n;
} lines;

static void keep_line(void *user, sb_log_level level, const char *line)
{
    lines *kept = user;

    assert_int_equal(level, SB_LOG_LEVEL_WARNING);
    if (kept->n < 8)
        (void)snprintf(kept->text[kept->n++], 160, "%s", line);
}

static void test_patterns_without_a_node_are_named(void **state)
{
    static const char text[] = "graph g(x: f32[2]) -> (y) {\n"
                               "    a = Relu(x) @ layer1.0\n"
                               "    b = BatchNormalization(a, a, a, a, a)\n"
                               "    y = Softmax(b) @ head\n"
                               "}\n";
    static const char *const want[] = {
        "q.yaml:5: W.SPECIFIC['layer1.*']: has no effect, patterns before it "
        "take its nodes",
        "q.yaml:6: W.SPECIFIC['layer2']: matches no node",
        "q.yaml: SKIP_TRACE_MODULES 'neck': matches no module",
    };
    sb_quant_config *cfg = must_load(
        "W:\n  QSCHEME: per-channel-affine\n  QUANTIZER: {BIT: 8}\n"
        "  SPECIFIC: {'layer1*': [],\n    'layer1.*': [],\n"
        "    layer2: [], softmax: []}\n" A8 "SCHEDULE: {BN_TUNING: true}\n"
        "SKIP_TRACE_MODULES: [neck, hea?]\n");
    sb_graph *g = NULL;
    lines kept = {.n = 0};

    (void)state;
    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    sb_quant_config_warn_unused(cfg, g, g);
    sb_ctx_set_log(test_ctx(), keep_line, &kept);
    sb_quant_config_warn_unused(cfg, g, g);
    sb_ctx_set_log(test_ctx(), NULL, NULL);
    assert_int_equal(kept.n, SB_COUNT(want));
    for (size_t i = 0; i < kept.n; i++)
        assert_string_equal(kept.text[i], want[i]);
    sb_graph_free(g);
    sb_quant_config_free(cfg);
}

/* Names in configs are names of rows. */
static void test_rows_bring_their_keys(void **state)
{
    const sb_param_def *table;
    sb_arena arena;

    sb_arena_init(&arena, test_ctx());
    assert_ok(sb_quant_config_table(&arena, &table));
    const sb_param_def *backend = sb_params_find(table, "BACKEND", NULL);
    const sb_param_def *observer =
        sb_params_find(table, "A.OBSERVER.TYPE", NULL);
    size_t n = 0, found = 0;
    const sb_target_def *const *targets = sb_target_all(&n);

    (void)state;
    for (size_t b = 0; backend->names[b]; b++)
        assert_non_null(sb_target_find(backend->names[b]));
    for (size_t t = 0; t < n; t++)
        for (size_t b = 0; backend->names[b]; b++)
            found += strcmp(targets[t]->name, backend->names[b]) == 0;
    assert_int_equal(found, n);
    for (size_t i = 0; observer->names[i]; i++)
        assert_string_equal(sb_observer_at(NULL, i)->name, observer->names[i]);
    sb_arena_free(&arena);
}

/* Every row's parameters have a key for each side that it is for, and no
 * other; what W or A says of one row stays when SPECIFIC changes to another
 * and back. */
static void assert_section(const sb_param_def *table, const char *what,
                           const char *name, const sb_param_def *params,
                           const bool *sides)
{
    char upper[64], path[160];
    size_t n = strlen(name);

    for (size_t i = 0; i <= n; i++)
        upper[i] = name[i] >= 'a' && name[i] <= 'z'
                       ? (char)(name[i] - 'a' + 'A')
                       : name[i];
    for (int k = 0; k < 2; k++) {
        (void)snprintf(path, sizeof path, "%s.%s.%s", k ? "A" : "W", what,
                       upper);
        const sb_param_def *row = sb_params_find(table, path, NULL);
        assert_true((row != NULL) == (params && sides[k]));
        if (row)
            assert_ptr_equal(row->fields, params);
    }
}

static void test_parameters_of_rows(void **state)
{
    const sb_param_def *table;
    const sb_observer_def *o;
    const sb_quantizer_def *q;
    sb_arena arena;

    (void)state;
    sb_arena_init(&arena, test_ctx());
    assert_ok(sb_quant_config_table(&arena, &table));
    for (size_t i = 0; (o = sb_observer_at(NULL, i)) != NULL; i++)
        assert_section(
            table, "OBSERVER", o->name, o->params,
            (bool[]){o->flags & SB_OBS_WEIGHT, o->flags & SB_OBS_ACTIVATION});
    for (size_t i = 0; (q = sb_quantizer_at(NULL, i)) != NULL; i++)
        assert_section(table, "QUANTIZER", q->name, q->params,
                       (bool[]){q->uses[0].schemes, q->uses[1].schemes});
    sb_arena_free(&arena);
}

static void test_parameters_of_specific(void **state)
{
    sb_quant_config *cfg = must_load(
        W8 "A:\n  QSCHEME: per-tensor-affine\n  QUANTIZER: {BIT: 8}\n"
           "  OBSERVER: {TYPE: percentile, PERCENTILE: {ALPHA: 0.25},\n"
           "    ACIQ: {DISTRIBUTION: LAPLACE}}\n"
           "  SPECIFIC:\n"
           "    a: [OBSERVER.TYPE, aciq]\n"
           "    b: [OBSERVER.PERCENTILE.ALPHA, 0.5]\n"
           "    c: [OBSERVER.TYPE, moving_average]\n"
           "    d: [QUANTIZER.BIT, 4]\n");
    static const struct {
        const char *module, *observer, *want;
    } cases[] = {
        {"a", "aciq", " laplace"},        {"b", "percentile", " 0.5"},
        {"c", "moving_average", " 0.9"},  {"d", "percentile", " 0.25"},
        {"other", "percentile", " 0.25"},
    };
    sb_quant_spec all, s;

    (void)state;
    sb_quant_config_spec(cfg, SB_QUANT_ACTIVATION, NULL, &all);
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        s = spec_of(cfg, SB_QUANT_ACTIVATION, "Conv", cases[i].module, "");
        assert_ptr_equal(s.observer, sb_observer_find(NULL, cases[i].observer));
        assert_params(&s, cases[i].want);
        assert_true(sb_quant_spec_same_rows(&s, &all) == (i >= 3));
    }
    sb_quant_config_free(cfg);
}

static void test_modes_of_activations(void **state)
{
    sb_quant_config *only = must_load(W8 "A: none\n");
    sb_quant_config *dynamic = must_load(W8 "A: dynamic\n");
    sb_quant_spec s = spec_of(only, SB_QUANT_ACTIVATION, "Conv", "a", "");

    (void)state;
    assert_int_equal(sb_quant_config_mode(only), SB_QUANT_WEIGHTS_ONLY);
    assert_true(s.disabled);
    assert_int_equal(sb_quant_config_mode(dynamic), SB_QUANT_DYNAMIC);
    s = spec_of(dynamic, SB_QUANT_ACTIVATION, "Conv", "a", "");
    assert_false(s.disabled);
    assert_true(s.dynamic);
    assert_int_equal(s.bits, 8);
    assert_false(s.symmetric);
    assert_int_equal(s.granularity, SB_QUANT_PER_TENSOR);
    sb_quant_config_free(only);
    sb_quant_config_free(dynamic);
}

static void test_group_sizes_go_by_node(void **state)
{
    sb_quant_config *cfg =
        must_load("W: {QSCHEME: per-group-symmetric, QUANTIZER: {BIT: 4},\n"
                  "    SPECIFIC: {x: [QUANTIZER.GROUP_SIZE, -1]}}\nA: none\n");
    sb_quant_spec s = spec_of(cfg, SB_QUANT_WEIGHT, "Gemm", "y", "");

    (void)state;
    assert_int_equal(s.granularity, SB_QUANT_PER_GROUP);
    assert_true(s.symmetric);
    assert_int_equal(s.group_size, 128);
    assert_int_equal(spec_of(cfg, SB_QUANT_WEIGHT, "Gemm", "x", "").group_size,
                     -1);
    sb_quant_config_free(cfg);
}

static void test_sparse_settings_are_read(void **state)
{
    sb_quant_config *cfg = must_load(published[4]);
    sb_sparse_config s = sb_quant_config_sparse(cfg);

    (void)state;
    assert_true(sb_quant_config_has_sparse(cfg));
    assert_false(sb_quant_config_has_quant(cfg));
    assert_true(s.structured);
    assert_string_equal(s.strategy, "l1norm");
    assert_close("ratio", s.ratio, 0.5, 0);
    sb_quant_config_free(cfg);
    cfg = must_load(published[5]);
    assert_false(sb_quant_config_sparse(cfg).structured);
    sb_quant_config_free(cfg);
}

/* What `sparsebit config default` prints, read again. */
static sb_status load_default(sb_ctx *ctx, sb_quant_config **out)
{
    sb_str text;

    sb_str_init(&text, ctx);
    sb_status status = sb_quant_config_default_text(&text);
    if (status == SB_OK)
        status =
            sb_quant_config_load_memory(ctx, "default", sb_str_text(&text),
                                        text.len, SB_QUANT_CONFIG_QUANT, out);
    sb_str_free(&text);
    return status;
}

static void test_the_default_is_eight_bits(void **state)
{
    sb_quant_config *cfg = NULL;
    sb_str text;

    (void)state;
    assert_ok(load_default(test_ctx(), &cfg));
    sb_quant_spec s = spec_of(cfg, SB_QUANT_WEIGHT, "Conv", "", "");
    assert_int_equal(s.bits, 8);
    assert_int_equal(s.granularity, SB_QUANT_PER_CHANNEL);
    assert_true(s.symmetric);
    s = spec_of(cfg, SB_QUANT_ACTIVATION, "Conv", "", "");
    assert_int_equal(s.bits, 8);
    assert_int_equal(s.granularity, SB_QUANT_PER_TENSOR);
    assert_false(s.symmetric);
    assert_int_equal(s.channel_axis, 1);
    assert_true(sb_quant_config_schedule(cfg).fuse_bn);
    assert_false(sb_quant_config_has_sparse(cfg));
    assert_string_equal(sb_quant_config_file(cfg), "default");
    sb_quant_config_free(cfg);
    sb_str_init(&text, test_ctx());
    assert_ok(sb_quant_config_default_text(&text));
    assert_non_null(strstr(sb_str_text(&text), "EMA_RATIO: 0.9\n"));
    assert_non_null(strstr(sb_str_text(&text), "# SPARSER:\n"));
    sb_str_free(&text);
}

static sb_status load_scenario(sb_ctx *ctx)
{
    sb_quant_config *cfg = NULL;

    SB_TRY(sb_quant_config_load_memory(ctx, "q", ptq, sizeof ptq - 1,
                                       SB_QUANT_CONFIG_QUANT, &cfg));
    sb_quant_config_free(cfg);
    cfg = NULL;
    SB_TRY(load_default(ctx, &cfg));
    sb_quant_config_free(cfg);
    return SB_OK;
}

static void test_every_failed_allocation_is_reported(void **state)
{
    (void)state;
    test_every_allocation("quantization config", load_scenario);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_post_training),
        cmocka_unit_test(test_published_files_load),
        cmocka_unit_test(test_specific_settings_go_by_pattern),
        cmocka_unit_test(test_skipped_modules_stay_float),
        cmocka_unit_test(test_function_names),
        cmocka_unit_test(test_patterns_without_a_node_are_named),
        cmocka_unit_test(test_rows_bring_their_keys),
        cmocka_unit_test(test_modes_of_activations),
        cmocka_unit_test(test_group_sizes_go_by_node),
        cmocka_unit_test(test_sparse_settings_are_read),
        cmocka_unit_test(test_the_default_is_eight_bits),
        cmocka_unit_test(test_every_failed_allocation_is_reported),
        cmocka_unit_test(test_parameters_of_rows),
        cmocka_unit_test(test_parameters_of_specific),
    };
    return cmocka_run_group_tests_name("quant_config", tests, NULL, NULL);
}
