/* What a search chose: the graph colored by what the widths of layers cost, and
 * the table of layers. */
#include <math.h>

#include "report/graph_svg.h"
#include "report/quant_page.h"

/* What the width of a layer adds to the error of the outputs, a share of their
 * signal that a noisy measurement may take below zero. */
static double search_cost(const sb_search *s, size_t layer)
{
    return fmax(s->result.layers[layer]->errors[s->choices[layer]], 0);
}

static sb_status search_graph(const sb_search *s, sb_str *out)
{
    const sb_graph *g = s->models[0]->graph;
    sb_graph_mark *marks = sb_alloc(s->ctx, g->n_nodes + 1, sizeof *marks);
    sb_node_id worst = SB_NONE;
    double most = 0;

    if (!marks)
        return SB_NO_MEMORY;
    for (size_t i = 0; i < s->m.n_layers; i++) {
        double cost = search_cost(s, i);

        marks[s->m.layers[i].node].async = sb_page_grade(-10 * log10(cost));
        if (cost > most) {
            most = cost;
            worst = s->m.layers[i].node;
        }
    }
    sb_status status =
        sb_graph_svg(g, &(sb_graph_paint){marks, worst, "worst layer"}, out);
    sb_free(s->ctx, marks);
    return status;
}

static void search_table(const sb_search *s, sb_str *out)
{
    static const char *const heads[] = {"layer", "operator", "bits",
                                        "costs", "weights",  "MACs"};
    sb_html_table t = sb_html_table_begin(out, "lnrrrr", heads);

    for (size_t i = 0; i < s->result.n_layers; i++) {
        const sb_search_layer *l = s->result.layers[i];
        sb_str cost;

        t.node = (size_t)s->m.layers[i].node + 1;
        sb_str_init(&cost, out->ctx);
        sb_html_general(&cost, l->errors[s->choices[i]]);
        sb_html_cell(&t, l->name);
        sb_html_cell(&t, l->op);
        sb_html_cell_num(&t, l->bits, 0);
        sb_html_cell(&t, sb_str_text(&cost));
        sb_html_cell_num(&t, l->elements, 0);
        sb_html_cell_num(&t, l->macs, 0);
        out->failed = out->failed || cost.failed;
        sb_str_free(&cost);
    }
    sb_html_table_end(&t);
}

sb_status sb_page_search(const sb_search *s, sb_str *out)
{
    sb_html_section(out, "The network",
                    "Colored by the noise that the width of a layer adds to "
                    "the outputs.");
    sb_page_grades("not quantized", out);
    SB_TRY(search_graph(s, out));
    sb_html_section(out, "Layers",
                    "What was chosen, and how much the error of the outputs "
                    "grows by it.");
    search_table(s, out);
    return SB_OK;
}
