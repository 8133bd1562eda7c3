/* sb_model_relax_batch: the relaxed copy takes the place of the graph. */
#include "api/model.h"
#include "passes/relax_batch.h"

sb_status sb_model_relax_batch(sb_ctx *ctx, sb_model *model, int *done)
{
    sb_graph *old = model->graph, *relaxed = NULL;

    (void)ctx;
    SB_TRY(sb_graph_relax_batch(old, true, &relaxed));
    if (!relaxed) {
        *done = 0;
        return SB_OK;
    }
    model->graph = relaxed;
    sb_status status = sb_model_refresh(model);
    if (status != SB_OK) {
        model->graph = old;
        sb_graph_free(relaxed);
        return status;
    }
    sb_graph_free(old);
    *done = 1;
    return SB_OK;
}
