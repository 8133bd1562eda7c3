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

#include "base/map.h"
#include "base/str.h"
#include "tensor/tensor.h"

typedef uint32_t sb_node_id;
typedef uint32_t sb_value_id;
#define SB_NONE UINT32_MAX /* no node; an absent optional input or output */

typedef struct sb_graph sb_graph;

/* ---- attributes ---------------------------------------------------------
 * Numbered as ONNX's AttributeProto.AttributeType. */
typedef enum sb_attr_type {
    SB_ATTR_NONE = 0,
    SB_ATTR_FLOAT = 1,
    SB_ATTR_INT = 2,
    SB_ATTR_STRING = 3,
    SB_ATTR_TENSOR = 4,
    SB_ATTR_GRAPH = 5,
    SB_ATTR_FLOATS = 6,
    SB_ATTR_INTS = 7,
    SB_ATTR_STRINGS = 8,
    SB_ATTR_TENSORS = 9,
    SB_ATTR_GRAPHS = 10,
    SB_ATTR_OPAQUE = 100, /* sparse tensors and type protos: bytes, kept */
} sb_attr_type;

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
    bool dead;
    sb_extra extra;
} sb_node;

typedef struct sb_opset {
    const char *domain;
    int64_t version;
} sb_opset;

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
    uint64_t external_bytes; /* of the files with its tensors' data */
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
/* The same in a form that depends on nothing but the network: nodes in the
 * order of sb_graph_order() and so numbered, values in the order in which they
 * first appear, constants that nothing reads left out. */
SB_MUST_USE sb_status sb_graph_clone_sorted(const sb_graph *graph,
                                            sb_graph **out);

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
SB_MUST_USE sb_status sb_graph_add_output(sb_graph *g, sb_value_id value);
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

/* Declares that the model uses operators of `domain`; a version that is
 * already there stays. */
SB_MUST_USE sb_status sb_graph_add_opset(sb_graph *g, const char *domain,
                                         int64_t version);

/* Gives a value another name; SB_BAD_MODEL if it is taken. */
SB_MUST_USE sb_status sb_graph_rename_value(sb_graph *g, sb_value_id value,
                                            const char *name);

/* The same, unless another value that is still of use has the name. */
SB_MUST_USE sb_status sb_graph_claim_name(sb_graph *g, sb_value_id value,
                                          const char *name);

/* The sub-graph and the value in it that stand for implicit input `k` of a
 * node. */
sb_graph *sb_node_capture(const sb_node *node, uint32_t k, sb_value_id *inner);
/* The i-th sub-graph of a node, in attribute order; NULL after the last. */
sb_graph *sb_node_body(const sb_node *node, size_t i);

/* The attribute or NULL. */
const sb_attr *sb_node_attr(const sb_node *node, const char *name);
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
/* Does anybody read one of its outputs? */
bool sb_graph_node_needed(const sb_graph *g, const sb_node *node);

#endif
