/* graph.h - the network as nodes and values, referred to by number.
 *
 * All structure lives in one arena owned by the root graph; sub-graphs (the
 * bodies of If, Loop, Scan) share it.  A node or value is a uint32 ID; the
 * pointers that sb_graph_node() and sb_graph_value() return are valid until
 * the next insertion.  Every change goes through functions that keep the use
 * lists right, so consumers are always at hand and never recomputed.
 *
 * What is not here on purpose: anything private to one pass, to quantization
 * or to execution.  Those keep side arrays indexed by ID. */
#ifndef SB_GRAPH_GRAPH_H
#define SB_GRAPH_GRAPH_H

#include <sparsebit/model.h>

#include "base/map.h"
#include "base/str.h"
#include "tensor/tensor.h"

typedef uint32_t sb_node_id;
typedef uint32_t sb_value_id;
#define SB_NONE UINT32_MAX /* no node; an absent optional input or output */

typedef struct sb_graph sb_graph;

/* ---- attributes; sb_attr_type is public --------------------------------- */

typedef struct sb_attr {
    const char *name;
    sb_attr_type type;
    size_t n; /* elements of the array kinds */
    union {
        float f;
        int64_t i;
        sb_bytes s;
        const sb_tensor *t; /* `n` of them for TENSORS; the graph, not the
                               tensor, holds the reference to the buffer:
                               see sb_graph_keep_tensors() */
        sb_graph **graphs;  /* one for GRAPH, `n` for GRAPHS */
        const float *floats;
        const int64_t *ints;
        const sb_bytes *strings;
        sb_bytes opaque; /* the whole AttributeProto as written in the file */
    };
    const char *doc; /* NULL if none */
} sb_attr;

/* ---- things that only have to survive load and save --------------------- */
typedef struct sb_prop {
    const char *key;
    const char *value;
} sb_prop;

typedef struct sb_extra {
    const char *doc;      /* doc_string, or NULL */
    const sb_prop *props; /* metadata_props */
    size_t n_props;
    sb_bytes unknown; /* protobuf fields that we do not know, as bytes */
} sb_extra;

/* ---- nodes and values --------------------------------------------------- */
typedef struct sb_use {
    sb_node_id node;
    uint32_t input; /* index in the node's inputs, implicit ones included */
} sb_use;

typedef struct sb_type {
    sb_dtype dtype; /* SB_DTYPE_NONE: unknown, or not a tensor */
    sb_shape shape;
} sb_type;

typedef struct sb_value {
    const char *name; /* unique in the graph; never NULL */
    sb_type type;
    sb_node_id producer; /* SB_NONE: graph input, constant or capture */
    uint32_t output;     /* which output of the producer */
    bool is_input;
    bool is_output;
    bool is_constant; /* `constant` holds its elements */
    bool is_capture;  /* stands for a value of the enclosing graph */
    sb_tensor constant;
    sb_use *uses;
    uint32_t n_uses, cap_uses;
    /* A number that a side table finds the value by, 0: none.  It stays with
     * the value through rewrites and copies; a value that takes the place and
     * the name of another takes its number as well. */
    uint32_t origin;
    sb_extra extra;
    sb_extra const_extra; /* of the initializer, apart from the value info */
    sb_bytes opaque_type; /* TypeProto bytes if the value is not a tensor */
    /* TypeProto bytes of a tensor that carries denotations, which tell what an
     * axis means: only to be written again. */
    sb_bytes denoted_type;
} sb_value;

typedef struct sb_node {
    const char *op;     /* "Conv" */
    const char *domain; /* "" for ai.onnx */
    const char *name;   /* "" if the file gives none */
    const char *module; /* dotted path, "" if unknown; see modules.h */
    const char *overload;
    sb_value_id *inputs; /* n_in explicit, then n_implicit captured values */
    uint32_t n_in, n_implicit;
    sb_value_id *outputs;
    uint32_t n_out;
    sb_attr *attrs;
    uint32_t n_attrs;
    uint64_t position; /* orders nodes that could run in any order */
    uint32_t origin;   /* as that of a value; a replacement takes it over */
    bool dead;
    /* The row that a plug-in gave the context for this operator, or NULL. */
    const struct sb_op_def *added;
    sb_extra extra;
} sb_node;

typedef struct sb_opset {
    const char *domain;
    int64_t version;
} sb_opset;

/* A constant became another by multiplication: to = from * factor[c] for index
 * c of `axis`, n of them; axis -1: n is 1 and the factor holds for all. */
typedef struct sb_rescale {
    sb_value_id from, to;
    int axis;
    const float *factor;
    int64_t n;
} sb_rescale;

