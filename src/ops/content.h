/* content.h - symbolic elements of small integer tensors.
 *
 * Exporters compute shapes with ordinary operators (Shape, Gather, Mul,
 * Concat, Reshape).  sb_fact.content carries the elements of such vectors as
 * dimensions, symbols included; these helpers push them through elementwise
 * operators. */
#ifndef SB_OPS_CONTENT_H
#define SB_OPS_CONTENT_H

#include "ops/infer_util.h"

/* Are the elements of input i known, at least as unknown dimensions, and is
 * it an integer tensor of rank 0 or 1? */
bool sb_content_has(const sb_infer *in, uint32_t i);

/* Element j of input i; a single element serves every j. */
sb_dim sb_content_at(const sb_infer *in, uint32_t i, int j);

/* How many elements inputs [first, last] broadcast to; -1 if one of them is
 * not known or they do not fit. */
int sb_content_count(const sb_infer *in, uint32_t first, uint32_t last);

/* Output 0's content from inputs 0 and 1, if both are known. */
void sb_content_binary(sb_infer *in, sb_dim (*fn)(sb_dim a, sb_dim b));

#endif
