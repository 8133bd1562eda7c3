/* sparsebit run - one inference, inputs and outputs as NumPy files. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "learn_args.h"
#include <sparsebit/experimental.h>

typedef struct {
    const char *model, *data, *out_dir, *npz;
    cli_list inputs, shapes, values, set;
    const char *labels;
    cli_learn_args learn;
    unsigned samples, skip;
    bool dump_all;
    bool exact;
    bool integer;
    bool keep_inputs;
} run_args;

#define ARG(field) offsetof(run_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0,   NULL,       ARG(model),    "MODEL", "ONNX file to run", true},
    {CLI_LIST, 'i', "input",    ARG(inputs),   "[NAME=]FILE", ".npy file for an input, or .npz with all of them; repeatable (default: random numbers)", false},
    {CLI_LIST, 0,   "shape",    ARG(shapes),   "NAME=1x3x224x224", "shape of a random input; repeatable (default: unknown dimensions are 1, of images 224)", false},
    {CLI_LIST, 0,   "value",    ARG(values),   CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_FILE, 'd', "data",     ARG(data),     CLI_DATA_ARG, "instead of --input: " CLI_DATA_HELP, false},
    {CLI_LIST, 0,   "set",      ARG(set),      CLI_SET_ARG, CLI_SET_HELP, false},
    {CLI_UINT, 'n', "samples",  ARG(samples),  "N",     "with --data: run N samples one after another, with the states of the data file, and print the last (default: 1)", false},
    {CLI_UINT, 0,   "skip",     ARG(skip),     "N",     "with --data: skip the first N samples", false},
    {CLI_FILE, 'o', "out-dir",  ARG(out_dir),  "DIR",   "write each output as DIR/OUTPUT_NAME.npy ('/' becomes '_')", false},
    {CLI_OUT,  0,   "npz",      ARG(npz),      "FILE",  "write all outputs into one .npz", false},
    {CLI_FLAG, 0,   "dump-all", ARG(dump_all), NULL,    "also write every intermediate tensor, and index.tsv naming them, into --out-dir", false},
    {CLI_FLAG, 0, "exact", ARG(exact), NULL, "disable approximations such as Winograd", false},
    {CLI_FLAG, 0, "integer", ARG(integer), NULL, "compute Q/DQ groups with the integer kernels that ONNX Runtime on x86 makes of them", false},
    CLI_KEEP_INPUTS(ARG(keep_inputs)),
    CLI_LEARN_LOSS(ARG(learn.loss), "also compute this loss and the gradients of all parameters, as outputs loss and grad.PARAMETER"),
    {CLI_FILE, 0, "labels", ARG(labels), "FILE", "with --loss: .npy with the classes, or with what the output should be", false},
    CLI_LEARN_OUTPUT(ARG(learn.output), "with --loss"),
    {0},
};

static const cli_example examples[] = {
    {"sparsebit run model.onnx --input image=cat.npy --out-dir out", "Runs on given data and keeps the outputs"},
    {"sparsebit run model.onnx --seed 7", "Runs on random numbers"},
    {"sparsebit run model.onnx --data cat.jpg", "On an image, with the preprocessing that the input suggests"},
    {"sparsebit run model.onnx --input x.npy --loss cross-entropy --labels y.npy -o out", "Also writes out/loss.npy and a gradient for each parameter"},
    {"sparsebit run bert.onnx --input batch.npz --npz result.npz", "All inputs from one archive, by name"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_run;

/* ---- numbers of a tensor ------------------------------------------------ */

typedef struct {
    bool known;
    double min, max, mean;
} range;

static range range_of(const sb_tensor *t)
{
    enum { CHUNK = 512 };
    int64_t n = sb_tensor_elements(t);
    range r = {n > 0, (double)INFINITY, -(double)INFINITY, 0};

    for (int64_t first = 0; first < n && r.known; first += CHUNK) {
        int64_t k = n - first < CHUNK ? n - first : CHUNK;
        double x[CHUNK];

        r.known = sb_tensor_read_f64(t, first, k, x);
        for (int64_t i = 0; i < k && r.known; i++) {
            r.min = x[i] < r.min || isnan(x[i]) ? x[i] : r.min;
            r.max = x[i] > r.max || isnan(x[i]) ? x[i] : r.max;
            r.mean += x[i] / (double)n;
        }
    }
    r.min += 0.0; /* no minus before a zero */
    r.max += 0.0;
    return r;
}

