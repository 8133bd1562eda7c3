/* sparsebit run - one inference, inputs and outputs as NumPy files. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

typedef struct {
    const char *model, *out_dir, *npz;
    cli_list inputs, shapes;
    bool dump_all;
    bool exact;
    bool integer;
} run_args;

#define ARG(field) offsetof(run_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0,   NULL,       ARG(model),    "MODEL", "ONNX file to run", true},
    {CLI_LIST, 'i', "input",    ARG(inputs),   "[NAME=]FILE", ".npy file for an input, or .npz with all of them; repeatable (default: random numbers)", false},
    {CLI_LIST, 0,   "shape",    ARG(shapes),   "NAME=1x3x224x224", "shape of a random input; repeatable (default: unknown dimensions are 1)", false},
    {CLI_FILE, 'o', "out-dir",  ARG(out_dir),  "DIR",   "write each output as DIR/OUTPUT_NAME.npy ('/' becomes '_')", false},
    {CLI_FILE, 0,   "npz",      ARG(npz),      "FILE",  "write all outputs into one .npz", false},
    {CLI_FLAG, 0,   "dump-all", ARG(dump_all), NULL,    "also write every intermediate tensor, and index.tsv naming them, into --out-dir", false},
    {CLI_FLAG, 0, "exact", ARG(exact), NULL, "no faster algorithms that round differently", false},
    {CLI_FLAG, 0, "integer", ARG(integer), NULL, "compute Q/DQ groups with the integer kernels that ONNX Runtime on x86 makes of them", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit run model.onnx --input image=cat.npy --out-dir out", "Runs on given data and keeps the outputs"},
    {"sparsebit run model.onnx --seed 7", "Tries it on random numbers"},
    {"sparsebit run bert.onnx --input batch.npz --npz result.npz", "All inputs from one archive, by name"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_run;

/* ---- numbers of a tensor ------------------------------------------------ */

static double half_to_double(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double mantissa = h & 1023, sign = h >> 15 ? -1 : 1;

    if (exponent == 31)
        return h & 1023 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, -24);
    return sign * ldexp(mantissa + 1024, exponent - 25);
}

/* clang-format off */
/* Element i of a tensor; false for types without a plain number. */
static bool element(const sb_tensor *t, int64_t i, double *out)
{
    const void *p = sb_tensor_data(t);

    switch (sb_tensor_dtype(t)) {
    case SB_DTYPE_F32: *out = (double)((const float *)p)[i]; return true;
    case SB_DTYPE_F64: *out = ((const double *)p)[i]; return true;
    case SB_DTYPE_F16: *out = half_to_double(((const uint16_t *)p)[i]); return true;
    case SB_DTYPE_I64: *out = (double)((const int64_t *)p)[i]; return true;
    case SB_DTYPE_U64: *out = (double)((const uint64_t *)p)[i]; return true;
    case SB_DTYPE_I32: *out = ((const int32_t *)p)[i]; return true;
    case SB_DTYPE_U32: *out = ((const uint32_t *)p)[i]; return true;
    case SB_DTYPE_I16: *out = ((const int16_t *)p)[i]; return true;
    case SB_DTYPE_U16: *out = ((const uint16_t *)p)[i]; return true;
    case SB_DTYPE_I8: *out = ((const int8_t *)p)[i]; return true;
    case SB_DTYPE_U8:
    case SB_DTYPE_BOOL: *out = ((const uint8_t *)p)[i]; return true;
    default: return false;
    }
}
/* clang-format on */

typedef struct {
    bool known;
    double min, max, mean;
} range;

static range range_of(const sb_tensor *t)
{
    int64_t n = sb_tensor_elements(t);
    range r = {n > 0, (double)INFINITY, -(double)INFINITY, 0};

    for (int64_t i = 0; i < n && r.known; i++) {
        double x = 0;

        r.known = element(t, i, &x);
        r.min = x < r.min || isnan(x) ? x : r.min;
        r.max = x > r.max || isnan(x) ? x : r.max;
        r.mean += x / (double)n;
    }
    r.min += 0.0; /* no minus before a zero */
    r.max += 0.0;
    return r;
}