struct sb_graph {
    sb_ctx *ctx;
    sb_arena *arena;  /* shared with sub-graphs */
    sb_graph *parent; /* NULL for the root */
    const char *name;
    sb_value *values;
    size_t n_values, cap_values;
    sb_node *nodes;
    size_t n_nodes, cap_nodes; /* dead ones included */
    sb_value_id *inputs, *outputs;
    size_t n_inputs, cap_inputs, n_outputs, cap_outputs;
    /* Values of this sub-graph that stand for values of the enclosing graph.
     * The k-th capture over all sub-graphs of a node, in attribute order, is
     * the node's k-th implicit input.  Both have the same name: renaming the
     * outer value renames the capture. */
    sb_value_id *captures;
    size_t n_captures, cap_captures;
    const char **symbols; /* names of symbolic dimensions; in the root only */
    size_t n_symbols, cap_symbols;
    sb_map symbol_ids;  /* symbol name -> index; in the root only */
    sb_map names;       /* value name -> ID; may hold names given up */
    sb_map sub_names;   /* root: every name that a sub-graph has or had */
    uint64_t next_name; /* for fresh names; in the root only */
    uint64_t last_position;
    sb_graph **subs; /* root: every sub-graph at any depth, to be freed */
    size_t n_subs, cap_subs;
    sb_buf **kept; /* root: buffers of tensors in attributes */
    size_t n_kept, cap_kept;
    sb_extra extra;
    sb_bytes unknown_model; /* root: unknown fields of ModelProto */
    /* root only: facts of the model, all in the arena */
    int64_t ir_version;
    int64_t model_version;
    const char *producer_name, *producer_version, *model_domain, *model_doc;
    const sb_prop *model_props;
    size_t n_model_props;
    sb_opset *opsets; /* as imported, the main domain already canonical */
    size_t n_opsets;
    int64_t file_opset;      /* what the file said for the main domain */
    bool file_sparse;        /* save what is mostly zero as sparse tensors */
    uint64_t external_bytes; /* of the files with its tensors' data */
    /* Read in part: only the weights of that stage of a pipeline are there.
     * `parts` 0: all are. */
    size_t part, parts;
    /* (optional) Called by passes that multiply a constant, so that a side
     * table can follow; copies of the graph do not have it. */
    sb_status (*on_rescale)(void *user, sb_graph *g, const sb_rescale *r);
    void *on_rescale_user;
    /* (optional) Does a configuration say something of this node?  Asked by
     * passes that could put it into one of which it does not; copies do not
     * have it. */
    bool (*is_named)(const void *user, const sb_node *node);
    const void *is_named_user;
};

/* A new empty root graph; free it with sb_graph_free(). */
SB_MUST_USE sb_status sb_graph_create(sb_ctx *ctx, const char *name,
                                      sb_graph **out);
/* Frees a root graph with all its sub-graphs; NULL is allowed. */
void sb_graph_free(sb_graph *graph);
/* A new empty sub-graph in the arena of `parent`.  Nesting beyond
 * SB_MAX_NESTING is SB_BAD_MODEL, so recursion over sub-graphs is safe. */
enum { SB_MAX_NESTING = 32 };
SB_MUST_USE sb_status sb_graph_create_sub(sb_graph *parent, const char *name,
                                          sb_graph **out);
/* A deep copy of a root graph with a fresh arena, weights shared.  Dead nodes
 * and values that nothing refers to are left out, so IDs change. */
SB_MUST_USE sb_status sb_graph_clone(const sb_graph *graph, sb_graph **out);
/* The same into another context. */
SB_MUST_USE sb_status sb_graph_clone_into(sb_ctx *ctx, const sb_graph *graph,
                                          sb_graph **out);
/* The same in a form that depends on nothing but the network: nodes in the
 * order of sb_graph_order() and so numbered, values in the order in which they
 * first appear, constants that nothing reads left out. */
SB_MUST_USE sb_status sb_graph_clone_sorted(const sb_graph *graph,
                                            sb_graph **out);
/* And the ID in the copy of every value, SB_NONE for those left out; sb_free()
 * it. */
SB_MUST_USE sb_status sb_graph_clone_sorted_ids(const sb_graph *graph,
                                                sb_graph **out,
                                                sb_value_id **value_of);

static inline sb_value *sb_graph_value(const sb_graph *g, sb_value_id id)
{
    return &g->values[id];
}

static inline sb_node *sb_graph_node(const sb_graph *g, sb_node_id id)
{
    return &g->nodes[id];
}

/* SB_NONE if there is no value of that name in this graph. */
sb_value_id sb_graph_find_value(const sb_graph *g, const char *name);
/* The node that makes a value, or NULL. */
sb_node *sb_graph_producer(const sb_graph *g, sb_value_id value);

