/* sparsebit bench - how fast a model runs here. */
#define _DEFAULT_SOURCE
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_profile.h"

typedef struct {
    const char *model;
    unsigned batch;
    double seconds;
    cli_list shapes;
    bool simplify;
    bool exact;
    bool integer;
    bool profile;
    unsigned top;
    bool all;
    const char *report;
} bench_args;

#define ARG(field) offsetof(bench_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,       ARG(model),    "MODEL", "ONNX file to run", true},
    {CLI_UINT, 0, "batch",    ARG(batch),    "N", "size of an unknown first dimension (default: 1)", false},
    {CLI_REAL, 0, "seconds",  ARG(seconds),  "S", "how long to run (default: 3)", false},
    {CLI_LIST, 0, "shape",    ARG(shapes),   "NAME=1x3x224x224", "shape of an input; repeatable (default: unknown dimensions are 1)", false},
    {CLI_FLAG, 0, "simplify", ARG(simplify), NULL, "simplify the model first", false},
    {CLI_FLAG, 0, "exact",    ARG(exact),    NULL, "no faster algorithms that round differently", false},
    {CLI_FLAG, 0, "integer",  ARG(integer),  NULL, "compute Q/DQ groups with the integer kernels that ONNX Runtime on x86 makes of them", false},
    {CLI_FLAG, 0, "profile",  ARG(profile),  NULL, "time, GFLOPS and bytes by operator type and by step", false},
    {CLI_UINT, 0, "top",      ARG(top),      "N", "with --profile: how many steps to show (default: 20)", false},
    {CLI_FLAG, 0, "all",      ARG(all),      NULL, "with --profile: all steps, in order of execution", false},
    {CLI_FILE, 0, "report",   ARG(report),   "FILE.html", "write the profile as a page with charts", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit bench model.onnx --batch 8", "Items per second, latency and memory on all cores"},
    {"sparsebit bench model.onnx --threads 1 --json", "The same on one core, for a script"},
    {"sparsebit bench model.onnx --profile --report profile.html", "Where the time goes, as tables and as a page"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_bench;

enum { MAX_RUNS = 100000, TOP_DEFAULT = 20 };

typedef struct {
    size_t runs;
    double load_ms, create_ms, first_ms, median_ms, best_ms;
    double items_per_s;
    double peak_rss_mb, workspace_mb;
    long long batch;
} timing;

static double now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool wants_profile(const bench_args *args)
{
    return args->profile || args->report;
}

/* `p` is NULL, or what was measured step by step. */
static void print_timing(const cli_env *env, const bench_args *args,
                         const timing *t, const sb_profile *p,
                         const bench_peak *peak)
{
    cli_json j = {0};

    if (!env->common.json) {
        printf("%s, batch %lld, %d thread%s, %zu runs\n", args->model, t->batch,
               sb_ctx_threads(env->ctx),
               sb_ctx_threads(env->ctx) == 1 ? "" : "s", t->runs);
        printf("  latency    %.3f ms median, %.3f ms best\n", t->median_ms,
               t->best_ms);
        printf("  start      %.1f ms: load %.1f, session %.1f, plan and first "
               "run %.1f\n",
               t->load_ms + t->create_ms + t->first_ms, t->load_ms,
               t->create_ms, t->first_ms);
        printf("  throughput %.2f items/s\n", t->items_per_s);
        printf("  memory     %.1f MB peak, %.1f MB of it activations\n",
               t->peak_rss_mb, t->workspace_mb);
        if (p)
            bench_profile_print(p, peak,
                                args->all   ? 0
                                : args->top ? args->top
                                            : TOP_DEFAULT);
        return;
    }
    cli_json_open(&j, NULL, '{');
    cli_json_str(&j, "file", args->model);
    cli_json_int(&j, "batch", t->batch);
    cli_json_int(&j, "threads", sb_ctx_threads(env->ctx));
    cli_json_int(&j, "runs", (long long)t->runs);
    cli_json_num(&j, "items_per_s", t->items_per_s);
    cli_json_num(&j, "latency_ms", t->median_ms);
    cli_json_num(&j, "latency_best_ms", t->best_ms);
    cli_json_num(&j, "load_ms", t->load_ms);
    cli_json_num(&j, "create_ms", t->create_ms);
    cli_json_num(&j, "first_run_ms", t->first_ms);
    cli_json_num(&j, "start_ms", t->load_ms + t->create_ms + t->first_ms);
    cli_json_num(&j, "peak_rss_mb", t->peak_rss_mb);
    cli_json_num(&j, "workspace_mb", t->workspace_mb);
    if (p)
        bench_profile_json(&j, p, peak);
    cli_json_close(&j, '}');
}

static sb_status measure(sb_session *session, sb_tensor *const *inputs,
                         const sb_tensor **outputs, double seconds, timing *t)
{
    double *ms = cli_alloc(MAX_RUNS, sizeof *ms);
    double begin = now_ms();
    sb_status status =
        sb_session_run(session, (const sb_tensor *const *)inputs, outputs);

    t->first_ms = now_ms() - begin;
    begin = now_ms();
    while (status == SB_OK && t->runs < MAX_RUNS &&
           (t->runs < 3 || now_ms() - begin < seconds * 1e3)) {
        double at = now_ms();

        status =
            sb_session_run(session, (const sb_tensor *const *)inputs, outputs);
        ms[t->runs++] = now_ms() - at;
    }
    if (status == SB_OK) {
        qsort(ms, t->runs, sizeof *ms, by_value);
        t->median_ms = ms[t->runs / 2];
        t->best_ms = ms[0];
    }
    free(ms);
    return status;
}

static int save_report(cli_env *env, const bench_args *args,
                       sb_session *session, const timing *t,
                       const bench_peak *peak)
{
    int n = sb_ctx_threads(env->ctx);
    const char *slash = strrchr(args->model, '/');
    const char *name = slash ? slash + 1 : args->model;
    char *subtitle =
        cli_printf("batch %lld, %d thread%s, sparsebit %s; peak "
                   "measured with %s",
                   t->batch, n, n == 1 ? "" : "s", sb_version(), peak->how);
    sb_status status = sb_session_profile_save(session, name, subtitle,
                                               peak->gflops, args->report);

    free(subtitle);
    return status == SB_OK ? CLI_OK : cli_fail(env, args->report);
}

/* Prints what was measured, and more about it if asked. */
static int report(cli_env *env, const bench_args *args, sb_session *session,
                  const timing *t)
{
    bench_peak peak = {0};
    sb_profile p;

    if (!wants_profile(args)) {
        print_timing(env, args, t, NULL, NULL);
        return CLI_OK;
    }
    if (sb_session_profile(session, &p) != SB_OK)
        return cli_fail(env, args->model);
    peak.gflops = sb_peak_measure(env->ctx, &peak.how);
    print_timing(env, args, t, &p, &peak);
    return args->report ? save_report(env, args, session, t, &peak) : CLI_OK;
}

static int bench_model(cli_env *env, const bench_args *args,
                       const sb_model *model, sb_tensor **inputs,
                       double load_ms)
{
    const sb_tensor **outputs =
        cli_alloc(sb_model_output_count(model), sizeof(sb_tensor *));
    bool batched =
        sb_model_input_count(model) > 0 && sb_tensor_rank(inputs[0]) > 0;
    timing t = {.batch = batched ? sb_tensor_dims(inputs[0])[0] : 1,
                .load_ms = load_ms};
    sb_session *session = NULL;
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    int rc = CLI_OK;

    opt.exact = args->exact;
    opt.integer = args->integer;
    opt.profile = wants_profile(args);
    double begin = now_ms();
    sb_status status = sb_session_create(env->ctx, model, &opt, &session);
    t.create_ms = now_ms() - begin;
    if (status == SB_OK)
        status = measure(session, inputs, outputs,
                         args->seconds > 0 ? args->seconds : 3, &t);
    if (status != SB_OK) {
        rc = cli_fail(env, args->model);
    } else {
        t.peak_rss_mb = cli_peak_rss_mb();
        t.workspace_mb = (double)sb_session_workspace(session) / 1e6;
        t.items_per_s = (double)t.batch * 1e3 / t.median_ms;
        rc = report(env, args, session, &t);
    }
    sb_session_free(session);
    free(outputs);
    return rc;
}

static int bench_run(cli_env *env, const void *parsed)
{
    const bench_args *args = parsed;
    const cli_input_spec spec = {NULL, &args->shapes, args->batch,
                                 env->common.seed};
    sb_tensor **inputs = NULL;
    sb_model *model = NULL;
    double begin = now_ms();
    int rc = CLI_OK;

    if (sb_model_load(env->ctx, args->model, &model) != SB_OK ||
        (args->simplify &&
         sb_model_simplify(env->ctx, model, NULL, NULL, NULL) != SB_OK))
        rc = cli_fail(env, args->model);
    double load_ms = now_ms() - begin;
    if (rc == CLI_OK)
        rc = cli_inputs_make(env, &cmd_bench, model, &spec, &inputs);
    if (rc == CLI_OK)
        rc = bench_model(env, args, model, inputs, load_ms);
    cli_inputs_free(env, model, inputs);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_bench = {
    .name = "bench",
    .summary = "how fast a model runs here",
    .description =
        "Runs a model on random inputs for a few seconds and prints latency, "
        "throughput and memory. Planning is not part of the latency. With "
        "--profile also where the time goes: for each operator type and each "
        "step its time, GFLOPS (two operations a multiply-accumulate), their "
        "share of the peak that this machine reaches in a loop of "
        "multiply-adds, the bytes of its inputs, weights and results, and "
        "bytes a second.",
    .args_size = sizeof(bench_args),
    .opts = opts,
    .examples = examples,
    .run = bench_run,
};
