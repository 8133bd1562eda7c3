/* A page about the time of a run: by operator type as bars, by node as a
 * skyline (as wide as the time it took, filled up to its share of the peak) and
 * as a table. */
#include "report/profile_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SORTED_MOST = 50 };

static double total_of(const sb_profile *p)
{
    double sum = 0;

    for (size_t i = 0; i < p->n_types; i++)
        sum += p->types[i]->median_ms;
    return sum > 0 ? sum : 1;
}

static double profile_page_gflops(const sb_profile_row *r)
{
    return r->macs > 0 && r->median_ms > 0 ? 2e-6 * r->macs / r->median_ms
                                           : (double)NAN;
}

static double gb_per_s(const sb_profile_row *r)
{
    return r->bytes > 0 && r->median_ms > 0 ? 1e-6 * r->bytes / r->median_ms
                                            : (double)NAN;
}

/* Colors go to the most expensive types; the rest shares the last one. */
static unsigned color_of(const sb_profile *p, const char *op)
{
    for (unsigned i = 0; i + 1 < SB_HTML_COLORS && i < p->n_types; i++)
        if (strcmp(p->types[i]->op, op) == 0)
            return i;
    return SB_HTML_COLORS - 1;
}

static void add_facts(const sb_profile *p, double peak, sb_str *out)
{
    sb_str text;
    double macs = 0;

    for (size_t i = 0; i < p->n_types; i++)
        macs += p->types[i]->macs;
    sb_str_init(&text, out->ctx);
    sb_html_facts_begin(out);
    sb_html_short(&text, p->median_ms);
    sb_str_add(&text, " ms");
    sb_html_fact(out, "median of a run", sb_str_text(&text));
    sb_str_clear(&text);
    sb_html_short(&text, p->best_ms);
    sb_str_add(&text, " ms");
    sb_html_fact(out, "best", sb_str_text(&text));
    sb_str_clear(&text);
    sb_html_short(&text, 2e-6 * macs / (p->median_ms > 0 ? p->median_ms : 1));
    sb_html_fact(out, "GFLOPS on average", sb_str_text(&text));
    if (peak > 0) {
        sb_str_clear(&text);
        sb_html_short(&text, peak);
        sb_html_fact(out, "GFLOPS at the peak", sb_str_text(&text));
    }
    sb_str_clear(&text);
    sb_str_addf(&text, "%zu", p->n_nodes);
    sb_html_fact(out, "steps", sb_str_text(&text));
    sb_str_clear(&text);
    sb_str_addf(&text, "%zu", p->runs);
    sb_html_fact(out, "runs measured", sb_str_text(&text));
    sb_html_facts_end(out);
    out->failed = out->failed || text.failed;
    sb_str_free(&text);
}

/* What stands behind a bar or under the pointer. */
static void profile_page_describe(const sb_profile_row *r, double total,
                                  sb_str *text)
{
    sb_html_short(text, r->median_ms);
    sb_str_add(text, " ms, ");
    sb_html_short(text, 100 * r->median_ms / total);
    sb_str_add(text, " %");
    if (r->macs > 0) {
        sb_str_add(text, ", ");
        sb_html_short(text, profile_page_gflops(r));
        sb_str_add(text, " GFLOPS");
    }
}

static void add_types(const sb_profile *p, double total, sb_str *out)
{
    sb_str notes;
    sb_html_bar *bars = sb_alloc(out->ctx, p->n_types + 1, sizeof *bars);
    size_t *at = sb_alloc(out->ctx, p->n_types + 1, sizeof *at);

    sb_str_init(&notes, out->ctx);
    for (size_t i = 0; bars && at && i < p->n_types; i++) {
        at[i] = notes.len;
        profile_page_describe(p->types[i], total, &notes);
        sb_str_addn(&notes, "", 1); /* its end */
    }
    if (!bars || !at || notes.failed) {
        out->failed = true;
    } else {
        for (size_t i = 0; i < p->n_types; i++)
            bars[i] = (sb_html_bar){.label = p->types[i]->op,
                                    .note = notes.data + at[i],
                                    .value = p->types[i]->median_ms,
                                    .color = color_of(p, p->types[i]->op)};
        sb_html_bars(out, "time by operator type", bars, p->n_types);
    }
    sb_str_free(&notes);
    sb_free(out->ctx, at);
    sb_free(out->ctx, bars);
}

