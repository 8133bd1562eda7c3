/* A graph as SVG: a box for each input, node and output; all lines are one
 * path, so that a browser moves a thousand boxes without effort. */
#include "report/graph_svg.h"

#include <string.h>

#include "report/diagram.h"
#include "report/html.h"
#include "report/layout.h"

enum { BOX_WIDTH = 136, BOX_HEIGHT = 32, TEXT_MOST = 19 };

/* Boxes in the order of the layout: inputs, nodes, outputs. */
typedef struct drawing {
    const sb_graph *g;
    sb_node_id *order;
    size_t n_nodes;
    uint32_t *box_of_value; /* what makes it; SB_NONE: a constant */
    uint32_t *from, *to;
    size_t n_edges, cap_from, cap_to;
    uint32_t n_inputs, n_boxes;
    sb_layout_graph layout;
} drawing;

static sb_status add_edge(drawing *p, sb_value_id v, uint32_t to)
{
    uint32_t from = v == SB_NONE ? SB_NONE : p->box_of_value[v];

    if (from == SB_NONE)
        return SB_OK;
    for (size_t k = p->n_edges; k > 0 && p->to[k - 1] == to; k--)
        if (p->from[k - 1] == from)
            return SB_OK; /* read twice */
    SB_TRY(sb_grow(p->g->ctx, &p->from, &p->cap_from, p->n_edges + 1,
                   sizeof *p->from));
    SB_TRY(
        sb_grow(p->g->ctx, &p->to, &p->cap_to, p->n_edges + 1, sizeof *p->to));
    p->from[p->n_edges] = from;
    p->to[p->n_edges++] = to;
    return SB_OK;
}

static sb_status find_boxes(drawing *p)
{
    const sb_graph *g = p->g;

    SB_TRY(sb_graph_order(g, &p->order, &p->n_nodes));
    p->box_of_value =
        sb_alloc_raw(g->ctx, g->n_values + 1, sizeof *p->box_of_value);
    if (!p->box_of_value)
        return SB_NO_MEMORY;
    for (size_t v = 0; v < g->n_values; v++)
        p->box_of_value[v] = SB_NONE;
    for (size_t i = 0; i < g->n_inputs; i++)
        if (!sb_graph_value(g, g->inputs[i])->is_constant)
            p->box_of_value[g->inputs[i]] = p->n_boxes++;
    p->n_inputs = p->n_boxes;
    for (size_t i = 0; i < p->n_nodes; i++) {
        const sb_node *node = sb_graph_node(g, p->order[i]);
        uint32_t box = p->n_boxes++;

        for (uint32_t k = 0; k < node->n_in + node->n_implicit; k++)
            SB_TRY(add_edge(p, node->inputs[k], box));
        for (uint32_t k = 0; k < node->n_out; k++)
            if (node->outputs[k] != SB_NONE)
                p->box_of_value[node->outputs[k]] = box;
    }
    for (size_t i = 0; i < g->n_outputs; i++)
        SB_TRY(add_edge(p, g->outputs[i], p->n_boxes++));
    return SB_OK;
}

/* ---- drawing ------------------------------------------------------------- */

static void add_point(sb_str *out, double x, double y)
{
    sb_html_num(out, x, 0);
    sb_str_add(out, " ");
    sb_html_num(out, y, 0);
}

/* Down, and up the gap between two columns to the top of `b`. */
static void add_climb(const sb_layout_graph *l, sb_str *out, sb_layout_point b)
{
    uint32_t c = 0;

    while (c + 1 < l->n_columns && l->columns[c + 1] <= b.x)
        c++;
    double x = (double)l->columns[c] + 8, low = (double)l->height - 5;
    sb_str_add(out, "V");
    sb_html_num(out, low, 0);
    sb_str_add(out, "H");
    sb_html_num(out, x, 0);
    sb_str_add(out, "V5H");
    sb_html_num(out, (double)b.x, 0);
    sb_str_add(out, "V");
    sb_html_num(out, (double)b.y, 0);
}

/* From one point to the next below it, leaving and arriving upright. */
static void add_curve(const sb_layout_graph *l, sb_str *out, sb_layout_point a,
                      sb_layout_point b)
{
    double half = ((double)b.y - (double)a.y) / 2;

    if (b.y <= a.y) {
        add_climb(l, out, b);
        return;
    }
    if (a.x == b.x) {
        sb_str_add(out, "V");
        sb_html_num(out, (double)b.y, 0);
        return;
    }
    sb_str_add(out, "C");
    add_point(out, (double)a.x, (double)a.y + half);
    sb_str_add(out, " ");
    add_point(out, (double)b.x, (double)b.y - half);
    sb_str_add(out, " ");
    add_point(out, (double)b.x, (double)b.y);
}

static void draw_edges(const drawing *p, sb_str *out)
{
    const sb_layout_graph *l = &p->layout;

    sb_str_add(out, "<path d=\"");
    for (uint32_t k = 0; k < l->n_edges; k++) {
        sb_layout_point at = l->at[p->from[k]], end = l->at[p->to[k]];

        at.y += BOX_HEIGHT / 2.0F;
        end.y -= BOX_HEIGHT / 2.0F;
        sb_str_add(out, "M");
        add_point(out, (double)at.x, (double)at.y);
        for (uint32_t i = l->first[k]; i < l->first[k + 1]; i++) {
            add_curve(l, out, at, l->bends[i]);
            at = l->bends[i];
        }
        add_curve(l, out, at, end);
    }
    sb_str_add(out, "\"/>\n");
}

