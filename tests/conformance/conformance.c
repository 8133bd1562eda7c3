/* The ONNX conformance suite: run each model on the given inputs, compare with
 * the given outputs.
 *
 *     conformance DIR [--filter PATTERN] [--skip FILE] [--ops FILE] [-v]
 *
 * DIR holds folders of cases (node, simple, ...) or the cases themselves.  A
 * case is model.onnx and test_data_set_N/{input,output}_M.pb.  Each case runs
 * in a process of its own, so that a crash or a hang is one failed case.
 * Tolerances are those of ONNX's own runner: |got - want| <= 1e-7 + 1e-3 |want|
 * for floats, equality for the rest.
 *
 * The last line is `N passed, N failed, N skipped`.  --ops writes for every
 * operator how many cases with it passed and failed. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/exec.h"
#include "onnx/onnx.h"
#include "tensor/sequence.h"

enum { MAX_IO = 128, MAX_OPS = 512, TIMEOUT_S = 60, TEXT_MAX = 4096 };

typedef struct {
    char pattern[128];
    char reason[128];
} skip_rule;

typedef struct {
    char name[96];
    unsigned passed, failed;
} op_count;

typedef struct {
    const char *dir, *filter, *skip_file, *ops_file;
    bool verbose;
    skip_rule skips[256];
    size_t n_skips;
    op_count ops[MAX_OPS];
    size_t n_ops;
    unsigned passed, failed, skipped;
} suite;

/* What a case's process tells its parent: operators, then a message, empty if
 * the case passed. */
typedef struct {
    char ops[TEXT_MAX];
    char message[TEXT_MAX];
} verdict;

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* ---- comparing ---------------------------------------------------------- */

static bool close_enough(double got, double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got;
    return fabs(got - want) <= 1e-7 + 1e-3 * fabs(want);
}

/* Complex numbers are compared as twice as many reals. */
static sb_tensor as_reals(const sb_tensor *t)
{
    sb_tensor out = *t;
    int64_t n = sb_tensor_count(t) * 2;

    if (t->dtype != SB_DTYPE_C64 && t->dtype != SB_DTYPE_C128)
        return out;
    out = sb_tensor_make(t->dtype == SB_DTYPE_C64 ? SB_DTYPE_F32 : SB_DTYPE_F64,
                         1, &n);
    out.data = t->data;
    return out;
}

static bool same_tensor(const sb_tensor *got, const sb_tensor *want, int index,
                        verdict *v)
{
    char got_text[128], want_text[128];
    sb_tensor_describe(got, got_text, sizeof got_text);
    sb_tensor_describe(want, want_text, sizeof want_text);

    if (strcmp(got_text, want_text) != 0) {
        (void)snprintf(v->message, sizeof v->message,
                       "output %d: got %s, want %s", index, got_text,
                       want_text);
        return false;
    }
    sb_tensor a = as_reals(got), b = as_reals(want);
    for (int64_t i = 0; i < sb_tensor_count(&b); i++) {
        bool same;
        double x = 0, y = 0;

        if (sb_dtype_is_float(b.dtype)) {
            x = sb_tensor_get_f64(&a, i), y = sb_tensor_get_f64(&b, i);
            same = close_enough(x, y);
        } else {
            int64_t p = sb_tensor_get_i64(&a, i), q = sb_tensor_get_i64(&b, i);
            same = p == q, x = (double)p, y = (double)q;
        }
        if (!same) {
            (void)snprintf(v->message, sizeof v->message,
                           "output %d: element %lld of %s: got %.9g, want %.9g",
                           index, (long long)i, want_text, x, y);
            return false;
        }
    }
    return true;
}

/* The same for sequences: each element. */
static bool same_value(const sb_tensor *got, const sb_tensor *want, int index,
                       verdict *v)
{
    sb_sequence a, b;

    if (!sb_sequence_open(want, &b))
        return same_tensor(got, want, index, v);
    if (!sb_sequence_open(got, &a) || a.n != b.n) {
        (void)snprintf(v->message, sizeof v->message,
                       "output %d: no sequence of %lld tensors", index,
                       (long long)b.n);
        return false;
    }
    for (int64_t i = 0; i < b.n; i++) {
        sb_tensor x = sb_sequence_get(&a, i), y = sb_sequence_get(&b, i);
        if (!same_tensor(&x, &y, index, v))
            return false;
    }
    return true;
}

