/* sparsebit prune - remove channels, or set weights to zero. */
#include <stdlib.h>
#include <string.h>

#include "prune_report.h"
#include "report_page.h"

typedef struct {
    const char *model, *config, *output, *before, *report, *ratios;
    cli_data_spec data;
    cli_list exclude, values;
    unsigned opset;
    double target_macs, target_params, target_latency;
    bool masks_only, dry_run, scan, sparse;
} prune_args;

#define ARG(field) offsetof(prune_args, field)

/* clang-format off */
static const cli_opt opts[] = {
    {CLI_FILE,   0,   NULL,      ARG(model),   "MODEL", "ONNX file, float", true},
    {CLI_FILE,   'c', "config",  ARG(config),  "FILE",  "sconfig.yaml, see docs/pruning.md", true},
    CLI_DATA_OPTS(prune_args, data, false, "use at most N samples"),
    {CLI_LIST,   0,   "value",   ARG(values),  CLI_VALUE_ARG, CLI_VALUE_HELP, false},
    {CLI_OUT,    'o', "output",  ARG(output),  "FILE",  "ONNX file to write", false},
    {CLI_LIST,   0,   "exclude", ARG(exclude), "PATTERN", "nodes or modules that keep their channels, such as 'head.*'; repeatable", false},
    {CLI_SHARE,  0,   "target-macs", ARG(target_macs), "SHARE", "search the ratio that leaves this share of the MACs, such as 0.5", false},
    {CLI_SHARE,  0,   "target-params", ARG(target_params), "SHARE", "the same for the parameters", false},
    {CLI_SHARE,  0,   "target-latency", ARG(target_latency), "SHARE", "the same for the time of a run on the first batch of --data, measured in our executor", false},
    {CLI_FLAG,   0,   "scan",    ARG(scan),    NULL,    "print what each group of channels costs at several ratios; targets choose by it", false},
    {CLI_STRING, 0,   "ratios",  ARG(ratios),  "LIST",  "ratios of the scan (default: 0.1,0.3,0.5,0.7)", false},
    {CLI_OUT,    0,   "report",  ARG(report),  CLI_REPORT_ARG, "write a page with the graph, all layers, and a chart of the scan", false},
    {CLI_FILE,   0,   "before",  ARG(before),  "MODEL", "the network before training, for the criterion movement", false},
    {CLI_FLAG,   0,   "masks-only", ARG(masks_only), NULL, "set the weights of channels to zero instead of removing them, as Sparsebit did", false},
    {CLI_UINT,   0,   "opset",   ARG(opset),   "N",     "opset of the file (default: that of the model, or the lowest above it that holds all nodes)", false},
    {CLI_FLAG,   0,   "sparse",  ARG(sparse),  NULL,    "write weights that are mostly zero as sparse initializers", false},
    {CLI_FLAG,   0,   "dry-run", ARG(dry_run), NULL,    "print which layers can be pruned, and why others cannot; write nothing", false},
    {CLI_FLAG,   0,   "strict",  ARG(data.strict),  NULL,    "stop at a broken sample instead of skipping it", false},
    {0},
};

static const cli_example examples[] = {
    {"sparsebit prune model.onnx -c sconfig.yaml -o small.onnx", "Removes the channels that the configuration asks for"},
    {"sparsebit prune model.onnx -c sconfig.yaml -d photos.yaml -n 256 -o small.onnx", "And fits the weights that read them to data, by least squares"},
    {"sparsebit prune model.onnx -c sconfig.yaml --target-macs 0.5 -o small.onnx", "As much as it takes to halve the multiply-accumulates"},
    {"sparsebit prune model.onnx -c sconfig.yaml -d photos.yaml -n 64 --scan --report scan.html", "What each group of channels costs, as a table and as a page"},
    {"sparsebit prune model.onnx -c sconfig.yaml -d photos.yaml -n 64 --scan --target-macs 0.5 -o small.onnx", "Half of the multiply-accumulates, more from the groups that cost least"},
    {"sparsebit prune model.onnx -c sconfig.yaml --dry-run", "What could be removed, and why the rest could not"},
    {0},
};
/* clang-format on */

extern const cli_cmd cmd_prune;

typedef struct {
    cli_env *env;
    const prune_args *args;
    sb_model *model, *before;
    sb_prune *prune;
    sb_data *data;
    const char *subject; /* what an error is about */
    double ratios[32];   /* of the scan */
    size_t n_ratios;
    cli_prune_told told;
} prune_job;