/* The end of a name, which tells more than its beginning. */
static void box_text(sb_str *out, double x, double y, const char *text)
{
    size_t len = strlen(text);

    sb_str_add(out, "<text text-anchor=\"middle\" x=\"");
    sb_html_num(out, x, 0);
    sb_str_add(out, "\" y=\"");
    sb_html_num(out, y, 0);
    sb_str_add(out, "\">");
    if (len > TEXT_MOST) {
        text += len - TEXT_MOST + 1;
        while (((unsigned char)*text & 0xc0) == 0x80)
            text++;
        sb_str_add(out, "…");
    }
    sb_html_text(out, text);
    sb_str_add(out, "</text>");
}

/* Names of dimensions may be anything. */
static void box_shape(const sb_graph *g, const sb_value *v, sb_str *out)
{
    sb_str text;

    sb_str_init(&text, g->ctx);
    sb_report_shape(g, v, &text);
    sb_html_text(out, sb_str_text(&text));
    out->failed = out->failed || text.failed;
    sb_str_free(&text);
}

static void draw_box(const drawing *p, uint32_t box, const char *first,
                     const char *second, sb_value_id shown, sb_str *out)
{
    double x = (double)p->layout.at[box].x, y = (double)p->layout.at[box].y;

    sb_str_add(out, "<title>");
    sb_html_text(out, first);
    sb_str_add(out, " ");
    sb_html_text(out, second);
    sb_str_add(out, "\n");
    if (shown != SB_NONE)
        box_shape(p->g, sb_graph_value(p->g, shown), out);
    sb_str_add(out, "</title><rect rx=\"5\" x=\"");
    sb_html_num(out, x - BOX_WIDTH / 2.0, 0);
    sb_str_add(out, "\" y=\"");
    sb_html_num(out, y - BOX_HEIGHT / 2.0, 0);
    sb_str_addf(out, "\" width=\"%d\" height=\"%d\"/>", BOX_WIDTH, BOX_HEIGHT);
    box_text(out, x, y - 2, first);
    box_text(out, x, y + 11, second);
    sb_str_add(out, "</g>\n");
}

static void draw_boxes(const drawing *p, const sb_graph_paint *paint,
                       sb_str *out)
{
    const sb_graph *g = p->g;
    uint32_t box = 0;

    for (size_t i = 0; i < g->n_inputs; i++) {
        const sb_value *v = sb_graph_value(g, g->inputs[i]);
        if (v->is_constant)
            continue;
        sb_str_add(out, "<g class=\"io\">");
        draw_box(p, box++, "input", v->name, g->inputs[i], out);
    }
    for (size_t i = 0; i < p->n_nodes; i++) {
        sb_node_id id = p->order[i];
        const sb_node *node = sb_graph_node(g, id);
        const sb_graph_mark m =
            paint ? paint->marks[id] : (sb_graph_mark){0, 0};

        sb_str_addf(out, "<g class=\"n a%u s%u\" id=\"n%u\">", m.async, m.sync,
                    id);
        draw_box(p, box++, node->op, sb_node_label(g, node),
                 node->n_out ? node->outputs[0] : SB_NONE, out);
    }
    for (size_t i = 0; i < g->n_outputs; i++) {
        sb_str_add(out, "<g class=\"io\">");
        draw_box(p, box++, "output", sb_graph_value(g, g->outputs[i])->name,
                 g->outputs[i], out);
    }
}

static sb_status draw_all(drawing *p, const sb_graph_paint *paint, sb_str *out)
{
    SB_TRY(find_boxes(p));
    p->layout = (sb_layout_graph){.n = p->n_boxes,
                                  .from = p->from,
                                  .to = p->to,
                                  .n_edges = (uint32_t)p->n_edges,
                                  .box_width = BOX_WIDTH,
                                  .box_height = BOX_HEIGHT,
                                  .gap_x = 14,
                                  .gap_y = 22};
    SB_TRY(sb_layout_make(p->g->ctx, &p->layout));
    int width = (int)p->layout.width, height = (int)p->layout.height;
    sb_str_addf(out,
                "<div class=\"graph\"><svg viewBox=\"0 0 %d %d\" width=\"%d\" "
                "height=\"%d\"",
                width, height, width, height);
    if (paint)
        sb_str_add(out, " data-by=\"async\"");
    if (paint && paint->most != SB_NONE) {
        sb_str_addf(out, " data-most=\"%u\" data-jump=\"", paint->most);
        sb_html_text(out, paint->jump);
        sb_str_add(out, "\"");
    }
    sb_str_add(out, " role=\"img\" aria-label=\"the network\">\n");
    draw_edges(p, out);
    draw_boxes(p, paint, out);
    sb_str_add(out, "</svg></div>\n");
    return SB_OK;
}

sb_status sb_graph_svg(const sb_graph *g, const sb_graph_paint *paint,
                       sb_str *out)
{
    drawing p = {.g = g};
    sb_status status = SB_OK;

    if (sb_graph_live_nodes(g) > SB_GRAPH_SVG_MOST)
        sb_str_addf(out, "<p>%zu nodes are too many for a drawing.</p>\n",
                    sb_graph_live_nodes(g));
    else
        status = draw_all(&p, paint, out);
    sb_layout_free(g->ctx, &p.layout);
    sb_free(g->ctx, p.order);
    sb_free(g->ctx, p.box_of_value);
    sb_free(g->ctx, p.from);
    sb_free(g->ctx, p.to);
    return status;
}

/* From good to bad, and what has no color in the end. */
void sb_graph_key(const char *const *texts, sb_str *out)
{
    sb_str_add(out, "<div class=\"key\">");
    for (int i = 1; i <= SB_GRAPH_GRADES + 1; i++) {
        int k = i % (SB_GRAPH_GRADES + 1);

        sb_str_addf(out, "<span><i style=\"background:var(--e%d)\"></i>", k);
        sb_html_text(out, texts[k]);
        sb_str_add(out, "</span>");
    }
    sb_str_add(out, "</div>\n");
}
