/* Errors of layers: the colored graph, bars, curves and the table. */
#include "report/quant_page.h"

#include <math.h>
#include <stdlib.h>

#include "report/graph_svg.h"

enum { BARS_MOST = 25 };

/* SQNR in dB to the colors of the graph, from good to bad. */
static const struct {
    double above;
    const char *text;
} grades[SB_GRAPH_GRADES] = {
    {40, "40 dB and more: no loss"},
    {30, "30 to 40 dB"},
    {20, "20 to 30 dB"},
    {10, "10 to 20 dB: look here"},
    {-(double)INFINITY, "below 10 dB: broken"},
};

uint8_t sb_page_grade(double sqnr_db)
{
    uint8_t i = 0;

    if (isnan(sqnr_db))
        return SB_COUNT(grades);
    while (i + 1U < SB_COUNT(grades) && sqnr_db < grades[i].above)
        i++;
    return i + 1;
}

static uint8_t grade_of(const sb_difference *d)
{
    return d ? sb_page_grade(d->sqnr_db) : 0;
}

static bool errors_seen(const sb_quant_errors *e)
{
    for (size_t i = 0; i < e->n_rows; i++)
        if (e->rows[i].sums[SB_ERROR_ASYNC].sum[SB_COMPARE_COUNT] > 0)
            return true;
    return false;
}

/* ---- the graph ----------------------------------------------------------- */

void sb_page_grades(const char *none, sb_str *out)
{
    const char *texts[SB_GRAPH_GRADES + 1] = {none};

    for (size_t i = 0; i < SB_COUNT(grades); i++)
        texts[i + 1] = grades[i].text;
    sb_graph_key(texts, out);
}

static double layer_noise(const sb_layer_error *l)
{
    double v = pow(10, -l->async->sqnr_db / 20);

    return isnan(v) ? (double)INFINITY : v;
}

static sb_status add_graph(const sb_quant_errors *e, sb_str *out)
{
    sb_graph_mark *marks =
        sb_alloc(e->ctx, e->qm->graph->n_nodes + 1, sizeof *marks);
    sb_node_id worst = SB_NONE;
    double most = -1;

    if (!marks)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < e->n_rows; i++) {
        const sb_layer_error *l = sb_quant_errors_layer(e, i);
        sb_node_id node = e->rows[i].node;

        if (node == SB_NONE || !errors_seen(e))
            continue;
        marks[node] = (sb_graph_mark){grade_of(l->async), grade_of(l->sync)};
        if (layer_noise(l) > most) {
            most = layer_noise(l);
            worst = node;
        }
    }
    const sb_graph_paint paint = {marks, worst, "worst layer"};
    sb_status status =
        sb_graph_svg(e->qm->graph, errors_seen(e) ? &paint : NULL, out);
    sb_free(e->ctx, marks);
    return status;
}

/* ---- bars ---------------------------------------------------------------- */

static int quant_page_by_noise(const void *a, const void *b)
{
    const sb_layer_error *x = *(const sb_layer_error *const *)a;
    const sb_layer_error *y = *(const sb_layer_error *const *)b;
    double u = layer_noise(x), v = layer_noise(y);

    if (u != v)
        return u < v ? 1 : -1;
    return (x > y) - (x < y);
}

static void add_note(sb_str *notes, const sb_layer_error *l)
{
    sb_html_num(notes, l->async->sqnr_db, 1);
    sb_str_add(notes, " dB, ");
    sb_html_general(notes, 100 * layer_noise(l));
    sb_str_add(notes, " %");
    sb_str_addn(notes, "", 1); /* its end */
}

static sb_status add_bars(const sb_quant_errors *e, sb_str *out)
{
    size_t n = e->n_rows < BARS_MOST ? e->n_rows : BARS_MOST;
    const sb_layer_error **list =
        sb_alloc(e->ctx, e->n_rows + 1, sizeof(sb_layer_error *));
    sb_html_bar *bars = sb_alloc(e->ctx, n + 1, sizeof *bars);
    size_t *at = sb_alloc(e->ctx, n + 1, sizeof *at);
    sb_str notes;

    sb_str_init(&notes, e->ctx);
    for (size_t i = 0; list && i < e->n_rows; i++)
        list[i] = sb_quant_errors_layer(e, i);
    if (list)
        qsort(list, e->n_rows, sizeof *list, quant_page_by_noise);
    for (size_t i = 0; list && at && i < n; i++) {
        at[i] = notes.len;
        add_note(&notes, list[i]);
    }
    bool good = list && bars && at && !notes.failed;
    for (size_t i = 0; good && i < n; i++)
        bars[i] = (sb_html_bar){.label = list[i]->name,
                                .note = notes.data + at[i],
                                .tip = list[i]->op,
                                .value = layer_noise(list[i]),
                                .color = list[i]->has_weights ? 0 : 1};
    if (good)
        sb_html_bars(out, "layers that lose most", bars, n);
    sb_str_free(&notes);
    sb_free(e->ctx, at);
    sb_free(e->ctx, bars);
    sb_free(e->ctx, list);
    return good ? SB_OK : SB_NO_MEMORY;
}