/* ---- one case, in its own process --------------------------------------- */

static void note_ops(const sb_graph *g, verdict *v)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        const sb_node *node = &g->nodes[i];
        size_t used = strlen(v->ops);
        char entry[128];

        if (node->dead)
            continue;
        (void)snprintf(entry, sizeof entry, "%s%s%s,", node->domain,
                       *node->domain ? "::" : "", node->op);
        if (!strstr(v->ops, entry))
            (void)snprintf(v->ops + used, sizeof v->ops - used, "%s", entry);
        for (uint32_t a = 0; a < node->n_attrs; a++) {
            const sb_attr *attr = &node->attrs[a];
            size_t n = attr->type == SB_ATTR_GRAPH    ? 1
                       : attr->type == SB_ATTR_GRAPHS ? attr->n
                                                      : 0;
            for (size_t k = 0; k < n; k++)
                note_ops(attr->graphs[k], v);
        }
    }
}

/* Loads PREFIX_0.pb, PREFIX_1.pb ... */
static sb_status load_tensors(sb_ctx *ctx, const sb_graph *g,
                              const sb_value_id *values, size_t n_values,
                              const char *prefix, sb_tensor *out, size_t *n)
{
    for (*n = 0; *n < MAX_IO; (*n)++) {
        bool sequence =
            *n < n_values &&
            sb_graph_value(g, values[*n])->type.dtype == SB_DTYPE_SEQUENCE;
        char path[1024];

        (void)snprintf(path, sizeof path, "%s_%zu.pb", prefix, *n);
        if (!is_file(path))
            break;
        SB_TRY((sequence ? sb_onnx_load_sequence
                         : sb_onnx_load_tensor)(ctx, path, &out[*n]));
    }
    return SB_OK;
}

static void drop_tensors(sb_tensor *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sb_tensor_drop(&t[i]);
}

typedef struct {
    sb_tensor in[MAX_IO], want[MAX_IO];
    size_t n_in, n_want;
} data_set;

/* Files made before NumPy had a bfloat16 store it as the bits, uint16. */
static void fix_bfloat16(sb_tensor *t, const sb_value *value)
{
    if (t->dtype == SB_DTYPE_U16 && value->type.dtype == SB_DTYPE_BF16)
        t->dtype = SB_DTYPE_BF16;
}

static sb_status run_set(sb_ctx *ctx, const sb_graph *g, sb_exec *exec,
                         data_set *set, verdict *v)
{
    const sb_tensor *inputs[MAX_IO], *outputs[MAX_IO];
    size_t fed = 0;

    if (g->n_inputs > MAX_IO || g->n_outputs > MAX_IO)
        return sb_fail(ctx, SB_UNSUPPORTED, "too many inputs or outputs");
    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *value = sb_graph_value(g, g->inputs[i]);

        if (value->is_constant)
            inputs[i] = &value->constant; /* has a default, as in old files */
        else if (fed < set->n_in)
            inputs[i] = &set->in[fed++];
        else
            return sb_fail(ctx, SB_BAD_DATA, "no data for input '%s'",
                           value->name);
        if (!value->is_constant)
            fix_bfloat16(&set->in[fed - 1], value);
    }
    if (set->n_want > g->n_outputs)
        return sb_fail(ctx, SB_BAD_MODEL, "%zu outputs, want %zu", g->n_outputs,
                       set->n_want);
    SB_TRY(sb_exec_run(exec, inputs, NULL, outputs));
    for (size_t i = 0; i < set->n_want && !v->message[0]; i++) {
        fix_bfloat16(&set->want[i], sb_graph_value(g, g->outputs[i]));
        if (!same_value(outputs[i], &set->want[i], (int)i, v))
            break;
    }
    return SB_OK;
}

