/* Plug-ins: rows that a program adds to a context are found, and only there. */
#include "sbtest.h"

#include <math.h>
#include <pthread.h>

#include <sparsebit/plugin.h>

/* ---- operators ---------------------------------------------------------- */

static sb_status double_infer(void *user, sb_op_call *call)
{
    int64_t dims[SB_RANK_MAX];
    sb_dtype dtype;
    int rank;

    (void)user;
    assert_int_equal(sb_op_input_count(call), 1);
    assert_int_equal(sb_op_output_count(call), 1);
    assert_true(sb_op_input_type(call, 0, &dtype, &rank, dims));
    assert_false(sb_op_input_type(call, 1, &dtype, &rank, dims));
    return sb_op_set_output(call, 0, dtype, rank, dims);
}

static sb_status double_run(void *user, sb_op_call *call)
{
    const sb_tensor *x = sb_op_input(call, 0);
    sb_tensor *y = sb_op_output(call, 0);
    size_t n = 0;

    if (user)
        return sb_op_fail(call, SB_UNSUPPORTED, "it does not want to");
    assert_int_equal(sb_op_attr_int(call, "times", 7), 2);
    assert_int_equal(sb_op_attr_int(call, "absent", 7), 7);
    assert_string_equal(sb_op_attr_string(call, "mode", ""), "fast");
    assert_int_equal(sb_op_attr_ints(call, "list", &n)[1], 5);
    assert_int_equal(n, 2);
    assert_null(sb_op_output(call, 1));
    for (int64_t i = 0; i < sb_tensor_elements(x); i++) {
        double v = 0;

        assert_true(sb_tensor_read_f64(x, i, 1, &v));
        v *= 2;
        assert_true(sb_tensor_write_f64(y, i, 1, &v));
    }
    return SB_OK;
}

static sb_op_plugin double_op(void)
{
    sb_op_plugin op = SB_OP_PLUGIN_INIT;

    op.domain = "test";
    op.name = "Double";
    op.min_inputs = op.max_inputs = 1;
    op.infer = double_infer;
    op.run = double_run;
    return op;
}

static const char doubled[] =
    "graph g(x: f32[N,2]) -> (y) {\n"
    "  a = Neg(x)\n"
    "  b = test::Double(a) {times=2, mode=\"fast\", list=[4,5]}\n"
    "  y = Neg(b)\n"
    "}\n";

static sb_ctx *new_ctx(void)
{
    sb_ctx *ctx = NULL;

    assert_int_equal(sb_ctx_create(NULL, &ctx), SB_OK);
    return ctx;
}

static void test_operator_runs_where_it_was_added(void **state)
{
    (void)state;
    sb_ctx *ctx = new_ctx(), *other = new_ctx();
    sb_op_plugin op = double_op();
    const sb_tensor *x = test_f32("2x2", 1, -2, 3, 4), *y = NULL;
    sb_model *model = NULL, *back = NULL, *clone = NULL;
    sb_session *session = NULL;
    void *bytes = NULL;
    size_t size = 0;

    assert_int_equal(sb_ctx_add_op(ctx, &op), SB_OK);
    assert_int_equal(sb_model_parse(ctx, doubled, &model), SB_OK);
    assert_string_equal(sb_model_output(model, 0)->text, "float[N,2]");
    /* A file keeps it, and the context knows it again. */
    assert_int_equal(sb_model_save_memory(model, &bytes, &size), SB_OK);
    assert_int_equal(sb_model_load_memory(ctx, bytes, size, NULL, &back),
                     SB_OK);
    assert_int_equal(sb_session_create(back, NULL, &session), SB_OK);
    assert_int_equal(sb_session_run(session, &x, 1, &y, 1), SB_OK);
    assert_tensor("doubled", y, test_f32("2x2", 2, -4, 6, 8), 0);
    sb_session_free(session);
    /* Elsewhere it is unknown: kept, but not run. */
    session = NULL;
    assert_int_equal(sb_model_clone(other, model, &clone), SB_OK);
    assert_int_equal(sb_session_create(clone, NULL, &session), SB_UNSUPPORTED);
    assert_non_null(strstr(sb_ctx_error(other), "Double"));
    sb_memory_free(bytes);
    sb_model_free(clone);
    sb_model_free(back);
    sb_model_free(model);
    sb_ctx_free(other);
    sb_ctx_free(ctx);
}

