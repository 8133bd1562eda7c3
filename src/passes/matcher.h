/* matcher.h - finding sub-graphs by a table, and rewriting them.
 *
 * A pattern is a table of rows, one for each node of the sub-graph; the first
 * row is the root, whose output the rewrite replaces:
 *
 *     {"y", "Mul", .in = {"x", "s"}, .order = SB_PAT_ANY},
 *     {"s", "Sigmoid", .in = {"x"}},
 *
 * An input is written as
 *     "s"    the name of a row: made by a node that matches that row
 *     "x"    any other name: some value, the same one wherever it stands
 *     "$c"   a constant, called c
 *     "=0.5" a constant of one element close to the number
 *     "*"    anything that is there
 *     "_"    absent
 *
 * Several rows of one name are alternatives, tried in their order.  Nodes
 * inside the pattern must not be used from outside it, except where the row
 * says `shared`: their results would be lost. */
#ifndef SB_PASSES_MATCHER_H
#define SB_PASSES_MATCHER_H

#include "graph/graph.h"

typedef struct sb_match sb_match;

typedef enum sb_pat_order {
    SB_PAT_EXACT,  /* the listed inputs in this order and no others */
    SB_PAT_ANY,    /* the listed inputs in any order and no others */
    SB_PAT_SUBSET, /* each listed input somewhere; others may be there too */
} sb_pat_order;

enum { SB_PAT_MAX_IN = 4, SB_PAT_MAX_ROWS = 32, SB_PAT_MAX_NAMES = 24 };

typedef struct sb_pat {
    const char *name;
    const char *ops; /* "Add|Sub", of the main domain; "*" for any */
    const char *in[SB_PAT_MAX_IN];
    sb_pat_order order;
    bool shared; /* may have uses outside the pattern */
    /* (optional) Called when the operator fits, before the inputs are
     * looked at. */
    bool (*check)(const sb_graph *g, const sb_node *node);
} sb_pat;

typedef struct sb_rule {
    const sb_pat *rows; /* ends with an empty row */
    /* (optional) Judges the whole match. */
    bool (*check)(const sb_match *m);
    /* Changes the graph; sets *done unless it declined.  Nodes that lost
     * their last use are removed afterwards. */
    sb_status (*rewrite)(sb_match *m, bool *done);
} sb_rule;

typedef struct sb_matcher sb_matcher; /* a compiled pattern */

/* What was found. */
struct sb_match {
    sb_graph *graph;
    const sb_matcher *matcher;
    sb_node_id root;
    /* Highest rank among the constants that matched "=number": such a
     * constant may add dimensions to what it is combined with. */
    int number_rank;
    sb_value_id values[SB_PAT_MAX_NAMES]; /* by slot; SB_NONE: not bound */
    sb_node_id nodes[SB_PAT_MAX_ROWS];    /* all matched nodes, root first */
    size_t n_nodes;
};

/* The value bound to a name (output 0 of the node for a row's name), SB_NONE
 * if an alternative without it was taken. */
sb_value_id sb_match_value(const sb_match *m, const char *name);
/* The node that was matched by the row of that name, or SB_NONE. */
sb_node_id sb_match_node(const sb_match *m, const char *name);

/* Compiles a pattern; free it with sb_matcher_free().  A table that breaks
 * the rules above is SB_BAD_ARG. */
SB_MUST_USE sb_status sb_matcher_create(sb_ctx *ctx, const sb_rule *rule,
                                        sb_matcher **out);
void sb_matcher_free(sb_ctx *ctx, sb_matcher *matcher);
/* Does the pattern match with this node as its root? */
bool sb_matcher_try(const sb_matcher *matcher, sb_graph *g, sb_node_id root,
                    sb_match *out);

/* Applies the rules wherever they match until none does; *changes grows by
 * the number of rewrites.  Rules are tried in their order at each node. */
SB_MUST_USE sb_status sb_rules_run(sb_graph *g, const sb_rule *rules,
                                   size_t n_rules, size_t *changes);

#endif