static sb_status run_sets(sb_ctx *ctx, const sb_graph *g, const char *dir,
                          verdict *v)
{
    const sb_exec_options opt = {0};
    sb_exec *exec = NULL;
    sb_status status = sb_exec_create(ctx, g, &opt, &exec);

    for (int k = 0; status == SB_OK && !v->message[0]; k++) {
        static data_set set;
        char prefix[1024];

        memset(&set, 0, sizeof set);
        (void)snprintf(prefix, sizeof prefix, "%s/test_data_set_%d", dir, k);
        if (!is_dir(prefix))
            break;
        (void)snprintf(prefix, sizeof prefix, "%s/test_data_set_%d/input", dir,
                       k);
        status = load_tensors(ctx, g, g->inputs, g->n_inputs, prefix, set.in,
                              &set.n_in);
        (void)snprintf(prefix, sizeof prefix, "%s/test_data_set_%d/output", dir,
                       k);
        if (status == SB_OK)
            status = load_tensors(ctx, g, g->outputs, g->n_outputs, prefix,
                                  set.want, &set.n_want);
        if (status == SB_OK)
            status = run_set(ctx, g, exec, &set, v);
        drop_tensors(set.in, set.n_in);
        drop_tensors(set.want, set.n_want);
    }
    sb_exec_free(exec);
    return status;
}

static void run_case(const char *dir, int fd)
{
    static verdict v;
    char path[1024];
    sb_ctx *ctx = NULL;
    sb_graph *g = NULL;

    if (sb_ctx_create(NULL, &ctx) != SB_OK)
        exit(1);
    (void)snprintf(path, sizeof path, "%s/model.onnx", dir);
    sb_status status = sb_onnx_load(ctx, path, &g);
    if (status == SB_OK) {
        note_ops(g, &v);
        /* Should the rest crash, the parent knows at least the operators. */
        if (write(fd, &v, sizeof v) != (ssize_t)sizeof v)
            exit(1);
        status = sb_graph_infer(g);
    }
    if (status == SB_OK)
        status = run_sets(ctx, g, dir, &v);
    if (status != SB_OK)
        (void)snprintf(v.message, sizeof v.message, "%s", sb_ctx_error(ctx));
    sb_graph_free(g);
    sb_ctx_free(ctx);
    if (write(fd, &v, sizeof v) != (ssize_t)sizeof v)
        exit(1);
    exit(0); /* not _exit: leaks count too */
}

