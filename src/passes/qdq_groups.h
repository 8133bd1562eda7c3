/* qdq_groups.h - which integer kernels a runtime makes of Q/DQ nodes, and why
 * not of others.
 *
 * A runtime that reads QuantizeLinear / DequantizeLinear replaces groups such
 * as `DQ, DQ -> Conv -> Q` by one kernel.  What it takes and what it refuses
 * are rows of data here, one set a runtime (qdq_rules.c).  For ONNX Runtime,
 * whose optimizer can be watched, its steps are repeated in their order on a
 * copy of the graph; the same steps give the graph that it really runs, which
 * the pass "qdq_to_integer" keeps. */
#ifndef SB_PASSES_QDQ_GROUPS_H
#define SB_PASSES_QDQ_GROUPS_H

#include "graph/graph.h"

/* The shape of a group and the conditions that go with it. */
typedef enum sb_qdq_kind {
    SB_QDQ_CONV,    /* DQ x, DQ w [, DQ int32 b] -> op -> Q */
    SB_QDQ_MATMUL,  /* DQ, DQ -> op [-> Q] */
    SB_QDQ_GEMM,    /* DQ, DQ [, DQ int32] -> op [-> Q] */
    SB_QDQ_ALL,     /* DQ on every input -> op -> Q, one type throughout */
    SB_QDQ_FIRST,   /* DQ on one input -> op -> Q, one type */
    SB_QDQ_WHERE,   /* cond, DQ, DQ -> op -> Q, one type */
    SB_QDQ_SPLIT,   /* DQ -> op -> Q on each result, the same parameters */
    SB_QDQ_DROP,    /* DQ -> op -> Q with the same parameters: both go away */
    SB_QDQ_DROP_DQ, /* DQ -> op: the DQ goes away */
    SB_QDQ_WEIGHT,  /* DQ on a constant weight only -> op */
    SB_QDQ_NORM,    /* DQ x, DQ scale [, DQ int32 bias] -> op -> Q */
    SB_QDQ_INPUTS,  /* DQ on all inputs but the bias -> op; Q is not asked */
    SB_QDQ_BOTH,    /* the same, and a Q behind it */
    SB_QDQ_THROUGH, /* quantization passes through; needs no Q/DQ */
} sb_qdq_kind;

/* More conditions of a row. */
enum {
    SB_QDQ_16BIT = 1 << 0,     /* 16-bit types are taken too */
    SB_QDQ_4BIT = 1 << 1,      /* 4-bit types are taken too */
    SB_QDQ_POSITIVE = 1 << 2,  /* only with a positive scale */
    SB_QDQ_NEAREST = 1 << 3,   /* of Resize only what copies elements */
    SB_QDQ_ANY_INT8 = 1 << 4,  /* int8 activations whatever the machine */
    SB_QDQ_MOVABLE = 1 << 5,   /* Q goes backwards and DQ forwards over it */
    SB_QDQ_WEIGHTED = 1 << 6,  /* input 1 is a weight if it is a constant */
    SB_QDQ_QUANT_BIAS = 1 << 7 /* float weight and bias become integers by
                                  themselves where the rest fits */
};

typedef struct sb_qdq_rule {
    const char *op; /* of the main domain */
    sb_qdq_kind kind;
    const char *kernel; /* what it becomes; NULL: keeps its name, on integers */
    const char *kernel_domain;
    uint32_t flags;
} sb_qdq_rule;

/* What a runtime does before it looks for groups. */
enum {
    SB_QDQ_STEPS_ORT = 1 << 0, /* ONNX Runtime's graph transformations */
    SB_QDQ_S8_TO_U8 = 1 << 1,  /* int8 Q -> DQ with one use become uint8 */
    SB_QDQ_INT8 = 1 << 2,      /* int8 activations have kernels */
    SB_QDQ_TRT_PARSER = 1 << 3 /* TensorRT's rules for the nodes themselves */
};

typedef struct sb_qdq_rules {
    const char *name; /* for messages: "ONNX Runtime (x86)" */
    uint32_t flags;
    const sb_qdq_rule *rows;
    size_t n_rows;
} sb_qdq_rules;

extern const sb_qdq_rules sb_qdq_rules_ort_x86;
extern const sb_qdq_rules sb_qdq_rules_ort_arm;
extern const sb_qdq_rules sb_qdq_rules_tensorrt;
extern const sb_qdq_rules sb_qdq_rules_openvino;
extern const sb_qdq_rules sb_qdq_rules_qnn;

/* The first row for an operator; NULL if there is none. */
const sb_qdq_rule *sb_qdq_rule_find(const sb_qdq_rules *rules,
                                    const sb_node *node);

/* ---- what becomes of the nodes of a graph ------------------------------- */

typedef enum sb_qdq_fate {
    SB_QDQ_FLOAT,    /* computes in float; `why` says why, if Q/DQ are near */
    SB_QDQ_INTEGER,  /* one integer kernel with the Q/DQ around it */
    SB_QDQ_MOVES,    /* runs on integers as it is; Q/DQ around it vanish */
    SB_QDQ_ABSORBED, /* goes away: the Q behind it does its work */
    SB_QDQ_ALREADY,  /* is an integer operator in the file */
} sb_qdq_fate;

/* A reason for staying float: what is wrong and what helps. */
typedef struct sb_qdq_reason {
    const char *rule;   /* short, stable: "relu-zero-point" */
    const char *why;    /* one sentence without full stop */
    const char *remedy; /* the same */
} sb_qdq_reason;

typedef struct sb_qdq_verdict {
    sb_node_id node;
    sb_qdq_fate fate;
    const char *kernel; /* of INTEGER: "QLinearConv"; else NULL */
    const char *kernel_domain;
    /* Of FLOAT with Q/DQ beside it: the first condition that fails. */
    const sb_qdq_reason *reason; /* NULL otherwise */
    bool weighted; /* Conv, Gemm, MatMul ... with a constant weight */
    bool overhead; /* has Q/DQ beside it that gain nothing */
    /* uint8 x int8 with weights whose neighbours can overflow int16 on
     * processors without VNNI. */
    bool saturates;
} sb_qdq_verdict;

typedef struct sb_qdq_report {
    sb_ctx *ctx;
    sb_qdq_verdict *nodes; /* of all nodes but Q and DQ, in graph order */
    size_t n_nodes;
    /* Q and DQ nodes that break the runtime's own rules (TensorRT). */
    struct sb_qdq_broken {
        sb_node_id node;
        const sb_qdq_reason *reason;
    } * broken;
    size_t n_broken, cap_broken;
    size_t n_q, n_dq;           /* in the file */
    size_t n_q_left, n_dq_left; /* that the runtime still executes */
} sb_qdq_report;

/* Says what the runtime makes of the graph, which is not changed; sub-graphs
 * are not looked into.  Free it with sb_qdq_report_free(). */
SB_MUST_USE sb_status sb_qdq_analyze(const sb_graph *g,
                                     const sb_qdq_rules *rules,
                                     sb_qdq_report *out);
void sb_qdq_report_free(sb_qdq_report *report);

/* Could neighbouring products of uint8 with these int8 weights of a node,
 * summed along k, exceed int16? */
bool sb_integers_saturate(const sb_node *node, const sb_tensor *w);

/* Rewrites the graph as ONNX Runtime with these rules does, so that running it
 * computes what its integer kernels compute. */
SB_MUST_USE sb_status sb_qdq_to_integer(sb_graph *g, const sb_qdq_rules *rules,
                                        size_t *changes);

#endif
