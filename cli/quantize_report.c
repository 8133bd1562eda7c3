/* What `sparsebit quantize` prints: tables, JSON, and what the runtime will
 * make of the file. */
#include <math.h>
#include <string.h>

#include "feed_data.h"
#include "json_model.h"
#include "quantize_job.h"

typedef struct {
    size_t weights, activations;
    size_t fixed; /* activations with scales in the file */
} quantize_counts;

static quantize_counts count_quantizers(const quantize_job *j)
{
    quantize_counts n = {0};

    for (size_t i = 0; i < sb_quant_model_quantizer_count(j->qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(j->qm, i);

        if (q->fused)
            continue;
        *(q->is_weight ? &n.weights : &n.activations) += 1;
        n.fixed += !q->is_weight && q->n > 0;
    }
    return n;
}

/* Before calibration there are no scales. */
static void print_quantizers(const quantize_job *j, bool scales)
{
    cli_table *t = cli_table_new(scales ? "llrlrr" : "llrl");
    static const char *const head[] = {"quantizer", "kind",  "bits",
                                       "scheme",    "scale", "zero point"};

    for (size_t i = 0; i < CLI_COUNT(head) - (scales ? 0 : 2); i++)
        cli_table_add(t, "%s", head[i]);
    for (size_t i = 0; i < sb_quant_model_quantizer_count(j->qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(j->qm, i);

        if (q->fused || (scales && q->n == 0))
            continue;
        cli_table_add(t, "%s", q->name);
        cli_table_add(t, "%s", q->is_weight ? "weight" : "activation");
        cli_table_add(t, "%d", q->bits);
        cli_table_add(t, "%s", q->scheme);
        if (scales && q->n == 1) {
            cli_table_add(t, "%.6g", (double)q->scale[0]);
            cli_table_add(t, "%g", (double)q->zero_point[0]);
        } else if (scales) {
            cli_table_add(t, "%zu scales", q->n);
            cli_table_add(t, "%s", "");
        }
    }
    cli_table_print(t, "  ");
}

/* What the file would have: weights that are not quantized, and everything
 * else, stay as they are. */
static double estimate_bytes(const quantize_job *j)
{
    double bytes = j->bytes;

    for (size_t i = 0; i < sb_quant_model_quantizer_count(j->qm); i++) {
        const sb_quantizer_info *q = sb_quant_model_quantizer(j->qm, i);
        double bits = q->bits <= 2   ? 2
                      : q->bits <= 4 ? 4
                      : q->bits <= 8 ? 8
                                     : 16;

        double n = (double)sb_quant_model_quantizer_elements(j->qm, i);

        if (q->fused || !q->is_weight)
            continue;
        bytes -= n * (32 - bits) / 8;
        if (q->group_size > 0) /* a scale and perhaps a zero point each */
            bytes += n / (double)q->group_size *
                     (4 + (strstr(q->scheme, "affine") ? bits / 8 : 0));
    }
    return bytes > 0 ? bytes : 0;
}

/* After --dry-run. */
void quantize_print_plan(const quantize_job *j)
{
    quantize_counts n = count_quantizers(j);
    bool needs = sb_quant_model_needs_calibration(j->qm);
    char before[32], after[32];

    if (j->env->common.json) {
        cli_json out = {0};

        cli_json_begin(&out, "quantize");
        cli_json_str(&out, "model", j->args->model);
        cli_json_bool(&out, "dry_run", true);
        cli_json_num(&out, "model_bytes", j->bytes);
        cli_json_num(&out, "estimated_bytes", estimate_bytes(j));
        cli_json_int(&out, "weights", (long long)n.weights);
        cli_json_int(&out, "activations", (long long)n.activations);
        cli_json_bool(&out, "needs_data", needs);
        cli_json_quantizers(&out, j->qm, false);
        cli_json_end(&out);
        return;
    }
    if (j->env->common.verbose)
        print_quantizers(j, false);
    printf("%zu weight%s and %zu activation%s would be quantized, %s\n",
           n.weights, n.weights == 1 ? "" : "s", n.activations,
           n.activations == 1 ? "" : "s",
           needs ? "with calibration data" : "without calibration data");
    printf("size: about %s (%s: %s)\n",
           cli_bytes(estimate_bytes(j), after, sizeof after), j->args->model,
           cli_bytes(j->bytes, before, sizeof before));
}

static void json_steps(cli_json *out, const quantize_job *j)
{
    const sb_quant_step *s;

    cli_json_open(out, "steps", '[');
    for (size_t i = 0; (s = sb_quant_model_step(j->qm, i)) != NULL; i++) {
        cli_json_open(out, NULL, '{');
        cli_json_str(out, "name", s->name);
        cli_json_int(out, "layers", (long long)s->layers);
        cli_json_num(out, "error_before", s->before);
        cli_json_num(out, "error_after", s->after);
        cli_json_bool(out, "kept", s->kept);
        cli_json_close(out, '}');
    }
    cli_json_close(out, ']');
}

void quantize_json_drop(cli_json *out, const quantize_drop *d)
{
    if (!d->what)
        return;
    cli_json_open(out, "accuracy_drop", '{');
    cli_json_str(out, "of", d->what);
    cli_json_num(out, "all_quantized", d->before);
    cli_json_num(out, "reached", d->lost);
    cli_json_open(out, "float_layers", '[');
    for (size_t i = 0; d->n && i < d->ends[d->n]; i++)
        cli_json_str(out, NULL, d->names[i]);
    cli_json_close(out, ']');
    cli_json_close(out, '}');
}

void quantize_print_json(const quantize_job *j)
{
    cli_json out = {0};
    quantize_counts n = count_quantizers(j);

    cli_json_begin(&out, "quantize");
    cli_json_str(&out, "model", j->args->model);
    cli_json_num(&out, "model_bytes", j->bytes);
    if (j->args->output) {
        cli_json_str(&out, "output", j->args->output);
        cli_json_num(&out, "output_bytes", cli_path_bytes(j->args->output));
    }
    cli_json_str(&out, "target", sb_quant_model_target(j->qm));
    cli_json_int(&out, "weights", (long long)n.weights);
    cli_json_int(&out, "activations", (long long)n.activations);
    cli_json_int(&out, "samples", (long long)j->samples);
    if (j->args->asym) {
        cli_json_open(&out, "asym", '{');
        cli_json_bool(&out, "weights", quantize_asym_has(j, 'w'));
        cli_json_bool(&out, "activations", quantize_asym_has(j, 'a'));
        cli_json_close(&out, '}');
    }
    json_steps(&out, j);
    quantize_json_drop(&out, &j->drop);
    cli_json_int(&out, "broken_samples",
                 j->data ? (long long)sb_data_broken_count(j->data) : 0);
    cli_json_open(&out, "seconds", '{');
    cli_json_num(&out, "load", j->load);
    cli_json_num(&out, "calibrate", j->calibrate);
    cli_json_num(&out, "export", j->write);
    cli_json_close(&out, '}');
    cli_json_num(&out, "peak_rss_mb", cli_peak_rss_mb());
    if (j->env->common.verbose)
        cli_json_quantizers(&out, j->qm, true);
    cli_json_end(&out);
}

/* A step of a configuration is kept even where it does harm. */
static const char *step_verdict(const sb_quant_step *s)
{
    if (s->kept)
        return s->after > s->before
                   ? ": worse, kept as the configuration wants it"
                   : "";
    return s->after < s->before ? ": no clear gain, taken back"
                                : ": taken back";
}

/* What was done beyond scales, and what it gained; where that is not enough,
 * what else there is. */
static void print_steps(const quantize_job *j)
{
    const double much = 0.1;
    const sb_quant_step *s;
    double error = (double)NAN; /* now */

    for (size_t i = 0; (s = sb_quant_model_step(j->qm, i)) != NULL; i++) {
        error = s->kept ? s->after : s->before;
        if (isnan(s->after))
            cli_put("%s: %zu layer%s\n", s->name, s->layers,
                    s->layers == 1 ? "" : "s");
        else
            cli_put("%s: %zu layer%s, error of the outputs %.3g -> %.3g%s\n",
                    s->name, s->layers, s->layers == 1 ? "" : "s", s->before,
                    s->after, step_verdict(s));
    }
    if (error > much)
        cli_put("the outputs lose much, %.3g of their signal: `sparsebit "
                "analyze` shows where, --accuracy-drop keeps the worst layers "
                "in float\n",
                error);
}

void quantize_print_drop(const quantize_drop *d)
{
    if (!d->what)
        return;
    if (d->n == 0)
        cli_put("%s drops by %.4g with all layers quantized\n", d->what,
                d->before);
    else
        cli_put("%s drops by %.4g with all layers quantized, by %.4g with %zu "
                "of %zu in float:\n",
                d->what, d->before, d->lost, d->n, d->n_layers);
    for (size_t i = 0; i < d->n; i++) {
        cli_put("  %s", d->names[d->ends[i]]);
        for (size_t k = d->ends[i] + 1; k < d->ends[i + 1]; k++)
            cli_put(", %s", d->names[k]);
        cli_put("\n");
    }
}

/* Of a float model with weights of some size, whose file should be smaller: if
 * little is saved, what is around the weights may take more. */
static bool should_shrink(const quantize_job *j)
{
    const double least = 4096;
    double floats = 0;

    for (size_t i = 0; i < sb_quant_model_quantizer_count(j->qm); i++)
        if (sb_quant_model_quantizer(j->qm, i)->is_weight)
            floats += 4 * (double)sb_quant_model_quantizer_elements(j->qm, i);
    return !quantize_is_language(j->args) && floats <= j->bytes &&
           !(j->args->weights && strcmp(j->args->weights, "int") != 0) &&
           j->bytes - estimate_bytes(j) > least;
}

static void print_size(const quantize_job *j)
{
    const quantize_args *args = j->args;
    double bytes = cli_path_bytes(args->output);
    char before[32], after[32];

    (void)cli_bytes(bytes, after, sizeof after);
    if (j->bytes > 0)
        cli_put("written: %s, %s (%s: %s)\n", args->output, after, args->model,
                cli_bytes(j->bytes, before, sizeof before));
    else /* a pipe has no size */
        cli_put("written: %s, %s\n", args->output, after);
    if (bytes > j->bytes && should_shrink(j))
        cli_put("it is larger than the float model: scales, Q and DQ of small "
                "weights take more than integers save, or weights that are "
                "read in float as well, such as by the body of a Loop, are in "
                "it twice; --exclude such layers\n");
}

static bool is_quantized(const sb_quant_model *qm, const char *value)
{
    const sb_quantizer_info *q;

    for (size_t i = 0; (q = sb_quant_model_quantizer(qm, i)); i++)
        if (q->is_weight && strcmp(q->value, value) == 0)
            return true;
    return false;
}

/* Often most of the weights are theirs, and the file hardly smaller: where
 * activations have scales, nothing is done about them. */
static void print_recurrent(const quantize_job *j, const quantize_counts *c)
{
    const sb_node_info *const *nodes = NULL;
    size_t n = 0, left = 0;

    if (c->fixed == 0 || sb_model_nodes(j->model, &nodes, &n) != SB_OK)
        return;
    for (size_t i = 0; i < n; i++)
        left += (strcmp(nodes[i]->op, "LSTM") == 0 ||
                 strcmp(nodes[i]->op, "GRU") == 0 ||
                 strcmp(nodes[i]->op, "RNN") == 0) &&
                nodes[i]->n_inputs > 1 &&
                !is_quantized(j->qm, nodes[i]->inputs[1]);
    if (left > 0)
        cli_put("%zu LSTM, GRU or RNN node%s in float: a config with "
                "`A: dynamic` or `A: none` makes bytes of %s weights\n",
                left, left == 1 ? " stays" : "s stay",
                left == 1 ? "its" : "their");
}

static bool has_embedding(const quantize_job *j)
{
    const sb_node_info *const *nodes = NULL;
    size_t n = 0;

    if (sb_model_nodes(j->model, &nodes, &n) != SB_OK)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(nodes[i]->op, "Gather") == 0 && nodes[i]->n_inputs > 0 &&
            is_quantized(j->qm, nodes[i]->inputs[0]))
            return true;
    return false;
}

/* The file works in every runtime, but is made for none. */
static void print_target(const quantize_job *j, const quantize_counts *n)
{
    if (j->args->target || sb_target_is_runtime(sb_quant_model_target(j->qm)))
        return;
    if (n->activations == 0) {
        if (has_embedding(j))
            cli_put("target %s: runtimes make floats of all rows of an "
                    "embedding at each run. For a fast file name the runtime, "
                    "as in `-t onnxruntime-x86`\n",
                    sb_quant_model_target(j->qm));
        return;
    }
    cli_put("target %s: for simulation; runtimes compute much of this "
            "file in float, slower than the float model. For a fast file name "
            "the runtime, as in `-t onnxruntime-x86` "
            "(`sparsebit list targets`)\n",
            sb_quant_model_target(j->qm));
}

/* What the runtime will make of it; nothing if that is not known. */
static void print_speed(const quantize_job *j)
{
    const char *target = sb_quant_model_target(j->qm);
    const sb_lint *lint = NULL;
    sb_model *model = NULL;

    if (!sb_target_is_runtime(target) ||
        sb_model_load(j->env->ctx, j->args->output, &model) != SB_OK)
        return;
    if (sb_model_lint(model, target, &lint) == SB_OK)
        cli_judge_speed(lint);
    sb_model_free(model);
}

void quantize_print_text(const quantize_job *j)
{
    quantize_counts n = count_quantizers(j);

    if (j->env->common.verbose)
        print_quantizers(j, true);
    (void)printf("%zu weight%s and %zu activation%s quantized", n.weights,
                 n.weights == 1 ? "" : "s", n.activations,
                 n.activations == 1 ? "" : "s");
    if (j->data || j->args->calibrate)
        (void)printf(", calibrated on %zu sample%s in %.1f s", j->samples,
                     j->samples == 1 ? "" : "s", j->calibrate);
    else if (!sb_quant_model_needs_calibration(j->qm))
        (void)printf("%s; no calibration data needed%s",
                     n.fixed > 0         ? " as the file says"
                     : n.activations > 0 ? " at run time"
                                         : "",
                     j->args->data.path ? ", --data was not read" : "");
    (void)printf("\n");
    if (j->data && sb_data_broken_count(j->data) > 0)
        (void)printf("%zu broken sample%s skipped\n",
                     sb_data_broken_count(j->data),
                     sb_data_broken_count(j->data) == 1 ? "" : "s");
    print_steps(j);
    quantize_print_drop(&j->drop);
    if (j->args->output) {
        print_size(j);
        print_recurrent(j, &n);
        print_target(j, &n);
        print_speed(j);
    }
    if (j->args->report)
        cli_put("report: %s\n", j->args->report);
}

/* ---- the page ------------------------------------------------------------ */

int quantize_write_report(const quantize_job *j)
{
    sb_quant_errors_options opt = SB_QUANT_ERRORS_OPTIONS_INIT;
    sb_quant_errors *errors = NULL;
    cli_feed f = {.env = j->env,
                  .model = j->model,
                  .data = j->data,
                  .run = cli_feed_errors,
                  .what = "comparing"};
    int rc = CLI_OK;

    opt.histograms = 1;
    if (sb_quant_errors_create(j->qm, &opt, &errors) != SB_OK)
        return cli_fail(j->env, j->args->model);
    f.user = errors;
    if (j->data) {
        sb_data_rewind(j->data);
        if (cli_feed_all(&f) != SB_OK)
            rc = cli_feed_fail(&f, j->args->model, j->args->data.path);
    }
    const cli_quant_page page = {.path = j->args->report,
                                 .model = j->args->model,
                                 .command = "quantize",
                                 .qm = j->qm,
                                 .errors = errors,
                                 .samples = f.samples};
    if (rc == CLI_OK)
        rc = cli_report_quantization(j->env, &page);
    sb_quant_errors_free(errors);
    return rc;
}
