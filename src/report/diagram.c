/* Graphviz and Mermaid text of a graph.
 *
 * Both languages are written by one walk: frames of modules with their nodes
 * first, then the edges.  They differ in four small functions. */
#include "report/diagram.h"

#include <string.h>

#include "graph/op.h"
#include "passes/rewrite.h"
#include "quant/model/quant_view.h"

typedef struct {
    const char *begin, *end;
    const char *frame_end;
    void (*frame)(sb_str *out, size_t number, const char *title);
    void (*node)(sb_str *out, const char *kind, size_t id, const char *title,
                 const char *subtitle);
    void (*edge)(sb_str *out, const char *from_kind, size_t from,
                 const char *to_kind, size_t to, const char *label);
    const char *fused; /* (optional) to be said once if there are such nodes */
} language;

/* Quotes and brackets mean something in both languages. */
static void add_escaped(sb_str *out, const char *text, bool html)
{
    for (const char *p = text; *p; p++) {
        if (html &&
            (*p == '"' || *p == '<' || *p == '>' || *p == '#' || *p == '&'))
            sb_str_addf(out, "#%d;", (int)*p);
        else if (!html && (*p == '"' || *p == '\\'))
            sb_str_addf(out, "\\%c", *p);
        else if ((unsigned char)*p >= 0x20)
            sb_str_addn(out, p, 1);
    }
}

static void dot_frame(sb_str *out, size_t number, const char *title)
{
    sb_str_addf(out, "  subgraph cluster_%zu {\n  label=\"", number);
    add_escaped(out, title, false);
    sb_str_add(out, "\";\n");
}

static void dot_node(sb_str *out, const char *kind, size_t id,
                     const char *title, const char *subtitle)
{
    sb_str_addf(out, "  %s%zu [label=\"", kind, id);
    add_escaped(out, title, false);
    if (*subtitle) {
        sb_str_add(out, "\\n");
        add_escaped(out, subtitle, false);
    }
    sb_str_addf(out, "\"%s];\n",
                *kind == 'n'   ? ""
                : *kind == 'q' ? ", shape=hexagon"
                : *kind == 'f' ? ", shape=hexagon, style=dashed"
                               : ", shape=ellipse");
}

static void dot_edge(sb_str *out, const char *from_kind, size_t from,
                     const char *to_kind, size_t to, const char *label)
{
    sb_str_addf(out, "  %s%zu -> %s%zu [label=\"", from_kind, from, to_kind,
                to);
    add_escaped(out, label, false);
    sb_str_add(out, "\"];\n");
}

static void mermaid_frame(sb_str *out, size_t number, const char *title)
{
    sb_str_addf(out, "  subgraph m%zu [\"", number);
    add_escaped(out, title, true);
    sb_str_add(out, "\"]\n");
}

static void mermaid_node(sb_str *out, const char *kind, size_t id,
                         const char *title, const char *subtitle)
{
    bool quantizer = *kind == 'q' || *kind == 'f';

    sb_str_addf(out, "  %s%zu%s\"", kind, id,
                *kind == 'n' ? "["
                : quantizer  ? "{{"
                             : "([");
    add_escaped(out, title, true);
    if (*subtitle) {
        sb_str_add(out, "<br/>");
        add_escaped(out, subtitle, true);
    }
    sb_str_add(out, *kind == 'n' ? "\"]" : quantizer ? "\"}}" : "\"])");
    sb_str_add(out, *kind == 'f' ? ":::fused\n" : "\n");
}

static void mermaid_edge(sb_str *out, const char *from_kind, size_t from,
                         const char *to_kind, size_t to, const char *label)
{
    sb_str_addf(out, "  %s%zu -->", from_kind, from);
    if (*label) {
        sb_str_add(out, "|\"");
        add_escaped(out, label, true);
        sb_str_add(out, "\"|");
    }
    sb_str_addf(out, " %s%zu\n", to_kind, to);
}

static const language dot = {
    "digraph model {\n  node [shape=box];\n",
    "}\n",
    "  }\n",
    dot_frame,
    dot_node,
    dot_edge,
    NULL,
};

static const language mermaid = {
    "flowchart TD\n",
    "",
    "  end\n",
    mermaid_frame,
    mermaid_node,
    mermaid_edge,
    "  classDef fused stroke-dasharray: 4 3\n",
};

/* ---- the walk ----------------------------------------------------------- */

void sb_report_shape(const sb_graph *g, const sb_value *v, sb_str *out)
{
    for (int i = 0; i < v->type.shape.rank; i++) {
        sb_dim d = v->type.shape.dim[i];
        const char *symbol = sb_graph_symbol_name(g, d);

        if (i)
            sb_str_add(out, "x");
        if (sb_dim_known(d))
            sb_str_addf(out, "%lld", (long long)d);
        else
            sb_str_add(out, symbol ? symbol : "?");
    }
}

static bool is_view(const sb_node *node, const char *op)
{
    return strcmp(node->domain, SB_FUSED_DOMAIN) == 0 &&
           strcmp(node->op, op) == 0;
}

