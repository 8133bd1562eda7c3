/* sparsebit bench - benchmark a model on this machine. */
#define _DEFAULT_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_profile.h"
#include "learn_args.h"
#include "report_page.h"

typedef struct {
    const char *model;
    unsigned batch;
    double seconds;
    cli_list shapes, values;
    bool simplify;
    bool exact;
    bool integer;
    bool profile;
    unsigned top;
    bool all;
    const char *report;
    bool train;
    cli_learn_args learn;
} bench_args;

#define ARG(field) offsetof(bench_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE, 0, NULL,       ARG(model),    "MODEL", "ONNX file to run", true},
    {CLI_UINT, 0, "batch",    ARG(batch),    "N", "size of an unknown first dimension (default: 1)", false},
    {CLI_ABOVE, 0, "seconds", ARG(seconds),  "S", "how long to run (default: 3)", false},
    {CLI_LIST, 0, "shape",    ARG(shapes),   "NAME=1x3x224x224", "shape of an input; repeatable (default: unknown dimensions are 1, of images 224)", false},
    {CLI_LIST, 0, "value",    ARG(values),   CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_FLAG, 0, "simplify", ARG(simplify), NULL, "simplify the model first", false},
    {CLI_FLAG, 0, "exact",    ARG(exact),    NULL, "disable approximations such as Winograd", false},
    {CLI_FLAG, 0, "integer",  ARG(integer),  NULL, "compute Q/DQ groups with the integer kernels that ONNX Runtime on x86 makes of them", false},
    {CLI_FLAG, 0, "profile",  ARG(profile),  NULL, "time, GFLOPS and bytes by operator type and by step", false},
    {CLI_UINT, 0, "top",      ARG(top),      "N", "with --profile: how many steps to show (default: 20)", false},
    {CLI_FLAG, 0, "all",      ARG(all),      NULL, "with --profile: all steps, in order of execution", false},
    {CLI_OUT,  0, "report",   ARG(report),   "FILE.html", "write the profile as a page with charts", false},
    {CLI_FLAG, 0, "train",    ARG(train),    NULL, "a step of training instead: forward, backward and an update by SGD", false},
    CLI_LEARN_LOSS(ARG(learn.loss), "with --train"),
    CLI_LEARN_OUTPUT(ARG(learn.output), "with --train"),
    {0},
};