/* ---- work ------------------------------------------------------------------- */

static int prune_load(prune_job *j)
{
    const prune_args *a = j->args;
    sb_prune_options opt = SB_PRUNE_OPTIONS_INIT;
    int rc =
        cli_model_open(j->env, &cmd_prune, a->model, &a->values, &j->model);

    if (rc != CLI_OK)
        return rc;
    if (a->before && sb_model_load(j->env->ctx, a->before, &j->before) != SB_OK)
        return cli_fail(j->env, a->before);
    opt.before = j->before;
    opt.config = a->config;
    opt.exclude = a->exclude.v;
    opt.n_exclude = a->exclude.n;
    opt.masks_only = a->masks_only;
    opt.seed = j->env->common.seed;
    opt.target_macs = a->target_macs;
    opt.target_params = a->target_params;
    opt.target_latency = a->target_latency;
    opt.scan = a->scan;
    sb_status status = sb_prune_create(j->model, &opt, &j->prune);
    if (status == SB_OK && a->report)
        status = sb_prune_source(j->prune, &j->told.source);
    return status == SB_OK
               ? CLI_OK
               : cli_fail(j->env, status == SB_BAD_CONFIG || status == SB_IO
                                      ? a->config
                                      : a->model);
}

/* How many samples a network that is made for just one number takes; 0: any. */
static int64_t prune_fixed_batch(const prune_job *j)
{
    const sb_value_info *in = sb_model_input(j->model, 0);

    return in && in->rank > 0 && in->dims[0] > 0 ? in->dims[0] : 0;
}

static int prune_open_data(prune_job *j)
{
    const prune_args *a = j->args;
    sb_prune_data want = sb_prune_wants_data(j->prune);

    if (want == SB_PRUNE_DATA_NEEDED && !a->data.path)
        return cli_usage(&cmd_prune,
                         a->scan || a->target_latency != 0
                             ? "the scan, and a latency, need samples: give "
                               "--data"
                             : "the criterion looks at samples: give --data");
    if (!a->data.path || want == SB_PRUNE_DATA_UNUSED)
        return CLI_OK;
    return cli_data_open(j->env, &cmd_prune, j->model, &a->data,
                         prune_fixed_batch(j), &j->data);
}

/* All samples through the network as it is now. */
static sb_status prune_feed(prune_job *j)
{
    cli_progress progress;
    const sb_batch *batch = NULL;
    size_t done = 0;
    sb_status status = SB_OK;

    cli_progress_begin(&progress, j->env, "pruning", sb_data_count(j->data));
    while (status == SB_OK) {
        j->subject = j->args->data.path;
        status = sb_data_next(j->data, &batch);
        if (status != SB_OK || batch->count == 0)
            break;
        j->subject = j->args->model;
        status = sb_prune_forward_batch(j->prune, batch);
        done += batch->count;
        cli_progress_step(&progress, done);
    }
    cli_progress_end(&progress);
    sb_data_rewind(j->data);
    return status;
}

/* "0.1,0.5" */
static int prune_read_ratios(const char *text, double *out, size_t most,
                             size_t *n)
{
    char *end = NULL;

    for (*n = 0;; text = end + 1) {
        if (*n == most)
            return cli_usage(&cmd_prune, "--ratios: at most %zu", most);
        out[*n] = strtod(text, &end);
        if (end == text || (*end && *end != ','))
            return cli_usage(&cmd_prune,
                             "--ratios: '%s' is not like 0.1,0.3,0.5", text);
        if (!(out[*n] > (*n > 0 ? out[*n - 1] : 0) && out[*n] < 1))
            return cli_usage(&cmd_prune,
                             "--ratios: found %g at place %zu, allowed are "
                             "rising numbers above 0 and below 1",
                             out[*n], *n + 1);
        ++*n;
        if (!*end)
            return CLI_OK;
    }
}

static int prune_scan(prune_job *j)
{
    const prune_args *a = j->args;
    cli_progress progress;

    cli_progress_begin(&progress, j->env, "scanning", 0);
    sb_status status =
        sb_prune_scan_groups(j->prune, j->ratios, j->n_ratios, &j->told.scan);
    cli_progress_end(&progress);
    return status == SB_OK ? CLI_OK : cli_fail(j->env, a->model);
}