static void test_operator_that_fails(void **state)
{
    (void)state;
    sb_ctx *ctx = new_ctx();
    sb_op_plugin op = double_op();
    const sb_tensor *x = test_f32("1x2", 1, 2), *y = NULL;
    sb_model *model = NULL;
    sb_session *session = NULL;

    op.user = ctx;
    assert_int_equal(sb_ctx_add_op(ctx, &op), SB_OK);
    assert_int_equal(sb_model_parse(ctx, doubled, &model), SB_OK);
    assert_int_equal(sb_session_create(model, NULL, &session), SB_OK);
    assert_int_equal(sb_session_run(session, &x, 1, &y, 1), SB_UNSUPPORTED);
    assert_non_null(strstr(sb_ctx_error(ctx), "node 'b' (Double)"));
    assert_non_null(strstr(sb_ctx_error(ctx), "it does not want to"));
    sb_session_free(session);
    sb_model_free(model);
    sb_ctx_free(ctx);
}

/* ---- names -------------------------------------------------------------- */

static sb_status no_range(void *user, const sb_observer_values *v, float *least,
                          float *most)
{
    (void)user;
    *least = v->least;
    *most = v->most;
    return SB_BAD_DATA;
}

static sb_status no_pass(void *user, sb_model *model, size_t *changes)
{
    (void)user;
    (void)model;
    (void)changes;
    return SB_OK;
}

static sb_status no_open(void *user, sb_source_call *call, void **state)
{
    (void)user;
    *state = NULL;
    return sb_source_open_fail(call, SB_IO, "the camera is off");
}

static sb_status no_sample(void *user, void *state, size_t i,
                           const sb_tensor **tensors)
{
    (void)user;
    (void)state;
    (void)i;
    (void)tensors;
    return SB_OK;
}

static void test_names_that_are_taken(void **state)
{
    (void)state;
    sb_op_plugin op = double_op();
    sb_pass_plugin pass = SB_PASS_PLUGIN_INIT;
    sb_observer_plugin observer = SB_OBSERVER_PLUGIN_INIT;
    sb_criterion_plugin criterion = SB_CRITERION_PLUGIN_INIT;
    sb_quantizer_plugin quantizer = SB_QUANTIZER_PLUGIN_INIT;
    sb_source_plugin source = SB_SOURCE_PLUGIN_INIT;
    sb_ctx *ctx = new_ctx();

    assert_int_equal(sb_ctx_add_op(ctx, &op), SB_OK);
    assert_int_equal(sb_ctx_add_op(ctx, &op), SB_BAD_ARG);
    assert_string_equal(sb_ctx_error(ctx),
                        "there is an operator 'Double' already");
    op.domain = "com.microsoft";
    op.name = "Gelu";
    assert_int_equal(sb_ctx_add_op(ctx, &op), SB_BAD_ARG);
    op.domain = "";
    op.name = "Mine";
    assert_int_equal(sb_ctx_add_op(ctx, &op), SB_BAD_ARG);
    pass.run = no_pass;
    pass.name = "cse";
    assert_int_equal(sb_ctx_add_pass(ctx, &pass), SB_BAD_ARG);
    assert_string_equal(sb_ctx_error(ctx), "there is a pass 'cse' already");
    pass.name = "simplify"; /* a pipeline */
    assert_int_equal(sb_ctx_add_pass(ctx, &pass), SB_BAD_ARG);
    observer.range = no_range;
    observer.name = "minmax";
    assert_int_equal(sb_ctx_add_observer(ctx, &observer), SB_BAD_ARG);
    observer.name = "Mine";
    assert_int_equal(sb_ctx_add_observer(ctx, &observer), SB_BAD_ARG);
    assert_non_null(strstr(sb_ctx_error(ctx), "want small letters"));
    quantizer.name = "uniform";
    assert_int_equal(sb_ctx_add_quantizer(ctx, &quantizer), SB_BAD_ARG);
    quantizer.name = NULL;
    assert_int_equal(sb_ctx_add_quantizer(ctx, &quantizer), SB_BAD_ARG);
    criterion.name = "l1norm";
    assert_int_equal(sb_ctx_add_criterion(ctx, &criterion), SB_BAD_ARG);
    criterion.name = "mine";
    assert_int_equal(sb_ctx_add_criterion(ctx, &criterion), SB_BAD_ARG);
    assert_string_equal(sb_ctx_error(ctx),
                        "criterion 'mine': score or weigh must be set");
    source.open = no_open;
    source.sample = no_sample;
    source.name = "npy";
    assert_int_equal(sb_ctx_add_source(ctx, &source), SB_BAD_ARG);
    source.name = "camera";
    assert_int_equal(sb_ctx_add_source(ctx, &source), SB_OK);
    assert_int_equal(sb_ctx_add_source(ctx, &source), SB_BAD_ARG);
    sb_ctx_free(ctx);
}

