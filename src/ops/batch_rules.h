/* batch_rules.h - where the samples of a batch are in the results of a node:
 * rules for the `batch` of operator rows.  Each is false if samples may mix,
 * or if that cannot be told. */
#ifndef SB_OPS_BATCH_RULES_H
#define SB_OPS_BATCH_RULES_H

#include "graph/op.h"

/* Every index of axis 0 is treated alone: convolutions, pools, attention.
 * Whatever has samples must have them there. */
bool sb_batch_first(sb_batch_trace *t);
/* Element by element, with broadcasting; the default of ELEMENTWISE rows. */
bool sb_batch_broadcast(sb_batch_trace *t);
/* Element by element of input 0, whatever else is read (QuantizeLinear). */
bool sb_batch_same(sb_batch_trace *t);
/* Along the axis of the attribute `axis`: Softmax, Concat, Split, TopK ... */
bool sb_batch_but_axis(sb_batch_trace *t);
/* Along that axis and all behind it: LayerNormalization. */
bool sb_batch_but_tail(sb_batch_trace *t);
/* Within the last two axes: Trilu. */
bool sb_batch_but_matrix(sb_batch_trace *t);
/* With broadcasting, along the last axis: SkipLayerNormalization. */
bool sb_batch_but_last(sb_batch_trace *t);
/* Where the size of the axis of samples does not change: Resize, Expand. */
bool sb_batch_if_kept(sb_batch_trace *t);
/* The same elements in the same order: Reshape, Flatten. */
bool sb_batch_reshape(sb_batch_trace *t);
/* Of single operators and families. */
bool sb_batch_transpose(sb_batch_trace *t);
bool sb_batch_squeeze(sb_batch_trace *t);
bool sb_batch_unsqueeze(sb_batch_trace *t);
bool sb_batch_gather(sb_batch_trace *t);
bool sb_batch_reduce(sb_batch_trace *t);
bool sb_batch_arg(sb_batch_trace *t);
bool sb_batch_slice(sb_batch_trace *t);
bool sb_batch_pad(sb_batch_trace *t);
bool sb_batch_tile(sb_batch_trace *t);
bool sb_batch_cumulate(sb_batch_trace *t);
bool sb_batch_matmul(sb_batch_trace *t);
bool sb_batch_gemm(sb_batch_trace *t);
bool sb_batch_rnn(sb_batch_trace *t);
bool sb_batch_normalize_axes(sb_batch_trace *t);

#endif
