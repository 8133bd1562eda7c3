/* sim_internal.h - what the files of the simulation share: Q/DQ nodes read, and
 * the graph while a runtime's steps are repeated on it. */
#ifndef SB_RUNTIME_SIM_SIM_INTERNAL_H
#define SB_RUNTIME_SIM_SIM_INTERNAL_H

#include "ops/op_registry.h"
#include "runtime/sim/sim.h"

/* ---- one Q or DQ node --------------------------------------------------- */

/* Its parameters. */
typedef struct sb_qdq {
    sb_value_id scale, zero; /* SB_NONE: no zero point */
    sb_dtype type;           /* of the integers */
    bool is_constant;        /* scale and zero point, if there, are constants */
    bool is_scalar;          /* there is one of each: rank 0 or [1] */
    bool is_rank0;           /* of rank 0, which some steps insist on */
    float s;                 /* if is_constant && is_scalar && float */
    int64_t z;
} sb_qdq;

bool sb_is_q(const sb_node *node);
bool sb_is_dq(const sb_node *node);
static inline bool sb_is_qdq(const sb_node *node)
{
    return sb_is_q(node) || sb_is_dq(node);
}

void sb_qdq_read(const sb_graph *g, const sb_node *node, sb_qdq *out);
/* Both have constant scalar scale and zero point, bit by bit the same. */
bool sb_qdq_same(const sb_qdq *a, const sb_qdq *b);

/* Constants that ONNX Runtime stores once since they are equal: short ones of
 * certain types. */
bool sb_shared_constant(const sb_graph *g, sb_value_id a, sb_value_id b);

/* Does another node read the constant, or one equal to it? */
bool sb_const_elsewhere(const sb_graph *g, sb_value_id value);
/* Has the matrix behind a DQ one scale, one per column, or blocks of rows that
 * MatMulNBits takes? */
bool sb_weight_blocks_fit(const sb_graph *g, const sb_node *dq);

/* The DQ that makes input `i` of a node; NULL if it is made otherwise. */
sb_node *sb_dq_of(const sb_graph *g, const sb_node *node, uint32_t i);
/* Where a tensor comes from: is it a constant, perhaps quantized, transposed
 * or reshaped on the way? */
bool sb_qdq_from_const(const sb_graph *g, sb_value_id value);

/* Reads of all results of a node by other nodes. */
size_t sb_node_edges(const sb_graph *g, const sb_node *node);
/* Is one of its results an output of the graph? */
bool sb_node_makes_output(const sb_graph *g, const sb_node *node);
/* The constant limits of a Clip; absent ones are the limits of float. */
bool sb_clip_limits(const sb_graph *g, const sb_node *clip, float *lo,
                    float *hi);
/* Does the Q behind a Relu or Clip cut off what the node would? */
bool sb_clip_redundant(const sb_graph *g, const sb_node *clip,
                       const sb_node *q);
/* Could neighboring products of uint8 with these int8 weights, summed along k,
 * exceed int16? */
bool sb_weight_saturates(const sb_graph *g, const sb_node *node,
                         const sb_node *dq);

/* ---- a graph that is being changed -------------------------------------- */

struct sb_sim {
    sb_graph *g;
    const sb_target_def *target;
    sb_node_id n_file; /* nodes below this are the file's */
    /* Later nodes that stand for one of the file's: pairs (new, old). */
    sb_node_id (*heirs)[2];
    size_t n_heirs, cap_heirs;
    /* Nodes of the file that an equal one replaced: pairs (gone, kept). */
    sb_node_id (*merged)[2];
    size_t n_merged, cap_merged;
    sb_sim_verdict *verdicts; /* n_file of them; NULL: no report is made */
    int round;                /* of the steps now taken, from 0 */
    size_t changes;
    size_t used_q, used_dq; /* in groups that were noted, not replaced */
};

/* The node of the file that `node` stands for, or SB_NONE. */
sb_node_id sb_sim_origin(const sb_sim *sim, sb_node_id node);
SB_MUST_USE sb_status sb_sim_heir(sb_sim *sim, sb_node_id fresh,
                                  sb_node_id old);
SB_MUST_USE sb_status sb_sim_merged(sb_sim *sim, sb_node_id gone,
                                    sb_node_id kept);
/* Notes what becomes of a node; the last word counts. */
void sb_sim_note(sb_sim *sim, sb_node_id node, sb_sim_fate fate,
                 const char *kernel);

/* Calls `fn` for each node that is there at the start, in graph order. */
typedef sb_status (*sb_sim_fn)(sb_sim *sim, sb_node_id id);
SB_MUST_USE sb_status sb_sim_each(sb_sim *sim, sb_sim_fn fn);

/* The steps before groups are looked for, and the round of steps that ends
 * with it; sim->changes grows with each change. */
SB_MUST_USE sb_status sb_sim_clean(sb_sim *sim);       /* sim_clean.c */
SB_MUST_USE sb_status sb_sim_products(sb_sim *sim);    /* sim_weights.c */
SB_MUST_USE sb_status sb_sim_move(sb_sim *sim);        /* sim_move.c */
SB_MUST_USE sb_status sb_sim_weights(sb_sim *sim);     /* sim_weights.c */
SB_MUST_USE sb_status sb_sim_unique(sb_sim *sim);      /* sim_clean.c */
SB_MUST_USE sb_status sb_sim_where(sb_sim *sim);       /* sim_weights.c */
SB_MUST_USE sb_status sb_sim_signs(sb_sim *sim);       /* sim_clean.c */
SB_MUST_USE sb_status sb_sim_empty_pairs(sb_sim *sim); /* sim_clean.c */
SB_MUST_USE sb_status sb_sim_leftovers(sb_sim *sim);   /* sim_clean.c */

#define SB_SIM_REASON(id, rule, why, remedy) \
    static const sb_sim_reason id = {rule, why, remedy}

/* ---- groups ------------------------------------------------------------- */

enum { SB_SIM_MAX_IN = 64 };

/* A node with the Q/DQ around it. */
typedef struct sb_sim_group {
    sb_node_id node;
    const sb_fusion *rule;
    bool weighted;                /* the operator multiplies by a weight */
    sb_node_id dq[SB_SIM_MAX_IN]; /* in the order of inputs */
    uint32_t dq_input[SB_SIM_MAX_IN];
    size_t n_dq;
    sb_node_id q[SB_SIM_MAX_IN]; /* behind the node or its Relu / Clip */
    size_t n_q;
    sb_node_id clip; /* redundant Relu or Clip, or SB_NONE */
} sb_sim_group;

/* NULL if the node with what stands around it is such a group, else the first
 * condition that fails. */
const sb_sim_reason *sb_group_find(const sb_sim *sim, sb_node_id node,
                                   const sb_fusion *rule, sb_sim_group *out);
/* Puts the kernel in the place of the group. */
SB_MUST_USE sb_status sb_group_fuse(sb_sim *sim, const sb_sim_group *group);
/* Why a node with Q/DQ beside it stays in float that has no row at all. */
extern const sb_sim_reason sb_reason_no_kernel;
/* Are there Q or DQ nodes right beside it? */
bool sb_qdq_touches(const sb_graph *g, const sb_node *node);
/* For runtimes that quantize inputs and carry it through (sim_inputs.c). */
SB_MUST_USE sb_status sb_sim_inputs(sb_sim *sim);
/* Does a value come from a Concat whose branches have different scales, over
 * operators that carry it on? */
bool sb_sim_from_many_scales(const sb_sim *sim, sb_value_id value);
/* Looks for groups and replaces them, in graph order. */
SB_MUST_USE sb_status sb_sim_select(sb_sim *sim);

#endif