static bool is_listed(sb_ctx *ctx, const char *list, const char *name)
{
    const sb_listing *row;

    for (size_t i = 0; (row = sb_list_get(ctx, list, i)) != NULL; i++)
        if (strcmp(row->name, name) == 0)
            return true;
    return false;
}

static void test_lists_have_them(void **state)
{
    (void)state;
    sb_op_plugin op = double_op();
    sb_pass_plugin pass = SB_PASS_PLUGIN_INIT;
    sb_observer_plugin observer = SB_OBSERVER_PLUGIN_INIT;
    sb_quantizer_plugin quantizer = SB_QUANTIZER_PLUGIN_INIT;
    sb_ctx *ctx = new_ctx();

    pass.name = "nothing";
    pass.run = no_pass;
    observer.name = "mine";
    observer.range = no_range;
    quantizer.name = "plain";
    assert_int_equal(sb_ctx_add_op(ctx, &op), SB_OK);
    assert_int_equal(sb_ctx_add_pass(ctx, &pass), SB_OK);
    assert_int_equal(sb_ctx_add_observer(ctx, &observer), SB_OK);
    assert_int_equal(sb_ctx_add_quantizer(ctx, &quantizer), SB_OK);
    assert_true(is_listed(ctx, "ops", "Double"));
    assert_true(is_listed(ctx, "passes", "nothing"));
    assert_true(is_listed(ctx, "observers", "mine"));
    assert_true(is_listed(ctx, "quantizers", "plain"));
    assert_false(is_listed(test_ctx(), "ops", "Double"));
    assert_false(is_listed(test_ctx(), "observers", "mine"));
    sb_ctx_free(ctx);
}

/* ---- observers and quantizers ------------------------------------------- */

typedef struct watched {
    pthread_t thread;
    int calls;
} watched;

/* Half of what was seen. */
static sb_status half_range(void *user, const sb_observer_values *v,
                            float *least, float *most)
{
    watched *w = user;

    assert_true(pthread_equal(w->thread, pthread_self()));
    assert_close("parameter", v->params[0], 0.5, 0);
    w->calls++;
    *least = v->least * (float)v->params[0];
    *most = v->most * (float)v->params[0];
    return SB_OK;
}

#define OBSERVED(type)                                                     \
    "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: 8}, OBSERVER: "  \
    "{TYPE: " type "}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: " \
    "8}, OBSERVER: {TYPE: " type "}}\n"

static const char conv[] = "graph g(x: f32[N,2,4,4]) -> (y) {\n"
                           "  w: f32[8,2,3,3] = random(1)\n"
                           "  y = Conv(x, w) \"c\"\n"
                           "}\n";

static sb_status calibrated(sb_ctx *ctx, const char *config,
                            sb_quant_model **out)
{
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    const sb_tensor *x = test_random(SB_DTYPE_F32, "2x2x4x4", 5);
    sb_model *model = NULL;
    sb_status s = sb_model_parse(ctx, conv, &model);

    opt.config_text = config;
    if (s == SB_OK)
        s = sb_quant_model_create(model, &opt, out);
    sb_model_free(model);
    if (s == SB_OK)
        s = sb_quant_model_prepare_calibration(*out, NULL);
    if (s == SB_OK)
        s = sb_quant_model_forward(*out, &x, 1, NULL, 0);
    return s == SB_OK ? sb_quant_model_calc_qparams(*out) : s;
}

