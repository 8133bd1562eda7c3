/* plan.h - private to exec: slots, steps, plans.
 *
 * A slot is one piece of memory that kernels see as a tensor: the place of a
 * graph value, or a temporary of one step.  A step is one node ready to run.
 * Slots and steps live in the plan's arena at fixed addresses, because kernels
 * keep pointers to their tensors. */
#ifndef SB_EXEC_PLAN_H
#define SB_EXEC_PLAN_H

#include "exec/exec.h"

typedef enum slot_kind {
    SLOT_EMPTY,   /* not made (yet) */
    SLOT_CONST,   /* elements known before the run */
    SLOT_GIVEN,   /* graph input or capture: shape known, data comes at a run */
    SLOT_STATIC,  /* shape known, memory in the workspace */
    SLOT_DYNAMIC, /* shape known only at the run, memory of its own */
} slot_kind;

typedef struct slot slot;
struct slot {
    sb_tensor t;
    slot_kind kind;
    slot *root;           /* whose memory this is; itself if its own */
    uint32_t first, last; /* positions between which the memory is in use */
    size_t bytes, offset; /* in the workspace, if STATIC and its own root */
    sb_buf *store;        /* memory of a DYNAMIC slot: grows, never shrinks */
    slot *other;          /* the same value in the other layout, if made */
    uint32_t writes;      /* how often the memory of a root was given to the
                             next value in place */
    uint32_t version;     /* the root's `writes` when this value is in it */
    slot *next;           /* all slots of the plan */
};

/* Brings a value into another type or layout. */
typedef struct conversion {
    slot *from, *to;
} conversion;

typedef struct step {
    sb_kernel k;
    sb_exec *exec;
    uint32_t position; /* in the order of nodes: its time */
    bool dynamic;
    slot **in;                  /* explicit, then implicit; NULL: absent */
    slot **out;                 /* NULL: absent */
    sb_tensor **k_in, **k_out;  /* what k.in and k.out point at */
    conversion *before, *after; /* the kernel */
    size_t n_before, n_after;
    struct step *watcher; /* that may want to see output 0 as it is made */
    slot *scratch;
    sb_fact *facts; /* room for inputs and outputs, if dynamic */
    const sb_fact **in_facts;
    sb_exec **bodies; /* executors of sub-graphs, made at first use */
    size_t n_bodies;
} step;

struct sb_plan {
    sb_exec *exec;
    sb_arena arena;
    slot **values; /* one a graph value */
    slot *slots;   /* list of all */
    step **steps;
    size_t n_steps;
    slot **outputs;     /* plain; one a graph output */
    conversion *finals; /* that make them so */
    size_t n_finals;
    sb_value_id *folded; /* values computed while planning, for dumps */
    size_t n_folded;
    void *workspace; /* as allocated */
    char *base;      /* aligned */
    size_t workspace_size;
    sb_tensor *key; /* shapes this plan is for: inputs, then captures; rank
                       -1 where a default stands in */
    uint64_t used;  /* time of the last run, for eviction */
    struct plan_profile *profile; /* NULL unless times are measured */
};

/* A constant of the graph as kernels want it. */
typedef struct const_entry {
    sb_tensor aligned; /* data NULL: not made */
    sb_tensor f32;     /* data NULL: not made */
    bool folded;       /* computed, not in the file */
} const_entry;

struct sb_exec {
    sb_ctx *ctx;
    const sb_graph *graph;
    sb_exec_options opt;
    sb_node_id *order;
    size_t n_order;
    bool *needed;        /* by node ID: some output depends on it */
    uint32_t *last_use;  /* by value: position of the last needed consumer */
    const_entry *consts; /* by value */
    sb_plan **plans;
    size_t n_plans, cap_plans;
    sb_plan *last; /* plan of the last run */
    uint64_t clock;
};

enum { PLANS_MOST = 16 };
#define POSITION_END UINT32_MAX /* after the last node: outputs live on */

/* plan_build.c */
SB_MUST_USE sb_status plan_build(sb_exec *exec, const sb_tensor *const *inputs,
                                 const sb_tensor *const *captured,
                                 sb_plan **out);
void plan_free(sb_plan *plan);

/* A plan being built. */
typedef struct plan_builder {
    sb_exec *exec;
    sb_plan *plan;
    uint32_t position;
    sb_fact *facts; /* room for one node: inputs, then outputs */
    const sb_fact **ins;
} plan_builder;

/* A slot of the plan with the type and shape of `like`, in use between two
 * positions. */
SB_MUST_USE sb_status plan_new_slot(plan_builder *b, slot_kind kind,
                                    const sb_tensor *like, uint32_t first,
                                    uint32_t last, slot **out);

/* Lets `y` lie in the memory of `x`, which must then live as long. */
void slot_lie_at(slot *y, const slot *x);

/* plan_layout.c */
/* The value of `s` in another layout: made once, by the first step that wants
 * it (a conversion goes on its list, or on the plan's for outputs). */
SB_MUST_USE sb_status plan_in_layout(plan_builder *b, slot *s, sb_layout layout,
                                     conversion *list, size_t *n, slot **out);
/* Brings inputs into the layouts that the kernel wants and gives outputs
 * theirs.  Dynamic steps, and all steps of a run that dumps, stay plain. */
SB_MUST_USE sb_status plan_settle_layouts(plan_builder *b, const sb_node *node,
                                          step *st);

/* plan_memory.c: gives every STATIC slot its place and allocates. */
SB_MUST_USE sb_status plan_memory(sb_plan *plan);

/* step.c */
SB_MUST_USE sb_status step_create(sb_arena *arena, sb_exec *exec,
                                  const sb_node *node, step **out);
SB_MUST_USE sb_status slot_create(sb_arena *arena, slot **list, slot **out);
void slot_free(slot *s);
/* Shape and memory for a dynamic slot. */
SB_MUST_USE sb_status slot_resize(sb_ctx *ctx, slot *s, const sb_tensor *like);
SB_MUST_USE sb_status step_run(step *st);
/* The three parts of it, to be timed one by one. */
void step_before(step *st);
SB_MUST_USE sb_status step_kernel(step *st);
void step_after(step *st);
void run_conversion(sb_ctx *ctx, const conversion *c);
void step_release(step *st);
/* Kernels of this operator want f32 where the value is another float type. */
bool step_converts(const sb_op_def *op, sb_dtype dtype);
/* Operators that compute in f32 read their inputs as floats: whatever else
 * comes in, unless the row allows it, is SB_UNSUPPORTED.  Asked before
 * prepare(). */
SB_MUST_USE sb_status step_check_types(const sb_kernel *k);
/* Fails unless the operator is known and can run. */
SB_MUST_USE sb_status step_check_runnable(sb_ctx *ctx, const sb_graph *graph,
                                          const sb_node *node);

/* profile.c: room for times, and a run that takes them. */
SB_MUST_USE sb_status profile_create(sb_plan *plan);
void profile_free(sb_plan *plan);
SB_MUST_USE sb_status profile_run(sb_plan *plan);

/* exec_const.c: the constant `v` (of the graph, or folded) ready for kernels;
 * borrowed from the executor. */
SB_MUST_USE sb_status exec_const(sb_exec *exec, sb_value_id v, bool as_f32,
                                 const sb_tensor **out);
/* Forgets copies that every kernel has packed. */
void exec_const_drop(sb_exec *exec, sb_value_id v);
/* A copy with memory of its own, converted if `dtype` differs. */
SB_MUST_USE sb_status const_copy(sb_ctx *ctx, const sb_tensor *from,
                                 sb_dtype dtype, sb_tensor *out);

#endif
