/* grad_rules.h - gradients of the operators, for `grad` of their rows.  Each is
 * a formula of existing operators, or of one made for it in this folder. */
#ifndef SB_OPS_GRAD_GRAD_RULES_H
#define SB_OPS_GRAD_GRAD_RULES_H

#include "graph/op.h"

/* ---- element by element ------------------------------------------------- */
/* Rows whose `aux` is an sb_ew_def with a strip for the gradient. */
sb_status sb_grad_unary(sb_grad *g);
sb_status sb_grad_neg(sb_grad *g);
sb_status sb_grad_add(sb_grad *g); /* Sum of any number, too */
sb_status sb_grad_sub(sb_grad *g);
sb_status sb_grad_mul(sb_grad *g);
sb_status sb_grad_div(sb_grad *g);
sb_status sb_grad_mean(sb_grad *g);
sb_status sb_grad_pow(sb_grad *g);
sb_status sb_grad_prelu(sb_grad *g);
sb_status sb_grad_extreme(sb_grad *g); /* Max, Min: ties share */
sb_status sb_grad_clip(sb_grad *g);
sb_status sb_grad_where(sb_grad *g);
sb_status sb_grad_mod(sb_grad *g);
sb_status sb_grad_cast(sb_grad *g);

/* ---- moving elements ---------------------------------------------------- */
sb_status sb_grad_view(sb_grad *g); /* Reshape, Squeeze, Identity ... */
sb_status sb_grad_broadcast(sb_grad *g);
sb_status sb_grad_transpose(sb_grad *g);
sb_status sb_grad_concat(sb_grad *g);
sb_status sb_grad_split(sb_grad *g);
sb_status sb_grad_slice(sb_grad *g);
sb_status sb_grad_pad(sb_grad *g);
sb_status sb_grad_tile(sb_grad *g);
sb_status sb_grad_gather(sb_grad *g);
sb_status sb_grad_gather_elements(sb_grad *g);
sb_status sb_grad_gather_nd(sb_grad *g);
sb_status sb_grad_scatter(sb_grad *g);
sb_status sb_grad_top_k(sb_grad *g);
sb_status sb_grad_block(sb_grad *g); /* DepthToSpace, SpaceToDepth */
/* Linear, and its own transpose with the same other inputs (Trilu). */
sb_status sb_grad_itself(sb_grad *g);
sb_status sb_grad_cum_sum(sb_grad *g);
sb_status sb_grad_center_crop_pad(sb_grad *g);
sb_status sb_grad_compress(sb_grad *g);
sb_status sb_grad_max_unpool(sb_grad *g);

/* ---- sums and products -------------------------------------------------- */
sb_status sb_grad_reduce(sb_grad *g);
sb_status sb_grad_global_average(sb_grad *g);
sb_status sb_grad_global_max(sb_grad *g);
sb_status sb_grad_matmul(sb_grad *g);
sb_status sb_grad_gemm(sb_grad *g);
sb_status sb_grad_softmax(sb_grad *g);
sb_status sb_grad_layer_norm(sb_grad *g);
sb_status sb_grad_group_norm(sb_grad *g); /* InstanceNormalization, too */
sb_status sb_grad_lp_norm(sb_grad *g);
sb_status sb_grad_mean_variance(sb_grad *g);
sb_status sb_grad_lrn(sb_grad *g);
sb_status sb_grad_nll_loss(sb_grad *g); /* SoftmaxCrossEntropyLoss, too */
sb_status sb_grad_einsum(sb_grad *g);
sb_status sb_grad_attention(sb_grad *g);
sb_status sb_grad_rotary(sb_grad *g);
sb_status sb_grad_fake_quant(sb_grad *g);
sb_status sb_grad_rnn(sb_grad *g); /* GRU, LSTM, too */

/* ---- windows and channels ----------------------------------------------- */
sb_status sb_grad_conv(sb_grad *g);
sb_status sb_grad_conv_transpose(sb_grad *g);
sb_status sb_grad_max_pool(sb_grad *g);
sb_status sb_grad_average_pool(sb_grad *g);
sb_status sb_grad_batch_norm(sb_grad *g);
sb_status sb_grad_batch_norm_train(sb_grad *g);
sb_status sb_grad_lp_pool(sb_grad *g);
sb_status sb_grad_global_lp_pool(sb_grad *g);
sb_status sb_grad_resize(sb_grad *g);
sb_status sb_grad_grid_sample(sb_grad *g);
sb_status sb_grad_affine_grid(sb_grad *g);

#endif
