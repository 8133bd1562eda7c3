/* What holds for all of the public interface: sizes of structs, contexts,
 * indices, counts, interruption, progress, threads. */
#include "sbtest.h"

#include <pthread.h>

#include <sparsebit/train.h>

#include "base/options.h"

static const char mlp[] = "graph mlp(x: f32[N,2]) -> (y, z) {\n"
                          "  w: f32[2,3] = [1, 2, 3, 4, 5, 6]\n"
                          "  y = MatMul(x, w)\n"
                          "  z = Relu(y)\n"
                          "}\n";

static sb_model *parse_in(sb_ctx *ctx)
{
    sb_model *model = NULL;

    if (sb_model_parse(ctx, mlp, &model) != SB_OK)
        fail_msg("%s", sb_ctx_error(ctx));
    return model;
}

/* ---- sizes -------------------------------------------------------------- */

/* Options of a program that was built with a newer header. */
typedef struct newer_options {
    sb_session_options known;
    int64_t unknown;
} newer_options;

static void test_unknown_fields_are_refused_unless_zero(void **state)
{
    (void)state;
    sb_model *model = parse_in(test_ctx());
    newer_options opt = {.known = SB_SESSION_OPTIONS_INIT};
    sb_session *session = NULL;

    opt.known.struct_size = sizeof opt;
    assert_ok(sb_session_create(model, &opt.known, &session));
    sb_session_free(session);
    session = NULL;
    opt.unknown = 1;
    assert_status(sb_session_create(model, &opt.known, &session), SB_BAD_ARG);
    assert_error_has("sb_session_options: sets fields that version");
    assert_null(session);
    opt.known.struct_size = 0; /* no INIT macro */
    assert_status(sb_session_create(model, &opt.known, &session), SB_BAD_ARG);
    assert_error_has("struct_size is 0");
    sb_model_free(model);
}

static void test_every_struct_says_its_name(void **state)
{
    (void)state;
    sb_model *model = parse_in(test_ctx());
    const sb_quant_options quant = {.struct_size = 1};
    const sb_calibration_options calibration = {.struct_size = 1};
    const sb_export_options export_options = {.struct_size = 1};
    const sb_simplify_options simplify = {.struct_size = 1};
    const sb_data_options data_options = {.struct_size = 1};
    const sb_allocator alloc = {.struct_size = 1};
    const sb_batch batch = {.struct_size = 1};
    sb_train_check check = {.struct_size = 1};
    const sb_tensor *out = NULL;
    sb_session *session = NULL;
    sb_quant_model *qm = NULL;
    sb_model *exported = NULL;
    sb_data *data = NULL;
    sb_ctx *ctx = NULL;

    assert_status(sb_quant_model_create(model, &quant, &qm), SB_BAD_ARG);
    assert_error_has("sb_quant_options");
    assert_ok(sb_quant_model_create(model, NULL, &qm));
    assert_status(sb_quant_model_prepare_calibration(qm, &calibration),
                  SB_BAD_ARG);
    assert_error_has("sb_calibration_options");
    assert_status(sb_quant_model_train(qm, NULL, NULL, NULL, &check),
                  SB_BAD_ARG);
    assert_error_has("sb_train_check");
    assert_status(sb_quant_model_export_model(qm, &export_options, &exported),
                  SB_BAD_ARG);
    assert_error_has("sb_export_options");
    assert_status(sb_model_simplify(model, &simplify, NULL, NULL), SB_BAD_ARG);
    assert_error_has("sb_simplify_options");
    assert_status(sb_data_parse(test_ctx(), "SOURCE: npy", "d.yaml",
                                &data_options, &data),
                  SB_BAD_ARG);
    assert_error_has("sb_data_options");
    assert_ok(sb_session_create(model, NULL, &session));
    assert_status(sb_session_run_batch(session, &batch, &out, 1), SB_BAD_ARG);
    assert_error_has("sb_batch");
    assert_status(sb_ctx_create(&alloc, &ctx), SB_BAD_ARG);
    sb_session_free(session);
    sb_quant_model_free(qm);
    sb_model_free(model);
}

