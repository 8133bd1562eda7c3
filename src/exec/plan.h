/* plan.h - private to exec: slots, steps, plans.
 *
 * A slot is one piece of memory that kernels see as a tensor: the place of a
 * graph value, or a temporary of one step.  A step is one node ready to run.
 * Slots and steps live in the plan's arena at fixed addresses, because kernels
 * keep pointers to their tensors. */
#ifndef SB_EXEC_PLAN_H
#define SB_EXEC_PLAN_H

#include "exec/exec.h"

typedef enum sb_slot_kind {
    SLOT_EMPTY,   /* not made (yet) */
    SLOT_CONST,   /* elements known before the run */
    SLOT_GIVEN,   /* graph input or capture: shape known, data comes at a run */
    SLOT_STATE,   /* the same for memory that lives across runs */
    SLOT_STATIC,  /* shape known, memory in the workspace */
    SLOT_DYNAMIC, /* shape known only at the run, memory of its own */
} sb_slot_kind;

typedef struct sb_slot sb_slot;
struct sb_slot {
    sb_tensor t;
    sb_slot_kind kind;
    sb_slot *root;        /* whose memory this is; itself if its own */
    uint32_t first, last; /* positions between which the memory is in use */
    size_t bytes, offset; /* in the workspace, if STATIC and its own root */
    sb_buf *store;        /* memory of a DYNAMIC slot: grows, never shrinks */
    sb_slot *other;       /* the same value in the other layout, if made */
    const sb_exec_state *state; /* of a STATE slot that is its own root */
    struct sb_step *producer;   /* whose output 0 it is, or NULL */
    uint32_t writes;  /* how often the memory of a root was given to the
                         next value in place */
    uint32_t version; /* the root's `writes` when this value is in it */
    sb_slot *next;    /* all slots of the plan */
};

/* Brings a value into another type or layout. */
typedef struct sb_conversion {
    sb_slot *from, *to;
} sb_conversion;

/* An input in another form, which a step asked for. */
typedef struct sb_step_pack {
    struct sb_pack_entry *shared; /* of the executor; or NULL, and then: */
    sb_pack own;                  /* filled at each run */
    size_t bytes;
    sb_slot *room; /* of a static step: in the workspace */
    sb_buf *buf;   /* of a dynamic one: grows, never shrinks */
    struct sb_step_pack *next;
} sb_step_pack;

typedef struct sb_step {
    sb_kernel k;
    sb_exec *exec;
    sb_arena *arena;
    uint32_t position; /* in the order of nodes: its time */
    bool dynamic;
    sb_slot **in;                  /* explicit, then implicit; NULL: absent */
    sb_slot **out;                 /* NULL: absent */
    sb_tensor **k_in, **k_out;     /* what k.in and k.out point at */
    sb_conversion *before, *after; /* the kernel */
    size_t n_before, n_after;
    struct sb_step *watcher; /* that may want to see output 0 as it is made */
    sb_slot *scratch;
    sb_step_pack *packs; /* in the order in which prepare() asked */
    sb_step_pack **ask;  /* where the next one goes */
    sb_fact *facts;      /* room for inputs and outputs, if dynamic */
    const sb_fact **in_facts;
    sb_exec **bodies; /* executors of sub-graphs, made at first use */
    size_t n_bodies;
} sb_step;

struct sb_plan {
    sb_exec *exec;
    sb_arena arena;
    sb_slot **values; /* by graph value */
    sb_slot *slots;   /* list of all */
    sb_step **steps;
    size_t n_steps;
    sb_slot **outputs;     /* plain; by graph output */
    sb_conversion *finals; /* that make them so */
    size_t n_finals;
    sb_conversion *writes; /* after them: to states that no kernel writes */
    size_t n_writes;
    sb_slot **states; /* all STATE slots that are their own roots */
    size_t n_states;
    sb_value_id *folded; /* values computed while planning, for dumps */
    size_t n_folded;
    size_t workspace_size;
    const char *base; /* of the workspace that slots point into */
    sb_tensor *key;   /* shapes this plan is for: inputs, then captures; rank
                         -1 where a default stands in */
    uint64_t used;    /* time of the last run, for eviction */
    struct sb_plan_profile *profile; /* NULL unless times are measured */
};

