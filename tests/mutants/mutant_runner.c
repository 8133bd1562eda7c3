/* mutant_runner: does everything that users do with a model, for thousands of
 * models that no tool should write.  tests/ort/test_mutants.py makes
 * them.
 *
 *     mutant_runner SECONDS <lines "MODEL PREFIX TARGET HOW">
 *
 * Each model has a process of its own with SECONDS of processor time and 64 MB,
 * so that much honest work is refused and does not take the time of others.  It
 * is loaded, counted, printed, linted, run as it is, run fused, simplified and
 * run, and quantized for TARGET, written, read back, run in float and as
 * integers.  Inputs and outputs go to PREFIX.in.npz and PREFIX.out.npz, for
 * comparison with ONNX Runtime.  HOW is a sum: 1, the first element of each
 * float input is NaN; 2, there are numbers near the end of the range, so that
 * sums depend on their order, and only types and shapes are compared.
 *
 * Answers with a line "VERDICT<tab>MODEL<tab>stage: message": ran, refused (for
 * a reason, in all modes alike), or WRONG, CRASH, HANG, which are failures. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sparsebit/experimental.h>

#include "../fuzz/fuzz_budget.h"

enum { MOST = 16, MOST_ELEMENTS = 1 << 16, TEXT = 400, PATIENCE = 20 };
#define MOST_MACS 3e7

/* What the process of a model leaves behind, however it ends. */
typedef struct report {
    char stage[32];
    char verdict[16];
    char message[TEXT];
} report;

static report *shared;

enum { HOW_NAN = 1, HOW_HUGE = 2 };
static int how;
static int guessed; /* a dimension that the model leaves open */

static void enter(const char *stage)
{
    (void)snprintf(shared->stage, sizeof shared->stage, "%s", stage);
}

/* The first failure stays. */
static void say(const char *verdict, const char *message)
{
    if (strcmp(shared->verdict, "WRONG") == 0)
        return;
    (void)snprintf(shared->verdict, sizeof shared->verdict, "%s", verdict);
    (void)snprintf(shared->message, sizeof shared->message, "%s: %s",
                   shared->stage, message);
    for (char *c = shared->message; *c; c++)
        if (*c == '\t' || *c == '\n')
            *c = ' ';
}

/* ---- inputs ------------------------------------------------------------- */

static int make_input(sb_ctx *ctx, const sb_value_info *v, size_t seed,
                      sb_tensor **out)
{
    int64_t dims[MOST], count = 1;

    if (v->dtype == SB_DTYPE_NONE || v->dtype == SB_DTYPE_STRING ||
        v->rank < 0 || v->rank > 12)
        return 0;
    for (int d = 0; d < v->rank; d++) {
        dims[d] = v->dims[d] < 0 ? 2 : v->dims[d];
        guessed |= v->dims[d] < 0;
        if (dims[d] > MOST_ELEMENTS)
            return 0;
        count *= dims[d];
        if (count > MOST_ELEMENTS)
            return 0;
    }
    if (sb_tensor_create(ctx, v->dtype, v->rank, dims, out) != SB_OK)
        return 0;
    sb_tensor_fill_random(*out, seed);
    if ((how & HOW_NAN) && v->dtype == SB_DTYPE_F32 && count > 0)
        *(float *)sb_tensor_data_mutable(*out) = NAN;
    return 1;
}

static int make_inputs(sb_ctx *ctx, const sb_model *model, sb_tensor **in)
{
    size_t n = sb_model_input_count(model);

    if (n > MOST || sb_model_output_count(model) > MOST)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!make_input(ctx, sb_model_input(model, i), i + 1, &in[i]))
            return 0;
    return 1;
}

/* ---- results ------------------------------------------------------------ */

typedef struct result {
    int ok;
    sb_status status;
    size_t n;
    sb_tensor *t[MOST];
} result;

static void result_drop(result *r)
{
    for (size_t i = 0; i < r->n; i++)
        sb_tensor_free(r->t[i]);
    *r = (result){0};
}