static int prune_steps(prune_job *j)
{
    int more = 1;

    while (more) {
        sb_status status = SB_OK;

        j->subject = j->args->model;
        if (j->data)
            status = prune_feed(j);
        if (status != SB_OK)
            return j->subject == j->args->model
                       ? cli_blame(j->env, j->model, j->args->model, j->data,
                                   j->args->data.path)
                       : cli_fail(j->env, j->subject);
        if (j->args->scan && !j->told.scan) {
            int rc = prune_scan(j);
            if (rc != CLI_OK || !j->args->output)
                return rc;
        }
        status = sb_prune_apply(j->prune, &more);
        if (status != SB_OK)
            return cli_fail(j->env, j->args->model);
    }
    return CLI_OK;
}

static int prune_measure(prune_job *j)
{
    const sb_model_info *info = NULL;
    sb_model *both[] = {j->model, j->told.result};

    for (int i = 0; i < 2; i++) {
        if (sb_model_info_get(both[i], &info) != SB_OK)
            return cli_fail(j->env, j->args->model);
        j->told.params[i] = (double)info->params;
        j->told.macs[i] = info->macs;
    }
    return CLI_OK;
}

static int prune_save(prune_job *j)
{
    const prune_args *a = j->args;
    sb_model *written = NULL;

    if (sb_prune_model(j->prune, &j->told.result) != SB_OK)
        return cli_fail(j->env, a->model);
    if (a->opset && sb_model_set_opset(j->told.result, a->opset) != SB_OK)
        return cli_fail(j->env, a->model);
    if (prune_measure(j) != CLI_OK)
        return CLI_FAILED;
    sb_model_set_sparse(j->told.result, a->sparse);
    if (sb_model_save(j->told.result, a->output) != SB_OK ||
        sb_model_load(j->env->ctx, a->output, &written) != SB_OK)
        return cli_fail(j->env, a->output);
    j->told.bytes[0] = sb_model_file_bytes(j->model);
    j->told.bytes[1] = sb_model_file_bytes(written);
    sb_model_free(written);
    return CLI_OK;
}

static int prune_tell(prune_job *j)
{
    const prune_args *a = j->args;
    cli_prune_told *t = &j->told;

    t->model = a->model;
    t->output = a->output;
    t->dry_run = a->dry_run;
    t->done = t->result != NULL;
    if (sb_prune_report_get(j->prune, &t->report) != SB_OK)
        return cli_fail(j->env, a->model);
    int rc = a->report ? cli_prune_page(j->env, a->report, t) : CLI_OK;
    if (rc != CLI_OK)
        return rc;
    if (j->env->common.json)
        cli_prune_json(t);
    else
        cli_prune_text(j->env, t);
    return CLI_OK;
}

static int prune_run(cli_env *env, const void *parsed)
{
    const prune_args *args = parsed;
    prune_job j = {.env = env, .args = args};

    if (!args->output && !args->dry_run && !args->scan)
        return cli_usage(&cmd_prune, "give --output, --scan, or --dry-run");
    if (args->ratios && !args->scan)
        return cli_usage(&cmd_prune, "--ratios are those of --scan: give it");
    int rc = prune_read_ratios(args->ratios ? args->ratios : "0.1,0.3,0.5,0.7",
                               j.ratios, CLI_COUNT(j.ratios), &j.n_ratios);
    if (rc == CLI_OK)
        rc = prune_load(&j);
    if (rc == CLI_OK && !args->dry_run) {
        rc = prune_open_data(&j);
        if (rc == CLI_OK)
            rc = prune_steps(&j);
        if (rc == CLI_OK && args->output)
            rc = prune_save(&j);
    }
    if (rc == CLI_OK)
        rc = prune_tell(&j);
    sb_data_free(j.data);
    sb_prune_free(j.prune);
    sb_model_free(j.told.result);
    sb_model_free(j.told.source);
    sb_model_free(j.before);
    sb_model_free(j.model);
    return rc;
}

const cli_cmd cmd_prune = {
    .name = "prune",
    .summary = "remove channels, or set weights to zero",
    .description =
        "Removes the channels of a network that its configuration (SPARSER in "
        "an sconfig.yaml) chooses, with everything that depends on them: rows "
        "and columns of weights, biases, norms, and sizes that other nodes "
        "state. Inputs and outputs of the network keep their shapes. With "
        "--data the weights that read removed channels are fitted anew by "
        "least squares. Unstructured pruning sets single weights to zero.",
    .args_size = sizeof(prune_args),
    .opts = opts,
    .examples = examples,
    .run = prune_run,
};
