/* Adapters as programs see them: a change is made on a copy of the graph, which
 * then takes its place. */
#include "api/model.h"
#include "base/options.h"
#include "llm/lora/lora.h"

typedef sb_status (*lora_fn)(sb_graph *g, const void *arg);

static sb_status change_graph(sb_model *model, lora_fn fn, const void *arg)
{
    sb_graph *g = NULL;

    SB_TRY(sb_graph_clone(model->graph, &g));
    sb_status status = fn(g, arg);
    if (status != SB_OK) {
        sb_graph_free(g);
        return status;
    }
    return sb_model_replace(model, g);
}

static sb_status add_with(sb_graph *g, const void *arg)
{
    const sb_lora_options *opt = arg;
    const sb_lora lora = {(int64_t)opt->rank, opt->alpha};

    return sb_lora_add(g, opt->layers ? opt->layers : "", &lora, opt->seed);
}

static sb_status load_from(sb_graph *g, const void *arg)
{
    return sb_lora_load(g, arg);
}

static sb_status merge_all(sb_graph *g, const void *arg)
{
    (void)arg;
    return sb_lora_merge(g);
}

sb_status sb_model_add_lora(sb_model *model, const sb_lora_options *options)
{
    const sb_lora_options defaults = SB_LORA_OPTIONS_INIT;
    sb_lora_options opt;

    SB_TRY(sb_options_read(model->ctx, "sb_lora_options", options, &defaults,
                           sizeof opt, &opt));
    return change_graph(model, add_with, &opt);
}

sb_status sb_model_load_lora(sb_model *model, const char *folder)
{
    return change_graph(model, load_from, folder);
}

sb_status sb_model_save_lora(const sb_model *model, const char *folder)
{
    return sb_lora_save(model->graph, folder);
}

sb_status sb_model_merge_lora(sb_model *model)
{
    SB_TRY(sb_graph_check_whole(model->graph));
    return change_graph(model, merge_all, NULL);
}