/* A constant of the graph as kernels want it. */
typedef struct sb_const_entry {
    sb_tensor aligned; /* data NULL: not made */
    sb_tensor f32;     /* data NULL: not made */
    bool folded;       /* computed, not in the file */
} sb_const_entry;

typedef struct sb_pack_entry sb_pack_entry;

struct sb_exec {
    sb_ctx *ctx;
    const sb_graph *graph;
    sb_exec_options opt;
    sb_node_id *order;
    size_t n_order;
    bool *needed;           /* by node ID: some output depends on it */
    uint32_t *last_use;     /* by value: position of the last needed consumer */
    sb_const_entry *consts; /* by value */
    sb_pack_entry **packs;  /* by value: lists, one entry a form */
    sb_exec_state *states;
    size_t n_states;
    const sb_exec_state **state_in, **state_out; /* by value; NULL: none */
    sb_workspace own, *workspace; /* of the plan that runs: own, or given */
    sb_plan **plans;
    size_t n_plans, cap_plans;
    sb_plan *last; /* plan of the last run */
    size_t paused; /* step that it stopped before, plus 1; 0: at none */
    uint64_t clock;
};

enum { PLANS_MOST = 16 };
#define POSITION_END UINT32_MAX /* after the last node: outputs live on */

/* plan_build.c */
SB_MUST_USE sb_status sb_plan_build(sb_exec *exec,
                                    const sb_tensor *const *inputs,
                                    const sb_tensor *const *captured,
                                    sb_plan **out);
void sb_plan_free(sb_plan *plan);
/* After the last step: brings results into NCHW order and into states. */
void sb_plan_finish(sb_plan *plan);

/* A plan being built. */
typedef struct sb_plan_builder {
    sb_exec *exec;
    sb_plan *plan;
    uint32_t position;
    sb_fact *facts; /* room for one node: inputs, then outputs */
    const sb_fact **ins;
    bool *keep; /* by value: constants that runs read as they are */
} sb_plan_builder;

/* A slot of the plan with the type and shape of `like`, in use between two
 * positions. */
SB_MUST_USE sb_status sb_plan_new_slot(sb_plan_builder *b, sb_slot_kind kind,
                                       const sb_tensor *like, uint32_t first,
                                       uint32_t last, sb_slot **out);

/* Lets `y` lie in the memory of `x`, which must then live as long. */
void sb_slot_alias(sb_slot *y, const sb_slot *x);

/* plan_layout.c */
/* The value of `s` in another layout: made once, by the first step that wants
 * it (a conversion goes on its list, or on the plan's for outputs). */
SB_MUST_USE sb_status sb_plan_in_layout(sb_plan_builder *b, sb_slot *s,
                                        sb_layout layout, sb_conversion *list,
                                        size_t *n, sb_slot **out);
/* Brings inputs into the layouts that the kernel wants and gives outputs
 * theirs.  Dynamic steps, and all steps of a run that dumps, stay plain. */
SB_MUST_USE sb_status sb_plan_settle_layouts(sb_plan_builder *b,
                                             const sb_node *node, sb_step *st);

/* plan_memory.c: gives every STATIC slot its place in the workspace. */
SB_MUST_USE sb_status sb_plan_memory(sb_plan *plan);
/* Makes the workspace large enough for the plan and points its slots there. */
SB_MUST_USE sb_status sb_plan_settle(sb_plan *plan);

/* plan_states.c */
/* Takes over the bindings; refuses those to values that cannot be states. */
SB_MUST_USE sb_status sb_exec_bind_states(sb_exec *exec,
                                          const sb_exec_options *opt);
