/* Targets: rows are complete, found by name and alias, and agree with the
 * facts that runtimes document. */
#include <sparsebit/sparsebit.h>

#include "sbtest.h"

#include "graph/text.h"
#include "runtime/target.h"

static void check_ops(const sb_target_def *t)
{
    bool only = false, dynamic = false;

    for (size_t k = 0; k < t->n_ops; k++) {
        const sb_target_op *op = &t->ops[k];

        for (size_t j = 0; j < k; j++)
            if (strcmp(op->op, t->ops[j].op) == 0)
                fail_msg("%s: %s twice", t->name, op->op);
        if (op->place == SB_PLACE_FLOAT && op->fuse.kind == SB_FUSE_NONE &&
            !op->fuse.flags && !op->weight_only && !op->dynamic)
            fail_msg("%s: the row of %s says nothing", t->name, op->op);
        if (op->place != SB_PLACE_FLOAT && op->place != SB_PLACE_FOLD &&
            op->fuse.kind == SB_FUSE_NONE)
            fail_msg("%s: %s is placed but not fused", t->name, op->op);
        if ((op->fuse.kind >= SB_FUSE_INPUTS) != (t->steps == SB_SIM_INPUTS) &&
            op->fuse.kind != SB_FUSE_NONE)
            fail_msg("%s: %s fuses in a way of others", t->name, op->op);
        only = only || op->weight_only;
        dynamic = dynamic || op->dynamic;
    }
    assert_int_equal(only, t->ops && sb_target_has(t, SB_USE_WEIGHT_ONLY));
    assert_int_equal(dynamic,
                     t->ops && sb_target_has(t, SB_USE_WEIGHT_DYNAMIC));
}

/* What a configuration may name is a part of what is taken, and refusals have
 * reasons. */
static void check_limits(const sb_target_def *t)
{
    for (int use = 0; use < SB_USE_COUNT; use++) {
        const sb_target_limits *l = &t->limits[use];

        assert_int_equal(l->bits == 0, l->schemes == 0);
        assert_int_equal(l->bits & ~SB_BITS_UP_TO(16), 0);
        assert_int_equal(l->named_bits & ~l->bits, 0);
        assert_int_equal(l->named_schemes & ~l->schemes, 0);
        assert_non_null(l->why_bits);
        if (l->schemes && l->schemes != SB_SCHEMES_ALL)
            assert_non_null(l->why_schemes);
    }
    assert_true(sb_target_has(t, SB_USE_ACT) &&
                sb_target_has(t, SB_USE_WEIGHT));
}

static void test_rows_are_complete(void **state)
{
    (void)state;
    size_t n = 0;
    const sb_target_def *const *all = sb_target_all(&n);

    for (size_t i = 0; i < n; i++) {
        const sb_target_def *t = all[i];

        assert_ptr_equal(sb_target_find(t->name), t);
        assert_true(*t->summary);
        assert_true(t->act_types && t->weight_types);
        assert_true(t->opset >= 13);
        assert_int_equal(t->ops == NULL, t->n_ops == 0);
        assert_int_equal(t->ops == NULL, t->steps == SB_SIM_UNKNOWN);
        assert_int_equal(t->inputs != NULL, t->steps == SB_SIM_INPUTS);
        check_ops(t);
        check_limits(t);
    }
    assert_ptr_equal(sb_target_find("onnxruntime"),
                     sb_target_find("onnxruntime-x86"));
    assert_ptr_equal(sb_target_default(), sb_target_find("onnxruntime-x86"));
    assert_null(sb_target_find("no-such-target"));
}

