/* The public side of reports. */
#include <sparsebit/report.h>

#include <math.h>
#include <string.h>

#include "api/model.h"
#include "base/file.h"
#include "base/options.h"
#include "report/graph_svg.h"
#include "report/quant_page.h"

struct sb_report {
    sb_ctx *ctx;
    sb_str page;
    bool facts; /* facts are being written */
};

sb_status sb_report_create(sb_ctx *ctx, const char *title, const char *subtitle,
                           sb_report **out)
{
    sb_report *r = sb_alloc(ctx, 1, sizeof *r);

    if (!r)
        return SB_NO_MEMORY;
    r->ctx = ctx;
    sb_str_init(&r->page, ctx);
    sb_html_begin(&r->page, title, subtitle);
    *out = r;
    return SB_OK;
}

void sb_report_free(sb_report *r)
{
    if (!r)
        return;
    sb_str_free(&r->page);
    sb_free(r->ctx, r);
}

/* The page, ready for something other than facts. */
static sb_str *report_part(sb_report *r)
{
    if (r->facts)
        sb_html_facts_end(&r->page);
    r->facts = false;
    return &r->page;
}

void sb_report_fact(sb_report *r, const char *label, const char *value)
{
    if (!r->facts)
        sb_html_facts_begin(&r->page);
    r->facts = true;
    sb_html_fact(&r->page, label, value);
}

void sb_report_section(sb_report *r, const char *heading, const char *text)
{
    sb_html_section(report_part(r), heading, text);
}

void sb_report_table(sb_report *r, const char *align, const char *const *heads,
                     const char *const *cells, size_t n_rows)
{
    sb_report_nodes(r, NULL, NULL, align, heads, cells, n_rows);
}

static sb_node_id report_node(const sb_graph *g, const char *result)
{
    sb_value_id v = result ? sb_graph_find_value(g, result) : SB_NONE;

    return v == SB_NONE ? SB_NONE : sb_graph_value(g, v)->producer;
}

void sb_report_nodes(sb_report *r, const sb_model *model,
                     const char *const *results, const char *align,
                     const char *const *heads, const char *const *cells,
                     size_t n_rows)
{
    sb_html_table t = sb_html_table_begin(report_part(r), align, heads);
    size_t n = strlen(align);

    for (size_t i = 0; i < n_rows; i++) {
        sb_node_id node =
            results ? report_node(model->graph, results[i]) : SB_NONE;

        t.node = node == SB_NONE ? 0 : (size_t)node + 1;
        for (size_t k = 0; k < n; k++)
            sb_html_cell(&t, cells[i * n + k]);
    }
    sb_html_table_end(&t);
}

sb_status sb_report_lines(sb_report *r, const char *title, const char *x_label,
                          const char *y_label,
                          const sb_report_line *const *lines, size_t n_lines)
{
    const sb_report_line none = SB_REPORT_LINE_INIT;
    sb_html_line html[SB_HTML_COLORS];

    if (n_lines > SB_HTML_COLORS)
        return sb_fail(r->ctx, SB_BAD_ARG,
                       "a chart of %zu curves, want at most %d", n_lines,
                       SB_HTML_COLORS);
    for (size_t i = 0; i < n_lines; i++) {
        sb_report_line given;
        SB_TRY(sb_options_read(r->ctx, "sb_report_line", lines[i], &none,
                               sizeof given, &given));
        html[i] = (sb_html_line){.name = given.name ? given.name : "",
                                 .x = given.x,
                                 .y = given.y,
                                 .notes = given.notes,
                                 .n = given.n,
                                 .color = (unsigned)i,
                                 .dots = given.dots != 0};
    }
    sb_html_lines(report_part(r), title, x_label, y_label, html, n_lines);
    return SB_OK;
}

static uint8_t report_grade(const sb_report_marks *m, double v)
{
    uint8_t i = 0;

    if (isnan(v))
        return 0;
    if (!m->texts[0])
        return sb_page_grade(v);
    while (i + 1 < SB_GRAPH_GRADES && v >= m->limits[i])
        i++;
    return i + 1;
}

static void report_key(const sb_report_marks *m, sb_str *out)
{
    const char *texts[SB_GRAPH_GRADES + 1] = {m->none};

    for (size_t i = 0; i < SB_GRAPH_GRADES; i++)
        texts[i + 1] = m->texts[i] ? m->texts[i] : "";
    if (m->texts[0])
        sb_graph_key(texts, out);
    else
        sb_page_grades(m->none, out);
}

sb_status sb_report_graph(sb_report *r, const sb_model *model,
                          const sb_report_marks *marks)
{
    const sb_report_marks none = SB_REPORT_MARKS_INIT;
    const sb_graph *g = model->graph;
    sb_str *out = report_part(r);
    double most = -(double)INFINITY;
    sb_report_marks m;

    if (!marks)
        return sb_graph_svg(g, NULL, out);
    SB_TRY(
        sb_options_read(r->ctx, "sb_report_marks", marks, &none, sizeof m, &m));
    sb_graph_mark *colors = sb_alloc(r->ctx, g->n_nodes + 1, sizeof *colors);
    if (!colors)
        return SB_NO_MEMORY;
    sb_graph_paint paint = {colors, SB_NONE, m.jump};
    for (size_t i = 0; i < m.n; i++) {
        sb_node_id node = report_node(g, m.results[i]);
        double alarm = m.texts[0] ? m.values[i] : -m.values[i];

        if (node == SB_NONE)
            continue;
        uint8_t grade = report_grade(&m, m.values[i]);
        if (grade > colors[node].async)
            colors[node].async = grade;
        if (m.jump && alarm > most) {
            most = alarm;
            paint.most = node;
        }
    }
    report_key(&m, out);
    sb_status status = sb_graph_svg(g, &paint, out);
    sb_free(r->ctx, colors);
    return status;
}

sb_status sb_report_quantization(sb_report *r, const sb_quant_errors *errors)
{
    sb_str *page = report_part(r);

    SB_TRY(sb_page_layers(errors, page));
    sb_page_layer_table(errors, page);
    return sb_page_tensors(errors, page);
}

sb_status sb_report_search(sb_report *r, const sb_search *search)
{
    if (!search->result.found)
        return sb_fail(r->ctx, SB_BAD_ARG, "sb_search_run() comes first");
    return sb_page_search(search, report_part(r));
}

void sb_report_lint(sb_report *r, const sb_lint *lint)
{
    sb_page_lint(lint, report_part(r));
}

sb_status sb_report_save(sb_report *r, const char *path)
{
    sb_str *page = report_part(r);
    sb_writer *w = NULL;

    sb_html_script(page);
    sb_html_end(page);
    SB_TRY(sb_str_status(page));
    SB_TRY(sb_writer_open(r->ctx, path, &w));
    sb_writer_put(w, sb_str_text(page), page->len);
    return sb_writer_commit(w);
}
