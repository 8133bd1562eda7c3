/* tie_rules.h - which indices belong together, for `tie` of operator rows, and
 * what is restated after a cut, for `recut`. */
#ifndef SB_OPS_TIE_TIE_RULES_H
#define SB_OPS_TIE_TIE_RULES_H

#include "graph/op.h"

/* ---- element by element, along axes (tie_axes.c) ------------------------ */
sb_status sb_tie_elementwise(sb_ties *t); /* with broadcasting */
sb_status sb_tie_identity(sb_ties *t);
/* All axes but that of the attribute `axis`: Softmax, ArgMax, TopK. */
sb_status sb_tie_but_axis(sb_ties *t);
sb_status sb_tie_cumulate(sb_ties *t);
sb_status sb_tie_but_matrix(sb_ties *t); /* all but the last two: Trilu */
sb_status sb_tie_reduce(sb_ties *t);
sb_status sb_tie_quantize(sb_ties *t);

/* ---- channels (tie_channels.c) ------------------------------------------ */
sb_status sb_tie_conv(sb_ties *t);
sb_status sb_tie_conv_transpose(sb_ties *t);
sb_status sb_tie_deform_conv(sb_ties *t);
sb_status sb_tie_pool(sb_ties *t); /* and whatever samples an image */
sb_status sb_tie_resize(sb_ties *t);
sb_status sb_tie_depth_to_space(sb_ties *t);
sb_status sb_tie_space_to_depth(sb_ties *t);

/* ---- normalizations (tie_norm.c) ---------------------------------------- */
sb_status sb_tie_batch_norm(sb_ties *t);
sb_status sb_tie_instance_norm(sb_ties *t);
sb_status sb_tie_group_norm(sb_ties *t);
sb_status sb_tie_layer_norm(sb_ties *t); /* RMSNormalization, too */
sb_status sb_tie_skip_layer_norm(sb_ties *t);
sb_status sb_tie_lrn(sb_ties *t);
sb_status sb_tie_lp_norm(sb_ties *t);
sb_status sb_tie_mean_variance(sb_ties *t);

/* ---- products (tie_matmul.c) -------------------------------------------- */
sb_status sb_tie_matmul(sb_ties *t);
sb_status sb_tie_gemm(sb_ties *t);
sb_status sb_tie_einsum(sb_ties *t);
sb_status sb_tie_rnn(sb_ties *t);

/* ---- attention (tie_attention.c) ---------------------------------------- */
sb_status sb_tie_attention(sb_ties *t);
sb_status sb_tie_ms_attention(sb_ties *t);
sb_status sb_tie_multi_head(sb_ties *t);
sb_status sb_tie_rotary(sb_ties *t);

/* ---- moving elements (tie_move.c) --------------------------------------- */
sb_status sb_tie_concat(sb_ties *t);
sb_status sb_tie_split(sb_ties *t);
sb_status sb_tie_slice(sb_ties *t);
sb_status sb_tie_pad(sb_ties *t);
sb_status sb_tie_gather(sb_ties *t);
sb_status sb_tie_transpose(sb_ties *t);
sb_status sb_tie_tile(sb_ties *t);
sb_status sb_tie_reverse(sb_ties *t);

/* ---- shapes (tie_shape.c) ----------------------------------------------- */
sb_status sb_tie_reshape(sb_ties *t);
sb_status sb_tie_squeeze(sb_ties *t);
sb_status sb_tie_unsqueeze(sb_ties *t);
sb_status sb_tie_expand(sb_ties *t);
sb_status sb_tie_shape(sb_ties *t);

/* ---- restating sizes (recut.c) ------------------------------------------ */
sb_status sb_recut_conv(sb_cut *c);
sb_status sb_recut_conv_transpose(sb_cut *c);
sb_status sb_recut_group_norm(sb_cut *c);
sb_status sb_recut_resize(sb_cut *c);
sb_status sb_recut_heads(sb_cut *c);
sb_status sb_recut_split(sb_cut *c);
sb_status sb_recut_slice(sb_cut *c);
sb_status sb_recut_pad(sb_cut *c);
sb_status sb_recut_gather(sb_cut *c);
sb_status sb_recut_reshape(sb_cut *c);
sb_status sb_recut_expand(sb_cut *c);

/* ---- targets that are joined at run time (tie_target.c) ------------------ */

/* The Concat that makes the target, or NULL. */
const sb_node *sb_target_concat(const sb_graph *g, sb_value_id target);
/* Which input of it holds element *at, which becomes the place there. */
bool sb_target_place(const sb_graph *g, const sb_node *concat, int64_t *at,
                     sb_value_id *from);
/* Fixes the axes of the result, from `skip` on, that constants in a computed
 * target do not state. */
void sb_tie_target(sb_ties *t, int input, int skip);
/* Is the element of the target for an axis the size of that axis of x, as a
 * Shape shows it? */
bool sb_target_shows(const sb_graph *g, sb_value_id target, sb_value_id x,
                     int axis);

#endif
