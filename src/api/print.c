/* Text forms of a model, and the registries as lists. */
#include <string.h>

#include "api/model.h"
#include "base/file.h"
#include "data/source.h"
#include "graph/text.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "quant/quant_model.h"
#include "quant/quant_view.h"
#include "report/diagram.h"

static sb_status print_graph(sb_ctx *ctx, const sb_graph *graph,
                             sb_graph_format format, char **out)
{
    sb_status status = SB_OK;
    sb_str text;

    sb_str_init(&text, ctx);
    switch (format) {
    case SB_GRAPH_TEXT:
        status = sb_graph_print(graph, &text);
        break;
    case SB_GRAPH_DOT:
        status = sb_report_dot(graph, &text);
        break;
    case SB_GRAPH_MERMAID:
        status = sb_report_mermaid(graph, &text);
        break;
    default:
        status = sb_fail(ctx, SB_BAD_ARG, "no graph format %d", (int)format);
    }
    if (status == SB_OK)
        status = sb_str_take(&text, out);
    sb_str_free(&text);
    return status;
}

sb_status sb_model_print(sb_ctx *ctx, const sb_model *model,
                         sb_graph_format format, char **out)
{
    return print_graph(ctx, model->graph, format, out);
}

sb_status sb_quant_model_print(const sb_quant_model *qm, sb_graph_format format,
                               char **out)
{
    sb_graph *view = NULL;

    SB_TRY(sb_quant_view(qm, &view));
    sb_status status = print_graph(qm->ctx, view, format, out);
    sb_graph_free(view);
    return status;
}

sb_status sb_quant_model_dump_mermaid(const sb_quant_model *qm,
                                      const char *path)
{
    sb_writer *w = NULL;
    char *text = NULL;

    SB_TRY(sb_quant_model_print(qm, SB_GRAPH_MERMAID, &text));
    sb_status status = sb_writer_open(qm->ctx, path, &w);
    if (status == SB_OK) {
        sb_writer_put(w, text, strlen(text));
        status = sb_writer_commit(w);
    }
    sb_free(qm->ctx, text);
    return status;
}

void sb_text_free(sb_ctx *ctx, char *text)
{
    sb_free(ctx, text);
}

/* ---- lists -------------------------------------------------------------- */

static bool list_op(size_t i, sb_listing *out)
{
    size_t n = 0;
    const sb_op_def *const *ops = sb_op_all(&n);

    if (i < n)
        *out = (sb_listing){ops[i]->name, ops[i]->domain ? ops[i]->domain : "",
                            "", ops[i]->since};
    return i < n;
}

/* Registries whose rows have a name and a summary. */
#define LIST_OF(id, type, all)                                           \
    static bool list_##id(size_t i, sb_listing *out)                     \
    {                                                                    \
        size_t n = 0;                                                    \
        const type *const *rows = all(&n);                               \
                                                                         \
        if (i < n)                                                       \
            *out = (sb_listing){rows[i]->name, "", rows[i]->summary, 0}; \
        return i < n;                                                    \
    }

LIST_OF(pass, sb_pass_def, sb_pass_all)
LIST_OF(quantizer, sb_quantizer_def, sb_quantizer_all)
LIST_OF(source, sb_source_def, sb_source_all)
LIST_OF(target, sb_target_def, sb_target_all)

static bool list_observer(size_t i, sb_listing *out)
{
    const sb_observer_def *row = sb_observer_at(i);

    if (row)
        *out = (sb_listing){sb_observer_name(row), "", sb_observer_summary(row),
                            0};
    return row != NULL;
}

static const struct {
    const char *name;
    bool (*row)(size_t i, sb_listing *out);
} lists[] = {
    {"ops", list_op},
    {"passes", list_pass},
    {"observers", list_observer},
    {"quantizers", list_quantizer},
    {"sources", list_source},
    {"targets", list_target},
};

int sb_list_row(const char *what, size_t i, sb_listing *out)
{
    for (size_t k = 0; k < SB_COUNT(lists); k++)
        if (strcmp(what, lists[k].name) == 0)
            return lists[k].row(i, out);
    return 0;
}
