/* What `sparsebit eval` prints, as text, JSON and a page. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval_job.h"

/* ---- text ---------------------------------------------------------------- */

/* What labels say of a model: as many columns as there are. */
typedef struct figure {
    const char *name, *key, *format;
    double value;
} figure;

enum { MOST_FIGURES = 3 };

static size_t figures_of(const eval_side *s, figure out[MOST_FIGURES])
{
    const sb_eval_result *r = s->eval ? sb_eval_get(s->eval) : NULL;
    size_t n = 0;

    if (r && r->labeled) {
        out[n++] = (figure){"top-1", "top1", "%.2f %%", r->top1};
        out[n++] = (figure){"top-5", "top5", "%.2f %%", r->top5};
    } else if (r && r->pixels) {
        out[n++] = (figure){"mIoU", "mean_iou", "%.2f %%", r->mean_iou};
        out[n++] = (figure){"pixels right", "pixel_accuracy", "%.2f %%",
                            r->pixel_accuracy};
    } else if (r && r->numbers) {
        out[n++] = (figure){"MAE", "mean_absolute_error", "%.6g",
                            r->mean_absolute_error};
        out[n++] = (figure){"RMSE", "root_mean_squared_error", "%.6g",
                            sqrt(r->mean_squared_error)};
        if (!isnan(r->label_f1)) /* last, as the other model may have none */
            out[n++] = (figure){"F1", "label_f1", "%.2f %%", r->label_f1};
    }
    return n;
}

static void print_figure(cli_table *t, const figure *f)
{
    char text[32];

    (void)snprintf(text, sizeof text, f->format, f->value);
    cli_table_add(t, "%s", text);
}

static void print_side(cli_table *t, const eval_side *s, size_t columns)
{
    const sb_eval_result *r = sb_eval_get(s->eval);
    figure f[MOST_FIGURES];
    size_t n = figures_of(s, f);

    cli_table_add(t, "%s", s->name);
    for (size_t i = 0; i < columns; i++)
        if (i < n)
            print_figure(t, &f[i]);
        else
            cli_table_add(t, "-");
    cli_table_add(t, "%zu", r->samples);
    cli_table_add(t, "%.1f", (double)r->samples / s->seconds);
}

/* Of language models: how well they predict the text. */
static void print_language(const eval_side *s)
{
    const sb_eval_result *r = sb_eval_get(s->eval);

    if (r->tokens)
        cli_put("perplexity of %s  %.4f (%zu tokens predicted in %zu "
                "windows)\n",
                s->name, r->perplexity, r->tokens, r->samples);
}

static bool is_language(const sb_eval_result *r)
{
    return strcmp(r->task, "language") == 0;
}

/* What was compared besides elements. */
static void print_task(const sb_eval_result *r)
{
    printf("\ntask %s%s\n", r->task,
           r->task_guessed ? " (guessed; --task says otherwise)" : "");
    if (!isnan(r->agreement))
        printf("%s  %.2f %%\n",
               is_language(r) ? "same most likely token"
                              : "agreement of classes",
               r->agreement);
    if (is_language(r))
        printf("KL divergence  %.6f\n", r->divergence);
    if (!isnan(r->map_iou))
        printf("overlap of maps (IoU)  %.4f\n", r->map_iou);
    if (strncmp(r->task, "detect", 6) == 0 &&
        r->boxes + r->reference_boxes == 0)
        printf("boxes  none in either model above the score of --threshold\n");
    else if (strncmp(r->task, "detect", 6) == 0)
        printf("boxes  %zu, reference %zu, in both %zu: recall %.4f, precision "
               "%.4f, F1 %.4f\n",
               r->boxes, r->reference_boxes, r->matched_boxes, r->recall,
               r->precision, r->f1);
    if (r->vectors)
        printf("cosine of %zu vectors  mean %.6f, lowest hundredth %.6f\n",
               r->vectors, r->vector_cosine, r->vector_cosine_p1);
    if (r->uneven)
        printf("outputs differ in length for %zu of %zu samples: compared with "
               "zeros where there is nothing\n",
               r->uneven, r->compared);
    if (r->texts)
        printf("equal texts  %.2f %% of %zu\n", r->texts_equal, r->texts);
    printf("\n");
}