static void read_verdict(int fd, verdict *v)
{
    verdict buffer;
    size_t got = 0;
    ssize_t n;

    while ((n = read(fd, (char *)&buffer + got, sizeof buffer - got)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        got += (size_t)n;
        if (got == sizeof buffer) {
            *v = buffer;
            got = 0;
        }
    }
}

/* Runs a case in a child; v->message tells what went wrong. */
static void judge_case(const char *dir, verdict *v)
{
    int fd[2], status = 0;

    memset(v, 0, sizeof *v);
    (void)fflush(NULL);
    if (pipe(fd) != 0) {
        perror("pipe");
        exit(1);
    }
    pid_t pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(1);
    }
    if (pid == 0) {
        (void)close(fd[0]);
        (void)alarm(TIMEOUT_S);
        run_case(dir, fd[1]);
    }
    (void)close(fd[1]);
    read_verdict(fd[0], v);
    (void)close(fd[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        (void)snprintf(v->message, sizeof v->message, "no result after %d s",
                       TIMEOUT_S);
    else if (WIFSIGNALED(status))
        (void)snprintf(v->message, sizeof v->message, "crashed: %s",
                       strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0)
        (void)snprintf(v->message, sizeof v->message, "exit code %d",
                       WEXITSTATUS(status));
}

/* ---- the suite ---------------------------------------------------------- */

static void read_skips(suite *s)
{
    char line[512];
    FILE *f = s->skip_file ? fopen(s->skip_file, "r") : NULL;

    if (s->skip_file && !f) {
        perror(s->skip_file);
        exit(2);
    }
    while (f && fgets(line, sizeof line, f)) {
        skip_rule *rule = &s->skips[s->n_skips];

        if (line[0] == '#' || s->n_skips == sizeof s->skips / sizeof *s->skips)
            continue;
        if (sscanf(line, "%127s %127[^\n]", rule->pattern, rule->reason) == 2)
            s->n_skips++;
    }
    if (f)
        (void)fclose(f);
}

static const char *skip_reason(const suite *s, const char *name)
{
    for (size_t i = 0; i < s->n_skips; i++)
        if (fnmatch(s->skips[i].pattern, name, 0) == 0)
            return s->skips[i].reason;
    return NULL;
}

static void count_ops(suite *s, const verdict *v)
{
    char ops[TEXT_MAX], *save = NULL;

    memcpy(ops, v->ops, sizeof ops);
    for (char *op = strtok_r(ops, ",", &save); op;
         op = strtok_r(NULL, ",", &save)) {
        size_t i = 0;

        while (i < s->n_ops && strcmp(s->ops[i].name, op) != 0)
            i++;
        if (i == MAX_OPS)
            continue;
        if (i == s->n_ops)
            (void)snprintf(s->ops[s->n_ops++].name, sizeof s->ops[i].name,
                           "%.90s", op);
        if (v->message[0])
            s->ops[i].failed++;
        else
            s->ops[i].passed++;
    }
}

static void do_case(suite *s, const char *dir, const char *name)
{
    const char *reason = skip_reason(s, name);
    verdict v;

    if (s->filter && fnmatch(s->filter, name, 0) != 0 &&
        !strstr(name, s->filter))
        return;
    if (reason) {
        s->skipped++;
        if (s->verbose)
            printf("skip %s: %s\n", name, reason);
        return;
    }
    judge_case(dir, &v);
    count_ops(s, &v);
    if (v.message[0]) {
        s->failed++;
        printf("FAIL %s: %s\n", name, v.message);
    } else {
        s->passed++;
        if (s->verbose)
            printf("pass %s\n", name);
    }
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

/* Every case below `dir`; `group` is the folder's name. */
static void do_folder(suite *s, const char *dir, const char *group)
{
    struct dirent **list = NULL;
    int n = scandir(dir, &list, visible, alphasort);

    for (int i = 0; i < n; i++) {
        char path[1024], name[600];

        (void)snprintf(path, sizeof path, "%s/%s/model.onnx", dir,
                       list[i]->d_name);
        (void)snprintf(name, sizeof name, "%s/%s", group, list[i]->d_name);
        if (is_file(path)) {
            *strrchr(path, '/') = '\0';
            do_case(s, path, name);
        }
        free(list[i]);
    }
    free(list);
}

static void do_suite(suite *s)
{
    static const char *const groups[] = {"node", "simple", "pytorch-operator",
                                         "pytorch-converted"};
    bool found = false;
    char path[1024];

    for (size_t i = 0; i < SB_COUNT(groups); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", s->dir, groups[i]);
        if (is_dir(path)) {
            do_folder(s, path, groups[i]);
            found = true;
        }
    }
    if (!found) {
        const char *slash = strrchr(s->dir, '/');

        do_folder(s, s->dir, slash && slash[1] ? slash + 1 : s->dir);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const op_count *)a)->name, ((const op_count *)b)->name);
}

static void write_ops(suite *s)
{
    FILE *f = s->ops_file ? fopen(s->ops_file, "w") : NULL;

    if (!f)
        return;
    qsort(s->ops, s->n_ops, sizeof *s->ops, by_name);
    for (size_t i = 0; i < s->n_ops; i++)
        fprintf(f, "%s\t%u\t%u\n", s->ops[i].name, s->ops[i].passed,
                s->ops[i].failed);
    (void)fclose(f);
}

static void parse_args(suite *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            s->filter = argv[++i];
        else if (strcmp(argv[i], "--skip") == 0 && i + 1 < argc)
            s->skip_file = argv[++i];
        else if (strcmp(argv[i], "--ops") == 0 && i + 1 < argc)
            s->ops_file = argv[++i];
        else if (strcmp(argv[i], "-v") == 0)
            s->verbose = true;
        else if (argv[i][0] != '-' && !s->dir)
            s->dir = argv[i];
        else {
            fprintf(stderr, "conformance: unknown argument '%s'\n", argv[i]);
            exit(2);
        }
    }
    if (!s->dir || !is_dir(s->dir)) {
        fprintf(stderr, "conformance: no folder '%s'\n",
                s->dir ? s->dir : "DIR");
        exit(77); /* the data package is not installed: skipped */
    }
}

int main(int argc, char **argv)
{
    static suite s;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    parse_args(&s, argc, argv);
    read_skips(&s);
    do_suite(&s);
    write_ops(&s);
    printf("%u passed, %u failed, %u skipped\n", s.passed, s.failed, s.skipped);
    return s.failed > 0 || s.passed == 0;
}
