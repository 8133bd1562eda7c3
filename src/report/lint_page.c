/* What a runtime makes of a quantized model: what became integer kernels, and
 * what did not, with the reason. */
#include "report/quant_page.h"

static const char *fate_text(sb_lint_fate fate)
{
    switch (fate) {
    case SB_LINT_FATE_INTEGER:
        return "integer";
    case SB_LINT_FATE_MOVES:
        return "moves integers";
    case SB_LINT_FATE_ABSORBED:
        return "absorbed";
    case SB_LINT_FATE_FLOAT:
        break;
    }
    return "float";
}

static void lint_facts(const sb_lint *lint, sb_str *out)
{
    size_t n[4] = {0};
    sb_str text;

    for (size_t i = 0; i < lint->n_nodes; i++)
        n[lint->nodes[i]->fate]++;
    sb_str_init(&text, out->ctx);
    sb_html_facts_begin(out);
    sb_html_fact(out, "target", lint->target);
    sb_str_addf(&text, "%zu of %zu", lint->n_weighted_integer,
                lint->n_weighted);
    sb_html_fact(out, "layers with weights as integers", sb_str_text(&text));
    for (int k = 0; k < 4; k++) {
        sb_str_clear(&text);
        sb_str_addf(&text, "%zu", n[k]);
        sb_html_fact(out,
                     k == SB_LINT_FATE_FLOAT     ? "nodes in float"
                     : k == SB_LINT_FATE_INTEGER ? "integer kernels"
                     : k == SB_LINT_FATE_MOVES   ? "nodes that move integers"
                                                 : "nodes absorbed",
                     sb_str_text(&text));
    }
    sb_html_facts_end(out);
    out->failed = out->failed || text.failed;
    sb_str_free(&text);
}

static void lint_row(sb_html_table *t, const sb_lint_node *n)
{
    sb_html_cell(t, *n->name ? n->name : n->output);
    sb_html_cell(t, n->op);
    sb_html_cell(t, fate_text(n->fate));
    sb_html_cell(t, *n->kernel ? n->kernel : n->why);
    sb_html_cell(t, n->remedy);
}

void sb_page_lint(const sb_lint *lint, sb_str *out)
{
    static const char *const heads[] = {"node", "operator", "runs as",
                                        "kernel, or why not", "what helps"};

    sb_html_section(out, "What the runtime makes of it",
                    "Which nodes become integer kernels, which stay in float, "
                    "and why.");
    lint_facts(lint, out);
    sb_html_table t = sb_html_table_begin(out, "lnnll", heads);
    for (size_t i = 0; i < lint->n_broken; i++)
        lint_row(&t, lint->broken[i]);
    for (size_t i = 0; i < lint->n_nodes; i++)
        lint_row(&t, lint->nodes[i]);
    sb_html_table_end(&t);
}