/* Results go as far as the caller's struct does. */
static void test_results_fit_structs_of_any_size(void **state)
{
    struct {
        size_t struct_size;
        int64_t a, b;
    } out = {.b = 7};
    const int64_t found[] = {24, 1, 2};

    (void)state;
    out.struct_size = sizeof out - sizeof out.b;
    sb_options_write(found, sizeof found, &out);
    assert_int_equal(out.struct_size, sizeof out - sizeof out.b);
    assert_int_equal(out.a, 1);
    assert_int_equal(out.b, 7);
    out.struct_size = sizeof out;
    sb_options_write(found, sizeof found - sizeof found[0], &out);
    assert_int_equal(out.b, 7); /* of a newer header */
    sb_options_write(found, sizeof found, &out);
    assert_int_equal(out.b, 2);
}

/* ---- contexts ----------------------------------------------------------- */

static void test_contexts_do_not_mix(void **state)
{
    (void)state;
    static const char text[] = "SOURCE: npy\nPATH: rules_x.npy\n";
    sb_ctx *other = NULL;
    sb_data *data = NULL;

    assert_int_equal(sb_ctx_create(NULL, &other), SB_OK);
    sb_model *model = parse_in(other);
    assert_ok(sb_tensor_save(test_ctx(), "/tmp/rules_x.npy",
                             test_f32("2x2", 1, 2, 3, 4)));
    assert_ok(sb_data_parse(test_ctx(), text, "/tmp/data.yaml", NULL, &data));
    assert_status(sb_data_set_model(data, model), SB_BAD_ARG);
    assert_error_has("the model belongs to another context");
    sb_model *here = NULL;
    assert_ok(sb_model_clone(test_ctx(), model, &here));
    assert_ok(sb_data_set_model(data, here));
    sb_data_free(data);
    sb_model_free(here);
    sb_model_free(model);
    sb_ctx_free(other);
    (void)remove("/tmp/rules_x.npy");
}

static void test_errors_belong_to_their_context(void **state)
{
    (void)state;
    sb_ctx *a = NULL, *b = NULL;
    sb_model *model = NULL;

    assert_string_equal(sb_ctx_error(NULL), "there is no context");
    assert_int_equal(sb_ctx_create(NULL, &a), SB_OK);
    assert_int_equal(sb_ctx_create(NULL, &b), SB_OK);
    assert_int_equal(sb_ctx_status(a), SB_OK);
    assert_int_not_equal(sb_model_parse(a, "nonsense", &model), SB_OK);
    assert_int_not_equal(sb_ctx_status(a), SB_OK);
    assert_int_equal(sb_ctx_status(b), SB_OK);
    assert_string_equal(sb_ctx_error(b), "success");
    sb_ctx_free(a);
    sb_ctx_free(b);
}

static void test_version_macros_tell_the_truth(void **state)
{
    (void)state;
    char text[32];

    (void)snprintf(text, sizeof text, "%d.%d.%d", SB_VERSION_MAJOR,
                   SB_VERSION_MINOR, SB_VERSION_PATCH);
    assert_string_equal(sb_version(), text);
    assert_int_equal(sb_version_number(), SB_VERSION_NUMBER);
}

/* ---- indices and counts ------------------------------------------------- */

static void test_indices_out_of_range(void **state)
{
    (void)state;
    sb_model *model = parse_in(test_ctx());
    sb_quant_model *qm = NULL;
    sb_eval *eval = NULL;
    sb_key_list *keys = NULL;
    double unused;

    assert_non_null(sb_model_input(model, 0));
    assert_null(sb_model_input(model, 1));
    assert_null(sb_model_output(model, 2));
    assert_null(sb_model_metadata_key(model, 0));
    assert_int_equal(sb_model_find_output(model, "z"), 1);
    assert_true(sb_model_find_output(model, "x") == SB_NO_INDEX);
    assert_true(sb_model_find_input(model, "w") == SB_NO_INDEX);
    assert_ok(sb_quant_model_create(model, NULL, &qm));
    size_t n = sb_quant_model_quantizer_count(qm);
    assert_true(n > 0);
    assert_non_null(sb_quant_model_quantizer(qm, n - 1));
    assert_null(sb_quant_model_quantizer(qm, n));
    assert_ok(sb_eval_create(test_ctx(), 2, NULL, &eval));
    assert_true(sb_eval_output(eval, 1, &unused, &unused));
    assert_false(sb_eval_output(eval, 2, &unused, &unused));
    assert_ok(sb_config_keys(test_ctx(), "W.QUANTIZER", &keys));
    assert_non_null(sb_key_list_get(keys, sb_key_list_count(keys) - 1));
    assert_null(sb_key_list_get(keys, sb_key_list_count(keys)));
    sb_key_list_free(keys);
    sb_eval_free(eval);
    sb_quant_model_free(qm);
    sb_model_free(model);
}

