/* upgrade_util.h - what the rewrites of old nodes are written with. */
#ifndef SB_ONNX_UPGRADE_UTIL_H
#define SB_ONNX_UPGRADE_UTIL_H

#include "onnx/upgrade.h"

/* A rewrite from the version before its row to the row's version. */
typedef sb_status (*sb_upgrade_fn)(sb_draft *d);

typedef struct sb_upgrade_row {
    const char *op;
    int64_t version; /* the first opset with the new form */
    sb_upgrade_fn fn;
} sb_upgrade_row;

/* Fails naming the node. */
sb_status sb_draft_fail(const sb_draft *d, sb_status code, const char *fmt, ...)
    SB_PRINTF(3, 4);

/* ---- attributes --------------------------------------------------------- */
const sb_attr *sb_draft_attr(const sb_draft *d, const char *name);
int64_t sb_draft_int(const sb_draft *d, const char *name, int64_t absent);
float sb_draft_float(const sb_draft *d, const char *name, float absent);
/* True if the attribute is a string with this text. */
bool sb_draft_is(const sb_draft *d, const char *name, const char *text);
void sb_draft_remove(sb_draft *d, const char *name);
SB_MUST_USE sb_status sb_draft_set(sb_draft *d, const sb_attr *attr);
SB_MUST_USE sb_status sb_draft_set_int(sb_draft *d, const char *name,
                                       int64_t value);
SB_MUST_USE sb_status sb_draft_set_float(sb_draft *d, const char *name,
                                         float value);
/* `text` must be a literal. */
SB_MUST_USE sb_status sb_draft_set_text(sb_draft *d, const char *name,
                                        const char *text);

/* ---- inputs ------------------------------------------------------------- */
/* Input i or SB_NONE. */
sb_value_id sb_draft_in(const sb_draft *d, size_t i);
/* Sets input i, with absent ones before it if there are fewer. */
SB_MUST_USE sb_status sb_draft_set_in(sb_draft *d, size_t i, sb_value_id value);
/* Makes a list of integers an int64 input of rank 1. */
SB_MUST_USE sb_status sb_draft_ints_to_in(sb_draft *d, size_t i,
                                          const char *stem, const int64_t *v,
                                          size_t n);
/* Moves an attribute of integers to input i; does nothing if it is absent. */
SB_MUST_USE sb_status sb_draft_attr_to_in(sb_draft *d, const char *name,
                                          size_t i);
/* A constant scalar of a float type. */
SB_MUST_USE sb_status sb_draft_scalar(sb_draft *d, const char *stem,
                                      sb_dtype dtype, float value,
                                      sb_value_id *out);

/* Adds a node in front of the draft, with one fresh result. */
SB_MUST_USE sb_status sb_draft_before(sb_draft *d, const char *op,
                                      const sb_value_id *in, size_t n_in,
                                      const sb_attr *attr, sb_value_id *out);

/* ---- what is known of values -------------------------------------------- */
/* The elements, or NULL if the value is not constant. */
const sb_tensor *sb_draft_constant(const sb_draft *d, sb_value_id value);
/* The rank as far as declarations and the nodes before tell, at most
 * SB_MAX_RANK; -1: unknown. */
int sb_draft_rank(const sb_draft *d, sb_value_id value);
/* The element type, float32 where nothing tells. */
sb_dtype sb_draft_dtype(const sb_draft *d, sb_value_id value);

/* ---- rewrites, by the file they are in ---------------------------------- */
/* upgrade_arith.c */
sb_status sb_up_broadcast(sb_draft *d);
sb_status sb_up_gemm_7(sb_draft *d);
sb_status sb_up_prelu_7(sb_draft *d);
sb_status sb_up_scan_9(sb_draft *d);
sb_status sb_up_softmax_13(sb_draft *d);
sb_status sb_up_batch_norm_9(sb_draft *d);
sb_status sb_up_batch_norm_14(sb_draft *d);
sb_status sb_up_group_norm_21(sb_draft *d);
sb_status sb_up_selu_6(sb_draft *d);
sb_status sb_up_clip_11(sb_draft *d);
sb_status sb_up_dropout_7(sb_draft *d);
sb_status sb_up_dropout_12(sb_draft *d);
sb_status sb_up_cast_6(sb_draft *d);
sb_status sb_up_lp_pool_2(sb_draft *d);
sb_status sb_up_rnn_7(sb_draft *d);
sb_status sb_up_dft_20(sb_draft *d);
/* upgrade_move.c */
sb_status sb_up_axes_to_input(sb_draft *d);
sb_status sb_up_concat_4(sb_draft *d);
sb_status sb_up_grid_sample_20(sb_draft *d);
sb_status sb_up_pad_2(sb_draft *d);
sb_status sb_up_pad_11(sb_draft *d);
sb_status sb_up_reshape_5(sb_draft *d);
sb_status sb_up_resize_11(sb_draft *d);
sb_status sb_up_resize_13(sb_draft *d);
sb_status sb_up_roi_align_16(sb_draft *d);
sb_status sb_up_scatter_11(sb_draft *d);
sb_status sb_up_slice_10(sb_draft *d);
sb_status sb_up_split_2(sb_draft *d);
sb_status sb_up_split_13(sb_draft *d);
sb_status sb_up_split_18(sb_draft *d);
sb_status sb_up_tile_6(sb_draft *d);
sb_status sb_up_top_k_10(sb_draft *d);
sb_status sb_up_upsample_7(sb_draft *d);
sb_status sb_up_upsample_9(sb_draft *d);
sb_status sb_up_upsample_10(sb_draft *d);

#endif
