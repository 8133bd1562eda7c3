/* staged.h - running a network over all batches in stages.
 *
 * Each node has a level; the nodes of one level run over all batches as a graph
 * of their own, each node in just one of them, so that something may be decided
 * between two levels which the nodes behind depend on.  Between two levels only
 * the cut is kept: values that a node still has to read (spill.h: in memory up
 * to a limit, beyond it in a file). */
#ifndef SB_QUANT_CALIBRATE_STAGED_H
#define SB_QUANT_CALIBRATE_STAGED_H

#include "exec/exec.h"
#include "graph/part.h"
#include "quant/model/placement.h"
#include "tensor/spill.h"

enum { SB_NO_LEVEL = -1 };

typedef struct sb_staged {
    sb_ctx *ctx;
    const sb_graph *g;
    sb_node_id *order;
    size_t n_order;
    int32_t *node_level;  /* [node] SB_NO_LEVEL: nothing needs it */
    int32_t *kept_until;  /* [value] the last level that reads it, likewise */
    sb_node_id *by_level; /* nodes that are needed, by level, then by ID */
    size_t *level_at;     /* [n_levels + 1] where those of a level begin */
    int32_t n_levels;
    sb_spill *spill;
    sb_spilled_tensor **kept; /* [value] NULL, or [cap_batches] */
    size_t n_batches, cap_batches;
    bool frugal;  /* a limit was given */
    bool lent;    /* batches are from another pile */
    bool as_made; /* what is kept has the layout it was made in */
    /* Of one level after the other: own, or given; unless frugal. */
    sb_workspace own, *workspace;
} sb_staged;

/* `limit` as in sb_spill_create().  sb_staged_clear() in any case. */
SB_MUST_USE sb_status sb_staged_init(sb_ctx *ctx, const sb_graph *g,
                                     size_t limit, sb_staged *s);
void sb_staged_clear(sb_staged *s);
/* With levels of all nodes, and of the values that are wanted for themselves in
 * kept_until: what these need is kept, other nodes do not run. */
void sb_staged_mark(sb_staged *s);
/* Keeps a batch; one tensor per graph input, NULL where a default stands. */
SB_MUST_USE sb_status sb_staged_take(sb_staged *s,
                                     const sb_tensor *const *inputs);
/* Forgets what is kept of a value. */
void sb_staged_drop(sb_staged *s, sb_value_id v);
size_t sb_staged_nodes(const sb_staged *s, int32_t level);
/* The nodes of a level, when a stage was opened. */
const sb_node_id *sb_staged_level(const sb_staged *s, int32_t level, size_t *n);

/* ---- one level ---------------------------------------------------------- */

typedef struct sb_stage {
    sb_staged *s;
    int32_t level;
    bool again;   /* the level runs once more: keep what it read, and nothing of
                     what it makes */
    bool as_kept; /* batches run as they are kept: shapes that are the same for
                     all of them may be constants */
    sb_graph *graph;
    sb_exec *exec;
    sb_graph_part part; /* of the network, whose copy the graph is; value_of
                           NULL: it is one of the whole network */
    bool *near;         /* [value] a node of the level reads or makes it */
    bool *wanted;       /* [value] comes in even if no node reads it */
    sb_value_id *in;    /* values of the network, one per input of the graph */
    size_t n_in;
    sb_value_id *fixed; /* shapes that come in as constants, so that plans know
                           them beforehand */
    size_t n_fixed;
    sb_value_id *out; /* values to keep, one per output of the graph */
    size_t n_out;
    sb_tensor *loaded; /* [n_in] until the next run */
    size_t n_loaded;
    const sb_tensor **given; /* [n_in], then those of other inputs */
    const sb_tensor **made;  /* one per output of the graph */
} sb_stage;

/* The caller sets `s`, `level`, `again` and `as_kept`; `extra` is how many
 * inputs it will add.  sb_stage_clear() in any case. */
SB_MUST_USE sb_status sb_stage_open(sb_stage *k, size_t extra);
/* Lists what comes in and what goes out, when `wanted` is set. */
SB_MUST_USE sb_status sb_stage_list(sb_stage *k);
/* Instead of the whole network k->graph is to be a copy of a part: the nodes of
 * the level, and `n` others that the caller needs to see. */
SB_MUST_USE sb_status sb_stage_take_part(sb_stage *k, const sb_node_id *others,
                                         size_t n);
/* Of k->graph, a copy of the network with nodes behind its own, only those of
 * the level and the added ones stay, and inputs and outputs behind those of the
 * network.  `instead` NULL, or by value: what is made in its place, SB_NONE for
 * itself. */
SB_MUST_USE sb_status sb_stage_cut(sb_stage *k, const sb_value_id *instead);
/* What is left of the cut, without the places of the rest, through which all
 * that looks at nodes and values would walk.  IDs change, those of `bound`,
 * too. */
SB_MUST_USE sb_status sb_stage_compact(sb_stage *k, sb_exec_state *bound,
                                       size_t n);
/* Lowers the graph and makes it ready to run. */
SB_MUST_USE sb_status sb_stage_start(sb_stage *k, const sb_exec_options *opt);
/* Runs a batch; inputs behind those of the cut are in k->given. */
SB_MUST_USE sb_status sb_stage_run(sb_stage *k, size_t batch);
/* After all batches: drops what was read for the last time. */
void sb_stage_done(sb_stage *k);
void sb_stage_clear(sb_stage *k);

/* Does a node of the level read through the point? */
bool sb_stage_reads(const sb_stage *k, const sb_placement *p, uint32_t point);

/* NULL: the whole network. */
static inline const sb_graph_part *sb_stage_part(const sb_stage *k)
{
    return k->part.value_of ? &k->part : NULL;
}

static inline bool sb_stage_has(const sb_stage *k, sb_node_id node)
{
    return k->s->node_level[node] == k->level;
}

#endif