static void test_wrong_counts_are_refused(void **state)
{
    (void)state;
    sb_model *model = parse_in(test_ctx());
    const sb_tensor *x = test_f32("1x2", 1, 1), *none = NULL;
    const sb_tensor *in[] = {x, x}, *out[3];
    sb_session *session = NULL;
    sb_quant_model *qm = NULL;

    assert_ok(sb_session_create(model, NULL, &session));
    assert_status(sb_session_run(session, in, 2, out, 2), SB_BAD_ARG);
    assert_error_has("got 2 inputs, want 1");
    assert_status(sb_session_run(session, in, 1, out, 3), SB_BAD_ARG);
    assert_error_has("got 3 outputs, want at most 2");
    assert_status(sb_session_run(session, &none, 1, out, 2), SB_BAD_ARG);
    assert_error_has("input 'x' is missing");
    assert_ok(sb_session_run(session, in, 1, out, 1));
    assert_tensor("y", out[0], test_f32("1x3", 5, 7, 9), 0);
    assert_ok(sb_quant_model_create(model, NULL, &qm));
    assert_status(sb_quant_model_forward(qm, in, 2, out, 2), SB_BAD_ARG);
    assert_status(sb_quant_model_forward(qm, in, 1, out, 3), SB_BAD_ARG);
    assert_status(sb_quant_model_forward(qm, &none, 1, out, 2), SB_BAD_ARG);
    assert_ok(sb_quant_model_forward(qm, in, 1, out, 2));
    assert_tensor("z", out[1], test_f32("1x3", 5, 7, 9), 0);
    sb_quant_model_free(qm);
    sb_session_free(session);
    sb_model_free(model);
}

/* ---- interruption and progress ------------------------------------------ */

static void test_interrupt_can_be_cleared(void **state)
{
    (void)state;
    sb_model *model = parse_in(test_ctx());
    const sb_tensor *x = test_f32("1x2", 1, 1), *out[2];
    sb_session *session = NULL;

    assert_ok(sb_session_create(model, NULL, &session));
    sb_ctx_interrupt(test_ctx());
    assert_status(sb_session_run(session, &x, 1, out, 2), SB_INTERRUPTED);
    assert_status(sb_model_simplify(model, NULL, NULL, NULL), SB_INTERRUPTED);
    sb_ctx_clear_interrupt(test_ctx());
    assert_ok(sb_session_run(session, &x, 1, out, 2));
    assert_tensor("y", out[0], test_f32("1x3", 5, 7, 9), 0);
    assert_ok(sb_model_simplify(model, NULL, NULL, NULL));
    sb_session_free(session);
    sb_model_free(model);
}

typedef struct seen_progress {
    char stages[512]; /* each once, in order of appearance */
    const char *end_at;
    pthread_t thread;
} seen_progress;

static int watch(void *user, const char *stage, size_t done, size_t total)
{
    seen_progress *seen = user;

    assert_true(total == 0 || done <= total);
    assert_true(pthread_equal(seen->thread, pthread_self()));
    if (!strstr(seen->stages, stage)) {
        size_t used = strlen(seen->stages);
        (void)snprintf(seen->stages + used, sizeof seen->stages - used, "%s ",
                       stage);
    }
    return seen->end_at && strcmp(stage, seen->end_at) == 0;
}

/* Everything that can take long, from a file to a quantized one. */
static sb_status whole_way(sb_ctx *ctx, const char *path)
{
    const sb_tensor *x = test_f32("2x2", 1, 2, 3, 4);
    sb_model *made = NULL, *model = NULL;
    sb_session *session = NULL;
    sb_quant_model *qm = NULL;
    void *bytes = NULL;
    size_t size = 0;
    sb_status s = sb_model_parse(ctx, mlp, &made);

    if (s == SB_OK)
        s = sb_model_save(made, path);
    if (s == SB_OK)
        s = sb_model_load(ctx, path, &model);
    if (s == SB_OK)
        s = sb_model_simplify(model, NULL, NULL, NULL);
    if (s == SB_OK)
        s = sb_session_create(model, NULL, &session);
    if (s == SB_OK)
        s = sb_session_run(session, &x, 1, NULL, 0);
    if (s == SB_OK)
        s = sb_quant_model_create(model, NULL, &qm);
    if (s == SB_OK)
        s = sb_quant_model_prepare_calibration(qm, NULL);
    if (s == SB_OK)
        s = sb_quant_model_forward(qm, &x, 1, NULL, 0);
    if (s == SB_OK)
        s = sb_quant_model_calc_qparams(qm);
    if (s == SB_OK)
        s = sb_quant_model_export_memory(qm, NULL, &bytes, &size);
    sb_memory_free(bytes);
    sb_quant_model_free(qm);
    sb_session_free(session);
    sb_model_free(model);
    sb_model_free(made);
    return s;
}

