/* The public side of reports. */
#include <sparsebit/report.h>

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
    sb_html_table t = sb_html_table_begin(report_part(r), align, heads);

    for (size_t i = 0; i < n_rows * strlen(align); i++)
        sb_html_cell(&t, cells[i]);
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

sb_status sb_report_graph(sb_report *r, const sb_model *model)
{
    return sb_graph_svg(model->graph, NULL, SB_NONE, report_part(r));
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