static sb_status ignore(void *user, const char *name, const sb_tensor *t)
{
    (void)user;
    (void)name;
    (void)t;
    return SB_OK;
}

/* Twice, since the second run reuses what the first made. */
static result run_once(sb_model *model, sb_tensor **in,
                       const sb_session_options *opt)
{
    size_t n_in = sb_model_input_count(model);
    result r = {.n = sb_model_output_count(model)};
    sb_session *session = NULL;
    const sb_tensor *const *given = (const sb_tensor *const *)in;

    r.status = sb_session_create(model, opt, &session);
    if (r.status == SB_OK)
        r.status = sb_session_run(session, given, n_in, NULL, 0);
    if (r.status == SB_OK)
        r.status = sb_session_run_into(session, given, n_in, r.t, r.n);
    sb_session_free(session);
    r.ok = r.status == SB_OK;
    return r;
}

/* Equal but for rounding; NaN and infinities in the same places. */
static int floats_agree(const float *a, const float *b, size_t n, size_t *at)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        if (isfinite(a[i]))
            most = fmax(most, fabs((double)a[i]));
    for (size_t i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i];
        *at = i;
        if (x == y || (isnan(x) && isnan(y)))
            continue;
        if (!isfinite(x) || !isfinite(y) ||
            fabs(x - y) > 1e-3 * fabs(x) + 2e-4 * most + 1e-6)
            return 0;
    }
    return 1;
}

static int same_form(const sb_tensor *a, const sb_tensor *b)
{
    return sb_tensor_dtype(a) == sb_tensor_dtype(b) &&
           sb_tensor_rank(a) == sb_tensor_rank(b) &&
           memcmp(sb_tensor_dims(a), sb_tensor_dims(b),
                  (size_t)sb_tensor_rank(a) * sizeof(int64_t)) == 0;
}

static void compare_tensors(const char *what, size_t i, const sb_tensor *a,
                            const sb_tensor *b)
{
    char text[TEXT];
    size_t at = 0;

    if (!same_form(a, b)) {
        (void)snprintf(text, sizeof text, "%s: type or shape of output %zu",
                       what, i);
        say("WRONG", text);
    } else if (sb_tensor_dtype(a) == SB_DTYPE_F32 && !(how & HOW_HUGE)) {
        const float *x = sb_tensor_data(a), *y = sb_tensor_data(b);
        if (floats_agree(x, y, sb_tensor_size(a) / sizeof *x, &at))
            return;
        (void)snprintf(text, sizeof text, "%s: output %zu, element %zu: %g, %g",
                       what, i, at, (double)x[at], (double)y[at]);
        say("WRONG", text);
    }
}

/* Integers behind a rounding may differ by a step: types but f32 are left to
 * the comparison with ONNX Runtime. */
static void compare(const char *what, const result *a, const result *b)
{
    if (a->ok != b->ok) {
        char text[TEXT];
        /* One of them needed more memory than there is; or found that the
         * input cannot be what the other takes for granted; or has operators
         * that only passes can replace by some that run. */
        if (a->status == SB_NO_MEMORY || b->status == SB_NO_MEMORY || guessed ||
            a->status == SB_UNSUPPORTED)
            return;
        (void)snprintf(text, sizeof text, "%s: only the %s runs", what,
                       a->ok ? "first" : "second");
        say("WRONG", text);
        return;
    }
    for (size_t i = 0; a->ok && i < a->n; i++)
        if (a->t[i] && b->t[i])
            compare_tensors(what, i, a->t[i], b->t[i]);
}

/* ---- what users do ------------------------------------------------------ */

