/* session.h - what is behind the public sb_session. */
#ifndef SB_API_SESSION_H
#define SB_API_SESSION_H

#include "api/feed.h"
#include "exec/exec.h"

struct sb_session {
    sb_ctx *ctx;
    sb_model_io io;  /* of the model, as it was */
    sb_graph *graph; /* what runs: a copy, simplified and fused */
    sb_exec *exec;
    const sb_tensor **outputs; /* of the last run */
    bool integer;              /* Q/DQ groups run as integers */
    sb_tensor *gathered;       /* outputs of runs in pieces; or NULL */
    sb_feed feed;              /* of batches */
};

/* Runs with checked counts; the outputs are in session->outputs. */
SB_MUST_USE sb_status sb_session_run_all(sb_session *s,
                                         const sb_tensor *const *inputs);

#endif