/* "float[1,1000]" */
static void run_describe(const sb_tensor *t, char *out, size_t size)
{
    int used = snprintf(out, size, "%s[", sb_dtype_name(sb_tensor_dtype(t)));

    for (int i = 0; i < sb_tensor_rank(t); i++)
        used += snprintf(out + used, size - (size_t)used, "%s%lld",
                         i ? "," : "", (long long)sb_tensor_dims(t)[i]);
    (void)snprintf(out + used, size - (size_t)used, "]");
}

/* ---- results ------------------------------------------------------------- */

/* The outputs of a model; tensors of a sequence are results of their own, named
 * OUTPUT.0, OUTPUT.1 ... */
typedef struct {
    char **names;
    const sb_tensor **tensors;
    sb_tensor **copies; /* NULL for outputs as they are */
    size_t n, cap;
} results;

static void results_add(results *r, char *name, const sb_tensor *tensor,
                        sb_tensor *copy)
{
    if (r->n == r->cap) {
        results more = {.n = r->n, .cap = 2 * r->cap + 16};

        more.names = cli_alloc(more.cap, sizeof *more.names);
        more.tensors = cli_alloc(more.cap, sizeof *more.tensors);
        more.copies = cli_alloc(more.cap, sizeof *more.copies);
        for (size_t i = 0; i < r->n; i++) {
            more.names[i] = r->names[i];
            more.tensors[i] = r->tensors[i];
            more.copies[i] = r->copies[i];
        }
        free(r->names);
        free(r->tensors);
        free(r->copies);
        *r = more;
    }
    r->names[r->n] = name;
    r->tensors[r->n] = tensor;
    r->copies[r->n++] = copy;
}

/* A tensor, or those of a sequence. */
static sb_status results_take(cli_env *env, results *r, const char *name,
                              const sb_tensor *tensor)
{
    int64_t n = sb_sequence_length(tensor);

    if (n < 0)
        results_add(r, cli_printf("%s", name), tensor, NULL);
    for (int64_t i = 0; i < n; i++) {
        sb_tensor *copy = NULL;
        sb_status status = sb_sequence_at(env->ctx, tensor, i, &copy);

        if (status != SB_OK)
            return status;
        results_add(r, cli_printf("%s.%lld", name, (long long)i), copy, copy);
    }
    return SB_OK;
}

static void results_free(results *r)
{
    for (size_t i = 0; i < r->n; i++) {
        free(r->names[i]);
        sb_tensor_free(r->copies[i]);
    }
    free(r->names);
    free(r->tensors);
    free(r->copies);
}

static void print_outputs(const results *out)
{
    cli_table *t = cli_table_new("llrrr");
    static const char *const head[] = {"output", "type", "min", "max", "mean"};

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < out->n; i++) {
        range r = range_of(out->tensors[i]);
        char type[256];

        run_describe(out->tensors[i], type, sizeof type);
        cli_table_add(t, "%s", out->names[i]);
        cli_table_add(t, "%s", type);
        const double v[] = {r.min, r.max, r.mean};
        for (size_t k = 0; k < CLI_COUNT(v); k++)
            cli_table_add(t,
                          !r.known      ? "-"
                          : isnan(v[k]) ? "nan"
                                        : "%.6g",
                          v[k]);
    }
    cli_table_print(t, "");
}

static void print_json(const run_args *args, const results *out)
{
    cli_json j = {0};

    cli_json_begin(&j, "run");
    cli_json_str(&j, "model", args->model);
    cli_json_open(&j, "outputs", '[');
    for (size_t i = 0; i < out->n; i++) {
        const sb_tensor *t = out->tensors[i];
        range r = range_of(t);

        cli_json_open(&j, NULL, '{');
        cli_json_str(&j, "name", out->names[i]);
        cli_json_str(&j, "dtype", sb_dtype_name(sb_tensor_dtype(t)));
        cli_json_ints(&j, "shape", sb_tensor_dims(t),
                      (size_t)sb_tensor_rank(t));
        if (r.known) {
            cli_json_num(&j, "min", r.min);
            cli_json_num(&j, "max", r.max);
            cli_json_num(&j, "mean", r.mean);
        }
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    cli_json_end(&j);
}

/* ---- files -------------------------------------------------------------- */

/* Where tensors go.  Two names may become one file name: the later ones get a
 * number. */
typedef struct {
    cli_env *env;
    const char *dir;
    char **files;
    size_t n, cap;
    FILE *index; /* in memory; NULL unless everything is dumped */
    char *text;  /* of the index */
    size_t size;
    bool made; /* by this run */
} folder;

static bool run_taken(const folder *f, const char *file)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->files[i], file) == 0)
            return true;
    return false;
}