/* False: it would take too long to run. */
static int look_at(sb_model *model, const char *target)
{
    const sb_model_info *info = NULL;
    const sb_quant_value *const *values = NULL;
    const sb_lint *lint = NULL;
    size_t n = 0;

    enter("info");
    int fast =
        sb_model_info_get(model, &info) == SB_OK && info->macs <= MOST_MACS;
    (void)sb_model_count_subnormals(model);
    (void)!sb_model_list_quantized(model, &values, &n);
    for (int f = 0; f < 3; f++) {
        char *text = NULL;
        enter("print");
        if (sb_model_print(model, (sb_graph_format)f, &text) == SB_OK)
            sb_memory_free(text);
    }
    enter("lint");
    (void)!sb_model_lint(model, target, &lint);
    return fast;
}

static void save_tensors(sb_ctx *ctx, const char *prefix, const char *end,
                         sb_tensor **t, size_t n)
{
    char path[600], names[MOST][8];
    const char *list[MOST];

    for (size_t i = 0; i < n; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%zu", i);
        list[i] = names[i];
        if (!t[i] || sb_tensor_dtype(t[i]) == SB_DTYPE_STRING)
            return;
    }
    (void)snprintf(path, sizeof path, "%s.%s.npz", prefix, end);
    (void)!sb_tensors_save_npz(ctx, path, list, (const sb_tensor *const *)t, n);
}

/* Weights may keep the sign that their file, or a normalization, gave them. */
static void check_scales(const sb_quant_model *qm)
{
    for (size_t i = 0; i < sb_quant_model_quantizer_count(qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(qm, i);
        for (size_t k = 0; k < q->n; k++)
            if (!isfinite(q->scale[k]) || !isfinite(q->zero_point[k]) ||
                q->scale[k] == 0 || (q->scale[k] < 0 && !q->is_weight))
                say("WRONG", "a scale that is no positive number");
    }
}

static sb_status find_scales(sb_quant_model *qm, sb_tensor **in, size_t n)
{
    sb_status status = SB_OK;

    if (sb_quant_model_needs_calibration(qm)) {
        enter("calibrate");
        status = sb_quant_model_prepare_calibration(qm, NULL);
        if (status == SB_OK)
            status = sb_quant_model_forward(qm, (const sb_tensor *const *)in, n,
                                            NULL, 0);
    }
    enter("scales");
    return status == SB_OK ? sb_quant_model_calc_qparams(qm) : status;
}

/* Reads our file back: it must load and, if the float network runs, run. */
static void read_back(sb_ctx *ctx, const char *path, sb_tensor **in,
                      int float_runs)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;
    sb_model *again = NULL;

    enter("reload");
    if (sb_model_load(ctx, path, &again) != SB_OK) {
        say("WRONG", sb_ctx_error(ctx));
        return;
    }
    enter("run quantized");
    result r = run_once(again, in, &opt);
    if (float_runs && !r.ok && r.status != SB_NO_MEMORY)
        say("WRONG", sb_ctx_error(ctx));
    result_drop(&r);
    enter("run as integers");
    opt.integer = SB_INTEGER_MODE_ON;
    r = run_once(again, in, &opt);
    result_drop(&r);
    sb_model_free(again);
}

static void quantize(sb_ctx *ctx, sb_model *model, sb_tensor **in,
                     const char *prefix, const char *target, int float_runs)
{
    sb_quant_options opt = SB_QUANT_OPTIONS_INIT;
    sb_quant_model *qm = NULL;
    char path[600];

    opt.target = target;
    (void)snprintf(path, sizeof path, "%s.q.onnx", prefix);
    enter("quantize");
    if (sb_quant_model_create(model, &opt, &qm) == SB_OK &&
        find_scales(qm, in, sb_model_input_count(model)) == SB_OK) {
        check_scales(qm);
        enter("export");
        if (sb_quant_model_export(qm, path, NULL) == SB_OK)
            read_back(ctx, path, in, float_runs);
        (void)unlink(path);
    }
    sb_quant_model_free(qm);
}

