/* A program that was built with older headers, whose structs are shorter (see
 * shorten): every call that takes a struct still works, and reads nothing
 * behind it.  Each struct lies at the end of a page before one that cannot be
 * read, so that this is seen without a sanitizer, too. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sparsebit/sparsebit.h>

static sb_ctx *ctx;
static int line_of_failure;

#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, \
                    sb_ctx_error(ctx));                                \
            line_of_failure = __LINE__;                                \
        }                                                              \
    } while (0)
#define OK(call) CHECK((call) == SB_OK)

/* A copy that ends where the page does. */
static void *at_edge(const void *from, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED || mprotect(p + page, page, PROT_NONE) != 0)
        exit(2);
    return memcpy(p + page - size, from, size);
}

static const char text[] = "graph g(x: f32[N,2]) -> (y) {\n"
                           "  w: f32[2,2] = [1, 2, 3, 4]\n"
                           "  i = Identity(x)\n"
                           "  y = MatMul(i, w)\n"
                           "}\n";

static void check_output(const sb_tensor *y)
{
    double v[4] = {0};

    CHECK(sb_tensor_read_f64(y, 0, 4, v));
    CHECK(v[0] == 7 && v[1] == 10 && v[2] == 15 && v[3] == 22);
}

static void check_run(const sb_model *model, const sb_tensor *x)
{
    const sb_session_options init = SB_SESSION_OPTIONS_INIT;
    sb_batch batch = SB_BATCH_INIT;
    const sb_tensor *y = NULL;
    sb_session *session = NULL;
    sb_eval *eval = NULL;

    OK(sb_session_create(model, at_edge(&init, sizeof init), &session));
    OK(sb_session_run(session, &x, 1, &y, 1));
    check_output(y);
    batch.count = 2;
    batch.n_inputs = 1;
    batch.inputs = &x;
    OK(sb_session_run_batch(session, at_edge(&batch, sizeof batch), &y, 1));
    check_output(y);
    OK(sb_eval_create(ctx, 1, NULL, &eval));
    OK(sb_eval_add(eval, at_edge(&batch, sizeof batch), &y));
    OK(sb_eval_compare(eval, at_edge(&batch, sizeof batch), &y, &y));
    CHECK(sb_eval_get(eval)->samples == 2 && sb_eval_get(eval)->cosine > 0.99);
    sb_eval_free(eval);
    sb_session_free(session);
}

static void check_quantize(const sb_model *model, const sb_tensor *x)
{
    const sb_quant_options init = SB_QUANT_OPTIONS_INIT;
    const sb_calibration_options calibration = SB_CALIBRATION_OPTIONS_INIT;
    const sb_export_options export_init = SB_EXPORT_OPTIONS_INIT;
    const sb_quant_errors_options errors_init = SB_QUANT_ERRORS_OPTIONS_INIT;
    sb_quant_errors *errors = NULL;
    sb_quant_model *qm = NULL;
    sb_model *back = NULL;
    void *bytes = NULL;
    size_t size = 0;

    OK(sb_quant_model_create(model, at_edge(&init, sizeof init), &qm));
    OK(sb_quant_model_prepare_calibration(
        qm, at_edge(&calibration, sizeof calibration)));
    OK(sb_quant_model_forward(qm, &x, 1, NULL, 0));
    OK(sb_quant_model_calc_qparams(qm));
    const sb_quantizer_info *q = sb_quant_model_quantizer(qm, 0);
    CHECK(q && q->bits == 8 && q->n > 0);
    OK(sb_quant_errors_create(qm, at_edge(&errors_init, sizeof errors_init),
                              &errors));
    OK(sb_quant_errors_run(errors, &x, 1, NULL, 0));
    CHECK(sb_quant_errors_count(errors) == 1);
    sb_quant_errors_free(errors);
    sb_search_options search_init = SB_SEARCH_OPTIONS_INIT;
    sb_search *search = NULL;
    const sb_search_result *result = NULL;
    search_init.limit = 8;
    OK(sb_search_create(model, at_edge(&search_init, sizeof search_init),
                        &search));
    OK(sb_search_add(search, &x, 1, NULL, 0));
    OK(sb_search_run(search, &result));
    CHECK(result && result->n_layers == 1);
    sb_search_free(search);
    OK(sb_quant_model_export_memory(
        qm, at_edge(&export_init, sizeof export_init), &bytes, &size));
    OK(sb_model_load_memory(ctx, bytes, size, NULL, &back));
    CHECK(sb_model_input_count(back) == 1);
    sb_memory_free(bytes);
    sb_model_free(back);
    sb_quant_model_free(qm);
}

static void check_data(const char *folder, const sb_tensor *x)
{
    const sb_data_options init = SB_DATA_OPTIONS_INIT;
    const sb_batch *batch = NULL;
    sb_data *data = NULL;
    char path[1024];

    (void)snprintf(path, sizeof path, "%s/x.npy", folder);
    OK(sb_tensor_save(ctx, path, x));
    (void)snprintf(path, sizeof path, "%s/data.yaml", folder);
    OK(sb_data_parse(ctx, "SOURCE: npy\nPATH: x.npy\n", path,
                     at_edge(&init, sizeof init), &data));
    OK(sb_data_next(data, &batch));
    CHECK(batch && batch->count == 2 && batch->n_inputs == 1);
    sb_data_free(data);
}

/* Structs that the library fills: old fields are where they were. */
static void check_questions(sb_model *model)
{
    const sb_simplify_options init = SB_SIMPLIFY_OPTIONS_INIT;
    const sb_model_info *info = NULL;
    const sb_node_info *const *nodes = NULL;
    const sb_value_info *const *values = NULL;
    const sb_pass_result *const *results = NULL;
    size_t n = 0;

    OK(sb_model_info_get(model, &info));
    CHECK(info && info->n_ops == 2 && !strcmp(info->ops[1]->name, "MatMul"));
    OK(sb_model_nodes(model, &nodes, &n));
    CHECK(n == 2 && !strcmp(nodes[1]->op, "MatMul") && nodes[1]->n_inputs == 2);
    OK(sb_model_values(model, &values, &n));
    CHECK(n == 4 && values[3]->rank == 2);
    OK(sb_model_simplify(model, at_edge(&init, sizeof init), &results, &n));
    CHECK(n > 3 && results[1]->name && results[n - 1]->name);
}

int main(int argc, char **argv)
{
    float numbers[] = {1, 2, 3, 4};
    const int64_t dims[] = {2, 2};
    sb_model *model = NULL;
    sb_tensor *x = NULL;

    if (argc != 2)
        return 2;
    OK(sb_ctx_create(NULL, &ctx));
    OK(sb_model_parse(ctx, text, &model));
    OK(sb_tensor_wrap(ctx, SB_DTYPE_F32, 2, dims, numbers, NULL, NULL, &x));
    if (!line_of_failure) {
        check_run(model, x);
        check_quantize(model, x);
        check_data(argv[1], x);
        check_questions(model);
    }
    sb_tensor_free(x);
    sb_model_free(model);
    sb_ctx_free(ctx);
    return line_of_failure != 0;
}