static void test_observer_on_the_calling_thread(void **state)
{
    (void)state;
    watched w = {.thread = pthread_self()};
    sb_plugin_param param = SB_PLUGIN_PARAM_INIT;
    const sb_plugin_param *params[] = {&param};
    sb_observer_plugin observer = SB_OBSERVER_PLUGIN_INIT;
    sb_quant_model *half = NULL, *whole = NULL;
    sb_ctx *ctx = new_ctx();

    param.key = "PART";
    param.help = "of what was seen";
    param.preset = 0.5;
    observer.name = "half";
    observer.summary = "a part of the range";
    observer.user = &w;
    observer.params = params;
    observer.n_params = 1;
    observer.range = half_range;
    sb_ctx_set_threads(ctx, 4);
    assert_int_equal(sb_ctx_add_observer(ctx, &observer), SB_OK);
    assert_int_equal(calibrated(ctx, OBSERVED("half"), &half), SB_OK);
    assert_int_equal(calibrated(ctx, OBSERVED("minmax"), &whole), SB_OK);
    assert_int_equal(w.calls, 1 + 8); /* an input, 8 channels of a weight */
    for (size_t i = 0; i < sb_quant_model_quantizer_count(half); i++) {
        const sb_quantizer_info *a = sb_quant_model_quantizer(half, i);
        const sb_quantizer_info *b = sb_quant_model_quantizer(whole, i);

        assert_int_equal(a->n, b->n);
        for (size_t k = 0; k < a->n; k++)
            assert_close("scale", a->scale[k], (double)b->scale[k] / 2,
                         1e-6 * (double)b->scale[k]);
    }
    sb_quant_model_free(half);
    sb_quant_model_free(whole);
    sb_ctx_free(ctx);
}

static void test_observer_that_fails(void **state)
{
    (void)state;
    sb_observer_plugin observer = SB_OBSERVER_PLUGIN_INIT;
    sb_quant_model *qm = NULL;
    sb_ctx *ctx = new_ctx();

    observer.name = "broken";
    observer.range = no_range;
    assert_int_equal(sb_ctx_add_observer(ctx, &observer), SB_OK);
    assert_int_equal(calibrated(ctx, OBSERVED("broken"), &qm), SB_BAD_DATA);
    assert_non_null(strstr(sb_ctx_error(ctx), "observer 'broken' gives no"));
    sb_quant_model_free(qm);
    qm = NULL;
    /* Not for weights, as the configuration is told. */
    observer.name = "inputs_only";
    observer.for_weights = 0;
    assert_int_equal(sb_ctx_add_observer(ctx, &observer), SB_OK);
    assert_int_equal(calibrated(ctx, OBSERVED("inputs_only"), &qm),
                     SB_BAD_CONFIG);
    assert_non_null(strstr(sb_ctx_error(ctx), "OBSERVER.TYPE"));
    sb_quant_model_free(qm);
    sb_ctx_free(ctx);
}

/* Tanh of everything, as "dorefa" does with activations, in both. */
static void tanh_weight(void *user, const double *params, float *weight,
                        size_t n)
{
    (void)user;
    (void)params;
    for (size_t i = 0; i < n; i++)
        weight[i] = tanhf(weight[i]);
}

static void test_quantizer_maps_both(void **state)
{
    (void)state;
    static const char config[] =
        "W: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 16, TYPE: "
        "squash}}\nA: {QSCHEME: per-tensor-symmetric, QUANTIZER: {BIT: 16, "
        "TYPE: squash}}\n";
    static const char want_text[] = "graph g(x: f32[N,2,4,4]) -> (y) {\n"
                                    "  w: f32[8,2,3,3] = random(1)\n"
                                    "  a = Tanh(x)\n"
                                    "  b = Tanh(w)\n"
                                    "  y = Conv(a, b)\n"
                                    "}\n";
    sb_quantizer_plugin quantizer = SB_QUANTIZER_PLUGIN_INIT;
    const sb_tensor *x = test_random(SB_DTYPE_F32, "2x2x4x4", 5);
    const sb_tensor *got = NULL, *want = NULL;
    sb_quant_model *qm = NULL;
    sb_model *model = NULL;
    sb_session *session = NULL;
    sb_ctx *ctx = new_ctx();

    quantizer.name = "squash";
    quantizer.map_weight = tanh_weight;
    quantizer.map_activation = "Tanh";
    assert_int_equal(sb_ctx_add_quantizer(ctx, &quantizer), SB_OK);
    assert_int_equal(calibrated(ctx, config, &qm), SB_OK);
    sb_quant_model_set_quant(qm, 1, 1);
    assert_int_equal(sb_quant_model_forward(qm, &x, 1, &got, 1), SB_OK);
    assert_int_equal(sb_model_parse(ctx, want_text, &model), SB_OK);
    assert_int_equal(sb_session_create(model, NULL, &session), SB_OK);
    assert_int_equal(sb_session_run(session, &x, 1, &want, 1), SB_OK);
    assert_tensor("squashed", got, want, 1e-3); /* of 16 bits */
    sb_session_free(session);
    sb_model_free(model);
    sb_quant_model_free(qm);
    sb_ctx_free(ctx);
}

