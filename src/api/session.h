/* session.h - what is behind the public sb_session. */
#ifndef SB_API_SESSION_H
#define SB_API_SESSION_H

#include "api/model.h"
#include "exec/exec.h"

struct sb_session {
    sb_ctx *ctx;
    const sb_model *model;
    sb_graph *lowered; /* what really runs; NULL if the model itself does */
    sb_exec *exec;
    const sb_tensor **inputs; /* one a graph input, defaults included */
    bool integer;             /* Q/DQ groups run as integers */
    sb_tensor *gathered;      /* outputs of runs in pieces; or NULL */
};

#endif
