/* The public interface without files: tensors in memory of the caller, elements
 * of all types, outputs that are kept, models and configurations in memory. */
#include "sbtest.h"

static const char net[] = "graph net(a: f32[N,2], b: f32[N,2]) -> (s, d) {\n"
                          "  s = Add(a, b)\n"
                          "  d = Sub(a, b)\n"
                          "}\n";

static void count_release(void *user)
{
    ++*(int *)user;
}

/* ---- tensors ------------------------------------------------------------ */

static void test_wrapped_memory_is_not_copied(void **state)
{
    (void)state;
    float numbers[6] = {1, 2, 3, 4, 5, 6};
    const int64_t dims[] = {2, 3}, wrong[] = {2, -3}, huge[] = {INT64_MAX, 4};
    sb_ctx *ctx = test_ctx();
    sb_tensor *t = NULL, *copy = NULL;
    int released = 0;

    assert_ok(sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, numbers, count_release,
                             &released, &t));
    assert_ptr_equal(sb_tensor_data(t), numbers);
    assert_ptr_equal(sb_tensor_data_mutable(t), numbers);
    assert_ok(sb_tensor_copy(ctx, t, &copy));
    numbers[0] = 9;
    assert_close("wrapped", ((const float *)sb_tensor_data(t))[0], 9, 0);
    assert_close("copied", ((const float *)sb_tensor_data(copy))[0], 1, 0);
    assert_int_equal(released, 0);
    sb_tensor_free(t);
    assert_int_equal(released, 1);
    sb_tensor_free(copy);
    sb_tensor_free(NULL);
    t = NULL;
    assert_status(sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, wrong, numbers,
                                 count_release, &released, &t),
                  SB_BAD_ARG);
    assert_status(sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, huge, numbers,
                                 count_release, &released, &t),
                  SB_BAD_ARG);
    assert_status(sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, NULL,
                                 count_release, &released, &t),
                  SB_BAD_ARG);
    assert_status(sb_tensor_wrap(ctx, SB_DTYPE_STRING, 2, dims, numbers,
                                 count_release, &released, &t),
                  SB_BAD_ARG);
    assert_int_equal(released, 1); /* not of what failed */
    assert_null(t);
}

/* Values that all of these types hold; the numbers are ONNX's. */
static void test_elements_of_every_type(void **state)
{
    (void)state;
    static const sb_dtype types[] = {
        SB_DTYPE_F32, SB_DTYPE_U8,  SB_DTYPE_I8,       SB_DTYPE_U16,
        SB_DTYPE_I16, SB_DTYPE_I32, SB_DTYPE_I64,      SB_DTYPE_F16,
        SB_DTYPE_F64, SB_DTYPE_U32, SB_DTYPE_U64,      SB_DTYPE_BF16,
        SB_DTYPE_U4,  SB_DTYPE_I4,  SB_DTYPE_F8E4M3FN, SB_DTYPE_F4E2M1,
    };
    enum { N = 131 }; /* more than two chunks, not a whole number of bytes */
    const int64_t dims[] = {N};

    for (size_t k = 0; k < SB_COUNT(types); k++) {
        double in[N], out[N];
        int64_t whole[N];
        sb_tensor *t = NULL;

        for (int i = 0; i < N; i++)
            in[i] = i % 4;
        assert_ok(sb_tensor_create(test_ctx(), types[k], 1, dims, &t));
        assert_true(sb_tensor_write_f64(t, 0, N, in));
        assert_true(sb_tensor_read_f64(t, 0, N, out));
        assert_true(sb_tensor_read_i64(t, 0, N, whole));
        for (int i = 0; i < N; i++)
            if (out[i] != in[i] || whole[i] != i % 4)
                fail_msg("%s: element %d is %g", sb_dtype_name(types[k]), i,
                         out[i]);
        /* One in the middle; its neighbors stay. */
        assert_true(sb_tensor_write_i64(t, 65, 1, (const int64_t[]){3}));
        assert_true(sb_tensor_read_f64(t, 63, 5, out));
        assert_close("before", out[1], 64 % 4, 0);
        assert_close("written", out[2], 3, 0);
        assert_close("behind", out[3], 66 % 4, 0);
        assert_false(sb_tensor_read_f64(t, 130, 2, out));
        assert_false(sb_tensor_read_f64(t, -1, 1, out));
        assert_false(sb_tensor_write_f64(t, 0, N + 1, in));
        assert_true(sb_tensor_read_f64(t, N, 0, out));
        sb_tensor_free(t);
    }
}

