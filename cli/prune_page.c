/* The page of `sparsebit prune --report`: the graph with what went, what each
 * group costs, all layers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "prune_report.h"
#include "report_page.h"

enum { CURVES = 8 };

/* What removing half of a group, or as near to it as was looked at, costs. */
static double group_cost(const sb_prune_group *g)
{
    return g->points[g->n_points / 2]->error;
}

static int compare_cost(const void *a, const void *b)
{
    double x = group_cost(*(const sb_prune_group *const *)a);
    double y = group_cost(*(const sb_prune_group *const *)b);

    return x > y ? -1 : x < y;
}

/* Some groups in one chart. */
static sb_status add_chart(sb_report *r, const sb_prune_group **groups,
                           size_t n, bool accuracy)
{
    size_t per = groups[0]->n_points;
    double *x = cli_alloc(n * per + 1, sizeof *x);
    double *y = cli_alloc(n * per + 1, sizeof *y);
    sb_report_line lines[CURVES];
    const sb_report_line *list[CURVES];

    for (size_t k = 0; k < n; k++) {
        lines[k] = (sb_report_line)SB_REPORT_LINE_INIT;
        lines[k].name = groups[k]->name;
        lines[k].x = x + k * per;
        lines[k].y = y + k * per;
        lines[k].n = per;
        list[k] = &lines[k];
        for (size_t i = 0; i < per; i++) {
            const sb_prune_point *p = groups[k]->points[i];
            x[k * per + i] = p->ratio;
            y[k * per + i] = accuracy ? 100 * p->accuracy : p->error;
        }
    }
    sb_status status = sb_report_lines(
        r, "groups of channels", "share removed",
        accuracy ? "top-1, %" : "relative error of the outputs", list, n);
    free(x);
    free(y);
    return status;
}

/* Eight groups to a chart, those that cost most first. */
static sb_status add_scan(sb_report *r, const sb_prune_scan *scan)
{
    const sb_prune_group **sorted =
        cli_alloc(scan->n_groups + 1, sizeof(sb_prune_group *));
    bool accuracy = !isnan(scan->accuracy);
    sb_status status = SB_OK;

    for (size_t i = 0; i < scan->n_groups; i++)
        sorted[i] = scan->groups[i];
    qsort(sorted, scan->n_groups, sizeof(sb_prune_group *), compare_cost);
    sb_report_section(r, "What each group costs",
                      accuracy ? "Top-1 with a share of one group of channels "
                                 "removed and all others whole. The groups "
                                 "that cost most come first."
                               : "Relative error of the outputs with a share "
                                 "of one group of channels removed and all "
                                 "others whole. The groups that cost most "
                                 "come first.");
    for (size_t i = 0; i < scan->n_groups && status == SB_OK; i += CURVES) {
        size_t left = scan->n_groups - i;
        status =
            add_chart(r, sorted + i, left < CURVES ? left : CURVES, accuracy);
    }
    free(sorted);
    return status;
}

/* ---- layers --------------------------------------------------------------- */

/* What a row of the table is made from. */
typedef struct prune_row {
    const sb_node_info *node;    /* NULL: not found */
    const sb_prune_layer *layer; /* NULL: one that only follows others */
    double before, after;        /* parameters of the node */
} prune_row;

static double node_params(const sb_model *m, const sb_node_info *node)
{
    double sum = 0;

    for (size_t i = 0; node && i < node->n_inputs; i++) {
        const sb_tensor *w = sb_model_weight(m, node->inputs[i]);
        if (cli_is_float(w))
            sum += (double)sb_tensor_elements(w);
    }
    return sum;
}

static bool node_reads(const sb_node_info *node, const char *value)
{
    for (size_t i = 0; i < node->n_inputs; i++)
        if (strcmp(node->inputs[i], value) == 0)
            return true;
    return false;
}

/* The weight that a row is about: of a layer the one that makes channels, else
 * the largest. */
static const char *row_weight(const sb_model *m, const prune_row *row)
{
    const char *best = "";
    int64_t most = 0;

    if (row->layer)
        return row->layer->weight;
    for (size_t i = 0; i < row->node->n_inputs; i++) {
        const sb_tensor *w = sb_model_weight(m, row->node->inputs[i]);
        if (cli_is_float(w) && sb_tensor_elements(w) > most) {
            most = sb_tensor_elements(w);
            best = row->node->inputs[i];
        }
    }
    return best;
}