/* ---- building -----------------------------------------------------------
 * Names are copied.  A NULL name asks for a fresh one; a name that is taken is
 * an error (SB_BAD_MODEL). */
SB_MUST_USE sb_status sb_graph_add_value(sb_graph *g, const char *name,
                                         sb_value_id *out);
/* A fresh value whose name starts with `stem`. */
SB_MUST_USE sb_status sb_graph_add_value_like(sb_graph *g, const char *stem,
                                              sb_value_id *out);
/* A value named `name` or, if that is taken, with the first free of `_2`, `_3`
 * ... behind it: names that do not depend on what was done before. */
SB_MUST_USE sb_status sb_graph_add_value_as(sb_graph *g, const char *name,
                                            sb_value_id *out);
SB_MUST_USE sb_status sb_graph_add_input(sb_graph *g, sb_value_id value);
/* The value stays, and is an input no more. */
void sb_graph_remove_input(sb_graph *g, size_t input);
SB_MUST_USE sb_status sb_graph_add_output(sb_graph *g, sb_value_id value);
/* Values stay; none is an output any more. */
void sb_graph_clear_outputs(sb_graph *g);
/* Makes `value` an initializer; takes one more reference to the buffer of
 * `t`, which must have one. */
SB_MUST_USE sb_status sb_graph_set_constant(sb_graph *g, sb_value_id value,
                                            const sb_tensor *t);
/* A fresh constant with the elements of a small array, copied. */
SB_MUST_USE sb_status sb_graph_add_constant(sb_graph *g, const char *stem,
                                            sb_dtype dtype, int rank,
                                            const int64_t *dims,
                                            const void *elements,
                                            sb_value_id *out);
/* Declares `inner`, a value of the sub-graph `g`, to stand for one of the
 * enclosing graph.  Called while the sub-graph is built, before the node that
 * owns it is added. */
SB_MUST_USE sb_status sb_graph_add_capture(sb_graph *g, sb_value_id inner);

typedef struct sb_node_spec {
    const char *op, *domain, *name, *module; /* NULL means "" */
    const sb_value_id *inputs;               /* SB_NONE: absent */
    size_t n_in;
    const sb_value_id *implicit; /* values that the sub-graphs capture */
    size_t n_implicit;
    const sb_value_id *outputs; /* values without a producer */
    size_t n_out;
    const sb_attr *attrs; /* copied one level deep: payloads stay where they
                             are and must live in the arena */
    size_t n_attrs;
    uint64_t position; /* 0: after all others */
} sb_node_spec;

SB_MUST_USE sb_status sb_graph_add_node(sb_graph *g, const sb_node_spec *spec,
                                        sb_node_id *out);

/* ---- changing ----------------------------------------------------------- */
/* Points input `input` of a node at another value (or SB_NONE). */
SB_MUST_USE sb_status sb_graph_set_input(sb_graph *g, sb_node_id node,
                                         uint32_t input, sb_value_id value);
/* All consumers of `from` read `to` instead.  A graph output keeps its name:
 * if `from` is one, `to` takes its name and place.  *done is false, and nothing
 * is changed, where that cannot be (`to` is a graph input, a constant or itself
 * an output). */
SB_MUST_USE sb_status sb_graph_replace_value(sb_graph *g, sb_value_id from,
                                             sb_value_id to, bool *done);
/* Unlinks a node: its inputs lose a use, its outputs their producer. */
void sb_graph_remove_node(sb_graph *g, sb_node_id node);
/* Forgets dead nodes, and values that nothing refers to, at the ends of their
 * lists: a copy of a graph without others has the same IDs. */
void sb_graph_trim(sb_graph *g);
/* Sets or replaces an attribute; the payload must live in the arena. */
SB_MUST_USE sb_status sb_graph_set_attr(sb_graph *g, sb_node_id node,
                                        const sb_attr *attr);
SB_MUST_USE sb_status sb_graph_set_attr_int(sb_graph *g, sb_node_id node,
                                            const char *name, int64_t value);
SB_MUST_USE sb_status sb_graph_set_attr_ints(sb_graph *g, sb_node_id node,
                                             const char *name, const int64_t *v,
                                             size_t n);
void sb_graph_remove_attr(sb_graph *g, sb_node_id node, const char *name);

/* Copies `n` tensors into the arena for use in an attribute; the graph takes
 * one more reference to each buffer and gives it up when it is freed. */
SB_MUST_USE sb_status sb_graph_keep_tensors(sb_graph *g, const sb_tensor *t,
                                            size_t n, const sb_tensor **out);

/* The values of `g` that sub-graphs among the attributes capture, by name, as
 * sb_node_spec.implicit wants them; in the arena. */