static void test_every_long_call_can_be_ended(void **state)
{
    (void)state;
    static const char *const stages[] = {"save",    "load",   "passes",
                                         "prepare", "scales", "export"};
    seen_progress seen = {.thread = pthread_self()};
    sb_ctx *ctx = test_ctx();
    const char *path = "/tmp/rules_progress.onnx";

    sb_ctx_set_progress(ctx, watch, &seen);
    assert_ok(whole_way(ctx, path));
    for (size_t i = 0; i < SB_COUNT(stages); i++) {
        if (!strstr(seen.stages, stages[i]))
            fail_msg("no stage '%s' among %s", stages[i], seen.stages);
        seen.end_at = stages[i];
        assert_status(whole_way(ctx, path), SB_INTERRUPTED);
        assert_error_has("ended by the progress callback");
        seen.end_at = NULL;
        assert_ok(whole_way(ctx, path));
    }
    sb_ctx_set_progress(ctx, NULL, NULL);
    (void)remove(path);
}

/* ---- threads ------------------------------------------------------------ */

enum { THREADS = 4, RUNS = 50 };

typedef struct worker {
    const sb_model *model; /* of another context, shared by all */
    int number;
    bool right;
} worker;

/* A context and a clone of its own; a session over weights that all share. */
static void *run_clone(void *user)
{
    worker *w = user;
    float numbers[2] = {(float)w->number, 1};
    const int64_t dims[] = {1, 2};
    sb_ctx *ctx = NULL;
    sb_model *clone = NULL;
    sb_session *session = NULL;
    sb_tensor *x = NULL;
    sb_status s = sb_ctx_create(NULL, &ctx);

    sb_ctx_set_threads(ctx, 2);
    if (s == SB_OK)
        s = sb_model_clone(ctx, w->model, &clone);
    if (s == SB_OK)
        s = sb_session_create(clone, NULL, &session);
    if (s == SB_OK)
        s = sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, numbers, NULL, NULL, &x);
    w->right = s == SB_OK;
    for (int i = 0; i < RUNS && w->right; i++) {
        const sb_tensor *y = NULL;
        double v[3] = {0};

        w->right = sb_session_run(session, (const sb_tensor *[]){x}, 1, &y,
                                  1) == SB_OK &&
                   sb_tensor_read_f64(y, 0, 3, v) && v[0] == w->number + 4 &&
                   v[1] == 2 * w->number + 5 && v[2] == 3 * w->number + 6;
    }
    sb_tensor_free(x);
    sb_session_free(session);
    sb_model_free(clone);
    sb_ctx_free(ctx);
    return NULL;
}

static void test_one_model_on_several_threads(void **state)
{
    (void)state;
    sb_model *model = parse_in(test_ctx());
    pthread_t threads[THREADS];
    worker workers[THREADS];

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.model = model, .number = i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, run_clone, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(workers[i].right);
    }
    sb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_fields_are_refused_unless_zero),
        cmocka_unit_test(test_every_struct_says_its_name),
        cmocka_unit_test(test_results_fit_structs_of_any_size),
        cmocka_unit_test(test_contexts_do_not_mix),
        cmocka_unit_test(test_errors_belong_to_their_context),
        cmocka_unit_test(test_version_macros_tell_the_truth),
        cmocka_unit_test(test_indices_out_of_range),
        cmocka_unit_test(test_wrong_counts_are_refused),
        cmocka_unit_test(test_interrupt_can_be_cleared),
        cmocka_unit_test(test_every_long_call_can_be_ended),
        cmocka_unit_test(test_one_model_on_several_threads),
    };
    return cmocka_run_group_tests_name("api rules", tests, NULL, NULL);
}