/* The file name that belongs to a value; free() it. */
static char *plain_name(const char *value)
{
    char *file = cli_printf("%.180s.npy", value);

    for (char *p = file; *p; p++)
        if (*p == '/' || (unsigned char)*p < 0x20 || (p == file && *p == '.'))
            *p = '_';
    return file;
}

/* The same made unique in the folder, which owns it. */
static const char *file_name(folder *f, const char *value)
{
    char *file = plain_name(value);

    for (unsigned k = 2; run_taken(f, file); k++) {
        char *next =
            cli_printf("%.*s.%u.npy", (int)(strlen(file) - 4), file, k);

        free(file);
        file = next;
    }
    if (f->n == f->cap) {
        char **files = cli_alloc(2 * f->cap + 16, sizeof *files);

        if (f->n)
            memcpy(files, f->files, f->n * sizeof *files);
        free(f->files);
        f->files = files;
        f->cap = 2 * f->cap + 16;
    }
    f->files[f->n++] = file;
    return file;
}

static sb_status write_tensor(folder *f, const char *value,
                              const sb_tensor *tensor, const char **out)
{
    const char *file = file_name(f, value);
    char *path = cli_printf("%s/%s", f->dir, file);
    sb_status status = sb_tensor_save(f->env->ctx, path, tensor);

    free(path);
    if (status == SB_OK)
        *out = file;
    else
        free(f->files[--f->n]);
    return status;
}

/* A name as one cell of a line: tabs, newlines and backslashes as in C. */
static void put_escaped(FILE *file, const char *name)
{
    static const char plain[] = "\t\n\r\\", escaped[] = "tnr\\";

    for (; *name; name++) {
        const char *at = strchr(plain, *name);

        if (at)
            (void)fputc('\\', file);
        (void)fputc(at ? escaped[at - plain] : *name, file);
    }
}

static sb_status dump_tensor(folder *f, const char *value,
                             const sb_tensor *tensor)
{
    const char *file;
    char type[256];
    sb_status status = write_tensor(f, value, tensor, &file);

    if (status != SB_OK)
        return status;
    run_describe(tensor, type, sizeof type);
    put_escaped(f->index, value);
    return fprintf(f->index, "\t%s\t%s\n", file, type) < 0 ? SB_IO : SB_OK;
}

static sb_status run_dump(void *user, const char *value,
                          const sb_tensor *tensor)
{
    folder *f = user;
    results r = {0};
    sb_status status = results_take(f->env, &r, value, tensor);

    for (size_t i = 0; i < r.n && status == SB_OK; i++)
        status = dump_tensor(f, r.names[i], r.tensors[i]);
    results_free(&r);
    return status;
}

static int folder_open(folder *f, const run_args *args)
{
    if (!args->out_dir)
        return CLI_OK;
    f->made = mkdir(args->out_dir, 0777) == 0;
    if (!f->made && errno != EEXIST)
        return cli_error("%s: %s", args->out_dir, strerror(errno));
    if (args->dump_all)
        f->index = open_memstream(&f->text, &f->size);
    return args->dump_all && !f->index ? cli_error("out of memory") : CLI_OK;
}

/* Last: with an index all is there. */
static int write_index(folder *f, int rc)
{
    bool whole = fclose(f->index) == 0;

    if (rc == CLI_OK) {
        char *path = cli_printf("%s/index.tsv", f->dir);

        if (!whole)
            rc = cli_error("out of memory");
        else if (sb_text_save(f->env->ctx, path, f->text) != SB_OK)
            rc = cli_fail(f->env, path);
        free(path);
    }
    free(f->text);
    return rc;
}