/* What colors a node: the share of its parameters that is gone; where they
 * only became zero, that of the layer; where nothing was done, what of it has
 * to stay. */
static double row_share(const cli_prune_told *j, const prune_row *row)
{
    const sb_prune_layer *l = row->layer;

    if (row->after < row->before)
        return 1 - row->after / row->before;
    if (!l || l->size == 0)
        return (double)NAN;
    return (double)(j->done ? l->removed : l->size - l->removable) /
           (double)l->size;
}

static void add_row(cli_nodes *t, const cli_prune_told *j, const prune_row *row)
{
    const sb_prune_layer *l = row->layer;
    const char *weight = row_weight(j->source, row);
    bool why = l && l->removable < l->size && l->reason;

    cli_nodes_row(t, row->node ? row->node->outputs[0] : NULL,
                  row_share(j, row));
    cli_nodes_cell(t, "%s", l ? l->name : cli_node_label(row->node));
    cli_nodes_cell(t, "%s", l ? l->op : row->node->op);
    if (l) {
        cli_nodes_cell(t, "%lld", (long long)l->size);
        cli_nodes_cell(t, "%lld",
                       (long long)(j->done ? l->removed : l->removable));
    } else {
        cli_nodes_cell(t, "%s", "");
        cli_nodes_cell(t, "%s", "");
    }
    cli_nodes_shape(t, sb_model_weight(j->source, weight),
                    j->done ? sb_model_weight(j->result, weight) : NULL);
    if (row->after < row->before)
        cli_nodes_cell(t, "%.0f → %.0f", row->before, row->after);
    else
        cli_nodes_cell(t, "%.0f", row->before);
    cli_nodes_cell(t, "%s%s%s", why ? l->reason : "",
                   why && l->reason_node ? ": " : "",
                   why && l->reason_node ? l->reason_node : "");
}

/* The node of the same result; those of both models come in about the same
 * order, so the search begins at *at. */
static const sb_node_info *node_like(const sb_node_info *node,
                                     const sb_node_info *const *nodes, size_t n,
                                     size_t *at)
{
    for (size_t k = 0; k < n; k++) {
        size_t i = (*at + k) % n;
        if (strcmp(nodes[i]->outputs[0], node->outputs[0]) != 0)
            continue;
        *at = i + 1;
        return nodes[i];
    }
    return NULL;
}

/* One row for each layer of the node, or one if it has become smaller. */
static void add_node(cli_nodes *t, const cli_prune_told *j, prune_row *row,
                     bool *told)
{
    const sb_prune_report *p = j->report;
    bool any = false;

    for (size_t i = 0; i < p->n_layers; i++) {
        if (told[i] || !node_reads(row->node, p->layers[i]->weight))
            continue;
        told[i] = any = true;
        row->layer = p->layers[i];
        add_row(t, j, row);
    }
    if (!any && row->after < row->before)
        add_row(t, j, row);
}

static sb_status fill_rows(cli_nodes *t, const cli_prune_told *j)
{
    const sb_node_info *const *before = NULL, *const *after = NULL;
    bool *told = cli_alloc(j->report->n_layers + 1, sizeof *told);
    size_t n = 0, n_after = 0, at = 0;
    sb_status status = sb_model_nodes(j->source, &before, &n);

    if (status == SB_OK && j->done)
        status = sb_model_nodes(j->result, &after, &n_after);
    for (size_t i = 0; status == SB_OK && i < n; i++) {
        prune_row row = {.node = before[i],
                         .before = node_params(j->source, before[i])};
        row.after = j->done ? node_params(j->result, node_like(before[i], after,
                                                               n_after, &at))
                            : row.before;
        add_node(t, j, &row, told);
    }
    for (size_t i = 0; status == SB_OK && i < j->report->n_layers; i++)
        if (!told[i])
            add_row(t, j, &(prune_row){.layer = j->report->layers[i]});
    free(told);
    return status;
}

static const sb_model *prune_drawn(const cli_prune_told *j)
{
    return j->done ? j->result : j->source;
}