/* Conversions as ONNX Cast defines them. */
static void test_elements_are_converted(void **state)
{
    (void)state;
    const int64_t dims[] = {3};
    const double in[] = {2.7, -2.7, 300};
    int64_t whole[3];
    double out[3];
    sb_tensor *t = NULL;

    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F32, 1, dims, &t));
    assert_true(sb_tensor_write_f64(t, 0, 3, in));
    assert_true(sb_tensor_read_i64(t, 0, 3, whole));
    assert_int_equal(whole[0], 2);
    assert_int_equal(whole[1], -2);
    assert_int_equal(whole[2], 300);
    sb_tensor_free(t);
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_F16, 1, dims, &t));
    assert_true(sb_tensor_write_f64(t, 0, 3, in));
    assert_true(sb_tensor_read_f64(t, 0, 3, out));
    assert_close("half", out[0], 2.69921875, 0); /* 11 bits of 2.7 */
    sb_tensor_free(t);
}

static void test_strings_are_copied_and_read(void **state)
{
    (void)state;
    static const char *const words[] = {"cat", "", "a longer one"};
    const int64_t dims[] = {3};
    sb_tensor *t = NULL, *copy = NULL, *empty = NULL;
    double unused;
    size_t len = 9;

    assert_ok(sb_tensor_create_strings(test_ctx(), 1, dims, words, &t));
    assert_ok(sb_tensor_copy(test_ctx(), t, &copy));
    sb_tensor_free(t);
    assert_int_equal(sb_tensor_dtype(copy), SB_DTYPE_STRING);
    assert_null(sb_tensor_data(copy));
    for (int i = 0; i < 3; i++)
        assert_string_equal(sb_tensor_string(copy, i, &len), words[i]);
    assert_int_equal(len, strlen(words[2]));
    assert_null(sb_tensor_string(copy, 3, NULL));
    assert_null(sb_tensor_string(copy, -1, NULL));
    assert_false(sb_tensor_read_f64(copy, 0, 1, &unused));
    assert_ok(sb_tensor_create(test_ctx(), SB_DTYPE_STRING, 1, dims, &empty));
    assert_string_equal(sb_tensor_string(empty, 2, &len), "");
    assert_int_equal(len, 0);
    sb_tensor_free(empty);
    sb_tensor_free(copy);
}

/* ---- outputs ------------------------------------------------------------ */

static void test_run_into_memory_of_the_caller(void **state)
{
    (void)state;
    float sums[4] = {0}, small[2] = {0};
    const int64_t dims[] = {2, 2}, other[] = {1, 2};
    sb_ctx *ctx = test_ctx();
    const sb_tensor *in[] = {test_f32("2x2", 1, 2, 3, 4),
                             test_f32("2x2", 10, 20, 30, 40)};
    sb_tensor *out[2] = {NULL, NULL}, *wrong = NULL;
    sb_model *model = NULL;
    sb_session *session = NULL;

    assert_ok(sb_model_parse(ctx, net, &model));
    assert_ok(sb_session_create(model, NULL, &session));
    sb_model_free(model); /* not needed any more */
    assert_ok(
        sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, sums, NULL, NULL, &out[0]));
    assert_ok(sb_session_run_into(session, in, 2, out, 2));
    assert_close("sum", sums[3], 44, 0);
    assert_non_null(out[1]); /* made for us */
    in[0] = in[1];
    assert_ok(sb_session_run_into(session, in, 2, out, 1));
    assert_close("sum", sums[3], 80, 0);
    assert_tensor("kept", out[1], test_f32("2x2", -9, -18, -27, -36), 0);
    assert_ok(
        sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, other, small, NULL, NULL, &wrong));
    assert_status(sb_session_run_into(session, in, 2, &wrong, 1), SB_BAD_DATA);
    assert_error_has("output 's'");
    assert_close("untouched", small[0], 0, 0);
    sb_tensor_free(wrong);
    sb_session_free(session);
    sb_tensor_free(out[0]);
    sb_tensor_free(out[1]);
}

static void test_run_by_name(void **state)
{
    (void)state;
    static const char *const in_names[] = {"b", "a"}, *const out_names[] = {
                                                          "d"};
    const sb_tensor *in[] = {test_f32("1x2", 1, 2), test_f32("1x2", 10, 20)};
    const sb_tensor *d = NULL;
    sb_model *model = NULL;
    sb_session *session = NULL;

    assert_ok(sb_model_parse(test_ctx(), net, &model));
    assert_ok(sb_session_create(model, NULL, &session));
    assert_ok(sb_session_run_named(session, in_names, in, 2, out_names, &d, 1));
    assert_tensor("d", d, test_f32("1x2", 9, 18), 0);
    assert_status(
        sb_session_run_named(session, in_names, in, 1, out_names, &d, 1),
        SB_BAD_ARG);
    assert_status(sb_session_run_named(session, (const char *[]){"a", "a"}, in,
                                       2, out_names, &d, 1),
                  SB_BAD_ARG);
    assert_error_has("input 'b' is missing");
    assert_status(
        sb_session_run_named(session, in_names, in, 2, in_names, &d, 1),
        SB_BAD_ARG);
    assert_error_has("the model has no output 'b'");
    sb_session_free(session);
    sb_model_free(model);
}

/* ---- models ------------------------------------------------------------- */