static void add_distance(cli_table *t, const char *name, double cosine,
                         double sqnr)
{
    cli_table_add(t, "%s", name);
    cli_table_add(t, "%.6f", cosine);
    cli_table_add(t, "%.2f dB", sqnr);
}

static int print_distances(cli_env *env, const eval_job *j)
{
    const sb_model *model = j->main.model;
    const sb_eval_result *r = sb_eval_get(j->main.eval);
    const sb_eval_part *const *parts = NULL;
    size_t n = sb_model_output_count(model), n_parts = 0;

    print_task(r);
    if (sb_eval_parts(j->main.eval, &parts, &n_parts) != SB_OK)
        return cli_fail(env, j->main.path);
    cli_table *t = cli_table_new("lrr");
    cli_table_add(t, "output");
    cli_table_add(t, "cosine");
    cli_table_add(t, "SQNR");
    for (size_t i = 0; i < n; i++) {
        double cosine, sqnr;

        (void)sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        add_distance(t, sb_model_output(model, i)->name, cosine, sqnr);
        for (size_t k = 0; k < n_parts; k++) {
            if (parts[k]->output != i)
                continue;
            char *name = cli_printf("  %s %s, up to %.3g",
                                    parts[k]->n_rows == 1 ? "row" : "rows",
                                    parts[k]->rows, parts[k]->largest);
            add_distance(t, name, parts[k]->cosine, parts[k]->sqnr_db);
            free(name);
        }
    }
    if (n > 1)
        add_distance(t, "all", r->cosine, r->sqnr_db);
    cli_table_print(t, "");
    return CLI_OK;
}

int eval_print_text(cli_env *env, const eval_job *j)
{
    static const char *const layouts[] = {"lrr", "lrrr", "lrrrr", "lrrrrr"};
    figure f[MOST_FIGURES], others[MOST_FIGURES];
    size_t n = figures_of(&j->main, f), more = figures_of(&j->other, others);
    const figure *heads = more > n ? others : f;

    n = more > n ? more : n;
    cli_table *t = cli_table_new(layouts[n]);
    size_t broken = sb_data_broken_count(j->data);

    cli_table_add(t, "model");
    for (size_t i = 0; i < n; i++)
        cli_table_add(t, "%s", heads[i].name);
    cli_table_add(t, "samples");
    cli_table_add(t, "items/s");
    print_side(t, &j->main, n);
    if (j->other.path)
        print_side(t, &j->other, n);
    cli_table_print(t, "");
    print_language(&j->main);
    if (j->other.eval)
        print_language(&j->other);
    int rc = eval_compares(j) ? print_distances(env, j) : CLI_OK;
    if (broken)
        printf("\n%zu of %zu samples could not be read and were skipped\n",
               broken, sb_data_count(j->data));
    return rc;
}

/* ---- JSON ---------------------------------------------------------------- */

static void json_side(cli_json *json, const eval_side *s)
{
    const sb_eval_result *r = sb_eval_get(s->eval);

    cli_json_str(json, "model", s->path);
    figure f[MOST_FIGURES];
    size_t n = figures_of(s, f);

    for (size_t i = 0; i < n; i++)
        cli_json_num(json, f[i].key, f[i].value);
    if (r->tokens) {
        cli_json_int(json, "tokens", (long long)r->tokens);
        cli_json_num(json, "perplexity", r->perplexity);
    }
    cli_json_int(json, "samples", (long long)r->samples);
    cli_json_num(json, "items_per_s", (double)r->samples / s->seconds);
    cli_json_bool(json, "integer", sb_session_is_integer(s->session));
}

static void json_task(cli_json *json, const sb_eval_result *r)
{
    cli_json_str(json, "task", r->task);
    cli_json_bool(json, "task_guessed", r->task_guessed);
    if (!isnan(r->agreement))
        cli_json_num(json, "agreement", r->agreement);
    if (is_language(r))
        cli_json_num(json, "divergence", r->divergence);
    if (!isnan(r->map_iou))
        cli_json_num(json, "map_iou", r->map_iou);
    if (strncmp(r->task, "detect", 6) == 0) {
        cli_json_int(json, "boxes", (long long)r->boxes);
        cli_json_int(json, "reference_boxes", (long long)r->reference_boxes);
        cli_json_int(json, "matched_boxes", (long long)r->matched_boxes);
        cli_json_num(json, "recall", r->recall);
        cli_json_num(json, "precision", r->precision);
        cli_json_num(json, "f1", r->f1);
    }
    if (r->vectors) {
        cli_json_int(json, "vectors", (long long)r->vectors);
        cli_json_num(json, "vector_cosine", r->vector_cosine);
        cli_json_num(json, "vector_cosine_p1", r->vector_cosine_p1);
    }
    if (r->uneven)
        cli_json_int(json, "uneven", (long long)r->uneven);
    if (r->texts) {
        cli_json_int(json, "texts", (long long)r->texts);
        cli_json_num(json, "texts_equal", r->texts_equal);
    }
}