static void run_modes(sb_ctx *ctx, sb_model *model, sb_tensor **in,
                      const char *prefix, const char *target)
{
    sb_session_options opt = SB_SESSION_OPTIONS_INIT;

    enter("run");
    opt.exact = 1;
    result fused = run_once(model, in, &opt);
    say(fused.ok ? "ran" : "refused", fused.ok ? "" : sb_ctx_error(ctx));
    if (fused.ok) {
        save_tensors(ctx, prefix, "in", in, sb_model_input_count(model));
        save_tensors(ctx, prefix, "out", fused.t, fused.n);
    }
    enter("run as is");
    opt.dump = ignore;
    result plain = run_once(model, in, &opt);
    compare("as is and fused", &plain, &fused);
    quantize(ctx, model, in, prefix, target, fused.ok);
    enter("simplify");
    if (sb_model_simplify(model, NULL, NULL, NULL) == SB_OK) {
        enter("run simplified");
        result simple = run_once(model, in, &opt);
        compare("as is and simplified", &plain, &simple);
        result_drop(&simple);
    } else if (fused.ok) {
        say("WRONG", sb_ctx_error(ctx));
    }
    result_drop(&fused);
    result_drop(&plain);
}

static void use_model(const char *path, const char *prefix, const char *target)
{
    budget b = {0};
    const sb_allocator alloc = {sizeof alloc, &b, budget_resize, budget_free};
    sb_ctx *ctx = NULL;
    sb_model *model = NULL;
    sb_tensor *in[MOST] = {0};

    if (sb_ctx_create(&alloc, &ctx) != SB_OK)
        return;
    sb_ctx_set_threads(ctx, 1);
    enter("load");
    if (sb_model_load(ctx, path, &model) != SB_OK) {
        say("refused", sb_ctx_error(ctx));
    } else {
        int fast = look_at(model, target);
        enter("inputs");
        if (fast && make_inputs(ctx, model, in))
            run_modes(ctx, model, in, prefix, target);
        else
            say("refused", "too much work, or no inputs for it");
    }
    enter("free");
    for (size_t i = 0; i < MOST; i++)
        sb_tensor_free(in[i]);
    sb_model_free(model);
    sb_ctx_free(ctx);
    if (b.live != 0)
        say("WRONG", "memory that was not freed");
    enter("done");
}

/* ---- processes ---------------------------------------------------------- */

static double now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void be_child(char **word, double limit)
{
    char errors[600];
    struct rlimit none = {0, 0}, seconds = {(rlim_t)limit, (rlim_t)limit + 1};

    (void)snprintf(errors, sizeof errors, "%s.err", word[1]);
    int fd = open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd >= 0)
        (void)dup2(fd, 2);
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)setrlimit(RLIMIT_CPU, &seconds);
    how = atoi(word[3]);
    use_model(word[0], word[1], word[2]);
    exit(0); /* with the checks that sanitizers do at the end */
}

/* False: it had to be killed. */
static int wait_for(pid_t pid, double limit, int *status)
{
    double begin = now();
    useconds_t nap = 200;

    while (waitpid(pid, status, WNOHANG) == 0) {
        if (now() - begin > limit) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, status, 0);
            return 0;
        }
        (void)usleep(nap);
        nap = nap < 5000 ? nap * 2 : nap;
    }
    return 1;
}

static void serve(char **word, double limit)
{
    int status = 0;

    *shared = (report){.verdict = "refused"};
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        exit(1);
    if (pid == 0)
        be_child(word, limit);
    const char *verdict = shared->verdict;
    if (!wait_for(pid, PATIENCE * limit, &status) ||
        (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU))
        verdict = "HANG";
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        verdict = "CRASH";
    int failed = verdict != shared->verdict;
    printf("%s\t%s\t%s\n", verdict, word[0],
           failed ? shared->stage : shared->message);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    double limit = argc > 1 ? atof(argv[1]) : 10;
    char line[2048];

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        char *word[4], *rest = line;
        int n = 0;
        while (n < 4 && (word[n] = strtok_r(NULL, " \n", &rest)))
            n++;
        if (n == 4)
            serve(word, limit);
    }
    return 0;
}
