/* Text forms of a model, and the registries as lists. */
#include <string.h>

#include "api/model.h"
#include "base/file.h"
#include "data/source.h"
#include "graph/text.h"
#include "ops/op_registry.h"
#include "passes/pass.h"
#include "quant/quant_view.h"
#include "quant/target.h"
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

int sb_list_row(const char *what, size_t i, sb_listing *out)
{
    size_t n = 0;

    if (strcmp(what, "ops") == 0) {
        const sb_op_def *const *ops = sb_op_all(&n);

        if (i >= n)
            return 0;
        *out = (sb_listing){ops[i]->name, ops[i]->domain ? ops[i]->domain : "",
                            "", ops[i]->since};
        return 1;
    }
    if (strcmp(what, "passes") == 0) {
        const sb_pass_def *const *passes = sb_pass_all(&n);

        if (i >= n)
            return 0;
        *out = (sb_listing){passes[i]->name, "", passes[i]->summary, 0};
        return 1;
    }
    if (strcmp(what, "sources") == 0) {
        const sb_source_def *const *sources = sb_source_all(&n);

        if (i >= n)
            return 0;
        *out = (sb_listing){sources[i]->name, "", sources[i]->summary, 0};
        return 1;
    }
    if (strcmp(what, "targets") == 0) {
        const sb_target_def *const *targets = sb_target_all(&n);

        if (i >= n)
            return 0;
        *out = (sb_listing){targets[i]->name, "", targets[i]->summary, 0};
        return 1;
    }
    return 0;
}