/* ---- passes and sources ------------------------------------------------- */

/* Puts the attribute of LeakyRelu right, removes what nothing reads. */
static sb_status edit(void *user, sb_model *model, size_t *changes)
{
    int *round = user;
    int done = 0;

    if ((*round)++ > 0)
        return SB_OK;
    assert_int_equal(sb_model_remove_node(model, "a"), SB_BAD_ARG);
    assert_int_equal(sb_model_remove_node(model, "x"), SB_BAD_ARG);
    assert_int_equal(sb_model_set_attrs(model, "y", "alpha=0.5"), SB_OK);
    assert_int_equal(sb_model_replace_value(model, "a", "x", &done), SB_OK);
    assert_true(done);
    assert_int_equal(sb_model_remove_node(model, "a"), SB_OK);
    *changes += 3;
    return SB_OK;
}

static void test_pass_edits_by_name(void **state)
{
    (void)state;
    sb_pass_plugin pass = SB_PASS_PLUGIN_INIT;
    sb_simplify_options opt = SB_SIMPLIFY_OPTIONS_INIT;
    const sb_tensor *x = test_f32("2", -4, 4), *y = NULL;
    sb_session *session = NULL;
    sb_model *model = NULL;
    sb_ctx *ctx = new_ctx();
    int round = 0;

    pass.name = "edit";
    pass.user = &round;
    pass.run = edit;
    opt.passes = "edit";
    assert_int_equal(sb_model_parse(ctx,
                                    "graph g(x: f32[2]) -> (y) {\n"
                                    "  a = Neg(x)\n"
                                    "  y = LeakyRelu(a) {alpha=0.1}\n}",
                                    &model),
                     SB_OK);
    assert_int_equal(sb_model_simplify(model, &opt, NULL, NULL), SB_BAD_ARG);
    assert_int_equal(sb_ctx_add_pass(ctx, &pass), SB_OK);
    assert_int_equal(sb_model_simplify(model, &opt, NULL, NULL), SB_OK);
    assert_true(round >= 2);
    assert_int_equal(sb_session_create(model, NULL, &session), SB_OK);
    assert_int_equal(sb_session_run(session, &x, 1, &y, 1), SB_OK);
    assert_tensor("edited", y, test_f32("2", -2, 4), 0);
    sb_session_free(session);
    sb_model_free(model);
    sb_ctx_free(ctx);
}

static void test_source_that_cannot_be_opened(void **state)
{
    (void)state;
    sb_source_plugin source = SB_SOURCE_PLUGIN_INIT;
    sb_data *data = NULL;
    sb_ctx *ctx = new_ctx();

    source.name = "camera";
    source.open = no_open;
    source.sample = no_sample;
    assert_int_equal(sb_ctx_add_source(ctx, &source), SB_OK);
    assert_int_equal(
        sb_data_parse(ctx, "SOURCE: camera\n", "d.yaml", NULL, &data), SB_IO);
    assert_non_null(strstr(sb_ctx_error(ctx), "d.yaml:1"));
    assert_non_null(strstr(sb_ctx_error(ctx), "the camera is off"));
    assert_int_not_equal(
        sb_data_parse(test_ctx(), "SOURCE: camera\n", "d.yaml", NULL, &data),
        SB_OK);
    sb_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operator_runs_where_it_was_added),
        cmocka_unit_test(test_operator_that_fails),
        cmocka_unit_test(test_names_that_are_taken),
        cmocka_unit_test(test_lists_have_them),
        cmocka_unit_test(test_observer_on_the_calling_thread),
        cmocka_unit_test(test_observer_that_fails),
        cmocka_unit_test(test_quantizer_maps_both),
        cmocka_unit_test(test_pass_edits_by_name),
        cmocka_unit_test(test_source_that_cannot_be_opened),
    };
    return cmocka_run_group_tests_name("plug-ins", tests, NULL, NULL);
}