static void json_parts(cli_json *json, const sb_eval_part *const *parts,
                       size_t n, size_t output)
{
    cli_json_open(json, "parts", '[');
    for (size_t k = 0; k < n; k++) {
        if (parts[k]->output != output)
            continue;
        cli_json_open(json, NULL, '{');
        cli_json_int(json, "axis", parts[k]->axis);
        cli_json_str(json, "rows", parts[k]->rows);
        cli_json_int(json, "count", (long long)parts[k]->n_rows);
        cli_json_num(json, "largest", parts[k]->largest);
        cli_json_num(json, "cosine", parts[k]->cosine);
        cli_json_num(json, "sqnr_db", parts[k]->sqnr_db);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
}

static int json_distances(cli_env *env, cli_json *json, const eval_job *j)
{
    const sb_eval_result *r = sb_eval_get(j->main.eval);
    const sb_eval_part *const *parts = NULL;
    size_t n_parts = 0;

    if (sb_eval_parts(j->main.eval, &parts, &n_parts) != SB_OK)
        return cli_fail(env, j->main.path);
    json_task(json, r);
    cli_json_num(json, "cosine", r->cosine);
    cli_json_num(json, "sqnr_db", r->sqnr_db);
    cli_json_open(json, "outputs", '[');
    for (size_t i = 0; i < sb_model_output_count(j->main.model); i++) {
        double cosine, sqnr;

        (void)sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        cli_json_open(json, NULL, '{');
        cli_json_str(json, "name", sb_model_output(j->main.model, i)->name);
        cli_json_num(json, "cosine", cosine);
        cli_json_num(json, "sqnr_db", sqnr);
        json_parts(json, parts, n_parts, i);
        cli_json_close(json, '}');
    }
    cli_json_close(json, ']');
    return CLI_OK;
}

int eval_print_json(cli_env *env, const eval_job *j)
{
    cli_json json = {0};
    int rc = CLI_OK;

    cli_json_begin(&json, "eval");
    json_side(&json, &j->main);
    cli_json_num(&json, "seconds", j->seconds);
    cli_json_open(&json, "broken", '[');
    for (size_t i = 0; i < sb_data_broken_count(j->data); i++)
        cli_json_str(&json, NULL, sb_data_broken(j->data, i));
    cli_json_close(&json, ']');
    if (eval_compares(j))
        rc = json_distances(env, &json, j);
    if (j->other.path) {
        cli_json_open(&json, "against", '{');
        json_side(&json, &j->other);
        cli_json_close(&json, '}');
    }
    cli_json_end(&json);
    return rc;
}

/* ---- the page ------------------------------------------------------------ */

static void report_side(sb_report *r, const eval_side *s)
{
    const sb_eval_result *e = sb_eval_get(s->eval);

    figure f[MOST_FIGURES];
    size_t n = figures_of(s, f);

    for (size_t i = 0; i < n; i++) {
        char *label = cli_printf("%s of %s", f[i].name, s->name);
        char text[32];

        (void)snprintf(text, sizeof text, f[i].format, f[i].value);
        cli_report_fact(r, label, "%s", text);
        free(label);
    }
    if (e->tokens) {
        char *label = cli_printf("perplexity of %s", s->name);
        cli_report_fact(r, label, "%.4f", e->perplexity);
        free(label);
    }
}

static void report_comparison(sb_report *r, const eval_job *j)
{
    static const char *const heads[] = {"output", "cosine", "SQNR, dB"};
    const sb_eval_result *e = sb_eval_get(j->main.eval);
    size_t n = sb_model_output_count(j->main.model);
    char **cells = cli_alloc(3 * n + 1, sizeof *cells);

    if (!isnan(e->agreement))
        cli_report_fact(r, is_language(e) ? "same token" : "same class",
                        "%.2f %%", e->agreement);
    if (is_language(e))
        cli_report_fact(r, "KL divergence", "%.6f", e->divergence);
    if (e->boxes + e->reference_boxes > 0)
        cli_report_fact(r, "F1 of boxes", "%.4f", e->f1);
    if (!isnan(e->map_iou))
        cli_report_fact(r, "overlap of maps", "%.4f", e->map_iou);
    for (size_t i = 0; i < n; i++) {
        double cosine = (double)NAN, sqnr = (double)NAN;

        (void)sb_eval_output(j->main.eval, i, &cosine, &sqnr);
        cells[3 * i] =
            cli_printf("%s", sb_model_output(j->main.model, i)->name);
        cells[3 * i + 1] = cli_printf("%.6f", cosine);
        cells[3 * i + 2] = cli_printf("%.2f", sqnr);
    }
    sb_report_section(r, "Outputs", "How far they are from the reference.");
    sb_report_table(r, "lrr", heads, (const char *const *)cells, n);
    for (size_t i = 0; i < 3 * n; i++)
        free(cells[i]);
    free(cells);
}

static const char *first_output(const sb_node_info *node)
{
    return node->n_outputs > 0 ? node->outputs[0] : "";
}

/* The graph colored by how far its nodes are from those of the reference, as
 * far as both have the same names. */
static sb_status report_layers(sb_report *r, const eval_job *j,
                               const eval_layers *layers)
{
    static const char *const heads[] = {"node", "operator", "SQNR, dB"};
    sb_report_marks marks = SB_REPORT_MARKS_INIT;
    const sb_node_info *const *nodes = NULL;
    size_t n = 0;
    sb_status status = sb_model_nodes(j->main.model, &nodes, &n);
    cli_nodes *t = cli_nodes_new(n, "lnr", heads);

    for (size_t i = 0; i < n; i++) {
        double sqnr = eval_layers_sqnr(layers, first_output(nodes[i]));

        if (isnan(sqnr))
            continue;
        cli_nodes_row(t, first_output(nodes[i]), sqnr);
        cli_nodes_cell(t, "%s", cli_node_label(nodes[i]));
        cli_nodes_cell(t, "%s", nodes[i]->op);
        if (isinf(sqnr) && sqnr > 0)
            cli_nodes_cell(t, "%s", "exact");
        else
            cli_nodes_cell(t, "%.1f", sqnr);
    }
    marks.none = "not in the reference, or of another shape";
    marks.jump = "worst node";
    if (status == SB_OK)
        status = cli_nodes_graph(t, r, j->main.model, marks);
    if (status == SB_OK) {
        sb_report_section(r, "Nodes", "In order of execution.");
        cli_nodes_table(t, r, j->main.model);
    }
    cli_nodes_free(t);
    return status;
}

static sb_status report_network(sb_report *r, const eval_job *j)
{
    eval_layers *layers = NULL;
    sb_status status = SB_OK;

    sb_report_section(r, "The network",
                      j->other.path
                          ? "Colored by how far the result of a node is from "
                            "that of the same name in the reference, on the "
                            "first samples."
                          : NULL);
    if (!j->other.path)
        return sb_report_graph(r, j->main.model, NULL);
    status = eval_layers_measure(j, &layers);
    if (status == SB_OK)
        status = report_layers(r, j, layers);
    eval_layers_free(layers);
    return status;
}

int eval_write_report(cli_env *env, const eval_job *j)
{
    char *below = cli_printf("sparsebit %s eval%s%s", sb_version(),
                             j->other.path ? ", against " : "",
                             j->other.path ? j->other.name : "");
    sb_report *r = NULL;
    sb_status status = sb_report_create(env->ctx, j->main.name, below, &r);

    if (status == SB_OK) {
        report_side(r, &j->main);
        if (j->other.path)
            report_side(r, &j->other);
        cli_report_fact(r, "samples", "%zu",
                        sb_eval_get(j->main.eval)->samples);
        if (eval_compares(j))
            report_comparison(r, j);
        status = report_network(r, j);
    }
    if (status == SB_OK)
        status = sb_report_save(r, j->args->report);
    sb_report_free(r);
    free(below);
    return status == SB_OK ? CLI_OK : cli_fail(env, j->args->report);
}