/* "float[1,1000]" */
static void describe(const sb_tensor *t, char *out, size_t size)
{
    int used = snprintf(out, size, "%s[", sb_dtype_name(sb_tensor_dtype(t)));

    for (int i = 0; i < sb_tensor_rank(t); i++)
        used += snprintf(out + used, size - (size_t)used, "%s%lld",
                         i ? "," : "", (long long)sb_tensor_dims(t)[i]);
    (void)snprintf(out + used, size - (size_t)used, "]");
}

static void print_outputs(const cli_env *env, const sb_model *model,
                          const sb_tensor *const *outputs)
{
    cli_table *t = cli_table_new("llrrr");
    static const char *const head[] = {"output", "type", "min", "max", "mean"};

    for (size_t i = 0; i < CLI_COUNT(head); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < sb_model_output_count(model); i++) {
        range r = range_of(outputs[i]);
        char type[256];

        describe(outputs[i], type, sizeof type);
        cli_table_add(t, "%s", sb_model_output(model, i).name);
        cli_table_add(t, "%s", type);
        const double v[] = {r.min, r.max, r.mean};
        for (size_t k = 0; k < CLI_COUNT(v); k++)
            cli_table_add(t,
                          !r.known      ? "-"
                          : isnan(v[k]) ? "nan"
                                        : "%.6g",
                          v[k]);
    }
    if (!env->common.quiet)
        cli_table_print(t, "");
    else
        cli_table_free(t);
}

static void print_json(const sb_model *model, const sb_tensor *const *outputs)
{
    cli_json j = {0};

    cli_json_open(&j, NULL, '{');
    cli_json_open(&j, "outputs", '[');
    for (size_t i = 0; i < sb_model_output_count(model); i++) {
        range r = range_of(outputs[i]);

        cli_json_open(&j, NULL, '{');
        cli_json_str(&j, "name", sb_model_output(model, i).name);
        cli_json_str(&j, "dtype", sb_dtype_name(sb_tensor_dtype(outputs[i])));
        cli_json_open(&j, "shape", '[');
        for (int d = 0; d < sb_tensor_rank(outputs[i]); d++)
            cli_json_int(&j, NULL, sb_tensor_dims(outputs[i])[d]);
        cli_json_close(&j, ']');
        if (r.known) {
            cli_json_num(&j, "min", r.min);
            cli_json_num(&j, "max", r.max);
            cli_json_num(&j, "mean", r.mean);
        }
        cli_json_close(&j, '}');
    }
    cli_json_close(&j, ']');
    cli_json_close(&j, '}');
}

/* ---- files -------------------------------------------------------------- */

/* Where tensors go.  Two names may become one file name: the later ones get a
 * number. */
typedef struct {
    cli_env *env;
    const char *dir;
    char **files;
    size_t n, cap;
    FILE *index; /* NULL unless everything is dumped */
} folder;

static bool taken(const folder *f, const char *file)
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

    for (unsigned k = 2; taken(f, file); k++) {
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
    *out = file;
    return status;
}

static sb_status dump(void *user, const char *value, const sb_tensor *tensor)
{
    folder *f = user;
    const char *file;
    char type[256];
    sb_status status = write_tensor(f, value, tensor, &file);

    if (status != SB_OK)
        return status;
    describe(tensor, type, sizeof type);
    return fprintf(f->index, "%s\t%s\t%s\n", value, file, type) < 0 ? SB_IO
                                                                    : SB_OK;
}

