/* shape_values.h - symbolic elements of small integer tensors.
 *
 * Exporters compute shapes with ordinary operators (Shape, Gather, Mul,
 * Concat, Reshape).  sb_fact.content carries the elements of such vectors as
 * dimensions, symbols included; these helpers push them through elementwise
 * operators. */
#ifndef SB_OPS_SHAPE_VALUES_H
#define SB_OPS_SHAPE_VALUES_H

#include "ops/infer_util.h"

/* The elements of the first n inputs, and how many they broadcast to; false
 * if not even their number is known, or they do not fit. */
bool sb_shape_values_load(const sb_infer *in, uint32_t n, sb_shape *out,
                          int *count);

/* Element j; a single element serves every j. */
sb_dim sb_shape_values_at(const sb_shape *content, int j);

/* Output 0's content from inputs 0 and 1, if both are known. */
void sb_shape_values_binary(sb_infer *in, sb_dim (*fn)(sb_dim a, sb_dim b));

#endif