/* TensorRT and ONNX Runtime as their documentation has them. */
static void test_settings_are_those_of_the_documentation(void **state)
{
    static const struct {
        const char *target;
        sb_target_use use;
        int bits;
        uint32_t scheme;
        bool named;
        uint32_t allowed; /* 0: taken */
    } cases[] = {
        {"tensorrt", SB_USE_ACT, 8, SB_SCHEME_TENSOR_SYMMETRIC, true, 0},
        {"tensorrt", SB_USE_ACT, 8, SB_SCHEME_TENSOR_AFFINE, false,
         SB_SCHEME_TENSOR_SYMMETRIC},
        {"tensorrt", SB_USE_WEIGHT, 4, SB_SCHEME_CHANNEL_SYMMETRIC, true,
         SB_BITS(8)},
        {"tensorrt", SB_USE_WEIGHT, 4, SB_SCHEME_CHANNEL_SYMMETRIC, false, 0},
        {"tensorrt", SB_USE_WEIGHT, 8, SB_SCHEME_TENSOR_SYMMETRIC, true,
         SB_SCHEME_CHANNEL_SYMMETRIC},
        {"tensorrt", SB_USE_WEIGHT, 8, SB_SCHEME_TENSOR_SYMMETRIC, false, 0},
        {"onnxruntime-x86", SB_USE_ACT, 8, SB_SCHEME_TENSOR_SYMMETRIC, true,
         SB_SCHEME_TENSOR_AFFINE},
        {"onnxruntime-arm", SB_USE_ACT, 16, SB_SCHEME_TENSOR_AFFINE, false,
         SB_BITS(8)},
        {"onnxruntime-x86", SB_USE_WEIGHT_ONLY, 2, SB_SCHEME_GROUP_AFFINE, true,
         0},
        {"qnn", SB_USE_ACT, 16, SB_SCHEME_TENSOR_AFFINE, true, 0},
        {"virtual", SB_USE_WEIGHT, 3, SB_SCHEME_GROUP_AFFINE, true, 0},
    };

    (void)state;
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        unsigned scheme = 0;
        sb_target_refusal no = {0};

        while (cases[i].scheme >> scheme > 1)
            scheme++;
        const sb_target_setting s = {cases[i].use, cases[i].bits, scheme,
                                     cases[i].named};
        bool taken = sb_target_check(sb_target_find(cases[i].target), &s, &no);
        if (taken != (cases[i].allowed == 0) || no.allowed != cases[i].allowed)
            fail_msg("case %zu: %d, 0x%x", i, taken, (unsigned)no.allowed);
    }
}

/* As each runtime documents it. */
static void test_what_a_target_takes_in_words(void **state)
{
    static const struct {
        const char *target, *text;
    } cases[] = {
        {"virtual", "weights 1..16 bit, every scheme; activations 1..16 bit, "
                    "per tensor or channel; A: none 1..16 bit, every scheme; "
                    "A: dynamic 1..16 bit, every scheme"},
        {"onnxruntime-arm",
         "weights 8 or 4 bit, per tensor or channel, symmetric; activations 8 "
         "bit, per tensor, affine; A: none 8, 4 or 2 bit, every scheme; A: "
         "dynamic 8 bit, per tensor or channel"},
        {"tensorrt", "weights 8 bit, per channel, symmetric; activations 8 "
                     "bit, per tensor, symmetric; A: none 8 or 4 bit, per "
                     "channel or group, symmetric"},
        {"qnn", "weights 8 or 4 bit, per tensor or channel; activations 16 or "
                "8 bit, per tensor"},
    };
    sb_target_def mixed = {
        .limits = {[SB_USE_WEIGHT] = {SB_BITS(1),
                                      SB_SCHEME_TENSOR_AFFINE |
                                          SB_SCHEMES_PER_CHANNEL |
                                          SB_SCHEME_GROUP_SYMMETRIC,
                                      .why_bits = ""}}};
    sb_str text;

    (void)state;
    sb_str_init(&text, test_ctx());
    for (size_t i = 0; i < SB_COUNT(cases); i++) {
        sb_str_clear(&text);
        sb_target_describe(sb_target_find(cases[i].target), &text);
        assert_string_equal(sb_str_text(&text), cases[i].text);
    }
    sb_str_clear(&text);
    sb_target_describe(&mixed, &text);
    assert_string_equal(
        sb_str_text(&text),
        "weights 1 bit, per tensor affine, channel or group symmetric");
    sb_str_free(&text);
}

static bool any_target(const sb_target_def *target)
{
    (void)target;
    return true;
}