static int folder_open(folder *f, const run_args *args)
{
    if (!args->out_dir)
        return CLI_OK;
    if (mkdir(args->out_dir, 0777) != 0 && errno != EEXIST)
        return cli_error("%s: %s", args->out_dir, strerror(errno));
    if (args->dump_all) {
        char *path = cli_printf("%s/index.tsv", args->out_dir);

        f->index = fopen(path, "w");
        int error = errno;
        if (!f->index)
            (void)cli_error("%s: %s", path, strerror(error));
        free(path);
        return f->index ? CLI_OK : CLI_FAILED;
    }
    return CLI_OK;
}

static int folder_close(folder *f, int rc)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->files[i]);
    free(f->files);
    if (f->index) {
        bool bad = ferror(f->index);

        if ((fclose(f->index) != 0 || bad) && rc == CLI_OK)
            return cli_error("%s/index.tsv: cannot write", f->dir);
    }
    return rc;
}

static int write_outputs(cli_env *env, const run_args *args, folder *f,
                         const sb_model *model, const sb_tensor *const *outputs)
{
    size_t n = sb_model_output_count(model);

    /* A dump holds the outputs already, under the same names. */
    for (size_t i = 0; i < n && args->out_dir; i++) {
        const char *name = sb_model_output(model, i).name, *file;
        char *plain = plain_name(name);
        bool dumped = args->dump_all && taken(f, plain);

        free(plain);
        if (!dumped && write_tensor(f, name, outputs[i], &file) != SB_OK)
            return cli_fail(env, args->out_dir);
    }
    if (args->npz) {
        const char **names = cli_alloc(n, sizeof *names);

        for (size_t i = 0; i < n; i++)
            names[i] = sb_model_output(model, i).name;
        sb_status status =
            sb_tensors_save_npz(env->ctx, args->npz, names, outputs, n);
        free(names);
        if (status != SB_OK)
            return cli_fail(env, args->npz);
    }
    return CLI_OK;
}

/* ---- running ------------------------------------------------------------ */

static int run_model(cli_env *env, const run_args *args, folder *f,
                     const sb_model *model, sb_tensor **inputs)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    size_t n = sb_model_output_count(model);
    const sb_tensor **outputs = cli_alloc(n, sizeof *outputs);
    sb_session *session = NULL;
    int rc = CLI_OK;

    opt.exact = args->exact;
    opt.integer = args->integer;
    if (args->dump_all) {
        opt.dump = dump;
        opt.dump_user = f;
    }
    if (sb_session_create(env->ctx, model, &opt, &session) != SB_OK ||
        sb_session_run(session, (const sb_tensor *const *)inputs, outputs) !=
            SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK)
        rc = write_outputs(env, args, f, model, outputs);
    if (rc == CLI_OK && env->common.json)
        print_json(model, outputs);
    else if (rc == CLI_OK)
        print_outputs(env, model, outputs);
    sb_session_free(session);
    free(outputs);
    return rc;
}

static int run_run(cli_env *env, const void *parsed)
{
    const run_args *args = parsed;
    const cli_input_spec spec = {&args->inputs, &args->shapes, 0,
                                 env->common.seed};
    folder f = {.env = env, .dir = args->out_dir};
    sb_tensor **inputs = NULL;
    sb_model *model = NULL;
    int rc = CLI_OK;

    if (args->dump_all && !args->out_dir)
        return cli_usage(&cmd_run, "--dump-all needs --out-dir");
    if (sb_model_load(env->ctx, args->model, &model) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK)
        rc = cli_inputs_make(env, &cmd_run, model, &spec, &inputs);
    if (rc == CLI_OK)
        rc = folder_open(&f, args);
    if (rc == CLI_OK)
        rc = run_model(env, args, &f, model, inputs);
    rc = folder_close(&f, rc);
    cli_inputs_free(env, model, inputs);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_run = {
    .name = "run",
    .summary = "run a model once",
    .description =
        "Runs a model on NumPy files, or on random numbers, prints a line for "
        "each output, and writes the outputs if asked to.",
    .args_size = sizeof(run_args),
    .opts = opts,
    .examples = examples,
    .run = run_run,
};