/* Slots of states that are read, before all steps. */
SB_MUST_USE sb_status sb_plan_add_states(sb_plan_builder *b);
/* Output i, made by `*s`, goes to a state if it is bound to one: then *s is the
 * slot of the state. */
SB_MUST_USE sb_status sb_plan_bind_output(sb_plan_builder *b, size_t i,
                                          sb_slot **s);
/* Points slots at the states' memory; counts a change of those that the run
 * writes. */
SB_MUST_USE sb_status sb_plan_set_states(const sb_plan *plan);

/* exec_packs.c: packed inputs, shared where the value lasts. */
SB_MUST_USE sb_status sb_step_pack_input(sb_step *st, uint32_t i,
                                         const sb_pack_form *form,
                                         sb_pack **out);
void sb_step_drop_packs(sb_step *st);
/* Those that lie in temporary files need no memory until the next run. */
void sb_step_release_pages(const sb_step *st);
/* Does the value hold for every plan of the executor? */
bool sb_exec_is_const(const sb_exec *exec, sb_value_id v);

/* step.c */
SB_MUST_USE sb_status sb_step_create(sb_arena *arena, sb_exec *exec,
                                     const sb_node *node, sb_step **out);
SB_MUST_USE sb_status sb_slot_create(sb_arena *arena, sb_slot **list,
                                     sb_slot **out);
void sb_slot_free(sb_slot *s);
/* Shape and memory for a dynamic slot. */
SB_MUST_USE sb_status sb_slot_resize(sb_ctx *ctx, sb_slot *s,
                                     const sb_tensor *like);
SB_MUST_USE sb_status sb_step_run(sb_step *st);
/* The three parts of it, to be timed one by one. */
void sb_step_before(sb_step *st);
SB_MUST_USE sb_status sb_step_kernel(sb_step *st);
void sb_step_after(sb_step *st);
void sb_run_conversion(sb_ctx *ctx, const sb_conversion *c);
void sb_step_release(sb_step *st);
/* Kernels of this operator want f32 where the value is another float type. */
bool sb_step_converts(const sb_op_def *op, sb_dtype dtype);
/* Operators that compute in f32 read their inputs as floats, most of them no
 * sequences: whatever else comes in, unless the row allows it, is
 * SB_UNSUPPORTED.  Asked before prepare(). */
SB_MUST_USE sb_status sb_step_check_types(const sb_kernel *k);
/* Fails unless the operator is known and can run. */
SB_MUST_USE sb_status sb_step_check_runnable(sb_ctx *ctx, const sb_graph *graph,
                                             const sb_node *node);

/* profile.c: room for times, and a run that takes them. */
SB_MUST_USE sb_status sb_profile_create(sb_plan *plan);
void sb_profile_free(sb_plan *plan);
SB_MUST_USE sb_status sb_profile_run(sb_plan *plan);

/* exec_const.c: the constant `v` (of the graph, or folded) ready for
 * kernels; borrowed from the executor. */
SB_MUST_USE sb_status sb_exec_const(sb_exec *exec, sb_value_id v, bool as_f32,
                                    const sb_tensor **out);
/* Forgets copies. */
void sb_exec_const_drop(sb_exec *exec, sb_value_id v);
/* What runs will read as it is: outputs, and what other plans have not packed.
 */
SB_MUST_USE sb_status sb_plan_find_kept(sb_plan_builder *b);
/* Behind each node, which became a step, or NULL: drops copies of constants
 * that it was the last to read, if all kernels have packed them.  At once, so
 * that few are there at a time.  A dump wants to see all of them. */
void sb_plan_drop_packed(sb_plan_builder *b, const sb_node *node,
                         const sb_step *st);
/* A copy with memory of its own, converted if `dtype` differs. */
SB_MUST_USE sb_status sb_const_copy(sb_ctx *ctx, const sb_tensor *from,
                                    sb_dtype dtype, sb_tensor *out);

#endif
