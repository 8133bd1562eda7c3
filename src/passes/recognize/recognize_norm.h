/* recognize_norm.h - what the passes share that recognize normalizations.
 *
 * The core is replaced by the normalization with a scale of ones; then a
 * multiplication by a constant is taken in as the scale, and an addition as
 * the bias.  So every mixture of the parts is understood. */
#ifndef SB_PASSES_RECOGNIZE_RECOGNIZE_NORM_H
#define SB_PASSES_RECOGNIZE_RECOGNIZE_NORM_H

#include "passes/matcher.h"

/* The number of last axes that a ReduceMean with keepdims goes over, or -1 if
 * it is anything else. */
int sb_norm_axes(const sb_graph *g, const sb_node *reduce);
/* Can the core over the last `n` axes of "x", with epsilon "eps", become one
 * node?  The axes must be numbers and the type float. */
bool sb_norm_core_ok(const sb_match *m, int n);
/* Puts `op`(x, scale, bias) over the last `n` axes in place of the root, with
 * the epsilon of the match.  A scale of SB_NONE means ones; a bias of SB_NONE
 * none. */
SB_MUST_USE sb_status sb_norm_core(sb_match *m, const char *op, int n,
                                   sb_value_id scale, sb_value_id bias);

/* A constant with the shape of the normalized axes of `norm`, perhaps with
 * dimensions of 1 before them. */
bool sb_norm_fits(const sb_graph *g, const sb_node *norm, sb_value_id value);
/* The same value without those dimensions of 1: itself, or a fresh constant
 * that shares its elements. */
SB_MUST_USE sb_status sb_norm_param(sb_graph *g, sb_value_id value, int n,
                                    sb_value_id *out);
/* How many last axes the normalization goes over; -1 if that is not known. */
int sb_norm_node_axes(const sb_graph *g, const sb_node *norm);

/* For the rules "multiplied by a constant" and "between two casts", whose
 * patterns call the normalization "n", its input "x", the constant "g". */
bool sb_norm_scale_check(const sb_match *m);
SB_MUST_USE sb_status sb_norm_scale_rewrite(sb_match *m, bool *done);
bool sb_norm_cast_check(const sb_match *m);
SB_MUST_USE sb_status sb_norm_cast_rewrite(sb_match *m, bool *done);
/* Puts the same normalization with other inputs in place of the root. */
SB_MUST_USE sb_status sb_norm_again(sb_match *m, const sb_value_id *in,
                                    size_t n_in);

#endif
