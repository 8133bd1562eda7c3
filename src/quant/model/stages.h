/* stages.h - the way from a loaded file to a placed model, stage by stage. */
#ifndef SB_QUANT_MODEL_STAGES_H
#define SB_QUANT_MODEL_STAGES_H

#include "quant/model/quant_model.h"

typedef struct sb_quant_stage {
    const char *name;
    const char *summary;
    /* Changes qm->graph, or replaces it.  NULL: runs at export, on a copy. */
    sb_status (*run)(sb_quant_model *qm);
} sb_quant_stage;

/* In the order in which they run; each runs once. */
const sb_quant_stage *sb_quant_stages(size_t *n);
/* Runs all of them but those that run at export. */
SB_MUST_USE sb_status sb_quant_stages_run(sb_quant_model *qm);
/* Logs the graph as text if qm->dump_after names the stage. */
SB_MUST_USE sb_status sb_quant_stage_dump(const sb_quant_model *qm,
                                          const char *stage);

#endif
