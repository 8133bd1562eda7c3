/* onnx_load.h - what the parts of the loader share.
 *
 * onnx_load.c     the model: source, facts, opsets
 * onnx_graph.c    graphs: values, initializers, names and scopes
 * onnx_node.c     nodes, Constant nodes
 * onnx_attr.c     attributes
 * onnx_function.c calls of functions that the model brings along */
#ifndef SB_ONNX_ONNX_LOAD_H
#define SB_ONNX_ONNX_LOAD_H

#include "graph/graph.h"
#include "onnx/onnx_source.h"
#include "onnx/upgrade.h"
#include "onnx/wire.h"

enum {
    /* Nested calls of functions multiply; no honest model comes near. */
    SB_ONNX_MAX_INLINED = 250000,
    SB_ONNX_MAX_CALLS = 64,
    SB_ONNX_MAX_NAMES = 1 << 26 /* bytes */
};

typedef struct sb_onnx_loader {
    sb_ctx *ctx;
    bool keep_inputs; /* see sb_onnx_load_options */
    sb_onnx_source source;
    sb_arena scratch; /* the unpacked message and names made on the way */
    const Pb__Model *model;
    sb_graph *root;
    sb_map functions; /* "domain name overload" -> index in the model */
    size_t *expanded; /* by function: nodes that a call becomes, plus 1 */
    size_t n_inlined; /* nodes that came out of functions so far */
    size_t n_names;   /* bytes of the names that were made for them */
} sb_onnx_loader;

/* Names as the text of one graph or function body sees them.  The body of a
 * function is a scope without parent over the graph of its caller. */
typedef struct sb_onnx_scope sb_onnx_scope;
struct sb_onnx_scope {
    sb_onnx_loader *loader;
    sb_onnx_scope *parent; /* NULL: nothing outside is visible */
    sb_graph *graph;
    sb_map names; /* name in the file -> value, or SB_ONNX_ABSENT */
    /* The enclosing graph's value of each capture of `graph`. */
    sb_value_id *outer;
    size_t n_outer, cap_outer;
    Pb__OpsetId *const *opsets;
    size_t n_opsets;
    /* Only in the body of a function: */
    const Pb__Function *function;
    const sb_onnx_scope *caller; /* the scope that holds the call */
    const sb_draft *call;        /* with the attributes of the call */
    const char *prefix;          /* of names made from the body's */
    int n_calls;                 /* functions inside functions */
};

#define SB_ONNX_ABSENT (SB_NONE - 1) /* a formal input that is not given */

/* ---- onnx_graph.c ------------------------------------------------------- */
void sb_onnx_scope_init(sb_onnx_scope *scope, sb_onnx_loader *loader,
                        sb_onnx_scope *parent, sb_graph *graph);
void sb_onnx_scope_free(sb_onnx_scope *scope);
/* The value that `name` means here, captured from outside if need be; SB_NONE
 * if there is none, SB_ONNX_ABSENT for an input that is not given. */
SB_MUST_USE sb_status sb_onnx_resolve(sb_onnx_scope *scope, const char *name,
                                      sb_value_id *out);
/* Adds a value and its name; a name that is taken is SB_BAD_MODEL. */
SB_MUST_USE sb_status sb_onnx_declare(sb_onnx_scope *scope, const char *name,
                                      sb_value_id *out);
SB_MUST_USE sb_status sb_onnx_read_graph(sb_onnx_scope *scope,
                                         const Pb__Graph *g);
/* Doc string, metadata and unknown fields. */
SB_MUST_USE sb_status sb_onnx_read_extra(sb_graph *graph, const char *doc,
                                         Pb__Prop *const *props, size_t n,
                                         const ProtobufCMessage *msg,
                                         sb_extra *out);
SB_MUST_USE sb_status sb_onnx_read_props(sb_graph *graph,
                                         Pb__Prop *const *props, size_t n,
                                         const sb_prop **out);

/* `name` behind the prefix of an inlined function, if there is one. */
SB_MUST_USE sb_status sb_onnx_prefixed(sb_onnx_scope *scope, const char *name,
                                       const char **out);

/* ---- onnx_node.c -------------------------------------------------------- */
SB_MUST_USE sb_status sb_onnx_read_node(sb_onnx_scope *scope,
                                        const Pb__Node *node);
/* What a node is called in messages. */
const char *sb_onnx_node_label(const Pb__Node *node);

/* ---- onnx_attr.c -------------------------------------------------------- */
/* Appends the attributes of `node` to the draft, with sub-graphs and the
 * values that they capture. */
SB_MUST_USE sb_status sb_onnx_read_attrs(sb_onnx_scope *scope,
                                         const Pb__Node *node, sb_draft *draft);

/* ---- onnx_function.c ---------------------------------------------------- */
SB_MUST_USE sb_status sb_onnx_list_functions(sb_onnx_loader *loader);
/* The function that a node calls, or NULL. */
SB_MUST_USE sb_status sb_onnx_find_function(sb_onnx_loader *loader,
                                            const Pb__Node *node,
                                            const Pb__Function **out);
/* Puts the body of `f` in place of the call. */
SB_MUST_USE sb_status sb_onnx_inline(sb_onnx_scope *scope, const Pb__Node *node,
                                     const Pb__Function *f,
                                     const sb_draft *call);

/* "" for both spellings of the main domain. */
const char *sb_onnx_domain(const char *domain);

#endif