static const char *graph_text(const cli_prune_told *j)
{
    bool structured = j->report->structured;

    if (!j->done)
        return structured ? "Colored by the share of a layer's channels that "
                            "could go."
                          : "Colored by the share of a layer's weights that "
                            "could be zero.";
    if (j->params[1] < j->params[0])
        return "Colored by the share of a node's parameters that went; click "
               "a node for its shapes before and after.";
    return structured ? "Colored by the share of a layer's channels that are "
                        "zero now."
                      : "Colored by the share of a layer's weights that are "
                        "zero now.";
}

static const char *table_text(const cli_prune_told *j)
{
    return j->report->structured
               ? "Output channels of each layer; why, if not all of them "
                 "could go."
           : j->done ? "Elements of each weight, and how many are zero now."
                     : "Elements of each weight, and how many could be zero.";
}

static sb_status find_nodes(const cli_prune_told *j, cli_nodes **out)
{
    static const char *const heads[][7] = {
        {"layer", "operator", "size", "removable", "weight", "parameters",
         "why"},
        {"layer", "operator", "size", "removed", "weight", "parameters",
         "why"}};
    const sb_node_info *const *nodes = NULL;
    size_t n = 0;
    sb_status status = sb_model_nodes(j->source, &nodes, &n);

    if (status != SB_OK)
        return status;
    *out = cli_nodes_new(n + j->report->n_layers, "lnrrnrl", heads[j->done]);
    return fill_rows(*out, j);
}

static sb_status add_graph(sb_report *r, const cli_prune_told *j,
                           const cli_nodes *t)
{
    const sb_report_marks none = SB_REPORT_MARKS_INIT;
    const sb_report_marks marks = {.struct_size = none.struct_size,
                                   .limits = {1e-9, 0.25, 0.5, 0.75},
                                   .texts = {"nothing", "less than 25 %",
                                             "25 to 50 %", "50 to 75 %",
                                             "75 % and more"},
                                   .none = "no layer",
                                   .jump = "most pruned"};
    const sb_report_marks could = {.struct_size = none.struct_size,
                                   .limits = {1e-9, 0.25, 0.5, 1},
                                   .texts = {"all", "75 % and more",
                                             "50 to 75 %", "less than 50 %",
                                             "nothing"},
                                   .none = "no layer"};

    sb_report_section(r, "The network", graph_text(j));
    return cli_nodes_graph(t, r, prune_drawn(j), j->done ? marks : could);
}

static void add_facts(sb_report *r, const cli_prune_told *j)
{
    const sb_prune_report *p = j->report;

    cli_report_fact(
        r, p->structured ? "channels that could go" : "weights that could go",
        "%.1f %%",
        p->size ? 100.0 * (double)p->removable / (double)p->size : 0);
    if (!j->done)
        return;
    cli_report_fact(r, "removed", "%lld", (long long)p->removed);
    cli_report_fact(r, "parameters left", "%.1f %%",
                    j->params[0] > 0 ? 100 * j->params[1] / j->params[0] : 100);
    cli_report_fact(r, "MACs left", "%.1f %%",
                    j->macs[0] > 0 ? 100 * j->macs[1] / j->macs[0] : 100);
}

int cli_prune_page(cli_env *env, const char *path, const cli_prune_told *j)
{
    char *title = cli_printf("%s, pruned", cli_base_name(j->model));
    char *below = cli_printf("sparsebit %s prune", sb_version());
    sb_report *r = NULL;
    cli_nodes *nodes = NULL;
    sb_status status = sb_report_create(env->ctx, title, below, &r);

    if (status == SB_OK)
        status = find_nodes(j, &nodes);
    if (status == SB_OK) {
        add_facts(r, j);
        status = add_graph(r, j, nodes);
    }
    if (status == SB_OK && j->scan && j->scan->n_groups > 0)
        status = add_scan(r, j->scan);
    if (status == SB_OK) {
        sb_report_section(r, "Layers", table_text(j));
        cli_nodes_table(nodes, r, prune_drawn(j));
        status = sb_report_save(r, path);
    }
    cli_nodes_free(nodes);
    sb_report_free(r);
    free(title);
    free(below);
    return status == SB_OK ? CLI_OK : cli_fail(env, path);
}