static const cli_example examples[] = {
    {"sparsebit bench model.onnx --batch 8", "Items per second, latency and memory on all cores"},
    {"sparsebit bench model.onnx --threads 1 --json", "The same on one core, for a script"},
    {"sparsebit bench model.onnx --train --batch 16 --profile", "Where the time of a training step goes"},
    {"sparsebit bench model.onnx --profile --report profile.html", "Where time is spent, as tables and as an HTML page"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_bench;

enum { MAX_RUNS = 100000, TOP_DEFAULT = 20 };

typedef struct {
    size_t runs;
    double load_ms, create_ms, first_ms;
    double best_ms, median_ms, p90_ms, p99_ms; /* of a run */
    double items_per_s;
    double peak_rss_mb, workspace_mb;
    long long batch;
    uint64_t model_bytes;
} timing;

static double bench_ms(void)
{
    return 1e3 * cli_seconds();
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
        cli_put("%s in Sparsebit's executor, batch %lld, %d thread%s, %zu "
                "runs\n",
                args->model, t->batch, sb_ctx_threads(env->ctx),
                sb_ctx_threads(env->ctx) == 1 ? "" : "s", t->runs);
        printf("  latency    %.3f ms median, %.3f p90, %.3f p99, %.3f best\n",
               t->median_ms, t->p90_ms, t->p99_ms, t->best_ms);
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
    cli_json_begin(&j, "bench");
    cli_json_str(&j, "model", args->model);
    cli_json_int(&j, "batch", t->batch);
    cli_json_int(&j, "threads", sb_ctx_threads(env->ctx));
    cli_json_int(&j, "runs", (long long)t->runs);
    cli_json_num(&j, "items_per_s", t->items_per_s);
    cli_json_num(&j, "latency_ms", t->median_ms);
    cli_json_num(&j, "latency_p50_ms", t->median_ms);
    cli_json_num(&j, "latency_p90_ms", t->p90_ms);
    cli_json_num(&j, "latency_p99_ms", t->p99_ms);
    cli_json_num(&j, "latency_best_ms", t->best_ms);
    cli_json_num(&j, "load_ms", t->load_ms);
    cli_json_num(&j, "create_ms", t->create_ms);
    cli_json_num(&j, "first_run_ms", t->first_ms);
    cli_json_num(&j, "start_ms", t->load_ms + t->create_ms + t->first_ms);
    cli_json_num(&j, "peak_rss_mb", t->peak_rss_mb);
    cli_json_num(&j, "workspace_mb", t->workspace_mb);
    if (p)
        bench_profile_json(&j, p, peak);
    cli_json_end(&j);
}

/* The least time that a share `p` of the runs did not exceed. */
static double bench_percentile(const double *sorted, size_t n, double p)
{
    size_t rank = (size_t)ceil(p * (double)n);

    return sorted[rank > 0 ? rank - 1 : 0];
}

/* What is run: inference, or steps of training. */
typedef struct {
    sb_session *session;
    sb_learner *learner;
    const sb_tensor *const *inputs;
    size_t n_inputs;
    sb_tensor *target;
} runner;

static sb_status runner_open(const bench_args *args, const sb_model *model,
                             runner *r)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    sb_learn_options learn = SB_LEARN_OPTIONS_INIT;

    opt.exact = learn.exact = args->exact;
    opt.integer = args->integer;
    opt.profile = learn.profile = wants_profile(args);
    if (!args->train)
        return sb_session_create(model, &opt, &r->session);
    (void)cli_learn_options(&cmd_bench, &args->learn, &learn);
    learn.learning_rate = 0; /* random labels would lead anywhere */
    return sb_learner_create(model, &learn, &r->learner);
}

/* Labels need the shape of the result: one inference tells. */
static sb_status runner_target(sb_ctx *ctx, const bench_args *args,
                               const sb_model *model, runner *r)
{
    size_t n = sb_model_output_count(model), at = 0;
    const sb_tensor **out = cli_alloc(n, sizeof *out);
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;

    (void)cli_learn_options(&cmd_bench, &args->learn, &opt);
    if (args->learn.output)
        at = sb_model_find_output(model, args->learn.output);
    sb_status status = sb_learner_eval(r->learner, SB_LEARN_VALUES_LAST,
                                       r->inputs, r->n_inputs, out, n);
    if (status == SB_OK)
        status = cli_learn_target(ctx, &opt, out[at], &r->target);
    free(out);
    return status;
}

static sb_status runner_run(const runner *r)
{
    if (r->learner)
        return sb_learner_step(r->learner, r->inputs, r->n_inputs, r->target,
                               NULL);
    return sb_session_run(r->session, r->inputs, r->n_inputs, NULL, 0);
}

static void runner_close(runner *r)
{
    sb_session_free(r->session);
    sb_learner_free(r->learner);
    sb_tensor_free(r->target);
}

static sb_status bench_measure(const runner *r, double seconds, timing *t)
{
    double *ms = cli_alloc(MAX_RUNS, sizeof *ms);
    double begin = bench_ms();
    sb_status status = runner_run(r);

    t->first_ms = bench_ms() - begin;
    begin = bench_ms();
    while (status == SB_OK && t->runs < MAX_RUNS &&
           (t->runs < 3 || bench_ms() - begin < seconds * 1e3)) {
        double at = bench_ms();

        status = runner_run(r);
        ms[t->runs++] = bench_ms() - at;
    }
    if (status == SB_OK) {
        qsort(ms, t->runs, sizeof *ms, by_value);
        t->best_ms = ms[0];
        t->median_ms = bench_percentile(ms, t->runs, 0.5);
        t->p90_ms = bench_percentile(ms, t->runs, 0.9);
        t->p99_ms = bench_percentile(ms, t->runs, 0.99);
    }
    free(ms);
    return status;
}

static const char *bench_processor(char *out, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];

    (void)snprintf(out, size, "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        const char *name = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !name)
            continue;
        name += 1 + strspn(name + 1, " ");
        (void)snprintf(out, size, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    if (f)
        (void)fclose(f);
    return out;
}

static const char *bench_date(char *out, size_t size)
{
    time_t now = time(NULL);
    struct tm local;

    if (!localtime_r(&now, &local) ||
        strftime(out, size, "%Y-%m-%d %H:%M", &local) == 0)
        (void)snprintf(out, size, "date unknown");
    return out;
}

static int save_report(cli_env *env, const bench_args *args,
                       sb_session *session, const timing *t,
                       const bench_peak *peak)
{
    int n = sb_ctx_threads(env->ctx);
    const char *name = cli_base_name(args->model);
    char cpu[128], date[32], size[32];
    char *subtitle = cli_printf(
        "%s, batch %lld, %d thread%s; %s, peak measured with %s; sparsebit %s, "
        "%s",
        cli_bytes((double)t->model_bytes, size, sizeof size), t->batch, n,
        n == 1 ? "" : "s", bench_processor(cpu, sizeof cpu), peak->how,
        sb_version(), bench_date(date, sizeof date));
    sb_status status = sb_session_profile_save(session, name, subtitle,
                                               peak->gflops, args->report);

    free(subtitle);
    return status == SB_OK ? CLI_OK : cli_fail(env, args->report);
}

/* A comparison of int8 with float here says little about the target. */
static void bench_notice(const cli_env *env, sb_model *model)
{
    const sb_model_info *info = NULL;

    if (env->common.quiet || sb_model_info_get(model, &info) != SB_OK ||
        info->quantize_nodes + info->dequantize_nodes + info->integer_nodes ==
            0)
        return;
    (void)fflush(stdout);
    (void)fprintf(stderr,
                  "sparsebit: the model is quantized: its target runs it with "
                  "other kernels than Sparsebit's executor, measure its speed "
                  "there\n");
}

/* Prints what was measured, and more about it if asked. */
static int bench_report(cli_env *env, const bench_args *args, const runner *r,
                        const timing *t)
{
    bench_peak peak = {0};
    const sb_profile *p = NULL;

    if (!wants_profile(args)) {
        print_timing(env, args, t, NULL, NULL);
        return CLI_OK;
    }
    if ((r->learner ? sb_learner_profile(r->learner, &p)
                    : sb_session_profile(r->session, &p)) != SB_OK)
        return cli_fail(env, args->model);
    peak.gflops = sb_peak_measure(env->ctx, &peak.how);
    print_timing(env, args, t, p, &peak);
    return args->report ? save_report(env, args, r->session, t, &peak) : CLI_OK;
}

static int bench_model(cli_env *env, const bench_args *args,
                       const sb_model *model, sb_tensor **inputs,
                       double load_ms)
{
    bool batched =
        sb_model_input_count(model) > 0 && sb_tensor_rank(inputs[0]) > 0;
    timing t = {.batch = batched ? sb_tensor_dims(inputs[0])[0] : 1,
                .load_ms = load_ms,
                .model_bytes = sb_model_file_bytes(model)};
    runner r = {.inputs = (const sb_tensor *const *)inputs,
                .n_inputs = sb_model_input_count(model)};
    int rc = CLI_OK;

    double begin = bench_ms();
    sb_status status = runner_open(args, model, &r);
    t.create_ms = bench_ms() - begin;
    if (status == SB_OK && args->train)
        status = runner_target(env->ctx, args, model, &r);
    if (status == SB_OK)
        status = bench_measure(&r, args->seconds > 0 ? args->seconds : 3, &t);
    if (status != SB_OK) {
        const cli_input_spec spec = {NULL, &args->shapes, args->batch, 0};

        rc = cli_inputs_fail(env, args->model, model, &spec, inputs);
    } else {
        t.peak_rss_mb = cli_peak_rss_mb();
        t.workspace_mb = (double)(r.learner ? sb_learner_workspace(r.learner)
                                            : sb_session_workspace(r.session)) /
                         1e6;
        t.items_per_s = (double)t.batch * 1e3 / t.median_ms;
        rc = bench_report(env, args, &r, &t);
    }
    runner_close(&r);
    return rc;
}

static int bench_check(const bench_args *args)
{
    sb_learn_options opt = SB_LEARN_OPTIONS_INIT;

    if (!args->train && (args->learn.loss || args->learn.output))
        return cli_usage(&cmd_bench, "--loss and --loss-output are for "
                                     "--train");
    if (args->train && (args->integer || args->report))
        return cli_usage(&cmd_bench, "--integer and --report are for "
                                     "inference: not with --train");
    return cli_learn_options(&cmd_bench, &args->learn, &opt);
}

static int bench_run(cli_env *env, const void *parsed)
{
    const bench_args *args = parsed;
    const cli_input_spec spec = {NULL, &args->shapes, args->batch,
                                 env->common.seed};
    sb_tensor **inputs = NULL;
    sb_model *model = NULL;
    double begin = bench_ms();
    int rc = bench_check(args);

    if (rc != CLI_OK)
        return rc;
    if (sb_model_load(env->ctx, args->model, &model) != SB_OK)
        rc = cli_fail(env, args->model);
    if (rc == CLI_OK)
        rc = cli_model_fix(env, &cmd_bench, model, NULL, &args->values);
    if (rc == CLI_OK && args->simplify &&
        sb_model_simplify(model, NULL, NULL, NULL) != SB_OK)
        rc = cli_fail(env, args->model);
    double load_ms = bench_ms() - begin;
    if (rc == CLI_OK)
        rc = cli_inputs_make(env, &cmd_bench, model, &spec, &inputs);
    if (rc == CLI_OK)
        rc = bench_model(env, args, model, inputs, load_ms);
    if (rc == CLI_OK)
        bench_notice(env, model);
    cli_inputs_free(model, inputs);
    sb_model_free(model);
    return rc;
}

const cli_cmd cmd_bench = {
    .name = "bench",
    .summary = "benchmark a model on this machine",
    .description =
        "Runs a model on random inputs for a few seconds in Sparsebit's own "
        "executor and prints latency, throughput and memory. These are not "
        "the times of ONNX Runtime or another target, whose kernels are "
        "others: measure those there (lint says what a "
        "runtime computes with integers). Planning is not part of the "
        "latency. With "
        "--profile also where time is spent: for each operator type and each "
        "step its time, GFLOPS (two operations per multiply-accumulate), their "
        "share of the peak that this machine reaches in a loop of "
        "multiply-adds, the bytes of its inputs, weights and results, and "
        "bytes per second. With --train the same for steps of training.",
    .args_size = sizeof(bench_args),
    .opts = opts,
    .examples = examples,
    .run = bench_run,
};