/* Of a run that failed nothing stays. */
static int folder_close(folder *f, int rc)
{
    if (f->index)
        rc = write_index(f, rc);
    for (size_t i = 0; i < f->n; i++) {
        char *path = cli_printf("%s/%s", f->dir, f->files[i]);

        if (rc != CLI_OK)
            (void)unlink(path);
        free(path);
        free(f->files[i]);
    }
    free(f->files);
    if (rc != CLI_OK && f->made)
        (void)rmdir(f->dir);
    return rc;
}

static int write_outputs(cli_env *env, const run_args *args, folder *f,
                         const results *out)
{
    /* A dump holds the outputs already, under the same names. */
    for (size_t i = 0; i < out->n && args->out_dir; i++) {
        const char *file;
        char *plain = plain_name(out->names[i]);
        bool dumped = args->dump_all && run_taken(f, plain);

        free(plain);
        if (!dumped &&
            write_tensor(f, out->names[i], out->tensors[i], &file) != SB_OK)
            return cli_fail(env, args->out_dir);
    }
    if (args->npz && sb_tensors_save_npz(env->ctx, args->npz,
                                         (const char *const *)out->names,
                                         out->tensors, out->n) != SB_OK)
        return cli_fail(env, args->npz);
    return CLI_OK;
}

/* ---- running ------------------------------------------------------------ */

/* Samples one after another; the outputs of the last. */
static int run_samples(cli_env *env, const run_args *args,
                       const sb_model *model, sb_session *session,
                       const sb_tensor **outputs)
{
    const cli_data_spec spec = {
        args->data, args->set, args->samples ? args->samples : 1,
        args->skip, 1,         true};
    const sb_batch *batch = NULL;
    sb_data *data = NULL;
    int rc = cli_data_open(env, &cmd_run, model, &spec, 0, &data);

    while (rc == CLI_OK) {
        if (sb_data_next(data, &batch) != SB_OK)
            rc = cli_fail(env, args->data);
        else if (batch->count == 0)
            break;
        else if (sb_session_run_batch(session, batch, outputs,
                                      sb_model_output_count(model)) != SB_OK)
            rc = cli_blame(env, model, args->model, data, args->data);
    }
    sb_data_free(data);
    return rc;
}

static int run_inputs(cli_env *env, const run_args *args, const sb_model *model,
                      sb_session *session, sb_tensor **inputs,
                      const sb_tensor **outputs)
{
    const cli_input_spec spec = {&args->inputs, &args->shapes, 0, 0};

    if (sb_session_run(session, (const sb_tensor *const *)inputs,
                       sb_model_input_count(model), outputs,
                       sb_model_output_count(model)) == SB_OK)
        return CLI_OK;
    return cli_inputs_fail(env, args->model, model, &spec, inputs);
}

/* Loss and gradients become results, which the learner owns. */
static int run_gradients(cli_env *env, const run_args *args,
                         const sb_model *model, sb_tensor **inputs,
                         results *out, sb_learner **learner)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;
    sb_tensor *target = NULL, *value = NULL;
    double loss = 0;

    if (cli_learn_options(&cmd_run, &args->learn, &opt) != CLI_OK)
        return CLI_USAGE;
    opt.norm = SB_LEARN_NORM_MODEL;
    opt.dropout = 0;
    opt.exact = args->exact;
    if (sb_tensor_load(env->ctx, args->labels, &target) != SB_OK)
        return cli_fail(env, args->labels);
    sb_status status = sb_learner_create(model, &opt, learner);
    if (status == SB_OK)
        status =
            sb_learner_gradient(*learner, (const sb_tensor *const *)inputs,
                                sb_model_input_count(model), target, &loss);
    if (status == SB_OK)
        status = sb_tensor_create(env->ctx, SB_DTYPE_F32, 0, NULL, &value);
    sb_tensor_free(target);
    if (status != SB_OK)
        return cli_fail(env, args->model);
    (void)sb_tensor_write_f64(value, 0, 1, &loss);
    results_add(out, cli_printf("loss"), value, value);
    for (size_t i = 0; i < sb_learner_parameter_count(*learner); i++) {
        const sb_parameter_info *p = sb_learner_parameter(*learner, i);
        if (p->gradient)
            results_add(out, cli_printf("grad.%s", p->name), p->gradient, NULL);
    }
    return CLI_OK;
}

