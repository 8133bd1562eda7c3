/* tie.h - which indices stand and fall together: what pruning asks the rows.
 *
 * An *atom* is one index of one axis of a value.  tie() of a row says, for one
 * node, which atoms of its operands go together, which are summed over and
 * which may not go at all; src/prune puts the answers of all nodes together.
 * A rule is a few calls of the functions below, for operands by number: input
 * i is `i`, output j is SB_OUT(j).  Ranks are known when a rule is asked; an
 * axis whose size is not known has no atoms, and is fixed.
 *
 *     sb_tie_sum(t, 0, 1, 1, 1);            Conv: channels of x, columns of w
 *     sb_tie_make(t, 1, 0, SB_OUT(0), 1);   rows of w make channels of y */
#ifndef SB_OPS_TIE_TIE_H
#define SB_OPS_TIE_TIE_H

#include "graph/op.h"

enum {
    SB_OUT_BASE = 1 << 16,
    SB_PART_BASE = 1 << 17,
    SB_TIE_PARTS = SB_MAX_RANK
};
#define SB_OUT(j) (SB_OUT_BASE + (int)(j))

/* An axis of an operand, or a part: an axis that no value has, made by
 * sb_tie_part(), such as the heads within a hidden dimension. */
typedef struct sb_axis_ref {
    sb_value_id value; /* SB_NONE: a part */
    int axis;          /* ... whose number this is, within the node */
} sb_axis_ref;

typedef enum sb_tie_kind {
    SB_TIE_SPAN,   /* y[y0 + i] with x[x0 + i], n of them */
    SB_TIE_LIST,   /* y[i] with x[of[i]], n of them */
    SB_TIE_DIGITS, /* an index of x is a number whose digits are indices of
                      the parts, the last varying fastest */
    SB_TIE_SUM,    /* flag of x: a weight's axis, summed over with y */
    SB_TIE_MAKE,   /* flag of x: a weight's axis that makes channels */
    SB_TIE_SCALE,  /* flag of x: a factor for each channel */
    SB_TIE_STATS,  /* flag of x: statistics over it change with a cut */
    SB_TIE_PAIRS,  /* flag of x: summed over with another activation */
    SB_TIE_FIXED,  /* flag of x: may not be cut */
} sb_tie_kind;

typedef struct sb_tie {
    sb_tie_kind kind;
    sb_axis_ref x, y;
    int64_t x0, y0, n;
    const int64_t *of; /* in the arena of the graph */
    sb_axis_ref part[SB_TIE_PARTS];
    int n_parts;
    const char *why; /* STATS, PAIRS, FIXED: the rule, for people */
} sb_tie;

struct sb_ties {
    const sb_graph *graph; /* with shapes */
    const sb_node *node;
    const sb_op_def *op; /* NULL: not known */
    sb_tie *ties;
    size_t n, cap;
    int64_t part_size[SB_MAX_RANK * 2 + 8]; /* by number */
    int n_parts;
    sb_status status; /* of the first that could not be kept */
};

/* Asks the row of a node; `t` is zeroed but for the graph and the node.  Free
 * its `ties` in any case. */
SB_MUST_USE sb_status sb_node_ties(sb_ties *t);

/* ---- what rules read ---------------------------------------------------- */
bool sb_tie_has(const sb_ties *t, int operand);
sb_value_id sb_tie_value(const sb_ties *t, int operand);
int sb_tie_rank(const sb_ties *t, int operand);
/* The size of an axis; below 0 if it is not known. */
sb_dim sb_tie_dim(const sb_ties *t, int operand, int axis);
/* An integer attribute, or what the row says for nodes without it. */
int64_t sb_tie_attr(const sb_ties *t, const char *name);
/* That attribute as an axis in [0, rank). */
int sb_tie_axis(const sb_ties *t, const char *name, int rank);
/* The integers of a constant input, at most `max`; their number, -1 if it is
 * none. */
int64_t sb_tie_ints(const sb_ties *t, uint32_t input, int64_t *v, int64_t max);
bool sb_tie_is_const(const sb_ties *t, int operand);
/* QuantizeLinear or DequantizeLinear, of any domain. */
bool sb_tie_quantizes(const sb_node *n);

/* ---- what rules say ----------------------------------------------------- */
/* i with i, where both sizes are the same. */
void sb_tie_same(sb_ties *t, int x, int ax, int y, int ay);
/* The same of all axes of operands of one shape. */
void sb_tie_same_all(sb_ties *t, int x, int y);
/* Index i of y with x0 + i of x, for y's whole axis, and the other way. */
void sb_tie_from(sb_ties *t, int x, int ax, int64_t x0, int y, int ay);
/* y[i] with x[of[i]]; `of` is copied. */
void sb_tie_list(sb_ties *t, int x, int ax, int y, int ay, const int64_t *of,
                 int64_t n);
/* Tied, and the axis of the weight is summed over: an index may go if the
 * weight's part for it is taken for zero.  If `w` is no constant there is no
 * such weight: an index that goes takes its summand along. */
void sb_tie_sum(sb_ties *t, int x, int ax, int w, int aw);
/* Tied, and the weight's axis makes the channels of y. */
void sb_tie_make(sb_ties *t, int w, int aw, int y, int ay);
/* Tied, and a factor of each channel of y, as the scale of a normalization. */
void sb_tie_scale(sb_ties *t, int w, int aw, int y, int ay);
/* Operands meet as in NumPy broadcasting, aligned at their last axes. */
void sb_tie_broadcast(sb_ties *t, int x, int y);
/* May be cut, but mean, variance or extremes over the axis change. */
void sb_tie_stats(sb_ties *t, int x, int ax, const char *why);
void sb_tie_fixed(sb_ties *t, int x, int ax, const char *why);

/* A new part of this size, and an axis as a number with such digits; parts of
 * size 1 may be left out.  A part can be tied like an axis: pass it as the
 * operand with axis 0. */
int sb_tie_part(sb_ties *t, int64_t size);
void sb_tie_digits(sb_ties *t, int x, int ax, const int *parts, int n);

/* ---- cutting ------------------------------------------------------------ */

/* The atoms of a graph: axis `a` of value `v` has `n` of them, numbered from
 * first[v * SB_MAX_RANK + a] on; SB_NONE: none. */
typedef struct sb_atoms {
    uint32_t *first;
    size_t n;
} sb_atoms;

struct sb_cut {
    sb_graph *graph; /* shapes are those before the cut */
    sb_node_id id;
    const sb_node *node; /* a copy */
    const sb_op_def *op;
    const sb_atoms *atoms;
    const uint8_t *gone; /* by atom */
};

/* Which of the `dim` indices of an axis go, NULL: none. */
const uint8_t *sb_cut_gone(const sb_cut *c, sb_value_id value, int axis);
/* How many of [from, to) stay. */
int64_t sb_cut_left(const sb_cut *c, sb_value_id value, int axis, int64_t from,
                    int64_t to);
/* The size of the axis after the cut; what is not known stays so. */
sb_dim sb_cut_size(const sb_cut *c, sb_value_id value, int axis);
/* Is an axis of this value cut? */
bool sb_cut_touches(const sb_cut *c, sb_value_id value);
/* Restates input `input` as a constant of these integers, of the type it has.
 */
SB_MUST_USE sb_status sb_cut_set_ints(sb_cut *c, uint32_t input,
                                      const int64_t *v, int64_t n);

#endif