SB_MUST_USE sb_status sb_graph_implicit_inputs(sb_graph *g,
                                               const sb_attr *attrs, size_t n,
                                               sb_value_id **out,
                                               size_t *n_out);

/* The metadata of the model under this key; NULL if there is none. */
const char *sb_graph_prop(const sb_graph *graph, const char *key);
/* Declares that the model uses operators of `domain`; a version that is
 * already there stays. */
SB_MUST_USE sb_status sb_graph_add_opset(sb_graph *g, const char *domain,
                                         int64_t version);

/* Gives a value another name; SB_BAD_MODEL if it is taken. */
SB_MUST_USE sb_status sb_graph_rename_value(sb_graph *g, sb_value_id value,
                                            const char *name);

/* The same, unless another value that is still of use has the name.  A holder
 * that is of no use any more gives its origin with the name: what was folded
 * away and is written out again is the same value. */
SB_MUST_USE sb_status sb_graph_claim_name(sb_graph *g, sb_value_id value,
                                          const char *name);

/* The sub-graph and the value in it that stand for implicit input `k` of a
 * node. */
sb_graph *sb_node_capture(const sb_node *node, uint32_t k, sb_value_id *inner);
/* The i-th sub-graph of a node, in attribute order; NULL after the last. */
sb_graph *sb_node_body(const sb_node *node, size_t i);

/* The attribute or NULL. */
const sb_attr *sb_node_attr(const sb_node *node, const char *name);
/* The bytes of numbers, lists of them and texts; none of other kinds. */
size_t sb_attr_bytes(const sb_attr *a, const void **data);
/* The value of an attribute, or `absent` if it is not there or of another
 * type. */
int64_t sb_node_int(const sb_node *node, const char *name, int64_t absent);
float sb_node_float(const sb_node *node, const char *name, float absent);
/* Is the string attribute equal to `text`?  `absent` if it is not there. */
bool sb_node_string_is(const sb_node *node, const char *name, const char *text,
                       bool absent);
/* The `n` elements of a list attribute, all `absent` if it is not there; false
 * if it has another type or length. */
bool sb_node_ints(const sb_node *node, const char *name, size_t n,
                  int64_t absent, int64_t *out);
/* Input `i` of a node, or SB_NONE. */
sb_value_id sb_node_in(const sb_node *node, uint32_t i);

/* ---- constants -----------------------------------------------------------
 * A value may be SB_NONE: the answer is then "no". */
/* Has elements that no caller can override: the default of a graph input is
 * not a constant. */
bool sb_is_const(const sb_graph *g, sb_value_id value);
/* The elements of such a constant, or NULL. */
const sb_tensor *sb_const_of(const sb_graph *g, sb_value_id value);
/* The element of a numeric constant of one element. */
bool sb_const_scalar(const sb_graph *g, sb_value_id value, double *out);

/* True if the node is of operator `op` of the main domain. */
bool sb_node_is(const sb_node *node, const char *op);
/* Name for messages: its name, else its first output's name, else its op. */
const char *sb_node_label(const sb_graph *g, const sb_node *node);

/* ---- symbols ------------------------------------------------------------ */
/* The dimension that stands for `name`; the same for the same name. */
SB_MUST_USE sb_status sb_graph_symbol(sb_graph *g, const char *name,
                                      sb_dim *out);
/* NULL if `d` is not a symbol. */
const char *sb_graph_symbol_name(const sb_graph *g, sb_dim d);

/* ---- whole-graph questions ---------------------------------------------- */
/* Live nodes in an order that respects dependencies and otherwise
 * `position`; SB_BAD_MODEL names a node on a cycle.  sb_free() the array. */
SB_MUST_USE sb_status sb_graph_order(const sb_graph *g, sb_node_id **out,
                                     size_t *n);
/* Checks every invariant of this header, sub-graphs included. */
SB_MUST_USE sb_status sb_graph_verify(const sb_graph *g);
/* Live nodes, sub-graphs not counted. */
size_t sb_graph_live_nodes(const sb_graph *g);
/* Removes nodes none of whose results is needed, in sub-graphs too, and
 * captures that nothing reads; returns how many nodes. */
size_t sb_graph_remove_dead(sb_graph *g);
/* Has one of its outputs a consumer? */
bool sb_graph_node_needed(const sb_graph *g, const sb_node *node);
/* SB_UNSUPPORTED if the model was read in part: it can neither be run nor
 * saved. */
SB_MUST_USE sb_status sb_graph_check_whole(const sb_graph *g);
/* Is a constant of this name part of a low-rank adapter? */
bool sb_name_is_adapter(const char *name);

#endif