/* The letter before a node's number. */
static const char *kind_of(const sb_node *node)
{
    if (!is_view(node, SB_VIEW_QUANTIZER))
        return "n";
    return sb_node_int(node, "fused", 0) ? "f" : "q";
}

static void add_edge(const language *lang, const sb_graph *g, sb_value_id id,
                     const char *to_kind, size_t to, sb_str *label, sb_str *out)
{
    const sb_value *v = sb_graph_value(g, id);

    sb_str_clear(label);
    sb_report_shape(g, v, label);
    if (v->producer != SB_NONE)
        lang->edge(out, kind_of(sb_graph_node(g, v->producer)), v->producer,
                   to_kind, to, sb_str_text(label));
    else if (v->is_input)
        lang->edge(out, "in", id, to_kind, to, sb_str_text(label));
}

static size_t top_length(const char *module)
{
    return strcspn(module, ".");
}

static bool same_top(const sb_node *a, const sb_node *b)
{
    size_t n = top_length(a->module);

    return n == top_length(b->module) && memcmp(a->module, b->module, n) == 0;
}

static void add_node(const language *lang, const sb_graph *g, sb_node_id id,
                     sb_str *title, sb_str *out)
{
    const sb_node *node = sb_graph_node(g, id);
    const char *name = *node->name ? node->name : node->module;
    const sb_attr *scheme = sb_node_attr(node, "scheme");

    sb_str_clear(title);
    sb_str_add(title, node->op);
    if (is_view(node, SB_VIEW_MODULE)) {
        sb_str_clear(title);
        sb_str_add(title, name);
        name = "in float";
    } else if (is_view(node, SB_VIEW_QUANTIZER) && scheme) {
        sb_str_clear(title);
        sb_str_addf(title, "%s%lld bit %s",
                    *kind_of(node) == 'f' ? "fused: " : "",
                    (long long)sb_node_int(node, "bits", 0), scheme->s.data);
    }
    lang->node(out, kind_of(node), id, sb_str_text(title), name);
}

/* Nodes in order; a new frame wherever the top-level module changes, so that
 * frames follow the way of the data even if a module is used twice. */
static sb_status add_nodes(const language *lang, const sb_graph *g,
                           const sb_node_id *order, size_t n, sb_str *out)
{
    sb_str title;
    size_t frames = 0;

    sb_str_init(&title, g->ctx);
    for (size_t i = 0; i < n;) {
        const sb_node *first = sb_graph_node(g, order[i]);
        bool framed = *first->module != '\0';

        if (framed) {
            sb_str_clear(&title);
            sb_str_addn(&title, first->module, top_length(first->module));
            lang->frame(out, frames++, sb_str_text(&title));
        }
        do {
            add_node(lang, g, order[i++], &title, out);
        } while (i < n && same_top(first, sb_graph_node(g, order[i])));
        if (framed)
            sb_str_add(out, lang->frame_end);
    }
    sb_status status = sb_str_status(&title);
    sb_str_free(&title);
    return status;
}

static sb_status diagram_walk(const language *lang, const sb_graph *g,
                              sb_str *out)
{
    sb_node_id *order = NULL;
    size_t n = 0;
    bool fused = false;
    sb_str label;

    SB_TRY(sb_graph_order(g, &order, &n));
    sb_str_init(&label, g->ctx);
    sb_str_add(out, lang->begin);
    for (size_t i = 0; i < g->n_inputs; i++)
        if (!sb_graph_value(g, g->inputs[i])->is_constant)
            lang->node(out, "in", g->inputs[i],
                       sb_graph_value(g, g->inputs[i])->name, "");
    sb_status status = add_nodes(lang, g, order, n, out);
    for (size_t i = 0; i < g->n_outputs; i++)
        lang->node(out, "out", i, sb_graph_value(g, g->outputs[i])->name, "");
    for (size_t i = 0; i < n; i++) {
        const sb_node *node = sb_graph_node(g, order[i]);

        for (uint32_t k = 0; k < node->n_in + node->n_implicit; k++)
            if (node->inputs[k] != SB_NONE)
                add_edge(lang, g, node->inputs[k], kind_of(node), order[i],
                         &label, out);
        fused |= *kind_of(node) == 'f';
    }
    for (size_t i = 0; i < g->n_outputs; i++)
        add_edge(lang, g, g->outputs[i], "out", i, &label, out);
    if (fused && lang->fused)
        sb_str_add(out, lang->fused);
    sb_str_add(out, lang->end);
    if (status == SB_OK)
        status = sb_str_status(&label);
    if (status == SB_OK)
        status = sb_str_status(out);
    sb_str_free(&label);
    sb_free(g->ctx, order);
    return status;
}

sb_status sb_report_dot(const sb_graph *g, sb_str *out)
{
    return diagram_walk(&dot, g, out);
}

sb_status sb_report_mermaid(const sb_graph *g, sb_str *out)
{
    return diagram_walk(&mermaid, g, out);
}