/* On `inputs`, or on the data set if they are NULL. */
static int run_model(cli_env *env, const run_args *args, folder *f,
                     const sb_model *model, sb_tensor **inputs)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    size_t n = sb_model_output_count(model);
    const sb_tensor **outputs = cli_alloc(n, sizeof *outputs);
    sb_session *session = NULL;
    sb_learner *learner = NULL;
    results out = {0};
    int rc = CLI_OK;

    opt.exact = args->exact;
    opt.integer = args->integer ? SB_INTEGER_MODE_ON : SB_INTEGER_MODE_OFF;
    if (args->dump_all) {
        opt.dump = run_dump;
        opt.dump_user = f;
    }
    if (sb_session_create(model, &opt, &session) != SB_OK)
        rc = cli_fail(env, args->model);
    else if (args->data)
        rc = run_samples(env, args, model, session, outputs);
    else
        rc = run_inputs(env, args, model, session, inputs, outputs);
    for (size_t i = 0; i < n && rc == CLI_OK; i++)
        if (results_take(env, &out, sb_model_output(model, i)->name,
                         outputs[i]) != SB_OK)
            rc = cli_fail(env, args->model);
    if (rc == CLI_OK && args->learn.loss)
        rc = run_gradients(env, args, model, inputs, &out, &learner);
    if (rc == CLI_OK)
        rc = write_outputs(env, args, f, &out);
    if (rc == CLI_OK && env->common.json)
        print_json(args, &out);
    else if (rc == CLI_OK)
        print_outputs(&out);
    results_free(&out);
    sb_learner_free(learner);
    sb_session_free(session);
    free(outputs);
    return rc;
}

static int run_check(const run_args *args)
{
    if (args->dump_all && !args->out_dir)
        return cli_usage(&cmd_run, "--dump-all needs --out-dir");
    if (args->out_dir && cli_ends_with(args->out_dir, ".npz"))
        return cli_usage(&cmd_run, "--out-dir is a folder: want --npz '%s'",
                         args->out_dir);
    if (args->data && (args->inputs.n || args->shapes.n))
        return cli_usage(&cmd_run, "want either --data or --input, --shape");
    if (!args->data && (args->set.n || args->samples || args->skip))
        return cli_usage(&cmd_run, "--set, --samples and --skip need --data");
    if (args->dump_all && args->samples > 1)
        return cli_usage(&cmd_run, "--dump-all is of one run: want --skip "
                                   "instead of --samples");
    if (!args->learn.loss != !args->labels)
        return cli_usage(&cmd_run, "--loss and --labels need each other");
    if (args->learn.output && !args->learn.loss)
        return cli_usage(&cmd_run, "--loss-output is for --loss");
    if (args->learn.loss && (args->data || args->integer))
        return cli_usage(&cmd_run, "--loss is for --input, in float");
    return CLI_OK;
}

static int run_run(cli_env *env, const void *parsed)
{
    const run_args *args = parsed;
    const cli_input_spec spec = {&args->inputs, &args->shapes, 0,
                                 env->common.seed};
    sb_load_options load = SB_LOAD_OPTIONS_INIT;
    folder f = {.env = env, .dir = args->out_dir};
    sb_tensor **inputs = NULL;
    sb_model *model = NULL;
    int rc = run_check(args);

    if (rc != CLI_OK)
        return rc;
    load.keep_inputs = args->keep_inputs;
    if (sb_model_load_with(env->ctx, args->model, &load, &model) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK)
        rc = cli_model_fix(env, &cmd_run, model, NULL, &args->values);
    if (rc == CLI_OK && !args->data)
        rc = cli_inputs_make(env, &cmd_run, model, &spec, &inputs);
    if (rc == CLI_OK)
        rc = folder_open(&f, args);
    if (rc == CLI_OK)
        rc = run_model(env, args, &f, model, inputs);
    rc = folder_close(&f, rc);
    cli_inputs_free(model, inputs);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_run = {
    .name = "run",
    .summary = "run a model once",
    .description =
        "Runs a model on NumPy files, on a sample of a data set, or on random "
        "numbers, prints a line for each output, and writes the outputs if "
        "asked to.",
    .args_size = sizeof(run_args),
    .opts = opts,
    .examples = examples,
    .run = run_run,
};
