/* Nodes of a graph with a color and a row of a table each. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report_page.h"

cli_nodes *cli_nodes_new(size_t most, const char *align,
                         const char *const *heads)
{
    cli_nodes *t = cli_alloc(1, sizeof *t);

    *t = (cli_nodes){.align = align, .heads = heads, .most = most};
    t->results = cli_alloc(most + 1, sizeof(char *));
    t->values = cli_alloc(most + 1, sizeof *t->values);
    t->cells = cli_alloc(most * strlen(align) + 1, sizeof *t->cells);
    return t;
}

void cli_nodes_row(cli_nodes *t, const char *result, double value)
{
    t->results[t->n] = result;
    t->values[t->n++] = value;
}

void cli_nodes_cell(cli_nodes *t, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    t->cells[t->n_cells++] = cli_vprintf(fmt, args);
    va_end(args);
}

enum { SHAPE_ROOM = SB_RANK_MAX * 21 + 1 };

static void shape_text(const sb_tensor *tensor, char *text)
{
    size_t len = 0;

    *text = 0;
    for (int i = 0; tensor && i < sb_tensor_rank(tensor); i++)
        len +=
            (size_t)snprintf(text + len, SHAPE_ROOM - len, i ? "x%lld" : "%lld",
                             (long long)sb_tensor_dims(tensor)[i]);
}

void cli_nodes_shape(cli_nodes *t, const sb_tensor *before,
                     const sb_tensor *after)
{
    char a[SHAPE_ROOM], b[SHAPE_ROOM];

    shape_text(before, a);
    shape_text(after, b);
    if (*b && strcmp(a, b) != 0)
        cli_nodes_cell(t, "%s → %s", a, b);
    else
        cli_nodes_cell(t, "%s", a);
}

sb_status cli_nodes_graph(const cli_nodes *t, sb_report *r,
                          const sb_model *model, sb_report_marks marks)
{
    marks.n = t->n;
    marks.results = t->results;
    marks.values = t->values;
    return sb_report_graph(r, model, &marks);
}

void cli_nodes_table(const cli_nodes *t, sb_report *r, const sb_model *model)
{
    sb_report_nodes(r, model, t->results, t->align, t->heads,
                    (const char *const *)t->cells, t->n);
}

void cli_nodes_free(cli_nodes *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t->values);
    free(t->results);
    free(t);
}

const char *cli_node_label(const sb_node_info *node)
{
    for (size_t i = 0; !*node->name && i < node->n_outputs; i++)
        if (*node->outputs[i])
            return node->outputs[i];
    return node->name;
}

bool cli_is_float(const sb_tensor *t)
{
    sb_dtype type = t ? sb_tensor_dtype(t) : SB_DTYPE_NONE;

    return type == SB_DTYPE_F32 || type == SB_DTYPE_F16 ||
           type == SB_DTYPE_BF16 || type == SB_DTYPE_F64;
}