/* A file and the same bytes in memory are one and the same. */
static void test_save_and_load_memory(void **state)
{
    (void)state;
    static char from_file[4096];
    const char *path = "/tmp/api_memory.onnx";
    sb_model *model = NULL, *back = NULL;
    void *bytes = NULL;
    size_t size = 0;

    assert_ok(sb_model_parse(test_ctx(), net, &model));
    assert_ok(sb_model_save(model, path));
    assert_ok(sb_model_save_memory(model, &bytes, &size));
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(from_file, 1, sizeof from_file, f), size);
    (void)fclose(f);
    assert_memory_equal(from_file, bytes, size);
    assert_ok(sb_model_load_memory(test_ctx(), bytes, size, NULL, &back));
    assert_string_equal(sb_model_output(back, 1)->name, "d");
    sb_memory_free(bytes);
    sb_memory_free(NULL);
    sb_model_free(back);
    sb_model_free(model);
    (void)remove(path);
}

static const char conv[] = "graph g(x: f32[N,2,4,4]) -> (y) {\n"
                           "  w: f32[3,2,3,3] = random(1)\n"
                           "  y = Conv(x, w)\n"
                           "}\n";

/* Quantized, exported and evaluated, and not one file. */
static void test_export_to_a_model(void **state)
{
    (void)state;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    const sb_tensor *x = test_random(SB_DTYPE_F32, "3x2x4x4", 1), *y = NULL;
    const sb_quant_value *const *values = NULL;
    sb_model *model = NULL, *quantized = NULL, *loaded = NULL;
    sb_quant_model *qm = NULL;
    sb_session *session = NULL;
    const sb_tensor *simulated = NULL;
    void *bytes = NULL;
    size_t size = 0, n = 0;

    opt.config_text = "W: {QSCHEME: per-channel-symmetric, QUANTIZER: {BIT: "
                      "5}}\nA: {QSCHEME: per-tensor-affine, QUANTIZER: {BIT: "
                      "8}}\n";
    assert_ok(sb_model_parse(test_ctx(), conv, &model));
    assert_ok(sb_quant_model_create(model, &opt, &qm));
    assert_status(sb_quant_model_export_model(qm, NULL, &quantized),
                  SB_BAD_ARG); /* no scales yet */
    assert_ok(sb_quant_model_prepare_calibration(qm, NULL));
    assert_ok(sb_quant_model_forward(qm, &x, 1, NULL, 0));
    assert_ok(sb_quant_model_calc_qparams(qm));
    assert_ok(sb_quant_model_export_model(qm, NULL, &quantized));
    assert_ok(sb_model_list_quantized(quantized, &values, &n));
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(values[i]->bits, values[i]->is_weight ? 5 : 8);
    /* The model, the bytes and the simulation compute the same. */
    sb_quant_model_set_quant(qm, 1, 1);
    assert_ok(sb_quant_model_forward(qm, &x, 1, &simulated, 1));
    assert_ok(sb_session_create(quantized, NULL, &session));
    assert_ok(sb_session_run(session, &x, 1, &y, 1));
    assert_tensor("model", y, simulated, 1e-5);
    sb_session_free(session);
    assert_ok(sb_quant_model_export_memory(qm, NULL, &bytes, &size));
    assert_ok(sb_model_load_memory(test_ctx(), bytes, size, NULL, &loaded));
    assert_ok(sb_session_create(loaded, NULL, &session));
    assert_ok(sb_session_run(session, &x, 1, &y, 1));
    assert_tensor("bytes", y, simulated, 1e-5);
    sb_session_free(session);
    sb_memory_free(bytes);
    sb_quant_model_free(qm);
    sb_model_free(loaded);
    sb_model_free(quantized);
    sb_model_free(model);
}

static void test_config_text_is_checked(void **state)
{
    (void)state;
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_model *model = NULL;
    sb_quant_model *qm = NULL;

    assert_ok(sb_model_parse(test_ctx(), conv, &model));
    opt.config_text = "W: {QSCHEME: nonsense}\n";
    assert_status(sb_quant_model_create(model, &opt, &qm), SB_BAD_CONFIG);
    assert_error_has("config:1");
    opt.config = "some.yaml";
    assert_status(sb_quant_model_create(model, &opt, &qm), SB_BAD_ARG);
    assert_error_has("config and config_text are both set");
    sb_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrapped_memory_is_not_copied),
        cmocka_unit_test(test_elements_of_every_type),
        cmocka_unit_test(test_elements_are_converted),
        cmocka_unit_test(test_strings_are_copied_and_read),
        cmocka_unit_test(test_run_into_memory_of_the_caller),
        cmocka_unit_test(test_run_by_name),
        cmocka_unit_test(test_save_and_load_memory),
        cmocka_unit_test(test_export_to_a_model),
        cmocka_unit_test(test_config_text_is_checked),
    };
    return cmocka_run_group_tests_name("api memory", tests, NULL, NULL);
}
