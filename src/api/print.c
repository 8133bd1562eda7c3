/* Text forms of a model. */
#include "api/model.h"
#include "graph/text.h"
#include "quant/model/quant_model.h"
#include "quant/model/quant_view.h"
#include "report/diagram.h"

static sb_status print_graph(const sb_graph *graph, sb_graph_format format,
                             char **out)
{
    sb_ctx *ctx = graph->ctx;
    sb_status status = SB_OK;
    sb_str text;

    sb_str_init(&text, ctx);
    switch (format) {
    case SB_GRAPH_FORMAT_TEXT:
        status = sb_graph_print(graph, &text);
        break;
    case SB_GRAPH_FORMAT_DOT:
        status = sb_report_dot(graph, &text);
        break;
    case SB_GRAPH_FORMAT_MERMAID:
        status = sb_report_mermaid(graph, &text);
        break;
    default:
        status = sb_fail(ctx, SB_BAD_ARG, "no graph format %d", (int)format);
    }
    if (status == SB_OK)
        status = sb_str_copy_out(&text, out);
    sb_str_free(&text);
    return status;
}

sb_status sb_model_print(const sb_model *model, sb_graph_format format,
                         char **out)
{
    return print_graph(model->graph, format, out);
}

sb_status sb_quant_model_print(const sb_quant_model *qm, sb_graph_format format,
                               char **out)
{
    sb_graph *view = NULL;

    SB_TRY(sb_quant_view(qm, &view));
    sb_status status = print_graph(view, format, out);
    sb_graph_free(view);
    return status;
}