/* ---- the course of errors ------------------------------------------------ */

static sb_status add_course(const sb_quant_errors *e, sb_str *out)
{
    size_t n = e->n_rows;
    double *v = sb_alloc(e->ctx, 3 * n + 1, sizeof *v);
    const char **names = sb_alloc(e->ctx, n + 1, sizeof(char *));
    sb_status status = v && names ? SB_OK : SB_NO_MEMORY;

    for (size_t i = 0; status == SB_OK && i < n; i++) {
        const sb_layer_error *l = sb_quant_errors_layer(e, i);
        v[i] = (double)i;
        v[n + i] = l->async->sqnr_db;
        v[2 * n + i] = l->sync ? l->sync->sqnr_db : (double)NAN;
        names[i] = l->name;
    }
    if (status == SB_OK) {
        const sb_html_line lines[] = {
            {.name = "async: this layer alone is quantized",
             .x = v,
             .y = v + n,
             .notes = names,
             .n = n,
             .color = 0},
            {.name = "sync: the whole network is quantized",
             .x = v,
             .y = v + 2 * n,
             .notes = names,
             .n = n,
             .color = 1},
        };
        sb_html_lines(out, "errors along the network",
                      "layers, in order of execution", "SQNR, dB", lines, 2);
    }
    sb_free(e->ctx, names);
    sb_free(e->ctx, v);
    return status;
}

sb_status sb_page_layers(const sb_quant_errors *e, sb_str *out)
{
    bool seen = errors_seen(e);

    sb_html_section(out, "The network",
                    seen ? "Colored by the error of each node's result when "
                           "only this node is quantized (async), or the whole "
                           "network is (sync)."
                         : "Errors were not measured: no samples were given.");
    if (seen)
        sb_page_grades("not quantized", out);
    SB_TRY(add_graph(e, out));
    if (!seen)
        return SB_OK;
    sb_html_section(out, "Layers that lose most",
                    "The error of a layer's result as a share of the result "
                    "when only this layer is quantized: layers with weights in "
                    "the first color, others in the second.");
    SB_TRY(add_bars(e, out));
    sb_html_section(out, "Along the network",
                    "Signal to noise of each layer's result; every 6 dB less "
                    "doubles the error. Where the second line falls and stays "
                    "low, accuracy is lost.");
    return add_course(e, out);
}

/* ---- the table ----------------------------------------------------------- */

static void cell_db(sb_html_table *t, const sb_difference *d)
{
    if (d && isinf(d->sqnr_db) && d->sqnr_db > 0)
        sb_html_cell(t, "exact");
    else
        sb_html_cell_num(t, d ? d->sqnr_db : (double)NAN, 1);
}

void sb_page_layer_table(const sb_quant_errors *e, sb_str *out)
{
    static const char *const heads[] = {
        "layer",   "operator", "async dB", "weights dB", "activations dB",
        "sync dB", "added %",  "cosine",   "MSE",        "largest"};

    if (!errors_seen(e))
        return;
    sb_html_section(out, "All layers",
                    "In order of execution. Signal to noise of a layer's "
                    "result: alone (async), with only its weights or only its "
                    "activations quantized, and in the quantized network "
                    "(sync), with the noise that the layer adds there to that "
                    "of what it reads; the other columns are of async.");
    sb_html_table t = sb_html_table_begin(out, "lnrrrrrrrr", heads);
    for (size_t i = 0; i < e->n_rows; i++) {
        const sb_layer_error *l = sb_quant_errors_layer(e, i);
        sb_str text;

        t.node = e->rows[i].node == SB_NONE ? 0 : (size_t)e->rows[i].node + 1;
        sb_html_cell(&t, l->name);
        sb_html_cell(&t, l->op);
        cell_db(&t, l->async);
        cell_db(&t, l->weights);
        cell_db(&t, l->activations);
        cell_db(&t, l->sync);
        sb_html_cell_num(&t, l->sync ? 100 * l->sync_added : (double)NAN, 3);
        sb_html_cell_num(&t, l->async->cosine, 6);
        sb_str_init(&text, out->ctx);
        sb_html_general(&text, l->async->mse);
        sb_html_cell(&t, sb_str_text(&text));
        sb_str_clear(&text);
        sb_html_general(&text, l->async->largest);
        sb_html_cell(&t, sb_str_text(&text));
        out->failed = out->failed || text.failed;
        sb_str_free(&text);
    }
    sb_html_table_end(&t);
}