/* Runtimes alone, in their order. */
static void test_lists_have_runtimes_in_their_order(void **state)
{
    (void)state;
    sb_str text;

    sb_str_init(&text, test_ctx());
    sb_target_list(&text, any_target, "and");
    assert_ok(sb_str_status(&text));
    assert_null(strstr(sb_str_text(&text), "virtual"));
    assert_non_null(strstr(sb_str_text(&text), "onnxruntime-x86, onnx"));
    assert_non_null(strstr(sb_str_text(&text), " and "));
    sb_str_free(&text);
}

static int axis_of(const char *target, const char *text, int rank)
{
    sb_graph *g = NULL;

    assert_ok(sb_graph_parse(test_ctx(), text, &g));
    const sb_node *node = sb_graph_node(g, 0);
    const sb_target_def *t = sb_target_find(target);
    int axis = sb_target_weight_axis(sb_target_op_find(t, node), node, rank);

    sb_graph_free(g);
    return axis;
}

static void test_axis_of_weights(void **state)
{
    (void)state;
    const char *conv = "graph g(x: f32[1,4,8,8], w: f32[4,4,3,3]) -> (y) {\n"
                       "  y = Conv(x, w)\n}";
    const char *up1 = "graph g(x: f32[1,4,8,8], w: f32[4,4,3,3]) -> (y) {\n"
                      "  y = ConvTranspose(x, w)\n}";
    const char *up2 = "graph g(x: f32[1,4,8,8], w: f32[4,2,3,3]) -> (y) {\n"
                      "  y = ConvTranspose(x, w) {group=2}\n}";
    const char *gemm = "graph g(x: f32[1,4], w: f32[4,4]) -> (y) {\n"
                       "  y = Gemm(x, w)\n}";
    const char *gemm_t = "graph g(x: f32[1,4], w: f32[4,4]) -> (y) {\n"
                         "  y = Gemm(x, w) {transB=1}\n}";
    const char *matmul = "graph g(x: f32[1,4], w: f32[4,4]) -> (y) {\n"
                         "  y = MatMul(x, w)\n}";

    assert_int_equal(axis_of("onnxruntime-x86", conv, 4), 0);
    assert_int_equal(axis_of("tensorrt", up1, 4), 1);
    assert_int_equal(axis_of("tensorrt", up2, 4), -1);
    assert_int_equal(axis_of("onnxruntime-x86", gemm, 2), 1);
    assert_int_equal(axis_of("onnxruntime-x86", gemm_t, 2), 0);
    assert_int_equal(axis_of("onnxruntime-x86", matmul, 2), 1);
    assert_int_equal(axis_of("onnxruntime-x86", matmul, 3), 2);
    assert_int_equal(axis_of("qnn", matmul, 2), -1);
}

static void test_data_inputs(void **state)
{
    (void)state;
    const sb_target_def *t = sb_target_find("onnxruntime-x86");
    sb_node conv = {.op = "Conv", .domain = ""};
    sb_node where = {.op = "Where", .domain = ""};
    sb_node foreign = {.op = "Conv", .domain = "com.example"};
    const sb_target_op *c = sb_target_op_find(t, &conv);
    const sb_target_op *w = sb_target_op_find(t, &where);

    assert_null(sb_target_op_find(t, &foreign));
    assert_true(sb_target_is_data(c, 0) && sb_target_is_data(c, 1));
    assert_false(sb_target_is_data(c, 2));
    assert_false(sb_target_is_data(w, 0));
    assert_true(sb_target_is_data(w, 1) && sb_target_is_data(w, 2));
}

static void test_virtual_and_unknown_names_are_no_runtimes(void **state)
{
    (void)state;
    assert_true(sb_target_is_runtime("tensorrt"));
    assert_true(sb_target_is_runtime("onnxruntime"));
    assert_false(sb_target_is_runtime("virtual"));
    assert_false(sb_target_is_runtime("tensor"));
    assert_false(sb_target_is_runtime(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_virtual_and_unknown_names_are_no_runtimes),
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_settings_are_those_of_the_documentation),
        cmocka_unit_test(test_what_a_target_takes_in_words),
        cmocka_unit_test(test_lists_have_runtimes_in_their_order),
        cmocka_unit_test(test_axis_of_weights),
        cmocka_unit_test(test_data_inputs),
    };
    return cmocka_run_group_tests_name("target", tests, NULL, NULL);
}