static void add_skyline(const sb_profile *p, double total, double peak,
                        sb_str *out)
{
    sb_str tips;
    sb_html_block *blocks = sb_alloc(out->ctx, p->n_nodes + 1, sizeof *blocks);
    size_t *at = sb_alloc(out->ctx, p->n_nodes + 1, sizeof *at);

    sb_str_init(&tips, out->ctx);
    for (size_t i = 0; blocks && at && i < p->n_nodes; i++) {
        const sb_profile_row *r = p->nodes[i];
        at[i] = tips.len;
        sb_str_addf(&tips, "%s '%s' %s: ", r->op, r->name, r->shape);
        profile_page_describe(r, total, &tips);
        sb_str_addn(&tips, "", 1);
    }
    if (!blocks || !at || tips.failed) {
        out->failed = true;
    } else {
        for (size_t i = 0; i < p->n_nodes; i++) {
            const sb_profile_row *r = p->nodes[i];
            blocks[i] = (sb_html_block){.width = r->median_ms,
                                        .tip = tips.data + at[i],
                                        .color = color_of(p, r->op)};
            if (peak > 0 && r->macs > 0)
                blocks[i].level = profile_page_gflops(r) / peak;
        }
        sb_html_skyline(out, "time by step", "ms since the start",
                        peak > 0 ? "share of the peak" : "", blocks,
                        p->n_nodes);
    }
    sb_str_free(&tips);
    sb_free(out->ctx, at);
    sb_free(out->ctx, blocks);
}

static void add_legend(const sb_profile *p, sb_str *out)
{
    const char *names[SB_HTML_COLORS];
    unsigned colors[SB_HTML_COLORS];
    size_t n = 0;

    for (; n < p->n_types && n + 1 < SB_HTML_COLORS; n++) {
        names[n] = p->types[n]->op;
        colors[n] = (unsigned)n;
    }
    if (p->n_types > n) {
        names[n] = "others";
        colors[n++] = SB_HTML_COLORS - 1;
    }
    sb_html_legend(out, names, colors, n);
}

static void add_rows(const sb_profile_row *const *rows, size_t n, bool by_node,
                     double total, double peak, sb_str *out)
{
    const char *const heads[] = {by_node ? "step" : "nodes",
                                 "operator",
                                 by_node ? "result" : "",
                                 "median ms",
                                 "best ms",
                                 "share %",
                                 "GFLOPS",
                                 peak > 0 ? "of peak %" : "",
                                 "MB moved",
                                 "GB/s"};
    sb_html_table t =
        sb_html_table_begin(out, by_node ? "lnnrrrrrrr" : "rnnrrrrrrr", heads);

    for (size_t i = 0; i < n; i++) {
        const sb_profile_row *r = rows[i];
        if (by_node)
            sb_html_cell(&t, r->name);
        else
            sb_html_cell_num(&t, (double)r->nodes, 0);
        sb_html_cell(&t, r->op);
        sb_html_cell(&t, r->shape);
        sb_html_cell_num(&t, r->median_ms, 3);
        sb_html_cell_num(&t, r->best_ms, 3);
        sb_html_cell_num(&t, 100 * r->median_ms / total, 1);
        sb_html_cell_num(&t, profile_page_gflops(r), -1);
        sb_html_cell_num(
            &t, peak > 0 ? 100 * profile_page_gflops(r) / peak : (double)NAN,
            0);
        sb_html_cell_num(&t, r->bytes > 0 ? 1e-6 * r->bytes : (double)NAN, -1);
        sb_html_cell_num(&t, gb_per_s(r), -1);
    }
    sb_html_table_end(&t);
}

static int profile_page_by_time(const void *a, const void *b)
{
    const sb_profile_row *x = *(const sb_profile_row *const *)a;
    const sb_profile_row *y = *(const sb_profile_row *const *)b;

    if (x->median_ms != y->median_ms)
        return x->median_ms < y->median_ms ? 1 : -1;
    return (x > y) - (x < y);
}

/* The table of steps once more, most expensive first. */
static void add_sorted(const sb_profile *p, double total, double peak,
                       sb_str *out)
{
    const sb_profile_row **rows =
        sb_alloc(out->ctx, p->n_nodes + 1, sizeof *rows);

    if (!rows) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < p->n_nodes; i++)
        rows[i] = p->nodes[i];
    qsort(rows, p->n_nodes, sizeof *rows, profile_page_by_time);
    add_rows(rows, p->n_nodes < SORTED_MOST ? p->n_nodes : SORTED_MOST, true,
             total, peak, out);
    sb_free(out->ctx, rows);
}

void sb_report_profile(const sb_profile *p, const char *title,
                       const char *subtitle, double peak_gflops, sb_str *out)
{
    double total = total_of(p);

    sb_html_begin(out, title, subtitle);
    add_facts(p, peak_gflops, out);
    sb_html_section(out, "By operator type",
                    "Median time of all steps that do the same. A name with "
                    "plus signs is one step into which others were fused; "
                    "Reorder is a change of memory layout.");
    add_types(p, total, out);
    add_rows(p->types, p->n_types, false, total, peak_gflops, out);
    sb_html_section(out, "By step, in order of execution",
                    "As wide as the time it took, filled up to its share of "
                    "the machine's measured peak; Winograd's convolutions "
                    "count as many operations as plain ones, and can be above "
                    "100 %, which a cap on the block shows. Point at a step to "
                    "see its name.");
    add_skyline(p, total, peak_gflops, out);
    add_legend(p, out);
    sb_html_section(out, "Most expensive steps", NULL);
    add_sorted(p, total, peak_gflops, out);
    sb_html_section(out, "All steps, in order of execution", NULL);
    add_rows(p->nodes, p->n_nodes, true, total, peak_gflops, out);
    sb_html_end(out);
}
