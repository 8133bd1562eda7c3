/* sim.h - which integer kernels a runtime makes of Q/DQ nodes, and why not of
 * others.
 *
 * A runtime that reads QuantizeLinear / DequantizeLinear replaces groups such
 * as `DQ, DQ -> Conv -> Q` by one kernel.  What it takes and what it refuses
 * are rows of its target (runtime/target.h).  For ONNX Runtime, whose
 * optimizer can be watched, its steps are repeated in their order on a copy of
 * the graph; the same steps give the graph that it really runs, which
 * sb_sim_to_integer() keeps. */
#ifndef SB_RUNTIME_SIM_SIM_H
#define SB_RUNTIME_SIM_SIM_H

#include "runtime/target.h"

/* ---- what becomes of the nodes of a graph ------------------------------- */

typedef enum sb_sim_fate {
    SB_SIM_FLOAT,    /* computes in float; `why` says why, if Q/DQ are near */
    SB_SIM_INTEGER,  /* one integer kernel with the Q/DQ around it */
    SB_SIM_MOVES,    /* runs on integers as it is; Q/DQ around it vanish */
    SB_SIM_ABSORBED, /* goes away: the Q behind it does its work */
    SB_SIM_ALREADY,  /* is an integer operator in the file */
} sb_sim_fate;

typedef struct sb_sim_verdict {
    sb_node_id node;
    sb_sim_fate fate;
    const char *kernel; /* of INTEGER and ALREADY: "QLinearConv"; else NULL.
                           That of ALREADY lives as long as the graph */
    /* Of FLOAT with Q/DQ beside it: the first condition that fails. */
    const sb_sim_reason *reason; /* NULL otherwise */
    bool weighted; /* Conv, Gemm, MatMul ... with a constant weight */
    bool overhead; /* has Q/DQ beside it that gain nothing */
    /* uint8 x int8 with weights whose neighbors can overflow int16 on
     * processors without VNNI. */
    bool saturates;
} sb_sim_verdict;

typedef struct sb_sim_report {
    sb_ctx *ctx;
    sb_sim_verdict *nodes; /* of all nodes but Q and DQ, in graph order */
    size_t n_nodes;
    /* Q and DQ nodes that break the runtime's own rules (TensorRT). */
    struct sb_sim_broken {
        sb_node_id node;
        const sb_sim_reason *reason;
    } * broken;
    size_t n_broken, cap_broken;
    size_t n_q, n_dq;           /* in the file */
    size_t n_q_left, n_dq_left; /* that the runtime still executes */
} sb_sim_report;

/* Says what the runtime makes of the graph, which is not changed; sub-graphs
 * are not looked into.  Free it with sb_sim_report_free(). */
SB_MUST_USE sb_status sb_sim_analyze(const sb_graph *g,
                                     const sb_target_def *target,
                                     sb_sim_report *out);
void sb_sim_report_free(sb_sim_report *report);

/* Would the runtime make one Gemm of a MatMul and the Add behind it? */
bool sb_sim_takes_sum(const sb_target_def *target, const sb_graph *g,
                      sb_node_id id);

/* Processors without VNNI add pairs of products of uint8 and int8 in 16 bits:
 * 255 times this sum of two weights still fits. */
enum { SB_PAIR_SUM_MOST = INT16_MAX / 255 };

/* The largest sum of two weights of one sign that such kernels add, for each
 * index on the axis of an int8 weight, or for the whole weight if axis is -1.
 * Is one of them too large?  All are 0 if the axis is not the one that counts
 * output channels. */
bool sb_integers_pair_sums(const sb_node *node, const sb_tensor *w, int axis,
                           int *most);

/* Rewrites the graph and its sub-graphs as the target's runtime does, so that
 * running them computes what its integer kernels compute; types are inferred
 * anew.  Nothing happens if what the runtime makes of a file is not known. */
SB_MUST_USE sb_status sb_sim_to_integer(sb_graph *g,
                                        const sb_target_def *target);

#endif
